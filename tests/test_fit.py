"""``clusterwright fit``: accelerators that hold a training, and models that fit on some."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.api import plans
from planner.base.errors import NoAnswer, WrongQuestion
from planner.commands.command_line import main
from planner.question.plan_options import PlanOptions
from planner.schema.listings import FittingTraining
from tests.asking import ask
from tests.sweeps import sweep
from tests.words import worded

OWN = """
[{id}]
name = "{id}"
vendor = "NVIDIA"
generation = "ada"
year = 2022
peak = {{ fp32 = "82.6 TFLOP/s", bf16 = "{rate} TFLOP/s" }}
memory = "{memory} GiB"
memory_bandwidth = "1000 GB/s"
scaleup = {{ name = "PCIe", topology = "pcie", bandwidth = "15 GB/s" }}
source = "test"
"""
NODE = """
[{id}-8]
name = "{id}-8"
kind = "server"
provider = "test"
accelerator = "{id}"
accelerators = 8
nics = 1
nic_bandwidth = "25 Gbit/s"
fabric = "ethernet-25g"
source = "test"
"""


def best(found: tuple[FittingTraining, ...], name: str) -> FittingTraining:
    (one,) = (fit for fit in found if name in fit.best)
    return one


@pytest.fixture(scope="module")
def everywhere() -> tuple[FittingTraining, ...]:
    return api.fit("llama3-8b", seq=4096, most=2)


@pytest.mark.slow
def test_of_every_accelerator_the_fewest_are_listed(everywhere: tuple[FittingTraining, ...]) -> None:
    fewest: dict[str, int] = {}
    for fit in everywhere:
        fewest.setdefault(fit.accelerator, fit.accelerators)
        assert fit.memory_bytes <= fit.capacity_bytes and (fit.oom_chance or 0) <= 0.05
    assert fewest["RTX-4090"] == fewest["RTX-5090"] == fewest["H100-SXM5-80GB"] == 1
    assert fewest["RTX-2080-Ti"] == fewest["RTX-2080"] == 2, "8 GiB with activations in host memory"


def test_fewest_cheapest_and_fastest_are_marked_once(everywhere: tuple[FittingTraining, ...]) -> None:
    priced = [fit for fit in everywhere if fit.usd is not None]
    assert best(everywhere, "cheapest").usd == min(fit.usd for fit in priced)
    assert best(everywhere, "fastest").hours == min(fit.hours for fit in everywhere)
    assert best(everywhere, "fewest").accelerators == 1


def test_what_is_only_announced_is_not_offered(everywhere: tuple[FittingTraining, ...]) -> None:
    assert not any(fit.accelerator == "VR200" for fit in everywhere)
    assert api.fit("llama3-8b", "VR200:1", seq=4096)[0].accelerator == "VR200"


def test_a_fit_is_the_plan_on_the_same_accelerators(everywhere: tuple[FittingTraining, ...]) -> None:
    fit = next(each for each in everywhere if each.accelerator == "RTX-5090" and each.accelerators == 1)
    found = api.plan("llama3-8b", "akash-rtx5090:1", method="qlora", seq=4096, batch=16, tokens="10M", top=1)
    assert (fit.step_time_s, fit.memory_bytes, fit.usd) == (
        found[0].prediction.step_time_s, found[0].prediction.memory.total_bytes, found[0].money.usd_total,
    )  # fmt: skip


def test_plan_and_fit_take_a_fine_tuning_for_the_same_where_nothing_is_said() -> None:
    fit = api.fit("llama3-8b", "RTX-4090:3", seq="4k")[0]
    plan = api.plan("llama3-8b", accelerators="RTX-4090:3", method="qlora", top=1)[0]
    work = plan.workload
    assert (work.sequence, plan.batch.global_, work.tokens) == (4096, 18, 1e7) == (fit.sequence, fit.batch, fit.tokens)
    assert plan.money.usd_total == fit.usd
    stated = {each.what: each.why for each in plan.assumptions}
    for what in ("10.0 M tokens to train on", "batch of 18 sequences", "4,096 tokens per sequence"):
        assert stated[what] == "a fine-tuning on ten thousand examples of 1,000 tokens"


@pytest.mark.slow
def test_models_that_fit_come_largest_first_with_their_longest_sequences() -> None:
    found = api.fit(on="RTX-4090", top=3)
    counts = [fit.parameters for fit in found]
    assert len(found) == 3 and counts == sorted(counts, reverse=True) and counts[0] > 14e9
    found = api.fit("llama3-8b", "RTX-4090:1")
    (one,), table = found, found.to_frame()
    assert table["seq_tokens"].tolist() == [one.sequence] and table["days"].tolist() == [one.hours / 24]
    with pytest.raises(NoAnswer, match="llama3-8b does not fit on RTX-4090:1"):
        api.fit("llama3-8b", "RTX-4090:1", seq=2 * one.sequence)
    assert api.fit("llama3-8b", "RTX-4090:1", seq=one.sequence)[0] == one


def test_batches_go_with_any_number_of_accelerators() -> None:
    assert api.fit("llama3-8b", "RTX-4090:3", seq=2048)[0].batch == 18


def test_weights_of_16_bit_take_more() -> None:
    with pytest.raises(NoAnswer):
        api.fit("llama3-8b", "RTX-4090:1", method="full", seq=2048)
    whole, packed = (
        api.fit("llama3-8b", "RTX-5090:1", method=name, runtime="hf-trainer", seq=1024, batch=1)[0]
        for name in ("lora", "qlora")
    )  # type: ignore[arg-type]
    assert whole.memory_bytes > packed.memory_bytes, "what is freed may hold activations that are not recomputed"


@pytest.mark.slow
def test_own_accelerators_are_tried_too(tmp_path: Path) -> None:
    for kind, text in (("accelerators", OWN), ("nodes", NODE)):
        (tmp_path / kind).mkdir()
        own = "".join(text.format(id=f"own-{gib}", memory=gib, rate=100 + gib) for gib in (6, 20))
        (tmp_path / kind / "own.toml").write_text(own, encoding="utf-8")
    found = {fit.accelerator: fit.accelerators for fit in api.fit("llama3-8b", seq=2048, most=1, catalog=tmp_path)}
    assert found["own-20"] == 1 and "own-6" not in found


@worded("fit.refused", read=json.loads)
def test_wrong_questions(question: tuple[str | None, str | None, dict[str, Any]]) -> WrongQuestion:
    model, on, asked = question
    with pytest.raises(WrongQuestion) as caught:
        plans.fits(model, on, PlanOptions(method="qlora", **asked), 1, None)
    return caught.value


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_table_names_what_to_do_next(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["fit", "llama3-8b", "--on", "RTX-4090:2", "--seq", "2k"]) == 0
    out = capsys.readouterr().out
    assert (
        "2 x RTX-4090" in out
        and "clusterwright plan llama3-8b --accelerators RTX-4090:2 --method qlora --seq 2048" in out
    )


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--on", "RTX-4090:1", "--top", "1", "--seq", "2k", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], len(found["fits"]), found["fits"][0]["accelerator"]) == ("fit", 1, "RTX-4090")


@pytest.mark.slow
@sweep("asked", ["", "--task dpo", "--lengths 600/2k", "--method full --oom-risk '10 %'"])
def test_the_plan_that_fit_names_next_is_the_one_it_shows(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Accelerators of one kind are a cluster: neither a whole node of them, nor pools that take no task."""
    fit = json.loads(ask(capsys, f"fit llama3.2-1b --on RTX-3090:2 --seq 2k {asked} --json").out)["fits"][0]
    shown = ask(capsys, f"fit llama3.2-1b --on RTX-3090:2 --seq 2k {asked}").out
    line = next(each for each in shown.splitlines() if "Next" in each)
    command = line.partition("clusterwright ")[2].removesuffix(" says how, and how sure")
    found = json.loads(ask(capsys, f"{command} --top 1 --json").out)["plans"][0]
    assert found["cluster"]["accelerators"] == 2
    assert found["prediction"]["step_time_s"] == fit["step_time_s"] and found["money"]["usd_total"] == fit["usd"]
    assert found["prediction"]["memory"]["total_bytes"] == fit["memory_bytes"]


def test_more_accelerators_than_a_part_of_a_node_are_no_two_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    told = ask(capsys, "plan llama3-70b --accelerators RTX-4090:4 --method qlora --pin activation_offload=none")
    assert (told.code, "What would fit: 8 x RTX-4090 (--accelerators RTX-4090:8)" in told.err) == (1, True)
    assert ask(capsys, "plan llama3-70b --accelerators RTX-4090:8 --method qlora").code == 0
