"""``clusterwright calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o", "output", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Catalog folder to write to."
)
@click.option(
    "--cross-validate/--no-cross-validate",
    default=True,
    show_default=True,
    help="Leave out each source in turn: the errors to believe, and the intervals.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the document instead of the tables.")
def calibrate(file: Path, output: Path, cross_validate: bool, as_json: bool) -> None:
    """Fit the few physical efficiencies to the measured runs in FILE and write them as a catalog overlay.

    Nominal figures are never touched. The fit starts from the priors of the built-in catalog, so that the same file
    gives the same result however often it is run.

    \b
      clusterwright calibrate benchmarks/data/measured_runs.csv -o my-catalog
      clusterwright plan llama3-8b --cluster dgx-h100:4 --catalog my-catalog
    """  # noqa: D301 - click reads the control character itself
    import datetime

    from planner import catalog as catalogs
    from planner import render
    from planner.accuracy import calibrate as fitting
    from planner.accuracy import intervals, overlay, runs
    from planner.accuracy.frame import Efficiencies, Frame
    from planner.errors import WrongQuestion
    from planner.resources import data

    priors = catalogs.load(data("hardware_catalog") / "priors")
    frame = Frame(priors, runs.read(file, priors))
    found = fitting.calibrate(frame, Efficiencies.of(priors))
    if not len(found.rows):
        raise WrongQuestion(f"{file}: no grade A pre-training run with a step time that can be predicted")
    date = datetime.date.today().isoformat()
    source = f"{len(found.rows) + len(found.extra)} runs of {file.name}"
    written = overlay.write_overlay(output, found.fit.efficiencies, source, date)
    left_out = None
    if cross_validate:
        sources = [frame.runs[i].group for i in found.rows]
        with render.progress("leave one source out", len(set(sources)), quiet=as_json) as advance:
            left_out = fitting.cross_validated(found, sources, advance)
        widths = fitting.interval_widths(found, left_out)
        written.append(intervals.write(output, widths, f"{source}, leave-one-source-out, {date}"))
    document = fitting.document(found, left_out) | {"files": [str(path) for path in written]}
    if as_json:
        render.json(document)
    else:
        _show(document, output)


def _show(document: dict[str, Any], output: Path) -> None:
    from planner import render

    moved = [m for m in document["factors"] if abs(m["factor"] - 1) > 0.02]
    rows = [[m["name"], f"x{m['factor']:.3f}", f"{m['spread']:.2f}"] for m in moved]
    render.table(["moved from its prior", "factor", "spread (log)"], rows, align="lrr")
    render.text()
    freedom = f"{document['degrees_of_freedom']:.1f} effective degrees of freedom"
    render.text(f"Fit       {document['rows']} runs, {document['parameters']} parameters, {freedom}")
    for label, key, what in (("Error", "fit", "on the runs fitted"), ("", "left_out", "each source left out")):
        errors = document[key]
        if errors:
            held = f"MAPE {100 * errors['mape']:.1f} %, median {100 * errors['median_ape']:.1f} %"
            render.text(f"{label:10}{held}, {what}")
    render.text(f"Next      --catalog {output}     ({', '.join(document['files'])})")
