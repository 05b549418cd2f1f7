"""The one cost model: pure functions from figures to figures, broadcasting over whatever the figures are.

Whether any candidate has something is asked by ``np.count_nonzero``: of a number or a short array, of which a search
asks tens of thousands of times, it takes a tenth as long as ``np.any``.
"""

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
