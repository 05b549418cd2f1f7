"""Encoders trained by masked-language modelling under replicated data parallelism: a row becomes a run of the one
transformer model.

MLPerf's BERT counts sequences of up to 512 tokens that are run without padding: of a sequence about 255 tokens are real
(half of MLPerf's Wikipedia set is padding: Krell et al. 2021, arXiv 2107.02027). Logits are computed for the masked
positions only, at most 15 % of the tokens (20 of 128, 80 of 512). NVIDIA's examples bin sequences by length, 64 tokens
wide, and pad within a bin: half a bin more than the real tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.axes.options import option_values
from planner.calibration.runs import names
from planner.calibration.runs.columns import Unpredictable, number
from planner.calibration.runs.measured_run import Run
from planner.calibration.runs.variants import RunVariant
from planner.catalog import Catalog
from planner.figures import matrix_formats
from planner.models.workload import library, workload

REAL_TOKENS = 255
"""Mean tokens of a sequence of MLPerf's BERT, padding left out."""
BIN = 64
"""Width of a bin of lengths in NVIDIA's examples, tokens. From memory of their data loader, not opened."""
RUNTIME = "pytorch-ddp"


def filled(run: Run, row: Mapping[str, str], catalog: Catalog) -> Run:
    """The run of an encoder row.

    Raises:
        Unpredictable: the model's shape or the batch is not stated, or the part lacks the precision.
    """
    known, accelerators = library(), run.accelerators
    batch = int(number(row, "global_batch_seqs") or 0)
    if run.model not in known:
        raise Unpredictable("the model's shape is not stated")
    if batch <= 0:
        raise Unpredictable("global_batch_seqs is not stated")
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
        raise Unpredictable(f"{cluster.accelerator.id} has no matrix rate in {precision}")
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
