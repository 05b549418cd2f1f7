"""Plans from Python: the same questions as ``clusterwright plan`` and ``clusterwright estimate``."""

from __future__ import annotations

from planner.api import answers, records
from planner.api.entry import asks
from planner.base.errors import WrongQuestion
from planner.question.asked_plans import EstimateQuestion, ImagesQuestion, PlanQuestion, as_options
from planner.question.given import texts
from planner.schema.images import ImagePlan
from planner.schema.plan import PlanSet


@asks(PlanQuestion)
def plan(asked: PlanQuestion) -> PlanSet:
    """The best ways to train a model on a cluster, best first.

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

    Raises:
        WrongQuestion: the configuration is not legal; the message says why.

    >>> estimate("llama3-8b", "dgx-h100:1", tp=8, batch=64)[0].parallelism.tp
    8
    """
    settings = (*texts(asked.settings), *texts(asked.given()))
    model = records.as_model(asked.model)
    return answers.estimate(model, records.as_clusters(asked.cluster), settings, as_options(asked))


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
