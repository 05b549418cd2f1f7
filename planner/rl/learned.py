"""What a site's own steps of post-training teach: seconds of phases over those predicted, kept in ``rl_steps.csv``.

A phase's factor, from n runs of it on the same accelerators with the same software, is

    ln f = sum_i ln(measured_i / predicted_i) / (n + (RUN / prior)^2)

from runs of one model with about the same cap of responses. Runs of a site differ by RUN and the built-in figure is
off by `prior` (one standard deviation each, log scale; ``fitted.toml`` has the half widths of 80 % intervals of the
second). Intervals stay as they are without a site.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from planner.base import csv_rows, locking
from planner.base.csv_rows import CsvRow
from planner.base.errors import WrongQuestion
from planner.base.reading import short_hash
from planner.base.units import format_seconds
from planner.rl.constants import phase_widths
from planner.rl.phase_names import LARGEST_NUMBER, PHASES, TRAINING, PhaseSeconds
from planner.schema.rl import RLPlan, RLPlanSet
from planner.schema.rl_site import LearntPhase, RLLesson, SiteFactor, SiteFactors, SitePhaseName

FILE = "rl_steps.csv"
RUN = 0.14
"""By what runs of one site differ where they are of the same kind: assumed, three in four within 15 %."""
NORMAL_80 = 1.2816
"""Half width of an 80 % interval over the standard deviation."""
ALIKE = 1.5
"""Times by which caps of responses may differ between a run and what it tells of: assumed."""
FAR = 3.0
"""Times by which a phase may be off its prediction and be learned all the same."""
LENGTHS = 0.1
"""Share by which responses may be longer or shorter, more or fewer, than the plan says."""
FEWEST = 3
"""Steps of a log that teaches: the first does not count, and one alone says nothing of the next."""


class LikeJob(NamedTuple):
    """What of a job must be alike for a run to tell of it."""

    model: str
    cap: float
    """Tokens of a response, at most."""


@dataclass(frozen=True, kw_only=True)
class SitePhase:
    """A row: a phase of a run."""

    run: str
    """Digest of the first step of its log and of its placement."""
    source: str
    model: str
    cap: float
    """Tokens of a response, at most."""
    phase: SitePhaseName
    accelerator: str
    software: str
    measured_s: float
    predicted_s: float

    def of(self, phase: SitePhaseName, accelerator: str, software: str, job: LikeJob) -> bool:
        """Whether it tells of a phase of a job on some accelerators."""
        mine = (self.phase, self.accelerator, self.software, self.model)
        alike = max(self.cap, job.cap) <= ALIKE * min(self.cap, job.cap)
        return alike and mine == (phase, accelerator, software.partition("@")[0], job.model)


@dataclass(frozen=True)
class SiteSteps:
    """All rows of a site."""

    name: str
    rows: tuple[SitePhase, ...]

    def factor(self, phase: SitePhaseName, accelerator: str, software: str, job: LikeJob) -> SiteFactor | None:
        """What the site's runs of a kind say of a phase; None where there is none."""
        alike = (row for row in self.rows if row.of(phase, accelerator, software, job))
        logs = [math.log(row.measured_s / row.predicted_s) for row in alike]
        if not logs:
            return None
        prior = phase_widths()["update" if phase == "training" else phase] / NORMAL_80
        return SiteFactor(phase=phase, factor=math.exp(sum(logs) / (len(logs) + (RUN / prior) ** 2)), runs=len(logs))

    def times(self, phase: SitePhaseName, accelerator: str, software: str, job: LikeJob) -> float:
        """The factor, 1 where nothing was learned."""
        factor = self.factor(phase, accelerator, software, job)
        return factor.factor if factor else 1.0

    def section(self, best: RLPlan, engine: str, job: LikeJob) -> SiteFactors:
        """What a placement takes from the site."""
        side = best.rollout[0]
        asked: tuple[tuple[SitePhaseName, str, str], ...] = (
            ("generation", side.accelerator, engine),
            ("training", best.trainer.accelerator, best.trainer.runtime),
            ("other", "", ""),
        )
        factors = (self.factor(phase, part, software, job) for phase, part, software in asked)
        return SiteFactors(name=self.name, factors=tuple(factor for factor in factors if factor))


def read(folder: Path, name: str) -> SiteSteps | None:
    """A site's measured steps; None where it has none.

    Raises:
        WrongQuestion: a row that cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    _, rows = csv_rows.read(path, "a site's steps of post-training")
    return SiteSteps(name, tuple(map(_row, rows)))


def _row(row: CsvRow) -> SitePhase:
    phase = row.text("phase")
    cap = row.number("cap")
    measured_s = row.number("measured_s")
    predicted_s = row.number("predicted_s")
    if phase not in ("generation", "training", "other") or cap < 1 or not _teaches(measured_s, predicted_s):
        raise WrongQuestion(
            f"{row.where}: no measured phase; each row has {', '.join(_columns())}, seconds above 0; take the line out "
            "or learn its log again"
        )
    texts = {name: row.text(name) for name in ("run", "source", "model", "accelerator", "software")}
    return SitePhase(**texts, phase=phase, cap=cap, measured_s=measured_s, predicted_s=predicted_s)  # type: ignore[arg-type]


def _teaches(measured_s: float, predicted_s: float) -> bool:
    return all(0 < seconds < LARGEST_NUMBER for seconds in (measured_s, predicted_s))


def _columns() -> list[str]:
    return [field.name for field in fields(SitePhase)]


class PlanRun(NamedTuple):
    """A run of a placement."""

    answer: RLPlanSet
    """What the placement is of."""
    plan: RLPlan
    taken: PhaseSeconds
    """What its log says."""


def lesson(folder: Path, name: str, run: PlanRun, *, accept: bool, write: bool) -> RLLesson:
    """What a run of a plan teaches, noted in the site's folder.

    Args:
        folder: The site's.
        name: Its name.
        run: What ran, and what its log says.
        accept: Whether phases far off their predictions are learned, too.
        write: Whether the journal is written.

    Raises:
        WrongQuestion: a log of other responses, of too few steps, of nothing that teaches, or far off.
    """
    taken = run.taken
    plan = run.plan
    _of_this_plan(run.answer, taken)
    digest = short_hash(repr((taken.run, plan.placement, plan.trainer.accelerators)).encode())
    rows = []
    left_out = [*(f"{phase}: no time of a step" for phase in taken.unread)]
    for phase, measured_s, predicted_s, part, software in _phases(run, left_out):
        if not _teaches(measured_s, predicted_s):
            left_out.append(f"{phase}: the plan has no time of it")
            continue
        row = SitePhase(
            run=digest, source=taken.source, model=run.answer.work.model, cap=run.answer.work.response_cap, phase=phase,
            accelerator=part, software=software.partition("@")[0], measured_s=measured_s, predicted_s=predicted_s,
        )  # fmt: skip
        over = measured_s / predicted_s
        if phase == "other" and not (1 / FAR < over < FAR or accept):
            left_out.append(
                f"other: {format_seconds(measured_s)} in no phase; rewards, validation or checkpoints of this run"
            )
            continue
        if not 1 / FAR < over < FAR and not accept:
            raise WrongQuestion(
                f"{taken.source}: {phase} took {format_seconds(measured_s)}, {over:.2g} times its prediction; is it "
                "this plan that ran? estimate with --measured says what would explain it, --accept learns it"
            )
        rows.append(row)
    if not rows:
        raise WrongQuestion(f"{taken.source}: nothing in it teaches: {'; '.join(left_out) or 'no phases'}")
    with locking.held(folder):
        before = read(folder, name) or SiteSteps(name, ())
        kept = [row for row in before.rows if row.run != digest]
        after = SiteSteps(name, (*kept, *rows))
        if write:
            csv_rows.write(folder / FILE, _columns(), map(astuple, after.rows))
    phases = []
    for row in rows:
        factor = after.factor(row.phase, row.accelerator, row.software, LikeJob(row.model, row.cap))
        assert factor is not None, "a row teaches its own job"
        phases.append(LearntPhase(phase=row.phase, accelerator=row.accelerator, software=row.software,
                                  measured_s=row.measured_s, predicted_s=row.predicted_s, runs=factor.runs,
                                  factor=factor.factor))  # fmt: skip
    return RLLesson(journal=str(folder / FILE), written=write, new=len(kept) == len(before.rows), source=taken.source,
                    phases=tuple(phases), left_out=tuple(left_out))  # fmt: skip


def _of_this_plan(answer: RLPlanSet, taken: PhaseSeconds) -> None:
    """Refuses a log of other lengths or another batch than the plan's, or of too few steps."""
    mean = answer.work.response_mean
    if taken.mean_tokens and not mean * (1 - LENGTHS) <= taken.mean_tokens <= mean * (1 + LENGTHS):
        raise WrongQuestion(
            f"{taken.source}: its responses have {taken.mean_tokens:,.0f} tokens in the mean, the plan's {mean:,.0f}; "
            f"plan again with --response {taken.mean_tokens:.0f}/{answer.work.response_cap:.0f} and learn with that"
        )
    work = answer.work
    batch = work.prompts * work.samples
    if taken.responses and not batch * (1 - LENGTHS) <= taken.responses <= batch * (1 + LENGTHS):
        raise WrongQuestion(
            f"{taken.source}: its steps have {taken.responses:,.0f} responses, the plan's {batch:,} ({work.prompts:,} "
            f"prompts x {work.samples}); plan again with --prompts {max(1, round(taken.responses / work.samples))} and "
            "learn with that"
        )
    if taken.steps is not None and taken.steps < FEWEST:
        raise WrongQuestion(
            f"{taken.source}: has {taken.steps} steps, the first of which does not count; take 3 or more"
        )


def _phases(run: PlanRun, left_out: list[str]) -> Iterator[tuple[SitePhaseName, float, float, str, str]]:
    """Phases that teach: seconds measured, seconds predicted by the built-in figures, where and by what."""
    plan = run.plan
    taken = run.taken
    factors = run.answer.site.factors if run.answer.site else ()
    site = {factor.phase: factor.factor or math.inf for factor in factors}
    seconds = vars(plan.phases)
    trains = (plan.trainer.accelerator, plan.trainer.runtime)
    colocated = plan.placement == "colocated"
    parts = [phase for phase in taken.seconds if set(PHASES[phase]) & set(TRAINING)]
    if "generation" in taken.seconds:
        if colocated:
            predicted_s = plan.phases.generation_s / site.get("generation", 1.0)
            yield "generation", taken.seconds["generation"], predicted_s, plan.rollout[0].accelerator, run.answer.engine
        else:
            left_out.append("generation: apart from training its time in a log is a wait")
    if "wait" in taken.seconds:
        left_out.append("wait: says nothing of how long generation takes")
    if parts:
        measured_s = sum(taken.seconds[phase] for phase in parts)
        predicted_s = sum(seconds[name] for name in {name for phase in parts for name in PHASES[phase]})
        yield "training", measured_s, predicted_s / site.get("training", 1.0), *trains
    if colocated and {"step", "generation"} <= taken.seconds.keys() and {"update", "training"} & taken.seconds.keys():
        others = sum(value for phase, value in taken.seconds.items() if phase not in ("step", "other", "wait"))
        rest_s = taken.seconds["step"] - others
        if rest_s > 0.05:
            yield "other", rest_s, plan.phases.other_s / site.get("other", 1.0), "", ""
