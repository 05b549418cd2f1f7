"""Which accelerator cluster to buy, rent or use, and how to train on it: the surface of :mod:`planner`.

Ask: plan, plan_rl, estimate, fit, procure, design, plan_images.
Work with an answer: compare, explain, export, page, load.
Learn from runs: validate, calibrate, learn. Change the catalog's records: model, cluster, node, accelerator,
list_models and its like. ``help(clusterwright.plan)`` says what it takes.

>>> import clusterwright as cw
>>> best = cw.plan("llama3-8b", "dgx-h100:2")[0]
>>> best.prediction.memory.total_bytes < best.prediction.memory.capacity_bytes
True
"""

from typing import TYPE_CHECKING, Any

import planner

if TYPE_CHECKING:
    from planner.api import *  # noqa: F403
    from planner.commands.screen.explained import explain as explain

__all__ = planner.__all__


def __getattr__(name: str) -> Any:
    try:
        return getattr(planner, name)
    except AttributeError as error:
        raise AttributeError(str(error).replace("'planner'", "'clusterwright'")) from None


def __dir__() -> list[str]:
    return __all__
