"""Questions about RL post-training, each as the one record that declares its keywords and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from planner.base.errors import WrongQuestion
from planner.question.option import Option
from planner.question.plan_options import (
    CATALOG,
    CLUSTER,
    OPTIMIZER,
    PRECISION,
    PlanOptions,
    Setting,
)
from planner.schema.choices import Basis, Engine, Objective, Placement, RLTask, WeightsWay

if TYPE_CHECKING:
    from planner.question.given import Machines, Progress
    from planner.schema.workload import Model

# fmt: off


@dataclass(frozen=True, kw_only=True)
class RLOptions:
    """What post-training by reinforcement learning may say beside what every training does."""

    prompts: Annotated[int, Option(
        "With --task grpo, ppo, rloo: prompts a step.",
        "Prompts of a step.", metavar="N", range=(1, None))] = 512
    samples: Annotated[int | None, Option(
        "Responses to each prompt (default: 16; ppo 1).",
        "Responses to each prompt; 16 unless said, of PPO 1.", metavar="N", range=(1, None))] = None
    prompt_length: Annotated[int | str, Option(
        "Mean tokens of a prompt.",
        "Mean tokens of a prompt.", metavar="N")] = 256
    response: Annotated[str | Path | Sequence[float] | None, Option(
        "Tokens of a response: mean and cap (2k/8k), or a file of lengths.",
        '``"2k/8k"``, the mean tokens of a response and their cap; or lengths, or a file of them.',
        metavar="MEAN/CAP|FILE")] = None
    updates: Annotated[int, Option(
        "Optimizer steps a step: 1 is on-policy.",
        "Optimizer steps of a step.", metavar="N", range=(1, None))] = 1
    reference: Annotated[bool, Option(
        "A reference model holds the policy back (KL): one more forward pass.",
        "Whether a reference model holds the policy back.")] = False
    critic: Annotated[str | None, Option(
        "The critic of ppo: a model (default: the policy's own).",
        "The critic of PPO: a model; the policy's own unless said.", metavar="MODEL", complete="models")] = None
    reward: Annotated[str | None, Option(
        "A reward model that reads every response (default: a verifier, which takes no accelerator).",
        "A model that scores every response; without it a verifier does.", metavar="MODEL", complete="models")] = None
    staleness: Annotated[float | None, Option(
        "Batches that rollout may be ahead, at most: 0 in step, 1 one step off, 0.5 ... (default: 0 to 1 are tried).",
        "Batches that rollout may be ahead of training, at most; up to 1 are tried unless said.",
        metavar="S", range=(0, 64))] = None
    steps_at: Annotated[str | None, Option(
        "Your own law of learning: times as many steps at a staleness: 1=1.1,4=1.5 (between them linear; 1 in step).",
        'Times as many steps as in step that learning needs at a staleness: ``"1=1.1,4=1.5"``; 1 unless said.',
        metavar="S=TIMES")] = None
    placement: Annotated[Placement | None, Option(
        "Only this placement of rollout and training.",
        "Only this placement; all that the staleness allows unless said.")] = None
    engine: Annotated[Engine, Option(
        "Engine that generates responses.",
        "What generates responses.")] = "vllm"
    engine_release: Annotated[str | None, Option(
        "Its release, whose defaults count: 0.7.3 (default: the newest).",
        "Release of the engine, whose defaults count; the newest unless said.", metavar="R")] = None
    weights: Annotated[WeightsWay | None, Option(
        "How new weights reach rollout on other accelerators: NCCL broadcast or a checkpoint engine (default: the "
        "quicker).",
        "How new weights reach rollout on other accelerators; the quicker way unless said.")] = None
    rollout_precision: Annotated[str | None, Option(
        "Precision of rollout: bf16, fp8 (default: bf16).",
        'Of rollout: ``"bf16"`` or ``"fp8"``.', metavar="P")] = None
    rollout: Annotated[str | Sequence[str], Option(
        "Fix a replica: tp=4,groups=1, and its engine's share=0.6 of the memory, sequences=256 in flight, eager.",
        'A replica: ``"tp=4"``, ``"tp=1,groups=16,share=0.6,sequences=256,eager"``.', metavar="AXIS=VALUE")] = ()
    states: Annotated[Literal["host", "accelerator"] | None, Option(
        "Colocated: where the trainer's states are while responses are generated (default: the faster).",
        "Where a colocated trainer's states are while responses are generated; the faster unless said.")] = None
    split: Annotated[str | None, Option(
        "Accelerators that train and that roll out, apart: 32:96 (default: quarters are tried).",
        'Accelerators that train and that roll out: ``"32:96"``.', metavar="TRAIN:ROLLOUT")] = None
    steps: Annotated[int, Option(
        "Steps of the run, for its days and dollars.",
        "Steps of the run.", metavar="N", range=(1, None))] = 1000


@dataclass(frozen=True, kw_only=True)
class RLTraining(RLOptions):
    """What a post-training says of its trainer and of prices, as other questions do."""

    task: Annotated[RLTask, Option(says="The algorithm.")] = "grpo"
    fabric: Annotated[str | None, Option(says="Id of the network between nodes.")] = None
    region: Annotated[str | None, Option(says="Id of where it runs.")] = None
    optimizer: Annotated[str, OPTIMIZER] = "adamw"
    runtime: Annotated[str | None, Option(says="Training framework.")] = None
    precision: Annotated[str | Sequence[str] | None, PRECISION] = None
    pin: Annotated[str | Sequence[str], Option(says='Axes of training to hold: ``"tp=8,pp=4"``.')] = ()
    price: Annotated[float | str | None, Option(says="US dollars per accelerator-hour, or ``POOL=$2/h``.")] = None
    basis: Annotated[Basis, Option(says="Which of the catalog's prices.")] = "on-demand"
    objective: Annotated[Objective, Option(says='What is best: ``"time"`` or ``"cost"`` of a step.')] = "time"
    oom_risk: Annotated[float | str, Option(says="Accepted chance of running out of memory.")] = Setting.oom_risk
    catalog: Annotated[str | Path | None, CATALOG] = None
    site: Annotated[str | Path | None, Option(
        says="Folder of a site, whose measured steps count (``learn``).")] = None


@dataclass(frozen=True)
class RLQuestion(RLTraining):
    """``clusterwright plan --task grpo`` and :func:`planner.plan_rl`."""

    model: Annotated[str | Path | Model, Option(says="The policy: an id, a file or the record.")]
    cluster: Annotated[Machines | Sequence[Machines], CLUSTER] = ()


@dataclass(frozen=True)
class RLFitQuestion(RLTraining):
    """``clusterwright fit --task grpo`` and :func:`planner.fit_rl`."""

    model: Annotated[str | Path | Model, Option(says="The policy: an id, a file or the record.")]
    on: Annotated[str | None, Option(
        says='Accelerators or nodes of one kind: ``"H100"``, ``"dgx-h100"``; without it, those of the catalog.')] = None
    _: KW_ONLY
    step_time: Annotated[float | str | None, Option(
        "With --task grpo, ppo, rloo: the longest step that is wanted (5min).",
        'Longest step that is wanted: ``"5min"``, or seconds.', metavar="T")] = None
    most: Annotated[int, Option(says="Accelerators of one kind that are tried together.", range=(1, 65536))] = 256
    progress: Annotated[Progress | None, Option(
        says="Given what is done and how many units of it, a context that yields ``advance(n)``.")] = None


@dataclass(frozen=True)
class RLEstimateQuestion(RLQuestion):
    """``clusterwright estimate --task grpo`` and :func:`planner.estimate_rl`."""

    settings: Annotated[str | Sequence[str], Option(says='Layout of the trainer: ``"tp=2 pp=4 micro=2"``.')] = ()
    _: KW_ONLY
    measured: Annotated[str | Path | Mapping[str, float] | None, Option(
        says='Seconds of phases, ``"generation=120,update=40"`` or a mapping, or a log of verl or NeMo-RL.')] = None


# fmt: on
TAKEN = (
    "fabric",
    "region",
    "optimizer",
    "runtime",
    "precision",
    "pin",
    "price",
    "basis",
    "objective",
    "oom_risk",
    "catalog",
    "site",
    "task",
)  # fmt: skip
"""Options of ``plan`` that a question of this kind takes, too."""


def training_options(asked: RLOptions) -> PlanOptions:
    """What the question says of its trainer, as a search takes it."""
    named = {name: getattr(asked, name) for name in TAKEN if name not in ("task", "objective", "price")}
    return PlanOptions(method="full", **named)


def unused(options: PlanOptions) -> list[str]:
    """Options of ``plan`` that were given and say nothing here."""
    return [
        field.name
        for field in fields(PlanOptions)
        if field.name not in TAKEN and getattr(options, field.name) != getattr(PlanOptions, field.name)
    ]


def post_training_only(asked: Mapping[str, Any]) -> None:
    """Refuses options of post-training in a question about another training.

    Raises:
        WrongQuestion: one was given.
    """
    for field in (*fields(RLEstimateQuestion), *fields(RLFitQuestion)):
        if field.name in asked and asked[field.name] != field.default:
            raise WrongQuestion(f"--{field.name.replace('_', '-')}: with --task grpo, ppo or rloo only")
