"""``clusterwright explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import options
from planner.question.asked_documents import ExplainQuestion


@click.command()
@click.argument("file", type=options.PATH)
@options.declared(ExplainQuestion, ("rank", "table"))
@options.json("Print the document as JSON.")
@options.declared(ExplainQuestion, "verbose")
def explain(file: Path, as_json: bool, **asked: Any) -> None:
    """Print a document again, with its reasons, after checking it: plans, an offer, a study, shares of images.

    With --trace: where the time of a real step went, next to the prediction. Traces are PyTorch's (Kineto JSON, gzipped
    or not) or Nsight Systems' exports to SQLite, one for each rank that was traced.

    \b
      clusterwright plan llama3-70b --cluster dgx-h100:16 -o plan.json
      clusterwright explain plan.json
      clusterwright explain plan.json --rank 2
      clusterwright explain plan.json --recheck
      clusterwright explain offer.json --workload base
      clusterwright explain plan.json --trace rank0.json.gz --trace rank8.json.gz
    """  # noqa: D301 - click reads the control character itself
    from planner.commands.screen import explained

    explained.show(ExplainQuestion(file, **asked), as_json=as_json)
