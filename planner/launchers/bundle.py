"""A plan as a folder's files: what ``export`` writes, before it is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.axes import AXES
from planner.base.errors import WrongQuestion, meant
from planner.base.units import format_seconds
from planner.launchers import checks, hf_trainer, plan_facts, preflight, profiles, quoting, releases, torchrun, unchosen
from planner.launchers.registry import EXPORTERS
from planner.launchers.target import Allowed, EnvironmentSetting, Exporter, LaunchJob, Loss, Values, placeholder, spelt
from planner.planning import document
from planner.schema.plan import Plan
from planner.site.profile import SiteProfile


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files of one plan for one target, and what there is to say of them."""

    target: str
    files: Mapping[str, str]
    """Name -> text; names are this program's own and have no folders in them."""
    missing: tuple[EnvironmentSetting, ...]
    """Placeholders that stand in the files."""
    losses: tuple[Loss, ...]
    start: str


HEAD = ("name", "version", "level", "validated_by")
Changed = Callable[[Exporter, Plan, LaunchJob], LaunchJob]
"""Given a trainer, a plan and the trainer's job, another job of the same trainer."""


def bundle(
    plan: Plan,
    exporters: Sequence[Exporter],
    given: Mapping[str, str],
    changed: Changed | None = None,
    *,
    site: SiteProfile | None = None,
    before: bool = False,
) -> Bundle:
    """The files of a plan that has passed :mod:`planner.verify`.

    Args:
        plan: What is launched.
        exporters: The target.
        given: Settings; they lead over the site's.
        site: What every job of the site needs.
        changed: What makes another job of the trainer's: one that only measures.
        before: Whether the machines are checked before the job starts.

    Raises:
        WrongQuestion: a setting that no target has, or a plan that one of them cannot express.
    """
    written = document.as_json(plan)
    plan, site = plan_facts.complete(plan), site or SiteProfile()
    offered = _offered(exporters, plan)
    values = settings(offered, {**profiles.settings(site, plan, offered), **given})
    _refuse(plan, exporters)
    target = "+".join(exporter.name for exporter in exporters)
    lost = tuple(loss for exporter in exporters for loss in losses(plan, exporter))
    if plan.workload.texts and any(exporter.role == "trainer" and not exporter.packs for exporter in exporters):
        lost = (*lost, plan_facts.UNPACKED)
    if any(exporter.name == "nccl-tuner" for exporter in exporters):
        lost = tuple(loss for loss in lost if loss != plan_facts.UNTUNED)
    header = _header(plan, target)
    job = LaunchJob(files={torchrun.PLAN: written}, site=site, benchmark=bool(changed), environment=site.environment)
    for exporter in exporters:
        if exporter.role == "scheduler":
            job = replace(job, files={**job.files, torchrun.NAME: torchrun.script(plan, job, header)})
        job = exporter.emit(plan, job, values)
        if changed is not None and exporter.role == "trainer":
            job = changed(exporter, plan, job)
        if exporter.role == "trainer":
            job = releases.with_check(exporter, _with_extra(job, values), values)
            job = preflight.added(plan, job, values) if before else job
    if torchrun.NAME not in job.files:
        job = replace(job, files={**job.files, torchrun.NAME: torchrun.script(plan, job, header)})
    lost = tuple(loss for loss in (*lost, *job.losses) if not (changed and loss.field == "money.days"))
    missing = tuple(s for s in offered.values() if stands(placeholder(s.name), values, job))
    files = {name: announced(name, text, missing) for name, text in job.files.items()}
    made = Bundle(target, files, missing, lost, torchrun.started(plan, job))
    where = {"rank": plan.rank, "model": plan.workload.model, "cluster": plan.cluster.name}
    title = f"{plan.workload.name} on {plan.cluster.name} with {target}: {header.rpartition(', ')[2]}."
    heads = [{key: getattr(exporter, key) for key in HEAD} for exporter in exporters]
    account = described(where, heads, job, made, values)
    trainer = next((e for e in exporters if e.role == "trainer" and not changed), None)
    rates = unchosen.rates(trainer, offered, values, files) if trainer else ""
    rates += unchosen.checkpoints(trainer, plan, job) if trainer else ""
    weights = "" if changed else "".join(e.weights for e in exporters)
    text = readme(title, made, weights, job.newer + rates) + releases.by_hand(made.start, job)
    return replace(made, files={"README": text, "target.json": account, **files})


def _with_extra(job: LaunchJob, values: Mapping[str, str]) -> LaunchJob:
    """The trainer's command with what is given besides, and what of it contradicts the plan."""
    extra = profiles.words(values[profiles.EXTRA.name])
    options = (f"--{name}={str(v).lower() if isinstance(v, bool) else v}" for name, v in job.options.items())
    lost = profiles.contradictions([*job.argv, *options], extra)
    changed = any(not checks.UNCHECKED_OPTION.match(loss.why) for loss in lost)
    job = replace(job, environment={**(checks.WARN if changed else {}), **job.environment}, losses=(*job.losses, *lost))
    return replace(job, command=(*job.command, *extra), argv=(*job.argv, *extra))


def settings(offered: Mapping[str, EnvironmentSetting], given: Mapping[str, str]) -> dict[str, str]:
    """Every setting of the targets: as given, by default, or as its placeholder.

    Raises:
        WrongQuestion: a name that none of them has.
    """
    for name, value in given.items():
        if name not in offered:
            hint = meant(name, offered, f"settings are {', '.join(offered)}")
            raise WrongQuestion(f"--set {quoting.line(name)}: no such setting of this target; {hint}")
        if "\0" in value:
            raise WrongQuestion(f"--set {name}: a NUL byte cannot be part of a command or a file")
        if not value and offered[name].default is None:
            raise WrongQuestion(f"--set {name}=: is empty; leave it out to fill it in later")
        profiles.check(name, value)
    for name, value in given.items():
        if name == profiles.EXTRA.name:
            profiles.words(value)
    defaults = {n: placeholder(n) if s.default is None else s.default for n, s in offered.items()}
    return {**defaults, **given}


def _offered(exporters: Sequence[Exporter], plan: Plan) -> dict[str, EnvironmentSetting]:
    return {s.name: s for exporter in exporters for s in (*exporter.settings, *exporter.of_pools(plan))}


def of_its_pools(given: Mapping[str, str], plan: Plan, others: Iterable[Plan]) -> dict[str, str]:
    """What is given for one plan of a set: without the settings of pools that only others use."""
    own = plan_facts.pool_names(plan)
    foreign = {name for other in others for name in plan_facts.pool_names(other)}.difference(own)
    return {name: value for name, value in given.items() if not name.startswith(tuple(f"pool.{f}." for f in foreign))}


# ---- what cannot be expressed ----------------------------------------------------------------------------------------


def trainers(plan: Plan) -> tuple[tuple[str, ...], str]:
    """The trainers that start a plan as it is, by name; and why others do not: the reason that all of them give, or
    those of the trainers that have fewest.

    ``torchrun`` starts a script of one's own, which has to do all that a plan says: it does not count.
    """
    plan = plan_facts.complete(plan)
    refused = {e.name: list(dict.fromkeys(refusals(plan, e))) for e in _trainers()}
    shared = [why for why in next(iter(refused.values())) if all(why in found for found in refused.values())]
    fewest = min(len(found) for found in refused.values())
    by_reason: dict[str, list[str]] = {}
    for name, found in refused.items():
        if len(found) == fewest and found:
            by_reason.setdefault("; ".join(found), []).append(name)
    each = [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]
    return tuple(n for n, found in refused.items() if not found), shared[0] if shared else "; ".join(each)


def starts_alike(plan: Plan) -> bool:
    """Whether a trainer would start the plan, were its pipelines of one kind (their layers dealt unevenly)."""
    plan = plan_facts.complete(plan)
    unlike = set(plan_facts.stages_fill_pools(plan))
    able = [e for e in _trainers() if _allows(e.expresses.get("stages", "any"), "uneven")]
    return bool(unlike) and any(unlike.issuperset(refusals(plan, e)) for e in able)


def _trainers() -> list[Exporter]:
    return [e for e in EXPORTERS.values() if e.role == "trainer" and e.name != torchrun.EXPORTER.name]


def refusals(plan: Plan, exporter: Exporter) -> Iterator[str]:
    """Why a plan cannot be started with a target."""
    found = plan_facts.values(plan)
    if any((plan.placement or {}).values()):
        yield "states or activations in expanded memory: no launcher places them there yet (--pin placement=none)"
        found["placement"] = "none"
    if plan.workload.shape.get("tower") and "family" in exporter.expresses:
        yield "a tower: no target's module has one (models import without --images or --audio plans the text part)"
    for axis, allowed in exporter.expresses.items():
        if axis not in exporter.lossy and not _allows(allowed, found[axis]):
            yield f"{axis} {found[axis]} (it has {says(allowed)})"
            if axis == "family":
                return  # the rest would only repeat that the model is of another kind
    yield from exporter.refuses(plan)


def losses(plan: Plan, exporter: Exporter) -> Iterator[Loss]:
    """What of a plan a target does not take over, and says."""
    values = plan_facts.values(plan)
    for axis, words in exporter.lossy.items():
        decides = values[axis] or axis not in AXES or AXES[axis].matters(plan.axes)
        if decides and not _allows(exporter.expresses[axis], values[axis]):
            yield Loss(axis, f"{spelt(values[axis])} {words}")
    yield from exporter.loses(plan)


def _allows(allowed: Allowed, value: object) -> bool:
    return allowed == "any" or value in allowed


def says(allowed: Allowed) -> str:
    """What an exporter expresses on an axis, in words."""
    return allowed if isinstance(allowed, str) else ", ".join(spelt(value) for value in allowed)


def _refuse(plan: Plan, exporters: Sequence[Exporter]) -> None:
    if plan.waived:
        reason = f"it breaks {', '.join(plan.waived)}, which its question waived, and no launcher splits so"
        raise WrongQuestion(f"plan {plan.rank} cannot be written for {'+'.join(e.name for e in exporters)}: {reason}")
    for exporter in exporters:
        if why := list(refusals(plan, exporter)):
            able = [e.name for e in EXPORTERS.values() if e.role == exporter.role and not any(refusals(plan, e))]
            instead = f"; these can: {', '.join(able)}" if able else ""
            if exporter.runtime not in (None, plan.runtime.name) and "runs on accelerators" not in str(why):
                instead += f", or plan for it (--runtime {exporter.runtime})"
            if able == [torchrun.EXPORTER.name] and hf_trainer.EXPORTER.name in trainers(sharded_alone(plan))[0]:
                instead += " with a script of your own, hf-trainer with a plan for it (--runtime hf-trainer)"
            raise WrongQuestion(f"plan {plan.rank} cannot be written for {exporter.name}: {'; '.join(why)}{instead}")


def sharded_alone(plan: Plan) -> Plan:
    """The plan's model under FSDP over all ranks and nothing else: what is refused of it is refused of the model."""
    cut = plan.parallelism
    ranks = plan.cluster.accelerators
    whole = replace(cut.stages[0], layers=sum(stage.layers for stage in cut.stages), tp=1, dp=ranks)
    degrees: dict[str, Any] = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp"), 1)
    degrees |= {"dp": ranks, "dp_shard": ranks, "zero_stage": 3, "schedule": "none", "stages": (whole,)}
    return replace(plan, parallelism=replace(cut, **degrees, sequence_parallel=False))


# ---- what is said about it -------------------------------------------------------------------------------------------


def _header(plan: Plan, target: str) -> str:
    p = plan.parallelism
    return (
        f"{plan.workload.name} on {plan.cluster.name}: {target}, plan {plan.rank}\n"
        f"TP {p.tp}, PP {p.pp}, VPP {p.vpp}, CP {p.cp}, EP {p.ep}, DP {p.dp}, ZeRO-{p.zero_stage}, {plan.precision}, "
        f"{format_seconds(plan.prediction.step_time_s)} a step {'measured' if plan.measured else 'predicted'}"
    )


def stands(mark: str, values: Mapping[str, str], job: LaunchJob) -> bool:
    """Whether a placeholder was left, and reached a file (some settings matter to some plans only)."""
    if mark not in values.values():
        return False
    return any(mark in text for name, text in job.files.items() if name != torchrun.PLAN)


def announced(name: str, text: str, missing: Sequence[EnvironmentSetting]) -> str:
    """The file with a list of its placeholders at its top, where its syntax has comments."""
    here = [s for s in missing if placeholder(s.name) in text]
    if not here or name.endswith((".json", ".csv")):
        return text
    note = quoting.comments("\n".join(["Fill in:", *(f"  {placeholder(s.name)}: {s.says}" for s in here)]))
    lines = text.splitlines(keepends=True)
    after = next(i for i, line in enumerate(lines) if not line.startswith(("#!", "# ")))
    return "".join([*lines[:after], note, *lines[after:]])


def readme(title: str, made: Bundle, weights: str = "", chosen: str = "") -> str:
    """Four lines, and one of the tool for `weights`; `chosen` follows what is to be filled in."""
    fill = ", ".join(f"{placeholder(s.name)} ({s.says})" for s in made.missing)
    lost = "; ".join(f"{loss.called} ({loss.why})" for loss in made.losses)
    left = f"{fill} (clusterwright export --set NAME=VALUE)" if fill else "nothing"
    lines = [title, f"Start: {made.start}", f"Fill in: {left}{chosen}", f"Not taken over: {lost or 'nothing'}"]
    lines += [f"Weights: {weights}"] if weights else []
    return "".join(quoting.line(line) + "\n" for line in lines)


def described(
    where: Mapping[str, Any], launchers: Sequence[Mapping[str, Any]], job: LaunchJob, made: Bundle, values: Values
) -> str:
    """What ``target.json`` says: the plan, what it was written for, the command, and what is open or lost."""
    target: dict[str, Any] = {
        "kind": "target",
        "target": made.target,
        "plan": dict(where),
        "launchers": [*launchers],
        "argv": list(job.argv),
        "command": list(job.command),
        "environment": dict(job.environment),
        "files": sorted([*made.files, "README", "target.json"]),
        "start": made.start,
        "placeholders": {setting.name: setting.says for setting in made.missing},
        "settings": {name: value for name, value in values.items() if value not in ("", placeholder(name))},
        "lossy": [{"field": loss.field, "why": loss.why} for loss in made.losses],
    }
    return json.dumps(target, indent=2, ensure_ascii=False) + "\n"
