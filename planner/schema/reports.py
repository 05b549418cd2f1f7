"""What ``--json`` prints of measured runs and of a step's collectives. SI units; errors are fractions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.schema.record import Record


@dataclass(frozen=True, kw_only=True)
class MemoryErrors(Record):
    """Errors of the peak, of runs whose memory was read off a device; null where there are none."""

    n: int
    mape: float | None
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    interval80_coverage: float | None


@dataclass(frozen=True, kw_only=True)
class FeasibilityAtRisk(Record):
    """Which runs are called infeasible where so much risk is accepted."""

    oom_risk: float
    foreseen: int
    called_infeasible: int


@dataclass(frozen=True, kw_only=True)
class Feasibility(Record):
    """Runs that fitted and runs that ran out of memory, next to the median prediction."""

    n: int
    """Runs that ran out of memory."""
    foreseen: int
    """Of those, called infeasible."""
    ran: int
    """Runs that fitted."""
    called_infeasible: int
    """Of those, called infeasible."""
    at_risk: FeasibilityAtRisk


@dataclass(frozen=True, kw_only=True)
class ChoiceErrors(Record):
    """How well predictions choose among plans that were measured for one job."""

    groups: int
    """Jobs."""
    mean_regret: float | None
    """How much slower than the best measured plan the one predicted fastest is, on average."""
    max_regret: float | None
    pairwise: float | None
    """Pairs more than 3 % apart that are put in the right order."""
    spearman: float | None
    """Correlation of ranks, mean over the jobs."""


@dataclass(frozen=True, kw_only=True)
class GroupErrors(Record):
    """Errors of the step time over some runs; null where none is predicted."""

    name: str | None = None
    """Of the group; not in the overall figures."""
    n: int
    covered: int
    """Of those, predicted and measured."""
    mape: float | None
    """Mean absolute relative error."""
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    """Mean signed relative error: positive is too slow."""
    spearman: float | None
    """Correlation of ranks."""
    interval80_coverage: float | None
    """Share of the runs inside their 80 % interval."""
    memory: MemoryErrors
    oom: Feasibility
    choice: ChoiceErrors


@dataclass(frozen=True, kw_only=True)
class CoveredRows(Record):
    """Of runs that state enough, how many are predicted."""

    rows: str
    """Which runs."""
    n: int
    covered: int


@dataclass(frozen=True, kw_only=True)
class NotCovered(Record):
    """Runs of a source that are not predicted."""

    source: str
    reason: str
    n: int


@dataclass(frozen=True, kw_only=True)
class ProfiledErrors(Record):
    """Errors on the runs that a profile of layer times holds for: with it, and without."""

    n: int
    measured: dict[str, float | None] | None
    modelled: dict[str, float | None] | None


@dataclass(frozen=True, kw_only=True)
class Validation(Record):
    """Predictions of a CSV's runs against what was measured (``validate --json``)."""

    kind: Literal["validation"] = "validation"
    schema_version: Literal[1] = 1
    by: Literal["source", "model", "accelerator"]
    """What the groups are."""
    overall: GroupErrors
    coverage: tuple[CoveredRows, ...]
    groups: tuple[GroupErrors, ...]
    not_covered: tuple[NotCovered, ...]
    inferred: dict[str, int]
    """Rule by which something was inferred that a row does not state -> rows."""
    profiles: ProfiledErrors | None = None
    unread_columns: tuple[str, ...] = ()
    """Columns of the file that mean nothing here."""


@dataclass(frozen=True, kw_only=True)
class CallRecord(Record):
    """One kind of call. Times are of all its calls in a step."""

    op: str
    group: str
    """The dimension whose ranks talk: tp, cp, ep, etp, dp, dp-replicas, edp, edp-replicas, pp."""
    cause: str
    """The term of the step's breakdown that it is part of."""
    ranks: int
    inside: int
    """Ranks of the group in one scale-up domain."""
    reach: float
    """Accelerators from the group's first rank to its last, in rank order."""
    where: str
    """What its traffic crosses: domain, rail, spine, or dimensions."""
    bytes: float
    """Of one call, as nccl-tests counts."""
    count: float
    """Calls a step of one rank."""
    alone_s: float
    """If nothing ran beside them."""
    exposed_s: float
    """What the step takes longer by."""
    pools: tuple[int, ...] | None = None
    """Pools that its ranks stand on; this and the following only where a plan is over several."""
    pipelines: int | None = None
    """Group of alike pipelines, from 0."""
    stage: int | None = None
    """Of these, from 0."""
    paces: bool | None = None
    """Whether it is of the stage that sets the pace."""
    leads: bool | None = None
    """Whether it is listed for all that are like it."""
    choice: str
    """Back end, algorithm and protocol by the plan's rules; empty without."""
    runner_up: str


@dataclass(frozen=True, kw_only=True)
class Communication(Record):
    """The collectives of a plan's step (``comm show --json``)."""

    kind: Literal["communication"] = "communication"
    schema_version: Literal[1] = 1
    step_time_s: float
    exposed_s: dict[str, float]
    """Cause -> seconds that the step waits for."""
    calls: tuple[CallRecord, ...]
