"""Clusterwright: which accelerator cluster to buy, rent or use, and how to train on it.

>>> import planner
>>> best = planner.plan("llama3-8b", "dgx-h100:2", top=1)[0]
>>> best.precision
'bf16'
"""

from typing import TYPE_CHECKING, Any

from planner.base.version import __version__

if TYPE_CHECKING:
    from planner.api import accelerator, cluster, estimate, model, node, plan, plan_images

__all__ = [
    "__version__",
    "accelerator",
    "cluster",
    "estimate",
    "model",
    "node",
    "plan",
    "plan_images",
]


def __getattr__(name: str) -> Any:
    """Loads the planner when it is first asked for: importing the package stays instant."""
    if name in __all__:
        from planner import api

        return getattr(api, name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
