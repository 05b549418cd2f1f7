"""What Python callers use: a function for each question, with typed keywords. ``import clusterwright`` hands it on."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from planner.api.post_training import estimate_rl, plan_rl
    from planner.api.post_training_fits import fit_rl
    from planner.api.records import accelerator, cluster, model, node
    from planner.api.runs import calibrate, learn, validate
    from planner.question.axis_keywords import Axes

_HOMES = {
    "buying": ("design", "procure"),
    "documents": ("compare", "export", "load", "page"),
    "plans": ("estimate", "evaluate_many", "fit", "plan", "plan_images"),
    "post_training": ("estimate_rl", "plan_rl"),
    "post_training_fits": ("fit_rl",),
    "records": ("accelerator", "cluster", "model", "node"),
    "runs": ("calibrate", "learn", "validate"),
}
"""Module -> what it has, but for the lists and ``Axes``: a command loads what it needs alone."""

__all__ = [
    "Axes",
    "accelerator",
    "calibrate",
    "cluster",
    "compare",
    "design",
    "estimate",
    "estimate_rl",
    "evaluate_many",
    "export",
    "fit",
    "fit_rl",
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
    "plan_rl",
    "procure",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'planner.api' has no attribute {name!r}")
    homes = [f"planner.api.{module}" for module, names in _HOMES.items() if name in names]
    other = "planner.question.axis_keywords" if name == "Axes" else "planner.api.listing"
    return getattr(import_module(homes[0] if homes else other), name)
