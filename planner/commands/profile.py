"""``clusterwright profile``: layer times measured elsewhere, in place of the model's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from planner.figures.profiles.importing import ImportedProfile


@click.group()
def profile() -> None:
    """Use layer times measured elsewhere in place of modelled ones."""


@profile.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    required=True,
    help="Catalog folder that the profiles are written to.",
)
@click.option("--model", metavar="ID|FILE", help="Take rows of this model alone; what a JSON file is of.")
@click.option("--accelerator", metavar="ID", help="Take rows of this accelerator alone; what a JSON file is of.")
@click.option("--precision", metavar="P", help="What was measured, if the file does not state it (default: bf16).")
@click.option("--seq", "sequence", type=int, metavar="N", help="Tokens per sequence, if the file does not state it.")
@click.option(
    "--catalog",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Your own hardware, added to the built-in catalog.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the document instead of the table.")
def import_(file: Path, output: Path, catalog: Path | None, as_json: bool, **stated: Any) -> None:
    """Check the layer times in FILE and write them as a catalog overlay.

    FILE is a CSV (docs/profiles.md has the columns) or a JSON file of one model on one accelerator as Sailor writes
    them. Plans, estimates and validations with --catalog DIR then take the measured times of that model on that
    accelerator, and say so; everything that was not measured stays modelled.

    \b
      clusterwright profile import profiles.csv --model opt-350m -o my-catalog
      clusterwright profile import profile.json --model opt-350m --accelerator GH200-96GB -o my-catalog
      clusterwright estimate opt-350m --cluster gh200-4:4 --batch 64 tp=4 micro=4 --catalog my-catalog
    """  # noqa: D301 - click reads the control character itself
    from planner import catalog as catalogs
    from planner.commands.screen import render
    from planner.figures.profiles import importing, overlay

    found = importing.imported(file, catalogs.load(catalog), **stated)
    written = [overlay.write(output, each) for each in found.profiles]
    if as_json:
        render.json(_document(found, written))
    else:
        _show(found, written, output)


def _document(found: ImportedProfile, written: list[Path]) -> dict[str, object]:
    return {
        "kind": "profile-import",
        "schema_version": 1,
        "profiles": [
            {
                "model": each.model,
                "accelerator": each.accelerator,
                "precision": each.precision,
                "sequence": each.sequence,
                "points": each.measured,
                "rows": each.rows,
                "source": each.source,
                "sha256": each.sha256,
                "date": each.date,
                "file": str(path),
            }
            for each, path in zip(found.profiles, written, strict=True)
        ],
        "skipped_rows": found.skipped,
        "notes": list(found.notes),
    }


def _show(found: ImportedProfile, written: list[Path], output: Path) -> None:
    from planner.commands.screen import render

    rows = []
    for each in found.profiles:
        micros = [point.micro for points in each.points.values() for point in points]
        degrees = ", ".join(str(tp) for tp in sorted(each.points))
        span = f"{min(micros)}-{max(micros)}"
        rows.append([each.model, each.accelerator, each.precision, f"{each.sequence:,}", degrees, span, str(each.rows)])
    headers = ["model", "accelerator", "precision", "tokens", "TP", "micro-batch", "rows"]
    render.table(headers, rows, align="lllrlrr", priority=["rows", "tokens", "precision"])
    render.text()
    for index, note in enumerate(found.notes):
        render.labelled("" if index else "Assumes", note)
    if found.skipped:
        render.labelled("Skipped", f"{found.skipped:,} rows of other models or accelerators")
    files = str(written[0]) if len(written) == 1 else f"{len(written)} files in {written[0].parent}"
    render.labelled("Next", f"--catalog {output}     ({files})")
