"""The document of a convolutional network on one or several pools: how many images of a step each accelerator works on.

SI units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from planner.base.units import format_seconds
from planner.schema import notebook
from planner.schema.plan import Assumption, Generator
from planner.schema.record import Answer, Record, Sparse

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ImagePool(Record):
    """A pool that takes part. Its accelerators are identical, so that their shares differ by one image at most."""

    name: str
    node: str
    zone: str
    count: int
    """Nodes."""
    accelerator: str
    accelerators: int
    images: int
    """All of its accelerators together, in a step."""
    fewest: int
    most: int
    """Images of one accelerator."""
    memory_bytes: float
    """Bytes on the fullest accelerator."""
    capacity_bytes: float


class ImageQuestion(Record):
    """What was asked, in the words of the flags; none where nothing was said."""

    clusters: tuple[str, ...]
    """``dgx-a100-40gb:4@zone``, or the name of a cluster of one's own."""
    accelerators: str | None
    links: tuple[str, ...]
    fabric: str | None
    region: str | None
    batch: int | None
    precision: str | None
    oom_risk: float


class ImagePlan(Answer[ImagePool]):
    """A data-parallel step over heterogeneous accelerators, each with the images it completes in a step."""

    kind: Literal["image-plan"] = "image-plan"
    schema_version: Literal[1] = 1
    generator: Generator
    model: str
    name: str
    parameters: int
    precision: str
    runtime: str
    release: str
    batch: int
    """Images of a step."""
    pools: tuple[ImagePool, ...]
    left_out: tuple[str, ...]
    """Pools that take no part: the step would be no shorter with them."""
    step_time_s: float
    images_per_s: float
    breakdown: dict[str, float]
    """Seconds by cause of the slowest accelerator; they add up to the step."""
    even_step_s: float | None
    """Seconds of a step with an even share for every accelerator of all pools; none where that does not fit into
    memory."""
    best_pool: str | None
    """The best pool by itself; none where the batch fits into no pool's memory."""
    best_pool_step_s: float | None
    assumptions: tuple[Assumption, ...]
    question: Sparse[ImageQuestion] = None
    """With which it is made again; none in documents of before."""

    def parts(self) -> tuple[ImagePool, ...]:
        """The pools that take part."""
        return self.pools

    def rows_of(self, parts: Sequence[ImagePool]) -> list[dict[str, Any]]:
        """The fields of each pool."""
        return [vars(pool) for pool in parts]

    def plot(self) -> Axes:
        """Images of each pool, with matplotlib."""
        return notebook.stacked({pool.name: {"images": float(pool.images)} for pool in self.pools}, "images of a step")

    def title(self) -> str:
        """What is trained on what, and how fast."""
        pools = " + ".join(f"{pool.count} x {pool.node}" for pool in self.pools)
        return f"{self.model} on {pools}: {self.batch:,} images, {format_seconds(self.step_time_s)} a step"
