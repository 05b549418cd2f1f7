"""What an exporter is: a name, what it can express, and a function that turns a plan into files.

There are three roles. A **trainer** says what runs (``megatron``, ``torchtitan``, ``hf-trainer``, ..., or a
custom script under ``torchrun``), an **environment** adds files and environment variables (``nccl-tuner``), a
**scheduler** places it on nodes (``slurm``, ``skypilot``, ``jobset``, ``trainjob``). ``megatron+slurm`` chains them:
each takes the job and returns a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.axes import AXES
from planner.schema.launcher_table import launcher_table
from planner.schema.plan import Plan
from planner.site.profile import SiteProfile

Role = Literal["trainer", "environment", "scheduler"]
Level = Literal["parsed", "validated", "dry-scheduled", "ran-cpu", "ran-gpu"]
"""How far the files of an exporter have been tried: never one word "valid"."""
Allowed = Literal["any"] | tuple[object, ...]
"""What a launcher expresses on one axis of a plan: anything, or the listed values."""


class Shell(str):
    """A word of a command that the shell expands, such as ``$NODE_RANK``; every other word is data."""


class LaunchProgram(str):
    """The word of a command that says what is started; it begins a line of its own."""


@dataclass(frozen=True, slots=True)
class EnvironmentSetting:
    """What a plan does not say and ``--set NAME=VALUE`` does; without a default it stays a placeholder."""

    name: str
    says: str
    default: str | None = None


FIELDS = {
    "batch.micro": "micro-batch",
    "cluster.pools": "nodes",
    "money.days": "length of the run",
    "money.goodput": "restarts",
    "parallelism.pp": "pipeline stages",
    "parallelism.zero_stage": "ZeRO stage",
    "recompute": "recomputation",
    "recompute.policy": "recomputation",
    "site": "settings of the site",
    "site container.image": "container image",
    "workload": "model and data",
    "workload.shape": "the model's shape",
    "workload.shape.moe.router.balance": "balance of the router",
    "workload.shape.moe.router.z_loss": "z-loss of the router",
    "workload.shape.mixers": "mixers of the layers",
    "workload.shape.vocab": "vocabulary",
}
"""Fields of a plan whose last name is not what people call them."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A field of the plan that the launcher does not take over, and what happens instead."""

    field: str
    why: str

    @property
    def called(self) -> str:
        """The field in words."""
        return FIELDS.get(self.field, self.field.rpartition(".")[2].replace("_", " "))


ON_EVERY_NODE = "bash start.sh on every node, with NODE_RANK and MASTER_ADDR set"
"""How a person starts a job without a scheduler; one on one node sets both by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchJob:
    """Files and a command, as they grow from exporter to exporter."""

    command: tuple[str, ...] = ()
    """What one node runs, with ``$NODE_RANK`` and ``$MASTER_ADDR`` left to the shell."""
    argv: tuple[str, ...] = ()
    """The trainer's own arguments."""
    options: Mapping[str, object] = field(default_factory=dict)
    """What a file says in place of arguments: option -> value."""
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Name in the folder -> text."""
    first: tuple[str, ...] = ()
    """Lines of ``start.sh`` that run before the program."""
    needed: tuple[str, ...] = ()
    """Files that every node reads when it runs."""
    install: tuple[str, ...] = ()
    """Lines of shell that install what it starts, in the releases that were tried."""
    newer: str = ""
    """What README says of a release that its options need and the first that was tried lacks."""
    site: SiteProfile = field(default_factory=SiteProfile)
    """What every job of the site needs."""
    benchmark: bool = False
    """Whether it only measures: a few steps on made-up data, nothing evaluated or saved."""
    losses: tuple[Loss, ...] = ()
    """What only turned out while the files were written."""
    start: str = ON_EVERY_NODE
    """How a person starts it."""


Values = Mapping[str, str]
"""Setting -> its value, or its placeholder."""


def _no_refusals(plan: Plan) -> Iterator[str]:
    return iter(())


def _no_losses(plan: Plan) -> Iterator[Loss]:
    return iter(())


def _no_settings(plan: Plan) -> Iterator[EnvironmentSetting]:
    return iter(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """One target of ``--to``."""

    name: str
    title: str
    version: str
    """Of the launcher that the files are written for and were tried with."""
    role: Role
    expresses: Mapping[str, Allowed]
    """Axis -> values."""
    lossy: Mapping[str, str] = field(default_factory=dict)
    """Axis -> what becomes of a value that is not expressed: it is told, in words that follow the value, and lost."""
    emit: Callable[[Plan, LaunchJob, Values], LaunchJob]
    settings: tuple[EnvironmentSetting, ...] = ()
    of_pools: Callable[[Plan], Iterator[EnvironmentSetting]] = _no_settings
    """Settings of each pool of a plan, named by :func:`of_pool`."""
    refuses: Callable[[Plan], Iterator[str]] = _no_refusals
    """Sentences on what `expresses` cannot say: why this plan cannot be started with this launcher."""
    loses: Callable[[Plan], Iterator[Loss]] = _no_losses
    packs: bool = False
    """Whether a trainer packs whole texts and attends to each by itself, where their lengths are stated."""
    weights: str = ""
    """How weights come from Hugging Face and back, by the launcher's own tool, where there is one."""
    level: Level
    validated_by: str
    """What the level was reached with."""
    runtime: str | None = None
    """Id of the runtime that a trainer is; None: it runs a script of one's own, on any."""


def by_table(name: str, **functions: Any) -> Exporter:
    """An exporter by its table, with the functions that make its files."""
    head = launcher_table(name).head
    says = {setting: (words,) if isinstance(words, str) else words for setting, words in head["says"].items()}
    # What a trainer's table does not name it cannot say: only the neutral value of such an axis is nothing to be said.
    silent = () if head.get("rest") == "any" else AXES.keys() - head["expresses"].keys()
    neutral = {axis: (row.exported(row.state(row.neutral)),) for axis, row in AXES.items() if axis in silent}
    return Exporter(
        name=name,
        **{key: head[key] for key in ("title", "version", "role", "level", "validated_by")},
        runtime=head.get("runtime"),
        packs=head.get("packs", False),
        weights=head.get("weights", ""),
        expresses=neutral | head["expresses"],
        lossy=head["loses"] if silent else {},
        settings=tuple(EnvironmentSetting(setting, *says[setting]) for setting in head["settings"]),
        **functions,
    )


def spelt(value: object) -> str:
    """A value of a plan in words: switches are on and off."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def placeholder(name: str) -> str:
    """What stands in the files until a setting is given: ``<data-path>``."""
    return f"<{name}>"


def of_pool(pool: str, setting: str) -> str:
    """The name of one pool's setting: ``pool.dgx-h100.partition``."""
    return f"pool.{pool}.{setting}"
