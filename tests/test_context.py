"""Context parallelism by what the kernels of a model's attention allow: planned, priced, checked and exported so."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import pytest

from planner import api
from planner.base.errors import NoAnswer, WrongQuestion
from planner.launchers import EXPORTERS, bundle, parts, reading
from planner.launchers.bundle import refusals
from planner.models import context
from planner.models.workload import model, workload
from planner.schema.plan import Plan
from planner.verify import violations
from tests.launchers.environments import given
from tests.sweeps import sweep
from tests.words import worded


@cache
def estimated(name: str, pins: str, sequence: int) -> Plan:
    return api.estimate(name, "dgx-h100:2", pins.split(), seq=sequence, runtime="megatron-core").plans[0]


gathered = partial(estimated, "mistral-7b", "cp=2 tp=2", 16384)
exchanged = partial(estimated, "gpt-oss-20b", "cp=4 ep=8", 16384)
ring = partial(estimated, "llama3-8b", "cp=2 tp=2", 16384)


@sweep(
    ("name", "sequence", "way"),
    [
        ("llama3-8b", 131072, "p2p"),
        ("mistral-7b", 8192, "all_gather"),
        ("mistral-7b", 4096, "p2p"),  # the window holds the whole sequence
        ("gpt-oss-20b", 4096, "a2a"),
    ],
)
def test_the_algorithm_is_the_first_that_the_kernels_allow(name: str, sequence: int, way: str) -> None:
    assert context.algorithms(workload(name, sequence=sequence))[0] == way


@sweep(("made", "way"), [(gathered, "all_gather"), (exchanged, "a2a"), (ring, "p2p")])
def test_plan_and_command_say_it(made: Callable[[], Plan], way: str) -> None:
    plan = made()
    assert plan.parallelism.cp_algorithm == way
    assert not violations(plan)
    assert f"--cp-comm-type {way}" in bundle(plan, parts("megatron"), given("megatron")).files["start.sh"]


def test_without_context_parallelism_there_is_none() -> None:
    alone = estimated("mistral-7b", "cp=1", 16384)
    assert alone.parallelism.cp_algorithm is None
    assert "--cp-comm-type" not in bundle(alone, parts("megatron"), given("megatron")).files["start.sh"]


@sweep(
    ("made", "way", "told"),
    [
        (gathered, "p2p", "a window of 4,096 in 16,384 tokens over cp 2 by p2p"),
        (gathered, None, "over cp 2 by p2p"),
        (exchanged, "all_gather", "attention sinks over cp 4 by all_gather"),
    ],
)
def test_verify_finds_what_dies_in_the_first_pass(made: Callable[[], Plan], way: str | None, told: str) -> None:
    changed = replace(made(), parallelism=replace(made().parallelism, cp_algorithm=way))
    found = [v for v in violations(changed) if v.name == "context_kernel_runs"]
    assert told in str(found)


def test_heads_that_cannot_be_dealt_are_refused() -> None:
    sixteen = replace(exchanged(), parallelism=replace(exchanged().parallelism, tp=4))
    assert "8 key/value heads over tp 4 and 4 ranks that exchange them" in str(violations(sixteen))


def test_what_is_gathered_or_exchanged_is_not_hidden() -> None:
    """It is needed before the kernel starts; a ring's transfers run beside it."""
    for plan in (gathered(), exchanged()):
        assert plan.prediction.breakdown["cp"] > ring().prediction.breakdown["cp"] >= 0


def test_import_takes_over_the_algorithm_or_tells_that_kernels_have_it_not() -> None:
    command = bundle(ring(), parts("megatron"), given("megatron")).files["start.sh"]
    other = command.replace("--cp-comm-type p2p", "--cp-comm-type a2a")
    found = reading.plan("megatron", other, ["dgx-h100:2"])
    assert found.plans.plans[0].parallelism.cp_algorithm == "a2a" and not any("by a2a" in d for d in found.differs)
    windowed = bundle(gathered(), parts("megatron"), given("megatron")).files["start.sh"]
    dying = windowed.replace("--cp-comm-type all_gather", "--cp-comm-type p2p")
    told = "context-parallel ranks share sequences by p2p; predicted by all_gather"
    assert told in reading.plan("megatron", dying, ["dgx-h100:2"]).differs


layered = partial(estimated, "deepseek-v2-lite", "cp=16 ep=16 cp_algorithm=a2a+p2p", 65536)


def test_layered_ranks_are_planned_written_and_read_back() -> None:
    """Of 16 ranks the 8 of a node exchange heads, and two groups of them are a ring."""
    p = layered().parallelism
    assert (p.cp_algorithm, p.cp_exchanging) == ("a2a+p2p", 8) and not violations(layered())
    command = bundle(layered(), parts("megatron"), given("megatron")).files["start.sh"]
    assert "--hierarchical-context-parallel-sizes 8 2" in command and "--cp-comm-type a2a+p2p" in command
    found = reading.plan("megatron", command, ["dgx-h100:2"])
    assert found.plans.plans[0].parallelism == p and not any("context" in d for d in found.differs)
    other = reading.plan("megatron", command.replace("sizes 8 2", "sizes 4 4"), ["dgx-h100:2"])
    assert any("in levels of (4, 4); predicted in levels of (8, 2)" in d for d in other.differs)


@sweep(("ranks", "told"), [(3, "of cp 16 3 ranks"), (16, "of cp 16 16 ranks"), (None, "of cp 16 1")])
def test_verify_finds_levels_that_are_none(ranks: int | None, told: str) -> None:
    changed = replace(layered(), parallelism=replace(layered().parallelism, cp_exchanging=ranks))
    assert told in str(violations(changed))


def priced(name: str, pins: str, sequence: int) -> dict[str, float]:
    """Seconds of a step by way to share its sequences, of those that there are."""
    pins += " cp_algorithm=p2p|all_gather|a2a|a2a+p2p"
    ways = api.plan(name, "dgx-h100:2", pin=pins, seq=sequence, runtime="megatron-core", top=20, all=True, batch="16")
    return {str(p.parallelism.cp_algorithm): p.prediction.step_time_s for p in reversed(ways.plans)}


def test_every_way_is_searched_and_the_fastest_is_found() -> None:
    pins = "tp=1 pp=1 cp=16 ep=16 micro=1 zero=1 zero_scope=full dp_overlap=on recompute=full precision=bf16"
    found = priced("deepseek-v2-lite", pins, 65536)
    assert set(found) == {"p2p", "all_gather", "a2a", "a2a+p2p"}
    assert len(set(found.values())) == 4


@worded("context.refused", read=json.loads)
def test_a_way_that_cannot_be_is_refused_with_what_can(question: tuple[str, str]) -> Exception:
    with pytest.raises((WrongQuestion, NoAnswer)) as raised:
        estimated(*question, 16384)
    return raised.value


def test_a_ring_alone_is_refused_where_kernels_need_more() -> None:
    assert "needs all_gather" in "; ".join(refusals(gathered(), EXPORTERS["accelerate"]))


def test_a_short_sequence_is_as_if_there_were_no_window() -> None:
    """At a window's length the ring is back: the price of the pass falls to that of its kind."""
    short, long = (estimated("mistral-7b", "cp=2 tp=2", n) for n in (4096, 8192))
    assert (short.parallelism.cp_algorithm, long.parallelism.cp_algorithm) == ("p2p", "all_gather")
    assert model("mistral-7b").window is not None
