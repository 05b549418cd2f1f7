"""How context-parallel ranks share a sequence: what the attention kernels of a model allow.

Read in TransformerEngine d0067d0d (pytorch/attention/dot_product_attention/context_parallel.py): windows need the
all-gather or the all-to-all (lines 5054-5060), other softmaxes the all-to-all (lines 5062-5067), which deals heads to
ranks, to each as many (lines 4244-4247). A ring has none of these limits.
"""

from __future__ import annotations

from planner.schema.plan_layout import ContextAlgorithm
from planner.schema.workload import Workload


def algorithm(workload: Workload) -> ContextAlgorithm:
    """``p2p``: keys and values go round a ring; ``all_gather``: every rank gets all of them; ``a2a``: every rank gets
    some heads of the whole sequence. The first of these that the model's attention allows.
    """
    model = workload.model
    if model.sinks:
        return "a2a"
    return "all_gather" if model.window is not None and model.window.size < workload.sequence else "p2p"
