"""Points of a study by several processes: the same bytes as by one, whoever dies on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from planner import document
from planner.base import processes
from planner.base.errors import WrongQuestion
from planner.commands import main
from planner.study import run as designing
from planner.study.program.ledger import Ledger
from tests.designing import ROOT, TINY, TWO, known, study

has_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="needs the extra clusterwright[dask]")


def answered(**more: Any) -> str:
    """An answer's document without how long it took."""
    found = designing.design(known(), study(TWO), designing.How(way="enumerated", explained=False, **more))
    text = json.loads(document.as_json(found))
    text["meta"].clear()
    return json.dumps(text)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(designing, "CHUNK", 3)
    monkeypatch.setattr(designing, "WORTH_S", 1e-9)


def killing(monkeypatch: pytest.MonkeyPatch, kill: Any) -> None:
    """Calls `kill` once, when the first points have come."""
    whole, done = Ledger.add, threading.Event()

    def add(self: Ledger, outcomes: Any) -> None:
        whole(self, outcomes)
        if not done.is_set():
            done.set()
            kill()

    monkeypatch.setattr(Ledger, "add", add)


# ---- of this machine -------------------------------------------------------------------------------------------------


def test_workers_that_are_killed_lose_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import multiprocessing

    killed: list[int] = []

    def kill() -> None:
        victim = multiprocessing.active_children()[0].pid
        assert victim is not None
        killed.append(victim)
        os.kill(victim, signal.SIGKILL)

    alone = answered()
    killing(monkeypatch, kill)
    assert answered(workers=2, storage=str(tmp_path / "a.journal")) == alone
    assert killed, "nobody was killed, so nothing was tried"
    lines = (tmp_path / "a.journal").read_text().splitlines()[1:]
    assert sorted(json.loads(line)["number"] for line in lines) == [*range(36)], "each point once"


def test_processes_that_would_have_nothing_to_do_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    spread = processes.spread

    def counted(work: Any, tasks: Any, workers: int, engine: str | None) -> Any:
        begun.append(workers)
        return spread(work, tasks, 1, engine)

    monkeypatch.setattr(processes, "spread", counted)
    alone = answered()
    assert answered(workers=3) == alone and begun == [3]
    monkeypatch.setattr(designing, "WORTH_S", 2.0)
    assert answered(workers=3) == alone and begun == [3]


def die(task: int) -> int:
    os._exit(task)


def fail(task: int) -> int:
    raise WrongQuestion(f"task {task}")


def test_work_that_kills_every_worker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_LOST", 0)
    with pytest.raises(RuntimeError, match="died 1 times in a row"):
        list(processes.spread(die, [3, 4], 1))


def test_what_a_worker_says_is_said_here() -> None:
    with pytest.raises(WrongQuestion, match="task 7"):
        list(processes.spread(fail, [7], 1))


def test_workers_with_another_catalog_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = study(TWO)
    chunk = designing.Chunk("a", known(), asked, (0,))
    assert set(designing.evaluated(chunk)) == {0}
    monkeypatch.setattr(type(known()), "versions", lambda self: {"elsewhere": "0123"})
    with pytest.raises(WrongQuestion, match="another catalog"):
        designing.evaluated(chunk._replace(key="b"))


# ---- of a cluster ----------------------------------------------------------------------------------------------------


class Started:
    """A scheduler and its workers, in processes of their own on loopback."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.file, self.folder = folder / "scheduler.json", folder
        self.scheduler = self.begin("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show")
        for _ in range(300):
            if self.file.exists() and self.file.stat().st_size:
                break
            time.sleep(0.1)
        self.address = json.loads(self.file.read_text())["address"].removeprefix("tcp://")
        more = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1", "--memory-limit", "0")
        self.workers = [self.begin("worker", *more) for _ in range(workers)]

    def begin(self, what: str, *more: str) -> "subprocess.Popen[bytes]":
        line = [sys.executable, "-m", "dask", what, *more, "--scheduler-file", str(self.file)]
        around = os.environ | {"PYTHONPATH": str(ROOT), "DASK_LOCAL_DIRECTORY": str(self.folder)}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(line, cwd=ROOT, env=around, stdout=log, stderr=log)

    def end(self) -> None:
        for each in (*self.workers, self.scheduler):
            each.kill()
            each.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    found = Started(tmp_path_factory.mktemp("dask"), 4)
    yield found
    found.end()


@has_dask
def test_a_cluster_gives_the_bytes_of_one_process_though_a_worker_dies(
    cluster: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    alone = answered()
    killing(monkeypatch, cluster.workers[0].kill)
    journal = tmp_path / "a.journal"
    assert answered(engine=f"dask://{cluster.address}", storage=str(journal)) == alone
    assert cluster.workers[0].wait(60) == -signal.SIGKILL
    assert len(journal.read_text().splitlines()) == 1 + 36


@pytest.mark.parametrize("address", ["nobody:verysecret@127.0.0.1:1", ":8786", "127.0.0.1:65536", "127.0.0.1:²"])
def test_what_is_no_address_is_not_connected_to(
    address: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "study.toml").write_text(TINY)
    assert main(["design", str(tmp_path / "study.toml"), "--engine", f"dask://{address}"]) == 2
    err = capsys.readouterr().err
    assert "write dask://HOST:PORT" in err and "verysecret" not in err and "Traceback" not in err


@has_dask
def test_an_engine_that_cannot_be_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path, cluster: Started) -> None:
    (tmp_path / "study.toml").write_text(TINY)
    wrong = {
        "ray://a:1": "write dask://HOST:PORT",
        "dask://nowhere": "write dask://HOST:PORT",
        "dask://127.0.0.1:1": "no scheduler answers",
    }
    for engine, said in wrong.items():
        assert main(["design", str(tmp_path / "study.toml"), "--engine", engine]) == 2
        err = capsys.readouterr().err
        assert said in err and "Traceback" not in err
    line = ["design", str(tmp_path / "study.toml"), "--engine", f"dask://{cluster.address}", "--trials", "3"]
    assert main(line) == 2 and "--engine evaluates every point" in capsys.readouterr().err


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(WrongQuestion, match=r"pip install 'clusterwright\[dask\]'"):
        list(processes.spread(fail, [1], 1, "dask://127.0.0.1:1"))
