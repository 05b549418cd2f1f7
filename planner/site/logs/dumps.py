"""What a line of a log says of the configuration: names and values as the framework that dumps them has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

DOTTED = re.compile(r"(?:^|\s)([a-z]\w{2,60}) \.{2,} (\S.*?)(?:\.+(?:default|updated))?\s*$")
"""``  tensor_model_parallel_size ...................... 8``: Megatron-LM (megatron/training/arguments.py, _print_args),
DeepSpeed (deepspeed/runtime/config.py, print) and, with where the value is from, GPT-NeoX (megatron/neox_arguments)."""
LISTED = re.compile(r"^\s*(?:\S+: +)?([a-z]\w{2,60}): (\S.*?)\s*$")
"""``tensor_model_parallel_size: 8``: the YAML of Megatron-Bridge, NeMo, Composer, OLMo and torchtune."""
HELD = re.compile(r"""^.{0,400}?(?:^|[\s(])([a-z]\w{1,60})=['"]?([\w.+-]+)['"]?,\s*$""")
"""``per_device_train_batch_size=4,``: a record printed a field a line (Hugging Face's Trainer, nanotron, litgpt)."""
QUOTED = re.compile(r"""^\s*["']([a-z]\w{2,60})["']: ["']?([\w.+-]+)["']?,?\s*$""")
"""``"num_hidden_layers": 32,``: a Hugging Face configuration."""
ASSIGNED = re.compile(r"\b([a-z]\w{1,60})=([\w.+-]+)\b")
"""``tp=8``: nanotron's records, torchtitan's mesh."""
OVERRIDDEN = (" with parallelism: ", "Overriding config: ")
"""What stands before settings in a line: torchtitan's mesh, and what Hugging Face's run_clm.py (examples/pytorch) puts
in place of what it has dumped, so that the two contradict each other."""
PARAMETER = re.compile(r"Config param ([a-z]\w+): (\S.*?)\s*$")
"""MaxText (MaxText/pyconfig.py)."""
TITAN = re.compile(
    r"local batch size (?P<micro_batch>\d+), global batch size (?P<global_batch_seqs>\d+), "
    r"(?:gradient accumulation steps \d+, )?sequence length (?P<seq_len>\d+)(?:, total steps (?P<total_steps>\d+))?"
)
"""torchtitan (torchtitan/train.py): "Trainer is initialized with", until 2025 "Training starts at step 1, with"."""
TRAINER = re.compile(
    r"^.*?\b(Instantaneous batch size per device|Total train batch size.*?|Gradient Accumulation steps"
    r"|Total optimization steps) = ([\d,]+)"
)
"""Hugging Face (src/transformers/trainer.py): "***** Running training *****"."""
MLPERF = re.compile(r':::MLLOG .*?"key": "(\w+)", "value": "?([\w.+-]+)"?[,}]')
"""A value of MLPerf's logs (mlcommons/logging mlperf_logging/mllog)."""
PLATFORM = re.compile(r'"submission_platform", "value": "(\d+)x((?:NVIDIA|DGX|HGX|GB\d|MI\d)[^"]*)"')
"""``2xNVIDIA GB200`` is two nodes (NVIDIA's and AMD's submissions to MLPerf Training)."""
IN_FOURS = re.compile(r"\bG[BH]\d{3}\b")
"""Accelerators that come with a processor, four in a node; others come in eights."""
LIGHTNING = re.compile(r"distributed processes registered\. Starting with (\d+) processes")
"""Lightning (lightning/pytorch/strategies/ddp.py)."""


def stated(line: str) -> Iterator[tuple[str, str]]:
    """``(argument, value)`` of everything a line says of a configuration; names as the framework has them."""
    if " .." in line and (match := DOTTED.search(line)):
        # DeepSpeed counts the replicas here, where a model is split.
        of_deepspeed = match[1] == "world_size" and "[config.py" in line
        yield ("deepspeed_world_size" if of_deepspeed else match[1]), match[2]
    elif "Config param" in line and (match := PARAMETER.search(line)):
        yield match[1], match[2]
    elif "local batch size" in line and (match := TITAN.search(line)):
        yield from ((name, value) for name, value in match.groupdict().items() if value)
    elif any(word in line for word in OVERRIDDEN) or ("Args(" in line and "=" in line):
        yield from ASSIGNED.findall(line)
    elif " = " in line and (match := TRAINER.search(line)):
        yield match[1].partition(" (")[0], match[2].replace(",", "")
    elif ":::MLLOG" in line:
        yield from MLPERF.findall(line)
        if match := PLATFORM.search(line):
            in_node = "4" if IN_FOURS.search(match[2]) else "8"
            yield from (("num_nodes", match[1]), ("devices", in_node), ("accelerators_per_node", in_node))
    elif "Running with " in line:
        yield from _json(line)
    elif "processes registered" in line and (match := LIGHTNING.search(line)):
        yield "processes", match[1]
    elif len(line) < 400:
        yield from _of_one_setting(line)


def _of_one_setting(line: str) -> Iterator[tuple[str, str]]:
    """The setting of a line that holds nothing else."""
    held = "=" in line and line.rstrip().endswith(",") and HELD.match(line)
    quoted = ": " in line and len(line) < 120 and QUOTED.match(line)
    listed = ": " in line and len(line) < 120 and LISTED.match(line)
    if (match := held or quoted) and match[1] != "batch_size":  # that of some loader, in a record
        yield match[1], match[2]
    elif match := listed:
        yield match[1], match[2].strip("'\"")


def _json(line: str) -> Iterator[tuple[str, str]]:
    """Torchtitan's whole configuration on a line."""
    start = line.find("{")
    try:
        data = json.loads(line[start:]) if start >= 0 else {}
    except (ValueError, RecursionError):
        return
    if isinstance(data, dict):
        yield from of_titan(data)


def of_titan(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Torchtitan's configuration (torchtitan/config): model and recomputation."""
    model, checkpointing = data.get("model"), data.get("activation_checkpoint")
    if isinstance(model, dict) and all(isinstance(model.get(key), str) for key in ("name", "flavor")):
        yield "model_name", f"{model['name']}-{model['flavor']}".lower()
    if isinstance(checkpointing, dict) and checkpointing.get("mode") in ("none", "selective", "full"):
        yield "activation_recompute", str(checkpointing["mode"])
