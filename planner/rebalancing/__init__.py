"""A batch over different accelerators while a job trains: the split learned, noise, and whom to leave out."""

from planner.rebalancing.batch_choice import choose, efficiency
from planner.rebalancing.batch_split import BatchSplit, Nodes, nodes, optimum, step_time, whole
from planner.rebalancing.node_models import Epoch, NodeModel

__all__ = [
    "BatchSplit",
    "Epoch",
    "NodeModel",
    "Nodes",
    "choose",
    "efficiency",
    "nodes",
    "optimum",
    "step_time",
    "whole",
]
