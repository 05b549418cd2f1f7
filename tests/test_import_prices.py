"""SkyPilot's price lists: every trap that they are known for, on samples written for these tests."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import catalog as catalogs
from planner.base.errors import WrongQuestion
from planner.catalog import skypilot_prices
from planner.commands.command_line import cli, main

DAY = "2026-11-20"


LISTS = Path(__file__).parent / "data" / "skypilot"
"""Price lists with every trap, as SkyPilot writes them.

- aws: spot prices that differ wildly between zones, of which the median counts; prices of other countries, that are not
  asked while there are American ones; capacity blocks, with a spot price alone; a node's memory written for each chip;
  a machine without accelerators, one that nobody knows, a price below zero, a cell that is Python.
- azure: twelve accelerators that are eight, and a spot price that is none.
- gcp: a host, and in a row of its own what it is useless without; a zone in which the accelerators have no row; 9,216
  cores that are 4,608 chips, while eight chips of v5e are eight; a slice of no known generation.
- lambda: GiB where MiB should stand; half the memory, which is not the accelerator that the catalog means.
"""


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LISTS, tmp_path / "v8"))


def imported(lists: Path) -> tuple[dict[tuple[str, str], dict[str, str]], list[str]]:
    found = skypilot_prices.read(lists, catalogs.load(), DAY)
    return {(row["id"], row["basis"]): row for row in found.prices}, [f"{r.what}: {r.reason}" for r in found.refused]


@pytest.mark.parametrize(
    ("name", "basis", "usd"),
    [
        ("p4d.24xlarge", "on-demand", 21.9576),
        ("p4d.24xlarge", "spot", 8.12),
        ("p5e.48xlarge", "spot", 19.54),
        ("trn2.48xlarge", "spot", 23.06),
        ("p5.48xlarge", "on-demand", 55.04),
        ("ND96isr_H100_v5", "on-demand", 98.32),
        ("a2-highgpu-8g", "on-demand", 29.36),
        ("a2-highgpu-8g", "spot", 8.81),
        ("tpu-v5p-4", "on-demand", 16.8),
        ("tpu-v5e-8", "on-demand", 9.6),
        ("tpu-v5e-8", "spot", 4.8),
        ("lambda-8x-h100", "on-demand", 31.92),
        ("lambda-8x-a100-80gb", "on-demand", 22.32),
    ],
)
def test_a_price_is_what_a_node_costs_an_hour(lists: Path, name: str, basis: str, usd: float) -> None:
    row = imported(lists)[0][name, basis]
    assert float(row["usd"]) == pytest.approx(usd, rel=1e-5)
    assert row["date"] == DAY


@pytest.mark.parametrize(
    ("name", "basis"),
    [
        ("p5e.48xlarge", "on-demand"),
        ("p5.48xlarge", "spot"),
        ("ND96isr_H100_v5", "spot"),
        ("lambda-8x-v100", "on-demand"),
    ],
)
def test_what_is_no_price_is_left_out(lists: Path, name: str, basis: str) -> None:
    assert (name, basis) not in imported(lists)[0]


@pytest.mark.parametrize(
    "said",
    [
        "p9.unheard: no such instance in the catalog",
        "p5.48xlarge: a price of -5 USD/h",
        "a2-highgpu-8g: lists the host only",
        "tpu-v9-8: no host of that generation",
        "gpu_8x_v100: 8 GiB an accelerator are listed",
    ],
)
def test_what_cannot_be_mapped_is_listed(lists: Path, said: str) -> None:
    assert any(line.startswith(said) for line in imported(lists)[1])


@pytest.mark.parametrize(
    "said",
    [
        "Standard_ND96isr_H100_v5: 12 accelerators are listed; its price was taken as that of the catalog's 8",
        "Standard_ND96isr_H100_v5: a spot price of 98.32 USD/h, not below the 98.32 on demand",
        "p5.48xlarge: a spot price of 60 USD/h, not below the 55.04 on demand: no spot price was taken",
    ],
)
def test_what_is_not_taken_at_its_word_is_said(lists: Path, said: str) -> None:
    mended = skypilot_prices.read(lists, catalogs.load(), DAY).mended
    assert len(mended) == 3  # and nothing else: 8.0 is eight, and a slice's chips are no count of accelerators
    assert any(f"{row.what}: {row.reason}".startswith(said) for row in mended)
    shown = CliRunner().invoke(cli, ["catalog", "import-prices", str(lists), "--date", DAY])
    assert f"fixed     {said}" in shown.output
    data = json.loads(CliRunner().invoke(cli, ["catalog", "import-prices", str(lists), "--json"]).output)
    assert [row["line"] for row in data["mended"]] == [row.line for row in mended]


def test_the_range_over_zones_is_kept(lists: Path) -> None:
    row = imported(lists)[0]["p4d.24xlarge", "spot"]
    assert (row["low"], row["high"]) == ("2.47", "21.85")
    assert row["region"] == "us-east-1"


def test_spot_is_never_above_on_demand(lists: Path) -> None:
    found = imported(lists)[0]
    for (name, basis), row in found.items():
        if basis == "spot" and (name, "on-demand") in found:
            assert float(row["usd"]) < float(found[name, "on-demand"]["usd"])


def test_columns_are_read_by_name(lists: Path) -> None:
    before = imported(lists)[0]
    for path in lists.rglob("vms.csv"):
        rows = [row[::-1] for row in csv.reader(path.read_text(encoding="utf-8").splitlines())]
        with path.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out).writerows(rows)
    assert imported(lists)[0] == before


def test_the_overlay_renews_prices(lists: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    run = ["catalog", "import-prices", str(lists), "-o", str(own), "--date", DAY]
    shown = CliRunner().invoke(cli, run)
    assert shown.exit_code == 0, shown.output
    assert "skipped" in shown.output and f"--catalog {own}" in shown.output
    assert catalogs.problems(own) == []
    price = next(p for p in catalogs.load(own).node("p5.48xlarge").prices if p.basis == "on-demand")
    assert (price.usd, price.date) == (55.04, DAY)
    # Not twice without being told to.
    assert main(run) == 2
    assert main([*run, "--force"]) == 0


def test_one_cloud_alone_and_json(lists: Path) -> None:
    shown = CliRunner().invoke(cli, ["catalog", "import-prices", str(lists / "aws"), "--json", "--date", DAY])
    data = json.loads(shown.output)
    assert data["kind"] == "catalog-import"
    assert {row["id"] for row in data["prices"]} == {"p4d.24xlarge", "p5.48xlarge", "p5e.48xlarge", "trn2.48xlarge"}
    assert all({"file", "line", "what", "reason"} == refusal.keys() for refusal in data["refused"])


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    for folder, said in ((tmp_path / "none", "no such folder"), (tmp_path, "holds no <cloud>/vms.csv")):
        with pytest.raises(WrongQuestion, match=said):
            skypilot_prices.read(folder, catalogs.load(), DAY)
    path = tmp_path / "aws" / "vms.csv"
    path.parent.mkdir()
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(WrongQuestion, match="no column InstanceType"):
        skypilot_prices.read(tmp_path, catalogs.load(), DAY)
    assert main(["catalog", "import-prices", str(tmp_path), "--date", "soon"]) == 2


@pytest.mark.parametrize(
    ("info", "accelerator", "mib"),
    [
        ({"Gpus": [{"MemoryInfo": {"SizeInMiB": 81_920}}]}, "H100", 81_920.0),
        ({"Gpus": [{"MemoryInfo": {"SizeInMiB": 80}}]}, "H100", 81_920.0),
        ({"Gpus": [{"MemoryInfo": {"SizeInMiB": 524_288}}]}, "Trainium2", 98_304.0),
        ("H100", "H100", None),
        ({"Gpus": []}, "H100", None),
    ],
)
def test_memory_as_listed(info: object, accelerator: str, mib: float | None) -> None:
    assert skypilot_prices.memory_mib(info, accelerator) == mib
