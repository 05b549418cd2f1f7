"""Parameter counts are those of the reference implementations, to the last one."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from planner.cost.flops import training_flops
from planner.figures.cost_inputs import shape
from planner.models import blocks
from planner.models.parameters import lora_parameters, moe_layers, parameters
from planner.models.workload import library, model, workload
from planner.schema.workload import LatentAttention, Method, MixtureOfExperts, Model
from tests.sweeps import sweep

COUNTS = tomllib.loads((Path(__file__).parent / "data" / "parameter_counts.toml").read_text(encoding="utf-8"))
COUNTED: dict[str, int] = COUNTS["counted"]
PUBLISHED_BILLIONS: dict[str, float] = COUNTS["billions"]

GPT = Model(
    id="gpt",
    name="GPT",
    source="test",
    layers=6,
    hidden=512,
    ffn=2048,
    heads=8,
    kv_heads=8,
    head_dim=64,
    vocab=1000,
    learned_positions=256,
    gated=False,
    tied=True,
    norm="layer",
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    sequence=256,
    batch=8,
    tokens=1e9,
)
PLAIN = replace(GPT, gated=True, norm="rms", qkv_bias=False, output_bias=False, mlp_bias=False, learned_positions=0)
MOE = replace(PLAIN, layers=7, moe=MixtureOfExperts(experts=8, experts_per_token=2, ffn=256))


@sweep("entry", COUNTED)
def test_the_library_counts_what_the_implementation_builds(entry: str) -> None:
    assert parameters(model(entry)).total == COUNTED[entry]


@sweep("entry", PUBLISHED_BILLIONS)
def test_the_library_agrees_with_published_counts(entry: str) -> None:
    assert parameters(model(entry)).total / 1e9 == pytest.approx(PUBLISHED_BILLIONS[entry], rel=0.005, abs=0.06)


@sweep("layers", [1, 6, 96])
def test_gpt_is_the_closed_formula(layers: int) -> None:
    """12 L h^2 (1 + 13/(12 h) + (V + s)/(12 L h)), arXiv 2104.04473, and the final norm that it leaves out."""
    h, v, s = GPT.hidden, GPT.vocab, GPT.learned_positions
    assert parameters(replace(GPT, layers=layers)).total == 12 * layers * h * h + 13 * layers * h + (v + s) * h + 2 * h


@sweep(
    ("change", "more"),
    [
        ({"tied": False}, 1000 * 512),
        ({"qkv_bias": True}, 6 * 3 * 512),
        ({"qkv_bias": True, "kv_heads": 2}, 6 * (512 + 2 * 128) - 6 * 512 * 2 * 384),
        ({"output_bias": True}, 6 * 512),
        ({"mlp_bias": True}, 6 * (2 * 2048 + 512)),
        ({"norms_per_layer": 4}, 6 * 2 * 512),
        ({"norm": "layer"}, 13 * 512),
        ({"norm": "layer", "norm_bias": False}, 0),
        ({"final_norm": False}, -512),
        ({"qk_norm": "head"}, 6 * 2 * 64),
        ({"qk_norm": "full"}, 6 * 2 * 512),
        ({"extra_parameters": 7}, 7),
        ({"extra_parameters_per_layer": 7}, 42),
        ({"token_types": 2}, 1024),
        ({"embedding_width": 128}, -1000 * 384),
        ({"head_dim": 128}, 6 * 4 * 512 * 512),
    ],
    ids=str,
)
def test_each_switch_adds_its_own_parameters(change: dict[str, object], more: int) -> None:
    assert parameters(replace(PLAIN, **change)).total - parameters(PLAIN).total == more


def test_an_untied_output_is_no_input_embedding() -> None:
    tied, untied = parameters(PLAIN), parameters(replace(PLAIN, tied=False))
    assert tied.active == untied.active == tied.total
    assert untied.total == untied.active + untied.embedding


def test_a_token_is_not_multiplied_with_positions() -> None:
    counted = parameters(GPT)
    assert counted.total - counted.active == counted.positions == 256 * 512


@sweep(("leading", "every", "mixtures"), [(0, 1, 7), (3, 1, 4), (0, 2, 3), (1, 2, 3), (2, 2, 2), (0, 7, 1)])
def test_mixture_layers(leading: int, every: int, mixtures: int) -> None:
    assert MOE.moe is not None
    mixed = replace(MOE, moe=replace(MOE.moe, leading_dense_layers=leading, every=every))
    counted = parameters(mixed)
    assert (moe_layers(mixed), counted.dense_layers) == (mixtures, 7 - mixtures)
    assert counted.routed_experts == mixtures * 8 * 3 * 512 * 256
    assert counted.total - counted.active == mixtures * 6 * 3 * 512 * 256


@sweep(
    ("change", "more_per_layer"),
    [
        ({"shared_ffn": 512}, 3 * 512 * 512),
        ({"shared_ffn": 512, "shared_gate": True}, 3 * 512 * 512 + 512),
        ({"router_bias": True}, 8),
        ({"expert_bias": True}, 8 * (2 * 256 + 512)),
        ({"experts": 9}, 512 + 3 * 512 * 256),
        ({"experts_per_token": 3}, 0),
    ],
    ids=str,
)
def test_each_switch_of_a_mixture(change: dict[str, object], more_per_layer: int) -> None:
    assert MOE.moe is not None
    changed = replace(MOE, moe=replace(MOE.moe, **change))
    assert parameters(changed).total - parameters(MOE).total == 7 * more_per_layer


def test_latent_attention_with_and_without_a_query_latent() -> None:
    latent = LatentAttention(query_rank=48, kv_rank=32, rope_dim=16, nope_dim=24, value_dim=40)
    h, a = 512, 8
    keys_values, output = h * (32 + 16) + 32 * a * (24 + 40), a * 40 * h
    counted = parameters(replace(PLAIN, latent=latent))
    assert counted.attention_per_layer == h * 48 + 48 * a * 40 + keys_values + output
    assert counted.norms_per_layer == 2 * h + 48 + 32
    direct = parameters(replace(PLAIN, latent=replace(latent, query_rank=0)))
    assert direct.attention_per_layer == h * a * 40 + keys_values + output


def test_parts_sum_to_the_total_everywhere() -> None:
    for entry, known in library().items():
        counted = parameters(known)
        assert counted.active <= counted.total, entry
        fed = counted.moe_layers + counted.dense_layers + blocks.feeding(known, "none")
        assert counted.layers == fed, entry


# ---- adapters --------------------------------------------------------------------------------------------------------


def lora(*targets: str, rank: int = 4) -> Method:
    return Method(kind="lora", rank=rank, targets=targets)  # type: ignore[arg-type]


def test_lora_is_rank_times_both_sides() -> None:
    grouped = replace(PLAIN, kv_heads=2)
    assert lora_parameters(grouped, lora("q")) == 6 * 4 * (512 + 512)
    assert lora_parameters(grouped, lora("k", "v")) == 2 * 6 * 4 * (512 + 128)
    assert lora_parameters(grouped, lora("up", "gate", "down")) == 3 * 6 * 4 * (512 + 2048)
    assert lora_parameters(grouped, lora("q", rank=8)) == 2 * lora_parameters(grouped, lora("q"))


def test_lora_on_llama_2_70b_as_mlperf_trains_it() -> None:
    """Rank 16 on queries, keys, values and output: 80 layers x 16 x (2 x 16384 + 2 x 9216)."""
    assert lora_parameters(model("llama2-70b"), lora("q", "k", "v", "o", rank=16)) == 65_536_000


def test_lora_reaches_every_expert_and_every_attention() -> None:
    assert MOE.moe is not None
    mixed = replace(MOE, moe=replace(MOE.moe, leading_dense_layers=1, shared_ffn=512))
    assert lora_parameters(mixed, lora("down")) == 4 * (1 * (512 + 2048) + 6 * 8 * (512 + 256) + 6 * (512 + 512))
    both = replace(PLAIN, family="encoder-decoder", encoder_layers=6)
    assert lora_parameters(both, lora("o")) == 3 * lora_parameters(PLAIN, lora("o"))


def test_lora_on_latent_attention_uses_its_own_matrices() -> None:
    deepseek = model("deepseek-v3")
    assert lora_parameters(deepseek, lora("q")) == 61 * 4 * (7168 + 1536 + 1536 + 128 * 192)
    assert lora_parameters(deepseek, lora("k")) == 61 * 4 * (7168 + 576)
    assert lora_parameters(deepseek, lora("v")) == 61 * 4 * (512 + 128 * 256)


def test_a_two_matrix_mlp_has_no_gate_to_adapt() -> None:
    assert lora_parameters(GPT, lora("gate")) == 0
    assert lora_parameters(GPT, Method()) == 0


# ---- work ------------------------------------------------------------------------------------------------------------


def trained(of: Model, attended: float) -> float:
    """FLOPs of one token that attends to so many positions."""
    return float(training_flops(replace(shape(workload(of), None), attended=attended), parameters(of).active))


def test_flops_per_token_are_the_megatron_formula() -> None:
    """72 L h^2 (1 + s/(6 h) + V/(12 L h)) with full attention; biases and norms are the rest."""
    gpt3 = model("gpt3-175b")
    n, h, s, v = gpt3.layers, gpt3.hidden, 2048, gpt3.vocab
    formula = 72 * n * h * h * (1 + s / (6 * h) + v / (12 * n * h))
    assert trained(gpt3, s) == pytest.approx(formula, rel=2e-4)


def test_attention_work_counts_every_attention() -> None:
    both = replace(PLAIN, family="encoder-decoder", encoder_layers=6)
    one = trained(PLAIN, 100) - trained(PLAIN, 0)
    assert one == 6 * 6 * 8 * 128 * 100
    assert trained(both, 100) - trained(both, 0) == 3 * one
    deepseek = model("deepseek-v3")
    work = trained(deepseek, 10) - trained(deepseek, 0)
    assert work == pytest.approx(6 * 61 * 128 * (192 + 128) * 10)
