"""A file of measured steps of post-training with wrong rows, columns or numbers."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

import planner
from planner.base.errors import ClusterwrightError, NoAnswer, WrongQuestion
from planner.rl import measured

SHIPPED = Path(__file__).resolve().parent.parent / "benchmarks" / "data" / "rl_runs.csv"
Change = Callable[[list[dict[str, str]]], object]


def rows(count: int) -> list[dict[str, str]]:
    """The first published steps."""
    with SHIPPED.open(encoding="utf-8", newline="") as file:
        return [row for row, _ in zip(csv.DictReader(file), range(count), strict=False)]


def written(tmp_path: Path, made: list[dict[str, str]], columns: list[str] | None = None) -> Path:
    """A file of steps."""
    file = tmp_path / "steps.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, columns or [*rows(1)[0]], extrasaction="ignore")
        table.writeheader()
        table.writerows(made)
    return file


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("step_s", "", r"steps\.csv:3: step_s = '': write the seconds of a step"),
        ("step_s", "0", r"steps\.csv:3: step_s = '0': write the seconds"),
        ("step_s", "nan", r"steps\.csv:3: step_s = 'nan'"),
        ("gen_s", "fast", r"steps\.csv:3: gen_s = 'fast'"),
        ("gpus_train", "-8", r"steps\.csv:3: gpus_train = '-8'"),
        ("gpus_rollout", "1e99", "gpus_rollout 1e99"),
        ("gen_tp", "3.5", r"steps\.csv:3: gen_tp = '3\.5': must be a whole number"),
        ("mean_length", "99999", "longer than max_response"),
        ("mode", "sideways", "colocated, disaggregated, one-step-off or async"),
        ("model", "none-9b", "no model"),
        ("accelerator", "X9000", "no node of the catalog holds it"),
        ("engine", "warp", "it can be vllm"),
        ("id", "rl-nemo-rl-001", r"stands in .*steps\.csv:2, too"),
    ],
)
def test_wrong_row_is_listed_with_its_reason_and_the_others_count(
    tmp_path: Path, column: str, value: str, says: str
) -> None:
    made = rows(2)
    made[1][column] = value
    found = planner.validate(written(tmp_path, made)).document
    assert found["overall"]["n"] == 1
    (lost,) = found["not_covered"]
    with pytest.raises(ClusterwrightError, match=says):
        raise WrongQuestion(lost["reason"])


def test_columns_that_open_no_row_may_be_left_out_and_others_may_not(tmp_path: Path) -> None:
    assert planner.validate(written(tmp_path, rows(1), [*measured.REQUIRED])).document["overall"]["n"] == 1
    for name in ("step_s", "model", "gpus_train"):
        columns = [column for column in measured.REQUIRED if column != name]
        with pytest.raises(WrongQuestion, match=rf"steps\.csv:1: no column {name}; "):
            planner.validate(written(tmp_path, rows(1), columns))
    with pytest.raises(WrongQuestion, match="no row below its header"):
        planner.validate(written(tmp_path, []))
    with pytest.raises(NoAnswer, match="none of 1 steps can be predicted; the first, rl-nemo-rl-001"):
        planner.validate(written(tmp_path, [{**rows(1)[0], "step_s": ""}]))
