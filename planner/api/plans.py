"""Plans from Python: the same questions as ``clusterwright plan``, ``estimate`` and ``fit``."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from planner.api import answers, records
from planner.api.entry import asks
from planner.api.wording import in_keywords
from planner.base.errors import WrongQuestion
from planner.base.progress import advancing
from planner.catalog import load
from planner.models.workload import find_model
from planner.planning import what_fits
from planner.question.given import Progress, path, texts
from planner.question.plan_options import (
    EstimateQuestion,
    EvaluateQuestion,
    FitQuestion,
    ImagesQuestion,
    PlanOptions,
    PlanQuestion,
    as_options,
)
from planner.question.values import sequence_length
from planner.schema.choices import RLTask
from planner.schema.images import ImagePlan
from planner.schema.listings import EvaluatedConfiguration, FittingTraining
from planner.schema.plan import PlanSet
from planner.schema.record import Parts
from planner.schema.workload import Model


@asks(PlanQuestion)
def plan(asked: PlanQuestion) -> PlanSet:
    """The best ways to train a model on a cluster, the recommended one first.

    Args: as declared.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
        NoAnswer: no plan fits or keeps the limits; the message says what would.

    >>> best = plan("llama3-8b", "dgx-h100:2", top=1)[0]
    >>> best.parallelism.tp * best.parallelism.pp * best.parallelism.cp * best.parallelism.dp
    16
    """
    if isinstance(asked.model, str) and answers.counts_images(asked.model):
        raise WrongQuestion(f"{asked.model} is a convolutional network: plan_images({asked.model!r}, ...)")
    model = records.as_model(asked.model)
    return answers.plan(model, records.as_clusters(asked.cluster), as_options(asked), asked.progress)


@asks(EstimateQuestion)
def estimate(asked: EstimateQuestion) -> PlanSet:
    """One configuration as given, whether it fits or not: a set of one plan.

    An axis that is not given is neutral: degrees and micro-batch 1, DP what is left of the accelerators, nothing
    recomputed or offloaded, ZeRO 1, and sequence parallelism with TP and overlap of DP where the runtime has them.
    Overlap of TP and of point-to-point transfers is the faster of on and off.

    Axes are keywords (:class:`Axes` lists them), ``tp=8, pp=4, recompute="full"``, or texts as on the command line,
    ``"tp=8 pp=4"``. Over several pools each group of identical pipelines is a text,
    ``"group=copies=4,dgx-h100:layers=16:tp=2,dgx-v100:layers=16"`` (docs/mixed.md). All else is as in :func:`plan`.

    `measured` is what a step took: seconds, ``"12.3s"`` or a training log. The answer's `measured` says whether that is
    normal, and what would explain it where it is not.

    Raises:
        WrongQuestion: the configuration is not legal, or the measured step is none; the message says why.

    >>> estimate("llama3-8b", "dgx-h100:1", tp=8, batch=64)[0].parallelism.tp
    8
    >>> estimate("llama3-8b", "dgx-h100:1", tp=8, batch=64, measured="30s").measured.phases[0].verdict
    'slow'
    """
    settings = (*texts(asked.settings), *texts(asked.given()))
    model = records.as_model(asked.model)
    return answers.estimate(model, records.as_clusters(asked.cluster), settings, as_options(asked), asked.measured)


@asks(EvaluateQuestion)
def evaluate_many(asked: EvaluateQuestion) -> Parts[EvaluatedConfiguration]:
    """The figures of many configurations on one pool, in their order, without the rest of a plan; ``to_frame()`` too.

    Each of `configurations` is what :func:`estimate` takes of one, a text (``"tp=8 pp=4"``) or axes
    (``{"tp": 8, "pp": 4}``), and has the same figures, to rounding; one that is not legal has its `reason` in place of
    them, in the words of the error. They are priced together, hundreds of times as fast as one by one. Nothing is
    verified, and a site's own runs count by what was fitted to them alone. All else is as in :func:`plan`.

    Raises:
        WrongQuestion: what they share cannot be, or is more than one pool.
        NoAnswer: so many accelerators fail more often than the job restarts.

    >>> good, wrong = evaluate_many("llama3-8b", "dgx-h100:1", [{"tp": 8}, "tp=3"], batch=64)
    >>> good.fits, wrong.reason
    (True, "tp=3: 8 accelerators don't split that way. tp can be 1, 2, 4, 8 here.")
    """
    settings = [texts(words) for words in asked.configurations]
    model, cluster = records.as_model(asked.model), records.as_clusters(asked.cluster)
    evaluated = answers.evaluate_many(model, cluster, settings, as_options(asked))
    worded = [replace(one, reason=one.reason and in_keywords(one.reason)) for one in evaluated]
    return Parts(worded, [dict(vars(one)) for one in worded])


@asks(ImagesQuestion)
def plan_images(asked: ImagesQuestion) -> ImagePlan:
    """The shortest data-parallel step of a convolutional network over one or several pools: images for each.

    `model` is the id of a convolutional network (``resnet50``), `batch` counts images; all else is as in :func:`plan`.

    Raises:
        WrongQuestion: a name or a value that cannot be.
        NoAnswer: the batch does not fit into memory.

    >>> sum(pool.images for pool in plan_images("resnet50", accelerators={"A100": 4, "V100": 4}, batch=256))
    256
    """
    return answers.images(asked.model, records.as_clusters(asked.cluster), as_options(asked))


MOST = 4096


@asks(FitQuestion)
def fit(asked: FitQuestion) -> Parts[FittingTraining]:
    """Which accelerators hold a training, and how many; or which models fit on some, and how long their sequences.

    With ``to_frame()`` a table.

    Args: as declared.

    Raises:
        WrongQuestion: a name or a value that cannot be, or neither a model nor accelerators.
        NoAnswer: nothing fits.

    >>> fit("llama3-8b", "RTX-4090:1", seq="4k")[0].accelerators
    1
    """
    model = None if asked.model is None else records.as_model(asked.model)
    found = fits(model, asked.on, as_options(asked), asked.most, asked.progress)
    return Parts(found, [training.row() for training in found])


def fits(
    model: str | Model | None, on: str | None, asked: PlanOptions, limit: int | None, progress: Progress | None
) -> tuple[FittingTraining, ...]:
    """As :func:`fit`, with what is asked as one record; messages name flags.

    Raises:
        WrongQuestion: a name or a value that cannot be, or neither a model nor accelerators.
        NoAnswer: nothing fits.
    """
    if model is None and on is None:
        raise WrongQuestion("fit what, or on what? Name a model, or accelerators (--on RTX-4090:1)")
    if asked.task in get_args(RLTask):
        raise WrongQuestion(f"--task {asked.task}: fit_rl({model or 'model'!r}, ...) in Python")
    most = 8 if limit is None else limit
    for name, value in (("most", most), ("top", asked.top)):
        if not 1 <= value <= MOST:
            raise WrongQuestion(f"--{name} {value}: must be from 1 to {MOST:,}")
    known, chosen = load(path(asked.catalog), path(asked.site)), None if model is None else find_model(model)
    length = sequence_length(asked.seq)
    if on is not None:
        models, plain = [chosen] if chosen else what_fits.trainable(), replace(asked, seq=length, top=1)
        with advancing(progress, "models", len(models)) as advance:
            return what_fits.on_accelerators(known, models, on, plain, asked.top, advance)
    assert chosen is not None
    plain = replace(asked, seq=length, top=1)
    with advancing(progress, "accelerators", len(what_fits.accelerators(known))) as advance:
        return what_fits.on_catalog(known, chosen, plain, most, advance)
