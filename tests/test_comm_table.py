"""Tables of measured collectives: read, written, imported, and refused in words."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.base.errors import WrongQuestion
from planner.comm.tables import measured_times, measuring, nccl_tests_and_osu
from planner.comm.tables.measured_times import CollectiveMethod, TableCell, TableRow, TimesTable
from planner.comm.tables.nccl_tests_and_osu import ImportOptions, imported
from tests.asking import ask, refused
from tests.sweeps import sweep
from tests.words import worded

NCCL = """# nThread 1 nGpus 8 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20
# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid 11 on   node-a device  0 [0x19] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 12 on   node-b device  0 [0x3b] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    21.50    0.05    0.09      0    21.00    0.05    0.09      0
        2048           512     float     sum      -1    22.50    0.09    0.17    N/A    22.00    0.09    0.17    N/A
# Out of bounds values : 0 OK
"""
OSU = "# OSU MPI Alltoall Personalized Exchange Latency Test v7.4\n# Size       Avg Latency(us)\n8     3.5\n16   4.0\n"
LOG = {"all_reduce": {"4096": [2, [0.5, 0.7], [1, 1], [1, 1]]}, "all_gather_into_tensor": {"100": [1, [2.0], [], []]}}


def put(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "given"
    path.write_text(text, encoding="utf-8")
    return path


def test_nccl_tests(tmp_path: Path) -> None:
    rows = imported(put(tmp_path, NCCL), "nccl-tests", ImportOptions(algorithm="Ring", protocol="LL")).rows
    assert [(r.op, r.ranks, r.nodes, r.bytes, r.seconds) for r in rows] == [
        ("all-reduce", 2, 2, 1024, pytest.approx(21.5e-6)),
        ("all-reduce", 2, 2, 2048, pytest.approx(22.5e-6)),
    ]
    assert {r.candidate for r in rows} == {CollectiveMethod("nccl", "ring", "ll")}


def test_osu_sizes_become_the_whole_vector(tmp_path: Path) -> None:
    rows = imported(put(tmp_path, OSU), "osu", ImportOptions(backend="mpich", ranks=4)).rows
    assert [(r.op, r.bytes, r.seconds) for r in rows] == [
        ("all-to-all", 32, pytest.approx(3.5e-6)),
        ("all-to-all", 64, pytest.approx(4e-6)),
    ]
    bandwidth = OSU.replace("Alltoall Personalized Exchange", "Allreduce")
    assert imported(put(tmp_path, bandwidth), "osu", ImportOptions(backend="x", ranks=4)).rows[0].bytes == 8
    transfer = "# OSU MPI Latency Test v7.4\n# Size Latency (us)\n0 1.0\n8 2.0\n"
    (row,) = imported(put(tmp_path, transfer), "osu", ImportOptions(backend="x")).rows
    assert (row.op, row.ranks, row.bytes) == ("send-recv", 2, 8)


def test_a_comms_logger_keeps_its_latencies_as_rounds(tmp_path: Path) -> None:
    found = imported(
        put(tmp_path, json.dumps({"comms_dict": LOG})), "comms-logger", ImportOptions(backend="nccl", ranks=8)
    )
    assert [(r.op, r.bytes, r.round, r.seconds) for r in found.rows] == [
        ("all-reduce", 4096, 0, pytest.approx(5e-4)),
        ("all-reduce", 4096, 1, pytest.approx(7e-4)),
        ("all-gather", 800, 0, pytest.approx(2e-3)),
    ]


@worded("comm.tables", read=json.loads)
def test_what_cannot_be_read(case: tuple[Any, str, dict[str, Any]], tmp_path: Path) -> str:
    """A text, or one in place of another in nccl-tests' output."""
    text, source, options = case
    text = NCCL.replace(*text) if isinstance(text, list) else {"NCCL": NCCL, "OSU": OSU}.get(text, text)
    with pytest.raises(WrongQuestion) as told:
        imported(put(tmp_path, text), source, ImportOptions(**options))
    return str(told.value)


@sweep(
    ("text", "source", "options", "says"),
    [
        ("[" * 100_000, "comms-logger", ImportOptions(backend="x", ranks=2), "not JSON"),
        ("\u00ff\0", "csv", ImportOptions(), "no column|line contains"),
    ],
)
def test_what_is_no_text_cannot_be_read(
    tmp_path: Path, text: str, source: str, options: ImportOptions, says: str
) -> None:
    with pytest.raises(WrongQuestion, match=says):
        imported(put(tmp_path, text), source, options)


@pytest.mark.slow
@settings(deadline=None)
@given(st.text(max_size=200), st.sampled_from(nccl_tests_and_osu.SOURCES))
@example("² 1", "osu")  # a digit that int() does not take
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str, source: str) -> None:
    path = tmp_path_factory.mktemp("any") / "given"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        imported(path, source, ImportOptions(backend="x", ranks=2))
    except WrongQuestion:
        pass


ROWS = st.lists(
    st.builds(
        TableRow,
        st.builds(CollectiveMethod, st.sampled_from(["gloo", "nccl"]), st.sampled_from(["", "ring"]), st.just("")),
        st.sampled_from(["all-reduce", "send-recv"]),
        st.integers(2, 64),
        st.integers(1, 2**40),
        st.floats(1e-7, 10.0).map(lambda x: float(f"{x:.6g}")),
        st.integers(0, 9),
    ),
    min_size=1,
)


@settings(deadline=None)
@given(ROWS)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list[TableRow]) -> None:
    path = tmp_path_factory.mktemp("table") / "table.csv"
    journal = measured_times.TableJournal(path)
    for row in rows:
        journal.add([row])
    with path.open("a", encoding="utf-8") as file:
        file.write("gloo,,,all-red")  # interrupted
    assert measured_times.TableJournal(path).rows == rows == list(measured_times.read(path).rows)


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=40))
def test_the_mean_lies_between_and_the_spread_is_students(values: list[float]) -> None:
    cell = TableCell(dict(enumerate(values)))
    assert min(values) <= cell.seconds * (1 + 1e-12) and cell.seconds <= max(values) * (1 + 1e-12)
    assert cell.spread is not None and cell.spread >= 0
    if len(values) == 4:  # nothing is trimmed: the plain interval
        wanted = 3.18 * statistics.stdev(values) / math.sqrt(4) / statistics.mean(values)
        assert cell.spread == pytest.approx(wanted, abs=1e-9)


def test_one_round_says_nothing_of_its_spread() -> None:
    assert TableCell({0: 1.0}).spread is None
    row = TableRow(CollectiveMethod("a"), "all-reduce", 2, 8, 1.0)
    assert TimesTable((row, row)).cells["all-reduce", 2, 8][CollectiveMethod("a")].rounds == {0: 1.0}


def test_sizes_are_powers() -> None:
    assert list(measuring.powers(1024, 2**26)) == [1024 * 4**n for n in range(9)]


def test_the_commands_refuse_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for line, says in {
        "--backends nvcl": "did you mean nccl",
        "--ops all-reduse": "did you mean all-reduce",
        "--sizes 1..8": "write for example",
        "--sizes 1MiB..1KiB": "--sizes 1MiB..1KiB",
        "--ranks 1": "from 2 to 256",
        "--ranks x": "whole number",
        "--rounds 0": "whole number",
    }.items():
        assert says in refused(capsys, f"comm tune {line} -o table.csv"), line
    monkeypatch.setattr(measuring.importlib.util, "find_spec", lambda name: None)
    assert "clusterwright[runtime]" in refused(capsys, "comm tune -o table.csv")


def test_import_adds_to_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("n.txt").write_text(NCCL, encoding="utf-8")
    assert "2 rows" in ask(capsys, "comm import n.txt --from nccl-tests -o table.csv").out
    assert "now has 4" in ask(capsys, "comm import n.txt --from nccl-tests --algorithm tree -o table.csv").out
    assert len(measured_times.read(Path("table.csv")).candidates) == 2
    again = ask(capsys, "comm import n.txt --from nccl-tests -o table.csv").out
    assert "Added          0 rows" in again and "(2 were there already), which now has 4" in again
    Path("other.txt").write_text(NCCL, encoding="utf-8")
    assert "now has 6" in ask(capsys, "comm import other.txt --from nccl-tests -o table.csv").out
    rounds = [row.round for row in measured_times.read(Path("table.csv")).rows if not row.candidate.algorithm]
    assert rounds == [0, 0, 1, 1], "measured again: another round"
    assert "no row" in refused(capsys, "comm import table.csv --from osu --backend x -o other.csv")
    Path("notes.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert "columns are others" in refused(capsys, "comm import n.txt --from nccl-tests -o notes.csv")
