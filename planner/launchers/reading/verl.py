"""verl's configuration to a stated step: overrides of a command line, or its YAML; of three programs.

``main_ppo`` is colocated, ``one_step_off_policy`` one step off, ``fully_async_policy`` asynchronous, or in step where
its ``staleness_threshold`` is 0. Read at 1dda039b. ``max_num_seqs`` and ``data_parallel_size`` go to vLLM as they are
(verl/workers/rollout/vllm_rollout/vllm_async_server.py, lines 310 and 361-376), where each data-parallel rank is an
engine with the limit of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.axes.values import over_nodes
from planner.base.errors import WrongQuestion
from planner.launchers.post_training_files import MODULES, STREAMING
from planner.launchers.reading.command import refuse_open
from planner.launchers.reading.hydra import flat, inherited_engine, overrides
from planner.launchers.reading.post_training import (
    MEGATRON_AXES,
    PADDED,
    StatedStep,
    TrainerFlags,
    other_keys,
    other_layout,
    renamed,
    settings,
)
from planner.launchers.reading.shell.expansion import open_variable
from planner.launchers.reading.shell.script import Branches, Script
from planner.launchers.reading.trainer_dialects import mapping
from planner.launchers.reading.verl_releases import as_of_today
from planner.schema.choices import Placement
from planner.schema.launcher_table import launcher_table

PLACED: Mapping[str, Placement] = {
    MODULES["colocated"]: "colocated", MODULES["one-step-off"]: "one-step-off", STREAMING: "async",
}  # fmt: skip
TASKS = {"grpo": "grpo", "rloo": "rloo", "gae": "ppo"}
CRITIC_FREE = ("reinforce_plus_plus", "reinforce_plus_plus_baseline", "gpg", "opo", "grpo_passk", "rloo_vectorized",
               "grpo_vectorized", "optimal_token_baseline", "gdpo")  # fmt: skip
"""Estimators of advantages with the work of GRPO."""
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
SENT = {None: "broadcast", "naive": "broadcast", "nccl": "broadcast", "kimi_ckpt_engine": "checkpoint-engine"}
"""Backend of new weights -> how they are predicted, apart; its configurations of roles apart have nccl."""
AXES = {"megatron": MEGATRON_AXES, "fsdp": ("cp", "zero", "recompute")}
ROLE = "actor_rollout_ref."
ACTOR = f"{ROLE}actor."
ROLLOUT = f"{ROLE}rollout."


def read(script: Script) -> StatedStep:
    """A command, or a script with one.

    Raises:
        WrongQuestion: it starts none of verl's programs that train, or says what no stated step holds.
    """
    commands: list[tuple[str, dict[str, Any]]] = []
    taken_for: list[str] = []
    for way in script.ways:
        for words in way:
            at = next((at for at, word in enumerate(words) if at and words[at - 1] == "-m"), 0)
            alike = at and any(word.lstrip("+").startswith(ROLLOUT) for word in words[at:])
            if words[at].startswith("verl.") or alike:
                refuse_open(words[at + 1 :])
                others = [] if words[at].startswith("verl.") else [words[at]]
                taken_for += [other for other in others if other not in taken_for]
                started = (MODULES["colocated"] if others else words[at], overrides(words[at + 1 :]))
                commands += [started] if started not in commands else []
    if not commands:
        raise WrongQuestion(f"--from verl: no command with python3 -m {', '.join(PLACED)} in it")
    steps = []
    for module, values in commands:
        if module not in PLACED:
            raise WrongQuestion(f"--from verl: {module}: read are {', '.join(PLACED)}")
        try:
            steps.append(_read(PLACED[module], {n: v for n, v in values.items() if n not in script.ignored}))
        except WrongQuestion:
            if len(commands) == 1:
                raise
    if any(step != steps[0] for step in steps[1:]) or len(steps) < len(commands):
        _refuse_several([values for _, values in commands])
    notes = [f"{other}: taken for {MODULES['colocated']}, whose keys it has" for other in taken_for]
    return replace(steps[0], assumed=(*steps[0].assumed, *notes))


def _refuse_several(started: Sequence[Mapping[str, Any]]) -> None:
    """Refuses a script that may start commands of different steps.

    Raises:
        Branches: always; it names a key in which they differ.
    """
    first = started[0]
    name, other = next((name, values.get(name)) for values in started[1:] for name in (*values, *first)
                       if values.get(name) != first.get(name))  # fmt: skip
    raise Branches(
        f"the script may start commands with {name} {first.get(name, 'left out')!s:.40} and {other!s:.40}: set the "
        "variable that decides (--env NAME=VALUE), or read what it starts with --run-script"
    )


def read_file(text: str, folder: Path, files: tuple[Path, ...], ignored: frozenset[str]) -> StatedStep:
    """A YAML of its configuration.

    Raises:
        WrongQuestion: it says what no stated step holds.
    """
    values = flat(mapping(text))
    engine = None if "defaults" in ignored else inherited_engine(values.get("defaults") or ())
    if engine is not None:
        values.setdefault("model_engine", engine)
    placement: Placement = "async" if "async_training.staleness_threshold" in values else "colocated"
    if placement == "colocated" and ("rollout.nnodes" in values or values.get(f"{ROLE}hybrid_engine") is False):
        placement = "one-step-off"
    return _read(placement, {name: value for name, value in values.items() if name not in ignored})


def _read(placement: Placement, values: Mapping[str, Any]) -> StatedStep:
    values, assumed = as_of_today(values)
    kind = _engine(values)
    rows = launcher_table(f"rl_verl_{kind}")
    flags = TrainerFlags(source="verl", values=renamed("verl", values), rows=rows)
    read_keys = {row.name.lstrip("+") for row in rows.options.values() if not row.is_job}
    if left := next((n for n in read_keys & flags.values.keys() if open_variable(str(flags.values[n]))), None):
        raise WrongQuestion(f"--from verl: {left} {flags.values[left]:.60}: the text does not set it; --env does")
    estimator = str(flags.get("algorithm.adv_estimator"))
    if estimator not in TASKS and estimator not in CRITIC_FREE:
        able = ", ".join((*TASKS, *CRITIC_FREE))
        raise WrongQuestion(f"--from verl: algorithm.adv_estimator {estimator:.40}: read are {able}")
    task = TASKS.get(estimator, "grpo")
    streams = placement == "async"
    stale = flags.measure("async_training.staleness_threshold") if streams else None
    if streams and not stale:
        placement = "in-step"
    mini = flags.count(f"{ACTOR}ppo_mini_batch_size")
    updates, prompts = _batches(flags, mini, streams)
    apart = placement != "colocated"
    reference = bool(flags.get(f"{ACTOR}use_kl_loss") or flags.get("algorithm.use_kl_in_reward"))
    aside = [] if task == "ppo" else [r"critic\..*"]
    aside += [] if reference else [rf"{re.escape(ROLE)}ref\..*"]
    aside += [] if streams else [r"async_training\..*", r"data\.gen_batch_size"]
    differs = [
        *other_layout(flags, "critic.", "the critic", task == "ppo"),
        *other_layout(flags, f"{ROLE}ref.", "the reference", reference),
    ]
    aside += [rf"{re.escape(ROLE)}model\.enable_gradient_checkpointing"] if kind == "megatron" else []
    differs += other_keys(flags, re.compile("|".join(aside)))
    if apart and flags.get("algorithm.rollout_correction.bypass_mode") is not False:
        differs.append("old log-probabilities are the engine's (bypass_mode); predicted computed by the trainer")
    backend = flags.get(f"{ROLLOUT}checkpoint_engine.backend")
    if apart and backend not in SENT:
        differs.append(f"new weights are sent by {backend!s:.40}; predicted as an NCCL broadcast")
    if estimator not in TASKS:
        differs.append(f"advantages by {estimator}; predicted as GRPO, whose work is the same")
    flags = _completed(_offloads(flags, kind, apart, differs), differs)
    axes = settings(flags, AXES[kind])
    differs += _sharding(flags, kind, axes)
    groups = flags.count(f"{ROLLOUT}data_parallel_size")
    wide = groups * flags.count(f"{ROLLOUT}tensor_model_parallel_size")
    if (spread := flags.get(f"{ROLLOUT}expert_parallel_size") or 1) not in (wide, 1 if groups == 1 else wide):
        differs.append(f"a replica spreads its experts over {spread} ranks; predicted over all {wide}")
    samples = flags.count(f"{ROLLOUT}n")
    padded = flags.get(f"{ROLE}model.use_remove_padding") is False
    dynamic = bool(flags.get(f"{ACTOR}use_dynamic_bsz")) and not padded
    cp = int(str(axes.get("cp", 1)))
    return StatedStep(
        model=str(flags.get(f"{ROLE}model.path") or ""),
        asked={
            "task": task, "prompts": prompts, "samples": samples, "updates": updates, "reference": reference,
            "placement": placement, "staleness": stale or None,
            "engine": _named(flags, f"{ROLLOUT}name", ENGINES),
            "rollout_precision": flags.fact("rollout_precision"),
            "rollout": _replica(flags, groups, samples, apart, streams),
            "states": None if apart else flags.fact("states"),
            "weights": SENT.get(backend, "broadcast") if apart else None,
            "critic": flags.get("critic.model.path") if task == "ppo" else None,
            "reward": flags.get("reward.reward_model.model_path") if flags.get("reward.reward_model.enable") else None,
            "steps": _steps(flags, prompts, streams),
            "runtime": "megatron-core" if kind == "megatron" else "fsdp2", "precision": "bf16",
        },
        settings=axes,
        train=flags.count("trainer.nnodes") * flags.count("trainer.n_gpus_per_node"),
        rollout=flags.count("rollout.nnodes") * flags.count("rollout.n_gpus_per_node") if apart else None,
        response_cap=flags.count("data.max_response_length"),
        prompt_cap=flags.count("data.max_prompt_length"),
        group_tokens=flags.count(f"{ACTOR}ppo_max_token_len_per_gpu") * cp if dynamic else None,
        micro_responses=None if dynamic else flags.count(f"{ACTOR}ppo_micro_batch_size_per_gpu"),
        differs=(*differs, *([PADDED] if padded else [])),
        assumed=tuple(assumed),
    )  # fmt: skip


def _engine(values: Mapping[str, Any]) -> str:
    """``megatron`` or ``fsdp``.

    Raises:
        WrongQuestion: another engine trains.
    """
    for name in ("model_engine", f"{ACTOR}strategy"):
        value = values.get(name)
        if value == "megatron":
            return "megatron"
        if value not in (None, "dp", "fsdp", "fsdp2"):
            raise WrongQuestion(f"--from verl: {name}={value!s:.40}: read are megatron, fsdp and fsdp2")
    return "fsdp"


def _named(flags: TrainerFlags, name: str, words: Mapping[str, str]) -> str:
    value = flags.get(name)
    if value not in words:
        stated = "is not stated" if value is None else f"{value!s:.40}"
        raise WrongQuestion(f"--from verl: {name} {stated}: read are {', '.join(words)}")
    return words[value]


def _batches(flags: TrainerFlags, mini: int, streams: bool) -> tuple[int, int]:
    """Updates and prompts of a step; of a stream, those between two synchronisations."""
    if streams:
        updates = flags.count("async_training.trigger_parameter_sync_step")
        updates *= flags.count("async_training.require_batches")
        return updates, mini * updates
    prompts = flags.count("data.train_batch_size")
    generated = flags.get("data.gen_batch_size")
    if generated not in (None, prompts):
        raise WrongQuestion(
            f"--from verl: data.gen_batch_size {generated}: more is generated than trained on, which no stated step "
            "holds; --ignore data.gen_batch_size prices the rest without"
        )
    if prompts % mini:
        raise WrongQuestion(
            f"--from verl: {ACTOR}ppo_mini_batch_size {mini}: does not divide data.train_batch_size {prompts}"
        )
    return prompts // mini, prompts


def _steps(flags: TrainerFlags, prompts: int, streams: bool) -> int | None:
    """Steps of the run, where they are stated."""
    whole = flags.count_or_none("rollout.total_rollout_steps" if streams else "trainer.total_training_steps")
    return whole // prompts if whole and streams else whole


def _replica(flags: TrainerFlags, groups: int, samples: int, apart: bool, streams: bool) -> str:
    """A replica as ``--rollout`` says it: its limit of responses is that of a data-parallel rank."""
    tp = flags.count(f"{ROLLOUT}tensor_model_parallel_size")
    alone = f"{ROLLOUT}standalone_gpu_memory_utilization"
    share = flags.measure(alone if apart and flags.get(alone) else f"{ROLLOUT}gpu_memory_utilization")
    at_once = flags.count(f"{ROLLOUT}max_num_seqs")
    if streams:
        at_once = min(at_once, max(1, flags.count("async_training.concurrent_samples_per_replica") * samples // groups))
    eager = ",eager" if flags.get(f"{ROLLOUT}enforce_eager") else ""
    return f"tp={tp},groups={groups},share={share:.6g},sequences={at_once}{eager}"


def _offloads(flags: TrainerFlags, kind: str, apart: bool, differs: list[str]) -> TrainerFlags:
    """The configuration with one place of the trainer's states: that of the optimizer's."""
    where = f"{ACTOR}megatron." if kind == "megatron" else f"{ACTOR}fsdp_config."
    parts = ("param", "grad", "optimizer") if kind == "megatron" else ("param", "optimizer")
    stated = {f"{where}{part}_offload": bool(flags.get(f"{where}{part}_offload")) for part in parts}
    optimizer = stated[f"{where}optimizer_offload"]
    if len(set(stated.values())) > 1:
        differs.append(f"weights and optimizer states are in different places while responses are generated; "
                       f"predicted all {'in host memory' if optimizer else 'on the accelerator'}")  # fmt: skip
    elif apart and optimizer:
        differs.append("states are in host memory between phases; predicted on the accelerator, where rollout is apart")
    values = {**flags.values, **dict.fromkeys(stated, optimizer)}
    return TrainerFlags(source=flags.source, values=values, rows=flags.rows)


def _sharding(flags: TrainerFlags, kind: str, axes: dict[str, object]) -> Iterator[str]:
    """Adds to the axes what no row says, and tells what is predicted otherwise."""
    if kind == "megatron":
        if str(axes.get("tp", 1)) == "1":
            axes.pop("sequence_parallel", None)
        parts = flags.get(f"{ACTOR}megatron.expert_tensor_parallel_size")
        if str(axes.get("ep", 1)) != "1" and parts != 1 and str(axes.get("tp", 1)) != "1":
            yield f"experts are cut over {parts or axes['tp']} ranks (expert_tensor_parallel_size); predicted whole"
        return
    axes |= {"cp_algorithm": "a2a"} if str(axes.get("cp", 1)) != "1" else {}
    if "fsdp2" not in (flags.get(f"{ACTOR}strategy"), flags.get(f"{ACTOR}fsdp_config.strategy")):
        yield "FSDP 1 shards the states; predicted with FSDP2"
    size = flags.get(f"{ACTOR}fsdp_config.fsdp_size") or -1
    per_node = flags.count("trainer.n_gpus_per_node")
    nodes = size // per_node if isinstance(size, int) and size % per_node == 0 else 0
    if 0 < nodes < flags.count("trainer.nnodes"):
        axes["zero_scope"] = over_nodes(nodes)
    elif size not in (-1, per_node * flags.count("trainer.nnodes")):
        key = f"{ACTOR}fsdp_config.fsdp_size"
        raise WrongQuestion(
            f"--from verl: {key} {size}: states are sharded over all ranks or nodes; --ignore {key} prices the first"
        )


def _completed(flags: TrainerFlags, differs: list[str]) -> TrainerFlags:
    """The configuration with what its trainer sets by itself, and without what is off."""
    values = dict(flags.values)
    megatron = f"{ACTOR}megatron."
    optimizer_keys = f"{ACTOR}optim.override_optimizer_config."
    if values.get(f"{megatron}use_megatron_fsdp"):  # verl/utils/megatron_utils.py, from line 410
        values.setdefault(f"{megatron}override_ddp_config.data_parallel_sharding_strategy", "optim_grads_params")
        values.setdefault(f"{megatron}override_ddp_config.overlap_grad_reduce", True)
    if not values.get(f"{optimizer_keys}optimizer_cpu_offload"):
        if values.get(f"{optimizer_keys}use_precision_aware_optimizer"):
            differs.append("an optimizer that is aware of precision (use_precision_aware_optimizer); predicted without")
        values = {name: value for name, value in values.items() if not name.startswith(optimizer_keys)}
    else:  # Megatron Core asks for it, and takes the whole where no fraction is said
        values[f"{optimizer_keys}use_precision_aware_optimizer"] = True
        values.setdefault(f"{optimizer_keys}optimizer_offload_fraction", 1.0)
    if values.get("reward.reward_model.enable"):
        differs.append("the reward model has an engine on the rollout's accelerators; predicted on the trainer's")
    return TrainerFlags(source=flags.source, values=values, rows=flags.rows)
