"""Run by Accelerate's environment: its own loader on exported files. ``read_accelerate.py JOBS ANSWERS``.

``JOBS`` is a JSON list of ``{folder}``.
"""

import json
from pathlib import Path

from accelerate.commands.config.config_args import load_config_from_file
from accelerate.parallelism_config import ParallelismConfig
from answering import answer


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
    return {
        "engine": config.distributed_type.value,
        "precision": config.mixed_precision,
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
