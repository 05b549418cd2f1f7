"""Words by which rows of runs say which options, kernels and losses a run had: one row of a table a word.

A word that stands behind a negation ("no", "without", "not") turns a switch off, and says nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from planner.axes.table import AXES
from planner.axes.values import ALONE, IN_PLACE, ONE_F_ONE_B, WITH_WEIGHTS, activation_offload, over_nodes

FREE_TEXT = ("notes", "sharding", "activation_recompute", "framework", "precision", "zero_stage", "task")
"""Columns that words are read in."""
Value = object
Says = Mapping[str, Value | Callable[[re.Match[str]], Value]]


class Word(NamedTuple):
    """What some words say."""

    pattern: str
    """A regular expression, upper and lower case alike."""
    says: Says
    """Axis, field of the runtime, or name of :data:`OTHERS` -> its value, or what makes it of the match."""


OTHERS = ("accumulation", "chunks", "imbalance", "interleaved", "optimizer", "optimizer_bits", "quantised")
"""Names that are neither axes nor fields of a runtime: micro-batches of a step, chunks of a stage, the busiest expert
rank's share, whether a pipeline interleaves, optimizer, bits of its moments, quantisation of a frozen base."""
NODE = 8
"""Ranks of one usual node: a copy that more of them share is shared over nodes."""


def _whole(match: re.Match[str]) -> int:
    return int(match[1])


def _number(match: re.Match[str]) -> float:
    return max(1.0, float(match[1]))


_OVERLAPS = r"[- ]?(?:comm(?:unication)?s?[- ]?)?overlap(?:ped|s)?"
_FUSED_LOSS = {"fused_cross_entropy": True}
_CHUNKED_LOSS = {"fused_cross_entropy": True, "chunked_loss": True}
_GRAPHS = {"none": ALONE, "modules": IN_PLACE, "full iteration": "full"}

WORDS: tuple[Word, ...] = (
    # Schedules of a pipeline.
    Word(r"dual[- ]?pipe(?:[- ]?v)?\b", {"schedule": "dualpipe-v", "interleaved": False}),
    Word(r"\bzb[- ]?v\b|zero[- ]?bubble[- ]?v\b|zbv", {"schedule": "zbv", "interleaved": False}),
    Word(r"interleaved[- ]?zero[- ]?bubble", {"schedule": "interleaved-zero-bubble", "interleaved": True}),
    Word(r"zero[- ]?bubble|\bzb[- ]?(?:h?1p?|h2)\b", {"schedule": "zero-bubble", "interleaved": False}),
    Word(r"\bnon[- ]?interleav\w*", {"schedule": ONE_F_ONE_B, "interleaved": False}),
    Word(r"(?<!non-)(?<!non )\binterleav\w*(?: (?:1f1b|pp|pipeline|schedule|stages))?", {"interleaved": True}),
    Word(r"(?<!interleaved )(?<!interleaved-)\b1f1b\b|\bone[- ]f(?:orward)?[- ]one[- ]b", {"interleaved": False}),
    Word(r"\bgpipe\b|\bafab\b|all[- ]forward[- ]all[- ]backward", {"interleaved": False}),
    Word(
        r"(?<!no )\bvpp? ?[=:]? ?(\d+)\b|\bvirtual[ _-]\w+(?: size)? ?[=:]? ?(\d+)\b",
        {"chunks": lambda m: int(m[1] or m[2])},
    ),
    Word(r"\b(\d+) (?:model chunks|virtual (?:pipeline )?(?:stages|chunks))", {"chunks": _whole}),
    Word(r"\binterleav\w*(?: 1f1b)?[^.;\d]{0,24}\b(\d{1,2}) chunks", {"chunks": _whole}),
    # What carries tokens to experts.
    Word(r"hybrid[- ]?ep\b", {"dispatcher": "hybridep"}),
    Word(r"deep[- ]?ep\b", {"dispatcher": "deepep"}),
    Word(r"dispatcher:? ?(?:type )?[=:]? ?flex\b|\bflex dispatcher|\bmoe[- ]flex\b", {"dispatcher": "deepep"}),
    Word(r"dispatcher:? ?[=:]? ?all[- _]?gather|all[- ]?gather dispatcher", {"dispatcher": "allgather"}),
    Word(r"dispatcher:? ?[=:]? ?all[- _]?to[- _]?all", {"dispatcher": "alltoall"}),
    Word(
        r"all[- ]?to[- ]?all(?:[- ]v)? (?:dispatch|token|expert|routing)\w*|expert all[- ]?to[- ]?all",
        {"dispatcher": "alltoall"},
    ),
    # What communication overlaps.
    Word(r"expert exchanges (do not )?overlap", {"ep_overlap": lambda m: not m[1]}),
    Word(r"\b(?:ep|a2a|moe(?: (?:a2a|ep))?|expert|all[- ]?to[- ]?all)" + _OVERLAPS, {"ep_overlap": True}),
    Word(
        r"1f1b[- ](?:with )?(?:(?:a2a|all[- ]?to[- ]?all|ep)[- ])?overlap|batch[- ]level overlap", {"ep_overlap": True}
    ),
    Word(r"\boverlap\w*[- ](?:of )?(?:moe|ep\b|expert|a2a|all[- ]?to[- ]?all)", {"ep_overlap": True}),
    Word(r"\b(?:tp|tensor[- ]parallel)" + _OVERLAPS + r"|\basync[- ]?tp\b|\buser ?buffers?\b", {"tp_overlap": True}),
    Word(r"\boverlaps? tp/dp\b", {"tp_overlap": True, "dp_overlap": True}),
    Word(
        r"\b(?:dp|data[- ]parallel|grad(?:ient)?[- ](?:reduce|sync|reduction)|param(?:eter)?[- ]gather)" + _OVERLAPS,
        {"dp_overlap": True},
    ),
    Word(r"overlap[- _](?:grad|param|dp)\w*[- _](?:reduce|gather|sync)\w*", {"dp_overlap": True}),
    Word(r"\b(?:p2p|pp)" + _OVERLAPS, {"p2p_overlap": True}),
    # Kernels of attention.
    Word(r"flash[- ]?attention[- ]?(?:v)?4|\bfa[- ]?4\b|\bflash[- ]4\b", {"attention_kernel": "flash-4"}),
    Word(r"flash[- ]?attention[- ]?(?:v)?3|\bfa[- ]?3\b|\bflash[- ]3\b", {"attention_kernel": "flash-3"}),
    Word(r"flash[- ]?attention[- ]?(?:v)?2|\bfa[- ]?2\b|\bflash[- ]2\b", {"attention_kernel": "flash-2"}),
    Word(
        r"cudnn|\bte (?:fused|dot[- ]product) attention|transformer engine(?:'s)? fused attention",
        {"attention_kernel": "cudnn"},
    ),
    # The head and its loss.
    Word(r"\bliger\b|cut[- ]cross[- ]entropy|\bcce\b", _CHUNKED_LOSS),
    Word(r"fused[- ]linear[- ](?:cross[- ]?entropy|ce\b|loss)|linear[- ]cross[- ]?entropy", _CHUNKED_LOSS),
    Word(
        r"chunk(?:ed)?[- ](?:linear[- ])?(?:cross[- ]?entropy|ce\b|loss|head|logits)|vocab(?:ulary)?[- ]tiling",
        _CHUNKED_LOSS,
    ),
    Word(r"cross[- ]entropy[- ](?:loss[- ])?fusion|fused[- ](?:cross[- ]?entropy|ce\b)", _FUSED_LOSS),
    # Optimizers, their moments, gradients.
    Word(r"8[- ]bit adam|adam\w*[- ]8[- ]?bit", {"optimizer": "adam-8bit"}),
    Word(r"\badafactor\b", {"optimizer": "adafactor"}),
    Word(
        r"(?:bf16|fp16|16[- ]?bit|half[- ]precision) (?:adam |optimizer |first and second )?"
        r"(?:states|moments|optimizer)",
        {"optimizer_bits": 16},
    ),
    Word(
        r"(?:moments|optimizer states|exp[_-]avg\w*|mu[_ ]dtype|adam)(?: (?:in|are|of))?[ =:]+"
        r"(?:bf16|bfloat16|fp16|16[- ]?bit)",
        {"optimizer_bits": 16},
    ),
    Word(r"precision[- ]aware(?: optimizer)?[^.;]*\b(?:bf16|fp16|16[- ]bit)", {"optimizer_bits": 16}),
    Word(r"precision mode \S*/pure", {"gradient_bytes": 4.0, "gradient_wire_bytes": 2.0}),
    Word(r"precision mode \S*/default", {"gradient_bytes": 4.0, "gradient_wire_bytes": 4.0}),
    Word(
        r"(?:bf16|16[- ]bit) gradients?(?: and their)? (?:reduc\w+|reduce[- ]scatter)"
        r"|gradients? reduced in (?:bf16|16 bit)",
        {"gradient_wire_bytes": 2.0},
    ),
    Word(
        r"fp32 gradients?(?: and their)? (?:reduc\w+|reduce[- ]scatter)"
        r"|gradients? reduced in (?:fp32|32 bit)",
        {"gradient_wire_bytes": 4.0},
    ),
    # Frozen bases.
    Word(r"qlora[^.;]{0,12}(?:int8|8[- ]bit)", {"quantised": "qlora:int8"}),
    Word(r"\bqlora\b|\bnf4\b|4[- ]bit (?:frozen |base|weights)", {"quantised": "qlora"}),
    # Who shares one copy of the states.
    Word(r"\bhsdp\b[^.;\d]{0,12}\d+ ?x ?(\d+)", {"zero_scope": lambda m: "node" if int(m[1]) <= NODE else "full"}),
    Word(r"states shared in (\d{1,6}) nodes", {"zero_scope": lambda m: over_nodes(int(m[1]))}),
    Word(
        r"\bin node\b|within slice|hybrid[- _]shard\w*|\bhsdp\b"
        r"|(?:shard(?:s|ed)?|zero[- ]?[123]) (?:within|inside|in) (?:a |each |the )?node\b",
        {"zero_scope": "node"},
    ),
    # Experts.
    Word(r"capacity[- _]factor ?(?:of )?[=:]? ?(\d+(?:\.\d+)?)", {"imbalance": _number}),
    # What is launched and kept elsewhere.
    Word(r"cuda graphs?: (none|modules|full iteration)", {"graphs": lambda m: _GRAPHS[m[1].lower()]}),
    Word(r"optimizer and weights in host memory", {"offload": WITH_WEIGHTS}),
    Word(r"optimizer offload (\d{1,3}) ?%", {"offload": lambda m: min(int(m[1]), 100) / 100}),
    Word(
        r"activations in host memory: ([a-z_0-9+]+)", {"activation_offload": lambda m: activation_offload(m[1].lower())}
    ),
    Word(r"optimizer copies overlap", {"offload_overlap": True}),
    Word(r"ranks in the order (tp-cp-ep-pp-dp)\b", {"rank_order": lambda m: m[1].lower()}),
    # How often a step accumulates.
    Word(r"(?:\bga|grad(?:ient)?[- _]acc\w*(?: steps)?)(?: of)? ?[=:]? ?(\d+)\b", {"accumulation": _whole}),
    Word(r"\b(\d+) (?:grad(?:ient)? )?accumulation(?: steps)?", {"accumulation": _whole}),
    Word(r"\b(?:no|without)(?: gradient)? accumulation", {"accumulation": 1}),
)
"""In order of precedence: the first word that says something of an axis decides."""

_COMPILED = tuple((re.compile(word.pattern, re.IGNORECASE), word.says) for word in WORDS)
_NEGATED = re.compile(
    r"(?:\b(?:no|not|non|without|w/o|disabled?|never|lacks?)|\bdo(?:es)?n't)[\s:=-]*(?:use[sd]? )?$", re.IGNORECASE
)
_BEFORE = 24
"""Characters before a word that a negation stands in."""
_OFF = re.compile(r"[\s:=-]*(?:off|disabled|false|no)\b", re.IGNORECASE)


def stated(row: Mapping[str, str]) -> dict[str, Value]:
    """What a row's free text says of axes, fields of the runtime and :data:`OTHERS`."""
    return dict(_read("\n.".join(row.get(column) or "" for column in FREE_TEXT)))


@lru_cache(maxsize=1024)
def _read(text: str) -> Mapping[str, Value]:
    """What a text says; columns are apart by a full stop, which no word crosses."""
    says: dict[str, Value] = {}
    for pattern, values in _COMPILED:
        for match in pattern.finditer(text):
            negated = bool(
                _NEGATED.search(text[max(0, match.start() - _BEFORE) : match.start()]) or _OFF.match(text, match.end())
            )
            for name, value in values.items():
                meant = value(match) if callable(value) else value
                if not negated:
                    says.setdefault(name, meant)
                elif meant is True:
                    says.setdefault(name, False)
    return says


def options(says: Mapping[str, Value]) -> dict[str, Value]:
    """Of what is said, what options of a plan are."""
    return {name: value for name, value in says.items() if name in AXES}


def traits(says: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """Of what is said, fields of the runtime's record in place of its own."""
    return tuple((name, value) for name, value in says.items() if name not in AXES and name not in OTHERS)
