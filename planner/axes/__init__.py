"""The axes of a plan: a row each (:mod:`planner.axes.table`), and everything that follows from the rows."""

from planner.axes.axis import PlanAxis
from planner.axes.table import AXES, LAYOUT_AXES, OPTION_AXES, PINNED

__all__ = ["AXES", "LAYOUT_AXES", "OPTION_AXES", "PINNED", "PlanAxis"]
