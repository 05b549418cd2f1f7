"""What fits where, from Python: the same question as ``clusterwright fit``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from planner import planning
from planner.api import records
from planner.api.entry import entry
from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.models.workload import find_model
from planner.planning import what_fits
from planner.question.flag_values import sequence_length
from planner.question.reading import PlanOptions
from planner.schema.listings import FittingTraining
from planner.schema.record import Parts
from planner.schema.workload import Model, Task

MOST = 4096


@entry
def fit(
    model: str | Path | Model | None = None,
    on: str | None = None,
    *,
    method: str = "qlora",
    task: Task = "sft",
    lengths: str | Path | Sequence[float] | None = None,
    seq: int | str | None = None,
    batch: int | None = None,
    tokens: float | str | None = None,
    rank: int | None = None,
    optimizer: str = "adamw",
    runtime: str | None = None,
    precision: str | None = None,
    oom_risk: float | str = "5 %",
    most: int = 8,
    top: int = 10,
    catalog: str | Path | None = None,
    progress: planning.Progress | None = None,
) -> Parts[FittingTraining]:
    """Which accelerators hold a training, and how many; or which models fit on some, and how long their sequences.

    With ``to_frame()`` a table.

    Args:
        model: What is trained: an id, a file or the record; without it, the models of the library are tried.
        on: Accelerators to fit on, ``"RTX-4090:2"``; without it, those of the catalog are tried.
        method: What of the model is trained.
        task: What it learns from: texts, or pairs of answers.
        lengths: Of texts packed into sequences, in tokens; ``"600/2k"`` is their mean and 95th percentile, or a file.
        seq: Tokens per sequence: ``4096`` or ``"4k"``; with `on`, the longest are found where nothing is said.
        batch: Sequences of a step; 16 unless said, or the next multiple of the accelerators.
        tokens: To train on: ``1e7`` or ``"10M"``; 10 M unless said.
        rank: Of LoRA.
        optimizer: Its id.
        runtime: Training framework.
        precision: ``"bf16"``, ``"fp16"``, ...
        oom_risk: Chance of running out of memory that is accepted.
        most: Accelerators of one kind that are tried together.
        top: Models to list.
        catalog: Folder of your own hardware over the built-in catalog.
        progress: Given what is done and how many units of it, a context that yields ``advance(n)``.

    Raises:
        WrongQuestion: a name or a value that cannot be, or neither a model nor accelerators.
        NoAnswer: nothing fits.

    >>> fit("llama3-8b", "RTX-4090:1", seq="4k")[0].accelerators
    1
    """
    asked = PlanOptions(
        method=method, task=task, seq=seq, batch=batch, tokens=tokens, rank=rank, optimizer=optimizer, runtime=runtime,
        precision=precision, oom_risk=oom_risk, top=top, lengths=records.as_lengths(lengths),
        catalog=None if catalog is None else Path(catalog),
    )  # fmt: skip
    found = fits(None if model is None else records.as_model(model), on, asked, most, progress)
    return Parts(found, [training.row() for training in found])


def fits(
    model: str | Model | None, on: str | None, asked: PlanOptions, most: int, progress: planning.Progress | None
) -> tuple[FittingTraining, ...]:
    """As :func:`fit`, with what is asked as one record; messages name flags.

    Raises:
        WrongQuestion: a name or a value that cannot be, or neither a model nor accelerators.
        NoAnswer: nothing fits.
    """
    if model is None and on is None:
        raise WrongQuestion("fit what, or on what? Name a model, or accelerators (--on RTX-4090:1)")
    for name, value in (("most", most), ("top", asked.top)):
        if not 1 <= value <= MOST:
            raise WrongQuestion(f"--{name} {value}: must be from 1 to {MOST:,}")
    known, chosen = load(asked.catalog), None if model is None else find_model(model)
    length = sequence_length(asked.seq)
    if on is not None:
        models, plain = [chosen] if chosen else what_fits.trainable(), replace(asked, seq=length, top=1)
        with _counted(progress, "models", len(models)) as advance:
            return what_fits.on_accelerators(known, models, on, plain, asked.top, advance)
    assert chosen is not None
    plain = replace(asked, seq=length, top=1)
    with _counted(progress, "accelerators", len(what_fits.accelerators(known))) as advance:
        return what_fits.on_catalog(known, chosen, plain, most, advance)


def _counted(
    progress: planning.Progress | None, what: str, units: int
) -> AbstractContextManager[Callable[[int], None] | None]:
    return progress(what, units) if progress else nullcontext()
