"""A contract over all axes of a plan: each is known to every part of the program that has to know it."""

from planner import api
from planner.axes import AXES, LAYOUT_AXES, OPTION_AXES
from planner.axes.table import DISPATCHER, SCHEDULE
from planner.cost import experts, schedules


def test_every_axis_is_a_row_of_its_own():
    assert list(AXES) == [axis.name for axis in (*LAYOUT_AXES, *OPTION_AXES)]
    assert all(axis.help and axis.kind for axis in AXES.values())


def test_every_axis_is_read_back_from_a_plan():
    plan = api.estimate("llama3-8b", "dgx-h100:1", tp=2, batch=64)[0]

    stated = {name: axis.of(plan) for name, axis in AXES.items()}

    assert stated["tp"] == 2 and stated["dp"] == 4 and stated["sequence_parallel"] is True
    for name, axis in AXES.items():
        assert axis.state(axis.value(stated[name])) == stated[name], name


def test_codes_of_dispatchers_and_schedules_are_those_of_the_cost_model():
    sent = {name: DISPATCHER.figures(name)["dispatcher"] for name in DISPATCHER.choices}
    assert sent["deepep"] == sent["hybridep"] == experts.ONCE_PER_DOMAIN
    assert sent["allgather"] == experts.ALL_GATHERED
    follow = {name: SCHEDULE.figures(name)["schedule"] for name in SCHEDULE.choices}
    assert follow["zero-bubble"] == follow["interleaved-zero-bubble"] == schedules.ZERO_BUBBLE
    assert (follow["zbv"], follow["dualpipe-v"], follow["1f1b"]) == (schedules.ZBV, schedules.DUALPIPE_V, 0.0)
