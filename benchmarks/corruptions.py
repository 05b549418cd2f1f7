"""How many changes of one leaf of a document are seen: ``python -m benchmarks.corruptions --seed 0 --each 2``.

Each leaf of a plan set, a plan over several pools, shares of images, a plan with rules for its calls, an offer and a
study is changed to other values of its own kind. A change is seen by the record (it cannot be read), by the digest, by
:mod:`planner.verify` deriving what follows from other figures, by ``explain`` pricing plans again one by one ("told"),
or by ``explain --recheck`` asking the whole question again. ``alone`` is without the digest: what somebody who writes a
fitting digest, too, can change unseen; ``explained`` is that without ``--recheck``. Prints JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from planner import catalog
from planner.api import buying, plan_sources, plans, rechecking
from planner.base.errors import ClusterwrightError, DocumentChanged
from planner.comm import run
from planner.comm.back_end_choice import ChooseOptions
from planner.cost.calls import OPERATIONS
from planner.planning import document
from planner.schema.digest import DIGEST
from planner.schema.record import Record

EXAMPLES = Path(__file__).parents[1] / "examples"
TIMES = Path(tempfile.mkdtemp()) / "table.csv"
"""Of collectives, made up."""
SALE = """
currency = "USD"
as_of = "2026-11-20"
horizon = "12 months"
objective = "cost"
resale = 0.95

[[workloads]]
name = "base"
model = "llama3-8b"
tokens = "2T"
deadline = "90 d"

[[candidates]]
node = "hgx-h100"
ways = ["buy"]

[[candidates]]
node = "nebius-8x-h100"
ways = ["spot"]
"""
"""A portfolio: machines may be bought, and sold when the work is done."""
Place = tuple[str | int, ...]


# ---- documents -------------------------------------------------------------------------------------------------------


def _plan_set() -> Record:
    return plans.plan("llama3-8b", "dgx-h100:2", top=3, deadline="2000 d", max_cost="$20M")


def _mixture() -> Record:
    return plans.plan("mixtral-8x7b", "dgx-h100:8", top=2)


def _preferences() -> Record:
    return plans.plan("llama3-8b", "dgx-h100:1", method="dora", task="dpo", optimizer="adam-8bit", top=2)


def _muon() -> Record:
    return plans.plan("mixtral-8x7b", "dgx-h100:8", optimizer="muon", imbalance=1.2, top=2)


def _several_pools() -> Record:
    return plans.plan("llama3-8b", ["dgx-a100-80gb:2@a", "dgx-h100:2@b"], link="dgx-a100-80gb@a/dgx-h100@b=100 Gbit/s",
                      launchable=True, top=2)  # fmt: skip


def _estimate() -> Record:
    return plans.estimate("llama3-8b", "dgx-h100:1", tp=8, recompute="full", batch=256)


def _contingency() -> Record:
    return plans.plan("llama3-8b", "dgx-h100:4", pin={"tp": [4, 8]}, contingency=2, top=1)


def _images() -> Record:
    return plans.plan_images("resnet50", accelerators="A100:4,V100:4", batch=1024)


def _offer() -> Record:
    return buying.procure(EXAMPLES / "portfolios/pretrain-8b.toml")


def _sale() -> Record:
    file = TIMES.with_name("sale.toml")
    file.write_text(SALE, encoding="utf-8")
    return buying.procure(file)


def _study() -> Record:
    return buying.design(EXAMPLES / "studies/small-node.toml", trials=20)


def _modelled_calls() -> Record:
    return run.modelled(plans.plan("mixtral-8x7b", "dgx-h100:8", top=1).plans[0], catalog.load(), "plan")[1]


def _measured_calls() -> Record:
    rows = ["backend,op,ranks,nodes,bytes,round,seconds"]
    rows += [
        f"{backend},{op},{ranks},{max(1, ranks // 8)},{4**power},{n},{(start + 4**power / rate) * (1 + n / 1000)}"
        for backend, start, rate in (("nccl", 2e-5, 2e11), ("mpich", 1e-5, 3e10))
        for op in OPERATIONS for ranks in (2, 4, 8, 16, 32, 64) for power in range(4, 17) for n in range(3)
    ]  # fmt: skip
    TIMES.write_text("\n".join([*rows, ""]), encoding="utf-8")
    plan = plans.plan("llama3-8b", "dgx-h100:2", top=1).plans[0]
    return run.with_rules(plan, catalog.load(), [str(TIMES)], ChooseOptions(free=run.free(plan, None)), "plan")[1]


DOCUMENTS: dict[str, Callable[[], Record]] = {
    "plan set": _plan_set,
    "mixture of experts": _mixture,
    "preferences": _preferences,
    "Muon": _muon,
    "several pools": _several_pools,
    "estimate": _estimate,
    "contingency": _contingency,
    "images": _images,
    "modelled calls": _modelled_calls,
    "measured calls": _measured_calls,
    "offer": _offer,
    "sale": _sale,
    "study": _study,
}
made = cache(lambda kind: DOCUMENTS[kind]())


# ---- one leaf changed ------------------------------------------------------------------------------------------------


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """Places of everything in a document that holds nothing else, without what says how long it took."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if path or key not in ("meta", DIGEST):
                yield from places(inner, (*path, key))
    else:
        yield path


def other(value: object, chance: random.Random) -> Any:
    """Another value of the same kind; of none, a figure."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([value + 1, max(value - 1, 0) if value > 1 else value + 2, 2 * value + 1])
    if isinstance(value, float):
        return chance.choice([value * 1.01 + 1e-9, value * 0.9 or 0.1, value * 2 + 1.0])
    if isinstance(value, str):
        return chance.choice([f"{value}x", value[:-1] or "y", re.sub(r"\d", lambda d: str(9 - int(d[0])), value) + " "])
    return chance.choice([1.0, "x"]) if value is None else chance.choice([["x"], {"x": 1.0}])


def changed(table: dict[str, Any], place: Place, value: object) -> dict[str, Any]:
    """The document with another value at a place."""
    new = copy.deepcopy(table)
    inner: Any = new
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return new


def seen_by(table: dict[str, Any], tables: Sequence[str] = ()) -> str:
    """What refuses a document: its records, what follows from its figures, or making it again; or nothing."""
    by = "record"
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = document.parse_document({key: value for key, value in table.items() if key != DIGEST}, "file")
            by = "verify"
            plan_sources.consistent(found)
            plan_sources.warn_of_changes(found, "file")
            rechecking.warn_of_figures(found, "file")
        if told:
            return "told"
        by = "recheck"
        rechecking.check(found, "file", rechecking.RecheckInputs(tables=tuple(tables)))
    except ClusterwrightError:
        return by
    return ""


def digest_sees(table: dict[str, Any]) -> bool:
    """Whether the digest is not that of the content."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            document.parse_document(table, "file")
        except ClusterwrightError:
            return True
    return any(issubclass(each.category, DocumentChanged) for each in told)


def corrupt(kind: str, seed: int = 0, each: int = 1, most: int | None = None) -> dict[str, Any]:
    """Changes leaves of a document (all, or a sample of `most`): what saw how many, and the places nothing saw."""
    chance, table = random.Random(seed), document.stamped(made(kind))
    every = [*places(table)]
    chosen = every if most is None or most >= len(every) else chance.sample(every, most)
    counts: Counter[str] = Counter()
    unseen: Counter[str] = Counter()
    digested = 0
    for place in chosen:
        value = table
        for key in place:
            value = value[key]  # type: ignore[index]
        for _ in range(each):
            new = changed(table, place, other(value, chance))
            by = seen_by(new, [str(TIMES)] if kind == "measured calls" else [])
            counts[by or "nothing"] += 1
            digested += bool(by == "record" or digest_sees(new))
            if not by:
                unseen[".".join("*" if isinstance(key, int) else key for key in place)] += 1
    total = sum(counts.values())
    return {
        "leaves": len(every),
        "changes": total,
        "with_digest": round(digested / total, 4),
        "alone": round(1 - counts["nothing"] / total, 4),
        "explained": round(1 - (counts["nothing"] + counts["recheck"]) / total, 4),
        "seen_by": dict(sorted(counts.items())),
        "unseen": dict(unseen.most_common()),
    }


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("kinds", nargs="*", metavar="KIND", help=f"{', '.join(DOCUMENTS)} (all)")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--each", type=int, default=1, help="changes of each leaf")
    asked.add_argument("--most", type=int, help="leaves of each document: a sample")
    given = asked.parse_args()
    if strange := {*given.kinds} - {*DOCUMENTS}:
        asked.error(f"no document {', '.join(sorted(strange))}; there are {', '.join(DOCUMENTS)}")
    began = time.process_time()
    found = {kind: corrupt(kind, given.seed, given.each, given.most) for kind in given.kinds or DOCUMENTS}
    json.dump({"documents": found, "cpu_s": round(time.process_time() - began, 1)}, sys.stdout, indent=2)
    print()
