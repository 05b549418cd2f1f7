"""Question files are read by their types: whatever stands at a key, it is a question or a message with that key."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from planner.base.errors import WrongQuestion
from planner.base.typed import Misfit, keeps, keys, missing, reads, record, wrong
from planner.catalog import Catalog, load
from planner.catalog.files import TomlDocument
from planner.procurement.question import reading as portfolios
from planner.question.typed_file import TypedFile
from planner.question.values import TABLE
from planner.study.question import reading as studies
from tests.sweeps import sweep
from tests.words import worded

ODD = [1.5, True, "", "x", [], {}, [1], ["x"], {"a": 1}, [{}], [[1]], float("nan"), "60 d", "$5M"]
STUDY = """
base = { node = "dgx-h100", count = 1 }
axes = { "accelerator.memory" = ["24 GiB", "48 GiB"] }
workloads = [{ model = "llama3-8b" }]
constraints = [{ of = "power", at_most = "1 MW" }]
costs = { accelerator = "$3,000", per = {}, ownership = {} }
power = {}
"""
PORTFOLIO = """
currency = "USD"
as_of = "2026-11-20"
horizon = "12 months"
exchange = {}
limits = {}
workloads = [{ model = "llama3-8b" }]
candidates = [{ node = "p5.48xlarge", ways = ["on-demand"] }, { node = "p4de.24xlarge", ways = ["spot"] }]
owned = [{ node = "dgx-a100-80gb", count = 2 }]
mixed = [{ pools = ["p4de.24xlarge", "own dgx-a100-80gb"] }]
ownership = {}
hall = {}
reliability = {}
"""
OF_A_STUDY = {
    "": keys(studies.StudyTable),
    "base": keys(studies.Base),
    "axes": ["accelerator.memory", "node", "fabric.oversubscription", "cluster.count"],
    "workloads": keys(studies.WorkloadTable),
    "constraints": keys(studies.LimitTable),
    "costs": keys(studies.CostsTable),
    "costs.per": ["accelerator.memory", "node.nics"],
    "power": ["accelerator.memory"],
}
OF_A_PORTFOLIO = {table: each for table, each in portfolios.KEYS.items() if table != "candidates.price"}


@cache
def catalog() -> Catalog:
    return load()


def changed(text: str, table: str, key: str, value: Any) -> TomlDocument:
    """The file with another value at one key of a table (the first, of several)."""
    if table == "workloads.step":
        text = text.replace('"llama3-8b" }', '"llama3-8b", task = "grpo", step = { response = "1k/2k" } }')
    data = tomllib.loads(text)
    place: Any = data
    for part in filter(None, table.split(".")):
        place = place[part][0] if isinstance(place[part], list) else place[part]
    place[key] = value
    return TomlDocument(Path("question.toml"), text, data)


@sweep(
    ("text", "table"), [(STUDY, name) for name in OF_A_STUDY] + [(PORTFOLIO, name) for name in OF_A_PORTFOLIO], every=3
)
def test_a_value_of_any_type_is_read_or_told(text: str, table: str) -> None:
    tables = OF_A_STUDY if text == STUDY else OF_A_PORTFOLIO
    for key in tables[table]:
        for value in ODD:
            document = changed(text, table, key, value)
            try:
                if text == STUDY:
                    studies.study(document, catalog())
                else:
                    portfolios.portfolio(TypedFile(document=document), catalog())
            except WrongQuestion as told:
                lines = str(told).splitlines()
                assert all(line.startswith("question.toml") for line in lines), (key, value, lines)
                assert "Input should" not in str(told), "pydantic's words are not the user's"


# ---- the reader itself -----------------------------------------------------------------------------------------------


def _shout(text: str) -> str:
    if not text.isupper():
        raise ValueError(f"{text!r}: must shout")
    return text


@dataclass(frozen=True, kw_only=True)
class Inner:
    __pydantic_config__ = TABLE

    words: Annotated[str, reads(_shout), Field(alias="said"), missing('write said = "HO"')]


def _not_two(outer: Outer) -> Any:
    if len(outer.inner) == 2:
        yield "inner", "not two"


@dataclass(frozen=True, kw_only=True)
class Outer:
    __pydantic_config__ = TABLE

    inner: tuple[Inner, ...] = ()
    name: Annotated[int, Field(ge=1)] = 1


@dataclass(frozen=True, kw_only=True)
class File:
    __pydantic_config__ = TABLE

    outer: Annotated[Outer, keeps(_not_two)]


@worded("typed_file", read=json.loads)
def test_a_problem_has_its_key_and_what_to_do(table: Any) -> str:
    with pytest.raises(Misfit) as told:
        record(File, table)
    (found,) = told.value.found
    return f"{found.where}: {found.reason}"


def test_every_problem_is_found() -> None:
    with pytest.raises(Misfit) as told:
        record(File, {"outer": {"name": "x", "inner": [{"said": "ho"}, {}]}, "more": 1})
    assert len(told.value.found) == 4


def test_a_flag_is_blamed_for_what_it_said() -> None:
    file = TypedFile(document=changed(STUDY, "", "trials", 0), flags={("trials",): "--trials"})
    with file.noting():
        raise wrong("too few", "trials")
    with pytest.raises(WrongQuestion, match=r"^--trials: too few$"):
        file.done()
