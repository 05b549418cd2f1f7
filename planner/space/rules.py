"""What makes a layout legal: named functions over columns.

Every rule takes the candidate columns and the setting and returns which rows it lets through. The names appear in
messages (``tp=3 breaks heads_divide``), in ``--waive`` and in docs. A question may waive those that draw a limit; most
say what a plan is, and without them it would not add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.axes.values import FOLDED
from planner.cost import pipeline
from planner.cost.figures import Layout, Shape
from planner.figures import cost_inputs
from planner.models import blocks, context
from planner.schema.hardware import Cluster, Runtime
from planner.schema.workload import Workload

Columns = Mapping[str, NDArray[np.int64]]
Mask = NDArray[np.bool_]

WIDEST_HEAD, HEAD_STEP = 256, 8
"""Elements of a head at most, and what they divide by, in fused kernels, the only ones that share sequences
(TransformerEngine d0067d0d, pytorch/attention/dot_product_attention/utils.py, lines 926-934 and 1169)."""
LARGEST_MICRO_BATCH = 131_072
"""Tokens per rank; a larger micro-batch gains nothing and overflows 32-bit indices in kernels."""


@dataclass(frozen=True)
class RuleSetting:
    """What rules look at beside the candidates."""

    workload: Workload
    cluster: Cluster
    runtime: Runtime

    @cached_property
    def layers_differ(self) -> bool:
        """Whether the model's layers are of several kinds."""
        return blocks.differ(self.workload.model, self.workload.sequence)

    @cached_property
    def shape(self) -> Shape:
        """The model's figures, layers of several kinds by their mean."""
        return cost_inputs.shape(self.workload, self.runtime, mean=True)


@dataclass(frozen=True, slots=True)
class Rule:
    """A named condition on layouts."""

    name: str
    says: str
    """What it demands, for messages."""
    holds: Callable[[Columns, RuleSetting], Mask]
    waivable: bool = False
    """Whether a plan that breaks it still adds up, and is only unwise."""
    recorded: bool = False
    """Whether a plan that breaks it says so: no launcher starts it, and it is priced as if parts were equal."""


def _heads(c: Columns, s: RuleSetting) -> Mask:
    own = s.workload.model.compressed
    return np.asarray((own.output_groups if own else s.workload.model.heads) % c["tp"] == 0)


def _key_value_heads(c: Columns, s: RuleSetting) -> Mask:
    full, kv = s.workload.model.full, s.workload.model.kv_heads
    divide = (kv % c["tp"] == 0) | (c["tp"] % kv == 0)
    if full is not None:
        divide = divide & ((full.kv_heads % c["tp"] == 0) | (c["tp"] % full.kv_heads == 0))
    return np.asarray(divide)


def _recurrence(c: Columns, s: RuleSetting) -> Mask:
    r = s.workload.model.recurrence
    if r is None:
        return np.asarray(c["tp"] > 0)
    return np.asarray((r.heads % c["tp"] == 0) & ((r.key_heads % c["tp"] == 0) | (c["tp"] % r.key_heads == 0)))


def _whole_sequence(c: Columns, s: RuleSetting) -> Mask:
    model = s.workload.model
    return np.asarray((c["cp"] == 1) | (model.recurrence is None and model.indexer is None and not model.compressed))


def _hidden(c: Columns, s: RuleSetting) -> Mask:
    return np.asarray(s.workload.model.hidden % c["tp"] == 0)


def _domain(c: Columns, s: RuleSetting) -> Mask:
    return np.asarray(c["tp"] <= accelerators_of_domain(s.cluster))


def accelerators_of_domain(cluster: Cluster) -> int:
    """Accelerators of a node, or over ICI of a pod."""
    pod = cluster.fabric.leaf_nodes if cluster.fabric.kind == "ici" else 1
    return cluster.node.accelerators * pod


def _sequence(c: Columns, s: RuleSetting) -> Mask:
    length = s.workload.sequence
    return np.asarray((c["cp"] == 1) | ((length % (2 * c["cp"]) == 0) & ((length // c["cp"]) % c["tp"] == 0)))


def _context_chunk(c: Columns, s: RuleSetting) -> Mask:
    return np.asarray((c["cp"] == 1) | (s.workload.sequence // c["cp"] >= 1024))


def _context_kernel(c: Columns, s: RuleSetting) -> Mask:
    latent, full = s.workload.model.latent, s.workload.model.full
    dim = full.head_dim if full else s.workload.model.head_dim
    widest = max(latent.nope_dim + latent.rope_dim, latent.value_dim) if latent else dim
    fits = widest <= WIDEST_HEAD and widest % HEAD_STEP == 0
    there = s.cluster.accelerator.generation not in s.runtime.fused_attention_not_on
    return np.asarray((c["cp"] == 1) | (there and fits))


def _context_heads(c: Columns, s: RuleSetting) -> Mask:
    exchanged = context.algorithms(s.workload) == ("a2a",)
    return np.asarray((c["cp"] == 1) | (not exchanged) | heads_are_dealt(c["cp"], c, s.workload))


def heads_are_dealt(ranks: NDArray[np.int64], c: Columns, workload: Workload) -> Mask:
    """Whether a rank's key/value heads divide by so many that exchange them."""
    kinds = context.key_value_heads(workload.model)
    return np.asarray(np.all([np.maximum(heads // c["tp"], 1) % ranks == 0 for heads in kinds], axis=0))


def context_shares(way: str, rows: Columns, workload: Workload, cluster: Cluster) -> NDArray[np.bool_]:
    """Rows whose heads can be dealt as a way needs it: to all context-parallel ranks, or to those of a scale-up domain
    where these are several, not all, and as many in every domain.
    """
    if way == "a2a":
        return heads_are_dealt(rows["cp"], rows, workload)
    if way != "a2a+p2p":
        return np.ones(len(rows["cp"]), dtype=bool)
    inside = np.maximum(cluster.node.accelerators // rows["tp"], 1)
    several = (inside > 1) & (inside < rows["cp"]) & (rows["cp"] % inside == 0) & (cluster.fabric.kind != "ici")
    return np.asarray(several & heads_are_dealt(inside, rows, workload))


def exchanges_overlap(rows: Columns, workload: Workload) -> NDArray[np.bool_]:
    """Layouts in which experts' exchanges can run beside another micro-batch: there are some, two micro-batches,
    pipelines are interleaved, and there is one module of multi-token prediction at most.

    Nor may whole layers be recomputed (Megatron-LM d98e8a64, core/transformer/transformer_config.py,
    overlap_moe_expert_parallel_comm). Layers that are an MLP or a mixer alone have no such steps (its HybridModel).
    """
    several = rows["batch"] >= 2 * rows["dp"] * rows["micro"]
    chunks = (rows["pp"] == 1) | (rows["vpp"] > 1)
    return np.asarray(
        (rows["ep"] > 1) & several & chunks & (workload.mtp_layers <= 1) & ("none" not in workload.model.feeds)
    )


def _experts(c: Columns, s: RuleSetting) -> Mask:
    moe = s.workload.model.moe
    return np.asarray((moe.experts if moe else 1) % c["ep"] == 0)


def _expert_ranks(c: Columns, s: RuleSetting) -> Mask:
    return np.asarray(c["tp"] * c["cp"] * c["dp"] % (c["ep"] * c["etp"]) == 0)


def _expert_tensor(c: Columns, s: RuleSetting) -> Mask:
    moe = s.workload.model.moe
    splits = (c["etp"] == c["tp"]) & ((moe.ffn if moe else 1) % c["etp"] == 0)
    return np.asarray((c["etp"] == 1) | splits)


def _layers(c: Columns, s: RuleSetting) -> Mask:
    layers = s.workload.layers
    enough = layers >= c["pp"] * c["vpp"]
    if s.layers_differ:  # Modules of multi-token prediction share the last chunk.
        enough &= s.workload.model.layers >= c["pp"] * c["vpp"] - (s.workload.mtp_layers > 0)
    if s.runtime.balances_head:  # The last stage may hold the head alone, the one before it may not be empty.
        before = np.floor((c["pp"] - 2) * (layers + cost_inputs.head_layers(s.workload.model)) / c["pp"])
        enough &= (c["pp"] <= 2) | (before + 1 < layers)
    return np.asarray(enough)


def _deal(c: Columns, s: RuleSetting) -> Mask:
    layers = s.workload.layers
    if cost_inputs.cuts_anywhere(s.runtime) and s.layers_differ:
        return np.ones(len(c["pp"]), dtype=bool)
    missing = -layers % (c["pp"] * c["vpp"])
    return np.asarray(missing < c["pp"] if s.runtime.uneven_stages else missing == 0)


def _alike(c: Columns, s: RuleSetting) -> Mask:
    model = s.workload.model
    leading = 0 if s.layers_differ else blocks.leading(model)
    carried = model.recurrence is not None and model.recurrence.kind == "rwkv7"  # the first block's values, by all
    # Cut by cost, stages have no common number of leading layers.
    if carried or model.encoder_layers > 0 or (s.runtime.balances_head and leading > 0):
        return np.asarray(c["pp"] == 1)
    return np.asarray((c["pp"] == 1) | _leading_fit(c, s)) if leading else np.ones(len(c["pp"]), dtype=bool)


def _leading_fit(c: Columns, s: RuleSetting) -> Mask:
    """Where the stages' first chunks hold the leading dense layers."""
    uncut = dict.fromkeys(Layout.__dataclass_fields__, 1.0)
    layout = Layout(**{**uncut, "pp": c["pp"].astype(float), "vpp": c["vpp"].astype(float)})
    return np.asarray(pipeline.leading_fit(s.shape, layout), dtype=bool)


def _batch(c: Columns, s: RuleSetting) -> Mask:
    return np.asarray(c["batch"] % (c["dp"] * c["micro"]) == 0)


def _pairs(c: Columns, s: RuleSetting) -> Mask:
    return np.asarray((s.workload.task == "sft") | (c["micro"] % 2 == 0))


def _interleave(c: Columns, s: RuleSetting) -> Mask:
    rounds = (c["pp"] > 1) & (c["batch"] // (c["dp"] * c["micro"]) % c["pp"] == 0)
    steps = c["batch"] // (c["dp"] * c["micro"])
    folds = any(name in FOLDED for name in s.runtime.schedules)
    return np.asarray((c["vpp"] == 1) | rounds | (folds & (c["vpp"] == 2) & (c["pp"] > 1) & (steps >= 2 * c["pp"])))


def _tokens(c: Columns, s: RuleSetting) -> Mask:
    chunk = s.workload.sequence // c["cp"]
    return np.asarray((c["micro"] * chunk <= LARGEST_MICRO_BATCH) | (c["micro"] == 1))


RULES = (
    Rule("heads_divide", "attention heads divide by tp", _heads, waivable=True, recorded=True),
    Rule(
        "kv_heads_divide", "key/value heads divide by tp, or tp by them", _key_value_heads, waivable=True, recorded=True
    ),
    Rule("recurrence_divides", "heads of a recurrence divide by tp", _recurrence),
    Rule(
        "whole_sequence",
        "recurrences and sparse attention see the whole sequence on one rank (cp 1)",
        _whole_sequence,
    ),
    Rule("hidden_divides", "the hidden width divides by tp", _hidden, waivable=True, recorded=True),
    Rule("tp_in_domain", "tensor parallelism stays inside one scale-up domain", _domain, waivable=True),
    Rule("sequence_divides", "the sequence divides by 2 cp, and a context-parallel chunk by tp", _sequence),
    Rule("context_chunk", "a context-parallel chunk has at least 1,024 tokens", _context_chunk, waivable=True),
    Rule("context_heads", "a rank's key/value heads divide by cp where ranks can only exchange heads", _context_heads),
    Rule(
        "context_kernel",
        "context parallelism needs a kernel for the accelerator's generation and the heads' width",
        _context_kernel,
    ),
    Rule("experts_divide", "experts divide by ep", _experts),
    Rule("expert_ranks", "tp x cp x dp divides by ep x etp", _expert_ranks),
    Rule("expert_tensor", "etp is 1 or tp", _expert_tensor),
    Rule("layer_for_every_chunk", "there is a layer for every pipeline chunk", _layers),
    Rule(
        "layers_deal",
        "layers are split over pipeline chunks, at most one short per stage (evenly, if the runtime demands it)",
        _deal,
    ),
    Rule(
        "stages_alike",
        "pipeline stages are of a decoder (RWKV-7 has one), leading dense layers of a mixture in their first chunks",
        _alike,
    ),
    Rule("batch_divides", "the global batch divides by dp x micro-batch", _batch),
    Rule("whole_pairs", "a micro-batch of pairs of answers has an even number of sequences", _pairs),
    Rule(
        "interleave_fill",
        "interleaved schedules need micro-batches in multiples of pp (those in a V 2 pp of them)",
        _interleave,
    ),
    Rule(
        "micro_batch_tokens",
        "a micro-batch has at most 131,072 tokens per rank (or is one sequence)",
        _tokens,
        waivable=True,
    ),
)
"""All rules, in the order in which they are tried."""


def broken(layout: Mapping[str, int], setting: RuleSetting) -> tuple[str, ...]:
    """Names of the recorded rules that a layout breaks."""
    columns = {axis: np.array([value], dtype=np.int64) for axis, value in layout.items()}
    return tuple(rule.name for rule in RULES if rule.recorded and not np.all(rule.holds(columns, setting)))
