"""What docs/accuracy-details.md says of shortfalls is made of the figures, and lists nothing that is reached."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from docs import accuracy_shortfalls as short
from docs.labs import Covered, Regret
from tests.sweeps import sweep


def found(few: float = 0.05, share: float = 0.8, own: float = 0.1, naive: float = 0.2) -> Any:
    return SimpleNamespace(
        sites=[SimpleNamespace(few=few, name="a"), SimpleNamespace(few=few, name="b")],
        covered=[Covered("a", 9, share, 0.2), Covered("too few to count", 1, 0.0, 0.2)],
        regrets=[Regret("swept", 4, own, own, naive, 2)],
    )


def job(family: str, tuned: float) -> Any:
    return SimpleNamespace(job=SimpleNamespace(run=SimpleNamespace(family=family)), tuned=tuned)


JOBS = [job("dense", 1.0), job("moe", 1.0)]


def missed(f: Any, jobs: Any = JOBS) -> list[str]:
    return [s.figure for s in short.shortfalls(f, jobs) if s.missed]


def test_what_is_reached_is_no_shortfall() -> None:
    assert missed(found()) == []


@sweep(
    ("f", "jobs", "figures"),
    [
        (found(few=0.07), JOBS, ["after 3 own runs, mean over sites"]),
        (found(few=0.11), JOBS, ["after 3 own runs, mean over sites", "the most"]),
        (found(share=0.7), JOBS, ["80 % intervals hold"]),
        (found(share=0.9), JOBS, ["80 % intervals hold"]),
        (found(own=0.3), JOBS, ["regret: swept (4 groups)"]),
        (found(), [job("dense", 0.9), job("moe", 1.0)], ["our best plans over the measured ones, dense"]),
        (found(), [job("dense", 1.0), job("moe", 1.1)], ["our best plans over the measured ones, mixtures"]),
    ],
)
def test_each_figure_that_is_missed_is_listed_with_what_would_settle_it(f: Any, jobs: Any, figures: list[str]) -> None:
    assert missed(f, jobs) == figures
    assert all(s.why and s.settles for s in short.shortfalls(f, jobs))


@sweep(("pp", "times"), [(1, 16), (2, 32), (4, 64), (8, 64)])
def test_a_stage_waits_twice_at_an_end_and_four_times_within(pp: int, times: int) -> None:
    """256 sequences over 8 replicas, two at a time: 16 micro-batches."""
    layout = {"tp": 1, "pp": pp, "dp": 8, "micro": 2}
    run: Any = SimpleNamespace(
        variants=[SimpleNamespace(layout=layout)], workload=SimpleNamespace(batch=256), measured=10.0
    )
    assert short.waits(run) == times
    assert short.longer(run, 2.0) == pytest.approx(8.0 / times)
    run.measured = None
    assert np.isnan(short.longer(run, 2.0))
