"""What Python callers use: a function for each question, with typed keywords, and the records that these take and give.

:mod:`planner` and ``clusterwright`` hand it on.
"""

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
    from planner.api.site_runs import SiteJournal
    from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
    from planner.question.axis_keywords import Axes
    from planner.schema.hardware import Accelerator, Cluster, Node
    from planner.schema.plan import Plan, PlanSet
    from planner.schema.workload import Model
    from planner.verify.finding import Inconsistent

_HOMES = {
    "api.buying": ("design", "procure"),
    "api.documents": ("compare", "export", "load", "page"),
    "api.plans": ("estimate", "evaluate_many", "fit", "plan", "plan_images"),
    "api.post_training": ("estimate_rl", "plan_rl"),
    "api.post_training_fits": ("fit_rl",),
    "api.records": ("accelerator", "cluster", "model", "node"),
    "api.runs": ("calibrate", "learn", "validate"),
    "api.site_runs": ("SiteJournal",),
    "base.errors": ("ClusterwrightError", "NoAnswer", "WrongQuestion"),
    "question.axis_keywords": ("Axes",),
    "schema.hardware": ("Accelerator", "Cluster", "Node"),
    "schema.plan": ("Plan", "PlanSet"),
    "schema.workload": ("Model",),
    "verify.finding": ("Inconsistent",),
}
"""Module -> what it has, but for the lists: a command loads what it needs alone."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Accelerator",
    "Axes",
    "Cluster",
    "ClusterwrightError",
    "Inconsistent",
    "Model",
    "NoAnswer",
    "Node",
    "Plan",
    "PlanSet",
    "SiteJournal",
    "WrongQuestion",
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
    return getattr(import_module(f"planner.{_HOME_OF.get(name, 'api.listing')}"), name)
