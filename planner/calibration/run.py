"""The whole way from measured runs to a judgement of the predictions, or to fitted efficiencies in a catalog folder.

Each function returns its document as JSON types, as ``--json`` prints it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner import catalog as catalogs
from planner.base.errors import WrongQuestion
from planner.base.processes import ALONE, Workers
from planner.base.progress import Advance, Progress
from planner.base.resources import data
from planner.calibration.fit import calibrate as fitting
from planner.calibration.fit import collectives, counted_runs, evidence, overlay, site_correction
from planner.calibration.fit.counted_runs import lab
from planner.calibration.fit.frame import Frame
from planner.calibration.measuring import measure
from planner.calibration.report import validation
from planner.calibration.runs import other_families, reading
from planner.catalog import Catalog
from planner.figures import conformal_intervals, nearest_runs
from planner.figures import own_runs as near
from planner.figures.efficiency import Efficiencies
from planner.figures.profiles import overlay as profiles


@contextmanager
def silent(description: str, total: float | None) -> Iterator[Advance]:
    """Shows nothing."""
    yield lambda n=1, note="": None


def validate(catalog: Catalog, file: Path, by: str, oom_risk: float) -> tuple[dict[str, Any], str]:
    """How far off predictions of a file's runs are, as a document, and every run's prediction, as a CSV.

    Raises:
        WrongQuestion: the file cannot be read as runs.
    """
    frame, judgement = judged(catalog, file)
    document = validation.report(judgement, by, oom_risk) | {
        "profiles": validation.gain(frame, Efficiencies.of(catalog)),
        "unread_columns": list(reading.unread_columns(file)),
    }
    return document, validation.per_run(judgement)


def judged(catalog: Catalog, file: Path) -> tuple[Frame, validation.Judged]:
    """The transformers among a file's runs, and every run of it with its prediction.

    Raises:
        WrongQuestion: the file cannot be read as runs.
    """
    runs_read = reading.read(file, catalog)
    frame = Frame(catalog, runs_read, profiles.read(catalog), by_kind=True)
    using = Efficiencies.of(catalog)
    others = other_families.without_layouts(runs_read)
    times = other_families.predict(others, using)
    widths = conformal_intervals.read(catalog)
    memory = conformal_intervals.read(catalog, conformal_intervals.MEMORY)
    return frame, validation.judged(
        runs_read, frame, frame.predict(using), widths, validation.OtherRuns(others, times), memory
    )


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What is fitted, and how."""

    cross_validate: bool = True
    """Whether each source is left out in turn."""
    site: bool = False
    """Whether the runs are a few of one site."""
    measure: bool = False
    """Whether kernels are timed here."""
    table: Path | None = None
    """Timed kernels."""
    collectives: Path | None = None
    """Timed collectives."""
    accelerator: str | None = None
    """What was timed."""
    device: str = "auto"
    tiny: bool = False
    workers: Workers = ALONE


def calibrate(file: Path | None, output: Path, asked: FitOptions, progress: Progress = silent) -> dict[str, Any]:
    """Fits what was measured (runs, kernels or collectives) and writes it as a catalog folder.

    Raises:
        WrongQuestion: not one of the things to fit, a file that cannot be read, or nothing in it to fit.
    """
    if asked.collectives is not None:
        if file is not None or asked.site or asked.measure or asked.table is not None:
            raise WrongQuestion("--collectives fits a table of its own: drop FILE, --site, --measure and --table")
        return _from_collectives(asked.collectives, output, asked.accelerator)
    if asked.workers != ALONE and (file is None or asked.site or not asked.cross_validate):
        raise WrongQuestion("--workers and --engine make the fits that hold labs out, which only a FILE of runs has")
    if sum((file is not None, asked.measure, asked.table is not None and file is None)) != 1 or (
        asked.site and asked.table is not None
    ):
        raise WrongQuestion("name one of: a FILE of runs, --measure, --table FILE")
    if file is None and asked.site:
        raise WrongQuestion("--site adapts to measured runs: name their FILE")
    if file is None:
        return _from_kernels(output, asked.table, asked.accelerator, asked.device, asked.tiny, progress)
    if asked.site:
        return fit_site(file, output, catalogs.load())
    return _from_runs(file, output, asked.table, asked.cross_validate, asked.workers, progress)


def _from_kernels(
    output: Path, table: Path | None, accelerator: str | None, device: str, tiny: bool, progress: Progress
) -> dict[str, Any]:
    known = catalogs.load()
    if table is None:
        outcome = measure.run_measure(output, accelerator, device, tiny, progress, known)
    elif accelerator is None:
        raise WrongQuestion("--table needs --accelerator ID: which part the kernels were timed on")
    else:
        outcome = measure.run_table(output, table, accelerator, known)
    report = outcome.report
    return {
        "kind": "kernel-calibration",
        "schema_version": 1,
        "accelerator": outcome.accelerator,
        "rows": report.rows,
        "degrees_of_freedom": report.freedom,
        "mape": report.mape,
        "kinds": [asdict(kind) for kind in report.kinds],
        "levels_kept": outcome.kept,
        "refused": list(outcome.refused),
        "files": [str(path) for path in outcome.written],
    }


def _from_collectives(path: Path, output: Path, accelerator: str | None) -> dict[str, Any]:
    outcome = collectives.calibrate(path, output, catalogs.load(), accelerator, _today())
    return {
        "kind": "collective-calibration",
        "schema_version": 1,
        "rows": len(outcome.table.rows),
        "left_out": dict(outcome.table.left_out),
        "entries": [*outcome.entries, *outcome.fabrics],
        "errors": [
            {"what": what, "rows": rows, "before": before, "after": after}
            for what, rows, before, after in outcome.errors
        ],
        "files": [str(entry) for entry in outcome.written],
    }


def _today() -> str:
    return datetime.date.today().isoformat()


def fit_site(file: Path, output: Path, known: Catalog) -> dict[str, Any]:
    """Adapts the built-in efficiencies to a site's runs, and writes what changes as a catalog folder.

    Raises:
        WrongQuestion: the folder holds another fit, or the file holds no run with a time that can be predicted.
    """
    overlay.check_free(output, "site.toml")
    runs = reading.read(file, known)
    frame = Frame(known, [run for run in runs if run.measured], by_kind=True)
    if not frame.runs:
        raise WrongQuestion(f"{file}: no run with a time that can be predicted")
    built_in = _built_in()
    shipped = Efficiencies.of(built_in)
    site_fit, held = site_correction.adapted(frame, shipped), site_correction.held_out(frame, shipped)
    many = len(frame.runs)
    source = f"{many} run{'' if many == 1 else 's'} of {file.name}"
    date = _today()
    left = site_correction.widths(frame, held, conformal_intervals.read(built_in))
    changed = site_correction.changed(site_fit, shipped)
    written = overlay.write_overlay(output, changed, source, date, name="site.toml")
    written.append(near.write(output, changed.own, f"{source}, {date}", "site.csv"))
    written.append(conformal_intervals.write(output, left, f"{source}, each held out in turn, {date}", "site.csv"))
    written.append(_fit_memory(Frame(known, runs, by_kind=True), site_fit.efficiencies, output, f"{source}, {date}"))
    written.append(
        nearest_runs.write(output, evidence.nearest_rows(frame, site_fit.efficiencies, evidence.OWN), "site.csv")
    )
    return site_correction.site_document(frame, shipped, site_fit, held) | {"files": [str(path) for path in written]}


def fit_site_memory(file: Path, output: Path, known: Catalog) -> None:
    """Widens the intervals of peak memory by a site's runs, where none of them has a time: they all ran out of memory.

    Raises:
        WrongQuestion: the folder holds another fit.
    """
    overlay.check_free(output, "site.toml")
    frame = Frame(known, reading.read(file, known), by_kind=True)
    many = len(frame.runs)
    source = f"{many} run{'' if many == 1 else 's'} of {file.name}, without a time, {_today()}"
    _fit_memory(frame, Efficiencies.of(_built_in()), output, source)


def _built_in() -> Catalog:
    """What is shipped, without a site's own overlay: fitting again gives the same."""
    return catalogs.Catalog((catalogs.CatalogLayer(catalogs.BUILT_IN, data("hardware_catalog")),))


def _fit_memory(frame: Frame, using: Efficiencies, output: Path, source: str) -> Path:
    """Writes half-widths of peak memory by runs, those that ran out of memory too."""
    shipped = conformal_intervals.read(_built_in(), conformal_intervals.MEMORY)
    widths = site_correction.memory_widths(frame, using, shipped)
    return conformal_intervals.write(output, widths, source, "memory-site.csv")


def _from_runs(
    file: Path, output: Path, table: Path | None, cross_validate: bool, workers: Workers, progress: Progress
) -> dict[str, Any]:
    priors = catalogs.load(data("hardware_catalog") / "priors")
    read = reading.read(file, priors)
    frame = Frame(priors, read)
    prior = Efficiencies.of(priors)
    kernels = 0
    if table is not None:
        prior, kernels = measure.informed(prior, priors, table)
    try:
        calibration = fitting.calibrate(frame, prior)
    except WrongQuestion as error:
        raise WrongQuestion(f"{file}: {error}") from None
    date = _today()
    source = f"{len(calibration.rows)} runs of {file.name}"
    if table is not None:
        source += f", shapes by {kernels:,} kernels of {table.name}"
    efficiencies = other_families.extended(
        priors, read, counted_runs.with_fitted_peaks(frame, calibration.fit.efficiencies)
    )
    left_out = None
    left = fitting.skipped(calibration) if cross_validate else []
    widths = []
    labs = [lab(frame.runs[i]) for i in calibration.rows]
    if cross_validate and len(set(labs)) > 1:
        with progress("hold out each lab", len(set(labs))) as advance:
            left_out = fitting.cross_validated(calibration, labs, advance, workers)
        times = fitting.interval_widths(calibration, left_out) | fitting.other_widths(priors, read, prior, workers)
        times |= evidence.widths(calibration, left_out)
        widths.append((times, f"{source}, leave-one-lab-out, {date}", f"{conformal_intervals.TIME}.csv"))
        held = fitting.memory_widths(frame, efficiencies)
        if held.get("all", conformal_intervals.Width(0.0, 0)).runs >= conformal_intervals.FEWEST:
            citation = (
                f"{held['all'].runs} runs of {file.name} whose peak was measured, each lab held out in turn, {date}"
            )
            widths.append((held, citation, f"{conformal_intervals.MEMORY}.csv"))
    written = overlay.write_overlay(output, efficiencies, source, date)  # only now: an interrupted fit leaves nothing
    written += [conformal_intervals.write(output, *width) for width in widths]
    written.append(nearest_runs.write(output, evidence.nearest_rows(frame, efficiencies), "published.csv"))
    return fitting.document(calibration, left_out, left) | {"files": [str(path) for path in written]}
