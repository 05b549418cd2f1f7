"""A small lab that asks what to buy or rent: one portfolio with places to change it, and its answers, kept."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.planning import document
from planner.procurement import run
from planner.procurement.question import reading
from planner.procurement.run import Depth
from planner.schema.procurement import Procurement
from planner.verify import procurement as verify

LAB = """
name = "lab"
currency = "USD"
as_of = "2026-11-20"
horizon = "6 months"
{top}
[limits]
budget = "$6M"
power = "400 kW"
{limits}
[[workloads]]
name = "base"
model = "llama3-8b"
tokens = "200B"
deadline = "90 d"
{job}
[[workloads]]
name = "tuned"
model = "llama3-8b"
method = "lora"
rank = 16
tokens = "2B"
{second}
[[candidates]]
node = "hgx-h100"
ways = ["buy"]
counts = [1, 2, 4]
wirings = ["rail-optimised", "fat-tree 2:1"]
{candidate}
[[candidates]]
node = "p5.48xlarge"
ways = ["on-demand", "spot"]
counts = [1, 2, 4, 8]
{tail}
"""


PARTS = ("top", "limits", "job", "second", "candidate", "tail")


def lab(folder: Path, **parts: str) -> Path:
    path = folder / "lab.toml"
    path.write_text(LAB.format(**{part: parts.get(part, "") for part in PARTS}), encoding="utf-8")
    return path


@cache
def answered(folder: Path, **parts: str) -> Procurement:
    known = load()
    return run.procure(known, reading.read(lab(folder, **parts), known), depth=Depth(top=3))


def _leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything that is no table, training plans left out: those have a fuzzer of their own."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if key != "plan" and isinstance(value, dict | list) and value:
            yield from _leaves(value, (*path, key))
        elif key != "plan":
            yield (*path, key)


def nothing_breaks_its_second_opinion(offer: Procurement, at_least: int) -> None:
    """Breaks 150 places of an offer, one at a time: each is told or refused, and none raises."""
    whole = json.dumps(document.dump(offer))
    leaves = [leaf for leaf in _leaves(json.loads(whole)) if leaf[0] not in ("meta", "generator")]
    r, told = random.Random(5), 0
    for path in r.sample(leaves, 150):
        data = json.loads(whole)
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        old = inner[path[-1]]
        inner[path[-1]] = (
            r.choice(["", "nonsense"]) if isinstance(old, str) else r.choice([0, -1, 10**9]) if isinstance(old, int)
            else r.choice([0.0, -1.0, 1e300]) if isinstance(old, float) else []
        )  # fmt: skip
        try:
            parsed = document.parse(data, "offer.json")
        except WrongQuestion:
            continue
        assert isinstance(parsed, Procurement)
        told += bool(verify.violations(parsed))
    assert told > at_least
