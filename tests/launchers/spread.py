"""Plans spread over what exporters say they can express: what conformance tests and the real validators run on."""

import os
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from planner import api, catalog
from planner.comm import back_end_choice, run
from planner.launchers import EXPORTERS
from planner.launchers.bundle import refusals
from planner.models.workload import find_model
from planner.schema.plan import CommunicationRule, Plan, Stage
from tests.answered_once import answered_once
from tests.sweeps import depth

EVERY = 1 if "LAUNCHERS" in os.environ else depth(1, 2, 6)
"""Only every so manieth case is tried; `make test-thorough` and `make test-launchers` try all."""

TABLE: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""Runtime -> model, cluster, settings and, behind a slash, what is trained."""
H100, A100 = "dgx-h100", "dgx-a100-80gb"
MIXED = (("llama3-8b", (f"{H100}:1", f"{A100}:1")), ("gpt3-175b", (f"{A100}:8", "dgx-a100-40gb:8")))
"""What the planner itself answers over two pools: unlike pipelines, and one pipeline over both."""
ALIKE = (
    ("llama3.2-3b", (f"{A100}:2", "dgx-v100:2")),
    ("llama3.2-3b", ("dgx-v100:2", f"{A100}:2")),
    ("llama3-70b", (f"{H100}:4", f"{A100}:4")),
)
"""What ``plan --launchable`` answers over two pools: pipelines of one kind that fill their nodes."""


@dataclass(frozen=True)
class Case:
    """A plan, by what was asked."""

    runtime: str
    model: str
    cluster: str
    settings: str
    method: str = "pretrain"

    def __str__(self) -> str:
        what = "" if self.method == "pretrain" else f"/{self.method}"
        return f"{self.runtime}/{self.model}/{self.cluster}/{self.settings}{what}"


@answered_once
def plan(case: Case) -> Plan:
    """The plan that estimate makes of a case."""
    asked = {"runtime": case.runtime, "method": case.method}
    if case.method != "pretrain":
        own = find_model(case.model)
        asked |= {"batch": own.batch, "seq": own.sequence, "tokens": own.tokens}
    found = api.estimate(case.model, case.cluster, case.settings.split(), **asked)
    return found.plans[0]


@answered_once
def mixed(model: str, pools: tuple[str, ...]) -> Plan:
    """The best plan over several pools of any pipelines."""
    return api.plan(model, list(pools), launchable=False).plans[0]


@answered_once
def alike(model: str, pools: tuple[str, ...], **asked: Any) -> Plan:
    """The best one over all of these pools that a launcher starts."""
    found = api.plan(model, list(pools), launchable=True, **asked).plans
    return next(p for p in found if len(p.cluster.pools) == len(pools))


@cache
def asked_of(runtime: str) -> tuple[Case, ...]:
    """The cases of a runtime in ``spread.toml``; those of ``primus`` no other launcher is asked for."""
    split = (line.partition(" / ") for line in TABLE[runtime])
    words = ((question.split(), method or "pretrain") for question, _, method in split)
    return tuple(Case(runtime, model, on, " ".join(pins), method) for (model, on, *pins), method in words)


def cases() -> Iterator[Case]:
    """All that are asked of every launcher."""
    return chain.from_iterable(asked_of(runtime) for runtime in TABLE if runtime != "primus")


@cache
def expressible(name: str, runtimes: tuple[str, ...] | None = None) -> list[tuple[str, Plan]]:
    """The plans that an exporter says it can express, each with what was asked; some on two pools, and with rules."""
    exporter = EXPORTERS[name]
    asked = asked_of("primus") if name == "primus" else cases()
    wanted = [case for case in asked if runtimes is None or case.runtime in runtimes][::EVERY]
    found = [
        (str(case), _with_rules(plan(case), number) if name == "nccl-tuner" else plan(case))
        for number, case in enumerate(wanted)
    ]
    if runtimes is None and name not in ("nccl-tuner", "primus"):
        found += [(f"{model} on {' and '.join(pools)}", mixed(model, pools)) for model, pools in MIXED[::EVERY]]
        found += [(f"{model} alike on {' and '.join(pools)}", alike(model, pools)) for model, pools in ALIKE[::EVERY]]
    found += [
        (f"{asked} on two pools", two_pools(p))
        for asked, p in found
        if p.parallelism.pp in (2, 4) and not p.parallelism.groups and name != "primus"
    ][:4]
    return [(asked, p) for asked, p in found if not [*refusals(p, exporter)]]


def two_pools(whole: Plan) -> Plan:
    """The same plan with the first half of its stages on one kind of node and the second half on another."""
    pool = whole.cluster.pools[0]
    half = replace(pool, count=pool.count // 2)
    pools = (half, replace(half, node="dgx-h200", accelerator="H200-SXM-141GB"))
    p = whole.parallelism
    stages = tuple(replace(stage, pool=int(index >= p.pp // 2)) for index, stage in enumerate(p.stages))
    batch = replace(whole.batch, per_pool=(whole.batch.global_ // 2, whole.batch.global_ // 2))
    return replace(
        whole, cluster=replace(whole.cluster, pools=pools), parallelism=replace(p, stages=stages), batch=batch
    )


def uneven(whole: Plan, layers: tuple[int, ...]) -> Plan:
    """The same plan with its stages' layers dealt by hand."""
    p = whole.parallelism
    stages = tuple(Stage(pool=0, layers=n, tp=p.tp, dp=p.dp) for n in layers)
    return replace(whole, parallelism=replace(p, stages=stages))


def _with_rules(whole: Plan, number: int) -> Plan:
    """Rules for NCCL: two borders that move with the number."""
    ops = ("all-reduce", "all-gather", "reduce-scatter")
    borders = (0, 1 << (10 + number % 7), 1 << (20 + number % 5), 1 << 33)
    others = (("ring", "ll128"), ("ring", "simple"))
    choices = {op: ((("tree", "ll") if op == "all-reduce" else ("pat", "simple")), *others) for op in ops}
    rules = [
        CommunicationRule(
            op=op, group="dp", bytes_min=low, bytes_max=high - 1, backend="nccl", algorithm=algorithm, protocol=protocol
        )
        for op in ops[: 1 + number % 3]
        for low, high, (algorithm, protocol) in zip(borders, borders[1:], choices[op], strict=False)
    ]
    return replace(whole, communication=tuple(rules))


@answered_once
def chosen_plan() -> Plan:
    """A plan with the rules that ``comm choose`` makes of a table of NCCL's algorithms and protocols."""
    whole = api.plan("llama3-70b", f"{H100}:16").plans[0]
    laws = {("ring", "simple"): (1e-5, 2e-12), ("ring", "ll"): (3e-6, 6e-12), ("", ""): (2e-5, 4e-12)}
    rows = [
        f"nccl,{algorithm},{protocol},{op},{ranks},{4**n},{number},{start + 4**n * each}"
        for op in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send-recv")
        for ranks in (2, 8, 128)
        for n in range(5, 19)
        for (algorithm, protocol), (start, each) in laws.items()
        for number in range(4)
        if not (algorithm and op in ("all-to-all", "send-recv"))
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        header = "backend,algorithm,protocol,op,ranks,bytes,round,seconds"
        path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        return run.with_rules(
            whole, catalog.load(), [str(path)], back_end_choice.ChooseOptions(launcher="nccl-tuner"), "plan"
        )[1]
