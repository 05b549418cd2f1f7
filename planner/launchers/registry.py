"""Every target, and what ``--to megatron+slurm`` means."""

from __future__ import annotations

from planner.base.errors import WrongQuestion, suggestion
from planner.launchers import (
    accelerate,
    axolotl,
    deepspeed,
    hf_trainer,
    kubernetes,
    llama_factory,
    maxtext,
    megatron,
    megatron_bridge,
    nccl_tuner,
    primus,
    ray_train,
    slurm,
    torchrun,
    torchtitan,
    trl,
)
from planner.launchers.skypilot_and_dstack import DSTACK, SKYPILOT
from planner.launchers.target import Exporter

_MODULES = (
    *(megatron, megatron_bridge, primus, torchtitan, maxtext, hf_trainer, trl, axolotl, llama_factory),
    *(deepspeed, accelerate, torchrun, slurm),
)
_EXPORTERS = (
    *(module.EXPORTER for module in _MODULES),
    *(
        SKYPILOT,
        *kubernetes.EXPORTERS,
        *ray_train.EXPORTERS,
        DSTACK,
        nccl_tuner.EXPORTER,
    ),
)
EXPORTERS: dict[str, Exporter] = {exporter.name: exporter for exporter in _EXPORTERS}
ROLES = ("trainer", "environment", "scheduler")
"""In the order in which their exporters receive the job."""
MOST = {"trainer": 1, "environment": len(EXPORTERS), "scheduler": 1}


def parts(text: str) -> tuple[Exporter, ...]:
    """The exporters that a target names, in the order of their roles; ``torchrun`` is added where no trainer is named.

    Raises:
        WrongQuestion: a name that is none (with the nearest), one named twice, or two that do the same.
    """
    named = []
    for name in text.split("+"):
        if name not in EXPORTERS:
            hint = suggestion(name, EXPORTERS) or f" Targets are {', '.join(EXPORTERS)}."
            raise WrongQuestion(f"--to {text}: no target {name!r}.{hint} (clusterwright export --to list)")
        named.append(EXPORTERS[name])
    for role in ROLES:
        same = [exporter.name for exporter in named if exporter.role == role]
        if len(set(same)) < len(same):
            raise WrongQuestion(f"--to {text}: {same[-1]} is named twice")
        if len(same) > MOST[role]:
            raise WrongQuestion(f"--to {text}: {' and '.join(same)} are both a {role}; keep one")
    if not any(exporter.role == "trainer" for exporter in named):
        named.append(EXPORTERS["torchrun"])
    return tuple(sorted(named, key=lambda exporter: ROLES.index(exporter.role)))
