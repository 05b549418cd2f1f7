"""A measured run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.calibration.runs.variants import RunVariant
from planner.cost.figures import Shape
from planner.figures import cost_inputs
from planner.schema.hardware import Cluster, Runtime
from planner.schema.workload import Workload


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One published measurement."""

    id: str
    source: str
    group: str
    """Sources that share configurations."""
    lab: str
    """Who ran it."""
    submitted: bool
    """Whether it is a submission to a benchmark, whose submitters run their vendors' recipes: as its task or notes
    say."""
    framework: str
    """In the source's words."""
    model: str
    base: str
    """The model it is a reduced copy of, or itself."""
    family: str
    task: str
    grade: str
    accelerator: str
    release: str
    """As published."""
    measured: float | None
    """Seconds per step."""
    measured_bytes: float | None
    memory_measured: bool
    """Whether the memory was read off a device rather than computed."""
    out_of_memory: bool
    states_enough: bool
    """Whether the row states a shape (or a known model), a batch, and a time or throughput."""
    accelerators: int = 0
    workload: Workload | None = None
    cluster: Cluster | None = None
    runtime: str = ""
    known_as: tuple[str, ...] = ()
    """Names under which the runtime's efficiencies may stand."""
    year: str = ""
    """The runtime's release."""
    date: str = ""
    """When it was released, as YYYY.MM where its name says the month; else the year."""
    mode: str = ""
    """What the notes say of how it ran (eager, row-wise casts), where that is known to matter."""
    traits: tuple[tuple[str, object], ...] = ()
    """Fields of the runtime's record that differ in this run, as its words or its release's defaults say."""
    dispatcher: str = ""
    """What carries tokens to experts, as the notes say."""
    routing: str = ""
    """How experts are chosen (natural, balanced by force), as the notes say."""
    in_allocator: bool = False
    """Whether the memory measured is what the framework's allocator held: context and communicators are beside it."""
    head_placed: bool = False
    """Whether its stages were placed by a layout that gives the head room."""
    variants: tuple[RunVariant, ...] = ()
    """Readings of the plan, the likely ones first; empty for families without layouts
    (:mod:`planner.calibration.runs.other_families`)."""
    batch: int = 0
    """Global batch, samples; of encoders and of families without layouts."""
    repeated: bool = False
    """Its step time is that of another row of the same result: judged, but not fitted to."""
    precision: str = ""
    """Of families without layouts."""
    inferred: tuple[str, ...] = ()
    reason: str = ""
    """Why it cannot be predicted; empty if it can."""

    @property
    def task_there(self) -> str:
        """What was trained, and where that was published: ``lora, mlperf-v5.1``."""
        return f"{self.task}, {self.source}"

    @property
    def covered(self) -> bool:
        """Whether it can be predicted."""
        return not self.reason

    def software(self, runtime: Runtime) -> Runtime:
        """The runtime, or one that it may have been, with what this run says of it."""
        return replace(runtime, **dict(self.traits)) if self.traits else runtime  # type: ignore[arg-type]


MASKED = 0.15
"""Share of positions whose logits are computed."""


def shape(run: Run, runtime: Runtime | None, *, mean: bool = True) -> Shape:
    """The figures of a transformer run's workload; an encoder computes logits at masked positions only.

    Args:
        run: One that can be predicted.
        runtime: What it ran on.
        mean: Whether layers of several kinds count as their mean.
    """
    assert run.workload is not None
    made = cost_inputs.shape(
        run.workload, runtime and replace(run.software(runtime), places_head=run.head_placed), mean=mean
    )
    return replace(made, vocab=made.vocab * MASKED) if run.family == "encoder" else made
