"""What a script counts: accelerators of a node, nodes of a job, words of a list of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping

NODE = "accelerators of a node"
NODES = "nodes of the job"
"""Under which the machine's counts stand among a script's variables; no shell has variables of such names."""
_OF_NODE = re.compile(
    r"(nvidia|rocm)-smi\b.*\|\s*wc\s+-l|(nvidia|rocm)-smi\b.*\|\s*grep\s+-c|torch\.cuda\.device_count\(\)"
    r"|ls\s+(-\S+\s+)?/dev/nvidia\[0-9\]\S*\s*\|\s*wc\s+-l"
)
_OF_JOB = re.compile(r"scontrol\s+show\s+hostnames?\b.*\|\s*wc\s+-l")
_OF_LIST = re.compile(
    r"echo\s+(?P<list>\S+)\s*\|\s*(awk\s+-F\s*['\"]?,['\"]?\s+['\"]\{\s*print\s+NF\s*;?\s*\}['\"]"
    r"|tr\s+['\"]?,['\"]?\s+['\"]\\+n['\"]\s*\|\s*wc\s+-[lw]|wc\s+-w)"
)
_SLURM = {"SLURM_NNODES": NODES, "SLURM_JOB_NUM_NODES": NODES, "SLURM_GPUS_ON_NODE": NODE, "SLURM_GPUS_PER_NODE": NODE}
COUNTS = re.compile(f"{_OF_NODE.pattern}|{_OF_JOB.pattern}|{'|'.join(_SLURM)}")
"""In a text that counts the machine."""


MACHINE = re.compile(r"\b(nvidia-smi|rocm-smi|amd-smi|npu-smi|scontrol|squeue|ibstat)\b")
"""Programs that know the machine, which the sandbox has not."""


def of_slurm(counts: Mapping[str, str]) -> dict[str, str]:
    """Variables that Slurm sets in a job, by the machine's counts where they are known."""
    return {name: counts[kind] for name, kind in _SLURM.items() if kind in counts}


def counted(
    command: str, given: str | None, variables: Mapping[str, object], defaults: MutableMapping[str, str]
) -> str | None:
    """What a command between ``$(`` and ``)`` prints, where it counts; None where it does anything else.

    Args:
        command: As it is written.
        given: The list that it counts, its variables put in, where it counts one.
        variables: What the script has, with the machine's counts.
        defaults: Filled with the machine's count that was taken.
    """
    command = f"{command} {given} | wc -l" if given and "scontrol" in given else command
    if given is not None and re.fullmatch(r"[\w.:-]+(,[\w.:-]+)*", given):
        return str(given.count(",") + 1)
    kind = NODE if _OF_NODE.search(command) else NODES if _OF_JOB.search(command) else None
    if kind is None or not isinstance(count := variables.get(kind), str):
        return None
    defaults[kind] = count
    return count


def listed(command: str) -> str | None:
    """The word whose parts a command counts, as it is written."""
    match = _OF_LIST.search(command)
    return match["list"] if match else None
