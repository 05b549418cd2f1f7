"""``clusterwright learn`` and ``profile``: logs and layer times that were measured elsewhere, read in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands import options
from planner.question.document_options import LearnQuestion

if TYPE_CHECKING:
    from planner.api.learning import Lesson
    from planner.figures.profiles.importing import ImportedProfile
    from planner.schema.rl_site import RLLesson


@click.command()
@click.argument("logs", nargs=-1, type=options.PATH, metavar="LOG...")
@options.declared(LearnQuestion, ("plan", "dry_run"))
@click.option("--share", type=options.PATH, metavar="FILE", help="Write the site's rows without names.")
@click.option("--yes", is_flag=True, help="Write --share without asking.")
@options.declared(LearnQuestion, "site")
@options.json()
def learn(logs: tuple[Path, ...], share: Path | None, yes: bool, as_json: bool, **asked: Any) -> None:
    """Read step times out of training logs, note them in the site's journal, and adapt its predictions to them.

    Logs of Megatron-LM, NeMo, torchtitan, DeepSpeed, Hugging Face Trainer, MLPerf and some twenty others are known
    (docs/learning.md). What ran is taken from the log where it dumps its arguments, else from --plan, or from a
    plan.json next to the log. --dry-run shows what a log says, and needs no site.

    \b
      clusterwright learn train.log --dry-run
      clusterwright learn train.log --plan plan.json --site my-site
      clusterwright learn shortlist-megatron+slurm/rank-*/train.log --site my-site
      clusterwright learn --step-time 4.31s --plan plan.json --rank 2 --site my-site
      clusterwright learn --oom --plan plan.json --rank 3 --site my-site
      clusterwright learn --share rows.csv --site my-site
    """  # noqa: D301 - click reads the control character itself
    from planner.api import learning, learnt_steps

    question = LearnQuestion(logs, **asked)
    if share is not None:
        _share(share, asked["site"], yes=yes, as_json=as_json)
        return
    if learnt_steps.is_asked(question):
        _steps(learnt_steps.lesson(question), as_json=as_json)
        return
    if question.dry_run:
        _preview(question, as_json=as_json)
        return
    found = learning.lesson(question)
    if as_json:
        from planner.commands.screen import render

        render.report(found.document())
        return
    _show_lesson(found)


def _steps(lesson: RLLesson, *, as_json: bool) -> None:
    """Shows what a log of post-training taught."""
    from planner.base.units import format_many, format_seconds
    from planner.commands.screen import render
    from planner.schema.record import dump

    if as_json:
        render.json(dump(lesson))
        return
    rows = [
        [
            phase.phase,
            format_seconds(phase.measured_s),
            format_seconds(phase.predicted_s),
            f"{phase.factor:.2f}",
            format_many(phase.runs, "run"),
            " ".join(filter(None, (phase.accelerator, phase.software))),
        ]
        for phase in lesson.phases
    ]
    headers = ["phase", "measured", "predicted", "plans take", "from", "on"]
    render.table(headers, rows, align="lrrrrl", priority=["from"])
    render.text()
    state = "new" if lesson.new else "known: replaced"
    render.labelled("Run", lesson.source, *([state] if lesson.written else ["nothing was written: --dry-run"]))
    if lesson.left_out:
        render.labelled("Left out", *lesson.left_out)
    render.labelled("Journal", lesson.journal)
    render.labelled("Next", "clusterwright plan ... --task grpo --site DIR     (plans with these factors)")


def _preview(question: LearnQuestion, *, as_json: bool) -> None:
    """Shows what would be learned."""
    from planner.api import learning
    from planner.base.errors import NoAnswer
    from planner.commands.screen import render

    shown, reasons = learning.preview(question)
    if as_json:
        render.json(learning.previewed(shown, reasons))
    else:
        for preview in shown:
            render.labelled("Run", *preview.lines())
        if shown:
            render.labelled("Written", "nothing: --dry-run")
    if not any(preview.is_read for preview in shown):
        raise NoAnswer("; ".join(reasons))
    if not as_json:
        for reason in reasons:
            render.labelled("Not read", reason)


def _show_lesson(found: Lesson) -> None:
    from planner.commands.screen import render

    for row in found.rows:
        notes = (*found.judged(row), *row.measured.notes, *found.unmatched(row))
        render.labelled("Run" if row.new else "Known", found.named(row), *notes)
    render.labelled("Journal", f"{sum(row.new for row in found.rows)} of {len(found.rows)} rows new, {found.site.runs}")
    render.labelled("Site", *filter(None, (found.judgement(), found.surer())))
    render.labelled("Next", *found.next())


def _share(share: Path, site: Path | None, *, yes: bool, as_json: bool) -> None:
    from planner.api import learning
    from planner.base import writing
    from planner.base.errors import WrongQuestion
    from planner.commands.screen import render

    found = learning.shared(site)
    if not as_json:
        render.verbatim(found.text)
        for note in found.notes:
            click.echo(note, err=True)
    if not (yes or _agreed(f"Write these {found.rows} rows to {share}?")):
        raise WrongQuestion("nothing was written; --yes writes without asking")
    writing.write(share, found.text)
    if as_json:
        document = {"kind": "shared-runs", "schema_version": 1, "file": str(share), "rows": found.rows}
        render.json({**document, "notes": list(found.notes)})


def _agreed(question: str) -> bool:
    """Whether a person says yes; nobody there is a no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        return False


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
        render.json(_imported(found, written))
    else:
        _show_imported(found, written, output)


def _imported(found: ImportedProfile, written: list[Path]) -> dict[str, object]:
    return {
        "kind": "profile-import",
        "schema_version": 1,
        "profiles": [
            {
                **{name: getattr(each, name) for name in ("model", "accelerator", "precision", "sequence")},
                "points": each.measured,
                **{name: getattr(each, name) for name in ("rows", "source", "sha256", "date")},
                "file": str(path),
            }
            for each, path in zip(found.profiles, written, strict=True)
        ],
        "skipped_rows": found.skipped,
        "notes": list(found.notes),
    }


def _show_imported(found: ImportedProfile, written: list[Path], output: Path) -> None:
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
