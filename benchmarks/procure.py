"""How long a large procurement takes: pools, exactly planned columns, the integer program, and the memory of it all.

Sixty node types for sale, each wired in five ways, in four regions; eight workloads over twelve months with a limit on
every month's running costs. Then the same with releases and jobs that may be paused, so that start days are chosen;
that with a limit on the nodes of each type; fifty workloads, of eight kinds and all different; two hundred node types,
made of the catalog's with fewer accelerators each. CPU seconds of all processes, seconds on the clock, peak memory of
the largest process so far.

    python benchmarks/procure.py [--json] [--tiny]
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice, pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import measure
from planner import catalog as catalogs
from planner.base.errors import NoAnswer
from planner.procurement import run
from planner.procurement.program import pruning
from planner.procurement.program.instance import ProcureInstance, ProcureVariant, Settings
from planner.procurement.program.solve import best
from planner.procurement.question import flags
from planner.procurement.question.portfolio import Job, Limits, NodeOption, Portfolio, StatedPrice
from planner.procurement.supply.acquiring import pools
from planner.procurement.throughput.job_days import Throughputs
from planner.question.plan_options import PlanOptions
from planner.question.purchase_options import ProcureQuestion
from planner.schema.hardware import Node

NODES, SIZES = 60, (2, 8, 32, 128)
WIRINGS = (("", 1.0), ("rail-optimised", 2.0), ("fat-tree", 1.0), ("fat-tree", 4.0), ("dragonfly", 1.0))
REGIONS = ("us-texas", "us-virginia", "de", "no")
MONTHS = 12
WORKLOADS = (
    ("llama3-8b", 2e12), ("llama3-70b", 5e11), ("mistral-7b", 1e12), ("qwen2.5-14b", 1e12),
    ("llama2-13b", 5e11), ("gpt-oss-20b", 1e12), ("qwen3-32b", 5e11), ("llama3.2-3b", 4e12),
)  # fmt: skip
USD_PER_ACCELERATOR = 25_000.0
GAP = 0.001
LIMIT_S = 600.0
"""On the clock: enough on cores that others share."""
MANY_WORKLOADS, MANY_NODES = 50, 200
AT_MOST = 128
"""Nodes of each type, where that is limited."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """How the question is turned."""

    nodes: int
    workloads: int
    calendar: bool = False
    """Every other job is released later, and every third may be paused."""
    at_most: int | None = None
    """Nodes of each type that can be had."""
    differing: bool = False
    """No two workloads have as many tokens or the same deadline."""


def portfolio(catalog: catalogs.Catalog, asked: Question) -> Portfolio:
    """The question: every type has a price, the catalog's or one made up."""
    types = [node for node in catalog.nodes.values() if node.fabric and catalog.fabric(node.fabric).kind != "ici"]
    days = MONTHS * 365.25 / 12
    return Portfolio(
        name="benchmark",
        as_of="2026-11-20",
        horizon_days=days,
        regions=REGIONS,
        limits=Limits(budget=3e8, capital=2.5e8, monthly=6e6, power=2e7, racks=400.0),
        jobs=tuple(_jobs(asked, days)),
        candidates=tuple(
            NodeOption(node=node.id, ways=("buy",), counts=SIZES, wirings=WIRINGS, at_most=asked.at_most,
                      price=StatedPrice(usd=_price(node), date="2026-11", source="made up"))
            for node in types[: asked.nodes]
        ),
    )  # fmt: skip


def _jobs(asked: Question, days: float) -> Iterator[Job]:
    for n, (name, tokens) in enumerate(islice(cycle(WORKLOADS), asked.workloads)):
        place = n * 7 % asked.workloads / asked.workloads if asked.differing else 0.0  # 0 to 1, each once
        yield Job(
            name=f"{name}-{n}",
            model=name,
            asked=PlanOptions(),
            tokens=tokens * min(1.0, 8 / asked.workloads) * (1.3 - 0.6 * place if asked.differing else 1.0),
            deadline_day=days * (0.5 + 0.5 * (place if asked.differing else n % 2)),
            given_deadline=True,
            priority=n,
            release_day=days * 0.2 * (n % 2) if asked.calendar else 0.0,
            interruptible=asked.calendar and n % 3 == 0,
        )


def _price(node: Node) -> float:
    known = [price.usd for price in node.prices if price.basis == "purchase"]
    return known[0] if known else USD_PER_ACCELERATOR * node.accelerators


def _seconds() -> tuple[float, float]:
    """CPU seconds of this process and of those it began, and those on the clock."""
    own, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + theirs.ru_utime + theirs.ru_stime, time.perf_counter()


def with_smaller_nodes(folder: Path) -> catalogs.Catalog:
    """The catalog with every node of eight accelerators also of four, two and one: other boards, other plans."""
    (folder / "nodes").mkdir()
    for path in sorted((catalogs.load().layers[0].folder / "nodes").glob("*.toml")):
        lines = []
        for name, fields in tomllib.loads(path.read_text(encoding="utf-8")).items():
            for count in (4, 2, 1) if fields.get("accelerators") == 8 else ():
                lines.append(f'["{name}-with-{count}"]')
                lines += [f"{key} = {_toml(value)}" for key, value in {**fields, "accelerators": count}.items()]
        (folder / "nodes" / path.name).write_text("\n".join(lines), encoding="utf-8")
    return catalogs.load(folder)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_toml(each)}' for key, each in value.items()) + " }"
    return json.dumps(value)


def measured(question: Question, catalog: catalogs.Catalog | None = None) -> dict[str, object]:
    """One run's figures."""
    known = catalog or catalogs.load()
    asked = portfolio(known, question)
    marks = [_seconds()]
    offered = pools(known, asked)
    marks.append(_seconds())
    speeds = Throughputs(known, asked.jobs, offered)
    columns = speeds.columns()
    marks.append(_seconds())
    whole = ProcureInstance(asked, offered, columns)
    instance = ProcureInstance(asked, offered, pruning.undominated(whole, across=True))
    found = best(instance, ProcureVariant(), "cost", Settings(gap=GAP, time_limit_s=LIMIT_S))
    marks.append(_seconds())
    cpu, wall = ([round(b[i] - a[i], 2) for a, b in pairwise(marks)] for i in (0, 1))
    return {
        "nodes": len(asked.candidates),
        "wirings": len(WIRINGS),
        "regions": len(REGIONS),
        "workloads": question.workloads,
        "differing": question.differing,
        "months": MONTHS,
        "calendar": question.calendar,
        "at_most": question.at_most,
        "pools": len(offered),
        "searches": speeds.searches,
        "columns": len(columns),
        "undominated": len(instance.columns),
        "pools_cpu_s": cpu[0],
        "columns_cpu_s": None,  # of processes that outlive the question
        "columns_wall_s": wall[1],
        "solve_cpu_s": cpu[2],
        "solve_wall_s": wall[2],
        "gap": None if found is None else found.gap,
        "value": None if found is None else found.value,
        "peak_bytes": max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        * 1024,
    }


def answered(budget: str | None) -> dict[str, object]:
    """Seconds of the query that README shows, under a budget: from the flags to the answer, or to why there is none."""
    known, marks = catalogs.load(), [_seconds()]
    asked = flags.asked(known, None, ProcureQuestion(model="llama3-8b", tokens="2T", budget=budget, deadline="60d"))
    try:
        answer = run.procure(known, asked).alternatives[0].what
    except NoAnswer as error:
        answer = str(error).splitlines()[0]
    marks.append(_seconds())
    cpu, wall = (round(marks[1][i] - marks[0][i], 2) for i in (0, 1))
    return {"budget": budget, "cpu_s": cpu, "wall_s": wall, "answer": answer}


def _larger() -> Iterator[dict[str, object]]:
    usual = Question(nodes=NODES, workloads=len(WORKLOADS), calendar=True)
    many = Question(nodes=NODES, workloads=MANY_WORKLOADS)
    for question in (usual, replace(usual, at_most=AT_MOST), many, replace(many, differing=True)):
        yield measured(question)
    with tempfile.TemporaryDirectory() as folder:
        yield measured(replace(usual, nodes=MANY_NODES, calendar=False), with_smaller_nodes(Path(folder)))


def main(argv: Sequence[str] | None = None) -> None:
    """Measures the question and prints what was found."""
    options = measure.arguments(__doc__, argv)
    tiny = Question(nodes=4, workloads=2)
    row = measured(tiny if options.tiny else Question(nodes=NODES, workloads=len(WORKLOADS)))
    queries = [] if options.tiny else [answered("$5M"), answered("$50k"), answered("$1k")]
    turned = replace(tiny, calendar=True, at_most=AT_MOST, differing=True)
    larger = [measured(turned)] if options.tiny else list(_larger())
    shown = {"procurement": row, "larger": larger, "queries": queries, "machine": measure.machine()}
    measure.show(shown, [row, *larger], options.json)
    if queries and not options.json:
        print(f"\n{measure.table(queries)}")


if __name__ == "__main__":
    main()
