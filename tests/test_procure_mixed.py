"""Jobs on several pools at once: the program against every assignment, calendars, and what leaves the program."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.catalog import load
from planner.commands.command_line import main
from planner.planning import document
from planner.procurement import run
from planner.procurement.program import pruning
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings
from planner.procurement.program.solve import best
from planner.procurement.question import flags, reading
from planner.procurement.question.portfolio import Limits, MixedPools, NodeOption, Owned
from planner.procurement.supply.acquiring import pools
from planner.procurement.throughput import several_pools
from planner.procurement.throughput.column import Column
from planner.question.purchase_options import ProcureQuestion
from planner.question.values import DAYS_PER_MONTH
from planner.schema.procurement import Procurement
from planner.verify import procurement as verify
from tests.asking import ask
from tests.launchers import spread
from tests.procuring import bought, hired, job, portfolio
from tests.procuring_lab import nothing_breaks_its_second_opinion
from tests.procuring_mixed import best_way, faults, mixed_instance
from tests.sweeps import depth, sweep

SETTINGS = Settings(gap=1e-9)


@pytest.mark.slow
@sweep(
    ("objective", "seeds", "more"),
    [
        ("cost", 100, {}),
        ("carbon", 60, {"third": True}),
        ("time", 30, {"third": True}),
        ("cost", 60, {"third": True}),
        ("cost", 60, {"copies": 3}),
    ],
)
def test_agrees_with_trying_everything(objective: str, seeds: int, more: dict[str, Any]) -> None:
    joined = answered = 0
    seeds = depth(seeds, seeds // 3)
    for seed in range(seeds):
        instance = mixed_instance(seed, **more)
        wanted = best_way(instance, objective)
        found = best(instance, ProcureVariant(), objective, SETTINGS)
        assert (found is None) == math.isinf(wanted), seed
        if found is None:
            continue
        answered += 1
        joined += any(len(place) > 1 for place in found.run.values())
        assert found.value == pytest.approx(wanted, rel=2e-4 if objective == "time" else 1e-6), seed
        assert found.bound <= wanted * (1 + 1e-6), seed
        assert not faults(instance, found), seed
        # The same with dominated columns left out.
        lean = replace(instance, columns=pruning.undominated(instance, across=seed % 2 == 0))
        pruned = best(lean, ProcureVariant(), objective, SETTINGS)
        assert pruned is not None and pruned.value == pytest.approx(found.value, rel=2e-4), seed
    assert answered > seeds / 3 and joined > seeds / 8  # both kinds of answers occur


def test_several_sets_of_pools_that_share_some_in_several_copies() -> None:
    answered = 0
    for seed in range(30):
        instance = mixed_instance(seed, copies=2, third=True)
        wanted = best_way(instance, "cost")
        found = best(instance, ProcureVariant(), "cost", SETTINGS)
        if found is None:
            continue
        answered += 1
        assert not faults(instance, found), seed
        assert found.value == pytest.approx(wanted, rel=1e-6), seed
    assert answered > 10


def _in_a_ring(deadline: float) -> ProcureInstance:
    """Three jobs of 20 days on A and B, on B and C, on C and A."""
    jobs = tuple(job(n, deadline) for n in range(3))
    columns = [Column(n, n, 20.0, 1e3, ((n + 1) % 3,)) for n in range(3)]
    return ProcureInstance(portfolio(jobs), [bought(n, 1e5) for n in range(3)], columns)


def test_jobs_on_sets_of_pools_that_share_some_go_one_after_another() -> None:
    # Every pool has 40 days of work, and any two of the jobs need one pool: only 60 days do.
    assert best(_in_a_ring(59.0), ProcureVariant(), "cost", SETTINGS) is None
    found = best(_in_a_ring(60.0), ProcureVariant(), "cost", SETTINGS)
    assert found is not None and not faults(_in_a_ring(60.0), found)


def test_jobs_on_the_same_pools_share_copies_of_them() -> None:
    jobs = tuple(job(n, 40.0) for n in range(3))
    pools = [bought(n, 1e5, copies=2) for n in range(3)]
    # Three jobs of 20 days in 40: on two copies of both. That other sets could be used changes nothing.
    columns = [Column(n, 0, 20.0, 1e3, (1,)) for n in range(3)] + [Column(n, 1, 29.0, 1e3, (2,)) for n in range(3)]
    instance = ProcureInstance(portfolio(jobs), pools, columns)
    found = best(instance, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.hold == {0: 2, 1: 2} and not faults(instance, found)


def test_what_is_rented_beside_machines_of_one_s_own_counts() -> None:
    # Together with a hired pool: its days are paid, its nodes are of its offer, and it must be there.
    own, other = bought(0, 0.0), replace(hired(1, 1_000.0), offer="it", at_most=1)
    together = [Column(j, 0, 10.0, 1e3, (1,)) for j in range(2)]
    own = replace(own, copies=2)
    instance = ProcureInstance(portfolio((job(0, 15.0), job(1, 15.0))), [own, other], together)
    assert best(instance, ProcureVariant(), "cost", SETTINGS) is None  # there is one, and time for one job
    after = replace(instance, asked=portfolio((job(0, 30.0), job(1, 30.0))))
    found = best(after, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.done == pytest.approx(20.0) and not faults(after, found)
    more = replace(instance, pools=[own, replace(other, at_most=2)])
    found = best(more, ProcureVariant(), "cost", SETTINGS)
    assert found is not None and found.cost == pytest.approx(20_000.0) and not faults(more, found)
    late = replace(more, pools=[own, replace(more.pools[1], start_day=10.0)])
    assert best(late, ProcureVariant(), "cost", SETTINGS) is None


def test_a_monthly_limit_counts_all_pools_of_a_job() -> None:
    own, other = bought(0, 0.0, day=1_000.0), hired(1, 2_000.0)
    asked = portfolio((job(0, 100.0),), "time", Limits(monthly=30_000.0))
    instance = ProcureInstance(asked, [own, other], [Column(0, 0, 20.0, 1e3, (1,))])
    found = best(instance, ProcureVariant(), "time", SETTINGS)
    # 20 days at 3,000 USD; a month pays for 10.
    assert found is not None and found.value == pytest.approx(DAYS_PER_MONTH + 10, rel=1e-3)
    assert not faults(instance, found)


def test_a_pool_that_may_join_others_is_not_left_out_for_a_better_one() -> None:
    # The second beats the first in everything, but only the first can be joined to the third, and does it all then.
    jobs = (job(0, 30.0), job(1, 100.0))
    pools = [bought(n, capital) for n, capital in enumerate((2e5, 1e5, 1e3))]
    columns = [Column(1, 0, 30.0, 1e3), Column(1, 1, 29.0, 1e3), Column(0, 0, 20.0, 1e3, (2,))]
    instance = ProcureInstance(portfolio(jobs), pools, columns)
    lean = replace(instance, columns=pruning.undominated(instance, across=True))
    for each in (instance, lean):
        found = best(each, ProcureVariant(), "cost", SETTINGS)
        assert found is not None and found.run == {0: (0, 2), 1: (0,)}


def test_what_can_be_had_once_does_not_stand_for_another() -> None:
    # Two jobs at the same time need both pools, although one is worse in everything.
    jobs = (job(0, 20.0), job(1, 20.0))
    pools = [bought(0, 1e5, copies=1), bought(1, 2e5, copies=1)]
    columns = [Column(j, p, 15.0, 1e3) for j in range(2) for p in range(2)]
    instance = ProcureInstance(portfolio(jobs), pools, columns)
    lean = replace(instance, columns=pruning.undominated(instance, across=True))
    assert best(lean, ProcureVariant(), "cost", SETTINGS) is not None


# ---- portfolios ------------------------------------------------------------------------------------------------------

CELLAR = """
currency = "USD"
as_of = "2026-11-20"
horizon = "2 months"
{top}
[[owned]]
node = "dgx-a100-80gb"
count = 1
[[owned]]
node = "dgx-v100"
count = 1
[[workloads]]
name = "base"
model = "llama3.2-3b"
tokens = "100B"
deadline = "16 d"
[[workloads]]
name = "weekly"
model = "llama3.2-3b"
method = "lora"
rank = 16
tokens = "100M"
every = "20 d"
[[candidates]]
node = "p5.48xlarge"
ways = ["spot", "on-demand"]
counts = [1]
[[mixed]]
pools = ["own dgx-a100-80gb", "own dgx-v100"]
workloads = ["base"]
{mixed}
"""


def cellar(folder: Path, **parts: str) -> Path:
    path = folder / "cellar.toml"
    path.write_text(CELLAR.format(**{"top": "", "mixed": ""} | parts), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def offer(tmp_path_factory: pytest.TempPathFactory) -> Procurement:
    known = load()
    asked = reading.read(cellar(tmp_path_factory.mktemp("cellar")), known)
    return run.procure(known, asked, depth=run.Depth(top=2, marginal=False, sensitivity=False))


@pytest.mark.slow
def test_one_job_takes_both_pools_in_its_days(offer: Procurement) -> None:
    first = offer.alternatives[0]
    base = first.workloads[0]
    assert base.pools == ("own 1 x dgx-a100-80gb", "own 1 x dgx-v100")
    assert {(s.start_day, s.end_day) for s in base.schedule if s.pool == base.pools[0]} == {
        (s.start_day, s.end_day) for s in base.schedule if s.pool == base.pools[1]
    }
    # Neither pool alone would keep the deadline; electricity of both is on the bill for the days of the job.
    a100, v100 = (next(x for x in first.pools if x.id == name) for name in base.pools)
    assert a100.utilisation > v100.utilisation > 0
    kwh = {line.pool: line.count for line in first.bill_of_materials}
    drawn = 24 * base.days * v100.pue * v100.node_power_w * v100.load / 1000
    assert kwh[v100.id] == pytest.approx(drawn)
    # The plan inside is one of both, and says how long it takes.
    plan = base.plan
    assert plan.schema_version == 2 and [x.node for x in plan.cluster.pools] == ["dgx-a100-80gb", "dgx-v100"]
    assert plan.money.days == base.days and plan.workload.tokens == base.tokens == 1e11
    assert offer.apart is not None and offer.apart.value is not None
    assert offer.apart.value > 2 * first.value and "rent 1 p5.48xlarge" in offer.apart.what
    assert offer.optimality.mixed_columns == 1 and 0 <= offer.optimality.mixed_gap < 0.02
    assert verify.violations(offer) == []


@pytest.mark.slow
def test_it_is_the_plan_that_plan_finds(offer: Procurement) -> None:
    found = api.plan("llama3.2-3b", ["dgx-a100-80gb:1", "dgx-v100:1"], tokens="100B", launchable=True)
    both = next(plan for plan in found.plans if len(plan.cluster.pools) == 2)  # one alone may stand before it
    ours = offer.alternatives[0].workloads[0].plan
    assert ours.prediction == both.prediction and ours.parallelism == both.parallelism
    assert ours.money.days == pytest.approx(both.money.days)


def _broken(offer: Procurement) -> dict[str, tuple[str, Procurement]]:
    """Faults of a job on two pools: what finds them, and the answer that has them."""
    first = offer.alternatives[0]
    base, others = first.workloads[0], first.workloads[1:]
    (one, two), asked = base.schedule, offer.question
    assert asked.mixed is not None
    plan, (a100, v100) = base.plan, base.plan.cluster.pools

    def with_job(**changes: Any) -> Procurement:
        return replace(offer, alternatives=(replace(first, workloads=(replace(base, **changes), *others)),))

    def with_asked(**changes: Any) -> Procurement:
        return replace(offer, question=replace(asked, **changes), alternatives=(first,))

    def with_mixed(**changes: Any) -> Procurement:
        return with_asked(mixed=(replace(asked.mixed[0], **changes),))  # type: ignore[index]

    larger = replace(plan, cluster=replace(plan.cluster, pools=(a100, replace(v100, count=2))))
    other = replace(plan, cluster=replace(plan.cluster, pools=(a100, replace(v100, node="dgx-h100"))))
    bill = tuple(line for line in first.bill_of_materials if line.pool != base.pools[1])
    return {
        "one pool later than the other": (
            "machines_do_one_thing_at_a_time",
            with_job(schedule=(one, replace(two, start_day=two.start_day + 0.5, end_day=two.end_day + 0.5))),
        ),
        "one pool for fewer days": (
            "machines_do_one_thing_at_a_time",
            with_job(schedule=(one, replace(two, end_day=two.end_day - 1.0))),
        ),
        "one pool not at all": ("jobs_are_done", with_job(schedule=(one,))),
        "a pool that does something else": (
            "machines_do_one_thing_at_a_time",
            replace(
                offer,
                alternatives=(
                    replace(first, workloads=(base, *(replace(x, pools=(two.pool,), schedule=(two,)) for x in others))),
                ),
            ),
        ),
        "faster than it is": ("jobs_are_done", with_job(tokens_per_s=base.tokens_per_s * 2)),
        "more nodes than there are": ("plans_fit_their_pools", with_job(plan=larger)),
        "other nodes": ("plans_fit_their_pools", with_job(plan=other)),
        "nobody asked for it": ("plans_fit_their_pools", with_asked(mixed=None)),
        "asked for other pools": ("plans_fit_their_pools", with_mixed(pools=("own dgx-a100-80gb", "p5.48xlarge"))),
        "asked for another workload": ("plans_fit_their_pools", with_mixed(workloads=("weekly",))),
        "another link": ("plans_fit_their_pools", with_mixed(link_bytes_per_s=1e9)),
        "another latency": ("plans_fit_their_pools", with_mixed(link_latency_s=1.0)),
        "apart it would be better": (
            "together_is_no_worse_than_apart", replace(offer, apart=replace(offer.apart, value=1.0))  # type: ignore[type-var]
        ),
        "what apart would be is not told": ("together_is_no_worse_than_apart", replace(offer, apart=None)),
        "fewer machines owned": ("limits_hold", with_asked(owned={"dgx-a100-80gb": 1, "dgx-v100": 0})),
        "no electricity for one pool": (
            "bill_has_what_is_used", replace(offer, alternatives=(replace(first, bill_of_materials=bill),))
        ),
    }  # fmt: skip


def test_the_second_opinion_finds_what_is_wrong_with_a_job_on_two_pools(offer: Procurement) -> None:
    missed = {
        fault: {violation.name for violation in verify.violations(broken)}
        for fault, (name, broken) in _broken(offer).items()
        if name not in {violation.name for violation in verify.violations(broken)}
    }
    assert not missed


@pytest.mark.slow
def test_nothing_in_such_an_offer_breaks_its_second_opinion(offer: Procurement) -> None:
    nothing_breaks_its_second_opinion(offer, 60)
    base, *others = offer.alternatives[0].workloads
    for named in ((), ("nowhere", "else"), base.pools[:1], (*base.pools, "more")):
        broken = replace(offer.alternatives[0], workloads=(replace(base, pools=named), *others))
        assert verify.violations(replace(offer, alternatives=(broken,)))


def test_an_offer_with_a_job_on_two_pools_is_read_again(
    offer: Procurement, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("offer.json").write_text(document.as_json(offer), encoding="utf-8")
    assert document.load_any(Path("offer.json")) == offer
    shown = ask(capsys, "explain offer.json")
    assert "own 1 x dgx-a100-80gb + own 1 x dgx-v100" in shown.out
    assert "1 on mixed pools" in shown.out and "Single pools   best with every job on one pool: " in shown.out
    plan = ask(capsys, "explain offer.json --workload base")
    assert "A-B: 400 Gbit/s per node, the slower of both nodes' NICs" in plan.out
    # It launches.
    ask(capsys, "export offer.json --workload base --to megatron+slurm -o job")
    assert "--pipeline-model-parallel" in Path("job/start.sh").read_text(encoding="utf-8")


@pytest.mark.slow
def test_unlike_pipelines_are_for_who_asks_for_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, path = load(), cellar(folder)
    days = {}
    for pipelines in ("identical", "any"):
        text = cellar(folder, mixed=f'pipelines = "{pipelines}"').read_text(encoding="utf-8")
        path.write_text(text.replace('"16 d"', '"6 d"').replace("dgx-v100", "dgx-h100"), encoding="utf-8")
        asked = reading.read(path, known)
        found = run.procure(known, asked, depth=run.Depth(top=1, marginal=False, sensitivity=False))
        days[pipelines] = found.alternatives[0].workloads[0].days
        assert found.question.mixed is not None and found.question.mixed[0].pipelines == pipelines
    assert days["any"] < days["identical"] < 1.1 * days["any"]
    Path("offer.json").write_text(document.as_json(found), encoding="utf-8")
    assert main("export offer.json --workload base --to megatron+slurm".split()) == 2
    assert "cannot be written for megatron" in capsys.readouterr().err
    # It is said of the answer where that is so, else of the first of the others.
    alike, unlike, two = spread.alike(*spread.ALIKE[0]), spread.mixed(*spread.MIXED[0]), found.alternatives[0]
    one, two = (replace(two, workloads=(replace(two.workloads[0], plan=plan),)) for plan in (alike, unlike))
    count = len(unlike.parallelism.groups)
    for others, said in (((one,), ""), ((two, one), f"{count} groups of different pipelines"), ((one, two), " in #2")):
        assert "".join(run._of_several_kinds(others)).endswith(said)
        assert bool(list(run._of_several_kinds(others))) is bool(said)
    # Who asked for what launches is not offered it.
    asked_for = replace(found.question, mixed=(replace(found.question.mixed[0], pipelines="identical"),))
    assert {each.name for each in verify.violations(replace(found, question=asked_for))} == {"plans_fit_their_pools"}


@pytest.mark.slow
def test_a_rented_machine_beside_machines_of_one_s_own(tmp_path: Path) -> None:
    table = 'link = "400 Gbit/s"\ncounts = [[1, 1]]\n[[mixed]]\npools = ["own dgx-v100", "p5.48xlarge"]'
    path = cellar(tmp_path, mixed=f'{table}\nlink = "200 Gbit/s"\nworkloads = ["base"]')
    path.write_text(path.read_text(encoding="utf-8").replace('"16 d"', '"6 d"').replace("dgx-v100", "dgx-h100"))
    known = load()
    posed = run.pose(known, reading.read(path, known))
    found = best(posed.lean, ProcureVariant(), "cost")
    assert found is not None
    base = [posed.instance.pools[p].id for p in found.run[0]]
    assert sorted(base) == ["own 1 x dgx-a100-80gb", "own 1 x dgx-h100"]
    together = [c for c in posed.whole.columns if c.other_pools]
    spot, usual = (
        next(c for c in together if any(posed.instance.pools[p].way == way for p in c.place))
        for way in ("spot", "on-demand")
    )
    # One search for both; the spot machine is taken back now and then.
    assert posed.mixtures.wanted == 0 and spot.days > usual.days
    plans = [posed.mixtures.plan(c, 1e9) for c in (spot, usual)]
    assert plans[0].prediction == plans[1].prediction
    assert plans[0].money.goodput.mtbf_s < plans[1].money.goodput.mtbf_s
    assert sorted(pool.zone for pool in plans[0].cluster.pools) == ["", "rented"]
    (link,) = plans[0].cluster.links
    assert (link.bytes_per_s, link.latency_s, link.basis) == (25e9, 2e-5, "as given ([[mixed]] link)")
    # Over what is assumed where nothing is said the rented machine is left out, and that is told.
    path.write_text(path.read_text(encoding="utf-8").replace('link = "200 Gbit/s"', ""), encoding="utf-8")
    far_asked = reading.read(path, known)
    far_asked = replace(far_asked, jobs=far_asked.jobs[:1], mixed=far_asked.mixed[1:])
    far = run.pose(known, far_asked)
    ((name, table_left, why),) = far.mixtures.left_out()
    assert (name, table_left.pools) == ("base", ("own dgx-h100", "p5.48xlarge"))
    assert why.endswith("(they do not improve the best plan found)")
    # One that these pools cannot have is not told as too slow.
    pinned = replace(far_asked.jobs[0], asked=replace(far_asked.jobs[0].asked, pin=("dp=8",)))
    far = run.pose(known, replace(far_asked, jobs=(pinned,)))
    assert [why for _, _, why in far.mixtures.left_out()] and "--pin dp=8" in far.mixtures.left_out()[0][2]


WRONG = {
    "an unknown pool": ('pools = ["own dgx-a100-80", "own dgx-v100"]', "did you mean own dgx-a100-80gb"),
    "a pool of one": ('pools = ["own dgx-v100"]', "1 pool: a mixed job takes 2 to 4"),
    "a pool twice": ('pools = ["own dgx-v100", "own dgx-v100"]', "own dgx-v100 appears twice"),
    "no pools": ('workloads = ["base"]', 'name them: pools = ["own dgx-a100-80gb"'),
    "the same pools in two tables": (
        'pools = ["own dgx-v100", "own dgx-a100-80gb"]', "own dgx-v100 and own dgx-a100-80gb appear together twice"
    ),
    "an unknown workload": (
        'pools = ["own dgx-v100", "p5.48xlarge"]\nworkloads = ["bse"]', "no workload 'bse'; did you mean base"
    ),
    "a link without unit": ('pools = ["own dgx-v100", "p5.48xlarge"]\nlink = 400', "mixed.1.link"),
    "a link of nothing": ('pools = ["own dgx-v100", "p5.48xlarge"]\nlink = "0 Gbit/s"', "must be more than nothing"),
    "a latency alone": ('pools = ["own dgx-v100", "p5.48xlarge"]\nlatency = "2 ms"', "needs a link"),
    "a negative latency": (
        'pools = ["own dgx-v100", "p5.48xlarge"]\nlink = "1 Gbit/s"\nlatency = "-2 ms"', "mixed.1.latency"
    ),
    "counts of one pool": ('pools = ["own dgx-v100", "p5.48xlarge"]\ncounts = [1, 2]', "write lists of 2 counts"),
    "a size that is not there": (
        'pools = ["own dgx-v100", "p5.48xlarge"]\ncounts = [[2, 1]]', "no cluster of 2 of own dgx-v100 is available"
    ),
    "an unknown key": ('pools = ["own dgx-v100", "p5.48xlarge"]\nlinks = "1 Gbit/s"', "unknown key"),
}  # fmt: skip


@sweep("name", WRONG)
def test_wrong_tables_are_told(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, said = WRONG[name]
    assert main(["procure", str(cellar(tmp_path, mixed=f"[[mixed]]\n{table}"))]) == 2
    told = capsys.readouterr().err
    assert said in told and "Traceback" not in told


def test_too_many_searches_are_refused_before_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = "".join(
        f'[[workloads]]\nname = "w{n}"\nmodel = "llama3.2-3b"\nbatch = {n}\ntokens = "1B"\n' for n in range(64, 130)
    )
    table = f'{many}[[mixed]]\npools = ["own dgx-v100", "p5.48xlarge"]'
    assert main(["procure", str(cellar(tmp_path, mixed=table))]) == 2
    assert "searches of some seconds each, at most 64 are made" in capsys.readouterr().err


@sweep(("word", "meant"), [("identical", "identical"), ("alike", "identical"), ("any", "any")])
def test_identical_pipelines_are_asked_for_by_either_word(word: str, meant: str, tmp_path: Path) -> None:
    """``alike`` is what portfolio files said before."""
    table = f'[[mixed]]\npools = ["own dgx-v100", "p5.48xlarge"]\npipelines = "{word}"'
    asked = flags.asked(load(), cellar(tmp_path, mixed=table), ProcureQuestion())
    assert asked.mixed[-1].pipelines == meant


def test_a_flag_that_closes_an_offer_closes_its_tables(tmp_path: Path) -> None:
    known = load()
    path = cellar(tmp_path, mixed='[[mixed]]\npools = ["own dgx-v100", "p5.48xlarge"]')
    both = flags.asked(known, path, ProcureQuestion(ways="spot"))
    assert [table.pools for table in both.mixed] == [
        ("own dgx-a100-80gb", "own dgx-v100"), ("own dgx-v100", "p5.48xlarge")
    ]  # fmt: skip
    none = flags.asked(known, path, ProcureQuestion(ways="buy"))
    assert [table.pools for table in none.mixed] == [("own dgx-a100-80gb", "own dgx-v100")]


def test_all_and_half_of_what_is_owned_is_tried() -> None:
    known = load()
    asked = portfolio((job(0, 30.0),))
    asked = replace(
        asked,
        owned=(Owned(node="dgx-a100-80gb", count=6), Owned(node="dgx-v100", count=1)),
        candidates=(NodeOption(node="p5.48xlarge", ways=("spot",), at_most=8),),
        mixed=(
            MixedPools(pools=("own dgx-a100-80gb", "own dgx-v100")),
            MixedPools(pools=("own dgx-a100-80gb", "p5.48xlarge")),
        ),
    )  # fmt: skip
    offered = pools(known, asked)
    tried = [tuple(offered[p].cluster.count for p in x.place) for x in several_pools.places(asked, offered)]
    assert tried == [(6, 1), (3, 1), (6, 8), (6, 4), (6, 1), (3, 8), (3, 4), (3, 1)]


@pytest.mark.slow
def test_of_plans_on_the_same_pools_the_fastest_counts(tmp_path: Path) -> None:
    # As where a table of three pools over a slow link comes to two of them, which another table joins by their NICs.
    known = load()
    asked = reading.read(cellar(tmp_path), known)
    asked = replace(asked, jobs=asked.jobs[:1], candidates=())
    slow = replace(asked.mixed[0], link_bytes_per_s=100e9 / 8, link_latency_s=1e-3)
    days = {}
    for name, tables in (("slow", (slow,)), ("both", (slow, *asked.mixed)), ("turned", (*asked.mixed, slow))):
        posed = run.pose(known, replace(asked, mixed=tables))
        (column,) = (c for c in posed.whole.columns if c.other_pools)
        days[name] = column.days
    assert days["slow"] > days["both"] == days["turned"]


@pytest.mark.slow
def test_an_answer_that_rents_a_machine_for_a_job_beside_one_s_own_holds(tmp_path: Path) -> None:
    table = 'counts = [[1, 1]]\n[[mixed]]\npools = ["own dgx-a100-80gb", "p5.48xlarge"]\nlink = "400 Gbit/s"'
    path = cellar(tmp_path, mixed=f'{table}\nworkloads = ["base"]')
    path.write_text(path.read_text(encoding="utf-8").replace('"16 d"', '"6 d"'), encoding="utf-8")
    known = load()
    found = run.procure(known, reading.read(path, known), depth=run.Depth(top=1, marginal=False, sensitivity=False))
    assert verify.violations(found) == []
    first = found.alternatives[0]
    base = first.workloads[0]
    assert set(base.pools) == {"own 1 x dgx-a100-80gb", "spot 1 x p5.48xlarge"} and base.finish_day < 6
    assert found.apart is not None and found.apart.value is None  # no one pool does it in time
    (rent,) = (line for line in first.bill_of_materials if line.kind == "rental")
    assert rent.count == pytest.approx(24 * base.days)
    assert base.plan.money.goodput.mtbf_s < 86400 / 0.2  # the spot node is taken back
