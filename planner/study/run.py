"""The whole way from a study to its answer: proven where that can be, else by trials, in one process or several."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from planner import document
from planner.base import units
from planner.base.errors import WrongQuestion
from planner.base.processes import without_main
from planner.base.secrets import shown
from planner.catalog import Catalog
from planner.schema.study import StudyResult, Trial
from planner.study.answer import document as answer
from planner.study.program import boxes, optuna_samplers, optuna_storage, optuna_trials
from planner.study.program.evaluation import Evaluator
from planner.study.program.ledger import Ledger
from planner.study.question.study import Study

if TYPE_CHECKING:
    import optuna

SMALL = 1500
"""Points up to which an outer space is enumerated rather than bounded: each of them is in the document then."""
TIME_S = 120.0
"""CPU seconds that a proof may take, unless said."""
LONGEST_S = 100 * 3600.0
"""Of a proof: longer ones are for shards."""
LARGEST_SHARE = 2_000_000
"""Points that one shard may have."""
CHUNK = 128
"""Points that are evaluated side by side."""
POLL_S = 0.2
Way = Literal["enumerated", "bounded", "trials"]
Advance = Callable[..., None]
Progress = Callable[[str, float | None], AbstractContextManager[Advance]]


@dataclass(frozen=True, kw_only=True)
class How:
    """How a study is to be searched."""

    trials: int | None = None
    """That are asked for; None: the study's, where nothing can be proven."""
    time_s: float = TIME_S
    """What a proof may take: it is counted in layouts, so that the same study is searched alike on every machine."""
    workers: int = 1
    storage: str | None = None
    """A journal file or the URL of a database; None: memory, for one worker."""
    resume: bool = False
    seed: int = 0
    shard: tuple[int, int] | None = None
    """This share (from 1) of so many; its points are enumerated."""
    explained: bool = True
    """Whether sensitivities are worked out."""
    way: Way | None = None
    """As :func:`way` says, where that was asked."""


def seconds(text: float | str) -> float:
    """Seconds that a proof may take: a number, or a quantity as ``2 min``.

    Raises:
        WrongQuestion: neither, or less than none.
    """
    try:
        value = units.parse(text, "time") if isinstance(text, str) else float(text)
    except units.UnitError as error:
        raise WrongQuestion(f"--time {error}") from None
    if not 0.0 <= value <= LONGEST_S:
        raise WrongQuestion(f"--time {text}: must be from 0 s to {LONGEST_S / 3600:.0f} h")
    return value


def way(evaluator: Evaluator, how: How) -> Way:
    """How a study is searched: every point evaluated, whole boxes of points bounded away, or trials."""
    study = evaluator.study
    if how.shard is not None or study.size <= (how.trials or 0):
        return "enumerated"
    affordable = how.trials is None and evaluator.seconds() * study.size <= how.time_s
    if study.size <= SMALL and (affordable or how.trials is not None):
        return "enumerated"
    if how.trials is not None or how.workers > 1 or how.resume or how.storage is not None:
        return "trials"
    if boxes.able(study):
        return "bounded"
    return "enumerated" if affordable else "trials"


def design(catalog: Catalog, study: Study, how: How, progress: Progress | None = None) -> StudyResult:
    """Searches a study and says what is best, and what matters.

    Raises:
        WrongQuestion: the storage holds another study, or a shard that cannot be.
        NoAnswer: no point trains every workload within the constraints.
    """
    started, cpu = time.perf_counter(), time.process_time()
    evaluator = Evaluator(catalog, study)
    wanted = how.trials or study.trials
    chosen = how.way or way(evaluator, how)
    if chosen == "enumerated":
        found, method = _enumerated(evaluator, how, progress)
    elif chosen == "bounded":
        found, method = _bounded(catalog, evaluator, how, progress)
    else:
        found, method = _searched(catalog, evaluator, wanted, how, progress)
        method = _judged(evaluator, how, found, method, progress)
    meta = {"wall_s": 0.0, "cpu_s": 0.0, "searches": evaluator.searches, "workers": how.workers}
    with progress("what matters", None) if progress else nullcontext():
        result = answer.result(catalog, evaluator, found, method, meta, explained=how.explained)
    meta |= {"wall_s": round(time.perf_counter() - started, 3), "cpu_s": round(time.process_time() - cpu, 3)}
    result.meta.update(meta)
    return result


# ---- boxes of points -------------------------------------------------------------------------------------------------


def _bounded(
    catalog: Catalog, evaluator: Evaluator, how: How, progress: Progress | None
) -> tuple[list[Trial], answer.SearchMethod]:
    """The optimum, where boxes prove it in time; else the best of the points that they met and of trials."""
    study = evaluator.study
    with progress("design", study.size) if progress else nullcontext() as advance:
        proof = boxes.search(evaluator, _affordable(evaluator, how), advance)
    if not proof.points:  # what is in the way is said of the fastest points
        corners = evaluator.many(boxes.corners(study))
        proof = replace(proof, points={each.point: each for each in corners})
    found = met(study, proof)
    method = proven(evaluator, answer.SearchMethod(name="bounded", exact=proof.complete), proof)
    if proof.complete:
        return found, method
    tried, by = _searched(catalog, evaluator, study.trials, how, progress)
    first = max((each.number for each in found), default=-1) + 1
    both = [*found, *(replace(each, number=first + each.number) for each in tried)]
    return both, replace(method, name=by.name, seed=by.seed)


def met(study: Study, proof: boxes.Proof) -> list[Trial]:
    """The points that boxes met, numbered as an enumeration numbers them."""
    numbered = sorted((study.number(point), outcome) for point, outcome in proof.points.items())
    return [
        answer.trial(study, number, study.values(outcome.point), optuna_trials.stored(outcome))
        for number, outcome in numbered
    ]


def _judged(
    evaluator: Evaluator, how: How, found: list[Trial], method: answer.SearchMethod, progress: Progress | None
) -> answer.SearchMethod:
    """What boxes prove of the best of some trials."""
    study, feasible = evaluator.study, [each for each in found if each.feasible]
    if not (boxes.able(study) and feasible and how.time_s):
        return replace(method, enumeration_s=evaluator.seconds() * study.size)
    best = float(answer.costs(study.objectives, feasible)[:, 0].min())
    with progress("bounds", study.size) if progress else nullcontext() as advance:
        proof = boxes.search(evaluator, _affordable(evaluator, how), advance, best)
    return proven(evaluator, replace(method, exact=proof.complete and proof.best >= best), proof)


def proven(evaluator: Evaluator, method: answer.SearchMethod, proof: boxes.Proof) -> answer.SearchMethod:
    """The method with what boxes prove of it."""
    return replace(
        method,
        evaluated=proof.evaluated,
        bounded_away=proof.bounded_away,
        bound=proof.bound if proof.monotone else None,
        enumeration_s=evaluator.seconds() * evaluator.study.size,
    )


def _affordable(evaluator: Evaluator, how: How) -> int:
    """Boxes that may be bounded in the time given, of two points each at most."""
    return max(1, int(how.time_s / evaluator.seconds() / 2))


# ---- every point -----------------------------------------------------------------------------------------------------


def _enumerated(evaluator: Evaluator, how: How, progress: Progress | None) -> tuple[list[Trial], answer.SearchMethod]:
    study = evaluator.study
    part, parts = how.shard or (1, 1)
    numbers = range(part - 1, study.size, parts)
    if len(numbers) > LARGEST_SHARE:
        least = -(-study.size // LARGEST_SHARE)
        raise WrongQuestion(f"--shard {part}/{parts}: {len(numbers):,} points are too many; at least {least:,} shards")
    found: list[Trial] = []
    journal = None if how.storage is None else Ledger(how.storage, _asked(study), resume=how.resume)
    with progress("design", len(numbers)) if progress else nullcontext() as advance:
        for start in range(0, len(numbers), CHUNK):
            some = numbers[start : start + CHUNK]
            known = {} if journal is None else {n: journal.kept[n] for n in some if n in journal.kept}
            missing = [number for number in some if number not in known]
            outcomes = evaluator.many([study.point(number) for number in missing])
            fresh = {number: optuna_trials.stored(outcome) for number, outcome in zip(missing, outcomes, strict=True)}
            if journal is not None and fresh:
                journal.add(fresh)
            known |= fresh
            found += [answer.trial(study, n, study.values(study.point(n)), known[n]) for n in some]
            if advance:
                advance(len(some), _so_far(study, found))
    shards = (part,) if how.shard else ()
    return found, answer.SearchMethod(
        name="enumerated", exact=parts == 1, seed=how.seed, shards=shards, of_shards=parts if how.shard else 0
    )


def _asked(study: Study) -> dict[str, Any]:
    """The question as a journal keeps it."""
    found: dict[str, Any] = json.loads(json.dumps(document.dump(answer.question(study))))
    return found


def _so_far(study: Study, found: list[Trial]) -> str:
    feasible = [each for each in found if each.feasible]
    if not feasible:
        return ""
    column = answer.costs(study.objectives[:1], feasible)[:, 0]
    return f"best {abs(float(column.min())):,.4g}"


# ---- trials ----------------------------------------------------------------------------------------------------------


def _searched(
    catalog: Catalog, evaluator: Evaluator, wanted: int, how: How, progress: Progress | None
) -> tuple[list[Trial], answer.SearchMethod]:
    study = evaluator.study
    optuna_trials.quiet()
    if how.workers > 1 and how.storage is None:
        raise WrongQuestion("--workers share a journal: name it, --storage study.journal")
    store = optuna_storage.storage(how.storage)
    found = optuna_storage.opened(
        store, study, _asked(study), how.seed, shown(how.storage or "memory"), resume=how.resume
    )
    if how.resume:
        optuna_trials.release(found)
    done = optuna_trials.counted(found)
    with progress("design", wanted) if progress else nullcontext() as advance:
        tell: Advance = advance or (lambda n=1, note="": None)
        tell(done, "")
        if how.workers > 1:
            _side_by_side(catalog, study, found, wanted, how, tell)
        else:
            optuna_trials.run(found, evaluator, wanted, how.seed, lambda n, note: tell(n, note), lambda: True)
    name = "NSGA-II" if len(study.objectives) > 1 else "TPE"
    return completed(found, study), answer.SearchMethod(name=name, exact=False, seed=how.seed)


def completed(found: optuna.Study, study: Study) -> list[Trial]:
    """The trials that a storage holds, in their order."""
    from optuna.trial import TrialState

    kept = found.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [
        answer.trial(
            study, trial.number, study.values(optuna_samplers.point(study, trial.params)), trial.user_attrs["outcome"]
        )
        for trial in kept
    ]


def _side_by_side(catalog: Catalog, study: Study, found: optuna.Study, wanted: int, how: How, advance: Advance) -> None:
    """Trials by several processes on one storage; this one watches."""
    import multiprocessing

    # Fresh processes: a fork of one that has threads (a progress bar) may hang.
    fresh = multiprocessing.get_context("spawn")
    assert how.storage is not None
    given = (catalog, study, how.storage, wanted, how.seed)
    workers = [fresh.Process(target=_work, args=given, daemon=True) for _ in range(how.workers)]
    try:
        with without_main():
            for worker in workers:
                worker.start()
        seen = optuna_trials.counted(found)
        while any(worker.is_alive() for worker in workers):
            time.sleep(POLL_S)
            now = len(completed(found, study))
            if now > seen:
                advance(now - seen, _so_far(study, completed(found, study)))
                seen = now
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
    failed = [worker.exitcode for worker in workers if worker.exitcode]
    if failed and optuna_trials.counted(found) < wanted:
        raise AssertionError(f"{len(failed)} of {how.workers} workers ended with exit code {failed[0]}")


def _work(catalog: Catalog, study: Study, storage: str, wanted: int, seed: int) -> None:
    """What one worker does: trials, until there are enough or its parent is gone."""
    import optuna

    optuna_trials.quiet()
    parent = os.getppid()
    with _undisturbed():
        found = optuna.load_study(study_name=study.name, storage=optuna_storage.storage(storage))
        evaluator = Evaluator(catalog, study)
        optuna_trials.run(found, evaluator, wanted, seed, lambda n, note: None, lambda: os.getppid() == parent)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leaves Ctrl-C to the parent, which ends its workers."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
