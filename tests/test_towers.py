"""A vision tower, frozen or trained: counted as published, priced on the first stage, checked, refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.base.errors import WrongQuestion
from planner.commands.command_line import main
from planner.cost import tower
from planner.figures.cost_inputs import shape
from planner.models import files, model_rules
from planner.models.huggingface import asked, from_config
from planner.models.parameters import parameters
from planner.models.workload import from_file, workload
from planner.schema.workload import Model
from planner.verify import model as verified
from planner.verify import violations
from tests import towers
from tests.sweeps import sweep

SEEING = towers.model("qwen2.5-vl-7b", "4@896")
TEXT = replace(SEEING, tower=None)


@sweep("entry", towers.DATA)
def test_counts_are_those_published(entry: str) -> None:
    model = towers.model(entry)
    counted = parameters(model)
    assert counted.total == verified.parameters(model) == towers.DATA[entry]["parameters"]
    assert counted.decoder == parameters(replace(model, tower=None)).total
    assert counted.active == verified.active_parameters(model)


@sweep(
    ("entry", "images", "patches", "tokens"),
    [
        # 896 = 64 x 14: windows of 64 patches in 28 blocks of 32; four patches a token.
        ("qwen2.5-vl-7b", "1@896", 4096, 1024),
        ("qwen3-vl-8b", "1@1024", 4096, 1024),
        ("gemma3-27b", "1", 4096, 256),
        ("llama4-scout", "1", 577, 144),
        ("mistral-small-3.1-24b", "1@1540", 12100, 3025),
    ],
)
def test_patches_and_tokens_of_an_image(entry: str, images: str, patches: int, tokens: int) -> None:
    """As the models' cards say: 256 tokens an image of Gemma 3, 144 a tile of Llama 4."""
    own = towers.model(entry, images).tower
    assert own is not None and (own.patches, own.tokens) == (patches, tokens)


def test_windows_see_less() -> None:
    own = towers.model("qwen2.5-vl-7b", "1@896").tower
    assert own is not None and own.attended == (4 * 4096 + 28 * 64) / 32


def test_work_by_hand() -> None:
    """Of a SigLIP tower of 27 blocks, 1152 wide: 0.42 GFLOP x 2 a parameter and patch, scores of 4096 patches."""
    model = towers.model("gemma3-27b", "1")
    layer = 4 * 1152**2 + 2 * 1152 * 4304 + 2 * 4096 * 1152
    by_hand = 4096 * 27 * layer + 4096 * 3 * 14 * 14 * 1152 + 256 * 1152 * 5376
    assert verified.tower_work(model) == by_hand
    assert float(tower.work(shape(workload(model), None))) == by_hand


def plans(model: Model, **more: Any) -> Any:
    return planner.plan(model, "dgx-h100:4", batch=64, runtime="megatron-core", **{"top": 3, **more})


def test_plans_hold_up_and_cost_more_than_the_text_alone() -> None:
    whole, text = (plans(model, pin=["tp=2", "pp=2", "vpp=1", "zero=1"]).plans[0] for model in (SEEING, TEXT))
    assert not violations(whole)
    assert whole.prediction.breakdown["tower"] > 0 and "tower" not in text.prediction.breakdown
    assert whole.prediction.step_time_s > text.prediction.step_time_s
    first, other = whole.prediction.memory.by_stage, text.prediction.memory.by_stage
    assert first[0].parameters_bytes - other[0].parameters_bytes == pytest.approx(2 * SEEING.tower.parameters)
    same = ("gradients_bytes", "optimizer_bytes")
    assert all(getattr(first[0], part) == pytest.approx(getattr(other[0], part)) for part in same)
    assert first[1].parameters_bytes == pytest.approx(other[1].parameters_bytes)


def test_a_cheaper_tower_is_found_by_the_check() -> None:
    plan = plans(SEEING).plans[0]
    changed = {**plan.workload.shape, "tower": {**plan.workload.shape["tower"], "images": 1}}
    wrong = replace(plan, workload=replace(plan.workload, shape=changed))
    assert "model_flops" in str(violations(wrong))
    changed["tower"] = {**plan.workload.shape["tower"], "images": 1000}
    assert "do not stand in" in str(violations(replace(plan, workload=replace(plan.workload, shape=changed))))


# ---- trained ---------------------------------------------------------------------------------------------------------

TRAINED = towers.model("qwen2.5-vl-7b", "4@896", True)


def test_a_trained_tower_by_hand() -> None:
    """Gradients and AdamW's states of 676 M parameters, whole on ranks of the first stage, states over 8 replicas; what
    32 layers of 1,024 patches keep of two micro-batches; thrice the FLOPs.
    """
    pins = ["tp=2", "cp=1", "vpp=1", "zero=1", "micro=1", "recompute=none"]
    frozen, own = (towers.model("qwen2.5-vl-7b", "1@448", trained) for trained in (False, True))
    was, now = (plans(model, pin=[*pins, "pp=2"]).plans[0].prediction for model in (frozen, own))
    n = frozen.tower.parameters
    (first, second), (before, other) = now.memory.by_stage, was.memory.by_stage
    assert first.parameters_bytes == pytest.approx(before.parameters_bytes)  # 16 bit, both
    assert first.gradients_bytes - before.gradients_bytes == pytest.approx(4 * n)
    assert first.optimizer_bytes - before.optimizer_bytes == pytest.approx(12 * n / 8)
    kept = 2 * 2 * 1024 * 32 * (8 * 1280 + 3 * 3420)
    assert 1.0 <= (first.activations_bytes - before.activations_bytes) / kept < 1.2  # the runtime's own factor
    assert second == other
    assert now.model_flops - was.model_flops == pytest.approx(4 * verified.tower_work(own) * 64, rel=1e-9)
    whole = [plans(model, pin=[*pins, "pp=1"]).plans[0].prediction.breakdown["tower"] for model in (frozen, own)]
    assert whole[1] > 2.5 * whole[0], "on one stage, which has the tower"


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_plans_of_trained_towers_hold_up(optimizer: str) -> None:
    found = plans(TRAINED, optimizer=optimizer)
    assert all(not violations(plan) for plan in found.plans)
    changed = {**found.plans[0].workload.shape["tower"], "trained": False}
    wrong = {**found.plans[0].workload.shape, "tower": changed}
    said = str(violations(replace(found.plans[0], workload=replace(found.plans[0].workload, shape=wrong))))
    assert "model_flops" in said


@pytest.mark.slow
def test_adapters_and_several_pools_take_a_frozen_one() -> None:
    with pytest.raises(WrongQuestion, match="is trained; take full, or a frozen tower"):
        workload(TRAINED, method="lora")
    found = planner.plan(TRAINED, ["dgx-h100:1", "dgx-a100-80gb:1"], batch=32, runtime="megatron-core")
    assert {len(plan.cluster.pools) for plan in found.plans} == {1}


@pytest.mark.slow
def test_two_pools_have_it_on_their_first_stage() -> None:
    found = planner.plan(SEEING, ["dgx-h100:1", "dgx-a100-80gb:1"], batch=32, runtime="megatron-core", top=3)
    assert all(not violations(plan) and plan.prediction.breakdown["tower"] > 0 for plan in found.plans)


# ---- files and messages ----------------------------------------------------------------------------------------------


def test_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "seeing.toml"
    path.write_text(files.dump(SEEING))
    assert from_file(path, SEEING.id) == SEEING


def test_import_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "config.json", tmp_path / "seeing.toml"
    source.write_text(json.dumps(towers.DATA["qwen2.5-vl-7b"]["config"]))
    assert main(["models", "import", str(source), "--images", "4", "-o", str(target)]) == 0
    shown = capsys.readouterr().out
    assert "tower, frozen" in shown and "8,292,166,656" in shown and "tower.patches" in shown
    assert main(["models", "import", str(source), "--images", "4", "--train-tower"]) == 0
    assert "trained = true" in capsys.readouterr().out
    assert main(["models", "import", str(source), "--train-tower"]) == 2
    assert "--train-tower goes with --images N" in capsys.readouterr().err
    assert main(["models", "import", str(source)]) == 0
    assert "models import --images N: with it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attended": 1e6}, "tower.attended = 1,000,000.0: there are 4,096 patches"),
        ({"parameters": 7}, "tower.parameters = 7: its layers' products alone have"),
    ],
)
def test_rules(changes: dict[str, Any], words: str) -> None:
    assert SEEING.tower is not None
    assert words in model_rules.problems(replace(SEEING, tower=replace(SEEING.tower, **changes)))[0]


@sweep("text", ["0", "x", "4@", "4@0x", "-1", "10001", "1@99999", ""])
def test_images_are_a_number(text: str) -> None:
    with pytest.raises(WrongQuestion, match="must be N or N@PIXELS"):
        asked(text)


@pytest.mark.parametrize(
    ("entry", "images", "words"),
    [
        ("gemma3-27b", "1@512", "image_size = 896: its images are all of that size; leave out @512"),
        ("qwen3-vl-8b", "1@8", "images of 8 pixels have no patch"),
    ],
)
def test_images_of_another_size(entry: str, images: str, words: str) -> None:
    with pytest.raises(WrongQuestion) as caught:
        towers.model(entry, images)
    assert words in str(caught.value)


def test_what_has_no_known_tower_is_refused() -> None:
    config = {k: v for k, v in towers.DATA["qwen2.5-vl-7b"]["config"].items() if k != "vision_config"}
    with pytest.raises(WrongQuestion, match="it has no vision tower that is understood"):
        from_config(config, "x", asked=asked("1"))


def test_images_stand_in_the_sequence_and_learn_from_texts() -> None:
    with pytest.raises(WrongQuestion, match="4 images of 1,024 tokens"):
        workload(SEEING, sequence=4095)
    with pytest.raises(WrongQuestion, match="priced with sft alone"):
        workload(SEEING, method="lora", task="dpo")
    assert towers.model("qwen2.5-vl-7b", "20@896").sequence == 32768


def test_no_module_of_a_target_has_one() -> None:
    from planner.launchers.bundle import refusals
    from planner.launchers.registry import EXPORTERS

    plan = plans(SEEING).plans[0]
    assert "a tower" in next(refusals(plan, EXPORTERS["megatron"]))
    assert not list(refusals(plan, EXPORTERS["torchrun"]))
