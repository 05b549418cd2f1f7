"""What a row's run trained: the model, its batch and optimizer, and how long a step took."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from planner.calibration.runs import names
from planner.calibration.runs.columns import Unpredictable, number, required, whole
from planner.cost.flops import training_flops
from planner.figures import cost_inputs
from planner.models import context
from planner.models.parameters import parameters
from planner.models.workload import library, workload
from planner.schema.hardware import Runtime
from planner.schema.workload import MixtureOfExperts, Model, Workload


def model_of(row: Mapping[str, str], dropout: bool = False) -> Model:
    """The library's model of that name where its shape agrees, with the row's layers; else the row's own shape."""
    base = re.sub(r"-proxy\d+L$|[- ]?\([\d.]+\)$", "", row["model"])  # copies with fewer layers; a release
    known = library()
    name = names.MODELS.get(base, base)
    layers, hidden = whole(row, "layers"), whole(row, "hidden")
    if name in known and (hidden is None or known[name].hidden == hidden):
        found = known[name]
        layers = layers or found.layers
        if found.moe and found.moe.leading_dense_layers >= layers:
            found = replace(found, moe=replace(found.moe, leading_dense_layers=0))
        vocab = whole(row, "vocab") or found.vocab
        return replace(found, layers=layers, vocab=vocab) if not found.encoder_layers else found
    if layers is None or hidden is None:
        raise Unpredictable("the model's shape is not stated")
    if "nemotron-h" in base or "nemotron-3" in base:
        raise Unpredictable("a hybrid of attention and state-space layers; only transformers are predicted")
    return _own_shape(row, base, layers, hidden, dropout)


def _own_shape(row: Mapping[str, str], name: str, layers: int, hidden: int, dropout: bool) -> Model:
    heads = whole(row, "heads", max(1, hidden // 128)) or 1
    gated = number(row, "gated_mlp") == 1
    experts, topk = whole(row, "num_experts"), whole(row, "topk")
    ffn = whole(row, "ffn_hidden") or 4 * hidden
    moe = None
    if experts and topk:
        if topk > experts:
            raise Unpredictable(f"topk {topk} is more than {experts} experts")
        moe = MixtureOfExperts(experts=experts, experts_per_token=topk, ffn=whole(row, "moe_ffn_hidden") or ffn)
    sequence = int(required(row, "seq_len"))
    return Model(
        id=name,
        name=name,
        source=row["source"],
        layers=layers,
        hidden=hidden,
        ffn=ffn,
        heads=heads,
        kv_heads=whole(row, "kv_heads", heads) or heads,
        head_dim=whole(row, "head_dim", hidden // heads) or 1,
        gated=gated,
        vocab=whole(row, "vocab") or 50257,
        tied=not gated,
        norm="rms" if gated else "layer",
        learned_positions=0 if gated else sequence,
        qkv_bias=not gated,
        output_bias=not gated,
        mlp_bias=not gated,
        dropout=not gated and dropout,
        moe=moe,
        sequence=sequence,
        batch=int(required(row, "global_batch_seqs")),
        tokens=1e12,
    )


def step_time(row: Mapping[str, str], work: Workload, n: int, halves: bool = False) -> float | None:
    """Seconds per step: as stated, from tokens or samples per second, or from TFLOP/s by the model FLOPs of a step.

    Arguments:
        row: a run.
        work: what it trained.
        n: on how many accelerators.
        halves: whether its framework counts half of a causal attention, where the row does not say.
    """
    stated = number(row, "step_time_s")
    if stated:
        return stated
    each = number(row, "tokens_per_s_per_gpu")
    if each:
        return work.batch * work.sequence / (each * n)
    if row.get("metric") == "samples_per_s" and number(row, "value"):
        return work.batch / float(row["value"])
    rate = number(row, "tflops_per_gpu")
    if rate and "hardware" not in (row.get("flops_convention") or ""):
        return _step_flops(work, _halved(row.get("flops_convention") or "", halves)) / (rate * 1e12 * n)
    return None


def _halved(convention: str, otherwise: bool) -> bool:
    """Whether a count of model FLOPs halves attention because it is causal: as its convention says of attention, else
    as its framework counts.
    """
    if re.search(r"non-causal|in full|full attention|no attention|causal factor not stated", convention):
        return False
    return otherwise or bool(re.search(r"causal|since 2025|2025-07\+", convention))


def _step_flops(work: Workload, halved: bool) -> float:
    """Model FLOPs of a step, attention in full, or halved for causality."""
    positions = context.of_whole_sequence(work.sequence, causal=halved)
    figures = replace(cost_inputs.shape(work, None), attended=positions, index_width=0.0)
    return work.batch * work.sequence * float(training_flops(figures, parameters(work.model).active))


def batch_of(row: Mapping[str, str], n: int, sequence: int, says: Mapping[str, object], inferred: list[str]) -> int:
    """Sequences of a step: as stated, or by the tokens or the micro-batches of a step that words state."""
    if number(row, "global_batch_seqs"):
        return int(required(row, "global_batch_seqs"))
    if tokens := re.search(r"(?:batch(?: size)? of |gbs[ =:]*)(\d+(?:\.\d+)?) ?M tokens", row.get("notes") or "", re.I):
        inferred.append("global batch: by the tokens of a step")
        return max(1, round(float(tokens[1]) * 2**20 / sequence))
    micro, steps = whole(row, "micro_batch"), says.get("accumulation", 1 if whole(row, "pp") == 1 else None)
    if micro and isinstance(steps, int) and steps:
        per_replica = [whole(row, name, 1) or 1 for name in ("tp", "pp", "cp")]
        dp = whole(row, "dp") or n // math.prod(per_replica)
        inferred.append(f"global batch: micro-batch x dp x {steps} accumulated")
        return micro * dp * steps
    return int(required(row, "global_batch_seqs"))


MOMENTS = {16: (4.0, 22.0)}
"""Bits of Adam's moments -> bytes of state and of traffic a parameter: two of 2 held, read and written, not of 4."""


def work_of(
    row: Mapping[str, str],
    model: Model,
    sequence: int,
    batch: int,
    says: Mapping[str, object],
    known: Runtime,
    release: str,
    inferred: list[str],
) -> Workload:
    """What was trained: method, optimizer and load of experts as words say, moments also as the runtime's default."""
    optimizer = str(says.get("optimizer") or "adamw")
    task = str(says.get("quantised") or "lora") if "lora" in (row.get("task") or "").lower() else "pretrain"
    imbalance = says.get("imbalance") if model.moe and whole(row, "ep", 1) != 1 else None
    work = workload(
        model,
        sequence=sequence,
        batch=batch,
        tokens=1e12,
        method=task,
        optimizer=optimizer,
        imbalance=imbalance if isinstance(imbalance, float) else None,
    )
    default = known.default("optimizer_bits", release)
    bits = int(str(says.get("optimizer_bits") or (default.value if default else 32)))
    inferred.append(f"optimizer: {optimizer}" + (f", moments in {bits} bit" if bits in MOMENTS else ""))
    if optimizer != "adamw" or bits not in MOMENTS:
        return work
    state_bytes, step_bytes = MOMENTS[bits]
    return replace(work, optimizer=replace(work.optimizer, state_bytes=state_bytes, step_bytes=step_bytes))
