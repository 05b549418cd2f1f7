"""Files and folders are whole or not there, whenever the process that writes them is killed."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.base import locking, writing
from planner.base.errors import WrongQuestion
from tests.asking import ask
from tests.sweeps import sweep

CHANGES = (
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.chmod",
    "os.truncate",
    "tempfile.mkstemp",
    "ctypes.dlsym",
)
OLD, NEW = "old\n" * 3, "new\n" * 5


def at_events(work: Callable[[], object], act: Callable[[int], object]) -> bool:
    """Does `work` in a process of its own and calls `act` with 1, 2, ... before its events that change a file (after
    those that empty one by opening it); whether it was killed.
    """
    child = os.fork()
    if child == 0:
        number, acting = 0, False

        def look(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal number, acting
            written = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if acting or not (written or event in CHANGES):
                return
            number, acting = number + 1, True
            if written and arguments[2] & os.O_TRUNC:  # type: ignore[operator]
                with contextlib.suppress(OSError, TypeError):
                    os.truncate(arguments[0], 0)  # type: ignore[arg-type]
            act(number)
            acting = False

        sys.addaudithook(look)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """Whether `work`, in a process of its own, was killed at its `number`-th event that changes a file."""
    return at_events(work, lambda event: event == number and os.kill(os.getpid(), signal.SIGKILL))


def kills(work: Callable[[], object], again: Callable[[], None]) -> int:
    """Kills `work` at its first event, its second, ... and calls `again` after each; how many events there were."""
    for number in range(1, 1000):
        if not killed_at(number, work):
            return number - 1
        again()
    pytest.fail("it never ends")


@pytest.mark.parametrize("there", [False, True])
def test_a_file_is_whole_whenever_its_writer_is_killed(there: bool, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"

    def begin() -> None:
        file.write_text(OLD, encoding="utf-8") if there else file.unlink(missing_ok=True)

    def look() -> None:
        assert (file.read_text(encoding="utf-8") if file.exists() else None) in (OLD if there else None, NEW)
        writing.write(file, NEW, replace=True)
        assert file.read_text(encoding="utf-8") == NEW
        begin()

    begin()
    assert kills(lambda: writing.write(file, NEW, replace=True), look) >= 3


def fill(folder: Path) -> None:
    """The new state of a folder."""
    (folder / "inner").mkdir()
    for name in ("a", "inner/b", "target.json"):
        (folder / name).write_text(NEW, encoding="utf-8")


def content(folder: Path) -> dict[str, str]:
    """Files by their names."""
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in folder.rglob("*") if p.is_file()}


def test_a_folder_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    target = tmp_path / "out"

    def begin() -> None:
        writing.put_folder(target, lambda made: (made / "old").write_text(OLD, encoding="utf-8"))

    new = dict.fromkeys(("a", "inner/b", "target.json"), NEW)
    seen = []

    def look() -> None:
        assert content(target) in ({"old": OLD}, new)
        seen.append(content(target) == new)
        writing.put_folder(target, fill)
        assert content(target) == new
        begin()

    begin()
    assert kills(lambda: writing.put_folder(target, fill), look) >= 10
    assert {True, False} == {*seen}, "killed before the exchange and after it"


def test_what_killed_processes_left_goes_and_what_others_write_stays(tmp_path: Path) -> None:
    file = tmp_path / "x"
    left = [tmp_path / f".x.abcdefg{n}.tmp" for n in range(3)]
    for each in left[:2]:
        each.write_text("", encoding="utf-8")
        os.utime(each, (0, 0))
    left[2].mkdir()
    os.utime(left[2], (0, 0))
    with locking.held(left[0]) as held:
        assert held
        writing.write(file, NEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == [left[0].name, "x"]


def test_a_mode_stays_and_a_new_file_has_the_usual_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text(OLD, encoding="utf-8")
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        writing.write(old, NEW, replace=True)
        writing.write(new, NEW)
        writing.put_folder(tmp_path / "folder", fill)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(p.stat().st_mode) for p in (old, new, tmp_path / "folder")] == [0o640, 0o640, 0o750]


def test_a_temporary_file_that_somebody_laid_in_the_way_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / f".x.{os.getpid()}.tmp").symlink_to(tmp_path / "victim")
    writing.write(tmp_path / "x", NEW)
    assert not (tmp_path / "victim").exists()


def test_a_process_that_is_asked_to_end_removes_what_is_half_written(tmp_path: Path) -> None:
    code = (
        "import sys, time; from planner.base import writing; from planner.commands import command_line\n"
        "fill = lambda made: ((made / 'a').write_text('x'), print('begun', flush=True), time.sleep(60))\n"
        "command_line._run = lambda argv: writing.put_folder(__import__('pathlib').Path(sys.argv[1]), fill)\n"
        "command_line.main([])"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "out")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.terminate()
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not [*tmp_path.iterdir()]


COMMANDS = [
    "plan llama3-8b --cluster dgx-h100:1 --top 1",
    "estimate llama3-8b --cluster dgx-h100:1 tp=1",
    "design nowhere.toml",
    "procure nowhere.toml",
    "comm choose nowhere.json",
    "validate nowhere.csv",
    "import nowhere --from megatron --cluster dgx-h100:1",
]


@sweep("command", COMMANDS, every=3)
def test_a_file_that_is_there_is_asked_about_first(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").write_text(OLD, encoding="utf-8")
    answer = ask(capsys, f"{command} -o out")
    assert (answer.code, "out: exists already; --force replaces it" in answer.err) == (2, True)
    assert Path("out").read_text(encoding="utf-8") == OLD
    forced = ask(capsys, f"{command} -o out --force")
    assert "exists already" not in forced.err
    assert (Path("out").read_text(encoding="utf-8") != OLD) == ("nowhere" not in command)


# ---- locks -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["kernel", "link"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "link":
        monkeypatch.setattr(locking, "_locked", lambda number, wait: False)
    return str(request.param)


def test_one_process_at_a_time(kind: str, tmp_path: Path) -> None:
    """Each adds one to a number in a file, which is lost where two read it at once."""
    file = tmp_path / "number"
    file.write_text("0", encoding="utf-8")

    def add() -> None:
        for _ in range(50):
            with locking.Lock(file):
                file.write_text(str(int(file.read_text(encoding="utf-8")) + 1), encoding="utf-8")

    children = []
    for _ in range(4):
        if child := os.fork():
            children.append(child)
        else:
            try:
                add()
                os._exit(0)
            finally:
                os._exit(1)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert file.read_text(encoding="utf-8") == "200"
    assert {path.name for path in tmp_path.iterdir()} == {"number", *({"number.lock"} if kind == "link" else ())}


def test_a_killed_process_holds_nothing(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, told = os.pipe()
    if not (child := os.fork()):
        try:
            locking.Lock(tmp_path / "x").acquire()
            os.write(told, b"x")
            time.sleep(60)
        finally:
            os._exit(1)
    os.read(ready, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    monkeypatch.setattr(locking.time, "sleep", lambda s: pytest.fail("waited"))
    with locking.Lock(tmp_path / "x"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == ({"x.lock"} if kind == "link" else set())


def test_who_is_gone_is_told_by_boot_namespace_and_start() -> None:
    here = locking.this_process()
    machine, pid, start = here.rsplit(":", 2)
    assert not locking.gone(here)
    assert locking.gone(f"{machine}:{pid}:{int(start or 0) + 1}") == bool(start), "another process has the number now"
    strangers = [f"elsewhere:{pid}:{start}", f"{socket.gethostname()}:999999", "", "nonsense", f"{machine}:x:1"]
    assert not any(map(locking.gone, strangers))


def test_a_lock_that_may_not_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        locking.Lock(tmp_path / "nowhere" / "x").acquire()
    with pytest.raises(WrongQuestion, match="cannot be written"):
        writing.write(tmp_path / "nowhere" / "x", "")
