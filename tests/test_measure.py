"""Kernels measured or read from a table become an accelerator's figures; an interrupted run goes on."""

import builtins
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planner import catalog
from planner.base import csv_rows
from planner.base.errors import WrongQuestion
from planner.calibration.measuring import timing
from planner.calibration.measuring.fitting import Kernels, fit_kernels
from planner.calibration.measuring.kernel_times import (
    COLLECTIVES,
    COLUMNS,
    LAUNCH,
    MATRIX,
    Kernel,
    MeasurementJournal,
    MeasurementRow,
    read,
)
from planner.calibration.measuring.kernels import kernels, layer
from planner.calibration.measuring.measure import measure, of_table, run_measure, run_table
from planner.calibration.measuring.timing import Refused, by_name, device_of, seconds_of, trimmed_mean
from planner.commands.screen import render
from planner.figures.efficiency import Efficiencies
from planner.models.workload import library
from tests.sweeps import sweep

CATALOG = catalog.load()
H100 = CATALOG.accelerator("H100-SXM5-80GB")
PRIOR = CATALOG.accelerator_efficiencies["hopper"]
_with_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed here (make test-real)"
)


class Clock:
    """A bench that runs nothing: seconds by a kernel's place."""

    version = "0.0"

    def __init__(self) -> None:
        self.timed: list[Kernel] = []

    def __call__(self, kernel: Kernel) -> float:
        self.timed.append(kernel)
        return 1e-3 * len(self.timed)


def _rows(truth: object, noise: float, seed: int = 0, devices: int = 8) -> list[MeasurementRow]:
    """Every kernel of an H100 as the cost model times it under some figures, with noise."""
    wanted = kernels(["bf16", "fp8", "fp32"], devices)
    blank = [MeasurementRow(accelerator=H100.id, kernel=kernel, seconds=1.0) for kernel in wanted]
    exact = Kernels(H100, blank).predict(Efficiencies({H100.id: truth}, {})).time  # type: ignore[dict-item]
    noisy = exact * np.exp(np.random.default_rng(seed).normal(0.0, noise, len(exact)))
    return [replace(row, seconds=float(seconds)) for row, seconds in zip(blank, noisy, strict=True)]


# ---- fitting ---------------------------------------------------------------------------------------------------------

TRUTH = replace(
    PRIOR,
    id=H100.id,
    matrix={**PRIOR.matrix, "bf16": 0.78, "fp8": 0.55, "fp32": 0.8},
    inner_half=260.0,
    quantisation=0.25,
    attention=0.58,
    attention_half=1400.0,
    attention_backward=1.2,
    memory=0.86,
    launch=3.5e-6,
    scaleup=0.7,
    scaleup_reduce=0.9,
    scaleup_latency=1.8e-6,
    collective_base=8e-6,
)


@sweep("seed", range(3))
def test_a_fit_recovers_known_figures_from_noisy_rows(seed: int) -> None:
    entry, report = fit_kernels(_rows(TRUTH, 0.015, seed), H100, PRIOR)
    assert entry.id == H100.id
    assert len(report.figures) == 14
    for figure in report.figures:
        name, _, key = figure.name.partition(".")
        known = getattr(TRUTH, name)
        assert figure.value == pytest.approx(known[key] if key else known, rel=0.05), figure.name
        assert not figure.at_limit
    assert report.mape < 0.015
    assert all(kind.mape < kind.prior_mape for kind in report.kinds)


def test_a_fit_bears_outliers() -> None:
    rows = _rows(TRUTH, 0.02)
    spoilt = [replace(row, seconds=row.seconds * (8.0 if place % 12 == 0 else 1.0)) for place, row in enumerate(rows)]
    entry, _ = fit_kernels(spoilt, H100, PRIOR)
    assert entry.matrix["bf16"] == pytest.approx(0.78, rel=0.05)
    assert entry.attention == pytest.approx(0.58, rel=0.1)


def test_what_no_row_speaks_of_stays_as_it_was() -> None:
    rows = [row for row in _rows(TRUTH, 0.0) if row.kernel.kind == MATRIX and row.kernel.dtype == "bf16"]
    entry, report = fit_kernels(rows, H100, PRIOR)
    assert {figure.name for figure in report.figures} == {"matrix.bf16", "inner_half", "quantisation"}
    assert entry.attention == PRIOR.attention and entry.memory == PRIOR.memory and entry.launch == PRIOR.launch
    assert entry.matrix["fp8"] == PRIOR.matrix["fp8"]


def test_a_precision_that_the_prior_lacks_is_added() -> None:
    known = replace(PRIOR, matrix={"bf16": 0.7})
    rows = [row for row in _rows(TRUTH, 0.0) if row.kernel.kind == MATRIX]
    assert fit_kernels(rows, H100, known)[0].matrix["fp8"] == pytest.approx(0.55, rel=0.02)


def test_a_figure_beyond_what_is_possible_is_said_to_be_at_its_limit() -> None:
    rows = [replace(row, seconds=row.seconds / 5) for row in _rows(TRUTH, 0.0) if row.kernel.kind == MATRIX]
    _, report = fit_kernels(rows, H100, PRIOR)
    assert next(figure for figure in report.figures if figure.name == "matrix.bf16").at_limit


def test_faster_kernels_reach_more() -> None:
    rows = [row for row in _rows(TRUTH, 0.0) if row.kernel.kind not in (*COLLECTIVES, LAUNCH)]
    slow, _ = fit_kernels([replace(row, seconds=row.seconds * 1.2) for row in rows], H100, PRIOR)
    fast, _ = fit_kernels(rows, H100, PRIOR)
    assert slow.matrix["bf16"] < fast.matrix["bf16"]
    assert slow.attention < fast.attention
    assert slow.memory < fast.memory


# ---- which kernels ---------------------------------------------------------------------------------------------------


def test_a_layer_has_its_products_in_three_layouts() -> None:
    found = list(layer(library()["llama3-8b"], 2, 4096, "bf16"))
    assert [(k.layout, k.m, k.n, k.k) for k in found[:3]] == [
        ("TN", 4096, 3072, 4096),
        ("NN", 4096, 4096, 3072),
        ("NT", 4096, 3072, 4096),
    ]
    forward = sum(kernel.flops for kernel in found if kernel.layout == "TN")
    assert sum(kernel.flops for kernel in found) == 3 * forward
    # 2 x 4,096 tokens x (4,096 x (4,096 + 2 x 1,024) + 4,096 x 4,096 + 3 x 4,096 x 14,336) / 2 ranks
    assert forward == 2 * 4096 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336) / 2


def test_the_sweep_is_small_distinct_and_fits_a_small_part() -> None:
    found = kernels(["bf16", "fp16", "fp8", "tf32", "fp32"], 8)
    assert len(found) == len(set(found)) < 900
    assert max(kernel.bytes for kernel in found) < 4e9
    assert {kernel.layout for kernel in found if kernel.dtype == "fp8"} == {"TN"}
    assert all(v % 16 == 0 for k in found if k.dtype == "fp8" for v in (k.m, k.n, k.k))
    assert not [kernel for kernel in kernels(["bf16"], 1) if kernel.kind in COLLECTIVES]
    assert {kernel.ranks for kernel in kernels(["bf16"], 6) if kernel.kind in COLLECTIVES} == {2, 4, 6}
    assert all(k.size % (k.ranks * 2) == 0 for k in kernels(["bf16"], 6) if k.kind in COLLECTIVES)


# ---- the journal -----------------------------------------------------------------------------------------------------


class Killed(Exception):
    pass


@contextmanager
def _silent(description: str, total: float | None) -> Iterator[object]:
    yield lambda n=1, note="": None


def _measured(journal: Path, bench: Clock, progress: object = _silent) -> tuple[MeasurementRow, ...]:
    return measure("cpu", journal, accelerator=H100, progress=progress, tiny=True, bench=bench).rows  # type: ignore[arg-type]


def test_an_interrupted_run_measures_only_the_rest(tmp_path: Path) -> None:
    journal, wanted = tmp_path / "kernels.csv", kernels(["bf16", "fp32"], tiny=True)

    @contextmanager
    def killing(description: str, total: float | None) -> Iterator[object]:
        done = 0.0

        def advance(n: float = 1, note: str = "") -> None:
            nonlocal done
            done += n
            if done >= 5:
                raise Killed

        yield advance

    first, second = Clock(), Clock()
    with pytest.raises(Killed):
        _measured(journal, first, killing)
    rows = _measured(journal, second)
    assert first.timed == wanted[:5]
    assert second.timed == wanted[5:]
    assert [row.kernel for row in rows] == wanted
    assert [row.seconds for row in rows[:5]] == pytest.approx([0.001, 0.002, 0.003, 0.004, 0.005])
    third = Clock()
    assert _measured(journal, third) == rows
    assert third.timed == []
    assert read(journal).rows == rows


def test_a_line_cut_off_while_it_was_written_is_measured_again(tmp_path: Path) -> None:
    journal = tmp_path / "kernels.csv"
    rows = _measured(journal, Clock())
    journal.write_bytes(journal.read_bytes()[:-20])
    bench = Clock()
    _measured(journal, bench)
    assert bench.timed == [rows[-1].kernel]


def test_another_version_measures_again(tmp_path: Path) -> None:
    journal, newer = tmp_path / "kernels.csv", Clock()
    _measured(journal, Clock())
    newer.version = "9.9"
    rows = _measured(journal, newer)
    assert newer.timed and {row.torch for row in rows} == {"9.9"}
    assert {row.torch for row in read(journal).rows} == {"0.0", "9.9"}


def test_what_a_device_does_not_run_is_told_and_not_written(tmp_path: Path) -> None:
    class Choosy(Clock):
        def __call__(self, kernel: Kernel) -> float:
            if kernel.dtype == "fp32":
                raise Refused("no such kernel")
            return super().__call__(kernel)

    found = measure("cpu", tmp_path / "k.csv", accelerator=H100, progress=_silent, tiny=True, bench=Choosy())  # type: ignore[arg-type]
    assert len(found.refused) == 6 and all("fp32" in one and "no such kernel" in one for one in found.refused)
    assert found.fresh == len(found.rows) == len(read(tmp_path / "k.csv").rows)


HEADER = ",".join(COLUMNS)
GOOD = "H100-SXM5-80GB,matrix,bf16,TN,4096,4096,4096,,,,,,,0.0002,1.3e11,1e8,2.13.0,2026-11-20"


@sweep(
    ("text", "message"),
    [
        (f"{HEADER}\n{GOOD}\n{GOOD.replace('4096', 'many', 1)}\n", ":3: m = 'many': must be a whole number"),
        (f"{HEADER}\n{GOOD.replace('0.0002', '-1')}\n", ":2: seconds = '-1': must be a positive number"),
        (f"{HEADER}\n{GOOD.replace('0.0002', 'nan')}\n", ":2: seconds = 'nan': must be a positive number"),
        (f"{HEADER}\n{GOOD.replace('bf16', 'bf61')}\n", ":2: dtype = 'bf61': did you mean bf16?"),
        (f"{HEADER}\n{GOOD.replace('matrix', 'matriks')}\n", ":2: kind = 'matriks': did you mean matrix?"),
        (f"{HEADER}\n{GOOD},more\n", ":2: more cells than the header names"),
        (f"{HEADER}\n{GOOD.replace('H100-SXM5-80GB', '')}\n", ":2: accelerator and dtype must be given"),
        ("accelerator,dtype,m,n\nh100,bf16,1,1\n", ":1: no column k, seconds (or tflops)"),
        ('accelerator,dtype,m,n,k,tflops\n"h100,bf16\n', ":2: unexpected end of data"),
        ("", ":1: no column accelerator"),
    ],
)
def test_a_malformed_table_is_refused_at_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongQuestion) as refused:
        of_table(path, H100)
    assert str(refused.value).startswith(f"{path}{message}")


def test_a_file_that_is_no_journal_is_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text("accelerator,dtype,m,n,k,tflops\nh100,bf16,4096,4096,4096,600\n", encoding="utf-8")
    with pytest.raises(WrongQuestion, match=r"kernels\.csv:1: no journal of measured kernels"):
        MeasurementJournal(path)
    assert path.read_text(encoding="utf-8").count("\n") == 2


@sweep("text", ["what I wrote down", "a,b\n1,2\nno newline at the end", "\n", "\n\nx"])
def test_a_file_of_someone_else_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongQuestion, match=r"notes\.txt:1: others"):
        csv_rows.goes_on(path, COLUMNS, "a table", "others")
    assert path.read_text(encoding="utf-8") == text


@sweep("newline", ["\n", "\r\n"])
@sweep("mark", ["", "\ufeff"])
def test_a_table_cut_off_anywhere_goes_on_behind_its_last_whole_row(newline: str, mark: str, tmp_path: Path) -> None:
    path, columns, old, new = tmp_path / "table.csv", ("one", "two"), ["1", "ä"], ["2", "ö"]
    lines = ["one,two", "1,ä"]
    whole = mark + newline.join([*lines, ""])
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end].encode())
        goes_on = csv_rows.goes_on(path, columns, "a table", "others")
        assert goes_on == (whole[:end].count(newline[0]) == 2)
        csv_rows.add(path, columns, [new])
        read, rows = csv_rows.read(path, "a table")
        assert read == columns and [list(row.cells.values()) for row in rows] == [*([old] if goes_on else []), new]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", None])
def test_a_table_that_cannot_be_read_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WrongQuestion, match=r"kernels\.csv: (not UTF-8|No such file)"):
        read(path)


# ---- tables made elsewhere -------------------------------------------------------------------------------------------


def _elsewhere(path: Path) -> Path:
    """Rates of matrix products as published tables give them, with rows of another part and one without a shape."""
    rows = [row for row in _rows(TRUTH, 0.02) if row.kernel.kind == MATRIX and row.kernel.dtype in ("bf16", "fp8")]
    lines = [
        f"h100_sxm,{row.kernel.dtype},,{row.kernel.m},{row.kernel.n},{row.kernel.k},"
        f"{row.kernel.flops / row.seconds / 1e12:.1f}"
        for row in rows
    ]
    extra = ["a100_sxm,bf16,,4096,4096,4096,240.0", "NVIDIA H100 SXM,bf16,,,,,794.5"]
    path.write_text("\n".join(["accelerator,dtype,layout,m,n,k,tflops", *lines, *extra]) + "\n", encoding="utf-8")
    return path


def test_a_table_of_rates_is_fitted_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    found = run_table(tmp_path / "mine", _elsewhere(tmp_path / "gemm.csv"), H100.id, CATALOG)
    level = {figure.name: figure.value for figure in found.report.figures}
    assert level["matrix.bf16"] == pytest.approx(0.78, rel=0.05)
    assert level["matrix.fp8"] == pytest.approx(0.55, rel=0.05)


def _faster(path: Path, by: float) -> Path:
    """The same table with every rate multiplied."""
    header, *lines = _elsewhere(path).read_text(encoding="utf-8").splitlines()
    cells = [line.rsplit(",", 1) for line in lines]
    path.write_text("\n".join([header, *(f"{most},{by * float(rate):.1f}" for most, rate in cells)]), encoding="utf-8")
    return path


def test_levels_that_training_steps_showed_outlast_a_table(tmp_path: Path) -> None:
    """Kernels alone run faster than a step's do; the shapes' figures are the table's."""
    shipped = CATALOG.accelerator_efficiencies["hopper"]
    found = run_table(tmp_path / "mine", _elsewhere(tmp_path / "gemm.csv"), H100.id, CATALOG)
    assert found.kept
    assert found.entry.matrix["bf16"] == shipped.matrix["bf16"]
    assert found.entry.inner_half != shipped.inner_half
    slow = run_table(tmp_path / "slow", _faster(tmp_path / "slow.csv", 0.5), H100.id, CATALOG).entry.matrix["bf16"]
    assert 0.3 < slow < 0.5  # no step does better than the best kernel: about half of 0.78


def test_a_part_that_no_run_was_fitted_on_takes_its_kernels_level(tmp_path: Path) -> None:
    table = _faster(tmp_path / "gemm.csv", 1.0)
    table.write_text(table.read_text(encoding="utf-8").replace("h100_sxm", "Gaudi3"), encoding="utf-8")
    found = run_table(tmp_path / "mine", table, "Gaudi3", CATALOG)
    assert not found.kept
    assert found.entry.matrix["bf16"] == pytest.approx(0.78 * 989 / 1677, rel=0.1)


def test_a_rate_beyond_the_nominal_peak_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongQuestion, match=r"TFLOP/s is beyond the 98\d TFLOP/s that H100-SXM5-80GB can do in bf16"):
        run_table(tmp_path / "mine", _faster(tmp_path / "gemm.csv", 2.0), H100.id, CATALOG)
    assert not list((tmp_path / "mine").rglob("*.toml"))


def test_a_table_becomes_an_overlay_that_the_catalog_reads(tmp_path: Path) -> None:
    found = run_table(tmp_path / "mine", _elsewhere(tmp_path / "gemm.csv"), H100.id, CATALOG)
    assert found.left_out == 2
    assert [path.relative_to(tmp_path / "mine").as_posix() for path in found.written] == [
        "accelerator_efficiencies/H100-SXM5-80GB.toml"
    ]
    assert catalog.problems(tmp_path / "mine") == []
    entry = catalog.load(tmp_path / "mine").accelerator_efficiencies[H100.id]
    assert entry.matrix["bf16"] == pytest.approx(found.entry.matrix["bf16"], rel=1e-4)
    assert entry.source.startswith(f"table gemm.csv: {found.report.rows} kernels, mean error ")
    assert entry.date


def test_a_table_of_other_parts_says_whose_it_is(tmp_path: Path) -> None:
    with pytest.raises(WrongQuestion, match=r"no kernel of MI300X in it; it has A100-SXM4-80GB, H100-SXM5-80GB"):
        run_table(tmp_path, _elsewhere(tmp_path / "gemm.csv"), "MI300X", CATALOG)


# ---- the device ------------------------------------------------------------------------------------------------------


def test_without_torch_one_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        WrongQuestion, match=r"needs PyTorch, which is not installed here: pip install 'cluster"
    ) as said:
        run_measure(tmp_path / "new", None, "auto", True, render.progress, CATALOG)
    assert said.value.exit_code == 2
    assert "\n" not in str(said.value)
    assert not (tmp_path / "new").exists()


def test_a_broken_torch_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def broken(name: str, *rest: object) -> object:
        if name == "torch":
            raise OSError("libcudart.so: cannot open shared object file")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(WrongQuestion, match=r"installed but does not load: libcudart"):
        timing.torch_module()


@sweep(
    ("published", "gib", "known"),
    [
        ("NVIDIA H100 80GB HBM3", 79.1, "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", 79.1, "H100-PCIE-80GB"),
        ("NVIDIA H200", 139.8, "H200-SXM-141GB"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "A100-SXM4-40GB"),
        ("NVIDIA A100-PCIE-40GB", 39.4, "A100-PCIE-40GB"),
        ("NVIDIA A100 80GB PCIe", 79.2, "A100-PCIE-80GB"),
        ("Tesla V100-PCIE-16GB", 15.8, "V100-PCIE-16GB"),
        ("Tesla T4", 14.7, "T4"),
        ("NVIDIA L4", 22.0, "L4"),
        ("NVIDIA GeForce RTX 4090", 23.6, "RTX-4090"),
        ("NVIDIA B200", 178.4, "B200-SXM-180GB"),
        ("AMD Instinct MI300X", 191.7, "MI300X"),
        ("NVIDIA GH200 480GB", 94.5, "GH200-96GB"),
    ],
)
def test_a_device_is_known_by_its_name_and_memory(published: str, gib: float, known: str) -> None:
    assert by_name(published, gib * 2**30, CATALOG) == known


@sweep(
    ("published", "gib", "message"),
    [
        ("NVIDIA H100 NVL", 93.1, "is in no catalog"),
        ("NVIDIA RTX A7000", 48.0, "is in no catalog. Nearest: RTX-A6000, RTX-A5000, RTX-A4000."),
        ("Graphcore", 1.0, "is in no catalog. Name it with --accelerator"),
    ],
)
def test_a_device_that_is_another_is_not_taken_for_it(published: str, gib: float, message: str) -> None:
    with pytest.raises(WrongQuestion) as refused:
        by_name(published, gib * 2**30, CATALOG)
    assert message in str(refused.value)


def test_samples_are_long_enough_and_trimmed() -> None:
    now = [0.0]

    def work() -> None:
        now[0] += 2e-4

    assert seconds_of(work, lambda: None, lambda: now[0]) == pytest.approx(2e-4)
    assert trimmed_mean([1.0, 1.0, 1.0, 1.0, 100.0]) == 1.0
    assert trimmed_mean([2.0, 4.0]) == 3.0


# ---- with PyTorch ----------------------------------------------------------------------------------------------------

CPU = """
[cpu]
name = "This processor"
vendor = "any"
generation = "cpu"
year = 2020
peak = { fp32 = "1 TFLOP/s", bf16 = "1 TFLOP/s" }
memory = "16 GiB"
memory_bandwidth = "100 GB/s"
compute_units = 8
scaleup = { name = "shared memory", topology = "switch", bandwidth = "10 GB/s" }
source = "test"
date = "2026-11"
"""


@pytest.fixture
def cpu(tmp_path: Path) -> catalog.Catalog:
    folder = tmp_path / "catalog" / "accelerators"
    folder.mkdir(parents=True)
    (folder / "cpu.toml").write_text(CPU, encoding="utf-8")
    return catalog.load(folder.parent)


@_with_torch
def test_a_processor_is_measured_and_its_overlay_used(tmp_path: Path, cpu: catalog.Catalog) -> None:
    folder = tmp_path / "mine"
    found = run_measure(folder, "cpu", "cpu", True, render.progress, cpu)
    assert found.refused == ()
    assert found.fresh == found.report.rows == len(kernels(["bf16", "fp32"], tiny=True))
    assert all(0 < row.seconds < 10 for row in read(folder / "kernels.csv").rows)
    again = run_measure(folder, "cpu", "cpu", True, render.progress, cpu)
    assert again.fresh == 0
    assert again.report == found.report
    assert catalog.problems(folder) == []
    entry = catalog.load(folder).accelerator_efficiencies["cpu"]
    assert entry.source.startswith("measured with PyTorch 2.")
    assert entry.memory == pytest.approx(found.entry.memory, rel=1e-4)
    assert run_table(tmp_path / "again", folder / "kernels.csv", "cpu", cpu).entry == found.entry


@_with_torch
def test_two_processes_time_collectives(tmp_path: Path, cpu: catalog.Catalog) -> None:
    found = run_measure(tmp_path / "mine", "cpu", "cpu", True, render.progress, cpu, ranks=2)
    timed = {row.kernel.kind for row in read(tmp_path / "mine" / "kernels.csv").rows}
    assert {"all-reduce", "all-gather"} <= timed
    assert {"scaleup", "scaleup_reduce", "scaleup_latency"} <= {figure.name for figure in found.report.figures}


@_with_torch
@pytest.mark.parametrize(
    ("device", "accelerator", "message"),
    [
        ("cpu", None, "name the catalog entry of this CPU"),
        ("cpu", "H100-SXM5-80G", "no accelerator 'H100-SXM5-80G'. Did you mean H100-SXM5-80GB"),
        ("gpu", "cpu", "--device gpu: must be auto, cuda, cuda:N or cpu"),
        ("cuda:99", "cpu", "PyTorch 2."),
    ],
)
def test_a_wrong_device_or_name_is_refused(
    device: str, accelerator: str | None, message: str, tmp_path: Path, cpu: catalog.Catalog
) -> None:
    with pytest.raises(WrongQuestion) as refused:
        run_measure(tmp_path / "mine", accelerator, device, True, render.progress, cpu)
    assert message in str(refused.value)
    assert not (tmp_path / "mine").exists()


@_with_torch
def test_every_kind_of_product_runs_or_is_refused_with_a_reason() -> None:
    bench = timing.Bench("cpu")
    for dtype in ("bf16", "fp16", "fp32", "tf32", "fp8"):
        try:
            assert bench(Kernel(kind=MATRIX, dtype=dtype, layout="TN", m=32, n=32, k=32)) > 0
        except Refused as reason:
            assert str(reason)
    assert device_of("cpu") == "cpu"
