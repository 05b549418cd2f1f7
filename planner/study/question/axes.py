"""Which figures of a cluster an axis may name, and a cluster with some of them changed.

A path is dotted as the catalog spells it. What it may be follows from the catalog's records themselves, so that a field
which they gain is an axis without any further code.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from planner.base.errors import WrongQuestion, nearest
from planner.catalog import Catalog, cluster
from planner.schema.hardware import Accelerator, Cluster, Dtype, Fabric, Link, Node, Region
from planner.schema.study import Value
from planner.study.question.study import Base

RECORDS: dict[str, type] = {"accelerator": Accelerator, "node": Node, "fabric": Fabric, "region": Region}
CHOICES = {"node": "nodes", "fabric": "fabrics", "region": "regions"}
"""Axes of names: other entries of the catalog in place of the base's."""
COUNTS = ("cluster.count", "cluster.accelerators")
_NO_FIGURE = ("year", "date")
_ALIASES = {
    "node.scaleup_bandwidth": "node.scaleup.bandwidth",
    "accelerator.scaleup_bandwidth": "accelerator.scaleup.bandwidth",
    "cluster.nodes": "cluster.count",
}


@cache
def paths() -> dict[str, str]:
    """Every path that an axis may name -> its dimension: a unit's, ``count`` for whole numbers, ``number`` for bare
    ones, ``name`` for entries of the catalog, ``choice:a|b`` for words.
    """
    kinds = {**dict.fromkeys(CHOICES, "name"), **dict.fromkeys(COUNTS, "count")}
    kinds["cluster.utilisation_of_peak_power"] = "number"
    for part, record in RECORDS.items():
        kinds |= {f"{part}.{name}": kind for name, kind in _figures(record)}
    return {path: kind for path, kind in kinds.items() if path.rpartition(".")[2] not in _NO_FIGURE}


def _figures(record: type) -> list[tuple[str, str]]:
    hints = get_type_hints(record, include_extras=True)
    figures: list[tuple[str, str]] = []
    for field in fields(record):
        figures += [(f"{field.name}{tail}", kind) for tail, kind in _kinds(hints[field.name])]
    return figures


def _kinds(hint: Any) -> list[tuple[str, str]]:
    """What a field's type lets one turn: (the rest of the path, its dimension)."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is types.UnionType or str(origin) == "typing.Union":
        return [inner_kind for inner_hint in inner if inner_hint is not type(None) for inner_kind in _kinds(inner_hint)]
    if origin is dict:
        kinds = _kinds(inner[1])
        return [(f".{key}{tail}", kind) for key in get_args(inner[0]) for tail, kind in kinds]
    if is_dataclass(hint) and isinstance(hint, type):
        return [(f".{name}", kind) for name, kind in _figures(hint)]
    if origin is Literal:
        return [("", "choice:" + "|".join(map(str, inner)))] if all(isinstance(x, str) for x in inner) else []
    metadata = getattr(hint, "__metadata__", ())
    plain = hint.__origin__ if metadata else hint
    if plain is int:
        return [("", "count")]
    if plain is not float:
        return []
    for inner_hint in metadata:
        extra = getattr(inner_hint, "json_schema_extra", None)
        if isinstance(extra, Mapping) and "unit" in extra:
            return [("", str(extra["unit"]))]
    return [("", "number")]


@cache
def _hints() -> dict[str, Any]:
    """The types of bare numbers, with the bounds that the catalog sets them."""
    hints: dict[str, Any] = {
        "cluster.utilisation_of_peak_power": get_type_hints(Cluster, include_extras=True)["utilisation_of_peak_power"]
    }
    for part, record in RECORDS.items():
        hints |= {f"{part}.{name}": hint for name, hint in get_type_hints(record, include_extras=True).items()}
    return hints


def bounded(path: str, value: float) -> float:
    """A bare number within the bounds that the catalog sets its field.

    Raises:
        ValueError: it is outside of them; the message says which.
    """
    from pydantic import TypeAdapter, ValidationError

    if path not in _hints():
        return value
    try:
        return float(TypeAdapter(_hints()[path]).validate_python(value))
    except ValidationError as error:
        reason = error.errors()[0]["msg"].replace("Input should be", "must be")
        raise ValueError(f"{value:g}: {reason}") from None


def known(path: str) -> str:
    """The dotted path of a figure, spelt in full.

    Raises:
        WrongQuestion: no such figure; the message names the nearest.
    """
    full = _ALIASES.get(path, path)
    if full in paths():
        return full
    near = nearest(path, [*paths(), *_ALIASES]) or [p for p in paths() if p.rpartition(".")[2] == path][:3]
    hint = f"did you mean {', '.join(near)}?" if near else "write it as the catalog does: accelerator.memory"
    raise WrongQuestion(f"no such figure of a cluster: {path}; {hint}")


def built(catalog: Catalog, base: Base, values: Mapping[str, Value]) -> Cluster:
    """The base cluster with other values of some figures.

    A pod of another size has as many NICs, watts and dollars per accelerator as the base's; a NIC of another rate is
    the node's and the fabric's; peaks that are equal in the catalog stay equal.

    Raises:
        WrongQuestion: a figure that the base has not, or accelerators that do not fill nodes.
    """
    node_id = str(values.get("node", base.node))
    fabric, region = values.get("fabric", base.fabric), values.get("region", base.region)
    varied = cluster(catalog, node_id, 1, str(fabric) if fabric else None, str(region) if region else None)
    rated = varied.accelerator.peak
    for path, value in values.items():
        if path not in CHOICES and path not in COUNTS:
            varied = _with(varied, path, value, rated)
    per_node = varied.node.accelerators
    count = values.get("cluster.count", base.count)
    total = values.get("cluster.accelerators", None if "cluster.count" in values else base.accelerators)
    if total is not None:
        if int(total) % per_node:
            raise WrongQuestion(f"{int(total):,} accelerators do not fill nodes of {per_node}")
        count = int(total) // per_node
    assert count is not None
    return replace(varied, count=int(count))


def current(base: Cluster, path: str) -> Value | None:
    """The value (SI) that a cluster has at a dotted path; None where it has none."""
    part, *names = path.split(".")
    if path == "node.scaleup.bandwidth":
        return base.scaleup.bandwidth
    if path == "cluster.count":
        return base.count
    if path == "cluster.accelerators":
        return base.accelerators
    record: Any = base if part == "cluster" else getattr(base, part)
    if not names:
        return None if record is None else str(record.id)
    for name in names:
        record = record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)
    return record  # type: ignore[no-any-return]


def _with(base: Cluster, path: str, value: Value, rated: Mapping[Dtype, float]) -> Cluster:
    """A cluster with another value of one figure; `rated`: the catalog's peaks, which say what rates are one."""
    part, *names = path.split(".")
    if part == "cluster":
        return replace(base, **cast("dict[str, Any]", {names[0]: value}))
    if path == "fabric.nic_bandwidth":
        fabric = replace(base.fabric, nic_bandwidth=float(value))
        return replace(base, fabric=fabric, node=replace(base.node, nic_bandwidth=float(value)))
    if path == "node.accelerators":
        return replace(base, node=_resized(base.node, int(value)))
    if path == "node.scaleup.bandwidth":
        return replace(base, node=replace(base.node, scaleup=_link(base.scaleup, float(value))))
    if path == "accelerator.scaleup.bandwidth":
        link = _link(base.accelerator.scaleup, float(value))
        return replace(base, accelerator=replace(base.accelerator, scaleup=link))
    if names[0] == "peak":
        old = rated.get(names[1])  # type: ignore[call-overload]
        if old is None:
            raise WrongQuestion(f"{path}: {base.accelerator.id} has none; it has {', '.join(base.accelerator.peak)}")
        peak = {dtype: float(value) if rated[dtype] == old else rate for dtype, rate in base.accelerator.peak.items()}
        return replace(base, accelerator=replace(base.accelerator, peak=peak))
    record = getattr(base, part)
    if record is None:
        raise WrongQuestion(f"{path}: the base has no {part}")
    return replace(base, **cast("dict[str, Any]", {part: _nested(record, names, value, path)}))


def _nested(record: Any, names: list[str], value: Value, path: str) -> Any:
    if len(names) == 1:
        return replace(record, **{names[0]: value})
    inner = getattr(record, names[0])
    if inner is None:
        raise WrongQuestion(f"{path}: {record.id} has no {names[0]}")
    return replace(record, **{names[0]: _nested(inner, names[1:], value, path)})


def _link(link: Link, bandwidth: float) -> Link:
    """The link at another rate: what two neighbours have of it stays the same share."""
    if link.bandwidth is None or link.pair_bandwidth is None:
        return replace(link, bandwidth=bandwidth)
    return replace(link, bandwidth=bandwidth, pair_bandwidth=link.pair_bandwidth * bandwidth / link.bandwidth)


def _resized(node: Node, accelerators: int) -> Node:
    share = accelerators / node.accelerators
    prices = tuple(replace(price, usd=price.usd * share) for price in node.prices)
    power = None if node.max_power is None else node.max_power * share
    return replace(
        node, accelerators=accelerators, nics=max(1, round(node.nics * share)), max_power=power, prices=prices
    )
