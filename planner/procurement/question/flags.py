"""A question on one line, made the portfolio that says the same."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.base.units import UnitError
from planner.catalog import Catalog
from planner.catalog.files import Document
from planner.procurement.question.portfolio import WAYS, NodeOption, Portfolio
from planner.procurement.question.reading import portfolio
from planner.procurement.supply.offers import everything
from planner.procurement.supply.pools import offers
from planner.question.tables import opened
from planner.question.values import span

DEFAULT_HORIZON = "12 months"
FLAGS = "flags"
"""Where a problem of the short form stands."""
OF_A_WORKLOAD = ("model", "tokens", "method", "batch", "seq", "precision")
"""Flags that describe the one workload of the short form."""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the command line may say, as text; with a portfolio file, what it changes there."""

    model: str | None = None
    tokens: str | None = None
    method: str | None = None
    batch: str | None = None
    seq: int | None = None
    precision: str | None = None
    budget: str | None = None
    power: str | None = None
    within: str | None = None
    objective: str | None = None
    ways: str | None = None
    node: Sequence[str] = ()
    region: str | None = None
    as_of: str | None = None


OF_FLAG = {
    "limits.budget": "--budget",
    "limits.power": "--power",
    "regions": "--region",
    "as_of": "--as-of",
    "objective": "--objective",
}
"""Keys of a portfolio that a flag sets."""


def asked(catalog: Catalog, path: Path | None, flags: Flags) -> Portfolio:
    """The portfolio of a file, with what the flags change; or of the flags alone.

    Raises:
        WrongQuestion: neither a file nor a model, both, or any problem of theirs.
    """
    if path is None and flags.model is None:
        raise WrongQuestion(
            "what for? Give a portfolio file, or --model and --tokens: "
            "clusterwright procure --model llama3-8b --tokens 2T --budget '$5M' --within 60d"
        )
    for node in flags.node:
        catalog.node(node)
    for flag in OF_A_WORKLOAD if path is not None else ():
        if getattr(flags, flag) is not None:
            raise WrongQuestion(
                f"a portfolio file and --{flag}: the file states how its workloads are trained; "
                "write it there, or drop the file"
            )
    if path is None:
        with _told_by_flag(FLAGS):
            return _narrowed(catalog, Document(Path(FLAGS), "", _from_flags(flags)), flags)
    found = opened(path)
    said = {"as_of": flags.as_of, "objective": flags.objective, "regions": flags.region}
    limits = {"budget": flags.budget, "power": flags.power}
    data = {**found.data, **{key: value for key, value in said.items() if value is not None}}
    table = data.get("limits", {})
    if isinstance(table, dict):
        data["limits"] = {**table, **{key: value for key, value in limits.items() if value is not None}}
    if flags.within is not None:
        rows = data.get("workloads", [])
        data["workloads"] = [{**row, "deadline": flags.within} if isinstance(row, dict) else row for row in rows]
    if data == found.data:
        return _narrowed(catalog, found, flags)
    portfolio(found, catalog)  # what is wrong with the file itself is told as such
    with _told_by_flag(str(found.path)):
        return _narrowed(catalog, Document(found.path, found.text, data), flags)


@contextmanager
def _told_by_flag(place: str) -> Iterator[None]:
    """Problems of values that flags set are told by the flag, not by a file and its line; each once."""
    try:
        yield
    except WrongQuestion as error:
        lines = [_by_flag(line, place) for line in str(error).splitlines()]
        raise WrongQuestion("\n".join(dict.fromkeys(lines))) from None


def _by_flag(line: str, place: str) -> str:
    found = re.fullmatch(rf"{re.escape(place)}(?::\d+)?: ([\w.]+): (.*)", line)
    if found is None:
        return line
    key, says = found.groups()
    if re.fullmatch(r"workloads\.\d+\.deadline", key):
        return f"--within: {says}"
    if re.fullmatch(r"workloads\.\d+\.\w+", key) and place == FLAGS:
        return says if key.endswith(".model") and " = " in says else f"--{key.rpartition('.')[2]}: {says}"
    return f"{OF_FLAG[key]}: {says}" if key in OF_FLAG else line


def _narrowed(catalog: Catalog, document: Document, flags: Flags) -> Portfolio:
    """The document's portfolio with only the candidates that the flags name."""
    found = portfolio(document, catalog)
    named = tuple(way.strip() for way in flags.ways.split(",")) if flags.ways else WAYS
    for way in named:
        if way not in WAYS:
            raise WrongQuestion(f"--ways {flags.ways}: {way!r} is none of {', '.join(WAYS)}")
    ways = tuple(way for way in WAYS if way in named)
    if flags.ways and "candidates" not in document.data:  # all that has a price, in ways that are not usual, too
        found = replace(found, candidates=everything(catalog, found.as_of, ways))
    kept: dict[str, NodeOption] = {}
    for name, candidate in zip(offers(found.candidates), found.candidates, strict=True):
        left = tuple(way for way in candidate.ways if way in ways)
        if left and (not flags.node or candidate.node in flags.node):
            kept[name] = replace(candidate, ways=left)
    if not kept and not found.owned:
        raise WrongQuestion("--ways and --node leave no candidate (clusterwright catalog list nodes)")
    candidates = tuple(kept.values())
    # An offer's name says no more than tells it from the others.
    names = dict(zip(kept, offers(candidates), strict=True)) | {
        each: each for each in (f"own {o.node}" for o in found.owned)
    }
    mixed = tuple(
        replace(table, pools=tuple(names[name] for name in table.pools))
        for table in found.mixed
        if all(name in names for name in table.pools)
    )
    return replace(found, candidates=candidates, mixed=mixed)


def _horizon(flags: Flags) -> str:
    """A year, so that more time never costs more; what is needed by a later day has until then."""
    if flags.within is None:
        return DEFAULT_HORIZON
    try:
        return flags.within if span(flags.within) > span(DEFAULT_HORIZON) else DEFAULT_HORIZON
    except UnitError:
        return DEFAULT_HORIZON  # the deadline's own reading says what is wrong


def _from_flags(flags: Flags) -> dict[str, Any]:
    job = {
        "name": flags.model,
        "model": flags.model,
        "tokens": flags.tokens,
        "method": flags.method,
        "batch": flags.batch,
        "sequence": flags.seq,
        "precision": flags.precision,
        "deadline": flags.within if flags.within else None,
    }
    top = {
        "currency": "USD",
        "name": flags.model,
        "as_of": flags.as_of,
        "horizon": _horizon(flags),
        "objective": flags.objective,
        "regions": flags.region,
    }
    limits = {"budget": flags.budget, "power": flags.power}
    return {
        **{key: value for key, value in top.items() if value is not None},
        "limits": {key: value for key, value in limits.items() if value is not None},
        "workloads": [{key: value for key, value in job.items() if value is not None}],
    }
