"""OpenRLHF's ``train_ppo_ray`` to a stated step: its command, with options of 2024 (``--zero_stage``) or dotted ones.

Colocated where ``colocate_all_models`` is set, one step off where ``async_train`` is, in step on two sets of
accelerators otherwise. Read at 3c3be623 and, for the options without dots, in Alex-Gurung/OpenRLHF@746b945
(openrlhf/cli/train_ppo_ray.py, openrlhf/trainer/ray).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading.command import options
from planner.launchers.reading.hydra import word
from planner.launchers.reading.post_training import (
    PADDED,
    StatedStep,
    TrainerFlags,
    keys,
    only_step,
    other_keys,
    renamed,
)
from planner.launchers.reading.shell.expansion import open_variable
from planner.launchers.reading.shell.script import Script

SOURCE = "openrlhf-rl"
PROGRAM = re.compile(r"(.*[./])?train_ppo_ray(\.py)?")
TASKS = {"gae": "ppo", "rloo": "rloo"}
ESTIMATORS = ("reinforce", "reinforce_baseline", "group_norm", "dr_grpo")
"""Estimators of advantages with the work of GRPO."""


def read(commands: Script) -> StatedStep:
    """A command, or a script with one.

    Raises:
        WrongQuestion: there is none, or it says what no stated step holds.
    """
    steps = []
    for words in (words for way in commands.ways for words in way):
        at = next((at for at, text in enumerate(words) if PROGRAM.fullmatch(text)), None)
        if at is not None:
            flags = options(words[at + 1 :], keys(SOURCE).left)
            left = {name: texts for name, texts in flags.items() if name not in commands.ignored}
            steps.append(_read({name: True if not texts else word(texts[0]) for name, texts in left.items()}))
    if steps:
        return only_step(SOURCE, steps)
    raise WrongQuestion(f"--from {SOURCE}: no command with openrlhf.cli.train_ppo_ray in it")


def _read(stated: Mapping[str, Any]) -> StatedStep:
    flags = TrainerFlags(source=SOURCE, values=renamed(SOURCE, stated), rows=None)
    for name, value in flags.values.items():
        if open_variable(str(value)) and _matters(flags, name):
            raise WrongQuestion(f"--from {SOURCE}: {name} {value:.60}: the text does not set it; --env does")
    estimator = str(flags.get("advantage_estimator"))
    if estimator not in TASKS and estimator not in ESTIMATORS:
        able = ", ".join((*TASKS, *ESTIMATORS))
        raise WrongQuestion(f"--from {SOURCE}: advantage_estimator {estimator:.40}: read are {able}")
    task = TASKS.get(estimator, "grpo")
    differs = list(other_keys(flags, re.compile("critic_.*" if task != "ppo" else "$^")))
    differs += [] if estimator in TASKS else [f"advantages by {estimator}; predicted as GRPO, whose work is the same"]
    if flags.count_or_none("vllm_num_engines") is None:
        raise WrongQuestion(
            f"--from {SOURCE}: vllm_num_engines is not set: DeepSpeed generates, which no stated step holds"
        )
    together = bool(flags.get("colocate_all_models"))
    reference = float(flags.get("init_kl_coef") or 0) != 0
    if not together:
        _refuse_others(flags, reference, task)
    train = flags.count("actor_num_nodes") * flags.count("actor_num_gpus_per_node")
    rollout = flags.count("vllm_num_engines") * flags.count("vllm_tensor_parallel_size")
    if together and rollout != train:
        differs.append(f"{rollout} accelerators roll out, of {train}; predicted on all")
    prompts = flags.count("rollout_batch_size")
    samples = flags.count("n_samples_per_prompt")
    batch = flags.count("train_batch_size")
    if prompts * samples % batch:
        raise WrongQuestion(
            f"--from {SOURCE}: train_batch_size {batch:,}: does not divide the {prompts * samples:,} responses of a "
            "step"
        )
    judged = not (flags.get("remote_rm_url") or flags.get("agent_func_path"))
    packs = flags.get("packing_samples")
    dynamic = flags.get("use_dynamic_batch")
    dotted = any("." in name for name in stated)
    usual = 1 if dotted else 4
    eager = ",eager" if flags.get("enforce_eager") else ""
    half = flags.get("bf16") or str(flags.get("param_dtype") or ("bf16" if dotted else "")) == "bf16"
    differs += [] if half else ["32-bit products, unless bf16 is asked for; predicted in bf16"]
    offload = "optimizer" if flags.get("adam_offload") else "none"
    settings = {"tp": flags.count("ds_tensor_parallel_size"), "offload": offload}
    return StatedStep(
        model=str(flags.get("pretrain") or ""),
        asked={
            "task": task, "prompts": prompts, "samples": samples, "updates": prompts * samples // batch,
            "reference": reference, "engine": "vllm", "runtime": "deepspeed", "precision": "bf16",
            "placement": "colocated" if together else "one-step-off" if flags.get("async_train") else "in-step",
            "rollout": f"tp={flags.count('vllm_tensor_parallel_size')},"
                       f"share={flags.measure('vllm_gpu_memory_utilization'):.6g}{eager}",
            "states": ("host" if flags.get("deepspeed_enable_sleep") else "accelerator") if together else None,
            "weights": None if together else "broadcast",
            "critic": (flags.get("critic_pretrain") or flags.get("reward_pretrain")) if task == "ppo" else None,
            "reward": flags.get("reward_pretrain") if judged else None,
        },
        settings={
            "zero": flags.count("zero_stage") if flags.get("zero_stage") else 0,
            "recompute": "full" if flags.get("gradient_checkpointing") else "none",
            **{axis: value for axis, value in settings.items() if value not in (1, "none")},
        },
        train=train,
        rollout=None if together else rollout,
        response_cap=flags.count("generate_max_len" if flags.get("generate_max_len") else "max_len"),
        prompt_cap=flags.count_or_none("prompt_max_len"),
        group_tokens=flags.count("train_max_tokens_per_gpu") if dynamic else None,
        micro_responses=None if dynamic else flags.count_or_none("micro_train_batch_size") or usual,
        differs=(*differs, *([] if packs else [PADDED])),
    )  # fmt: skip


def _matters(flags: TrainerFlags, name: str) -> bool:
    return not flags.keys.harmless.fullmatch(name) and not name.endswith(("pretrain", "remote_rm_url", "_path"))


def _refuse_others(flags: TrainerFlags, reference: bool, task: str) -> None:
    """Refuses models that have accelerators beside the policy's and rollout's.

    Raises:
        WrongQuestion: one has.
    """
    alone = [
        *(["ref"] if reference and not flags.get("colocate_actor_ref") else []),
        *(["critic"] if task == "ppo" else []),
        *(["reward"] if flags.get("reward_pretrain") and not flags.get("remote_rm_url") else []),
    ]
    keys = [f"{name}_num_gpus_per_node" for name in alone]
    if (key := next((key for key in keys if key in flags.values), None)) is not None:
        raise WrongQuestion(
            f"--from {SOURCE}: {key} {flags.values[key]}: its accelerators are its own, which no stated step holds; "
            f"--ignore {key} predicts it on the policy's"
        )
