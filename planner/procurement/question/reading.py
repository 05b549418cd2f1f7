"""A portfolio file (TOML) to a checked :class:`Portfolio`: every problem at once, with file, line and key."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from planner.base import units
from planner.base.errors import nearest
from planner.catalog import Catalog
from planner.catalog.files import Document
from planner.models import workload
from planner.procurement.question.portfolio import (
    CHARGES,
    NETWORK_PRICES,
    OBJECTIVES,
    WAYS,
    Hall,
    Job,
    Limits,
    MixedPools,
    NodeOption,
    Owned,
    Portfolio,
    Reliability,
)
from planner.procurement.supply.offers import everything
from planner.procurement.supply.pools import offers
from planner.question import amounts, values
from planner.question.amounts import Exchange
from planner.question.asked import PlanOptions
from planner.question.ownership import _OWNERSHIP, ownership
from planner.question.tables import Tables, one_of, opened, positive

MOST_JOBS = 500
MOST_MIXED = 4
"""Pools in one job."""
GIVEN_LATENCY_S = 2e-5
"""Of a link that is given without one, as in ``clusterwright plan --link``."""
WIRINGS = ("rail-optimised", "fat-tree", "rail-only", "dragonfly", "torus")
_TOP = (
    "name", "currency", "exchange", "as_of", "horizon", "objective", "charge", "regions", "limits", "workloads",
    "candidates", "owned", "mixed", "ownership", "hall", "reliability", "network_prices",
)  # fmt: skip
_JOB = (
    "name", "model", "tokens", "samples", "deadline", "release", "every", "priority", "min_throughput", "batch",
    "sequence", "mtp_layers", "method", "rank", "optimizer", "runtime", "precision", "pins",
)  # fmt: skip
_CANDIDATE = (
    "node", "ways", "counts", "at_most", "min_order", "wirings", "nics", "fabric", "regions", "delivery", "copies",
    "price",
)  # fmt: skip
_PRICE = ("amount", "date", "source")
_OWNED = ("node", "count", "fabric", "region")
_MIXED = ("pools", "counts", "link", "latency", "workloads", "pipelines")
_EXCHANGE = ("usd", "date", "source")
_HALL = ("rack_units", "cooling_per_rack")
_RELIABILITY = ("preemptions_per_node_day", "repair", "spare_risk", "restart_without_spares")
KEYS = {
    "": _TOP, "limits": tuple(f.name for f in fields(Limits)), "exchange": _EXCHANGE, "workloads": _JOB,
    "candidates": _CANDIDATE, "candidates.price": _PRICE, "owned": _OWNED, "mixed": _MIXED,
    "ownership": _OWNERSHIP, "hall": _HALL,
    "reliability": _RELIABILITY,
}  # fmt: skip
"""Every key of a portfolio file, by the table that it stands in."""


@dataclass(kw_only=True)
class _Reader(Tables):
    """Tables of a portfolio, with what their values refer to."""

    catalog: Catalog
    exchange: Exchange = field(default_factory=Exchange)

    def money(self, text: object) -> float:
        return amounts.usd(text, self.exchange)


def read(path: Path, catalog: Catalog) -> Portfolio:
    """The portfolio that a file describes.

    Raises:
        WrongQuestion: every problem of the file, with line and key.
    """
    return portfolio(opened(path), catalog)


def portfolio(document: Document, catalog: Catalog) -> Portfolio:
    """As :func:`read`, from TOML that was read already (or made from flags)."""
    r = _Reader(document=document, catalog=catalog)
    given = r.keys(document.data, _TOP, ())
    r.exchange = _exchange(r, given)
    horizon = r.value(given, "horizon", (), values.span)
    if "horizon" not in given:
        r.wrong(("horizon",), 'missing; write for example horizon = "12 months"')
    horizon = horizon or 0.0
    as_of = r.value(given, "as_of", (), values.iso_date) or date.today().isoformat()
    found = Portfolio(
        name=str(given.get("name", document.path.stem)),
        as_of=as_of,
        horizon_days=horizon,
        objective=r.value(given, "objective", (), one_of(OBJECTIVES)) or "cost",
        charge=r.value(given, "charge", (), one_of(CHARGES)) or "cash",
        regions=r.value(given, "regions", (), lambda x: values.regions(catalog, x)) or ("us",),
        limits=_limits(r, given.get("limits", {})),
        jobs=_jobs(r, given.get("workloads"), horizon),
        candidates=_candidates(r, given.get("candidates"), horizon, as_of),
        owned=_owned(r, given.get("owned", [])),
        ownership=ownership(r, given.get("ownership", {}), r.money),
        hall=_hall(r, given.get("hall", {})),
        reliability=_reliability(r, given.get("reliability", {})),
        network_prices=r.value(given, "network_prices", (), one_of(NETWORK_PRICES)) or "parts",
        exchange=r.exchange,
        inputs={
            f"portfolio {document.path.name}": hashlib.sha256(document.text.encode()).hexdigest()[:16],
            **{f"catalog {origin}": digest for origin, digest in catalog.versions().items()},
        },
    )
    found = replace(found, mixed=_mixed(r, given.get("mixed", []), found))
    if not found.candidates and not found.owned and "candidates" in given and not r.problems:
        r.wrong(("candidates",), "none, and no nodes are owned: there is nothing to train on")
    r.done()
    return found


def _exchange(r: _Reader, given: dict[str, Any]) -> Exchange:
    code = given.get("currency")
    if not isinstance(code, str) or not re.fullmatch(r"[A-Z]{3}", code):
        r.wrong(("currency",), 'missing or no code; write currency = "USD"')
        return Exchange()
    table = r.keys(given.get("exchange", {}), _EXCHANGE, ("exchange",))
    if code == "USD":
        if table:
            r.wrong(("exchange",), "US dollars need no rate")
        return Exchange()
    usd = r.value(table, "usd", ("exchange",), positive)
    dated = r.value(table, "date", ("exchange",), values.iso_date)
    if usd is None or not dated:
        r.wrong(
            ("exchange",), f'{code} needs its rate: [exchange] usd = 1.08 (US dollars for one), date = "2026-11-20"'
        )
    return Exchange(code=code, usd=usd or 1.0, date=dated or "", source=str(table.get("source", "")))


# ---- tables ----------------------------------------------------------------------------------------------------------


def _limits(r: _Reader, table: Any) -> Limits:
    where = ("limits",)
    table = r.keys(table, KEYS["limits"], where)

    def money(text: object) -> float:
        return values.above_nothing(text, r.money(text))

    return Limits(
        budget=r.value(table, "budget", where, money),
        capital=r.value(table, "capital", where, r.money),
        monthly=r.value(table, "monthly", where, money),
        power=r.value(table, "power", where, values.watts),
        racks=r.value(table, "racks", where, positive),
        switch_ports=r.value(table, "switch_ports", where, positive),
        carbon=r.value(table, "carbon", where, values.weight),
    )


def _jobs(r: _Reader, rows: Any, horizon: float) -> tuple[Job, ...]:
    if not isinstance(rows, list) or not rows:
        r.wrong(("workloads",), "missing; write at least one [[workloads]] with name, model and deadline")
        return ()
    found: list[Job] = []
    for n, row in enumerate(rows):
        jobs = list(_job(r, row, ("workloads", n), horizon))
        # A model's id names a workload without a name, and a periodic one's runs are name#1, name#2 and so on.
        for name in sorted({job.name for job in found} & {job.name for job in jobs})[:1]:
            r.wrong(("workloads", n, "name"), f"{name!r} appears twice; every workload needs its own name")
        found += jobs
    if len(found) > MOST_JOBS:
        r.wrong(("workloads",), f"{len(found):,} jobs; at most {MOST_JOBS} are planned together")
    return tuple(found)


def _job(r: _Reader, row: Any, where: tuple[str | int, ...], horizon: float) -> Iterable[Job]:
    row = r.keys(row, _JOB, where)
    asked = r.value({"model": row}, "model", where, _asked)
    if "model" not in row:
        r.wrong((*where, "model"), 'missing; write for example model = "llama3-8b"')
    model = r.value(row, "model", where, lambda name: workload.model(str(name)))
    if asked is None or model is None:
        return
    trained = r.value({"model": 0}, "model", where, lambda _: _workload(model.id, asked))
    if trained is None:
        return
    samples = r.value(row, "samples", where, lambda x: values.above_nothing(x, units.parse(x, "count")))
    if samples is not None and "tokens" in row:
        r.wrong((*where, "samples"), "give tokens or samples, not both")
    tokens = samples * trained.sequence if samples is not None else trained.tokens
    release = r.value(row, "release", where, values.delay) or 0.0
    deadline = r.value(row, "deadline", where, values.span)
    if deadline is not None and deadline > horizon > 0:
        r.wrong((*where, "deadline"), f"is past the horizon of {horizon:,.0f} days")
    if deadline is not None and deadline <= release:
        r.wrong((*where, "deadline"), "is not after the release")
    every = r.value(row, "every", where, values.span)
    if every is not None and horizon > 0 and release + every > horizon * (1 + 1e-9):
        r.wrong(
            (*where, "every"), f"not one period of {every:,.4g} days ends within the horizon of {horizon:,.0f} days"
        )
    if deadline is not None and every is not None and deadline - release > every * (1 + 1e-9):
        r.wrong((*where, "deadline"), f"is after the next run's release; every {every:,.4g} days one run is to be done")
    priority = row.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        r.wrong((*where, "priority"), f"{priority!r}: must be a whole number; the highest goes first")
        priority = 0
    least = r.value(row, "min_throughput", where, values.rate) or 0.0
    name = model.id if "name" not in row else r.value(row, "name", where, values.name)
    for suffix, start, end in _times(release, deadline, every, horizon):
        yield Job(
            name=f"{name or model.id}{suffix}",
            model=str(row["model"]),
            asked=asked,
            tokens=tokens,
            release_day=start,
            deadline_day=end,
            given_deadline=deadline is not None or every is not None,
            priority=priority,
            min_tokens_per_s=least,
        )


def _times(
    release: float, deadline: float | None, every: float | None, horizon: float
) -> list[tuple[str, float, float]]:
    """Once, or once in every whole period: suffix of the name, release, deadline."""
    if every is None:
        return [("", release, horizon if deadline is None else deadline)]
    n = int((horizon - release) / every + 1e-9)
    within = every if deadline is None else deadline - release
    return [(f"#{i + 1}", release + i * every, release + i * every + within) for i in range(n)]


def _asked(row: dict[str, Any]) -> PlanOptions:
    names = {f.name for f in fields(PlanOptions)}
    modules = row.get("mtp_layers", 0)
    if isinstance(modules, bool) or not isinstance(modules, int):
        raise ValueError(f"mtp-layers {modules!r}: must be a whole number")
    said = {key: row[key] for key in row if key in names and key != "deadline"}
    if "sequence" in row:
        said["seq"] = row["sequence"]
    said = {
        key: str(value) if key in ("batch", "tokens", "runtime", "precision") else value for key, value in said.items()
    }
    return PlanOptions(**said, pin=tuple(str(pin) for pin in values.listed(row.get("pins", []))))


def _workload(model: str, asked: PlanOptions) -> Any:
    if asked.batch is not None and not str(asked.batch).isdigit():
        raise ValueError(f"batch = {asked.batch!r}: one whole number here")
    return workload.workload(
        model,
        sequence=asked.seq,
        batch=int(asked.batch) if asked.batch else None,
        tokens=asked.tokens,
        method=asked.method,
        rank=asked.rank,
        optimizer=asked.optimizer,
        mtp_layers=asked.mtp_layers,
    )


def _candidates(r: _Reader, rows: Any, horizon: float, as_of: str) -> tuple[NodeOption, ...]:
    if rows is None:
        return everything(r.catalog, as_of)
    if not isinstance(rows, list):
        r.wrong(("candidates",), "write [[candidates]] tables")
        return ()
    found = [_candidate(r, row, ("candidates", n), horizon) for n, row in enumerate(rows)]
    return tuple(candidate for candidate in found if candidate is not None)


def _candidate(r: _Reader, row: Any, where: tuple[str | int, ...], horizon: float) -> NodeOption | None:
    row = r.keys(row, _CANDIDATE, where)
    node = r.value(row, "node", where, lambda name: r.catalog.node(str(name)).id)
    if "node" not in row:
        r.wrong((*where, "node"), 'missing; write for example node = "dgx-h100"')
    ways = r.value(row, "ways", where, lambda x: tuple(one_of(WAYS)(way) for way in values.listed(x)))
    if "ways" not in row or ways == ():
        r.wrong((*where, "ways"), f"missing; any of {', '.join(WAYS)}")
    price = r.value(row, "price", where, lambda x: _price(r, x, ways or ()))
    delivery = r.value(row, "delivery", where, values.delay) or 0.0
    if delivery >= horizon > 0:
        r.wrong((*where, "delivery"), f"is not before the end of the horizon of {horizon:,.0f} days")
    counts = r.value(row, "counts", where, lambda x: tuple(sorted({values.whole(n) for n in values.listed(x)}))) or ()
    at_most, min_order = (
        r.value(row, "at_most", where, values.whole),
        r.value(row, "min_order", where, values.whole) or 1,
    )
    if at_most is not None and min_order > at_most:
        r.wrong((*where, "min_order"), f"{min_order:,}, and there are at most {at_most:,}")
    elif counts and not any(min_order <= n <= (at_most or n) for n in counts):
        r.wrong((*where, "counts"), f"{list(counts)}: none is from {min_order:,} to {at_most or 'any number'}")
    if node is None or ways is None:
        return None
    amount, dated, source = price or (None, "", "")
    return NodeOption(
        node=node,
        ways=ways,
        counts=counts,
        at_most=at_most,
        min_order=min_order,
        wirings=r.value(row, "wirings", where, lambda x: tuple(_wiring(w) for w in values.listed(x))) or (("", 1.0),),
        nics=r.value(row, "nics", where, values.whole),
        fabric=r.value(row, "fabric", where, lambda name: r.catalog.fabric(str(name)).id),
        regions=r.value(row, "regions", where, lambda x: values.regions(r.catalog, x)) or (),
        delivery_day=delivery,
        copies=r.value(row, "copies", where, values.whole),
        price_usd=amount,
        price_date=dated,
        price_source=source,
    )


def _wiring(text: object) -> tuple[str, float]:
    """``"fat-tree 2:1"`` -> topology and oversubscription."""
    match = re.fullmatch(r"([a-z-]+)(?:\s+(\d+(?:\.\d+)?):1)?", str(text))
    if match is None or match[1] not in WIRINGS:
        raise ValueError(f"{text!r}: write {', '.join(WIRINGS)}, with '2:1' behind it for oversubscription")
    over = float(match[2] or 1.0)
    if over < 1:
        raise ValueError(f"{text!r}: oversubscription is at least 1:1")
    return match[1], over


def _price(r: _Reader, given: Any, ways: tuple[str, ...]) -> tuple[float, str, str]:
    """``{usd = "$40/h", date = ..., source = ...}``: one way, its price, and where that comes from."""
    if not isinstance(given, dict) or set(given) - set(_PRICE) or "amount" not in given:
        raise ValueError('write price = { amount = "$40/h", date = "2026-11-20", source = "our quote" }')
    if len(ways) != 1:
        raise ValueError("a price of your own goes with one way; write a candidate for each")
    text = str(given["amount"])
    hourly = text.replace(" ", "").endswith("/h")
    if hourly == (ways[0] == "buy"):
        raise ValueError(
            f"{text!r}: {'a purchase is not paid by the hour' if hourly else 'give the price of an hour: /h'}"
        )
    amount = values.above_nothing(text, r.money(re.sub(r"\s*/\s*h$", "", text)))
    return amount, values.iso_date(given.get("date", "")), str(given.get("source", "the portfolio"))


def _owned(r: _Reader, rows: Any) -> tuple[Owned, ...]:
    found = []
    for n, row in enumerate(rows if isinstance(rows, list) else [rows]):
        where: tuple[str | int, ...] = ("owned", n)
        row = r.keys(row, _OWNED, where)
        node = r.value(row, "node", where, lambda name: r.catalog.node(str(name)).id)
        count = r.value(row, "count", where, values.whole)
        if node is None or count is None:
            if "node" not in row or "count" not in row:
                r.wrong(where, 'give a node and a count: node = "dgx-a100-80gb", count = 2')
            continue
        fabric = r.value(row, "fabric", where, lambda name: r.catalog.fabric(str(name)).id)
        region = r.value(row, "region", where, lambda name: r.catalog.region(str(name)).id)
        found.append(Owned(node=node, count=count, fabric=fabric, region=region))
    names = [each.node for each in found]
    for name in {name for name in names if names.count(name) > 1}:
        r.wrong(("owned",), f"{name} appears twice; add up the counts")
    return tuple(found)


def _mixed(r: _Reader, rows: Any, asked: Portfolio) -> tuple[MixedPools, ...]:
    """Which pools may work on one job together."""
    known = [*(f"own {each.node}" for each in asked.owned), *offers(asked.candidates)]
    work = list(dict.fromkeys(job.name.partition("#")[0] for job in asked.jobs))
    found: list[MixedPools] = []
    for n, row in enumerate(rows if isinstance(rows, list) else [rows]):
        where: tuple[str | int, ...] = ("mixed", n)
        row = r.keys(row, _MIXED, where)
        pools = r.value(row, "pools", where, lambda x: _pools(x, known))
        if "pools" not in row:
            r.wrong(where, f'name them: pools = ["{known[0] if known else "own dgx-a100-80gb"}", ...]')
        if pools is None:
            continue
        link = r.value(row, "link", where, lambda x: values.above_nothing(x, units.parse(x, "bandwidth")))
        latency = r.value(row, "latency", where, lambda x: units.parse(x, "time"))
        if "latency" in row and "link" not in row:
            r.wrong((*where, "latency"), "needs a link; give its rate as well")
        if latency is not None and latency < 0:
            r.wrong((*where, "latency"), "must not be negative")
        if any(set(pools) == set(other.pools) for other in found):
            r.wrong((*where, "pools"), f"{' and '.join(pools)} appear together twice; write one table")
        found.append(
            MixedPools(
                pools=pools,
                counts=r.value(row, "counts", where, partial(_counts, pools=len(pools))) or (),
                bandwidth=link,
                latency=None if link is None else GIVEN_LATENCY_S if latency is None else latency,
                jobs=r.value(row, "workloads", where, lambda x: _names(x, work, "workload")) or (),
                alike=r.value(row, "pipelines", where, one_of(("alike", "any"))) != "any",
            )
        )
    return tuple(found)


def _names(given: Any, known: list[str], what: str) -> tuple[str, ...]:
    for name in values.listed(given):
        if name not in known:
            near = nearest(str(name), known)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known) or 'none'}"
            raise ValueError(f"no {what} {name!r}; {hint}")
    return tuple(values.listed(given))


def _pools(given: Any, known: list[str]) -> tuple[str, ...]:
    names = _names(given, known, "pool")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]} appears twice; a cluster of identical nodes needs no [[mixed]]")
    if not 2 <= len(names) <= MOST_MIXED:
        raise ValueError(f"{len(names)} pool{'' if len(names) == 1 else 's'}: a mixed job takes 2 to {MOST_MIXED}")
    return names


def _counts(given: Any, pools: int) -> tuple[tuple[int, ...], ...]:
    """``[[2, 1], [2, 2]]``: nodes of each pool that are tried together."""
    found = tuple(tuple(values.whole(count) for count in values.listed(row)) for row in values.listed(given))
    if not found or any(len(row) != pools for row in found):
        raise ValueError(f"{given!r}: write lists of {pools} counts, one for each pool: [{[1] * pools}]")
    return found


def _hall(r: _Reader, table: Any) -> Hall:
    where = ("hall",)
    table = r.keys(table, _HALL, where)
    return Hall(
        rack_units=r.value(table, "rack_units", where, values.whole) or 48,
        cooling_per_rack=r.value(table, "cooling_per_rack", where, values.watts),
    )


def _reliability(r: _Reader, table: Any) -> Reliability:
    where = ("reliability",)
    table = r.keys(table, _RELIABILITY, where)
    plain = Reliability()
    preempted = r.value(table, "preemptions_per_node_day", where, positive)
    repair = r.value(table, "repair", where, values.span)
    risk = r.value(table, "spare_risk", where, values.share)
    restart = r.value(table, "restart_without_spares", where, lambda x: values.span(x) * values.DAY_S)
    return Reliability(
        preemptions_per_node_day=plain.preemptions_per_node_day if preempted is None else preempted,
        repair_days=plain.repair_days if repair is None else repair,
        spare_risk=plain.spare_risk if risk is None else risk,
        restart_without_spares_s=plain.restart_without_spares_s if restart is None else restart,
    )
