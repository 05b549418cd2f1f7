"""Sweeps: one test that runs its function for every case and reports all cases that fail, not the first."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

WIDTH = 60
"""Characters of a value that stand in the name of a case."""

QUICK = "CLUSTERWRIGHT_QUICK_TESTS"
"""Environment variable of a run that leaves slow tests out (``tests/conftest.py``): long sweeps try some cases only."""

THOROUGH = "CLUSTERWRIGHT_THOROUGH_TESTS"
"""Environment variable of a run that tries every case (`make test-thorough`, every night)."""

left_out = 0
"""Cases of sweeps that this run leaves to thorough ones."""


def depth(thorough: int, ci: int, quick: int | None = None) -> int:
    """How many of something a run tries: a thorough one, `make test-all` as CI runs it, or `make test`."""
    if os.environ.get(THOROUGH):
        return thorough
    return ci if quick is None or not os.environ.get(QUICK) else quick


class Case(NamedTuple):
    """Values of some of a function's parameters, and the name under which a failure is reported."""

    name: str
    values: dict[str, Any]


def sweep(
    names: str | tuple[str, ...], values: Iterable[Any], ids: Any = None, every: int = 1, ci: int = 1
) -> Callable[..., Any]:
    """A test that tries every case in turn; takes what ``pytest.mark.parametrize`` takes, which makes a test a case.

    Sweeps can be stacked: the cases are then every combination. Parameters that are not swept are fixtures. All cases
    share them, except that each case has a folder of its own in ``tmp_path``, starts with an empty ``capsys``, and has
    its changes by ``monkeypatch`` undone.

    Args:
        names: Of the function's parameters that a case gives.
        values: Of these parameters, case by case.
        ids: Names of the cases, or what makes one of a value.
        every: Without slow tests (`make test`), only every so manieth case is tried.
        ci: With slow tests (`make test-all`), only every so manieth case is tried; `make test-thorough` tries all.

    Raises:
        ExceptionGroup: what went wrong in all cases that failed, each with a note that names its case.
    """
    global left_out
    step = depth(1, ci, every)
    if step > 1:
        values = list(values)
        left_out += len(values) - len(values[::step])
        values = values[::step]
        ids = ids if ids is None or callable(ids) else list(ids)[::step]
    cases = _cases([key.strip() for key in names.split(",")] if isinstance(names, str) else list(names), values, ids)

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        swept, others = getattr(function, "swept", (function, [Case("", {})]))
        return _test(swept, [_combined(outer, inner) for inner in others for outer in cases], marked=function)

    return decorate


def _cases(keys: list[str], values: Iterable[Any], ids: Any) -> list[Case]:
    rows = []
    labels = []
    for value in values:
        explicit = isinstance(value, type(pytest.param()))
        if explicit and value.marks:
            raise ValueError(f"{keys}: a case with marks is a test of its own; use pytest.mark.parametrize")
        row = value.values if explicit else (value,) if len(keys) == 1 else tuple(value)
        rows.append(row)
        labels.append(
            value.id if explicit and value.id else "-".join(str(ids(part) if callable(ids) else part) for part in row)
        )
    if ids is not None and not callable(ids):
        labels = [str(label) for label in ids]
    return [Case(label[:WIDTH], dict(zip(keys, row, strict=True))) for label, row in zip(labels, rows, strict=True)]


def _combined(outer: Case, inner: Case) -> Case:
    return Case("-".join(filter(None, (inner.name, outer.name))), inner.values | outer.values)


def _test(function: Callable[..., Any], cases: list[Case], marked: Callable[..., Any]) -> Callable[..., None]:
    """The function that pytest collects: its parameters are those of `function` that no case gives."""
    if not cases:
        raise ValueError(f"{function.__qualname__}: a sweep over no cases cannot fail")
    signature = inspect.signature(function)

    def test(**fixtures: Any) -> None:
        failures = []
        skips = []
        for index, case in enumerate(cases):
            try:
                with ExitStack() as isolation:
                    function(**_isolated(fixtures, index, isolation), **case.values)
            except pytest.skip.Exception as skip:
                skips.append(skip)
            except (Exception, pytest.fail.Exception) as failure:
                reported = failure if isinstance(failure, Exception) else AssertionError(str(failure))
                reported.add_note(f"case: {case.name}")
                failures.append(reported)
        if failures:
            raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)
        if len(skips) == len(cases):
            raise skips[0]

    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(test, attribute, getattr(function, attribute))
    vars(test)["__signature__"] = signature.replace(
        parameters=[parameter for name, parameter in signature.parameters.items() if name not in cases[0].values]
    )
    vars(test)["pytestmark"] = list(getattr(marked, "pytestmark", []))
    vars(test)["swept"] = function, cases
    return test


def _isolated(fixtures: dict[str, Any], index: int, isolation: ExitStack) -> dict[str, Any]:
    """Fixtures of one case, free of what earlier cases left in them."""
    own = dict(fixtures)
    if "tmp_path" in own:
        own["tmp_path"] = fixtures["tmp_path"] / str(index)
        own["tmp_path"].mkdir()
    if "monkeypatch" in own:
        own["monkeypatch"] = isolation.enter_context(fixtures["monkeypatch"].context())
    if "capsys" in own:
        own["capsys"].readouterr()
    return own
