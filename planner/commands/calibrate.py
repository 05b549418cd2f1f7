"""``clusterwright calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o", "output", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Catalog folder to write to."
)
@click.option(
    "--cross-validate/--no-cross-validate",
    default=True,
    show_default=True,
    help="Hold out each lab in turn: gives honest errors and the intervals.",
)
@click.option(
    "--site",
    is_flag=True,
    help="FILE holds a few runs of one site: adapt the built-in efficiencies to them, with a strong prior.",
)
@click.option("--measure", "measures", is_flag=True, help="Time kernels on this machine instead (needs PyTorch).")
@click.option(
    "--table",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fit a table of timed kernels: instead of runs, or before them.",
)
@click.option(
    "--collectives",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Fit a table of timed collectives instead: columns op, gpus, message_bytes, time_us.",
)
@click.option("--accelerator", metavar="ID", help="What was timed (default: by the device's own name).")
@click.option("--device", default="auto", show_default=True, metavar="NAME", help="Device to time: cuda, cuda:1, cpu.")
@click.option("--tiny", is_flag=True, help="A few small kernels only, to see that it works.")
@click.option("--json", "as_json", is_flag=True, help="Print the document instead of the tables.")
def calibrate(
    file: Path | None,
    output: Path,
    cross_validate: bool,
    site: bool,
    measures: bool,
    table: Path | None,
    collectives: Path | None,
    accelerator: str | None,
    device: str,
    tiny: bool,
    as_json: bool,
) -> None:
    """Fit the few physical efficiencies to the measured runs in FILE and write them as a catalog overlay.

    Nominal figures are never touched. The fit starts from the priors of the built-in catalog, so that the same file
    gives the same result however often it is run. With --measure or --table, kernels are fitted instead of runs: one
    accelerator's entry, before any run. With both, kernels come first: how products fall short on small shapes is
    taken from the table, and the runs adjust the rest.

    \b
      clusterwright calibrate benchmarks/data/measured_runs.csv --table benchmarks/data/gemm_measured.csv -o my-catalog
      clusterwright calibrate my-runs.csv --site -o my-catalog
      clusterwright calibrate --measure -o my-catalog
      clusterwright calibrate --collectives nccl.csv --accelerator H100-SXM5-80GB -o my-catalog
      clusterwright plan llama3-8b --cluster dgx-h100:4 --catalog my-catalog
    """  # noqa: D301 - click reads the control character itself
    if collectives is not None:
        if file is not None or site or measures or table is not None:
            raise click.UsageError("--collectives fits a table of its own: drop FILE, --site, --measure and --table")
        _from_collectives(collectives, output, accelerator, as_json)
        return
    if sum((file is not None, measures, table is not None and file is None)) != 1 or (site and table is not None):
        raise click.UsageError("name one of: a FILE of runs, --measure, --table FILE")
    if site and file is None:
        raise click.UsageError("--site adapts to measured runs: name their FILE")
    if file is not None and site:
        _from_site(file, output, as_json)
    elif file is not None:
        _from_runs(file, output, table, cross_validate, as_json)
    else:
        _from_kernels(output, table, accelerator, device, tiny, as_json)


def _from_kernels(
    output: Path, table: Path | None, accelerator: str | None, device: str, tiny: bool, as_json: bool
) -> None:
    from dataclasses import asdict
    from functools import partial

    from planner import catalog as catalogs
    from planner.base.errors import WrongQuestion
    from planner.calibration.measuring import measure
    from planner.commands.screen import render

    known = catalogs.load()
    if table is not None:
        if accelerator is None:
            raise WrongQuestion("--table needs --accelerator ID: which part the kernels were timed on")
        found = measure.run_table(output, table, accelerator, known)
    else:
        bar = partial(render.progress, quiet=as_json)
        found = measure.run_measure(output, accelerator, device, tiny, bar, known)
    report = found.report
    if as_json:
        render.json(
            {
                "kind": "kernel-calibration",
                "schema_version": 1,
                "accelerator": found.accelerator,
                "rows": report.rows,
                "degrees_of_freedom": report.freedom,
                "mape": report.mape,
                "kinds": [asdict(each) for each in report.kinds],
                "levels_kept": found.kept,
                "files": [str(path) for path in found.written],
            }
        )
        return
    rows = [
        [k.kind, f"{k.rows:,}", *(f"{100 * share:.1f} %" for share in (k.prior_mape, k.mape, k.bias))]
        for k in report.kinds
    ]
    render.table(["kernels", "rows", "MAPE before", "after", "bias"], rows, align="lrrrr")
    render.text()
    render.labelled(
        "Fit", f"{found.accelerator}: {report.rows:,} kernels, {report.freedom:.1f} effective degrees of freedom"
    )
    if found.kept:
        render.labelled(
            "", "rates of matrix products, attention and memory stay as fitted to training runs of its generation"
        )
    for index, refused in enumerate(found.refused):
        render.labelled("" if index else "Refused", refused)
    render.labelled("Next", f"--catalog {output}     ({', '.join(str(path) for path in found.written)})")


def _from_collectives(path: Path, output: Path, accelerator: str | None, as_json: bool) -> None:
    import datetime

    from planner import catalog as catalogs
    from planner.calibration.fit import collectives
    from planner.commands.screen import render

    known = catalogs.load()
    found = collectives.calibrate(path, output, known, accelerator, datetime.date.today().isoformat())
    if as_json:
        render.json(
            {
                "kind": "collective-calibration",
                "schema_version": 1,
                "rows": len(found.table.rows),
                "left_out": dict(found.table.left_out),
                "entries": [*found.entries, *found.fabrics],
                "errors": [
                    {"what": what, "rows": rows, "before": before, "after": after}
                    for what, rows, before, after in found.errors
                ],
                "files": [str(each) for each in found.written],
            }
        )
        return
    rows = [
        [what, f"{n:,}", f"{100 * before:.1f} %", f"{100 * after:.1f} %"] for what, n, before, after in found.errors
    ]
    render.table(["collectives", "rows", "MAPE before", "after"], rows, align="lrrr")
    render.text()
    render.labelled("Fit", f"{len(found.table.rows):,} rows, {len(found.entries) + len(found.fabrics)} entries")
    for index, (reason, count) in enumerate(found.table.left_out.items()):
        render.labelled("" if index else "Excluded", f"{count:,}: {reason}")
    render.labelled("Next", f"--catalog {output}     ({', '.join(str(each) for each in found.written)})")


def _from_site(file: Path, output: Path, as_json: bool) -> None:
    import datetime

    from planner import catalog as catalogs
    from planner.base.errors import WrongQuestion
    from planner.base.resources import data
    from planner.calibration.fit import calibrate as fitting
    from planner.calibration.fit import overlay, site
    from planner.calibration.fit.frame import Frame
    from planner.calibration.runs import reading
    from planner.commands.screen import render
    from planner.performance import intervals
    from planner.performance.efficiency import Efficiencies

    overlay.check_free(output, "site.toml")
    known = catalogs.load()
    frame = Frame(known, [run for run in reading.read(file, known) if run.measured])
    if not frame.runs:
        raise WrongQuestion(f"{file}: no run with a time that can be predicted")
    # From what is shipped, not from a site's own overlay: fitting again gives the same.
    built_in = catalogs.Catalog((catalogs.CatalogLayer(catalogs.BUILT_IN, data("hardware_catalog")),))
    shipped = Efficiencies.of(built_in)
    found = site.adapted(frame, shipped)
    source, date = f"{len(frame.runs)} runs of {file.name}", datetime.date.today().isoformat()
    wider = site.widths(frame, shipped, intervals.read(built_in))
    written = overlay.write_overlay(output, site.changed(found, shipped), source, date, name="site.toml")
    if wider or (output / intervals.FOLDER / "site.csv").exists():
        written.append(intervals.write(output, wider, f"{source}, each held out in turn, {date}", "site.csv"))
    document = fitting.site_document(frame, shipped, found) | {"files": [str(path) for path in written]}
    if as_json:
        render.json(document)
    else:
        _show(document, output)


def _from_runs(file: Path, output: Path, table: Path | None, cross_validate: bool, as_json: bool) -> None:
    import datetime

    from planner import catalog as catalogs
    from planner.base.errors import WrongQuestion
    from planner.base.resources import data
    from planner.calibration.fit import calibrate as fitting
    from planner.calibration.fit import other_parameters, overlay, peaks
    from planner.calibration.fit.core import lab
    from planner.calibration.fit.frame import Frame
    from planner.calibration.measuring import tables
    from planner.calibration.runs import reading
    from planner.commands.screen import render
    from planner.performance import intervals
    from planner.performance.efficiency import Efficiencies

    priors = catalogs.load(data("hardware_catalog") / "priors")
    read = reading.read(file, priors)
    frame = Frame(priors, read)
    prior, kernels = Efficiencies.of(priors), 0
    if table is not None:
        prior, kernels = tables.informed(prior, priors, table)
    try:
        found = fitting.calibrate(frame, prior)
    except WrongQuestion as error:
        raise WrongQuestion(f"{file}: {error}") from None
    date = datetime.date.today().isoformat()
    source = f"{len(found.rows)} runs of {file.name}"
    if table is not None:
        source += f", shapes by {kernels:,} kernels of {table.name}"
    efficiencies = other_parameters.extended(priors, read, peaks.fitted(frame, found.fit.efficiencies))
    left_out, left, widths = None, fitting.skipped(found) if cross_validate else [], []
    if cross_validate and len({lab(frame.runs[i]) for i in found.rows}) > 1:
        labs = [lab(frame.runs[i]) for i in found.rows]
        with render.progress("leave one lab out", len(set(labs)), quiet=as_json) as advance:
            left_out = fitting.cross_validated(found, labs, advance)
        times = fitting.interval_widths(found, left_out) | fitting.other_widths(priors, read, prior)
        widths.append((times, f"{source}, leave-one-lab-out, {date}", f"{intervals.TIME}.csv"))
        held = fitting.memory_widths(frame, efficiencies)
        if held.get("all", intervals.Width(0.0, 0)).runs >= intervals.FEWEST:
            told = f"{held['all'].runs} runs of {file.name} whose peak was measured, a fifth held out at a time, {date}"
            widths.append((held, told, f"{intervals.MEMORY}.csv"))
    written = overlay.write_overlay(output, efficiencies, source, date)  # only now: an interrupted fit leaves nothing
    written += [intervals.write(output, *each) for each in widths]
    document = fitting.document(found, left_out, left) | {"files": [str(path) for path in written]}
    if as_json:
        render.json(document)
    else:
        _show(document, output)


def _show(document: dict[str, Any], output: Path) -> None:
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
        ("", "left_out", "each lab held out"),
    ):
        errors = document.get(key)
        if errors:
            held = f"MAPE {100 * errors['mape']:.1f} %, median {100 * errors['median_ape']:.1f} %"
            render.labelled(label, f"{held}, {what}")
    for index, each in enumerate(document.get("skipped", [])):
        render.labelled("" if index else "Skipped", each)
    render.labelled("Next", f"--catalog {output}     ({', '.join(document['files'])})")
