"""A profile: what one model's layers take on one accelerator, with where that comes from; and which one a plan uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.cost.layer_times import LayerTable, Point
from planner.figures import matrix_formats
from planner.models.parameters import parameters
from planner.schema.hardware import Accelerator
from planner.schema.workload import Model, Workload

SIXTEEN_BIT = ("bf16", "fp16")
"""Precisions whose kernels run at the same rate: a profile in one holds for the other."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Forward, backward and update times by tensor-parallel degree and micro-batch. Seconds."""

    model: str
    """Id in the library."""
    accelerator: str
    """Id in the catalog."""
    precision: str
    sequence: int
    """Tokens per sequence."""
    layers: int
    """Layers of the model, without embedding and head."""
    sequence_parallel: bool
    communication: bool
    """Whether the times hold tensor-parallel communication."""
    points: Mapping[int, tuple[Point, ...]]
    """Tensor-parallel degree -> points, micro-batch ascending."""
    update: Mapping[int, float]
    """Tensor-parallel degree -> seconds of the whole optimizer step; 0 if not measured."""
    source: str
    """The file that was imported, by name."""
    sha256: str
    """SHA-256 of that file, first 16 digits."""
    date: str
    """Date of the import."""
    rows: int
    """Rows of that file."""
    origin: str = ""
    """The overlay file; empty before it is written."""

    @property
    def table(self) -> LayerTable:
        """As the cost functions read it."""
        return LayerTable(self.points, self.update, self.sequence_parallel, self.communication)

    @property
    def measured(self) -> int:
        """Points in all."""
        return sum(len(points) for points in self.points.values())

    def description(self) -> str:
        """Where it comes from and what it holds, in words."""
        return (
            f"layer times of {self.model} on {self.accelerator} measured at {self.measured} points, not modelled "
            f"({self.source}, {self.rows:,} rows, sha256 {self.sha256}, {self.date})"
        )


def layer_rate(model: Model, sequence: int, tp: int, point: Point) -> float:
    """FLOP/s of a layer's products in the faster of its passes: ``2 tokens N / (tp t)``, twice that backward."""
    counted, (forward, backward, *_) = parameters(model), point.seconds
    work = 2.0 * point.micro * sequence / tp * (counted.attention_per_layer + counted.dense_mlp_per_layer)
    return max(work / forward, 2.0 * work / backward)


def peak(part: Accelerator, precision: str) -> float:
    """Dense FLOP/s that products can reach in a precision, the faster of both 16-bit formats; 0 if there are none."""
    formats = SIXTEEN_BIT if precision in SIXTEEN_BIT else (precision,)
    return max(
        (matrix_formats.peak_of(part, name) for name in formats if matrix_formats.can_train_in(part, name)), default=0.0
    )


def alike(precision: str, other: str) -> bool:
    """Whether a profile in one precision holds for the other."""
    return precision == other or (precision in SIXTEEN_BIT and other in SIXTEEN_BIT)


def unfit(profile: Profile, workload: Workload, layers: int) -> str:
    """Why a profile of the model and the accelerator does not hold for a workload; empty if it does."""
    if workload.method.kind == "lora":
        return "it times full training, and this is LoRA"
    if workload.texts:
        return "it times whole sequences, and this packs texts into them"
    if profile.sequence != workload.sequence:
        return f"it was measured at {profile.sequence:,} tokens per sequence, not {workload.sequence:,}"
    if profile.layers != layers:
        return f"it is of {profile.layers} layers, and {workload.model.id} has {layers}"
    return ""


def of(profiles: Iterable[Profile], workload: Workload, accelerator: str) -> list[Profile]:
    """The profiles of a workload's model on an accelerator, fit or not; later ones first."""
    return [p for p in reversed(list(profiles)) if (p.model, p.accelerator) == (workload.model.id, accelerator)]


def reasons(
    profiles: Iterable[Profile],
    used: Iterable[Profile],
    workload: Workload,
    accelerator: str,
    precisions: Iterable[str],
) -> tuple[str, ...]:
    """Why each profile of a workload's model and accelerator that is not used is not."""
    layers = workload.model.layers + workload.model.encoder_layers
    taken = list(used)
    wanted = sorted(precisions)
    lines = []
    for profile in of(profiles, workload, accelerator):
        if profile in taken:
            continue
        why = unfit(profile, workload, layers)
        if not why and not any(alike(profile.precision, name) for name in wanted):
            why = f"it was measured in {profile.precision}, not {', '.join(wanted)}"
        lines.append(f"the profile of {profile.source} is not used: {why or 'another one of the same replaces it'}")
    return tuple(lines)


def fit(profiles: Iterable[Profile], workload: Workload, accelerator: str, precision: str) -> Profile | None:
    """The profile that holds for a workload on an accelerator in a precision; the strongest catalog's of several."""
    layers = workload.model.layers + workload.model.encoder_layers
    chosen = (p for p in of(profiles, workload, accelerator) if alike(p.precision, precision))
    return next((p for p in chosen if not unfit(p, workload, layers)), None)
