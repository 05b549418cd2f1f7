"""What Python callers use: a function for each question, with typed keywords. ``import clusterwright`` hands it on."""

from planner.api.buying import design, procure
from planner.api.documents import compare, export, load, page
from planner.api.listing import (
    list_accelerators,
    list_fabrics,
    list_models,
    list_nodes,
    list_regions,
    list_runtimes,
    list_targets,
)
from planner.api.plans import estimate, evaluate_many, fit, plan, plan_images
from planner.api.records import accelerator, cluster, model, node
from planner.api.runs import calibrate, learn, validate
from planner.question.axis_keywords import Axes

__all__ = [
    "Axes",
    "accelerator",
    "calibrate",
    "cluster",
    "compare",
    "design",
    "estimate",
    "evaluate_many",
    "export",
    "fit",
    "learn",
    "list_accelerators",
    "list_fabrics",
    "list_models",
    "list_nodes",
    "list_regions",
    "list_runtimes",
    "list_targets",
    "load",
    "model",
    "node",
    "page",
    "plan",
    "plan_images",
    "procure",
    "validate",
]
