"""Who ran what under which framework: read from a row's words, never from a source's name; and what counts in a fit."""

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner import catalog
from planner.axes.table import ZERO
from planner.base.errors import WrongQuestion
from planner.calibration.fit.counted_runs import BETWEEN, NEAR_BEST, SWEEP, WITHIN, cell, core, lab, weights
from planner.calibration.fit.frame import Frame
from planner.calibration.runs import names, reading
from planner.calibration.runs.measured_run import Run
from planner.figures import cost_inputs
from planner.figures.efficiency import Efficiencies
from planner.schema.hardware import dated
from tests.sweeps import depth, sweep
from tests.test_own_runs import GOOD, wrote

RUNS = Path(__file__).resolve().parent.parent / "benchmarks" / "data" / "measured_runs.csv"
CATALOG = catalog.load()


# ---- names -----------------------------------------------------------------------------------------------------------


@sweep(
    ("said", "meant"),
    [
        ("Megatron-LM", "megatron-core"),
        ("megatron core 0.12", "megatron-core"),
        ("Megatron-LM with its distributed optimizer (ZeRO-1)", "megatron-core"),
        ("NeMo (Megatron Core)", "nemo"),
        ("NVIDIA NeMo 24.07", "nemo"),
        ("Megatron-Bridge (Megatron Core)", "nemo"),
        ("Megatron-DeepSpeed", "megatron-deepspeed"),
        ("GPT-NeoX, a fork of Megatron", "megatron-deepspeed"),
        ("Primus / Megatron-LM (AMD)", "primus"),
        ("PyTorch FSDP2", "fsdp2"),
        ("torchtitan (PyTorch FSDP2)", "fsdp2"),
        ("llm-foundry (PyTorch FSDP)", "fsdp"),
        ("OLMo", "fsdp"),
        ("OLMo-core", "fsdp2"),
        ("MaxText", "maxtext"),
        ("nanotron", "nanotron"),
        ("DeepSpeed ZeRO-3", "deepspeed"),
        ("Meta in-house (4D parallel)", "any"),
        ("", None),
        ("Brainchild 3000", None),
    ],
)
def test_a_frameworks_published_name_means_a_runtime(said: str, meant: str | None) -> None:
    assert names.framework(said, CATALOG.runtimes) == meant
    assert names.framework(said.upper(), CATALOG.runtimes) == meant


def test_a_frameworks_names_are_data() -> None:
    """A new framework is a record: nothing in code knows it."""
    known = dict(CATALOG.runtimes)
    known["mine"] = replace(known["fsdp2"], called=("brainchild",))
    assert names.framework("Brainchild 3000", known) == "mine"


@sweep(
    ("said", "date"),
    [
        ("2024", "2024"),
        ("2025.11", "2025.11"),
        ("2021-2022", "2022"),
        ("released 2023.05, run 2024.02", "2024.02"),
        ("", ""),
        ("last spring", ""),
    ],
)
def test_dates_in_words(said: str, date: str) -> None:
    assert names.dated(said) == date


# ---- rows ------------------------------------------------------------------------------------------------------------


def one(tmp_path: Path, **cells: str) -> Run:
    (run,) = reading.read(wrote(tmp_path, {"runtime": "", **cells}), CATALOG)
    assert run.covered, run.reason
    return run


def test_a_row_states_its_framework_and_date_in_words(tmp_path: Path) -> None:
    run = one(tmp_path, framework="Megatron-LM", framework_date="2024-2025")
    assert (run.runtime, run.year, run.date) == ("megatron-core", "2025", "2025")
    assert not [said for said in run.inferred if said.startswith(("framework", "release"))]
    assert run.framework == "Megatron-LM"


def test_a_runtime_that_is_stated_decides_over_words(tmp_path: Path) -> None:
    run = one(tmp_path, runtime="fsdp2@2025", framework="Megatron-LM", framework_date="2021")
    assert (run.runtime, run.year) == ("fsdp2", "2025")


def test_an_unknown_framework_is_any_and_listed_as_guessed(tmp_path: Path) -> None:
    run = one(tmp_path, framework="Brainchild 3000", framework_date="2024")
    assert run.runtime == names.ANY
    assert "framework: any for 'Brainchild 3000', which no runtime is called" in run.inferred
    silent = one(tmp_path)
    assert (silent.runtime, "framework: any" in silent.inferred) == (names.ANY, True)


def test_a_release_that_nobody_states_is_listed_as_guessed(tmp_path: Path) -> None:
    run = one(tmp_path, framework="Megatron-LM")
    assert f"release {CATALOG.runtime('megatron-core').releases[-1]}" in run.inferred


def test_an_unnamed_framework_is_what_is_said_of_sharding(tmp_path: Path) -> None:
    run = one(tmp_path, sharding="PyTorch FSDP, full shard", framework_date="2024")
    assert (run.runtime, "framework: fsdp" in run.inferred) == ("fsdp", True)
    # But the word in the text of a row that names another framework means nothing.
    own = one(tmp_path, framework="Brainchild 3000", sharding="FSDP-sharded optimizer", framework_date="2024")
    assert own.runtime == names.ANY


@sweep(("said", "zero"), [("2", 1), ("~ZeRO-2", 1), ("ZeRO 1", 1), ("0", 0)])
def test_a_zero_stage_is_read_in_words_too(tmp_path: Path, said: str, zero: int) -> None:
    """ZeRO 2 under a pipeline reduces once a step, as ZeRO 1."""
    run = one(tmp_path, framework="in-house", framework_date="2024", pp="2", num_accelerators="16", zero_stage=said)
    assert {v.options[ZERO] for v in run.variants} == {zero}


def test_a_zero_stage_that_was_not_read_is_refused(tmp_path: Path) -> None:
    (run,) = reading.read(wrote(tmp_path, {"zero_stage": "partly"}), CATALOG)
    assert run.reason == "zero_stage 'partly': 0 to 3 are known, also in words (ZeRO-2)"


def test_a_run_is_predicted_alike_alone_and_among_others(tmp_path: Path) -> None:
    """Rows that differ in their network only: each finds its own."""
    large = {"runtime": "fsdp2@2025", "num_accelerators": "64", "global_batch_seqs": "64"}
    rows = [large | {"inter_node_network": network} for network in ("8x400 Gb", "1x25 Gb", "4x100 Gb")]
    runs, using = reading.read(wrote(tmp_path, *rows), CATALOG), Efficiencies.of(CATALOG)
    alone = [float(Frame(CATALOG, [run]).predict(using).time[0]) for run in runs]
    assert list(Frame(CATALOG, runs).predict(using).time) == alone
    assert len(set(alone)) == 3


@pytest.mark.slow
def test_sources_may_be_called_anything() -> None:
    """No rule goes by a source's name: with other names, every row is read and predicted as before."""
    with RUNS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, restval=""))[:: depth(1, 5)]
    sources = sorted({row["source"] for row in rows} | {row["source_group"] for row in rows})
    drawn = np.random.default_rng(16).permutation(len(sources))
    other = {name: f"{'zyxwv'[i % 5]}{i:03}" for name, i in zip(sources, drawn, strict=True)}
    renamed = [
        row | {"id": str(i), "source": other[row["source"]], "source_group": other[row["source_group"]]}
        for i, row in enumerate(rows)
    ]
    was, now = (Frame(CATALOG, [reading.run_of(row, CATALOG) for row in table]) for table in (rows, renamed))
    assert [run.reason for run in was.runs] == [run.reason for run in now.runs]
    using = Efficiencies.of(CATALOG)
    before, after = was.predict(using), now.predict(using)
    np.testing.assert_array_equal(before.time, after.time)
    np.testing.assert_array_equal(before.memory, after.memory)
    assert [lab(run) for run in was.runs] == [lab(run) for run in now.runs]


@pytest.mark.slow
def test_software_drifts_only_within_the_dates_that_were_measured() -> None:
    """A generation's drift begins no earlier and ends no later than runs on it are dated; beyond, nothing changes."""
    frame = Frame(CATALOG, reading.read(RUNS, CATALOG))
    members = [frame.runs[i] for i in core(frame)]
    drifting = {name: each for name, each in CATALOG.accelerator_efficiencies.items() if each.drift}
    assert drifting
    for name, each in drifting.items():
        of = {CATALOG.accelerators[name].generation if name in CATALOG.accelerators else name}
        dates = [dated(run.date) or 0.0 for run in members if run.cluster and run.cluster.accelerator.generation in of]
        month = 1 / 12
        assert min(dates) - month <= each.drift_from and each.matured <= max(dates) + month, name
        before, first, last, after = (cost_inputs.maturity(each, year) for year in ("2019", "2024.01", "2030", "2040"))
        assert before == first < last == after == 1.0, name


# ---- what counts -----------------------------------------------------------------------------------------------------


def frame_of(tmp_path: Path, seconds: list[float], **cells: str) -> Frame:
    rows = [{"id": str(i), "step_time_s": str(each), **cells} for i, each in enumerate(seconds)]
    return Frame(CATALOG, reading.read(wrote(tmp_path, *rows), CATALOG))


def test_of_a_sweep_only_plans_near_the_best_count(tmp_path: Path) -> None:
    few = [10.0 * (1 + 0.1 * i) for i in range(SWEEP - 1)]
    assert len(core(frame_of(tmp_path, few))) == len(few), "fewer plans are tuned, not swept: all count"
    many = [10.0 * (1 + 0.1 * i) for i in range(SWEEP + 5)]
    kept = core(frame_of(tmp_path, many))
    assert [many[i] for i in kept] == [each for each in many if each <= NEAR_BEST * many[0]]
    assert 1 < len(kept) < len(many)


@sweep("cells", [{"task": "sft"}, {"task": "lora"}, {"grade": "C"}, {"step_time_s": ""}])
def test_what_a_fit_does_not_look_at(tmp_path: Path, cells: dict[str, str]) -> None:
    rows = [{"id": "a"}, {"id": "b", "grade": "B"}, {"id": "c", **cells}, {"id": "d", "task": "mlperf-pretrain"}]
    frame = Frame(CATALOG, reading.read(wrote(tmp_path, *rows), CATALOG))
    assert [frame.runs[i].id for i in core(frame)] == ["a", "b", "d"]


def test_submitters_of_a_benchmark_are_one_lab_a_vendor(tmp_path: Path) -> None:
    told = {"task": "mlperf-pretrain", "framework": "NeMo", "framework_date": "2024"}
    rows = [{"lab": "NVIDIA", **told}, {"lab": "Dell", **told}, {"lab": "HPE", **told}, {"lab": "HPE"}, {}]
    runs = reading.read(wrote(tmp_path, *rows), CATALOG)
    vendors = "MLPerf submitters (NVIDIA)"
    assert [lab(run) for run in runs] == ["NVIDIA", vendors, vendors, "HPE", GOOD["source"]]


def test_a_cell_is_one_labs_runs_that_err_alike(tmp_path: Path) -> None:
    rows = [{}, {"tp": "2"}, {"runtime": "fsdp2@2025"}, {"accelerator": "A100"}, {"lab": "hers"}]
    found = [cell(run) for run in reading.read(wrote(tmp_path, *rows), CATALOG)]
    assert found[0] == found[1]
    assert len(set(found)) == 4


def test_a_lab_with_many_runs_weighs_hardly_more_than_one_with_few() -> None:
    groups = ["many"] * 100 + ["few"] * 2
    found = weights(groups)
    assert found.mean() == pytest.approx(1.0)
    total = Counter({name: sum(found[[group == name for group in groups]]) for name in set(groups)})
    # n / (n between^2 + within^2): what n runs that share a bias say of it.
    expected = [n / (n * BETWEEN**2 + WITHIN**2) for n in (100, 2)]
    assert total["many"] / total["few"] == pytest.approx(expected[0] / expected[1])
    assert 1.0 < total["many"] / total["few"] < 1.3


def test_a_folder_without_a_run_that_counts_says_so(tmp_path: Path) -> None:
    from planner.calibration.fit.calibrate import calibrate

    frame = Frame(CATALOG, reading.read(wrote(tmp_path, {"grade": "C"}), CATALOG))
    with pytest.raises(WrongQuestion, match="no grade A or B pre-training run"):
        calibrate(frame, Efficiencies.of(CATALOG))
