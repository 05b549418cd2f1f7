"""Clusterwright: which accelerator cluster to buy, rent or use, and how to train on it.

>>> import planner
>>> best = planner.plan("llama3-70b", cluster="dgx-h100:16").plans[0]
>>> best.parallelism.tp, best.prediction.step_time_s  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from planner.base.version import __version__

__all__ = ["__version__", "estimate", "plan"]

if TYPE_CHECKING:
    from planner.api import estimate, plan


def __getattr__(name: str) -> Any:
    """Loads the planner when it is first asked for: importing the package stays instant."""
    if name in ("estimate", "plan"):
        from planner import api

        return getattr(api, name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")
