"""Values of axes that are more than a word or a number: their records, and how a person writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from itertools import product

from planner.base.errors import WrongQuestion, nearest
from planner.schema import hardware
from planner.schema.plan import RankOrder, Schedule

EVERYWHERE = "full"
"""Whose ranks share one copy where all do."""
SCOPES = (EVERYWHERE, "node")
"""Without those that name a count of nodes (:func:`zero_scope`)."""
ALONE = "none"
"""How sequences are shared where no ranks share them."""
ONE_F_ONE_B = "1f1b"
"""How passes follow each other where nothing else is said; interleaved where there are several chunks."""
SPLIT_SCHEDULES: dict[str, float] = {"zero-bubble": 1.0, "interleaved-zero-bubble": 1.0, "zbv": 2.0, "dualpipe-v": 3.0}
"""Schedules that compute weight gradients apart, and :mod:`planner.cost.split_schedules`'s figure for each."""
FOLDED = ("zbv", "dualpipe-v")
"""Of these, the ones whose ranks hold a stage from either end."""
RANK_ORDERS: tuple[RankOrder, RankOrder] = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")


@dataclass(frozen=True, slots=True)
class Recompute:
    """A recomputation policy: the share of layers recomputed in full, and what the rest drops: what the runtime calls
    selective, modules by name.
    """

    name: str
    layers: float
    selective: float
    modules: tuple[str, ...] = ()
    """Of :data:`MODULES`, in its order."""
    offloaded: float = 0.0
    """1: what is kept beside a layer's input lives in host memory; read from runs, not searched."""
    function_in_8_bit: float = 0.0
    """1: what MLPs' function reads is kept in 8 bit; read from runs, not searched."""


NO_RECOMPUTE = Recompute("none", 0.0, 0.0)
SELECTIVE = Recompute("selective", 0.0, 1.0)
FULL = Recompute("full", 1.0, 0.0)
FUNCTION_IN_8_BIT = Recompute("none", 0.0, 0.0, function_in_8_bit=1.0)
OFFLOADED = Recompute("selective", 0.0, 1.0, (), 1.0)
CORE_ATTENTION = "core_attn"
MODULES = {
    "layernorm": "recompute_norms",
    "moe_act": "recompute_function",
    "mla_up_proj": "recompute_latents",
    "mlp": "recompute_mlp",
    "moe": "recompute_mixture",
}
"""Module of a layer, as Megatron Core calls it -> the figure that says whether it is recomputed. ``core_attn`` is what
``selective`` alone recomputes there.
"""
WHOLE_MIXTURE = "moe"
"""The module that dispatches tokens to experts again: not beside overlapped exchanges (Megatron-LM d98e8a64,
core/transformer/transformer_config.py)."""


def recompute(name: str) -> Recompute:
    """``none``, ``selective``, ``full``, ``block:0.5`` (in full, over that share of the layers) or modules by name
    (``selective:layernorm+moe_act``).

    Raises:
        WrongQuestion: another name, a share that is not between 0 and 1, a module that is unknown or stands twice.
    """
    known = {policy.name: policy for policy in (NO_RECOMPUTE, SELECTIVE, FULL)}
    if name in known:
        return known[name]
    match = re.fullmatch(r"block:(\d*\.?\d+)", name)
    if match and 0 < float(match[1]) < 1:
        return Recompute(name, float(match[1]), 0.0)
    kind, colon, listed = name.partition(":")
    if kind == "selective" and colon:
        return modules(name, listed.split("+"))
    raise WrongQuestion(
        f"recompute={name}: choose none, selective, full, or block:SHARE with a share between 0 and 1; modules by name"
        f" are selective:MODULE+MODULE, of {', '.join((CORE_ATTENTION, *MODULES))}"
    )


def modules(stated: str, listed: Iterable[str]) -> Recompute:
    """Modules by name, in one order: ``selective:layernorm+moe_act``; ``core_attn`` alone is ``selective``.

    Raises:
        WrongQuestion: a module that is unknown or stands twice.
    """
    ordered = _in_order(f"recompute={stated}", tuple(listed), (CORE_ATTENTION, *MODULES))
    if ordered == (CORE_ATTENTION,):
        return SELECTIVE
    rest = tuple(module for module in ordered if module in MODULES)
    return Recompute(f"selective:{'+'.join(ordered)}", 0.0, float(CORE_ATTENTION in ordered), rest)


def schedule_name(schedule: str, pp: int, vpp: int) -> Schedule:
    """What a schedule is called: 1F1B with chunks is interleaved, and without stages there is none."""
    plain: Schedule = "none" if pp == 1 else "1f1b" if vpp == 1 else "interleaved-1f1b"
    return next((name for name in hardware.SPLIT_SCHEDULES if name == schedule), plain)


def _in_order(stated: str, given: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """The modules given, in the order of those known, each of them once."""
    for at, module in enumerate(given):
        if module not in known or module in given[:at]:
            near = nearest(module, known)
            wrong = "stands twice" if module in known else f"is no module; {near[0]}?" if near else "is no module"
            raise WrongQuestion(f"{stated}: {module!r} {wrong} (known: {', '.join(known)})")
    return tuple(module for module in known if module in given)


WHOLE = "all"
"""Everything that a layer keeps."""
OFFLOADED_MODULES = ("attn_norm", "qkv_linear", CORE_ATTENTION, "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
"""Modules of a layer whose inputs can live in host memory, as Megatron Core calls them."""


def activation_offload(name: str) -> tuple[str, ...]:
    """``none``, ``all``, or modules whose inputs live in host memory, in one order: ``core_attn+attn_proj``.

    Raises:
        WrongQuestion: a module that is unknown or stands twice, or ``attn_proj`` without ``core_attn``, which holds the
            same tensor (Megatron-LM core_v0.16.1, transformer_config.py, line 1287).
    """
    if name in (ALONE, WHOLE):
        return (WHOLE,) if name == WHOLE else ()
    stated = f"activation_offload={name}"
    if name.partition("+")[0] not in OFFLOADED_MODULES and "+" not in name:
        near = nearest(name, (ALONE, WHOLE, *OFFLOADED_MODULES))
        meant = f"; {near[0]}?" if near else ""
        raise WrongQuestion(
            f"{stated}: choose none, all, or modules joined by +: {', '.join(OFFLOADED_MODULES)}{meant}"
        )
    ordered = _in_order(stated, tuple(name.split("+")), OFFLOADED_MODULES)
    if "attn_proj" in ordered and CORE_ATTENTION not in ordered:
        raise WrongQuestion(f"{stated}: attn_proj holds what core_attn gives; write core_attn+attn_proj")
    return ordered


IN_PLACE = "modules in place"
"""CUDA graphs of modules that read one another's results in place; of measured runs, which do not say how they
captured."""
_CAPTURED = {
    "modules": {"graphs": 1.0, "graph_inputs": 1.0},
    IN_PLACE: {"graphs": 1.0},
    "full": {"graphs": 2.0},
}


def captured(name: str) -> Mapping[str, float]:
    """What CUDA graphs launch, as figures: nothing, attention and routers (dense MLPs, too), or all passes."""
    return _CAPTURED.get(name, {})


def zero_scope(name: str) -> str:
    """Whose ranks share one copy: ``full`` (all), ``node``, ``nodes:4``.

    Raises:
        WrongQuestion: something else, or fewer than two nodes.
    """
    known = re.fullmatch(r"full|node|nodes:(\d{1,6})", name)
    if known is None or (known[1] and int(known[1]) < 1):
        raise WrongQuestion(f"zero_scope={name}: choose full, node, or nodes:COUNT with a count of nodes (nodes:4)")
    return over_nodes(int(known[1])) if known[1] else name


def over_nodes(count: int) -> str:
    """The scope of one copy on so many nodes."""
    return "node" if count == 1 else f"nodes:{count}"


def nodes_of(scope: str) -> int:
    """Nodes whose ranks share one copy; 0 where all do."""
    return {EVERYWHERE: 0, "node": 1}[scope] if ":" not in scope else int(scope.partition(":")[2])


PART = "part"
"""Of a runtime's values of `offload`: any share of the optimizer states."""
WITH_WEIGHTS = 2.0
"""Share that stands for all optimizer states with weights and gradients (``optimizer+weights``)."""


def states_offloaded(name: str) -> float:
    """Share of the optimizer states in host memory: ``none``, ``optimizer`` (all), ``optimizer:0.5``; or
    :data:`WITH_WEIGHTS`.

    Raises:
        WrongQuestion: something else, or a share that is not between 0 and 1.
    """
    what, colon, share = name.partition(":")
    whole = {ALONE: 0.0, "optimizer": 1.0, offload_name(WITH_WEIGHTS): WITH_WEIGHTS}
    if name in whole:
        return whole[name]
    known = re.fullmatch(r"\d*\.?\d+(e-\d+)?", share)
    if what != "optimizer" or not colon or not known or not 0 < float(share) <= 1:
        raise WrongQuestion(
            f"offload={name}: {what!r} is not none, optimizer, optimizer:SHARE (optimizer:0.5) or optimizer+weights"
            if what != "optimizer"
            else f"offload={name}: choose none, optimizer, or optimizer:SHARE with a share between 0 and 1"
        )
    return float(share)


def offload_name(share: float) -> str:
    """As a pin writes it; see :func:`states_offloaded`."""
    if share > 1:
        return "optimizer+weights"
    return ALONE if share <= 0 else "optimizer" if share >= 1 else f"optimizer:{share:g}"


@dataclass(frozen=True, slots=True)
class MemoryPlacement:
    """Shares of what an accelerator holds that live in expanded memory."""

    optimizer: float = 0.0
    weights: float = 0.0
    """Parameters and gradients."""
    activations: float = 0.0
    """Those kept for the backward pass."""

    @property
    def name(self) -> str:
        """``none``, or as a pin writes it: ``optimizer+activations:0.5``."""
        shares = {kind: getattr(self, kind) for kind in PLACED}
        parts = [kind if share == 1 else f"{kind}:{share:g}" for kind, share in shares.items() if share]
        return "+".join(parts) or "none"


PLACED = ("optimizer", "weights", "activations")
"""What may live in expanded memory."""
NOWHERE = MemoryPlacement()
SHARES = (0.0, 0.5, 1.0)
"""Shares of each that are searched."""
PLACEMENTS = tuple(
    sorted(
        (MemoryPlacement(o, w, a) for o, w, a in product(SHARES, repeat=3) if o == 1 or not w),
        key=lambda placed: sum(astuple(placed)),
    )
)
"""Every placement that is searched where there is expanded memory, least first. Weights follow the optimizer states: of
each byte of those less is moved in a step."""


def placement(name: str) -> MemoryPlacement:
    """``none``, or parts joined by ``+``: optimizer, weights, activations, each whole or with its share
    (``weights:0.5``).

    Raises:
        WrongQuestion: another part, one that stands twice, or a share that is not between 0 and 1.
    """
    shares: dict[str, float] = {}
    for part in [] if name == "none" else name.split("+"):
        kind, colon, share = part.partition(":")
        right = kind in PLACED and kind not in shares and (not colon or re.fullmatch(r"\d*\.?\d+", share))
        if not right or (colon and not 0 < float(share) <= 1):
            raise WrongQuestion(
                f"placement={name}: choose none, or {', '.join(PLACED)} joined by +, each whole or with a share"
                " (weights:0.5)"
            )
        shares[kind] = float(share) if colon else 1.0
    return MemoryPlacement(**shares)
