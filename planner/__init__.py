"""Clusterwright: which accelerator cluster to buy, rent or use, and how to train on it.

>>> import planner
>>> best = planner.plan("llama3-8b", "dgx-h100:2")[0]
>>> best.precision
'bf16'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.base.version import __version__

if TYPE_CHECKING:
    from planner.api import (
        Axes,
        accelerator,
        calibrate,
        cluster,
        compare,
        design,
        estimate,
        estimate_rl,
        evaluate_many,
        export,
        fit,
        fit_rl,
        learn,
        list_accelerators,
        list_fabrics,
        list_models,
        list_nodes,
        list_regions,
        list_runtimes,
        list_targets,
        load,
        model,
        node,
        page,
        plan,
        plan_images,
        plan_rl,
        procure,
        validate,
    )
    from planner.api.site_runs import SiteJournal
    from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
    from planner.commands.screen.explained import explain
    from planner.schema.hardware import Accelerator, Cluster, Node
    from planner.schema.plan import Plan, PlanSet
    from planner.schema.workload import Model
    from planner.verify.finding import Inconsistent

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
    "__version__",
    "accelerator",
    "calibrate",
    "cluster",
    "compare",
    "design",
    "estimate",
    "estimate_rl",
    "evaluate_many",
    "explain",
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
_HOMES = {
    **dict.fromkeys(("Accelerator", "Cluster", "Node"), "planner.schema.hardware"),
    **dict.fromkeys(("ClusterwrightError", "NoAnswer", "WrongQuestion"), "planner.base.errors"),
    **dict.fromkeys(("Plan", "PlanSet"), "planner.schema.plan"),
    "Inconsistent": "planner.verify.finding",
    "Model": "planner.schema.workload",
    "SiteJournal": "planner.api.site_runs",
    "explain": "planner.commands.screen.explained",
}
"""Where names are that are not in ``planner.api``."""


def __getattr__(name: str) -> Any:
    """Loads what is asked for when it first is: importing the package stays instant."""
    if name not in __all__:
        near = [known for known in __all__ if name.lower().rstrip("s") in known]
        hint = f"; did you mean {', '.join(near)}?" if near and name[0] != "_" else ""
        raise AttributeError(f"module 'planner' has no attribute {name!r}{hint}")
    return getattr(import_module(_HOMES.get(name, "planner.api")), name)


def __dir__() -> list[str]:
    return __all__
