"""What usually makes a cause take longer than predicted, and the switch that changes it, by framework.

Switches of Megatron-LM: megatron/training/arguments.py; of torchtitan: torchtitan/config/job_config.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.schema.plan import Plan

MUCH = 0.02
"""Share of a step from which a difference has a cause worth naming: steps of one run are that far apart."""
BOUND = 0.1
"""Share of a step without any kernel from which on a run is bound by its host."""

_FLAGS: Mapping[str, Mapping[str, str]] = {
    "megatron": {
        "DP": "--overlap-grad-reduce --overlap-param-gather",
        "TP": "--sequence-parallel --tp-comm-overlap",
        "EP": "--overlap-moe-expert-parallel-comm, --moe-token-dispatcher-type flex",
        "CP": "--cp-comm-type a2a+p2p",
        "p2p": "--num-layers-per-virtual-pipeline-stage, more micro-batches",
        "host": "--manual-gc, --cuda-graph-impl, a larger --micro-batch-size",
        "attention": "--attention-backend flash or fused",
        "element-wise": "the fusions of --transformer-impl transformer_engine, no --no-*-fusion",
        "optimizer": "--use-distributed-optimizer",
    },
    "fsdp2": {
        "DP": "--parallelism.fsdp_reshard_after_forward never, a larger batch for each device",
        "TP": "--parallelism.enable_async_tensor_parallel with --compile.enable",
        "host": "--compile.enable, --training.gc_freq, a larger local batch",
        "element-wise": "--compile.enable",
    },
    "deepspeed": {"DP": "overlap_comm in zero_optimization"},
}
"""Beginning of a runtime's id -> cause -> switches."""


def remedy(row: str, plan: Plan, measured: float, predicted: float, hidden: float, step: float) -> str:
    """Why a row of a traced step is longer than predicted; empty where it is not, by :data:`MUCH` of the step.

    Arguments:
        row: Name of the row.
        plan: What ran.
        measured: Seconds of a step.
        predicted: Seconds of a step.
        hidden: Seconds of its communication under what computes.
        step: Seconds of the whole step as it was traced.
    """
    if measured - predicted <= MUCH * step or row not in _WHY:
        return ""
    reason = _WHY[row]
    why = reason if isinstance(reason, str) else reason(plan, measured, hidden, step)
    by_cause = next((flags for name, flags in _FLAGS.items() if plan.runtime.name.startswith(name)), {})
    flags = by_cause.get(row.partition(" ")[0])
    return f"{why} ({flags})" if flags else why


def _host(plan: Plan, measured: float, hidden: float, step: float) -> str:
    share = f"kernels run {100 * (1 - measured / step):.0f} % of the step"
    return f"bound by the host: {share}" if measured > BOUND * step else f"gaps between kernels: {share}"


def _reduced(plan: Plan, measured: float, hidden: float, step: float) -> str:
    if hidden < measured and plan.overlap.dp:
        return "gradients and weights travel alone, and the plan has them overlap"
    return "waiting for the slowest rank, or a slower network than planned"


def _tensors(plan: Plan, measured: float, hidden: float, step: float) -> str:
    if plan.overlap.tp and hidden < measured:
        return "activations travel alone, and the plan has them overlap"
    return "slower links within a node than planned, or ranks that wait for one another"


_WHY: Mapping[str, str | Callable[[Plan, float, float, float], str]] = {
    "host": _host,
    "DP and waiting": _reduced,
    "p2p and bubble": "stages wait for one another: unequal stages, or few micro-batches",
    "TP": _tensors,
    "EP": "tokens are dispatched alone, or experts get unequal shares of them",
    "CP": "usually keys and values that travel longer than attention takes",
    "matrix": "usually lower clocks (power, heat), shapes that tile badly, or another precision than planned",
    "attention": "usually a kernel that is not fused, or masks computed in full",
    "element-wise": "usually kernels that are not fused, or copies and casts",
    "optimizer": "usually an optimizer that is not fused, or not shared out among replicas",
    "other communication": "process groups of no axis of the plan: is it the plan that ran?",
}
