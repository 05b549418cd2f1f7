"""Texts of some lengths, packed into sequences: against each text by itself, enumerated batches and hand-made packs."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import api, verify
from planner.api import rechecking, repricing
from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.commands.screen import fit_view
from planner.figures.cost_inputs import shape
from planner.launchers import registry
from planner.launchers.bundle import bundle
from planner.models import text_lengths
from planner.models.context import attended, in_texts
from planner.models.workload import model, workload
from planner.planning import document
from planner.planning.document.reader import parse
from planner.schema.listings import FittingTraining
from planner.schema.plan import Plan
from planner.schema.workload import Model, Tower
from planner.search.branch_and_bound import Bounded
from planner.search.costing import Exhaustive
from tests.answered_once import answered_once
from tests.cases import problem_of
from tests.sweeps import sweep
from tests.words import worded

CARD = "ws-8xrtx3090:1"


def estimated(chosen: str | Model = "llama3-8b", **asked: Any) -> Plan:
    given = {"method": "full", "batch": 64} | asked
    return api.estimate(chosen, "dgx-h100:1", "zero=3 recompute=full", **given)[0]


@answered_once
def packed() -> Plan:
    return estimated(lengths="600/2k")


def test_mean_and_95th_percentile_come_back() -> None:
    found = text_lengths.lengths("600/2k", 10**6)
    assert len(found) == 100 and list(found) == sorted(found)
    assert text_lengths.mean(found) == pytest.approx(600, rel=0.01)
    assert found[94] < 2000 < found[95]


def test_a_file_keeps_its_mean_and_is_cut_at_the_sequence(tmp_path: Path) -> None:
    every = [random.Random(3).randint(1, 5000) for _ in range(2345)]
    (tmp_path / "lengths").write_text("\n".join(map(str, every)))
    found = text_lengths.lengths(str(tmp_path / "lengths"), 4096)
    assert text_lengths.mean(found) == pytest.approx(sum(min(each, 4096) for each in every) / 2345, rel=2e-3)
    assert max(found) <= 4096


def test_texts_are_packed_by_best_fit() -> None:
    assert text_lengths.filled([50.0], 100) == 1.0
    assert text_lengths.filled([30.0, 70.0], 100) == 1.0, "each long one takes a short one along"
    assert text_lengths.filled([60.0], 100) == 0.6, "no two share a sequence"
    assert text_lengths.filled([51.0, 60.0, 40.0], 100) == pytest.approx(20 * 151 / (40 * 100)), "60 + 40, and 51 alone"


def test_how_full_packs_are_does_not_hang_on_how_many_texts_are_packed() -> None:
    """The last pack is not full because texts run out, which a data set's do not for so long."""
    assert text_lengths.filled([1.0], 4096) == 1.0
    assert text_lengths.filled([600.0], 4096) == pytest.approx(3600 / 4096, rel=1e-3)
    assert text_lengths.filled([600.0, 700.0, 2000.0], 4096) == pytest.approx(0.93, abs=2e-3), "two of 2000"
    assert text_lengths.filled(text_lengths.lengths("600/2k", 2**17), 2**17) > 0.999


@pytest.mark.slow
def test_sorted_and_padded_batches_have_the_images_of_packed_ones() -> None:
    """Texts as long as the sequence change nothing; shorter ones bring no images of their own."""
    tower = Tower(
        layers=32, hidden=1280, ffn=3420, gated=True, patches=5184, attended=704.0, tokens=1296, joining=10**9,
        parameters=676_550_144, images=2,
    )  # fmt: skip
    sees = replace(model("llama3-8b"), tower=tower)
    plain, one = estimated(sees, seq=8192), estimated(sees, seq=8192, lengths=[8192]).prediction.text_batches
    assert one is not None and one.padded_s == pytest.approx(plain.prediction.step_time_s, rel=1e-12)
    both = (estimated(each, seq=8192, lengths="600/2k", micro=8).prediction for each in (sees, model("llama3-8b")))
    found, blind = both
    more, less = found.text_batches, blind.text_batches
    assert more is not None and less is not None
    seen = found.step_time_s - blind.step_time_s
    assert more.sorted_s - less.sorted_s == pytest.approx(seen, rel=0.2)


@sweep("count", [1, 2, 3])
def test_the_longest_of_some_is_the_mean_over_all_batches(count: int) -> None:
    some = [10.0, 20.0, 70.0, 300.0]
    every = [max(batch) for batch in itertools.product(some, repeat=count)]
    assert text_lengths.padded(some, count) == pytest.approx(sum(every) / len(every), rel=1e-12)


@sweep("name", ["llama3-8b", "gemma3-27b", "mixtral-8x7b"])
def test_attention_is_that_of_each_text_by_itself(name: str) -> None:
    """A pack's positions, counted token by token: text after text, as if each were a batch."""
    chosen, some = model(name), [3000.0, 700.0, 396.0]
    alone = sum(length * attended(chosen, length) for length in some)
    assert in_texts(chosen, some) == pytest.approx(alone / 4096, rel=1e-12)
    made = shape(workload(name, method="lora", sequence=4096, lengths=some), None)
    assert (made.attended, made.text) == (in_texts(chosen, some), sum(length**2 for length in some) / 4096)


def test_texts_as_long_as_the_sequence_change_nothing() -> None:
    plain, one = estimated(), estimated(lengths=[4096])
    assert one.prediction.step_time_s == pytest.approx(plain.prediction.step_time_s, rel=1e-12)
    assert (found := one.prediction.text_batches) is not None
    assert (found.filled, found.per_step) == (1.0, 64)
    assert (found.sorted_s, found.padded_s) == pytest.approx((plain.prediction.step_time_s,) * 2, rel=1e-12)


def test_packing_saves_attention_alone_and_no_memory() -> None:
    plain, found = estimated(), packed()
    before, now = plain.prediction, found.prediction
    assert now.memory == before.memory
    saved = before.breakdown["attention"] - now.breakdown["attention"]
    again = before.breakdown["recompute"] - now.breakdown["recompute"]
    assert saved > 0 and before.step_time_s - now.step_time_s == pytest.approx(saved + again, rel=0.2)
    assert now.model_flops < before.model_flops


def test_padding_costs_and_packing_never_more() -> None:
    for micro in (1, 4):
        found = estimated(lengths="600/2k", micro=micro).prediction
        batches = found.text_batches
        assert batches is not None and found.step_time_s < batches.sorted_s < batches.padded_s


def test_verify_derives_the_flops_of_packed_texts() -> None:
    found = packed()
    verify.check(found)
    assert found.workload.texts is not None
    w, batches = found.workload, found.prediction.text_batches
    assert batches is not None
    for changed in (
        replace(found, workload=replace(w, texts=None)),
        replace(found, workload=replace(w, texts=tuple(each / 2 for each in found.workload.texts))),
        replace(found, workload=replace(w, texts=(9000.0,))),
        replace(found, prediction=replace(found.prediction, text_batches=replace(batches, per_step=1.0))),
        replace(found, prediction=replace(found.prediction, text_batches=replace(batches, padded_s=0.0))),
    ):
        with pytest.raises(verify.Inconsistent):
            verify.check(changed)


def test_the_search_stays_exact() -> None:
    problem = problem_of("llama3-8b", "dgx-h100:1", batches=(64,))
    some = text_lengths.lengths("600/2k", 8192)
    part = replace(
        problem.figures.shape, text=text_lengths.around_token(some), attended=in_texts(model("llama3-8b"), some)
    )
    problem = replace(problem, figures=replace(problem.figures, shape=part))
    found, every = Bounded().search(problem), Exhaustive().search(problem)
    assert found.proven and found.best == every.best


def test_documents_are_priced_again_and_compared() -> None:
    again = repricing.plan(packed(), load())
    assert again.workload.texts == packed().workload.texts
    assert again.prediction.text_batches == packed().prediction.text_batches
    assert again.prediction.step_time_s == pytest.approx(packed().prediction.step_time_s, rel=1e-12)
    assert "texts" not in document.dump(estimated())["workload"]
    changed = document.dump(packed())
    changed["workload"]["texts"] = [1.0] * 200_000
    with pytest.raises(WrongQuestion, match=r"workload\.texts: .* 100"):
        parse(changed, "plan.json")


KEYS = {
    "trl": {"packing": True, "packing_strategy": "bfd", "attn_implementation": "flash_attention_2"},
    "axolotl": {"sample_packing": True, "attn_implementation": "flash_attention_2"},
    "llama-factory": {"packing": True, "neat_packing": True, "flash_attn": "fa2"},
    "hf-trainer": None,
}


@sweep(("target", "keys"), KEYS.items())
def test_trainers_pack_or_say_that_they_do_not(target: str, keys: dict[str, Any] | None) -> None:
    plan = api.plan("llama3-8b", "dgx-h100:1", method="lora", lengths="600/2k", top=1)[0]
    made = bundle(plan, registry.parts(target), {})
    lost = [loss.field for loss in made.losses]
    assert ("workload.texts" in lost) == (keys is None)
    text = "\n".join(made.files.values())
    for key, value in (keys or {}).items():
        assert f"{key}: {str(value).lower() if value is True else value}" in text


@worded("lengths.refused", read=json.loads)
def test_what_cannot_be_is_said(asked: dict[str, Any]) -> WrongQuestion:
    with pytest.raises(WrongQuestion) as raised:
        api.plan("llama3-8b", **{"cluster": "dgx-h100:1", "method": "full"} | asked)
    return raised.value


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fit` asks some two hundred questions of it: 32 s of 35 were its parsing."""
    from planner.base import reading

    read, file = [], tmp_path / "lengths"
    monkeypatch.setattr(reading, "text", lambda path, *_: read.append(path) or path.read_text())
    file.write_text("100\n200\n")
    assert text_lengths.lengths(str(file), 4096) == text_lengths.lengths(str(file), 4096) == (100.0, 200.0)
    assert len(read) == 1
    file.write_text("100\n300\n500\n")
    assert text_lengths.lengths(str(file), 400) == (100.0, 300.0, 400.0)


@pytest.mark.parametrize(("asked", "texts"), [({"examples": "20k", "epochs": 3.0}, 60_000), ({"epochs": 2.0}, 10)])
def test_so_many_texts_are_trained(asked: dict[str, Any], texts: int) -> None:
    """Tokens count positions, padding included: of 5 lengths without a count, all are seen so often."""
    lengths = [200.0, 300.0, 500.0, 900.0, 2900.0] if "examples" not in asked else "600/2k"
    plan = estimated(lengths=lengths, **asked)

    batches = plan.prediction.text_batches
    assert batches is not None and plan.workload.texts is not None
    assert plan.money.steps * batches.per_step == pytest.approx(texts, rel=1e-9)
    assert plan.workload.tokens * batches.filled == pytest.approx(texts * text_lengths.mean(plan.workload.texts))


def test_answer_by_texts_on_one_card_is_explained_and_made_again() -> None:
    """Its efficiencies have two reasons, of the card and of the trainer, which are no contradiction."""
    answer = api.estimate(
        "llama3-8b", accelerators="RTX-4090:1", method="qlora", recompute="full", lengths="600/2k", examples=20_000
    )

    assert rechecking.check(answer, "answer") > 300
    assert answer.asked is not None and not {"examples", "tokens"} & answer.asked.options.keys()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"examples": 20}, "examples: how long are the texts"),
        ({"epochs": 2.0, "lengths": "600/2k"}, "epochs: of how many texts"),
        ({"examples": 0, "lengths": "600/2k"}, "examples=0: must be a whole number from 1"),
        ({"examples": "20.5", "lengths": "600/2k"}, "must be a whole number"),
        ({"examples": "many", "lengths": "600/2k"}, "examples='many'"),
        ({"examples": 20, "epochs": 0.0, "lengths": "600/2k"}, "epochs=0: must be above 0"),
        ({"examples": 20, "tokens": "2M", "lengths": "600/2k"}, "tokens with examples"),
    ],
)
def test_texts_that_cannot_be_counted_are_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(WrongQuestion, match=words):
        estimated(**asked)


def test_fit_passes_texts_on_and_names_them_where_tokens_differ() -> None:
    fits = [FittingTraining(**{**vars(_fit()), "sequence": length, "tokens": 1e6 * length}) for length in (1024, 2048)]
    asked = dict.fromkeys(fit_view._ASKED) | {"method": "qlora", "examples": "20k", "epochs": 3.0, "task": "sft",
                                              "optimizer": "adamw", "oom_risk": "5 %"}  # fmt: skip

    assert "--examples 20k --epochs 3.0" in fit_view._same(fits[0], asked)
    assert fit_view._amount(fits, asked) == "20k texts, 3 times"
    assert fit_view._amount(fits[:1], asked) == "1.02 B tokens"


def _fit() -> FittingTraining:
    return api.fit("llama3.2-1b", on="RTX-4090:1", seq=1024)[0]
