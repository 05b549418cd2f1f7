"""The fewest accelerators of an RL post-training, as a table under one answer."""

from __future__ import annotations

from planner.base.units import format_bytes, format_seconds
from planner.commands.screen import render
from planner.schema.rl import PLACED
from planner.schema.rl_fit import FittingStep, FittingSteps


def show(fits: FittingSteps, again: str) -> None:
    """The answer, and a row for each kind of accelerator.

    Args:
        fits: What fits.
        again: The question as flags of ``plan``.
    """
    work = fits.work
    wanted = "" if fits.step_time_s is None else f"; {format_seconds(fits.step_time_s)} a step at most"
    render.text(
        f"{work.task.upper()} of {work.model}: {work.prompts:,} prompts x {work.samples} responses of "
        f"{work.response_mean:,.0f} tokens (at most {work.response_cap:,.0f}){wanted}"
    )
    render.text()
    for step in fits.fits:
        if "fewest" in step.best or "cheapest" in step.best:
            render.labelled("Fewest" if "fewest" in step.best else "Cheapest", *_summary(step))
    render.text()
    headers = ["accelerator", "count", "step", "a step", "placement", "memory", "holds from", "", "node"]
    rows = [
        [
            step.accelerator,
            f"{step.accelerators:,}",
            format_seconds(step.step_s),
            _usd(step),
            PLACED[step.placement],
            f"{format_bytes(step.memory_bytes)} / {format_bytes(step.capacity_bytes)}",
            f"{step.holds_from:,}",
            " ".join(step.best),
            step.node,
        ]
        for step in fits.fits
    ]
    render.table(headers, rows, align="lrrrlrrll", priority=["node", "memory", "placement"])
    render.text()
    if fits.fits_none:
        render.labelled("Not", f"up to {fits.most:,} of {', '.join(fits.fits_none)}")
    first = fits.fits[0]
    render.labelled("Next", f"clusterwright plan {work.model} --cluster {first.node}:{first.nodes} {again} says how, "
                    "on whole nodes")  # fmt: skip


def _summary(step: FittingStep) -> list[str]:
    together = step.placement == "colocated"
    split = "colocated" if together else f"{step.trains:,} train, {step.rolls_out:,} roll out"
    part = "in one" if step.nodes == 1 else f"{step.nodes:,} x"
    interval = f"80 %: {format_seconds(step.step_low_s)} to {format_seconds(step.step_high_s)}"
    below = "" if step.below is None else f"; {step.below:,} are too few"
    money = "no price in the catalog" if step.usd_per_step is None else f"{_usd(step)} a step"
    return [
        f"{step.accelerators:,} x {step.accelerator} ({part} {step.node}), {split}{below}",
        f"{format_seconds(step.step_s)} a step ({interval}), {money}",
    ]


def _usd(step: FittingStep) -> str:
    return "-" if step.usd_per_step is None else f"${step.usd_per_step:,.2f}"
