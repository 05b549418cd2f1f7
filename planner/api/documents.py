"""Documents from Python: read again, compared, written for a launcher."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner import launchers
from planner.api import plan_sources
from planner.api.entry import entry
from planner.api.plan_sources import Source
from planner.api.records import Machines, as_cluster
from planner.launchers import Bundle
from planner.planning import comparison, document
from planner.schema.comparison import Comparison
from planner.schema.images import ImagePlan
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.record import Report
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


@dataclass(frozen=True, kw_only=True, repr=False)
class Exported(Report):
    """Files of a launcher: a table of them, and their texts."""

    bundles: Mapping[str, Bundle] = field(default_factory=dict)
    """Folder (empty: the one named) -> its files, what is left to fill in, what is lost, how it is started."""


@entry
def export(
    plans: Source,
    to: str | Sequence[str],
    output: str | Path | None = None,
    *,
    rank: int | None = None,
    lost: int | None = None,
    workload: str | None = None,
    alternative: int | None = None,
    set: Mapping[str, str | float] | None = None,
    cluster: Machines | None = None,
    site: str | Path | None = None,
    benchmark: bool = False,
    force: bool = False,
) -> Exported:
    """A plan, or each plan of a set, as the files of a launcher.

    Args:
        plans: The document, or the file that holds it.
        to: Targets, chained: ``"megatron+slurm"`` or ``["megatron", "slurm"]``.
        output: Folder to write; nothing is written without one.
        rank: Only this plan of a set.
        lost: In place of it, what the recommended plan continues with when so many nodes are lost.
        workload: Of an offer: whose plan.
        alternative: Of an offer: which (1).
        set: Settings that a plan does not have.
        cluster: The plan's own, for ``"astra-sim"``, where it is not in the catalog.
        site: The site's folder, whose profile is applied (else that of ``CLUSTERWRIGHT_SITE``).
        benchmark: Fifty steps on mock data for each plan, and a script that runs them in turn.
        force: Whether a folder that export wrote is replaced.

    Raises:
        WrongQuestion: no such target, a plan that it cannot express or that does not fit, a folder that is taken.
        Inconsistent: a plan's figures contradict each other.

    >>> from planner import estimate
    >>> written = export(estimate("llama3-8b", "dgx-h100:1", tp=8), "megatron+slurm")
    >>> "job.sbatch" in written.bundles[""].files
    True
    """
    target = to if isinstance(to, str) else "+".join(to)
    chosen, alone, run = plan_sources.launched(plans, rank=rank, workload=workload, alternative=alternative, lost=lost)
    given = {name: str(value) for name, value in (set or {}).items()}
    own = None if cluster is None else as_cluster(cluster)
    known = named(None if site is None else Path(site))
    bundles, refused = plan_sources.bundles(
        chosen, alone, target, given, own, benchmark, known.profile if known else None
    )
    if output is not None:
        launchers.write(Path(output).expanduser(), bundles, replace=force)
    return Exported(
        document=exported(Path(output or ""), bundles, refused, run if run in bundles else None),
        summary=f"{len(chosen) - len(refused)} for {target}{f' in {output}' if output else ''}",
        table=tuple(_files(bundles)),
        bundles=bundles,
    )


def exported(
    folder: Path, bundles: Mapping[str, Bundle], refused: Sequence[str], run: str | None = None
) -> dict[str, Any]:
    """What was written, as JSON types; of several folders, which is to `run`."""
    written = {str(folder / name): json.loads(bundle.files["target.json"]) for name, bundle in bundles.items()}
    recommended = {} if run is None else {"recommended": str(folder / run)}
    return {"kind": "export", "schema_version": 1, "folders": written, "left_out": list(refused), **recommended}


def _files(bundles: Mapping[str, Bundle]) -> list[dict[str, Any]]:
    return [
        {"folder": name, "file": file, "size_bytes": len(text.encode())}
        for name, bundle in bundles.items()
        for file, text in bundle.files.items()
    ]
