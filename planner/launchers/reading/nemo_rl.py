"""NeMo-RL's recipe to a stated step: its YAML with those that it inherits (``defaults``), or the command with one.

A trajectory of at most s steps of age is asynchronous rollout with staleness s; one step off is written the same way
and is read so, too. What no file says stands as in examples/configs/grpo_math_1B.yaml of 7ea279ab.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.base.errors import WrongQuestion
from planner.launchers.reading.command import refuse_open
from planner.launchers.reading.hydra import flat, overrides
from planner.launchers.reading.post_training import (
    MEGATRON_AXES,
    PADDED,
    StatedStep,
    TrainerFlags,
    only_step,
    other_keys,
    settings,
)
from planner.launchers.reading.shell.script import Script
from planner.launchers.reading.trainer_dialects import mapping, named_file
from planner.schema.launcher_table import launcher_table

AXES = {"megatron": MEGATRON_AXES, "dtensor": ("tp", "cp", "recompute", "sequence_parallel")}
BASES = ("grpo_math_1B.yaml", "grpo_math_1B_megatron.yaml", "sft.yaml")
"""Recipes at the root of the others: where they are not read, ``rl_reading.toml`` (of sft.yaml ``formats.toml``) says
what they leave."""
MOST = 40
"""Recipes that one inherits in all, at most."""
POLICY = "policy."
VLLM = "policy.generation.vllm_cfg."


def read(script: Script) -> StatedStep:
    """A command with ``examples/run_grpo.py --config FILE key=value``.

    Raises:
        WrongQuestion: there is none, or it says what no stated step holds.
    """
    steps = []
    for words in (words for way in script.ways for words in way):
        at = next((at for at, word in enumerate(words) if re.search(r"run_grpo\w*\.py$", word)), None)
        if at is not None:
            words = words[at + 1 :]  # before it stand variables and what starts it
            refuse_open(words)
            after = words[words.index("--config") + 1 :] if "--config" in words else ()
            given = (word.partition("=")[2] for word in words if word.startswith("--config="))
            name = next(iter((*after, *given)), "")
            if not name:
                raise WrongQuestion("--from nemo-rl: the command names no recipe (--config FILE)")
            text = named_file(script.folder, name, script.files)
            folder = script.folder / Path(name).parent
            steps.append(read_file(text, folder, script.files, script.ignored, overrides(words)))
    if steps:
        return only_step("nemo-rl", steps)
    raise WrongQuestion("--from nemo-rl: no command with run_grpo.py and a recipe (--config FILE) in it")


def read_file(
    text: str, folder: Path, files: tuple[Path, ...], ignored: frozenset[str], over: Mapping[str, Any] | None = None
) -> StatedStep:
    """A recipe.

    Args:
        text: Its YAML.
        folder: Where it is.
        files: Files that stand for those that it inherits.
        ignored: Keys that are left out.
        over: Values of a command line, which lead.

    Raises:
        WrongQuestion: it inherits what is not there, or says what no stated step holds.
    """
    assumed: list[str] = []
    values = flat(_inherited(mapping(text), folder, files, assumed, Opened(folder, [])), over=over)
    return _read({name: value for name, value in values.items() if name not in ignored}, tuple(assumed))


def inherited(
    values: Mapping[str, Any], folder: Path, files: tuple[Path, ...], assumed: list[str] | None = None
) -> dict[str, Any]:
    """A recipe with what it inherits (``defaults``), from its folder or among the files that are given; what is taken
    in place of one is added to `assumed`.

    Raises:
        WrongQuestion: one of them is not there.
    """
    return _inherited(values, folder, files, [] if assumed is None else assumed, Opened(folder, []))


@dataclass(frozen=True, slots=True)
class Opened:
    """What recipes inherited so far."""

    within: Path
    """The folder of the recipe that was given, outside of which nothing is opened."""
    names: list[str]


def _inherited(
    values: Mapping[str, Any], folder: Path, files: tuple[Path, ...], assumed: list[str], opened: Opened
) -> dict[str, Any]:
    """A recipe over those that it inherits; the last of several leads."""
    parents = values.get("defaults") or []
    names = [parents] if isinstance(parents, str) else parents
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WrongQuestion(f"--from nemo-rl: defaults {parents!s:.60}: the name of a recipe, or several, is expected")
    whole: dict[str, Any] = {}
    for name in names:
        if len(opened.names) >= MOST:
            raise WrongQuestion(f"--from nemo-rl: defaults {name:.60}: more than {MOST} recipes inherit one another")
        opened.names.append(name)
        try:
            text = named_file(folder, name, files, opened.within)
        except WrongQuestion as error:
            if Path(name).name not in BASES:
                raise
            elsewhere = str(error).rpartition("; ")[2].removesuffix(" if it is meant")
            where = "not at hand" if "no such file" in str(error) else f"elsewhere ({elsewhere} reads it)"
            assumed.append(f"{Path(name).name} is {where}: what it says is taken from NeMo-RL 7ea279ab")
            if "megatron" in name:
                whole = _over(whole, {"policy": {"megatron_cfg": {"enabled": True}}})
            continue
        try:
            inner = mapping(text)
        except WrongQuestion as error:
            raise WrongQuestion(f"--from nemo-rl: defaults {name:.100}: {error}") from None
        whole = _over(whole, _inherited(inner, (folder / name).parent, files, assumed, opened))
    return _over(whole, values)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings in mappings, of which the second leads."""
    whole = dict(below)
    for name, value in above.items():
        inner = whole.get(name)
        whole[name] = _over(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return whole


def _read(values: dict[str, Any], assumed: tuple[str, ...]) -> StatedStep:
    kind = "megatron" if values.get(f"{POLICY}megatron_cfg.enabled") else "dtensor"
    if not values.get(f"{POLICY}megatron_cfg.activation_checkpointing"):
        values.pop(f"{POLICY}megatron_cfg.recompute_granularity", None)
    elif kind == "megatron":
        values.setdefault(f"{POLICY}megatron_cfg.recompute_granularity", "full")
    if not values.get(f"{POLICY}megatron_cfg.fp8_cfg.enabled"):
        values.pop(f"{POLICY}megatron_cfg.fp8_cfg.fp8_recipe", None)
    flags = TrainerFlags(source="nemo-rl", values=values, rows=launcher_table(f"rl_nemo_rl_{kind}"))
    other = {"megatron": "dtensor", "dtensor": "megatron"}[kind]
    differs = list(other_keys(flags, re.compile(rf"policy\.{other}_cfg\..*")))
    if (backend := flags.get(f"{POLICY}generation.backend")) != "vllm":
        raise WrongQuestion(f"--from nemo-rl: policy.generation.backend {backend!s:.40}: read is vllm")
    axes = settings(flags, AXES[kind])
    if str(axes.get("tp", 1)) == "1":
        axes.pop("sequence_parallel", None)
    if kind == "dtensor":
        axes["zero"] = 3
    prompts = flags.count("grpo.num_prompts_per_step")
    samples = flags.count("grpo.num_generations_per_prompt")
    batch = flags.count(f"{POLICY}train_global_batch_size")
    if prompts * samples % batch:
        raise WrongQuestion(
            f"--from nemo-rl: policy.train_global_batch_size {batch:,}: does not divide the {prompts * samples:,} "
            "responses of a step"
        )
    apart = flags.get(f"{POLICY}generation.colocated.enabled") is False
    stale = flags.count("grpo.async_grpo.max_trajectory_age_steps") if flags.get("grpo.async_grpo.enabled") else None
    if stale and not apart:
        raise WrongQuestion(
            "--from nemo-rl: grpo.async_grpo.enabled: only where policy.generation.colocated.enabled is false; nothing "
            "is stale in a step that is colocated"
        )
    train, rollout = _split(flags, apart)
    longest = flags.count(f"{POLICY}max_total_sequence_length")
    cap = min(longest, flags.count_or_none(f"{POLICY}generation.max_new_tokens") or longest)
    prompt_cap = min(longest, flags.count_or_none("data.max_input_seq_length") or longest)
    packs = flags.get(f"{POLICY}sequence_packing.enabled")
    dynamic = flags.get(f"{POLICY}dynamic_batching.enabled")
    micro = flags.count(f"{POLICY}train_micro_batch_size")
    group = flags.count_or_none(f"{POLICY}{'sequence_packing' if packs else 'dynamic_batching'}.train_mb_tokens")
    rloo = flags.get("grpo.use_leave_one_out_baseline") and flags.get("grpo.normalize_rewards") is False
    steps = flags.count_or_none("grpo.max_num_steps")
    return StatedStep(
        model=str(flags.get(f"{POLICY}model_name") or ""),
        asked={
            "task": "rloo" if rloo else "grpo", "prompts": prompts, "samples": samples,
            "updates": prompts * samples // batch,
            "reference": not flags.get("grpo.skip_reference_policy_logprobs_calculation"),
            "placement": "async" if stale else "in-step" if apart else "colocated",
            "staleness": float(stale) if stale else None, "engine": "vllm",
            "weights": "broadcast" if apart else None,
            "rollout_precision": flags.fact("rollout_precision"), "rollout": _replica(flags),
            "states": None if apart else "host", "steps": steps if steps and steps < 1e6 else None,
            "runtime": "megatron-core" if kind == "megatron" else "fsdp2",
            "precision": flags.fact("precision") or "bf16",
        },
        settings=axes,
        train=train,
        rollout=rollout,
        response_cap=cap if cap < longest else max(1, longest - 256),
        prompt_cap=prompt_cap if prompt_cap < longest else None,
        group_tokens=(group or longest * micro) if packs or dynamic else None,
        micro_responses=None if packs or dynamic else micro,
        differs=(*differs, *([] if packs or dynamic else [PADDED])),
        assumed=assumed,
    )  # fmt: skip


def _split(flags: TrainerFlags, apart: bool) -> tuple[int, int | None]:
    """Accelerators that train and that roll out: rollout has nodes of its own, or accelerators of the only one."""
    nodes = flags.count("cluster.num_nodes")
    per_node = flags.count("cluster.gpus_per_node")
    if not apart:
        return nodes * per_node, None
    where = f"{POLICY}generation.colocated.resources."
    each_node = flags.count(f"{where}gpus_per_node")
    rollout = each_node * (flags.count_or_none(f"{where}num_nodes") or 1)
    if rollout >= nodes * per_node:
        raise WrongQuestion(
            f"--from nemo-rl: {where}: {rollout} accelerators roll out of {nodes * per_node}: none train"
        )
    return nodes * per_node - rollout, rollout


def _replica(flags: TrainerFlags) -> str:
    """A replica as ``--rollout`` says it."""
    tp = flags.count(f"{VLLM}tensor_parallel_size")
    spread = flags.count(f"{VLLM}expert_parallel_size")
    if spread > 1 and spread % tp:
        raise WrongQuestion(
            f"--from nemo-rl: {VLLM}expert_parallel_size {spread}: no multiple of tensor_parallel_size {tp}, which "
            "NeMo-RL asks for"
        )
    limit = flags.count_or_none(f"{POLICY}generation.vllm_kwargs.max_num_seqs")
    share = flags.measure(f"{VLLM}gpu_memory_utilization")
    words = [f"tp={tp}", f"groups={max(1, spread // tp)}", f"share={share:.6g}"]
    words += [f"sequences={limit}"] if limit else []
    words += ["eager"] if flags.get(f"{VLLM}enforce_eager") else []
    return ",".join(words)
