"""Files that are none of ours, outputs that are no files, folders that one may not enter: told, and nothing broken."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.base import reading, resources, writing
from planner.base.errors import WrongQuestion
from planner.catalog import load
from planner.models import files
from planner.planning import document
from planner.site.logs import records
from planner.site.trace import reading as traces
from tests.asking import ask
from tests.sweeps import sweep
from tests.words import worded

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "golden" / "plans" / "1" / "dense.json"
PLAN = "plan llama3-8b --cluster dgx-h100:1 --top 1 -o"


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_bytes(KEPT.read_bytes())
    return tmp_path


# ---- what is written -------------------------------------------------------------------------------------------------


def test_a_file_is_no_folder(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    answer = ask(capsys, f"{PLAN} plan.json/x")
    assert answer.code == 2
    assert "plan.json/x: cannot be written: Not a directory" in answer.err
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_a_link_stays_a_link(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "link.json").symlink_to("target.json")
    assert ask(capsys, f"{PLAN} link.json").code == 0
    assert (folder / "link.json").is_symlink()
    assert json.loads((folder / "target.json").read_text(encoding="utf-8"))["kind"] == "plan-set"


def test_links_in_a_circle_are_told(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "one").symlink_to("other")
    (folder / "other").symlink_to("one")
    answer = ask(capsys, f"{PLAN} one")
    assert (answer.code, "one: cannot be written" in answer.err) == (2, True)


@sweep("line", ["report plan.json -o one", "init site one", "explain one", "learn one --site one"])
def test_links_in_a_circle_are_read_with_words(line: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    for name, place in (("one", "other"), ("other", "one")):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(place)
    assert ask(capsys, line).code == 2


def test_what_is_no_file_is_written_to_and_stays(folder: Path) -> None:
    """Renamed over, a pipe would be gone, and so would ``/dev/stdout`` for everybody."""
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    writing.write(Path("pipe"), "text", replace=True)
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert (folder / "pipe").is_fifo()
    writing.write(Path("/dev/null"), "text", replace=True)
    assert Path("/dev/null").is_char_device()


def test_nothing_is_left_beside_a_file_that_could_not_be_written(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def stopped(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        writing.write(folder / "new.json", "text")
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_an_empty_value_fills_no_placeholder(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "export plan.json --to megatron --set save=")
    assert (answer.code, "--set save=: is empty; leave it out" in answer.err) == (2, True)
    assert ask(capsys, "export plan.json --to megatron+slurm --rank 1 --set account=").code == 0


# ---- what is read ----------------------------------------------------------------------------------------------------


def test_a_mark_of_the_byte_order_is_no_text(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """As editors on Windows put it at the front."""
    (folder / "bom.json").write_bytes(b"\xef\xbb\xbf" + KEPT.read_bytes())
    assert ask(capsys, "explain bom.json").code == 0
    toml = b'\xef\xbb\xbf[mine]\nname = "m"\nsource = "s"\ndate = "2026-01"\n'
    (folder / "bom.toml").write_bytes(toml)
    assert list(files.tables(folder / "bom.toml")) == ["mine"]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[" * 100_000, "explain odd", "odd: nested too deeply"),
        ("[" * 100_000, "models show odd.json", "malformed JSON: nested too deeply"),
        ("{}", "explain odd", "odd: no kind; expected plan, plan-set, procurement, study, image-plan or rl-plan"),
        ('{"kind": 3}', "explain odd", "odd: kind is 3; expected plan"),
        ("\udcff", "validate odd", "odd: not UTF-8 text (byte 0)"),
        ('{"kind":"plan","schema_version":1,"x":"\\ud800"}', "explain odd", "odd: half a character (a lone surrogate)"),
    ],
)
def test_other_files_are_told(
    text: str, line: str, says: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    name = "odd.json" if "odd.json" in line else "odd"
    (folder / name).write_bytes(text.encode("utf-8", errors="surrogateescape"))
    answer = ask(capsys, line)
    assert answer.code == 2
    assert says in answer.err
    assert "recursion" not in answer.err


def edited(folder: Path, **shape: Any) -> None:
    """The kept plan with other words in its model's shape."""
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    for each in found["plans"]:
        each["workload"]["shape"] |= shape
    (folder / "plan.json").write_text(json.dumps(found), encoding="utf-8")


def test_a_shape_may_leave_out_what_is_at_its_default(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    edited(folder, rotary={"base": 10000})
    assert ask(capsys, "export plan.json --to megatron").code == 0


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ({"rotary": {"base": "x"}}, 'workload.shape: rotary.base = "x": must be a valid number'),
        ({"norm_epsilon": 0}, "workload.shape: norm_epsilon = 0: must be above 0"),
    ],
)
def test_a_shape_that_is_none_is_told_in_a_line(
    shape: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    edited(folder, **shape)
    answer = ask(capsys, "export plan.json --to megatron")
    assert (answer.code, says in answer.err) == (2, True)
    assert "validation error" not in answer.err
    assert "http" not in answer.err


def test_a_set_without_plans_is_told(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    (folder / "plan.json").write_text(json.dumps({**found, "plans": []}), encoding="utf-8")
    answer = ask(capsys, "explain plan.json")
    assert (answer.code, "plan.json: no plan in it" in answer.err) == (2, True)


@worded("import.odd_commands")
def test_commands_that_no_cluster_starts(command: str) -> str:
    with pytest.raises(WrongQuestion) as caught:
        from planner.launchers.reading import imported_plan

        imported_plan.plan("megatron", command, ["dgx-h100:1"])
    assert "imported.toml" not in str(caught.value)
    return str(caught.value)


# ---- where one may not look ------------------------------------------------------------------------------------------


def test_a_home_of_somebody_else_has_no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(resources.Path, "is_dir", refused)
    assert resources.own("catalog") is None
    monkeypatch.undo()
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(resources.Path, "home", unknown)
    assert resources.own("models") is None
    assert load() is not None


def test_a_folder_that_one_may_not_enter_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Path.is_dir

    def refused(self: Path) -> bool:
        if self.name == "locked":
            raise PermissionError(13, "Permission denied", str(self))
        return asked(self)

    monkeypatch.setattr(Path, "is_dir", refused)
    answer = ask(capsys, "models list --models locked")
    assert (answer.code, answer.err) == (2, "clusterwright: locked: Permission denied\n")


def test_a_closed_error_output_changes_no_exit_code() -> None:
    """``2>&-``: then there is none to write to."""
    command = f"exec {sys.executable} cli.py plan no-such-model --cluster dgx-h100:1 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False, capture_output=True, cwd=ROOT).returncode == 2


# ---- files that were made to be too much -----------------------------------------------------------------------------


@sweep(
    ("text", "says"),
    [
        (".".join("a" * 20_000) + "=1", "1: not valid TOML: a key of more than 32 parts"),
        ("x = 1\n[" + " . ".join(['"a"'] * 40) + "]\n", "2: not valid TOML: a key of more than 32 parts"),
        ('"a\\"b".' * 40 + "c = 1", "1: not valid TOML: a key of more than 32 parts"),
        ("x = " + "[" * 40 + "]" * 40, "tables and lists more than 32 deep"),
        ("x = " + "{a=" * 20_000, "nested too deeply"),
        ("x = " + "9" * 4_301, "a whole number of more than 300 digits"),
        ("x = 0x" + "f" * 4_000, "a whole number of more than 300 digits"),
        ("x = [" + "[]," * 1_000_000 + "]", "more than 1,000,000 keys, tables and lists"),
    ],
)
def test_toml_beyond_what_is_needed_is_refused(
    text: str, says: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    for at in (folder / "a.toml", folder / "own" / "nodes" / "x.toml", folder / "site" / "site.toml"):
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text, encoding="utf-8")
    for line in ("procure a.toml", "design a.toml", "plan gpt2 --cluster a.toml", "catalog check own"):
        answer = ask(capsys, line)
        assert (answer.code in (1, 2), says in answer.out + answer.err) == (True, True), (line, answer)
    answer = ask(capsys, "plan gpt2 --cluster dgx-h100:1 --site site")
    assert (answer.code, says in answer.err) == (2, True), answer


@sweep(
    "line",
    ["validate pipe.csv", "calibrate pipe.csv -o out", "report pipe.csv -o r.html", "report pipe.json -o r.html"],
)
def test_a_pipe_is_no_table(line: str, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Whoever opens one waits for who writes, for ever."""
    pipe = folder / line.split()[1]
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    answer = ask(capsys, line)
    assert (answer.code, "not a regular file" in answer.err) == (2, True), answer.err


@sweep("line", ["validate runs.csv", "calibrate runs.csv -o out", "report runs.csv -o r.html"])
def test_a_table_is_read_within_bounds(
    line: str, capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short rows below a long first line have all its cells: a file of 2 MB would make ten thousand million."""
    (folder / "runs.csv").write_text(",".join(map(str, range(30_000))) + "\n1" * 400, encoding="utf-8")
    answer = ask(capsys, line)
    assert (answer.code, "12,030,000 cells; a table of runs has at most 10,000,000" in answer.err) == (2, True)
    monkeypatch.setattr("planner.base.csv_rows.LARGEST", 1_000)
    assert "a table of runs has at most 1,000" in ask(capsys, line).err


def test_toml_that_is_long_is_read() -> None:
    text = f"words = '{'a.b c ' * 1000}'\n" + "".join(f"[t{n}.a.b.c]\nx = {n}.5\n" for n in range(2_000))
    assert reading.toml(text)["t9"]["a"]["b"]["c"]["x"] == 9.5


@sweep(
    ("bound", "most", "says"),
    [
        ("BYTES_READ", 1_000_000, "more than 1,000,000 bytes when unpacked; learn takes the last part, too"),
        ("SECONDS_READ", -1.0, "reading it takes more than -1 s; learn takes the last part, too"),
        ("MOST_LINES", 1_000, "more than 1,000 lines; learn takes the last part, too"),
    ],
)
def test_a_log_is_read_within_bounds(
    bound: str, most: float, says: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Two megabytes of line ends, and two kilobytes of gzip."""
    log = folder / "small.log.gz"
    log.write_bytes(gzip.compress(b"\n" * 2_000_000))
    for module in (reading, records):
        if hasattr(module, bound):
            monkeypatch.setattr(module, bound, most)
    with pytest.raises(WrongQuestion, match=re.escape(says)):
        list(records.lines(log))


def test_a_trace_is_read_within_bounds(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(reading, "BYTES_READ", 1_000_000)
    trace = folder / "small.json.gz"
    trace.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 2_000_000))
    with pytest.raises(WrongQuestion, match=r"1,000,000 bytes when unpacked; trace fewer steps"):
        traces.read(trace, document.load(folder / "plan.json").plans[0].parallelism)
