"""An offer in a file: printed again, one of its plans explained and launched; what is wrong with it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.catalog import load
from planner.commands.command_line import main
from planner.planning import document
from planner.procurement import run
from planner.procurement.question import reading
from planner.procurement.run import Depth
from planner.schema.procurement import Procurement
from tests.asking import ask
from tests.procuring_lab import nothing_breaks_its_second_opinion
from tests.words import worded

LAB = """
currency = "USD"
as_of = "2026-11-20"
horizon = "3 months"
[[owned]]
node = "dgx-a100-80gb"
count = 2
[[workloads]]
name = "base"
model = "llama3-8b"
tokens = "20B"
[[workloads]]
name = "weekly/../adapters"
model = "llama3.2-3b"
tokens = "1B"
[[candidates]]
node = "hgx-h100"
ways = ["buy"]
counts = [1]
"""


@pytest.fixture(scope="module")
def offer(tmp_path_factory: pytest.TempPathFactory) -> Procurement:
    path = tmp_path_factory.mktemp("lab") / "lab.toml"
    path.write_text(LAB, encoding="utf-8")
    known = load()
    quick = Depth(top=2, marginal=False, sensitivity=False)
    return run.procure(known, reading.read(path, known), depth=quick)


@pytest.fixture
def file(offer: Procurement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("offer.json")
    path.write_text(document.as_json(offer), encoding="utf-8")
    return path


def test_an_offer_is_printed_again(offer: Procurement, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document.load_any(file) == offer
    found = ask(capsys, f"explain {file}")
    assert found.code == 0
    assert offer.alternatives[0].what[1:] in found.out and "Search" in found.out
    second = ask(capsys, f"explain {file} --alternative 2")
    assert f"#2: {offer.alternatives[1].what}" in second.out
    assert ask(capsys, f"explain {file} --json").document | {"meta": offer.meta} == document.dump(offer)
    assert ask(capsys, f"explain {file} --alternative 2 --json").document["rank"] == 2


def test_a_plan_of_an_offer_is_explained(offer: Procurement, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = offer.alternatives[1].workloads[0].plan
    found = ask(capsys, f"explain {file} --workload base --alternative 2 --json")
    assert found.document == document.dump(plan)
    assert plan.schema_version == 2
    Path("plan.json").write_text(found.out, encoding="utf-8")
    assert ask(capsys, "explain plan.json").out == ask(capsys, f"explain {file} --workload base --alternative 2").out


def test_a_plan_of_an_offer_is_launched(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(capsys, f"export {file} --workload base --to megatron+slurm")
    assert found.code == 0, found.err
    assert Path("offer-base-megatron+slurm", "start.sh").is_file()
    # A name is no path.
    found = ask(capsys, f"export {file} --workload weekly/../adapters --alternative 2 --to deepspeed --json")
    assert found.code == 0, found.err
    (folder,) = found.document["folders"]
    assert folder == "offer-weekly-..-adapters-deepspeed" and Path(folder).is_dir()


@worded("offers.missing")
def test_what_is_not_there_is_told(
    line: str, offer: Procurement, file: Path, capsys: pytest.CaptureFixture[str]
) -> str:
    Path("plan.json").write_text(document.as_json(offer.alternatives[0].workloads[0].plan), encoding="utf-8")
    assert main(line.split()) == 2
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert sorted(path.name for path in file.parent.iterdir()) == ["offer.json", "plan.json"]
    return told


def test_an_offer_that_does_not_hold_is_not_launched(
    offer: Procurement, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = document.dump(offer)
    data["alternatives"][0]["cost"]["total_usd"] += 1000.0
    file.write_text(json.dumps(data), encoding="utf-8")
    for line in (f"explain {file}", f"export {file} --workload base --to megatron"):
        assert main(line.split()) == 2
        assert "bill_adds_up" in capsys.readouterr().err


@pytest.mark.slow
def test_nothing_in_an_offer_breaks_its_second_opinion(offer: Procurement) -> None:
    nothing_breaks_its_second_opinion(offer, 60)
