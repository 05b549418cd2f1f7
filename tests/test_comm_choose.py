"""``comm choose``: the integer program against all choices, what moves a call, and the plan it writes."""

import itertools
import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api, catalog, verify
from planner.base.errors import WrongQuestion
from planner.comm import back_end_choice, run
from planner.comm.back_end_choice import BackEndInstance, ChooseOptions, Live
from planner.comm.calls_of_one_pool import grid_of, listed, place_of
from planner.comm.routing import rules as routed
from planner.comm.routing.rules import rule_of
from planner.comm.tables import measured_times, nccl_methods
from planner.comm.tables.measured_times import CollectiveMethod, TableRow, TimesTable
from planner.comm.tables.timing import times
from planner.cost.calls import OPERATIONS
from planner.figures import cost_inputs
from planner.launchers import nccl_tuner
from planner.planning import document
from planner.schema.plan import Plan
from tests.asking import ask, refused
from tests.plans import plans
from tests.sweeps import sweep

CATALOG = catalog.load()
NAMES = ("gloo", "mpich", "nccl", "openmpi")
WHO = [CollectiveMethod(name) for name in NAMES] + [CollectiveMethod("nccl", "ring", "ll")]

SECONDS = st.lists(
    st.dictionaries(st.sampled_from(WHO), st.sampled_from([1.0, 2.0, 3.0, 5.0, 8.0]), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)


@st.composite
def instances(draw: st.DrawFn) -> BackEndInstance:
    seconds = draw(SECONDS)
    pairs = [(c, d) for c in range(len(seconds)) for d in range(c + 1, len(seconds))]
    return BackEndInstance(
        seconds=seconds,
        follows={pair: draw(st.sampled_from([0.5, 1.5])) for pair in pairs if draw(st.booleans())},
        most=draw(st.integers(1, 3)),
        free=draw(st.sampled_from([{}, {"memory": 2.0}, {"sms": 10.0}])),
        live={name: Live(float(i), 4 * i) for i, name in enumerate(NAMES)},
        base=draw(st.sampled_from(NAMES)),
        libraries=frozenset({"mpich", "openmpi"}),
    )


def allowed(instance: BackEndInstance, chosen: Sequence[CollectiveMethod]) -> bool:
    """Whether `chosen`, one candidate for each class, keeps the limits on back ends, memory and SMs."""
    used = {k.backend for k in chosen}
    more = [instance.live.get(name, Live()) for name in used - {instance.base}]
    return (
        len(used) <= instance.most
        and len(used & instance.libraries) <= 1
        and sum(pair.memory for pair in more) <= instance.free.get("memory", float("inf"))
        and sum(pair.sms for pair in more) <= instance.free.get("sms", float("inf"))
    )


def best(instance: BackEndInstance) -> float:
    """By trying everything."""
    every = itertools.product(*(list(each) for each in instance.seconds))
    return min(
        (back_end_choice.value(instance, each) for each in every if allowed(instance, each)),
        default=math.inf,
    )


@settings(max_examples=60, deadline=None)
@given(instances())
def test_the_program_finds_the_best_of_all_choices(instance: BackEndInstance) -> None:
    found = back_end_choice.solve(instance)
    if found is None:
        assert best(instance) == math.inf
        return
    assert allowed(instance, found.candidates)
    assert found.seconds == pytest.approx(best(instance), rel=1e-6) and found.gap <= 1e-6


@settings(max_examples=25, deadline=None)
@given(instances())
def test_more_to_choose_from_never_makes_it_worse(instance: BackEndInstance) -> None:
    one = replace(instance, most=1)
    assert best(instance) <= best(one)
    wider = replace(instance, seconds=[{**each, CollectiveMethod("more"): 9.0} for each in instance.seconds], most=3)
    mine, more = back_end_choice.solve(replace(instance, most=3)), back_end_choice.solve(wider)
    if mine is not None:
        assert more is not None and more.seconds <= mine.seconds + 1e-9


# ---- plans -----------------------------------------------------------------------------------------------------------


def law(alpha: float, beta: float) -> "dict[str, float]":
    return {"alpha": alpha, "beta": beta}


def made(
    laws: dict[CollectiveMethod, dict[str, float]], rounds: int = 5, noise: float = 0.01, seed: int = 0
) -> TimesTable:
    """A table of every operation for 2 to 128 ranks: ``(a + b S)``, times a factor for an operation."""
    draw, rows = random.Random(seed), []
    for op, ranks, size, number in itertools.product(
        OPERATIONS, (2, 8, 128), [4**n for n in range(5, 18)], range(rounds)
    ):
        for who, at in laws.items():
            seconds = (at["alpha"] + at["beta"] * size) * at.get(op, 1.0) * math.exp(draw.gauss(0.0, noise))
            rows.append(TableRow(who, op, ranks, size, seconds, number))
    return TimesTable(tuple(rows))


NCCL, MPI, GLOO = CollectiveMethod("nccl"), CollectiveMethod("mpich"), CollectiveMethod("gloo")
TWO = {NCCL: law(1e-5, 1e-11), MPI: law(1e-5, 2e-11) | {"send-recv": 0.25}}


@cache
def calls(name: str = "dense") -> tuple[Plan, tuple]:
    plan = plans(name).plans[0]
    return plan, listed(plan, CATALOG)


def chosen(found: TimesTable, name: str = "dense", **asked: object) -> back_end_choice.Chosen:
    return back_end_choice.choose(calls(name)[1], found, ChooseOptions(**({"switch_s": 0.0} | asked)), "table.csv")  # type: ignore[arg-type]


def test_what_is_faster_is_used_and_saves_what_shows() -> None:
    found = chosen(made(TWO, noise=0.001))
    assert (found.base, found.live, found.fell_back) == ("nccl", ("mpich", "nccl"), False)
    assert {call.op for call in found.calls if call.choice == "mpich"} == {"send-recv"}
    sent = [call for call in calls()[1] if call.op == "send-recv"]
    ratio = [0.25 * (1e-5 + 2e-11 * call.bytes) / (1e-5 + 1e-11 * call.bytes) for call in sent]
    wanted = sum(call.exposed_s * (1 - share) for call, share in zip(sent, ratio, strict=True))
    assert found.saved_s == pytest.approx(wanted, rel=0.03)
    assert found.held_back is not None and found.held_back < 1.0


@sweep(
    ("asked", "why"),
    [
        ({"most": 1}, "one back end"),
        ({"margin": 3.1}, "a gain of half is below the margin"),
        ({"switch_s": 1.0}, "switches cost more than they gain"),
        ({"launcher": "nccl-tuner"}, "NCCL's tuner knows no MPI"),
        ({"free": {"memory": 0.0}, "live": {"mpich": Live(1.0)}}, "no memory for another"),
        ({"free": {"sms": 3}, "live": {"mpich": Live(0.0, 4)}}, "no SMs for another"),
    ],
)
def test_what_keeps_every_call_with_the_base(asked: dict[str, object], why: str) -> None:
    found = chosen(made(TWO, noise=0.001), **asked)
    assert (found.live, found.saved_s) == (("nccl",), 0.0), why


def test_noise_moves_nothing() -> None:
    """Two back ends that are alike: whatever the draw, no call moves."""
    for seed in range(8):
        same = made({NCCL: law(1e-5, 1e-11), MPI: law(1e-5, 1e-11)}, noise=0.5, seed=seed)
        found = chosen(same, margin=0.0)
        assert len(found.live) == 1 and found.saved_s == 0.0
        assert not found.fell_back or (found.held_back or 0.0) >= 1.0


def test_a_choice_that_does_not_hold_on_other_rounds_is_dropped() -> None:
    """MPI wins four rounds of five by half and loses the fifth by far: trimmed means like it, the fifth does not."""
    rows = []
    for row in made(TWO, rounds=5, noise=0.001).rows:
        far = row.candidate == MPI and row.op == "send-recv" and row.round == 4
        rows.append(replace(row, seconds=row.seconds * 2000) if far else row)
    found = chosen(TimesTable(tuple(rows)))
    assert found.fell_back and found.live == ("nccl",) and (found.held_back or 0) > 1


def test_no_two_mpi_libraries_and_no_back_end_without_an_operation() -> None:
    three = {GLOO: law(1e-4, 1e-10), MPI: law(1e-5, 1e-9), CollectiveMethod("openmpi"): law(1e-3, 1e-11)}
    found = chosen(made(three, noise=0.001), most=3)
    assert len(set(found.live) & {"mpich", "openmpi"}) <= 1
    lacks = TimesTable(tuple(row for row in made({GLOO: law(1e-5, 1e-11)}).rows if row.op != "all-gather"))
    with pytest.raises(WrongQuestion, match=r"gloo has no all-gather.*comm tune --ops"):
        chosen(lacks)


@pytest.mark.slow
def test_algorithms_go_where_the_tuner_takes_them() -> None:
    ring, tree = CollectiveMethod("nccl", "ring", "simple"), CollectiveMethod("nccl", "tree", "ll")
    laws = {ring: law(1e-4, 1e-11), tree: law(1e-6, 1e-9), NCCL: law(2e-4, 2e-11)}
    found = chosen(made(laws, noise=0.001), name="latent", launcher="nccl-tuner")
    assert all(" " not in call.choice for call in found.calls if call.op in ("all-to-all", "send-recv"))
    assert {call.choice for call in found.calls if call.op == "all-gather"} <= {"nccl ring/simple", "nccl tree/ll"}


@pytest.mark.slow
def test_rules_have_no_holes_and_say_what_was_chosen() -> None:
    for name in ("dense", "latent", "short-stages"):
        every = calls(name)[1]
        found = chosen(made(TWO, noise=0.001), name=name)
        for op, ranks in {(rule.op, rule.ranks) for rule in found.rules}:
            for group in {rule.group for rule in found.rules if (rule.op, rule.ranks) == (op, ranks)}:
                mine = [r for r in found.rules if (r.op, r.ranks, r.group) == (op, ranks, group)]
                assert mine[0].bytes_min == 0 and mine[-1].bytes_max == back_end_choice.LARGEST
                assert all(b.bytes_min == a.bytes_max + 1 for a, b in itertools.pairwise(mine))
        for call, told in zip(every, found.calls, strict=True):
            rule = rule_of(found.rules, call.op, call.group, call.ranks, call.bytes)
            assert rule is not None and rule.backend == told.choice


# ---- documents -------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> Plan:
    path = tmp_path / "table.csv"
    measured_times.TableJournal(path).add(made(TWO, noise=0.001).rows)
    plan = plans("dense").plans[0]
    _, new = run.with_rules(
        plan, CATALOG, [str(path)], ChooseOptions(switch_s=0.0, free=run.free(plan, None)), "plan.json"
    )
    return new


def test_a_table_s_name_does_not_make_it_the_model(tmp_path: Path) -> None:
    path = tmp_path / "modelled"
    measured_times.TableJournal(path).add(made(TWO, noise=0.001).rows)
    _, new = run.with_rules(plans("dense").plans[0], CATALOG, [str(path)], ChooseOptions(switch_s=0.0), "plan.json")
    told = new.communication_choice
    assert told is not None and told.table == "modelled" and told.saved_s > 0 and not told.modelled
    assert verify.violations(new) == []
    _, unmeasured = run.modelled(plans("dense").plans[0], CATALOG, "plan")
    assert unmeasured.communication_choice is not None and unmeasured.communication_choice.modelled


def test_the_plan_is_read_back_verified_and_routed(written: Plan, tmp_path: Path) -> None:
    assert verify.violations(written) == []
    path = tmp_path / "new.json"
    path.write_text(document.as_json(written), encoding="utf-8")
    assert document.load(path) == written
    rules = routed.checked(routed.of_plan(path), ["gloo", "nccl", "mpich"])
    told = written.communication_choice
    assert told is not None and told.step_time_s < written.prediction.step_time_s
    for call in told.calls:
        assert routed.choose(rules, call.op, call.ranks, call.bytes, "gloo") == call.choice
    old = json.loads(path.read_text(encoding="utf-8"))
    del old["communication_choice"]
    for rule in old["communication"]:
        del rule["ranks"]
    assert isinstance(document.parse(old, "old"), Plan), "a plan of before there were choices"


@pytest.mark.parametrize(
    "edit",
    [
        {"saved_s": 1e3},
        {"saved_s": -1e-3},
        {"count": 0.0},
        {"ranks": 1},
        {"alone_s": 0.0},
        {"base_s": 1e-12},
        {"pools": (7,)},
        {"pools": ()},
    ],
)
def test_verify_finds_an_edited_call(written: Plan, edit: dict[str, Any]) -> None:
    told = written.communication_choice
    assert told is not None
    at = next(i for i, call in enumerate(told.calls) if call.saved_s > 0)
    calls_told = (*told.calls[:at], replace(told.calls[at], **edit), *told.calls[at + 1 :])
    assert verify.violations(written) == []
    assert verify.violations(replace(written, communication_choice=replace(told, calls=calls_told)))


def test_verify_finds_rules_that_are_for_nothing(written: Plan) -> None:
    rules = written.communication
    for extra in (
        replace(rules[0], ranks=4096),
        replace(rules[0], bytes_min=2.0**41, bytes_max=2.0**42, backend="carrier-pigeon"),
    ):
        found = verify.violations(replace(written, communication=(*rules, extra)))
        assert [each.name for each in found] == ["rules_are_for_calls"]


def test_verify_refuses_a_gain_that_nobody_measured() -> None:
    _, plan = run.modelled(plans("dense").plans[0], CATALOG, "plan")
    told = plan.communication_choice
    assert told is not None and verify.violations(plan) == []
    first = replace(told.calls[0], base_s=2 * told.calls[0].base_s)
    broken = replace(plan, communication_choice=replace(told, calls=(first, *told.calls[1:])))
    assert {found.name for found in verify.violations(broken)} == {"calls_add_up"}


@given(st.sampled_from(OPERATIONS), st.sampled_from([2, 8, 128]), st.integers(0, 20))
@settings(deadline=None, max_examples=40)
def test_between_measurements_times_are_power_laws(op: str, ranks: int, power: int) -> None:
    rows = [
        TableRow(NCCL, o, n, 4**k, 1e-9 * 4**k * n**0.5) for o in OPERATIONS for n in (2, 8, 128) for k in (3, 6, 9)
    ]
    size = 2.0**power
    found = times(TimesTable(tuple(rows)), op, ranks, size)[NCCL]
    inside = 64 <= size
    assert found.seconds == pytest.approx(1e-9 * (size if inside else 64.0) * ranks**0.5)
    between = times(TimesTable(tuple(rows)), op, 4, 64.0)[NCCL]
    assert between.seconds == pytest.approx(1e-9 * 64 * 2.0) and not between.extrapolated
    assert times(TimesTable(tuple(rows)), op, 512, 64.0)[NCCL].extrapolated


def test_the_command(written: Plan, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.json").write_text(document.as_json(plans("dense")), encoding="utf-8")
    answer = ask(capsys, "comm choose plan.json --table table.csv --switch '0 s' -o new.json")
    assert answer.code == 0 and "saved" in answer.out and "clusterwright comm show new.json" in answer.out
    assert document.load(Path("new.json")) == written
    assert "mpich" in ask(capsys, "comm show new.json").out
    assert ask(capsys, "explain new.json").code == 0
    one = ask(capsys, "comm choose plan.json --table table.csv --most 1 --json").document
    assert one["communication_choice"]["live"] == ["nccl"]
    for flags, says in {
        "--most 0": "whole number",
        "--margin x": "not a quantity",
        "--margin 20": "did you mean 20 %",
        "--margin 1000%": "a share is below 1,000 %",
        "--switch 5": "no unit",
        "--table nowhere.csv": "has one table",
        "--rank 7": "no plan of rank 7",
    }.items():
        line = f"comm choose plan.json --table table.csv {flags}"
        assert says in refused(capsys, line), flags


# ---- without a table -------------------------------------------------------------------------------------------------


@sweep("name", ["dense", "multi-head", "latent", "node-shards", "fsdp"], every=2)
def test_without_a_table_the_model_names_the_fastest_of_nccl(name: str) -> None:
    """Rules that NCCL can follow, the fastest of the model at every size, and no gain claimed."""
    plan = plans(name).plans[0]
    found, new = run.modelled(plan, CATALOG, "plan")
    assert verify.violations(new) == [] and found.saved_s == 0.0 and found.live == ("nccl",)
    if any(rule.algorithm for rule in found.rules):
        assert list(nccl_tuner.refuses(new)) == []
    network = grid_of(plan, CATALOG, "plan").network
    efficiencies = CATALOG.collective_efficiencies, CATALOG.fabric_efficiencies
    library = cost_inputs.library(place_of(plan, CATALOG), *efficiencies)
    for call in calls(name)[1]:
        known = nccl_methods.times(network, library, call)
        rule = rule_of(found.rules, call.op, call.group, call.ranks, call.bytes)
        assert rule is not None
        mine = known[CollectiveMethod(rule.backend, rule.algorithm, rule.protocol)].seconds
        alike = [c for c in calls(name)[1] if (c.op, c.ranks) == (call.op, call.ranks) and c.bytes != call.bytes]
        assert mine == min(time.seconds for time in known.values()) or alike


@sweep("name", ["dense", "latent", "fsdp"])
def test_without_a_table_calls_take_what_the_plan_says(name: str) -> None:
    """``comm choose`` prices a call as ``comm show`` does; a rule that a smaller call shares may be its second best."""
    found, _ = run.modelled(plans(name).plans[0], CATALOG, "plan")
    of = {(call.op, call.group, call.ranks, call.bytes): call.alone_s / call.count for call in calls(name)[1]}
    times = [(one.alone_s, of[one.op, one.group, one.ranks, one.bytes]) for one in found.calls]
    assert all(chosen >= shown * (1 - 1e-12) for chosen, shown in times)
    assert sum(chosen == pytest.approx(shown) for chosen, shown in times) >= len(times) / 2
    assert sum(chosen for chosen, _ in times) == pytest.approx(sum(shown for _, shown in times), rel=0.02)


def test_small_calls_that_the_plan_has_not_get_their_own_protocol() -> None:
    """64 MiB by Simple does not make a kilobyte go by Simple."""
    found, _ = run.modelled(plans("dense").plans[0], CATALOG, "plan")
    at = {size: rule_of(found.rules, "all-gather", "tp", 4, size) for size in (1024.0, 2.0**26)}
    assert [rule.protocol for rule in at.values() if rule] == ["ll", "simple"]
    for op, ranks in {(rule.op, rule.ranks) for rule in found.rules}:
        group = next(rule.group for rule in found.rules if (rule.op, rule.ranks) == (op, ranks))
        mine = [r for r in found.rules if (r.op, r.ranks, r.group) == (op, ranks, group)]
        assert all(b.bytes_min == a.bytes_max + 1 for a, b in itertools.pairwise(mine))


def test_the_model_knows_nccl_only() -> None:
    with pytest.raises(WrongQuestion, match="the model knows NCCL's algorithms only"):
        run.modelled(api.plan("llama3-8b", "mi300x-8:2").plans[0], CATALOG, "plan")
