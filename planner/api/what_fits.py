"""What fits where, from Python: the same question as ``clusterwright fit``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from planner.api import records
from planner.api.entry import asks
from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.models.workload import find_model
from planner.planning import what_fits
from planner.question.asked_plans import FitQuestion, PlanOptions, as_options
from planner.question.flag_values import sequence_length
from planner.question.given import Progress, path
from planner.schema.listings import FittingTraining
from planner.schema.record import Parts
from planner.schema.workload import Model

MOST = 4096


@asks(FitQuestion)
def fit(asked: FitQuestion) -> Parts[FittingTraining]:
    """Which accelerators hold a training, and how many; or which models fit on some, and how long their sequences.

    With ``to_frame()`` a table.

    Args: as declared.

    Raises:
        WrongQuestion: a name or a value that cannot be, or neither a model nor accelerators.
        NoAnswer: nothing fits.

    >>> fit("llama3-8b", "RTX-4090:1", seq="4k")[0].accelerators
    1
    """
    model = None if asked.model is None else records.as_model(asked.model)
    found = fits(model, asked.on, as_options(asked), asked.most, asked.progress)
    return Parts(found, [training.row() for training in found])


def fits(
    model: str | Model | None, on: str | None, asked: PlanOptions, most: int, progress: Progress | None
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
    known, chosen = load(path(asked.catalog)), None if model is None else find_model(model)
    length = sequence_length(asked.seq)
    if on is not None:
        models, plain = [chosen] if chosen else what_fits.trainable(), replace(asked, seq=length, top=1)
        with _counted(progress, "models", len(models)) as advance:
            return what_fits.on_accelerators(known, models, on, plain, asked.top, advance)
    assert chosen is not None
    plain = replace(asked, seq=length, top=1)
    with _counted(progress, "accelerators", len(what_fits.accelerators(known))) as advance:
        return what_fits.on_catalog(known, chosen, plain, most, advance)


def _counted(progress: Progress | None, what: str, units: int) -> AbstractContextManager[Callable[[int], None] | None]:
    return progress(what, units) if progress else nullcontext()
