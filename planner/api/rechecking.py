"""A document made again from its own question, and every figure of it compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from planner import catalog as catalogs
from planner.api import answers, plans, repricing
from planner.api.differences import differences, leaves
from planner.api.plan_sources import consistent
from planner.api.post_training import measured_at
from planner.base.errors import NoAnswer, WrongQuestion, warn_of_change
from planner.base.version import __version__
from planner.catalog import Catalog
from planner.comm import run
from planner.planning import document
from planner.question.given import InZone, Kept, Named
from planner.question.plan_options import PlanOptions
from planner.rl.learned import SiteSteps
from planner.schema.hardware import Cluster
from planner.schema.images import ImagePlan
from planner.schema.model_reading import read
from planner.schema.plan import AskedPlans, Generator, Plan, PlanSet
from planner.schema.procurement import Alternative, OfferQuestion, Procurement
from planner.schema.rl import RLPlanSet
from planner.schema.study import StudyResult

SHOWN = 20
"""Differences that a message lists."""


@dataclass(frozen=True, slots=True)
class RecheckInputs:
    """What a document is made again with."""

    own: tuple[Cluster, ...] = ()
    """Clusters of the user's own that its plans were made from."""
    tables: tuple[str, ...] = ()
    """Measured times by which rules for its calls were chosen, as ``comm choose --table`` takes them."""
    catalog: Path | None = None
    """Folder of the user's own hardware."""
    site: Path | None = None
    """Folder of the site that its plans are of."""


def check(found: Kept, where: str, inputs: RecheckInputs = RecheckInputs()) -> int:
    """Checks a document, makes it again and lets it pass if that is the same; how many figures were compared.

    Args:
        found: The document.
        where: What messages call the document.
        inputs: What it is made again with.

    Raises:
        WrongQuestion: it is not of plans, or one names what the catalog does not have.
        Inconsistent: its figures contradict each other.
        NoAnswer: a figure differs, or cannot be made again; the message lists them.
    """
    consistent(found)
    before, now = document.dump(found), document.dump(again(found, where, inputs))
    compared = sum(1 for _ in leaves(before))
    if changed := [*differences(before, now)]:
        more = [f"... and {len(changed) - SHOWN:,} more"] if len(changed) > SHOWN else []
        raise NoAnswer("\n".join([
            f"{where}: {len(changed):,} of {compared:,} figures are not what this catalog and program make of them",
            *map(str, changed[:SHOWN]), *more, *_not_at_hand(before, inputs),
        ]))  # fmt: skip
    if not_made := _not_made_again(found):
        raise NoAnswer(
            f"{where}: it keeps no question, so these cannot be made again and prove nothing: {not_made}; all else "
            "is what this catalog and program make of it (ask again: documents of today keep their question)"
        )
    return compared


def _not_made_again(found: Kept) -> str:
    """What of a document without its question follows from no figure in it; nothing where the question is there."""
    if isinstance(found, PlanSet) and found.question is None and found.asked is None:
        return "search, recommended, reasons, front, contingency and which plans are ranked"
    if isinstance(found, PlanSet) and found.contingency is not None and found.asked is None:
        return "contingency"
    if isinstance(found, Procurement) and found.asked is None:
        return "optimality, sensitivity, marginal values and which alternatives are ranked"
    return ""


def warn_of_figures(found: Kept, where: str) -> None:
    """Says which figures of a document's plans this program would not write, where it made them from today's catalog.

    Each plan is priced by itself, in tens of milliseconds; what only a search knows is for :func:`check`.
    """
    catalog = catalogs.load()
    now = catalog.inputs()
    first = found.plans[0] if isinstance(found, PlanSet) and found.plans else found
    if isinstance(first, PlanSet | StudyResult | RLPlanSet) or first.generator.version != __version__:
        return
    inputs = first.generator.inputs
    if any(
        now.get(name) != of for name, of in inputs.items() if not name.startswith(("model ", "portfolio ", "lengths "))
    ):
        return
    try:
        made = _priced(found, catalog, where)
    except (WrongQuestion, NoAnswer) as error:
        warn_of_change(f"{where}: its plans cannot be priced again: {error}")
        return
    if changed := [*differences(document.dump(found), document.dump(made))]:
        more = f", and {len(changed) - 1:,} more" if len(changed) > 1 else ""
        warn_of_change(f"{where}: not what this program makes of it: {changed[0]}{more}; --recheck lists them")


def _priced(found: Kept, catalog: Catalog, where: str) -> Kept:
    """The document with its plans, and what follows from them, made again one by one; nothing is searched."""
    if isinstance(found, PlanSet):
        alone = repricing.plan_set(replace(found, question=None), catalog, where)
        return replace(alone, question=found.question)
    if isinstance(found, Procurement):
        offered = again(replace(found, asked=None), where)
        assert isinstance(offered, Procurement)
        return replace(offered, asked=found.asked)
    return again(found, where)


GIVEN_BY = {"site": "--site DIR", "--catalog": "--catalog DIR"}
"""How a catalog that stands over the built-in one is named; the others are of the environment."""


def _not_at_hand(written: Mapping[str, object], inputs: RecheckInputs) -> Iterator[str]:
    """What to give where the document was made with a catalog that stands over today's, or a cluster of one's own."""
    origins = [path.rpartition(".inputs.")[2] for path, _ in leaves(written) if ".inputs." in f".{path}"]
    clusters = sorted({each.removeprefix("cluster ") for each in origins if each.startswith("cluster ")})
    if len(clusters) > len(inputs.own):
        named = f"it was made with your own cluster ({', '.join(clusters)}), which is not given here"
        yield f"{named}: --cluster FILE.toml (from Python, the record will do)"
    names = {each.removeprefix("catalog ") for each in origins if each.startswith("catalog ")}
    for origin in sorted(names - catalogs.load(inputs.catalog, inputs.site).versions().keys()):
        yield f"it was made with your own catalog ({origin}), which is not given here: {GIVEN_BY.get(origin, origin)}"


def again(found: Kept, where: str, inputs: RecheckInputs = RecheckInputs()) -> Kept:
    """The document with its plans as this catalog and this program make them; arguments as of :func:`check`.

    Raises:
        WrongQuestion: it is not of plans, or one names what the catalog does not have.
        NoAnswer: nothing fits today, or it keeps no question without which nothing of it can be made again.
    """
    catalog, own, tables = catalogs.load(inputs.catalog, inputs.site), inputs.own, inputs.tables
    if isinstance(found, Plan):
        return run.again(repricing.plan(found, catalog, where, own), catalog, tables, where, own)
    if tables:
        raise WrongQuestion(f"--table {tables[0]}: of a plan that comm choose wrote; {where} is a {found.kind}")
    if own and isinstance(found, Procurement | StudyResult):
        raise WrongQuestion(
            f"--cluster {own[0].name or own[0].node.id}: {where} is a {found.kind}, asked about no cluster"
        )
    if isinstance(found, PlanSet) and found.asked is not None:
        return _asked_again(found, found.asked, where, inputs)
    if isinstance(found, PlanSet):
        return repricing.plan_set(found, catalog, where, own)
    if isinstance(found, Procurement) and found.asked is not None:
        return _solved(found, found.asked, catalog, where, _learned(found.generator, inputs))
    if isinstance(found, Procurement):
        inputs_now = {**found.generator.inputs, **catalog.inputs()}
        return replace(
            found,
            generator=Generator(version=__version__, seed=0, inputs=inputs_now),
            alternatives=tuple(_offered(each, catalog, where, own) for each in found.alternatives),
        )
    if isinstance(found, ImagePlan):
        return _images(found, catalog, where, own)
    if isinstance(found, RLPlanSet):
        raise NoAnswer(f"{where}: a plan of post-training is not made again from its document; ask again instead")
    from planner.study.merge import again as evaluated

    return evaluated(catalog, found, where, _learned(found.generator, inputs))


def _learned(generator: Generator, inputs: RecheckInputs) -> SiteSteps | None:
    """The steps of post-training of the site at hand, where a document counts those of one."""
    return measured_at(inputs.site) if any(name.startswith("site ") for name in generator.inputs) else None


def _asked_again(found: PlanSet, asked: AskedPlans, where: str, inputs: RecheckInputs) -> PlanSet:
    """The set of plans that a whole question has today."""
    if not found.plans:
        raise NoAnswer(f"{where}: no plan in it, so nothing says which model is asked about")
    if found.site is not None and inputs.site is None:
        raise NoAnswer(f"{where}: a site's runs are in it, which are not at hand: --site DIR")
    first = found.plans[0]
    at_hand = {each.name or each.node.id for each in inputs.own}
    if any(_is_own(name) and not at_hand & {name, _apart(name)[0]} for name in asked.clusters):
        raise NoAnswer("\n".join([f"{where}: not made again", *_not_at_hand(document.dump(found), inputs)]))
    clusters = _clusters(asked.clusters, where, inputs.own)
    folders = {"catalog": inputs.catalog, "site": inputs.site, "lengths": first.workload.texts or None}
    options, given = {**asked.options, **folders}, () if asked.settings is None else (asked.settings,)
    if counted := not {"tokens", "noise_scale"} & options.keys() and all(
        a.flag != "--tokens" for a in first.assumptions
    ):
        options["tokens"] = first.workload.tokens  # of so many texts
    ask = plans.plan if asked.settings is None else plans.estimate
    if found.measured is not None and asked.settings is not None:
        options["measured"] = found.measured.phases[0].measured_s
    try:
        made = ask(read(first.workload.shape), clusters, *given, **options)
    except TypeError as error:
        raise WrongQuestion(f"{where}: asked.options: {error}") from None
    lost = made.contingency and tuple(
        replace(each, plan=repricing.with_files(each.plan, first)) for each in made.contingency
    )
    made_plans = tuple(repricing.with_files(each, first) for each in made.plans)
    if counted and made.asked is not None:
        made = replace(made, asked=asked)
    if made.measured is not None and found.measured is not None:
        made = replace(made, measured=replace(made.measured, source=found.measured.source))
    return replace(made, meta=found.meta, plans=made_plans, contingency=lost)


def _clusters(names: Sequence[str], where: str, own: Sequence[Cluster]) -> list[Named]:
    """The clusters of a question: those of the user's own files by their names, the others of the catalog."""
    files = {each.name or each.node.id: each for each in own}
    if strange := files.keys() - {name if name in files else _apart(name)[0] for name in names}:
        raise WrongQuestion(f"{where}: it was not asked about the cluster {min(strange)!r} of --cluster")
    named: list[Named] = []
    for name in names:
        plain, zone = (name, "") if name in files else _apart(name)
        if plain in files:
            named.append(InZone(files[plain], zone) if zone else files[plain])
            continue
        if "/" in name or ".toml" in name:
            raise WrongQuestion(f"{where}: a document names clusters, not files: {name!r}")
        named.append(name)
    return named


def _apart(name: str) -> tuple[str, str]:
    """A cluster as a document names it, and the zone behind its last @."""
    plain, at, zone = name.rpartition("@")
    return (plain, zone) if at else (name, "")


def _is_own(name: str) -> bool:
    """Whether a question's cluster is a record of the user's own, whose name has no count: a catalog's has."""
    return ":" not in name


def _offered(each: Alternative, catalog: Catalog, where: str, own: Sequence[Cluster]) -> Alternative:
    """An alternative with its plans made again; its bill and its calendar are what :mod:`planner.verify` derives."""
    jobs = [
        replace(job, plan=repricing.plan(replace(job.plan, rank=1), catalog, f"{where}: {job.name}", own))
        if job.plan
        else job
        for job in each.workloads
    ]
    return replace(each, workloads=tuple(jobs))


def _solved(
    found: Procurement, asked: OfferQuestion, catalog: Catalog, where: str, learned: SiteSteps | None
) -> Procurement:
    """The offer that the question has today; hashes of files that are not at hand are the document's."""
    from planner.procurement import run as offering
    from planner.procurement.question import flags
    from planner.procurement.question.reading import with_learned

    depth = offering.Depth(top=asked.top, marginal=asked.marginal, sensitivity=asked.sensitivity)
    made = offering.procure(catalog, with_learned(flags.again(catalog, asked, where), learned), depth=depth)
    return replace(made, generator=made.generator.with_files(found.generator, "portfolio", "model"), meta=found.meta)


def _images(found: ImagePlan, catalog: Catalog, where: str, own: Sequence[Cluster]) -> ImagePlan:
    """The shares of images that the question has today."""
    asked = found.question
    if asked is None:
        raise NoAnswer(f"{where}: it was written before shares of images stated their question: ask again instead")
    options = PlanOptions(
        fabric=asked.fabric, region=asked.region, batch=asked.batch, precision=asked.precision,
        oom_risk=asked.oom_risk, accelerators=asked.accelerators, link=asked.links,
    )  # fmt: skip
    made = answers.images(found.model, _clusters(asked.clusters, where, own), options, known=catalog)
    return replace(made, generator=made.generator.with_files(found.generator, "cluster"))
