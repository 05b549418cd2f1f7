"""What a row's run trained: the model, and how long a step took; encoders as runs of the one transformer model.

Encoders are trained by masked-language modelling under replicated data parallelism. MLPerf's BERT counts sequences of
up to 512 tokens that are run without padding: of a sequence about 255 tokens are real (half of MLPerf's Wikipedia set
is padding: Krell et al. 2021, arXiv 2107.02027). Logits are computed for the masked positions only, at most 15 % of the
tokens (20 of 128, 80 of 512). NVIDIA's examples bin sequences by length, 64 tokens wide, and pad within a bin: half a
bin more than the real tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from planner.axes.options import option_values
from planner.calibration.runs import names
from planner.calibration.runs.columns import Unpredictable, number, required, whole
from planner.calibration.runs.measured_run import NotStated, Run
from planner.calibration.runs.variants import RunVariant
from planner.catalog import Catalog
from planner.cost.flops import training_flops
from planner.figures import cost_inputs, matrix_formats
from planner.models import context
from planner.models.parameters import parameters
from planner.models.workload import library, workload
from planner.schema.workload import MixtureOfExperts, Model, Workload


def model_of(row: Mapping[str, str], dropout: bool = False) -> Model:
    """The library's model of that name where its shape agrees, with the row's layers; else the row's own shape."""
    base = re.sub(r"-proxy\d+L$", "", row["model"])
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


def step_time(row: Mapping[str, str], work: Workload, n: int) -> float | None:
    """Seconds per step: as stated, from tokens or samples per second, or from TFLOP/s by the model FLOPs of a step."""
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
        return _step_flops(work, _halved(row.get("flops_convention") or "")) / (rate * 1e12 * n)
    return None


def _halved(convention: str) -> bool:
    """Whether a count of model FLOPs halves attention because it is causal; in full where that is not stated."""
    if re.search(r"non-causal|causal factor not stated", convention):
        return False
    return bool(re.search(r"causal|since 2025|2025-07\+", convention))


def _step_flops(work: Workload, halved: bool) -> float:
    """Model FLOPs of a step, attention in full, or halved for causality."""
    positions = context.of_whole_sequence(work.sequence, causal=halved)
    figures = replace(cost_inputs.shape(work, None), attended=positions, index_width=0.0)
    return work.batch * work.sequence * float(training_flops(figures, parameters(work.model).active))


REAL_TOKENS = 255
"""Mean tokens of a sequence of MLPerf's BERT, padding left out."""
BIN = 64
"""Width of a bin of lengths in NVIDIA's examples, tokens. From memory of their data loader, not opened."""
RUNTIME = "pytorch-ddp"


def encoder(run: Run, row: Mapping[str, str], catalog: Catalog) -> Run:
    """The run of an encoder row.

    Raises:
        NotStated: the model's shape or the batch is not stated, or the part lacks the precision.
    """
    known, accelerators = library(), run.accelerators
    batch = int(number(row, "global_batch_seqs") or 0)
    if run.model not in known:
        raise NotStated("the model's shape is not stated")
    if batch <= 0:
        raise NotStated("global_batch_seqs is not stated")
    packed = run.task.startswith("mlperf")
    stated = int(number(row, "seq_len") or known[run.model].sequence)
    binned = "deeplearningexamples" in run.framework.lower() and stated > REAL_TOKENS
    sequence = REAL_TOKENS + binned * BIN // 2 if packed or binned else stated
    inferred = [f"{sequence} tokens a sequence of up to {stated}"] if sequence != stated else []
    release = catalog.runtime(RUNTIME).releases[-1 if packed else 0]
    cluster = run.cluster
    assert cluster is not None
    precision = (row.get("precision") or "").strip()
    if not precision:
        precision = (
            "fp8"
            if "fp8" in cluster.accelerator.peak and names.dated(row.get("framework_date") or "") >= "2023"
            else "fp16"
        )
        inferred.append(f"precision {precision}")
    if not matrix_formats.can_train_in(cluster.accelerator, precision):
        raise NotStated(f"{cluster.accelerator.id} has no matrix rate in {precision}")
    micro = int(number(row, "micro_batch") or 0)
    if not micro:
        micro = max(1, batch // accelerators)
        inferred.append("micro-batch: the whole batch at once")
    layout = dict(tp=1, pp=1, vpp=1, cp=1, ep=1, etp=1, dp=accelerators, micro=micro, batch=batch)
    options = option_values(precision=precision, dp_overlap=True)
    throughput = float(row["value"]) if row.get("metric") == "samples_per_s" and number(row, "value") else None
    return replace(
        run,
        measured=batch / throughput if throughput else number(row, "step_time_s"),
        workload=workload(known[run.model], sequence=sequence, batch=batch, optimizer="adamw"),
        runtime=RUNTIME,
        known_as=(RUNTIME,),
        year=release,
        date=names.dated(row.get("framework_date") or "") or release,
        variants=(RunVariant(layout, options),),
        batch=batch,
        inferred=tuple(inferred),
    )
