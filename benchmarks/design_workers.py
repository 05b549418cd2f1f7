"""What every point of a study costs, against their number and the workers that share them.

CPU seconds of all processes together, and seconds on the clock, which say little where other work shares the cores.
Efficiency is what one process takes over what all workers take: of CPU seconds, the most that they can gain each; on
the clock, what they gain. `--large` adds 10^5 and 10^6 points (half an hour), `--dask` asks two and four workers of a
Dask cluster on loopback instead (extra clusterwright[dask]), and four of which one is killed, `--write` keeps the
figures in benchmarks/data, from which docs/design-studies.md is made (`make docs`).

    python benchmarks/design_workers.py [--json] [--tiny] [--large] [--dask] [--write]
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from benchmarks.design_search import STUDIES, study
from planner import catalog as catalogs
from planner.study import run
from planner.study.question.study import Study

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks" / "data" / "design_workers.json"
VALUES = ((2, 2, 3, 3, 3), (4,) * 5, (6, 6, 6, 6, 8))
"""Values of the five figures: about 10^2, 10^3 and 10^4 points."""
LARGE = ((10,) * 5, (16,) * 5)
WORKERS = (1, 2, 4)
STUDY = STUDIES[3]
"""Of one model on four nodes, in dollars a token: its points are the cheapest, so that workers gain least."""


def _asked(values: Sequence[int]) -> Study:
    axes = {path: {**axis, "points": n} for (path, axis), n in zip(STUDY["axes"].items(), values, strict=True)}
    return study({**STUDY, "axes": axes}, tiny=False)


def measured(values: Sequence[int], workers: int) -> dict[str, Any]:
    """One enumeration."""
    asked = _asked(values)
    before, started = _cpu(), time.perf_counter()
    how = run.How(way="enumerated", workers=workers, explained=False)
    found = run.design(catalogs.load(), asked, how)
    forkserver._forkserver._stop()  # type: ignore[attr-defined] # what its processes took counts when it has ended
    return {
        "points": len(found.trials),
        "workers": workers,
        "cpu_s": round(_cpu() - before, 2),
        "wall_s": round(time.perf_counter() - started, 1),
    }


def on_dask(values: Sequence[int], workers: int, killed: bool) -> dict[str, Any]:
    """One enumeration by the workers of a Dask cluster, of which one may be killed when the first points are there; its
    nanny begins another. `best` is the objective that was found.
    """
    from distributed import LocalCluster

    before = _cpu()
    with LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None) as cluster:
        address = cluster.scheduler_address.partition("://")[2]
        pids = [nanny.pid for nanny in cluster.workers.values()][: int(killed)]
        begun = time.perf_counter()

        @contextmanager
        def told(what: str, total: float | None) -> Iterator[Callable[..., None]]:
            def advance(*_: object, **__: object) -> None:
                while pids:
                    os.kill(pids.pop(), signal.SIGKILL)

            yield advance

        how = run.How(way="enumerated", engine=f"dask://{address}", explained=False)
        found = run.design(catalogs.load(), _asked(values), how, told)
        wall_s = time.perf_counter() - begun
    return {
        "points": len(found.trials),
        "workers": workers,
        "killed": killed,
        "cpu_s": round(_cpu() - before, 2),
        "wall_s": round(wall_s, 1),
        "best": min(x for trial in found.trials for x in trial.objectives.values()),
    }


def _cpu() -> float:
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def compared(values: Sequence[int]) -> list[dict[str, Any]]:
    """One study by one process and by several."""
    alone, *more = (measured(values, workers) for workers in WORKERS)
    return [alone, *({**row, **_efficiency(alone, row)} for row in more)]


def _efficiency(alone: dict[str, Any], row: dict[str, Any]) -> dict[str, float]:
    return {
        "of_cpu": round(alone["cpu_s"] / row["cpu_s"], 2),
        "of_clock": round(alone["wall_s"] / row["wall_s"] / row["workers"], 2),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints what was found."""
    parser = measure.parser(__doc__)
    parser.add_argument("--large", action="store_true", help="10^5 and 10^6 points as well")
    parser.add_argument("--dask", action="store_true", help="workers of a Dask cluster, one of them killed")
    parser.add_argument("--write", action="store_true", help="keep the figures that docs/design-studies.md is made of")
    options = parser.parse_args(argv)
    sizes = [(2, 2, 2, 2, 2)] if options.tiny else [*VALUES, *(LARGE if options.large else ())]
    document: dict[str, Any] = {"rows": [], "machine": measure.machine() | {"load": round(os.getloadavg()[0], 1)}}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # processes read bytecode, as users' do, whatever the shell says
    subprocess.run([sys.executable, "-c", "import planner.study.run"], cwd=ROOT, check=True)
    measured((2, 2, 2, 2, 2), 1)  # imports what is imported late
    if options.dask:
        document |= json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
        document["dask_load"] = round(os.getloadavg()[0], 1)
        document["dask"] = []
    for values in sizes:
        if options.dask:
            document["dask"] += [on_dask(values, *asked) for asked in ((2, False), (4, False), (4, True))]
        else:
            document["rows"] += compared(values)
        if options.write:
            DATA.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.dask:
        measure.show(document, document["dask"], options.json)
        return
    rows = [{"of_cpu": "", "of_clock": "", **row} for row in document["rows"]]
    names = ("points", "workers", "cpu_s", "wall_s", "of_cpu", "of_clock")
    measure.show(document, [{name: row[name] for name in names} for row in rows], options.json)


if __name__ == "__main__":
    main()
