"""Processes beside this one: on this machine, or a Dask cluster's. Both are executors of ``concurrent.futures``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from planner.base.errors import WrongQuestion

Task = TypeVar("Task")
Found = TypeVar("Found")
AHEAD = 2
"""Tasks for each worker that are handed out before their results are taken: none waits for this process."""
MOST_LOST = 3
"""Times in a row that workers may die before anything is done: then it is the work that kills them."""
CONNECT_S = 10
"""Seconds to wait for a scheduler."""


def spread(
    work: Callable[[Task], Found], tasks: Sequence[Task], workers: int, engine: str | None = None
) -> Iterator[tuple[int, Found]]:
    """Each task's place with what `work` made of it, as they come; what a worker that died had begun is begun again.

    Arguments:
        work: A function of a module, which other processes import.
        tasks: What it is given, one at a time.
        workers: Processes of this machine; of a cluster, those that it has.
        engine: ``dask://HOST:PORT``, a scheduler; None: this machine.

    Raises:
        WrongQuestion: no such engine, or none that answers.
        RuntimeError: workers die whatever they are given.
    """
    left, lost = dict(enumerate(tasks)), 0
    while left:
        with _executor(workers, engine) as (pool, width):
            try:
                for place, found in _as_they_come(pool, work, dict(left), AHEAD * width):
                    del left[place]
                    lost = 0
                    yield place, found
            except CancelledError:
                raise WrongQuestion(f"--engine {engine}: its scheduler is gone; what was kept is continued") from None
            except BrokenExecutor:
                lost += 1
                if lost > MOST_LOST:
                    raise RuntimeError(f"workers died {lost} times in a row before anything was done") from None


def _as_they_come(
    pool: Executor, work: Callable[[Task], Found], tasks: dict[int, Task], ahead: int
) -> Iterator[tuple[int, Found]]:
    waiting = list(tasks)[::-1]
    running: dict[Future[Found], int] = {}
    try:
        while waiting or running:
            with without_main():  # the first tasks begin the processes
                while waiting and len(running) < ahead:
                    place = waiting.pop()
                    running[pool.submit(work, tasks[place])] = place
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
    finally:
        for future in running:
            future.cancel()


@contextmanager
def _executor(workers: int, engine: str | None) -> Iterator[tuple[Executor, int]]:
    """An executor, and how many tasks it does at a time."""
    if engine is not None:
        with _dask(engine) as found:
            yield found
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Fresh processes: a fork of one that has threads (a progress bar, a solver) may hang.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin) as pool:
        try:
            yield pool, workers
        finally:
            pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """In a new process: Ctrl-C is left to the parent, and nothing goes on without it."""
    import multiprocessing
    import os
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


@contextmanager
def _dask(engine: str) -> Iterator[tuple[Executor, int]]:
    """The executor of a Dask cluster, whose workers have this version of the program."""
    from planner.base.version import __version__

    scheme, mark, address = engine.partition("://")
    host, _, port = address.rpartition(":")
    if scheme != "dask" or not mark or not host or "@" in host or not (port.isdecimal() and int(port) < 65536):
        raise WrongQuestion(f"--engine {engine}: write dask://HOST:PORT, a scheduler's address (dask scheduler)")
    try:
        from distributed import Client
    except ImportError:
        raise WrongQuestion(f"--engine {engine}: Dask is missing; pip install 'clusterwright[dask]'") from None
    try:
        client = Client(f"tcp://{address}", timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WrongQuestion(f"--engine {engine}: no scheduler answers ({reason})") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
            theirs: dict[str, Any] = client.run(version)
        except TimeoutError:
            raise WrongQuestion(f"--engine {engine}: it has no workers; dask worker {address}") from None
        except Exception as error:  # what a worker raised: it comes as it was raised there
            raise WrongQuestion(f"--engine {engine}: its workers cannot run clusterwright ({error})") from None
        others = {found for found in theirs.values() if found != __version__}
        if others:
            raise WrongQuestion(
                f"--engine {engine}: its workers have version {', '.join(others)}, here is {__version__}"
            )
        yield client.get_executor(pure=False), max(1, sum(client.nthreads().values()))


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
