"""From logs to a site that predicts better: rows for its journal, a fit to all of them, its error before and after."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.base.reading import short_hash
from planner.calibration import run as calibration
from planner.calibration.fit.frame import Frame
from planner.calibration.runs import reading
from planner.calibration.runs.measured_run import Run
from planner.catalog import Catalog
from planner.figures.efficiency import Efficiencies
from planner.site import journal
from planner.site.folder import Site
from planner.site.log_rows import Measured

FITTED = "site"
"""Name of the files in a site's catalog that its fit writes (:func:`planner.calibration.run.fit_site`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntRow:
    """One measured row next to what was predicted of it before."""

    measured: Measured
    new: bool
    """Whether the journal did not have it."""
    predicted_s: float | None
    reason: str
    """Why it cannot be predicted, and so teaches nothing yet; empty if it can."""


def learn(
    site: Site, measured: Sequence[Measured], catalog: Catalog, stated: Collection[str] = ()
) -> tuple[list[LearntRow], dict[str, Any] | None]:
    """Adds measured rows to a site's journal and fits its catalog to all of them.

    Arguments:
        site: Whose journal it is.
        measured: Rows, of one or several logs.
        catalog: What the site's runs were predicted with until now.
        stated: Columns that a person stated: a row that they make impossible is refused, not kept.

    Returns:
        Each row with its prediction until now, and the fit's document (None: no run of the journal can be predicted).

    Raises:
        WrongQuestion: the journal or the catalog cannot be written, or what was stated cannot be of a run.
    """
    runs = [
        reading.run_of({**dict.fromkeys(reading.REQUIRED, ""), **measured_run.row}, catalog)
        for measured_run in measured
    ]
    for run in runs:
        if blamed := [column for column in stated if re.search(rf"\b{column}\b", run.reason)]:
            raise WrongQuestion(f"--set {blamed[0]}: {run.reason}; nothing was written")
    before = _predicted(runs, catalog)
    added = {row["id"] for row in journal.add(site.runs, [measured_run.row for measured_run in measured])}
    rows = [
        LearntRow(measured=measured_run, new=measured_run.row["id"] in added, predicted_s=seconds, reason=run.reason)
        for measured_run, run, seconds in zip(measured, runs, before, strict=True)
    ]
    return rows, fitted(site, catalog)


def fitted(site: Site, catalog: Catalog) -> dict[str, Any] | None:
    """A fit of the site's catalog to its whole journal; None where the journal holds nothing to fit to: what an
    earlier fit has left is taken back.
    """
    digest = _digest(site.runs)  # before the fit: rows that others add meanwhile are not in it
    runs = reading.read(site.runs, catalog)
    if not any(run.measured and run.covered and run.variants for run in runs):
        for path in (*site.catalog.glob(f"*/{FITTED}.toml"), *site.catalog.glob(f"*/{FITTED}.csv")):
            path.unlink(missing_ok=True)
        nothing = {"rows": 0, "frameworks": 0, "before": None, "left_out": None, "journal": digest}
        writing.write(site.fit, json.dumps(nothing, indent=2) + "\n", replace=True)
        return None
    report = {**calibration.fit_site(site.runs, site.catalog, catalog), "journal": digest}
    writing.write(site.fit, json.dumps(report, indent=2) + "\n", replace=True)
    return report


def latest(site: Site) -> dict[str, Any] | None:
    """The document of the last fit to the journal; None where there is none."""
    try:
        report = json.loads(site.fit.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(report, dict) and {"rows", "frameworks", "before", "left_out", "journal"} <= report.keys()
    return report if whole else None


def changed(site: Site, fit: Mapping[str, Any] | None) -> bool:
    """Whether the journal has changed since a fit to it, so that predictions follow what it no longer says."""
    return bool(fit["journal"] != _digest(site.runs) if fit else journal.read(site.runs))


def _digest(path: Path) -> str:
    return short_hash(path.read_bytes())


def _predicted(runs: Sequence[Run], catalog: Catalog) -> list[float | None]:
    """Seconds of a step of each run, with the catalog as it is."""
    frame = Frame(catalog, runs)
    times = dict(zip((run.id for run in frame.runs), frame.predict(Efficiencies.of(catalog)).time, strict=True))
    return [float(times[run.id]) if run.id in times and math.isfinite(times[run.id]) else None for run in runs]


def described(row: Mapping[str, str]) -> str:
    """A row's configuration in a few words: ``llama3-8b on 8 x H100-SXM5-80GB, TP2, micro-batch 1, bf16``."""
    degrees = [f"{axis.upper()}{row[axis]}" for axis in ("tp", "pp", "vpp", "cp", "ep") if row.get(axis, "1") != "1"]
    more = [f"micro-batch {row['micro_batch']}"] if row.get("micro_batch") else []
    more += [f"recompute {row['activation_recompute']}"] if row.get("activation_recompute", "none") != "none" else []
    parts = [f"{row['model']} on {row['num_accelerators']} x {row['accelerator']}", *degrees, *more]
    return ", ".join([*parts, *([row["precision"]] if row.get("precision") else [])])
