"""Many machines of one space have the plans that an enumeration finds on each alone, ties included."""

import random
from dataclasses import replace
from functools import cache

import pytest

from planner.question.plan_options import PlanOptions
from planner.question.reading import request
from planner.question.search_problem import prepare, problem
from planner.search import best_per_machine
from planner.search.best_per_machine import best_on_each
from planner.search.costing import Exhaustive
from planner.search.problem import SearchProblem
from planner.search.side_by_side import Machine, on
from tests.designing import known

MACHINES = 14
QUESTIONS = {
    "mixtral-8x7b": PlanOptions(batch="64", pin=("cp=1", "vpp=1", "micro=1|2", "recompute=none|full")),
    "qwen3-30b-a3b": PlanOptions(batch="64", pin=("cp=1", "vpp=1", "micro=1")),
    "deepseek-v2-lite": PlanOptions(batch="64", pin=("cp=1|2", "vpp=1", "micro=1"), precision="bf16,fp8"),
    "qwen3-235b-a22b": PlanOptions(batch="64", pin=("cp=1", "vpp=1", "micro=1", "zero=1")),
}


@cache
def asked(model: str) -> SearchProblem:
    return problem(prepare(*request(model, "dgx-h100:4", QUESTIONS[model], known=known())), 1)


def drawn(space: SearchProblem, seed: int) -> list[Machine]:
    """Machines whose figures are a share of those asked about to several times as much; two of them are equal."""
    draw = random.Random(seed)
    machines = []
    for _ in range(MACHINES - 1):
        matrix, memory, near, far, room = (draw.choice((0.3, 0.7, 1.0, 1.6, 4.0)) for _ in range(5))
        devices = {
            name: replace(
                device,
                matrix_rate=device.matrix_rate * matrix,
                matrix_rate_16=device.matrix_rate_16 * matrix,
                attention_rate=device.attention_rate * matrix,
                memory_rate=device.memory_rate * memory,
            )
            for name, device in space.figures.devices.items()
        }
        network = space.figures.network
        network = replace(network, scaleup=network.scaleup * near, pair=network.pair * near, nic=network.nic * far)
        machines.append(Machine(devices, network, space.capacity * room))
    return [*machines, machines[0]]


@pytest.mark.parametrize("model", QUESTIONS)
def test_each_machine_of_a_mixture_has_the_plan_of_its_enumeration(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(best_per_machine, "_FEW", 512)  # so that machines are divided

    space = asked(model)
    machines = drawn(space, seed=len(model))
    found = best_on_each(space, machines)

    assert any(found)
    for machine, best in zip(machines, found, strict=True):
        alone = Exhaustive().search(on(space, machine)).best
        assert best == (alone[0] if alone else None)


def test_rows_left_out_are_most_of_a_mixture() -> None:
    """The bound of the fastest machine leaves few of the rows; with what is best there, fewer still."""
    space = asked("qwen3-30b-a3b")
    held = best_per_machine.needs(space)
    whole = best_per_machine.whole(space, held)
    machine = Machine(space.figures.devices, space.figures.network, space.capacity)
    (best,) = best_on_each(space, [machine], held)

    assert best is not None
    near = best_per_machine.narrowed(whole, machine, best.value)
    assert 0 < near.height < whole.height / 10
