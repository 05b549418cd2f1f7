"""Questions about documents and measured runs, each as the one record that declares its keywords and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from planner.question.option import Option
from planner.question.plan_options import SITE
from planner.question.purchase_options import WORKERS, engine

if TYPE_CHECKING:
    from planner.question.given import Launched, Machines, Named, Source
    from planner.schema.images import ImagePlan
    from planner.schema.study import StudyResult

WORKLOAD = Option("Of an offer: whose plan.", "Of an offer: whose plan.", metavar="NAME")
ALTERNATIVE = Option("Which alternative of an offer (default: 1).", "Of an offer: which (1).", metavar="N")

# A field is a few lines: its name and type, the flag's help, what the keyword is said to be, all else.
# fmt: off


@dataclass(frozen=True)
class ExplainQuestion:
    """``clusterwright explain`` and :func:`planner.explain`."""

    plans: Annotated[Source | StudyResult | ImagePlan, Option(says="The document, or the file that holds it.")]
    _: KW_ONLY
    rank: Annotated[int | None, Option(
        "Which plan of a set (default: 1).",
        "Which plan of a set (1).", metavar="N")] = None
    workload: Annotated[str | None, WORKLOAD] = None
    alternative: Annotated[int | None, ALTERNATIVE] = None
    trace: Annotated[str | Path | Sequence[str | Path], Option(
        "Of a real step.",
        "Traces of a real run of the plan, one a rank: where its time went.", metavar="FILE", type=Path)] = ()
    steps: Annotated[int | None, Option(
        "Steps in each trace, where none is marked.",
        "Steps in each trace, where the profiler did not mark them.", metavar="N")] = None
    recheck: Annotated[bool, Option(
        "Ask its question again of today's catalog and compare every figure; exit code 1 if one differs or"
        " cannot be made again.",
        "Whether its question is asked again of today's catalog, and every figure compared.")] = False
    catalog: Annotated[str | Path | None, Option(
        "To recheck with: your hardware over the built-in.",
        "To recheck with: folder of your own hardware over the built-in catalog.", metavar="DIR")] = None
    site: Annotated[str | Path | None, Option(
        SITE.help,
        "To recheck with: folder of the site that the plans are of.", metavar="DIR")] = None
    cluster: Annotated[Named | Sequence[Named], Option(
        "To recheck with: the cluster's file that a plan was made from.",
        "To recheck with: clusters of your own that the plans were made from.", metavar="FILE.toml", type=Path)] = ()
    table: Annotated[str | Path | Sequence[str | Path], Option(
        "To recheck with: the measured times by which comm choose picked.",
        "To recheck with: the measured times by which `comm choose` picked.", metavar="[POOL=]FILE")] = ()
    verbose: Annotated[bool, Option(
        "List every assumption, with what changes it.",
        "Whether every assumption is listed.", flags=("-v", "--verbose"))] = False


@dataclass(frozen=True)
class ExportQuestion:
    """``clusterwright export`` and :func:`planner.export`."""

    plans: Annotated[Launched, Option(says="The document, or the file that holds it.")]
    to: Annotated[str | Sequence[str], Option(
        "megatron, megatron+slurm, ...; list: all.",
        'Targets, chained: ``"megatron+slurm"`` or ``["megatron", "slurm"]``.', metavar="TARGET", complete="targets")]
    output: Annotated[str | Path | None, Option(
        "Folder (default: FILE-TARGET).",
        "Folder to write; nothing is written without one.", metavar="DIR", flags=("-o",))] = None
    _: KW_ONLY
    rank: Annotated[int | None, Option(
        "Only this plan of a set (default: a folder for each).",
        "Only this plan of a set.", metavar="N")] = None
    lost: Annotated[int | None, Option(
        "The plan that the recommended one continues with when N nodes are lost.",
        "In place of it, what the recommended plan continues with when so many nodes are lost.", metavar="N")] = None
    workload: Annotated[str | None, WORKLOAD] = None
    alternative: Annotated[int | None, ALTERNATIVE] = None
    set: Annotated[Mapping[str, str | float] | None, Option(
        "Set a value that a plan does not have.",
        "Settings that a plan does not have.", metavar="NAME=VALUE", unset=())] = None
    cluster: Annotated[Machines | None, Option(
        "The plan's cluster, if it came from a file (astra-sim: its nodes and accelerators).",
        "The plan's own, for ``\"astra-sim\"``, where it is not in the catalog.", metavar="FILE.toml",
        type=Path)] = None
    site: Annotated[str | Path | None, Option(
        "The site's folder, whose site.toml is applied (or CLUSTERWRIGHT_SITE).",
        "The site's folder, whose profile is applied (else that of ``CLUSTERWRIGHT_SITE``).", metavar="DIR")] = None
    benchmark: Annotated[bool, Option(
        "Fifty steps on mock data for each plan, and a script that runs them in turn: learn reads what they print.",
        "Fifty steps on mock data for each plan, and a script that runs them in turn.")] = False
    preflight: Annotated[bool, Option(
        "Check the machines first (2 min): memory, clocks, bandwidth against the plan's.",
        "Whether the machines are checked first, against the figures that the plan was priced with.")] = False
    force: Annotated[bool, Option(
        "Replace a folder that export wrote.",
        "Whether a folder that export wrote is replaced.")] = False


@dataclass(frozen=True)
class LearnQuestion:
    """``clusterwright learn`` and :func:`planner.learn`."""

    logs: Annotated[str | Path | Sequence[str | Path], Option(says="Training logs.")] = ()
    _: KW_ONLY
    site: Annotated[str | Path | None, Option(
        SITE.help,
        "Folder of the site (or the environment variable ``CLUSTERWRIGHT_SITE``).", metavar="DIR")] = None
    plan: Annotated[str | Path | None, Option(
        "What ran, where LOG does not say it.",
        "A plan or a set of plans: what ran, where the logs do not say it.", metavar="FILE")] = None
    rank: Annotated[int | None, Option(
        "Which plan of a set (default: the one LOG allows).",
        "Which plan of a set.", metavar="N")] = None
    set: Annotated[str | Sequence[str], Option(
        "Fill a column of docs/runs.md.",
        'Columns of ``docs/runs.md`` that neither says: ``"accelerator=H100-SXM5-80GB"``.',
        metavar="COLUMN=VALUE")] = ()
    step_time: Annotated[str | None, Option(
        "No log, but a time of a step: 4.31s.",
        'In place of logs, a time: ``"4.31s"``.', metavar="TIME")] = None
    oom: Annotated[bool, Option(
        "No log, but a run that ran out of memory.",
        "In place of logs: the plan ran out of memory.")] = False
    failed: Annotated[bool, Option(
        "Learn the speed of runs that failed, too.",
        "Whether runs that failed teach their speed, too.")] = False
    accept: Annotated[bool, Option(
        "Learn runs more than twice off their prediction, too.",
        "Whether runs more than twice off their prediction are learned, too.")] = False
    dry_run: Annotated[bool, Option(
        "Show what would be learned, and write nothing.",
        "Whether to say what would be learned, run by run, and write nothing.")] = False


@dataclass(frozen=True)
class ValidateQuestion:
    """``clusterwright validate`` and :func:`planner.validate`."""

    runs: Annotated[str | Path | None, Option(
        says="A CSV with the columns of ``docs/runs.md``; none: the site's, without a site the published ones.")] = None
    _: KW_ONLY
    by: Annotated[Literal["source", "model", "accelerator", "task"], Option(
        "What rows are grouped by.",
        "What runs are grouped by.")] = "source"
    oom_risk: Annotated[float | str, Option(
        "OOM probability at which runs are predicted infeasible, in addition to 50 %.",
        "Chance of running out of memory at which runs are called infeasible.", metavar="SHARE")] = "5 %"
    catalog: Annotated[str | Path | None, Option(
        "Your own hardware or calibration, added to the built-in catalog.",
        "Folder of your own hardware or calibration over the built-in catalog.", metavar="DIR")] = None
    site: Annotated[str | Path | None, Option(
        SITE.help,
        "Folder of a site, whose fitted catalog is used.", metavar="DIR")] = None


@dataclass(frozen=True)
class CalibrateQuestion:
    """``clusterwright calibrate`` and :func:`planner.calibrate`."""

    runs: Annotated[str | Path | None, Option(says="A CSV of measured runs.")] = None
    _: KW_ONLY
    output: Annotated[str | Path, Option(says="Folder to write to.")]
    cross_validate: Annotated[bool, Option(
        "Hold out each lab in turn: gives honest errors and the intervals.",
        "Whether each source is left out in turn: the errors to believe, and the intervals.",
        flags=("--cross-validate/--no-cross-validate",))] = True
    site: Annotated[bool, Option(
        says="Whether the runs are a few of one site, and what is shipped is adapted to them, little.")] = False
    measure: Annotated[bool, Option(
        "Time kernels on this machine instead (needs PyTorch).",
        "Whether to time kernels on this machine instead (needs PyTorch).")] = False
    table: Annotated[str | Path | None, Option(
        "Fit a table of timed kernels: instead of runs, or before them.",
        "A CSV of timed kernels, instead of runs or before them.", metavar="FILE")] = None
    collectives: Annotated[str | Path | None, Option(
        "Fit a table of timed collectives instead: columns op, gpus, message_bytes, time_us.",
        "A CSV of timed collectives instead.", metavar="FILE")] = None
    accelerator: Annotated[str | None, Option(
        "What was timed (default: by the device's own name).",
        "Id of what was timed.", metavar="ID")] = None
    device: Annotated[str, Option(
        "Device to time: cuda, cuda:1, cpu.",
        'What to time: ``"cuda:1"``, ``"cpu"``.', metavar="NAME")] = "auto"
    tiny: Annotated[bool, Option(
        "A few small kernels only, to see that it works.",
        "Whether a few small kernels are enough, to see that it works.")] = False
    workers: Annotated[int, Option(
        WORKERS.help,
        "Processes that make the fits which hold runs out.", metavar="K", range=WORKERS.range)] = 1
    engine: Annotated[str | None, engine(
        "Make the fits that hold runs out",
        'A Dask cluster that makes them, as ``"dask://HOST:PORT"``.')] = None
