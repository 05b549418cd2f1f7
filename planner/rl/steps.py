"""What a step of a post-training does, as a workload of a question file says it: ``step = { response = "2k/8k" }``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, get_args

from pydantic import ConfigDict, Field, InstanceOf

from planner.base.errors import ClusterwrightError
from planner.base.reading import short_hash
from planner.base.typed import knows, missing, wrong
from planner.question.rl_options import RLTraining
from planner.question.typed_file import TrainingTable
from planner.question.values import TABLE, QuestionContext, Whole
from planner.rl import job
from planner.rl.learned import SiteSteps
from planner.rl.problem import LengthsFile, responses
from planner.schema.choices import Engine, Placement, RLTask, WeightsWay
from planner.schema.workload import Model

TASKS: tuple[RLTask, ...] = get_args(RLTask)


def _lengths(text: object, given: QuestionContext) -> LengthsFile:
    """Lengths as they are written; a file of them stands beside the file that names it."""
    if not isinstance(text, str):
        raise ValueError("must be some text")
    return LengthsFile.in_folder(text, given.folder)


@dataclass(frozen=True, kw_only=True)
class StepTable:
    """``step`` of a workload whose task is grpo, ppo or rloo, each key as ``clusterwright plan --task`` takes it."""

    __pydantic_config__: ClassVar[ConfigDict] = TABLE

    response: Annotated[InstanceOf[LengthsFile], knows(_lengths),
                        missing('write the mean and the cap in tokens: response = "2k/8k"')]  # fmt: skip
    prompts: Whole = RLTraining.prompts
    samples: Whole | None = None
    prompt_length: Whole = 256
    updates: Whole = 1
    reference: bool = False
    critic: str | None = None
    reward: str | None = None
    staleness: Annotated[float | None, Field(ge=0, le=64)] = None
    steps_at: str | None = None
    placement: Placement | None = None
    engine: Engine = "vllm"
    engine_release: str | None = None
    weights: WeightsWay | None = None
    rollout_precision: str = "bf16"
    rollout: str = ""
    steps: Whole = RLTraining.steps


STEP_KEYS = frozenset(field.name for field in fields(StepTable))

OF_STEPS = ("samples", "tokens", "batch", "seq", "rank", "imbalance", "method", "mtp_layers", "targets", "waive",
            "launchable", "noise_scale")  # fmt: skip
"""Keys of other workloads whose place a step takes: all of its parameters are trained, without modules of its own."""

OF_TRAINERS = ("task", "optimizer", "runtime", "precision", "pin", "oom_risk")
"""Keys that say of a trainer what they say of another training."""


def post_training(table: TrainingTable, step: StepTable | None) -> RLTraining | None:
    """The step of a post-training; None of another workload.

    Raises:
        Misfit: keys that do not go together.
    """
    if table.task not in TASKS:
        if step is not None:
            raise wrong(f"only with task = {', '.join(TASKS)}", "step")
        return None
    if step is None:
        raise wrong(f'{table.task} needs its step: step = {{ response = "2k/8k", steps = 1000 }}', "task")
    for field in fields(table):
        if field.name in OF_STEPS and getattr(table, field.name) != field.default:
            key = "sequence" if field.name == "seq" else field.name
            raise wrong(f"says nothing of {table.task}; its step says what is done", key)
    stated = {field.name: getattr(step, field.name) for field in fields(StepTable)}
    names = {field.name for field in fields(table)} & set(OF_TRAINERS)
    return RLTraining(**stated, **{name: getattr(table, name) for name in names})


def step_tokens(model: Model, asked: RLTraining) -> float:
    """Tokens of prompts and responses of a step.

    Raises:
        Misfit: a value or a combination that cannot be.
    """
    try:
        job.law_and_placements(asked)
        return job.work(model, asked).tokens
    except ClusterwrightError as error:
        raise wrong(str(error).removeprefix("--"), "step") from None


def learned_of(steps: Iterable[RLTraining | None], learned: SiteSteps | None) -> dict[str, str]:
    """The site whose steps count for these -> a short hash of them, for an answer's inputs."""
    counts = learned is not None and any(steps)
    return {f"site {learned.name}": short_hash(repr(learned.rows).encode())} if learned and counts else {}


def lengths_read(steps: Iterable[RLTraining | None]) -> dict[str, str]:
    """Files of lengths that steps name -> a short hash of the lengths, for an answer's inputs."""
    names = {step.response for step in steps if step is not None and isinstance(step.response, LengthsFile)}
    lengths = {name: responses(name) for name in sorted(names)}
    return {f"lengths {name}": short_hash(of.values.tobytes()) for name, of in lengths.items() if of.measured}
