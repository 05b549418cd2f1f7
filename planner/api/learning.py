"""A site's lessons: logs to its journal, and what the journal then says. Shared by the command line and Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from planner import launchers, planning, verify
from planner.api.fitting_instead import fitting_instead
from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.base.units import format_many, format_percent, format_seconds
from planner.calibration.runs.columns import number
from planner.catalog import Catalog, load
from planner.launchers import benchmark, plan_facts
from planner.launchers.bundle import refusals, trainers
from planner.launchers.target import Exporter
from planner.planning import document, order
from planner.planning import shortlist as shortlisting
from planner.planning.shortlist import ShortlistOptions
from planner.question.document_options import LearnQuestion
from planner.question.given import Progress, path, texts
from planner.question.request import Request
from planner.schema.plan import Plan, PlanSet, ShortlistSection, SiteSection
from planner.schema.record import dump
from planner.schema.reports import FittingPlan
from planner.site import cells, folder, journal, log_rows, previews, sharing
from planner.site.folder import Site
from planner.site.forecasts import DOUBTFUL, RunForecast
from planner.site.journal import LearntRow, SiteRuns
from planner.site.log_rows import Known, Measured
from planner.site.logs.records import LoggedRun
from planner.site.previews import Preview
from planner.site.sharing import Shared

MOST_LISTED = 30
"""Plans of a shortlist: more than anybody runs."""
MOST_PRICED = 4
"""Runs out of memory for which plans that fit are searched: half a second of a processor each."""
MATCHED = ("micro_batch", "zero_stage", "activation_recompute", "precision")
"""Columns by which a plan is found in the journal, and that logs need not state; what else is empty is neutral."""
PLAN_FILE = "plan.json"
"""What ``export`` leaves in a plan's folder: next to a log it says what ran."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What was learned at once."""

    site: Site
    rows: tuple[LearntRow, ...]
    plans: tuple[Plan, ...] = ()
    """The set that the runs are of, in its order; what is not run yet of it is next."""
    source: str = ""
    """The file that holds it."""
    what_fits: Mapping[str, tuple[Sequence[FittingPlan], str]] = field(default_factory=dict)
    """Id of a row that ran out of memory -> plans that fit in its place, and what would where none does."""
    benchmark_plans: Mapping[Path, Plan] = field(default_factory=dict)
    """Folders of the benchmark that the logs are of, in its order, and their plans."""
    fit: dict[str, Any] | None
    """The document of the fit to the whole journal; None where nothing of it can be predicted."""

    def named(self, row: LearntRow) -> str:
        """A row's id and configuration."""
        return f"{row.measured.row['id']}: {journal.described(row.measured.row)}"

    def judged(self, row: LearntRow) -> Iterator[str]:
        """What was measured next to what was predicted, and whether the two can be of one run."""
        time = float(row.measured.row.get("step_time_s") or 0.0)
        if not time:
            plans, elsewhere = self._instead(row)
            yield from map(str, plans)
            if elsewhere:
                yield f"nothing fits on its accelerators; {elsewhere}"
            return
        measured = f"{format_seconds(time)} a step measured"
        if row.predicted_s is None:
            yield f"{measured}, not predicted: {row.reason or 'this family has no plans'}"
            return
        off = row.predicted_s / time
        yield f"{measured}, {format_seconds(row.predicted_s)} predicted ({100 * (off - 1):+.0f} %)"
        yield from _with_predictions(row.measured.row, row.predicted, time)
        if not 1 / DOUBTFUL < off < DOUBTFUL:
            yield f"more than {DOUBTFUL:g} times off: learned as --accept says"

    def _instead(self, row: LearntRow) -> tuple[Sequence[FittingPlan], str]:
        """The plans that fit in place of a row, and what would where none does."""
        return self.what_fits.get(row.measured.row["id"], ((), ""))

    def unmatched(self, row: LearntRow) -> Iterator[str]:
        """What a row would have to say for a plan to be known as run."""
        if absent := cells.missing(row.measured.row, MATCHED):
            yield (
                f"does not say {', '.join(absent)}: no plan is matched with it (--plan FILE, or --set {absent[0]}=...)"
            )

    def surer(self) -> str:
        """How much surer the next plan of the kind is; empty where nothing was predicted."""
        row = next((row for row in self.rows if row.predicted and row.now), None)
        if row is None or row.predicted is None or row.now is None:
            return ""
        before, now = (math.expm1(forecast.half_width) for forecast in (row.predicted, row.now))
        if row.measured.row.get("metric") == "oom":
            return ""
        return f"the next plan of the kind: ±{format_percent(now)} (80 %), ±{format_percent(before)} before"

    def judgement(self) -> str:
        """What the journal says of predictions now."""
        return judgement(section(self.site, self.fit or journal.latest(self.site)))

    def next(self) -> list[str]:
        """What to do with it."""
        again = f"clusterwright plan ... --site {self.site.folder}     (plans ranked with it)"
        known = journal.of_site(self.site)
        if waiting := [
            at for at, plan in self.benchmark_plans.items() if known.measured(plan) is None and not known.ran_out(plan)
        ]:
            return [f"run {waiting[0]}: the first of its benchmark that has not been", again]
        open_ones = [plan.rank for plan in self.plans if known.measured(plan) is None and not known.ran_out(plan)]
        if not open_ones:
            return [again]
        run = f"run plan {open_ones[0]} of {self.source}: the first that has not been"
        return [f"{run} (clusterwright export {self.source} --rank {open_ones[0]} ...)", again]

    def document(self) -> dict[str, Any]:
        """All of it as JSON types."""
        return {
            "kind": "lesson",
            "schema_version": 1,
            "journal": str(self.site.runs),
            "rows": [
                {
                    "new": row.new,
                    "predicted_s": row.predicted_s,
                    "predicted_mfu": row.predicted and row.predicted.mfu,
                    "predicted_memory_bytes": row.predicted and row.predicted.memory_bytes,
                    "reason": row.reason,
                    "told": list(row.measured.notes),
                    "row": dict(row.measured.row),
                    "fits_instead": [dump(plan) for plan in self._instead(row)[0]],
                    "fits_elsewhere": self._instead(row)[1],
                }
                for row in self.rows
            ],
            "fit": self.fit,
        }


def _with_predictions(row: Mapping[str, str], predicted: RunForecast | None, time: float) -> Iterator[str]:
    """Rates and memory that were measured, each next to its prediction."""
    if predicted is None:
        return
    off = predicted.step_time_s / time
    tokens = _tokens(row) / time
    rate = f"{tokens:,.0f} tokens/s/GPU measured, {tokens / off:,.0f} predicted; " if tokens else ""
    yield f"{rate}{format_percent(predicted.mfu * off)} MFU measured, {format_percent(predicted.mfu)} predicted"
    held = number(row, "memory_gb_per_gpu")
    measured = f"peak of {held * 1e9 / 2**30:.1f} GiB measured, " if held else "no peak of memory logged, "
    yield f"{measured}{predicted.memory_bytes / 2**30:.1f} GiB predicted"


def section(there: Site, fit: dict[str, Any] | None, **about: Any) -> SiteSection:
    """What a site's runs say of its predictions, by the document of the fit to them; `about` the plans at hand."""
    return SiteSection(
        name=there.profile.name,
        runs=fit["rows"] if fit else 0,
        frameworks=fit["frameworks"] if fit else 0,
        error_before=fit["before"]["mape"] if fit and fit["rows"] else None,
        error_after=fit["left_out"]["mape"] if fit and fit["rows"] > 1 else None,
        changed=journal.changed(there, fit),
        memory_runs=(fit or {}).get("memory") or None,
        **{"out_of_memory": (), "next_rank": None, "fastest_run": None} | about,
    )


def of_runs(there: Site) -> SiteSection:
    """What a site's runs say of its predictions, whatever the plans."""
    return section(there, journal.latest(there))


def judgement(site: SiteSection) -> str:
    """``lab: 3 runs, 1 framework: error before 14.0 %, after 4.2 % (each configuration held out)``."""
    if site.changed:
        since = (
            f"since the fit to {format_many(site.runs, 'run')}, which predicts" if site.runs else "without a fit to it"
        )
        return f"{site.name}: runs.csv has changed {since}; clusterwright calibrate --site DIR fits again"
    if site.error_before is None:
        ran_out = site.memory_runs
        memory = f"; {format_many(ran_out, 'run')} out of memory: predictions of it are wider" if ran_out else ""
        return f"{site.name}: no run with a step time that can be predicted; the built-in efficiencies stay{memory}"
    after = "one run alone cannot be held out"
    if site.error_after is not None:
        after = f"after {format_percent(site.error_after)} (each configuration held out)"
        after += "; no better yet: rely on what was measured" if site.error_after > site.error_before else ""
    of = f"{format_many(site.runs, 'run')}, {format_many(site.frameworks, 'framework')}"
    return f"{site.name}: {of}: error before {format_percent(site.error_before)}, {after}"


def of_site(site: Path | None) -> Site:
    """The site that a flag or the environment names.

    Raises:
        WrongQuestion: neither does, or it is none.
    """
    found = folder.named(site)
    if found is None:
        raise WrongQuestion("which site? --site DIR, or CLUSTERWRIGHT_SITE; clusterwright init site DIR makes one")
    return found


def log_files(asked: LearnQuestion) -> list[Path]:
    """The logs that are named."""
    return [Path(log).expanduser() for log in ([asked.logs] if isinstance(asked.logs, str | Path) else asked.logs)]


def lesson(asked: LearnQuestion) -> Lesson:
    """Reads logs, or one stated measurement, into a site's journal. Nothing is written unless all of it can be read.

    Raises:
        WrongQuestion: nothing or too much to read, a log that says too little or contradicts its plan, no site.
    """
    there = of_site(path(asked.site))
    logs = log_files(asked)
    plan = path(asked.plan)
    if sum((bool(logs), asked.step_time is not None, asked.oom)) != 1:
        raise WrongQuestion("name one of: LOG..., --step-time TIME, --oom")
    known = load(site=there.folder)
    stated = log_rows.given(texts(asked.set), known)
    plans = _plans(plan, asked.rank)
    given = Known(plans=plans, stated=stated, catalog=known, failed=asked.failed)
    if logs:
        found = [
            row
            for log, runs in log_rows.read_all(logs)
            for row in _of_log(log, runs, _known_of(log, given), there.profile.name)
        ]
    else:
        if len(plans) > 1:
            raise WrongQuestion(f"{plan}: holds {len(plans)} plans; which one ran? --rank N")
        seconds = None if asked.step_time is None else log_rows.seconds(asked.step_time)
        found = [log_rows.of_value(seconds, plans[0] if plans else None, stated, there.profile.name)]
        _possible(found, plans)
    rows, fit = journal.learn(there, found, known, stated, accept=asked.accept)
    every = () if plan is None else _plans(plan, None)
    return Lesson(
        site=there,
        rows=tuple(rows),
        fit=fit,
        what_fits=_what_fits(there, rows),
        plans=every if len(every) > 1 else (),
        source=str(plan),
        benchmark_plans={} if plans else _of_benchmark(logs),
    )


def _what_fits(site: Site, rows: Sequence[LearntRow]) -> dict[str, tuple[list[FittingPlan], str]]:
    """Plans that fit where runs ran out of memory, of the first few, by the catalog that has learnt of them."""
    ran_out = [row.measured.row for row in rows if row.new and row.measured.row.get("metric") == "oom"][:MOST_PRICED]
    known = load(site=site.folder) if ran_out else None
    return {row["id"]: fitting_instead(row, known, is_learnt=True) for row in ran_out if known}


def preview(asked: LearnQuestion) -> tuple[list[Preview], list[str]]:
    """What logs would teach, run by run, and why others teach nothing. Nothing is written, and no site is needed.

    Raises:
        WrongQuestion: no log is named, or a plan or a site cannot be read.
    """
    logs = log_files(asked)
    if not logs or asked.step_time is not None or asked.oom:
        raise WrongQuestion("--dry-run reads logs: name LOG..., without --step-time and --oom")
    there = folder.named(path(asked.site))
    catalog = load(site=there.folder) if there else load()
    stated = log_rows.given(texts(asked.set), catalog)
    plans = _plans(path(asked.plan), asked.rank)
    known = Known(plans=plans, stated=stated, catalog=catalog, failed=asked.failed)
    shown, reasons = previews.of_logs(logs, lambda log: _known_of(log, known))
    ran_out = [one for one in shown if one.finding.verdict.word == "out of memory" and not one.missing][:MOST_PRICED]
    return [_with_what_fits(one, catalog) if one in ran_out else one for one in shown], reasons


def _with_what_fits(shown: Preview, catalog: Catalog) -> Preview:
    """A run that ran out of memory with the plans that fit in its place."""
    plans, elsewhere = fitting_instead(shown.finding.row, catalog, is_learnt=False)
    return replace(shown, fits_instead=tuple(plans), fits_elsewhere=elsewhere)


def previewed(shown: Sequence[Preview], reasons: Sequence[str]) -> dict[str, Any]:
    """What logs would teach as JSON types."""
    runs = [one.document() for one in shown]
    return {"kind": "lesson-preview", "schema_version": 1, "runs": runs, "reasons": list(reasons)}


def _known_of(log: Path, known: Known) -> Known:
    """What is known of a log: the plans that are named, or else those next to it."""
    return known if known.plans else replace(known, plans=_plan_next_to(log))


def _of_log(log: Path, runs: Sequence[LoggedRun], known: Known, name: str) -> Sequence[Measured]:
    """The rows of a log."""
    rows = log_rows.of_log(log, runs, known, name)
    _possible(rows, known.plans)
    return rows


def _possible(found: Sequence[Measured], plans: Sequence[Plan]) -> None:
    """Refuses what no machine of the plans can do: the matrix products alone take longer at the peak rate."""
    per_token = min((verify.least_step_time(plan) / _tokens(cells.of_plan(plan)) for plan in plans), default=0.0)
    for each in found:
        time, least = float(each.row.get("step_time_s") or 0.0), per_token * _tokens(each.row)
        if 0.0 < time < least:
            share = format_percent(least / time, 0)
            raise WrongQuestion(
                f"{each.row['id']}: {format_seconds(time)} a step is {share} of the peak rate; at the peak it takes "
                f"{format_seconds(least)}. Nothing was written: is that the plan that ran?"
            )


def _tokens(row: Mapping[str, str]) -> float:
    """Tokens of a step for each accelerator: a log may be of other batches than its plan; 0 where a cell is none."""
    batch, sequence, devices = (number(row, name) for name in ("global_batch_seqs", "seq_len", "num_accelerators"))
    return batch * sequence / devices if batch and sequence and devices else 0.0


def _plans(path: Path | None, rank: int | None) -> tuple[Plan, ...]:
    """The plans in a file, or the one of that rank."""
    if path is None:
        if rank is not None:
            raise WrongQuestion("--rank names a plan of --plan FILE")
        return ()
    if document.is_post_training(path.expanduser()):
        raise WrongQuestion(
            f"{path}: a plan of post-training; name its log: clusterwright learn train.log --plan {path}"
        )
    found = document.load(path.expanduser())
    if isinstance(found, PlanSet) and rank is None:
        return found.plans
    return (document.chosen(found, rank or 1, str(path)),)


def _plan_next_to(log: Path) -> tuple[Plan, ...]:
    """The plan next to a log, where ``export`` left one."""
    path = log.parent / PLAN_FILE
    return _plans(path, None) if path.is_file() else ()


def _of_benchmark(logs: Sequence[Path]) -> dict[Path, Plan]:
    """Folders of the benchmarks that logs are of, by rank, and the plan that ``export`` left in each."""
    trials = {log.parent.parent for log in logs if (log.parent.parent / benchmark.NAME).is_file()}
    files = [file for trial in sorted(trials) for file in trial.glob(f"*/{PLAN_FILE}")]
    found: dict[Path, Plan] = {}
    for file in files:
        with suppress(ClusterwrightError):  # a plan that cannot be read is not run
            found[file.parent] = _plans(file, None)[0]
    return dict(sorted(found.items(), key=lambda item: (item[0].parent, item[1].rank)))


def estimate(known: Catalog, wanted: Request, site: Path | None) -> PlanSet:
    """As :func:`planner.planning.estimate`, with what a site has measured where one is named.

    Raises:
        WrongQuestion: the configuration is not legal, or the site's files cannot be read.
        NoAnswer: it does not fit into expanded memory.
    """
    there = folder.named(site)
    if there is None:
        return planning.estimate(known, wanted)
    found = planning.estimate(known, wanted, journal.of_site(there))
    return replace(found, site=of_runs(there))


def plan(
    there: Site,
    known: Catalog,
    wanted: Request,
    progress: Progress | None = None,
    pick: Callable[[Sequence[Plan]], Sequence[int]] | None = None,
) -> PlanSet:
    """As :func:`planner.planning.plan`, with what a site has measured.

    Raises:
        WrongQuestion: the question allows no layout, or the site's files cannot be read.
        NoAnswer: no plan fits or keeps the limits.
    """
    runs = journal.of_site(there)
    found = planning.plan(known, wanted, progress, runs, pick)
    about = section(
        there,
        journal.latest(there),
        out_of_memory=tuple(journal.described(row) for row in runs.out_of_memory(wanted)),
        next_rank=next((each.rank for each in found.plans if each.measured is None), None),
        fastest_run=None if any(each.measured for each in found.plans) else _fastest(runs, wanted),
    )
    return replace(found, site=about)


def _fastest(runs: SiteRuns, wanted: Request) -> str | None:
    """The fastest configuration that answers a request and was run, in words."""
    found = runs.fastest(wanted)
    return None if found is None else f"{journal.described(found[0])}: {format_seconds(found[1])} a step"


def shortlist(
    there: Site | None,
    known: Catalog,
    wanted: Request,
    count: int,
    target: str | None,
    progress: Progress | None = None,
) -> PlanSet:
    """The plans to run in turn: of the best, those that differ in degrees or schedule and that a target starts.

    Raises:
        WrongQuestion: no such target, or not so many plans.
        NoAnswer: no plan fits, or the target starts none.
    """
    if not 1 <= count <= MOST_LISTED:
        raise WrongQuestion(f"--shortlist {count}: must be from 1 to {MOST_LISTED}")
    exporters = () if target is None else launchers.parts(target)
    options = ShortlistOptions(count=count, able=partial(_starts, exporters), measured=())
    asked = replace(wanted, top=shortlisting.LOOKED_AT)

    def pick(plans: Sequence[Plan]) -> list[int]:
        return shortlisting.pick(plans, replace(options, measured=[plan for plan in plans if plan.measured]))

    found = (
        planning.plan(known, asked, progress, None, pick)
        if there is None
        else plan(there, known, asked, progress, pick)
    )
    about = ShortlistSection(
        target=target, runtime=runtime_of(target), tied=order.TIED, regret=shortlisting.regret(found.plans)
    )
    return replace(found, shortlist=about)


def runtime_of(target: str | None) -> str | None:
    """The framework that a target of ``export`` runs; None where there is no target, or it starts any script.

    Raises:
        WrongQuestion: no such target.
    """
    parts = () if target is None else launchers.parts(target)
    return next((each.runtime for each in parts if each.runtime), None)


def _starts(exporters: Sequence[Exporter], plan: Plan) -> bool:
    """Whether all parts of a target express a plan; any trainer, where no target is named."""
    if plan.waived:
        return False
    complete = plan_facts.complete(plan)
    if not exporters:
        return bool(trainers(complete)[0])
    return not any(why for exporter in exporters for why in refusals(complete, exporter))


def refitted(site: Path | None) -> tuple[Site, dict[str, Any]]:
    """A site and the document of a new fit of its catalog to its whole journal.

    Raises:
        WrongQuestion: no site, or no run in its journal that can be predicted.
    """
    there = of_site(site)
    fit = journal.fitted(there, load(site=there.folder))
    if fit is None:
        raise WrongQuestion(f"{there.runs}: no run that can be predicted (clusterwright validate --site gives reasons)")
    return there, fit


def shared(site: Path | None) -> Shared:
    """A site's rows as a CSV without names, paths, dates or words.

    Raises:
        WrongQuestion: no site, an empty journal, or no row of it on public hardware.
    """
    there = of_site(site)
    rows = folder.read(there.runs)
    if not rows:
        raise WrongQuestion(f"{there.runs}: holds no runs yet; clusterwright learn LOG adds them")
    found = sharing.shared(rows, load())
    if not found.rows:
        raise WrongQuestion(f"{there.runs}: nothing of it can be shared: {'; '.join(found.notes)}")
    return found
