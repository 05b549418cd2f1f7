"""RL post-training from Python and the command line: one question record, one answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.api import records
from planner.api.entry import asks
from planner.base.errors import WrongQuestion
from planner.figures import matrix_formats
from planner.models.workload import find_model
from planner.planning import what_fits
from planner.question import pools
from planner.question.given import Named, listed, path, texts
from planner.question.plan_options import PlanOptions
from planner.question.reading import catalog_of, input_hashes
from planner.question.rl_options import TAKEN, RLEstimateQuestion, RLQuestion, training_options, unused
from planner.question.several_pools import pool_bases, pool_prices
from planner.rl import job, learned, normal, phase_names, problem, run, stated
from planner.schema.hardware import Price
from planner.schema.rl import RLPlanSet
from planner.site import folder


@asks(RLQuestion)
def plan_rl(asked: RLQuestion) -> RLPlanSet:
    """The best steps of a post-training by reinforcement learning, rollout and training together, best first.

    Args: as declared.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
        NoAnswer: no placement fits; the message says what would.

    >>> best = plan_rl("llama3.1-8b", "dgx-h100:2", response="1k/4k", placement="colocated")[0]
    >>> best.placement, best.trainer.accelerators
    ('colocated', 16)
    """
    return planned(asked, listed(records.as_clusters(asked.cluster)))


def planned(asked: RLQuestion, clusters: list[Named]) -> RLPlanSet:
    """As :func:`plan_rl`; messages name flags.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
        NoAnswer: no placement fits; the message says what would.
    """
    return run.plan(looked_up(asked, clusters, training_options(asked)))


def looked_up(asked: RLQuestion, clusters: list[Named], options: PlanOptions) -> problem.PostTraining:
    """A question with everything looked up.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
    """
    if asked.objective not in ("time", "cost"):
        raise WrongQuestion(f"--objective {asked.objective} --task {asked.task}: choose time or cost (of a step)")
    clusters = listed(clusters)
    if not clusters:
        raise WrongQuestion("on what? --cluster dgx-h100:16; a second --cluster for accelerators of another kind")
    site = folder.named(path(asked.site))
    options = options if site is None else replace(options, site=site.folder)
    known = catalog_of(options)
    model = find_model(records.as_model(asked.model))
    work = problem.work(model, asked.task, asked)
    bases = pool_bases(known, clusters, options)
    paid = pool_prices(known, bases, replace(options, price=asked.price))
    machines = [
        problem.Machines(pool=pool, usd_per_s=_per_second(pool.price, pool.cluster.node.accelerators))
        for pool in pools.pools(bases, paid, ()).all
    ]
    parts = [machine.cluster.accelerator for machine in machines]
    named = what_fits.precisions(options) if options.precision else []
    if named and not any(matrix_formats.can_train_in(part, name) for part in parts for name in named):
        none = f"{', '.join(part.id for part in parts)} has no such matrix products; leave it out"
        raise WrongQuestion(f"--precision {','.join(named)}: {none}")
    return job.posed(
        known,
        asked,
        work,
        machines,
        options,
        objective=asked.objective,
        inputs=input_hashes(known, model, clusters),
        assumptions=job.left_open(asked, work),
        learned=measured_at(options.site),
    )


def measured_at(named: str | Path | None) -> learned.SiteSteps | None:
    """The steps of post-training that a site (or ``CLUSTERWRIGHT_SITE``) has measured; None where there are none.

    Raises:
        WrongQuestion: no such site, or a row of them cannot be read.
    """
    site = folder.named(path(named))
    return None if site is None else learned.read(site.folder, site.profile.name)


@asks(RLEstimateQuestion)
def estimate_rl(asked: RLEstimateQuestion) -> RLPlanSet:
    """One step of a post-training as stated, whether it fits or not; with `measured`, which of its phases are slow.

    An axis of the trainer that is not given is neutral, as in :func:`estimate`; a replica is ``tp=1`` unless `rollout`
    says. Apart, `split` or a second cluster says who rolls out.

    Args: as declared.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
        NoAnswer: no replica holds the weights and a response.

    >>> mine = estimate_rl("llama3.1-8b", "dgx-h100:2", "recompute=full", response="1k/4k", placement="colocated",
    ...                    measured={"generation": 1e3})
    >>> mine.measured.phases[0].verdict
    'slow'
    """
    return estimated(asked, listed(records.as_clusters(asked.cluster)))


def estimated(asked: RLEstimateQuestion, clusters: list[Named]) -> RLPlanSet:
    """As :func:`estimate_rl`; messages name flags.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
        NoAnswer: no replica holds the weights and a response.
    """
    if asked.placement is None:
        raise WrongQuestion(
            f"--task {asked.task}: how is it placed? --placement colocated, in-step, one-step-off or async (and apart "
            "--split TRAIN:ROLLOUT)"
        )
    taken = None if asked.measured is None else phase_names.measured(asked.measured)
    pins = (*texts(asked.pin), *(word for text in texts(asked.settings) for word in text.split()))
    question = looked_up(asked, clusters, replace(training_options(asked), pin=pins))
    question = replace(question, replica={"tp": 1, "groups": 1, **question.replica})
    if asked.placement == "async" and asked.staleness is None:
        question = replace(question, tried={"async": question.tried["async"][-1:]})
    answer = stated.stated(question)
    return answer if taken is None else replace(answer, measured=normal.compared(question, answer, taken))


def estimated_by_flags(
    model: str, clusters: Sequence[str], flags: Mapping[str, Any], options: PlanOptions
) -> RLPlanSet:  # fmt: skip
    """The answer to ``estimate --task grpo``.

    Raises:
        WrongQuestion: as :func:`estimated`, or a flag that says nothing of such a training.
        NoAnswer: as :func:`estimated`.
    """
    taken = {**flags, **taken_of(options)}
    return estimated(RLEstimateQuestion(model, clusters, **taken), listed(clusters))


def asked_by_flags(
    model: str, clusters: Sequence[str], flags: Mapping[str, Any], options: PlanOptions
) -> RLPlanSet:  # fmt: skip
    """The answer to ``plan --task grpo``.

    Raises:
        WrongQuestion: as :func:`planned`, or a flag that says nothing of such a training.
        NoAnswer: as :func:`planned`.
    """
    return planned(RLQuestion(model, clusters, **flags, **taken_of(options)), listed(clusters))


def taken_of(options: PlanOptions) -> dict[str, Any]:
    """What of all trainings' options a post-training takes.

    Raises:
        WrongQuestion: a flag that says nothing of it.
    """
    if idle := unused(options):
        instead = {"batch": "; say --prompts and --samples", "seq": "; say --response", "lengths": "; say --response"}
        flag = f"--{idle[0].replace('_', '-')}"
        raise WrongQuestion(f"{flag}: says nothing of --task {options.task}{instead.get(idle[0], '; leave it out')}")
    return {name: getattr(options, name) for name in TAKEN}


def _per_second(price: Price | None, accelerators: int) -> float | None:
    """US dollars of one accelerator and second."""
    return None if price is None else float(price.usd) / accelerators / 3600.0
