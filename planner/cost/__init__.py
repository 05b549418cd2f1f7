"""The one cost model: pure functions from figures to figures, broadcasting over whatever the figures are."""

from planner.cost.evaluate import StepCost, StepPasses, breakdown, evaluate, passes
from planner.cost.figures import Device, Grid, Layout, Network, Options, Shape, Stack
from planner.cost.flops import model_flops, utilisation

__all__ = [
    "Device",
    "Grid",
    "Layout",
    "Network",
    "Options",
    "Shape",
    "Stack",
    "StepCost",
    "StepPasses",
    "breakdown",
    "evaluate",
    "model_flops",
    "passes",
    "utilisation",
]
