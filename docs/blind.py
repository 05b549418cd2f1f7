"""Write ``accuracy.md`` and ``blind.md``: errors on batches of runs that had no part in the model.

    python -m docs.blind judge 1 BATCH.csv    # errors of the commit that is checked out, into the record
    python -m docs.blind                      # both pages, a plot and README's sentence, from that file

A batch is judged from a commit whose model no row of it has shaped. Errors are kept by source and by class of run, rows
are not. Later errors on the same batch stand beside the first, and the page says that they are no evidence.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from docs import accuracy_plots as plots
from planner import catalog
from planner.base import writing
from planner.calibration import run
from planner.calibration.report import validation
from planner.calibration.report.validation import Judged
from planner.calibration.runs.measured_run import Run
from planner.figures import conformal_intervals, step_time_interval

ROOT = Path(__file__).resolve().parent.parent
PAGE, README = ROOT / "docs" / "blind.md", ROOT / "README.md"
SHORT, DETAILS = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "accuracy-details.md"
PLOT = "blind-by-source"
RECORD = ROOT / "benchmarks" / "data" / "blind.json"
SENTENCE = re.compile(r"(<!-- blind -->\n)(.*?)(<!-- end of blind -->)", re.DOTALL)
BLIND, ELSEWHERE, KNOWN = "blind", "blind, elsewhere", "known"
"""What a judgement is of: the model that this repository had when no row of the batch had shaped it; a model on a
branch that was lost before it landed; a model that was changed after the batch had been read."""
WIDTH = 125
"""Columns of a line of README."""
SHAPED_BY = ("planner", "models", "hardware_catalog")
"""Folders that a prediction comes from."""
UNSTATED = ("framework: any", "recompute: ", "micro-batch: ", "vpp: ", "whichever fits")
"""Words by which readers say that what a step rests on was left open by a row."""


def class_of(each: Run, measured: Iterable[str]) -> str:
    """New hardware, mixture, something unstated or dense: the first that holds of a run.

    Arguments:
        each: a run that can be predicted.
        measured: names of the terms of intervals, among them the parts that the fit had runs of.
    """
    generation, kind, _ = validation.described(each)
    parts = [name for name in measured if name.startswith(f"{step_time_interval.MEASURED}{generation}/")]
    if not any(name.endswith(f"/{kind}") for name in parts):
        return "new hardware"
    if kind == "moe":
        return "mixture"
    assumed = ", ".join(each.inferred)
    return "something unstated" if any(words in assumed for words in UNSTATED) else "dense, all stated"


def errors_of(judgement: Judged, places: Sequence[int]) -> dict[str, Any]:
    """Errors of the step times of some predicted runs, as shares, and how many that ran are called infeasible."""
    rows = np.array(places, dtype=np.intp)
    timed = rows[np.isfinite(judgement.measured[rows])]
    measured, predicted = judgement.measured[timed], judgement.time[timed]
    inside = (judgement.low[timed] <= measured) & (measured <= judgement.high[timed])
    ran = [i for i in places if not judgement.predicted[i].out_of_memory]
    figures = {
        "mape": np.mean(np.abs(predicted / measured - 1)),
        "bias": np.mean(predicted / measured - 1),
        "inside": np.mean(inside),
        "half_width": np.median(np.log(judgement.high[timed] / predicted)),
        "needed": np.quantile(np.abs(np.log(predicted / measured)), 0.8),
    }
    return {
        "covered": len(timed),
        **{name: round(float(value), 4) for name, value in figures.items()},
        "ran": len(ran),
        "infeasible": sum(not judgement.fits[i] for i in ran),
    }


def judged(file: Path) -> dict[str, Any]:
    """Errors on a batch, by source and by class of run, of the model that is imported."""
    known = catalog.load()
    judgement = run.judged(known, file)[1]
    measured = conformal_intervals.read(known)
    groups: dict[str, dict[str, list[int]]] = {"sources": defaultdict(list), "classes": defaultdict(list)}
    for place, each in enumerate(judgement.predicted):
        groups["sources"][each.source].append(place)
        groups["classes"][class_of(each, measured)].append(place)
    errors = {
        kind: {name: errors_of(judgement, places) for name, places in sorted(members.items())}
        for kind, members in groups.items()
    }
    for name, group in errors["sources"].items():
        group["runs"] = sum(each.source == name for each in judgement.runs)
    return errors


def judge(batch: int, file: Path) -> None:
    """Adds the errors of the commit that is checked out to the record; the first of a batch is the blind one.

    Raises:
        SystemExit: the model is not committed, or that commit has been judged on the batch before.
    """
    if _git("status", "--porcelain", "--", *SHAPED_BY):
        raise SystemExit("commit first: a judgement is of a commit")
    commit, record = _git("rev-parse", "--short=9", "HEAD"), json.loads(RECORD.read_text(encoding="utf-8"))
    judgements = record["judgements"]
    if any(each["batch"] == batch and each.get("commit") == commit for each in judgements):
        raise SystemExit(f"batch {batch} has been judged from {commit}")
    first = not any(each["batch"] == batch and each["of"] == BLIND for each in judgements)
    entry = {
        "batch": batch,
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "of": BLIND if first else KNOWN,
    }
    record["judgements"].append(entry | judged(file))
    writing.write(RECORD, json.dumps(record, indent=1) + "\n", replace=True)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


# ---- the page --------------------------------------------------------------------------------------------------------


def percent(value: float | None) -> str:
    """A share as per cent, to a tenth."""
    return "-" if value is None else f"{100 * value:.1f} %"


@dataclass(frozen=True)
class Totals:
    """Errors of some judgements over all their sources."""

    sources: tuple[tuple[str, Mapping[str, Any]], ...]

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Any]]) -> Totals:
        """Those of some judgements of different batches, the best predicted source first."""
        sources = [pair for entry in entries for pair in entry["sources"].items()]
        return cls(tuple(sorted(sources, key=lambda pair: pair[1]["mape"])))

    def count(self, name: str) -> int:
        """A count of runs (covered, ran, infeasible) over all sources."""
        return sum(group[name] for _, group in self.sources)

    @property
    def by_source(self) -> float:
        """The mean error, every source of the same weight."""
        return float(np.mean([group["mape"] for _, group in self.sources]))

    @property
    def inside(self) -> float:
        """The share of runs inside their 80 % intervals."""
        return sum(group["inside"] * group["covered"] for _, group in self.sources) / self.count("covered")


def _source_rows(entries: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = []
    for entry in entries:
        for name, group in entry["sources"].items():
            infeasible = f"{group['infeasible']} of {group['ran']}"
            covered = f"{group['covered']} of {group['runs']}"
            figures = [percent(group["mape"]), percent(group["bias"]), percent(group["inside"])]
            rows.append([str(entry["batch"]), name, covered, *figures, infeasible])
    return rows


CLASS_HEADERS = ("class", "runs", "MAPE", "in 80 %", "half-width", "needed")


def _class_rows(entries: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = []
    for name in sorted({name for entry in entries for name in entry["classes"]}):
        groups = [entry["classes"][name] for entry in entries if name in entry["classes"]]
        count = sum(group["covered"] for group in groups)
        means = {
            key: sum(group[key] * group["covered"] for group in groups) / count
            for key in ("mape", "inside", "half_width", "needed")
        }
        widths = [f"{means[key]:.2f}" for key in ("half_width", "needed")]
        rows.append([name, str(count), percent(means["mape"]), percent(means["inside"]), *widths])
    return rows


def _batch_rows(entries: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = []
    for entry in entries:
        totals = Totals.of([entry])
        errors = [percent(totals.by_source), percent(totals.inside)]
        rows.append([str(entry["batch"]), f"`{entry['commit']}`", entry["date"], *errors])
    return rows


def _elsewhere_rows(entries: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    lost = [entry for entry in entries if entry["of"] == ELSEWHERE]
    return [[str(e["batch"]), e["date"], percent(e["mape"]), percent(e["inside"])] for e in lost]


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def page(record: Mapping[str, Any]) -> str:
    """The text of ``docs/blind.md``."""
    entries = record["judgements"]
    blind = _blind(record)
    changed = [e for e in entries if e["of"] == KNOWN]
    batch = ["batch", "commit", "on", "mean by source", "in 80 %"]
    tables = {
        "sources": _table(["batch", "source", "covered", "MAPE", "bias", "in 80 %", "infeasible"], _source_rows(blind)),
        "classes": _table(CLASS_HEADERS, _class_rows(blind)),
        "elsewhere": _table(batch[:1] + batch[2:], _elsewhere_rows(entries)),
        "known": _table(batch, _batch_rows(changed)) if changed else "None yet.",
        "commits": ", ".join(sorted({f"`{e['commit']}`" for e in blind})),
        "sentence": textwrap.fill(sentence(record), WIDTH),
    }
    return TEXT.format(**tables)


def sentence(record: Mapping[str, Any]) -> str:
    """What README says of accuracy: the batches as judged by the model that no row of them had shaped."""
    blind = _blind(record)
    totals = Totals.of(blind)
    dense = [e["classes"][name] for e in blind for name in e["classes"] if name == "dense, all stated"]
    plain = sum(g["mape"] * g["covered"] for g in dense) / sum(g["covered"] for g in dense)
    least, most = (totals.sources[place][1]["mape"] for place in (0, -1))
    return (
        f"{totals.count('covered')} runs of {len(totals.sources)} sources that had no part in the model were judged by "
        f"it as it stood at `{blind[0]['commit']}`: it was {100 * totals.by_source:.0f} % off in the mean by source "
        f"({100 * least:.0f} to {100 * most:.0f} %), {100 * plain:.0f} % on dense models whose plan and framework are "
        f"stated; 80 % intervals held {100 * totals.inside:.0f} % of them, and {totals.count('infeasible')} of "
        f"{totals.count('ran')} runs that ran were called infeasible. The model has changed since, and those who "
        "changed it have read these runs: what it says of them today is no evidence."
    )


TEXT = """\
# Runs that had no part in the model

<!-- Generated by docs/blind.py from benchmarks/data/blind.json. Do not edit. -->

{sentence}

The tables of [accuracy-details.md](accuracy-details.md) are of runs that were known while the model was written:
leaving a lab out of a fit does not take that knowledge away. Three batches of published runs of other labs were
therefore kept aside, to be judged each from a commit before a row of it has been read. That did not hold to the end
("What happened to the protocol"): what is shown first is the model of a commit that no row had shaped, though rows had
been read by then. The batches themselves are not part of this repository, so that nobody fits to them; the record has
their errors by source and by class, and the commit that made them.

## As first judged

The commits are {commits}. `bias` is the mean of predicted over measured, less one; `infeasible` counts runs that ran
and are predicted not to fit at a risk of 50 %.

{sources}

By class, each run in the first that holds: hardware of a generation that the fit had no run of, a mixture of experts,
a plan or framework that the row leaves open, and dense models with everything stated. `half-width` is the interval that
was given (log), `needed` the one that would have held 80 % of the class (the mean over batches).

{classes}

What was asked of the third batch (12 % in the mean by source, 20 % at the worst, 72 to 90 % inside, 1 % infeasible,
97 % covered) is not reached.

## What happened to the protocol

The batches were first opened on a branch, one after the other, and what each taught was built in before the next was
opened. The branch was lost before it landed, and its commits cannot be judged again. Its errors, as noted at the time:

{elsewhere}

The model of the commits above had none of that work: nothing in it was changed after a batch had been opened, so that
no row shaped it; those who maintain it had read what the batches teach. Learning from two batches did not make the
third better predicted there (25.9 %, and 24.9 % without): what was learned explained the labs that taught it.

## After the batches were read

Errors of later models on the same batches. They are no evidence of what another lab would see.

{known}
"""


SHORT_TEXT = """\
# How accurate is it?

<!-- Generated by docs/blind.py from benchmarks/data/blind.json and docs/accuracy-details.md. Do not edit. -->

{sentence}

| if you ask | typical error | how that was measured |
|---|---|---|
| how long is a step of a lab that had no part in the model? | {unseen} by source | {batches} [batches](blind.md) |
| the same, on published runs that were known? | {lab} by lab, at most {worst} | each lab left out of the fit |
| is the 80 % interval honest? | holds {inside} of those runs, {held} of known ones | as above |
| does it fit? | {memory} of peak memory; {infeasible} of those runs called infeasible | labs left out; batches |
| is the chosen plan good? | {regret} slower than the best measured | groups of measured plans |
| after three runs of my own? | {few} by site | each lab taken as a site |

![Mean error by source of runs that had no part in the model](figures/{plot}.svg)

## By what you plan

Of the same runs, each in the first class that holds:

{classes}

`half-width` is the interval that was given (log scale), `needed` the one that would have held 80 % of the class (the
mean over batches). {ends}

## Three cautions

1. **The smaller figures are of data that we had seen**, and of the model as it is today. Priors and traits of
   frameworks were written by people who knew most of the published tables. The first line above is the one to expect;
   it is of an earlier model ([blind.md](blind.md)).
2. **Poor plans are left out of sweeps.** Where a lab measured twenty plans or more of one job, only those within 1.5
   times the fastest count in the second line.
3. **Not modelled**: clocks under power limits, stragglers, data loading, congestion by other jobs, differences between
   versions of kernels.

## More

- [blind.md](blind.md): the batches by source and class, what was asked of them and what happened to the protocol.
- [accuracy-details.md](accuracy-details.md): every lab and framework left out, choices among plans, memory, known jobs,
  collectives, what the residuals are made of, and what was fitted.
- [rl.md](rl.md#how-far-to-trust-it): steps of RL post-training, which are a quarter to a third off on a source left out
  of the fit, and their phases more. Compare placements by them, and measure one step before you buy.
- `clusterwright validate` checks the published runs as shipped; `clusterwright validate my-runs.csv` your own.
"""


def short_page(record: Mapping[str, Any], details: str) -> str:
    """The text of ``docs/accuracy.md``: the batches, and the first table of the detailed page.

    Arguments:
        record: judgements of batches.
        details: the text of ``docs/accuracy-details.md``.
    """
    totals = Totals.of(_blind(record))
    (best, least), (worst, most) = totals.sources[0], totals.sources[-1]
    return SHORT_TEXT.format(
        sentence=textwrap.fill(sentence(record), WIDTH),
        unseen=percent(totals.by_source),
        batches=len(_blind(record)),
        lab=_reached(details, "step time, lab left out, equal weight a lab: MAPE"),
        worst=_reached(details, "worst lab"),
        inside=percent(totals.inside),
        held=_reached(details, "80 % intervals, lab left out: hold (mean over labs)"),
        memory=_reached(details, "peak memory, lab left out, equal weight a lab: MAPE"),
        infeasible=f"{totals.count('infeasible')} of {totals.count('ran')}",
        regret=_reached(details, "regret, every group of 2 plans or more: mean"),
        few=_reached(details, "after 3 own runs: mean over sites; most").partition(";")[0],
        ends=f"Best predicted was {best} ({percent(least['mape'])}), worst {worst} ({percent(most['mape'])}).",
        plot=PLOT,
        classes=_table(CLASS_HEADERS, _class_rows(_blind(record))),
    )


def _reached(details: str, figure: str) -> str:
    """The last cell of the detailed page's row of a figure."""
    line = next(line for line in details.splitlines() if line.startswith(f"| {figure} |"))
    return line.strip("| ").rpartition("|")[2].strip()


def _blind(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each for each in record["judgements"] if each["of"] == BLIND]


def main() -> None:
    """Judges a batch, or writes the page and README's sentence."""
    if sys.argv[1:2] == ["judge"]:
        judge(int(sys.argv[2]), Path(sys.argv[3]))
        return
    write_pages()


def write_pages() -> None:
    """Both pages, their plot, and README's sentence."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    writing.write(PAGE, page(record), replace=True)
    writing.write(SHORT, short_page(record, DETAILS.read_text(encoding="utf-8")), replace=True)
    sources = Totals.of(_blind(record)).sources
    names = [f"{name} ({group['covered']} runs)" for name, group in sources]
    title = "Runs that had no part in the model, by source"
    errors = [group["mape"] for _, group in sources]
    plots.save(ROOT / "docs" / plots.FOLDER, PLOT, lambda: plots.bars(names, errors, title))
    wrapped = textwrap.fill(sentence(record), WIDTH)
    text = SENTENCE.sub(rf"\g<1>{wrapped}\n\g<3>", README.read_text(encoding="utf-8"))
    writing.write(README, text, replace=True)


if __name__ == "__main__":
    main()
