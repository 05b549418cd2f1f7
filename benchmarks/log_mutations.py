"""Logs spoilt in several ways at once: ``python -m benchmarks.log_mutations --cases 3000 --seed 0 [FORMAT ...]``.

A case is a log of one format (`tests.training_logs`), of steps with some noise and a warm-up, to which one to three of
:data:`WAYS` are done: lines are lost, doubled, cut, prefixed, of several ranks, of another job that writes to the same
file. Each step time that is read must be within 2 % of one that a job in the file had; else it is silently wrong.
Refusals are counted, not judged. Prints JSON; exits with 1 where a time is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from planner.site.logs import reading
from tests.training_logs import FORMS

WITHIN = 0.02
USUAL_S = 4.0
"""Seconds of a step of which the table of formats says what must be read."""


@dataclass
class Log:
    """Lines, and the step times that may be read from them."""

    format: str
    lines: list[str]
    true: list[tuple[float, float]] = field(default_factory=list)
    """Least and largest of the means and medians of a regime, in what its format counts."""


def drawn(chance: random.Random, shape: str, slowed: bool = False) -> Log:
    """A job's log; `slowed`: its step time changes for good in the middle."""
    base, noise = 10 ** chance.uniform(0.0, 1.6), chance.choice((0.0, 0.003, 0.015))
    count = chance.randrange(40, 160)
    regimes = [base] if not slowed else [base, base * chance.choice((1.15, 1.4, 2.0))]
    warm = [base * factor for factor in chance.choice(([], [5.0], [9.0, 2.0]))]
    steps = [[time * (1.0 + chance.gauss(0.0, noise)) for _ in range(count)] for time in regimes]
    print_lines, seconds, _ = FORMS[shape]
    lines = [piece for line in print_lines([*warm, *(s for regime in steps for s in regime)])
             for piece in line.split("\r")]  # fmt: skip
    true = [(min(fmean(r), median(r)), max(fmean(r), median(r))) for r in steps]
    return Log(shape, lines, [(low * seconds / USUAL_S, high * seconds / USUAL_S) for low, high in true])


# ---- ways of spoiling ------------------------------------------------------------------------------------------------


def other(chance: random.Random, log: Log) -> Log:
    """Another job: of the same format in half of the cases."""
    return drawn(chance, log.format if chance.random() < 0.5 else chance.choice([*FORMS]))


def alternating(chance: random.Random, log: Log) -> Log:
    """Two jobs that write to one file, a line each in turn."""
    second = other(chance, log)
    longer = max(len(log.lines), len(second.lines))
    lines = [line for n in range(longer) for one in (log, second) for line in one.lines[n : n + 1]]
    return Log(log.format, lines, log.true + second.true)


def interleaved(chance: random.Random, log: Log) -> Log:
    """Two jobs that write to one file, as it happens."""
    second, lines = other(chance, log), []
    queues = [list(reversed(log.lines)), list(reversed(second.lines))]
    while any(queues):
        lines.append(chance.choice([queue for queue in queues if queue]).pop())
    return Log(log.format, lines, log.true + second.true)


def appended(chance: random.Random, log: Log) -> Log:
    """Another job behind it."""
    second = other(chance, log)
    return Log(log.format, log.lines + second.lines, log.true + second.true)


def _lines(change: Callable[[random.Random, list[str]], list[str]]) -> Callable[[random.Random, Log], Log]:
    return lambda chance, log: Log(log.format, change(chance, log.lines), log.true)


def _lost(chance: random.Random, lines: list[str]) -> list[str]:
    share = chance.choice((0.02, 0.1, 0.3))
    return [line for line in lines if chance.random() > share]


def _doubled(chance: random.Random, lines: list[str]) -> list[str]:
    return [line for line in lines for _ in range(2 if chance.random() < 0.1 else 1)]


def _head(chance: random.Random, lines: list[str]) -> list[str]:
    return lines[chance.randrange(len(lines) // 2 + 1) :]


def _tail(chance: random.Random, lines: list[str]) -> list[str]:
    kept = lines[: chance.randrange(len(lines) // 2, len(lines)) + 1]
    return [*kept[:-1], *(line[: chance.randrange(len(line) + 1)] for line in kept[-1:])]


def _swapped(chance: random.Random, lines: list[str]) -> list[str]:
    lines = list(lines)
    for _ in range(len(lines) // 10):
        place = chance.randrange(len(lines) - 1) if len(lines) > 1 else 0
        lines[place : place + 2] = reversed(lines[place : place + 2])
    return lines


def _ranks(chance: random.Random, lines: list[str]) -> list[str]:
    ranks = range(chance.choice((2, 4)))
    if chance.random() < 0.5:
        return [f"[rank{rank}]: {line}" for line in lines for rank in ranks]
    return [f"{rank}: {line}" for rank in ranks for line in lines]


def _prefixed(chance: random.Random, lines: list[str]) -> list[str]:
    before = chance.choice(("2026-01-01T00:00:00Z ", "[node-1] ", "3: ", "| INFO | "))
    return [f"{before}{line}" for line in lines]


def _noisy(chance: random.Random, lines: list[str]) -> list[str]:
    said = ("", "UserWarning: step 3 took 1.5 s", "[W socket.cpp:601] retry 2/10", "eval: 10/50 [00:03<00:12, 3.3it/s]")
    return [more for line in lines for more in ([line, chance.choice(said)] if chance.random() < 0.1 else [line])]


def _sparse(chance: random.Random, lines: list[str]) -> list[str]:
    return lines[:: chance.choice((2, 5))]


def _joined(chance: random.Random, lines: list[str]) -> list[str]:
    """Lines whose ends were lost."""
    text = "".join(line + ("" if chance.random() < 0.05 else "\n") for line in lines)
    return text.splitlines()


def _halved(chance: random.Random, lines: list[str]) -> list[str]:
    """Lines into which another process wrote."""
    return [part for line in lines for part in (
        (line[: len(line) // 2], line[len(line) // 2 :]) if chance.random() < 0.05 else (line,))]  # fmt: skip


WAYS: dict[str, Callable[[random.Random, Log], Log]] = {
    "alternating": alternating,
    "interleaved": interleaved,
    "appended": appended,
    "lost": _lines(_lost),
    "doubled": _lines(_doubled),
    "head left out": _lines(_head),
    "cut off": _lines(_tail),
    "swapped": _lines(_swapped),
    "ranks": _lines(_ranks),
    "prefixed": _lines(_prefixed),
    "noise": _lines(_noisy),
    "every nth": _lines(_sparse),
    "joined": _lines(_joined),
    "halved": _lines(_halved),
}


# ---- judged ----------------------------------------------------------------------------------------------------------


def case(number: int, seed: int, formats: Sequence[str]) -> tuple[list[str], Log]:
    """The ways that are taken in a case, and the log."""
    chance = random.Random(f"{seed} {number}")
    log = drawn(chance, chance.choice(formats), slowed=chance.random() < 0.2)
    ways = chance.sample([*WAYS], chance.randint(1, 3))
    for way in ways:
        log = WAYS[way](chance, log)
    return ways, log


def read(lines: Sequence[str], folder: Path) -> list[tuple[str, float]]:
    """The format and every step time that is read, in what the format counts."""
    path = folder / "train.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [(run.format, seconds) for run in reading.read(path)
            for seconds in [one.seconds for one in reading.measured(run)] or [run.whole_run_s] if seconds]  # fmt: skip


def wrong(log: Log, times: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The times that no job in the file had."""
    return [(name, seconds) for name, seconds in times
            if not any(low * (1 - WITHIN) <= seconds <= high * (1 + WITHIN) for low, high in log.true)]  # fmt: skip


def tried(cases: range, seed: int, formats: Sequence[str]) -> dict[str, Any]:
    """How many logs were read, refused, and silently wrong, and the latter by ways and formats."""
    counts: Counter[str] = Counter()
    by_way: Counter[str] = Counter()
    listed = []
    with tempfile.TemporaryDirectory() as folder:
        for number in cases:
            ways, log = case(number, seed, formats)
            times = read(log.lines, Path(folder))
            off = wrong(log, times)
            counts["wrong" if off else "read" if times else "refused"] += 1
            if off:
                by_way.update(ways)
                listed.append({"case": number, "format": log.format, "ways": ways, "true": log.true, "read": times[:6]})
    return {**counts, "by_way": dict(by_way.most_common()), "cases": listed}


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("formats", nargs="*", metavar="FORMAT", help=f"{', '.join(FORMS)} (all)")
    asked.add_argument("--cases", type=int, default=1000)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    if strange := {*given.formats} - {*FORMS}:
        asked.error(f"no format {', '.join(sorted(strange))}; there are {', '.join(FORMS)}")
    began = time.process_time()
    found = tried(range(given.cases), given.seed, given.formats or [*FORMS])
    json.dump({**found, "cpu_s": round(time.process_time() - began, 1)}, sys.stdout, indent=1)
    print()
    sys.exit(bool(found["cases"]))
