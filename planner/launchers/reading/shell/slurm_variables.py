"""Variables that say where a job runs: those that Slurm sets, as far as a script asks for them, and its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_SLURM = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "gres": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}
"""Option of ``#SBATCH`` -> variables that a job finds."""


def asked_of_slurm(text: str) -> dict[str, str]:
    """Variables that Slurm sets, by the numbers of the script's own ``#SBATCH`` lines."""
    variables: dict[str, str] = {}
    head = re.match(r"(?:[ \t]*(?:#[^\n]*)?\n)*(?:#[^\n]*)?", text)  # behind the first command they count no more
    for option, value in re.findall(r"^#SBATCH\s+--([\w-]+)[=\s]+(\S+)", head[0] if head else "", re.MULTILINE):
        if option in _SLURM and (count := re.fullmatch(r"(?:[A-Za-z]\w*:)*(\d{1,7})", value)):
            variables |= dict.fromkeys(_SLURM[option], count[1])
    return variables


PLACES = ("CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE", "NNODES")
"""Variables by which a program that counts no processes itself knows how many to start."""
SPREADS = re.compile(
    r"ACCELERATE_(USE_\w+|MIXED_PRECISION|CONFIG_FILE|DYNAMO_BACKEND|DEEPSPEED_\w+)"
    r"|FSDP_(VERSION|SHARDING_STRATEGY|OFFLOAD_PARAMS|ACTIVATION_CHECKPOINTING|RESHARD_AFTER_FORWARD)"
)
"""Variables by which Accelerate, and the Trainer with it, spreads a job and computes."""


def places(variables: Mapping[str, object]) -> Iterator[str]:
    """``NAME=value`` of those that are set, to stand before a command; MaxText's ``M_...``, its keys, are of them."""
    spread = (name for name in variables if re.fullmatch(r"M_[A-Z][A-Z0-9_]*", name) or SPREADS.fullmatch(name))
    names = (*PLACES, *spread)
    return (f"{name}={variables[name]}" for name in names if isinstance(variables.get(name), str) and variables[name])
