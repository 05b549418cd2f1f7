"""Several pools in plain words: ``--cluster`` given more than once, ``--accelerators``, ``--link``, a zone, a price."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base import units
from planner.base.errors import WrongQuestion, meant, suggestion
from planner.catalog import Catalog, cluster, cluster_from_file
from planner.question.given import InZone, Named, listed
from planner.question.job_pools import JobPool, LinkBetween, Pools, part_of
from planner.schema.hardware import Cluster, Node, Price
from planner.schema.plan_machines import in_zone, numbered


def zoned(given: Named) -> tuple[str | Path | Cluster, str]:
    """``dgx-a100-40gb:4@zone-b``: the cluster, and the zone it stands in; of a file or a record none.

    Raises:
        WrongQuestion: what stands behind the @ is no name.
    """
    if isinstance(given, InZone):
        return given.cluster, given.zone
    if not isinstance(given, str):
        return given, ""
    text = given
    named, at, zone = text.partition("@")
    if at and not re.fullmatch(r"[A-Za-z0-9._-]+", zone):
        raise WrongQuestion(f"--cluster {text}: {zone!r} is not the name of a zone; write {named}@zone-a")
    return named, zone


def own_clusters(given: Named | Sequence[Named], known: Catalog) -> list[Cluster]:
    """Clusters of one's own, from their files or as they are, without zones.

    Raises:
        WrongQuestion: a file that describes none.
    """
    plain = [zoned(named)[0] for named in listed(given)]
    return [c if isinstance(c, Cluster) else cluster_from_file(Path(c).expanduser(), known) for c in plain]


def names(clusters: Sequence[tuple[Cluster, str]]) -> tuple[str, ...]:
    """What pools are called: their node, with the zone if they have one; numbered where that is still the same."""
    return numbered([in_zone(c.node.id, zone) for c, zone in clusters])


def renamed(known: Sequence[JobPool]) -> tuple[JobPool, ...]:
    """The pools called as a plan over them calls them, some of the question's having become one."""
    pool_names = names([(pool.cluster, pool.zone) for pool in known])
    return tuple(replace(pool, name=name) for pool, name in zip(known, pool_names, strict=True))


def pools(clusters: Sequence[tuple[Cluster, str]], prices: Sequence[tuple[Price | None, str]],
          links: Sequence[str]) -> Pools:  # fmt: skip
    """Pools with their prices and links.

    Raises:
        WrongQuestion: a link between pools that there are not, or a rate that is none.
    """
    pool_names = names(clusters)
    found = tuple(
        JobPool(name=name, cluster=c, price=price, sold_as=sold, zone=zone)
        for name, (c, zone), (price, sold) in zip(pool_names, clusters, prices, strict=True)
    )
    given: dict[frozenset[str], LinkBetween] = {}
    for text in links:
        if len(found) < 2:
            raise WrongQuestion(f"--link {text}: a link joins two pools, and there is one; give --cluster once more")
        pair, link = _link(text, pool_names)
        if pair in given:
            raise WrongQuestion(f"--link {text}: {' and '.join(sorted(pair))} have a link already; give one")
        given[pair] = link
    return Pools(found, given)


def _link(text: str, known: Sequence[str]) -> tuple[frozenset[str], LinkBetween]:
    """``A/B=25 Gbit/s`` or ``A/B=25 Gbit/s,20 us``."""
    ends, equals, figures = text.partition("=")
    pair = ends.split("/")
    if not equals or len(pair) != 2:
        raise WrongQuestion(f"--link {text}: write POOL/POOL='25 Gbit/s', with a latency if known: '25 Gbit/s,20 us'")
    for name in pair:
        if name not in known:
            hint = meant(name, known, f"pools are {', '.join(known)}")
            raise WrongQuestion(f"--link {text}: no pool {name!r}; {hint}")
    if pair[0] == pair[1]:
        raise WrongQuestion(f"--link {text}: both ends are {pair[0]}; inside a pool the fabric counts (--fabric)")
    rate, _, latency = figures.partition(",")
    try:
        bandwidth = units.parse(rate.strip(), "bandwidth")
        seconds = units.parse(latency.strip(), "time") if latency else 2e-5
    except units.UnitError as error:
        raise WrongQuestion(f"--link {text}: {error}") from None
    if bandwidth <= 0 or seconds < 0:
        raise WrongQuestion(f"--link {text}: a link has a rate above 0 and a latency of at least 0")
    return frozenset(pair), LinkBetween(bandwidth, seconds, "as given (--link)")


def prices(text: float | str, known: Sequence[str]) -> Mapping[str, float | str]:
    """``$2/h`` for every pool (under the empty name), or ``POOL=$2/h,POOL=$1/h``.

    Raises:
        WrongQuestion: no such pool; the nearest.
    """
    if not isinstance(text, str) or "=" not in text:
        return {"": text}
    found: dict[str, float | str] = {}
    for part in text.split(","):
        name, _, price = part.strip().partition("=")
        if name not in known:
            hint = meant(name, known, f"pools are {', '.join(known)}")
            raise WrongQuestion(f"--price {part}: no pool {name!r}; {hint}")
        found[name] = price
    return found


SMALL = 4
"""Accelerators of a node below which it is not what one means by a machine full of them."""


MOST_OFFERED = 4
"""Nodes that a message lists."""


# ---- accelerators without nodes --------------------------------------------------------------------------------------


def of_accelerators(known: Catalog, text: str, fabric: str | None, region: str | None) -> list[Cluster]:
    """``A100:4,V100:4``: so many accelerators of each kind, in nodes of the catalog: whole ones,
    and a part of one for what is left over.

    Raises:
        WrongQuestion: a name that no accelerator has, or a count that is none.
    """
    found = []
    for part in text.split(","):
        name, colon, count = part.strip().partition(":")
        if not name:
            raise WrongQuestion(f"--accelerators {text!r}: which? Write for example A100:4,V100:8")
        if not colon or not re.fullmatch(r"\d{1,7}", count):
            several = "; --cluster NODE:A..B tries several counts" if ".." in count else ""
            raise WrongQuestion(f"--accelerators {part.strip()}: how many? Write {name}:4{several}")
        if int(count):
            found += so_many(known, accelerator(known, name), int(count), fabric, region)
    return found


def accelerator(known: Catalog, name: str) -> str:
    """An accelerator by its id, by how that starts (``A100``, ``RTX6000``), or by parts of it (``A100-80GB``).

    Of several (A100-PCIE-40GB, A100-SXM4-80GB) the first that a node of the catalog holds is meant.

    Raises:
        WrongQuestion: no node holds such a one; the nearest.
    """

    def plain(text: str) -> str:
        return re.sub(r"[^a-z0-9]", "", text.lower())

    exact = [entry for entry in known.accelerators if plain(entry) == plain(name)]
    begins = [entry for entry in known.accelerators if re.match(rf"{re.escape(name)}(-|$)", entry, re.IGNORECASE)]
    # A10 is no A100: a number ends where it ends.
    start = plain(name) + (r"(?!\d)" if name[-1:].isdigit() else "")
    begins = begins or [entry for entry in known.accelerators if plain(name) and re.match(start, plain(entry))]
    family, *sizes = re.split(r"[^a-z0-9]+", name.lower())
    parts = {entry: entry.lower().split("-") for entry in known.accelerators}
    begins = begins or [entry for entry, (first, *rest) in parts.items() if first == family and {*sizes} <= {*rest}]
    held = [node.accelerator for node in known.nodes.values()]
    usual = [entry for entry in begins if "SXM" in entry and entry in held]
    for chosen in (exact, usual, [entry for entry in begins if entry in held]):
        if chosen:
            return chosen[0]
    hint = suggestion(name, known.accelerators)
    raise WrongQuestion(f"--accelerators {name}: no such accelerator in a node.{hint} (clusterwright catalog list)")


def offered(known: Catalog, name: str, count: str) -> str:
    """What to write in place of an accelerator where a node is meant; empty of what is no accelerator's name."""
    try:
        part = accelerator(known, name)
    except WrongQuestion:
        return ""
    wanted = int(count) if re.fullmatch(r"[1-9]\d{0,6}", count) else 0
    holding = [n for n in known.nodes.values() if n.accelerator == part and wanted % n.accelerators == 0]
    holding.sort(key=lambda node: (-node.accelerators, node.kind == "cloud", node.id))
    named = [f"{n.id}:{wanted // n.accelerators}" if wanted else n.id for n in holding[:MOST_OFFERED]]
    named += ["..."] if len(holding) > MOST_OFFERED else []
    listed = f"{f'{wanted:,} of them are' if wanted else 'nodes with it are'} {', '.join(named)}; " if named else ""
    return f"{listed}--accelerators {name}:{wanted or 8} takes what is usual"


def so_many(known: Catalog, part: str, count: int, fabric: str | None, region: str | None) -> list[Cluster]:
    """So many accelerators: nodes that they fill, if these are not small; else the most whole nodes of the largest kind
    and a part of one, with its share of ports and power.

    Raises:
        WrongQuestion: if no node of the catalog holds that accelerator.
    """
    holding = [node for node in known.nodes.values() if node.accelerator == part]
    if not holding:
        raise WrongQuestion(
            f"--accelerators {part}:{count}: no node of the catalog holds it; describe one in a folder of your own and "
            "name that (--catalog DIR)"
        )
    filled = [n for n in holding if count % n.accelerators == 0 and n.accelerators >= min(SMALL, count)]
    if filled:
        node = max(filled, key=lambda n: n.accelerators)
        return [_cluster_of(known, node, node.accelerators, count // node.accelerators, fabric, region)]
    if larger := [n for n in holding if n.accelerators > count]:
        node = min(larger, key=lambda n: n.accelerators)
        return [_cluster_of(known, node, count, 1, fabric, region)]
    node = max(holding, key=lambda n: n.accelerators)
    whole, rest = divmod(count, node.accelerators)
    found = [_cluster_of(known, node, node.accelerators, whole, fabric, region)]
    return [*found, _cluster_of(known, node, rest, 1, fabric, region)] if rest else found


def _cluster_of(known: Catalog, node: Node, each: int, count: int, fabric: str | None, region: str | None) -> Cluster:
    """So many nodes, or parts of one, of `each` accelerators."""
    usual = cluster(known, node.id, 1, fabric or _usual(node), region)
    return replace(usual, node=part_of(usual.node, each), count=count)


def _usual(node: Node) -> str | None:
    return None if node.fabric else "ethernet-25g"
