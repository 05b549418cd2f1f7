"""Documents from Python: read again, compared, written for a launcher, and as a page to look at."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple, cast

from planner import launchers, report
from planner.api import plan_sources
from planner.api.entry import asks, entry
from planner.api.records import as_cluster
from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.launchers import Bundle, post_training
from planner.planning import comparison, document
from planner.question.document_options import ExportQuestion
from planner.schema.images import ImagePlan
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.record import Report
from planner.schema.reports import Comparison
from planner.schema.rl import RLPlanSet
from planner.schema.study import StudyResult
from planner.site.folder import named


@entry
def load(path: str | Path) -> PlanSet | Plan | Procurement | StudyResult | ImagePlan | RLPlanSet | Comparison | Report:
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
    source = asked.plans
    if isinstance(source, str | Path) and document.is_post_training(Path(source).expanduser()):
        source = cast(RLPlanSet, plan_sources.opened(source, document.load_document)[0])
    if isinstance(source, RLPlanSet):
        return _post_training(source, target, asked, settings())
    cluster = None if asked.cluster is None else as_cluster(asked.cluster)
    chosen, alone, run, mixed = plan_sources.launched(
        source, rank=asked.rank, workload=asked.workload, alternative=asked.alternative, lost=asked.lost
    )
    site = named(None if asked.site is None else Path(asked.site))
    profile = site.profile if site else None
    made = plan_sources.Wanted(target, settings(), cluster, asked.benchmark, profile, asked.preflight, mixed)
    bundles, refused = plan_sources.bundles(chosen, alone, made)
    return Made(bundles, refused, run if run in bundles else None, len(chosen), target)


def _post_training(answer: RLPlanSet, target: str, asked: ExportQuestion, given: Mapping[str, str]) -> Made:
    """Files of a post-training: the placement of that rank, else the recommended one."""
    for name in ("benchmark", "preflight", "lost", "workload", "alternative", "cluster"):
        if getattr(asked, name) not in (None, False):
            raise WrongQuestion(f"--{name}: a plan of post-training is exported without; leave it out")
    plan_sources.consistent(answer)
    rank = asked.rank or 1
    if not 1 <= rank <= len(answer.plans):
        raise WrongQuestion(f"--rank {rank}: it holds placements 1 to {len(answer.plans)}")
    return Made({"": post_training.made(answer, answer.plans[rank - 1], target, given)}, (), None, 1, target)


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


HEAD_BYTES = 4096
"""Of a page, in which it says what wrote it."""
Shown = str | Path | PlanSet | Plan | Procurement | StudyResult | ImagePlan | RLPlanSet | Comparison | Report
"""A document, an answer, or the file that holds one."""


@entry
def page(documents: Shown | Sequence[Shown], output: str | Path | None = None) -> str:
    """Documents as one HTML page: the recommendation, charts, a timeline of the step, machines, sources.

    Args:
        documents: One or several: plans, an offer, a study, shares of images, a comparison, a validation, the
            collectives of a plan (`clusterwright comm show --json`), what fits (`clusterwright fit --json`), or files.
        output: File to write; a page that stands there is replaced, another file is not.

    Raises:
        WrongQuestion: one cannot be read, `output` is another file, or the libraries that draw are not installed
            (`clusterwright[report]`).
        Inconsistent: its figures contradict each other.

    >>> from planner import estimate
    >>> html = page(estimate("llama3-8b", "dgx-h100:1", tp=8))  # doctest: +SKIP
    """
    return written(documents if isinstance(documents, list | tuple) else [cast(Shown, documents)], output)


def written(documents: Sequence[Shown], output: str | Path | None) -> str:
    """The same of several, for the command line: its messages are in the words of flags.

    Raises:
        WrongQuestion: there is nothing to show, or `output` is what the page shows, or another file that is no page.
    """
    if not documents:
        raise WrongQuestion("documents: nothing to show; name at least one")
    if output is not None and any(_is_same(source, output) for source in documents):
        raise WrongQuestion(f"{output}: is what the page shows; name another file for it, such as report.html")
    target = None if output is None else Path(output).expanduser()
    if target is not None and target.is_file() and not _is_page(target):
        raise WrongQuestion(
            f"{output}: exists already, and is no page of clusterwright; name another file, or remove it"
        )
    text = report.page(_contents(documents))
    if target is not None:
        writing.write(target, text, replace=True)
    return text


def _is_page(file: Path) -> bool:
    """Whether it was written here: by what its head says."""
    try:
        with file.open("rb") as opened:
            return report.GENERATOR.encode() in opened.read(HEAD_BYTES)
    except OSError:
        return False


def _is_same(source: Shown, output: str | Path) -> bool:
    files = [os.path.realpath(Path(each).expanduser()) for each in (source, output) if isinstance(each, str | Path)]
    return len(files) == 2 and files[0] == files[1]


def _contents(documents: Sequence[Shown]) -> list[report.Content]:
    """What is to be seen of documents; before the first of several plans those of one model, against each other."""
    read = [_read(source) for source in documents]
    contents = [report.shown(kept, origin) if not isinstance(kept, report.Content) else kept for origin, kept in read]
    plans = [(origin, kept) for origin, kept in read if isinstance(kept, PlanSet | Plan)]
    if len(plans) > 1:
        place = next(place for place, (_, kept) in enumerate(read) if isinstance(kept, PlanSet | Plan))
        contents.insert(place, report.of_answers(plans))
    return contents


def _read(source: Shown) -> tuple[str, report.Kept | report.Content]:
    """Where a document is from, and the document, which is checked, or its page."""
    if isinstance(source, str | Path):
        origin, found = Path(source).name, report.file(Path(source).expanduser())
    elif isinstance(source, Comparison | Report):
        origin, found = source.title(), report.parsed(json.loads(source.to_json()), source.title())
    else:
        origin, found = source.kind, source
    if not isinstance(found, report.Content):
        plan_sources.warn_of_changes(found, origin)
        plan_sources.consistent(found)
    return origin, found
