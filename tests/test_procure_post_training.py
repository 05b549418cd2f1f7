"""A post-training among the jobs of an offer: its days are those of its fastest steps on each machine."""

from pathlib import Path

import pytest

import planner
from planner import catalog
from planner.base.errors import WrongQuestion
from planner.procurement.question import flags, reading
from planner.question.purchase_options import ProcureQuestion
from planner.schema.procurement import Procurement

PRICES = {"dgx-h100": 20.0, "dgx-a100-80gb": 9.0}
"""US dollars of a node and hour, made up."""
STEP = 'step = { response = "1k/4k", placement = "colocated", rollout = "tp=1", steps = 500 }'
WORKLOADS = f"""
currency = "USD"
horizon = "60 days"
[[workloads]]
name = "grpo"
model = "llama3.1-8b"
task = "grpo"
pins = ["tp=1", "pp=1", "cp=1", "recompute=full"]
deadline = "DEADLINE days"
{STEP}
"""


def offer(tmp_path: Path, deadline: float) -> Procurement:
    """One job, four machines."""
    candidates = "".join(
        f'[[candidates]]\nnode = "{node}"\nways = ["on-demand"]\ncounts = [1, 2]\n'
        f'price = {{ amount = "${usd}/h", date = "2026-11-20", source = "made up" }}\n'
        for node, usd in PRICES.items()
    )
    file = tmp_path / "offer.toml"
    file.write_text(WORKLOADS.replace("DEADLINE", f"{deadline:g}") + candidates, encoding="utf-8")
    found = planner.procure(file)
    assert isinstance(found, Procurement)
    return found


def test_cheapest_machine_for_a_post_training_is_that_of_all_machines_tried(tmp_path: Path) -> None:
    """Days of each machine by plan_rl alone: steps x seconds, and at most 5 % for failures and checkpoints."""
    tried = {}
    for node in PRICES:
        for count in (1, 2):
            step = planner.plan_rl("llama3.1-8b", f"{node}:{count}", response="1k/4k", placement="colocated",
                                   rollout="tp=1", pin=["tp=1", "pp=1", "cp=1", "recompute=full"])[0]  # fmt: skip
            tried[node, count] = 500 * step.step_s / 86400.0
    slowest, fastest = max(tried.values()), min(tried.values())
    assert fastest < 0.5 * slowest
    for deadline in (1.1 * slowest, 1.1 * fastest):
        found = offer(tmp_path, deadline)
        best = found.alternatives[0]

        (job,) = best.workloads
        (pool,) = best.pools
        in_time = {machine: days for machine, days in tried.items() if days * 1.05 < deadline}
        cheapest = min(in_time, key=lambda machine: in_time[machine] * machine[1] * PRICES[machine[0]])
        assert (pool.node, pool.count) == cheapest
        assert tried[cheapest] < job.days < 1.05 * tried[cheapest]
        assert best.cost.total_usd == pytest.approx(job.days * 24.0 * pool.count * PRICES[pool.node], rel=1e-3)
        assert job.plan is None and job.post_training is not None
        assert job.tokens == pytest.approx(500 * 512 * 16 * (256 + 1000), rel=0.01)
        written = tmp_path / "offer.json"
        written.write_text(found.to_json(), encoding="utf-8")
        assert planner.load(written) == found


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (STEP, "", "grpo needs its step"),
        ('task = "grpo"', 'task = "sft"', "only with task = grpo, ppo, rloo"),
        (STEP, STEP + '\ntokens = "1B"', "says nothing of grpo"),
        ('"1k/4k"', '"4k/1k"', "response"),
    ],
)
def test_step_that_cannot_be_is_refused_with_its_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    file = tmp_path / "offer.toml"
    file.write_text(WORKLOADS.replace("DEADLINE", "30").replace(old, new), encoding="utf-8")

    with pytest.raises(WrongQuestion, match=says):
        planner.procure(file)


def test_files_of_lengths_stand_beside_the_portfolio_or_its_document(tmp_path: Path) -> None:
    file = tmp_path / "offer.toml"
    file.write_text(WORKLOADS.replace("DEADLINE", "30").replace("1k/4k", "lengths.txt"), encoding="utf-8")
    (tmp_path / "lengths.txt").write_text("500, 4000\n", encoding="utf-8")
    read = reading.read(file, catalog.load())
    assert read.inputs.keys() >= {"lengths lengths.txt"}

    stated = flags.asked(catalog.load(), file, ProcureQuestion()).stated
    assert stated is not None and str(tmp_path) not in str(stated)
    again = flags.again(catalog.load(), stated, str(tmp_path / "offer.json"))
    assert again.inputs["lengths lengths.txt"] == read.inputs["lengths lengths.txt"]
    with pytest.raises(WrongQuestion, match="no such file next to"):
        flags.again(catalog.load(), stated, "offer.json")
