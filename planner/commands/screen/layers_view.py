"""A model's layers as table rows and as a JSON document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.base import units
from planner.cost.operators import Collective, Operator, Pass
from planner.launchers.astra_sim import TextWorkload
from planner.planning.by_layer import Layered, LayerOptions

HEADERS = ["layer", "times", "FLOPs", "bytes", "FLOP/B", "bound", "forward", "input grad", "weight grad", "collectives"]
ALIGN = "lrrrrlrrrl"
PRIORITY = ["FLOP/B", "times", "bound", "bytes", "FLOPs"]
"""Columns that a narrow terminal loses first."""
SHORT = {"all-reduce": "AR", "gather-scatter": "AG+RS", "all-to-all": "A2A"}


def heading(found: Layered, asked: LayerOptions) -> list[str]:
    """What is shown, on what."""
    degrees = " ".join(f"{k.upper()}{getattr(asked, k)}" for k in ("tp", "ep", "dp") if getattr(asked, k) > 1)
    unit = found.unit if found.micro > 1 else found.unit.removesuffix("s")
    return [
        f"{found.model} ({found.family}), {found.micro:,} {unit} on one rank{f' of {degrees}' if degrees else ''}",
        f"{asked.node}, {asked.precision}; FLOPs and bytes of the forward pass, seconds of each pass",
    ]


def rows(found: Layered) -> list[list[str]]:
    """One line a layer."""
    return [_row(found, layer) for layer in found.layers]


def bound(found: Layered, each: Pass) -> str:
    """The nearer roof: ``bytes / memory rate`` against ``FLOPs / matrix rate``."""
    if not each.seconds:
        return "-"
    waiting = each.moved / float(found.device.memory_rate)
    return "memory" if waiting >= each.flops / float(found.device.matrix_rate) else "compute"


def _row(found: Layered, layer: Operator) -> list[str]:
    first = layer.forward
    return [
        layer.name,
        f"{layer.count:g}",
        units.format_count(first.flops) if first.flops else "-",
        units.format_bytes(first.moved) if first.moved else "-",
        f"{first.flops / first.moved:,.0f}" if first.flops and first.moved else "-",
        bound(found, first),
        *(units.format_seconds(each.seconds) if each.seconds else "-" for each in layer.passes),
        "  ".join(
            _collective(found, way, each.collective)
            for way, each in zip("fiw", layer.passes, strict=True)
            if each.collective
        )
        or "-",
    ]


def _collective(found: Layered, way: str, c: Collective | None) -> str:
    assert c is not None
    return f"{way}: {SHORT[c.kind]} {c.group} {units.format_bytes(c.size)} {units.format_seconds(found.exchange(c))}"


def totals(found: Layered) -> dict[str, float]:
    """Sums over all layers, as often as they stand in the model."""
    ways = ("forward", "inward", "weight")
    seconds = {way: sum(x.count * getattr(x, way).seconds for x in found.layers) for way in ways}
    every = [(x.count, each) for x in found.layers for each in x.passes]
    return {
        "flops": sum(n * each.flops for n, each in every),
        "bytes": sum(n * each.moved for n, each in every),
        "forward_s": seconds["forward"],
        "input_gradient_s": seconds["inward"],
        "weight_gradient_s": seconds["weight"],
        "collectives_s": sum(n * found.exchange(each.collective) for n, each in every if each.collective),
    }


def closing(found: Layered) -> list[tuple[str, str]]:
    """Label and line: the totals, and what the abbreviations mean."""
    t = totals(found)
    seconds = units.format_seconds
    each = f"forward {seconds(t['forward_s'])}, input gradients {seconds(t['input_gradient_s'])}"
    return [
        (
            "Total",
            f"{units.format_count(t['flops'])}FLOP, {units.format_bytes(t['bytes'])}: {each}, "
            f"weight gradients {seconds(t['weight_gradient_s'])}",
        ),
        ("", f"collectives, one after the other: {seconds(t['collectives_s'])}"),
        (
            "Legend",
            "f forward, i input gradient, w weight gradient; AR all-reduce, AG+RS gather, scatter; A2A all-to-all",
        ),
    ]


def document(found: Layered, asked: LayerOptions) -> dict[str, Any]:
    """Everything, as JSON. SI units."""
    return {
        "kind": "model-layers",
        "schema_version": 1,
        "model": found.model,
        "family": found.family,
        "unit": found.unit,
        **(asdict(asked) | {"micro": found.micro}),
        "layers": [
            {
                "name": layer.name,
                "count": layer.count,
                "forward": _pass(found, layer.forward),
                "input_gradient": _pass(found, layer.inward),
                "weight_gradient": _pass(found, layer.weight),
            }
            for layer in found.layers
        ],
        "total": totals(found),
    }


def _pass(found: Layered, each: Pass) -> dict[str, Any]:
    c = each.collective
    exchanged = {"kind": c.kind, "group": c.group, "bytes": c.size, "seconds": found.exchange(c)} if c else None
    return {
        "flops": each.flops,
        "bytes": each.moved,
        "seconds": each.seconds,
        "bound": bound(found, each),
        "collective": exchanged,
    }


# ---- ASTRA-sim's text workloads --------------------------------------------------------------------------------------

TEXT_HEADERS = ["layer", "forward", "input grad", "weight grad", "collectives"]


def text_rows(found: TextWorkload) -> list[list[str]]:
    """One line a layer."""
    rows = []
    for row in found.rows:
        calls = [
            f"{way}: {each.collective} {units.format_bytes(each.size)}"
            for way, each in zip("fiw", row.passes, strict=True)
            if each.size
        ]
        rows.append([row.name, *(units.format_seconds(each.seconds) for each in row.passes), "  ".join(calls) or "-"])
    return rows


def text_document(found: TextWorkload) -> dict[str, Any]:
    """Everything, as JSON."""
    return {"kind": "text-workload", "schema_version": 1, "loop": found.loop, "layers": [asdict(r) for r in found.rows]}
