"""What to buy, rent or build, from Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from planner.api import records
from planner.api.entry import MOST, asks, between
from planner.api.post_training import measured_at
from planner.base.errors import WrongQuestion
from planner.catalog import Catalog, load
from planner.models import workload
from planner.question.given import path
from planner.question.purchase_options import DesignQuestion, ProcureQuestion
from planner.question.reading import digest
from planner.schema.hardware import Node
from planner.schema.procurement import Procurement
from planner.schema.study import StudyResult

if TYPE_CHECKING:
    from planner.procurement.question.portfolio import Portfolio
    from planner.study import run
    from planner.study.question.study import Study


@asks(ProcureQuestion)
def procure(asked: ProcureQuestion) -> Procurement:
    """What to buy or rent for a portfolio of jobs, and how to train on it: alternatives, best first.

    Args: as declared.

    Raises:
        WrongQuestion: neither a file nor a model, or any problem of theirs.
        NoAnswer: the limits conflict; the message names the smallest set that does, and what would relax it.

    >>> offer = procure(model="llama3-8b", tokens="20B", node="hgx-h100", ways="buy", quick=True)  # doctest: +SKIP
    >>> offer[0].to_frame()["usd"].sum()  # doctest: +SKIP
    """
    from planner.procurement import run
    from planner.procurement.program.instance import Settings

    between("time_limit", asked.time_limit, 1, MOST)
    known, wanted = portfolio(asked)
    depth = run.Depth(top=asked.top, marginal=not asked.quick, sensitivity=not asked.quick)
    settings = Settings(time_limit_s=asked.time_limit, engine=asked.engine, cache=cache(asked))
    return run.procure(known, wanted, depth=depth, settings=settings, progress=asked.progress)


def cache(asked: ProcureQuestion) -> Path | None:
    """The folder that plans are kept in from one question to the next, if they are to be."""
    from planner.procurement.throughput.kept_plans import usual_folder

    return None if asked.no_cache else usual_folder()


def portfolio(asked: ProcureQuestion) -> tuple[Catalog, Portfolio]:
    """The catalog and the portfolio that a question means; messages name flags.

    Raises:
        WrongQuestion: neither a file nor a model, or any problem of theirs.
    """
    from planner.procurement.question import flags
    from planner.procurement.question.reading import with_learned

    file = asked.portfolio
    if isinstance(file, str) and file in workload.library() and not Path(file).expanduser().exists():
        raise WrongQuestion(f"{file}: no such file; a model is given by its keyword, model={file!r}")
    changed = [records.checked(node) for node in flags.named_nodes(asked) if isinstance(node, Node)]
    known = load(path(asked.catalog), path(asked.site)).holding(changed)
    model = None if asked.model is None else records.as_model(asked.model)
    wanted = flags.asked(known, path(file), replace(asked, model=model))
    if any(job.post_training for job in wanted.jobs):
        wanted = with_learned(wanted, measured_at(asked.site))
    inputs = {f"node {node.id}": digest(node) for node in changed}
    return known, replace(wanted, inputs={**wanted.inputs, **inputs})


@asks(DesignQuestion)
def design(asked: DesignQuestion) -> StudyResult:
    """Which cluster to build for a study's workloads: points, best first, and a table of every trial.

    Args: as declared.

    Raises:
        WrongQuestion: what is wrong with the file, with line and key; a storage or a shard of another study.
        NoAnswer: no point trains every workload within the constraints.

    >>> found = design("examples/studies/rent-or-wait.toml", quick=True)  # doctest: +SKIP
    >>> found.to_frame().plot.scatter(x="capital_usd", y="step_time_s")  # doctest: +SKIP
    """
    from planner.study import merge as merging
    from planner.study import run

    if asked.shard is not None and not 1 <= asked.shard[0] <= asked.shard[1]:
        raise WrongQuestion(f"shard={asked.shard}: must be (i, n) with i from 1 to n, for example (3, 16)")
    known, study = posed(asked, Path(asked.study).expanduser())
    if asked.merge:
        shards = [Path(part).expanduser() for part in asked.merge]
        return merging.merge(known, study, shards, explained=not asked.quick)
    return run.design(known, study, how(asked), asked.progress)


def posed(asked: DesignQuestion, file: Path) -> tuple[Catalog, Study]:
    """The catalog and the study that a question means.

    Raises:
        WrongQuestion: what is wrong with the file, with line and key.
    """
    from planner.study.question import reading

    known = load(path(asked.catalog), path(asked.site))
    study = reading.read(file, known)
    if any(job.post_training for job in study.workloads):
        study = reading.with_learned(study, measured_at(asked.site))
    return known, study


def how(asked: DesignQuestion) -> run.How:
    """How the points of a study are searched."""
    from planner.study import run

    return run.How(
        trials=asked.trials,
        time_s=run.seconds(asked.time),
        workers=asked.workers,
        engine=asked.engine,
        storage=None if asked.storage is None else str(asked.storage),
        resume=asked.resume,
        seed=asked.seed,
        shard=asked.shard,
        explained=not asked.quick,
    )
