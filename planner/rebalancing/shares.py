"""Who works on how many samples: from a plan's document, and so that every rank that runs has one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def of_plan(path: str | Path, rank: int = 1) -> tuple[int, ...]:
    """Samples of every data-parallel rank of a step, groups and copies (of images: pools) in the plan's order.

    Args:
        path: A document that ``clusterwright plan -o FILE`` wrote.
        rank: Which plan of a set.

    Raises:
        ValueError: the plan cuts layers or tensors over ranks, which DistributedDataParallel does not.
    """
    document: Mapping[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    if document.get("kind") == "image-plan":
        return tuple(n for pool in document["pools"] for n in evenly(int(pool["images"]), int(pool["accelerators"])))
    plan = document["plans"][rank - 1] if document.get("kind") == "plan-set" else document
    parallelism = plan["parallelism"]
    axes = plan.get("axes") or {**parallelism, "batch": plan["batch"]["global"]}  # Version 1 has them in sections.
    if max(axes[axis] for axis in ("tp", "pp", "cp", "ep")) > 1:
        raise ValueError("this plan uses more than data parallelism; pin tp=1 pp=1 for DistributedDataParallel")
    groups = parallelism.get("groups") or [{"copies": axes["dp"], "width": 1, "sequences": axes["batch"]}]
    shares: list[int] = []
    for group in groups:
        shares += evenly(int(group["sequences"]), int(group["copies"]) * int(group["width"]))
    return tuple(shares)


def evenly(samples: int, ranks: int) -> list[int]:
    """`samples` split over `ranks` as evenly as whole samples allow: shares differ by at most one, the larger first."""
    share, rest = divmod(samples, ranks)
    return [share + (rank < rest) for rank in range(ranks)]


def none_idle(batches: Sequence[float]) -> tuple[int, ...]:
    """Shares with at least one sample each, taken from the largest: a rank that runs can't be left out.

    Raises:
        ValueError: there are fewer samples than ranks.
    """
    shares = np.asarray(batches, dtype=np.int64).copy()
    if shares.sum() < len(shares):
        raise ValueError(f"a batch of {int(shares.sum())} is too small for {len(shares)} ranks")
    for index in np.flatnonzero(shares == 0):
        shares[np.argmax(shares)] -= 1
        shares[index] = 1
    return tuple(int(n) for n in shares)
