"""Clusterwright: which accelerator cluster to buy, rent or use, and how to train on it.

>>> import planner
>>> best = planner.plan("llama3-8b", "dgx-h100:2")[0]
>>> best.precision
'bf16'
"""

from typing import TYPE_CHECKING, Any

from planner import api
from planner.base.version import __version__

if TYPE_CHECKING:
    from planner.api import *  # noqa: F403
    from planner.commands.screen.explained import explain

__all__ = ["__version__", "explain"]
__all__ += api.__all__


def __getattr__(name: str) -> Any:
    """Loads what is asked for when it first is: importing the package stays instant."""
    if name not in __all__:
        near = [known for known in __all__ if name.lower().rstrip("s") in known]
        hint = f"; did you mean {', '.join(near)}?" if near and name[0] != "_" else ""
        raise AttributeError(f"module 'planner' has no attribute {name!r}{hint}")
    if name == "explain":
        from planner.commands.screen.explained import explain

        return explain
    return getattr(api, name)


def __dir__() -> list[str]:
    return __all__
