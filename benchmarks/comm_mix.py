"""Does mixing pay? Chosen on some rounds, run on others: the mixture against the best single back end.

    python -m benchmarks.comm_mix --json --until 0.01 --within 900 --keep mix/     # where make test-real installed

Every collective of a sweep (six operations, sizes from 1 KiB) is measured by Gloo and by MPI in turns; the selector of
``comm choose`` picks by these rounds, which also name the best single back end. Both then run on what was not seen:

- A *launch* is a job of its own: new processes, new communicators and buffers, made in an order drawn anew.
- In a launch the sweep is gone through ``--pairs`` times. Each call is made once by the best single back end and once
  by the router with the rules, one right after the other, who comes first drawn anew. It counts what its slowest rank
  took. The other back end makes every call in each fourth pass.
- A launch's total of either is the sum over the sweep's calls of the mean without the lowest and highest fifth of
  passes; its ratio is the router's total over the best single back end's.
- **The figure**: the mean of the launches' log ratios without the lowest and highest fifth, with Student's 95 %
  interval on winsorised values, the launch being the unit. ``within_1.03`` asks whether its upper end is at most 1.03.

This was set before anything was measured by it. Launches go on until half of the interval's width is below ``--until``
(at least 8), or ``--within`` seconds of launches are over. Every launch is written to ``--keep`` as it ends: the same
command goes on from there, and an interrupted one prints what it has. Where the selector falls back, both sides run the
same code, and the ratio shows what this measurement cannot tell apart.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.paired import LEAST, interval, narrow
from planner.base.errors import ClusterwrightError
from planner.calibration.measuring.timing import trimmed_mean
from planner.comm import back_end_choice
from planner.comm.back_end_choice import ChooseOptions
from planner.comm.tables import measuring, rank
from planner.comm.tables.measured_times import TimesTable
from planner.comm.tables.timing import times
from planner.commands.screen import render
from planner.cost.calls import OPERATIONS, Call

ROOT = Path(__file__).resolve().parent.parent
MIXED = "mixed"
BOUND = 1.03
OTHERS = 4
"""Passes of which one has the back end that is not compared."""
MOST = 400
"""Launches of a number of processes."""


def cells(sizes: Sequence[int]) -> list[tuple[str, int]]:
    """The sweep: every operation at every size."""
    return [(op, size) for size in sizes for op in OPERATIONS]


def calls(table: TimesTable, ranks: int, sizes: Sequence[int]) -> list[Call]:
    """The sweep as a step's calls: one each, everything exposed, as long as the best single back end takes."""
    found, names = [], table.candidates
    alone = {who: sum(times(table, op, ranks, size)[who].seconds for op, size in cells(sizes)) for who in names}
    base = min(names, key=lambda who: alone[who])
    for op, size in cells(sizes):
        seconds = times(table, op, ranks, size)[base].seconds
        found.append(Call(op, "dp", "dp", ranks, ranks, float(ranks), "domain", float(size), 1.0, seconds, seconds))
    return found


# ---- a launch --------------------------------------------------------------------------------------------------------


def on_a_rank(text: str) -> None:
    """What each process of a launch does: the whole of it, and on rank 0 a line of totals."""
    import torch
    import torch.distributed as dist

    from planner.comm.routing import Router, RoutingRule
    from planner.comm.routing.launch import rendezvous

    job = json.loads(text)
    torch.set_num_threads(1)
    rendezvous(with_mpi=True)
    drawn = random.Random(f"launch {job['launch']}")  # alike on all ranks
    backends, base = ["gloo", job["mpi"]], job["base"]
    routers = {}
    for name in drawn.sample([*backends, MIXED], 3):
        rules = [RoutingRule(**rule) for rule in job["rules"]]
        routers[name] = Router(rules, backends) if name == MIXED else Router([], [name])
    other = next(name for name in backends if name != base)
    sweep = cells(job["sizes"])
    device = torch.device("cpu")
    made = {}
    for name in drawn.sample([*routers], 3):
        made[name] = [rank.call(torch, routers[name], op, size, device) for op, size in sweep]
    taken: dict[str, list[list[float]]] = {name: [[] for _ in sweep] for name in routers}
    for number in range(-1, job["pairs"]):  # the first warms up
        for index in range(len(sweep)):
            pair = drawn.sample([base, MIXED], 2)
            for name in pair if number % OTHERS and number >= 0 else [*pair, other]:
                seconds = made[name][index]()
                if number >= 0:
                    taken[name][index].append(seconds)
    totals = {}
    for name, every in taken.items():
        slowest = torch.tensor(every, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        totals[name] = sum(trimmed_mean(each) for each in slowest.tolist())
    if dist.get_rank() == 0:
        print(json.dumps(totals), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def launched(ranks: int, job: Mapping[str, Any]) -> dict[str, float]:
    """Totals of the sweep by who ran it, from one launch.

    Raises:
        SystemExit: the job failed; with the last that it said.
    """
    words = [*measuring.mpi_launcher(), "-n", str(ranks), sys.executable, "-m", "benchmarks.comm_mix", "--rank"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, json.dumps(job)], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"a launch of {ranks} processes failed: {done.stderr[-2000:]}")
    totals: dict[str, float] = json.loads(lines[-1])
    return totals


# ---- launches --------------------------------------------------------------------------------------------------------


class Launches:
    """What launches found, a line of JSON each; those of other rules, another sweep or router are refused."""

    def __init__(self, path: Path, job: Mapping[str, Any]) -> None:
        self._path = path
        code = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "planner" / "runtime").rglob("*.py"))]
        self._of = hashlib.sha256(json.dumps([job, code], sort_keys=True).encode()).hexdigest()[:16]
        self.totals: list[dict[str, float]] = []
        whole = path.read_text(encoding="utf-8") if path.exists() else ""
        if not whole.endswith("\n"):  # cut off while it was written
            whole = whole[: whole.rfind("\n") + 1]
            path.write_text(whole, encoding="utf-8")
        for line in whole.splitlines():
            found = json.loads(line)
            if found["of"] != self._of:
                raise SystemExit(f"{path}: launches of other rules, sizes, pairs or router; give another --keep")
            self.totals.append(found["seconds"])

    def add(self, totals: dict[str, float]) -> None:
        """One more."""
        self.totals.append(totals)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"of": self._of, "load": os.getloadavg()[0], "seconds": totals}) + "\n")

    def ratios(self, base: str) -> list[float]:
        """Router over a back end, by launch."""
        return [each[MIXED] / each[base] for each in self.totals]


def gone_on(launches: Launches, ranks: int, job: Mapping[str, Any], asked: argparse.Namespace) -> Iterator[str]:
    """Launches until the interval is narrow or the time is over; after each, how it stands."""
    end = time.monotonic() + asked.within
    while len(launches.totals) < MOST and not narrow(launches.ratios(job["base"]), asked.until):
        if time.monotonic() > end and len(launches.totals) >= 2:
            return
        launches.add(launched(ranks, {**job, "launch": len(launches.totals)}))
        found = interval(launches.ratios(job["base"]))
        yield f"{len(launches.totals)} launches" + (f", {found.centre:.3f} +- {found.half:.1%}" if found else "")


def compared(
    table: TimesTable, ranks: int, sizes: Sequence[int], folder: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    """Chosen on the table's rounds, run in launches."""
    mpi = next(who.backend for who in table.candidates if who.backend != "gloo")
    found = back_end_choice.choose(calls(table, ranks, sizes), table, ChooseOptions(switch_s=0.0), "table")
    rules = [
        {"op": r.op, "ranks": r.ranks, "least": r.bytes_min, "most": r.bytes_max, "backend": r.backend}
        for r in found.rules
    ]
    job = {"rules": rules, "sizes": list(sizes), "pairs": asked.pairs, "mpi": mpi, "base": found.base}
    launches = Launches(folder / f"launches-{ranks}.jsonl", job)
    interrupted = False
    with render.progress(f"router against {found.base}, {ranks} processes", None) as advance:
        try:
            for note in gone_on(launches, ranks, job, asked):
                advance(1, note)
        except KeyboardInterrupt:
            interrupted = True
    moved = sum(call.choice != found.base for call in found.calls)
    return {
        "ranks": ranks,
        "best_single": found.base,
        "fell_back": found.fell_back,
        "calls": len(found.calls),
        "calls_moved": moved,
        "held_back_95": found.held_back,
        **told(launches, found.base, mpi, asked.until),
        "interrupted": interrupted,
    }


def told(launches: Launches, base: str, mpi: str, until: float) -> dict[str, Any]:
    """The figure, and what it rests on."""
    ratios = launches.ratios(base)
    found = interval(ratios)
    other = next(name for name in ("gloo", mpi) if name != base)
    against = interval(launches.ratios(other))
    return {
        "launches": len(ratios),
        "seconds": {name: trimmed_mean([each[name] for each in launches.totals]) for name in (base, other, MIXED)}
        if ratios
        else {},
        "ratio": asdict(found) if found else None,
        "half_width": found.half if found else None,
        "as_narrow_as_asked": narrow(ratios, until),
        "within_1.03": found.high <= BOUND if found and len(ratios) >= LEAST else None,
        "ratio_to_the_other": asdict(against) if against else None,
        "ratios": ratios,
    }


def main() -> None:
    """Measure, choose, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--ranks", default="2,4", help="processes")
    parser.add_argument("--rounds", type=int, default=8, help="rounds to choose on")
    parser.add_argument("--pairs", type=int, default=30, help="passes through the sweep in a launch")
    parser.add_argument("--until", type=float, default=0.01, help="half-width of the interval to go on till")
    parser.add_argument("--within", type=float, default=900.0, help="seconds of launches, for each number of processes")
    parser.add_argument("--largest", type=int, default=2**20, help="bytes of the largest call")
    parser.add_argument("--keep", type=Path, help="folder for the table and the launches")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank:
        on_a_rank(asked.rank)
        return
    if asked.pairs < 1 or asked.largest < 1024:
        raise SystemExit("comm_mix: --pairs from 1, --largest from 1024")
    try:
        print(json.dumps(answered(asked), indent=2))
    except ClusterwrightError as error:
        raise SystemExit(f"comm_mix: {error}") from None


def answered(asked: argparse.Namespace) -> dict[str, Any]:
    """All that was asked, for each number of processes.

    Raises:
        ClusterwrightError: what is needed is not here.
    """
    sizes, results = list(measuring.powers(1024, asked.largest)), []
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for ranks in map(int, asked.ranks.split(",")):
            wanted = measuring.MeasureOptions(
                backends=("gloo", "mpi"), ops=OPERATIONS, sizes=tuple(sizes), ranks=(ranks,), rounds=asked.rounds
            )
            table = measuring.measure(wanted, folder / f"table-{ranks}.csv", render.progress)
            results.append(compared(table, ranks, sizes, folder, asked))
            if results[-1]["interrupted"]:
                break
    return {"cores": os.cpu_count(), "load": os.getloadavg()[0], "sizes": sizes, "results": results}


if __name__ == "__main__":
    main()
