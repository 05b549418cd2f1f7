"""The whole way from a study to its answer: small spaces whole, large ones by trials, in one process or several."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner import document
from planner.base.errors import WrongQuestion
from planner.base.processes import without_main
from planner.base.secrets import shown
from planner.catalog import Catalog
from planner.schema.study import StudyResult, Trial
from planner.study.answer import document as answer
from planner.study.program import proposing, storing, trials
from planner.study.program.evaluation import Evaluator
from planner.study.program.ledger import Ledger
from planner.study.question.study import Study

if TYPE_CHECKING:
    import optuna

SMALL = 1500
"""Points up to which an outer space is enumerated whatever the trials asked for."""
LARGEST_SHARE = 2_000_000
"""Points that one shard may have."""
CHUNK = 128
"""Points that are evaluated side by side."""
POLL_S = 0.2
Advance = Callable[..., None]
Progress = Callable[[str, float | None], AbstractContextManager[Advance]]


@dataclass(frozen=True, kw_only=True)
class How:
    """How a study is to be searched."""

    trials: int | None = None
    workers: int = 1
    storage: str | None = None
    """A journal file or the URL of a database; None: memory, for one worker."""
    resume: bool = False
    seed: int = 0
    shard: tuple[int, int] | None = None
    """This share (from 1) of so many; its points are enumerated."""
    explained: bool = True
    """Whether sensitivities are worked out."""


def whole(study: Study, how: How) -> bool:
    """Whether every point is evaluated, of the study or of a shard; else trials search it."""
    return how.shard is not None or study.size <= max(SMALL, how.trials or study.trials)


def design(catalog: Catalog, study: Study, how: How, progress: Progress | None = None) -> StudyResult:
    """Searches a study and says what is best, and what matters.

    Raises:
        WrongQuestion: the storage holds another study, or a shard that cannot be.
        NoAnswer: no point trains every workload within the constraints.
    """
    started, cpu = time.perf_counter(), time.process_time()
    evaluator = Evaluator(catalog, study)
    wanted = how.trials or study.trials
    if whole(study, how):
        found, method = _enumerated(evaluator, how, progress)
    else:
        found, method = _searched(catalog, evaluator, wanted, how, progress)
    meta = {"wall_s": 0.0, "cpu_s": 0.0, "searches": evaluator.searches, "workers": how.workers}
    with progress("what matters", None) if progress else nullcontext():
        result = answer.result(catalog, evaluator, found, method, meta, explained=how.explained)
    meta |= {"wall_s": round(time.perf_counter() - started, 3), "cpu_s": round(time.process_time() - cpu, 3)}
    result.meta.update(meta)
    return result


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
            fresh = {number: trials.stored(outcome) for number, outcome in zip(missing, outcomes, strict=True)}
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
    trials.quiet()
    if how.workers > 1 and how.storage is None:
        raise WrongQuestion("--workers share a journal: name it, --storage study.journal")
    store = storing.storage(how.storage)
    found = storing.opened(store, study, _asked(study), how.seed, shown(how.storage or "memory"), resume=how.resume)
    if how.resume:
        trials.release(found)
    done = trials.counted(found)
    with progress("design", wanted) if progress else nullcontext() as advance:
        tell: Advance = advance or (lambda n=1, note="": None)
        tell(done, "")
        if how.workers > 1:
            _side_by_side(catalog, study, found, wanted, how, tell)
        else:
            trials.run(found, evaluator, wanted, how.seed, lambda n, note: tell(n, note), lambda: True)
    name = "NSGA-II" if len(study.objectives) > 1 else "TPE"
    return completed(found, study), answer.SearchMethod(name=name, exact=False, seed=how.seed)


def completed(found: optuna.Study, study: Study) -> list[Trial]:
    """The trials that a storage holds, in their order."""
    from optuna.trial import TrialState

    kept = found.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [
        answer.trial(
            study, trial.number, study.values(proposing.point(study, trial.params)), trial.user_attrs["outcome"]
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
        seen = trials.counted(found)
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
    if failed and trials.counted(found) < wanted:
        raise AssertionError(f"{len(failed)} of {how.workers} workers ended with exit code {failed[0]}")


def _work(catalog: Catalog, study: Study, storage: str, wanted: int, seed: int) -> None:
    """What one worker does: trials, until there are enough or its parent is gone."""
    import optuna

    trials.quiet()
    parent = os.getppid()
    with _undisturbed():
        found = optuna.load_study(study_name=study.name, storage=storing.storage(storage))
        evaluator = Evaluator(catalog, study)
        trials.run(found, evaluator, wanted, seed, lambda n, note: None, lambda: os.getppid() == parent)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leaves Ctrl-C to the parent, which ends its workers."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
