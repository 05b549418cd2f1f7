"""Shares of images on one screen."""

from __future__ import annotations

from pathlib import Path

from planner.base.units import format_bytes, format_count, format_percent, format_seconds
from planner.commands.screen import render
from planner.commands.screen.hand_over import hand_over
from planner.schema.images import ImagePlan, ImagePool


def deliver(found: ImagePlan, *, as_json: bool, output: Path | None) -> None:
    """Prints the report or the document, and writes the document where asked."""
    where = f"of_plan({str(output)!r})" if output else "of_plan reads it from -o FILE"
    shares = f"planner.rebalancing.shares gives the images of each rank: {where}"
    after = f"{shares}; UnevenBatches trains with them (docs/mixed.md)"
    hand_over(found, show, as_json=as_json, output=output, after=after)


def show(found: ImagePlan) -> None:
    """The whole report."""
    render.text(
        f"{found.name}, {found.batch:,} images a step, data parallel in {found.precision} "
        f"({found.runtime} {found.release})"
    )
    render.text()
    _expected(found)
    render.text()
    rows = [
        [f"{p.accelerators:,} x {p.accelerator}", f"{p.count:,} x {p.name}", _each(p), f"{p.images:,}",
         format_bytes(p.memory_bytes), format_percent(p.memory_bytes / p.capacity_bytes, 0)]
        for p in found.pools
    ]  # fmt: skip
    headers = ["accelerators", "in", "per-GPU batch", "total", "memory/GPU", "of it"]
    render.table(headers, rows, align="llrrrr", priority=["of it"])
    render.text()
    parts = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in found.breakdown.items())
    render.labelled("Step time", f"{format_seconds(found.step_time_s)}: {parts}")
    if gain := _gain(found):
        render.labelled("Gain", gain)
    if found.left_out:
        render.labelled("Excluded", f"{', '.join(found.left_out)}: they would not shorten the step")
    render.labelled(
        "Search",
        "optimum over every subset of whole pools, in whole images; input loading and decoding are not modelled",
    )
    if found.assumptions:
        render.labelled("Assumes", ", ".join(f"{a.what} ({a.flag})" for a in found.assumptions))


def _expected(found: ImagePlan) -> None:
    """The shares to run with and what to expect of them."""
    shares = ", ".join(f"{_each(p)} on {p.accelerators:,} x {p.accelerator}" for p in found.pools)
    render.labelled("Configuration", f"per-GPU batch {shares}")
    render.labelled("Speed", f"{format_seconds(found.step_time_s)} a step, {format_count(found.images_per_s)} images/s")
    fullest = max(found.pools, key=lambda p: p.memory_bytes / p.capacity_bytes)
    held, whole = fullest.memory_bytes / 2**30, fullest.capacity_bytes / 2**30
    render.labelled("Fits", f"in {held:.1f} of {whole:.0f} GiB on the fullest, {fullest.accelerator}")
    part, seconds = max(found.breakdown.items(), key=lambda item: item[1])
    render.labelled("Bottleneck", f"{part} ({format_percent(seconds / found.step_time_s, 0)} of the step)")
    render.labelled("Cost", "not estimated: a run of so many images has no length here")
    render.labelled("Confidence", "unknown: no interval is fitted for convolutional networks")
    render.labelled(
        "Launchers", "a script of your own (Next): export has no target for images. A pool is taken whole or not at all"
    )


def _each(p: ImagePool) -> str:
    return f"{p.fewest:,}" if p.fewest == p.most else f"{p.fewest:,}-{p.most:,}"


def _gain(found: ImagePlan) -> str:
    """Against an even split over all pools and against the best pool alone, where there are several."""
    if len(found.pools) + len(found.left_out) < 2:
        return ""
    compared = []
    for what, seconds in (
        ("an even split over all pools", found.even_step_s),
        (f"{found.best_pool} alone", found.best_pool_step_s),
    ):
        if seconds is None:
            compared.append(
                f"{what if found.best_pool or 'even' in what else 'one pool alone'} does not hold the batch"
            )
        elif seconds > found.step_time_s:
            compared.append(
                f"{format_percent(1 - found.step_time_s / seconds)} shorter than {what} ({format_seconds(seconds)})"
            )
    return ", ".join(compared)
