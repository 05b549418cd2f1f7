"""Which figure of a machine the next dollar goes into, as tables of a study's answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from planner.base.units import format_usd
from planner.report import quantities
from planner.schema.study import FigurePerDollar, StudyResult

PAYS = (
    "pays: a token costs less. Each figure is a tenth more by itself, with which other plans may fit than with 1 % more"
)


IN_DOLLARS = ("cost", "performance-per-dollar", "capital")
"""Objectives and limits that are of money."""


def unpriced(answer: StudyResult) -> str:
    """That no figure of a question of money has a rate, so that the most of each wins; empty where any has one."""
    asked = answer.question
    figures = [axis.path for axis in asked.axes if axis.ordered and axis.unit]
    rated = {rate["path"] for rate in asked.costs.get("rates", ())}
    of_money = {*asked.objectives, *(limit.get("of") for limit in asked.constraints)} & {*IN_DOLLARS}
    if not figures or not of_money or rated & {*figures}:
        return ""
    bought = asked.costs["basis"] == "purchase"
    rates = ", ".join(path if path.replace("_", "").isalnum() else f'"{path}"' for path in figures)
    where = "[costs.per]" if bought else '[costs.per], with basis = "purchase" in [costs]'
    return f"no figure is priced: more costs nothing here, so that the most wins; state dollars in {where} for {rates}"


def edges(answer: StudyResult, names: Mapping[str, str]) -> str:
    """Axes of several numbers on which the best point has the least (unless it is 1, of which there is no less) or the
    most of them; empty where there are none.
    """
    ends = []
    for axis in answer.question.axes if answer.best else ():
        value = answer.best[0].axes[axis.path]
        if axis.ordered and len(axis.values) > 1 and value in (axis.values[0], axis.values[-1]) and value != 1:
            ends.append(f"{names[axis.path]} ({'least' if value == axis.values[0] else 'most'})")
    return f"at the end of what was tried: {', '.join(ends)}; beyond it may be better still" if ends else ""


class PerDollarTable(NamedTuple):
    """A table of figures, each raised by itself."""

    headers: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(answer: StudyResult, names: Mapping[str, str], units: Mapping[str, str]) -> Iterator[PerDollarTable]:
    """From the base up, and from the best point.

    Args:
        answer: Of the study.
        names: Axis -> what it is called.
        units: Axis -> its unit.
    """
    paid = "capital" if answer.question.costs["basis"] == "purchase" else "an hour"
    for at, where in (("base", f"from {answer.question.base['node']} up"), ("best", "from the best")):
        figures = [figure for figure in answer.per_dollar or () if figure.at == at]
        rows = [_row(figure, names[figure.axis], units[figure.axis]) for figure in figures]
        if rows:
            yield PerDollarTable(
                (where, "one figure more", "step", paid, f"step for +1 % of {paid}", "a token", ""), rows
            )


def _row(figure: FigurePerDollar, name: str, unit: str) -> tuple[str, ...]:
    ratio = figure.per_percent
    return (
        name,
        f"{quantities.axis(figure.start, unit)} -> {quantities.axis(figure.value, unit)}",
        f"{100 * figure.step:+.1f} %",
        f"{'+' if figure.usd >= 0 else '-'}{format_usd(abs(figure.usd))}",
        "no price stated" if ratio is None else f"{ratio:+.2f} %",
        f"{100 * figure.token:+.1f} %",
        "pays" if ratio is not None and figure.token < 0.0 else "",
    )
