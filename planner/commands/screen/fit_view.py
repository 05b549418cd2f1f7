"""What fits where, as a table and as JSON."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from planner.base.units import format_bytes, format_count, format_seconds, format_usd
from planner.catalog.ages import STALE_DAYS
from planner.commands.screen import render
from planner.report import quantities
from planner.schema.listings import Fits, FittingTraining

LOST_FIRST = ["tokens/s", "OOM"]
"""Columns that a narrow terminal loses first."""


def document(found: Sequence[FittingTraining]) -> dict[str, Any]:
    """All fits, as JSON."""
    return asdict(Fits(fits=tuple(found)))


def show(found: Sequence[FittingTraining], on: str | None, asked: Mapping[str, Any]) -> None:
    """The table, under what was asked."""
    first = found[0]
    how = f"{asked['method']}, {_amount(found, asked)} in batches of {first.batch:,} sequences"
    if on is None:
        render.text(f"{first.model} ({format_count(first.parameters)}), {first.sequence:,} tokens/sequence, {how}")
        render.text()
        by_accelerator(found)
    else:
        render.text(f"{first.accelerators:,} x {first.accelerator} of {first.node}, {how}")
        render.text()
        by_model(found)
    render.text()
    one = next((fit for fit in found if "cheapest" in fit.best), first)
    where = f"--accelerators {one.accelerator}:{one.accelerators}"
    render.labelled("Prices", *_prices(found, one))
    render.labelled("Next", f"clusterwright plan {one.model} {where} {_same(one, asked)} says how, and how sure")


def _amount(fits: Sequence[FittingTraining], asked: Mapping[str, Any]) -> str:
    """What is trained on: tokens, or the texts that make other tokens with other sequences."""
    texts = f"{asked['examples'] or 'all'} texts, {asked['epochs'] or 1:g} times"
    return f"{format_count(fits[0].tokens)} tokens" if len({fit.tokens for fit in fits}) == 1 else texts


_ASKED = (
    "task",
    "lengths",
    "examples",
    "epochs",
    "batch",
    "tokens",
    "rank",
    "optimizer",
    "runtime",
    "precision",
    "oom_risk",
    "catalog",
)
_USUAL = {"task": "sft", "optimizer": "adamw", "oom_risk": "5 %"}
"""What `plan` takes without being told, too."""


def _same(one: FittingTraining, asked: Mapping[str, Any]) -> str:
    """What was asked, as flags of another command."""
    given = {"method": asked["method"], "seq": one.sequence} | {
        name.replace("_", "-"): asked[name] for name in _ASKED if asked[name] != _USUAL.get(name)
    }
    return " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in given.items())


def by_accelerator(found: Sequence[FittingTraining]) -> None:
    """A row for each kind of accelerator."""
    headers = ["accelerator", "count", "memory", "OOM", "time", "rent", "tokens/s", "", "node"]
    times = _times(found)
    rows = [
        [fit.accelerator, f"{fit.accelerators:,}", *_figures(fit, time), " ".join(fit.best), fit.node]
        for fit, time in zip(found, times, strict=True)
    ]
    render.table(headers, rows, align="lrrrrrrll", priority=["node", *LOST_FIRST])


def by_model(found: Sequence[FittingTraining]) -> None:
    """A row for each model."""
    headers = ["model", "parameters", "tokens/sequence", "memory", "OOM", "time", "rent", "tokens/s"]
    rows = [
        [fit.model, format_count(fit.parameters), f"{fit.sequence:,}", *_figures(fit, time)]
        for fit, time in zip(found, _times(found), strict=True)
    ]
    render.table(headers, rows, align="lrrrrrrr", priority=[*LOST_FIRST, "parameters"])


def _prices(found: Sequence[FittingTraining], one: FittingTraining) -> list[str]:
    """What the rent of one rests on, and every price that is too old to decide alone."""
    used = [fit.price for fit in found if fit.price is not None]
    every, aged = list(dict.fromkeys(map(quantities.line, used))), quantities.old(used)
    if len(every) < 2:
        return every
    cheapest = [f"cheapest: {quantities.line(one.price)}"] if one.price is not None else []
    old = [f"over {STALE_DAYS} days old or undated: {', '.join(aged)}"] if aged else []
    return [*cheapest, *old, "--json states the price, date and source of each"]


def _times(fits: Sequence[FittingTraining]) -> list[str]:
    """How long each training takes, in the unit of the median."""
    middle = statistics.median(fit.hours for fit in fits)
    return [format_seconds(3600 * fit.hours, 3600 * middle) for fit in fits]


def _figures(fit: FittingTraining, time: str) -> list[str]:
    held = f"{format_bytes(fit.memory_bytes)} / {format_bytes(fit.capacity_bytes)}"
    risk = "-" if fit.oom_chance is None else f"{100 * fit.oom_chance:.2g} %"
    rent = "-" if fit.usd is None else format_usd(fit.usd)
    return [held, risk, time, rent, format_count(fit.tokens_per_s)]
