"""The router's decisions: by operation, group size and bytes, the same on every rank. No PyTorch needed."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.comm.routing.rules import OPERATIONS, RoutingRule, checked, choose, of_plan, pools_of_plan
from tests.sweeps import sweep

RULES = st.lists(
    st.builds(
        RoutingRule,
        st.sampled_from(OPERATIONS),
        st.sampled_from([None, 2, 4]),
        st.sampled_from([0.0, 1024.0]),
        st.sampled_from([1023.0, 1024.0, 2.0**20]),
        st.sampled_from(["gloo", "mpi"]),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(RULES, st.sampled_from(OPERATIONS), st.sampled_from([1, 2, 4, 8]), st.integers(0, 2**21))
def test_a_rule_that_holds_is_followed(rules: list[RoutingRule], op: str, ranks: int, size: int) -> None:
    found = choose(rules, op, ranks, size, "default")
    held = [r for r in rules if r.op == op and r.ranks in (None, ranks) and r.least <= size <= r.most]
    own = [r.backend for r in held if r.ranks == ranks]
    assert found == (own[0] if own else held[0].backend if held else "default")


@settings(deadline=None)
@given(RULES, st.sampled_from(OPERATIONS), st.sampled_from([2, 4]), st.integers(0, 2**21))
def test_of_rules_that_are_let_through_the_order_does_not_matter(
    rules: list[RoutingRule], op: str, ranks: int, size: int
) -> None:
    try:
        checked(rules, ["gloo", "mpi"])
    except ValueError:
        return
    assert choose(rules, op, ranks, size, "x") == choose(rules[::-1], op, ranks, size, "x")


@sweep(
    ("rules", "says"),
    [
        ([RoutingRule("all-redduce", 2, 0, 1, "gloo")], "no operation 'all-redduce'"),
        ([RoutingRule("all-reduce", 2, 0, 1, "nccl")], "no back end 'nccl' here; loaded are gloo, mpi"),
        ([RoutingRule("all-reduce", 2, 5, 1, "gloo")], "no range"),
        (
            [RoutingRule("all-reduce", 2, 0, 9, "gloo"), RoutingRule("all-reduce", 2, 9, 20, "mpi")],
            "hold for the same calls",
        ),
    ],
)
def test_rules_that_cannot_be_followed(rules: list[RoutingRule], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        checked(rules, ["gloo", "mpi"])


def test_rules_are_read_from_a_plan(tmp_path: Path) -> None:
    rule = {"op": "all-reduce", "group": "dp", "bytes_min": 0.0, "bytes_max": 9.0, "backend": "mpi"}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"kind": "plan-set", "plans": [{"communication": [rule | {"ranks": 4}, rule]}]}))
    assert of_plan(path) == (
        RoutingRule("all-reduce", 4, 0.0, 9.0, "mpi"),
        RoutingRule("all-reduce", None, 0.0, 9.0, "mpi"),
    )
    path.write_text(json.dumps({"kind": "procurement"}))
    with pytest.raises(ValueError, match="not a plan"):
        of_plan(path)


def test_a_rule_of_the_groups_own_pools_comes_first() -> None:
    rules = [
        RoutingRule("all-reduce", 4, 0, 9, "gloo"),
        RoutingRule("all-reduce", 2, 0, 9, "gloo", (0,)),
        RoutingRule("all-reduce", 2, 0, 9, "mpi", (1,)),
        RoutingRule("all-reduce", None, 0, 9, "mpi", (0, 1)),
        RoutingRule("all-reduce", 2, 10, 19, "mpi"),
    ]
    assert checked(rules[1:3], ["gloo", "mpi"]), "what differs by pool is no conflict"
    asks = {((0,), 2, 5): "gloo", ((1,), 2, 5): "mpi", ((1, 0), 2, 5): "mpi", ((0,), 2, 15): "mpi"}
    asks |= {((0, 1), 4, 5): "mpi", ((2,), 4, 5): "gloo", ((2,), 2, 5): "x", ((), 2, 5): "x"}
    for (pools, ranks, size), found in asks.items():
        assert choose(rules, "all-reduce", ranks, size, "x", pools) == found, (pools, ranks, size)
    with pytest.raises(ValueError, match="hold for the same calls"):
        checked([RoutingRule("all-reduce", 2, 0, 9, "gloo"), rules[2]], ["gloo", "mpi"])


def test_ranks_are_numbered_pool_after_pool(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    pools = [{"count": 1, "accelerators_per_node": 2}, {"count": 2, "accelerators_per_node": 1}]
    rule = {"op": "all-reduce", "ranks": 2, "bytes_min": 0.0, "bytes_max": 9.0, "backend": "mpi", "pools": [0, 1]}
    path.write_text(json.dumps({"kind": "plan", "cluster": {"pools": pools}, "communication": [rule]}))
    assert pools_of_plan(path) == (0, 0, 1, 1) and of_plan(path)[0].pools == (0, 1)
    path.write_text(json.dumps({"kind": "plan", "cluster": {"pools": pools[:1]}, "communication": []}))
    assert pools_of_plan(path) == ()
