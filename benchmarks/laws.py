"""Laws of whole answers on questions drawn at random: ``python -m benchmarks.laws --questions 100 --seed 0 [LAW ...]``.

A law holds for every question, whatever the figures are. `permuted`: pools in another order and with other names have
plans as fast, up to the gaps that the answers state. `more`: more of anything never slows the best plan. `estimated`:
an estimate of a plan's configuration is that plan. `imported`: what is exported for a launcher and read again is as
fast and as large. A question that is refused counts as such. Prints JSON; exits with 1 where a law does not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner import api
from planner.api import records
from planner.base.errors import ClusterwrightError
from planner.launchers import reading
from planner.report.recommendation import configuration

MODELS = ("llama3-8b", "gpt2-xl", "mixtral-8x7b", "llama3.2-3b", "bert-large")
NODES = ("dgx-h100", "dgx-a100-80gb", "dgx-a100-40gb", "dgx-v100")
SMALL = ("gpt2-medium", "gpt2-xl")
"""Of several pools: their searches take seconds."""
ROUNDING = 1e-9
TARGETS = {
    "megatron": ("start.sh", "megatron", {"runtime": "megatron-core"}),
    "torchtitan": ("start.sh", "torchtitan", {"runtime": "fsdp2"}),
    "deepspeed": ("ds_config.json", "deepspeed", {"runtime": "deepspeed"}),
    "llama-factory": ("llama_factory.yaml", "llama-factory", {"method": "lora"}),
    "axolotl": ("axolotl.yaml", "axolotl", {"method": "lora"}),
    "trl": ("sft.yaml", "trainer", {"method": "lora"}),
    "hf-trainer": ("start.sh", "trainer", {"method": "lora"}),
    "primus": ("primus.yaml", "primus", {"runtime": "primus"}),
}
"""Target -> which of its files is read again, as what, and what a question must say to be exported there."""
IN_CODE = ("deepspeed", "torchtitan")
"""Sources whose recomputation stands in code: import says so under Assumes, and takes ``--recompute``."""
ON = {"primus": ("mi300x-8",)}
"""Nodes of a target that does not run on all of :data:`NODES`."""


def _asked(chance: random.Random) -> dict[str, Any]:
    """Options of a question that is answered in about a second."""
    pins = {"cp": 1, "micro": chance.choice((1, 2))}
    method = chance.choice(("pretrain", "pretrain", "lora"))
    return {"pin": pins, "top": chance.choice((1, 3)), "batch": chance.choice((32, 64, 128)), "method": method,
            "seq": chance.choice((None, 2048))}  # fmt: skip


def permuted(chance: random.Random) -> str:
    """The pools of a job in another order, and with other zones."""
    model, (one, other) = chance.choice(SMALL), chance.sample(NODES, 2)
    asked = {"batch": chance.choice((32, 64)), "top": 1}
    left, right = (api.plan(model, clusters, **asked) for clusters in (
        [f"{one}:1@a", f"{other}:1@b"], [f"{other}:1@x", f"{one}:1@y"],
    ))  # fmt: skip
    times = [found[0].prediction.step_time_s for found in (left, right)]
    gap = max(found.search.gap or 0.0 for found in (left, right))
    return (
        "" if max(times) <= min(times) * (1 + gap + ROUNDING) else f"{model} {one} {other} {asked}: {times}, gap {gap}"
    )


def more(chance: random.Random) -> str:
    """An accelerator with more of one figure."""
    model, node, asked = chance.choice(MODELS), chance.choice(NODES), _asked(chance)
    shipped = records.cluster(f"{node}:{chance.choice((1, 2))}")
    figure, factor = chance.choice(("memory", "memory_bandwidth", "peak")), chance.choice((1.01, 1.3, 2.0))
    kind = shipped.accelerator
    now = getattr(kind, figure)
    more = {name: rate * factor for name, rate in now.items()} if figure == "peak" else now * factor
    better = replace(shipped, accelerator=replace(kind, **{figure: more}))
    before, after = (api.plan(model, each, **asked)[0].prediction.step_time_s for each in (shipped, better))
    return "" if after <= before * (1 + ROUNDING) else f"{model} {node} {figure} x{factor} {asked}: {before} -> {after}"


def estimated(chance: random.Random) -> str:
    """Each plan of a set, as its configuration."""
    model, cluster, asked = chance.choice(MODELS), f"{chance.choice(NODES)}:{chance.choice((1, 2))}", _asked(chance)
    options = {name: value for name, value in asked.items() if name not in ("pin", "top")}
    for plan in api.plan(model, cluster, **asked):
        again = api.estimate(model, cluster, configuration(plan), **options)[0]
        if (again.prediction, again.money.usd_total) != (plan.prediction, plan.money.usd_total):
            return (
                f"{model} {cluster} {asked} #{plan.rank}: {plan.prediction.step_time_s} {again.prediction.step_time_s}"
            )
    return ""


def imported(chance: random.Random) -> str:
    """The best plan through a launcher's files."""
    target = chance.choice([*TARGETS])
    file, source, must = TARGETS[target]
    node = chance.choice(ON.get(target, NODES))
    model, cluster = chance.choice(MODELS[:4]), f"{node}:{chance.choice((1, 2))}"  # decoders
    asked = {**_asked(chance), "method": "pretrain", **must, "top": 1}
    found = api.plan(model, cluster, **asked)
    with tempfile.TemporaryDirectory() as place:
        api.export(found, target, place, force=True)
        unsaid = {"seq": asked["seq"], "batch": asked["batch"]} if source == "deepspeed" else {}
        pinned = {"recompute": found[0].axes["recompute"]} if source in IN_CODE else {}
        beside = tuple(Path(place).glob("accelerate.yaml")) if file.endswith(".yaml") else ()
        started = reading.Started(files=beside)
        read = reading.plan(
            source, str(Path(place) / file), (cluster,), model=model, pinned=pinned, started=started, **unsaid
        )
    figures = [
        (one.step_time_s, one.memory.total_bytes) for one in (found[0].prediction, read.plans.plans[0].prediction)
    ]
    return "" if figures[0] == figures[1] else f"{model} {cluster} {target} {asked}: {figures}, differs {read.differs}"


LAWS: dict[str, Callable[[random.Random], str]] = {
    each.__name__: each for each in (permuted, more, estimated, imported)
}


def tried(law: str, questions: int, seed: int) -> dict[str, Any]:
    """How many questions a law held for, how many were refused, and those for which it did not hold."""
    counts: Counter[str] = Counter()
    broken, refused = [], Counter[str]()
    for number in range(questions):
        try:
            says = LAWS[law](random.Random(f"{law} {seed} {number}"))
        except ClusterwrightError as error:
            counts["refused"] += 1
            refused[str(error)[:120]] += 1
            continue
        counts["broken" if says else "held"] += 1
        broken += [f"{number}: {says}"] if says else []
    return {**counts, "broken_questions": broken, "refusals": dict(refused.most_common(8))}


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("laws", nargs="*", metavar="LAW", help=f"{', '.join(LAWS)} (all)")
    asked.add_argument("--questions", type=int, default=1000, help="of each law")
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    if strange := {*given.laws} - {*LAWS}:
        asked.error(f"no law {', '.join(sorted(strange))}; there are {', '.join(LAWS)}")
    began = time.process_time()
    found = {law: tried(law, given.questions, given.seed) for law in given.laws or LAWS}
    json.dump({"laws": found, "cpu_s": round(time.process_time() - began, 1)}, sys.stdout, indent=2)
    print()
    sys.exit(any(each["broken_questions"] for each in found.values()))
