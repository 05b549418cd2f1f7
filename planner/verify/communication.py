"""Communication rules: every call has one answer, the choice that is told is theirs, and its gain adds up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from planner.schema.plan import CommunicationRule
from planner.verify.finding import TOLERANCE, Check, Claim

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-recv")
GROUPS = ("tp", "cp", "ep", "etp", "dp", "dp-replicas", "edp", "edp-replicas", "pp")


def rules_have_one_answer(c: Claim) -> Iterator[str]:
    """Rules of one operation and group size never name two back ends for the same bytes: ranks know no more of a call.

    Rules of before 2026-12 name no ranks; they hold for any, and are told apart by their group as well.
    """
    rules = c.plan.communication
    for rule in rules:
        if rule.bytes_min > rule.bytes_max:
            yield f"{_named(rule)}: from {rule.bytes_min:g} to {rule.bytes_max:g} bytes is no range"
        if rule.ranks is not None and rule.ranks < 2:
            yield f"{_named(rule)}: a group of {rule.ranks} makes no calls"
        if rule.pools is not None and not set(rule.pools) <= set(range(len(c.plan.cluster.pools))):
            yield f"{_named(rule)}: there is no such pool as {max(rule.pools, default=0) + 1}"
        if not rule.backend:
            yield f"{_named(rule)}: no back end"
    known = [rule for rule in rules if rule.ranks is not None]
    for rule in known:
        if rule.op not in OPERATIONS or rule.group not in GROUPS:
            yield f"{_named(rule)}: there is no such call"
    for one, other in combinations(known, 2):
        meet = max(one.bytes_min, other.bytes_min) <= min(one.bytes_max, other.bytes_max)
        same_pools = one.pools is None or other.pools is None or set(one.pools) == set(other.pools)
        if meet and same_pools and (one.op, one.ranks) == (other.op, other.ranks) and _how(one) != _how(other):
            yield f"{_named(one)} and {_named(other)} hold for the same calls and differ"


def _how(rule: CommunicationRule) -> tuple[str, str, str]:
    return rule.backend, rule.algorithm, rule.protocol


def _named(rule: CommunicationRule) -> str:
    ranks = "" if rule.ranks is None else f" of {rule.ranks} ranks"
    return f"rule for {rule.op}{ranks} in {rule.group} by {rule.backend or 'nothing'}"


def choice_is_what_rules_say(c: Claim) -> Iterator[str]:
    """Each call that is told falls under a rule that names its choice; live back ends are those of the choices."""
    choice, rules = c.plan.communication_choice, c.plan.communication
    if choice is None:
        return
    for call in choice.calls:
        held = [
            rule
            for rule in rules
            if (rule.op, rule.group, rule.ranks) == (call.op, call.group, call.ranks)
            and rule.pools in (None, call.pools)
            and rule.bytes_min <= call.bytes <= rule.bytes_max
        ]
        what = f"{call.op} of {call.bytes:.6g} bytes in {call.group}"
        if len(held) != 1:
            yield f"{what} falls under {len(held)} rules"
        elif _spelt(held[0]) != call.choice:
            yield f"{what} is listed with {call.choice}, but by the rules it uses {_spelt(held[0])}"
    used = {call.choice.split(" ")[0] for call in choice.calls}
    if set(choice.live) != used or len(choice.live) > choice.most or (choice.calls and choice.base == ""):
        yield f"live are {', '.join(choice.live)} of at most {choice.most}; the calls use {', '.join(sorted(used))}"


def rules_are_for_calls(c: Claim) -> Iterator[str]:
    """Rules of a told choice are for its calls' operations and groups, by a back end that is live or the base: other
    sizes than the plan's get one of these too.
    """
    choice = c.plan.communication_choice
    if choice is None:
        return
    called = {(call.op, call.group, call.ranks) for call in choice.calls}
    for rule in c.plan.communication:
        if (rule.op, rule.group, rule.ranks) not in called:
            yield f"{_named(rule)}: the plan makes no such call"
        elif rule.backend not in {*choice.live, choice.base}:
            yield f"{_named(rule)}: live are {', '.join(choice.live)}"


def calls_add_up(c: Claim) -> Iterator[str]:
    """``0 <= saved_s <= step (1 - alone_s / base_s)``; what leaves the base does so for more than the margin; the model
    alone saves nothing, and a table has a digest.
    """
    choice = c.plan.communication_choice
    step = c.plan.prediction.step_time_s
    if choice is None:
        return
    if not choice.modelled and not choice.sha256:
        yield f"no digest of the table {choice.table!r}"
    for call in choice.calls:
        what = f"{call.op} of {call.bytes:.6g} bytes in {call.group}"
        if not (call.ranks > 1 and call.count > 0 and call.bytes > 0 and call.alone_s > 0 and call.base_s > 0):
            yield f"{what}: {call.ranks} ranks, {call.count:g} calls, {call.alone_s:g} s each, {call.base_s:g} s"
            continue
        pools = set(call.pools or ())
        if not pools <= set(range(len(c.plan.cluster.pools))) or (call.pools is not None and not pools):
            yield f"{what}: there are no such pools as {', '.join(str(i + 1) for i in sorted(pools)) or 'none'}"
        most = step * max(1.0 - call.alone_s / call.base_s, 0.0)
        if not -TOLERANCE * step <= call.saved_s <= most + TOLERANCE * step:
            yield f"{what}: {call.saved_s:.9g} s of the step are saved, at most {most:.9g} can be"
        if call.alone_s > call.base_s * (1.0 + TOLERANCE):
            yield f"{what}: {call.choice} takes {call.alone_s:.9g} s, longer than {choice.base}, {call.base_s:.9g}"
        left = call.choice.partition(" ")[0] != choice.base
        if left and call.alone_s * (1.0 + choice.margin) > call.base_s * (1.0 + TOLERANCE):
            yield f"{what}: {call.choice} gains less than the margin of {choice.margin:g}"
        if choice.modelled and (call.saved_s or call.alone_s != call.base_s):
            yield f"{what}: a gain that was not measured"


def _spelt(rule: CommunicationRule) -> str:
    how = "/".join(word for word in (rule.algorithm, rule.protocol) if word)
    return f"{rule.backend} {how}" if how else rule.backend


def gain_adds_up(c: Claim) -> Iterator[str]:
    """``step_time_s = prediction - saved_s``, and ``0 <= saved_s <= sum(saved_s of the calls) <= prediction``."""
    choice = c.plan.communication_choice
    step = c.plan.prediction.step_time_s
    if choice is None:
        return
    near = TOLERANCE * step
    if abs(choice.step_time_s - (step - choice.saved_s)) > near:
        yield f"the step takes {choice.step_time_s:.9g} s, {step - choice.saved_s:.9g} follow from what is saved"
    calls = sum(call.saved_s for call in choice.calls)
    if not -near <= choice.saved_s <= calls + near or calls > step:
        yield f"{choice.saved_s:.9g} s are saved, by the calls {calls:.9g} of {step:.9g}"


CHECKS: tuple[Check, ...] = (
    rules_have_one_answer, choice_is_what_rules_say, rules_are_for_calls, calls_add_up, gain_adds_up
)  # fmt: skip
