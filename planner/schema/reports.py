"""What ``--json`` prints of measured runs, fits, traces, collectives and limits. SI units; errors are fractions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from planner.base.units import format_count, format_seconds, format_usd
from planner.schema import notebook
from planner.schema.plan import Interval, Plan
from planner.schema.record import Answer, Record, Sparse

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Comparison(Answer[tuple[str, str, str]]):
    """What changes from the first plan to the second."""

    shown = ("plan", *Plan.shown[1:])

    kind: Literal["comparison"] = "comparison"
    schema_version: Literal[1] = 1
    questions: tuple[str, ...]
    """Why the two do not answer one question: other work or other machines."""
    differing: tuple[tuple[str, str, str], ...]
    """(axis, first, second)."""
    step: float
    """Seconds of a step, second over first, for one batch: < 1 is faster."""
    days: float
    """Days of the first's whole run, on the second less on the first."""
    usd: float | None
    """Its price, on the second less on the first."""
    tokens: float
    """Tokens per second, second over first."""
    interval: Sparse[Interval] = None
    """80 % interval of `tokens`: what both share cancels. Not in documents of before 2026-12."""
    distinguishable: bool
    """Whether 1 is outside it."""
    plans: tuple[Plan, Plan]
    """The two."""

    def parts(self) -> Sequence[tuple[str, str, str]]:
        """The axes that differ."""
        return self.differing

    def rows(self) -> list[dict[str, Any]]:
        """A row for each of the two: every axis and figure in a column, units in its name."""
        return [{"plan": n, **plan.row()} for n, plan in zip(("first", "second"), self.plans, strict=True)]

    def rows_of(self, parts: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
        """An axis with both values as people read them."""
        return [dict(zip(("axis", "first", "second"), part, strict=True)) for part in parts]

    def plot(self) -> Axes:
        """Both steps by cause, in seconds, with matplotlib."""
        steps = (plan.prediction.breakdown for plan in self.plans)
        return notebook.stacked(dict(zip(("first", "second"), steps, strict=True)), "seconds")

    def title(self) -> str:
        """How much faster the second is, and whether that can be told."""
        return (
            f"tokens/s x{self.tokens:.3f}, {self.days:+.1f} days, "
            + f"{len(self.differing)} {'axis differs' if len(self.differing) == 1 else 'axes differ'}"
            + ("" if self.distinguishable else "; the prediction cannot tell them apart")
            + (f"; other {', '.join(self.questions)}" if self.questions else "")
        )


class FitErrors(Record):
    """Errors of the predicted step time over some runs."""

    mape: float
    """Mean absolute relative error."""
    median_ape: float
    p90_ape: float
    bias: float
    """Mean signed relative error: positive is too slow."""
    spearman: float | None
    """Correlation of ranks."""
    interval80_coverage: float | None
    """Share of the runs inside their 80 % interval."""


class FittedFactor(Record):
    """How far a parameter moved from where the fit started."""

    name: str
    factor: float
    spread: float
    """Standard deviation of its logarithm."""


class FitToRuns(Record):
    """Efficiencies fitted to measured runs (``calibrate FILE --json``), or adapted to a site's (``--site``)."""

    kind: Literal["calibration"] = "calibration"
    schema_version: Literal[1] = 1
    rows: int
    """Runs."""
    parameters: int
    degrees_of_freedom: float
    before: FitErrors | None = None
    """With what is shipped, of a site's runs; null without a run."""
    fit: FitErrors | None
    """Errors of the runs that were fitted."""
    left_out: FitErrors | None
    """Errors of runs that the fit had not seen: each lab's in turn, of a site each run."""
    frameworks: int | None = None
    """Frameworks of a site's runs."""
    skipped: tuple[str, ...] | None = None
    """Which cross-validation was not made, and why; not of a site."""
    factors: tuple[FittedFactor, ...]
    files: tuple[str, ...] | None = None
    """That were written."""
    journal: str | None = None
    """Digest of a site's runs that were fitted."""


class KernelErrors(Record):
    """Errors over the kernels of one kind."""

    kind: str
    rows: int
    mape: float
    bias: float
    """Mean signed relative error: positive is predicted too slow."""
    prior_mape: float
    """With the entry that the fit started from."""


class FitToKernels(Record):
    """Efficiencies of an accelerator fitted to timed kernels (``calibrate --measure`` or ``--table``, ``--json``)."""

    kind: Literal["kernel-calibration"] = "kernel-calibration"
    schema_version: Literal[1] = 1
    accelerator: str
    rows: int
    degrees_of_freedom: float
    mape: float
    kinds: tuple[KernelErrors, ...]
    levels_kept: bool
    """Whether the levels of products, attention and memory stay those that whole training steps showed."""
    refused: tuple[str, ...]
    """Kernels that could not be timed, and why."""
    files: tuple[str, ...]


class CollectiveErrors(Record):
    """Errors over some collectives with what the fit started from, and with the fit."""

    what: str
    rows: int
    before: float
    after: float


class FitToCollectives(Record):
    """Efficiencies of links and fabrics fitted to timed collectives (``calibrate --collectives --json``)."""

    kind: Literal["collective-calibration"] = "collective-calibration"
    schema_version: Literal[1] = 1
    rows: int
    left_out: dict[str, int]
    """Reason -> rows."""
    entries: tuple[str, ...]
    """Entries of the catalog that were written."""
    errors: tuple[CollectiveErrors, ...]
    files: tuple[str, ...]


class MemoryErrors(Record):
    """Errors of the peak, of runs whose memory was read off a device; null where there are none."""

    n: int
    mape: float | None
    median_ape: float | None
    p90_ape: float | None
    bias: float | None
    interval80_coverage: float | None


class FeasibilityAtRisk(Record):
    """Which runs are called infeasible where so much risk is accepted."""

    oom_risk: float
    foreseen: int
    called_infeasible: int


class Feasibility(Record):
    """Runs that fitted and runs that ran out of memory, next to the median prediction."""

    n: int
    """Runs that ran out of memory."""
    foreseen: int
    """Runs among them that are called infeasible."""
    ran: int
    """Runs that fitted."""
    called_infeasible: int
    """Runs among them that are called infeasible."""
    at_risk: FeasibilityAtRisk


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


class LeverErrors(Record):
    """How well predictions compare two runs that differ in one lever alone."""

    lever: str
    pairs: int
    apart: int
    """Pairs among them that were measured more than 3 % apart."""
    ordered: float | None
    """Share of the pairs apart that is put in the right order."""
    ratio_error: float
    """How far the predicted ratio of the two times is from the measured one, the median."""


class GroupErrors(Record):
    """Errors of the step time over some runs; null where none is predicted."""

    name: str | None = None
    """Name of the group; not in the overall figures."""
    n: int
    covered: int
    """Runs among them that are predicted and measured."""
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


class CoveredRows(Record):
    """How many runs that state enough are predicted."""

    rows: str
    """Which runs."""
    n: int
    covered: int


class NotCovered(Record):
    """Runs of a source that are not predicted."""

    source: str
    reason: str
    n: int


class ProfiledErrors(Record):
    """Errors on the runs that a profile of layer times holds for: with it, and without."""

    n: int
    measured: dict[str, float | None] | None
    modelled: dict[str, float | None] | None


class Validation(Record):
    """Predictions of a CSV's runs against what was measured (``validate --json``)."""

    kind: Literal["validation"] = "validation"
    schema_version: Literal[1] = 1
    by: Literal["source", "model", "accelerator", "task"]
    """What the groups are."""
    overall: GroupErrors
    coverage: tuple[CoveredRows, ...]
    groups: tuple[GroupErrors, ...]
    levers: tuple[LeverErrors, ...] = ()
    """Lever by lever, and all of them last."""
    not_covered: tuple[NotCovered, ...]
    inferred: dict[str, int]
    """Rule by which something was inferred that a row does not state -> rows."""
    profiles: ProfiledErrors | None = None
    unread_columns: tuple[str, ...] = ()
    """Columns of the file that mean nothing here."""


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
    """Bytes of one call, as nccl-tests counts."""
    count: float
    """Calls a step of one rank."""
    alone_s: float
    """If nothing ran beside them."""
    exposed_s: float
    """What the step takes longer by."""
    pools: Sparse[tuple[int, ...]] = None
    """Pools that its ranks stand on; this and the following only where a plan is over several."""
    pipelines: int | None = None
    """Group of alike pipelines, from 0."""
    stage: int | None = None
    """Index of the stage, from 0."""
    paces: bool | None = None
    """Whether it is of the stage that sets the pace."""
    leads: bool | None = None
    """Whether it is listed for all that are like it."""
    choice: str
    """Back end, algorithm and protocol by the plan's rules; empty without."""
    runner_up: str


class Communication(Record):
    """The collectives of a plan's step (``comm show --json``)."""

    kind: Literal["communication"] = "communication"
    schema_version: Literal[1] = 1
    step_time_s: float
    exposed_s: dict[str, float]
    """Cause -> seconds that the step waits for."""
    calls: tuple[CallRecord, ...]


class TimedCall(Record):
    """The time of one collective by one candidate."""

    op: str
    ranks: int
    bytes: int
    """Bytes of the call, as nccl-tests counts."""
    backend: str
    algorithm: str
    """Empty where it cannot be chosen; so the protocol."""
    protocol: str
    seconds: float
    """Mean without the lowest and highest fifth of the rounds."""
    spread: float | None
    """Half of the 95 % interval of the mean, relative to it; null of a single round."""
    rounds: int


class CommunicationTable(Record):
    """Measured collectives (``comm tune`` and ``comm import``, ``--json``)."""

    kind: Literal["communication-table"] = "communication-table"
    schema_version: Literal[1] = 1
    cells: tuple[TimedCall, ...]


class FittingPlan(Record):
    """The fastest plan that fits where a run ran out of memory, next to what was predicted for that run."""

    where: str
    """What it shares with the run, in words."""
    configuration: str
    """As ``estimate`` takes it."""
    step_time_s: float
    step_time_ratio: float
    """Over the run's prediction; dollars have the same ratio, on the same nodes."""
    memory_bytes: float
    ran_out_at_bytes: float
    """Peak that was predicted for the run."""
    usd: float | None
    """Dollars of the model's whole training."""
    tokens: float
    """Tokens of the whole training."""

    def __str__(self) -> str:
        price = f", {format_usd(self.usd)} for {format_count(self.tokens)} tokens" if self.usd else ""
        return (
            f"fits {self.where}: {self.configuration}: {format_seconds(self.step_time_s)} a step "
            f"({100 * (self.step_time_ratio - 1):+.0f} % of the prediction for this run){price}, "
            f"{self.memory_bytes / 2**30:.1f} GiB (this run: {self.ran_out_at_bytes / 2**30:.1f} by prediction)"
        )


class LearntRun(Record):
    """A measured run next to what was predicted of it before."""

    new: bool
    """Whether the journal did not have it."""
    predicted_s: float | None
    predicted_mfu: float | None = None
    predicted_memory_bytes: float | None = None
    """Peak, counted as the run's own was."""
    reason: str
    """Why it cannot be predicted; empty if it can."""
    notes: Annotated[tuple[str, ...], Field(alias="told")]
    """What was read off the log or the plan, and what contradicted it."""
    row: dict[str, str]
    """As the journal has it: column -> cell."""
    fits_instead: tuple[FittingPlan, ...] = ()
    """Plans that fit, with their prices, where the run ran out of memory."""
    fits_elsewhere: str = ""
    """What would fit where none of these does."""


class Learnt(Record):
    """What a site learnt from runs (``learn --json``)."""

    kind: Literal["lesson"] = "lesson"
    schema_version: Literal[1] = 1
    journal: str
    rows: tuple[LearntRun, ...]
    fit: FitToRuns | None
    """To all of the site's runs; null where none can be predicted."""


class SweepCurrency(Record):
    """In which currency the question was asked."""

    code: str
    usd: float
    """US dollars of one unit of it."""
    date: str


class SweepPoint(Record):
    """The best answer at one value of the limit; figures are null where there is none."""

    limit: float
    what: str
    value: float | None
    gap: float | None
    done_day: float | None
    total_usd: float | None
    carbon_kg: float | None
    front: bool
    """Whether no smaller limit gives as good an answer."""
    rests_on: tuple[str, ...]


class ProcurementSweep(Record):
    """The best answer at several values of a limit (``procure --sweep --json``)."""

    kind: Literal["procurement-sweep"] = "procurement-sweep"
    schema_version: Literal[1] = 1
    limit: str
    limit_unit: Literal["USD", "W", ""]
    value_unit: str
    currency: SweepCurrency
    objective: str
    points: tuple[SweepPoint, ...]


class TracedCause(Record):
    """One cause of a step's time. Seconds of a step, mean of the ranks."""

    cause: str
    measured_s: float
    predicted_s: float
    hidden_s: float
    """Communication under what computes, on top of `measured_s`."""
    why: str
    """What usually makes it longer than predicted and what changes it; empty where it is not much longer."""

    @property
    def longer_s(self) -> float:
        """Measured less predicted."""
        return self.measured_s - self.predicted_s


class TracedRank(Record):
    """One rank: seconds of a step."""

    file: str
    rank: int | None
    device: int | None
    """Which accelerator of the file, where that is of several."""
    step_s: float
    computing_s: float
    waiting_s: float
    """In communication that nothing hides."""
    idle_s: float
    kernels: int


class TraceReport(Record):
    """Where the time of traced steps went (``explain --trace --json``)."""

    kind: Literal["trace-report"] = "trace-report"
    schema_version: Literal[1] = 1
    measured_on: Literal["accelerator", "cpu"] = "accelerator"
    """On a CPU `measured_s` and `predicted_s` are of unlike machines: compare shares of `step_s` and `predicted_s`."""
    steps: int
    step_s: float
    predicted_s: float
    rows: tuple[TracedCause, ...]
    """The largest difference first, on a CPU of shares; `measured_s` adds up to `step_s`, `predicted_s` likewise."""
    ranks: tuple[TracedRank, ...]
    notes: tuple[str, ...]
