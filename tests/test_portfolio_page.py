"""docs/portfolio.md holds every key that the reader knows, and what it says of each is so."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog, load
from planner.catalog.files import TomlDocument
from planner.procurement.question import reading
from planner.procurement.question.portfolio import Portfolio
from planner.question.typed_file import TypedFile
from tests.sweeps import sweep

PAGE = Path(__file__).resolve().parent.parent / "docs" / "portfolio.md"
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \| (.+?) \| .+ \|$", re.MULTILINE)
TABLES = ("exchange", "limits", "workloads", "candidates", "owned", "mixed", "ownership", "hall", "reliability")
BASE = """
currency = "EUR"
as_of = "2026-11-20"
horizon = "12 months"
exchange = { usd = 1.1, date = "2026-11-20" }
workloads = [{ model = "llama3-8b" }]
candidates = [{ node = "p5.48xlarge", ways = ["on-demand"] }, { node = "p4de.24xlarge", ways = ["spot"] }]
owned = [{ node = "dgx-a100-80gb", count = 2 }]
mixed = [{ pools = ["p4de.24xlarge", "own dgx-a100-80gb"] }]
"""
NEEDS: dict[tuple[str, str], dict[str, Any]] = {
    ("workloads", "rank"): {"method": "lora"},
    ("workloads", "task"): {"method": "finetune"},
    ("workloads", "restart"): {"interruptible": True},
    ("candidates", "wirings"): {"node": "hgx-h100", "ways": ["buy"]},
    ("workloads", "imbalance"): {"model": "mixtral-8x7b"},
    ("mixed", "latency"): {"link": "100 Gbit/s"},
}
"""What else must be said for a key to have a meaning."""


def listed() -> dict[str, dict[str, tuple[str, str]]]:
    """Table -> key -> its example and its default, as the page has them."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for section in re.split(r"^#{2,4} ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title = section.splitlines()[0].strip("`[]")
        name = {"The question": "", "price": "candidates.price", "step": "workloads.step"}.get(title, title)
        found[name] = {key: (example, default) for key, example, default in ROW.findall(section)}
    return found


@cache
def catalog() -> Catalog:
    return load()


def read(table: str, values: dict[str, Any]) -> Portfolio:
    """The plain portfolio with some keys of a table set."""
    data = tomllib.loads(BASE)
    place: dict[str, Any] = data
    for part in filter(None, table.split(".")):
        inner = place.setdefault(part, {})
        place = inner[0] if isinstance(inner, list) else inner
    if table == "candidates.price":
        place |= {"amount": "50 EUR/h", "date": "2026-11-01"}
    if table == "workloads.step":
        data["workloads"][0] |= {"model": "llama3.1-8b", "task": "ppo" if "critic" in values else "grpo"}
        place |= {"response": "1k/4k"}
    place |= values
    return reading.portfolio(TypedFile(document=TomlDocument(PAGE, "", data)), catalog())


def literal(text: str) -> Any:
    """The value of a TOML literal in code type; None for words."""
    inside = re.fullmatch(r"`(.*)`", text)
    return None if inside is None else tomllib.loads(f"x = {inside[1]}")["x"]


KEYS = [(table, key) for table, keys in listed().items() for key in keys]


def test_the_page_and_the_reader_know_the_same_keys() -> None:
    assert {table: set(keys) for table, keys in listed().items()} == {
        table: set(keys) for table, keys in reading.KEYS.items()
    }


@sweep(("table", "key"), KEYS)
def test_every_example_is_accepted_and_every_default_is_one(table: str, key: str) -> None:
    example, default = listed()[table][key]
    if (table == "" and key in TABLES) or key in ("price", "step"):
        assert literal(example) is None
        return
    needs = NEEDS.get((table, key), {})
    given = read(table, needs | {key: literal(example)})
    without = read(table, needs)
    said = literal(default)
    if said is not None:
        assert read(table, needs | {key: said}) == without
        assert said != literal(example)
    if (table, key) not in {("", "currency"), ("", "horizon"), ("", "as_of")} and default != "none: it must be said":
        assert given != without, "the example changes nothing"


def test_a_key_that_is_not_on_the_page_is_refused() -> None:
    for table in listed():
        with pytest.raises(WrongQuestion, match=r"unknown key|write price"):
            read(table, {"surprise": 1})
