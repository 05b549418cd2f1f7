"""Deadlines that hold though nodes are lost: what is kept free, spares as a choice, and what does not follow."""

from __future__ import annotations

import math
import random
import tomllib
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import NoAnswer, WrongQuestion
from planner.catalog import load
from planner.catalog.files import TomlDocument
from planner.procurement import run
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings
from planner.procurement.program.solve import best as solved
from planner.procurement.question import reading
from planner.procurement.run import Depth
from planner.procurement.throughput.column import Column, Survival
from planner.question.typed_file import TypedFile
from planner.schema.procurement import Alternative, Procurement
from planner.verify import procurement as verify
from tests.procuring import best_value, hired, job, portfolio, random_instance

ASKED = """
name = "survive"
currency = "USD"
as_of = "2026-08-31"
horizon = "6 months"
[reliability]
repair = "4 d"
{survive}
[[workloads]]
name = "base"
model = "qwen3-8b"
tokens = "100B"
deadline = "{due!r} d"
{more}
[[candidates]]
node = "{node}"
ways = ["{way}"]
counts = [{counts}]
"""


@cache
def asked(
    due: float, survive: str = "", counts: str = "2, 4", node: str = "nebius-8x-h100", way: str = "on-demand",
    more: str = "",
) -> Procurement:  # fmt: skip
    known = load()
    text = ASKED.format(due=due, survive=survive, counts=counts, node=node, way=way, more=more)
    document = TomlDocument(Path("survive.toml"), text, tomllib.loads(text))
    wanted = reading.portfolio(TypedFile(document=document), known)
    return run.procure(known, wanted, depth=Depth(top=1, marginal=False, sensitivity=False))


def best(due: float, survive: str = "", **more: Any) -> Alternative:
    return asked(due, survive, **more).alternatives[0]


ONE = 'survive = "N-1"'


@pytest.mark.slow
@pytest.mark.slow
def test_agrees_with_trying_everything_where_nodes_may_be_lost() -> None:
    """Every job on a pool is done some days before its deadline: an assignment has those deadlines from the start."""
    answered = dearer = 0
    for seed in range(320):
        whole = random_instance(seed)
        chance = random.Random(seed)
        early = {(c.job, c.place): chance.choice((0.0, 1.0, 5.0, 15.0)) for c in whole.columns}
        survivals = {key: Survival(tokens_per_s=0.0, days=days, kept_free=days) for key, days in early.items()}
        found = solved(replace(whole, survivals=survivals), ProcureVariant(), "cost", Settings(gap=1e-9))
        wanted = min(
            (
                best_value(_assigned(whole, assigned, early), "cost")
                for assigned in product(range(len(whole.pools)), repeat=len(whole.jobs))
                if all((j, (p,)) in early for j, p in enumerate(assigned))
            ),
            default=math.inf,
        )
        assert (found is None) == math.isinf(wanted), seed
        if found is not None:
            answered += 1
            dearer += wanted > best_value(whole, "cost") * (1 + 1e-6)
            assert found.value == pytest.approx(wanted, rel=1e-6) and found.bound <= wanted * (1 + 1e-6), seed
    assert answered > 100 and dearer > 20


def _assigned(
    whole: ProcureInstance, run: tuple[int, ...], early: dict[tuple[int, tuple[int, ...]], float]
) -> ProcureInstance:
    """The question with each job on one pool alone, and due so much earlier there."""
    jobs = tuple(
        replace(each, deadline_day=each.deadline_day - early[j, (run[j],)]) for j, each in enumerate(whole.jobs)
    )
    columns = [c for c in whole.columns if c.pool == run[c.job]]
    return replace(whole, asked=replace(whole.asked, jobs=jobs), columns=columns)


def test_a_deadline_that_just_held_takes_more_nodes() -> None:
    slow, fast = (best(170.0, counts=n).workloads[0] for n in ("2", "4"))
    # On 4 nodes it continues on 2 while the lost one is repaired; on 2, with no smaller size, it waits.
    minutes = 600 / 86400
    on_two, on_four = 4.0 + minutes, 4.0 * (1 - slow.tokens_per_s / fast.tokens_per_s) + minutes
    assert best(slow.days + 1.0).pools[0].count == 2
    robust = best(slow.days + 1.0, ONE)
    lost = robust.workloads[0].survives
    assert robust.pools[0].count == 4 and lost is not None and lost.days == pytest.approx(on_four, rel=1e-6)
    assert lost.tokens_per_s == pytest.approx(slow.tokens_per_s)
    waits = best(slow.days + on_two + 1e-3, ONE).workloads[0].survives
    assert waits is not None and waits.tokens_per_s == 0 and waits.days == pytest.approx(on_two, rel=1e-6)
    assert best(slow.days + on_two - 1e-3, ONE).pools[0].count == 4
    with pytest.raises(NoAnswer, match="deadline of base"):
        asked(fast.days + on_four - 1e-3, ONE)


def test_what_is_done_first_keeps_room_for_a_loss_before_its_deadline_alone() -> None:
    # Ten days, and five more after a loss; or eleven, and hardly any more. Only the deadline asks for room.
    pools = [hired(0, 100.0), hired(1, 50.0)]
    columns = [Column(0, 0, 10.0, 1e3), Column(0, 1, 11.0, 1e3)]
    losses = {(0, (0,)): Survival(0.0, 5.0, 5.0), (0, (1,)): Survival(1e3, 0.1, 0.1)}
    for deadline, day in ((60.0, 10.0), (14.0, 11.0)):
        instance = ProcureInstance(portfolio((job(0, deadline),)), pools, columns, survivals=losses)
        found = solved(instance, ProcureVariant(), "time")
        assert found is not None and found.done == pytest.approx(day) and found.bound == pytest.approx(day, rel=1e-3)


def test_spares_are_bought_where_waiting_is_too_long() -> None:
    one = best(170.0, counts="2", node="hgx-h100", way="buy")
    assert one.pools[0].spares == 0
    due = one.workloads[0].days + 1.0  # less than a repair
    assert best(due, counts="2", node="hgx-h100", way="buy").pools[0].spares == 0
    spared = best(due, 'survive = "N-2"', counts="2", node="hgx-h100", way="buy")
    lost = spared.workloads[0].survives
    assert spared.pools[0].spares == 2 and lost is not None
    nodes = {line.item: line.count for line in spared.bill_of_materials if line.kind == "node"}
    assert nodes == {"hgx-h100": 2, "hgx-h100, spare": 2}
    assert lost.tokens_per_s == spared.workloads[0].tokens_per_s and lost.days == pytest.approx(600 / 86400)


def test_who_comes_after_a_late_job_keeps_its_deadline_too() -> None:
    other = '[[workloads]]\nname = "small"\nmodel = "llama3-8b"\ntokens = "10B"\ndeadline = "{due} d"'
    limited = '2]\nat_most = 2\nmin_order = 1\nwirings = ["fat-tree"'
    alone = best(170.0, counts="2").workloads[0].days
    both = alone * 1.1
    found = asked(170.0, ONE, counts=limited, more=other.format(due=both + 4.1))
    assert verify.violations(found) == []
    with pytest.raises(NoAnswer):  # first the small one: late, base would still be done by day 170, the small one not
        asked(170.0, ONE, counts=limited, more=other.format(due=alone * 0.1 + 3.9))


def test_what_does_not_follow_is_found() -> None:
    found = asked(170.0, ONE)
    (a,) = found.alternatives
    (job,) = a.workloads
    assert job.survives is not None and verify.violations(found) == []

    def names(**more: Any) -> set[str]:
        told = replace(a, workloads=(replace(job, **more),))
        return {v.name for v in verify.violations(replace(found, alternatives=(told,)))}

    assert "deadlines_survive" in names(survives=None)
    assert "deadlines_survive" in names(survives=replace(job.survives, days=0.0))
    assert "deadlines_survive" in names(survives=replace(job.survives, tokens_per_s=2 * job.tokens_per_s))
    assert "deadlines_survive" in names(survives=replace(job.survives, lost_nodes=2))
    assert "deadlines_survive" in names(deadline_day=job.finish_day + 1.0)


def test_how_many_may_be_lost_is_read() -> None:
    for wrong in ('"N-0"', '"all"', "100"):
        with pytest.raises(WrongQuestion, match="write the nodes that may be lost"):
            asked(170.0, f"survive = {wrong}")
    assert asked(170.0, "survive = 1").question.survive_nodes == 1
