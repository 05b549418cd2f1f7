"""A sweep fails in every case in which its function fails, and in no other."""

import pytest

from tests.sweeps import sweep


def test_every_failing_case_is_reported_with_its_name():
    @sweep("number", range(6))
    def odd(number):
        assert number % 2

    with pytest.raises(ExceptionGroup, match="3 of 6 cases failed") as raised:
        odd()

    assert [error.__notes__ for error in raised.value.exceptions] == [["case: 0"], ["case: 2"], ["case: 4"]]


def test_stacked_sweeps_try_every_combination():
    pairs = []

    @sweep("first", "ab")
    @sweep(("second", "third"), [(1, 2), pytest.param(3, 4, id="x")], ids=None)
    def collect(first, second, third):
        pairs.append((first, second, third))

    collect()

    assert sorted(pairs) == [("a", 1, 2), ("a", 3, 4), ("b", 1, 2), ("b", 3, 4)]


def test_failures_that_pytest_raises_count_and_skips_only_if_no_case_ran():
    @sweep("outcome", [pytest.fail, pytest.skip])
    def some(outcome):
        outcome("said")

    @sweep("outcome", [pytest.skip])
    def none(outcome):
        outcome("said")

    with pytest.raises(ExceptionGroup, match="1 of 2 cases failed"):
        some()
    with pytest.raises(pytest.skip.Exception):
        none()


def test_a_sweep_over_nothing_is_refused():
    with pytest.raises(ValueError, match="cannot fail"):
        sweep("number", [])(lambda number: None)


@sweep("name", ["first", "second"])
def test_cases_share_neither_folder_nor_output_nor_patches(name, tmp_path, capsys, monkeypatch):
    assert not list(tmp_path.iterdir())
    assert not hasattr(pytest, "swept")
    monkeypatch.setattr(pytest, "swept", name, raising=False)
    (tmp_path / name).touch()
    print(name)

    assert capsys.readouterr().out == f"{name}\n"
    print("left behind")
