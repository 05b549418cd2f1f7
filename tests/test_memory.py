"""What is alive at the peak: each effect has its direction and its size."""

from dataclasses import replace
from functools import cache

import pytest

from planner import api, catalog, cost
from planner.axes.options import option_values
from planner.axes.values import FULL, NO_RECOMPUTE, OFFLOADED, SELECTIVE, Recompute, recompute
from planner.cost import data_parallel, pipeline, stage_memory, transformer
from planner.cost.figures import Grid
from planner.cost.layer_activations import layer_activations
from planner.figures import cost_inputs
from planner.figures.efficiency import reached
from planner.space.cost_grid import single_grid
from tests.cases import figures
from tests.sweeps import sweep

ONES = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro", "batch", "nodes"), 1)


@cache
def known(model: str, on: str, runtime: str, release: str, precision: str):
    return figures(model, on, runtime, release, (precision,))


def grid_of(
    model: str = "llama3-8b",
    runtime: str = "fsdp2",
    release: str = "",
    precision: str = "bf16",
    *,
    policy: Recompute = NO_RECOMPUTE,
    zero: int = 0,
    overlap: bool = False,
    **layout: int,
) -> Grid:
    options = option_values(
        precision=precision,
        recompute=policy,
        sequence_parallel=layout.get("tp", 1) > 1,
        tp_overlap=overlap,
        zero=zero,
        dp_overlap=True,
    )
    degrees = ONES | {"dp": 8, "batch": 64} | layout
    return single_grid(known(model, "dgx-h100:1", runtime, release, precision), degrees, options)


def held(grid: Grid) -> float:
    return float(cost.evaluate(grid).memory)


def passing(grid: Grid) -> stage_memory.Passing:
    return stage_memory.passing(grid, layer_activations(grid, grid.shape.moe_share).again)


def tokens(grid: Grid) -> float:
    return float(grid.layout.micro * grid.shape.sequence / grid.layout.cp)


def kept(grid: Grid) -> float:
    """Bytes per token of one layer."""
    return float(layer_activations(grid, grid.shape.moe_share).kept) / tokens(grid)


# ---- the loss --------------------------------------------------------------------------------------------------------


def test_a_compiled_loss_takes_less():
    """16-bit logits with three fp32 copies against logits and gradients: 8 bytes a logit."""
    before, after = grid_of(release="2024"), grid_of(release="2025")
    less = 8.0 * tokens(before) * before.shape.vocab * before.stack.activation_factor
    assert held(before) - held(after) == pytest.approx(less, rel=1e-9)


@pytest.mark.parametrize(
    "runtime, release, moved",
    [
        ("megatron-core", "", 32.0),
        ("megatron-deepspeed", "", 52.0),
        ("fsdp2", "2024", 52.0),
        ("fsdp2", "2025", 8.0),
        ("hf-trainer-liger", "", 6.0),
    ],
)
def test_kernels_of_the_loss_move_what_their_code_says(runtime, release, moved):
    """Bytes of a logit, half each way: fused by Megatron, operator by operator, compiled, and Liger's, which reads
    logits twice and writes their gradient once, in 16 bit.
    """
    grid = grid_of(runtime=runtime, release=release)
    assert float(transformer.loss_bytes(grid)) == tokens(grid) * grid.shape.vocab * moved / 2.0


def test_a_split_vocabulary_takes_a_share_and_a_copy_more():
    grid = grid_of(release="2024", tp=4, dp=2)
    assert float(stage_memory.loss(grid)) == tokens(grid) * grid.shape.vocab / 4 * 18.0


def test_the_loss_and_a_layer_take_turns():
    """Recomputation needs a layer again when the logits are gone: only the larger counts."""
    grid = grid_of(policy=FULL, micro=4)
    comes = passing(grid)
    assert 0 < float(comes.layer) < float(comes.loss)
    smaller = replace(grid, shape=replace(grid.shape, vocab=0.0, head_parameters=0.0))
    assert float(passing(smaller).loss) == 0
    spare = float(stage_memory.stages(smaller, pipeline.split(smaller.shape, smaller.layout))[0].buffers)
    assert spare == pytest.approx(float(comes.always + comes.layer) * grid.stack.activation_factor)


def test_overlap_passes_a_hidden_state_on_in_pieces():
    whole, pieces = grid_of(tp=8, dp=1), grid_of(tp=8, dp=1, overlap=True)
    less = 4.0 * tokens(whole) * whole.shape.hidden * whole.stack.activation_factor
    assert held(whole) - held(pieces) == pytest.approx(less, rel=1e-9)


def _most_layers_held(layers: int, micro_batches: int) -> int:
    """Layers whose activations one stage holds at most where each micro-batch goes forward, layer by layer, beside the
    one before it going back: an event by event walk.
    """
    alive = most = 0
    for micro_batch in range(micro_batches + 1):
        for _ in range(layers):
            alive += micro_batch < micro_batches
            most = max(most, alive)
            alive -= micro_batch > 0
    assert not alive
    return most


def test_exchanges_that_overlap_hold_a_layer_more():
    grid = grid_of("mixtral-8x7b", "megatron-core", ep=8)
    beside = replace(grid, options=replace(grid.options, ep_overlap=1.0))
    layers, each = int(grid.shape.layers), kept(grid) * tokens(grid) * grid.stack.activation_factor
    assert _most_layers_held(layers, 8) == layers + 1
    assert held(beside) - held(grid) == pytest.approx(each, rel=1e-9)


# ---- what is stored --------------------------------------------------------------------------------------------------


def test_transformer_engine_keeps_inputs_of_8_bit_products_in_one_byte():
    """Of two blocks, of the output projection and of the second product of the MLP: 3 h + f bytes a token."""
    wide, narrow = (grid_of(runtime="megatron-core", precision=precision) for precision in ("bf16", "fp8"))
    shape = wide.shape
    assert kept(wide) - kept(narrow) == pytest.approx(2.0 * shape.hidden + shape.heads * shape.v_dim + shape.ffn)
    assert kept(grid_of(precision="bf16")) == kept(grid_of(precision="fp8"))


def test_without_a_compiler_selective_recomputation_keeps_what_nobody_reads():
    compiled = grid_of(policy=SELECTIVE)
    eager = replace(compiled, stack=replace(compiled.stack, unread_outputs=1.0))
    assert kept(eager) - kept(compiled) == 2.0 * compiled.shape.hidden
    assert kept(replace(grid_of(), stack=eager.stack)) == kept(grid_of())


LATENTS = {
    "mla_up_proj": lambda s, i: (
        2.0 * (s.heads * s.qk_dim + s.kv_heads * (s.qk_dim + s.v_dim) - s.query_rank - s.kv_rank)
    ),
    "moe_act": lambda s, imbalance: 2.0 * s.experts_per_token * imbalance * s.expert_ffn,
    "layernorm": lambda s, i: 4.0 * s.hidden,
    "mlp": lambda s, i: 0.0,
    # What permuted copies and the shared expert's products read and give; the norm before them is the input.
    "moe": lambda s, i: 2.0 * (s.experts_per_token * i * (s.hidden + 3.0 * s.expert_ffn) + 3.0 * s.shared_ffn),
}


@sweep("module", LATENTS)
def test_a_recomputed_module_drops_what_it_gives(module):
    """A mixture's layer of DeepSeek-V3: bytes a token; it has no dense MLP."""
    plain, less = (
        grid_of("deepseek-v3", "megatron-core", policy=policy, ep=8)
        for policy in (NO_RECOMPUTE, recompute(f"selective:{module}"))
    )
    dropped = LATENTS[module](plain.shape, plain.stack.expert_imbalance)
    whole = (layer_activations(grid, 1.0).kept / tokens(grid) for grid in (plain, less))
    assert float(next(whole) - next(whole)) == pytest.approx(dropped)


def test_a_dense_mlp_is_recomputed_whole():
    """All but its input: the norm's output, gate and up, and the function's output; one layer's lives at a time."""
    plain, less = (
        grid_of("llama3-8b", "megatron-core", policy=policy) for policy in (NO_RECOMPUTE, recompute("selective:mlp"))
    )
    s, dropped = plain.shape, 2.0 * (plain.shape.hidden + 3.0 * plain.shape.ffn)
    assert kept(plain) - kept(less) == pytest.approx(dropped)
    again = layer_activations(less, 0.0).again / tokens(less)
    assert float(again) == pytest.approx(dropped) and s.gated == 1


# ---- what is gathered and copied -------------------------------------------------------------------------------------


def test_layers_are_gathered_whole_and_one_ahead():
    grid = grid_of(zero=3)
    layer = float(stage_memory.layer_parameters(grid))
    assert float(passing(grid).always) == pytest.approx(4.0 * layer + 4.0 * tokens(grid) * grid.shape.hidden)
    assert float(passing(grid).layer) == pytest.approx((2.0 + 4.0) * layer)
    assert float(passing(grid_of()).layer) == 0


def test_a_compiler_gathers_matrix_by_matrix():
    grid = grid_of(runtime="fsdp", zero=3)
    finer = replace(grid, stack=replace(grid.stack, gathers_matrices=1.0))
    assert float(stage_memory.gathered_parameters(finer)) == grid.shape.hidden * grid.shape.ffn
    assert held(finer) < held(grid)


@sweep(("zero", "shards"), [(0, 1), (1, 8), (2, 8)])
def test_deepspeed_copies_the_gradients_of_its_shard(zero, shards):
    grid = grid_of(runtime="deepspeed", zero=zero)
    without = replace(grid, stack=replace(grid.stack, update_bytes=0.0))
    whole = data_parallel.stage_parameters(grid, pipeline.split(grid.shape, grid.layout))[0].dense
    assert held(grid) - held(without) == pytest.approx(6.0 * float(whole) / shards)


def test_no_memory_is_set_aside_for_the_allocator():
    """What it may need beyond the prediction is the risk's to say."""
    small, large = (figures("llama3-8b", on, "megatron-core").stack for on in ("dgx-a100-40gb:1", "dgx-h100:1"))
    assert small.resident_bytes == large.resident_bytes


def test_what_is_offloaded_leaves_a_layers_input():
    """MaxText's remat policies that end in _offloaded; its ranks share hidden states by width."""
    kept_there = grid_of(runtime="maxtext", policy=SELECTIVE, tp=4, dp=2)
    offloaded = grid_of(runtime="maxtext", policy=OFFLOADED, tp=4, dp=2)
    assert kept(offloaded) == 2.0 * offloaded.shape.hidden / 4 < kept(kept_there)
    apart = replace(offloaded, options=replace(offloaded.options, sequence_parallel=0.0))
    assert kept(apart) == kept(offloaded)


def test_before_ampere_megatron_stores_scores() -> None:
    """Transformer Engine's fused kernels need compute capability 8.0; FSDP's come from PyTorch, which has others."""
    known = catalog.load()
    megatron, fsdp = known.runtime("megatron-core"), known.runtime("fsdp2")
    parts = {part.generation: part for part in known.accelerators.values()}
    for runtime, before in ((megatron, 0.0), (fsdp, 1.0)):
        for generation in ("volta", "turing", "ampere", "hopper"):
            fitted = reached(known, parts[generation], runtime, runtime.releases[-1])
            stack = cost_inputs.stack(runtime, fitted.runtime, runtime.releases[-1], parts[generation])
            assert stack.fused_attention == (before if generation in ("volta", "turing") else 1.0)
    long = api.plan("llama3.2-3b", "dgx-v100:2").plans[0]
    assert long.recompute.policy != "none"  # 24 heads of 8,192 x 8,192 scores a layer
