"""Published runs as the planner sees them: a CSV row becomes a workload, a cluster and the plan that was run.

What a row leaves out is inferred by the rules below, each named in the run's `inferred`: what its runtime does by
default is taken to be what was run, and where nothing says that, the middle of the readings that fit. A row that cannot
be predicted says why.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base import csv_rows
from planner.base.errors import WrongQuestion
from planner.calibration.runs import columns, names, words
from planner.calibration.runs.columns import Unpredictable, number, required, whole
from planner.calibration.runs.layouts import RunSoftware
from planner.calibration.runs.machines import cluster_of
from planner.calibration.runs.measured_run import Run
from planner.calibration.runs.trained import batch_of, model_of, step_time, work_of
from planner.calibration.runs.variants import (
    RunVariant,
    mode_of,
    options_in_words,
    stated_options,
    variants,
)
from planner.catalog import Catalog
from planner.models.workload import library
from planner.schema.hardware import Runtime

REQUIRED = ("id", "source", "model", "family", "accelerator", "num_accelerators", "seq_len", "global_batch_seqs")
GB = 1e9


def read(path: Path, catalog: Catalog) -> list[Run]:
    """Every row of a runs CSV.

    Raises:
        WrongQuestion: no such file, not CSV, or a required column is missing.
    """
    try:
        reader = csv_rows.table(path, "a table of runs")
        missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
        if missing:
            raise WrongQuestion(f"{path}: no column {', '.join(missing)}; see docs/runs.md for the columns")
        _unread(path, reader.fieldnames or ())
        return [run_of(row, catalog) for row in reader]
    except csv.Error as error:
        raise WrongQuestion(f"{path}: {error}") from None


def unread_columns(path: Path) -> tuple[str, ...]:
    """The columns of a runs CSV that :func:`read` reads and that it knows nothing of."""
    return _unread(path, csv_rows.table(path, "a table of runs").fieldnames or ())


def _unread(path: Path, names_: Sequence[str]) -> tuple[str, ...]:
    try:
        return columns.unread(names_)
    except WrongQuestion as error:
        raise WrongQuestion(f"{path}: {error}") from None


_MODULES = re.compile(r"\b(\d) mtp modules")
"""Modules of multi-token prediction, as a plan's row states them."""


def run_of(row: Mapping[str, str], catalog: Catalog) -> Run:
    """One row of a runs CSV; what keeps it from being predicted is in its `reason`."""
    notes = row.get("notes") or ""
    kind = row.get("memory_kind") or ""
    held = number(row, "memory_gb_per_gpu")
    run = Run(
        id=row["id"],
        source=row["source"],
        group=row.get("source_group") or row["source"],
        lab=row.get("lab") or row["source"],
        submitted="mlperf" in f"{row.get('task')} {notes}".lower(),
        framework=row.get("framework") or "",
        model=row["model"],
        base=row.get("model_base") or row["model"],
        family=row["family"],
        task=row.get("task") or "pretrain",
        grade=row.get("grade") or "A",
        accelerator=row["accelerator"],
        release=row.get("release") or "",
        measured=None,
        measured_bytes=held * GB if held else None,
        memory_measured=bool(held) and "analytic" not in kind,
        states_enough=_states_enough(row),
        dispatcher=_noted("dispatcher", notes),
        routing=_noted("routing", notes),
        in_allocator=bool(re.search(r"reserved|allocated", kind)),
        out_of_memory=_ran_out(f"{row.get('metric')} {notes}"),
    )
    try:
        return _filled(run, row, catalog)
    except (Unpredictable, WrongQuestion) as error:
        return replace(run, reason=" ".join(str(error).split()))


def run_of_cells(cells: Mapping[str, str], catalog: Catalog) -> Run:
    """The run of a row that has not every column: those that it lacks are empty."""
    return run_of({**dict.fromkeys(REQUIRED, ""), **cells}, catalog)


def _noted(what: str, notes: str) -> str:
    """What stands behind a word in the notes: ``dispatcher: alltoall;``."""
    found = re.search(rf"\b{what}: ([^;]+)", notes)
    return found[1].strip() if found else ""


def _ran_out(text: str) -> bool:
    """Whether a row's metric or notes say that the run ran out of memory; "not OOM-tested" and "no OOM" do not."""
    found = re.search(r"(?<!not )(?<!no )(?<!without )\b(oom|out[ -]of[ -]memory)\b(?![ -]test)", text, re.IGNORECASE)
    return found is not None


def _states_enough(row: Mapping[str, str]) -> bool:
    """A transformer states its shape, or a model of the library, and a time, tokens per second or TFLOP/s; others
    their batch and samples per second.
    """
    rate = any(number(row, name) for name in ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu"))
    if row["family"] in ("dense", "moe"):
        shape = bool(number(row, "layers")) and bool(number(row, "hidden"))
        return rate and (shape or names.MODELS.get(row["model"], row["model"]) in library())
    return bool(number(row, "global_batch_seqs")) and (rate or row.get("metric") == "samples_per_s")


def _filled(run: Run, row: Mapping[str, str], catalog: Catalog) -> Run:
    if why := columns.impossible_cell(row):
        raise Unpredictable(why)
    n = int(required(row, "num_accelerators"))
    accelerator = names.accelerator(run.accelerator, catalog.accelerators)
    if accelerator is None or accelerator not in catalog.accelerators:
        raise Unpredictable(f"accelerator {run.accelerator!r} is not in the catalog")
    if run.family not in ("dense", "moe"):
        return _other(run, row, catalog, accelerator, n)
    known, date, inferred = _software(row, catalog, catalog.accelerator(accelerator).vendor)
    guessed = any(each.startswith("release ") for each in inferred)
    if why := "" if guessed else columns.contradiction(known, date, stated_options(row)):
        raise Unpredictable(why)
    model = model_of(row, known.dropout)
    if why := columns.impossible_cut(model, n, {name: whole(row, name) for name in ("tp", "pp", "ep")}):
        raise Unpredictable(why)
    says = words.stated(row)
    sequence = int(required(row, "seq_len"))
    batch = batch_of(row, n, sequence, says, inferred)
    runtime, year = known.id, released(known, date)
    work = work_of(row, model, sequence, batch, says, known, date, inferred)
    notes = (row.get("notes") or "").lower()
    if stated := _MODULES.search(notes):
        work = replace(work, mtp_layers=int(stated[1]))
    elif "w/o mtp" not in notes and (ahead := names.PREDICTED_AHEAD.get(names.MODELS.get(run.base, run.base), 0)):
        work = replace(work, mtp_layers=ahead)
        inferred.append(f"{ahead} multi-token prediction module{'s' * (ahead > 1)}, as its recipe trains")
    cluster = cluster_of(row, catalog, accelerator, n, inferred)
    software = RunSoftware(known, date, columns.options_to_come(known, date))
    allowed = variants(row, work, n, software, cluster.accelerator, inferred)
    readings = tuple(sorted(allowed, key=lambda reading: (reading.rank, not reading.likely)))
    if not readings:
        raise Unpredictable("no legal plan under what is stated")
    return replace(
        run,
        accelerators=n,
        measured=step_time(row, work, n, _counts_half(known, date)),
        workload=work,
        cluster=cluster,
        runtime=runtime,
        year=year,
        date=date,
        mode=mode_of(known, row.get("notes") or "", row.get("precision") or ""),
        known_as=known.known_as,
        traits=_traits(known, date, says, inferred),
        head_placed=_placed(row, readings, known.at(year), inferred),
        variants=readings,
        inferred=tuple(inferred),
    )


TRAITS = ("fused_cross_entropy", "chunked_loss")
"""Fields of a runtime that its defaults may date."""


def _traits(
    known: Runtime, release: str, says: Mapping[str, object], inferred: list[str]
) -> tuple[tuple[str, object], ...]:
    """Fields of the runtime's record that a run has otherwise: as words say, else as the release's default."""
    usual = {name: default.value for name in TRAITS if (default := known.default(name, release))}
    stated = dict(words.traits(says))
    unlike = {name: value for name, value in {**usual, **stated}.items() if getattr(known, name) != value}
    inferred += [f"{name}: {value}, {known.id}'s default" for name, value in unlike.items() if name not in stated]
    if stated.get("chunked_loss"):
        unlike["logit_bytes"] = 0.0
    return tuple(unlike.items())


def _placed(row: Mapping[str, str], readings: Sequence[RunVariant], known: Runtime, inferred: list[str]) -> bool:
    """Whether stages were placed by a layout that gives the head room: as the notes say, else not."""
    stated = "stages placed by layout" in (row.get("notes") or "")
    if known.places_head and not stated and any(each.layout["pp"] > 1 for each in readings):
        inferred.append("stages: of as many layers each")
    return stated


def _counts_half(known: Runtime, date: str) -> bool:
    """Whether the TFLOP/s that a release prints count half of a causal attention."""
    found = known.default("model_flops", date)
    return found is not None and found.value == "causal"


def _software(row: Mapping[str, str], catalog: Catalog, vendor: str) -> tuple[Runtime, str, list[str]]:
    """The runtime that a row states, when it was released (YYYY or YYYY.MM), and what had to be guessed.

    ``runtime`` (``NAME@RELEASE``) decides; else the framework's name and date in words; else what is said of sharding.
    A release that names a container or a tag is a date itself.
    """
    guessed: list[str] = []
    name, _, fixed = (row.get("runtime") or "").partition("@")
    stated = row.get("framework") or ""
    if not name:
        name = names.framework(stated, catalog.runtimes) or ""
    if not name:
        stated_sharding = (row.get("sharding") or "").lower()
        name = next((runtime for word, runtime in names.SHARDING if word in stated_sharding and not stated), "")
        name = name or names.likely(row, vendor) or names.ANY
        guessed.append(f"framework: {name}" + (f" for {stated!r}, which no runtime is called" if stated else ""))
    known = catalog.runtime(name)
    release = row.get("release") or ""
    named = {*stated_options(row), *options_in_words(row)}
    date = fixed or names.date_of(release) or names.year_of(release) or names.dated(row.get("framework_date") or "")
    if not date:
        date = known.releases[-1]
        unread = " ".join(text for text in (release, row.get("framework_date") or "") if text)
        guessed.append(f"release {date}" + (f" for {unread!r:.60}, which says no date" if unread else ""))
    elif (complete := columns.completed(date, known, row.get("notes") or "", named)) != date:
        guessed.append(f"release {complete}: what the row names is of that month")
        date = complete
    return known, date, guessed


def released(known: Runtime, date: str) -> str:
    """The newest of a runtime's releases at a date (YYYY or YYYY.MM); its first, if the date is before all."""
    return max((release for release in known.releases if release <= date), default=known.releases[0])


def _other(run: Run, row: Mapping[str, str], catalog: Catalog, accelerator: str, n: int) -> Run:
    """Encoders under data parallelism, convolutional networks, recommenders."""
    from planner.calibration.runs import encoders, other_families

    repeated = row.get("metric") == "time_to_train_min"
    if repeated and not number(row, "step_time_s"):
        raise Unpredictable("time to train is no throughput")
    cluster = cluster_of(row, catalog, accelerator, n, [])
    known = replace(run, accelerators=n, cluster=cluster, repeated=repeated)
    return encoders.filled(known, row, catalog) if run.family == "encoder" else other_families.filled(known, row)
