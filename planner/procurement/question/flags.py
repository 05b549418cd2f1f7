"""A question on one line, made the portfolio that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.base.secrets import without_passwords
from planner.base.typed import Where, listed
from planner.base.units import UnitError
from planner.catalog import Catalog
from planner.catalog.files import TomlDocument
from planner.procurement.question.portfolio import WAYS, NodeOption, Portfolio
from planner.procurement.question.reading import portfolio
from planner.procurement.supply.pools import offers
from planner.procurement.supply.prices import USUAL, everything
from planner.question.file_values import span
from planner.question.flag_values import sequence_length
from planner.question.reading import digest
from planner.question.typed_file import TypedFile, opened
from planner.schema.procurement import OfferQuestion
from planner.schema.workload import Model

DEFAULT_HORIZON = "12 months"
FLAGS = "flags"
"""Where a problem of the short form stands."""
OF_A_WORKLOAD = {"model": "model", "tokens": "tokens", "method": "method", "batch": "batch", "seq": "sequence",
                 "precision": "precision"}  # fmt: skip
"""Flags that describe the one workload of the short form -> the key of a portfolio that says the same."""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command line may say, as text; with a portfolio file, what it changes there."""

    model: str | Model | None = None
    """An id or a file; from Python a record, too."""
    tokens: str | None = None
    method: str | None = None
    batch: str | None = None
    seq: int | str | None = None
    precision: str | None = None
    budget: str | None = None
    power: str | None = None
    deadline: str | None = None
    objective: str | None = None
    ways: str | None = None
    node: Sequence[str] = ()
    region: str | None = None
    as_of: str | None = None
    max_price_age: str | None = None
    survive: str | None = None


OF_FLAG: dict[Where, str] = {
    ("limits", "budget"): "--budget",
    ("limits", "power"): "--power",
    ("regions",): "--region",
    ("as_of",): "--as-of",
    ("max_price_age",): "--max-price-age",
    ("reliability", "survive"): "--survive",
    ("objective",): "--objective",
}
"""Keys of a portfolio that a flag sets."""


def asked(catalog: Catalog, path: Path | None, flags: Flags) -> Portfolio:
    """The portfolio of a file, with what the flags change; or of the flags alone.

    Raises:
        WrongQuestion: neither a file nor a model, both, or any problem of theirs; by the flag that said it.
    """
    if path is None and flags.model is None:
        raise WrongQuestion(
            "what for? Give a portfolio file, or --model and --tokens: "
            "clusterwright procure --model llama3-8b --tokens 2T --budget '$5M' --deadline 60d"
        )
    for node in flags.node:
        catalog.node(node)
    for flag in OF_A_WORKLOAD if path is not None else ():
        if getattr(flags, flag) is not None:
            raise WrongQuestion(
                f"a portfolio file and --{flag}: the file states how its workloads are trained; "
                "write it there, or drop the file"
            )
    document = TomlDocument(Path(FLAGS), "", _short(flags)) if path is None else opened(path)
    data, by_flag = _overridden(without_passwords(document.data), flags)
    if path is None:
        by_flag |= {("workloads", 0, key): f"--{flag}" for flag, key in OF_A_WORKLOAD.items()}
    wanted = _narrowed(
        catalog, TypedFile(document=TomlDocument(document.path, document.text, data), flags=by_flag), flags
    )
    if not isinstance(flags.model, Model):
        stated = {**data, "name": wanted.name, "as_of": wanted.as_of}
        return replace(wanted, stated=OfferQuestion(portfolio=stated, ways=flags.ways, nodes=tuple(flags.node)))
    return replace(wanted, inputs={**wanted.inputs, f"model {flags.model.id}": digest(flags.model)})


def again(catalog: Catalog, stated: OfferQuestion) -> Portfolio:
    """The portfolio of a question that an offer states.

    Raises:
        WrongQuestion: it names what the catalog does not have, or any problem of it.
    """
    file = TypedFile(document=TomlDocument(Path(FLAGS), "", stated.portfolio))
    return replace(_narrowed(catalog, file, Flags(ways=stated.ways, node=stated.nodes)), stated=stated)


def _overridden(data: dict[str, Any], flags: Flags) -> tuple[dict[str, Any], dict[Where, str]]:
    """The data of a file with what flags say in its place, and which flag said what."""
    data = dict(data)
    by_flag = {}
    given = {"budget": flags.budget, "power": flags.power, "regions": flags.region, "as_of": flags.as_of,
             "max_price_age": flags.max_price_age,
             "objective": flags.objective, "survive": flags.survive}  # fmt: skip
    for where, flag in OF_FLAG.items():
        value = given[str(where[-1])]
        if value is not None:
            by_flag[where] = flag
            data = _with(data, where, value)
    if flags.deadline is not None:
        rows = listed(data.get("workloads", []))
        data["workloads"] = [{**row, "deadline": flags.deadline} if isinstance(row, dict) else row for row in rows]
        by_flag |= {("workloads", n, "deadline"): "--deadline" for n in range(len(rows))}
    return data, by_flag


def _with(table: dict[str, Any], where: Where, value: Any) -> dict[str, Any]:
    """A copy of a table with another value at a key of it, or of a table within."""
    key, *rest = map(str, where)
    inner = table.get(key, {})
    if rest and not isinstance(inner, dict):
        return table  # what is wrong with it is told of the file
    return {**table, key: _with(inner, tuple(rest), value) if rest else value}


def _narrowed(catalog: Catalog, file: TypedFile, flags: Flags) -> Portfolio:
    """The file's portfolio with only the candidates that the flags name."""
    narrowed = portfolio(file, catalog)
    named = tuple(way.strip() for way in flags.ways.split(",")) if flags.ways else WAYS
    for way in named:
        if way not in WAYS:
            raise WrongQuestion(f"--ways {flags.ways}: {way!r} is none of {', '.join(WAYS)}")
    ways = tuple(way for way in WAYS if way in named)
    if (flags.ways or flags.node) and "candidates" not in file.document.data:  # what was named, in any way named
        tried = ways if flags.ways else USUAL
        narrowed = replace(narrowed, candidates=everything(catalog, narrowed.as_of, tried, flags.node))
    kept: dict[str, NodeOption] = {}
    for name, candidate in zip(offers(narrowed.candidates), narrowed.candidates, strict=True):
        left = tuple(way for way in candidate.ways if way in ways)
        if left and (not flags.node or candidate.node in flags.node):
            kept[name] = replace(candidate, ways=left)
    if not kept and not narrowed.owned:
        raise WrongQuestion("--ways and --node leave no candidate (clusterwright catalog list nodes)")
    candidates = tuple(kept.values())
    # An offer's name says no more than tells it from the others.
    names = dict(zip(kept, offers(candidates), strict=True)) | {
        way_name: way_name for way_name in (f"own {o.node}" for o in narrowed.owned)
    }
    mixed = tuple(
        replace(table, pools=tuple(names[name] for name in table.pools))
        for table in narrowed.mixed
        if all(name in names for name in table.pools)
    )
    return replace(narrowed, candidates=candidates, mixed=mixed)


def _horizon(flags: Flags) -> str:
    """A year, so that more time never costs more; what is needed by a later day has until then."""
    if flags.deadline is None:
        return DEFAULT_HORIZON
    try:
        return flags.deadline if span(flags.deadline) > span(DEFAULT_HORIZON) else DEFAULT_HORIZON
    except UnitError:
        return DEFAULT_HORIZON  # the deadline's own reading says what is wrong


def _short(flags: Flags) -> dict[str, Any]:
    """The portfolio of one workload that the flags alone describe."""
    job = {key: getattr(flags, flag) for flag, key in OF_A_WORKLOAD.items()}
    job["sequence"] = sequence_length(flags.seq)
    name = flags.model.id if isinstance(flags.model, Model) else flags.model
    return {
        "currency": "USD",
        "name": name,
        "horizon": _horizon(flags),
        "workloads": [{key: value for key, value in {"name": name, **job}.items() if value is not None}],
    }
