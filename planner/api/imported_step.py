"""A trainer's configuration of post-training as a stated step with its predictions: what ``import`` answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.api import post_training
from planner.base.errors import WrongQuestion
from planner.launchers.reading import trainers_of_rl
from planner.launchers.reading.post_training import StatedStep
from planner.launchers.reading.started import Started
from planner.launchers.reading.trainer_dialects import library_name
from planner.launchers.reading.where_it_runs import accelerators_of, where_it_runs
from planner.models.workload import find_model
from planner.question.given import Named
from planner.question.rl_options import RLEstimateQuestion
from planner.question.values import sequence_length
from planner.rl import measured, problem, training
from planner.schema.rl import RLPlanSet

GIVEN = ("model", "response", "prompt_length", "accelerators")
ROUND = 64
"""Tokens."""


@dataclass(frozen=True, kw_only=True)
class ImportedStep:
    """The answer to a configuration, and what of it the answer does not show."""

    source: str
    answer: RLPlanSet
    settings: str
    """The trainer's layout, as ``estimate`` takes it."""
    differs: Sequence[str]
    assumed: Sequence[str]


def imported(
    source: str, text: str, clusters: Sequence[str], started: Started, given: Mapping[str, Any]
) -> ImportedStep:
    """A configuration priced on a cluster.

    Args:
        source: One of :data:`trainers_of_rl.SOURCES`.
        text: A command line, or the name of a file.
        clusters: As ``estimate`` takes them, or without a count; the second rolls out.
        started: How a script is started, and what of it is left out.
        given: What no configuration says: ``model``, ``response``, ``prompt_length``, and ``accelerators`` in place of
            clusters; nothing else may be set.

    Raises:
        WrongQuestion: it cannot be read, or says what no stated step holds.
        NoAnswer: no replica holds the weights and a response.
    """
    if idle := [key for key, value in given.items() if value is not None and key not in GIVEN]:
        raise WrongQuestion(f"--{idle[0]}: says nothing of post-training; its configuration does")
    step = trainers_of_rl.read(source, text, started, accelerators_of(clusters))
    where = where_it_runs(step.train + (step.rollout or 0), clusters, given.get("accelerators"), {})
    assumed = list(step.assumed)
    name = given.get("model") or library_name(step.model)
    try:
        find_model(name)
    except WrongQuestion as error:
        raise WrongQuestion(f"{error}\n--model says which of the library it is, or names a file of your own") from None
    lengths = _lengths(step, given, assumed)
    others = {
        role: _other(step.asked[role], role, name, assumed) for role in ("critic", "reward") if step.asked.get(role)
    }
    stated = {key: value for key, value in {**step.asked, **others, **lengths}.items() if value is not None}
    split = None if step.rollout is None or len(where) > 1 else f"{step.train}:{step.rollout}"
    question = RLEstimateQuestion(name, tuple(where), split=split, **stated)
    layout = {**step.settings, "micro": _micro(step, question, name, assumed)}
    settings = " ".join(f"{axis}={value}" for axis, value in layout.items())
    answer = post_training.estimated(replace(question, settings=settings), where)
    _on_all(step, answer, where)
    return ImportedStep(source=source, answer=answer, settings=settings, differs=step.differs, assumed=assumed)


def _lengths(step: StatedStep, given: Mapping[str, Any], assumed: list[str]) -> dict[str, Any]:
    """Mean lengths, which no trainer is told; where neither is given, together a multiple of :data:`ROUND` tokens, so
    that what is packed is whole over ranks that share a sequence.
    """
    response = given.get("response")
    prompt = given.get("prompt_length")
    if prompt is None:
        prompt = RLEstimateQuestion.prompt_length if step.prompt_cap is None else max(1, step.prompt_cap // 2)
        assumed.append(f"prompts of {prompt:,} tokens in the mean: no configuration says it (--prompt-length)")
    elif step.prompt_cap is not None and (sequence_length(prompt) or 0) > step.prompt_cap:
        raise WrongQuestion(
            f"--prompt-length {prompt}: the configuration takes prompts of {step.prompt_cap:,} tokens at most"
        )
    if response is None:
        mean = min(measured.MEAN, 0.5 * step.response_cap)
        if mean > ROUND:
            mean -= ((sequence_length(prompt) or 0) + mean) % ROUND
        assumed.append(f"responses of {mean:,.0f} tokens in the mean: no configuration says it (--response MEAN)")
        response = f"{mean:g}"
    if "/" not in str(response) and not Path(str(response)).is_file():
        response = f"{response}/{step.response_cap}"
    return {"response": response, "prompt_length": prompt}


def _other(path: Any, role: str, policy: str, assumed: list[str]) -> str:
    """A model beside the policy; one that the library has not is taken to be as the policy."""
    name = library_name(str(path))
    try:
        find_model(name)
    except WrongQuestion:
        assumed.append(f"{role} {path!s:.60}: the library has no such model; the policy's, {policy}, is taken")
        return policy
    return name


def _micro(step: StatedStep, question: RLEstimateQuestion, name: str, assumed: list[str]) -> int:
    """Packed sequences of a micro-batch: as many as its tokens hold, of those numbers that divide a rank's."""
    work = problem.work(find_model(name), question.task, question)
    count, tokens = training.packed(work.demand, work.updates, step.train)
    wide = 1
    for axis in ("tp", "pp", "cp"):
        wide *= int(str(step.settings.get(axis, 1)))
    if step.train % wide:
        raise WrongQuestion(f"tp x pp x cp is {wide:,}: does not divide the {step.train:,} accelerators that train")
    share = max(1, count // (step.train // wide))
    mean = work.demand.prompt + work.demand.lengths.mean
    held = step.group_tokens or round((step.micro_responses or 1) * mean)
    micro = max(n for n in range(1, share + 1) if share % n == 0 and (n == 1 or n * tokens <= held))
    assumed.append(f"a micro-batch of up to {held:,} tokens: {micro:,} x {tokens:,} packed tokens")
    return micro


def _on_all(step: StatedStep, answer: RLPlanSet, clusters: Sequence[Named]) -> None:
    """Refuses a cluster of another size than the configuration's."""
    has = answer.plans[0].trainer.accelerators
    if has != step.train:
        raise WrongQuestion(
            f"--cluster {' '.join(map(str, clusters))}: {has:,} accelerators train there, and {step.train:,} by the "
            "configuration; say a cluster of that size"
        )
