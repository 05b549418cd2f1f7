"""The whole way from a study to its answer: proven where that can be, else by trials, in one process or several."""

from __future__ import annotations

import json
import math
import os
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from planner.base import processes, units
from planner.base.errors import WrongQuestion
from planner.base.progress import Advance, Clock, Progress, advancing
from planner.base.secrets import shown
from planner.catalog import Catalog
from planner.planning import document
from planner.schema.study import StudyResult, Trial
from planner.study.answer import document as answer
from planner.study.program import boxes, optuna_samplers, optuna_trials, trial_storage
from planner.study.program.evaluation import Evaluator
from planner.study.program.trial_storage import Ledger
from planner.study.question.study import Study

if TYPE_CHECKING:
    import optuna

SMALL = 1500
"""Points up to which an outer space is enumerated rather than bounded: each of them is in the document then."""
TIME_S = 120.0
"""CPU seconds that a proof may take, unless said."""
LONGEST_S = 100 * 3600.0
"""Longest time of a proof, seconds: longer ones are for shards."""
LARGEST_SHARE = 2_000_000
"""Points that one shard may have."""
CHUNK = 512
"""Points that are evaluated side by side: the more there are, the fewer rows are bounded for each."""
WORTH_S = 2.0
"""CPU seconds that a process of this machine must have to do: it takes up to one to begin."""
POLL_S = 0.2
Way = Literal["enumerated", "bounded", "trials"]


@dataclass(frozen=True, kw_only=True)
class How:
    """How a study is to be searched."""

    trials: int | None = None
    """That are asked for; None: the study's, where nothing can be proven."""
    time_s: float = TIME_S
    """What a proof may take: it is counted in layouts, so that the same study is searched alike on every machine."""
    workers: int = 1
    """Processes of this machine that evaluate points, or make trials on one storage."""
    engine: str | None = None
    """A cluster whose processes evaluate every point: ``dask://HOST:PORT``."""
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
    """How a study is searched: every point evaluated, whole boxes of points bounded away, or trials.

    A front has many points, between which boxes say little: where the time allows, all are evaluated.
    """
    study = evaluator.study
    if how.shard is not None or how.engine is not None or study.size <= (how.trials or 0):
        return "enumerated"
    affordable = how.trials is None and evaluator.seconds(CHUNK) * study.size <= how.time_s * how.workers
    if study.size <= SMALL and (affordable or how.trials is not None):
        return "enumerated"
    shared = how.workers > 1 and how.storage is None and affordable
    if how.trials is not None or how.resume or how.storage is not None or (how.workers > 1 and not shared):
        return "trials"
    if affordable and (shared or not boxes.able(study) or len(study.objectives) > 1):
        return "enumerated"
    return "bounded" if boxes.able(study) else "trials"


def design(catalog: Catalog, study: Study, how: How, progress: Progress | None = None) -> StudyResult:
    """Searches a study and says what is best, and what matters.

    Raises:
        WrongQuestion: the storage holds another study, or a shard that cannot be.
        NoAnswer: no point trains every workload within the constraints.
    """
    clock = Clock()
    _carried(study, how)
    evaluator = Evaluator(catalog, study)
    wanted = how.trials or study.trials
    chosen = how.way or way(evaluator, how)
    if chosen == "enumerated":
        trials, method = _enumerated(evaluator, how, progress)
    elif chosen == "bounded":
        trials, method = _bounded(catalog, evaluator, how, progress)
    else:
        trials, method = _searched(catalog, evaluator, wanted, how, progress)
        method = _judged(evaluator, how, trials, method, progress)
    meta = {"wall_s": 0.0, "cpu_s": 0.0, "searches": evaluator.searches, "workers": how.workers}
    with advancing(progress, "what matters"):
        result = answer.result(catalog, evaluator, trials, method, meta, explained=how.explained)
    meta |= clock.seconds()
    result.meta.update(meta)
    return result


def _carried(study: Study, how: How) -> None:
    """Holds a study to what a cluster's workers can evaluate: points, of models that they find."""
    if how.engine is None:
        return
    if how.trials is not None and how.trials < study.size:
        raise WrongQuestion(
            f"--trials {how.trials}: --engine evaluates every point; leave out one of them "
            "(trials are shared by --workers, or by a database as --storage)"
        )
    for job in study.workloads:
        path = Path(job.model)
        if path.suffix in (".toml", ".json") and not path.is_absolute():
            raise WrongQuestion(f"{job.model}: --engine needs its whole path, on a file system that all workers share")


# ---- boxes of points -------------------------------------------------------------------------------------------------


def _bounded(
    catalog: Catalog, evaluator: Evaluator, how: How, progress: Progress | None
) -> tuple[list[Trial], answer.SearchMethod]:
    """The optimum, where boxes prove it in time; else the best of the points that they met and of trials."""
    study = evaluator.study
    with advancing(progress, "design", study.size) as advance:
        proof = boxes.search(evaluator, _affordable(evaluator, how), advance)
    if not proof.points:  # what is in the way is said of the fastest points
        corners = evaluator.many(boxes.corners(study))
        proof = replace(proof, points={corner.point: corner for corner in corners})
    corners_met = met(study, proof)
    method = proven(evaluator, answer.SearchMethod(name="bounded", exact=proof.complete), proof)
    if proof.complete:
        return corners_met, method
    tried, by = _searched(catalog, evaluator, study.trials, how, progress)
    first = max((outcome.number for outcome in corners_met), default=-1) + 1
    both = [*corners_met, *(replace(outcome, number=first + outcome.number) for outcome in tried)]
    return both, replace(method, name=by.name, seed=by.seed)


def met(study: Study, proof: boxes.Proof) -> list[Trial]:
    """The points that boxes met, numbered as an enumeration numbers them."""
    numbered = sorted((study.number(point), outcome) for point, outcome in proof.points.items())
    return [
        answer.trial(study, number, study.values(outcome.point), optuna_trials.stored(outcome))
        for number, outcome in numbered
    ]


def _judged(
    evaluator: Evaluator, how: How, trials: list[Trial], method: answer.SearchMethod, progress: Progress | None
) -> answer.SearchMethod:
    """What boxes prove of the best of some trials."""
    study = evaluator.study
    feasible = [trial for trial in trials if trial.feasible]
    if not (boxes.able(study) and len(study.objectives) == 1 and feasible and how.time_s):
        return replace(method, enumeration_s=evaluator.seconds(CHUNK) * study.size)
    best = float(answer.costs(study.objectives, feasible)[:, 0].min())
    with advancing(progress, "bounds", study.size) as advance:
        proof = boxes.search(evaluator, _affordable(evaluator, how), advance, best)
    return proven(evaluator, replace(method, exact=proof.complete and proof.best >= best), proof)


def proven(evaluator: Evaluator, method: answer.SearchMethod, proof: boxes.Proof) -> answer.SearchMethod:
    """The method with what boxes prove of it."""
    return replace(
        method,
        evaluated=proof.evaluated,
        bounded_away=proof.bounded_away,
        bound=proof.bound if proof.monotone and len(evaluator.study.objectives) == 1 else None,
        enumeration_s=evaluator.seconds(CHUNK) * evaluator.study.size,
    )


def _affordable(evaluator: Evaluator, how: How) -> int:
    """Boxes that may be bounded in the time given, each with a point to evaluate."""
    return max(1, int(how.time_s / (boxes.BOX_S + evaluator.seconds(boxes.IN_ONE_SPACE))))


# ---- every point -----------------------------------------------------------------------------------------------------


class StudyAsked(NamedTuple):
    """What a process needs to evaluate points."""

    key: str
    """Key of the run: a process keeps what it evaluated under this key before."""
    catalog: Catalog
    study: Study


Stored = dict[int, dict[str, Any]]
"""What points are worth, by their numbers, as journals keep it."""
_HELD = threading.local()
"""The evaluator of a process that only evaluates, and the key of its run."""


def _enumerated(evaluator: Evaluator, how: How, progress: Progress | None) -> tuple[list[Trial], answer.SearchMethod]:
    study = evaluator.study
    part, parts = how.shard or (1, 1)
    numbers = range(part - 1, study.size, parts)
    if len(numbers) > LARGEST_SHARE:
        least = -(-study.size // LARGEST_SHARE)
        raise WrongQuestion(f"--shard {part}/{parts}: {len(numbers):,} points are too many; at least {least:,} shards")
    journal = None if how.storage is None else Ledger(how.storage, _asked(study), resume=how.resume)
    known: Stored = {} if journal is None else {n: journal.kept[n] for n in numbers if n in journal.kept}
    trials = {n: _trial(study, n, kept) for n, kept in known.items()}
    best = _least(study, trials.values())
    with advancing(progress, "design", len(numbers)) as advance:
        if advance and trials:
            advance(len(trials), _so_far(best))
        for fresh in _chunks(evaluator, [n for n in numbers if n not in known], how):
            if journal is not None:
                journal.add(fresh)
            more = {n: _trial(study, n, kept) for n, kept in fresh.items()}
            trials |= more
            best = min(best, _least(study, more.values()))
            if advance:
                advance(len(fresh), _so_far(best))
    shards = (part,) if how.shard else ()
    return [trials[n] for n in sorted(trials)], answer.SearchMethod(
        name="enumerated", exact=parts == 1, seed=how.seed, shards=shards, of_shards=parts if how.shard else 0
    )


def _trial(study: Study, number: int, kept: dict[str, Any]) -> Trial:
    return answer.trial(study, number, study.values(study.point(number)), kept)


def _chunks(evaluator: Evaluator, numbers: Sequence[int], how: How) -> Iterator[Stored]:
    """What points are worth, chunk by chunk, as they are done: here, by processes beside, or by a cluster's."""
    chunks = [numbers[start : start + CHUNK] for start in range(0, len(numbers), CHUNK)]
    workers = min(how.workers, len(chunks), int(evaluator.seconds(CHUNK) * len(numbers) / WORTH_S))
    if how.engine is None and workers <= 1:
        yield from (_stored(evaluator, some) for some in chunks)
        return
    shared_by = processes.Workers(workers, how.engine)
    asked = StudyAsked(uuid.uuid4().hex, evaluator.catalog, evaluator.study)
    yield from (fresh for _, fresh in processes.spread(evaluated, asked, chunks, shared_by))


def evaluated(asked: StudyAsked, numbers: Sequence[int]) -> Stored:
    """What some points are worth, in the process that it is called in.

    Raises:
        WrongQuestion: the catalog is another one there.
    """
    if getattr(_HELD, "key", None) != asked.key:
        if not asked.catalog.inputs().items() <= asked.study.inputs.items():
            raise WrongQuestion("--engine: its workers have another catalog, or other data in it, than this process")
        _HELD.key, _HELD.evaluator = asked.key, Evaluator(asked.catalog, asked.study)
    return _stored(_HELD.evaluator, numbers)


def _stored(evaluator: Evaluator, numbers: Sequence[int]) -> Stored:
    outcomes = evaluator.many([evaluator.study.point(number) for number in numbers])
    return {number: optuna_trials.stored(outcome) for number, outcome in zip(numbers, outcomes, strict=True)}


def _asked(study: Study) -> dict[str, Any]:
    """The question as a journal keeps it."""
    section: dict[str, Any] = json.loads(json.dumps(document.dump(answer.question(study))))
    return section


def _least(study: Study, trials: Iterable[Trial]) -> float:
    """The best of some trials in the first objective, as it is minimised; infinite where none is feasible."""
    feasible = [trial for trial in trials if trial.feasible]
    return float(answer.costs(study.objectives[:1], feasible)[:, 0].min()) if feasible else math.inf


def _so_far(best: float) -> str:
    return f"best {abs(best):,.4g}" if math.isfinite(best) else ""


# ---- trials ----------------------------------------------------------------------------------------------------------


def _searched(
    catalog: Catalog, evaluator: Evaluator, wanted: int, how: How, progress: Progress | None
) -> tuple[list[Trial], answer.SearchMethod]:
    study = evaluator.study
    optuna_trials.quiet()
    if how.workers > 1 and how.storage is None:
        raise WrongQuestion("--workers share a journal: name it, --storage study.journal")
    store = trial_storage.storage(how.storage)
    stored = trial_storage.opened(
        store, study, _asked(study), how.seed, shown(how.storage or "memory"), resume=how.resume
    )
    if how.resume:
        optuna_trials.release(stored)
    done = optuna_trials.counted(stored)
    with advancing(progress, "design", wanted) as advance:
        tell: Advance = advance or (lambda n=1, note="": None)
        tell(done, "")
        if how.workers > 1:
            _side_by_side(catalog, study, stored, wanted, how, tell)
        else:
            optuna_trials.run(stored, evaluator, wanted, how.seed, lambda n, note: tell(n, note), lambda: True)
    name = "NSGA-II" if len(study.objectives) > 1 else "TPE"
    return completed(stored, study), answer.SearchMethod(name=name, exact=False, seed=how.seed)


def completed(stored: optuna.Study, study: Study) -> list[Trial]:
    """The trials that a storage holds, in their order."""
    from optuna.trial import TrialState

    kept = stored.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return [
        answer.trial(
            study, trial.number, study.values(optuna_samplers.point(study, trial.params)), trial.user_attrs["outcome"]
        )
        for trial in kept
    ]


def _side_by_side(
    catalog: Catalog, study: Study, stored: optuna.Study, wanted: int, how: How, advance: Advance
) -> None:
    """Trials by several processes on one storage; this one watches."""
    import multiprocessing

    # Fresh processes: a fork of one that has threads (a progress bar) may hang.
    fresh = multiprocessing.get_context("spawn")
    assert how.storage is not None
    given = (catalog, study, how.storage, wanted, how.seed)
    workers = [fresh.Process(target=_work, args=given, daemon=True) for _ in range(how.workers)]
    try:
        with processes.without_main():
            for worker in workers:
                worker.start()
        seen = optuna_trials.counted(stored)
        while any(worker.is_alive() for worker in workers):
            time.sleep(POLL_S)
            now = len(completed(stored, study))
            if now > seen:
                advance(now - seen, _so_far(_least(study, completed(stored, study))))
                seen = now
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
    failed = [worker.exitcode for worker in workers if worker.exitcode]
    if failed and optuna_trials.counted(stored) < wanted:
        raise AssertionError(f"{len(failed)} of {how.workers} workers ended with exit code {failed[0]}")


def _work(catalog: Catalog, study: Study, storage: str, wanted: int, seed: int) -> None:
    """What one worker does: trials, until there are enough or its parent is gone."""
    import optuna

    optuna_trials.quiet()
    parent = os.getppid()
    with _undisturbed():
        stored = optuna.load_study(study_name=study.name, storage=trial_storage.storage(storage))
        evaluator = Evaluator(catalog, study)
        optuna_trials.run(stored, evaluator, wanted, seed, lambda n, note: None, lambda: os.getppid() == parent)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leaves Ctrl-C to the parent, which ends its workers."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
