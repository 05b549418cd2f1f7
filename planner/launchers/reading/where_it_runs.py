"""The machines that a configuration is priced on, where who asks leaves their number to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.base.errors import WrongQuestion
from planner.catalog.cluster import is_file
from planner.launchers.reading.shell import counts
from planner.question.given import Named, listed
from planner.question.plan_options import PlanOptions
from planner.question.reading import catalog_of
from planner.question.several_pools import as_one_pool


def counted_on(cluster: Sequence[str]) -> dict[str, str]:
    """What a script that counts accelerators and nodes finds on a cluster, as far as that is stated."""
    node, _, count = cluster[0].partition(":") if len(cluster) == 1 else ("", "", "")
    if not re.fullmatch(r"[\w.-]+", node) or is_file(node):
        return {}
    machine = {counts.NODE: str(catalog_of(PlanOptions()).node(node).accelerators)}
    return {**machine, counts.NODES: count} if count.isdecimal() else machine


def where_it_runs(
    ranks: int | None, cluster: Sequence[str], accelerators: str | None, located: Mapping[str, Any]
) -> list[Named]:
    """The clusters that are meant; of nodes or accelerators without a count as many as hold the ranks.

    Args:
        ranks: How many the configuration starts; None: it does not say.
        cluster: ``dgx-h100:16``, or ``dgx-h100`` alone.
        accelerators: ``A100-80GB:16``, or ``A100-80GB`` alone, in place of a cluster.
        located: Region and fabric, where they are given.

    Raises:
        WrongQuestion: neither or both are given, or the accelerators would be in nodes of several kinds.
    """
    if accelerators is not None:
        if cluster:
            raise WrongQuestion("--accelerators and --cluster: one of them says where it runs")
        counted = accelerators if ":" in accelerators or not ranks else f"{accelerators}:{ranks}"
        pool, left = as_one_pool((), PlanOptions(accelerators=counted, **located))
        if left.accelerators is not None:
            raise WrongQuestion(f"--accelerators {counted}: in nodes of several kinds; --cluster NODE:COUNT names one")
        return listed(pool)
    if not cluster:
        starts = f"; it starts {ranks:,} ranks, and --accelerators H100 takes as many" if ranks else ""
        raise WrongQuestion(f"on what? --cluster dgx-h100:16, or --accelerators A100-80GB:16{starts}")
    nodes = cluster[0]
    if len(cluster) == 1 and ranks and re.fullmatch(r"[\w.-]+", nodes) and not is_file(nodes):
        accelerators_of_node = catalog_of(PlanOptions()).node(nodes).accelerators
        return [f"{nodes}:{-(-ranks // accelerators_of_node)}"]
    return list(cluster)


def accelerators_of(clusters: Sequence[str]) -> int | None:
    """Accelerators of ``NODE:COUNT`` alone; None of anything else.

    Raises:
        WrongQuestion: no such node.
    """
    named = re.fullmatch(r"([\w.-]+):([1-9]\d{0,5})", str(clusters[0])) if len(clusters) == 1 else None
    if named is None or is_file(named[1]):
        return None
    return catalog_of(PlanOptions()).node(named[1]).accelerators * int(named[2])
