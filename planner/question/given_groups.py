"""A group of alike pipelines as text, both ways: ``group=copies=4,micro=2,dgx-h100:layers=2x16:tp=4``.

A pipeline's stages stand pool after pool, those of one pool cut alike: ``POOL:layers=LAYERS[:tp=N][:cp=N][:ep=N]
[:recompute=POLICY]``. Layers are those of every stage, ``16+14+2``; alike ones may be counted, ``2x16``. Pools are
called as ``--link`` calls them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby

from planner.base.errors import WrongQuestion, meant
from planner.schema.plan import Group, GroupStage

KEY = "group"
COUNTS = ("copies", "width", "micro")
DEGREES = ("tp", "cp", "ep")
POLICIES = ("none", "selective", "full")
"""Of recomputation: what plans over several pools have."""
MOST_STAGES = 10_000


def spelled_group(group: Group, pools: Sequence[str]) -> str:
    """A group as :func:`parsed_group` reads it; what is 1 or none is left out."""
    counts = (f"{name}={value}" for name in COUNTS if (value := getattr(group, name)) > 1)
    runs = (_spelled_run(list(run), pools) for _, run in groupby(group.stages, key=_cut))
    return f"{KEY}={','.join((*counts, *runs))}"


def _cut(stage: GroupStage) -> tuple[object, ...]:
    """What stages of one run share."""
    return stage.pool, stage.tp, stage.cp, stage.ep, stage.recompute


def _spelled_run(run: Sequence[GroupStage], pools: Sequence[str]) -> str:
    alike = ((layers, len(list(same))) for layers, same in groupby(stage.layers for stage in run))
    layers = "+".join(f"{count}x{layers}" if count > 1 else str(layers) for layers, count in alike)
    degrees = (f":{name}={value}" for name in DEGREES if (value := getattr(run[0], name)) > 1)
    policy = "" if run[0].recompute == "none" else f":recompute={run[0].recompute}"
    return f"{pools[run[0].pool]}:layers={layers}{''.join(degrees)}{policy}"


def parsed_group(text: str, pools: Sequence[str]) -> Group:
    """A group of pipelines on these pools, without what pricing finds out: shares of the batch, seconds and bytes.

    Raises:
        WrongQuestion: a key, a pool or a number that cannot be.
    """
    parts = text.removeprefix(f"{KEY}=").split(",")
    counts = dict.fromkeys(COUNTS, 1)
    for part in parts:
        name, equals, value = part.partition("=")
        if equals and name in COUNTS:
            counts[name] = _number(text, part, value)
    runs = [part for part in parts if part.partition("=")[0] not in COUNTS]
    if not runs:
        raise WrongQuestion(f"{text}: on which stages? Write for example {KEY}=copies=2,{pools[0]}:layers=32:tp=2")
    return Group(
        **counts,
        micro_batches=0,
        sequences=0,
        time_s=0.0,
        stages=tuple(chain.from_iterable(_stages(text, run, pools) for run in runs)),
    )


def _stages(text: str, run: str, pools: Sequence[str]) -> Iterator[GroupStage]:
    name, *words = run.split(":")
    if name not in pools:
        hint = meant(name, (*pools, *COUNTS), f"pools are {', '.join(pools)}")
        raise WrongQuestion(f"{text}: no pool {name!r}; {hint}")
    given = dict(_pair(text, word) for word in words)
    if "layers" not in given:
        raise WrongQuestion(f"{text}: {name}: how many layers has each stage? Write {name}:layers=16+16")
    policy = given.get("recompute", "none")
    if policy not in POLICIES:
        raise WrongQuestion(f"{text}: recompute={policy}: over several pools one of {', '.join(POLICIES)}")
    tp, cp, ep = (_number(text, f"{axis}={given[axis]}", given[axis]) if axis in given else 1 for axis in DEGREES)
    for layers in _layers(text, given["layers"]):
        yield GroupStage(
            pool=pools.index(name), layers=layers, tp=tp, cp=cp, ep=ep, recompute=policy, time_s=0.0, memory_bytes=0.0
        )


def _pair(text: str, word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    known = ("layers", *DEGREES, "recompute")
    if name not in known:
        hint = meant(name, known, f"{', '.join(known)} can be said")
        raise WrongQuestion(f"{text}: no {name!r} of a stage; {hint}")
    return name, value


def _layers(text: str, given: str) -> list[int]:
    """``2x16+8`` as 16, 16, 8."""
    found: list[int] = []
    for part in given.split("+"):
        count, times, layers = part.rpartition("x")
        repeated = _number(text, f"layers={given}", count) if times else 1
        found += [_number(text, f"layers={given}", layers)] * min(repeated, MOST_STAGES)
        if len(found) >= MOST_STAGES:
            raise WrongQuestion(f"{text}: layers={given}: more stages than any model has layers")
    return found


def _number(text: str, part: str, value: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,5}", value):
        raise WrongQuestion(f"{text}: {part}: {value!r} is not a whole number of at least 1")
    return int(value)
