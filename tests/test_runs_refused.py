"""What a runs file may not silently mean: columns by other names, options before their time, unread cells."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from planner import catalog
from planner.axes.table import SEQUENCE_PARALLEL
from planner.base.errors import WrongQuestion
from planner.calibration.runs import columns, reading
from planner.calibration.runs.measured_run import Run
from planner.commands.command_line import main
from tests.sweeps import sweep
from tests.test_own_runs import validated, wrote
from tests.words import worded

CATALOG = catalog.load()
MEGATRON = CATALOG.runtime("megatron-core")


@pytest.fixture
def one(tmp_path: Path) -> Callable[..., Run]:
    """A run of one row with some cells changed."""
    return lambda **cells: reading.read(wrote(tmp_path, {"runtime": "", **cells}), CATALOG)[0]


# ---- columns ---------------------------------------------------------------------------------------------------------


def test_columns_that_nobody_reads_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = wrote(tmp_path, {"mfu": "0.41", "operator": "me"})
    assert validated(capsys, path)["unread_columns"] == ["mfu", "operator"]
    assert main(["validate", str(path)]) == 0
    assert "columns mfu, operator (docs/runs.md" in " ".join(capsys.readouterr().out.split())


@sweep(
    ("written", "meant"),
    [("Sequence Parallel", "sequence_parallel"), ("micro_batches", "micro_batch"), ("zero-stage", "zero_stage"),
     ("step_time", "step_time_s"), ("activation_recomputation", "activation_recompute")],
)  # fmt: skip
def test_a_column_by_another_name_is_refused(written: str, meant: str) -> None:
    present = [name for name in columns.READ if name != meant]
    with pytest.raises(WrongQuestion, match=f"is it {meant}"):
        columns.unread([*present, written])
    assert columns.unread([*present, meant]) == ()
    assert columns.unread([*present, meant, written]) == (written,), "nothing is lost where the column itself is there"


def test_published_files_have_no_column_that_is_not_known() -> None:
    for name in ("measured_runs", "sailor_runs"):
        path = Path(__file__).parent.parent / "benchmarks" / "data" / f"{name}.csv"
        assert reading.unread_columns(path) == ()


def test_a_misspelt_column_ends_validate_and_calibrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = wrote(tmp_path, {})
    path.write_text(path.read_text(encoding="utf-8").replace("step_time_s", "step_times"), encoding="utf-8")
    for command in (["validate", str(path)], ["calibrate", str(path), "-o", str(tmp_path / "out")]):
        assert main(command) == 2
        assert "'step_times': is it step_time_s?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# ---- dates -----------------------------------------------------------------------------------------------------------


@worded("runs.before_their_time", read=json.loads)
def test_an_option_before_its_time_is_refused(cells: dict[str, str], one: Callable[..., Run]) -> str:
    old = one(framework="Megatron-LM", framework_date="2021", **cells)
    assert not old.covered and "framework_date" in old.reason
    assert "framework_date" not in one(framework="Megatron-LM", framework_date="2025.06", **cells).reason
    assert "framework_date" not in one(framework="Megatron-LM", **cells).reason, "no date contradicts nothing"
    return old.reason


def test_within_the_year_or_month_of_an_option_nothing_is_contradicted() -> None:
    for date, there in (("2021", False), ("2022.03", False), ("2022", True), ("2022.04", True)):
        assert ("sequence_parallel" not in columns.options_to_come(MEGATRON, date)) == there
    assert columns.options_to_come(MEGATRON, "last spring") == ()


def test_what_is_not_stated_is_not_taken_to_be_ahead_of_its_time(one: Callable[..., Run]) -> None:
    for date, shared, said in (
        ("2021", False, "not there yet"),
        ("2023", False, "off, megatron-core's default"),
        ("2024", True, "on, megatron-core's default (or off)"),
    ):
        run = one(framework="Megatron-LM", framework_date=date, tp="2", sequence_parallel="")
        likely = [variant for variant in run.variants if variant.likely]
        assert {variant.options[SEQUENCE_PARALLEL] for variant in likely} == {shared}, run.reason
        assert f"sequence parallelism: {said}" in run.inferred


# ---- cells -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"sequence_parallel": "yes"}, "sequence_parallel 'yes': 0 and 1"),
        ({"gated_mlp": "swiglu"}, "gated_mlp 'swiglu': 0 and 1"),
        ({"dp": "3"}, "dp 3, but 8 accelerators by"),
    ],
)
def test_a_cell_that_says_something_else_is_refused(one: Callable[..., Run], cells: dict[str, str], said: str) -> None:
    assert said in one(**cells).reason


def test_a_date_that_was_not_read_is_listed(one: Callable[..., Run]) -> None:
    run = one(framework="Megatron-LM", framework_date="last spring", release="v9")
    assert f"release {MEGATRON.releases[-1]} for 'v9 last spring', which says no date" in run.inferred


def test_every_guess_is_listed(one: Callable[..., Run]) -> None:
    """A row that states nothing but what it must: every axis of its plan is told."""
    open_cells = ("cp", "vpp", "micro_batch", "zero_stage", "activation_recompute", "precision")
    run = one(**dict.fromkeys(open_cells, ""), tp="2", pp="2", num_accelerators="32", inter_node_network="fast")
    assert run.covered, run.reason
    starts = (
        *(
            "framework",
            "release",
            "optimizer",
            "inter_node_network 'fast' was not read, ports",
            "precision",
            "recompute",
        ),
        *("sequence parallelism", "ZeRO stage", "dp_overlap", "cp", "micro-batch", "vpp"),
    )
    assert [start for start in starts if not any(each.startswith(start) for each in run.inferred)] == []
