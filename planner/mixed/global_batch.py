"""Which global batch to train with, where it is known what a larger one is worth: by goodput, not by throughput."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.base import units
from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.base.units import format_percent
from planner.catalog import load
from planner.mixed.answer import value_of
from planner.planning import comparison, order
from planner.question.request import Request
from planner.schema.plan import Assumption, Plan, PlanSet


def scale(text: float | str) -> float:
    """A noise scale in sequences, as a person writes it or a number.

    Raises:
        WrongQuestion: not a number of sequences.
    """
    try:
        count = units.parse(text, "count")
    except units.UnitError as error:
        raise WrongQuestion(f"--noise-scale {error}") from None
    if not 1 <= count <= 1e12:
        raise WrongQuestion(
            f"--noise-scale {text}: from 1 to 1e12 sequences (the noise scale, or a critical batch size)"
        )
    return count


def tokens_for(tokens: float, batch: int, reference: int, noise: float) -> float:
    """Tokens that bring as far at a batch as `tokens` do at the reference: ``D (phi + B) / (phi + B_0)``.

    McCandlish et al. 2018 (arXiv 1812.06162): ``samples = E_min (1 + B / phi)``; the noise scale phi is their critical
    batch size, ``E_min / S_min``.
    """
    return tokens * (noise + batch) / (noise + reference)


def by_goodput(plans_of: Callable[[int, float], PlanSet], wanted: Request, noise: float) -> PlanSet:
    """The plans of every batch of a question, `plans_of` (batch, tokens), as one ranked set.

    Raises:
        ClusterwrightError: no batch has a plan; the first one's reason.
    """
    reference = min(wanted.batches)
    answers: list[tuple[int, PlanSet]] = []
    errors: list[tuple[int, ClusterwrightError]] = []
    for batch in wanted.batches:
        try:
            answers.append((batch, plans_of(batch, tokens_for(wanted.workload.tokens, batch, reference, noise))))
        except NoAnswer as error:
            errors.append((batch, error))
    if not answers:
        raise errors[0][1]
    entries = [(value_of(wanted, plan), batch, plan) for batch, plans in answers for plan in plans.plans]
    entries.sort(key=lambda entry: entry[0])
    first = order.recommended([plan for _, _, plan in entries])
    entries = [entries[place] for place in order.with_first(first, len(entries))]
    noted = Assumption(
        what=f"a noise scale of {noise:,.0f} sequences",
        why=f"as given; tokens grow with the batch by (scale + B) / (scale + {reference:,}), for the same progress",
        flag="--noise-scale",
    )
    plans = tuple(
        replace(plan, rank=rank, assumptions=(noted, *plan.assumptions))
        for rank, (_, _, plan) in enumerate(entries[: wanted.top], 1)
    )
    best = next(plan for batch, plan in answers if batch == entries[0][1])
    searches = [plan.search for _, plan in answers]
    refused = [f"batch {batch:,}: {str(error).splitlines()[0]}" for batch, error in errors]
    reasons = replace(best.reasons, why_not=(*_others(entries), *refused))
    made = replace(
        best,
        plans=plans,
        reasons=reasons,
        front=(),
        question=None,  # of one batch
        search=replace(
            best.search,
            candidates=sum(s.candidates for s in searches),
            feasible=sum(s.feasible for s in searches),
            costed=sum(s.costed for s in searches),
            proven_optimal=all(s.proven_optimal for s in searches),
            gap=max(s.gap for s in searches),
            method=f"each batch by itself, then goodput; {best.search.method}",
        ),
    )
    return replace(made, differences=comparison.differences(made.plans, made.plan_to_run, load()))


def _others(entries: Sequence[tuple[float, int, Plan]]) -> list[str]:
    """What the best plan of every other batch is short of."""
    value, chosen, first = entries[0]
    lines = []
    for batch in sorted({b for _, b, _ in entries} - {chosen}):
        other, _, plan = next(entry for entry in entries if entry[1] == batch)
        faster = (batch / plan.prediction.step_time_s) / (chosen / first.prediction.step_time_s) - 1.0
        lines.append(
            f"batch {batch:,}: {format_percent(other / value - 1.0)} more for the same progress "
            f"({format_percent(faster)} more tokens a second)"
        )
    return lines
