"""The documents that leave the program: a plan, and a set of ranked plans. SI units throughout; schema version 2.

What a document does not say cannot be known by who reads it: every figure that a prediction rests on and every
assumption is in it, so that it can be checked (:mod:`planner.verify`), explained and launched from the file alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from planner.base.units import format_bytes, format_seconds
from planner.schema import notebook, plan_layout
from planner.schema.choices import Task
from planner.schema.measured_step import MeasuredStep
from planner.schema.plan_layout import (
    Batch,
    Configuration,
    Dispatcher,
    Group,
    GroupStage,
    Offloaded,
    OlderRelease,
    Overlap,
    Parallelism,
    RankOrder,
    RecomputeSection,
    RuntimeSection,
    Schedule,
    Stage,
    StageMemory,
    Stated,
    ZeroScope,
    ZeroStage,
)
from planner.schema.plan_machines import (
    CallChoice,
    ChangedFigure,
    ClusterSection,
    CommunicationChoice,
    CommunicationRule,
    DimensionSection,
    ExpandedPool,
    FabricSection,
    MeasuredSection,
    Pool,
    PoolLink,
    ShortlistSection,
    SiteSection,
)
from planner.schema.plan_prediction import (
    ComparableOffers,
    Energy,
    ExpandedSection,
    Goodput,
    HostMemory,
    Interval,
    MemorySection,
    Money,
    NearestRun,
    OwnRun,
    OwnRunsSection,
    Prediction,
    PriceUsed,
    SplitPasses,
    TextBatches,
)
from planner.schema.record import Answer, Document, Record, Sparse
from planner.schema.workload import MOST_TEXTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

__all__ = [
    "AskedPlans",
    "Assumption",
    "Batch",
    "CallChoice",
    "ChangedFigure",
    "ClusterSection",
    "CommunicationChoice",
    "CommunicationRule",
    "ComparableOffers",
    "Configuration",
    "Constraint",
    "DimensionSection",
    "Dispatcher",
    "Energy",
    "ExpandedPool",
    "ExpandedSection",
    "FabricSection",
    "FrontPoint",
    "Generator",
    "Goodput",
    "Group",
    "GroupStage",
    "HostMemory",
    "Interval",
    "MeasuredSection",
    "MemorySection",
    "Money",
    "NearestRun",
    "Offloaded",
    "OlderRelease",
    "Overlap",
    "OwnRun",
    "OwnRunsSection",
    "Parallelism",
    "Plan",
    "PlanSet",
    "Pool",
    "PoolLink",
    "Prediction",
    "PriceUsed",
    "RankOrder",
    "Reasons",
    "RecomputeSection",
    "RuntimeSection",
    "Schedule",
    "SearchQuestion",
    "SearchSection",
    "ShortlistSection",
    "SiteSection",
    "SplitPasses",
    "Stage",
    "StageMemory",
    "TextBatches",
    "WorkloadSection",
    "ZeroScope",
    "ZeroStage",
]

CAUSES = (
    *("matrix", "attention", "vector", "launch", "recompute", "embedding", "tower", "logits"),
    *("tp", "cp", "ep", "p2p", "dp", "copies", "bubble", "optimizer", "jitter", "overhead"),
)
"""Causes of a step's time, as :mod:`planner.cost.evaluate` names them; a document has those that are above 0."""
PLAN_SHOWN = (
    *("rank", "machines", "precision", "tp", "pp", "vpp", "cp", "ep", "dp", "micro_sequences", "zero", "recompute"),
    *("step_time_s", "tokens_per_s", "mfu", "memory_bytes", "days", "usd"),
)
"""Columns of a plan in a notebook."""


class Generator(Record):
    """What made the document."""

    version: str
    seed: int
    inputs: dict[str, str]
    """Input (catalog, models, files given) -> sha256 prefix of its content."""

    def with_files(self, written: Generator, *kinds: str) -> Generator:
        """With the hashes of these kinds of files as the document has them that is made again."""
        files = tuple(f"{kind} " for kind in kinds)
        kept = {name: of for name, of in written.inputs.items() if name.startswith(files)}
        return replace(self, inputs=kept | {k: of for k, of in self.inputs.items() if not k.startswith(files)})


class WorkloadSection(Record):
    """What is trained."""

    model: str
    name: str
    parameters: int
    active_parameters: int
    sequence: int
    """Tokens per sequence."""
    tokens: float
    """Tokens to train on."""
    method: dict[str, Any]
    """kind (pretrain, finetune, lora, freeze), rank, targets; base (nf4, int8, fp8) where frozen weights are quantised,
    magnitude where outputs have one (DoRA), layers where only the last are trained."""
    optimizer: dict[str, Any]
    """id, bytes per parameter of states and master copy, bytes moved by an update."""
    shape: dict[str, Any]
    """The model's record: everything a launcher needs to build it."""
    mtp_layers: Sparse[int] = None
    """Multi-token prediction modules trained with the model, each one more layer of the last stage and the head once
    more; neither in `shape` nor in the parameters. Only in documents where there are some."""
    imbalance: Sparse[float] = None
    """Tokens of the busiest expert-parallel rank over an even share, as asked. Only in documents where it was."""
    task: Sparse[Task] = None
    """What a fine-tuning on pairs of answers learns (dpo, reward). Only in documents of such."""
    texts: Sparse[Annotated[tuple[float, ...], Field(max_length=MOST_TEXTS)]] = None
    """Tokens of texts packed into sequences, shortest first: quantile means of equal weight. Only where they are
    stated."""


class Constraint(Record):
    """A named limit, the plan's value and what is left of it."""

    name: str
    limit: float
    value: float
    slack: float
    binding: bool
    unit: str


class Assumption(Record):
    """Something the answer rests on that was not read in a source, or not asked for."""

    what: str
    why: str
    flag: str
    """How to change it."""


class Plan(Configuration, Document):
    """One way to train the workload on the cluster."""

    shown = PLAN_SHOWN

    kind: Literal["plan"] = "plan"
    schema_version: Literal[2] = 2
    rank: int
    generator: Generator
    workload: WorkloadSection
    cluster: ClusterSection
    runtime: RuntimeSection
    communication: tuple[CommunicationRule, ...]
    communication_choice: Sparse[CommunicationChoice] = None
    """Why those rules; not in documents of before 2026-12, and null without rules. The prediction is without it."""
    env: dict[str, str]
    prediction: Prediction
    money: Money
    energy: Energy
    constraints: tuple[Constraint, ...]
    assumptions: tuple[Assumption, ...]
    nearest_runs: Sparse[tuple[NearestRun, ...]] = None
    """Measured runs that it is nearest to, the nearest first. Not of plans over several pools, nor in documents of
    before 2026-12."""
    measured: Sparse[MeasuredSection] = None
    """Only in documents of a site that has run this plan: its step time, and all that follows from it, is measured."""

    @property
    def axes(self) -> dict[str, Stated]:
        """Every axis and its value, those that the plan does not use too, as its document states them."""
        return plan_layout.stated(self)

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return plan_layout.flat(handler(self), self.axes)

    @property
    def predicted_s(self) -> float:
        """Seconds that a step is predicted to take, measured or not."""
        return self.measured.predicted_s if self.measured else self.prediction.step_time_s

    def row(self) -> dict[str, Any]:
        """A row of a table: how the plan is cut, what is predicted of it and what it costs.

        The parts of the step are columns ``step_CAUSE_s``, zero where a cause takes no time.
        """
        cut = self.parallelism
        prediction = self.prediction
        money = self.money
        interval = prediction.intervals.get("step_time_s")
        return {
            "rank": self.rank,
            "model": self.workload.model,
            "machines": self._machines(),
            "nodes": sum(pool.count for pool in self.cluster.pools),
            "accelerator": " + ".join(dict.fromkeys(pool.accelerator for pool in self.cluster.pools)),
            "accelerators": self.cluster.accelerators,
            "changed": "; ".join(self._changed_figures()),
            "precision": self.precision,
            **{axis: getattr(cut, axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")},
            "zero": cut.zero_stage,
            "micro_sequences": self.batch.micro,
            "batch_sequences": self.batch.global_,
            "seq_tokens": self.workload.sequence,
            "recompute": self.recompute.policy,
            "step_time_s": prediction.step_time_s,
            "step_time_low_s": interval.low if interval else None,
            "step_time_high_s": interval.high if interval else None,
            "measured_runs": self.measured.runs if self.measured else None,
            "tokens_per_s": prediction.tokens_per_s,
            "mfu": prediction.mfu,
            "memory_bytes": prediction.memory.total_bytes,
            "memory_capacity_bytes": prediction.memory.capacity_bytes,
            "oom_chance": prediction.memory.oom_chance,
            "days": money.days,
            "tokens": self.workload.tokens,
            "usd": money.usd_total,
            "energy_j": self.energy.energy_j,
            "carbon_kg": self.energy.carbon_kg,
            **{f"step_{cause}_s": s for cause, s in (dict.fromkeys(CAUSES, 0.0) | prediction.breakdown).items()},
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row: how it is cut, what is predicted, what it costs."""
        return [self.row()]

    def title(self) -> str:
        """``llama3-8b on 2 x dgx-h100: TP1 PP1 CP1 DP16, 9.61 s a step, 60.2 GiB``."""
        degrees = " ".join(f"{axis.upper()}{getattr(self.parallelism, axis)}" for axis in ("tp", "pp", "cp", "dp"))
        memory = self.prediction.memory
        held = format_bytes(memory.total_bytes)
        if memory.total_bytes > memory.capacity_bytes:
            held += f", does not fit into {format_bytes(memory.capacity_bytes)}"
        step = format_seconds(self.prediction.step_time_s)
        return f"{self.workload.model} on {self._machines()}: {degrees}, {step} a step, {held}"

    def _machines(self) -> str:
        """The nodes of every pool: ``2 x dgx-h100``."""
        return " + ".join(f"{pool.count} x {pool.node}" for pool in self.cluster.pools)

    def _changed_figures(self) -> Iterator[str]:
        """``memory_bandwidth 4,020 GB/s``: figures of accelerators that are not the catalog's."""
        for pool in self.cluster.pools:
            yield from (f"{change.figure} {change.text(change.used)}" for change in pool.changed or ())


class LeverSection(Record):
    """What was searched beyond the base space: axes whose other values only some releases, packages or links make use
    of.
    """

    axes: tuple[str, ...]
    """Axes that the question left free."""
    looked_at: int
    """Candidates with other values on them."""
    gained: float
    """How much better the best of them is than the best plan listed: less than a tie, unless few were asked for."""
    left_out: float
    """How much better, at most, one that was not looked at could be than the best found (relative)."""


class SearchSection(Record):
    """How the answer was found."""

    candidates: int
    feasible: int
    """That fit into memory."""
    costed: int
    """Whose time was computed; an exact bound excluded the others."""
    proven_optimal: bool
    method: str
    objective: str
    near_duplicates: Annotated[int, Field(alias="alike")]
    """Variants of which the first plan is the best: same degrees, precision and recomputation, other micro-batches,
    interleaving and switches."""
    gap: float = 0.0
    """How much better, at most, a plan of the space could be than the best one found (relative)."""
    levers: Sparse[LeverSection] = None


class SearchQuestion(Record):
    """What the search was free to choose: with the work and the machines of any of the plans, the question again."""

    pins: dict[str, str]
    """Axis -> the values that it was held to (``1|2``, ``4..16``)."""
    nodes: tuple[int, ...]
    """Counts that were tried."""
    batches: tuple[int, ...]
    """Global batches that were tried. Sequences."""
    waived: tuple[str, ...]
    """Rules that were waived, whether a plan breaks them or not."""
    top: int
    """Plans asked for."""
    all: bool
    """Whether plans that differ in switches only are listed, too."""


class AskedPlans(Record):
    """The question itself but for its model, in the words of Python's keywords."""

    clusters: tuple[str, ...]
    """``dgx-h100:4@zone``, or the name of your cluster."""
    settings: Sparse[tuple[str, ...]] = None
    """The configuration that was given (``tp=8``); only where nothing was searched."""
    options: dict[str, Any]
    """Keyword -> what was said, without the folders of a catalog and of a site."""


class FrontPoint(Record):
    """A plan that no other beats in both objective and memory (or, over counts, in both time and money)."""

    label: str
    accelerators: int
    step_time_s: float
    days: float
    usd_total: float | None
    memory_bytes: float

    def row(self, per_node: int | None) -> dict[str, Any]:
        """A row of a table: the degrees that the label names, the others 1; nodes of `per_node` accelerators."""
        stated = {axis.lower(): int(count) for axis, count in re.findall(r"\b([A-Z]{2})(\d+)", self.label)}
        return {
            "nodes": self.accelerators // per_node if per_node else None,
            "accelerators": self.accelerators,
            **{axis: stated.get(axis, 1) for axis in ("tp", "pp", "cp", "ep", "dp")},
            "recompute": self.label.partition("recompute ")[2].partition(",")[0] or "none",
            "step_time_s": self.step_time_s,
            "days": self.days,
            "usd": self.usd_total,
            "memory_bytes": self.memory_bytes,
        }


class PlanDifference(Record):
    """What another plan of a set takes, against the plan to run."""

    rank: int
    time: float
    """Its time for all tokens over that of the plan to run."""
    interval: Interval
    """80 % interval of that: what both share cancels."""
    distinguishable: bool
    """Whether 1 is outside it."""


class OtherSoftware(Record):
    """Software as plausible as that assumed, under which other pools than the first plan's are the better choice."""

    supposed: str
    """What is otherwise, in words."""
    uses: tuple[str, ...]
    """Nodes of each pool in use, then: ``8 x dgx-a100-40gb``."""
    step_time_s: float
    """Seconds of a step of the best plan on them."""
    own_uses: tuple[str, ...]
    """Nodes in use of the best plan on the pools that the first plan uses."""
    own_step_time_s: float
    own_more: float
    """How much more of the objective (time, money, energy) these take, as a fraction."""


class BeyondLaunchers(Record):
    """A better plan over the pools that no launcher starts: its pipelines or their stages differ."""

    uses: tuple[str, ...]
    """Nodes of each pool in use: ``8 x dgx-a100-40gb``."""
    step_time_s: float
    less: float
    """How much less of the objective (time, money, energy) it takes than the first plan, as a fraction."""


class Reasons(Record):
    """Why the first plan is first."""

    binds: tuple[str, ...]
    gains: dict[str, float]
    """Resource -> relative change of the step time at +10 % of it."""
    why_not: tuple[str, ...]
    other_software: Sparse[tuple[OtherSoftware, ...]] = None
    """What the choice of pools depends on; only in documents of questions over several pools of which it was tried."""
    beyond_launchers: Sparse[BeyondLaunchers] = None
    """What the plans, which launchers start, forgo; only in documents of questions over several pools."""


class UsualRun(Record):
    """What is usually run in place of a plan, on its nodes with its batch."""

    runtime: str
    """Framework and release: ``fsdp2 2026``."""
    configuration: str
    """As ``estimate`` takes it; empty where none fits into memory."""
    step_time_s: float | None
    """None where none fits into memory."""
    gain: Interval | None
    """How many times as long a step takes as the recommended plan's, with 80 %; None where none fits into memory."""


class ContingencyPlan(Record):
    """What a job continues with when nodes are lost."""

    lost_nodes: int
    checkpoint_bytes: float
    """Weights and optimizer states, of all ranks together."""
    read_bytes_per_s: float
    """By each node, of a checkpoint that any layout may read."""
    reshard_s: float
    """Until it continues: restart, and the checkpoint read into the new layout."""
    plan: Plan
    """On the nodes that are left, or fewer where that is faster: same batch, tokens and runtime."""


class PlanSet(Answer[Plan]):
    """Ranked plans: the one to run first, the others best first."""

    shown = PLAN_SHOWN

    kind: Literal["plan-set"] = "plan-set"
    schema_version: Literal[2] = 2
    search: SearchSection
    plans: tuple[Plan, ...]
    recommended: int | None = None
    """Rank of the plan to run, 1: where their difference says nothing, a simpler one than the fastest. Another in
    documents of before 2026-12, where plans stood by their objective alone; none where there is nothing to choose."""
    differences: Sparse[tuple[PlanDifference, ...]] = None
    """How much slower each other plan is than the one to run, and how sure that is. Not in documents of before
    2026-12."""
    reasons: Reasons
    front: tuple[FrontPoint, ...]
    meta: dict[str, Any]
    """Times and host: all that differs between two runs of one question."""
    measured: Sparse[MeasuredStep] = None
    """A step that the user measured, compared with the one configuration of an estimate."""
    usual: Sparse[UsualRun] = None
    """FSDP by itself, to compare with; only of full training on one pool of several accelerators. Not in documents of
    before 2026-12."""
    site: Sparse[SiteSection] = None
    """Only in documents of a site."""
    shortlist: Sparse[ShortlistSection] = None
    """Only in shortlists."""
    contingency: Sparse[tuple[ContingencyPlan, ...]] = None
    """For 1, 2, ... lost nodes of the recommended plan's; only where they were asked for."""
    question: Sparse[SearchQuestion] = None
    """Only where one search on one pool ranked the plans; not in documents of before 2026-12."""
    asked: Sparse[AskedPlans] = None
    """Only where `question` does not say all: estimates, several pools, batches by goodput, shortlists, plans of a site
    and those for lost nodes; not in documents of before 2026-12."""

    @property
    def plan_to_run(self) -> Plan:
        """The recommended plan."""
        return next((plan for plan in self.plans if plan.rank == self.recommended), self.plans[0])

    def parts(self) -> tuple[Plan, ...]:
        """The plans, the one to run first."""
        return self.plans

    def rows_of(self, parts: Sequence[Plan]) -> list[dict[str, Any]]:
        """How each plan is cut, what is predicted, what it costs."""
        return [plan.row() for plan in parts]

    def front_to_frame(self) -> pd.DataFrame:
        """The front as a tidy frame: each point with its degrees and nodes (of one pool), units behind the columns."""
        import pandas as pd

        pools = self.plans[0].cluster.pools if self.plans else ()
        per_node = pools[0].accelerators_per_node if len(pools) == 1 else None
        return pd.DataFrame([point.row(per_node) for point in self.front])

    def plot(self) -> Axes:
        """The step of every plan by cause, in seconds, with matplotlib."""
        return notebook.stacked({f"#{plan.rank}": plan.prediction.breakdown for plan in self.plans}, "seconds")

    def title(self) -> str:
        """How many plans, and the recommended one, or the best where none is."""
        if len(self.plans) < 2 or self.recommended is None:
            return notebook.counted([plan.title() for plan in self.plans], "plan")
        return f"{len(self.plans):,} plans; recommended: {self.plan_to_run.title()}"
