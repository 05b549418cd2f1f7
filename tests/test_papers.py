"""What docs/papers.md computes: gains by communication share, and reductions of P100s."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs import papers
from planner.cost.collective_times import speedup_needed, throughput_gain
from tests.sweeps import sweep

ANY = settings(deadline=None, max_examples=60, derandomize=True)


@sweep(("speedup", "throughput"), [(1.90, 0.31), (1.67, 0.25), (1.50, 0.20)])
def test_half_of_a_step_communicating(speedup, throughput):
    assert throughput_gain(0.5, speedup) == pytest.approx(throughput, abs=0.005)
    assert speedup_needed(0.5, throughput) == pytest.approx(speedup, abs=0.02)


@ANY
@given(share=st.floats(0.01, 1.0), speedup=st.floats(1.0, 50.0))
def test_the_speed_up_needed_gives_the_gain(share, speedup):
    assert speedup_needed(share, throughput_gain(share, speedup)) == pytest.approx(speedup, rel=1e-6)
    assert 0 <= throughput_gain(share, speedup) <= speedup - 1 + 1e-12


def test_no_speed_up_is_enough_for_more_than_all_of_it():
    assert np.isinf(speedup_needed(0.2, 0.25))
    assert np.isinf(speedup_needed(np.array([0.1, 0.5]), 0.25)).tolist() == [True, False]


def test_the_reductions_of_the_page_are_those_worked_out():
    for ranks, expected in ((8, (17.93, 18.17, 18.01, 163.62)), (128, (20.33, 25.37, 20.57, 2617.38))):
        found = papers.reductions(102.24e6, ranks)
        named = [1e3 * found[name] for name in ("direct_two_phase", "ring", "halving_doubling", "parameter_server")]
        assert named == pytest.approx(expected, abs=0.005)
        assert found["direct_two_phase"] < found["tree"] < found["parameter_server"]


def test_gradients_are_those_of_the_networks():
    page = papers.manoa()
    assert "| resnet50 | 102.2" in page
    assert "| resnet101 | 178.2" in page
    assert page.count("\n") == 12


def test_a_mixture_known_beforehand_is_no_worse_than_a_single_back_end():
    seen, unseen = papers.mixture()
    assert seen >= 1.0
    assert unseen <= seen * 1.5
