"""A study file (TOML) to a checked :class:`Study`: every problem at once, with file, line and key."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from planner.base import units
from planner.base.errors import ClusterwrightError, WrongQuestion, did_you_mean
from planner.base.secrets import without_passwords
from planner.base.typed import Finding, Misfit, Where, keeps, keys, knows, missing, reads, record, wrong
from planner.catalog import Catalog
from planner.catalog.files import TomlDocument
from planner.models.workload import find_model
from planner.question.plan_options import PlanOptions
from planner.question.typed_file import OwnershipTable, TrainingTable, TypedFile, opened
from planner.question.values import TABLE, Positive, QuestionContext, Several, positive, quantity, whole
from planner.rl import steps
from planner.rl.learned import SiteSteps
from planner.rl.steps import StepTable
from planner.schema.study import Axis, Rate, StudyQuestion, Value
from planner.study.program import clusters
from planner.study.question import axes as figures
from planner.study.question.study import (
    MEASURES,
    OBJECTIVES,
    Base,
    Costs,
    Objective,
    Study,
    StudyConstraint,
    StudyWorkload,
)

POINTS = 17
"""Values of a range that gives neither steps nor their number."""
MOST_VALUES = 1001
MOST_AXES = 16
MOST_WORKLOADS = 16
MOST_TRIALS = 1_000_000
MOST_COUNT = 10_000_000
TRIALS = 200
RANGE = "expected a list of values, or { from = ..., to = ..., points = 9 }"
_MEASURED = {"step-time": "time", "capital": "money", "power": "power", "accelerators": "count"}
"""Measures whose limits carry a unit; the others are bare numbers in the unit that reports print."""
FAR_TOO_MANY = 1e15
"""What is said of a step so small that its values cannot be counted."""
_UNIT = {"bytes": "GiB", "bandwidth": "GB/s", "compute": "TFLOP/s", "power": "W", "time": "us"}
_OPTIONS = ("targets", "waive", "oom_risk", "launchable", "noise_scale")
"""What a study's workloads may say beyond those of a portfolio."""

# ---- axes ------------------------------------------------------------------------------------------------------------


def _figure(catalog: Catalog, path: str) -> Callable[[object], Value]:
    """Reads a value that the figure may have."""
    kind = figures.paths()[path]
    if kind == "name":
        return lambda value: str(getattr(catalog, path)(str(value)).id)
    if kind.startswith("choice:"):
        return partial(_chosen, kind[7:].split("|"))
    if kind == "count":
        return partial(whole, MOST_COUNT)
    if kind == "number":
        return lambda value: figures.bounded(path, positive(value))
    return partial(quantity, kind)


def _chosen(choices: list[str], value: object) -> str:
    if value not in choices:
        raise ValueError(f"{value!r}: choose {', '.join(choices)}{did_you_mean(str(value), choices)}")
    return str(value)


def _flat(table: dict[str, Any], where: Where = ()) -> Iterator[tuple[str, Any, Where]]:
    """Axes of a table, whose dotted names TOML may have turned into tables within tables."""
    for key, value in table.items():
        name = (*where, key)
        if isinstance(value, dict) and value and not set(value) & set(keys(RangeTable)):
            yield from _flat(value, name)
        else:
            yield ".".join(map(str, name)), value, name


Figure = Annotated[Any, knows(lambda value, read: read(value))]
"""A value of an axis; the context reads it."""


@dataclass(frozen=True, kw_only=True)
class RangeTable:
    """The values of an axis: one by one, or a range."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    values: Several[Figure] | None = None
    low: Annotated[Figure, Field(alias="from")] = None
    high: Annotated[Figure, Field(alias="to")] = None
    step: Figure = None
    points: Annotated[int | None, reads(partial(whole, MOST_VALUES))] = None
    log: Annotated[bool, Field(strict=True)] = False


def _axes(table: Any, given: QuestionContext) -> tuple[Axis, ...]:
    if not isinstance(table, dict) or not table:
        raise wrong('missing; write [axes] with "accelerator.memory" = ["80 GiB", "160 GiB"]')
    axes: dict[str, Axis] = {}
    problems: list[Finding] = []
    for name, values, place in _flat(table):
        try:
            axis = _axis(figures.known(name), values, given.catalog)
            if axis.path in axes:
                raise wrong(f"{axis.path} appears twice")
            axes[axis.path] = axis
        except Misfit as misfit:
            problems += [problem._replace(where=(*place, *problem.where)) for problem in misfit.found]
        except WrongQuestion as error:
            problems.append(Finding(place, str(error)))
    if {"cluster.count", "cluster.accelerators"} <= axes.keys():
        reason = "nodes and accelerators are one axis; keep cluster.count or the other"
        problems.append(Finding(("cluster.count",), reason))
    if len(axes) > MOST_AXES:
        problems.append(Finding((), f"{len(axes)} axes; at most {MOST_AXES} are searched"))
    if problems:
        raise Misfit(*problems)
    return tuple(axes.values())


def _axis(path: str, given: Any, catalog: Catalog) -> Axis:
    kind = figures.paths()[path]
    numbers = kind != "name" and not kind.startswith("choice:")
    unit = kind if numbers and kind not in ("count", "number") else ""
    return Axis(path=path, values=_values(path, given, catalog), unit=unit)


def _values(path: str, given: Any, catalog: Catalog) -> tuple[Value, ...]:
    """The values of an axis in order, as it lists them or gives their range."""
    if not isinstance(given, list | dict) or given == {}:
        raise wrong(RANGE)
    table = record(RangeTable, {"values": given} if isinstance(given, list) else given, _figure(catalog, path))
    if table.values is not None:
        if isinstance(given, dict) and len(given) > 1:
            raise wrong("values or a range, not both", next(key for key in given if key != "values"))
        if not table.values:
            raise wrong("no values: the axis is empty")
        if len(set(table.values)) < len(table.values):
            raise wrong("a value appears twice")
        return table.values if isinstance(table.values[0], str) else tuple(sorted(table.values))
    for key, value in (("from", table.low), ("to", table.high)):
        if value is None:
            raise wrong("missing; a range has from and to", key)
    if isinstance(table.low, str):
        raise wrong("names have no range; list them")
    if table.high <= table.low:
        ends = dict(given)
        raise wrong(f"the range is empty: to = {ends['to']!r} is not above from = {ends['from']!r}")
    return _ladder(table, float(table.low), float(table.high), in_wholes=figures.paths()[path] == "count")


def _ladder(table: RangeTable, low: float, high: float, *, in_wholes: bool) -> tuple[Value, ...]:
    """The values of a range: by steps, or a number of them, evenly spaced or evenly in proportion."""
    if table.step is not None:
        if table.points is not None or table.log:
            raise wrong("step, or points (with log), not both", "step")
        step = float(table.step)
        number = math.floor(min((high - low) / step * (1 + 1e-12), FAR_TOO_MANY)) + 1
        values = [low + n * step for n in range(min(number, MOST_VALUES + 1))]
    else:
        number = max(table.points or (int(high - low) + 1 if in_wholes else POINTS), 2)
        ends = (math.log(low), math.log(high)) if table.log else (low, high)
        places = [ends[0] + (ends[1] - ends[0]) * n / (number - 1) for n in range(min(number, MOST_VALUES + 1))]
        values = [math.exp(x) if table.log else x for x in places]
        values[0], values[-1] = low, high if number <= MOST_VALUES else values[-1]
    if number > MOST_VALUES:
        raise wrong(f"{number:,} values; an axis has at most {MOST_VALUES:,} (a larger step, or points)")
    if len(values) < 2:
        raise wrong("the step is longer than the range: one value is no axis", "step")
    return tuple(sorted({round(x) for x in values})) if in_wholes else tuple(values)


# ---- costs and limits ------------------------------------------------------------------------------------------------


def _usd(text: object) -> float:
    usd = units.parse(text, "money")  # type: ignore[arg-type]
    if usd < 0:
        raise units.UnitError(f"{text!r}: must not be negative")
    return usd


def _rates(dimension: str, table: Any) -> tuple[Rate, ...]:
    """``"accelerator.memory" = "$15 per GiB"``, or ``"node.nics" = "$900 each"``."""
    if not isinstance(table, dict):
        raise wrong("expected a table")
    rates, problems = [], []
    for name, text, place in _flat(table):
        try:
            path = figures.known(name)
            rates.append(Rate(path=path, per_unit=_per(path, text, dimension), each=clusters.each(path)))
        except (WrongQuestion, units.UnitError) as error:
            problems.append(Finding(place, str(error)))
    if problems:
        raise Misfit(*problems)
    return tuple(rates)


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


def _with_basis(table: Any) -> Any:
    """Machines are bought where the table says anything of owning them, else rented."""
    if not isinstance(table, dict) or "basis" in table:
        return table
    bought = table.get("per") or {"accelerator", "ownership"} & table.keys()
    return {**table, "basis": "purchase" if bought else "on-demand"}


def _stated(costs: Costs) -> Iterator[tuple[str, str]]:
    stated = costs.rates or costs.accelerator_usd is not None or costs.node_usd
    if costs.basis != "purchase" and stated:
        yield "basis", f"{costs.basis} is a price of the catalog; stated costs are of machines that are bought"
    if costs.node_usd and costs.accelerator_usd is None:
        yield "node", "give the price of an accelerator as well: accelerator = ..."
    if costs.accelerator_usd is None and any(rate.path == "node.accelerators" for rate in costs.rates):
        at_catalog = "at the catalog's prices a node of another size costs as much per accelerator, so no rate counts"
        yield "per.node.accelerators", f"{at_catalog}; give accelerator = and node = as well, or leave it out"


@dataclass(frozen=True, kw_only=True)
class CostsTable(Costs):
    """``[costs]``, in US dollars."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    accelerator_usd: Annotated[float | None, reads(_usd), Field(alias="accelerator")] = None
    node_usd: Annotated[float, reads(_usd), Field(alias="node")] = 0.0
    rates: Annotated[tuple[Rate, ...], reads(partial(_rates, "money")), Field(alias="per")] = ()
    ownership: OwnershipTable = field(default_factory=OwnershipTable)


def _limited(name: object) -> str:
    if name in MEASURES:
        return str(name)
    try:
        path = figures.known(str(name))
    except WrongQuestion as error:
        raise WrongQuestion(f"{error} (or a measure: {', '.join(MEASURES)})") from None
    kind = figures.paths()[path]
    if kind == "name" or kind.startswith("choice:"):
        raise WrongQuestion(f"{path} is a name: leave what is not wanted out of its axis")
    return path


def _limit(value: object, info: Any) -> float | None:
    """A limit as the measure or the figure that it is `of` is written."""
    of = info.data.get("of")
    if of is None or of in _MEASURED:
        return None if of is None else units.parse(value, _MEASURED[of])  # type: ignore[arg-type]
    return positive(value) if of in MEASURES else float(_figure(info.context.catalog, of)(value))


Limit = Annotated[float | None, BeforeValidator(_limit)]


@dataclass(frozen=True, kw_only=True)
class LimitTable:
    """``[[constraints]]``."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    of: Annotated[str, reads(_limited), missing(f"of = one of {', '.join(MEASURES)}, or an axis")]
    at_most: Limit = None
    at_least: Limit = None


def _joined(rows: tuple[LimitTable, ...]) -> tuple[StudyConstraint, ...]:
    """Constraints, those of one measure as one."""
    joined: dict[str, StudyConstraint] = {}
    for n, row in enumerate(rows):
        if row.at_most is None and row.at_least is None:
            raise wrong("limits nothing; write at_most or at_least", n)
        before = joined.get(row.of, StudyConstraint(of=row.of))
        most = min(before.at_most, math.inf if row.at_most is None else row.at_most)
        least = max(before.at_least, -math.inf if row.at_least is None else row.at_least)
        if least > most:
            bounds = f"{row.of} at least {_format_value(row.of, least)} and at most {_format_value(row.of, most)}"
            raise wrong(f"contradiction: {bounds}", n)
        joined[row.of] = StudyConstraint(of=row.of, at_most=most, at_least=least)
    return tuple(joined.values())


# ---- the file --------------------------------------------------------------------------------------------------------


def _sized(base: Base) -> Iterator[tuple[str, str]]:
    if (base.count is None) == (base.accelerators is None):
        yield "count", "give its size: either count (nodes) or accelerators"


def _each_once(objectives: tuple[Objective, ...]) -> tuple[Objective, ...]:
    if not objectives or len(set(objectives)) < len(objectives):
        raise ValueError(f"one or more of {', '.join(OBJECTIVES)}, each once")
    return objectives


@dataclass(frozen=True, kw_only=True)
class WorkloadTable(TrainingTable):
    """``[[workloads]]``: a model that the cluster is to train, and its weight."""

    weight: Positive = 1.0
    targets: Several[str] | None = None
    waive: Several[str] = ()
    oom_risk: str | float = PlanOptions.oom_risk
    launchable: Annotated[bool, Field(strict=True)] = False
    noise_scale: str | None = None
    step: StepTable | None = None


@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """A study file."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    name: str = ""
    objectives: Annotated[Several[Objective], AfterValidator(_each_once)] = ("step-time",)
    trials: Annotated[int, reads(partial(whole, MOST_TRIALS))] = TRIALS
    base: Annotated[Base, keeps(_sized), missing('write [base] with node = "dgx-h100" and accelerators = 1024')]
    axes: Annotated[
        tuple[Axis, ...], knows(_axes), missing('write [axes] with "accelerator.memory" = ["80 GiB", "160 GiB"]')
    ]
    workloads: Annotated[
        Several[WorkloadTable], Field(min_length=1), missing("write at least one [[workloads]] with a model")
    ]
    constraints: Several[LimitTable] = ()
    costs: Annotated[CostsTable, reads(_with_basis), keeps(_stated)] = field(
        default_factory=lambda: CostsTable(basis="on-demand")
    )
    power: Annotated[tuple[Rate, ...], reads(partial(_rates, "power"))] = ()


# ---- the question ----------------------------------------------------------------------------------------------------


def read(path: Path, catalog: Catalog) -> Study:
    """The study that a file describes.

    Raises:
        WrongQuestion: every problem of the file, with line and key.
    """
    return study(opened(path), catalog)


def with_learned(asked: Study, learned: SiteSteps | None) -> Study:
    """A study whose post-trainings count the steps that a site has measured."""
    jobs = tuple(replace(job, learned=learned) if job.post_training else job for job in asked.workloads)
    inputs = {**asked.inputs, **steps.learned_of((job.post_training for job in jobs), learned)}
    return replace(asked, workloads=jobs, inputs=inputs)


def study(document: TomlDocument, catalog: Catalog) -> Study:
    """As :func:`read`, from TOML that was read already."""
    file = TypedFile(document=document)
    table = file.record(StudyTable, QuestionContext(catalog=catalog, folder=document.path.parent))
    if table and len(table.workloads) > MOST_WORKLOADS:
        file.wrong(("workloads",), f"{len(table.workloads)} workloads; at most {MOST_WORKLOADS}")
    constraints: tuple[StudyConstraint, ...] = ()
    with file.noting("constraints"):
        constraints = _joined(table.constraints) if table else ()
    workloads: tuple[StudyWorkload, ...] = ()
    with file.noting("workloads"):
        workloads = tuple(_workload(job, n) for n, job in enumerate(table.workloads)) if table else ()
    file.done()
    assert table is not None
    usual = "us" if "us" in catalog.regions else None
    result = Study(
        name=table.name or document.path.stem,
        base=replace(table.base, region=table.base.region or usual),
        axes=table.axes,
        workloads=workloads,
        objectives=table.objectives,
        costs=table.costs,
        power=table.power,
        constraints=constraints,
        trials=table.trials,
        inputs=file.inputs("study", catalog) | steps.lengths_read(job.post_training for job in workloads),
        stated=StudyQuestion(study={**without_passwords(document.data), "name": table.name or document.path.stem}),
    )
    _together(file, catalog, result)
    file.done()
    return result


def _workload(table: WorkloadTable, place: int) -> StudyWorkload:
    """A workload, post-training or another."""
    try:
        stated = steps.post_training(table, table.step)
        if stated is None:
            return StudyWorkload(model=str(table.model), weight=table.weight, asked=table.options(*_OPTIONS))
        steps.step_tokens(find_model(table.model), stated)
    except Misfit as misfit:
        raise Misfit(*(problem._replace(where=(place, *problem.where)) for problem in misfit.found)) from None
    asked = replace(table.options("oom_risk"), task="sft")
    return StudyWorkload(model=str(table.model), weight=table.weight, asked=asked, post_training=stated)


def _format_value(of: str, value: float) -> str:
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


def _together(file: TypedFile, catalog: Catalog, asked: Study) -> None:
    """Notes what is wrong of the parts together: a base without a price, limits that no point keeps."""
    tried = clusters.Clusters(catalog, asked)
    start = tuple(0 for _ in asked.axes)
    for n, job in enumerate(asked.workloads):
        try:
            tried.request(job, asked.values(start))
        except ClusterwrightError as error:
            file.wrong(("workloads", n), str(error))
    try:
        tried.cluster(asked.values(start))
        if {"cost", "performance-per-dollar"} & set(asked.objectives) or any(
            c.of in ("cost", "capital", "performance-per-dollar") for c in asked.constraints
        ):
            tried.hourly_usd(asked.values(start))
    except ClusterwrightError as error:
        file.wrong(("base",), str(error))
    axes = {axis.path: axis for axis in asked.axes}
    for n, limit in enumerate(asked.constraints):
        where = ("constraints", n)
        if limit.of in axes:
            kept = [v for v in axes[limit.of].values if limit.at_least <= float(v) <= limit.at_most]
            if not kept:
                file.wrong(where, f"no value of the axis {limit.of} keeps it")
        elif limit.of not in MEASURES:
            file.wrong(where, f"{limit.of} is no axis of this study, so it never changes")
        elif limit.of in ("capital", "power", "accelerators") and not file.problems:
            low, high = (tried.extreme(limit.of, largest=largest) for largest in (False, True))
            if low > limit.at_most or high < limit.at_least:
                least = f"at least {_format_value(limit.of, limit.at_least)}"
                bounds = f"at most {_format_value(limit.of, limit.at_most)}" if low > limit.at_most else least
                span = f"{_format_value(limit.of, low)} to {_format_value(limit.of, high)}"
                file.wrong(where, f"no point keeps it: {limit.of} {bounds}, and the axes span {span}")
