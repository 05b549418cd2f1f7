"""Trials on a real PostgreSQL server, begun on loopback for the test: `make test-real`."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.design import designing
from planner.errors import WrongQuestion
from tests.test_design import TWO, by_trials, searched

pytest.importorskip("psycopg2", reason="psycopg2 is installed by make test-real")
__all__ = ["searched"]


def program(name: str) -> str:
    beside = sorted(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), reverse=True)
    found = shutil.which(name) or next(iter(beside), None)
    if found is None:
        pytest.skip(f"no {name} here; install a PostgreSQL server (apt-get install postgresql)")
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a database of its own."""
    initdb, postgres = program("initdb"), program("postgres")
    folder = Path(tempfile.mkdtemp(prefix="clusterwright-"))  # pytest's own folders are closed to other users
    data, user = folder / "data", None
    if os.geteuid() == 0:  # the server refuses to run as root
        try:
            user = pwd.getpwnam("postgres").pw_name
        except KeyError:
            user = "nobody"
        shutil.chown(folder, user)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begin = [initdb, "-D", str(data), "-U", "tester", "-A", "trust", "--no-sync"]
    subprocess.run(begin, check=True, capture_output=True, user=user, cwd=folder)
    line = [postgres, "-D", str(data), "-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"]
    with Path(folder / "log").open("wb") as log:
        running = subprocess.Popen([*line, "-c", "fsync=off"], user=user, cwd=folder, stdout=log, stderr=log)
    try:
        for _ in range(200):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert running.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        time.sleep(1)
        yield f"postgresql://tester@127.0.0.1:{port}/postgres"
    finally:
        running.send_signal(signal.SIGINT)  # a fast shutdown: clients are not waited for
        running.wait()
        shutil.rmtree(folder)


def test_trials_on_a_server_are_those_in_memory(searched, server):
    straight = by_trials(TWO, 12)
    by_trials(TWO, 5, storage=server)
    with pytest.raises(WrongQuestion, match="--resume goes on"):
        by_trials(TWO, 12, storage=server)
    resumed = by_trials(TWO, 12, storage=server, resume=True)
    assert resumed.trials == straight.trials


def test_two_workers_share_a_server(searched, server):
    text = TWO.replace('name = "tiny"', 'name = "shared"')
    found = by_trials(text, 10, storage=server, workers=2)
    assert len(found.trials) == 10


def test_a_server_that_is_not_there_is_told_kindly(searched, server):
    with pytest.raises(WrongQuestion, match="--storage"):
        by_trials(TWO, 3, storage="postgresql://tester@127.0.0.1:1/none")
    assert designing.SMALL == 0
