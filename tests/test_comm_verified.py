"""What ``verify`` says of communication rules and of a told choice: each thing that cannot be, by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from planner.schema.plan import CallChoice, CommunicationChoice, CommunicationRule, Plan
from planner.verify import communication
from planner.verify.finding import Claim
from tests.plans import plans
from tests.sweeps import sweep

FULL = 10**12
"""More bytes than any call has."""


def rule(op: str, group: str, ranks: int | None, low: float, high: float, spelt: str, **more: Any) -> CommunicationRule:
    backend, _, how = spelt.partition(" ")
    algorithm, _, protocol = how.partition("/")
    return CommunicationRule(
        op=op, group=group, ranks=ranks, bytes_min=low, bytes_max=high,
        backend=backend, algorithm=algorithm, protocol=protocol, **more,
    )  # fmt: skip


def call(op: str, group: str, ranks: int, size: float, choice: str, alone: float, saved: float) -> CallChoice:
    return CallChoice(
        op=op, group=group, ranks=ranks, bytes=size, count=3.0, choice=choice, runner_up="", alone_s=alone,
        base_s=1.0, extrapolated=False, saved_s=saved,
    )  # fmt: skip


def told(pools: int = 1) -> Plan:
    """A plan that is right: small reductions by a ring of the base, large ones by MPI in half the time."""
    plan = plans("dense").plans[0]
    step = plan.prediction.step_time_s
    return replace(
        plan,
        cluster=replace(plan.cluster, pools=plan.cluster.pools[:1] * pools),
        communication=(
            rule("all-reduce", "dp", 8, 0, 999, "nccl ring/simple"),
            rule("all-reduce", "dp", 8, 1000, FULL, "mpich"),
            rule("all-gather", "tp", 4, 0, FULL, "nccl"),
        ),
        communication_choice=CommunicationChoice(
            table="table.csv", sha256="0123", base="nccl", live=("mpich", "nccl"), most=2, margin=0.1, gap=0.0,
            saved_s=0.2 * step, step_time_s=0.8 * step,
            calls=(
                call("all-reduce", "dp", 8, 500.0, "nccl ring/simple", 0.95, 0.0),
                call("all-reduce", "dp", 8, 1e6, "mpich", 0.5, 0.3 * step),
                call("all-gather", "tp", 4, 1e6, "nccl", 1.0, 0.0),
            ),
        ),
    )  # fmt: skip


def found(plan: Plan) -> list[str]:
    claim = Claim(plan, cast("Any", None))  # no check of communication looks at the model
    return [f"{check.__name__}: {says}" for check in communication.CHECKS for says in check(claim)]


Edit = Callable[[Plan], Plan]


def rules(at: int, **changes: Any) -> Edit:
    """One rule changed."""
    return lambda plan: replace(
        plan, communication=tuple(replace(r, **changes) if i == at else r for i, r in enumerate(plan.communication))
    )


def more(*extra: CommunicationRule) -> Edit:
    """Rules added."""
    return lambda plan: replace(plan, communication=(*plan.communication, *extra))


def choice(**changes: Any) -> Edit:
    """The choice changed; `saved` and `step` in steps of the plan."""

    def edit(plan: Plan) -> Plan:
        known, step = plan.communication_choice, plan.prediction.step_time_s
        assert known is not None
        scaled = {f"{name}_s": changes[name] * step for name in ("saved", "step_time") if name in changes}
        plain = {name: value for name, value in changes.items() if name not in ("saved", "step_time")}
        return replace(plan, communication_choice=replace(known, **plain, **scaled))

    return edit


def calls(at: int, **changes: Any) -> Edit:
    """One call changed; `saved` in steps of the plan."""

    def edit(plan: Plan) -> Plan:
        known, step = plan.communication_choice, plan.prediction.step_time_s
        assert known is not None
        plain = {name: value for name, value in changes.items() if name != "saved"}
        plain |= {"saved_s": changes["saved"] * step} if "saved" in changes else {}
        every = tuple(replace(c, **plain) if i == at else c for i, c in enumerate(known.calls))
        return replace(plan, communication_choice=replace(known, calls=every))

    return edit


def alone(edit: Edit) -> Edit:
    """The same on a plan that tells no choice: rules stand for themselves."""
    return lambda plan: replace(edit(plan), communication_choice=None)


def both(*edits: Edit) -> Edit:
    def edit(plan: Plan) -> Plan:
        for each in edits:
            plan = each(plan)
        return plan

    return edit


OTHER = rule("all-reduce", "tp", 8, 1000, FULL, "gloo")
SMALLER = rule("broadcast", "dp", 8, 0, 10, "gloo")


@sweep(
    ("edit", "says"),
    [
        (alone(rules(2, bytes_min=2.0, bytes_max=1.0)), "one_answer: .* from 2 to 1 bytes is no range"),
        (alone(rules(2, ranks=1)), "one_answer: .* a group of 1 makes no calls"),
        (alone(rules(2, ranks=0)), "one_answer: .* a group of 0 makes no calls"),
        (alone(rules(2, pools=(0, 1))), "one_answer: .* there is no such pool as 2"),
        (alone(rules(2, backend="")), "one_answer: .* no back end"),
        (alone(rules(2, op="all-redduce")), "one_answer: rule for all-redduce .* no such call"),
        (alone(rules(2, group="dpp")), "one_answer: rule for all-gather of 4 ranks in dpp .* no such call"),
        # The same calls: ranks know no more of one than its operation, its group's size and its bytes.
        (alone(more(OTHER)), "one_answer: .* in dp by mpich and .* in tp by gloo hold for the same calls"),
        (alone(rules(1, bytes_min=999.0)), "one_answer: .* hold for the same calls"),
        (alone(both(rules(1, backend="nccl", algorithm="tree", bytes_min=0.0))), "one_answer: .* the same calls"),
        (
            alone(both(rules(1, backend="nccl", algorithm="ring", protocol="ll", bytes_min=0.0))),
            "one_answer: .* the same calls",
        ),
        (rules(1, bytes_min=2e6), "choice_is_.*: all-reduce of 1e.06 bytes in dp falls under 0 rules"),
        (more(rule("all-reduce", "dp", 8, 1000, FULL, "mpich")), "choice_is_.*: .* falls under 2 rules"),
        (calls(2, choice="nccl tree"), "choice_is_.*: .* listed with nccl tree, but by the rules it uses nccl$"),
        (choice(live=("gloo", "mpich", "nccl"), most=3), "choice_is_.*: live are gloo, mpich, nccl of at most 3"),
        (choice(live=("mpich",)), "choice_is_.*: live are mpich of at most 2; the calls use mpich, nccl"),
        (choice(most=1), "choice_is_.*: live are mpich, nccl of at most 1"),
        (more(SMALLER), "rules_are_for_calls: rule for broadcast .* the plan makes no such call"),
        (more(rule("all-reduce", "dp", 16, 0, 9, "nccl")), "rules_are_for_calls: .* of 16 ranks .* no such call"),
        (
            both(rules(0, bytes_min=10.0), more(rule("all-reduce", "dp", 8, 0, 9, "gloo"))),
            "rules_are_for_calls: .* by gloo: live are mpich, nccl",
        ),
        (calls(2, count=0.0), "calls_add_up: .* 4 ranks, 0 calls"),
        (calls(2, count=-1.0), "calls_add_up: .* -1 calls"),
        (both(calls(2, ranks=1), rules(2, ranks=1)), "calls_add_up: .* 1 ranks"),
        (calls(2, bytes=0.0), "calls_add_up: all-gather of 0 bytes in tp: 4 ranks"),
        (calls(2, alone_s=0.0), "calls_add_up: .* 0 s each, 1 s"),
        (calls(2, base_s=-1.0), "calls_add_up: .* 1 s each, -1 s"),
        (calls(2, pools=(0, 6)), "calls_add_up: .* no such pools as 1, 7"),
        (calls(2, pools=()), "calls_add_up: .* no such pools as none"),
        (calls(1, saved=0.51), "calls_add_up: .* s of the step are saved, at most .* can be"),
        (both(calls(1, saved=0.5), calls(2, saved=-0.01)), "calls_add_up: .* s of the step are saved, at most 0 can"),
        (calls(2, alone_s=1.001), "calls_add_up: .* nccl takes 1.001 s, longer than nccl, 1$"),
        (both(calls(1, alone_s=0.92, saved=0.01), choice(saved=0.01, step_time=0.99)), "gains less than the margin"),
        (choice(sha256=""), "calls_add_up: no digest of the table 'table.csv'"),
        (
            choice(table="modelled", sha256="", saved=0.0, step_time=1.0),
            "calls_add_up: .* a gain that was not measured",
        ),
        (choice(step_time=0.9), "gain_adds_up: the step takes .* follow from what is saved"),
        (choice(saved=0.31, step_time=0.69), "gain_adds_up: .* are saved, by the calls"),
        (choice(saved=-0.01, step_time=1.01), "gain_adds_up: .* are saved, by the calls"),
        (
            both(*(calls(at, alone_s=0.4, saved=0.5) for at in range(3)), choice(saved=0.9, step_time=0.1)),
            "gain_adds_up: .* are saved, by the calls .* of",
        ),
    ],
)
def test_what_cannot_be_is_said(edit: Edit, says: str) -> None:
    assert found(told()) == []
    told_so = found(edit(told()))
    assert any(re.search(says, each) for each in told_so), told_so


def test_a_modelled_choice_neither_saves_nor_is_faster() -> None:
    still = both(*(calls(at, alone_s=1.0, saved=0.0) for at in range(3)), choice(saved=0.0, step_time=1.0))
    base = both(
        still, rules(1, backend="nccl"), calls(1, choice="nccl"), choice(live=("nccl",), table="modelled", sha256="")
    )
    assert found(base(told())) == []
    for edit in (calls(0, alone_s=0.9), calls(0, alone_s=0.9, saved=0.05)):
        assert any("a gain that was not measured" in each for each in found(both(base, edit)(told())))
    near = both(base, calls(0, saved_s=1e-12))  # within the tolerance of all else
    assert any("a gain that was not measured" in each for each in found(near(told())))


@sweep(
    "edit",
    [
        alone(rules(2, ranks=2)),
        alone(rules(2, ranks=None, op="anything")),  # of before there were ranks
        # Sizes that touch are not shared; nor are groups of another size, or on other pools.
        alone(more(rule("all-gather", "dp", 4, FULL + 1, 2 * FULL, "gloo"))),
        alone(more(rule("all-gather", "tp", 8, 0, FULL, "gloo"))),
        alone(both(rules(2, pools=(0,)), more(rule("all-gather", "tp", 4, 0, FULL, "gloo", pools=(1,))))),
        alone(more(rule("all-gather", "dp", 4, 0, FULL, "nccl"))),  # the same answer
        # Other sizes than the plan's may get the base although no call uses it.
        both(
            choice(live=("mpich",)),
            rules(2, backend="mpich"),
            calls(0, bytes=2000.0, choice="mpich", alone_s=0.5),
            calls(2, choice="mpich", alone_s=0.5),
        ),
        both(
            rules(2, pools=(0,)), more(rule("all-gather", "tp", 4, 0, FULL, "mpich", pools=(1,))), calls(2, pools=(0,))
        ),
        choice(saved=0.0, step_time=1.0),  # less than the calls' own, which may hide behind each other
        choice(saved=0.3, step_time=0.7),
    ],
)
def test_what_can_be_is_let_pass(edit: Edit) -> None:
    assert found(edit(told(pools=2))) == []


def test_pools_that_share_calls_share_an_answer() -> None:
    """Rules of the same pools, in whatever order, and of any pools beside one, are for the same calls."""
    for mine, theirs in (((0, 1), (1, 0)), ((0,), None), (None, (1,))):
        edit = alone(both(rules(2, pools=mine), more(rule("all-gather", "tp", 4, 0, FULL, "gloo", pools=theirs))))
        assert any("hold for the same calls" in each for each in found(edit(told(pools=2))))


def test_a_call_falls_under_rules_of_its_own_group() -> None:
    """Two groups of one size with one answer: each call has one rule, its own."""
    twin = rule("all-gather", "dp", 4, 0, FULL, "nccl")
    plan = both(more(twin))(told())
    known = plan.communication_choice
    assert known is not None
    extra = call("all-gather", "dp", 4, 1e6, "nccl", 1.0, 0.0)
    assert found(replace(plan, communication_choice=replace(known, calls=(*known.calls, extra)))) == []


def test_a_choice_has_a_base() -> None:
    edit = both(choice(base=""), rules(0, backend="mpich", algorithm="", protocol=""), rules(2, backend="mpich"))
    moved = both(edit, *(calls(at, choice="mpich", alone_s=0.5) for at in (0, 2)), choice(live=("mpich",)))
    assert any(each.startswith("choice_is_what_rules_say: live are mpich") for each in found(moved(told())))
