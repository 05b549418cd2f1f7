"""The document of a design study: every point that was tried, the best of them with their plans, and what matters.

SI units but for what people count by: US dollars, millions of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from planner.schema import notebook
from planner.schema.plan import Assumption, Generator, Plan
from planner.schema.record import Answer, Document, Record, Sparse
from planner.schema.rl import RLPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Value = float | int | str
Values = dict[str, Value]
UNITS: dict[str, str] = {
    "step-time": "s",
    "cost": "USD/Mtoken",
    "energy": "J/token",
    "performance-per-dollar": "FLOP/s/USD",
    "capital": "USD",
    "power": "W",
    "accelerators": "",
}
"""Objectives and measures of a point."""


class Axis(Record):
    """A figure of the base cluster and the values that it may take."""

    path: str
    """Dotted, as the catalog spells it: ``accelerator.memory_bandwidth``."""
    unit: str = ""
    """Dimension of the values: bytes, bandwidth (B/s), compute (FLOP/s) and so on; empty for counts and names."""
    values: tuple[Value, ...]
    """In order; SI."""

    @property
    def ordered(self) -> bool:
        """Whether neighbouring values are similar: numbers are, names are not."""
        return not isinstance(self.values[0], str)


class Rate(Record):
    """US dollars (or watts) for one SI unit of a figure."""

    path: str
    per_unit: float
    each: Literal["accelerator", "node", "port"]
    """What there are many of: the rate holds for each of them."""


class StudySection(Record):
    """The question, as far as two answers must share it to be joined."""

    name: str
    base: dict[str, str | int | None]
    axes: tuple[Axis, ...]
    workloads: tuple[dict[str, Any], ...]
    objectives: tuple[str, ...]
    """The first is what sensitivities are ranked by."""
    units: dict[str, str]
    """Objective -> its unit."""
    constraints: tuple[dict[str, Any], ...]
    costs: dict[str, Any]
    power: tuple[Rate, ...]
    """Watts that more of a figure adds to a node's, from the base on."""
    inputs: dict[str, str]
    """Input -> sha256 prefix: the hardware catalog that the answer rests on."""


class StudyQuestion(Record):
    """All that was asked, with which the points are evaluated again."""

    study: dict[str, Any]
    """As the file says it."""
    explained: bool = True
    """Whether sensitivities were asked for."""


class StudySearch(Record):
    """How the points were found."""

    method: Literal["enumerated", "bounded", "TPE", "NSGA-II", "merged"]
    """Bounded: whole boxes of points were excluded by what their fastest corner achieves at their lowest price."""
    outer_points: int
    """Points that the axes span."""
    tried: int
    feasible: int
    exact: bool
    """Whether the best is proven to be the optimum; each point's plan is always the exact best of its space."""
    seed: int | None
    shards: tuple[int, ...]
    """Numbers (from 1) of the shards that are in the answer; empty for a whole one."""
    of_shards: int
    evaluated: int | None = None
    """Points whose plans were searched for, also such as break a limit; None: those tried."""
    bounded_away: int = 0
    """Points that were excluded without a look at each."""
    regret_at_most: float | None = None
    """By what share the optimum may be better than the best; None where nothing bounds it."""
    enumeration_s: float | None = None
    """What an enumeration of all points would take, about, in CPU seconds of one core."""


class Brief(Record):
    """The best plan of one workload at one point, short."""

    model: str
    step_time_s: float
    memory_bytes: float
    layout: dict[str, int]
    """Degrees, micro-batch, batch and nodes; of a post-training accelerators that train and that roll out."""
    options: dict[str, str | int | bool]


class Trial(Record):
    """One point of the outer space."""

    number: int
    """Number of a trial from 0; of an enumerated point its place in the order of the axes, the last turning fastest."""
    axes: Values
    objectives: dict[str, float]
    """Empty where a workload has no plan."""
    measures: dict[str, float]
    violations: dict[str, float]
    """Constraint -> by what share it is exceeded; 0 or less where it is kept."""
    feasible: bool
    plan: tuple[Brief, ...]
    """Plans of every workload, in their order; empty where there is none."""
    why: str
    """What is wrong with a point that trains nothing."""


class DesignPoint(Document):
    """A point worth building, with its training plans in full."""

    number: int
    axes: Values
    objectives: dict[str, float]
    measures: dict[str, float]
    capital_usd: float | None
    usd_per_hour: float | None
    power_w: float | None
    plan: tuple[Plan, ...]
    """Plans of every workload but those below."""
    post_training: Sparse[tuple[RLPlan, ...]] = None
    """Placements of the workloads that are post-trainings."""

    def steps(self) -> tuple[RLPlan, ...]:
        """Placements of the workloads that are post-trainings, as many as there are."""
        return self.post_training or ()

    def rows(self) -> list[dict[str, Any]]:
        """A row for each workload's plan."""
        return [row for plan in self.plan for row in plan.rows()]

    def title(self) -> str:
        """Its axes."""
        return notebook.axes(self.axes)


class Swept(Record):
    """The objectives at one value of an axis, all others as in the best point; empty where nothing trains."""

    value: float | int | str
    objectives: dict[str, float]
    feasible: bool


class AxisSensitivity(Record):
    """What an axis does around the best point."""

    axis: str
    elasticity: float | None
    """Elasticity of the first objective: 1 % more of the axis changes it by so many per cent; None for names."""
    elasticities: dict[str, float]
    """Elasticities of every objective."""
    sweep: tuple[Swept, ...]


class PairSweep(Record):
    """The first objective over two axes at once, all others as in the best point."""

    axes: tuple[str, str]
    rows: tuple[float | int | str, ...]
    columns: tuple[float | int | str, ...]
    objective: str
    values: tuple[tuple[float | None, ...], ...]
    """One list for each row; None where nothing trains."""


class NextMillion(Record):
    """What one million US dollars more bring, all of it spent on one figure of the best point."""

    axis: str
    value: float
    """The figure with it."""
    changes: dict[str, float]
    """Objective -> relative change."""
    basis: str


class FigurePerDollar(Record):
    """What a tenth more of one figure (of whole numbers the next value) brings, and what it costs."""

    at: Literal["base", "best"]
    """From which machine on: the base as the catalog has it, or the best point."""
    axis: str
    start: float
    value: float
    step: float  # relative change of the weighted step time, the plans searched anew
    usd: float
    """US dollars more: of the capital, or of an hour where nodes are rented; `paid` is their relative change."""
    paid: float
    token: float
    """Relative change of what a token costs, energy included: below 0 the figure pays."""
    per_percent: float | None  # ln(step after / before) / ln(paid after / before); None where it has no price


class Interaction(Record):
    """What two axes explain together of the first objective's variation, beyond what each does by itself."""

    axes: tuple[str, str]
    share: float


class StudyResult(Answer[DesignPoint]):
    """The answer."""

    kind: Literal["study"] = "study"
    schema_version: Literal[1] = 1
    generator: Generator
    question: StudySection
    search: StudySearch
    trials: tuple[Trial, ...]
    best: tuple[DesignPoint, ...]
    """Best first; with several objectives the best in each of them."""
    pareto: tuple[DesignPoint, ...]
    """Points that no other beats in one objective without being worse in another; with one objective the best."""
    hypervolume: float | None
    """Hypervolume of the front, as a share of the box from the worst feasible values to the best; None with one
    objective."""
    sensitivity: tuple[AxisSensitivity, ...]
    pairs: tuple[PairSweep, ...]
    next_million: tuple[NextMillion, ...]
    per_dollar: Sparse[tuple[FigurePerDollar, ...]] = None
    """Which figure the next dollar goes into, from the base up and at the best point; None in documents of before."""
    importance: dict[str, float]
    """Axis -> share of the first objective's variation that it explains by itself: the main effects of a fANOVA."""
    interactions: tuple[Interaction, ...] = ()
    """What two axes explain beyond that; empty where only main effects are estimated."""
    importance_method: str
    assumptions: tuple[Assumption, ...]
    asked: Sparse[StudyQuestion] = None
    """None in documents of before."""
    meta: dict[str, Any]

    def parts(self) -> tuple[DesignPoint, ...]:
        """The points worth building, best first."""
        return self.best

    def rows(self) -> list[dict[str, Any]]:
        """A row for each point that was tried."""
        return self._trial_rows(self.trials)

    def rows_of(self, parts: Sequence[DesignPoint]) -> list[dict[str, Any]]:
        """The rows of the trials that these points were."""
        tried = {trial.number: trial for trial in self.trials}
        return self._trial_rows(tried[point.number] for point in parts)

    def plot(self) -> Axes:
        """Every point over the first two objectives (of one: over the order of trials), with matplotlib."""
        tried = [trial for trial in self.trials if trial.objectives]
        front = {point.number for point in self.pareto}
        first, *others = self.question.objectives
        figures = [trial.objectives[others[0]] if others else float(trial.number) for trial in tried]
        titles = (first, others[0] if others else "trial")
        values = [trial.objectives[first] for trial in tried]
        return notebook.points(values, figures, [trial.number in front for trial in tried], titles)

    def title(self) -> str:
        """How many points were tried, and the best."""
        best = "".join(f"; the best: {point.title()}" for point in self.best[:1])
        return f"{self.question.name}: {self.search.tried:,} points tried, {self.search.feasible:,} feasible{best}"

    def _trial_rows(self, trials: Iterable[Trial]) -> list[dict[str, Any]]:
        """A row for each trial: its axes, its objectives and its measures, with their units in the names of columns."""
        units = {axis.path: axis.unit for axis in self.question.axes} | UNITS
        rows = []
        for trial in trials:
            values = {**trial.axes, **trial.measures, **trial.objectives}
            figures = {notebook.column(name, units.get(name, "")): value for name, value in values.items()}
            rows.append({"number": trial.number, "feasible": trial.feasible, **figures, "why": trial.why})
        return rows
