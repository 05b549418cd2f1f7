"""Measured steps of post-training as questions, and what this program makes of them.

A row (docs/rl.md has its columns) says models, accelerators, split, layouts and lengths as far as they were published.
What it leaves open is taken by stated rules: prompts of :data:`PROMPT` tokens, :data:`SAMPLES` responses to a prompt,
as many responses a step as :data:`RESPONSES`, a mean length of :data:`MEAN` tokens or half the cap. Nothing is searched
but what of a trainer's layout is not stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from planner.base import csv_rows
from planner.base.csv_rows import CsvRow
from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.calibration.runs import names
from planner.catalog import Catalog
from planner.cost import response_lengths, rl_step
from planner.cost.generation import Demand
from planner.models.workload import find_model
from planner.question import pools
from planner.question.job_pools import JobPool, part_of
from planner.question.plan_options import PlanOptions
from planner.rl import candidates, constants, problem
from planner.rl.candidates import Training
from planner.rl.constants import EngineFigures, MeasuredExcess
from planner.rl.problem import Machines, PostTraining, RLStep
from planner.schema.choices import Placement
from planner.schema.hardware import Cluster

PROMPT = 112.0
"""Tokens of a prompt where a row says none: what throughput and step leave beside the mean length in the rows that have
all three (NeMo-RL's recipes on OpenMathInstruct-2, median)."""
SAMPLES = 16.0
RESPONSES = 512 * SAMPLES
"""Responses of a step: those of verl's recipes (512 prompts)."""
MEAN = 1100.0
"""Tokens of a response where a row does not say: as of Llama 3.1 8B on mathematics (NeMo-RL's rows, 1,019 to 1,129)."""
CAP = 8192.0
STREAMED = 4
"""Parts of a batch that verl's trainer takes as they come in where rollout is apart and nothing is stale
(require_batches and trigger_parameter_sync_step of its recipes)."""
REQUIRED = ("source", "model", "accelerator", "mode", "step_s", "gpus_train", "gpus_rollout")
"""Columns without which a file holds no measured steps of post-training."""
WRONG = "what is wrong"
"""Key of a row under which stands why it cannot be read."""
ROLES = ("gpus_train", "gpus_rollout")
"""Columns that only such a file has."""
MODELS = {"qwen2.5-math-7b": "qwen2.5-7b", "qwen2.5-7b-instruct": "qwen2.5-7b"}
"""Models that differ from the library's in their weights alone."""
PHASES = {
    "generation": "gen_s",
    "log-probabilities": "logprob_s",
    "reference": "ref_s",
    "update": "update_s",
    "weights": "reshard_or_sync_s",
}
"""Phase -> its column."""
NUMBERS = ("step_s", "staleness", "mean_length", "max_response", "tokens_per_s_per_gpu", *PHASES.values())
DEGREES = (*ROLES, "num_accelerators", "prompts_per_step", "samples_per_prompt", "rollout_sequences", "in_flight",
           "train_global_batch", "gen_tp", "train_tp", "train_cp", "train_ep", "train_pp", "eager")  # fmt: skip
"""Columns of numbers, and of whole ones."""
Row = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """A row's step before what measured steps take over it: seconds of kernels and of packed training."""

    placement: Placement
    staleness: float
    updates: int
    generation: float
    launched: float
    """Seconds by which the host's launches lengthen it, where graphs are not captured."""
    log_probabilities: float
    reference: float
    update: float
    sync: float
    experts: bool
    tokens: float
    lengths_known: bool = True
    fits: bool = True
    """Whether the trainer fits at a risk of 50 %."""
    as_stated: bool = True
    """Whether both layouts are those of the row, and not others since its own are not legal here."""

    def phases(self, excess: MeasuredExcess) -> dict[str, float]:
        """Seconds by phase as they are predicted."""
        stretch = excess.training_experts if self.experts else excess.training
        return {
            "generation": excess.generation * self.generation + self.launched,
            "log-probabilities": stretch * self.log_probabilities,
            "reference": stretch * self.reference,
            "update": stretch * self.update,
            "weights": self.sync,
        }

    def step(self, excess: MeasuredExcess) -> float:
        """Seconds of the step as they are predicted."""
        parts = self.phases(excess)
        training = parts["log-probabilities"] + parts["reference"] + parts["update"]
        whole = rl_step.step(
            self.placement, parts["generation"], training, self.sync + excess.other, self.updates, self.staleness
        )
        return float(whole)


def rows(path: Path) -> list[Row] | None:
    """The rows of a file of measured steps of post-training; None of any other file.

    Raises:
        WrongQuestion: a column that is missing, or no row.
    """
    columns, lines = csv_rows.read(path, "a table of runs")
    if not set(ROLES) & set(columns):
        return None
    if missing := [name for name in REQUIRED if name not in columns]:
        raise WrongQuestion(f"{path}:1: no column {', '.join(missing)}; measured steps have {', '.join(REQUIRED)}")
    blank = dict.fromkeys((*NUMBERS, *DEGREES, "id", "framework", "release", "algorithm", "engine"), "")
    steps: list[Row] = []
    first: dict[str, str] = {}
    for line in lines:
        wrong = ""
        try:
            _checked(line, first)
        except WrongQuestion as error:
            wrong = str(error)
        steps.append({**blank, **line.cells, WRONG: wrong})
    if not steps:
        raise WrongQuestion(f"{path}: no row below its header; each is a measured step")
    return steps


def _checked(line: CsvRow, first: dict[str, str]) -> None:
    """Refuses a row with a number that is none, without its time, or whose id was in `first`, which it enters."""
    for name in (*NUMBERS, *DEGREES):
        line.number(name, whole=name in DEGREES)
    if not line.number("step_s"):
        raise WrongQuestion(f"{line.where}: step_s = {line.text('step_s')!r}: write the seconds of a step, above 0")
    row_id = line.text("id")
    if row_id and first.setdefault(row_id, line.where) != line.where:
        raise WrongQuestion(f"{line.where}: id {row_id} stands in {first[row_id]}, too; keep one of the two")


def number(row: Row, column: str) -> float | None:
    """A column's number, of a row whose numbers were read; None where it is empty.

    Raises:
        WrongQuestion: one beyond all reason.
    """
    text = row.get(column, "").strip()
    if not text:
        return None
    if not 0 <= float(text) < 1e12:
        raise WrongQuestion(f"{column} {text}: no such number is possible")
    return float(text)


def placement(row: Row) -> Placement:
    """A row's placement.

    Raises:
        WrongQuestion: a mode that is none.
    """
    mode = row["mode"].lower()
    stale = number(row, "staleness") or 0.0
    if mode.startswith("colocated"):
        return "colocated"
    if "one-step" in mode or "one step" in mode:
        return "one-step-off"
    if "async" in mode:
        return "async" if stale else "in-step"
    if "disaggregated" in mode or "apart" in mode or "sync" in mode:
        return "in-step"
    raise WrongQuestion(f"mode {row['mode']!r}: colocated, disaggregated, one-step-off or async")


def demand(row: Row) -> tuple[Demand, int, bool]:
    """What a row generates in a step, its optimizer steps, and whether its mean length is known.

    Raises:
        WrongQuestion: a figure that cannot be, such as a mean above the cap.
    """
    samples = number(row, "samples_per_prompt") or SAMPLES
    prompts = number(row, "prompts_per_step")
    sequences = number(row, "rollout_sequences") or (prompts * samples if prompts else RESPONSES)
    cap = number(row, "max_response")
    stated = number(row, "mean_length")
    if cap and stated and stated > cap:
        raise WrongQuestion(f"mean_length {stated:g}: longer than max_response, {cap:g}")
    cap = max(cap or CAP, 1.05 * (stated or 0.0))
    mean = stated or min(MEAN, 0.5 * cap)
    batch = number(row, "train_global_batch") or sequences
    if prompts and batch == prompts:  # counted in prompts, as verl does
        batch = batch * samples
    updates = max(1, round(sequences / batch))
    responses = response_lengths.of_mean(min(mean, response_lengths.MOST_MEAN * cap), cap)
    whole = Demand(sequences=sequences, prompt=PROMPT, lengths=responses, samples=min(samples, sequences))
    return whole, updates, stated is not None


def accelerators(known: Catalog, name: str, count: int) -> Cluster:
    """So many accelerators in equal nodes, or in equal parts of one kind of node.

    Raises:
        WrongQuestion: an accelerator that the catalog has not, or that no node holds.
    """
    part = names.accelerator(name)
    if part is None:
        raise WrongQuestion(f"accelerator {name!r}: no node of the catalog holds it")
    filled = pools.so_many(known, part, count, None, None)
    if len(filled) == 1:
        return filled[0]
    nodes = next(nodes for nodes in range(len(filled), count + 1) if count % nodes == 0)
    return replace(filled[0], node=part_of(filled[0].node, count // nodes), count=nodes)


def parts(known: Catalog, row: Row) -> StepParts:
    """A row's step, priced as it was run.

    Raises:
        WrongQuestion: a name or a figure that cannot be.
        NoAnswer: nothing fits, or what the row does not say cannot be told.
    """
    if row.get(WRONG):
        raise WrongQuestion(row[WRONG])
    sizes = number(row, "gpus_train"), number(row, "gpus_rollout")
    if not sizes[0] or not sizes[1]:
        raise NoAnswer("the accelerators of training and rollout are not stated")
    where = placement(row)
    wanted, updates, known_lengths = demand(row)
    if where == "in-step" and "verl" in row["framework"].lower():
        updates = max(updates, STREAMED)
    excess = constants.fitted()
    reference = bool(row.get("ref_s")) or (row["source"].startswith("nemo-rl") and row["algorithm"] != "DAPO")
    model = find_model(MODELS.get(row["model"], row["model"]))
    step = RLStep(
        task="grpo",
        model=model,
        demand=wanted,
        updates=updates,
        reference=reference,
        critic=None,
        reward=None,
        steps=1,
        engine=_engine(row),
        rollout_precision="fp8" if row.get("precision_rollout") == "fp8" else "bf16",
    )
    trainers = accelerators(known, row["accelerator"], int(sizes[0]))
    rollers = accelerators(known, row["accelerator"], int(sizes[1]))
    asked = PostTraining(
        known=known,
        work=step,
        machines=[Machines(pool=JobPool(name=name, cluster=c), usd_per_s=None)
                  for name, c in (("train", trainers), ("rollout", rollers))],
        training=_training(row),
        replica={"tp": int(tp)} if (tp := number(row, "gen_tp")) else {},
        split=None,
        tried={},
        objective="time",
        inputs={},
        excess=replace(excess, generation=1.0, training=1.0, training_experts=1.0),
    )  # fmt: skip
    trained, fits, stated = _trained(asked)
    if where != "colocated" and "verl" in row["framework"].lower() and not number(row, "logprob_s"):
        trained = replace(trained, log_probabilities_s=0.0)  # those of the engine are taken: use_rollout_log_probs
    timed = _timed(asked, trained, where, number(row, "staleness") or 0.0)
    return replace(timed, lengths_known=known_lengths, fits=fits, as_stated=stated and timed.as_stated)


RUNTIMES = (("fsdp", "fsdp2"), ("megatron", "megatron-core"), ("nemo", "megatron-core"), ("deepspeed", "deepspeed"))
"""What stands in a row's engine -> the runtime."""


def engine(row: Row) -> str:
    """The engine of a row; vLLM where it is not said."""
    text = row.get("engine", "").split("+")[0].split(",")[0].strip() or "vllm"
    return constants.engine(text).id


def _engine(row: Row) -> EngineFigures:
    """The figures of a row's engine. NeMo-Aligner's completes a batch (af2b3bd9, utils/trt_llm.py, `_generate`)."""
    pinned = {"sequences": limit} if (limit := number(row, "in_flight")) else {}
    if number(row, "eager"):
        pinned["eager"] = 1.0
    figures = problem.engine_as_set(engine(row), pinned)
    return replace(figures, in_batches=row["framework"] == "NeMo-Aligner")


def trainer(row: Row) -> str:
    """The runtime of a row's trainer; Megatron Core where it is not said."""
    text = row.get("engine", "").lower()
    return next((name for word, name in RUNTIMES if word in text), "megatron-core")


def _training(row: Row) -> PlanOptions:
    """The trainer of a row: its runtime, its degrees, activations recomputed as RL trainers do by default (verl,
    `enable_gradient_checkpointing: True`; NeMo-RL, `activation_checkpointing: true` of its recipes).
    """
    runtime = trainer(row)
    pins = [f"{axis}={int(value)}" for axis in ("tp", "cp", "ep", "pp") if (value := number(row, f"train_{axis}"))]
    if runtime == "fsdp2" and not pins:
        pins = ["tp=1", "pp=1"]
    precision = "fp8" if row.get("precision_train") == "fp8" else None
    return PlanOptions(method="full", runtime=runtime, pin=(*pins, "recompute=full"), precision=precision,
                       oom_risk="50 %")  # fmt: skip


def _trained(asked: PostTraining) -> tuple[Training, bool, bool]:
    """The trainer as stated, or with fewer pins where no such layout is legal here (uneven stages); whether it fits,
    and whether it is as stated. What does not fit is priced without a limit of memory.
    """
    pins = asked.training.pin
    for some in (pins, [p for p in pins if not str(p).startswith("pp")], ["recompute=full"], []):
        stated = replace(asked, training=replace(asked.training, pin=tuple(some)))
        for fits in (True, False):
            trained = candidates.trained(stated, 0, asked.machines[0].accelerators, "fitting" if fits else "any")
            if trained is not None:
                return trained, fits, some is pins
    raise NoAnswer("no layout of the trainer is legal")


def _timed(asked: PostTraining, trained: Training, where: Placement, stale: float) -> StepParts:
    """A row's phases on its accelerators."""
    work = asked.work
    rollers = asked.machines[1]
    runtime = asked.known.runtime(trained.trainer.runtime.partition("@")[0])
    on_trainers, served = (problem.served(asked, each.cluster, runtime) for each in asked.machines)
    as_stated = True
    try:
        layout = problem.replica_layouts(work.model, rollers.cluster, asked.replica)
    except ClusterwrightError:
        as_stated = False
        layout = problem.replica_layouts(work.model, rollers.cluster, {})
    engine = work.engine
    colocated = where == "colocated"
    share = engine.memory_share_colocated if colocated else engine.memory_share
    ahead = stale if where == "async" else 0.0
    launched, kernels = (
        candidates.replicas(asked, 1, model, layout, (share, 0.0), ahead).over(
            rollers.accelerators, work.demand.sequences
        )[2]
        for model in (served, replace(served, captured=(np.inf, np.inf)))
    )
    if not np.any(np.isfinite(launched)):
        raise NoAnswer("no replica holds the weights and a response")
    plain = np.where(layout.groups == 1, launched, np.inf)
    fastest = int(np.argmin(plain if np.any(np.isfinite(plain)) else launched))
    sizes = (asked.machines[0].accelerators, rollers.accelerators)
    return StepParts(
        placement=where,
        staleness=stale,
        updates=work.updates,
        generation=float(kernels[fastest]),
        launched=float(launched[fastest] - kernels[fastest]),
        log_probabilities=trained.log_probabilities_s,
        reference=trained.reference_s,
        update=trained.update_s,
        sync=candidates.synchronised(work, trained, on_trainers, served, sizes, not colocated).seconds,
        experts=work.model.moe is not None,
        tokens=work.tokens,
        as_stated=as_stated,
    )
