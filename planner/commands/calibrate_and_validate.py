"""``clusterwright calibrate`` and ``validate``: fits to measured runs, and errors on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from planner.commands import options
from planner.question.document_options import CalibrateQuestion, ValidateQuestion


@click.command()
@click.argument("file", required=False, type=options.PATH)
@click.option("-o", "output", type=options.PATH, metavar="DIR", help="Catalog folder to write to; a site has its own.")
@options.declared(CalibrateQuestion, "cross_validate")
@click.option(
    "--site",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Adapt the built-in efficiencies, with a strong prior, to runs of one site: FILE, or the journal in DIR.",
)
@options.declared(CalibrateQuestion, ("measure", "engine"))
@options.json("Print the document instead of the tables.")
def calibrate(
    file: Path | None,
    output: Path | None,
    site: str | None,
    workers: int,
    engine: str | None,
    as_json: bool,
    **fitted: Any,
) -> None:
    """Fit the few physical efficiencies to the measured runs in FILE and write them as a catalog overlay.

    Nominal figures are never touched. The fit starts from the priors of the built-in catalog, so that the same file
    gives the same result however often it is run. With --measure or --table, kernels are fitted instead of runs: one
    accelerator's entry, before any run. With both, kernels come first: how products fall short on small shapes is
    taken from the table, and the runs adjust the rest.

    \b
      clusterwright calibrate benchmarks/data/measured_runs.csv --table benchmarks/data/gemm_measured.csv -o my-catalog
      clusterwright calibrate my-runs.csv --site -o my-catalog
      clusterwright calibrate --site my-site
      clusterwright calibrate --measure -o my-catalog
      clusterwright calibrate --collectives nccl.csv --accelerator H100-SXM5-80GB -o my-catalog
      clusterwright plan llama3-8b --cluster dgx-h100:4 --catalog my-catalog
    """  # noqa: D301 - click reads the control character itself
    from functools import partial

    from planner.base.processes import Workers
    from planner.calibration import run
    from planner.commands.screen import render

    if site and site.endswith(".csv") and file is None:
        file, site = Path(site), ""  # the file behind the flag
    if site:
        if file is not None or output is not None:
            raise click.UsageError("--site DIR fits that folder's journal and writes to its catalog: drop FILE and -o")
        _of_site(Path(site), as_json)
        return
    if output is None:
        raise click.UsageError("Missing option '-o': the catalog folder to write to.")
    bar = partial(render.progress, quiet=as_json)
    shared_by = Workers(workers, engine)
    fit = run.FitOptions(site=site is not None, workers=shared_by, **fitted)
    document = run.calibrate(file, output, fit, bar)
    if as_json:
        render.report(document)
    else:
        _SHOWN[document["kind"]](document, output)


def _of_site(folder: Path, as_json: bool) -> None:
    from planner.api import learning
    from planner.commands.screen import render

    site, document = learning.refitted(folder)
    if as_json:
        render.report(document)
    else:
        _show_runs(document, site.catalog, f"--site {folder}")


def _show_kernels(document: dict[str, Any], output: Path) -> None:
    from planner.commands.screen import render

    rows = [
        [k["kind"], f"{k['rows']:,}", *(f"{100 * k[share]:.1f} %" for share in ("prior_mape", "mape", "bias"))]
        for k in document["kinds"]
    ]
    render.table(["kernels", "rows", "MAPE before", "after", "bias"], rows, align="lrrrr")
    render.text()
    freedom = f"{document['degrees_of_freedom']:.1f} effective degrees of freedom"
    render.labelled("Fit", f"{document['accelerator']}: {document['rows']:,} kernels, {freedom}")
    if document["levels_kept"]:
        render.labelled(
            "", "rates of matrix products, attention and memory stay as fitted to training runs of its generation"
        )
    for index, refused in enumerate(document["refused"]):
        render.labelled("" if index else "Refused", refused)
    render.labelled("Next", f"--catalog {output}     ({', '.join(document['files'])})")


def _show_collectives(document: dict[str, Any], output: Path) -> None:
    from planner.commands.screen import render

    rows = [
        [e["what"], f"{e['rows']:,}", f"{100 * e['before']:.1f} %", f"{100 * e['after']:.1f} %"]
        for e in document["errors"]
    ]
    render.table(["collectives", "rows", "MAPE before", "after"], rows, align="lrrr")
    render.text()
    render.labelled("Fit", f"{document['rows']:,} rows, {len(document['entries'])} entries")
    for index, (reason, count) in enumerate(document["left_out"].items()):
        render.labelled("" if index else "Excluded", f"{count:,}: {reason}")
    render.labelled("Next", f"--catalog {output}     ({', '.join(document['files'])})")


def _show_runs(document: dict[str, Any], output: Path, use: str = "") -> None:
    from planner.commands.screen import render

    moved = [m for m in document["factors"] if abs(m["factor"] - 1) > 0.02]
    rows = [[m["name"], f"x{m['factor']:.3f}", f"{m['spread']:.2f}"] for m in moved]
    render.table(["changed from its prior", "factor", "spread (log)"], rows, align="lrr")
    render.text()
    freedom = f"{document['degrees_of_freedom']:.1f} effective degrees of freedom"
    render.labelled("Fit", f"{document['rows']} runs, {document['parameters']} parameters, {freedom}")
    for label, key, what in (
        ("Before", "before", "with the built-in efficiencies"),
        ("Error", "fit", "on the runs fitted"),
        ("", "left_out", "each configuration held out" if "before" in document else "each lab held out"),
    ):
        errors = document.get(key)
        if errors:
            held = f"MAPE {100 * errors['mape']:.1f} %, median {100 * errors['median_ape']:.1f} %"
            render.labelled(label, f"{held}, {what}")
    for index, each in enumerate(document.get("skipped", [])):
        render.labelled("" if index else "Skipped", each)
    render.labelled("Next", f"{use or f'--catalog {output}'}     ({', '.join(document['files'])})")


_SHOWN = {"kernel-calibration": _show_kernels, "collective-calibration": _show_collectives, "calibration": _show_runs}
"""Kind of document -> what prints it."""


@click.command()
@click.argument("file", required=False, type=options.PATH)
@options.declared(ValidateQuestion, "by")
@options.output("Write every run's prediction to a CSV.")
@options.declared(ValidateQuestion, ("catalog", "site"), "oom_risk")
@options.json("Print the document instead of the tables.")
def validate(file: Path | None, output: Path | None, as_json: bool, **asked: Any) -> None:
    """Predict every measured run in FILE as it was configured, and print the errors.

    FILE is a CSV with the columns of docs/runs.md; add rows of your own runs the same way.
    Nothing is searched: missing values of a row are inferred by stated rules. A run that cannot be predicted counts as
    not covered. Without FILE, the runs are those of --site, and without both the published ones that are shipped
    (`clusterwright examples measured_runs` prints them).

    \b
      clusterwright validate
      clusterwright validate my-runs.csv --by model -o per-run.csv
      clusterwright validate --site my-site
    """  # noqa: D301 - click reads the control character itself
    from planner.api import runs
    from planner.base import writing
    from planner.commands.screen import render

    document, per_run = runs.validated(ValidateQuestion(file, **asked))
    if output is not None:
        writing.write(output, per_run, replace=True)
    if as_json:
        render.report(document)
        return
    if document["kind"] == "rl-validation":
        _show_post_training(document)
        return
    _show(document, output)


def _show_post_training(document: dict[str, Any]) -> None:
    """Errors of steps of RL post-training."""
    from planner.commands.screen import render
    from planner.rl import validation

    rows = [
        [group["name"], str(group["n"]), *(percent(group[key]) for key in ("mape", "median", "bias", "in_80"))]
        for group in (*document["groups"], {"name": "all", **document["overall"]})
    ]
    render.table(["source", "steps", "MAPE", "median", "bias", "in 80 %"], rows, align="lrrrrr", priority=["median"])
    render.text()
    for label, text in validation.lines(document):
        render.labelled(label, text)


def _show(document: dict[str, Any], output: Path | None) -> None:
    from planner.base.units import format_risk
    from planner.commands.screen import render

    groups = sorted(document["groups"], key=lambda group: -group["covered"])
    rows = [_row(group["name"], group) for group in groups if group["covered"]]
    rows.append(_row("all", document["overall"]))
    headers = [document["by"], "runs", "covered", "MAPE", "median", "p90", "bias", "Spearman", "in 80 %", "infeasible"]
    render.table(headers, rows, align="l" + "r" * 9, priority=["Spearman", "p90", "runs", "infeasible"])
    render.text()
    if document["levers"]:
        _show_levers(document["levers"])
    overall = document["overall"]
    for each in document["coverage"]:
        share = f"{100 * each['covered'] / each['n']:.1f} %" if each["n"] else "-"
        render.labelled("Coverage", f"{each['covered']:,} of {each['n']:,} ({share}): {each['rows']}")
    memory, oom, choice = overall["memory"], overall["oom"], overall["choice"]
    if memory["n"]:
        render.labelled(
            "Memory",
            f"{memory['n']} measured: MAPE {percent(memory['mape'])}, bias {percent(memory['bias'])}, "
            f"in 80 % interval {percent(memory['interval80_coverage'], 0)}",
        )
    for label, each, at in (("Fits", oom, 0.5), ("", oom["at_risk"], oom["at_risk"]["oom_risk"])):
        render.labelled(
            label,
            f"at a risk of {format_risk(at)}: {each['called_infeasible']:,} of {oom['ran']:,} runs that fitted "
            f"are predicted infeasible; {each['foreseen']} of {oom['n']} out-of-memory runs are predicted",
        )
    if choice["groups"]:
        render.labelled(
            "Choice",
            f"{choice['groups']} groups of plans for one job: regret {percent(choice['mean_regret'])} on "
            f"average, {percent(choice['max_regret'])} at most; "
            f"pairs over 3 % apart in the right order {percent(choice['pairwise'])}",
        )
    if gain := document["profiles"]:
        errors = (
            f"{name}: MAPE {percent(gain[key]['mape'])}, bias {percent(gain[key]['bias'])}"
            for name, key in (("measured layer times", "measured"), ("modelled ones", "modelled"))
        )
        render.labelled("Profile", f"{gain['n']:,} runs that a profile holds for: {'; '.join(errors)}")
    for index, (rule, count) in enumerate(document["inferred"].items()):
        render.labelled("" if index else "Inferred", f"{count:,} x {rule}")
    if unread := document["unread_columns"]:
        render.labelled(
            "Not read", f"column{'s' * (len(unread) > 1)} {', '.join(unread)} (docs/runs.md has those that are)"
        )
    for index, each in enumerate(document["not_covered"][:8]):
        render.labelled("" if index else "Not covered", f"{each['n']:,} x {each['source']}: {each['reason']}")
    if output is not None:
        render.labelled("Next", f"every run's prediction is in {output}")


def _show_levers(levers: list[dict[str, Any]]) -> None:
    from planner.commands.screen import render

    render.text("Pairs of runs that differ in one lever alone:")
    heads = ["lever", "pairs", "over 3 % apart", "in order", "ratio off by (median)"]
    render.table(heads, lever_rows(levers), align="l" + "r" * 4)
    render.text()


def lever_rows(levers: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Cells of a table of levers: how many pairs differ in each, and how well these are told apart."""
    return [
        [
            lever["lever"],
            f"{lever['pairs']:,}",
            f"{lever['apart']:,}",
            percent(lever["ordered"]),
            percent(lever["ratio_error"]),
        ]
        for lever in levers
    ]


def _row(name: str, group: dict[str, Any]) -> list[str]:
    rank = group["spearman"]
    return [
        name,
        f"{group['n']:,}",
        f"{group['covered']:,}",
        *(percent(group[key]) for key in ("mape", "median_ape", "p90_ape", "bias")),
        "-" if rank is None else f"{rank:.3f}",
        percent(group["interval80_coverage"], 0),
        f"{group['oom']['called_infeasible']:,}",
    ]


def percent(value: float | None, places: int = 1) -> str:
    """A share in percent; a dash where there is none."""
    from planner.base.units import format_percent

    return "-" if value is None else format_percent(value, places)
