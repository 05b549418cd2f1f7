"""A question about post-training made computable: the step's work, the pools, and a model as engines serve it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from planner.base import reading, units
from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import Catalog
from planner.cost import response_lengths
from planner.cost.decoding import Rollout, Served
from planner.cost.generation import Demand
from planner.figures import cost_inputs
from planner.figures.efficiency import reached
from planner.figures.matrix_formats import can_train_in
from planner.models.context import attended
from planner.models.parameters import parameters
from planner.models.workload import find_model, workload
from planner.question.given import texts
from planner.question.job_pools import JobPool, part_of
from planner.question.plan_options import PlanOptions
from planner.question.rl_options import RLOptions
from planner.question.values import sequence_length
from planner.rl.constants import EngineFigures, MeasuredExcess, at_release, engine
from planner.rl.learned import LikeJob, SiteSteps
from planner.schema.choices import Objective, Placement, RLTask, WeightsWay
from planner.schema.hardware import Cluster, Runtime
from planner.schema.rl_site import SitePhaseName
from planner.schema.workload import Model

LARGEST_FILE = 50_000_000
ROLLOUT_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
"""Precisions of rollout -> bytes of a weight."""
WIDEST = 64
"""Accelerators of a replica, at most."""


@dataclass(frozen=True, kw_only=True)
class RLStep:
    """What a step does."""

    task: RLTask
    model: Model
    demand: Demand
    updates: int
    reference: bool
    critic: Model | None
    reward: Model | None
    steps: int
    engine: EngineFigures
    rollout_precision: str
    engine_release: str | None = None
    weights: WeightsWay | None = None
    """How they reach replicas on other accelerators; None: the quicker way."""

    @property
    def forwards(self) -> int:
        """Forward passes of the policy's size over all sequences beside the updates: log-probabilities before them,
        which trainers compute anew since an engine's differ by rounding (verl, NeMo-RL, TRL), and a reference.
        """
        return 1 + self.reference

    @property
    def tokens(self) -> float:
        """Prompts and responses of a step."""
        return self.demand.sequences * (self.demand.prompt + self.demand.lengths.mean)


def work(model: Model, task: RLTask, asked: RLOptions) -> RLStep:
    """What a question says of its step, checked.

    Raises:
        WrongQuestion: a value or a combination that cannot be; the message names the flag.
    """
    if model.family != "decoder":
        raise WrongQuestion(f"--task {task}: {model.id} is no decoder; it generates nothing")
    if asked.critic is not None and task != "ppo":
        raise WrongQuestion(f"--critic {asked.critic}: {task} has none; leave it out, or take --task ppo")
    samples = asked.samples if asked.samples is not None else (1 if task == "ppo" else 16)
    if task != "ppo" and samples < 2:
        raise WrongQuestion(f"--samples {samples}: {task} compares the responses to a prompt; take 2 or more")
    if asked.response is None:
        raise WrongQuestion(
            "--response: how long are responses? Write the mean and the cap in tokens: --response 2k/8k"
        )
    prompt = sequence_length(asked.prompt_length)
    assert prompt is not None
    if prompt < 1:
        raise WrongQuestion(f"--prompt-length {asked.prompt_length}: a prompt has 1 token or more")
    lengths = responses(asked.response)
    context = model.learned_positions or model.context
    if context and prompt + lengths.cap > context:
        raise WrongQuestion(
            f"--response {asked.response}: prompts of {prompt:,} tokens with responses up to {lengths.cap:,.0f} are "
            f"longer than the context of {model.id}, {context:,}; take a lower cap"
        )
    sequences = asked.prompts * samples
    if asked.updates > sequences:
        raise WrongQuestion(f"--updates {asked.updates}: a step has {sequences:,} responses; take at most as many")
    precision = asked.rollout_precision or "bf16"
    if precision not in ROLLOUT_BYTES:
        raise WrongQuestion(f"--rollout-precision {precision}: it can be {', '.join(ROLLOUT_BYTES)}")
    critic = _other("critic", asked.critic) or (model if task == "ppo" else None)
    return RLStep(
        task=task,
        model=model,
        demand=Demand(sequences=float(sequences), prompt=float(prompt), lengths=lengths, samples=float(samples)),
        updates=asked.updates,
        reference=asked.reference,
        critic=critic,
        reward=_other("reward", asked.reward),
        steps=asked.steps,
        engine=engine_as_set(asked.engine, pinned_replica(texts(asked.rollout)), asked.engine_release),
        engine_release=asked.engine_release,
        weights=asked.weights,
        rollout_precision=precision,
    )


def _other(flag: str, name: str | None) -> Model | None:
    """A model that is trained or asked beside the policy."""
    if not name:
        return None
    try:
        return find_model(name)
    except WrongQuestion as error:
        raise WrongQuestion(f"--{flag} {name}: {error}") from None


class LengthsFile(str):
    """A file of lengths as another file names it: in the folder of that file, or below."""

    folder: Path

    @classmethod
    def in_folder(cls, name: str, folder: Path) -> LengthsFile:
        """The file of that name in a folder."""
        made = cls(name)
        made.folder = folder
        return made

    def path(self) -> Path:
        """Where it is.

        Raises:
            WrongQuestion: elsewhere: whoever sends a question file may have no other file read.
        """
        folder = self.folder.resolve()
        path = (folder / self).resolve()
        if not path.is_relative_to(folder):
            raise WrongQuestion(f"--response {self}: a file names lengths in its own folder or below; copy them there")
        if not path.is_file():
            raise WrongQuestion(
                f"--response {self}: no such file next to the file that names it; put the lengths there, or write mean "
                "and cap in tokens: 2k/8k"
            )
        return path


def responses(stated: str | Path | Sequence[float]) -> response_lengths.Lengths:
    """Lengths as stated: mean and cap, a file, or numbers.

    Raises:
        WrongQuestion: they are none.
    """
    if not isinstance(stated, str | Path):
        values = np.array(list(stated), dtype=float)
        return response_lengths.of_values(values, float(values.max()) if len(values) else 1.0)
    mean, slash, cap = str(stated).partition("/")
    try:
        if slash:
            return response_lengths.of_mean(units.parse(mean, "count"), units.parse(cap, "count"))
        if re.fullmatch(r"[\d.]+ ?[kM]?", mean) and not Path(mean).is_file():
            raise WrongQuestion(f"--response {stated}: the longest is missing; write mean and cap in tokens: {mean}/8k")
    except units.UnitError:
        pass
    path = stated.path() if isinstance(stated, LengthsFile) else Path(stated)
    if not path.is_file():
        raise WrongQuestion(f"--response {stated}: no such file; or write mean and cap in tokens: 2k/8k")
    read: list[float] = []
    for number, line in enumerate(reading.text(path, "a file of lengths", LARGEST_FILE).splitlines(), 1):
        for word in line.replace(",", " ").split():
            # What a line says is not printed: the file may be none of lengths, and not for the reader's eyes.
            if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", word) or float(word) < 1:
                raise WrongQuestion(f"--response {stated}: line {number} is no length; write one of at least 1 a line")
            read.append(float(word))
    if not read:
        raise WrongQuestion(f"--response {stated}: it is empty; write one length of at least 1 token a line")
    return response_lengths.of_values(np.array(read), max(read))


def staleness(
    placement: Placement | None, stated: float | None, known_to: float = np.inf
) -> Mapping[Placement, tuple[float, ...]]:
    """Which placements are tried, each with its staleness: none beyond where a law of learning ends.

    Raises:
        WrongQuestion: a staleness that the placement cannot have, or of which the law says nothing.
    """
    asked = 1.0 if placement == "one-step-off" else stated
    if asked is not None and asked > known_to:
        raise WrongQuestion(
            f"--steps-at: it ends at a staleness of {known_to:g} and says nothing of {asked:g}; add {asked:g}=TIMES"
        )
    most = min(1.0, known_to) if stated is None else stated
    if placement in ("colocated", "in-step") and stated:
        raise WrongQuestion(
            f"--staleness {stated:g} --placement {placement}: nothing is stale there; take --placement async"
        )
    if placement == "one-step-off" and stated not in (None, 1.0):
        raise WrongQuestion(f"--staleness {stated:g} --placement one-step-off: it is 1 there; take --placement async")
    if placement == "async" and stated == 0:
        raise WrongQuestion("--staleness 0 --placement async: rollout would wait; take --placement in-step")
    beyond = tuple(sorted({s for s in (0.25, 0.5, 1.0) if s < most} | {most})) if most else ()
    offered: dict[Placement, tuple[float, ...]] = {"colocated": (0.0,), "in-step": (0.0,)}
    if most >= 1.0:
        offered["one-step-off"] = (1.0,)
    if beyond:
        offered["async"] = beyond if stated is None else (stated,)
    return {name: values for name, values in offered.items() if placement in (None, name)}


def stated_law(text: str | None) -> list[tuple[float, float]]:
    """``1=1.1,4=1.5``: points of staleness and times as many steps, from 0 and 1 on; none where nothing is stated.

    Raises:
        WrongQuestion: no such pairs, or fewer steps at more staleness.
    """
    points = {0.0: 1.0}
    for word in re.split(r"[,\s]+", (text or "").strip()):
        match = re.fullmatch(r"(\d{1,2}(?:\.\d{1,4})?)=(\d{1,4}(?:\.\d{1,6})?)", word, re.ASCII)
        if text is not None and (match is None or not 0.0 < float(match[1]) <= 64.0 or float(match[2]) < 1.0):
            raise WrongQuestion(
                f"--steps-at {text:.60}: write a staleness above 0 and times of at least 1: 1=1.1,4=1.5"
            )
        if match is not None and float(match[1]) in points:
            raise WrongQuestion(f"--steps-at {text:.60}: {match[1]} appears twice; keep one")
        if match is not None:
            points[float(match[1])] = float(match[2])
    ordered = sorted(points.items())
    if any(later[1] < earlier[1] for earlier, later in pairwise(ordered)):
        raise WrongQuestion(f"--steps-at {text}: fewer steps at more staleness; times may not fall")
    return ordered if len(ordered) > 1 else []


# ---- machines --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Machines:
    """A pool of the question."""

    pool: JobPool
    usd_per_s: float | None
    """US dollars of one accelerator and second."""

    @property
    def cluster(self) -> Cluster:
        """All of it."""
        return self.pool.cluster

    @property
    def accelerators(self) -> int:
        """Accelerators of the pool."""
        return self.pool.cluster.accelerators

    def part(self, accelerators: int) -> Cluster:
        """So many accelerators of the pool, whole nodes or a part of one."""
        node = self.cluster.node
        if accelerators % node.accelerators == 0:
            return replace(self.cluster, count=accelerators // node.accelerators)
        return replace(self.cluster, node=part_of(node, accelerators), count=1)

    def sizes(self) -> tuple[int, ...]:
        """Accelerators that one role may have beside another in the same pool: quarters, in whole nodes where there
        are several.
        """
        unit = self.cluster.node.accelerators if self.cluster.count > 1 else 1
        whole = self.accelerators // unit
        return tuple(sorted({max(1, whole * quarter // 4) * unit for quarter in (1, 2, 3) if whole > 1}))


@dataclass(frozen=True, kw_only=True)
class PostTraining:
    """A question with everything looked up."""

    known: Catalog
    work: RLStep
    machines: Sequence[Machines]
    training: PlanOptions
    """Runtime, precision, pins, optimizer and risk of the trainer."""
    replica: Mapping[str, float]
    """Pinned degrees of a replica."""
    split: tuple[int, int] | None
    tried: Mapping[Placement, tuple[float, ...]]
    objective: Objective
    inputs: Mapping[str, str]
    excess: MeasuredExcess
    offloads: bool | None = None
    """Whether a colocated trainer's states are in host memory meanwhile; None: as is faster."""
    assumptions: Sequence[tuple[str, str, str]] = ()
    law: Sequence[tuple[float, float]] = ()
    """Staleness -> times as many steps, as the user states it."""
    learned: SiteSteps | None = None
    """Measured steps of the user's own site."""

    @property
    def like(self) -> LikeJob:
        """What of it must be alike for a site's run to tell of it."""
        return LikeJob(self.work.model.id, self.work.demand.lengths.cap)

    def steps_times(self, stale: float) -> float | None:
        """Times as many steps as in step that learning needs at a staleness; None where no law is stated."""
        at = [point for point, _ in self.law]
        return float(np.interp(stale, at, [times for _, times in self.law])) if at else None

    def measured_over(self, phase: SitePhaseName, place: int, software: str) -> float:
        """Seconds of a phase on a pool at the user's site over those of the built-in figures; 1 where none is known."""
        part = self.machines[place].cluster.accelerator.id
        return self.learned.times(phase, part, software, self.like) if self.learned else 1.0


def windowed(model: Model, context: float) -> float:
    """Positions that attention reads over those there are, mean over a response."""
    return float(min(1.0, attended(model, context) / (0.5 * context)))


def served(asked: PostTraining, cluster: Cluster, runtime: Runtime) -> Served:
    """A model as an engine serves it on a cluster.

    Raises:
        WrongQuestion: a precision that the accelerator does not have.
    """
    work = asked.work
    part = cluster.accelerator
    precision = work.rollout_precision
    if not can_train_in(part, precision):
        able = [name for name in ROLLOUT_BYTES if can_train_in(part, name)]
        instead = f"take {able[0]}" if able else "take another accelerator"
        raise WrongQuestion(f"--rollout-precision {precision}: {part.id} has no {precision}; {instead}")
    efficiency = reached(asked.known, part, runtime, runtime.releases[-1])
    longest = work.demand.prompt + work.demand.lengths.cap
    return Served(
        shape=cost_inputs.shape(workload(work.model, method="full"), None),
        device=cost_inputs.device(part, efficiency.accelerator, precision, runtime.releases[-1]),
        bandwidth=part.memory_bandwidth,
        network=cost_inputs.network(cluster, efficiency.accelerator),
        weight_bytes=ROLLOUT_BYTES[precision],
        cache_bytes=2.0,
        host_s=work.engine.host,
        host_sequence_s=work.engine.host_sequence,
        captured=work.engine.captures(part),
        near=windowed(work.model, longest),
    )


def replica_layouts(model: Model, cluster: Cluster, pinned: Mapping[str, float]) -> Rollout:
    """Layouts of replicas: tensor parallelism over powers of two that divide the heads; of a mixture also attention
    groups, over all of whose accelerators its experts are spread.

    Raises:
        WrongQuestion: none that is pinned.
    """
    domain = cluster.node.accelerators
    most = min(WIDEST, cluster.accelerators)
    experts = model.moe.experts if model.moe else 1
    pairs = []
    for tp in (2**i for i in range(7)):
        for groups in (2**i for i in range(7)):
            wide = tp * groups
            whole = wide <= domain or wide % domain == 0 or domain % wide == 0
            spread = groups == 1 or (model.moe is not None and tp <= domain and experts % wide == 0)
            if wide <= most and model.heads % tp == 0 and whole and spread:
                pairs.append((tp, groups))
    kept = [pair for pair in pairs if pair == (pinned.get("tp", pair[0]), pinned.get("groups", pair[1]))]
    if not kept:
        words = ",".join(f"{axis}={value:g}" for axis, value in pinned.items() if axis in ("tp", "groups"))
        able = sorted({tp for tp, _ in pairs})
        raise WrongQuestion(f"--rollout {words}: no replica of {model.id} is so; tp can be {', '.join(map(str, able))}")
    tp, groups = np.array(kept, dtype=float).T
    return Rollout(tp=tp, groups=groups)


def pinned_replica(texts: Sequence[str]) -> dict[str, float]:
    """``tp=4,groups=1,share=0.6,sequences=256,eager``; eager is 1 where it is said.

    Raises:
        WrongQuestion: another word, or no such number.
    """
    pinned: dict[str, float] = {}
    for word in (word for text in texts for word in re.split(r"[,\s]+", text) if word):
        axis, _, value = ("eager=1" if word == "eager" else word).partition("=")
        pattern = {"share": r"0?\.\d{1,6}|1", "eager": "1"}.get(axis, r"[1-9]\d{0,8}")
        if axis not in ("tp", "groups", "share", "sequences", "eager") or not re.fullmatch(pattern, value, re.ASCII):
            raise WrongQuestion(
                f"--rollout {word}: write tp=4, or tp=1,groups=16 of a mixture of experts; share=0.6 of the memory, "
                "sequences=256 in flight and eager (no captured graphs) are the engine's"
            )
        pinned[axis] = float(value)
    return pinned


def engine_as_set(name: str, pinned: Mapping[str, float], release: str | None = None) -> EngineFigures:
    """An engine with the share of the memory, the sequences in flight and the captured graphs that a question says.

    Raises:
        WrongQuestion: no such engine.
    """
    known = at_release(engine(name), release)
    colocated = pinned.get("share", known.memory_share_colocated)
    return replace(
        known,
        memory_share=pinned.get("share", known.memory_share),
        memory_share_colocated=colocated,
        sequences=pinned.get("sequences", known.sequences),
        eager="eager" in pinned,
    )


def stated_split(text: str | None, machines: Sequence[Machines]) -> tuple[int, int] | None:
    """``32:96``: accelerators that train, and that roll out.

    Raises:
        WrongQuestion: no two numbers, or more than there are.
    """
    if text is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,6}:[1-9]\d{0,6}", text):
        raise WrongQuestion(f"--split {text}: write accelerators that train and that roll out: 32:96")
    train, rollout = map(int, text.split(":"))
    total = sum(machine.accelerators for machine in machines)
    if train + rollout > total:
        half = max(1, total // 2)
        instead = f"{train}:{total - train}" if train < total else f"{half}:{half}"
        raise WrongQuestion(f"--split {text}: there are {total:,} accelerators; take {instead}")
    return train, rollout


def holds(machines: Sequence[Machines], model: Model) -> None:
    """Refuses pools whose memory holds no copy of the weights.

    Raises:
        NoAnswer: they do not.
    """
    needed = 2.0 * parameters(model).total
    if all(machine.accelerators * machine.cluster.accelerator.memory < needed for machine in machines):
        raise NoAnswer(
            f"no pool holds the weights of {model.id}, {needed / 2**30:,.0f} GiB in bf16; take more accelerators"
        )
