"""The same study has the same answer on a fast machine, on a slow one, and on one whose clock jumps."""

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from planner.planning import document
from planner.study import run as designing
from planner.study.run import How
from tests.designing import TINY, known, study

CLOCKS = ("perf_counter", "process_time", "monotonic", "time")
WAYS = {
    "as it chooses": How(time_s=0.2),
    "by bounds in time": How(way="bounded"),
    "by bounds, then trials": How(way="bounded", time_s=0.02),
}


def _scaled(factor: float) -> Callable[[Callable[[], float]], Callable[[], float]]:
    """Clocks that run so many times faster."""
    return lambda clock: lambda: clock() * factor


def _jumping(clock: Callable[[], float]) -> Callable[[], float]:
    """A clock that is an hour later at every call."""
    calls = itertools.count()
    return lambda: clock() + 3600.0 * next(calls)


def answer(how: How) -> dict[str, Any]:
    """The document of the tiny study, without what it took."""
    found = document.dump(designing.design(known(), study(TINY), how))
    meta = found.pop("meta")
    return {**found, "searches": meta["searches"]}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_no_clock_has_a_say_in_a_study(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answer(WAYS[way])

    for faked in (_scaled(1e3), _scaled(1e-3), _jumping):
        with monkeypatch.context() as patch:
            for name in CLOCKS:
                patch.setattr(time, name, faked(getattr(time, name)))
            assert answer(WAYS[way]) == expected
