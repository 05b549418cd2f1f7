"""From a plan's calls and a table to rules: which back end, algorithm and protocol every class of calls uses.

A class is an operation, a group's size and a power of two of bytes: what a rule can tell apart on every rank alike. A
class leaves the base (the best single back end) only for a gain beyond a margin and beyond the spread of the
measurements; and all of them together only if they would have gained on rounds that they were not chosen on.

The integer program of which candidate every class of calls uses, for its least seconds of a step::

    minimise   sum_c sum_k seconds[c,k] x[c,k]  +  sum_pairs switch[c,d] s[c,d]
    one_c          sum_k x[c,k] = 1
    live_c_b       x[c,k] <= y[b]        for every candidate k of back end b
    most           sum_b y[b] <= K
    memory, sms    sum_b cost[b] y[b] <= what there is (the base's own is in the plan already)
    one_mpi        sum of y over MPI libraries <= 1: a process loads one
    switch_c_d_b   s[c,d] >= sum_{k of b} x[c,k] - sum_{k of b} x[d,k]   where d follows c
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from planner.base.errors import NoAnswer, WrongQuestion
from planner.base.solver import Problem, total
from planner.comm.routing.rules import spelt
from planner.comm.tables import nccl_methods
from planner.comm.tables.measured_times import CollectiveMethod, TimesTable, student
from planner.comm.tables.timing import Time, times
from planner.cost.calls import Call
from planner.schema.plan import CallChoice, CommunicationRule

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


MARGIN = 0.2
"""Gain below which a call stays: on loaded CPUs trained choices were off by as much on rounds not seen."""
SWITCH_S = 20e-6
"""Seconds of a host synchronisation between two back ends: assumed, a few launches and an event."""
ROUTED = ("gloo", "nccl", "mpi", "mpich", "openmpi", "mvapich")
MPI = frozenset({"mpi", "mpich", "openmpi", "mvapich"})
LIVE = {"nccl": Live(512 * 2.0**20, 16)}
"""What a back end costs by being there, assumed: NCCL's channels; Gloo and MPI live on the host."""
LARGEST = 2**40
"""Bytes up to which the last rule of an operation holds."""
OTHER_SIZES = tuple(4**n for n in range(4, 18))
"""Bytes, 256 B to 16 GiB, at which rules are looked for where the plan has no calls."""
LEAST_ROUNDS = 4
"""Rounds from which on a choice is tried on those held back."""

Times = Callable[[Call], Mapping[CollectiveMethod, Time]]


@dataclass(frozen=True, kw_only=True)
class ChooseOptions:
    """What a choice has to keep."""

    most: int = 2
    margin: float = MARGIN
    switch_s: float = SWITCH_S
    launcher: str = "router"
    """``router``: what :mod:`planner.comm.routing` loads; ``nccl-tuner``: NCCL alone."""
    free: Mapping[str, float] = field(default_factory=dict)
    live: Mapping[str, Live] = field(default_factory=lambda: LIVE)


@dataclass(frozen=True)
class Chosen:
    """The answer."""

    rules: tuple[CommunicationRule, ...]
    calls: tuple[CallChoice, ...]
    base: str
    live: tuple[str, ...]
    gap: float
    saved_s: float
    """Seconds saved in a step, after the cost of switches."""
    held_back: float | None
    """Upper end of the 95 % interval of mixed over base on rounds that it was not chosen on; None: too few rounds."""
    fell_back: bool
    """Whether a mixture was found and not trusted."""
    off_critical_path: bool = False
    """Whether one was found that gains only where the step does not wait: in other pipelines than the slowest."""


def expresses(launcher: str, op: str, who: CollectiveMethod) -> bool:
    """Whether a launcher can be told to use a candidate for an operation."""
    if who.backend != "nccl" and (launcher != "router" or who.backend not in ROUTED):
        return False
    forced = bool(who.algorithm or who.protocol)
    return not forced or (who.backend == "nccl" and nccl_methods.has(op, who.algorithm, who.protocol))


def choose(calls: Sequence[Call], table: TimesTable | MeasuredTables, asked: ChooseOptions, where: str) -> Chosen:
    """Rules for a plan's calls by what was measured.

    Raises:
        WrongQuestion: no single back end of the table has all operations of the plan.
        NoAnswer: no choice keeps the limits.
    """
    measured = OneTable(table) if isinstance(table, TimesTable) else table
    question = _Question(tuple(calls), measured.look_up, asked, where)
    choice = question.solved()
    held_back = _held_back(question, measured, asked, where)
    mixes = any(k != question.base[question.ops[c]] for c, k in enumerate(choice.candidates))
    fell_back = mixes and held_back is not None and held_back >= 1.0
    if fell_back:
        kept = tuple(question.base[op] for op in question.ops)
        choice = BackEndChoice(kept, value(question.instance, kept), 0.0)
    return _chosen(question, choice, held_back, fell_back)


def pin(calls: Sequence[Call], look_up: Times) -> Chosen:
    """Rules that name the fastest by times that nobody measured: a start without a table, which claims no gain.

    The base is the same choice, since the plan's own times take every call to be the library's best.
    """
    known = [look_up(call) for call in calls]
    chosen_of: dict[int, CollectiveMethod] = {}
    for members in _classes(calls):
        able = set.intersection(*(set(known[i]) for i in members))
        best = min(sorted(able), key=lambda k: sum(calls[i].count * known[i][k].seconds for i in members))
        chosen_of |= dict.fromkeys(members, best)
    return Chosen(
        rules=_rules(calls, chosen_of, lambda call: _fastest(look_up(call))),
        calls=tuple(_call(calls[i], known[i], who, known[i][who]) for i, who in sorted(chosen_of.items())),
        base="nccl",
        live=tuple(sorted({who.backend for who in chosen_of.values()})),
        gap=0.0,
        saved_s=0.0,
        held_back=None,
        fell_back=False,
    )


class MeasuredTables(Protocol):
    """Measured times: one table, or one for each pool (:class:`planner.comm.tables.timing.PoolTables`)."""

    @property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of the rounds that every row has."""

    def of_rounds(self, rounds: Iterable[int]) -> MeasuredTables:
        """The tables with the rows of these rounds only."""

    def look_up(self, call: Call) -> Mapping[CollectiveMethod, Time]:
        """What each candidate takes for a call."""


@dataclass(frozen=True, slots=True)
class OneTable:
    """One table of times, wherever a call runs."""

    table: TimesTable

    @property
    def rounds(self) -> tuple[int, ...]:
        """Numbers of the rounds in the table."""
        return self.table.rounds

    def of_rounds(self, rounds: Iterable[int]) -> OneTable:
        """The rows of some rounds."""
        return OneTable(self.table.of_rounds(rounds))

    def look_up(self, call: Call) -> Mapping[CollectiveMethod, Time]:
        """What each candidate takes for a call."""
        return times(self.table, call.op, call.ranks, call.bytes)


class _Question:
    """Classes of calls, the base, and the program over them."""

    def __init__(self, calls: tuple[Call, ...], look_up: Times, asked: ChooseOptions, where: str) -> None:
        self.calls, self.asked, self.look_up = calls, asked, look_up
        self.times = [_expressible(look_up(call), call, asked) for call in calls]
        self.classes = _classes(calls)
        self.ops = [calls[members[0]].op for members in self.classes]
        self.backend, self.base = _base(calls, self.times, where)
        self.instance = BackEndInstance(
            seconds=[self._seconds(members) for members in self.classes],
            follows=self._follows(),
            most=asked.most,
            free=asked.free,
            live=asked.live,
            base=self.backend,
            libraries=MPI,
        )

    def solved(self) -> BackEndChoice:
        choice = solve(self.instance)
        if choice is None:
            raise NoAnswer(f"no choice of at most {self.asked.most} back ends keeps the limits")
        return choice

    def of_base(self, index: int) -> Time:
        return self.times[index][self.base[self.calls[index].op]]

    def share(self, index: int, who: CollectiveMethod) -> float:
        """Time of a call by a candidate over that by the base."""
        return self.times[index][who].seconds / self.of_base(index).seconds

    def _seconds(self, members: Sequence[int]) -> dict[CollectiveMethod, float]:
        """Seconds of the step by candidate: what shows of the calls, in proportion to their time."""
        default = self.base[self.calls[members[0]].op]
        by_method = {default: sum(self.calls[i].exposed_s for i in members)}
        if by_method[default] <= 0:
            return by_method
        for who in set.intersection(*(set(self.times[i]) for i in members)) - {default}:
            seconds = sum(self.calls[i].exposed_s * self.share(i, who) for i in members)
            if all(_gains(self.times[i][who], self.of_base(i), self.asked.margin) for i in members):
                by_method[who] = seconds
        return dict(sorted(by_method.items()))

    def elsewhere(self, call: Call, live: Collection[str]) -> CollectiveMethod:
        """What a call of a size that the plan has not would use of the back ends that are live; the base unless a gain
        was measured.
        """
        known = _expressible(self.look_up(call), call, self.asked)
        base = self.base[call.op]
        able = {k: time for k, time in known.items() if k.backend in live and not time.extrapolated}
        gained = {k: time for k, time in able.items() if _gains(time, known[base], self.asked.margin)}
        return _fastest(gained) if gained else base

    def _follows(self) -> dict[tuple[int, int], float]:
        """Classes in the order of the step, round to the first again: there and back, as often as the rarer."""
        class_of = {i: c for c, members in enumerate(self.classes) for i in members}
        follows: dict[tuple[int, int], float] = {}
        for i, call in enumerate(self.calls):
            j = (i + 1) % len(self.calls)
            pair = (min(class_of[i], class_of[j]), max(class_of[i], class_of[j]))
            if pair[0] != pair[1]:
                often = min(call.count, self.calls[j].count)
                follows[pair] = follows.get(pair, 0.0) + 2.0 * often * self.asked.switch_s
        return follows


def _expressible(
    times: Mapping[CollectiveMethod, Time], call: Call, asked: ChooseOptions
) -> dict[CollectiveMethod, Time]:
    return {who: time for who, time in times.items() if expresses(asked.launcher, call.op, who)}


def _classes(calls: Sequence[Call]) -> list[list[int]]:
    """Calls that one rule covers: operation, ranks, pools (where they differ), and a power of two of bytes."""
    classes: dict[tuple[str, int, tuple[int, ...], int], list[int]] = {}
    for index, call in enumerate(calls):
        classes.setdefault((call.op, call.ranks, call.pools, _power(call.bytes)), []).append(index)
    return list(classes.values())


def _power(size: float) -> int:
    """The power of two that a size has reached."""
    return math.floor(math.log2(max(size, 1.0)))


def _fastest(known: Mapping[CollectiveMethod, Time]) -> CollectiveMethod:
    return min(known, key=lambda k: (known[k].seconds, k))


def _gains(mine: Time, base: Time, margin: float) -> bool:
    """Whether a candidate gains more than the margin, and its interval lies below the base's."""
    clear = mine.seconds * (1 + mine.spread) < base.seconds * (1 - base.spread)
    return clear and mine.seconds * (1 + margin) < base.seconds


def _base(
    calls: Sequence[Call], options: Sequence[Mapping[CollectiveMethod, Time]], where: str
) -> tuple[str, dict[str, CollectiveMethod]]:
    """The best single back end, with one algorithm and protocol for each operation."""
    best: tuple[float, str, dict[str, CollectiveMethod]] | None = None
    lacking = []
    for backend in sorted({who.backend for known in options for who in known}):
        picked = {}
        total = 0.0
        for op in dict.fromkeys(call.op for call in calls):
            mine = [i for i, call in enumerate(calls) if call.op == op]
            able = [k for k in options[mine[0]] if k.backend == backend and all(k in options[i] for i in mine)]
            if not able:
                lacking.append(f"{backend} has no {op}{_where(backend, [(calls[i], options[i]) for i in mine])}")
                break
            shown = {k: sum(_shown(calls[i]) * options[i][k].seconds for i in mine) for k in able}
            picked[op] = min(able, key=lambda k: (shown[k], k))
            total += shown[picked[op]]
        else:
            if best is None or total < best[0]:
                best = (total, backend, picked)
    if best is None:
        ops = ",".join(dict.fromkeys(call.op for call in calls))
        why = "; ".join(lacking) or "it has none that this launcher can use"
        into = "TABLE.csv" if "=" in where else where
        raise WrongQuestion(
            f"{where}: no single back end of it has every operation of the plan ({why}); measure them: "
            f"clusterwright comm tune --ops {ops} -o {into}"
        )
    return best[1], best[2]


def _where(backend: str, asked: Sequence[tuple[Call, Mapping[CollectiveMethod, Time]]]) -> str:
    """The pools on which the first call stands that a back end cannot do, where a plan has several."""
    for call, known in asked:
        if call.pools and all(who.backend != backend for who in known):
            return f" on pool {'/'.join(str(i + 1) for i in call.pools)}"
    return ""


def _shown(call: Call) -> float:
    """Calls a step, weighted by what of them shows."""
    return call.count * (call.exposed_s / call.alone_s if call.alone_s else 0.0)


# ---- rounds held back ------------------------------------------------------------------------------------------------


def _held_back(question: _Question, table: MeasuredTables, asked: ChooseOptions, where: str) -> float | None:
    """Chosen on all rounds but one, tried on that one, for each: the upper end of the interval of mixed over base.

    ``exp(mean + t s / sqrt(n))`` over the logarithms of the ratios.
    """
    rounds = table.rounds
    if len(rounds) < LEAST_ROUNDS:
        return None
    logs = []
    for left in rounds:
        tried = table.of_rounds([left])
        try:
            taught = _Question(question.calls, table.of_rounds(set(rounds) - {left}).look_up, asked, where)
            question_of_tried = _Question(question.calls, tried.look_up, asked, where)
        except WrongQuestion:
            return None
        chosen = taught.solved().candidates
        mixed = _weighed(question_of_tried, taught, chosen)
        alone = _weighed(question_of_tried, taught, [taught.base[op] for op in taught.ops])
        if mixed is None or alone is None:
            return None
        logs.append(math.log(mixed / alone))
    return math.exp(_upper(logs))


def _weighed(other: _Question, taught: _Question, chosen: Sequence[CollectiveMethod]) -> float | None:
    """Seconds by a round's own times of what shows, weighted as the model shows it."""
    total = 0.0
    for members, who in zip(taught.classes, chosen, strict=True):
        for i in members:
            if who not in other.times[i]:
                return None
            total += _shown(other.calls[i]) * other.times[i][who].seconds
    switched = sum(s for (c, d), s in taught.instance.follows.items() if chosen[c].backend != chosen[d].backend)
    return total + switched


def _upper(logs: Sequence[float]) -> float:
    """Upper end of the 95 % interval of a mean."""
    n = len(logs)
    mean = sum(logs) / n
    deviation = math.sqrt(sum((value - mean) ** 2 for value in logs) / (n - 1))
    return mean + student(n - 1) * deviation / math.sqrt(n)


# ---- rules -----------------------------------------------------------------------------------------------------------


def _chosen(question: _Question, choice: BackEndChoice, held_back: float | None, fell_back: bool) -> Chosen:
    chosen_of = {i: who for members, who in zip(question.classes, choice.candidates, strict=True) for i in members}
    live = {who.backend for who in choice.candidates}
    before = sum(call.exposed_s for call in question.calls)
    return Chosen(
        rules=_rules(question.calls, chosen_of, lambda call: question.elsewhere(call, set() if fell_back else live)),
        calls=tuple(
            _call(question.calls[i], question.times[i], who, question.of_base(i))
            for i, who in sorted(chosen_of.items())
        ),
        base=question.backend,
        live=tuple(sorted(live)),
        gap=choice.gap,
        saved_s=before - choice.seconds,
        held_back=held_back,
        fell_back=fell_back,
    )


def _call(call: Call, known: Mapping[CollectiveMethod, Time], who: CollectiveMethod, base: Time) -> CallChoice:
    others = sorted((time.seconds, k) for k, time in known.items() if k != who)
    mine = known[who]
    return CallChoice(
        op=call.op,
        group=call.group,
        ranks=call.ranks,
        bytes=call.bytes,
        count=call.count,
        choice=named(who),
        runner_up=named(others[0][1]) if others else "",
        alone_s=mine.seconds,
        base_s=base.seconds,
        extrapolated=mine.extrapolated or base.extrapolated,
        saved_s=call.exposed_s * (1.0 - mine.seconds / base.seconds),
    )


def named(who: CollectiveMethod) -> str:
    """A back end with its algorithm and protocol in words."""
    return spelt(who.backend, who.algorithm, who.protocol)


def _rules(
    calls: Sequence[Call], chosen_of: Mapping[int, CollectiveMethod], elsewhere: Callable[[Call], CollectiveMethod]
) -> tuple[CommunicationRule, ...]:
    """Ranges of bytes without holes for every operation and group size: borders halfway, in ratio, between classes.

    Sizes that the plan does not call (loss and norm reductions, say) get what `elsewhere` says is best for them.
    """
    rules: list[CommunicationRule] = []
    for kind in dict.fromkeys(map(_kind, calls)):
        held = [i for i, call in enumerate(calls) if _kind(call) == kind]
        first = calls[held[0]]
        mine = [(calls[i].bytes, chosen_of[i]) for i in held]
        near = {_power(size) for size, _ in mine}
        free = (float(size) for size in OTHER_SIZES if _power(size) not in near)
        mine += [(size, elsewhere(replace(first, bytes=size))) for size in free]
        mine.sort()
        groups = dict.fromkeys(calls[i].group for i in held)
        for low, high, who in _ranges(mine):
            rules += [
                CommunicationRule(
                    op=first.op,
                    group=group,
                    ranks=first.ranks,
                    bytes_min=float(low),
                    bytes_max=float(high),
                    backend=who.backend,
                    algorithm=who.algorithm,
                    protocol=who.protocol,
                    pools=first.pools or None,
                )
                for group in groups
            ]
    return tuple(rules)


def _kind(call: Call) -> tuple[str, int, tuple[int, ...]]:
    return call.op, call.ranks, call.pools


def _ranges(mine: Sequence[tuple[float, CollectiveMethod]]) -> list[tuple[int, int, CollectiveMethod]]:
    ranges: list[tuple[int, int, CollectiveMethod]] = []
    start = 0
    for (size, who), (following, other) in zip(mine, [*mine[1:], (0.0, None)], strict=True):
        if other == who:
            continue
        end = LARGEST if other is None else max(math.isqrt(int(size) * int(following)), math.ceil(size))
        ranges.append((start, end, who))
        start = end + 1
    return ranges
