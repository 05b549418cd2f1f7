"""Plans out of documents, each checked before it is used: what commands and Python functions share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from planner import catalog as catalogs
from planner import launchers, verify
from planner.base.errors import WrongQuestion, warn_of_change
from planner.base.units import format_bytes, format_seconds, format_usd
from planner.launchers import Bundle, astra_sim, benchmark, slurm
from planner.planning import by_layer, document
from planner.question.given import Kept, Planned, Source
from planner.schema.hardware import Cluster
from planner.schema.images import ImagePlan
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.rl import RLPlanSet
from planner.schema.study import StudyResult
from planner.site.profile import SiteProfile
from planner.verify import images, one_question, post_training, procurement, study
from planner.verify.contingency import check as check_contingency

Found = TypeVar("Found", bound=Kept)
SIMULATOR = "astra-sim"
"""A target that no other chains with."""


def opened(source: str | Path | Found, load: Callable[[Path], Found]) -> tuple[Found, str]:
    """The document, and what messages call it; `load` reads those kinds that are welcome.

    Raises:
        WrongQuestion: it cannot be read.
    """
    if not isinstance(source, str | Path):
        return source, source.kind
    found = load(Path(source).expanduser())
    warn_of_changes(found, str(source))
    return found, str(source)


def read(path: Path, rank: int | None = None) -> Plan:
    """The plan of that rank in a file; of none named the recommended one.

    Raises:
        WrongQuestion: it cannot be read, is an offer, or has no such rank.
    """
    found = document.load(path)
    warn_of_changes(found, str(path))
    return document.chosen(found, rank, str(path))


def warn_of_changes(found: Kept, where: str) -> None:
    """Says which catalogs are not those that a document was made with."""
    first = found.plans[0] if isinstance(found, PlanSet) and found.plans else found
    made = {} if isinstance(first, PlanSet) else first.generator.inputs
    now = catalogs.load().inputs()
    for name in [name for name, version in made.items() if name in now and now[name] != version]:
        change = f"{where}: the {name.removeprefix('catalog ')} catalog has changed since it was written"
        warn_of_change(f"{change}; the same question again gives today's figures")


def narrowed(found: Planned, where: str, *, rank: int | None, workload: str | None, alternative: int | None) -> Planned:
    """The document, or the plan of an offer's workload where one is named; an offer is checked.

    Raises:
        WrongQuestion: an option that the document has no use for, no such alternative or workload.
        Inconsistent: the offer does not hold.
    """
    if not isinstance(found, Procurement):
        for name, value in (("--workload", workload), ("--alternative", alternative)):
            if value is not None:
                raise WrongQuestion(
                    f"{where}: {name} is of an offer (clusterwright procure ... -o offer.json); this is a {found.kind}"
                )
        return found
    if rank is not None:
        raise WrongQuestion(f"{where}: --rank is of a set of plans; this is an offer (--alternative N)")
    count = len(found.alternatives)
    if alternative is not None and not 1 <= alternative <= count:
        most = "" if count == 1 else f" to {count}"
        raise WrongQuestion(f"{where}: no alternative {alternative}; it holds {count}: --alternative 1{most}")
    procurement.check(found)
    return found if workload is None else document.offered(found, workload, alternative or 1, where)


def sound(plan: Plan) -> Plan:
    """The plan, checked; an estimate may not fit into memory, all else must hold.

    Raises:
        Inconsistent: it does not.
    """
    verify.check(plan, may_exceed_limits=too_large(plan))
    return plan


def consistent(found: Kept) -> None:
    """Lets a document pass whose figures agree with each other.

    Raises:
        Inconsistent: they do not.
    """
    if isinstance(found, PlanSet | Procurement | StudyResult):
        one_question.check(found)
    if isinstance(found, Procurement):
        procurement.check(found)
    elif isinstance(found, ImagePlan):
        images.check_images(found)
    elif isinstance(found, RLPlanSet):
        post_training.check_post_training(found)
    elif isinstance(found, StudyResult):
        study.check(found)
        for plan in (plan for point in (*found.best, *found.pareto) for plan in point.plan):
            sound(plan)
    elif isinstance(found, PlanSet):
        for plan in found.plans:
            sound(plan)
        check_contingency(found)
    else:
        sound(found)


def too_large(plan: Plan) -> bool:
    """Whether it does not fit into memory: an imported configuration may not."""
    return any(limit.name == "memory" and limit.value > limit.limit for limit in plan.constraints)


class Launched(NamedTuple):
    """What is to be written for a launcher."""

    plans: Sequence[Plan]
    alone: bool
    """Whether it is one plan, which goes into the folder itself."""
    run: str | None
    """Of several, the folder of the recommended one, if any."""
    mixed: bool
    """Whether the set has plans on several kinds of accelerators."""


def launched(
    source: Source, *, rank: int | None, workload: str | None, alternative: int | None, lost: int | None = None
) -> Launched:
    """The plans to write, each checked. With `lost` nodes it is what the recommended plan continues with.

    Raises:
        WrongQuestion: there is no such plan, or it is an estimate that does not fit: it would only stop on the cluster.
    """
    if rank is not None and rank < 1:
        raise WrongQuestion(f"--rank {rank}: plans are counted from 1")
    found_there: tuple[Planned, str] = opened(source, document.load_any)
    given, where = found_there
    found = narrowed(given, where, rank=rank, workload=workload, alternative=alternative)
    if lost is not None:
        found = _without(found, lost, where)
    if isinstance(found, Procurement):
        found = document.offered(found, None, alternative or 1, where)
    alone = isinstance(found, Plan) or rank is not None or len(found.plans) == 1
    plans = found.plans if isinstance(found, PlanSet) and not alone else (document.chosen(found, rank or 1, where),)
    for plan in plans:
        verify.check(plan, may_exceed_limits=True)
        _fits(plan)
        verify.check(plan)
    run = found.recommended if isinstance(found, PlanSet) and not alone else None
    listed = found.plans if isinstance(found, PlanSet) else plans
    kinds = {pool.accelerator for plan in listed for pool in plan.cluster.pools}
    return Launched(plans, alone, None if run is None else folder_of(run), len(kinds) > 1)


def folder_of(rank: int) -> str:
    """What the folder of one of several plans is called."""
    return f"rank-{rank}"


def _without(found: Planned, lost: int, where: str) -> Plan:
    """What the recommended plan of a set continues with when so many nodes are lost."""
    plans = (found.contingency or ()) if isinstance(found, PlanSet) else ()
    if not 1 <= lost <= len(plans):
        had = f"it has those for 1 to {len(plans)}" if plans else "it has none (clusterwright plan ... --contingency 4)"
        raise WrongQuestion(f"{where}: no plan for {lost} lost nodes; {had}")
    assert isinstance(found, PlanSet)
    check_contingency(found)
    return plans[lost - 1].plan


def _fits(plan: Plan) -> None:
    """An estimate may say more than its limits; started, it would only stop on the cluster."""
    formats = {"B": format_bytes, "s": format_seconds, "USD": format_usd}
    over = [
        f"{k.name} {formats[k.unit](k.value)}, the limit is {formats[k.unit](k.limit)}"
        for k in plan.constraints
        if k.value > k.limit and k.unit in formats
    ]
    if over:
        raise WrongQuestion(
            f"plan {plan.rank} does not fit: {'; '.join(over)}; it would only stop on the cluster (clusterwright plan "
            "finds one that fits)"
        )


class Wanted(NamedTuple):
    """What plans are written for."""

    target: str
    given: Mapping[str, str]
    """Settings that a plan does not have."""
    cluster: Cluster | None
    """The plans' own where it is not in the catalog: a simulator needs its figures."""
    measure: bool
    """Whether each is a few steps on mock data, and a script in the folder above runs them in turn."""
    site: SiteProfile | None
    """What all jobs of the site need."""
    preflight: bool = False
    """Whether each checks its machines before it starts."""
    mixed: bool = False
    """Whether the cluster has other accelerators than a plan on one pool of it."""


def bundles(plans: Sequence[Plan], alone: bool, wanted: Wanted) -> tuple[dict[str, Bundle], list[str]]:
    """Folder's name -> its files; and why the plans that a target cannot express are left out (unless all are).

    Raises:
        WrongQuestion: the target expresses none of the plans, or an option is not for it.
    """
    if wanted.cluster is not None and wanted.target != SIMULATOR:
        raise WrongQuestion("--cluster is for astra-sim: launchers find all they need in the plan.")
    if wanted.measure and wanted.target == SIMULATOR:
        raise WrongQuestion("--benchmark: astra-sim runs no training")
    if wanted.preflight and wanted.target == SIMULATOR:
        raise WrongQuestion("--preflight: astra-sim runs on no machines")
    exporters = () if wanted.target == SIMULATOR else launchers.parts(wanted.target)
    known = catalogs.load()
    made, refused = {}, []
    for plan in plans:
        try:
            made["" if alone else folder_of(plan.rank)] = (
                launchers.bundle(
                    plan,
                    exporters,
                    {
                        **(slurm.typed(plan) if wanted.mixed and slurm.EXPORTER in exporters else {}),
                        **launchers.of_its_pools(wanted.given, plan, plans),
                    },
                    benchmark.short if wanted.measure else None,
                    site=wanted.site,
                    before=wanted.preflight,
                )
                if exporters
                else astra_sim.bundle(plan, by_layer.of_plan(known, plan, wanted.cluster))
            )
        except WrongQuestion as error:
            refused.append(str(error))
    if not made:
        raise WrongQuestion("\n".join(refused[:1] if len(set(refused)) == 1 else refused))
    if wanted.measure and not alone:
        made = {"": benchmark.in_turn(list(made), exporters), **made}
    return made, refused


def folder_for(name: str, workload: str | None, target: str) -> Path:
    """Where files go unless it is said: ``plan-megatron+slurm``."""
    whose = f"-{re.sub(r'[^A-Za-z0-9._]+', '-', workload)}" if workload else ""
    return Path(f"{name.removesuffix('.json')}{whose}-{target}")
