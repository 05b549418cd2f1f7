"""Configurations of post-training as stated steps: what export wrote reads back, and no key is dropped in silence."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.api import imported_step
from planner.api.post_training import plan_rl
from planner.base.errors import WrongQuestion
from planner.launchers import post_training
from planner.launchers.reading import trainers_of_rl
from planner.launchers.reading.started import AS_IT_IS, Started
from planner.schema.rl import RLPlan, RLPlanSet

GIVEN = {"model": "org/policy", "max-prompt": "512"}
SOURCES = ("verl", "nemo-rl")
COMMAND = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=512 "
    "data.max_prompt_length=1024 data.max_response_length=3072 actor_rollout_ref.model.path=Qwen/Qwen3-8B "
    "actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.actor.ppo_mini_batch_size=128 "
    "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8"
)


def read(source: str, text: str, cluster: str, *ignored: str, **given: Any) -> imported_step.ImportedStep:
    """A configuration on a cluster."""
    started = Started(ignored=frozenset(ignored))
    return imported_step.imported(source, text, [cluster], started, given)


@pytest.fixture(scope="module", params=("megatron-core", "fsdp2"))
def answer(request: pytest.FixtureRequest) -> RLPlanSet:
    """Llama 3.1 8B on two nodes, one of them for each role."""
    pin = "zero=1,tp=2" if request.param == "megatron-core" else "tp=1,pp=1"
    rollout = "tp=2,eager" if request.param == "megatron-core" else "tp=2"
    found = plan_rl("llama3.1-8b", "dgx-h100:2", response="1k/4k", updates=4, split="8:8", pin=pin, rollout=rollout,
                    reference=True, runtime=request.param)  # fmt: skip
    assert isinstance(found, RLPlanSet)
    return found


def stated(plan: RLPlan) -> tuple[Any, ...]:
    """What of a plan a configuration states, but for the micro-batch."""
    trainer = plan.trainer
    layout = {axis: degree for axis, degree in trainer.layout.items() if axis != "micro"}
    side = plan.rollout[0]
    return (plan.placement, plan.staleness, layout, trainer.zero, trainer.recompute, trainer.options, side.tp,
            side.groups, side.precision, side.replicas, side.eager, trainer.accelerators)  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_what_export_wrote_reads_back(answer: RLPlanSet, source: str, tmp_path: Path) -> None:
    """A micro-batch holds the longest response at least, in the file as in what is read from it. NeMo-RL's file of one
    step off is that of staleness 1.
    """
    for plan in answer.plans:
        if source == "nemo-rl" and plan.staleness not in (0, 1):
            plan = replace(plan, staleness=1.0)
        made = post_training.made(answer, plan, source, GIVEN)
        file = tmp_path / "configuration"
        file.write_text(next(text for name, text in made.files.items() if name in ("start.sh", "nemo-rl.yaml")))

        found = read(source, str(file), "dgx-h100:2", model="llama3.1-8b", response="1k/4k")

        mine = found.answer.plans[0]
        alike = source == "nemo-rl" and plan.placement == "one-step-off"
        assert stated(mine) == stated(replace(plan, placement="async") if alike else plan)
        assert found.answer.work == answer.work
        if not alike:
            assert mine.phases.generation_s == pytest.approx(plan.phases.generation_s, rel=0.02)
        longest, packed = 512 + 4000, plan.trainer.packed_tokens
        if plan.trainer.layout["micro"] * packed >= longest:
            assert mine.trainer.layout["micro"] == plan.trainer.layout["micro"]
        else:
            assert plan.trainer.layout["micro"] <= mine.trainer.layout["micro"] <= longest / packed
        again = post_training.made(found.answer, mine, source, GIVEN)
        assert [t for n, t in again.files.items() if n != "target.json" and n != "README"] == [
            t for n, t in made.files.items() if n != "target.json" and n != "README"]  # fmt: skip


def test_command_without_response_lengths_says_what_it_took() -> None:
    found = read("verl", COMMAND, "dgx-h100:1")

    plan = found.answer.plans[0]
    assert (plan.placement, plan.trainer.zero, plan.trainer.recompute) == ("colocated", 3, "full")
    assert (found.answer.work.updates, found.answer.work.response_cap) == (4, 3072)
    assert plan.rollout[0].tp == 2 and plan.rollout[0].in_flight == 256  # verl's own defaults
    assert any("--response" in text for text in found.assumed)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            "actor_rollout_ref.model.lora_rank=32",
            "lora_rank 32: may change .* --ignore actor_rollout_ref.model.lora_rank",
        ),
        ("actor_rollout_ref.actor.new_parallel_size=4", "new_parallel_size: may change"),
        ("actor_rollout_ref.actor.ppo_epochs=2", "ppo_epochs 2"),
        ("--config-name=mine", "config-name: may change .* --ignore config-name"),
        ("-cn mine", "config-name: may change"),
        ("--config-path /mine/config", "config-path: may change"),
        ("~actor_rollout_ref.actor.optim", "~actor_rollout_ref.actor.optim: may change"),
        ("actor@actor_rollout_ref.actor=mine", "actor@actor_rollout_ref.actor: may change"),
        ("actor_rollout_ref.rollout.n=${N}", "n \\$\\{N\\}: the text does not set it"),
        ("algorithm.adv_estimator=remax", "adv_estimator remax: read are grpo"),
        ("trainer.nnodes=4", "8 accelerators train there, and 32 by the configuration"),
        ("actor_rollout_ref.actor.fsdp_config.fsdp_size=2", "fsdp_size 2"),
    ],
)
def test_what_no_stated_step_holds_is_refused(more: str, words: str) -> None:
    with pytest.raises(WrongQuestion, match=words):
        read("verl", f"{COMMAND} {more}", "dgx-h100:1")


def test_configurations_of_verl_itself_are_read() -> None:
    words = "--config-path=config --config-name='ppo_megatron_trainer.yaml'"

    found = read("verl", COMMAND.replace("strategy=fsdp2", "strategy=megatron") + f" {words}", "dgx-h100:1")

    assert found.answer.plans[0].trainer.runtime.startswith("megatron-core")


def test_ignored_key_is_told() -> None:
    key = "actor_rollout_ref.actor.new_parallel_size"

    found = read("verl", f"{COMMAND} {key}=4", "dgx-h100:1", key)

    assert f"left out as asked: {key}" in found.assumed


def test_limit_of_responses_is_that_of_an_attention_group(answer: RLPlanSet) -> None:
    plan = answer.plans[0]
    wide = replace(plan, rollout=(replace(plan.rollout[0], groups=4, in_flight=400.0),))

    made = post_training.made(answer, wide, "verl", GIVEN)

    assert "max_num_seqs=100 " in made.files["start.sh"]


@pytest.mark.parametrize(
    ("length", "words"), [("-5", "1 token or more"), ("0", "1 token"), ("2k", "1,024 tokens at most")]
)
def test_length_of_prompts_that_cannot_be_is_refused(length: str, words: str) -> None:
    with pytest.raises(WrongQuestion, match=f"--prompt-length {length}: .*{words}"):
        read("verl", COMMAND, "dgx-h100:1", prompt_length=length)


def test_yaml_has_the_engine_that_it_inherits(tmp_path: Path) -> None:
    keys = (word.partition("=") for word in COMMAND.split()[3:] if "strategy" not in word)
    text = "".join(f"{key}: {value}\n" for key, _, value in keys)
    file = tmp_path / "mine.yaml"
    file.write_text(f"defaults: [ppo_megatron_trainer, _self_]\n{text}")

    found = read("verl", str(file), "dgx-h100:1")

    assert found.answer.plans[0].trainer.runtime.startswith("megatron-core")
    file.write_text(f"defaults: [my_trainer, _self_]\n{text}")
    with pytest.raises(WrongQuestion, match="defaults my_trainer: read are ppo_trainer"):
        read("verl", str(file), "dgx-h100:1")


BASE = """
grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 8}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 256
  train_micro_batch_size: 2
  max_total_sequence_length: 4096
  sequence_packing: {enabled: true, train_mb_tokens: "${mul:${policy.max_total_sequence_length}, 2}"}
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 1, sequence_parallel: false}
  generation: {vllm_cfg: {tensor_parallel_size: 2, gpu_memory_utilization: 0.7}}
cluster: {num_nodes: 1, gpus_per_node: 8}
"""
CHILD = """
defaults: base.yaml
grpo: {async_grpo: {enabled: true, max_trajectory_age_steps: 2}}
policy:
  megatron_cfg: {tensor_model_parallel_size: 4, sequence_parallel: true}
  generation: {colocated: {enabled: false, resources: {gpus_per_node: 8, num_nodes: 1}}}
cluster: {num_nodes: 2}
"""


def test_recipe_leads_over_what_it_inherits(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    child = tmp_path / "child.yaml"
    child.write_text(CHILD)

    found = read("nemo-rl", str(child), "dgx-h100:2", response="1k")

    plan = found.answer.plans[0]
    work = found.answer.work
    assert (plan.placement, plan.staleness) == ("async", 2.0)
    assert (plan.trainer.accelerators, plan.rollout[0].accelerators, plan.rollout[0].tp) == (8, 8, 2)
    assert (plan.trainer.layout["tp"], plan.trainer.options.get("sequence_parallel")) == (4, True)
    assert (work.prompts, work.samples, work.updates, work.response_cap) == (64, 8, 2, 3840)
    assert any("8,192 tokens" in text for text in found.assumed)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("defaults: elsewhere.yaml", "elsewhere.yaml: no such file"),
        ("grpo: {use_dynamic_sampling: true}", "use_dynamic_sampling True: may change"),
        ("policy: {generation: {backend: sglang}}", "backend sglang: read is vllm"),
        ("policy: {train_global_batch_size: 100}", "does not divide the 512 responses"),
        ("policy: {generation: {vllm_cfg: {expert_parallel_size: 3}}}", "expert_parallel_size 3: no multiple"),
    ],
)
def test_recipe_that_no_stated_step_holds_is_refused(tmp_path: Path, more: str, words: str) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    child = tmp_path / "child.yaml"
    child.write_text(more if "defaults" in more else f"defaults: base.yaml\n{more}\n")

    with pytest.raises(WrongQuestion, match=words):
        read("nemo-rl", str(child), "dgx-h100:1")


def test_trl_is_read_with_its_server(answer: RLPlanSet, tmp_path: Path) -> None:
    """16 responses a micro-batch of 8 ranks, 64 of them a step of the optimizer, 4 steps of it on 8,192 responses."""
    plan = next(plan for plan in answer.plans if plan.placement == "in-step")
    trainer = replace(plan.trainer, runtime="fsdp2@2026", layout={axis: 1 for axis in plan.trainer.layout}, zero=3,
                      options={}, recompute="full")  # fmt: skip
    plan = replace(plan, trainer=trainer, rollout=(replace(plan.rollout[0], eager=None),))
    made = post_training.made(answer, plan, "trl", GIVEN)
    for name, text in made.files.items():
        (tmp_path / name).write_text(text)
    started = Started(files=(tmp_path / "accelerate.yaml", tmp_path / "serve.sh"))

    found = imported_step.imported("trl", str(tmp_path / "trl.yaml"), ["dgx-h100:2"], started,
                                   {"model": "llama3.1-8b", "response": "1k"})  # fmt: skip

    mine = found.answer.plans[0]
    assert (mine.placement, mine.trainer.zero, mine.trainer.recompute) == ("in-step", 3, "full")
    assert (mine.trainer.accelerators, mine.rollout[0].replicas, mine.rollout[0].tp) == (8, 4, 2)
    assert (found.answer.work.updates, found.answer.work.prompts, found.answer.work.samples) == (4, 512, 16)
    with pytest.raises(WrongQuestion, match="how many processes"):
        imported_step.imported("trl", str(tmp_path / "trl.yaml"), ["dgx-h100:2"], Started(), {"model": "llama3.1-8b"})


def test_command_of_nemo_rl_is_known_and_needs_its_recipe() -> None:
    other = COMMAND.replace("verl.trainer.main_ppo", "mine.main_grpo")
    assert trainers_of_rl.detected(other) == "verl"
    step = trainers_of_rl.read("verl", other, AS_IT_IS)
    assert "mine.main_grpo: taken for verl.trainer.main_ppo, whose keys it has" in step.assumed
    assert trainers_of_rl.detected("uv run examples/run_grpo.py --config base.yaml") == "nemo-rl"
    with pytest.raises(WrongQuestion, match="no recipe \\(--config FILE\\)"):
        read("nemo-rl", "uv run examples/run_grpo.py", "dgx-h100:1")


def test_value_of_a_command_is_inserted_as_that_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(BASE)
    longer = tmp_path / "longer.yaml"
    longer.write_text(BASE.replace("sequence_length: 4096", "sequence_length: 8192"))
    script = tmp_path / "start.sh"
    script.write_text("uv run examples/run_grpo.py --config base.yaml policy.max_total_sequence_length=8192\n")

    found = read("nemo-rl", str(script), "dgx-h100:1", response="1k")

    told = read("nemo-rl", str(longer), "dgx-h100:1", response="1k")
    assert found.settings == told.settings and found.answer.work == told.answer.work
    assert any("16,384 tokens" in text for text in found.assumed)


@pytest.mark.parametrize("words", ["train.py --run_name my-grpo --wandb grpo", "sft.py --rewards my_grpo.py"])
def test_value_of_an_option_is_no_program(words: str) -> None:
    with pytest.raises(WrongQuestion, match="no command with trl grpo"):
        read("trl", f"accelerate launch --num_processes 8 {words} --use_vllm true", "dgx-h100:1")
