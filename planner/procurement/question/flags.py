"""A question on one line, made the portfolio that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.base.secrets import without_passwords
from planner.base.typed import Where, listed
from planner.base.units import UnitError, plain_dollars
from planner.catalog import Catalog
from planner.catalog.files import TomlDocument
from planner.procurement.question.portfolio import WAYS, NodeOption, Portfolio
from planner.procurement.question.reading import portfolio
from planner.procurement.supply.pools import offers
from planner.procurement.supply.prices import USUAL, everything
from planner.question.given import joined
from planner.question.purchase_options import ProcureQuestion
from planner.question.reading import digest
from planner.question.typed_file import TypedFile, opened
from planner.question.values import sequence_length, span
from planner.schema.hardware import Node
from planner.schema.procurement import OfferQuestion
from planner.schema.workload import Model

DEFAULT_HORIZON = "12 months"
FLAGS = "flags"
"""Where a problem of the short form stands."""
OF_A_WORKLOAD = {"model": "model", "tokens": "tokens", "method": "method", "batch": "batch", "seq": "sequence",
                 "precision": "precision"}  # fmt: skip
"""Flags that describe the one workload of the short form -> the key of a portfolio that says the same."""


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
UNITS = {"budget": "USD", "spend": "USD", "power": "W", "deadline": "s", "max_price_age": "s"}
"""Keywords whose numbers are in SI units, or US dollars, and the unit that a portfolio writes behind them."""


def asked(catalog: Catalog, path: Path | None, flags: ProcureQuestion) -> Portfolio:
    """The portfolio of a file, with what the flags change; or of the flags alone.

    Raises:
        WrongQuestion: neither a file nor a model, both, or any problem of theirs; by the flag that said it.
    """
    if path is None and flags.model is None:
        raise WrongQuestion(
            "what for? Give a portfolio file, or --model and --tokens: "
            "clusterwright procure --model llama3-8b --tokens 2T --budget '$5M' --deadline 60d"
        )
    ways = joined(flags.ways)
    nodes = node_ids(flags)
    for node in nodes:
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
        catalog, TypedFile(document=TomlDocument(document.path, document.text, data), flags=by_flag), ways, nodes
    )
    if not isinstance(flags.model, Model):
        stated = {**data, "name": wanted.name, "as_of": wanted.as_of}
        return replace(wanted, stated=OfferQuestion(portfolio=stated, ways=ways, nodes=nodes))
    return replace(wanted, inputs={**wanted.inputs, f"model {flags.model.id}": digest(flags.model)})


def again(catalog: Catalog, stated: OfferQuestion, where: str = FLAGS) -> Portfolio:
    """The portfolio of a question that an offer states; `where` that stands, and files that it names beside it.

    Raises:
        WrongQuestion: it names what the catalog does not have, or any problem of it.
    """
    file = TypedFile(document=TomlDocument(Path(where), "", stated.portfolio))
    return replace(_narrowed(catalog, file, stated.ways, stated.nodes), stated=stated)


def node_ids(flags: ProcureQuestion) -> tuple[str, ...]:
    """The nodes that a question names, by their ids."""
    return tuple(node.id if isinstance(node, Node) else node for node in named_nodes(flags))


def named_nodes(flags: ProcureQuestion) -> Sequence[str | Node]:
    """The nodes that a question names, as ids or records."""
    return [flags.node] if isinstance(flags.node, str | Node) else flags.node


def _text(flags: ProcureQuestion, keyword: str) -> str | None:
    """The value of a keyword as a portfolio writes it: a number with its SI unit, a day as an ISO date."""
    value = getattr(flags, keyword)
    if isinstance(value, str) and UNITS.get(keyword) == "USD":
        return str(plain_dollars(value))
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, date):
        return value.isoformat()
    unit = UNITS.get(keyword)
    return f"{value!r} {unit}" if unit else str(value)


def _overridden(data: dict[str, Any], flags: ProcureQuestion) -> tuple[dict[str, Any], dict[Where, str]]:
    """The data of a file with what flags say in its place, and which flag said what."""
    data = dict(data)
    by_flag = {}
    for where, flag in OF_FLAG.items():
        value = _text(flags, flag[2:].replace("-", "_"))
        if value is not None:
            by_flag[where] = flag
            data = _with(data, where, value)
    if (deadline := _text(flags, "deadline")) is not None:
        rows = listed(data.get("workloads", []))
        data["workloads"] = [{**row, "deadline": deadline} if isinstance(row, dict) else row for row in rows]
        by_flag |= {("workloads", n, "deadline"): "--deadline" for n in range(len(rows))}
    if (spend := _text(flags, "spend")) is not None:
        data, more = _spent(data, flags, spend)
        by_flag |= more
    return data, by_flag


def _spent(data: dict[str, Any], flags: ProcureQuestion, spend: str) -> tuple[dict[str, Any], dict[Where, str]]:
    """The data with a budget that is to be spent: on the earliest completion where every workload says its tokens, else
    on the most tokens.
    """
    for flag in ("budget", "objective"):
        if getattr(flags, flag) is not None:
            raise WrongQuestion(
                f"--spend and --{flag}: --spend is a budget whose objective is the most tokens, or with --tokens the "
                "earliest completion; leave one of them out"
            )
    rows = [row for row in listed(data.get("workloads", [])) if isinstance(row, dict)]
    objective = "time" if all("tokens" in row or "samples" in row for row in rows) else "tokens"
    data = _with(_with(data, ("limits", "budget"), spend), ("objective",), objective)
    return data, {("limits", "budget"): "--spend", ("objective",): "--spend"}


def _with(table: dict[str, Any], where: Where, value: Any) -> dict[str, Any]:
    """A copy of a table with another value at a key of it, or of a table within."""
    key, *rest = map(str, where)
    inner = table.get(key, {})
    if rest and not isinstance(inner, dict):
        return table  # what is wrong with it is told of the file
    return {**table, key: _with(inner, tuple(rest), value) if rest else value}


def _narrowed(catalog: Catalog, file: TypedFile, ways_named: str | None, nodes: Sequence[str]) -> Portfolio:
    """The file's portfolio with only the candidates of these nodes that are acquired in one of these ways."""
    narrowed = portfolio(file, catalog)
    named = tuple(way.strip() for way in ways_named.split(",")) if ways_named else WAYS
    for way in named:
        if way not in WAYS:
            raise WrongQuestion(f"--ways {ways_named}: {way!r} is none of {', '.join(WAYS)}")
    ways = tuple(way for way in WAYS if way in named)
    if (ways_named or nodes) and "candidates" not in file.document.data:  # what was named, in any way named
        tried = ways if ways_named else USUAL
        narrowed = replace(narrowed, candidates=everything(catalog, narrowed.as_of, tried, nodes))
    kept: dict[str, NodeOption] = {}
    for name, candidate in zip(offers(narrowed.candidates), narrowed.candidates, strict=True):
        left = tuple(way for way in candidate.ways if way in ways)
        if left and (not nodes or candidate.node in nodes):
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


def _horizon(flags: ProcureQuestion) -> str:
    """A year, so that more time never costs more; what is needed by a later day has until then."""
    deadline = _text(flags, "deadline")
    if deadline is None:
        return DEFAULT_HORIZON
    try:
        return deadline if span(deadline) > span(DEFAULT_HORIZON) else DEFAULT_HORIZON
    except UnitError:
        return DEFAULT_HORIZON  # the deadline's own reading says what is wrong


def _short(flags: ProcureQuestion) -> dict[str, Any]:
    """The portfolio of one workload that the flags alone describe."""
    job: dict[str, Any] = {key: _text(flags, flag) for flag, key in OF_A_WORKLOAD.items()}
    job |= {"model": flags.model, "sequence": sequence_length(flags.seq)}
    name = flags.model.id if isinstance(flags.model, Model) else flags.model
    return {
        "currency": "USD",
        "name": name,
        "horizon": _horizon(flags),
        "workloads": [{key: value for key, value in {"name": name, **job}.items() if value is not None}],
    }
