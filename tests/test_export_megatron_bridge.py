"""Megatron-Bridge: what a plan sets in a recipe, what is refused, and what the script does with its command line."""

import json
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from planner import api
from planner.base.errors import WrongQuestion
from planner.launchers import EXPORTERS, bundle, megatron_bridge, parts
from planner.launchers.benchmark import short
from planner.launchers.bundle import refusals
from planner.launchers.scripts import script as script_text
from planner.schema.plan import Plan
from tests.answered_once import answered_once

GIVEN = {"data-path": "/data/corpus", "tokenizer-model": "m", "save": "/out", "load": "/weights"}
IMPORTED = (
    *("torch", "megatron", "megatron.bridge", "megatron.bridge.peft", "megatron.bridge.training"),
    *("megatron.bridge.peft.canonical_lora", "megatron.bridge.training.comm_overlap"),
    "megatron.bridge.training.mixed_precision",
)


@answered_once
def plan(model: str, cluster: str, pins: str = "", method: str = "pretrain") -> Plan:
    """Under Megatron Core, whose rules are Bridge's."""
    runtime = "megatron-core" if method == "pretrain" else "hf-trainer"
    return api.estimate(model, cluster, pins.split(), runtime=runtime, method=method).plans[0]


def said(whole: Plan, **given: str) -> dict[str, Any]:
    """What ``bridge.json`` holds."""
    found: dict[str, Any] = json.loads(bundle(whole, parts("megatron-bridge"), GIVEN | given).files["bridge.json"])
    return found


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The exported script, with empty modules in place of what it imports."""
    for name in IMPORTED:
        module: Any = ModuleType(name)
        module.recipes = module.CanonicalLoRA = module.CommOverlapConfig = module.get_mixed_precision_config = None
        module.bfloat16 = "16 bit"
        monkeypatch.setitem(sys.modules, name, module)
    found: dict[str, Any] = {"__name__": "exported"}
    exec(script_text("megatron_bridge.py"), found)
    return found


def test_each_degree_is_set_by_its_name() -> None:
    settings = said(plan("llama3-70b", "dgx-h100:16", "tp=8 pp=4 vpp=5 cp=2"))["settings"]
    names = ("tensor", "pipeline", "virtual_pipeline")
    assert [settings[f"model.{name}_model_parallel_size"] for name in names] == [8, 4, 5]
    assert settings["model.context_parallel_size"] == 2


@pytest.mark.parametrize("pins", ["p2p_overlap=on", "p2p_overlap=off"])
def test_every_switch_of_overlap_is_said(pins: str) -> None:
    """What is left out Bridge would switch on by itself."""
    whole = plan("llama3-70b", "dgx-h100:16", f"tp=8 pp=4 vpp=4 dp_overlap=off {pins}")
    beside = pins.endswith("on")
    assert said(whole)["overlap"] == {
        "tp_comm_overlap": whole.overlap.tp,
        "overlap_p2p_comm": beside,
        "batch_p2p_comm": not beside,
        "overlap_grad_reduce": False,
        "overlap_param_gather": False,
        "overlap_moe_expert_parallel_comm": False,
    }


def test_adapters_start_from_weights() -> None:
    found = said(plan("llama3-8b", "dgx-h100:1", "", "lora"), **{"lora-alpha": "8"})
    assert found["adapters"]["alpha"] == 8
    assert set(found["adapters"]["target_modules"]) <= set(megatron_bridge.TABLE.head["modules"].values())
    assert found["settings"]["checkpoint.pretrained_checkpoint"] == "/weights"


@pytest.mark.parametrize(
    ("model", "cluster", "pins", "why"),
    [
        ("gpt3-175b", "dgx-a100-80gb:32", "tp=8 pp=8", "no recipe that was tried"),
        ("llama3-8b", "dgx-h100:2", "precision=fp32 tp=8", "precision fp32"),
        ("llama3.1-8b", "mi300x-8:2", "", "accelerators of nvidia"),
    ],
)
def test_what_is_refused(model: str, cluster: str, pins: str, why: str) -> None:
    assert why in "; ".join(refusals(plan(model, cluster, pins), EXPORTERS["megatron-bridge"]))


def test_shards_of_weights_have_one_order_of_ranks() -> None:
    whole = plan("llama3-8b", "dgx-h100:4", "zero=3")
    other = replace(whole, parallelism=replace(whole.parallelism, rank_order="tp-cp-ep-pp-dp"))
    assert not [*refusals(whole, EXPORTERS["megatron-bridge"])]
    assert "Megatron-FSDP takes tp-cp-ep-dp-pp" in "; ".join(refusals(other, EXPORTERS["megatron-bridge"]))


@pytest.mark.parametrize("method", ["pretrain", "lora"])
def test_fifty_steps_read_no_data_and_save_nothing(method: str) -> None:
    """Nothing but the weights under adapters is left to fill in."""
    made = bundle(plan("llama3-8b", "dgx-h100:1", "", method), parts("megatron-bridge"), {}, short)
    settings = json.loads(made.files["bridge.json"])["settings"]
    assert (settings["train.train_iters"], settings["dataset.blend"], settings["checkpoint.save"]) == (50, None, None)
    assert [setting.name for setting in made.missing] == (["load"] if method == "lora" else [])


def test_what_is_set_besides_and_contradicts_is_said() -> None:
    extra = {"extra-args": "train.train_iters=7 rng.seed=3"}
    made = bundle(plan("llama3-8b", "dgx-h100:1"), parts("megatron-bridge"), GIVEN | extra)
    (lost,) = [loss for loss in made.losses if loss.field == "extra-args"]
    assert "train.train_iters 7 overrides" in lost.why
    assert made.files["start.sh"].split()[-5::2] == ["train.py", "train.train_iters=7", "rng.seed=3"]


def test_the_script_sets_what_is_there(script: dict[str, Any]) -> None:
    config = SimpleNamespace(model=SimpleNamespace(dtype=None, layers=1))
    script["put"](config, "model.dtype", "torch.bfloat16")
    script["put"](config, *script["given"]("model.layers=2"))
    assert (config.model.dtype, config.model.layers) == ("16 bit", 2)
    assert script["given"]("checkpoint.save=/out") == ("checkpoint.save", "/out")


@pytest.mark.parametrize("path", ["model.layer", "models.layers", "model.layers.more"])
def test_the_script_refuses_what_is_not_there(path: str, script: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match=f"{path} is no setting of this version"):
        script["put"](SimpleNamespace(model=SimpleNamespace(layers=1)), path, 2)
    with pytest.raises(SystemExit, match="write PATH=VALUE"):
        script["given"](path)


def test_a_learning_rate_is_a_number() -> None:
    with pytest.raises(WrongQuestion, match="not a number"):
        said(plan("llama3-8b", "dgx-h100:1"), lr="fast")
