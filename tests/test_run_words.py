"""What rows of runs say in words, in the terms of axes; and what they are taken to mean where they say nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest

from planner import catalog
from planner.axes import AXES
from planner.axes.table import (
    ATTENTION_KERNEL,
    DISPATCHER,
    DP_OVERLAP,
    EP_OVERLAP,
    RECOMPUTE,
    SEQUENCE_PARALLEL,
    TP_OVERLAP,
    ZERO,
)
from planner.axes.values import FULL, NO_RECOMPUTE, OFFLOADED, SELECTIVE
from planner.calibration.fit.frame import Frame
from planner.calibration.report.validation import judged
from planner.calibration.run import judged as read_and_judged
from planner.calibration.runs import columns, machines, names, recomputed, trained, words
from planner.calibration.runs.columns import Unpredictable
from planner.calibration.runs.reading import TRAITS, run_of
from planner.figures import conformal_intervals
from planner.figures.efficiency import Efficiencies
from planner.schema.hardware import Runtime
from tests.sweeps import sweep


@pytest.fixture(scope="module")
def known():
    from planner.catalog import load

    return load()


def row(**cells):
    """A row of a dense model on eight nodes that says nothing of its options."""
    return {
        "id": "one", "source": "one", "model": "llama3-8b", "family": "dense", "accelerator": "H100-SXM-80GB",
        "num_accelerators": "64", "seq_len": "8192", "global_batch_seqs": "128", "tp": "2", "pp": "1",
        "micro_batch": "1", "step_time_s": "10", "framework": "Megatron-LM", "framework_date": "2026.06",
    } | cells  # fmt: skip


def mixture(**cells):
    """A row of a mixture whose experts are spread over ranks."""
    return row(**({"model": "qwen3-30b-a3b", "family": "moe", "ep": "8"} | cells))


def predicted_by(run):
    """Readings that a run may be predicted by."""
    return [variant for variant in run.variants if variant.likely and not variant.rank]


@sweep(
    ("notes", "says"),
    [
        ("schedule 1F1B", {"interleaved": False}),
        ("interleaved 1F1B, 4 chunks", {"interleaved": True, "chunks": 4}),
        ("VPP=6", {"chunks": 6}),
        ("non-interleaved 1F1B", {"schedule": "1f1b", "interleaved": False}),
        ("zero-bubble pipeline", {"schedule": "zero-bubble", "interleaved": False}),
        ("ZB-V schedule", {"schedule": "zbv", "interleaved": False}),
        ("InterleavedZeroBubble", {"schedule": "interleaved-zero-bubble", "interleaved": True}),
        ("DualPipe", {"schedule": "dualpipe-v", "interleaved": False}),
        ("DeepEP", {"dispatcher": "deepep"}),
        ("with HybridEP dispatch", {"dispatcher": "hybridep"}),
        ("dispatcher: flex", {"dispatcher": "deepep"}),
        ("dispatcher: alltoall; routing: natural", {"dispatcher": "alltoall"}),
        ("all-to-all dispatcher", {"dispatcher": "alltoall"}),
        ("allgather dispatcher", {"dispatcher": "allgather"}),
        ("expert exchanges overlap (recipe)", {"ep_overlap": True}),
        ("expert exchanges do not overlap (recipe)", {"ep_overlap": False}),
        ("no EP overlap", {"ep_overlap": False}),
        ("A2A overlap", {"ep_overlap": True}),
        ("+1f1b overlap", {"ep_overlap": True, "interleaved": False}),
        ("async TP", {"tp_overlap": True}),
        ("without TP comm overlap", {"tp_overlap": False}),
        ("overlaps TP/DP", {"tp_overlap": True, "dp_overlap": True}),
        ("overlap-grad-reduce, overlap-param-gather", {"dp_overlap": True}),
        ("FlashAttention-3", {"attention_kernel": "flash-3"}),
        ("FA2", {"attention_kernel": "flash-2"}),
        ("FA4 kernels", {"attention_kernel": "flash-4"}),
        ("cuDNN attention", {"attention_kernel": "cudnn"}),
        ("TE fused attention", {"attention_kernel": "cudnn"}),
        ("Liger kernels", {"fused_cross_entropy": True, "chunked_loss": True}),
        ("fused linear cross entropy", {"fused_cross_entropy": True, "chunked_loss": True}),
        ("chunked cross-entropy", {"fused_cross_entropy": True, "chunked_loss": True}),
        ("cross-entropy fusion", {"fused_cross_entropy": True}),
        ("8-bit Adam (bnb)", {"optimizer": "adam-8bit"}),
        ("BF16 optimizer states", {"optimizer_bits": 16}),
        ("Adam moments in bf16", {"optimizer_bits": 16}),
        ("precision mode bf16/PURE", {"gradient_bytes": 4.0, "gradient_wire_bytes": 2.0}),
        ("QLoRA", {"quantised": "qlora"}),
        ("HSDP 2x8", {"zero_scope": "node"}),
        ("HSDP 2x64", {"zero_scope": "full"}),
        ("states shared in 4 nodes", {"zero_scope": "nodes:4"}),
        ("hybrid sharding", {"zero_scope": "node"}),
        ("capacity factor 1.25", {"imbalance": 1.25}),
        ("optimizer offload 50 %", {"offload": 0.5}),
        ("GA=4", {"accumulation": 4}),
        ("8 accumulation steps", {"accumulation": 8}),
        ("no DeepEP", {}),
        ("hybrid Mamba-MoE model", {}),
        ("1 shared expert, first 3 layers dense", {}),
    ],
)
def test_words_say_what_they_mean(notes, says):
    assert words.stated({"notes": notes}) == says


def test_values_of_words_are_those_of_their_axes():
    for word in words.WORDS:
        for name, value in word.says.items():
            axis = AXES.get(name)
            if axis is None:
                assert name in words.OTHERS or name in Runtime.__dataclass_fields__, name
            elif axis.choices:
                assert value in axis.choices or callable(value), (name, value)


@sweep(
    ("cell", "notes", "policy"),
    [
        ("selective: layernorm, moe_act, mla_up_proj", "", "selective:layernorm+moe_act+mla_up_proj"),
        ("selective (RMSNorm, MLA up-proj)", "", "selective:layernorm+mla_up_proj"),
        ("core_attn", "", "selective"),
        ("selective:core_attn+moe_act", "", "selective:core_attn+moe_act"),
        ("none", "", "none"),
        ("off", "", "none"),
        ("full remat", "", "full"),
        ("full activation checkpointing", "", "full"),
        ("every second block", "", "block:0.5"),
        ("selective 1/3", "", "block:0.333333"),
        ("minimal", "", "selective"),
        ("save_qkv_proj", "", "selective"),
        ("selective op", "", "selective"),
        ("", "recompute modules: layernorm+moe_act", "selective:layernorm+moe_act"),
        ("", "MaxText remat_policy=full", "full"),
        ("", "remat policy minimal", "selective"),
    ],
)
def test_recomputation_is_read_in_words(cell, notes, policy):
    assert recomputed.stated({"activation_recompute": cell, "notes": notes}, True, []).name == policy


def test_recomputation_offloaded_to_the_host_is_not_selective_alone():
    for cell, notes in (("minimal_offloaded", ""), ("selective", "remat qkv_proj_offloaded"), ("host-offloaded", "")):
        assert recomputed.stated({"activation_recompute": cell, "notes": notes}, True, []) is OFFLOADED


def test_selective_blocks_outside_megatron_are_full_ones_and_half_of_them_where_none_is_named():
    for cell in ("selective: blocks", "selective: LlamaDecoderLayer"):
        assert recomputed.stated({"activation_recompute": cell}, False, []) is FULL
    some = recomputed.stated({"activation_recompute": "selective"}, False, [])
    assert some is not None and some.layers == 0.5
    assert recomputed.stated({"activation_recompute": "selective"}, True, []) is SELECTIVE
    with pytest.raises(Unpredictable, match="none, selective, full and block:N are known"):
        recomputed.stated({"activation_recompute": "partially"}, True, [])


@sweep(
    ("published", "part"),
    [
        ("H800-SXM-80GB", "H800-SXM5-80GB"),
        ("NVIDIA H200-SXM5-141GB", "H200-SXM-141GB"),
        ("MI355X-288GB", "MI355X"),
        ("TPU7x/Ironwood", "TPU-v7x"),
        ("TPU v6e", "TPU-v6e"),
        ("TPU-v5p", "TPU-v5p"),
        ("TPU v5 lite", "TPU-v5e"),
        ("H20-96GB", "H20"),
        ("A800 80GB", "A800-SXM4-80GB"),
        ("AWS Trainium2", "Trainium2"),
        ("GB200 NVL72", "GB200"),
        ("MI300", None),
    ],
)
def test_accelerators_are_known_as_people_write_them(published, part):
    assert names.accelerator(published) == part


def test_nvl_and_pcie_cards_are_no_sxm_modules(known):
    for published in ("NVIDIA H200-NVL-141GB", "H100 NVL", "H800 PCIe"):
        assert "SXM" not in (names.accelerator(published, known.accelerators) or "")


@sweep(
    ("accelerator", "network", "fabric", "ports"),
    [
        ("H100-SXM5-80GB", "32x100 Gb EFA", "efa-v2", (32, 100)),
        ("A100-SXM4-80GB", "4x100 Gb EFA", "efa-v1", (4, 100)),
        ("A100-SXM4-80GB", "RoCE 1600 Gb/s per node", "roce-200g", (8, 200)),
        ("H100-SXM5-80GB", "RoCE 400 Gb/s per GPU", "roce-400g", (8, 400)),
        ("A100-SXM4-80GB", "RoCE 1,600 Gb/s per node", "roce-200g", (8, 200)),
        ("H100-SXM5-80GB", "0x100 Gb EFA", "efa-v4", (8, 400)),
        ("H100-SXM5-80GB", "GCP A3 (4x200 Gb/s GPUDirect-TCPX per node)", "gcp-tcpx", (4, 200)),
        ("A100-SXM4-80GB", "Jean Zay: 4x100 Gb/s Omni-Path per node", "infiniband-hdr", (4, 100)),
        ("H100-SXM5-80GB", "Management: 1x Ethernet 10GB/Sec", "infiniband-ndr", (8, 400)),
        ("GB200", "NVL72 domains + RoCE", "infiniband-ndr", (72, 400)),
    ],
)
def test_networks_are_known_as_people_write_them(known, accelerator, network, fabric, ports):
    made = machines.cluster_of({"inter_node_network": network}, known, accelerator, 144, [])
    assert (made.fabric.id, made.node.nics, round(made.node.nic_bandwidth * 8e-9)) == (fabric, *ports)


@sweep(
    ("text", "runtime"),
    [
        ("NeMo AutoModel", "automodel"),
        ("NeMo 25.04", "nemo"),
        ("InternEvo", "internevo"),
        ("MegaBlocks", "megatron-core"),
        ("HAI-LLM", "hai-llm"),
        ("XTuner V1", "fsdp2"),
        ("torchao float8 trainer", "fsdp2"),
        ("FMS-FSDP", "fsdp"),
    ],
)
def test_frameworks_are_known_as_people_write_them(text, runtime):
    from planner.catalog import load

    assert names.framework(text, load().runtimes) == runtime


@sweep(
    ("cells", "vendor", "runtime"),
    [
        ({"notes": "system eos_n64_ngc24_nemo"}, "NVIDIA", "nemo"),
        ({"notes": "per_device_batch 4, GSPMD"}, "NVIDIA", "maxtext"),
        ({"notes": "fully_shard + compile"}, "NVIDIA", "fsdp2"),
        ({"tp": "8", "pp": "4"}, "NVIDIA", "megatron-core"),
        ({"tp": "8", "pp": "4"}, "AMD", "primus"),
        ({"tp": "8"}, "Google", "maxtext"),
        ({"tp": "8"}, "AWS", "neuronx"),
        ({"task": "lora", "tp": "1", "pp": "1"}, "NVIDIA", "hf-trainer"),
        ({"tp": "1", "pp": "1"}, "NVIDIA", None),
        ({"tp": "8", "pp": "4"}, "Intel", None),
    ],
)
def test_a_framework_that_is_not_named_follows_from_what_a_row_says(cells, vendor, runtime):
    assert names.likely(cells, vendor) == runtime


@sweep(
    ("date", "text", "stated", "complete"),
    [
        ("2025", "", (), "2025"),
        ("2025", "measured 2025-09", (), "2025.09"),
        ("2025", "NeMo 25.04", (), "2025.04"),
        ("2025", "measured 2024-09", (), "2025"),
        ("2025", "", ("precision=nvfp4",), "2025.09"),
        ("2025.02", "NeMo 25.04", (), "2025.02"),
    ],
)
def test_a_year_alone_is_completed_by_what_the_row_names(date, text, stated, complete):
    from planner.catalog import load

    assert columns.completed(date, load().runtime("megatron-core"), text, stated) == complete


def test_defaults_of_runtimes_are_values_of_their_axes_with_a_source(known):
    for runtime in known.runtimes.values():
        for name, defaults in runtime.defaults.items():
            axis = AXES.get(name)
            assert axis or name in (*TRAITS, "optimizer_bits", "model_flops"), (runtime.id, name)
            dated = [default.since or "" for default in defaults]
            assert dated == sorted(dated)
            for default in defaults:
                assert "@" in default.source or "arXiv" in default.source or runtime.between
                for value in (default.value, *default.also):
                    if axis and axis.choices:
                        assert str(value) in axis.choices, (runtime.id, name, value)


def test_what_a_row_leaves_open_is_the_release_s_default(known):
    """Megatron's examples start the distributed optimizer, overlapped, and sequence parallelism since 2024.07."""
    new = run_of(row(), known)
    old = run_of(row(framework_date="2023.10"), known)

    for run, on in ((new, True), (old, False)):
        for variant in predicted_by(run):
            options = variant.options
            assert (options[ZERO], options[DP_OVERLAP], options[SEQUENCE_PARALLEL]) == (int(on), on, on)
            assert (options[TP_OVERLAP], options[RECOMPUTE]) == (False, NO_RECOMPUTE)
    assert "dp_overlap: on, megatron-core's default (or off)" in new.inferred
    assert "dp_overlap: off, megatron-core's default" in old.inferred


def test_torchtitan_on_blackwell_had_flash_attention_2_until_it_asked_for_cudnn(known):
    def kernels(accelerator, date):
        cells = row(framework="torchtitan", framework_date=date, accelerator=accelerator, tp="1")
        return {variant.options[ATTENTION_KERNEL] for variant in run_of(cells, known).variants}

    assert kernels("B200", "2025.03") == {"flash-2"}
    assert kernels("B200", "2025.06") == kernels("H100-SXM-80GB", "2025.03") == {"none"}


def test_what_a_row_states_is_no_default(known):
    stated = {"zero_stage": "0", "sequence_parallel": "0", "notes": "TP overlap; no overlap-grad-reduce"}
    run = run_of(row(**stated), known)

    for variant in run.variants:
        options = variant.options
        assert (options[ZERO], options[SEQUENCE_PARALLEL]) == (0, False)
        assert (options[TP_OVERLAP], options[DP_OVERLAP]) == (True, False)


def test_schedules_in_words_decide_how_many_chunks(known):
    def chunks(notes):
        run = run_of(row(pp="4", notes=notes), known)
        return {variant.layout["vpp"] for variant in predicted_by(run)}

    assert chunks("") == {1}
    assert chunks("1F1B") == {1}
    assert chunks("interleaved 1F1B, 4 chunks") == {4}
    assert chunks("interleaved") == {2, 4, 8}
    assert chunks("DualPipe") == {2}, "a stage from either end of the model"


def test_dispatchers_in_words_are_the_plan_s(known):
    plain, fast = run_of(mixture(), known), run_of(mixture(notes="DeepEP, EP overlap"), known)

    assert {variant.options[DISPATCHER] for variant in predicted_by(plain)} == {"alltoall"}
    assert {variant.options[DISPATCHER] for variant in plain.variants} == {"alltoall", "allgather"}
    assert {variant.options[DISPATCHER] for variant in fast.variants} == {"deepep"}
    assert True in {variant.options[EP_OVERLAP] for variant in fast.variants}
    assert True not in {variant.options[EP_OVERLAP] for variant in plain.variants}


def test_moments_heads_and_frozen_bases_in_words_change_what_is_held(known):
    half = run_of(row(notes="bf16 optimizer states"), known)
    liger = run_of(row(notes="Liger kernels"), known)
    adapters = run_of(row(task="lora", tp="1", framework="TRL", notes="QLoRA"), known)

    assert half.workload.optimizer.state_bytes == 4.0
    assert dict(liger.traits)["chunked_loss"] is True
    assert adapters.workload.method.base == "nf4"


def test_a_batch_that_is_not_stated_follows_from_micro_batches(known):
    """64 accelerators by tp 2 are 32 replicas: 32 x 1 x 4 sequences."""
    run = run_of(row(global_batch_seqs="", notes="GA=4"), known)
    by_tokens = run_of(row(global_batch_seqs="", notes="batch of 4M tokens"), known)
    neither = run_of(row(global_batch_seqs="", pp="4", tp="1"), known)

    assert run.workload.batch == 128
    assert "global batch: micro-batch x dp x 4 accumulated" in run.inferred
    assert by_tokens.workload.batch == 512
    assert neither.reason == "global_batch_seqs is not stated"


def test_readings_that_remain_widen_the_interval(known):
    """Where a row says everything its readings are no apart; of two that remain, half the difference of their logs."""
    using = Efficiencies.of(known)
    open_row = row(sequence_parallel="1", zero_stage="1", notes="no TP overlap", activation_recompute="none")
    shut = run_of(open_row | {"notes": "no TP overlap; DP overlap"}, known)
    other = run_of(open_row | {"notes": "no TP overlap; no DP overlap"}, known)
    left_open = run_of(open_row, known)
    frame = Frame(known, [shut, other, left_open])
    prediction = frame.predict(using)
    judgement = judged(frame.runs, frame, prediction, conformal_intervals.read(known))

    apart = frame.apart(prediction)
    assert apart[0] == 0.0
    half_apart = abs(math.log(prediction.time[0] / prediction.time[1])) / 2
    assert half_apart > 0
    assert apart[2] == pytest.approx(half_apart)
    assert prediction.time[2] == prediction.time[0]
    width = np.log(judgement.high / judgement.time)
    assert width[2] == pytest.approx(math.hypot(width[0], 1.28 * half_apart))


def test_of_readings_without_a_default_the_middle_is_taken(known):
    """Of micro-batches of 1, 2 and 4, all of which fit."""
    cells = {"framework_date": "2022", "zero_stage": "1", "sequence_parallel": "1", "activation_recompute": "full"}
    run = run_of(row(micro_batch="", **cells), known)
    using = Efficiencies.of(known)
    times = [float(Frame(known, [replace(run, variants=(v,))]).predict(using).time[0]) for v in run.variants]

    assert len(times) == 3
    assert Frame(known, [run]).predict(using).time[0] == sorted(times)[1]


def test_a_framework_that_nothing_names_is_as_wide_as_frameworks_are_apart(known):
    run = run_of(row(framework="", tp="1", micro_batch="1", zero_stage="1", activation_recompute="none"), known)
    frame = Frame(known, [run])

    assert run.runtime == names.ANY
    assert frame.apart(frame.predict(Efficiencies.of(known)))[0] > 0.01


def test_defaults_that_do_not_fit_give_way(known):
    """Under ZeRO 0 70 billion parameters by tp 8 are more than an accelerator has: its states were shared, then."""
    run = run_of(row(model="llama3-70b", tp="8", framework_date="2023.06", accelerator="H100-SXM-80GB"), known)
    assert {variant.rank for variant in run.variants} >= {0, 1, 2}
    frame = Frame(known, [run])
    chosen = frame.reading(int(frame.predict(Efficiencies.of(known)).row[0]))
    assert chosen.rank > 0
    assert chosen.options[ZERO] == 1


def test_layers_recomputed_are_more_than_half_where_half_does_not_fit(tmp_path):
    """Of 80 layers of Llama 2 70B, two sequences of 4,096 each, half alone would keep 90 GB (fms-fsdp's own recipe)."""
    row = {
        **{"id": 1, "source": "own", "family": "dense", "model": "llama2-70b", "accelerators_per_node": 8},
        "accelerator": "A100-SXM4-80GB",
        **{"num_accelerators": 128, "tp": 1, "pp": 1, "micro_batch": 2, "global_batch_seqs": 256, "seq_len": 4096},
        **{"zero_stage": 3, "sharding": "FSDP FULL_SHARD", "activation_recompute": "selective", "precision": "bf16"},
        **{"framework": "fms-fsdp", "release": 2024, "step_time_s": 20.0},
    }
    file = tmp_path / "runs.csv"
    file.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())) + "\n")
    seen = read_and_judged(catalog.load(), file)[1]
    assert list(seen.fits) == [True]
    assert "or more where that does not fit" in seen.readings[0]


def test_states_inside_a_node_are_read_in_words():
    for text in ("ZeRO-1 inside a node (zero1=8), replicated across nodes", "states sharded within each node", "HSDP"):
        assert words.stated({"sharding": text})["zero_scope"] == "node"
    for text in ("ZeRO-1 over all data-parallel ranks", "ZeRO-3 in the nodes of a rack"):
        assert "zero_scope" not in words.stated({"sharding": text})


@sweep(("published", "model"), [
    ("nemotron-v3-nano-30b-(26.02)", "nemotron3-nano-30b-a3b"),
    ("Nemotron-V3-Super-120B (26.04)", None),
    ("nemotron-v3-super-120b", "nemotron3-super-120b-a12b"),
])  # fmt: skip
def test_models_are_known_with_the_release_of_their_recipe(published, model):
    row = {"model": published, "seq_len": "4096"}
    if model is None:
        with pytest.raises(Unpredictable, match="shape is not stated"):
            trained.model_of(row)
    else:
        assert trained.model_of(row).id == model
