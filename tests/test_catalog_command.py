"""``clusterwright catalog`` as it is typed."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner.base.errors import WrongQuestion
from planner.catalog import FOLDERS, load
from planner.commands.catalog import catalog
from planner.commands.screen import catalog_view, typeset
from tests.sweeps import sweep

LAB = """
[lab]
extends = "dgx-h100"
name = "Lab"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own" / "nodes").mkdir(parents=True)
    (tmp_path / "own" / "nodes" / "lab.toml").write_text(LAB)
    return tmp_path / "own"


AS_IN_THE_PROGRAM: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""A command keeps the names of its help option from its first call in a process."""


def run(*args: str) -> Result:
    return CliRunner().invoke(catalog, list(args), **AS_IN_THE_PROGRAM)


def lines(*args: str) -> list[list[str]]:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.output.splitlines()]


def test_the_overview_counts_and_names_what_is_yours(own: Path) -> None:
    built_in = len(load().nodes)
    told = [line for line in lines("list", "--catalog", str(own)) if line[:1] == ["nodes"]]
    assert ["nodes", str(built_in + 1), str(built_in), "1"] in told
    assert f"yours: node lab ({own}/nodes/lab.toml)" in run("list", "--catalog", str(own)).output
    assert "yours:" not in run("list").output


@sweep("kind", [*FOLDERS, "accelerator", "collective_efficiency"])
def test_a_list_starts_with_ids_and_ends_with_origins(kind: str) -> None:
    header, *rows = lines("list", kind)
    assert header[0] == "id" and header[-1] == "from"
    assert len(rows) >= 5 and all(row[-1] == "built-in" for row in rows)
    assert [row[0].lower() for row in rows] == sorted(row[0].lower() for row in rows)


def test_a_narrow_list_of_nodes_has_their_prices() -> None:
    headers, align, row = catalog_view.table("nodes")
    rows = [row(node) for node in load().nodes.values()]
    narrow = typeset.table(headers, rows, align=align, priority=catalog_view.PRIORITY["nodes"], width=80)
    assert narrow.hidden == ["fabric"]


def test_a_list_says_where_an_entry_comes_from(own: Path) -> None:
    rows = {row[0]: row for row in lines("list", "nodes", "--catalog", str(own))[1:]}
    assert rows["lab"][-1] == f"{own}/nodes/lab.toml"
    assert rows["dgx-h100"][-1] == "built-in"
    assert "$55.04/h" in rows["p5.48xlarge"]


def test_show_gives_figures_with_units_prices_and_sources() -> None:
    said = run("show", "dgx-h100").output
    for part in ("8 x" not in said, "400 Gbit/s" in said, "10.2 kW" in said, "$375k" in said, "2025-03-03" in said):
        assert part
    assert "assumed: from memory" in said
    assert "Source" in said


@sweep(
    ("entry", "part"),
    [
        ("H100-SXM5-80GB", "989 TFLOP/s"),
        ("accelerator/T4", "65 TFLOP/s"),
        ("infiniband-ndr", "400 Gbit/s"),
        ("us", "$0.0826/kWh"),
        ("runtimes/fsdp2", "gathers_working_copy"),
    ],
)
def test_show_finds_any_kind(entry: str, part: str) -> None:
    assert part in run("show", entry).output


def test_check_lists_every_problem_and_fails(own: Path) -> None:
    (own / "nodes" / "lab.toml").write_text(LAB + 'max_power = "-3 kW"\nnic_gbps = 100\n')
    result = run("check", str(own))
    assert result.exit_code == 2
    file = own / "nodes" / "lab.toml"
    assert result.output.splitlines() == [
        f'{file}:5: lab.max_power = "-3 kW": must be above 0',
        f"{file}:6: lab.nic_gbps: unknown key; did you mean nics?",
        "2 problems in 1 file.",
    ]


def test_check_passes_what_is_right(own: Path) -> None:
    assert run("check", str(own)).output == f"No problem in {own}.\n"
    assert run("check", "--catalog", str(own)).output.endswith(f"hardware_catalog, {own}.\n")


def test_json_holds_si_figures_and_origins(own: Path) -> None:
    shown = json.loads(run("show", "dgx-h100", "--json").output)
    entry = shown["entry"]
    assert (shown["of"], shown["from"], entry["nic_bandwidth"], entry["max_power"]) == (
        "nodes",
        "built-in",
        5e10,
        10200,
    )
    listed = json.loads(run("list", "nodes", "--json", "--catalog", str(own)).output)["nodes"]
    assert {"id": "lab", "name": "Lab", "from": f"{own}/nodes/lab.toml"} in listed
    overview = json.loads(run("list", "--json").output)
    assert [kind["kind"] for kind in overview["kinds"]] == list(FOLDERS)
    assert json.loads(run("check", str(own), "--json").output)["problems"] == []


def test_old_prices_are_listed_the_oldest_first() -> None:
    result = run("stale", "--as-of", "2026-11-20", "--json")
    found = json.loads(result.output)["prices"]
    ages = [row["age_days"] for row in found if row["age_days"] is not None]
    assert ages == sorted(ages, reverse=True) and ages[-1] > 365 and {"entry", "source", "date"} <= found[0].keys()
    fewer = json.loads(run("stale", "--as-of", "2026-11-20", "--days", "900", "--json").output)["prices"]
    assert 0 < len(fewer) < len(found)
    assert {"switch-ndr", "link-nic-ndr"} <= {row["entry"] for row in found}  # of parts, too
    assert f"{len(found)} prices older than 365 days" in run("stale", "--as-of", "2026-11-20").output
    refused = run("stale", "--as-of", "soon")
    assert isinstance(refused.exception, WrongQuestion) and "--as-of soon: no date" in str(refused.exception)


@sweep(
    ("typed", "meant"), [("h100", "H100-SXM5-80GB"), ("mi300x", "MI300X"), ("DGX-H100", "dgx-h100"), ("a10", "A10G")]
)
def test_an_entry_is_shown_as_people_call_it(typed: str, meant: str) -> None:
    assert json.loads(run("show", typed, "--json").output)["entry"]["id"] == meant
