"""The one cost model: pure functions from figures to figures, broadcasting over whatever the figures are."""

from planner.cost.evaluate import Cost, Passes, breakdown, evaluate, model_flops, passes
from planner.cost.figures import Device, Grid, Layout, Network, Options, Shape, Stack

__all__ = [
    "Cost",
    "Device",
    "Grid",
    "Layout",
    "Network",
    "Options",
    "Passes",
    "Shape",
    "Stack",
    "breakdown",
    "evaluate",
    "model_flops",
    "passes",
]
