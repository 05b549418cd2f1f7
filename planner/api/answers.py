"""Whole answers to questions that are records already: what the command line and the Python functions share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner import planning
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.models import families, workload
from planner.planning import order
from planner.planning.contingency import contingencies
from planner.question import pools
from planner.question.given import Named, Progress, counted, joined, listed, path, texts
from planner.question.given_groups import KEY, parsed_group
from planner.question.kept import cluster_name, kept_question
from planner.question.plan_options import MeasuredTime, PlanOptions
from planner.question.reading import catalog_of, input_hashes, pinned_request, request, several
from planner.question.several_pools import as_one_pool, grouped_request, pool_bases, pooled_request, stand_ins
from planner.question.values import parse_risk
from planner.schema.images import ImagePlan, ImageQuestion
from planner.schema.plan import Plan, PlanSet
from planner.schema.workload import Model
from planner.site import folder
from planner.site.folder import Site
from planner.verify import Inconsistent
from planner.verify.contingency import check as check_contingency

if TYPE_CHECKING:
    from planner.schema.listings import EvaluatedConfiguration


def plan(
    model: str | Model, cluster: Named | Sequence[Named], options: PlanOptions, progress: Progress | None = None
) -> PlanSet:
    """The best plans for a model on one or several pools.

    Raises:
        WrongQuestion: a name, a value or a combination that cannot be.
        NoAnswer: no plan fits or keeps the limits.
    """
    found = _searched(model, *as_one_pool(cluster, options), progress)
    whole = found.question is not None and found.contingency is None
    return found if whole else replace(found, asked=kept_question(cluster, options))


def _searched(
    model: str | Model, cluster: Named | Sequence[Named], options: PlanOptions, progress: Progress | None
) -> PlanSet:
    """The best plans, by whichever search answers the question."""
    if options.contingency is not None:
        return _with_contingency(model, cluster, options, progress)
    if options.noise_scale is not None:
        return _by_goodput(model, cluster, options, progress)
    if options.shortlist is None and options.to is not None:
        raise WrongQuestion("--to names what must start the plans of a shortlist: --shortlist 5")
    if several(cluster, options):
        if options.shortlist is not None:
            raise WrongQuestion("--shortlist: of plans on one pool; --top lists those over several")
        from planner.mixed import dependence

        found = dependence.plan(*pooled_request(model, cluster, options), progress, _starts)
        return _with_site(found, options)
    site = folder.named(path(options.site))
    if options.shortlist is not None:
        return _shortlist(site, model, cluster, options, options.shortlist, progress)
    known, wanted = request(model, cluster, options)
    if site is None:
        return planning.plan(known, wanted, progress)
    from planner.api import learning

    return learning.plan(site, known, wanted, progress)


def _starts(plan: Plan) -> bool:
    """Whether export writes all files of a job of the plan, its program included."""
    from planner.launchers.bundle import trainers

    return bool(trainers(plan)[0])


def _shortlist(
    site: Site | None,
    model: str | Model,
    cluster: Named | Sequence[Named],
    options: PlanOptions,
    count: int,
    progress: Progress | None,
) -> PlanSet:
    """So many plans to run."""
    from planner.api import learning

    if options.runtime is None:
        options = replace(options, runtime=learning.runtime_of(options.to))
    return learning.shortlist(site, *request(model, cluster, options), count, options.to, progress)


def _with_site(plans: PlanSet, options: PlanOptions) -> PlanSet:
    """Plans with what the site's own runs say of them, if a site is named."""
    site = folder.named(path(options.site))
    if site is None:
        return plans
    from planner.api import learning

    return replace(plans, site=learning.of_runs(site))


def estimate(
    model: str | Model,
    cluster: Named | Sequence[Named],
    settings: Sequence[str],
    options: PlanOptions,
    measured: MeasuredTime | None = None,
) -> PlanSet:
    """One configuration as given, on one pool or as groups of pipelines over several; a measured step beside it.

    Raises:
        WrongQuestion: a setting that cannot be, a configuration that is not legal, or a measured step that is none.
        NoAnswer: it does not fit into expanded memory, or makes no progress between interruptions.
    """
    asked = kept_question(cluster, options, settings)
    cluster, options = as_one_pool(cluster, options)
    words = " ".join(settings).split()
    groups = [word for word in words if word.startswith(f"{KEY}=")]
    if not groups:
        from planner.api import learning

        known, wanted = pinned_request(model, cluster, words, options)
        found = learning.estimate(known, wanted, path(options.site))
    else:
        from planner.mixed import given

        known, wanted, offered = grouped_request(model, cluster, [w for w in words if w not in groups], options)
        names = [pool.name for pool in offered.all]
        found = given.estimate(known, wanted, offered, [parsed_group(each, names) for each in groups])
        found = _with_site(found, options)
    if measured is not None:
        from planner.api.measured import compared

        found = compared(found, measured, known, wanted)
    return replace(found, asked=asked)


def evaluate_many(
    model: str | Model, cluster: Named | Sequence[Named], settings: Sequence[Sequence[str]], options: PlanOptions
) -> list[EvaluatedConfiguration]:
    """The figures of many configurations on one pool, in their order.

    Raises:
        WrongQuestion: what they share cannot be, or is more than one pool.
        NoAnswer: so many accelerators fail more often than the job restarts.
    """
    from planner.planning import many

    cluster, options = as_one_pool(cluster, options)
    if several(cluster, options):
        raise WrongQuestion("evaluate_many is of one pool; over several, estimate takes the groups of one plan")
    known, wanted = request(model, cluster, options)
    return many.evaluate(known, wanted, [" ".join(words).split() for words in settings])


def _with_contingency(
    model: str | Model, cluster: Named | Sequence[Named], options: PlanOptions, progress: Progress | None
) -> PlanSet:
    """The best plans, and what the recommended one continues with when nodes are lost, verified."""
    most, plain = options.contingency, replace(options, contingency=None)
    if several(cluster, plain) or plain.noise_scale is not None or plain.shortlist is not None:
        raise WrongQuestion("--contingency: of the best plan on one pool, without --noise-scale and --shortlist")
    known, wanted = request(model, cluster, plain)
    found = plan(model, cluster, plain, progress)
    assert most is not None
    whole = replace(found, contingency=contingencies(known, wanted, found.plan_to_run, most))
    try:
        check_contingency(whole)
    except Inconsistent as error:
        raise AssertionError(f"a plan for lost nodes does not hold: {error}") from error
    return whole


def _by_goodput(
    model: str | Model, cluster: Named | Sequence[Named], options: PlanOptions, progress: Progress | None
) -> PlanSet:
    """The best plans of several batches, each with the tokens that it needs for the progress of the smallest.

    A sample at batch B is worth ``(phi + B_0) / (phi + B)`` of one at the smallest, B_0, phi the noise scale.
    """
    from planner.mixed import global_batch

    noise = global_batch.scale("" if options.noise_scale is None else options.noise_scale)
    plain = replace(options, noise_scale=None)
    ask = pooled_request if several(cluster, plain) else request
    wanted = ask(model, cluster, plain)[1]

    def of(batch: int, tokens: float) -> PlanSet:
        top = max(plain.top, order.CHOSEN_AMONG)
        return plan(model, cluster, replace(plain, batch=batch, tokens=f"{tokens:.0f}", top=top), progress)

    return global_batch.by_goodput(of, wanted, noise)


OF_IMAGES = ("fabric", "region", "batch", "precision", "oom_risk", "accelerators", "link", "catalog", "site", "top")
"""What a question about images may say; all else is about transformers, or about money and time to train."""


def counts_images(model: str) -> bool:
    """Whether a model is a convolutional network, and no transformer of one's own is called the same."""
    return model in families.networks() and model not in workload.library()


def images(
    network: str, cluster: Named | Sequence[Named], options: PlanOptions, *, known: Catalog | None = None
) -> ImagePlan:
    """The shortest data-parallel step of a convolutional network over one or several pools; the catalog of the options
    is read unless it is `known`.

    Raises:
        WrongQuestion: a name or a value that cannot be, or something that images know nothing of.
        NoAnswer: the batch does not fit into memory.
    """
    from planner.rebalancing import image_split
    from planner.rebalancing import image_split as parts

    for name, value in vars(PlanOptions()).items():
        if name not in OF_IMAGES and getattr(options, name) != value:
            raise WrongQuestion(
                f"--{name.replace('_', '-')}: {network} is trained data-parallel, by images; "
                "that takes --batch, --precision, --oom-risk, --accelerators, --link, --fabric and --catalog"
            )
    known, named = known or catalog_of(options), listed(cluster)
    if not named and options.accelerators is None:
        raise WrongQuestion("on what? --cluster dgx-a100-40gb:4, or --accelerators A100:4,V100:8")
    bases = pool_bases(known, named, options)
    model = families.network(network)
    batch = _batch_of_images(options.batch, model.batch)
    precision = joined(options.precision)
    if precision is not None and precision not in parts.PRECISIONS:
        raise WrongQuestion(f"--precision {precision}: {network} in one of {', '.join(parts.PRECISIONS)}")
    left = [(f"batch of {batch:,} images", "the model's default", "--batch")] if options.batch is None else []
    left += [("fp16", "what all such accelerators have", "--precision")] if precision is None else []
    found = image_split.plan(
        image_split.ImageTraining(known, network, precision or parts.PRECISIONS[0], parse_risk(options.oom_risk)),
        pools.pools(bases, [(None, "")] * len(bases), texts(options.link)),
        batch,
        inputs=input_hashes(known, model, named),
        assumptions=(*left, *stand_ins(known, options, bases)),
    )
    return replace(found, question=_of_images(named, options, batch))


def _of_images(named: Sequence[Named], options: PlanOptions, batch: int) -> ImageQuestion:
    """The question about images as its document states it: clusters of one's own by their names."""
    return ImageQuestion(
        clusters=tuple(cluster_name(each, options) for each in named),
        accelerators=counted(options.accelerators),
        links=texts(options.link),
        fabric=options.fabric,
        region=options.region,
        batch=None if options.batch is None else batch,
        precision=joined(options.precision),
        oom_risk=parse_risk(options.oom_risk),
    )


def _batch_of_images(text: object, usual: int) -> int:
    if text is None:
        return usual
    if not re.fullmatch(r"[1-9]\d{0,7}", str(text)):
        raise WrongQuestion(f"--batch {text}: one whole number of images, at least 1")
    return int(str(text))
