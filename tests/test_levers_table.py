"""The five best of a question, row by row, are what an enumeration of all levers lists under every limit."""

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest

from planner import cost
from planner.axes.table import (
    ACTIVATION_OFFLOAD,
    ATTENTION_KERNEL,
    GRAPHS,
    OFFLOAD,
    OFFLOAD_OVERLAP,
    PRECISION,
    RECOMPUTE,
)
from planner.planning import ranked
from planner.question.search_problem import Prepared, legal_rows, levers_of, prepare, problem, wave
from planner.search.problem import SearchProblem, decode
from planner.space.cost_grid import single_grid
from tests.cases import CATALOG, cluster, request
from tests.sweeps import sweep
from tests.test_levers import FEW, HELD, PRICE

TIED = 0.03
"""Share by which a plan that needs more must be better to stand before one that does not."""
OBJECTIVES = ("time", "cost", "energy", "tokens-per-dollar")
LIMITS = ("none", "deadline", "budget", "both")
RISKS = (0.01, 0.05, 0.3)
SHARES = (0.4, 0.6, 1.0)
"""Of the accelerator's memory."""
KEPT = (0.0, 0.0003, 0.2)
"""Share of the candidates that fit which a limit leaves."""
DEGREES = ("nodes", "batch", "tp", "pp", "cp", "ep", "etp")
QUESTIONS = [
    (name, batch, counts)
    for name, batch in product(FEW, (16, 64))
    for counts in ((1,), (1, 2))
]  # fmt: skip
CASES = [
    (*question, OBJECTIVES[n % 4], LIMITS[(n + n // 4) % 4], RISKS[n % 3], SHARES[(n + n // 3) % 3], KEPT[(n // 2) % 3])
    for n, question in enumerate(QUESTIONS * 16)
]


class Enumerated(NamedTuple):
    """All candidates of a space, one an entry."""

    seconds: np.ndarray
    """Of the whole training, likewise US dollars."""
    usd: np.ndarray
    joules: np.ndarray
    step_s: np.ndarray
    memory: np.ndarray
    degrees: np.ndarray
    """Rows of degrees and precision."""
    recompute: np.ndarray
    on_host: np.ndarray
    """Whether levers keep something in host memory beyond what the base space keeps there."""
    posed: SearchProblem


def asked(name: str, batch: int, counts: tuple[int, ...], share: float = 1.0, **more: object) -> Prepared:
    model, on, pins = FEW[name]
    node, nodes = on.split(":")
    standard = cluster(f"{node}:{int(nodes) * max(counts)}")
    machines = cluster(f"{node}:{int(nodes) * max(counts)}", memory=share * standard.accelerator.memory)
    held = " ".join(pin for pin in HELD.split() if pin.partition("=")[0] + "=" not in pins)
    return prepare(CATALOG, request(model, machines, counts=tuple(int(nodes) * n for n in counts), batches=(batch,),
                                    pins=f"{held} {pins}", price=PRICE, **more))  # fmt: skip


def _listed(posed: dict[str, SearchProblem]) -> Enumerated:
    parts = []
    for index, block in enumerate(posed["time"].blocks):
        step = cost.evaluate(posed["time"].grid(index))
        time = np.broadcast_to(step.time, block.shape)
        options = [block.axes.at(place) for place in np.ndindex(*block.axes.shape)]
        degrees = np.array([[block.rows[axis][row] for axis in DEGREES] for row in range(block.height)])
        moved = [o[OFFLOAD] not in (0.0, 1.0) or o[OFFLOAD_OVERLAP] or bool(o[ACTIVATION_OFFLOAD]) for o in options]
        again = [f"{o[PRECISION]} {o[RECOMPUTE].name}" for o in options]
        parts.append((
            *(time.ravel() * np.tile(whole.targets[index].weight, len(options)) for whole in posed.values()),
            time.ravel(),
            np.broadcast_to(step.memory, block.shape).ravel(),
            np.tile(degrees, (len(options), 1)),
            np.repeat(again, block.height),
            np.repeat(moved, block.height),
        ))  # fmt: skip
    return Enumerated(*(np.concatenate(column) for column in zip(*parts, strict=True)), posed["time"])


@cache
def enumerated(name: str, batch: int, counts: tuple[int, ...]) -> tuple[Enumerated, Enumerated]:
    """The base space, and the space of all levers, without a limit, each candidate costed."""
    base, every = {}, {}
    for objective in OBJECTIVES[:3]:
        prepared = asked(name, batch, counts, objective=objective)
        free = levers_of(prepared)
        base[objective] = problem(prepared, 1)
        every[objective] = wave(prepared, legal_rows(prepared), free.pins(prepared.request.pins, free.added))
    return _listed(base), _listed(every)


def _value(space: Enumerated, objective: str) -> np.ndarray:
    return {"time": space.seconds, "energy": space.joules}.get(objective, space.usd)


def rows_of(space: Enumerated, value: np.ndarray, able: np.ndarray) -> list[float]:
    """Values of the rows of a table, best first: none beats another of the same degrees in time and memory, and of
    those that share what is recomputed, too, the best stands for all.
    """
    kept: dict[tuple[object, ...], list[int]] = {}
    rows: dict[tuple[object, ...], float] = {}
    for n in sorted(np.flatnonzero(able), key=lambda n: value[n]):
        precision, _, again = space.recompute[n].partition(" ")
        rivals = kept.setdefault((precision, *space.degrees[n]), [])
        if all(space.memory[rival] > space.memory[n] for rival in rivals):
            rivals.append(n)
            rows.setdefault((precision, *space.degrees[n], again), value[n])
    return list(rows.values())


def plainer(prepared: Prepared, space: Enumerated, n: int, step_s: float) -> float:
    """Share by which a candidate is slower without kernels and graphs that together make less than a tie."""
    blocks = space.posed.blocks
    ends = np.cumsum([block.size for block in blocks])
    index = int(np.searchsorted(ends, n, side="right"))
    candidate = decode(space.posed, index, n - int(ends[index]) + blocks[index].size, 0.0, step_s, 0.0)
    options, slowest = candidate.options, step_s
    for axis in (ATTENTION_KERNEL, GRAPHS):
        without = options.replaced(**{axis.name: axis.neutral})
        step = cost.evaluate(single_grid(prepared.figures, candidate.layout, without))
        if step.time <= (1 + TIED) * step_s and step.memory <= prepared.usable:
            options, slowest = without, float(step.time)
    return slowest / step_s


def tables(
    prepared: Prepared, spaces: tuple[Enumerated, Enumerated], able: tuple[np.ndarray, ...]
) -> list[list[float]]:
    """Values of the five rows, one list for each of equally good candidates: what levers bring, with host memory and
    without, before the base space's rows.
    """
    base, every = spaces
    objective = prepared.request.objective
    plain = rows_of(base, _value(base, objective), able[0])[:5]
    value = _value(every, objective)
    device = np.flatnonzero(able[1] & ~every.on_host)
    host = np.min(value[able[1]], initial=np.inf)
    best = np.min(value[device], initial=np.inf)
    better = best < min([np.inf, *plain])
    limited = prepared.request.deadline_s is not None or prepared.request.max_cost_usd is not None
    listed = []
    for n in device[value[device] <= best * (1 + 1e-12)] if better else [-1]:
        rows = list(plain)
        brought = [np.inf] if n < 0 else [best]
        if n >= 0 and not limited:
            slower = best * plainer(prepared, every, n, every.step_s[n])
            if not rows or slower <= (1 - TIED) * rows[0]:
                brought = [slower]
        for one in (*brought, host if host < min([best, *plain]) else np.inf):
            if np.isfinite(one) and not (rows and one > (1 - TIED) * rows[0]):
                rows.insert(0, one)
        listed.append(rows[:5])
    return listed


@sweep(("name", "batch", "counts", "objective", "limits", "risk", "share", "kept"), CASES, every=91, ci=91)
def test_five_best_are_those_of_an_enumeration(name, batch, counts, objective, limits, risk, share, kept):
    """Whatever is sought, within a deadline, a budget or both that leave some candidates, or one, at some OOM risk."""
    spaces = enumerated(name, batch, counts)
    asks = {"objective": objective, "oom_risk": risk}
    within = asked(name, batch, counts, share, **asks).usable
    every = spaces[1]
    fits = every.memory <= within
    bounds: dict[str, float] = {}
    for limit, spent in (("deadline", every.seconds), ("budget", every.usd)):
        if limits in (limit, "both") and fits.any():
            bounds[limit] = float(np.quantile(spent[fits], kept, method="lower")) * (1 + 1e-9)
    prepared = asked(name, batch, counts, share, **asks, deadline_s=bounds.get("deadline"),
                     max_cost_usd=bounds.get("budget"))  # fmt: skip
    able = tuple(
        (space.memory <= within)
        & (space.seconds <= bounds.get("deadline", np.inf))
        & (space.usd <= bounds.get("budget", np.inf))
        for space in spaces
    )

    listed = [candidate.value for candidate in ranked.search(CATALOG, prepared, top=5).found.best]

    expected = tables(prepared, spaces, able)
    assert any(listed == pytest.approx(rows, rel=1e-12) for rows in expected), (listed, expected)
