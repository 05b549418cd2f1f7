"""The page of what fits where: every training that fits over its time, its accelerators and its price."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from planner.base.errors import WrongQuestion
from planner.base.units import format_count, format_risk, format_seconds, format_usd
from planner.report import machines, quantities, vega_lite
from planner.report.html_page import Chart, Content, KeyFigure, Lines, Section, TextTable
from planner.schema.listings import Fits, FittingTraining

AXES = {
    "days": "time (days)", "billions": "parameters (billion)", "gib": "memory (GiB an accelerator)",
    "accelerators": "accelerators", "usd": "cost (USD)",
}  # fmt: skip
HOURS = {**AXES, "days": "time (hours)"}
"""Titles of axes where nothing takes two days."""


def of_fits(document: Fits, origin: str) -> Content:
    """Where one model fits, or which models fit on some accelerators.

    Raises:
        WrongQuestion: there is nothing in it.
    """
    if not document.fits:
        raise WrongQuestion(f"{origin}: nothing in it to show")
    fits = document.fits
    first = fits[0]
    of_one = len({fit.model for fit in fits}) == 1 and any(fit.best for fit in fits)
    chosen = next((fit for fit in fits if "cheapest" in fit.best), first)
    ids = [f"fit-{place}" for place in range(len(fits))]
    names = [_machines(fit) if of_one else fit.model for fit in fits]
    middle = statistics.median(fit.hours for fit in fits)
    rows = [_row(", ".join([name, *fit.best]), fit, middle) for name, fit in zip(names, fits, strict=True)]
    headers = ("trained on" if of_one else "model", "time", "80 %", "cost", "memory", "OOM", "tokens/s",
               "tokens/sequence", "node")  # fmt: skip
    # What is the same in all rows is said once: the table needs no scrolling then.
    alike = {place for place in (7, 8) if len(rows) > 1 and len({row[place] for row in rows}) == 1}
    kept, *shown = ([cell for place, cell in enumerate(row) if place not in alike] for row in (headers, *rows))
    table = TextTable("What fits", kept, shown, ids, ids[fits.index(chosen)])
    length = f"{first.sequence:,} tokens a sequence, " if 7 in alike else ""
    asked = f"{length}{format_count(first.tokens)} tokens in batches of {first.batch:,} sequences"
    prices = list(dict.fromkeys(quantities.line(fit.price) for fit in fits if fit.price is not None))
    sources = Lines([("Asked", [asked]), ("Prices", prices or ["none in the catalog for these machines"])])
    title = f"Where {first.model} fits" if of_one else f"What fits on {_machines(first)}"
    sections = [Section("What fits", (*_chart(names, fits, chosen), table)), Section("Sources", (sources,))]
    return Content(title, origin, sections, [*(_of_one(fits) if of_one else _of_machines(fits))])


def _machines(fit: FittingTraining) -> str:
    return f"{fit.accelerators:,} × {fit.accelerator}"


def _row(name: str, fit: FittingTraining, like: float) -> tuple[str, ...]:
    """Cells of a training; times in the unit of so many hours."""
    return (
        name,
        _time(fit.hours, like),
        _interval(fit, like) or "–",
        "–" if fit.usd is None else format_usd(fit.usd),
        f"{fit.memory_bytes / machines.GIB:.1f} of {fit.capacity_bytes / machines.GIB:.0f} GiB",
        "–" if fit.oom_chance is None else format_risk(fit.oom_chance),
        format_count(fit.tokens_per_s),
        f"{fit.sequence:,}",
        fit.node,
    )


def _time(hours: float, like: float | None = None) -> str:
    return format_seconds(3600.0 * hours, None if like is None else 3600.0 * like)


def _interval(fit: FittingTraining, like: float | None = None) -> str:
    if fit.hours_low is None or fit.hours_high is None:
        return ""
    return f"{_time(fit.hours_low, like)} to {_time(fit.hours_high, like)}"


def _chart(names: Sequence[str], fits: Sequence[FittingTraining], chosen: FittingTraining) -> Iterator[Chart]:
    """Every fit over the axes in which they differ; none where they differ in one at most."""
    short = max(fit.hours for fit in fits) < 48.0
    titles = HOURS if short else AXES
    values: list[dict[str, object]] = []
    for place, (name, fit) in enumerate(zip(names, fits, strict=True)):
        kind = "recommended" if fit is chosen else "fits"
        values.append({"id": f"fit-{place}", "label": name, "kind": kind, **_figures(fit, 1.0 if short else 24.0)})
        if fit is chosen or fit.best:
            values[-1]["name"] = ", ".join([name, *fit.best])
    axes = {axis: title for axis, title in titles.items() if len({value.get(axis) for value in values}) > 1}
    if len(axes) > 1:
        rows = [(str(value["label"]), *(str(value.get(f"{axis}_text", "–")) for axis in axes)) for value in values]
        summary = "Lower is better on each axis but parameters. Lines: 80 % of each prediction."
        spec = vega_lite.points(values, axes, ("recommended", "fits"))
        yield Chart("Trade-offs", summary, spec, TextTable("What fits, in figures", ("what", *axes.values()), rows))


def _figures(fit: FittingTraining, unit_hours: float) -> dict[str, object]:
    """Figures of the axes and each as read; times in so many hours."""
    gib = fit.memory_bytes / machines.GIB
    priced = {} if fit.usd is None else {"usd": fit.usd, "usd_text": format_usd(fit.usd)}
    known = {"days": fit.hours, "days_low": fit.hours_low, "days_high": fit.hours_high}
    return {
        **{name: hours / unit_hours for name, hours in known.items() if hours is not None},
        "days_text": _time(fit.hours),
        "accelerators": fit.accelerators,
        "accelerators_text": f"{fit.accelerators:,}",
        "billions": fit.parameters / 1e9,
        "billions_text": format_count(fit.parameters),
        "gib": gib,
        "gib_text": f"{gib:.1f} GiB",
        **priced,
    }


def _of_one(fits: Sequence[FittingTraining]) -> Iterator[KeyFigure]:
    """The cheapest, the fastest and the fewest."""
    for name in ("cheapest", "fastest", "fewest"):
        for fit in fits:
            if name not in fit.best:
                continue
            usd = "no such price in the catalog" if fit.usd is None else format_usd(fit.usd)
            value = {"cheapest": usd, "fastest": _time(fit.hours), "fewest": f"{fit.accelerators:,}"}[name]
            what = "accelerator" if fit.accelerators == 1 else "accelerators"
            within = f", 80 %: {_interval(fit)}" if _interval(fit) else ""
            about = {"cheapest": f", {_time(fit.hours)}", "fastest": within, "fewest": f", {_time(fit.hours)}"}[name]
            yield KeyFigure(value, f"{what} at least" if name == "fewest" else f"the {name}", _machines(fit) + about)


def _of_machines(fits: Sequence[FittingTraining]) -> Iterator[KeyFigure]:
    """The largest model, the longest sequence and the most tokens a second."""
    largest = max(fits, key=lambda fit: fit.parameters)
    longest = max(fits, key=lambda fit: fit.sequence)
    quickest = max(fits, key=lambda fit: fit.tokens_per_s)
    yield KeyFigure(format_count(largest.parameters), "parameters of the largest", largest.model)
    yield KeyFigure(f"{longest.sequence:,}", "tokens of the longest sequence", longest.model)
    yield KeyFigure(format_count(quickest.tokens_per_s), "tokens/s of the fastest", quickest.model)
