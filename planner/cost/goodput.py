"""Goodput, the share of wall time that trains: what failures, restarts and checkpoints cost.

Young 1974 and Daly 2006, first order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.base import units
from planner.cost.figures import Figure

ACCELERATOR_MTBF_S = 5.1e4 * 3600.0
"""Accelerator-seconds between unexpected interruptions: Llama 3 405B, 16,384 H100, 54 days, 419 interruptions
(2024)."""
RESTART_S = 600.0
"""Detection, restart and reload, minutes. Assumed."""
CHECKPOINT_PAUSE_S = 5.0
"""Synchronisation around a checkpoint, beside the copy to host memory; written out asynchronously. Assumed."""


@dataclass(frozen=True, slots=True)
class GoodputEstimate:
    """Terms of the goodput. Seconds and fractions."""

    fraction: Figure
    mtbf: Figure
    interval: Figure
    blocks: Figure
    restart: Figure


@dataclass(frozen=True, slots=True)
class PoolFailures:
    """What interrupts a job on the nodes of one pool."""

    accelerators: Figure
    """In use."""
    preemptions_per_s: Figure
    """Preemptions by the owner a second, of all nodes in use together."""
    restart_s: float
    """Seconds until the job goes on, after an interruption that comes from this pool."""


def basis(restart_s: float) -> str:
    """What goodput rests on, in words, where a restart takes so many seconds."""
    assumed = "restart 10 min and checkpoint pause 5 s assumed"
    if restart_s != RESTART_S:
        assumed = f"restart {units.format_seconds(restart_s)}, checkpoint pause 5 s assumed"
    return f"MTBF 3.1 h per 16,384 accelerators (Llama 3 405B, 2024), {assumed}"


def wall_time(step_time: Figure, count: Figure, fraction: Figure) -> Figure:
    """Seconds that a run is expected to take, with all it loses: ``steps step_time / goodput``."""
    return count * step_time / fraction


def wall_time_deviation(seconds: Figure, good: GoodputEstimate) -> Figure:
    """Standard deviation of the seconds that a run takes, expected to take so many: ``sqrt(T / M E[L^2]) / fraction``.

    Interruptions come independently, each loses ``L = R + U(0, tau)``, so ``E[L^2] = R^2 + R tau + tau^2 / 3``; what a
    stretch of time loses varies as a compound Poisson sum, and the time to the end by that over the progress made.
    """
    squared = good.restart**2 + good.restart * good.interval + good.interval**2 / 3.0
    return np.sqrt(seconds / good.mtbf * squared) / good.fraction


def failure_rate(fraction: Figure, blocks: Figure, restart: Figure) -> Figure:
    """Interruptions a second at which so much of the time trains: ``x^2`` of ``R x^2 + sqrt(2 C) x = 1 - fraction``."""
    root = np.sqrt(2.0 * blocks)
    return ((np.sqrt(root**2 + 4.0 * restart * (1.0 - fraction)) - root) / (2.0 * restart)) ** 2


def joint_goodput(pools: Sequence[PoolFailures], blocks: Figure) -> GoodputEstimate:
    """Goodput of a job on several pools: whatever interrupts one of them interrupts the job.

    Rates add, ``1 / M = sum(accelerators) / MTBF + sum(preemptions)``, and a restart takes the mean of the pools' own,
    each as often as that pool interrupts. `blocks` is the pause ``C`` of a checkpoint, seconds.
    """
    rate = sum(p.accelerators for p in pools) / ACCELERATOR_MTBF_S + sum(p.preemptions_per_s for p in pools)
    first = pools[0].restart_s
    longer = sum((p.accelerators / ACCELERATOR_MTBF_S + p.preemptions_per_s) * (p.restart_s - first) for p in pools[1:])
    return at_best(1.0 / rate, blocks, first + longer / rate)


def goodput(
    accelerators: Figure,
    state_bytes: Figure,
    host_bandwidth: Figure,
    *,
    accelerator_mtbf: float = ACCELERATOR_MTBF_S,
    restart: float = RESTART_S,
    preemptions_per_s: Figure = 0.0,
) -> GoodputEstimate:
    """``1 - C / tau - (tau / 2 + R) / M`` at the best interval ``tau = sqrt(2 C M)``, not below 0.

    `state_bytes` is what one accelerator copies to host memory for a checkpoint; ``C`` that over `host_bandwidth`
    plus a pause. ``1 / M = accelerators / MTBF + preemptions``.
    """
    mtbf = 1.0 / (accelerators / accelerator_mtbf + preemptions_per_s)
    return at_best(mtbf, CHECKPOINT_PAUSE_S + state_bytes / host_bandwidth, restart)


def at_best(mtbf: Figure, blocks: Figure, restart: Figure) -> GoodputEstimate:
    """``1 - C / tau - (tau / 2 + R) / M`` at ``tau = sqrt(2 C M)``, from C and M themselves (seconds)."""
    interval = np.sqrt(2.0 * blocks * mtbf)
    fraction = np.maximum(1.0 - blocks / interval - (interval / 2.0 + restart) / mtbf, 0.0)
    return GoodputEstimate(fraction, mtbf, interval, blocks, restart)
