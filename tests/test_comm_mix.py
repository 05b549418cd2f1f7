"""What ``benchmarks/comm_mix.py`` makes of its launches: the figure, its interval, when it stops, what it keeps."""

import argparse
import math
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks import comm_mix, paired
from benchmarks.comm_mix import Launches, told

JOB = {"rules": [], "sizes": [1024], "pairs": 3, "mpi": "mpich", "base": "gloo"}


def drawn(seed: int, n: int, spread: float, centre: float = 1.0) -> list[float]:
    found = random.Random(seed)
    return [math.exp(found.gauss(math.log(centre), spread)) for _ in range(n)]


def launches(path: Path, ratios: list[float], job: dict[str, Any] = JOB) -> Launches:
    found = Launches(path, job)
    for ratio in ratios:
        found.add({"gloo": 2.0, "mpich": 4.0, "mixed": 2.0 * ratio})
    return found


def test_the_interval_is_that_of_the_trimmed_mean() -> None:
    # By hand: ln 1, 2, 4, 8, 16 loses its ends; winsorised 2 2 4 8 8, whose deviation is ln 2; t of 2 degrees is 4.30.
    found = paired.interval([1.0, 2.0, 4.0, 8.0, 16.0])
    assert found is not None
    half = 4.30 * math.log(2) / (0.6 * math.sqrt(5))
    assert math.isclose(found.centre, 4.0)
    assert math.isclose(found.low, 4.0 / math.exp(half)) and math.isclose(found.high, 4.0 * math.exp(half))
    assert paired.interval([]) is None and paired.interval([1.0]) is None
    same = paired.interval([1.1] * 9)
    assert same is not None and same.half < 1e-9


def test_the_interval_holds_the_truth_as_often_as_it_says_and_outliers_move_it_little() -> None:
    held = 0
    for seed in range(600):
        found = paired.interval(drawn(seed, 12, 0.04, 1.02))
        held += found is not None and found.low <= 1.02 <= found.high
    assert 0.925 <= held / 600 <= 0.985
    plain, with_one = (paired.interval([*drawn(1, 19, 0.01), last]) for last in (1.0, 5.0))
    assert plain is not None and with_one is not None and abs(with_one.centre - plain.centre) < 0.005


def test_few_launches_or_wide_ones_stop_nothing() -> None:
    assert not paired.narrow([1.0] * (paired.LEAST - 1), 0.01)
    assert paired.narrow([1.0] * paired.LEAST, 0.01)
    assert not paired.narrow(drawn(3, 10, 0.1), 0.01)


def test_launches_go_on_where_they_were_and_refuse_others(tmp_path: Path) -> None:
    path = tmp_path / "launches-2.jsonl"
    launches(path, [1.0, 1.1])
    with path.open("a", encoding="utf-8") as file:
        file.write('{"of": "cut o')
    again = Launches(path, JOB)
    assert again.ratios("gloo") == pytest.approx([1.0, 1.1])
    again.add({"gloo": 1.0, "mpich": 1.0, "mixed": 1.2})
    assert Launches(path, JOB).ratios("gloo") == pytest.approx([1.0, 1.1, 1.2])
    with pytest.raises(SystemExit, match="of other rules, sizes, pairs or router"):
        Launches(path, {**JOB, "pairs": 4})


def test_it_stops_when_narrow_or_out_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def launched(ranks: int, job: dict[str, Any]) -> dict[str, float]:
        seen.append(job["launch"])
        return {"gloo": 1.0, "mpich": 3.0, "mixed": 1.0 + 0.001 * (job["launch"] % 3)}

    monkeypatch.setattr(comm_mix, "launched", launched)
    found = Launches(tmp_path / "narrow", JOB)
    notes = list(comm_mix.gone_on(found, 2, JOB, argparse.Namespace(until=0.01, within=1e9)))
    assert seen == list(range(paired.LEAST)) and len(notes) == paired.LEAST
    assert told(found, "gloo", "mpich", 0.01)["within_1.03"] is True
    seen.clear()
    short = Launches(tmp_path / "short", JOB)
    list(comm_mix.gone_on(short, 2, JOB, argparse.Namespace(until=0.0, within=-1.0)))
    assert seen == [0, 1], "two at least, so that there is an interval"
    answer = told(short, "gloo", "mpich", 0.0)
    assert answer["within_1.03"] is None and not answer["as_narrow_as_asked"]


def test_a_slower_router_is_told(tmp_path: Path) -> None:
    answer = told(launches(tmp_path / "slow", drawn(5, 20, 0.01, 1.05)), "gloo", "mpich", 0.01)
    assert answer["within_1.03"] is False and answer["ratio"]["low"] > 1.03
    assert answer["ratio_to_the_other"]["high"] < 0.6
    empty = told(Launches(tmp_path / "none", JOB), "gloo", "mpich", 0.01)
    assert empty["ratio"] is None and empty["seconds"] == {}
