"""Context parallelism by what the kernels of a model's attention allow: planned, priced, checked and exported so."""

from dataclasses import replace

import pytest

from planner import api
from planner.launchers import EXPORTERS, bundle, parts, reading
from planner.launchers.bundle import refusals
from planner.models import context
from planner.models.workload import model, workload
from planner.schema.plan import Plan
from planner.verify import violations
from tests.launchers.environments import given


def estimated(name: str, pins: str, sequence: int) -> Plan:
    return api.estimate(name, "dgx-h100:2", pins.split(), seq=sequence, runtime="megatron-core").plans[0]


GATHERED = estimated("mistral-7b", "cp=2 tp=2", 16384)
EXCHANGED = estimated("gpt-oss-20b", "cp=4 ep=8", 16384)
RING = estimated("llama3-8b", "cp=2 tp=2", 16384)


@pytest.mark.parametrize(
    ("name", "sequence", "way"),
    [
        ("llama3-8b", 131072, "p2p"),
        ("mistral-7b", 8192, "all_gather"),
        ("mistral-7b", 4096, "p2p"),  # the window holds the whole sequence
        ("gpt-oss-20b", 4096, "a2a"),
    ],
)
def test_the_algorithm_is_the_first_that_the_kernels_allow(name: str, sequence: int, way: str) -> None:
    assert context.algorithm(workload(name, sequence=sequence)) == way


@pytest.mark.parametrize(("plan", "way"), [(GATHERED, "all_gather"), (EXCHANGED, "a2a"), (RING, "p2p")])
def test_plan_and_command_say_it(plan: Plan, way: str) -> None:
    assert plan.parallelism.cp_algorithm == way
    assert not violations(plan)
    assert f"--cp-comm-type {way}" in bundle(plan, parts("megatron"), given("megatron")).files["start.sh"]


def test_without_context_parallelism_there_is_none() -> None:
    alone = estimated("mistral-7b", "cp=1", 16384)
    assert alone.parallelism.cp_algorithm is None
    assert "--cp-comm-type" not in bundle(alone, parts("megatron"), given("megatron")).files["start.sh"]


@pytest.mark.parametrize(
    ("plan", "way", "told"),
    [
        (GATHERED, "p2p", "a window of 4,096 in 16,384 tokens over cp 2 by p2p"),
        (GATHERED, None, "over cp 2 by p2p"),
        (EXCHANGED, "all_gather", "attention sinks over cp 4 by all_gather"),
    ],
)
def test_verify_finds_what_dies_in_the_first_pass(plan: Plan, way: str | None, told: str) -> None:
    changed = replace(plan, parallelism=replace(plan.parallelism, cp_algorithm=way))
    found = [v for v in violations(changed) if v.name == "context_kernel_runs"]
    assert told in str(found)


def test_heads_that_cannot_be_dealt_are_refused() -> None:
    sixteen = replace(EXCHANGED, parallelism=replace(EXCHANGED.parallelism, tp=4))
    assert "8 key/value heads over tp 4 and cp 4 by a2a" in str(violations(sixteen))


def test_what_is_gathered_or_exchanged_is_not_hidden() -> None:
    """It is needed before the kernel starts; a ring's transfers run beside it."""
    for plan in (GATHERED, EXCHANGED):
        assert plan.prediction.breakdown["cp"] > RING.prediction.breakdown["cp"] >= 0


def test_import_tells_another_algorithm() -> None:
    command = bundle(RING, parts("megatron"), given("megatron")).files["start.sh"]
    told = "context-parallel ranks share sequences by a2a; predicted by p2p"
    assert told not in reading.plan("megatron", command, ["dgx-h100:2"]).differs
    other = command.replace("--cp-comm-type p2p", "--cp-comm-type a2a")
    assert told in reading.plan("megatron", other, ["dgx-h100:2"]).differs


def test_a_ring_alone_is_refused_where_kernels_need_more() -> None:
    assert "needs all_gather" in "; ".join(refusals(GATHERED, EXPORTERS["accelerate"]))


def test_a_short_sequence_is_as_if_there_were_no_window() -> None:
    """At a window's length the ring is back: the price of the pass falls to that of its kind."""
    short, long = (estimated("mistral-7b", "cp=2 tp=2", n) for n in (4096, 8192))
    assert (short.parallelism.cp_algorithm, long.parallelism.cp_algorithm) == ("p2p", "all_gather")
    assert model("mistral-7b").window is not None
