"""The page of shares of images: images of each pool, and where the step goes."""

from __future__ import annotations

from collections.abc import Mapping

from planner.base.units import format_bytes, format_count
from planner.report import charts, plans
from planner.report.blocks import Chart, Content, Lines, Section, TextTable
from planner.report.quantities import seconds
from planner.schema.images import ImagePlan


def of_images(found: ImagePlan, origin: str) -> Content:
    """Images of each pool, and where the step goes."""
    even = [] if found.even_step_s is None else [f"{seconds(found.even_step_s)} a step with the same share for all"]
    lines = [
        ("Speed", [f"{seconds(found.step_time_s)} a step, {format_count(found.images_per_s)} images/s"]),
        ("Even", even),
        ("Not used", list(found.left_out)),
        ("Runtime", [f"{found.runtime} {found.release}, {found.precision}, batch {found.batch:,} images"]),
    ]
    shares = [
        {"row": pool.name, "part": "images", "value": pool.images, "text": f"{pool.images:,} images"}
        for pool in found.pools
    ]
    rows = [
        (p.name, f"{p.accelerators:,} x {p.accelerator}", f"{p.images:,}", f"{p.fewest:,} to {p.most:,}",
         f"{format_bytes(p.memory_bytes)} of {format_bytes(p.capacity_bytes)}")
        for p in found.pools
    ]  # fmt: skip
    table = TextTable("Shares of the batch", ("pool", "accelerators", "images", "of each", "memory"), rows)
    chart = Chart("Images of a step", "Of each pool.", charts.bars(shares, "images", ["images"]), table)
    return Content(
        found.title(),
        origin,
        [
            Section("Recommendation", (Lines([each for each in lines if each[1]]), table)),
            Section("Shares", (chart, _causes(found.breakdown))),
            Section("Assumptions", (plans.assumed(found.assumptions),)),
        ],
    )


def _causes(breakdown: Mapping[str, float]) -> Chart:
    values = [{"row": cause, "part": "time", "value": t, "text": seconds(t)} for cause, t in breakdown.items()]
    table = TextTable("A step, by cause", ("cause", "time"), [(cause, seconds(t)) for cause, t in breakdown.items()])
    return Chart("A step, by cause", "Of the slowest accelerator.", charts.bars(values, "seconds", ["time"]), table)
