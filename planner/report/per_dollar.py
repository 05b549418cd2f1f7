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
