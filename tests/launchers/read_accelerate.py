"""Run by Accelerate's environment: its own loader on exported files. ``read_accelerate.py JOBS ANSWERS``.

``JOBS`` is a JSON list of ``{folder}``.
"""

import json
from pathlib import Path

from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.parallelism_config import ParallelismConfig
from answering import answer


def precision(config, inner):
    """What the engine computes with; a DeepSpeed file says so itself."""
    if inner is None:
        return config.mixed_precision
    said = json.loads(inner.read_text())
    return next((name for name in ("bf16", "fp16") if said.get(name, {}).get("enabled")), "no")


def read(job):
    """What Accelerate makes of one file."""
    path = Path(job["folder"], "accelerate.yaml")
    config = load_config_from_file(str(path))
    degrees = config.parallelism_config or {}
    sizes = {name.removeprefix("parallelism_config_"): size for name, size in degrees.items()}
    parallel = ParallelismConfig(**sizes) if sizes else None
    fsdp = config.fsdp_config or {}
    deepspeed = config.deepspeed_config or {}
    inner = path.parent / deepspeed["deepspeed_config_file"] if deepspeed else None
    known, _, twice = _validate_launch_command(launch_command_parser().parse_args(["--config_file", str(path), "x.py"]))
    if known.use_deepspeed and twice:
        raise ValueError("mixed_precision beside deepspeed_config_file: DeepSpeedPlugin stops at it")
    return {
        "engine": config.distributed_type.value,
        "precision": precision(config, inner),
        "machines": config.num_machines,
        "world": config.num_processes,
        "product": parallel.total_size if parallel else None,
        "mesh": [parallel.dp_replicate_size, parallel.dp_shard_size] if parallel else None,
        "tp": parallel.tp_size if parallel else 1,
        "cp": parallel.cp_size if parallel else 1,
        "reshard": fsdp.get("fsdp_reshard_after_forward"),
        "recompute": fsdp.get("fsdp_activation_checkpointing"),
        "zero": json.loads(inner.read_text())["zero_optimization"]["stage"] if inner else None,
    }


answer(read)
