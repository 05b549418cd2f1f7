"""Rollout and training together: physics at its limits, the integer program against trying all, and refusals."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import planner
from planner.api import documents
from planner.api.post_training import plan_rl
from planner.base.errors import WrongQuestion
from planner.commands.command_line import cli
from planner.cost import decoding, generation, response_lengths, rl_step
from planner.cost.decoding import Rollout
from planner.cost.generation import Demand
from planner.report import post_training as page
from planner.rl import comparison, constants, program
from planner.rl.candidates import WeightsMoved
from planner.rl.program import PlacementPoint
from planner.schema.rl import RLPlanSet
from planner.verify import Inconsistent
from planner.verify.post_training import check_post_training


class FakeReplicas:
    """ReplicaOptions whose rate is known: `done` sequences a second of a replica of `width` accelerators."""

    def __init__(self, done: list[float], width: list[float]) -> None:
        self.done, self.layout = np.array(done), Rollout(tp=np.array(width), groups=np.ones(len(width)))

    def taken_in(self, limit: float) -> np.ndarray:
        return np.floor(self.done * limit)


class FakeTraining:
    """A training of so many seconds on so many accelerators of a pool."""

    def __init__(self, pool: int, accelerators: int, seconds: float) -> None:
        self.pool, self.seconds = pool, seconds
        self.trainer = self
        self.accelerators = accelerators


def random_point(seed: int) -> PlacementPoint:
    """A point of two small pools."""
    draw = random.Random(seed)
    sizes = [draw.randint(3, 8), draw.randint(3, 8)]
    trainings = [
        FakeTraining(draw.randrange(2), draw.randint(1, 3), draw.uniform(5.0, 60.0)) for _ in range(draw.randint(1, 3))
    ]
    offered = [
        FakeReplicas([draw.uniform(0.3, 2.0) for _ in range(2)], draw.sample([1.0, 2.0, 3.0, 4.0], 2)) for _ in sizes
    ]
    return PlacementPoint(
        placement=draw.choice(["in-step", "one-step-off", "async"]),
        staleness=1.0,
        updates=draw.choice([1, 4]),
        sequences=float(draw.randint(20, 200)),
        trainings=trainings,  # type: ignore[arg-type]
        offered=offered,  # type: ignore[arg-type]
        sizes=sizes,
        left=None,
        usd=[draw.uniform(1.0, 4.0) for _ in sizes],
        weights=[WeightsMoved("broadcast", draw.uniform(0.0, 5.0)) for _ in trainings],
        other_s=0.0,
    )


def cheapest_by_trying(point: PlacementPoint, step: float) -> float:
    """US dollars a second of the cheapest training and replicas that complete the batch within a step; infinite of
    none."""
    best = float("inf")
    for i, trained in enumerate(point.trainings):
        window = point.window(i, step)
        if window <= 0:
            continue
        options = [
            (p, float(done), float(width))
            for p, each in enumerate(point.offered)
            for done, width in zip(each.taken_in(window), each.layout.accelerators, strict=True)
        ]
        room = point.room(i)
        for counts in itertools.product(*(range(int(room[p] // width) + 1) for p, _, width in options)):
            used = [0.0, 0.0]
            for count, (p, _, width) in zip(counts, options, strict=True):
                used[p] += count * width
            made = sum(count * done for count, (_, done, _) in zip(counts, options, strict=True) if done >= 1)
            if made >= point.sequences and all(have >= need for have, need in zip(room, used, strict=True)):
                rent = trained.trainer.accelerators * point.usd[trained.pool]
                best = min(best, rent + sum(need * usd for need, usd in zip(used, point.usd, strict=True)))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_program_finds_what_trying_everything_finds(seed: int) -> None:
    point = random_point(seed)

    solved = program.solve(point)

    if solved is None:
        assert cheapest_by_trying(point, 1e4) == float("inf")
        return
    best = solved.fastest
    assert best.usd / best.step == pytest.approx(cheapest_by_trying(point, best.step), rel=1e-6)
    shorter = best.step / (1.0 + solved.gap) / (1.0 + 1e-6)
    assert cheapest_by_trying(point, shorter) == float("inf")


def test_stated_mean_is_the_mean_of_cut_lengths() -> None:
    for mean, cap in ((200.0, 28_672.0), (1060.0, 4096.0), (3200.0, 4096.0)):
        responses = response_lengths.of_mean(mean, cap)

        assert responses.mean == pytest.approx(mean, rel=1e-4)
        assert responses.longest(1e6) <= cap


def served(**changed: object) -> decoding.Served:
    """Llama 3.1 8B on H100s."""
    found = _asked("llama3.1-8b", "dgx-h100:2")
    return replace(found, **changed)  # type: ignore[arg-type]


def _asked(model: str, cluster: str) -> decoding.Served:
    from planner.catalog import load
    from planner.models.workload import model as find
    from planner.question.plan_options import PlanOptions
    from planner.question.rl_options import RLOptions
    from planner.question.several_pools import pool_bases
    from planner.rl import problem

    known = load(None)
    ((base, _),) = pool_bases(known, [cluster], PlanOptions())
    question = problem.PostTraining(
        known=known,
        work=problem.work(find(model), "grpo", RLOptions(response="1k/4k")),
        machines=(),
        training=PlanOptions(),
        replica={},
        split=None,
        tried={},
        objective="time",
        inputs={},
        excess=constants.fitted(),
    )
    return problem.served(question, base, known.runtime("megatron-core"))


def test_one_sequence_costs_the_weights_once_over_the_memory_rate() -> None:
    """8.03 G parameters, less the embedding of 128,256 x 4,096, at 2 bytes and 0.8 of 3.35 TB/s: 5.6 ms; kernels, the
    cache of one sequence and the host add less than half of that."""
    alone = Rollout(tp=np.array([1.0]), groups=np.array([1.0]))

    seconds = float(decoding.iteration(served(), alone, 1.0, 1000.0)[0])

    assert 5.6e-3 < seconds < 1.5 * 5.6e-3


def test_host_launches_every_kernel_without_captured_graphs() -> None:
    """32 layers of 10 kernels, 75 us each: 24 ms; a graph's 3 us a kernel hide behind the weights, 5.6 ms."""
    alone = Rollout(tp=np.array([1.0]), groups=np.array([1.0]))
    model = served()
    host = model.host_s + model.host_sequence_s

    eager = float(decoding.iteration(replace(model, captured=(0.0, 0.0)), alone, 1.0, 1000.0)[0])
    captured = float(decoding.iteration(replace(model, captured=(512.0, 512.0)), alone, 1.0, 1000.0)[0])

    assert eager == pytest.approx(host + 24e-3)
    assert captured == float(decoding.iteration(model, alone, 1.0, 1000.0)[0]) < 0.5 * eager


def test_without_continuous_batching_every_batch_waits_for_its_longest_response() -> None:
    """128 responses, 8 at a time: 16 batches, each as long as the longest of 8."""
    layout = Rollout(tp=np.array([1.0]), groups=np.array([1.0]))
    demand = Demand(sequences=1024.0, prompt=200.0, lengths=response_lengths.of_mean(340.0, 1024.0), samples=1.0)
    room = generation.room(served(), layout, 70e9, 8, True)
    batches = replace(room, in_batches=True)

    def taken(space: generation.Room, responses: float) -> float:
        return float(generation.seconds(served(), layout, demand, space, np.array([[responses]]))[0, 0])

    assert taken(batches, 128.0) == pytest.approx(16.0 * taken(batches, 8.0))
    assert taken(batches, 128.0) > 1.5 * taken(room, 128.0)


def test_a_batch_that_exceeds_the_cache_waits() -> None:
    layout = Rollout(tp=np.array([1.0]), groups=np.array([1.0]))
    demand = Demand(sequences=512.0, prompt=200.0, lengths=response_lengths.of_mean(1000.0, 4000.0), samples=16.0)
    wide = generation.room(served(), layout, 70e9, 4096, True)
    narrow = replace(wide, tokens=wide.tokens / 50.0)

    fast, slow = (
        float(generation.seconds(served(), layout, demand, room, np.array([[512.0]]))[0, 0]) for room in (wide, narrow)
    )

    assert slow > 2.0 * fast


def test_more_staleness_never_lengthens_a_step() -> None:
    """With the same rates, more batches in flight hide more of the tail and of what batches differ by."""
    layout = Rollout(tp=np.array([1.0]), groups=np.array([1.0]))
    demand = Demand(sequences=2048.0, prompt=200.0, lengths=response_lengths.of_mean(2000.0, 28_000.0), samples=16.0)
    room = generation.room(served(), layout, 70e9, 4096, True)
    steps = []
    for stale in (0.1, 0.3, 1.0, 4.0):
        rollout = float(generation.seconds(served(), layout, demand, room, np.array([[64.0]]), stale)[0, 0])
        steps.append(float(rl_step.step("async", rollout, 40.0, 1.0, 1, stale)))

    assert steps == sorted(steps, reverse=True)


def test_colocated_phases_add_up_and_the_document_is_read_again(tmp_path: Path) -> None:
    found = plan_rl("llama3.1-8b", "dgx-h100:1", response="1k/4k", placement="colocated")
    (tmp_path / "rl.json").write_text(found.to_json(), encoding="utf-8")
    assert planner.load(tmp_path / "rl.json") == found
    check_post_training(found)
    longer = replace(found, plans=(replace(found[0], step_s=2.0 * found[0].step_s),))
    with pytest.raises(Inconsistent, match="step_s"):
        check_post_training(longer)

    phases = found[0].phases
    parts = [seconds for name, seconds in vars(phases).items() if name != "hidden_s"]
    assert sum(parts) - phases.hidden_s == pytest.approx(found[0].step_s)
    assert phases.hidden_s == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"critic": "llama3.1-8b"}, "critic="),
        ({"staleness": 0.5, "placement": "colocated"}, "staleness=0.5"),
        ({"response": "100k/200k"}, "response="),
        ({"response": "2k/8k", "prompt_length": 130_000}, "response="),
        ({"response": None}, "response:"),
        ({"rollout_precision": "int3"}, "rollout_precision="),
        ({"split": "9:9"}, "split="),
    ],
)
def test_what_cannot_be_is_refused_by_its_keyword(asked: dict[str, object], named: str) -> None:
    with pytest.raises(WrongQuestion) as error:
        plan_rl("llama3.1-8b", "dgx-h100:1", **({"response": "1k/4k"} | asked))  # type: ignore[arg-type]

    assert str(error.value).startswith(named)


def test_a_file_of_pools_is_a_cluster_for_each(tmp_path) -> None:
    """The command is refused for what one of its pools lacks, which shows that it has read them."""
    file = tmp_path / "lab.toml"
    file.write_text("[[pools]]\nnode = 'dgx-v100'\ncount = 1\n[[pools]]\nnode = 'dgx-a100-40gb'\ncount = 1\n")
    words = ["plan", "llama3.1-8b", "--task", "grpo", "--response", "1k/4k", "--cluster", str(file)]

    asked = CliRunner().invoke(cli, words)

    assert "V100-SXM2-32GB has no bf16; take fp16" in str(asked.exception)


def test_flags_of_post_training_need_its_task() -> None:
    refused = CliRunner().invoke(cli, ["plan", "llama3-8b", "--cluster", "dgx-h100:1", "--prompts", "64"])

    assert str(refused.exception) == "--prompts: with --task grpo, ppo or rloo only"


def test_measured_steps_are_predicted_or_said_to_be_missing(tmp_path: Path) -> None:
    """Two rows of the file: one that can be told, one without its accelerators."""
    file = Path(__file__).parent.parent / "benchmarks" / "data" / "rl_runs.csv"
    header, *lines = file.read_text(encoding="utf-8").splitlines()
    some = [line for line in lines if line.startswith(("rl-nemo-rl-011", "rl-nemo-rl-012", "rl-gpu-recipes-001"))]
    (tmp_path / "some.csv").write_text("\n".join((header, *some)), encoding="utf-8")

    document = planner.validate(tmp_path / "some.csv").document

    assert document["overall"]["n"] == 2 and document["overall"]["mape"] < 0.5
    assert [pair["right"] for pair in document["pairs"]] == [True]
    assert document["not_covered"][0]["id"] == "rl-gpu-recipes-001"


def test_a_critic_and_a_policy_fit_beside_each_other() -> None:
    """Where one model fills the accelerators, two are sharded further: states of one stay while the other trains."""
    alone = plan_rl("llama3.1-8b", "dgx-h100:1", response="1k/4k", placement="colocated")[0].trainer
    both = plan_rl("llama3.1-8b", "dgx-h100:1", task="ppo", prompts=8192, response="1k/4k", placement="colocated")[0]
    assert both.critic is not None
    assert both.trainer.memory_bytes < alone.memory_bytes
    assert alone.memory_bytes + 36 * 2**30 > alone.capacity_bytes


def test_gain_of_a_placement_is_told_with_its_interval(tmp_path: Path) -> None:
    files = []
    for placement in ("colocated", "async"):
        answer = plan_rl("llama3.1-8b", "dgx-h100:2", response="1k/4k", updates=4, placement=placement)
        files.append(tmp_path / f"{placement}.json")
        files[-1].write_text(answer.to_json(), encoding="utf-8")
    steps = [document for document in map(documents.load, files) if isinstance(document, RLPlanSet)]

    shown = CliRunner().invoke(cli, ["compare", *map(str, files)])
    gain = comparison.compared(steps[0], steps[1])

    assert gain["gain"] == pytest.approx(steps[0].plans[0].step_s / steps[1].plans[0].step_s)
    assert gain["low"] < gain["gain"] < gain["high"] and gain["questions"] == []
    assert f"async: {abs(gain['gain'] - 1):.1%}" in shown.output and "80 %" in shown.output
    for step in steps:
        plan = step.plans[0]
        spans = list(page.spans(plan))
        assert max(end for *_, end in spans) <= plan.step_s * (1 + 1e-9)
        busy = sum(end - start for _, _, start, end in spans)
        phases = sum(seconds for name, seconds in vars(plan.phases).items() if name != "hidden_s")
        assert busy == pytest.approx(phases)
        assert len(page.of_post_training(step, "plan").figures) == 3


@pytest.mark.parametrize(
    ("field", "other", "named"),
    [("prompt_tokens", 9.0, "lengths"), ("prompts", 9, "prompts"), ("updates", 9, "updates")],
)
def test_steps_of_other_work_answer_another_question(field: str, other: float, named: str) -> None:
    one = plan_rl("llama3.1-8b", "dgx-h100:1", response="1k/4k", placement="colocated")

    two = replace(one, work=replace(one.work, **{field: other}))

    assert comparison.compared(one, two)["questions"] == [named]


def test_gain_of_a_step_that_does_not_fit_is_told_with_a_warning(tmp_path: Path) -> None:
    one = plan_rl("llama3.1-8b", "dgx-h100:1", response="1k/4k", placement="colocated")
    two = replace(one, fits=False)
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file, answer in zip(files, (one, two), strict=True):
        file.write_text(answer.to_json(), encoding="utf-8")

    shown = CliRunner().invoke(cli, ["compare", *map(str, files)])

    assert comparison.compared(one, two)["fits"] == [True, False]
    assert "two does not fit into memory" in shown.output and "one does not fit" not in shown.output
