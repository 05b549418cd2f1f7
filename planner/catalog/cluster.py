"""From names, or from a cluster file, to one cluster: nodes of one kind on one fabric in one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import ConfigDict

from planner.base import typed
from planner.base.errors import WrongQuestion, did_you_mean, suggestion
from planner.catalog.checking import build, format_problems
from planner.catalog.files import FileProblem, FileRecord, TomlDocument, read_document
from planner.catalog.loading import Catalog
from planner.schema.hardware import Accelerator, Cluster, Fabric, Node
from planner.schema.quantities import STRICT

LARGEST = 1_000_000
"""Nodes; a larger count is a slip of the keyboard."""
_LONE = "ethernet-25g"
"""Fabric of a node that stands alone and names none: nothing crosses it."""
P = TypeVar("P", bound=Node | Fabric | Accelerator)
_FILE = re.compile(r"(.*\.toml)(?:#(\d+))?", re.DOTALL)
"""A cluster file, or one of its pools, counted from 1."""
_OF_ALL = ("name", "region", "utilisation_of_peak_power", "fabric", "accelerator", "prices")
"""Keys that a file of pools may state once, for each that has none of its own."""


def _count(value: object) -> object:
    if not _is_count(value):
        raise ValueError(f"must be a whole number from 1 to {LARGEST:,}")
    return value


def _share(value: object) -> object:
    if type(value) not in (int, float) or not 0 < value <= 1:  # type: ignore[operator]
        raise ValueError("must be a number above 0 and at most 1")
    return value


def _region(name: object, catalog: Catalog) -> object:
    if name not in list(catalog.regions):
        raise ValueError(f"no such region{did_you_mean(str(name), catalog.regions)}")
    return name


@dataclass(frozen=True, kw_only=True)
class ClusterTable:
    """A cluster file; its `node`, `fabric` and `accelerator` may be ids or tables, which are read by themselves."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str | None = None
    node: object = None
    accelerator: object = None
    fabric: object = None
    prices: object = None
    count: Annotated[int, typed.reads(_count), typed.missing("write for example count = 16")]
    region: Annotated[str | None, typed.knows(_region)] = None
    utilisation_of_peak_power: Annotated[float | None, typed.reads(_share)] = None


def cluster(
    catalog: Catalog, node_id: str, count: int, fabric_id: str | None = None, region_id: str | None = None
) -> Cluster:
    """`count` nodes on their usual fabric or on `fabric_id`, whose port rate then holds.

    Raises:
        WrongQuestion: an unknown name, a count out of range, or several nodes without a fabric.
    """
    fabric = catalog.fabric(fabric_id) if fabric_id is not None else None
    return joined(catalog, catalog.node(node_id), count, fabric, region_id)


def cluster_from_file(path: Path, catalog: Catalog) -> Cluster:
    """The cluster that a TOML file describes, or one of its pools (``lab.toml#2``); see ``hardware_catalog/README.md``
    for its keys.

    Raises:
        WrongQuestion: every problem of the file, with line and key.
    """
    problems: list[FileProblem] = []
    named = _FILE.fullmatch(str(path))
    file, number = named.groups() if named else (path, None)
    path = Path(file)
    document = read_document(path, problems)
    if document is None:
        raise WrongQuestion(format_problems(problems, limit=None))
    if number is not None:
        document = _pool(document, int(number))
    elif kinds := _kinds(document):
        line = document.line((kinds[0],))
        several = "several kinds of nodes: write [[pools]], each a cluster, for one job over all of them"
        if kinds == [POOLS] and document.data[POOLS]:
            several = f"several pools where one cluster is asked for: name one, from {path}#1 on"
        raise WrongQuestion(format_problems([FileProblem(str(path), line, ", ".join(kinds), several)]))
    node = _node(document, catalog, problems)
    fabric = _part(Fabric, document, catalog, problems)
    changed_accelerator = _accelerator(node, catalog, document, problems)
    try:
        table = typed.record(ClusterTable, document.data, catalog)
    except typed.Misfit as misfit:
        problems += [_problem(document, finding) for finding in misfit.found]
    if problems:
        raise WrongQuestion(format_problems(problems, limit=None))
    cluster = joined(catalog, cast(Node, node), table.count, fabric, table.region)
    share = table.utilisation_of_peak_power or cluster.utilisation_of_peak_power
    cluster = cluster if changed_accelerator is None else replace(cluster, accelerator=changed_accelerator)
    return replace(cluster, name=path.stem if table.name is None else table.name, utilisation_of_peak_power=share)


POOLS = "pools"
"""Key under which a file lists clusters that one job may use together."""


def is_file(named: str) -> bool:
    """Whether a cluster is named by its file, or as a pool of one."""
    return _FILE.fullmatch(named) is not None


def pools_of(named: str) -> list[str]:
    """The pools of a cluster file as clusters are named (``lab.toml#1@zone``); any other, and a file that cannot be
    read, as it is.
    """
    document = read_document(Path(named).expanduser(), []) if named.endswith(".toml") else None
    listed = document.data.get(POOLS) if document is not None else None
    if not (isinstance(listed, list) and listed and all(isinstance(pool, dict) for pool in listed)):
        return [named]
    zones = [f"@{pool['zone']}" if isinstance(pool.get("zone"), str) else "" for pool in listed]
    return [f"{named}#{number}{zone}" for number, zone in enumerate(zones, 1)]


def _pool(document: TomlDocument, number: int) -> TomlDocument:
    """The table of one pool, with what the file states for all."""
    listed = document.data.get(POOLS)
    if not isinstance(listed, list) or not 1 <= number <= len(listed) or not isinstance(listed[number - 1], dict):
        count = len(listed) if isinstance(listed, list) else 0
        wrong = FileProblem(
            str(document.path), document.line((POOLS,)), f"#{number}", f"the file has {count} [[pools]]"
        )
        raise WrongQuestion(format_problems([wrong]))
    if others := [key for key in document.data if key not in (*_OF_ALL, POOLS)]:
        stray = FileProblem(str(document.path), document.line((others[0],)), others[0], "belongs into one of [[pools]]")
        raise WrongQuestion(format_problems([stray]))
    shared = {key: value for key, value in document.data.items() if key != POOLS}
    shared["name"] = f"{shared.get('name', document.path.stem)}-{number}"
    table = {key: value for key, value in listed[number - 1].items() if key != "zone" or not isinstance(value, str)}
    return replace(document, data=shared | table, table=(POOLS, number - 1))


def _kinds(document: TomlDocument) -> list[str]:
    """Keys under which a file holds clusters or nodes of several kinds, which it cannot."""
    tables = {name: value for name, value in document.data.items() if isinstance(value, list | dict)}
    lists = [name for name, value in tables.items() if isinstance(value, list) and name != "prices"]
    others = [name for name in tables if name not in vars(ClusterTable)]
    return lists or (others if "node" not in document.data and len(others) > 1 else [])


def _problem(document: TomlDocument, finding: typed.Finding) -> FileProblem:
    key = ".".join(map(str, finding.where))
    shown = " = ".join([key, *map(repr, finding.value)])
    return FileProblem(str(document.path), document.line(finding.where), shown, finding.reason)


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= LARGEST


def joined(
    catalog: Catalog, node: Node, count: int, fabric: Fabric | None = None, region: str | None = None
) -> Cluster:
    """As :func:`cluster`, of records instead of ids.

    Raises:
        WrongQuestion: a count, an accelerator or a fabric that cannot be.
    """
    if not _is_count(count):
        raise WrongQuestion(f"{node.id}:{count}: the number of nodes must be from 1 to {LARGEST:,}")
    if not isinstance(node.accelerator, str):  # a record, which replace() takes without a word
        raise WrongQuestion(
            f"node {node.id!r}: accelerator is an id; give the record to cluster(node, {count}, accelerator=...)"
        )
    if node.accelerator not in catalog.accelerators:
        hint = suggestion(node.accelerator, catalog.accelerators)
        raise WrongQuestion(f"node {node.id!r}: accelerator = {node.accelerator!r}: no such accelerator.{hint}")
    if fabric is None:
        if node.fabric is None and count > 1:
            raise WrongQuestion(
                f"node {node.id!r} names no fabric, and {count} of them need one: choose it with --fabric"
                " (clusterwright catalog list fabrics)"
            )
        fabric = catalog.fabric(node.fabric or _LONE)
        port = node.nic_bandwidth or fabric.nic_bandwidth
    else:
        port = fabric.nic_bandwidth
    return Cluster(
        node=replace(node, nics=max(1, node.nics), nic_bandwidth=port, fabric=fabric.id),
        accelerator=catalog.accelerators[node.accelerator],
        count=count,
        fabric=fabric,
        region=catalog.region(region) if region is not None else None,
    )


def _node(document: TomlDocument, catalog: Catalog, problems: list[FileProblem]) -> Node | None:
    """The file's node, with the prices that it states."""
    if "node" not in document.data:
        missing = 'missing; write for example node = "dgx-h100"'
        problems.append(FileProblem(str(document.path), 0, "node", missing))
        return None
    node_record = _part(Node, document, catalog, problems)
    return node_record and _priced(node_record, document, problems)


def _part(of: type[P], document: TomlDocument, catalog: Catalog, problems: list[FileProblem]) -> P | None:
    """The file's `node` or `fabric`: an id, or a table that may extend one."""
    kind = of.__name__.lower()
    given: Any = document.data.get(kind)
    file = str(document.path)
    line = document.line((kind,))
    known = cast("Mapping[str, P]", catalog.entries(f"{kind}s"))
    if given is None:
        return None
    base = given.get("extends") if isinstance(given, dict) else given
    if base is not None and (not isinstance(base, str) or base not in known):
        shown = f"{kind}.extends" if isinstance(given, dict) else kind
        at = document.line((kind, "extends")) if isinstance(given, dict) else line
        problems.append(FileProblem(file, at, f'{shown} = "{base}"', f"no such {kind}{did_you_mean(str(base), known)}"))
        return None
    stated = {key: value for key, value in given.items() if key != "extends"} if isinstance(given, dict) else {}
    return _described(of, stated, None if base is None else known[base], document, problems)


def _accelerator(
    node: Node | None, catalog: Catalog, document: TomlDocument, problems: list[FileProblem]
) -> Accelerator | None:
    """The node's accelerator with the fields that the file states over it; None where it states none."""
    stated: Any = document.data.get("accelerator")
    base = catalog.accelerators.get(node.accelerator) if node is not None else None
    if stated is None or base is None:
        return None
    if not isinstance(stated, dict):
        reason = "must be a table of figures to change ([accelerator]); the node's entry names the accelerator"
        problems.append(FileProblem(str(document.path), document.line(("accelerator",)), "accelerator", reason))
        return None
    return _described(Accelerator, stated, base, document, problems)


def _described(
    of: type[P], stated: dict[str, Any], base: P | None, document: TomlDocument, problems: list[FileProblem]
) -> P | None:
    """`base` with the fields that the file states over it; without a base, an entry of the file's own."""
    kind = of.__name__.lower()
    if base is not None and not stated:
        return base
    start: dict[str, Any] = {"name": str(document.data.get("name", document.path.stem)), "source": str(document.path)}
    if base is None:
        record = FileRecord({**start, **stated}, document, (kind,), str(document.path))
        return build(of, kind, record, problems)
    # Checked alone on a base that is right already: only the file's own fields can be wrong.
    record = FileRecord({**_minimal(base), **stated}, document, (kind,), str(document.path))
    checked = build(of, kind, record, problems)
    if checked is None:
        return None
    changes = {name: getattr(checked, name) for name in stated}
    # What the file states itself is no longer assumed, unless the file says so.
    inherited = {key: why for key, why in base.assumed.items() if key.split(".")[0] not in stated}
    changes["assumed"] = inherited | checked.assumed
    return replace(base, **{"source": f"{document.path}, over {base.source}", **changes})


def _minimal(base: Node | Fabric | Accelerator) -> dict[str, Any]:
    """The required fields of a record that is right, as a file would write them."""
    if isinstance(base, Node):
        keys = ("name", "source", "kind", "provider", "accelerator", "accelerators")
        return {key: getattr(base, key) for key in keys}
    if isinstance(base, Accelerator):
        named = ("name", "source", "vendor", "generation", "year")
        sizes = {"memory": f"{base.memory!r} B", "memory_bandwidth": f"{base.memory_bandwidth!r} B/s"}
        made = {"peak": {dtype: f"{rate!r} FLOP/s" for dtype, rate in base.peak.items()}}
        return {key: getattr(base, key) for key in named} | sizes | made | {"scaleup": {"name": "", "topology": "none"}}
    rates = {"nic_bandwidth": f"{base.nic_bandwidth!r} B/s", "latency": f"{base.latency!r} s"}
    return {key: getattr(base, key) for key in ("name", "source", "kind", "topology", "leaf_nodes")} | rates


def _priced(node: Node, document: TomlDocument, problems: list[FileProblem]) -> Node:
    """The node with the file's `prices` in place of weaker ones of the same basis."""
    rows = document.data.get("prices")
    if rows is None:
        return node
    record = FileRecord({**_minimal(node), "prices": rows}, document, (), str(document.path))
    checked = build(Node, "prices", record, problems)
    if checked is None:
        return node
    renewed = {price.basis for price in checked.prices}
    kept = tuple(price for price in node.prices if price.basis not in renewed)
    return replace(node, prices=kept + checked.prices)
