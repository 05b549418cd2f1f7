"""Records that declare questions: what a type checker, a command, a function and a shell read of them is the same."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

import clusterwright as cw
from planner.axes import AXES
from planner.commands import completion
from planner.commands.command_line import cli
from planner.question.axis_keywords import Axes, GivenAxes
from planner.question.document_options import (
    CalibrateQuestion,
    ExplainQuestion,
    ExportQuestion,
    LearnQuestion,
    ValidateQuestion,
)
from planner.question.option import asked
from planner.question.plan_options import EstimateQuestion, FitQuestion, PlanQuestion
from planner.question.purchase_options import DesignQuestion, ProcureQuestion

ROOT = Path(__file__).resolve().parent.parent
RECORDS = {
    "plan": PlanQuestion,
    "estimate": EstimateQuestion,
    "fit": FitQuestion,
    "procure": ProcureQuestion,
    "design": DesignQuestion,
    "explain": ExplainQuestion,
    "export": ExportQuestion,
    "learn": LearnQuestion,
    "validate": ValidateQuestion,
    "calibrate": CalibrateQuestion,
}
HEAVY = {"numpy", "pandas", "optuna", "pulp", "pydantic", "rich"}


def test_axes_are_keywords_of_pins_and_estimates() -> None:
    assert {*Axes.__annotations__, "precision", "nodes", "batch"} == {*AXES}
    assert get_type_hints(GivenAxes) == get_type_hints(Axes)
    assert list(Axes.__annotations__) == [field.name for field in fields(GivenAxes)]


@pytest.mark.parametrize("name", RECORDS)
def test_a_function_shows_its_record(name: str) -> None:
    """The names, the defaults and what is said of each are those that the record declares."""
    function = getattr(cw, name)
    axes = {field.name for field in fields(GivenAxes)} if name == "estimate" else set()
    declared = {each: field for each, field in asked(RECORDS[name]).items() if each not in axes}

    parameters = inspect.signature(function).parameters

    assert [each for each in parameters if each != "axes"] == list(declared)
    for each, field in declared.items():
        empty = parameters[each].default is inspect.Parameter.empty
        assert empty or parameters[each].default == field.default, each
    said = " ".join((inspect.getdoc(function) or "").split())
    if "Args:" in said:
        assert [each for each, field in declared.items() if f"{each}: {field.option.says}" not in said] == []


@pytest.mark.parametrize("name", RECORDS)
def test_every_field_is_described(name: str) -> None:
    """A field is a flag, or Python alone has it; a shell can offer what it says that it offers."""
    for field in asked(RECORDS[name]).values():
        words = field.option.complete
        assert not isinstance(words, str) or not words or callable(getattr(completion, words)), field.name
        if name not in ("estimate",):
            assert field.option.says, field.name


def test_helps_load_nothing_heavy() -> None:
    """``--help`` of the program and of a command that asks is printed at once."""
    code = (
        "import sys; from planner.commands.command_line import main\n"
        "main(sys.argv[1:]); print(*{name.partition('.')[0] for name in sys.modules})"
    )
    for command in ([], ["plan"], ["procure"], ["export"]):
        shown = subprocess.run(
            [sys.executable, "-c", code, *command, "--help"],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"},
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        assert HEAVY & {*shown.stdout.splitlines()[-1].split()} == set(), command


def test_every_command_that_asks_has_a_record() -> None:
    assert {*RECORDS} <= {*cli.list_commands(None)}  # type: ignore[arg-type]
