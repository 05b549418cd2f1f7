"""``clusterwright calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import options
from planner.question.asked_documents import CalibrateQuestion


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
