"""What to buy, rent or build, from Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Literal

from planner import planning
from planner.api import records
from planner.api.entry import between, entry
from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.models import workload
from planner.question.reading import digest
from planner.schema.hardware import Node
from planner.schema.procurement import Procurement
from planner.schema.study import StudyResult
from planner.schema.workload import Model


@entry
def procure(
    portfolio: str | Path | None = None,
    *,
    model: str | Path | Model | None = None,
    tokens: float | str | None = None,
    method: str | None = None,
    batch: int | str | None = None,
    seq: int | str | None = None,
    precision: str | None = None,
    budget: float | str | None = None,
    power: float | str | None = None,
    deadline: float | str | None = None,
    objective: Literal["time", "cost", "tokens-per-dollar", "carbon"] | None = None,
    node: str | Node | Sequence[str | Node] = (),
    ways: str | Sequence[str] | None = None,
    region: str | None = None,
    as_of: str | date | None = None,
    max_price_age: float | str | None = None,
    survive: int | str | None = None,
    top: int = 3,
    quick: bool = False,
    time_limit: float = 60.0,
    engine: str | None = None,
    catalog: str | Path | None = None,
    progress: planning.Progress | None = None,
) -> Procurement:
    """What to buy or rent for a portfolio of jobs, and how to train on it: alternatives, best first.

    Args:
        portfolio: A file (``docs/portfolio.md``); without one, the next six say what is trained.
        model: An id, a file, or a record (:func:`planner.model`, changed with ``replace``).
        tokens: To train on: ``2e12`` or ``"2T"``.
        method: What of the model is trained.
        batch: Sequences of a step, one number.
        seq: Tokens per sequence: ``8192`` or ``"8k"``.
        precision: ``"bf16"``, ``"fp8"``, ...
        budget: US dollars, or ``"$5M"``.
        power: For machines that are bought: watts, or ``"400 kW"``.
        deadline: When it must be done: seconds, or ``"60 d"``.
        objective: What is best; least cost unless said.
        node: Only these nodes: ids, or records.
        ways: ``"buy"``, ``"on-demand"``, ``"spot"``, ``"reserved-1y"``, ``"reserved-3y"``.
        region: Where machines of your own stand.
        as_of: Day from which the age of prices counts; today unless said.
        max_price_age: What is offered at older prices is left out: seconds, or ``"12 months"``.
        survive: Nodes that a job may lose for the time of a repair and keep its deadline: ``1`` or ``"N-1"``.
        top: Alternatives.
        quick: Whether marginal values and sensitivities are left out.
        time_limit: Seconds for a program.
        engine: Searches plans on a Dask cluster: ``"dask://HOST:PORT"``.
        catalog: Folder of your own hardware and prices over the built-in catalog.
        progress: As of :func:`planner.plan`.

    Raises:
        WrongQuestion: neither a file nor a model, or any problem of theirs.
        NoAnswer: the limits conflict; the message names the smallest set that does, and what would relax it.

    >>> offer = procure(model="llama3-8b", tokens="20B", node="hgx-h100", ways="buy", quick=True)  # doctest: +SKIP
    >>> offer[0].to_frame()["usd"].sum()  # doctest: +SKIP
    """
    from planner.procurement import run
    from planner.procurement.program.solution import Settings
    from planner.procurement.question import flags

    if isinstance(portfolio, str) and portfolio in workload.library() and not Path(portfolio).expanduser().exists():
        raise WrongQuestion(f"{portfolio}: no such file; a model is given by its keyword, model={portfolio!r}")
    between("top", top, 1, 20)
    between("time_limit", time_limit, 1, 1e9)
    nodes = [node] if isinstance(node, str | Node) else node
    own = [records.checked(each) for each in nodes if isinstance(each, Node)]
    known = load(None if catalog is None else Path(catalog).expanduser()).holding(own)
    given = flags.Flags(
        model=None if model is None else records.as_model(model),
        tokens=None if tokens is None else str(tokens), method=method,
        batch=None if batch is None else str(batch), seq=seq, precision=precision, budget=_with(budget, "USD"),
        power=_with(power, "W"), deadline=_with(deadline, "s"), objective=objective,
        ways=ways if ways is None or isinstance(ways, str) else ",".join(ways),
        node=tuple(each.id if isinstance(each, Node) else each for each in nodes), region=region,
        as_of=as_of.isoformat() if isinstance(as_of, date) else as_of,
        max_price_age=_with(max_price_age, "s"),
        survive=None if survive is None else str(survive),
    )  # fmt: skip
    asked = flags.asked(known, None if portfolio is None else Path(portfolio).expanduser(), given)
    asked = replace(asked, inputs={**asked.inputs, **{f"node {each.id}": digest(each) for each in own}})
    depth = run.Depth(top=top, marginal=not quick, sensitivity=not quick)
    settings = Settings(time_limit_s=time_limit, engine=engine)
    return run.procure(known, asked, depth=depth, settings=settings, progress=progress)


@entry
def design(
    study: str | Path,
    *,
    trials: int | None = None,
    time: float | str = "2 min",
    workers: int = 1,
    engine: str | None = None,
    storage: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
    shard: tuple[int, int] | None = None,
    merge: Sequence[str | Path] = (),
    quick: bool = False,
    catalog: str | Path | None = None,
    progress: planning.Progress | None = None,
) -> StudyResult:
    """Which cluster to build for a study's workloads: points, best first, and a table of every trial.

    Args:
        study: A file (``docs/design-studies.md``).
        trials: In all, where trials are to search it; unless said, the optimum is proven where the time allows.
        time: That a proof may take, about, in CPU seconds or as ``"2 min"``.
        workers: Processes; of trials they share a `storage`.
        engine: A Dask cluster that evaluates every point, as ``"dask://HOST:PORT"``.
        storage: Journal of the trials, or a database's URL; memory unless said.
        resume: Whether to continue with the trials in the storage.
        seed: Of the trials.
        shard: ``(i, n)``: only every n-th point, from the i-th on.
        merge: Documents of shards of this study, to be joined; nothing is evaluated anew.
        quick: Whether sensitivities, sweeps and importances are left out.
        catalog: Folder of your own hardware over the built-in catalog.
        progress: As of :func:`planner.plan`.

    Raises:
        WrongQuestion: what is wrong with the file, with line and key; a storage or a shard of another study.
        NoAnswer: no point trains every workload within the constraints.

    >>> found = design("examples/studies/rent-or-wait.toml", quick=True)  # doctest: +SKIP
    >>> found.to_frame().plot.scatter(x="capital_usd", y="step_time_s")  # doctest: +SKIP
    """
    from planner.study import merge as merging
    from planner.study import run
    from planner.study.question import reading

    between("workers", workers, 1, 256)
    between("trials", trials, 1, 1_000_000)
    if shard is not None and not 1 <= shard[0] <= shard[1]:
        raise WrongQuestion(f"shard={shard}: must be (i, n) with i from 1 to n, for example (3, 16)")
    known = load(None if catalog is None else Path(catalog).expanduser())
    asked = reading.read(Path(study).expanduser(), known)
    if merge:
        return merging.merge(known, asked, [Path(part).expanduser() for part in merge], explained=not quick)
    how = run.How(
        trials=trials, time_s=run.seconds(time), workers=workers, engine=engine,
        storage=None if storage is None else str(storage),
        resume=resume, seed=seed, shard=shard, explained=not quick,
    )  # fmt: skip
    return run.design(known, asked, how, progress)


def _with(amount: float | str | None, unit: str) -> str | None:
    """An SI number as a text with its unit."""
    return amount if amount is None or isinstance(amount, str) else f"{amount!r} {unit}"
