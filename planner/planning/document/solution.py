"""What a search hands to the writer: one way to train over pools of nodes, a single pool being a list of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.cost.stage_memory import Memory
from planner.figures.profiles.profile import Profile
from planner.question.job_pools import JobPool, Pools
from planner.question.request import Request
from planner.schema import plan as schema
from planner.schema.plan_layout import AttentionKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInUse:
    """Nodes of one pool that a plan uses."""

    pool: JobPool
    nodes: int
    peak: float
    """FLOP/s of one accelerator in the plan's precision."""
    profile: Profile | None
    """Layer times measured elsewhere that the prediction rests on."""
    layer_times: tuple[str, ...]
    """Which measured layer times hold here, and which do not and why, in words."""
    efficiency_notes: tuple[str, ...]
    """What is not measured of the efficiencies that this pool is taken to reach, in words."""
    attention_kernels: tuple[AttentionKernel, ...] | None = None
    """Kernels of attention that the catalog has figures of on the accelerator, where the plan names one."""

    @property
    def accelerators(self) -> int:
        """In use."""
        return self.nodes * self.pool.per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class FullestStage:
    """The pipeline stage with the least of its memory left."""

    stage: int
    """From 0."""
    pool: int
    """Place among the plan's pools."""
    held: Memory
    """Bytes on one of its accelerators, each part a scalar."""
    expanded_capacity: float | None = None
    """Bytes of expanded memory that one accelerator has for itself; None where there is none."""
    host: schema.HostMemory | None = None
    """What lies in host memory; None where nothing does."""
    graph_inputs: float | None = None
    """Bytes of the activations that are CUDA graphs' own copies of what layers read; None without graphs."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The 80 % interval of a prediction."""

    half_width: float
    """On a log scale."""
    runs: str
    """The measured runs that it comes from, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """One way to train a request's workload; everything that a plan says and the request alone does not."""

    request: Request
    question: Pools
    """All pools that could be used, and what joins them."""
    pools: tuple[PoolInUse, ...]
    """Those that are used, in the order of the plan's stages or as they were given."""
    configuration: schema.Configuration
    step_time: float
    """Seconds: predicted, or measured."""
    breakdown: Mapping[str, float]
    """Seconds of a step by cause; they add up to the predicted step time."""
    model_flops: float
    """Of a step."""
    fullest: FullestStage
    by_stage: tuple[Memory, ...] = ()
    """Bytes on one accelerator of every stage, parts that are scalars; of groups, these say it."""
    time_spread: Spread
    memory_spread: Spread
    older: schema.OlderRelease | None = None
    """What an older release of the runtime makes of it."""
    text_batches: schema.TextBatches | None = None
    """What other batches of texts than packed ones take."""
    passes: schema.SplitPasses | None = None
    """What the bubble follows from where weight gradients are computed apart."""
    own_runs: schema.OwnRunsSection | None = None
    """What the site's runs shift the prediction by."""
    nearest_runs: tuple[schema.NearestRun, ...] = ()
    """Measured runs that it is nearest to."""
    measured: schema.MeasuredSection | None = None
    """The runs that `step_time` was measured in, and what was predicted in its place."""

    @property
    def heterogeneous(self) -> bool:
        """Whether pipelines differ or span pools."""
        return bool(self.configuration.parallelism.groups)

    @property
    def accelerators(self) -> int:
        """In use."""
        return sum(each.accelerators for each in self.pools)
