"""Processes beside this one: on this machine, or a Dask cluster's. Both are executors of ``concurrent.futures``."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from planner.base.errors import WrongQuestion

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from distributed import Client

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Found = TypeVar("Found")
Submit = Callable[[Any], "Future[Any]"]
"""Hands out a task."""
AHEAD = 2
"""Tasks for each worker that are handed out before their results are taken: none waits for this process."""
MOST_LOST = 3
"""Times in a row that workers may die before anything is done: then it is the work that kills them."""
PLAIN = "dask+tcp"
"""Scheme of an engine that is spoken to over plain TCP, wherever it is."""
SCHEMES = ("dask", PLAIN)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
CONNECT_S = 10
"""Seconds to wait for a scheduler."""


LARGEST = "1 GB"
"""Size of what all tasks share that Dask accepts silently: it warns of less, as its clients send most things with every
task, which we do not."""


@dataclass(frozen=True)
class Workers:
    """Who does the work."""

    processes: int = 1
    """Processes on this machine; 1: this one alone."""
    engine: str | None = None
    """``dask://HOST:PORT``, the scheduler of a cluster that does it instead."""


ALONE = Workers()


def spread(
    work: Callable[[Shared, Task], Found], shared: Shared, tasks: Sequence[Task], workers: Workers = ALONE
) -> Iterator[tuple[int, Found]]:
    """Each task's place with what `work` made of it, as they come; what a worker that died had begun is begun again.

    Arguments:
        work: A function of a module, which other processes import.
        shared: What it needs for every task: a process is given it once.
        tasks: What it is given, one at a time.
        workers: Who does it.

    Raises:
        WrongQuestion: no such engine, or none that answers.
        RuntimeError: workers die whatever they are given.
    """
    count, engine = workers.processes, workers.engine
    if engine is None and min(count, len(tasks)) <= 1:
        yield from ((place, work(shared, task)) for place, task in enumerate(tasks))
        return
    left = dict(enumerate(tasks))
    lost = 0
    while left:
        with _executor(work, shared, min(count, len(left)), engine) as (submit, width):
            try:
                for place, outcome in _as_they_come(submit, dict(left), AHEAD * width):
                    del left[place]
                    lost = 0
                    yield place, outcome
            except CancelledError:
                raise WrongQuestion(f"--engine {engine}: its scheduler is gone; what was kept is continued") from None
            except BrokenExecutor:
                lost += 1
                if lost > MOST_LOST:
                    raise RuntimeError(f"workers died {lost} times in a row before anything was done") from None


def _as_they_come(submit: Submit, tasks: dict[int, Any], ahead: int) -> Iterator[tuple[int, Any]]:
    waiting = list(tasks)[::-1]
    running: dict[Future[Any], int] = {}
    try:
        while waiting or running:
            with without_main():  # the first tasks begin the processes
                while waiting and len(running) < ahead:
                    place = waiting.pop()
                    running[submit(tasks[place])] = place
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
    finally:
        for future in running:
            future.cancel()


@contextmanager
def _executor(
    work: Callable[[Any, Any], Any], shared: object, workers: int, engine: str | None
) -> Iterator[tuple[Submit, int]]:
    """What hands out tasks, and how many are done at a time."""
    if engine is not None:
        with _dask(engine) as client:
            # What is shared is a task's result: when its worker dies, another makes it again.
            given = client.submit(_unchanged, shared, pure=False)
            pool = client.get_executor(pure=False)
            yield (lambda task: pool.submit(work, given, task)), max(1, sum(client.nthreads().values()))
        return
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(
        workers, _fresh(work.__module__), _begin, (dict(os.environ), pickle.dumps(shared))
    ) as executor:
        try:
            yield (lambda task: executor.submit(_given, work, task)), workers
        finally:
            executor.shutdown(cancel_futures=True)


def _fresh(module: str) -> BaseContext:
    """Processes that do not fork from this one, which may hang where it has threads (a progress bar, a solver).

    On Linux they fork from one that has imported the module and does nothing else, so that it is imported once for all
    of them; elsewhere the libraries of the system may have threads there, too.
    """
    import multiprocessing

    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([module])
    return server


PARENT_EVERY_S = 0.5


def end_with_parent(parent: int) -> None:
    """Ends this process soon after the one that began it is gone, however that ended and however early."""
    import threading
    import time

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_EVERY_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _begin(environment: dict[str, str], packed: bytes) -> None:
    """In a new process: Ctrl-C is left to the parent, and nothing goes on without it."""
    import multiprocessing
    import signal
    import threading
    from multiprocessing.connection import wait as ended

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            ended([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    os.environ.clear()  # what it is forked from has that of its own beginning
    os.environ.update(environment)
    _HELD["shared"] = pickle.loads(packed)


_HELD: dict[str, Any] = {}
"""In a worker of this machine: what all tasks share."""


def _given(work: Callable[[Any, Any], Any], task: object) -> object:
    """In a worker of this machine: the task with what all share."""
    return work(_HELD["shared"], task)


def _unchanged(shared: object) -> object:
    return shared


@contextmanager
def _dask(engine: str) -> Iterator[Client]:
    """A client of a Dask cluster, whose workers have this version of the program."""
    from planner.base.version import __version__

    scheme, mark, address = engine.partition("://")
    host, _, port = address.rpartition(":")
    if scheme not in SCHEMES or not mark or not host or "@" in host or not (port.isdecimal() and int(port) < 65536):
        raise WrongQuestion(f"--engine {engine}: write dask://HOST:PORT, a scheduler's address (dask scheduler)")
    try:
        import dask
        from distributed import Client
    except ImportError:
        raise WrongQuestion(f"--engine {engine}: Dask is missing; pip install 'clusterwright[dask]'") from None
    try:
        is_certified = bool(dask.config.get("distributed.comm.tls.ca-file", None))
        client = Client(f"{_protocol(engine, is_certified)}://{address}", timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WrongQuestion(f"--engine {engine}: no scheduler answers ({reason})") from None
    with client, dask.config.set({"distributed.admin.large-graph-warning-threshold": LARGEST}):
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
            theirs: dict[str, Any] = client.run(version)
        except TimeoutError:
            raise WrongQuestion(f"--engine {engine}: it has no workers; dask worker {address}") from None
        except Exception as error:  # what a worker raised: it comes as it was raised there
            raise WrongQuestion(f"--engine {engine}: its workers cannot run clusterwright ({error})") from None
        others = {version for version in theirs.values() if version != __version__}
        if others:
            raise WrongQuestion(
                f"--engine {engine}: its workers have version {', '.join(others)}, here is {__version__}"
            )
        yield client


def _protocol(engine: str, is_certified: bool) -> str:
    """What a scheduler is spoken to by: TLS, but for this machine's own where no certificate is at hand, and where that
    is asked for.
    """
    scheme, _, address = engine.partition("://")
    is_here = address.rpartition(":")[0] in LOOPBACK
    if scheme == PLAIN or (is_here and not is_certified):
        return "tcp"
    if is_certified:
        return "tls"
    raise WrongQuestion(
        f"--engine {engine}: another machine is spoken to over TLS, and no certificates are named "
        f"(DASK_DISTRIBUTED__COMM__TLS__CA_FILE, ...__CLIENT__CERT, ...__CLIENT__KEY); {PLAIN}://{address} goes "
        "without: whoever reaches that network can then run anything"
    )


def version() -> str:
    """The program's version, where it is called."""
    from planner.base.version import __version__

    return __version__


@contextmanager
def without_main() -> Iterator[None]:
    """Fresh processes that begin meanwhile do not run the caller's script again.

    ``multiprocessing`` imports the main module into each of them, as their work may be defined there; ours never is,
    and a script without ``if __name__ == "__main__":`` would do everything once more.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
