"""Measures collectives here and now, with real back ends: a job of processes for each number of ranks.

PyTorch and mpi4py are needed in those processes only; this one starts them and writes down what they say.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from planner.base.errors import WrongQuestion, meant
from planner.base.progress import Advance, Progress
from planner.comm.tables.measured_times import CollectiveMethod, TableJournal, TableRow, TimesTable

BACKENDS = ("gloo", "mpi", "nccl")
MPI_NAMES = ("mpich", "openmpi", "mpi")
"""What MPI is called in a table: by the library that mpi4py found."""
MOST_RANKS = 256
GIVE_UP = 600.0
"""Seconds that a job may take to end once its output has."""


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """What to measure."""

    backends: tuple[str, ...]
    ops: tuple[str, ...]
    sizes: tuple[int, ...]
    """Bytes."""
    ranks: tuple[int, ...]
    rounds: int
    seed: int = 0
    mpiexec: str | None = None

    @property
    def cells(self) -> int:
        """How many cells all rounds have together: back ends x operations x sizes x rounds."""
        return self.rounds * len(self.ranks) * len(self.sizes) * len(self.ops) * len(self.backends)


def measure(asked: MeasureOptions, path: Path, progress: Progress) -> TimesTable:
    """Measures what the file does not hold yet, and adds it row by row.

    Raises:
        WrongQuestion: a back end that cannot be had here, a job that failed, or a file that cannot be written.
    """
    _there(asked)
    journal = TableJournal(path)
    with progress("measuring collectives", asked.cells) as advance:
        for ranks in asked.ranks:
            _job(asked, ranks, journal, advance)
    return TimesTable(tuple(journal.rows))


def _there(asked: MeasureOptions) -> None:
    """Says what is missing, and what it would take to have it."""
    for name in asked.backends:
        if name not in BACKENDS:
            hint = meant(name, BACKENDS, f"known are {', '.join(BACKENDS)}")
            raise WrongQuestion(f"--backends {name}: {hint}")
    if max(asked.ranks) > MOST_RANKS or min(asked.ranks) < 2:
        raise WrongQuestion(f"--ranks: from 2 to {MOST_RANKS}, all on this machine")
    if importlib.util.find_spec("torch") is None:
        raise WrongQuestion(
            "measuring needs PyTorch, which is not installed here: pip install 'clusterwright[runtime]' (some 200 MB "
            "of CPU build to 3 GB with CUDA; only the ranks that measure import it, in about 3 s). A table made "
            "elsewhere needs nothing: clusterwright comm import"
        )
    if "mpi" in asked.backends and importlib.util.find_spec("mpi4py") is None:
        raise WrongQuestion(
            "--backends mpi needs mpi4py and an MPI library: pip install 'clusterwright[mpi]' (40 MB; MPICH, or your "
            "site's own library through MPI4PY_LIBMPI); or measure without it: --backends gloo"
        )
    if "nccl" in asked.backends and not Path("/dev/nvidia0").exists():
        raise WrongQuestion("--backends nccl: no NVIDIA GPU on this machine; measure with --backends gloo,mpi")


def _job(asked: MeasureOptions, ranks: int, journal: TableJournal, advance: Advance) -> None:
    mine = [row for row in journal.rows if row.ranks == ranks]
    done = [(row.candidate.backend, row.op, row.bytes, row.round) for row in mine]
    # Which library MPI is, only the ranks know: a job of what is whole for one library may still lack another's.
    whole = set(done)
    wanted = [(op, size, n) for op in asked.ops for size in asked.sizes for n in range(asked.rounds)]
    if all(
        any((name, *cell) in whole for name in (MPI_NAMES if backend == "mpi" else (backend,)))
        for backend in asked.backends
        for cell in wanted
    ) and (asked.mpiexec is None or "mpi" not in asked.backends):
        advance(len(wanted) * len(asked.backends), "measured before")
        return
    job = {
        "backends": list(asked.backends),
        "ops": list(asked.ops),
        "sizes": list(asked.sizes),
        "rounds": list(range(asked.rounds)),
        "done": done,
        "seed": asked.seed,
    }
    today = datetime.date.today().isoformat()
    source = "comm tune"
    count = 0
    with _running(asked, ranks, job) as lines:
        for line in lines:
            parsed = _parsed_row(line)
            if parsed is None:
                continue
            count += 1
            who = CollectiveMethod(parsed["backend"])
            seconds = float(f"{parsed['seconds']:.6g}")  # as the table gives it back
            row = TableRow(who, parsed["op"], ranks, parsed["bytes"], seconds, parsed["round"], 1, source, today)
            journal.add([row])
            advance(1, f"{ranks} ranks, {row.op}")
    advance(len(wanted) * len(asked.backends) - count, "")


def _parsed_row(line: str) -> dict[str, Any] | None:
    """A line of the job as a row's cells; None if it is something else that a library printed."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) and "seconds" in row else None


@contextmanager
def _running(asked: MeasureOptions, ranks: int, job: dict[str, Any]) -> Iterator[IO[str]]:
    """The output of a job of so many ranks; it is ended whatever happens."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "errors").open("w+", encoding="utf-8") as errors:
        description = Path(folder) / "job.json"
        description.write_text(json.dumps(job), encoding="utf-8")
        running = _started(asked, ranks, description, errors)
        try:
            assert running[0].stdout is not None
            yield running[0].stdout
            codes = [process.wait(GIVE_UP) for process in running]
        finally:
            for process in running:
                if process.poll() is None:
                    process.terminate()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()
        if any(codes):
            errors.seek(0)
            lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
            wrong = [line for line in lines if "rror" in line or "wrong result" in line]
            raise WrongQuestion(
                f"the job of {ranks} ranks failed: {(wrong or lines or ['it printed nothing'])[-1][:300]}"
            )


def _started(asked: MeasureOptions, ranks: int, job: Path, errors: IO[str]) -> list[subprocess.Popen[str]]:
    """Its processes, the first of which tells."""
    root = str(Path(__file__).resolve().parent.parent.parent)
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "planner.comm.tables.rank", str(job)]
    if "mpi" in asked.backends:
        launcher = mpi_launcher(asked.mpiexec)
        return [_process([*launcher, "-n", str(ranks), *words], environment, subprocess.PIPE, errors)]
    meeting = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    return [
        _process(
            words,
            {**environment, **meeting, "RANK": str(rank)},
            subprocess.DEVNULL if rank else subprocess.PIPE,
            errors,
        )
        for rank in range(ranks)
    ]


def _process(words: list[str], environment: dict[str, str], out: int, errors: IO[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(words, env=environment, stdout=out, stderr=errors, text=True, stdin=subprocess.DEVNULL)


def mpi_launcher(named: str | None = None) -> list[str]:
    """The launcher of the MPI library: named, beside this Python, or on the path; ready for more ranks than cores.

    Raises:
        WrongQuestion: there is none.
    """
    bundled = Path(sys.executable).parent / "mpiexec"
    for candidate in (named, str(bundled) if bundled.exists() else None, "mpiexec"):
        if candidate and (path := shutil.which(candidate)):
            return [path, "--oversubscribe"] if _is_open_mpi(path) else [path]
    raise WrongQuestion(
        f"no {named or 'mpiexec'} to start an MPI job with: pip install 'clusterwright[mpi]', or --mpiexec FILE"
    )


def _is_open_mpi(launcher: str) -> bool:
    version = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False)
    return any(name in version.stdout + version.stderr for name in ("Open MPI", "OpenRTE", "PRTE", "prte"))


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def powers(low: float, high: float, power: int = 4) -> Sequence[int]:
    """Sizes in bytes from `low` to at most `high`, each `power` times the one before."""
    sizes = []
    size = int(low)
    while size <= high:
        sizes.append(size)
        size *= power
    return sizes
