"""How context-parallel ranks share a sequence: what the attention kernels of a model allow.

Read in TransformerEngine d0067d0d (pytorch/attention/dot_product_attention/context_parallel.py): windows need the
all-gather or the all-to-all (lines 5054-5060), other softmaxes the all-to-all (lines 5062-5067), which deals heads to
ranks, to each as many (lines 4244-4247). A ring has none of these limits.
"""

from __future__ import annotations

from planner.schema.plan_layout import CONTEXT_ALGORITHMS, ContextAlgorithm
from planner.schema.workload import Model, Workload


def algorithms(workload: Workload) -> tuple[ContextAlgorithm, ...]:
    """``p2p``: keys and values go round a ring; ``all_gather``: every rank gets all of them; ``a2a``: every rank gets
    some heads of the whole sequence; ``a2a+p2p``: of the part that a scale-up domain has, and these go round a ring.
    Those that the model's attention allows, the preferred ones first.
    """
    model = workload.model
    if model.sinks:
        return ("a2a",)
    windowed = model.window is not None and model.window.size < workload.sequence
    return ("all_gather", "a2a") if windowed else CONTEXT_ALGORITHMS


def key_value_heads(model: Model) -> tuple[int, ...]:
    """Key/value heads of each kind of attention: all are dealt to the ranks that exchange them."""
    return (model.kv_heads, model.full.kv_heads) if model.full else (model.kv_heads,)
