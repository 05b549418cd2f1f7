"""``clusterwright fit``."""

from __future__ import annotations

from typing import Any

import click

from planner.commands import completion_values, options
from planner.question.asked_plans import FitQuestion, PlanOptions


@click.command()
@click.argument("model", required=False, shell_complete=completion_values.models)
@options.declared(FitQuestion, ("on", "catalog"))
@options.json("Print JSON.")
def fit(model: str | None, on: str | None, most: int, as_json: bool, **asked: Any) -> None:
    """Which accelerators hold a fine-tuning of MODEL, or which models fit on the accelerators you have.

    Of every accelerator of the catalog, the fewest that hold it, with the rent of the run; the fewest, cheapest and
    fastest of all are marked. With --on, the largest models that fit, and how long their sequences may be.

    \b
      clusterwright fit llama3-8b --method qlora --seq 4k
      clusterwright fit --on RTX-4090:1
      clusterwright fit llama3-70b --on RTX-PRO-6000-Blackwell:2
    """  # noqa: D301 - click reads the control character itself
    from planner.api import what_fits
    from planner.commands.screen import fit_view, render

    found = what_fits.fits(model, on, PlanOptions(**asked), most, None if as_json else render.progress)
    if as_json:
        render.json(fit_view.document(found))
    else:
        fit_view.show(found, on, asked)
