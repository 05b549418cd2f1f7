"""What Python callers use: a function for each question, with typed keywords. ``import clusterwright`` hands it on."""

from planner.api.plans import Axes, estimate, plan, plan_images
from planner.api.records import accelerator, cluster, model, node

__all__ = ["Axes", "accelerator", "cluster", "estimate", "model", "node", "plan", "plan_images"]
