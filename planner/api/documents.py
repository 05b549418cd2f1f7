"""Documents from Python: read again, compared, written for a launcher."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from planner import launchers
from planner.api import plan_sources
from planner.api.entry import asks, entry
from planner.api.records import as_cluster
from planner.launchers import Bundle
from planner.planning import comparison, document
from planner.question.document_options import ExportQuestion
from planner.schema.images import ImagePlan
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.record import Report
from planner.schema.reports import Comparison
from planner.schema.study import StudyResult
from planner.site.folder import named


@entry
def load(path: str | Path) -> PlanSet | Plan | Procurement | StudyResult | ImagePlan | Comparison | Report:
    """The document at `path`, any that the program wrote (``-o FILE``, ``--json``, ``to_json``); one without a record
    of its own (a validation, calls of a plan, ...) as a :class:`~planner.schema.record.Report`.

    Raises:
        WrongQuestion: no such file, not JSON (with line), another kind or version, unknown or missing keys.

    >>> import tempfile
    >>> from planner import estimate
    >>> found = estimate("llama3-8b", "dgx-h100:1", tp=8)
    >>> file = Path(tempfile.mkdtemp()) / "plan.json"
    >>> _ = file.write_text(found.to_json())
    >>> load(file) == found
    True
    """
    found: PlanSet | Comparison | Report
    found = document.load_answer(Path(path).expanduser(), {"comparison": Comparison})
    return found


@entry
def compare(mine: str | Path | PlanSet | Plan, best: str | Path | PlanSet | Plan) -> Comparison:
    """What the recommended plan of `best` gains over that of `mine`, and where they differ.

    Raises:
        WrongQuestion: one of them cannot be read, or holds no plan.
        Inconsistent: a plan's figures contradict each other.

    >>> from planner import estimate
    >>> slow, fast = (estimate("llama3-8b", "dgx-h100:1", tp=8, recompute=r) for r in ("full", "none"))
    >>> compare(slow, fast).step < 1
    True
    """
    return comparison.compare(*(_first(each) for each in (mine, best)))


def _first(source: str | Path | PlanSet | Plan) -> Plan:
    if isinstance(source, PlanSet | Plan):
        return plan_sources.sound(document.chosen(source, None, source.kind))
    return plan_sources.sound(document.chosen(document.load(Path(source).expanduser()), None, str(source)))


class Exported(Report):
    """Files of a launcher: a table of them, and their texts."""

    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    """Folder (empty: the one named) -> its files, what is left to fill in, what is lost, how it is started."""


@asks(ExportQuestion)
def export(asked: ExportQuestion) -> Exported:
    """A plan, or each plan of a set, as the files of a launcher.

    Args: as declared.

    Raises:
        WrongQuestion: no such target, a plan that it cannot express or that does not fit, a folder that is taken.
        Inconsistent: a plan's figures contradict each other.

    >>> from planner import estimate
    >>> written = export(estimate("llama3-8b", "dgx-h100:1", tp=8), "megatron+slurm")
    >>> "job.sbatch" in written.bundles[""].files
    True
    """
    made = bundled(asked, lambda: {name: str(value) for name, value in (asked.set or {}).items()})
    if asked.output is not None:
        launchers.write(Path(asked.output).expanduser(), made.bundles, replace=asked.force)
    where = f" in {asked.output}" if asked.output else ""
    return Exported(
        document=exported(Path(asked.output or ""), made),
        summary=f"{made.plans - len(made.refused)} for {made.target}{where}",
        table=tuple(_files(made.bundles)),
        bundles=made.bundles,
    )


class Made(NamedTuple):
    """Files of a launcher that are not written yet."""

    bundles: Mapping[str, Bundle]
    """Folder -> its files."""
    refused: Sequence[str]
    """Why plans are left out."""
    run: str | None
    """Of several folders, the recommended plan's."""
    plans: int
    target: str


def bundled(asked: ExportQuestion, settings: Callable[[], Mapping[str, str]]) -> Made:
    """The files that a question about a document asks for; `settings` are read when the document is.

    Raises:
        WrongQuestion: no such target, a plan that it cannot express or that does not fit.
        Inconsistent: a plan's figures contradict each other.
    """
    target = asked.to if isinstance(asked.to, str) else "+".join(asked.to)
    cluster = None if asked.cluster is None else as_cluster(asked.cluster)
    chosen, alone, run = plan_sources.launched(
        asked.plans, rank=asked.rank, workload=asked.workload, alternative=asked.alternative, lost=asked.lost
    )
    site = named(None if asked.site is None else Path(asked.site))
    made = plan_sources.Wanted(target, settings(), cluster, asked.benchmark, site.profile if site else None)
    bundles, refused = plan_sources.bundles(chosen, alone, made)
    return Made(bundles, refused, run if run in bundles else None, len(chosen), target)


def exported(folder: Path, made: Made) -> dict[str, Any]:
    """What was written, as JSON types; of several folders, which is to run."""
    written = {str(folder / name): json.loads(bundle.files["target.json"]) for name, bundle in made.bundles.items()}
    recommended = {} if made.run is None else {"recommended": str(folder / made.run)}
    return {"kind": "export", "schema_version": 1, "folders": written, "left_out": list(made.refused), **recommended}


def _files(bundles: Mapping[str, Bundle]) -> list[dict[str, Any]]:
    return [
        {"folder": name, "file": file, "size_bytes": len(text.encode())}
        for name, bundle in bundles.items()
        for file, text in bundle.files.items()
    ]
