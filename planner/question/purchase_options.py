"""Questions about what to buy, rent or build, each as the one record that declares its keywords and flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from planner.question.option import Option
from planner.question.plan_options import CATALOG, METHOD, SITE

if TYPE_CHECKING:
    from planner.question.given import Progress
    from planner.schema.hardware import Node
    from planner.schema.workload import Model

WORKERS = Option("Number of processes.", metavar="K", range=(1, 256))


def engine(what: str, says: str) -> Option:
    """``--engine``; `what` says what a Dask cluster would do, as a verb."""
    return Option(f"{what} on a Dask cluster (needs the extra clusterwright[dask]).", says, metavar="dask://HOST:PORT")


# A field is a few lines: its name and type, the flag's help, what the keyword is said to be, all else.
# fmt: off


@dataclass(frozen=True)
class ProcureQuestion:
    """``clusterwright procure`` and :func:`planner.procure`."""

    portfolio: Annotated[str | Path | None, Option(
        says="A file (``docs/portfolio.md``); without one, the next six say what is trained.")] = None
    _: KW_ONLY
    model: Annotated[str | Path | Model | None, Option(
        "Model to train, if there is no portfolio.",
        "An id, a file, or a record (:func:`planner.model`, changed with ``replace``).", metavar="MODEL",
        complete="models")] = None
    tokens: Annotated[float | str | None, Option(
        "Tokens to train on, e.g. 2T.",
        'To train on: ``2e12`` or ``"2T"``.', metavar="N")] = None
    method: Annotated[str | None, Option(
        "What is trained.",
        "What of the model is trained.", metavar="NAME", complete=METHOD.complete)] = None
    batch: Annotated[int | str | None, Option(
        "Global batch in sequences.",
        "Sequences of a step, one number.", metavar="N")] = None
    seq: Annotated[int | str | None, Option(
        "Tokens per sequence: 8192 or 8k.",
        'Tokens per sequence: ``8192`` or ``"8k"``.', metavar="N")] = None
    precision: Annotated[str | None, Option(
        "bf16, fp16, fp8, mxfp8, mxfp4, nvfp4, fp8-delayed or -blockwise (default 16 bit).",
        '``"bf16"``, ``"fp8"``, ...', metavar="P")] = None
    budget: Annotated[float | str | None, Option(
        "Total budget, e.g. '$5M'.",
        'US dollars, or ``"$5M"``.', metavar="USD")] = None
    power: Annotated[float | str | None, Option(
        "Power limit of purchased machines, at the plug, e.g. 400kW.",
        'For machines that are bought: watts, or ``"400 kW"``.', metavar="W")] = None
    deadline: Annotated[float | str | None, Option(
        "Deadline, e.g. 60d.",
        'When it must be done: seconds, or ``"60 d"``.', metavar="TIME", flags=("--deadline", "--within"))] = None
    spend: Annotated[float | str | None, Option(
        "The most tokens for so much money, e.g. '$5M'; with --tokens, the earliest completion.",
        "The most tokens for so much money, or with `tokens` the earliest day: a budget and an objective in one.",
        metavar="USD")] = None
    objective: Annotated[Literal["time", "cost", "tokens-per-dollar", "tokens", "carbon"] | None, Option(
        "What to optimise (default: cost).",
        "What is best; least cost unless said.")] = None
    node: Annotated[str | Node | Sequence[str | Node], Option(
        "Only these nodes (default: all that have a price).",
        "Only these nodes: ids, or records.", metavar="ID", complete="nodes")] = ()
    ways: Annotated[str | Sequence[str] | None, Option(
        "Ways to acquire machines, separated by commas: buy, on-demand, spot, reserved-1y, reserved-3y.",
        '``"buy"``, ``"on-demand"``, ``"spot"``, ``"reserved-1y"``, ``"reserved-3y"``.', metavar="LIST")] = None
    region: Annotated[str | None, Option(
        "Region of purchased machines (default: us).",
        "Where machines of your own stand.", metavar="ID", complete="regions")] = None
    as_of: Annotated[str | date | None, Option(
        "Date at which prices are checked for age (default: today).",
        "Day from which the age of prices counts; today unless said.", metavar="DATE")] = None
    max_price_age: Annotated[float | str | None, Option(
        "Leave out what is offered at older, undated or assumed prices, e.g. 365d.",
        'What is offered at older, undated or assumed prices is left out: seconds, or ``"365 d"``.', metavar="TIME",
        flags=("--max-price-age", "--fresh"))] = None
    survive: Annotated[int | str | None, Option(
        "Deadlines hold though a job loses K nodes for a repair, e.g. N-1.",
        'Nodes that a job may lose for the time of a repair and keep its deadline: ``1`` or ``"N-1"``.',
        metavar="N-K")] = None
    top: Annotated[int, Option("Number of alternatives.", "Alternatives.", metavar="K", range=(1, 20))] = 3
    quick: Annotated[bool, Option(
        "Alternatives only: no shadow prices, no sensitivity.",
        "Whether marginal values and sensitivities are left out.")] = False
    time_limit: Annotated[float, Option(
        "Seconds for each integer program.",
        "Seconds for a program.", metavar="S", range=(1, None), unset=60)] = 60.0
    no_cache: Annotated[bool, Option(
        "Search every plan; keep none, and use none that earlier questions kept.",
        "Whether plans that earlier questions searched are left alone, and none kept.")] = False
    engine: Annotated[str | None, engine(
        "Search plans",
        'Searches plans on a Dask cluster: ``"dask://HOST:PORT"``.')] = None
    catalog: Annotated[str | Path | None, Option(
        "Your own hardware and prices, added to the built-in catalog.",
        "Folder of your own hardware and prices over the built-in catalog.", metavar="DIR")] = None
    site: Annotated[str | Path | None, SITE] = None
    progress: Annotated[Progress | None, Option(says="As of :func:`planner.plan`.")] = None


@dataclass(frozen=True)
class DesignQuestion:
    """``clusterwright design`` and :func:`planner.design`."""

    study: Annotated[str | Path, Option(says="A file (``docs/design-studies.md``).")]
    _: KW_ONLY
    trials: Annotated[int | None, Option(
        "Total number of trials (default: the study's).",
        "In all, where trials are to search it; unless said, the optimum is proven where the time allows.", metavar="N",
        range=(1, 1_000_000))] = None
    time: Annotated[float | str, Option(
        "CPU time that a proof of the optimum may take, about; 0 s: none.",
        'That a proof may take, about, in CPU seconds or as ``"2 min"``.', metavar="TIME")] = "2 min"
    workers: Annotated[int, Option(
        WORKERS.help,
        "Processes; of trials they share a `storage`.", metavar="K", range=WORKERS.range)] = 1
    engine: Annotated[str | None, engine(
        "Evaluate every point",
        'A Dask cluster that evaluates every point, as ``"dask://HOST:PORT"``.')] = None
    storage: Annotated[str | Path | None, Option(
        "Journal of the trials (default: NAME.journal here), or a database: postgresql://USER@HOST/NAME.",
        "Journal of the trials, or a database's URL; memory unless said.", metavar="FILE|URL", type=str)] = None
    resume: Annotated[bool, Option(
        "Continue with the trials in the storage.",
        "Whether to continue with the trials in the storage.")] = False
    seed: Annotated[int, Option("Random seed of the trials.", "Of the trials.", metavar="S", range=(0, 2**31))] = 0
    shard: Annotated[tuple[int, int] | None, Option(
        "Evaluate only every N-th point, from the I-th on (see merge).",
        "``(i, n)``: only every n-th point, from the i-th on.", metavar="I/N", type=str)] = None
    merge: Annotated[Sequence[str | Path], Option(
        says="Documents of shards of this study, to be joined; nothing is evaluated anew.")] = ()
    quick: Annotated[bool, Option(
        "No sensitivities, sweeps or importances.",
        "Whether sensitivities, sweeps and importances are left out.")] = False
    catalog: Annotated[str | Path | None, CATALOG] = None
    site: Annotated[str | Path | None, SITE] = None
    progress: Annotated[Progress | None, Option(says="As of :func:`planner.plan`.")] = None
