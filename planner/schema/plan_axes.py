"""Where a plan holds its axes: in Python in typed sections, in a document of schema version 2 flat and once.

The sections ``{"parallelism": {"tp": 8, "stages": [...]}, "dispatcher": "deepep"}`` are written as
``{"axes": {"tp": 8, "dispatcher": "deepep"}, "parallelism": {"stages": [...]}}``. What a pin can hold stands among the
axes, spelt as a pin spells it; sections keep what follows from it. Documents of version 1 have the sections whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Literal, get_args

Stated = int | bool | str
"""A value as documents state it: numbers and switches as they are, all else as a pin writes it."""
ALONE = "none"
AttentionKernel = Literal["cudnn", "flash-2", "flash-3", "flash-4", "triton"]
ATTENTION_KERNELS: tuple[AttentionKernel, ...] = get_args(AttentionKernel)
PLACES: dict[str, tuple[str, ...]] = {
    **{axis: ("parallelism", axis) for axis in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")},
    "micro": ("batch", "micro"),
    "batch": ("batch", "global"),
    "precision": ("precision",),
    "recompute": ("recompute", "policy"),
    "sequence_parallel": ("parallelism", "sequence_parallel"),
    "tp_overlap": ("overlap", "tp"),
    "zero": ("parallelism", "zero_stage"),
    "zero_scope": ("parallelism", "zero_scope"),
    "dp_overlap": ("overlap", "dp"),
    "p2p_overlap": ("overlap", "p2p"),
    "ep_overlap": ("overlap", "ep"),
    "rank_order": ("parallelism", "rank_order"),
    "cp_algorithm": ("parallelism", "cp_algorithm"),
    "graphs": ("graphs",),
    "schedule": ("parallelism", "schedule"),
    "dispatcher": ("dispatcher",),
    "attention_kernel": ("attention_kernel",),
}
"""Axis -> section and key that hold its value as it is, in the order of a document."""
BY_NAME = tuple(axis for axis, place in PLACES.items() if place == (axis,))
"""Axes that are no part of a section."""
NEUTRAL: dict[str, Stated] = {
    "ep_overlap": False,
    **dict.fromkeys(("cp_algorithm", "graphs", "dispatcher", "attention_kernel"), ALONE),
}
"""What is stated for a section that has no value."""
HOST = ("optimizer_share", "optimizer_overlap", "activations")
"""Keys of the section ``offloaded`` that are the axes offload, offload_overlap and activation_offload."""
PLACED = ("optimizer", "weights", "activations")
"""What the section ``placement`` gives a share of."""
SPELT: dict[str, Stated] = {"offload": ALONE, "offload_overlap": False, "activation_offload": ALONE, "placement": ALONE}
"""Axes of which sections hold the value in another form -> the value of plans that do not use them."""
NODES = "nodes"
"""The axis that pools state, each its own count."""
FIRST = ("kind", "schema_version", "rank", "generator", "workload", "cluster", "runtime")
"""Keys of a plan's document that stand before its axes."""
_GETTERS: dict[str, Callable[[Any], Any]] = {
    axis: attrgetter(".".join(place).replace("global", "global_")) for axis, place in PLACES.items()
}


def stated(plan: Any) -> dict[str, Stated]:
    """Every axis of a plan's record with its value, as documents state it."""
    values = {axis: value_of(plan) for axis, value_of in _GETTERS.items()}
    host = plan.offloaded
    share = host.optimizer_share if host else float(plan.offload.get("optimizer", False))
    return {
        **{axis: NEUTRAL[axis] if value is None else value for axis, value in values.items()},
        "offload": _spelt({"optimizer": share}),
        "offload_overlap": bool(host and host.optimizer_overlap),
        "activation_offload": "+".join(host.activations if host else ()) or ALONE,
        "placement": _spelt(plan.placement or {}),
        NODES: sum(pool.count for pool in plan.cluster.pools),
    }


def _spelt(shares: Mapping[str, float]) -> str:
    """Parts with their shares as a pin writes them, every digit kept: ``optimizer+activations:0.5``."""
    parts = [kind if share == 1 else f"{kind}:{float(share)!r}" for kind, share in shares.items() if share]
    return "+".join(parts) or ALONE


def _shares(text: object, kinds: tuple[str, ...], axis: str) -> dict[str, float]:
    """The share of every kind, from the text that :func:`_spelt` wrote.

    Raises:
        ValueError: the text has another form, another kind or a share that is not in (0, 1].
    """
    shares = dict.fromkeys(kinds, 0.0)
    for part in [] if text == ALONE else str(text).split("+"):
        kind, colon, share = part.partition(":")
        try:
            shares[kind], known = float(share) if colon else 1.0, kind in kinds and not shares[kind]
        except (KeyError, ValueError):
            known = False
        if not known or not 0 < shares[kind] <= 1:
            raise ValueError(f"axes.{axis}: {text!r:.60} is neither none nor {', '.join(kinds)} with shares (:0.5)")
    return shares


def flat(table: dict[str, Any], axes: Mapping[str, Stated]) -> dict[str, Any]:
    """A plan's sections as JSON types with its axes in one table, and nowhere else."""
    for *section, key in PLACES.values():
        (table[section[0]] if section else table).pop(key, None)
    for key in ("overlap", "offload", "placement"):
        table.pop(key, None)
    for key in HOST if "offloaded" in table else ():
        del table["offloaded"][key]
    return {**{key: table.pop(key) for key in FIRST}, "axes": dict(axes), **table}


def sections(plan: Mapping[str, Any]) -> Any:
    """A plan's document of any version as the records read it, the axes of version 2 in their sections.

    Raises:
        ValueError: an axis is unknown, contradicts the rest of the plan, or stands in a section, too.
    """
    if plan.get("schema_version") == 1:
        return of_version_1(plan)
    if not isinstance(axes := plan.get("axes"), Mapping):
        raise ValueError("axes: a plan of version 2 has them all in a table")
    axes = {**SPELT, **axes}
    table = {key: dict(value) if isinstance(value, Mapping) else value for key, value in plan.items() if key != "axes"}
    for axis, place in PLACES.items():
        if axis in axes:
            value = axes.pop(axis)
            if value is None:
                raise ValueError(f"axes.{axis}: null; a plan that does not use it says {NEUTRAL.get(axis, 1)!r}")
            _put(table, place, _unless_neutral(axis, value))
    _put_offload(table, axes)
    _put_placement(table, axes)
    _count_nodes(table, axes)
    if axes:
        raise ValueError(f"axes.{next(iter(axes))}: no such axis; known are {', '.join((*PLACES, *SPELT, NODES))}")
    return table


def sectioned(axes: Mapping[str, Stated]) -> dict[str, Any]:
    """The values of axes where the records have them: ``{"parallelism": {"tp": 8, ...}, "overlap": {...}, ...}``."""
    table: dict[str, Any] = {}
    for axis, place in PLACES.items():
        if axis in axes:
            _put(table, place, _unless_neutral(axis, axes[axis]))
    return table


def _unless_neutral(axis: str, value: object) -> object:
    """A value as sections hold it: None for what they do not state."""
    unused = axis in NEUTRAL and (type(value), value) == (type(NEUTRAL[axis]), NEUTRAL[axis])
    return None if unused else value


def _put(table: dict[str, Any], place: tuple[str, ...], value: object) -> None:
    """Puts a value where the records have it."""
    *outer, key = place
    section = table.setdefault(outer[0], {}) if outer else table
    if not isinstance(section, dict):
        return  # The records say what is wrong with it.
    if key in section:
        raise ValueError(f"{'.'.join(place)}: it stands among the axes of a plan of version 2")
    section[key] = value


def _put_offload(table: dict[str, Any], axes: dict[str, Any]) -> None:
    """What lives in host memory; a section of its own only where that is more than all optimizer states."""
    share = _shares(axes.pop("offload"), ("optimizer",), "offload")["optimizer"]
    overlap = axes.pop("offload_overlap")
    modules = str(axes.pop("activation_offload"))
    activations = [] if modules == ALONE else modules.split("+")
    _put(table, ("offload",), {"optimizer": share > 0})
    if "offloaded" in table or 0 < share < 1 or overlap or activations:
        for key, value in zip(HOST, (share, overlap, activations), strict=True):
            _put(table, ("offloaded", key), value)


def _put_placement(table: dict[str, Any], axes: dict[str, Any]) -> None:
    """What lives in expanded memory; plans that have none say nothing of it."""
    shares = _shares(axes.pop("placement"), PLACED, "placement")
    memory = _inside(table, "prediction", "memory")
    if any(shares.values()) or _inside(memory, "expanded"):
        _put(table, ("placement",), shares)


def _count_nodes(table: dict[str, Any], axes: dict[str, Any]) -> None:
    pools = _inside(table, "cluster", "pools")
    counts = [_inside(pool, "count") for pool in pools] if isinstance(pools, list) else []
    if (nodes := axes.pop(NODES, None)) is not None and all(type(count) is int for count in counts):
        if nodes != sum(counts):
            raise ValueError(f"axes.{NODES}: {nodes!r:.60}, and its pools have {sum(counts)}")


def _inside(table: object, *keys: str) -> Any:
    """What stands below these keys; None where nothing does."""
    for key in keys:
        table = table.get(key) if isinstance(table, Mapping) else None
    return table


MAKERS = {
    "NVIDIA": (
        *("A10", "A30", "A40", "A80", "B200", "B300", "GB", "GH", "H100", "H20", "H80", "K80", "L4", "P100", "RTX"),
        *("T4", "Titan", "V100", "VR"),
    ),
    "AMD": ("MI",),
    "AWS": ("Trainium",),
    "Google": ("TPU",),
    "Intel": ("Gaudi",),
}
"""Maker -> how the names of its accelerators begin, which documents of version 1 have alone."""


def of_version_1(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's document of schema version 1 as the records read it: its axes stand in sections already."""
    table = {key: dict(value) if isinstance(value, Mapping) else value for key, value in plan.items()}
    cut = _inside(table, "parallelism")
    cluster = _inside(table, "cluster")
    if isinstance(cut, dict) and cut.get("cp") != 1 and cut.get("cp_algorithm") is None:
        # The first documents do not say how context-parallel ranks share a sequence: by a ring.
        cut["cp_algorithm"] = "p2p"
    if isinstance(pools := _inside(cluster, "pools"), list):
        cluster["pools"] = [
            {**pool, "vendor": _maker(str(pool.get("accelerator")))} if isinstance(pool, Mapping) else pool
            for pool in pools
        ]
    return {**table, "schema_version": 2}


def _maker(accelerator: str) -> str:
    return next((maker for maker, begins in MAKERS.items() if accelerator.startswith(begins)), "")
