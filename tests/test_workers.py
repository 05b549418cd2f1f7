"""Points of a study and fits that hold runs out, by several processes or a cluster's: the same bytes as by one, whoever
dies on the way.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs import labs
from planner import catalog
from planner.base import processes, resources
from planner.base.errors import WrongQuestion
from planner.base.processes import Workers
from planner.calibration import run
from planner.calibration.fit import calibrate
from planner.calibration.fit.calibrate import Calibration
from planner.calibration.fit.counted_runs import lab
from planner.calibration.fit.frame import Frame
from planner.calibration.runs import reading
from planner.commands.command_line import main
from planner.figures.efficiency import Efficiencies
from planner.planning import document
from planner.procurement import run as procurement
from planner.procurement.program.instance import Settings
from planner.procurement.question import reading as portfolio
from planner.procurement.throughput import searches
from planner.study import run as designing
from planner.study.program.trial_storage import Ledger
from tests import procuring_lab
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_processes_that_would_have_nothing_to_do_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    spread = processes.spread

    def counted(work: Any, shared: Any, tasks: Any, workers: Workers) -> Any:
        begun.append(workers.processes)
        return spread(work, shared, tasks)

    monkeypatch.setattr(processes, "spread", counted)
    alone = answered()
    assert answered(workers=3) == alone and begun == [3]
    monkeypatch.setattr(designing, "WORTH_S", 2.0)
    assert answered(workers=3) == alone and begun == [3]


def die(shared: None, task: int) -> int:
    os._exit(task)


def fail(shared: None, task: int) -> int:
    raise WrongQuestion(f"task {task}")


def told(shared: list[str], task: str) -> tuple[int, int, str | None]:
    """The process, how many of its tasks had what is shared by then, and what its environment says."""
    shared.append(task)
    return os.getpid(), len(shared), os.environ.get("TOLD")


@pytest.mark.slow
def test_work_that_kills_every_worker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MOST_LOST", 0)
    with pytest.raises(RuntimeError, match="died 1 times in a row"):
        list(processes.spread(die, None, [3, 4], Workers(2)))


@pytest.mark.slow
def test_what_a_worker_says_is_said_here() -> None:
    with pytest.raises(WrongQuestion, match="task 7"):
        list(processes.spread(fail, None, [7, 7], Workers(2)))


def test_one_process_is_this_one() -> None:
    assert [found[0] for _, found in processes.spread(told, [], ["a", "b"])] == [os.getpid()] * 2
    assert [found[0] for _, found in processes.spread(told, [], ["a"], Workers(4))] == [os.getpid()]


@pytest.mark.slow
def test_a_process_is_given_once_what_all_tasks_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the environment of now, whatever that was when the first processes were begun."""
    for now in ("before", "after"):
        monkeypatch.setenv("TOLD", now)
        found = [each for _, each in processes.spread(told, [], "abcdef", Workers(2))]
        pids = [pid for pid, *_ in found]
        assert os.getpid() not in pids and {said for *_, said in found} == {now}
        assert sorted(n for _, n, _ in found) == sorted(n + 1 for pid in {*pids} for n in range(pids.count(pid)))


def test_workers_with_another_catalog_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = study(TWO)
    given = designing.StudyAsked("a", known(), asked)
    assert set(designing.evaluated(given, [0])) == {0}
    monkeypatch.setattr(type(known()), "versions", lambda self: {"elsewhere": "0123"})
    with pytest.raises(WrongQuestion, match="another catalog"):
        designing.evaluated(given._replace(key="b"), [0])


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


@pytest.mark.parametrize(
    ("engine", "is_certified", "protocol"),
    [
        ("dask://127.0.0.1:8786", False, "tcp"),
        ("dask://[::1]:8786", False, "tcp"),
        ("dask://localhost:8786", True, "tls"),
        ("dask://10.0.0.1:8786", True, "tls"),
        ("dask+tcp://10.0.0.1:8786", False, "tcp"),
        ("dask+tcp://10.0.0.1:8786", True, "tcp"),
    ],
)
def test_a_scheduler_elsewhere_is_spoken_to_over_tls(engine: str, is_certified: bool, protocol: str) -> None:
    assert processes._protocol(engine, is_certified) == protocol


@pytest.mark.parametrize("engine", ["dask://10.0.0.1:8786", "dask://127.0.0.1.evil.example:8786"])
def test_a_scheduler_elsewhere_is_not_spoken_to_in_the_open(engine: str) -> None:
    with pytest.raises(WrongQuestion, match=r"over TLS, and no certificates are named .*dask\+tcp://"):
        processes._protocol(engine, is_certified=False)


def test_without_dask_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(WrongQuestion, match=r"pip install 'clusterwright\[dask\]'"):
        list(processes.spread(fail, None, [1], Workers(engine="dask://127.0.0.1:1")))


# ---- fits ------------------------------------------------------------------------------------------------------------

CNN = ("cnn", "nv-deeplearningexamples")
KEPT = {
    ("MosaicML", "dense", ""): 5,
    ("NVIDIA", "dense", ""): 5,
    ("NVIDIA", *CNN): 3,
    ("Dell", "cnn", "mlperf-v3.0"): 9,
}
"""Runs of a lab, a family and, where it is named, a source: as few as can be held out."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with resources.runs().open(encoding="utf-8", newline="") as whole:
        rows = list(csv.DictReader(whole))
    file = tmp_path_factory.mktemp("runs") / "runs.csv"
    with file.open("w", encoding="utf-8", newline="") as cut:
        writer = csv.DictWriter(cut, rows[0])
        writer.writeheader()
        for (lab_, family, source), most in KEPT.items():
            of = [row for row in rows if (row["lab"], row["family"]) == (lab_, family) and source in row["source"]]
            writer.writerows(of[:most])
    return file


@pytest.fixture(scope="module")
def fitted(runs: Path) -> Calibration:
    known = catalog.load()
    return calibrate.calibrate(Frame(known, reading.read(runs, known)), Efficiencies.of(known))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many processes were begun each time."""
    whole, found = processes._executor, []

    @contextmanager
    def counted(work: Any, shared: object, workers: int, engine: str | None) -> Iterator[Any]:
        found.append(workers)
        with whole(work, shared, workers, engine) as given:
            yield given

    monkeypatch.setattr(processes, "_executor", counted)
    return found


def written(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.slow
def test_several_processes_write_the_bytes_of_one(runs: Path, begun: list[int], tmp_path: Path) -> None:
    for folder, workers in (("one", "1"), ("two", "2")):
        assert main(["calibrate", str(runs), "-o", str(tmp_path / folder), "--workers", workers, "--json"]) == 0
    assert begun == [2, 2], "transformers, and the other families"
    assert written(tmp_path / "one") == written(tmp_path / "two")
    assert len(written(tmp_path / "one")) == 4, "of accelerators, of runtimes, the intervals, and the nearest runs"


def names_of(found: Calibration) -> list[str]:
    return [lab(found.frame.runs[i]) for i in found.rows]


@pytest.mark.slow
def test_labs_left_out_by_several_processes_are_predicted_alike(fitted: Calibration, begun: list[int]) -> None:
    alone, together = (labs.held_out(fitted, lab, Workers(n)) for n in (1, 2))
    assert begun == [2]
    for one, two in zip(alone, together, strict=True):
        assert np.array_equal(one, two, equal_nan=True)
    assert np.isfinite(alone[0]).all() and alone[2].all()


@has_dask
def test_a_cluster_gives_the_times_of_one_process(fitted: Calibration, cluster: Started) -> None:
    names = names_of(fitted)
    engine = Workers(engine=f"dask://{cluster.address}")
    assert np.array_equal(
        calibrate.cross_validated(fitted, names), calibrate.cross_validated(fitted, names, workers=engine)
    )


@has_dask
def test_plans_of_a_portfolio_are_searched_on_a_cluster(
    home: Path, cluster: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = portfolio.read(procuring_lab.lab(home), known())
    alone = procurement.pose(known(), asked).whole.columns
    monkeypatch.setattr(searches, "searched", None)  # nothing is searched here
    engine = Settings(engine=f"dask://{cluster.address}")
    assert procurement.pose(known(), asked, settings=engine).whole.columns == alone


@pytest.mark.parametrize("more", [{"site": True}, {"cross_validate": False}, {"file": None, "measure": True}])
def test_workers_that_would_have_nothing_to_do_are_refused(runs: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"file": runs, "workers": Workers(2)} | more
    file = asked.pop("file")
    with pytest.raises(WrongQuestion, match="only a FILE of runs has"):
        run.calibrate(file, tmp_path / "own", run.FitOptions(**asked))
    assert not (tmp_path / "own").exists()
