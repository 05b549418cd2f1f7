"""A study file (TOML) to a checked :class:`Study`: every problem at once, with file, line and key."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from planner.base import units
from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.catalog import Catalog
from planner.catalog.files import Document
from planner.models import workload
from planner.question.asked import PlanOptions
from planner.question.ownership import ownership
from planner.question.tables import Tables, Where, one_of, opened, positive
from planner.schema.hardware import Entry
from planner.study.program import clusters
from planner.study.question import axes as figures
from planner.study.question.study import (
    BASES,
    MEASURES,
    OBJECTIVES,
    Axis,
    Base,
    Costs,
    Objective,
    Rate,
    Study,
    StudyConstraint,
    StudyWorkload,
    Value,
)

POINTS = 17
"""Values of a range that gives neither steps nor their number."""
MOST_VALUES = 1001
MOST_AXES = 16
MOST_WORKLOADS = 16
MOST_TRIALS = 1_000_000
TRIALS = 200
_TOP = ("name", "objectives", "trials", "base", "axes", "workloads", "constraints", "costs", "power")
_RANGE = ("from", "to", "step", "points", "log", "values")
_MEASURED = {"step-time": "time", "capital": "money", "power": "power", "accelerators": "count"}
"""Measures whose limits carry a unit; the others are bare numbers in the unit that reports print."""
_NOT_OF_A_JOB = ("fabric", "region", "objective", "deadline", "max_cost", "price", "basis", "top", "all",
                 "accelerators", "link", "catalog")  # fmt: skip
_KEYS = {"seq": "sequence", "pin": "pins"}
"""Options that a study calls otherwise."""
_JOB = {_KEYS.get(f.name, f.name): f.name for f in fields(PlanOptions) if f.name not in _NOT_OF_A_JOB}
"""Key of a workload -> its option."""


@dataclass(kw_only=True)
class _Reader(Tables):
    """Tables of a study, with what their values refer to."""

    catalog: Catalog


def read(path: Path, catalog: Catalog) -> Study:
    """The study that a file describes.

    Raises:
        WrongQuestion: every problem of the file, with line and key.
    """
    return study(opened(path), catalog)


def study(document: Document, catalog: Catalog) -> Study:
    """As :func:`read`, from TOML that was read already."""
    r = _Reader(document=document, catalog=catalog)
    given = r.keys(document.data, _TOP, ())
    found = Study(
        name=str(given.get("name", document.path.stem)),
        base=_base(r, given.get("base")),
        axes=_axes(r, given.get("axes")),
        workloads=_workloads(r, given.get("workloads")),
        objectives=_objectives(r, given),
        costs=_costs(r, given.get("costs", {})),
        power=_rates(r, given.get("power", {}), ("power",), "power"),
        constraints=_constraints(r, given.get("constraints", [])),
        trials=r.value(given, "trials", (), _count(MOST_TRIALS)) or TRIALS,
        inputs={
            f"study {document.path.name}": hashlib.sha256(document.text.encode()).hexdigest()[:16],
            **{f"catalog {origin}": digest for origin, digest in catalog.versions().items()},
        },
    )
    r.done()
    _together(r, found)
    r.done()
    return found


# ---- values ----------------------------------------------------------------------------------------------------------


def _count(most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(f"{value!r}: must be a whole number from 1 to {most:,}")
        return value

    return read


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _named(catalog: Catalog, path: str) -> Callable[[str], Entry]:
    found: dict[str, Callable[[str], Entry]] = {
        "node": catalog.node,
        "fabric": catalog.fabric,
        "region": catalog.region,
    }
    return found[path]


def _figure(r: _Reader, path: str) -> Callable[[object], Value]:
    """Reads a value that the figure may have."""
    kind = figures.paths()[path]
    if kind == "name":
        return lambda value: str(_named(r.catalog, path)(str(value)).id)
    if kind.startswith("choice:"):
        return lambda value: str(one_of(tuple(kind[7:].split("|")))(value))
    if kind == "count":
        return _count(10_000_000)
    if kind == "number":
        return lambda value: figures.bounded(path, positive(value))

    def quantity(value: object) -> float:
        found = units.parse(value, kind)  # type: ignore[arg-type]
        if found <= 0:
            raise units.UnitError(f"{value!r}: must be more than nothing")
        return found

    return quantity


# ---- tables ----------------------------------------------------------------------------------------------------------


def _base(r: _Reader, table: Any) -> Base:
    where = ("base",)
    if table is None:
        r.wrong(where, 'missing; write [base] with node = "dgx-h100" and accelerators = 1024')
        return Base(node="", count=1)
    table = r.keys(table, ("node", "count", "accelerators", "fabric", "region"), where)
    node = r.value(table, "node", where, lambda name: r.catalog.node(str(name)).id)
    if "node" not in table:
        r.wrong((*where, "node"), 'missing; write for example node = "dgx-h100"')
    count = r.value(table, "count", where, _count(1_000_000))
    accelerators = r.value(table, "accelerators", where, _count(10_000_000))
    if ("count" in table) == ("accelerators" in table):
        r.wrong((*where, "count"), "give its size: either count (nodes) or accelerators")
    fabric = r.value(table, "fabric", where, lambda name: r.catalog.fabric(str(name)).id)
    region = r.value(table, "region", where, lambda name: r.catalog.region(str(name)).id)
    usual = "us" if "us" in r.catalog.regions else None
    return Base(node=node or "", count=count, accelerators=accelerators, fabric=fabric, region=region or usual)


def _flat(table: Any, where: Where = ()) -> Iterator[tuple[str, Any, Where]]:
    """Axes of a table, whose dotted names TOML may have turned into tables within tables."""
    for key, value in table.items():
        name = (*where, key)
        inner = isinstance(value, dict) and not set(value) & set(_RANGE)
        if inner and value:
            yield from _flat(value, name)
        else:
            yield ".".join(map(str, name)), value, name


def _axes(r: _Reader, table: Any) -> tuple[Axis, ...]:
    where = ("axes",)
    if not isinstance(table, dict) or not table:
        r.wrong(where, 'missing; write [axes] with "accelerator.memory" = ["80 GiB", "160 GiB"]')
        return ()
    found: dict[str, Axis] = {}
    for name, given, place in _flat(table):
        try:
            path = figures.known(name)
        except WrongQuestion as error:
            r.wrong((*where, *place), str(error))
            continue
        values = _values(r, path, given, (*where, *place))
        if path in found:
            r.wrong((*where, *place), f"{path} appears twice")
        kind = figures.paths()[path]
        numbers = kind != "name" and not kind.startswith("choice:")
        if values:
            unit = kind if numbers and kind not in ("count", "number") else ""
            found[path] = Axis(path=path, values=values, ordered=numbers, unit=unit)
    if {"cluster.count", "cluster.accelerators"} <= found.keys():
        r.wrong((*where, "cluster.count"), "nodes and accelerators are one axis; keep cluster.count or the other")
    if len(found) > MOST_AXES:
        r.wrong(where, f"{len(found)} axes; at most {MOST_AXES} are searched")
    return tuple(found.values())


def _values(r: _Reader, path: str, given: Any, where: Where) -> tuple[Value, ...]:
    read = _figure(r, path)
    table: dict[str, Any] = {"values": given} if isinstance(given, list) else r.keys(given, _RANGE, where)
    if not isinstance(given, list | dict):
        r.wrong(where, "expected a list of values, or { from = ..., to = ..., points = 9 }")
        return ()
    if "values" in table:
        for key in set(table) - {"values"}:
            r.wrong((*where, key), "values or a range, not both")
        named = r.value(
            table, "values", where, lambda xs: tuple(read(x) for x in (xs if isinstance(xs, list) else [xs]))
        )
        if named is not None and not named:
            r.wrong(where, "no values: the axis is empty")
        if named and len(set(named)) < len(named):
            r.wrong(where, "a value appears twice")
        return tuple(sorted(named)) if named and not isinstance(named[0], str) else named or ()
    if not table:
        r.wrong(where, "expected a list of values, or { from = ..., to = ..., points = 9 }")
        return ()
    low, high = (r.value(table, key, where, read) for key in ("from", "to"))
    for key in ("from", "to"):
        if key not in table:
            r.wrong((*where, key), "missing; a range has from and to")
    if low is None or high is None:
        return ()
    if isinstance(low, str) or isinstance(high, str):
        r.wrong(where, "names have no range; list them")
        return ()
    if high <= low:
        r.wrong(where, f"the range is empty: to = {table['to']!r} is not above from = {table['from']!r}")
        return ()
    return _ladder(r, path, table, where, float(low), float(high))


def _ladder(r: _Reader, path: str, table: dict[str, Any], where: Where, low: float, high: float) -> tuple[Value, ...]:
    """The values of a range: by steps, or a number of them, evenly spaced or evenly in proportion."""
    log = r.value(table, "log", where, one_of((True, False))) or False
    if "step" in table and ("points" in table or log):
        r.wrong((*where, "step"), "step, or points (with log), not both")
        return ()
    whole = figures.paths()[path] == "count"
    if "step" in table:
        step = r.value(table, "step", where, _figure(r, path))
        if step is None:
            return ()
        number = math.floor((high - low) / float(step) * (1 + 1e-12)) + 1
        found = [low + n * float(step) for n in range(min(number, MOST_VALUES + 1))]
    else:
        number = r.value(table, "points", where, _count(MOST_VALUES)) or (int(high - low) + 1 if whole else POINTS)
        number = max(number, 2)
        ends = (math.log(low), math.log(high)) if log else (low, high)
        places = [ends[0] + (ends[1] - ends[0]) * n / (number - 1) for n in range(min(number, MOST_VALUES + 1))]
        found = [math.exp(x) if log else x for x in places]
        found[0], found[-1] = low, high if number <= MOST_VALUES else found[-1]
    if number > MOST_VALUES:
        r.wrong(where, f"{number:,} values; an axis has at most {MOST_VALUES:,} (a larger step, or points)")
        return ()
    if len(found) < 2:
        r.wrong((*where, "step"), "the step is longer than the range: one value is no axis")
    return tuple(sorted({round(x) for x in found})) if whole else tuple(found)


def _workloads(r: _Reader, rows: Any) -> tuple[StudyWorkload, ...]:
    if not isinstance(rows, list) or not rows:
        r.wrong(("workloads",), "missing; write at least one [[workloads]] with a model")
        return ()
    found = []
    for n, row in enumerate(rows[:MOST_WORKLOADS]):
        where = ("workloads", n)
        row = r.keys(row, ("model", "weight", *_JOB), where)
        if "model" not in row:
            r.wrong((*where, "model"), 'missing; write for example model = "llama3-8b"')
            continue
        model = r.value(row, "model", where, lambda name: workload.model(str(name)).id)
        weight = r.value(row, "weight", where, positive) or 1.0
        asked = r.value({"model": row}, "model", where, _asked)
        if model is not None and asked is not None:
            found.append(StudyWorkload(model=str(row["model"]), weight=weight, asked=asked))
    if len(rows) > MOST_WORKLOADS:
        r.wrong(("workloads",), f"{len(rows)} workloads; at most {MOST_WORKLOADS}")
    return tuple(found)


def _asked(row: dict[str, Any]) -> PlanOptions:
    said = {_JOB[key]: row[key] for key in row if key in _JOB and key not in ("pins", "waive", "targets")}
    said = {
        key: str(value) if key in ("batch", "tokens", "runtime", "precision") else value for key, value in said.items()
    }
    for key in ("pins", "waive", "targets"):
        if key in row:
            said[_JOB[key]] = tuple(str(each) for each in (row[key] if isinstance(row[key], list) else [row[key]]))
    return PlanOptions(**said)


def _objectives(r: _Reader, given: dict[str, Any]) -> tuple[Objective, ...]:
    named = given.get("objectives", ["step-time"])
    named = named if isinstance(named, list) else [named]
    found = r.value({"objectives": named}, "objectives", (), lambda xs: tuple(one_of(OBJECTIVES)(x) for x in xs))
    if found is not None and (not found or len(set(found)) < len(found)):
        r.wrong(("objectives",), f"one or more of {', '.join(OBJECTIVES)}, each once")
        return ("step-time",)
    return found or ("step-time",)


def _costs(r: _Reader, table: Any) -> Costs:
    where = ("costs",)
    table = r.keys(table, ("basis", "accelerator", "node", "per", "ownership"), where)
    basis = r.value(table, "basis", where, one_of(BASES))
    rates = _rates(r, table.get("per", {}), ("costs", "per"), "money")
    stated = r.value(table, "accelerator", where, _usd)
    each_node = r.value(table, "node", where, _usd)
    if basis not in (None, "purchase") and (rates or stated is not None or each_node is not None):
        r.wrong((*where, "basis"), f"{basis} is a price of the catalog; stated costs are of machines that are bought")
    if each_node is not None and stated is None:
        r.wrong((*where, "node"), "give the price of an accelerator as well: accelerator = ...")
    bought = bool(rates) or stated is not None or "ownership" in table
    owned = ownership(r, table.get("ownership", {}), _usd, ("costs", "ownership"))
    return Costs(
        basis=basis or ("purchase" if bought else "on-demand"),
        accelerator_usd=stated,
        node_usd=each_node or 0.0,
        rates=rates,
        ownership=owned,
    )


def _usd(text: object) -> float:
    found = units.parse(text, "money")  # type: ignore[arg-type]
    if found < 0:
        raise units.UnitError(f"{text!r}: must not be negative")
    return found


def _rates(r: _Reader, table: Any, where: Where, dimension: str) -> tuple[Rate, ...]:
    """``"accelerator.memory" = "$15 per GiB"``, or ``"node.nics" = "$900 each"``."""
    if not isinstance(table, dict):
        r.wrong(where, "expected a table")
        return ()
    found = []
    for name, text, place in _flat(table):
        try:
            path = figures.known(name)
            per_unit = _per(path, text, dimension)
        except (WrongQuestion, units.UnitError) as error:
            r.wrong((*where, *place), str(error))
            continue
        found.append(Rate(path=path, per_unit=per_unit, each=clusters.each(path)))
    return tuple(found)


def _per(path: str, text: object, dimension: str) -> float:
    kind = figures.paths()[path]
    if kind == "name" or kind.startswith("choice:"):
        raise units.UnitError(f"{path} is a name: it has no rate")
    example = {"money": "$15", "power": "2 W"}[dimension]
    plain = kind in ("count", "number")
    pattern = r"\s*(.+?)\s+each\s*" if plain else r"\s*(.+?)\s*(?:\s+per\s+|/(?!s\b))\s*(\S+)\s*"
    match = re.fullmatch(pattern, text) if isinstance(text, str) else None
    if match is None:
        meant = f"'{example} each'" if plain else f"'{example} per {_UNIT.get(kind, kind)}'"
        raise units.UnitError(f"{text!r}: write for example {meant}")
    amount = units.parse(match[1], dimension)
    return amount if plain else amount / units.parse(f"1 {match[2]}", kind)


_UNIT = {"bytes": "GiB", "bandwidth": "GB/s", "compute": "TFLOP/s", "power": "W", "time": "us"}


def _constraints(r: _Reader, rows: Any) -> tuple[StudyConstraint, ...]:
    if not isinstance(rows, list):
        r.wrong(("constraints",), "write them as [[constraints]], each with of and at_most or at_least")
        return ()
    found: dict[str, StudyConstraint] = {}
    for n, row in enumerate(rows):
        where = ("constraints", n)
        row = r.keys(row, ("of", "at_most", "at_least"), where)
        of = r.value(row, "of", where, lambda name: name if name in MEASURES else _limited(str(name)))
        if "of" not in row:
            r.wrong((*where, "of"), f"missing; of = one of {', '.join(MEASURES)}, or an axis")
        if of is None:
            continue
        if not {"at_most", "at_least"} & set(row):
            r.wrong(where, "limits nothing; write at_most or at_least")
        most, least = (r.value(row, key, where, partial(_limit, r, of)) for key in ("at_most", "at_least"))
        before = found.get(of, StudyConstraint(of=of))
        both = StudyConstraint(
            of=of,
            at_most=min(before.at_most, math.inf if most is None else most),
            at_least=max(before.at_least, -math.inf if least is None else least),
        )
        if both.at_least > both.at_most:
            r.wrong(
                where,
                f"contradiction: {of} at least {_said(of, both.at_least)} and at most {_said(of, both.at_most)}",
            )
        found[of] = both
    return tuple(found.values())


def _limited(name: str) -> str:
    try:
        path = figures.known(name)
    except WrongQuestion as error:
        raise WrongQuestion(f"{error} (or a measure: {', '.join(MEASURES)})") from None
    kind = figures.paths()[path]
    if kind == "name" or kind.startswith("choice:"):
        raise WrongQuestion(f"{path} is a name: leave what is not wanted out of its axis")
    return path


def _said(of: str, value: float) -> str:
    """A limited value as people say it."""
    kind = _MEASURED.get(of) or figures.paths().get(of, "")
    if kind == "money":
        return units.format_usd(value)
    if kind == "power":
        return units.format_power(value)
    if kind == "time":
        return units.format_seconds(value)
    if kind == "bytes":
        return units.format_bytes(value)
    scale, unit = {"bandwidth": (1e9, " GB/s"), "compute": (1e12, " TFLOP/s")}.get(kind, (1.0, ""))
    return f"{value / scale:,.6g}{unit}"


def _limit(r: _Reader, of: str, value: object) -> float:
    if of not in MEASURES:
        return float(_figure(r, of)(value))
    if of in _MEASURED:
        return units.parse(value, _MEASURED[of])  # type: ignore[arg-type]
    return positive(value)


# ---- what only the whole study shows ---------------------------------------------------------------------------------


def _together(r: _Reader, found: Study) -> None:
    """Notes what is wrong of the parts together: a base without a price, limits that no point keeps."""
    tried = clusters.Clusters(r.catalog, found)
    start = tuple(0 for _ in found.axes)
    for n, job in enumerate(found.workloads):
        try:
            tried.request(job, found.values(start))
        except ClusterwrightError as error:
            r.wrong(("workloads", n), str(error))
    try:
        tried.cluster(found.values(start))
        if {"cost", "performance-per-dollar"} & set(found.objectives) or any(
            c.of in ("cost", "capital", "performance-per-dollar") for c in found.constraints
        ):
            tried.hourly_usd(found.values(start))
    except ClusterwrightError as error:
        r.wrong(("base",), str(error))
    axes = {axis.path: axis for axis in found.axes}
    for n, limit in enumerate(found.constraints):
        where = ("constraints", n)
        if limit.of in axes:
            kept = [v for v in axes[limit.of].values if limit.at_least <= float(v) <= limit.at_most]
            if not kept:
                r.wrong(where, f"no value of the axis {limit.of} keeps it")
        elif limit.of not in MEASURES:
            r.wrong(where, f"{limit.of} is no axis of this study, so it never changes")
        elif limit.of in ("capital", "power", "accelerators") and not r.problems:
            low, high = (tried.extreme(limit.of, largest=largest) for largest in (False, True))
            if low > limit.at_most or high < limit.at_least:
                least = f"at least {_said(limit.of, limit.at_least)}"
                told = f"at most {_said(limit.of, limit.at_most)}" if low > limit.at_most else least
                span = f"{_said(limit.of, low)} to {_said(limit.of, high)}"
                r.wrong(where, f"no point keeps it: {limit.of} {told}, and the axes span {span}")
