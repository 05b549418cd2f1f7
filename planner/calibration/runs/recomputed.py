"""What a row says of recomputation, in the terms of the axis or in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from planner.axes.values import (
    CORE_ATTENTION,
    FULL,
    MODULES,
    NO_RECOMPUTE,
    OFFLOADED,
    SELECTIVE,
    Recompute,
    recompute,
)
from planner.calibration.runs.columns import Unpredictable, whole

SOME_BLOCKS = tuple(Recompute(f"block:{share:g}", share, 0.0) for share in (0.25, 0.5))
"""Recomputation of some layers, tried where a run does not say what it recomputes."""
NOT_PRICED = ("mhc", "gdn_norm_out", "shared_experts")
"""Modules that Megatron Core can recompute and that have no price here."""
KNOWN = {"none": NO_RECOMPUTE, "selective": SELECTIVE, "full": FULL}

MODULE_WORDS: tuple[tuple[str, str], ...] = (
    (r"core[- _]?att\w*|attention scores|softmax|dot[- ]product attention|^att(?:ention|n)$", CORE_ATTENTION),
    (r"mla[- _]?up[- _]?proj\w*|latents?|up[- _]?proj\w*|^mla$", "mla_up_proj"),
    (r"moe[- _]?act\w*|swi[- _]?glu|act(?:ivation)?[- _]?func\w*|^act(?:ivation)?s?$|gelu", "moe_act"),
    (r"(?:layer|rms)[- _]?norms?|^norms?$", "layernorm"),
    (r"^(?:moe|experts?|moe layers?|whole mixture)$", "moe"),
    (r"^(?:dense )?(?:mlps?|ffns?|feed[- ]forward)$", "mlp"),
    *((rf"^{name}?$", name) for name in NOT_PRICED),
)
"""Words for a module, one item of a list -> the module as Megatron Core calls it."""

BLOCKS = r"(?:transformer |decoder )?(?:blocks?|layers?|\w+(?:decoder|transformer)?(?:layer|block))"
POLICIES: tuple[tuple[str, Callable[[re.Match[str]], Recompute]], ...] = (
    (r"offload", lambda _: OFFLOADED),
    (
        r"remat\w*(?: policy)?[ =:]+full\b|\bfull(?:y)? (?:remat|recompute|activation|checkpoint|ac\b|block)",
        lambda _: FULL,
    ),
    (r"(?:all|every|each|whole|full) " + BLOCKS + r"\b", lambda _: FULL),
    (r"(?:every|each) (?:other|2nd|second) " + BLOCKS, lambda _: _share(0.5)),
    (r"(?:every|each) (\d+)(?:st|nd|rd|th)? " + BLOCKS, lambda m: _share(1 / max(int(m[1]), 1))),
    (
        r"(?:selective|sac|ac)[ =:]*(\d+/[1-9]\d*|0?\.\d+)(?: of (?:the )?(?:blocks|layers))?",
        lambda m: _share(float(Fraction(m[1]))),
    ),
    (r"(\d+/[1-9]\d*) of (?:the |all )?(?:blocks|layers)", lambda m: _share(float(Fraction(m[1])))),
    (r"selective[^.;]*?\b" + BLOCKS + r"\b", lambda _: FULL),
    (r"\bminimal\b|\bsave_\w+|\bdots?_\w*saveable|save[- ]dots?|qkv_proj", lambda _: SELECTIVE),
    (r"\bper[- ]op\b|\bop[- ]?(?:level )?sac\b|\bsac\b|selective op\b|\bop\b", lambda _: SELECTIVE),
    (
        r"\b(?:no|without|w/o|disabled?) (?:remat|recomput|activation|checkpoint|gradient)\w*|\boff\b|\bdisabled\b",
        lambda _: NO_RECOMPUTE,
    ),
    (r"(?:gradient|activation)[- ]checkpointing|\bcheckpoint(?:ed|ing)?\b|\bfull\b", lambda _: FULL),
    (r"\bselective\b", lambda _: SELECTIVE),
    (r"\bnone?\b", lambda _: NO_RECOMPUTE),
)
"""Words -> what they say is recomputed, in order of precedence; of MaxText, policies that keep products' outputs are
what selective recomputation is there."""
IN_NOTES: tuple[tuple[str, Callable[[re.Match[str]], Recompute]], ...] = (
    (r"remat\w*(?:[ _]policy)?[ =:]+\w*offload\w*|host[- ]offloaded (?:remat|activations)", lambda _: OFFLOADED),
    (r"remat\w*(?:[ _]policy)?[ =:]+full\b", lambda _: FULL),
    (r"remat\w*(?:[ _]policy)?[ =:]+(?:minimal|save_)\w*", lambda _: SELECTIVE),
    (r"recompute[_ ]granularity[ =:]+full|full (?:activation )?recomput\w+", lambda _: FULL),
    (r"\bsac per op\b|per[- ]op sac\b|selective (?:activation )?(?:recomput|checkpoint)\w+", lambda _: SELECTIVE),
    (r"\bno (?:activation )?(?:recomput|checkpoint)\w+|without (?:activation )?recomput\w+", lambda _: NO_RECOMPUTE),
)
"""What notes say where the cell is empty."""


_NAMED = re.compile(
    r"recompute[_ ]modules:? +(?:incl(?:uding|\.)? +)?([\w-]+(?:(?: ?\+ ?|, | and )[\w-]+)*)(?! in )\b", re.IGNORECASE
)
"""Modules that notes name, where the cell says at most that it was some ..."""
_RECOMPUTED = re.compile(r"^recomput\w*:? +| +recomput\w*$", re.IGNORECASE)
"""... and the word at either end of a note that is a list of them, as ``norm, act`` or ``layernorm+moe recompute``."""


def _share(share: float) -> Recompute:
    """Whole layers recomputed, that share of them."""
    return FULL if share >= 1 else Recompute(f"block:{share:g}", share, 0.0)


HALF = _share(0.5)
"""Where a runtime recomputes some layers and the row does not say how many: the middle of none and all ..."""
MORE_THAN_HALF = (_share(0.75), FULL)
"""... or more, where half does not fit: the share is the user's (foundation-model-stack/fms-fsdp,
fms_fsdp/config/training.py, selective_checkpointing).
"""


def stated(row: Mapping[str, str], by_module: bool, inferred: list[str]) -> Recompute | None:
    """What a row says is recomputed; None where it does not say.

    Args:
        row: The row.
        by_module: Whether the runtime's selective recomputation is of parts of a layer; else it is of whole layers.
        inferred: What had to be read into its words is added.

    Raises:
        Unpredictable: words that say nothing of recomputation.
    """
    cell, notes = (row.get("activation_recompute") or "").strip(), row.get("notes") or ""
    if cell in ("", "selective") and by_module:
        named = next(filter(None, (_modules(items, by_module, inferred) for items in _noted(cell, notes))), None)
        if named is not None:
            return named
    if not cell:
        return _first(IN_NOTES, notes)
    if cell == "selective" and re.search(r"remat \w+_offloaded", notes):
        return OFFLOADED
    if cell == "selective" and not by_module:
        inferred.append("selective recomputation of whole layers: half of them, or more where that does not fit")
        return HALF
    if cell in KNOWN:
        return KNOWN[cell]
    if layers := re.fullmatch(r"block:(\d+)|(?:uniform,? |first )?(\d+) (?:layers|blocks)(?: .*)?", cell):
        held = (whole(row, "layers") or 1) / (whole(row, "pp", 1) or 1) / (whole(row, "vpp", 1) or 1)
        return _share(min(1.0, int(layers[1] or layers[2]) / max(held, 1.0)))
    if cell.startswith("block:"):
        raise Unpredictable(f"activation_recompute {cell!r}: block: takes a number of layers, as block:2")
    if named := _modules(cell, by_module, inferred):
        return named
    policy = _first(POLICIES, cell)
    if policy is None:
        raise Unpredictable(f"activation_recompute {cell!r}: none, selective, full and block:N are known")
    return FULL if policy is SELECTIVE and not by_module else policy


def _noted(cell: str, notes: str) -> Iterator[str]:
    """Parts of the notes that may be lists of modules; without the word, two or more beside a cell that says some."""
    if named := _NAMED.search(notes):
        yield named[1]
    for note in re.split(r"[;.]", notes):
        items, words = _RECOMPUTED.subn("", note.strip())
        if items and (words or (cell == "selective" and re.search(r"[+,]", items))):
            yield items


def _first(table: tuple[tuple[str, Callable[[re.Match[str]], Recompute]], ...], text: str) -> Recompute | None:
    """What the first of a table's words in a text says."""
    for pattern, policy in table:
        if match := re.search(pattern, text, re.IGNORECASE):
            return policy(match)
    return None


def _modules(cell: str, by_module: bool, inferred: list[str]) -> Recompute | None:
    """Modules by name: ``selective:layernorm+moe_act``, or in words, as ``selective: layernorm, moe_act``; None where
    one of them is none.
    """
    listed = re.sub(r"^selective(?: recompute)?\s*[:(]\s*|\)$", "", cell, flags=re.IGNORECASE)
    items = [item.strip() for item in re.split(r"[+,;/&]| and ", listed) if item.strip()]
    names = [_module(item) for item in items]
    if not names or None in names:
        return None
    if not by_module:
        return SELECTIVE
    left_out = [name for name in names if name in NOT_PRICED]
    if left_out:
        inferred.append(f"recomputed as well, but not priced: {', '.join(left_out)}")
    priced = "+".join(dict.fromkeys(name for name in names if name and name not in NOT_PRICED))
    return recompute(f"selective:{priced}") if priced else NO_RECOMPUTE


def _module(item: str) -> str | None:
    if item in (CORE_ATTENTION, *MODULES, *NOT_PRICED):
        return item
    return next((name for pattern, name in MODULE_WORDS if re.search(pattern, item, re.IGNORECASE)), None)
