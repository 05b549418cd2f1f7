"""What a log's own dump of its configuration says, as columns of ``docs/runs.md``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from planner.schema.launcher_table import launcher_table

DOTTED = re.compile(r"(?:^|\s)([a-z]\w{2,60}) \.{2,} (\S.*?)\s*$")
"""``  tensor_model_parallel_size ...................... 8``: Megatron-LM (megatron/training/arguments.py, _print_args),
and DeepSpeed (deepspeed/runtime/config.py, print)."""
LISTED = re.compile(r"^\s*(?:\S+: +)?([a-z]\w{2,60}): (\S.*?)\s*$")
"""``tensor_model_parallel_size: 8``: the YAML of Megatron-Bridge, NeMo and Composer."""
ASSIGNED = re.compile(r"\b([a-z]\w{1,60})=([\w.+-]+)\b")
"""``tp=8``: nanotron's records, torchtitan's mesh."""
PARAMETER = re.compile(r"Config param ([a-z]\w+): (\S.*?)\s*$")
"""MaxText (MaxText/pyconfig.py)."""
TITAN = re.compile(
    r"local batch size (?P<micro_batch>\d+), global batch size (?P<global_batch_seqs>\d+), "
    r"gradient accumulation steps \d+, sequence length (?P<seq_len>\d+)"
)
"""torchtitan (torchtitan/train.py): "Trainer is initialized with"."""
TRAINER = re.compile(
    r"^.*?\b(Instantaneous batch size per device|Total train batch size.*?|Total optimization steps) = ([\d,]+)"
)
"""Hugging Face (src/transformers/trainer.py): "***** Running training *****"."""
MLPERF = re.compile(r':::MLLOG .*?"key": "(\w+)", "value": (\d+)')

MEGATRON = launcher_table("megatron")
_COLUMNS_OF_FACTS = {
    **{axis: axis for axis in ("tp", "pp", "cp", "ep", "etp", "sequence_parallel")},
    **{f"shape.{name}": name for name in ("layers", "hidden", "heads", "kv_heads", "head_dim")},
    **{"shape.ffn": "ffn_hidden", "shape.moe.ffn": "moe_ffn_hidden", "read.vocab": "vocab", "sequence": "seq_len"},
    **{"shape.moe.experts": "num_experts", "shape.moe.experts_per_token": "topk"},
    **{"micro": "micro_batch", "batch": "global_batch_seqs"},
}
"""Fact of Megatron's table -> column."""
COLUMNS = {
    **{
        name.replace("-", "_"): _COLUMNS_OF_FACTS[option.says]
        for name, option in MEGATRON.options.items()
        if option.says in _COLUMNS_OF_FACTS
    },
    "world_size": "num_accelerators",
    "n_gpus": "num_accelerators",
    "num_devices": "num_accelerators",
    "sequence_length": "seq_len",
    "max_seq_len": "seq_len",
    "max_sequence_length": "seq_len",
    "max_target_length": "seq_len",
    "train_batch_size": "global_batch_seqs",
    "global_train_batch_size": "global_batch_seqs",
    "global_batch_size_to_train_on": "global_batch_seqs",
    "Total train batch size": "global_batch_seqs",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "device_train_microbatch_size": "micro_batch",
    "Instantaneous batch size per device": "micro_batch",
    "tp": "tp",
    "pp": "pp",
    "virtual_pipeline_model_parallel_size": "vpp",
    "cp": "cp",
    "ep": "ep",
    "etp": "etp",
    "zero_optimization_stage": "zero_stage",
    "zero_stage": "zero_stage",
    "swiglu": "gated_mlp",
    "num_moe_experts": "num_experts",
    "model_name": "model",
    "activation_recompute": "activation_recompute",
}
"""Name of an argument -> column. What both dumps of one log call the same means the same."""
KEPT = (
    *("bf16", "fp16", "fp8", "fp8_format", "fp8_recipe", "fp4", "fp4_format", "fp4_recipe", "precision"),
    *("bfloat16_enabled", "fp16_enabled"),
    *("recompute_granularity", "recompute_method", "recompute_num_layers"),
    *("use_distributed_optimizer", "use_megatron_fsdp", "data_parallel_sharding_strategy"),
    *("dp_shard", "group_query_attention", "Total optimization steps"),
)
"""Arguments from which columns are derived."""
FSDP_STAGES = {"optim": "1", **MEGATRON.words("data-parallel-sharding-strategy")}
"""Megatron-FSDP's ``--data-parallel-sharding-strategy`` -> ZeRO stage."""
_VALUE = re.compile(r"(?!(?:[Nn]one|null|~)$)[A-Za-z0-9][\w.:+-]{0,40}", re.ASCII)
"""A number, a switch or a name; nothing that a spreadsheet would take for a formula."""
_SWITCHES = {"True": "1", "true": "1", "False": "0", "false": "0"}


def stated(line: str) -> Iterator[tuple[str, str]]:
    """``(argument, value)`` of everything a line says of a configuration; names as the framework has them."""
    if " .." in line and (match := DOTTED.search(line)):
        yield match[1], match[2]
    elif "Config param" in line and (match := PARAMETER.search(line)):
        yield match[1], match[2]
    elif "local batch size" in line and (match := TITAN.search(line)):
        yield from match.groupdict().items()
    elif " with parallelism: " in line or ("Args(" in line and "=" in line):
        yield from ASSIGNED.findall(line)
    elif " = " in line and (match := TRAINER.search(line)):
        yield match[1].partition(" (")[0], match[2].replace(",", "")
    elif ":::MLLOG" in line and (match := MLPERF.search(line)):
        yield match[1], match[2]
    elif "Running with " in line:
        yield from _json(line)
    elif ": " in line and len(line) < 120 and (match := LISTED.match(line)):
        yield match[1], match[2].strip("'\"")


def known(name: str, value: str) -> bool:
    """Whether an argument says something of the configuration that was measured."""
    return (name in COLUMNS or name in KEPT or name in COLUMNS.values()) and _VALUE.fullmatch(value) is not None


def _json(line: str) -> Iterator[tuple[str, str]]:
    """Torchtitan's whole configuration on a line."""
    start = line.find("{")
    try:
        data = json.loads(line[start:]) if start >= 0 else {}
    except (ValueError, RecursionError):
        return
    if isinstance(data, dict):
        yield from _titan(data)


def _titan(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Torchtitan's configuration (torchtitan/config): model and recomputation."""
    model, checkpointing = data.get("model"), data.get("activation_checkpoint")
    if isinstance(model, dict) and all(isinstance(model.get(key), str) for key in ("name", "flavor")):
        yield "model_name", f"{model['name']}-{model['flavor']}".lower()
    if isinstance(checkpointing, dict) and checkpointing.get("mode") in ("none", "selective", "full"):
        yield "activation_recompute", str(checkpointing["mode"])


def of_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """The columns that a recorded configuration fills: arguments by their names, and torchtitan's sections."""
    flat = [(name, str(value)) for name, value in settings.items() if isinstance(value, str | int | float)]
    return columns({name: value for name, value in (*flat, *_titan(settings)) if known(name, value)})


def columns(found: Mapping[str, str]) -> dict[str, str]:
    """The columns that a dump of arguments fills: those it names, and those that follow from several."""
    row = {COLUMNS.get(name, name): _SWITCHES.get(value, value) for name, value in found.items() if name not in KEPT}
    row |= _derived(found)
    if "dp_shard" in found and row.get("pp", "1") != "1":
        row.pop("micro_batch", None)  # torchtitan hands a pipeline all its micro-batches as one local batch
    if row.get("num_experts") == "0":
        row = {name: value for name, value in row.items() if name not in ("num_experts", "topk", "moe_ffn_hidden")}
    if found.get("group_query_attention") == "False":
        row.pop("kv_heads", None)
    return {name: value for name, value in row.items() if value}


def _derived(found: Mapping[str, str]) -> dict[str, str]:
    row = {}
    if precision := _precision(found):
        row["precision"] = precision
    if "use_distributed_optimizer" in found:
        row["zero_stage"] = "1" if found["use_distributed_optimizer"] == "True" else "0"
    if found.get("use_megatron_fsdp") == "True":
        row["zero_stage"] = FSDP_STAGES.get(found.get("data_parallel_sharding_strategy", ""), "")
    if "dp_shard" in found:
        row["zero_stage"] = "3" if found["dp_shard"] != "1" else "0"
    if "tensor_model_parallel_size" in found:
        row["activation_recompute"] = _recompute(found)
    return row


def _precision(found: Mapping[str, str]) -> str:
    """8 bit where the dump names a format of it, else the 16-bit kind that is switched on."""
    if found.get("fp4", found.get("fp4_format", "None")) not in ("None", "False"):
        return "mxfp4" if found.get("fp4_recipe") == "mxfp4" else "nvfp4"
    if found.get("fp8", found.get("fp8_format", "None")) not in ("None", "False"):
        recipe = found.get("fp8_recipe", "")
        return str(MEGATRON.words("fp8-recipe").get(recipe, "fp8"))
    on = [name for name in ("bf16", "fp16") if found.get(name) == "True"]
    on += [kind for name, kind in (("bfloat16_enabled", "bf16"), ("fp16_enabled", "fp16")) if found.get(name) == "True"]
    if "precision" in found and not on:
        on = [kind for kind in ("bf16", "fp16", "fp8") if kind in found["precision"]]
    return on[0] if on else ""


def _recompute(found: Mapping[str, str]) -> str:
    granularity = found.get("recompute_granularity", "none")
    if granularity == "full" and found.get("recompute_method") == "block":
        return f"block:{found.get('recompute_num_layers', '1')}"
    return granularity
