"""Which candidate every class of calls uses: an integer program, for its least seconds of a step.

minimise   sum_c sum_k seconds[c,k] x[c,k]  +  sum_pairs switch[c,d] s[c,d]
one_c          sum_k x[c,k] = 1
live_c_b       x[c,k] <= y[b]        for every candidate k of back end b
most           sum_b y[b] <= K
memory, sms    sum_b cost[b] y[b] <= what there is (the base's own is in the plan already)
one_mpi        sum of y over MPI libraries <= 1: a process loads one
switch_c_d_b   s[c,d] >= sum_{k of b} x[c,k] - sum_{k of b} x[d,k]   where d follows c
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.comm.tables.measured_times import CollectiveMethod
from planner.solver import Problem, total

GAP = 1e-9
"""Relative gap at which the solver may stop."""


@dataclass(frozen=True, slots=True)
class Live:
    """What a back end costs by being there."""

    memory: float = 0.0
    """Bytes on every accelerator."""
    sms: int = 0
    """Streaming multiprocessors that its kernels keep busy."""


@dataclass(frozen=True, slots=True)
class BackEndInstance:
    """Classes of calls, what each could use, and what may be live."""

    seconds: Sequence[Mapping[CollectiveMethod, float]]
    """By class: candidate -> seconds of the step. Only candidates that may be used."""
    follows: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """``(c, d)`` -> seconds a step that it takes if d, which follows c, has another back end."""
    most: int = 2
    free: Mapping[str, float] = field(default_factory=dict)
    """``memory`` and ``sms`` -> what there is beyond the base."""
    live: Mapping[str, Live] = field(default_factory=dict)
    base: str = ""
    """The back end that the plan is predicted with: it costs nothing more."""
    libraries: frozenset[str] = frozenset()
    """Back ends of which a process can have one."""

    @property
    def backends(self) -> tuple[str, ...]:
        """Names of all back ends that some class of calls could use, sorted."""
        return tuple(sorted({k.backend for second in self.seconds for k in second}))


@dataclass(frozen=True, slots=True)
class BackEndChoice:
    """One candidate a class."""

    candidates: tuple[CollectiveMethod, ...]
    seconds: float
    gap: float
    """How much better, at most, another choice could be (relative)."""


def value(instance: BackEndInstance, chosen: Sequence[CollectiveMethod]) -> float:
    """Seconds of a step in calls with `chosen`, one candidate for each class, and in switches of back end."""
    total = sum(options[k] for options, k in zip(instance.seconds, chosen, strict=True))
    return total + sum(s for (c, d), s in instance.follows.items() if chosen[c].backend != chosen[d].backend)


def allowed(instance: BackEndInstance, chosen: Sequence[CollectiveMethod]) -> bool:
    """Whether `chosen`, one candidate for each class, keeps the limits on back ends, memory and SMs."""
    used = {k.backend for k in chosen}
    more = [instance.live.get(name, Live()) for name in used - {instance.base}]
    return (
        len(used) <= instance.most
        and len(used & instance.libraries) <= 1
        and sum(pair.memory for pair in more) <= instance.free.get("memory", float("inf"))
        and sum(pair.sms for pair in more) <= instance.free.get("sms", float("inf"))
    )


def solve(instance: BackEndInstance) -> BackEndChoice | None:
    """The choice with the fewest seconds that keeps the limits, by an integer program; None where none does."""
    asked = Problem()
    y = {name: asked.binary(f"live_{name}") for name in instance.backends}
    x = [{k: asked.binary(f"use_{c}_{i}") for i, k in enumerate(options)} for c, options in enumerate(instance.seconds)]
    pairs = {p: asked.continuous(f"switch_{p[0]}_{p[1]}", high=1) for p in instance.follows}
    spent = [seconds * x[c][k] for c, options in enumerate(instance.seconds) for k, seconds in options.items()]
    asked.minimise(total(spent) + total(s * pairs[p] for p, s in instance.follows.items()))
    for c, options in enumerate(x):
        asked.constrain(total(options.values()) == 1, f"one_{c}")
        for i, (k, used) in enumerate(options.items()):
            asked.constrain(used <= y[k.backend], f"live_{c}_{i}")
    asked.constrain(total(y.values()) <= instance.most, "most")
    more = {name: instance.live.get(name, Live()) for name in y if name != instance.base}
    for what, limit in instance.free.items():
        asked.constrain(total(float(getattr(options, what)) * y[name] for name, options in more.items()) <= limit, what)
    asked.constrain(total(y[name] for name in y if name in instance.libraries) <= 1, "one_mpi")
    for (c, d), switched in pairs.items():
        for name in instance.backends:
            using = [total(v for k, v in x[i].items() if k.backend == name) for i in (c, d)]
            asked.constrain(switched >= using[0] - using[1], f"switch_{c}_{d}_{name}")
    solved = asked.solve(gap=GAP)
    if not solved.status.found:
        return None
    chosen = tuple(max(options, key=lambda k: solved.value(options[k])) for options in x)
    value_s = value(instance, chosen)
    bound = solved.objective * (1 - GAP)
    return BackEndChoice(chosen, value_s, max(value_s - bound, 0.0) / max(value_s, 1e-30))
