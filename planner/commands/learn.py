"""``clusterwright learn``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.commands import options
from planner.question.asked_documents import LearnQuestion

if TYPE_CHECKING:
    from planner.api.learning import Lesson


@click.command()
@click.argument("logs", nargs=-1, type=options.PATH, metavar="LOG...")
@options.declared(LearnQuestion, ("plan", "oom"))
@click.option("--share", type=options.PATH, metavar="FILE", help="Write the site's rows without names.")
@click.option("--yes", is_flag=True, help="Write --share without asking.")
@options.declared(LearnQuestion, "site")
@options.json()
def learn(logs: tuple[Path, ...], share: Path | None, yes: bool, as_json: bool, **asked: Any) -> None:
    """Read step times out of training logs, note them in the site's journal, and adapt its predictions to them.

    Megatron-LM, Megatron-Bridge, NeMo, torchtitan, nanotron, DeepSpeed, llm-foundry, Hugging Face Trainer, MaxText and
    MLPerf logs are known. What ran is taken from the log where it dumps its arguments, else from --plan, or from a
    plan.json next to the log.

    \b
      clusterwright learn train.log --plan plan.json --site my-site
      clusterwright learn shortlist-megatron+slurm/rank-*/train.log --site my-site
      clusterwright learn --step-time 4.31s --plan plan.json --rank 2 --site my-site
      clusterwright learn --oom --plan plan.json --rank 3 --site my-site
      clusterwright learn --share rows.csv --site my-site
    """  # noqa: D301 - click reads the control character itself
    from planner.api import learning

    question = LearnQuestion(logs, **asked)
    if share is not None:
        _share(share, asked["site"], yes=yes, as_json=as_json)
        return
    found = learning.lesson(question)
    if as_json:
        from planner.commands.screen import render

        render.report(found.document())
        return
    _show(found)


def _show(found: Lesson) -> None:
    from planner.commands.screen import render

    for row in found.rows:
        notes = (*found.judged(row), *row.measured.notes, *found.unmatched(row))
        render.labelled("Run" if row.new else "Known", found.named(row), *notes)
    render.labelled("Journal", f"{sum(row.new for row in found.rows)} of {len(found.rows)} rows new, {found.site.runs}")
    render.labelled("Site", found.judgement())
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
