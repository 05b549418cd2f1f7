"""Fine-tuning beyond plain adapters: magnitudes, the last blocks, FP8 bases, pairs of answers."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.api import repricing
from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.figures.cost_inputs import shape
from planner.models.parameters import lora_parameters, magnitudes, parameters, trained
from planner.models.workload import library, model, workload
from planner.planning import document
from planner.schema.plan import Plan
from planner.verify import model as verified
from planner.verify import violations
from tests.sweeps import sweep
from tests.words import worded

ONE, CARD = "llama3.2-1b", "akash-rtx4090:1"
FEW = ("llama3-8b", "qwen2.5-7b", "gpt2", "deepseek-v2-lite", "gemma2-9b")


def one(method: str, cluster: str = CARD, **asked: object) -> Plan:
    settings = {"micro": 2, "recompute": "full", "batch": 16} | asked
    return api.estimate(ONE, cluster, method=method, runtime="hf-trainer-liger", **settings)[0]  # type: ignore[arg-type]


def exported(plan: Plan, target: str, folder: Path) -> str:
    api.export(plan, target, folder)
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*")) if path.is_file())


# ---- magnitudes ------------------------------------------------------------------------------------------------------


@sweep("name", FEW)
def test_every_output_of_an_adapted_matrix_has_a_magnitude(name: str) -> None:
    known, targets = model(name), ("q", "o")
    plain, with_them = (workload(known, method=way, targets=targets).method for way in ("lora", "dora"))
    found = magnitudes(known, with_them)
    assert found == verified.magnitudes(known, frozenset(targets)) > 0
    assert trained(known, with_them) - trained(known, plain) == found
    assert magnitudes(known, plain) == 0


def test_magnitudes_of_llama() -> None:
    """32 blocks: queries and outputs of 4,096, keys and values of 1,024."""
    assert magnitudes(model("llama3-8b"), workload("llama3-8b", method="dora").method) == 32 * 2 * (4096 + 1024)


def test_magnitudes_take_time_and_keep_what_they_scale() -> None:
    plain, with_them = one("lora", recompute="none"), one("dora", recompute="none")
    assert with_them.prediction.breakdown["magnitudes"] > 0 and "magnitudes" not in plain.prediction.breakdown
    kept = 16 * 2 * 2 * (2 * 4096) * (2 * (2048 + 512))
    more = with_them.prediction.memory.activations_bytes - plain.prediction.memory.activations_bytes
    assert kept < more < 1.1 * kept, "allocators add something to all activations alike"


def test_experts_have_no_magnitudes() -> None:
    assert workload("mixtral-8x7b", method="qdora").method.targets == ("q", "k", "v", "o")
    with pytest.raises(WrongQuestion, match="no magnitudes of experts"):
        workload("mixtral-8x7b", method="dora", targets=["q", "up"])


# ---- the last blocks -------------------------------------------------------------------------------------------------


@sweep("name", FEW)
def test_the_last_blocks_are_counted_alike(name: str) -> None:
    known = model(name)
    blocks = verified.layers(known)
    for n in (1, 3):
        last = sum(layer.held.dense + layer.held.experts for layer in blocks[-n:])
        assert trained(known, workload(known, method=f"freeze:{n}").method) == last


def test_blocks_before_the_first_trained_one_only_run_forward() -> None:
    plans = {n: one(f"freeze:{n}", recompute="none") for n in (1, 8, 15)}
    flops = {n: plan.prediction.model_flops for n, plan in plans.items()}
    assert flops[15] - flops[8] == pytest.approx(flops[8] - flops[1], rel=1e-9)
    whole = one("full", recompute="none").prediction
    assert flops[15] < whole.model_flops
    attention = {n: plan.prediction.breakdown["attention"] for n, plan in plans.items()}
    forward = attention[8] - 8 * (attention[15] - attention[8]) / 7
    assert 0 < forward < whole.breakdown["attention"] / 3
    held = {n: plan.prediction.memory for n, plan in plans.items()}
    assert held[15].activations_bytes == pytest.approx(15 * held[1].activations_bytes)
    assert held[15].optimizer_bytes == pytest.approx(15 * held[1].optimizer_bytes)


@sweep("text", ["freeze", "freeze:", "freeze:0", "freeze:16", "freeze:-1", "freeze:x", "freeze:1.5"])
def test_last_blocks_are_some_of_the_models(text: str) -> None:
    with pytest.raises(WrongQuestion, match=r"write freeze:2, from 1 to 15 last blocks of llama3.2-1b"):
        workload(ONE, method=text)


# ---- bases -----------------------------------------------------------------------------------------------------------


def test_fp8_takes_a_byte_and_its_scales() -> None:
    assert shape(workload(ONE, method="qlora:fp8"), None).frozen_bytes == 1 + 4 / 128**2
    assert one("qlora:fp8").runtime.bytes_per_parameter["frozen"] == 1 + 4 / 128**2


@worded("tuning.refused", read=json.loads)
def test_what_nothing_trains_is_refused_by_name(asked: dict[str, Any]) -> WrongQuestion:
    with pytest.raises(WrongQuestion) as caught:
        api.plan(ONE, **({"cluster": CARD} | asked))
    return caught.value


# ---- pairs of answers ------------------------------------------------------------------------------------------------


def test_the_reference_is_one_more_forward_pass() -> None:
    plain, pairs = one("lora").prediction, one("lora", task="dpo").prediction
    grown = {name: s - plain.breakdown.get(name, 0.0) for name, s in pairs.breakdown.items()}
    assert grown["reference"] == pytest.approx(plain.breakdown["recompute"], rel=1e-9), "both are a forward pass"
    assert 0 < grown["logits"] < 0.6 * plain.breakdown["logits"]
    assert all(abs(grown[name]) < 1e-9 for name in ("matrix", "attention", "recompute", "optimizer"))


def test_adapters_need_no_other_copy_for_it() -> None:
    def held(method: str, task: str) -> float:
        return one(method, "dgx-h100:1", dp=8, zero=0, task=task).prediction.memory.parameters_bytes

    assert held("lora", "dpo") == held("lora", "sft")
    assert held("full", "dpo") - held("full", "sft") == 4 * parameters(model(ONE)).total


def test_a_pair_is_two_sequences() -> None:
    found = api.plan(ONE, CARD, method="qlora", task="dpo", top=5, all=True)
    assert all(plan.batch.micro % 2 == 0 for plan in found)
    with pytest.raises(WrongQuestion, match=r"a pair is two sequences\. micro can be 2, 4"):
        one("qlora", task="dpo", micro=1)


def test_a_reward_model_scores_instead_of_naming_tokens() -> None:
    scored, named = workload(ONE, method="lora", task="reward").model, model(ONE)
    assert parameters(scored).total == parameters(named).total + named.hidden, "one row; its head was the embedding"
    big = model("llama3-8b")
    less = parameters(big).total - parameters(workload(big, method="full", task="reward").model).total
    assert less == (big.vocab - 1) * big.hidden
    plain, reward = one("lora").prediction, one("lora", task="reward").prediction
    assert reward.breakdown["logits"] < 0.01 * plain.breakdown["logits"]


def test_a_batch_of_pairs_that_nobody_gave_holds_one_for_every_accelerator() -> None:
    assert api.plan(ONE, "dgx-h100:2", method="lora", task="dpo", top=1)[0].batch.global_ == 32
    with pytest.raises(WrongQuestion, match=r"batch[= ]32"):
        api.plan(ONE, "dgx-h100:2", method="lora", task="dpo", batch=16)


# ---- documents -------------------------------------------------------------------------------------------------------

WAYS = [*product(("lora", "qlora:fp8", "dora", "qdora", "freeze:2"), ("sft", "dpo", "reward"))]


@sweep(("method", "task"), WAYS, every=2)
def test_a_plan_says_its_question(method: str, task: str) -> None:
    plan = one(method, task=task)
    assert repricing.plan(plan, load()).prediction == plan.prediction
    assert not violations(plan)
    assert ("task" in document.dump(plan)["workload"]) == (task != "sft"), "only in documents of such"


@sweep(
    ("method", "task", "wrong"),
    [
        ("freeze:2", "sft", {"kind": "freeze", "rank": 0, "targets": [], "layers": 3}),
        ("dora", "sft", {"kind": "lora", "rank": 16, "targets": ["q", "k", "v", "o"]}),
        ("qlora:fp8", "sft", None),
        ("lora", "dpo", None),
        ("lora", "reward", None),
    ],
)
def test_another_method_or_task_does_not_add_up(method: str, task: str, wrong: dict[str, object] | None) -> None:
    plan = one(method, task=task)
    other = replace(plan.workload, method=wrong) if wrong else replace(plan.workload, task=None)
    if method == "qlora:fp8":
        other = replace(plan.workload, method=plan.workload.method | {"base": "int8"})
    assert violations(replace(plan, workload=other))


@sweep(
    ("target", "method", "task", "says"),
    [
        ("trl", "qdora", "sft", ["use_dora: true", "load_in_4bit: true"]),
        ("trl", "lora", "dpo", ["trl.scripts.dpo", "per_device_train_batch_size: 1", "max_length: 4096"]),
        ("trl", "lora", "reward", ["trl.scripts.reward", "lora_task_type: SEQ_CLS"]),
        ("axolotl", "dora", "sft", ["peft_use_dora: true"]),
        ("llama-factory", "dora", "sft", ["use_dora: true"]),
        ("llama-factory", "freeze:4", "sft", ["finetuning_type: freeze", "freeze_trainable_layers: 4"]),
        ("llama-factory", "qlora", "dpo", ["stage: dpo", "packing: false", "per_device_train_batch_size: 1"]),
        ("hf-trainer", "freeze:4", "sft", ["--trained_layers 4"]),
        ("hf-trainer", "qlora:fp8", "sft", ["--quantization_fp8 true"]),
        ("hf-trainer", "dora", "sft", ["--lora_magnitudes true"]),
    ],
)
def test_trainers_are_told(target: str, method: str, task: str, says: list[str], tmp_path: Path) -> None:
    text = exported(one(method, task=task), target, tmp_path / "job").replace(" \\\n  ", " ")
    assert not [each for each in says if each not in text.replace('"', "").replace("'", "")]


@worded("tuning.missing", read=json.loads)
def test_what_a_trainer_has_not_is_refused(question: tuple[str, str, str], tmp_path: Path) -> WrongQuestion:
    target, method, task = question
    with pytest.raises(WrongQuestion) as raised:
        api.export(one(method, task=task), target, tmp_path / "job")
    return raised.value


def test_every_decoder_can_be_tuned_so() -> None:
    known = library()
    for name in sorted(known)[::20]:
        if known[name].family == "decoder" and known[name].layers > 2:
            assert trained(known[name], workload(name, method="freeze:2").method) < parameters(known[name]).total
            assert trained(known[name], workload(name, method="dora").method) > lora_parameters(
                known[name], workload(name, method="lora").method
            )
