"""Plans of post-training as files of verl, NeMo-RL and TRL: read back, and nothing that a plan decides is dropped."""

import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from planner.api import documents
from planner.api.post_training import plan_rl
from planner.base.errors import WrongQuestion
from planner.launchers import post_training
from planner.question.document_options import ExportQuestion
from planner.schema.launcher_table import launcher_table
from planner.schema.rl import RLPlan, RLPlanSet

GIVEN = {"model": "org/policy", "max-prompt": "512"}
RUNTIMES = {"verl": "megatron-core@2026.06", "nemo-rl": "megatron-core@2026.06", "trl": "fsdp2@2026"}


@pytest.fixture(scope="module")
def answer() -> RLPlanSet:
    """Llama 3.1 8B on two nodes, one of them for each role."""
    found = plan_rl("llama3.1-8b", "dgx-h100:2", response="1k/4k", updates=4, split="8:8", pin="zero=1,tp=2",
                            rollout="tp=1")  # fmt: skip
    assert isinstance(found, RLPlanSet)
    return found


def of(answer: RLPlanSet, target: str, placement: str) -> RLPlan:
    """A placement, as the target's runtime might have it."""
    plan = next(plan for plan in answer.plans if plan.placement == placement)
    trainer = replace(plan.trainer, runtime=RUNTIMES[target])
    if target == "trl":
        trainer = replace(trainer, layout={axis: 1 for axis in trainer.layout}, zero=3, options={}, recompute="none")
    return replace(plan, trainer=trainer)


def overrides(text: str) -> dict[str, str]:
    """What verl is told."""
    words = shlex.split(text[text.index("python3") :].replace("\\\n", " "))
    return dict(word.lstrip("+").split("=", 1) for word in words[4:])


def test_verl_is_told_both_layouts_and_the_staleness(answer: RLPlanSet) -> None:
    plan = of(answer, "verl", "async")
    made = post_training.made(answer, plan, "verl", GIVEN)
    told = overrides(made.files["start.sh"])
    assert "fully_async_policy.fully_async_main" in made.files["start.sh"]
    assert told["actor_rollout_ref.actor.megatron.tensor_model_parallel_size"] == "2"
    assert told["actor_rollout_ref.rollout.tensor_model_parallel_size"] == "1"
    assert float(told["async_training.staleness_threshold"]) == plan.staleness
    assert int(told["actor_rollout_ref.actor.ppo_mini_batch_size"]) * answer.work.updates == answer.work.prompts
    assert int(told["trainer.nnodes"]) * int(told["trainer.n_gpus_per_node"]) == plan.trainer.accelerators
    assert int(told["rollout.nnodes"]) * int(told["rollout.n_gpus_per_node"]) == plan.rollout[0].accelerators
    assert int(told["data.max_prompt_length"]) + int(told["data.max_response_length"]) == 512 + 4000


def test_nemo_rl_is_told_both_layouts_and_the_staleness(answer: RLPlanSet) -> None:
    plan = of(answer, "nemo-rl", "one-step-off")
    told = yaml.safe_load(post_training.made(answer, plan, "nemo-rl", GIVEN).files["nemo-rl.yaml"])
    assert told["defaults"].endswith("grpo_math_1B_megatron.yaml")
    assert told["policy"]["megatron_cfg"]["tensor_model_parallel_size"] == 2
    assert told["grpo"]["async_grpo"] == {"enabled": True, "max_trajectory_age_steps": 1}
    assert told["policy"]["generation"]["colocated"] == {
        "enabled": False, "resources": {"gpus_per_node": 8, "num_nodes": 1}}  # fmt: skip
    assert told["cluster"] == {"num_nodes": 2, "gpus_per_node": 8}
    assert told["policy"]["train_global_batch_size"] * answer.work.updates == 512 * 16
    with pytest.raises(WrongQuestion, match=r"part staleness 0\.5"):
        part = replace(of(answer, "nemo-rl", "async"), staleness=0.5)
        post_training.made(answer, part, "nemo-rl", GIVEN)


def test_trl_is_told_the_batch_and_its_engine(answer: RLPlanSet) -> None:
    made = post_training.made(answer, of(answer, "trl", "in-step"), "trl", GIVEN)
    told, below = yaml.safe_load(made.files["trl.yaml"]), yaml.safe_load(made.files["accelerate.yaml"])
    step = told["per_device_train_batch_size"] * told["gradient_accumulation_steps"] * below["num_processes"]
    assert step * answer.work.updates == told["generation_batch_size"] == 512 * 16
    assert told["vllm_mode"] == "server" and "--data_parallel_size 8" in made.files["serve.sh"]
    with pytest.raises(WrongQuestion, match="it has colocated, in-step"):
        post_training.made(answer, of(answer, "trl", "async"), "trl", GIVEN)


OTHERS: dict[str, Any] = {
    **dict.fromkeys(("tp", "cp", "pp", "vpp", "ep"), 4), "zero": 0, "recompute": "full", "precision": "fp8",
    "offload": "optimizer", "sequence_parallel": False, "dispatcher": "deepep", "graphs": "full", "cp_algorithm": "a2a",
    "zero_scope": "node", "rank_order": "tp-cp-ep-pp-dp", "activation_offload": "all", "schedule": "zb-h1",
    "dp_overlap": False, "placement": "weights", "attention_kernel": "other",
}  # fmt: skip
"""Decision of the trainer -> another value."""


@pytest.mark.parametrize("target", RUNTIMES)
def test_no_decision_is_dropped_in_silence(answer: RLPlanSet, target: str) -> None:
    plan = of(answer, target, "in-step")
    plain = post_training.made(answer, plan, target, GIVEN)
    changed: dict[str, tuple[RLPlanSet, RLPlan]] = {}
    for name, listed in OTHERS.items():
        trainer = plan.trainer
        value = not trainer.options.get(name, False) if isinstance(listed, bool) else listed
        if name in trainer.layout:
            trainer = replace(trainer, layout={**trainer.layout, name: value})
        elif name in ("zero", "recompute", "precision"):
            trainer = replace(trainer, **{name: value})
        else:
            trainer = replace(trainer, options={**trainer.options, name: value})
        changed[name] = answer, replace(plan, trainer=trainer)
    side = plan.rollout[0]
    for name, other in {"tp": 2, "groups": 2, "precision": "fp8", "in_flight": 7.0, "memory_share": 0.5}.items():
        changed[f"rollout {name}"] = answer, replace(plan, rollout=(replace(side, **{name: other}),))
    work = {"prompts": 256, "samples": 8, "updates": 2, "response_cap": 3000.0, "reference": True, "task": "rloo",
            "steps": 7, "critic": "llama3.1-8b", "reward": "llama3.1-8b"}  # fmt: skip
    for name, other in work.items():
        changed[f"work {name}"] = replace(answer, work=replace(answer.work, **{name: other})), plan
    changed["engine"] = replace(answer, engine="sglang"), plan
    changed["two layouts"] = answer, replace(plan, rollout=(side, replace(side, tp=2)))
    changed["another pool"] = answer, replace(plan, rollout=(replace(side, pool="other"),))
    for name, (other, with_other) in changed.items():
        try:
            made = post_training.made(other, with_other, target, GIVEN)
        except WrongQuestion:
            continue
        files = [{k: v for k, v in each.files.items() if k.endswith((".sh", ".yaml"))} for each in (made, plain)]
        if with_other == plan and other == answer:
            continue
        told = (files[0], made.start) != (files[1], plain.start) or {loss.field for loss in made.losses} - {
            loss.field for loss in plain.losses
        }
        assert told or name in UNSAID.get(target, ()), name


UNSAID = {
    "nemo-rl": ("rollout in_flight",),  # told as lost in both
    # Its server stands wherever it is started; FSDP2 overlaps by itself.
    "trl": ("rollout in_flight", "another pool", "dp_overlap"),
}


@pytest.mark.parametrize("name", [name for tables in post_training.TARGETS.values() for name in tables.values()])
def test_tables_ask_for_what_there_is(answer: RLPlanSet, name: str) -> None:
    """A fact that is none would be left out of every file."""
    target = next(target for target, tables in post_training.TARGETS.items() if name in tables.values())
    plan = of(answer, target, "in-step")
    offered = dict.fromkeys(launcher_table(name).head["settings"], "1")
    known = post_training.facts(replace(answer, work=replace(answer.work, critic="x")),
                                replace(plan, critic=plan.trainer), offered)  # fmt: skip
    assert [row.name for row in launcher_table(name).options.values() if row.says not in known] == []


@pytest.mark.parametrize("flag", ["benchmark", "preflight"])
def test_what_is_not_written_for_post_training_is_refused(answer: RLPlanSet, flag: str) -> None:
    with pytest.raises(WrongQuestion, match=f"--{flag}: a plan of post-training"):
        documents.bundled(ExportQuestion(answer, to="verl", **{flag: True}), dict)
