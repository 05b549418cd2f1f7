"""Trials of a study: Optuna proposes points, each is evaluated exactly, and a journal on disk keeps them.

Every trial has its own seed, made of the study's and the trial's number, so that a study that was stopped and resumed
by one worker ends as one that ran through.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.design.evaluation import Evaluator, Outcome
from planner.design.study import LARGER_IS_BETTER, Point, Study
from planner.errors import WrongQuestion

if TYPE_CHECKING:
    import optuna

Progress = Callable[[int, str], None]
"""Told of so many more trials, and of the best so far."""
CANDIDATES = 64
"""That TPE weighs in a trial."""
NEAR = 3
"""Of so many trials, one is a step from the best point so far."""
NEAR_FROM = 60
"""First trial that may be one: earlier, steps would hold TPE in the first valley that it found."""
POPULATION = 32
"""Of NSGA-II."""
NAMELESS_S = 1.0
STALE_S = 900.0
"""After so long a trial that another machine began and did not end is taken for lost."""


def quiet() -> None:
    """Keeps Optuna's own log and its warnings of what is experimental off the screen."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


# ---- storage ---------------------------------------------------------------------------------------------------------


def storage(where: str | None) -> Any:
    """A journal file, a database by its URL, or memory.

    Raises:
        WrongQuestion: it cannot be opened; the message says why.
    """
    import optuna
    from optuna.storages import InMemoryStorage, JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if where is None:
        return InMemoryStorage()
    if "://" in where:
        shown = where.split("@")[-1]
        try:
            return RDBStorage(_with_driver(where))
        except ImportError:
            raise WrongQuestion(f"--storage {shown}: its driver is missing; pip install psycopg2-binary") from None
        except Exception as error:
            reason = str(error.__cause__ or error).strip().splitlines()[0]
            raise WrongQuestion(f"--storage {shown}: {reason}") from None
    path = Path(where)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise WrongQuestion(f"--storage {where}: {'a folder' if path.is_dir() else 'its folder does not exist'}")
    mended(path)
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (OSError, ValueError, KeyError, optuna.exceptions.OptunaError) as error:
        raise WrongQuestion(f"--storage {where}: not a journal of a study ({error})") from None


def _with_driver(url: str) -> str:
    """A PostgreSQL URL with the driver that is installed; which one is usual changes between versions of SQLAlchemy."""
    from importlib.util import find_spec

    scheme, _, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres"):
        return url
    driver = next((name for name in ("psycopg2", "psycopg") if find_spec(name)), "psycopg2")
    return f"postgresql+{driver}://{rest}"


def mended(path: Path) -> None:
    """Cuts off a last line that a killed process did not finish.

    Raises:
        WrongQuestion: it is another kind of file.
    """
    if not path.exists():
        return
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    try:
        for line in (whole.split(b"\n", 1)[0], whole[:-1].rpartition(b"\n")[2]):
            if line and "op_code" not in json.loads(line):
                raise ValueError
    except ValueError:
        raise WrongQuestion(f"--storage {path}: not a journal of a study") from None
    if len(whole) < len(text):
        with path.open("r+b") as file:
            file.truncate(len(whole))


def opened(
    store: Any, study: Study, question: Mapping[str, Any], seed: int, where: str, *, resume: bool
) -> optuna.Study:
    """The stored study: begun, or gone on with.

    Raises:
        WrongQuestion: it exists and is not to be resumed, it does not and is, or it asked something else.
    """
    import optuna

    known = study.name in optuna.get_all_study_names(store)
    if known and not resume:
        raise WrongQuestion(
            f"{where} already holds study {study.name!r}: --resume goes on with it, --storage names another place"
        )
    if resume and not known:
        raise WrongQuestion(f"--resume: {where} holds no study {study.name!r}; leave it out to begin")
    if known:
        found = optuna.load_study(study_name=study.name, storage=store)
        _unchanged(found.user_attrs.get("question"), question, found.user_attrs.get("seed"), seed)
        return found
    directions: list[Any] = ["maximize" if name in LARGER_IS_BETTER else "minimize" for name in study.objectives]
    found = optuna.create_study(study_name=study.name, storage=store, directions=directions)
    found.set_user_attr("question", dict(question))
    found.set_user_attr("seed", seed)
    return found


def _unchanged(before: Any, now: Mapping[str, Any], seed_before: Any, seed: int) -> None:
    lines = list(differences(before, now))
    if seed_before != seed:
        lines.append(f"seed: {seed_before} before, {seed} now (--seed {seed_before})")
    if lines:
        told = "\n  ".join(lines[:12] + ([f"and {len(lines) - 12} more"] if len(lines) > 12 else []))
        raise WrongQuestion(f"--resume: the study has changed since it was begun:\n  {told}")


def differences(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """Where two questions differ, as lines: key, before, now."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in [*before, *(k for k in now if k not in before)]:
            yield from differences(before.get(key), now.get(key), f"{where}.{key}" if where else str(key))
    elif isinstance(before, list | tuple) and isinstance(now, list | tuple):
        if all(isinstance(x, Mapping) for x in [*before, *now]):
            for n in range(max(len(before), len(now))):
                old, new = (rows[n] if n < len(rows) else None for rows in (before, now))
                name = next((str(r["path"]) for r in (old, new) if r and "path" in r), str(n))
                yield from differences(old, new, f"{where}.{name}")
        elif list(before) != list(now):
            yield f"{where}: {_short(before)} before, {_short(now)} now"
    elif before != now:
        yield f"{where}: {_short(before)} before, {_short(now)} now"


def _short(value: Any) -> str:
    if value is None:
        return "not there"
    text = json.dumps(value) if not isinstance(value, str) else value
    return (
        text
        if len(text) <= 70
        else f"{text[:50]}... ({len(value)} values)"
        if isinstance(value, list | tuple)
        else f"{text[:67]}..."
    )


# ---- sampling --------------------------------------------------------------------------------------------------------


def distributions(study: Study) -> dict[str, Any]:
    """What Optuna may propose on each axis: the place among ordered values, or a name."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    return {
        axis.path: IntDistribution(0, len(axis.values) - 1) if axis.ordered else CategoricalDistribution(axis.values)
        for axis in study.axes
    }


def point(study: Study, params: Mapping[str, Any]) -> Point:
    """The point that a trial proposes."""
    return tuple(
        int(params[axis.path]) if axis.ordered else axis.values.index(params[axis.path]) for axis in study.axes
    )


def seeded(seed: int, number: int) -> int:
    """A trial's own seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{number}".encode()).digest()[:4], "big")


def sampler(study: Study, seed: int, make: Callable[[int], Any] | None = None) -> Any:
    """A sampler that is begun anew for every trial, with the trial's seed."""
    from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler

    def usual(number: int) -> Any:
        own = seeded(seed, number)
        if len(study.objectives) > 1:
            return NSGAIISampler(population_size=POPULATION, seed=own)
        return TPESampler(seed=own, multivariate=True, n_startup_trials=begin, n_ei_candidates=CANDIDATES)

    begin = min(16, 4 + 2 * len(study.axes))

    class Numbered(BaseSampler):
        """Hands each trial to a sampler of its own."""

        def __init__(self) -> None:
            self._of: tuple[int, Any] = (-1, None)

        def own(self, among: Any, trial: Any) -> Any:
            if self._of[0] != trial.number:
                self._of = (trial.number, (make or usual)(ordinal(among, trial.number)))
            return self._of[1]

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return self.own(study, trial).infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            number = ordinal(study, trial.number)
            if make is None and number >= NEAR_FROM and number % NEAR == NEAR - 1 and len(study.directions) == 1:
                found = beside(study, search_space, seeded(seed, number))
                if found is not None:
                    return found
            return self.own(study, trial).sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return self.own(study, trial).sample_independent(study, trial, param_name, param_distribution)

        def before_trial(self, study: Any, trial: Any) -> None:
            self.own(study, trial).before_trial(study, trial)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            self.own(study, trial).after_trial(study, trial, state, values)

    return Numbered()


def beside(found: optuna.Study, space: Mapping[str, Any], seed: int) -> dict[str, Any] | None:
    """An untried point beside the best so far: one axis a place up or down, or two at once; None if there is none.

    TPE finds the region, steps find its edge: where a limit binds, the optimum trades one axis for another.
    """
    from optuna.trial import TrialState

    done = found.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.RUNNING))
    kept = [t for t in done if t.state == TrialState.COMPLETE and _keeps_limits(t) and space.keys() <= t.params.keys()]
    if not kept:
        return None
    sign = -1.0 if found.directions[0].name == "MAXIMIZE" else 1.0
    best = min(kept, key=lambda t: (sign * t.values[0], t.number)).params
    tried = {tuple(t.params.get(name) for name in space) for t in done}
    steps = [(name, value) for name in space for value in _neighbours(space[name], best[name])]
    moves = [[step] for step in steps] + [[a, b] for n, a in enumerate(steps) for b in steps[n + 1 :] if a[0] != b[0]]
    rng = random.Random(seed)
    rng.shuffle(moves)
    for move in sorted(moves, key=len) if seed % 2 else moves:
        params = {**{name: best[name] for name in space}, **dict(move)}
        if tuple(params.values()) not in tried:
            return params
    return None


def _keeps_limits(trial: Any) -> bool:
    return all(value <= 0 for value in trial.constraints.values()) if trial.constraints else True


def _neighbours(distribution: Any, value: Any) -> list[Any]:
    choices = getattr(distribution, "choices", None)
    if choices is not None:
        return [choice for choice in choices if choice != value]
    return [near for near in (value - 1, value + 1) if distribution.low <= near <= distribution.high]


def ordinal(among: Any, number: int) -> int:
    """A trial's number when those that were lost are not counted."""
    from optuna.trial import TrialState

    lost = among.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    return number - len([trial for trial in lost if trial.number < number])


# ---- running ---------------------------------------------------------------------------------------------------------


def run(
    found: optuna.Study, evaluator: Evaluator, target: int, seed: int, advance: Progress, goes_on: Callable[[], bool]
) -> None:
    """Makes trials until there are `target` of them, or `goes_on` says no."""
    from optuna.trial import TrialState

    study = evaluator.study
    found.sampler = sampler(study, seed)
    spread = distributions(study)
    here = f"{socket.gethostname()}:{os.getpid()}"
    best: float | None = None
    while goes_on():
        if counted(found) >= target:
            return
        trial = found.ask(spread)
        if ordinal(found, trial.number) >= target:
            found.tell(trial, state=TrialState.FAIL)
            return
        trial.set_user_attr("worker", here)
        outcome = evaluator.one(point(study, trial.params))
        best = _told(found, trial, outcome, best, advance)


def _told(found: optuna.Study, trial: Any, outcome: Outcome, best: float | None, advance: Progress) -> float | None:
    """Stores an outcome."""
    names = list(outcome.objectives)
    for name, value in outcome.violations.items():
        trial.set_constraint(name, value)
    trial.set_user_attr("outcome", stored(outcome))
    worst = [0.0 if d.name == "MAXIMIZE" else float("inf") for d in found.directions]
    values = [outcome.objectives[name] for name in names] if names else worst
    found.tell(trial, values)
    first = values[0]
    if outcome.feasible and (
        best is None or (first > best if found.directions[0].name == "MAXIMIZE" else first < best)
    ):
        best = first
    advance(1, "" if best is None else f"best {best:,.4g}")
    return best


def stored(outcome: Outcome) -> dict[str, Any]:
    """What of an outcome a journal keeps."""
    return {
        "objectives": outcome.objectives,
        "measures": outcome.measures,
        "violations": outcome.violations,
        "plan": [brief(candidate) for candidate in outcome.candidates] if outcome.objectives else [],
        "why": outcome.why,
    }


def brief(candidate: Any) -> dict[str, Any]:
    """A candidate in few words."""
    options = candidate.options
    return {
        "step_time_s": candidate.time,
        "memory_bytes": candidate.memory,
        "layout": candidate.layout,
        "options": {
            "precision": options.precision,
            "recompute": options.recompute.name,
            "sequence_parallel": options.tensor.sequence_parallel,
            "zero": options.sharding.zero,
            "offload": "optimizer" if options.offload else "none",
        },
    }


def counted(found: optuna.Study) -> int:
    """Trials that were begun, those that were lost left out."""
    from optuna.trial import TrialState

    states = (TrialState.COMPLETE, TrialState.RUNNING)
    return len(found.get_trials(deepcopy=False, states=states))


def release(found: optuna.Study) -> int:
    """Gives up the trials of workers that are no more; how many those were."""
    import datetime

    from optuna.trial import TrialState

    lost, running = 0, found.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    if any("worker" not in trial.user_attrs for trial in running):
        time.sleep(NAMELESS_S)  # a worker says who it is right after a trial began: unless it was killed between
        running = found.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    for trial in running:
        host, _, pid = str(trial.user_attrs.get("worker", ":")).rpartition(":")
        began = trial.datetime_start
        age = (datetime.datetime.now() - began).total_seconds() if began else STALE_S
        if (host in ("", socket.gethostname()) and not _alive(pid)) or age >= STALE_S:
            with contextlib.suppress(Exception):
                found.tell(trial.number, state=TrialState.FAIL)
                lost += 1
    return lost


def _alive(pid: str) -> bool:
    """Whether a process of this machine is there."""
    if not pid:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
