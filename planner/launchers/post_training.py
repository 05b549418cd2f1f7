"""A plan of RL post-training as a trainer's files: verl, NeMo-RL and TRL, each by its table ``rl_*.toml``.

The files of a trainer inherit its own configuration, and say what the plan decides. A decision that the table has no
option for is refused, unless the trainer does so anyhow (``expresses``) or loses it, which is listed (``loses``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.axes import OPTION_AXES
from planner.base.errors import WrongQuestion, meant
from planner.base.units import format_seconds
from planner.launchers import quoting, table
from planner.launchers.bundle import Bundle, announced, described, readme, settings, stands
from planner.launchers.post_training_files import WRITERS, PostTrainingSettings
from planner.launchers.target import EnvironmentSetting, LaunchJob, Loss, placeholder, spelt
from planner.schema.launcher_table import LauncherTable, launcher_table
from planner.schema.rl import RLPlan, RLPlanSet, RolloutSide, TrainerSide

TARGETS: Mapping[str, Mapping[str, str]] = {
    "verl": {"": "rl_verl_megatron", "fsdp2": "rl_verl_fsdp"},
    "nemo-rl": {"": "rl_nemo_rl_megatron", "fsdp2": "rl_nemo_rl_dtensor"},
    "trl": {"": "rl_trl"},
}
"""Target -> its table, of one runtime or of all others."""
DECIDED = (
    *("task", "roles", "engine", "runtime", "precision", "tp", "cp", "pp", "vpp", "ep", "zero", "recompute"),
    *(axis.name for axis in OPTION_AXES if axis.name not in ("precision", "zero", "recompute")),
    *("states", "reference", "critic", "reward", "rollout_tp", "groups", "rollout_precision", "in_flight", "eager"),
    "weights",
    *("pools", "rollout_layouts", "streamed", "packed", "staleness", "part_staleness"),
)
"""What a plan decides by itself; batches, nodes and lengths are computed from the rest, and every table says them."""


def made(answer: RLPlanSet, plan: RLPlan, target: str, given: Mapping[str, str]) -> Bundle:
    """The files of one placement.

    Raises:
        WrongQuestion: no such target or setting, or a decision that the trainer cannot follow.
    """
    if target not in TARGETS:
        hint = meant(target, TARGETS, f"post-training is written for {', '.join(TARGETS)}")
        raise WrongQuestion(f"--to {target}: {hint}")
    by_runtime = TARGETS[target]
    name = by_runtime.get(plan.trainer.runtime.partition("@")[0], by_runtime[""])
    rows = launcher_table(name)
    words = {key: (text, None) if isinstance(text, str) else tuple(text) for key, text in rows.head["says"].items()}
    words["max-prompt"] = words["max-prompt"][0], str(2 * _whole(answer.work.prompt_tokens))
    offered = {key: EnvironmentSetting(key, *words[key]) for key in rows.head["settings"]}
    values = settings(offered, given)
    known = facts(answer, plan, values)
    refused, lost = _left_out(rows, known)
    if refused:
        raise WrongQuestion(
            f"plan {plan.rank} cannot be written for {target}: {'; '.join(refused)}; plan again "
            "with --runtime, --pin or --placement for what it has"
        )
    options = table.document(rows, table.facts(known, {}))
    files, command, start = WRITERS[target](PostTrainingSettings(rows.head, known, options, values))
    job = LaunchJob(files=files, command=command)
    missing = tuple(setting for setting in offered.values() if stands(placeholder(setting.name), values, job))
    text = {file: announced(file, whole, missing) for file, whole in files.items()}
    ready = Bundle(target, text, missing, tuple(lost), start)
    where = {"rank": plan.rank, "model": answer.work.model, "cluster": " + ".join(answer.pools)}
    head = {"name": target, **{key: rows.head[key] for key in ("version", "level", "validated_by")}}
    account = described(where, [head], job, ready, values)
    title = (
        f"{answer.work.task.upper()} of {where['model']} on {where['cluster']} with {target}: "
        f"{plan.placement}, {format_seconds(plan.step_s)} a step predicted"
    )
    return Bundle(target, {"README": readme(title, ready), "target.json": account, **text}, missing, tuple(lost), start)


def _left_out(rows: LauncherTable, known: Mapping[str, Any]) -> tuple[list[str], list[Loss]]:
    """Why a plan cannot be written, and what of it is lost."""
    refused: list[str] = []
    lost: list[Loss] = []
    neutral = {axis.name: axis.state(axis.neutral) for axis in OPTION_AXES}
    critic = [f"critic.{name}" for name in DECIDED if f"critic.{name}" in known]
    for name in (*DECIDED, *critic):
        value = known.get(name)
        plain = name.removeprefix("critic.")
        if _is_neutral(value) or value == neutral.get(plain, ...):
            continue
        allowed = rows.head["expresses"].get(plain, ())
        if (
            allowed == "any"
            or value in allowed
            or any(not row.values or spelt(value) in row.values or value == row.unless for row in rows.saying(name))
        ):
            continue
        if plain in rows.head["loses"]:
            lost.append(Loss(name, f"{spelt(value)} {rows.head['loses'][plain]}"))
            continue
        able = [*map(spelt, allowed), *(word for row in rows.saying(name) for word in row.values)]
        refused.append(f"{name.replace('_', ' ')} {spelt(value)} (it has {', '.join(dict.fromkeys(able)) or 'none'})")
    return refused, lost


def _is_neutral(value: Any) -> bool:
    """Whether there is nothing to say."""
    return value in (None, "none") or value is False or (type(value) is int and value == 1)


def facts(answer: RLPlanSet, plan: RLPlan, values: Mapping[str, str]) -> dict[str, Any]:
    """What tables may ask of a plan.

    Raises:
        WrongQuestion: batches or nodes that do not divide, which no trainer starts.
    """
    work = answer.work
    side = plan.rollout[0]
    apart = plan.placement != "colocated"
    stale = plan.placement in ("one-step-off", "async")
    streams = plan.placement in ("in-step", "async")
    prompt_cap = _prompt_cap(values["max-prompt"])
    cap = _whole(work.response_cap)
    responses = work.prompts * work.samples
    longest = prompt_cap + cap
    whole = plan.staleness == int(plan.staleness)
    known = {
        **_trainer(plan.trainer, plan.placement, longest),
        **{f"job.{name}": value for name, value in values.items()},
        "job.always": True,
        "lr": float(values["lr"]),
        "task": work.task, "roles": plan.placement, "engine": answer.engine, "steps": work.steps,
        "reference": work.reference, "critic": work.critic is not None, "reward": work.reward is not None,
        "staleness": int(plan.staleness) if stale and whole else None,
        "part_staleness": plan.staleness if stale and not whole else None,
        "apart": apart, "stale": stale,
        "streams": streams or None,
        "streamed": plan.placement == "in-step" and work.updates > 1,
        "packed": True,
        "prompts": work.prompts, "samples": work.samples, "responses": responses,
        "prompt_cap": prompt_cap, "response_cap": cap, "longest": longest,
        "mini_prompts": _divided(work.prompts, work.updates, "prompts", "updates"),
        "mini_responses": _divided(responses, work.updates, "responses", "updates"),
        "batch_prompts": 0 if streams else work.prompts,
        "pools": len({plan.trainer.pool, *(each.pool for each in plan.rollout)}),
        "rollout_layouts": len(plan.rollout),
        "rollout_tp": side.tp, "groups": side.groups, "rollout_precision": side.precision,
        "rollout_ep": side.tp * side.groups if side.groups > 1 else 1,
        "eager": side.eager,
        "weights": plan.weights,
        "memory_share": round(side.memory_share, 3),
        # Each attention group is an engine with a limit of its own (verl, vllm_async_server.py, at 1dda039b).
        "in_flight": max(1, math.ceil(side.in_flight / side.groups)),
        "streamed_at_once": max(1, int(side.in_flight / work.samples)) if streams else None,
        "streamed_samples": work.samples if streams else None,
        "streamed_prompts": work.prompts * work.steps if streams else None,
        "streamed_staleness": plan.staleness if streams else None,
        "streamed_updates": work.updates if streams else None,
        "critic_path": values.get("critic-model") if work.critic else None,
        "reward_path": values.get("reward-model") if work.reward else None,
        "reward_engine": answer.engine if work.reward else None,
        "optimizer_steps": work.steps * work.updates,
        "reward_functions": values.get("reward-functions", "").split(","),
    }  # fmt: skip
    if plan.critic is not None:
        critic = _trainer(plan.critic, plan.placement, longest)
        known |= {f"critic.{name}": value for name, value in critic.items()}
    return known | _nodes(plan, side, apart) | _sequences(plan, work.updates, known) | _engine(known, side, values)


def _trainer(side: TrainerSide, placement: str, longest: int) -> dict[str, Any]:
    """One trained model."""
    neutral = {axis.name: axis.state(axis.neutral) for axis in OPTION_AXES}
    group = max(side.layout["micro"] * side.packed_tokens, longest)
    sharded = side.zero > 0 and side.options.get("dp_overlap", False)
    return {
        **neutral,
        **side.options,
        **{axis: degree for axis, degree in side.layout.items() if axis not in ("dp", "micro")},
        "runtime": side.runtime.partition("@")[0],
        "precision": side.precision,
        "zero": side.zero,
        "recompute": side.recompute,
        "gather_overlap": sharded,
        "expert_tp": 1 if side.layout["ep"] > 1 else None,
        "states": None if placement != "colocated" else "host" if side.offloads else "accelerator",
        "group_tokens": group,
        "rank_tokens": math.ceil(group / side.layout["cp"]),
    }


def _nodes(plan: RLPlan, side: RolloutSide, apart: bool) -> dict[str, Any]:
    """Nodes of both roles; a role has whole nodes, or both share one.

    Raises:
        WrongQuestion: another split.
    """
    train = plan.trainer.accelerators
    per = plan.trainer.per_node
    rollout = sum(each.accelerators for each in plan.rollout) if apart else 0
    nodes = max(1, train // per)
    others = max(1, rollout // side.per_node)
    one = apart and train + rollout <= per and plan.trainer.pool == side.pool
    if (train > per and train % per) or (apart and not one and (train % per or rollout % side.per_node)):
        raise WrongQuestion(f"plan {plan.rank}: {train} accelerators train and {rollout} roll out: trainers give a "
                            f"role whole nodes; plan again with --split in multiples of {per}")  # fmt: skip
    return {
        "train_nodes": nodes,
        "train_per_node": min(train, per),
        "train_accelerators": train,
        "apart_nodes": others if apart else None,
        "apart_per_node": min(rollout, side.per_node) if apart else None,
        "apart_whole_nodes": others if apart and not one else None,
        "all_nodes": nodes + others if apart and not one else nodes,
        "all_per_node": train + rollout if one else min(train, per),
    }


def _sequences(plan: RLPlan, updates: int, known: Mapping[str, Any]) -> dict[str, Any]:
    """Responses of a rank's micro-batch where they are not packed: as many as the packed ones hold, of those numbers
    that divide an optimizer step's.
    """
    ranks = plan.trainer.accelerators
    share = known["mini_responses"] // ranks if known["mini_responses"] % ranks == 0 else 0
    mean = max(1.0, known["group_tokens"] / known["longest"])
    fitting = [count for count in range(1, share + 1) if share % count == 0 and count <= mean]
    return {
        "rank_responses": fitting[-1] if fitting else None,
        "accumulation": share // fitting[-1] if fitting else None,
    }


def _engine(known: Mapping[str, Any], side: RolloutSide, values: Mapping[str, str]) -> dict[str, Any]:
    """The engine's own figures, of a trainer whose engine is configured elsewhere where roles are apart."""
    memory = {"share": known["memory_share"], "tp": side.tp, "longest": known["longest"]}
    served = {**memory, "replicas": side.replicas, "model": values["model"]}
    return {
        **{f"colocated_{name}": None if known["apart"] else value for name, value in memory.items()},
        **{f"served_{name}": value if known["apart"] else None for name, value in served.items()},
        "server": values.get("server") if known["apart"] else None,
    }


def _divided(count: int, by: int, what: str, over: str) -> int:
    if count % by:
        raise WrongQuestion(f"{count:,} {what} over {by} {over}: trainers need equal parts; plan with other numbers")
    return count // by


def _prompt_cap(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:9])):
        raise WrongQuestion(f"--set max-prompt={quoting.line(text)}: a whole number of tokens from 1 is expected")
    return int(text)


def _whole(value: float) -> int:
    return max(1, math.ceil(value))
