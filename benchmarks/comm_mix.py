"""Does mixing back ends pay? Chosen on some rounds, run on others: the mixture against each back end alone.

    python -m benchmarks.comm_mix --json                  # in the environment of make test-real

Every collective of a sweep (six operations, sizes from 1 KiB) is measured by Gloo and by MPI in turns; the selector of
``comm choose`` picks by these rounds. Then every call is run by Gloo, by MPI and by the router with those rules, in
an order that changes from call to call, and the sweep's total time is compared round by round. The best single back end
is the one that the first rounds name. Where the selector falls back to it, both sides run the same code, and what the
ratio shows is this machine's noise.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from planner import render
from planner.comm import choosing, measuring, rank
from planner.comm.choosing import Asked
from planner.comm.table import Table, student, trimmed_mean
from planner.comm.timing import times
from planner.cost.calls import OPERATIONS, Call

ROOT = Path(__file__).resolve().parent.parent
MIXED = "mixed"


def calls(table: Table, ranks: int, sizes: list[int]) -> list[Call]:
    """The sweep as a step's calls: one each, everything exposed, as long as the best single back end takes."""
    found = []
    names = table.candidates
    cells = [(op, size) for size in sizes for op in OPERATIONS]
    alone = {who: sum(times(table, op, ranks, size)[who].seconds for op, size in cells) for who in names}
    base = min(names, key=lambda who: alone[who])
    for op, size in cells:
        seconds = times(table, op, ranks, size)[base].seconds
        found.append(Call(op, "dp", "dp", ranks, ranks, float(ranks), "domain", float(size), 1.0, seconds, seconds))
    return found


def held_back(
    ranks: int, rules: list[dict[str, Any]], sizes: list[int], rounds: int, mpi: str
) -> list[dict[str, float]]:
    """Totals of the sweep by who ran it, round by round, in a job of its own."""
    job = {"rules": rules, "sizes": sizes, "rounds": rounds, "mpi": mpi}
    words = [*measuring.mpi_launcher(), "-n", str(ranks), sys.executable, "-m", "benchmarks.comm_mix", "--rank"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*words, json.dumps(job)], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def on_a_rank(text: str) -> None:
    """What each process of that job does."""
    import torch
    import torch.distributed as dist

    from planner.runtime.routing import Router, Rule
    from planner.runtime.routing.launch import rendezvous

    job = json.loads(text)
    torch.set_num_threads(1)
    rendezvous(with_mpi=True)
    rules = [Rule(**rule) for rule in job["rules"]]
    backends = ["gloo", job["mpi"]]
    routers = {**{name: Router([], [name]) for name in backends}, MIXED: Router(rules, backends)}
    for number in range(job["rounds"]):
        totals = dict.fromkeys(routers, 0.0)
        for index, (size, op) in enumerate((size, op) for size in job["sizes"] for op in OPERATIONS):
            order = list(routers)
            random.Random(f"held back {number} {index}").shuffle(order)
            for name in order:
                totals[name] += rank.seconds_of(torch, dist, routers[name], op, size, torch.device("cpu"), most=10)
        if dist.get_rank() == 0:
            print(json.dumps(totals), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Centre and ends of the 95 % interval of a paired ratio: trimmed mean of its logarithms, Student's t."""
    logs = sorted(math.log(ratio) for ratio in ratios)
    n, cut = len(logs), int(0.2 * len(logs))
    pulled = [min(max(value, logs[cut]), logs[n - 1 - cut]) for value in logs]
    mean = sum(pulled) / n
    deviation = math.sqrt(sum((value - mean) ** 2 for value in pulled) / (n - 1))
    half = student(n - 2 * cut - 1) * deviation / ((1.0 - 2.0 * cut / n) * math.sqrt(n))
    centre = trimmed_mean(logs)
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def compared(table: Table, ranks: int, sizes: list[int], rounds: int) -> dict[str, Any]:
    """Chosen on the table's rounds, run on as many others."""
    mpi = next(who.backend for who in table.candidates if who.backend != "gloo")
    found = choosing.choose(calls(table, ranks, sizes), table, Asked(switch_s=0.0), "table")
    rules = [
        {"op": r.op, "ranks": r.ranks, "least": r.bytes_min, "most": r.bytes_max, "backend": r.backend}
        for r in found.rules
    ]
    totals = held_back(ranks, rules, sizes, rounds, mpi)
    centre, low, high = interval([each[MIXED] / each[found.base] for each in totals])
    moved = sum(call.choice != found.base for call in found.calls)
    return {
        "ranks": ranks,
        "best_single": found.base,
        "fell_back": found.fell_back,
        "calls": len(found.calls),
        "calls_moved": moved,
        "rounds_held_back": len(totals),
        "seconds": {name: trimmed_mean([each[name] for each in totals]) for name in totals[0]},
        "ratio": centre,
        "ratio_95": [low, high],
        "within_1.03": {"by_construction": moved == 0, "as_measured": high <= 1.03},
    }


def main() -> None:
    """Measure, choose, run, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--ranks", default="2,4", help="processes")
    parser.add_argument("--rounds", type=int, default=8, help="rounds to choose on")
    parser.add_argument("--held-back", type=int, default=24, help="rounds to compare on")
    parser.add_argument("--largest", type=int, default=2**20, help="bytes of the largest call")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank:
        on_a_rank(asked.rank)
        return
    sizes, results = list(measuring.powers(1024, asked.largest)), []
    for ranks in map(int, asked.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            wanted = measuring.Asked(
                backends=("gloo", "mpi"), ops=OPERATIONS, sizes=tuple(sizes), ranks=(ranks,), rounds=asked.rounds
            )
            table = measuring.measure(wanted, Path(folder) / "table.csv", render.progress)
        results.append(compared(table, ranks, sizes, asked.held_back))
    load = os.getloadavg()[0]
    print(json.dumps({"cores": os.cpu_count(), "load": load, "sizes": sizes, "results": results}, indent=2))


if __name__ == "__main__":
    main()
