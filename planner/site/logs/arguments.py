"""What a log's own dump of its configuration says, as columns of ``docs/runs.md``.

``arguments.toml`` has the names that frameworks give to a column. Three columns follow from several arguments:
precision, recomputation and the ZeRO stage; so do counts that a log states in parts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.axes import values as axis_values
from planner.base.errors import WrongQuestion
from planner.base.units import format_many
from planner.calibration.runs.columns import COUNTS
from planner.schema.launcher_table import launcher_table
from planner.site.logs import dumps

Dump = Mapping[str, str]
"""Argument, as its framework calls it -> its value as text."""

MEGATRON = launcher_table("megatron")
_COLUMNS_OF_FACTS = {
    **{axis: axis for axis in ("tp", "pp", "cp", "ep", "etp", "sequence_parallel")},
    **{f"shape.{name}": name for name in ("layers", "hidden", "heads", "kv_heads", "head_dim")},
    **{"shape.ffn": "ffn_hidden", "shape.moe.ffn": "moe_ffn_hidden", "read.vocab": "vocab", "sequence": "seq_len"},
    **{"shape.moe.experts": "num_experts", "shape.moe.experts_per_token": "topk"},
    **{"micro": "micro_batch", "batch": "global_batch_seqs"},
}
"""Fact of Megatron's table -> column."""
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
COLUMNS = {
    **{
        name.replace("-", "_"): _COLUMNS_OF_FACTS[option.says]
        for name, option in MEGATRON.options.items()
        if option.says in _COLUMNS_OF_FACTS
    },
    **{name: column for column, names in _TABLE["columns"].items() for name in names},
}
"""Name of an argument -> column."""
KEPT = frozenset(name for names in _TABLE["kept"].values() for name in names)
"""Arguments from which columns are derived."""
RECOMPUTE = frozenset(_TABLE["kept"]["recompute"])
STRICT = ("tp", "pp", "cp", "ep", "num_accelerators", "global_batch_seqs", "micro_batch", "layers", "hidden")
"""Columns that are left empty where two names of them differ."""
FSDP_STAGES: Mapping[str, str] = {
    **{"optim": "1", "full_shard": "3", "hybrid_shard": "3", "shard_grad_op": "2", "no_shard": "0"},
    **MEGATRON.words("data-parallel-sharding-strategy"),
}
"""Sharding strategy of FSDP -> ZeRO stage."""
PRECISIONS = (
    *(("bf16", "bf16"), ("bfloat16", "bf16"), ("fp8", "fp8"), ("fp16", "fp16"), ("float16", "fp16"), ("half", "fp16")),
    *(("16-mixed", "fp16"), ("fp32", "fp32"), ("float32", "fp32"), ("32-true", "fp32")),
)
"""Part of a word for a precision -> precision; the first that matches counts."""
_VALUE = re.compile(r"(?!(?:[Nn]one|null|~)$)[A-Za-z0-9][\w.:+-]{0,40}", re.ASCII)
"""A number, a switch or a name; nothing that a spreadsheet would take for a formula."""
_COUNT = re.compile(r"\d{1,15}(\.0)?", re.ASCII)
"""A count: logs of programs that print themselves hold types in its place."""
_LIST = re.compile(r"\[[\w', \"]{0,120}\]", re.ASCII)
"""Names in brackets."""
_SWITCHES = {"True": "1", "true": "1", "False": "0", "false": "0"}
_OFF = ("None", "none", "null", "False", "false", "0")
_ON = ("True", "true", "1")


def stated(line: str) -> Iterator[tuple[str, str]]:
    """``(argument, value)`` of what a line says of the configuration that was measured."""
    for name, value in dumps.stated(line):
        if known(name, value):
            yield name, value


def known(name: str, value: str) -> bool:
    """Whether an argument says something of the configuration; that nothing is recomputed says something, too."""
    if name in RECOMPUTE and value in _OFF:
        return True
    form = _LIST if name == "recompute_modules" else _COUNT if COLUMNS.get(name) in COUNTS else _VALUE
    return (name in COLUMNS or name in KEPT) and form.fullmatch(value) is not None


def of_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    """The columns that a recorded configuration fills: arguments by their names, and torchtitan's sections."""
    flat = [(name, str(value)) for name, value in settings.items() if isinstance(value, str | int | float)]
    return columns({name: value for name, value in (*flat, *dumps.of_titan(settings)) if known(name, value)})


def columns(dump: Dump) -> dict[str, str]:
    """The columns that a dump of arguments fills: those it names, and those that follow from several."""
    row = _named(dump) | _derived(dump)
    row |= {column: text for column, text in _counts(dump, row).items() if column not in row}
    if "dp_shard" in dump and row.get("pp", "1") != "1":
        row.pop("micro_batch", None)  # torchtitan hands a pipeline all its micro-batches as one local batch
    if row.get("num_experts", "0") == "0":
        row = {name: value for name, value in row.items() if name not in ("num_experts", "topk", "moe_ffn_hidden")}
    row["model"] = _TABLE["benchmarks"].get(row.get("model", ""), row.get("model", ""))
    if dump.get("group_query_attention") == "False":
        row.pop("kv_heads", None)
    if _odd(row):
        row.pop("num_accelerators")
    row["notes"] = "; ".join(_notes(dump))
    return {name: value for name, value in row.items() if value and not (name in STRICT and value == "0")}


def _notes(dump: Dump) -> Iterator[str]:
    """What is launched and kept elsewhere, as notes of a measured run say it (docs/runs.md)."""
    graphs = dump.get("cuda_graph_impl") in ("local", "transformer_engine")
    if graphs or any(dump.get(name) in _ON for name in ("enable_cuda_graph", "external_cuda_graph")):
        yield "CUDA graphs: modules"
    if dump.get("optimizer_cpu_offload") in _ON:
        share = dump.get("optimizer_offload_fraction", "1")
        part = float(share) if re.fullmatch(r"[01](\.\d+)?", share) else 1.0
        yield f"optimizer offload {100 * part:.0f} %"
    if dump.get("fine_grained_activation_offloading") in _ON:
        yield "activations in host memory"


def impossible(dump: Dump) -> str:
    """Why a dump can be of no run; empty where it can."""
    return "num_accelerators is 0: no run has that" if "0" in _values(dump, "num_accelerators") else ""


def conflicts(dump: Dump) -> Iterator[str]:
    """What the names of one column say differently, and counts that cannot be of one run."""
    row = _named(dump)
    for column in STRICT:
        if len(values := _values(dump, column)) > 1:
            yield f"{column} is {' and '.join(values)}"
        elif row.get(column) == "0":
            yield f"{column} is 0"
    if _odd(row):
        yield f"{format_many(int(row['num_accelerators']), 'accelerator')} do not divide into TP x PP x CP"


def runtime(dump: Dump) -> str:
    """Id of the runtime, where its dump names another than the lines about steps do; else empty."""
    split = {"tensor_model_parallel_size", "model_parallel_size"} & dump.keys()
    return "megatron-deepspeed" if split and dump.get("deepspeed") in _ON else ""


def _named(dump: Dump) -> dict[str, str]:
    """Columns that arguments fill by themselves."""
    row = {}
    for column in dict.fromkeys(COLUMNS.values()):
        values = _values(dump, column)
        if len(values) == 1 or (values and column not in STRICT):
            row[column] = values[0]
    return row | ({"pp": "1"} if row.get("pp") == "0" else {})  # GPT-NeoX's pipeline that is none


def _values(dump: Dump, column: str) -> list[str]:
    """The different values that names of a column have, in the order of the names."""
    names = [name for name, named in COLUMNS.items() if named == column and name in dump]
    names.sort(key=lambda name: _rank(name, column))
    return list(dict.fromkeys(_plain(dump[name]) for name in names))


def _rank(name: str, column: str) -> int:
    names: list[str] = _TABLE["columns"].get(column, [])
    return names.index(name) if name in names else -1


def _plain(value: str) -> str:
    """A count without a fraction that is none (``1.0``), a switch as a digit."""
    value = _SWITCHES.get(value, value)
    return value.removesuffix(".0") if re.fullmatch(r"\d+\.0", value) else value


def _derived(dump: Dump) -> dict[str, str]:
    cells = {"precision": _precision(dump), "zero_stage": _zero(dump), "activation_recompute": _recompute(dump)}
    return {column: text for column, text in cells.items() if text}


def _precision(dump: Dump) -> str:
    """8 bit where the dump names a format of it, else the 16-bit kind that is switched on."""
    if dump.get("fp4", dump.get("fp4_format", "None")) not in _OFF:
        return "mxfp4" if dump.get("fp4_recipe") == "mxfp4" else "nvfp4"
    if dump.get("fp8", dump.get("fp8_format", "None")) not in _OFF:
        recipe = dump.get("fp8_recipe", "")
        return str(MEGATRON.words("fp8-recipe").get(recipe, "fp8"))
    switches = (("bf16", "bf16"), ("fp16", "fp16"), ("bfloat16_enabled", "bf16"), ("fp16_enabled", "fp16"))
    on = [kind for name, kind in switches if dump.get(name) in _ON]
    words = [dump[name].lower() for name in ("precision", "mixed_precision", "dtype") if name in dump]
    on += [kind for word in words for part, kind in PRECISIONS if part in word]
    return on[0] if on else ""


def _zero(dump: Dump) -> str:
    """The ZeRO stage: DeepSpeed's counts where DeepSpeed runs, which Megatron's dump of its options says by itself."""
    stage = _plain(dump.get("zero_optimization_stage", dump.get("zero_stage", "")))
    if dump.get("use_torch_fsdp2") in _ON:
        return "3"
    if dump.get("use_megatron_fsdp") in _ON:
        return str(FSDP_STAGES.get(dump.get("data_parallel_sharding_strategy", ""), ""))
    if "use_distributed_optimizer" in dump and dump.get("deepspeed") not in _ON:
        return "1" if dump["use_distributed_optimizer"] in _ON else "0"
    if dump.get("deepspeed") in ("False", "false"):
        return "0"
    if "dp_shard" in dump and not stage:
        return "3" if dump["dp_shard"] != "1" else "0"
    return stage or str(FSDP_STAGES.get(dump.get("sharding_strategy", "").rpartition(".")[2].lower(), ""))


def _recompute(dump: Dump) -> str:
    """What is recomputed; empty where no argument says so."""
    if "activation_recompute" in dump:
        return dump["activation_recompute"]
    switches = {name: value for name, value in dump.items() if name in RECOMPUTE}
    granularity = switches.get("recompute_granularity", switches.get("activations_checkpoint_granularity", "None"))
    method = switches.get("recompute_method", switches.get("activations_checkpoint_method", "None"))
    layers = switches.get("recompute_num_layers", switches.get("activations_checkpoint_num_layers", "1"))
    switch = switches.get("activation_checkpointing", "None")
    if granularity == "selective" and (named := re.findall(r"\w+", dump.get("recompute_modules", ""))):
        return _of_modules(named)
    if granularity in ("selective", "full"):
        return f"block:{layers}" if (granularity, method) == ("full", "block") else granularity
    if method in ("uniform", "block"):  # Megatron-LM v2.6, which recomputes whole layers only
        return f"block:{layers}" if method == "block" else "full"
    if any(value in (*_ON, "whole_layer", "full") for value in switches.values()):
        return "full"
    if switch == "fine_grained":
        return "selective"
    return "none" if switches and all(value in _OFF or _is_number(value) for value in switches.values()) else ""


def _of_modules(named: Sequence[str]) -> str:
    """Selective recomputation of modules by name; empty where one is unknown here."""
    try:
        return axis_values.modules("+".join(named), named).name
    except WrongQuestion:
        return ""


def _is_number(text: str) -> bool:
    return text.isdecimal()


def _counts(dump: Dump, row: Mapping[str, str]) -> dict[str, str]:
    """Accelerators and batch, where a log states their factors."""
    groups = _product(row.get("tp", "1"), row.get("pp", "1"), row.get("cp", "1")) or 1
    steps = dump.get("gradient_accumulation_steps", dump.get("Gradient Accumulation steps", ""))
    steps = dump.get("batch_accumulation_per_replica", steps)
    micro = row.get("micro_batch", "")
    batch = row.get("global_batch_seqs", "")
    if "model_parallel_size" in dump and "batch_size" in dump:
        steps = steps or "1"  # Megatron-LM v1 does not accumulate
    replicas = _product(dump.get("dp_replicate", "1"), dump.get("dp_shard", "")) or _replicas_of_nanotron(dump, row)
    count = int(row.get("num_accelerators", "0") or 0) or (replicas or 0) * groups
    in_node = dump.get("devices", dump.get("num_gpus_per_node", ""))
    count = count or _product(in_node, dump.get("num_nodes", "")) or 0
    if not count and groups == 1:
        count = _product(dump.get("deepspeed_world_size", "")) or 0
    if not count and (of_rank := _product(micro, steps)) and batch.isdecimal() and int(batch) % of_rank == 0:
        count = int(batch) // of_rank * groups
    counts = {"num_accelerators": str(count)} if count else {}
    if not batch and count and (of_rank := _product(micro, steps)) and count % groups == 0:
        counts["global_batch_seqs"] = str(of_rank * count // groups)
    return counts


def _replicas_of_nanotron(dump: Dump, row: Mapping[str, str]) -> int | None:
    """The replicas that ``dp`` says; None where experts are split, which nanotron counts apart."""
    return _product(dump.get("dp", "")) if row.get("ep", "1") == "1" else None


def _product(*texts: str) -> int | None:
    """The product of whole numbers; None where one is none."""
    product = 1
    for text in texts:
        if not text.isdecimal() or int(text) == 0:
            return None
        product *= int(text)
    return product


def _odd(row: Mapping[str, str]) -> bool:
    """Whether the accelerators cannot be split as the row says: DeepSpeed calls the replicas its world, for one."""
    groups = _product(row.get("tp", "1"), row.get("pp", "1"), row.get("cp", "1")) or 1
    count = row.get("num_accelerators", "")
    return count.isdecimal() and int(count) % groups != 0
