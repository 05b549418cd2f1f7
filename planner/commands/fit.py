"""``clusterwright fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import completion_values, question_options


@click.command()
@click.argument("model", required=False, shell_complete=completion_values.models)
@click.option(
    "--on",
    metavar="KIND:N",
    shell_complete=completion_values.accelerators,
    help="Accelerators to fit on: RTX-4090:2; without it, all of the catalog.",
)
@question_options.method(default="qlora", help=question_options.WHAT)
@question_options.task
@question_options.lengths
@click.option("--seq", metavar="N", help="Tokens per sequence (default: 4k; with --on, the longest that fit).")
@click.option("--batch", type=int, metavar="N", help="Sequences of a step (default: 16, or the next multiple).")
@click.option("--tokens", metavar="N", help="Tokens to train on (default: 10M).")
@click.option("--rank", type=int, metavar="R", help="LoRA rank.")
@click.option(
    "--optimizer",
    default="adamw",
    show_default=True,
    metavar="ID",
    shell_complete=completion_values.optimizers,
    help="Optimizer: adamw, muon, adam-8bit, paged-adamw, paged-adam-8bit, adafactor, sgd-momentum, sgd.",
)
@click.option(
    "--runtime",
    metavar="ID[@RELEASE]",
    shell_complete=completion_values.runtimes,
    help="Training framework (default: the method's).",
)
@click.option("--precision", metavar="P", help="bf16, fp16, fp8, ... (default: 16 bit).")
@click.option("--oom-risk", default="5 %", show_default=True, metavar="SHARE", help="Highest OOM probability.")
@click.option("--most", type=int, default=8, show_default=True, metavar="N", help="Accelerators tried together.")
@click.option("--top", type=int, default=10, show_default=True, metavar="K", help="Models to list (--on).")
@click.option(
    "--catalog", type=click.Path(path_type=Path), metavar="DIR", help="Your own hardware, added to the catalog."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
    from planner.question.reading import PlanOptions

    found = what_fits.fits(model, on, PlanOptions(**asked), most, None if as_json else render.progress)
    if as_json:
        render.json(fit_view.document(found))
    else:
        fit_view.show(found, on, asked)
