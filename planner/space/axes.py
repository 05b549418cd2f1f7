"""The axes of a plan: which values each may take, and how a person names and pins them.

A layout (tp, pp, vpp, cp, ep, etp, dp, micro-batch, batch, nodes) is a row: which combinations exist follows from
divisibility. Everything else is an option that any layout can take; options that only exist together (sequence
parallelism and its overlap; a ZeRO stage, its scope and its overlap) form one axis.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from itertools import product

from planner.base.errors import WrongQuestion, meant, nearest
from planner.schema.plan import RankOrder, ZeroScope, ZeroStage
from planner.schema.precisions import PRECISIONS

LAYOUT_AXES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro", "batch", "nodes")
OPTION_AXES = (
    "precision",
    "recompute",
    "sequence_parallel",
    "tp_overlap",
    "zero",
    "zero_scope",
    "dp_overlap",
    "p2p_overlap",
    "ep_overlap",
    "rank_order",
    "offload",
    "placement",
)
AXES = LAYOUT_AXES + OPTION_AXES
PINNED = tuple(axis for axis in AXES if axis not in ("batch", "nodes"))
"""Axes that a pin is for; the other two have options of their own."""
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
}
"""Module of a layer, as Megatron Core calls it -> the figure that says whether it is recomputed. ``core_attn`` is what
``selective`` alone recomputes there.
"""


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
    given, known = tuple(listed), (CORE_ATTENTION, *MODULES)
    for at, module in enumerate(given):
        if module not in known or module in given[:at]:
            near = nearest(module, known)
            wrong = "stands twice" if module in known else f"is no module; {near[0]}?" if near else "is no module"
            raise WrongQuestion(f"recompute={stated}: {module!r} {wrong} (known: {', '.join(known)})")
    ordered = tuple(module for module in known if module in given)
    if ordered == (CORE_ATTENTION,):
        return SELECTIVE
    rest = tuple(module for module in ordered if module in MODULES)
    return Recompute(f"selective:{'+'.join(ordered)}", 0.0, float(CORE_ATTENTION in ordered), rest)


@dataclass(frozen=True, slots=True)
class TensorMode:
    """How tensor-parallel regions communicate."""

    sequence_parallel: bool
    overlap: bool


@dataclass(frozen=True, slots=True)
class Sharding:
    """What data-parallel ranks share, and whether their communication overlaps compute."""

    zero: ZeroStage
    scope: ZeroScope
    overlap: bool


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


@dataclass(frozen=True, slots=True)
class OptionAxes:
    """One value of every option axis: an option tuple of the grid, and what a plan reports."""

    precision: str
    recompute: Recompute
    tensor: TensorMode
    sharding: Sharding
    p2p_overlap: bool
    pp_inner: bool
    offload: bool
    placement: MemoryPlacement = NOWHERE
    ep_overlap: bool = False

    @property
    def rank_order(self) -> RankOrder:
        """The order of dimensions, innermost first."""
        return RANK_ORDERS[self.pp_inner]


@dataclass(frozen=True, slots=True)
class Bound:
    """What a pin allows: listed values, or a range of numbers."""

    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    def allows(self, value: object) -> bool:
        """Whether the pin lets this value through."""
        if self.values:
            return _spelling(value) in self.values
        number = float(str(value))
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        if self.values:
            return "|".join(self.values)
        return "..".join("" if end is None else f"{end:g}" for end in (self.low, self.high))


def _spelling(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


@dataclass(frozen=True, slots=True)
class Pins:
    """Axis -> what is allowed on it; an axis without a pin is free."""

    bounds: Mapping[str, Bound] = field(default_factory=dict)

    def allow(self, axis: str, value: object) -> bool:
        """Whether the pin on the axis, if there is one, lets the value through."""
        bound = self.bounds.get(axis)
        return bound is None or bound.allows(value)

    def __contains__(self, axis: str) -> bool:
        return axis in self.bounds

    def __str__(self) -> str:
        return " ".join(f"{axis}={bound}" for axis, bound in self.bounds.items())


_SWITCH = {"1": "on", "true": "on", "yes": "on", "on": "on", "0": "off", "false": "off", "no": "off", "off": "off"}
_SWITCHES = ("sequence_parallel", "tp_overlap", "dp_overlap", "p2p_overlap", "ep_overlap")
CHOICES = {
    "precision": PRECISIONS,
    "zero": ("0", "1", "2", "3"),
    "zero_scope": ("full", "node"),
    "rank_order": RANK_ORDERS,
    "offload": ("none", "optimizer"),
}


def parse_pins(texts: Iterable[str]) -> Pins:
    """Read ``tp=8,pp=4..16`` and ``precision=bf16|fp8``; several texts add up.

    Raises:
        WrongQuestion: an unknown axis (with the nearest), a value that the axis cannot have, an axis pinned twice.
    """
    bounds: dict[str, Bound] = {}
    for text in texts:
        for part in re.split(r"[,\s]+", text.strip()):
            if not part:
                continue
            axis, equals, value = part.partition("=")
            axis = axis.replace("-", "_")
            if axis not in AXES:
                hint = meant(axis, AXES, f"axes are {', '.join(PINNED)}")
                raise WrongQuestion(f"{part}: no axis {axis!r}; {hint}")
            if not equals:
                raise WrongQuestion(f"{part}: write {axis}=VALUE")
            if axis in bounds:
                raise WrongQuestion(f"{part}: {axis} is pinned twice; list values as {axis}=a|b")
            bounds[axis] = _bound(axis, value)
    return Pins(bounds)


def _bound(axis: str, text: str) -> Bound:
    values = text.split("|")
    if axis in _SWITCHES:
        wrong = [v for v in values if v.lower() not in _SWITCH]
        if wrong:
            raise WrongQuestion(f"{axis}={text}: {wrong[0]!r} is neither on nor off")
        return Bound(tuple(_SWITCH[v.lower()] for v in values))
    if axis == "recompute":
        return Bound(tuple(recompute(v).name for v in values))
    if axis == "placement":
        return Bound(tuple(placement(v).name for v in values))
    if axis in CHOICES:
        for v in values:
            if v not in CHOICES[axis]:
                raise WrongQuestion(f"{axis}={text}: {v!r} is not one of {', '.join(CHOICES[axis])}")
        return Bound(tuple(values))
    low, dots, high = text.partition("..")
    if dots:
        a, b = (_count(axis, text, x) if x else None for x in (low, high))
        if a is not None and b is not None and a > b:
            raise WrongQuestion(f"{axis}={text}: the range is empty; write {axis}={b}..{a}")
        return Bound((), a, b)
    return Bound(tuple(str(_count(axis, text, v)) for v in values))


def _count(axis: str, text: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value) or int(value) < 1:
        raise WrongQuestion(f"{axis}={text}: {value!r} is not a whole number of at least 1")
    return int(value)
