"""A portfolio file (TOML) to a checked :class:`Portfolio`: every problem at once, with file, line and key."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from planner.base.errors import ClusterwrightError, nearest
from planner.base.typed import Finding, Misfit, keeps, keys, missing, reads, wrong
from planner.catalog import Catalog
from planner.cost.goodput import RESTART_S
from planner.models import workload
from planner.procurement.question.portfolio import (
    PRICE,
    Hall,
    Job,
    Limits,
    MixedPools,
    NodeOption,
    Owned,
    Portfolio,
    PortfolioTerms,
    Reliability,
)
from planner.procurement.supply.pools import offers
from planner.procurement.supply.prices import everything
from planner.question.typed_file import Integer, OwnershipTable, TrainingTable, TypedFile, opened
from planner.question.values import (
    DAY_S,
    TABLE,
    Days,
    Delay,
    IsoDate,
    Name,
    Positive,
    QuestionContext,
    Samples,
    Several,
    TokensPerSecond,
)
from planner.rl.learned import SiteSteps
from planner.rl.steps import StepTable, learned_of, lengths_read, post_training, step_tokens
from planner.schema.procurement import Currency
from planner.schema.workload import Workload

MOST_JOBS = 500
MOST_MIXED = 4
"""Pools in one job."""
GIVEN_LATENCY_S = 2e-5
"""Latency of a link that is given without one, as in ``clusterwright plan --link``."""
ROUNDING = 1 + 1e-9
"""Spans given in months and in days may differ by so much and still be the same."""
RATE = '[exchange] usd = 1.08 (US dollars for one), date = "2026-11-20"'

# ---- the file --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """``[exchange]``: what the portfolio's currency is worth."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    usd: Positive | None = None
    date: IsoDate = ""
    source: str = ""


def _code(text: object) -> str:
    if not isinstance(text, str) or not re.fullmatch(r"[A-Z]{3}", text):
        raise ValueError(f'{text!r}: no code of three letters; write currency = "USD"')
    return text


@dataclass(frozen=True, kw_only=True)
class MoneyTable:
    """What must be known of a portfolio before its amounts can be read."""

    __pydantic_config__: ClassVar[ConfigDict] = {**TABLE, "extra": "ignore"}

    currency: Annotated[str, reads(_code), missing('write currency = "USD"')]
    exchange: Exchange = Exchange()


def _timed(table: JobTable) -> Iterator[tuple[str, str]]:
    """What is wrong with the times of a workload, whatever the horizon."""
    if table.samples is not None and table.tokens is not None:
        yield "samples", "give tokens or samples, not both"
    if table.restart is not None and not table.interruptible:
        yield "restart", "counts only for a job that may be paused: interruptible = true"
    if table.deadline is not None and table.deadline <= table.release:
        yield "deadline", "is not after the release"
    elif table.deadline is not None and table.every is not None:
        if table.deadline - table.release > table.every * ROUNDING:
            yield "deadline", f"is after the next run's release; every {table.every:,.4g} days one run is to be done"


@dataclass(frozen=True, kw_only=True)
class JobTable(TrainingTable):
    """``[[workloads]]``: one model to be trained, once or in every period."""

    name: Name | None = None
    samples: Samples | None = None
    deadline: Days | None = None
    release: Delay = 0.0
    every: Days | None = None
    priority: Integer = 0
    interruptible: bool = False
    restart: Delay | None = None
    min_throughput: TokensPerSecond = 0.0
    step: StepTable | None = None


def _ordered(table: NodeOption) -> Iterator[tuple[str, str]]:
    """What is wrong with the counts of a candidate."""
    if table.at_most is not None and table.min_order > table.at_most:
        yield "min_order", f"{table.min_order:,}, and there are at most {table.at_most:,}"
    elif table.counts and not any(table.min_order <= n <= (table.at_most or n) for n in table.counts):
        many = table.at_most or "any number"
        yield "counts", f"{list(table.counts)}: none is from {table.min_order:,} to {many}"


@dataclass(frozen=True, kw_only=True)
class PortfolioTable(PortfolioTerms):
    """A portfolio file."""

    currency: object = None
    exchange: object = None
    workloads: Annotated[
        Several[Annotated[JobTable, keeps(_timed)]],
        Field(min_length=1),
        missing("write at least one [[workloads]] with name, model and deadline"),
    ]
    candidates: Several[Annotated[NodeOption, keeps(_ordered)]] | None = None


KEYS = {
    "": keys(PortfolioTable), "limits": keys(Limits), "exchange": keys(Exchange), "workloads": keys(JobTable),
    "workloads.step": keys(StepTable),
    "candidates": keys(NodeOption), "candidates.price": list(PRICE), "owned": keys(Owned), "mixed": keys(MixedPools),
    "ownership": keys(OwnershipTable), "hall": keys(Hall), "reliability": keys(Reliability),
}  # fmt: skip
"""Every key of a portfolio file, by the table that it stands in."""

# ---- the question ----------------------------------------------------------------------------------------------------


def read(path: Path, catalog: Catalog) -> Portfolio:
    """The portfolio that a file describes.

    Raises:
        WrongQuestion: every problem of the file, with line and key.
    """
    return portfolio(TypedFile(document=opened(path)), catalog)


def portfolio(file: TypedFile, catalog: Catalog) -> Portfolio:
    """As :func:`read`, from TOML that was read already (or made from flags).

    What every value is by itself is told first, and what is wrong of them together once they are right.
    """
    currency = Currency(code=str(file.document.data.get("currency", "USD")))
    if money := file.record(MoneyTable):
        with file.noting():
            currency = _currency(money)
    context = QuestionContext(catalog=catalog, currency=currency, folder=file.document.path.parent)
    table = file.record(PortfolioTable, context)
    file.done()
    assert table is not None
    jobs = _jobs(file, table)
    asked = Portfolio(
        **{f.name: getattr(table, f.name) for f in fields(PortfolioTerms)},
        jobs=jobs,
        candidates=everything(catalog, table.as_of) if table.candidates is None else table.candidates,
        currency=currency,
        inputs=file.inputs("portfolio", catalog) | lengths_read(job.post_training for job in jobs),
    )
    asked = replace(asked, name=table.name or file.document.path.stem, mixed=_mixed(file, asked))
    if table.resale is not None and table.charge == "amortised":
        file.wrong(("resale",), 'what a sale brings counts in cash; leave out charge = "amortised", or resale')
    for n, candidate in enumerate(table.candidates or ()):
        if candidate.delivery_day >= table.horizon_days:
            late = f"is not before the end of the horizon of {table.horizon_days:,.0f} days"
            file.wrong(("candidates", n, "delivery"), late)
    for node, times in Counter(owned.node for owned in table.owned).items():
        if times > 1:
            file.wrong(("owned",), f"{node} appears twice; add up the counts")
    if not asked.candidates and not asked.owned:
        file.wrong(("candidates",), "none, and no nodes are owned: there is nothing to train on")
    file.done()
    return asked


def with_learned(asked: Portfolio, learned: SiteSteps | None) -> Portfolio:
    """A portfolio whose post-trainings count the steps that a site has measured."""
    jobs = tuple(replace(job, learned=learned) if job.post_training else job for job in asked.jobs)
    return replace(
        asked, jobs=jobs, inputs={**asked.inputs, **learned_of((job.post_training for job in jobs), learned)}
    )


def _currency(money: MoneyTable) -> Currency:
    rate = money.exchange
    if money.currency == "USD":
        if rate != Exchange():
            raise wrong("US dollars need no rate", "exchange")
        return Currency()
    if rate.usd is None or not rate.date:
        raise wrong(f"{money.currency} needs its rate: {RATE}", "exchange")
    return Currency(code=money.currency, usd=rate.usd, date=rate.date, source=rate.source)


def _jobs(file: TypedFile, table: PortfolioTable) -> tuple[Job, ...]:
    all_jobs: list[Job] = []
    for n, entry in enumerate(table.workloads):
        jobs: list[Job] = []
        with file.noting("workloads", n):
            jobs = list(_job(entry, table))
        # A model's id names a workload without a name, and a periodic one's runs are name#1, name#2 and so on.
        for name in sorted({job.name for job in all_jobs} & {job.name for job in jobs})[:1]:
            file.wrong(("workloads", n, "name"), f"{name!r} appears twice; every workload needs its own name")
        all_jobs += jobs
    if len(all_jobs) > MOST_JOBS:
        file.wrong(("workloads",), f"{len(all_jobs):,} jobs; at most {MOST_JOBS} are planned together")
    return tuple(all_jobs)


def _job(table: JobTable, asked_of_all: PortfolioTable) -> Iterator[Job]:
    """The runs of a workload within the horizon. If the most tokens are sought and it names none, it sees a step's at
    least.
    """
    horizon = asked_of_all.horizon_days
    if late := list(_late(table, horizon)):
        raise Misfit(*late)
    stated = post_training(table, table.step)
    if stated is not None:
        asked = replace(table.options(), task="sft")
        model = workload.find_model(table.model)
        name = model.id
        tokens = stated.steps * step_tokens(model, stated)
    else:
        asked = table.options()
        trained = _trained(table)
        name = trained.model.id
        tokens = trained.tokens if table.samples is None else table.samples * trained.sequence
        if asked_of_all.objective == "tokens" and table.tokens is None and table.samples is None:
            tokens = float(trained.batch * trained.sequence)
    for suffix, start, end in _times(table, horizon):
        yield Job(
            name=f"{table.name or name}{suffix}",
            model=table.model,
            asked=asked,
            tokens=tokens,
            release_day=start,
            deadline_day=end,
            given_deadline=table.deadline is not None or table.every is not None,
            priority=table.priority,
            interruptible=table.interruptible,
            restart_days=RESTART_S / DAY_S if table.restart is None else table.restart,
            min_tokens_per_s=table.min_throughput,
            post_training=stated,
        )


def _late(table: JobTable, horizon: float) -> Iterator[Finding]:
    until = f"the horizon of {horizon:,.0f} days"
    if table.deadline is not None and table.deadline > horizon:
        yield Finding(("deadline",), f"is past {until}")
    if table.every is not None and table.release + table.every > horizon * ROUNDING:
        yield Finding(("every",), f"not one period of {table.every:,.4g} days ends within {until}")


def _times(table: JobTable, horizon: float) -> list[tuple[str, float, float]]:
    """Once, or once in every whole period: suffix of the name, release, deadline."""
    release, deadline, every = table.release, table.deadline, table.every
    if every is None:
        return [("", release, horizon if deadline is None else deadline)]
    n = int((horizon - release) / every + 1e-9)
    within = every if deadline is None else deadline - release
    return [(f"#{i + 1}", release + i * every, release + i * every + within) for i in range(n)]


def _trained(table: JobTable) -> Workload:
    if table.batch is not None and not table.batch.isdecimal():
        raise wrong(f"{table.batch!r}: one whole number here", "batch")
    try:
        return workload.workload(
            table.model,
            sequence=table.seq,
            batch=int(table.batch) if table.batch else None,
            tokens=table.tokens,
            method=table.method,
            rank=table.rank,
            optimizer=table.optimizer,
            mtp_layers=table.mtp_layers,
            imbalance=table.imbalance,
            task=table.task,
        )
    except (ClusterwrightError, ValueError) as error:
        # It speaks of a keyword, "tokens = '-2B': ...", which is a key of the table.
        key, _, reason = str(error).partition(" = ")
        raise (wrong(reason, key) if key in keys(JobTable) else wrong(str(error), "model")) from None


def _mixed(file: TypedFile, asked: Portfolio) -> tuple[MixedPools, ...]:
    """Which pools may work on one job together."""
    pools = [*(f"own {owned.node}" for owned in asked.owned), *offers(asked.candidates)]
    workloads = list(dict.fromkeys(job.name.partition("#")[0] for job in asked.jobs))
    mixed: list[MixedPools] = []
    for n, table in enumerate(asked.mixed):
        problems = list(_unknown("pool", table.pools, pools)) or list(_unmixable(table))
        problems += _unknown("workload", table.workloads, workloads)
        if any(set(table.pools) == set(other.pools) for other in mixed):
            problems.append(("pools", f"{' and '.join(table.pools)} appear together twice; write one table"))
        for key, reason in problems:
            file.wrong(("mixed", n, key), reason)
        given = table.link_bytes_per_s is not None and table.link_latency_s is None
        mixed.append(replace(table, link_latency_s=GIVEN_LATENCY_S) if given else table)
    return tuple(mixed)


def _unknown(what: str, names: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known) or 'none'}"
            yield f"{what}s", f"no {what} {name!r}; {hint}"


def _unmixable(table: MixedPools) -> Iterator[tuple[str, str]]:
    """What is wrong with a ``[[mixed]]`` table whatever its names mean."""
    number = len(table.pools)
    if table.link_latency_s is not None and table.link_bytes_per_s is None:
        yield "latency", "needs a link; give its rate as well"
    if twice := [name for name, times in Counter(table.pools).items() if times > 1]:
        yield "pools", f"{twice[0]} appears twice; a cluster of identical nodes needs no [[mixed]]"
    elif not 2 <= number <= MOST_MIXED:
        yield "pools", f"{number} pool{'' if number == 1 else 's'}: a mixed job takes 2 to {MOST_MIXED}"
    elif any(len(row) != number for row in table.counts):
        counts = [list(row) for row in table.counts]
        yield "counts", f"{counts}: write lists of {number} counts, one for each pool: [{[1] * number}]"
