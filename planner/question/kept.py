"""A question as the document of its answer keeps it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from planner.catalog import cluster_from_file
from planner.catalog.cluster import is_file
from planner.question import pools
from planner.question.given import Named, counted, listed, texts
from planner.question.plan_options import PlanOptions
from planner.question.reading import catalog_of
from planner.schema.hardware import Cluster
from planner.schema.plan import AskedPlans


def cluster_name(named: Named, asked: PlanOptions) -> str:
    """A cluster as documents name it: one of one's own by its name, without where its file lies."""
    plain, zone = pools.zoned(named)
    if isinstance(plain, str | Path) and is_file(str(plain)):
        plain = cluster_from_file(Path(plain).expanduser(), catalog_of(asked))
    name = plain.name or plain.node.id if isinstance(plain, Cluster) else str(plain)
    return f"{name}@{zone}" if zone else name


FILE_KEYWORDS = ("catalog", "site", "lengths", "examples", "epochs")
"""Keywords whose values are files and folders; lengths of texts, and the tokens that they make, stand in plans."""


def kept_question(
    named: Named | Sequence[Named], asked: PlanOptions, settings: Sequence[str] | None = None
) -> AskedPlans:
    """A question as its document keeps it; `settings` are those of an estimate."""
    plain = {**vars(asked), "pin": texts(asked.pin), "accelerators": counted(asked.accelerators)}
    options = {
        name: value
        for name, value in plain.items()
        if name not in FILE_KEYWORDS and value != getattr(PlanOptions, name)
    }
    return AskedPlans(
        clusters=tuple(cluster_name(each, asked) for each in listed(named)),
        settings=None if settings is None else tuple(settings),
        options=json.loads(json.dumps(options)),  # lists for tuples, as a file has them
    )
