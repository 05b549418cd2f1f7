"""Published configurations of many architectures give the models that transformers builds; blocks of several kinds add
up, are planned for, and are refused where something of them is not understood."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import planner
from docs import architectures
from planner.axes.options import option_values
from planner.base.errors import WrongQuestion
from planner.commands.screen import models_view
from planner.cost import attention
from planner.cost import recurrent as recurrent_cost
from planner.cost.flops import training_flops
from planner.figures.cost_inputs import shape
from planner.models import blocks, files, recurrent
from planner.models.context import attended
from planner.models.huggingface import from_config
from planner.models.huggingface.by_model_type import ARCHITECTURES
from planner.models.huggingface.decoders import DECODERS
from planner.models.huggingface.delta_and_compressed import COMPRESSED, KIMI, RWKV
from planner.models.huggingface.hybrids import GEMMA, HYBRIDS
from planner.models.parameters import indexing, lora_parameters, parameters
from planner.models.workload import from_file, workload
from planner.schema.plan import PlanSet
from planner.schema.workload import Model, Recurrence, Window
from planner.space.cost_grid import single_grid
from planner.verify import model as verified
from tests.cases import figures
from tests.sweeps import sweep
from tests.words import worded

DATA = json.loads((Path(__file__).parent / "data" / "published_configs.json").read_text(encoding="utf-8"))["models"]
NOT_SHOWN = {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen3_omni_moe_text", "llama4"}
"""Names under which another row's configuration is read."""
HYBRID = (
    *("qwen3-next-80b-a3b", "jamba-v0.1", "nemotron3-super-120b-a12b", "falcon-h1-0.5b", "minimax-text-01"),
    *("kimi-linear-48b-a3b", "rwkv7-2.9b"),
)
"""One of each kind of recurrence, blocks of one kind each, both side by side, latent experts."""


def read(entry: str, **changes: Any) -> Model:
    return from_config({**DATA[entry]["config"], **changes}, entry)


def refused(entry: str, **changes: Any) -> str:
    with pytest.raises(WrongQuestion) as caught:
        read(entry, **changes)
    return str(caught.value).removeprefix("config.json: ")


# ---- counts ----------------------------------------------------------------------------------------------------------


@sweep("entry", DATA)
def test_counts_what_transformers_builds(entry: str) -> None:
    counted = parameters(read(entry))
    assert counted.total == DATA[entry]["parameters"]
    assert counted.layers <= counted.attention_layers + counted.recurrent_layers + counted.moe_layers + (
        counted.dense_layers
    )


@sweep("entry", DATA)
def test_verify_counts_the_same_block_by_block(entry: str) -> None:
    model = read(entry)
    counted = parameters(model)
    assert (verified.parameters(model), verified.active_parameters(model)) == (counted.total, counted.active)


def test_every_architecture_has_a_configuration() -> None:
    kinds = {entry["config"].get("text_config", entry["config"])["model_type"] for entry in DATA.values()}
    assert {*COMPRESSED, *DECODERS, *GEMMA, *HYBRIDS, *KIMI, *RWKV} <= kinds <= set(ARCHITECTURES)


@sweep(
    ("entry", "billions", "active"),
    [
        ("qwen3-next-80b-a3b", 79.7, 3.6),
        ("nemotron3-nano-30b-a3b", 31.6, 3.2),
        ("nemotron3-super-120b-a12b", 120.7, 12.2),
        ("minimax-text-01", 456.1, 47.2),
        ("jamba1.5-large", 398.6, 93.6),
        ("glm5", 743.9, 40.8),
        ("minimax-m2", 228.7, 10.4),
        ("deepseek-v4-flash", 284.3, 13.3),
        ("deepseek-v4-pro", 1573.0, 48.9),
    ],
)
def test_what_a_token_visits(entry: str, billions: float, active: float) -> None:
    """As names and papers say, the output projection added: A3B, A12B, 45.9B and 1.2B, 94B, 40B, A10B, 13B, 49B."""
    counted = parameters(read(entry))
    assert (counted.total / 1e9, counted.active / 1e9) == pytest.approx((billions, active), abs=0.06)


@sweep("entry", [name for name, entry in DATA.items() if "vision_config" in entry["config"]])
def test_of_a_vision_model_the_text_part_is_planned_and_it_says_so(entry: str) -> None:
    assert "the text part alone: the tower is neither counted nor planned" in read(entry).assumed["shape"]


def test_a_text_part_is_tied_as_the_whole_model_says() -> None:
    own = DATA["gemma3-defaults"]["config"]
    assert from_config({**own, "tie_word_embeddings": False}, "x").tied is False
    assert from_config(own, "x").tied is True
    assert "shape" not in read("phi-4").assumed


# ---- blocks ----------------------------------------------------------------------------------------------------------


def test_patterns_repeat_and_name_every_block() -> None:
    qwen, jamba = read("qwen3-next-80b-a3b"), read("jamba-v0.1")
    assert qwen.mixers == ("recurrent", "recurrent", "recurrent", "attention")
    assert (blocks.recurring(qwen), blocks.attending(qwen), blocks.period(qwen)) == (36, 12, 4)
    assert jamba.feeds == ("mlp", "mixture")
    assert [i for i, (mixer, _) in enumerate(blocks.blocks(jamba)) if mixer == "attention"] == [4, 12, 20, 28]
    nano = read("nemotron3-nano-30b-a3b")
    assert (nano.layers, blocks.period(nano)) == (52, 48)
    assert (blocks.recurring(nano), blocks.attending(nano), blocks.feeding(nano, "mixture")) == (23, 6, 23)
    assert blocks.feeding(nano, "mlp") == 0


@sweep("items", ["abab", "aab", "aabaa", "abcabca", "aaaa", "abcd", "aabaaab"])
def test_a_repetition_is_the_shortest(items: str) -> None:
    shortest = next(p for p in range(1, len(items) + 1) if all(a == items[i % p] for i, a in enumerate(items)))
    assert blocks.repetition(items) == shortest


def test_patterns_of_many_blocks_are_read_in_one_pass() -> None:
    """With every beginning tried in turn, blocks of which the last alone differs take the square of their number."""

    class Counted(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        def __ne__(self, other: object) -> bool:
            return not self == other

    assert blocks.repetition([Counted("a")] * 999 + [Counted("b")]) == 1000
    assert Counted.compared < 4000


def test_a_window_on_all_but_the_last_of_each_round_is_counted_exactly() -> None:
    """26 blocks in rounds of six: four see all."""
    gemma = read("gemma3-1b")
    assert gemma.window is not None
    assert blocks.windowed(gemma) == 22 / 26
    assert attended(gemma, 4096) == pytest.approx((22 * 512 * (1 - 512 / 8192) + 4 * 2048) / 26, rel=1e-12)


def test_an_index_that_blocks_share_is_held_and_worked_out_once() -> None:
    """GLM-5.2: blocks 0, 1, 2 and then every fourth; transformers and the published checkpoint count the same."""
    own, shared = read("glm5"), read("glm5.2")
    assert (blocks.scoring(own), blocks.scoring(shared)) == (78, 21)
    assert blocks.period(own) == 1
    assert blocks.period(shared) == 4
    fewer = 57 * (indexing(own) + 2 * 128)
    assert parameters(own).total - parameters(shared).total == fewer
    assert shape(workload(shared), None).index_width == pytest.approx(32 * 128 * 21 / 78)


def test_sparse_attention_sees_the_best_and_scores_all() -> None:
    found = read("deepseek-v3.2")
    assert attended(found, 8192) == 2048 * (1 - 2048 / 16384)
    assert attended(found, 2048) == 1024.0
    assert indexing(found) == 1536 * 64 * 128 + 7168 * (128 + 64)
    per_layer = verified.work(found, 8192).states / found.layers
    assert per_layer == 8192 * 64 * 128


@sweep("entry", ["deepseek-v3.2", *HYBRID])
def test_work_of_a_token_is_what_verify_counts(entry: str) -> None:
    """`models show` by its own sum; vectors (norms, biases, convolutions) stand in it as products, 0.3 % at most."""
    found = read(entry)
    counted = verified.work(found, found.sequence)
    expected = 6 * (counted.products + counted.scores / 2 + counted.states)
    assert models_view.document(found)["training_flops_per_token"] == pytest.approx(expected, rel=3e-3)


@sweep(
    ("kind", "first", "recurrence", "chunked"),
    [
        # Two heads of 4, states of 3, chunks of 5: i = 8.
        ("mamba", 16, 3.5 * 8 * 3, 3.5 * 8 * 3),
        ("mamba2", 16 + 6 + 2, 3.5 * 8 * 3, 5 * 3 + 8 * (5 + 6)),
        ("delta", 16 + 6 + 4, 3 * 8 * 3, 2 * 5 * (9 + 8) + 3 * 8 * 3),
        ("lightning", 16 + 6, 2 * 8 * 3, 2 * 5 * 7 + 2 * 8 * 3),
        ("rwkv7", 24 + 2, 4 * 8 * 3, 2 * 5 * (15 + 16) + 4 * 8 * 3),
    ],
)
def test_recurrences_by_hand(kind: Any, first: int, recurrence: float, chunked: float) -> None:
    own = Recurrence(kind=kind, heads=2, value_dim=4, key_heads=1, key_dim=3, chunk=5, step_rank=2)
    found = recurrent.block(tiny(recurrence=own, mixers=("recurrent", "attention")))
    assert found is not None
    assert (found.first, found.inner, found.recurrence, found.chunked) == (first, 8, recurrence, chunked)


def tiny(**changes: Any) -> Model:
    plain: dict[str, Any] = {"id": "tiny", "name": "tiny", "source": "made up", "layers": 4, "hidden": 64, "ffn": 128}
    plain |= {"heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 1000, "sequence": 256, "batch": 8, "tokens": 1e6}
    return Model(**{**plain, **changes})


def _trained(of: Model, attended: float) -> float:
    """FLOPs of one token that attends to so many positions."""
    return float(training_flops(replace(shape(workload(of), None), attended=attended), parameters(of).active))


def test_longer_sequences_cost_a_recurrence_no_more_a_token() -> None:
    """All blocks recurrent: FLOPs of a token do not depend on the sequence; with attention they do."""
    own = Recurrence(kind="mamba2", heads=4, value_dim=16, key_heads=1, key_dim=16)
    alone, mixed = (tiny(recurrence=own, mixers=mixers) for mixers in (("recurrent",), ("recurrent", "attention")))
    short, long = (_trained(alone, length) for length in (128.0, 4096.0))
    assert short == long
    assert _trained(mixed, 128.0) < _trained(mixed, 4096.0)


@sweep(
    ("node", "heads", "groups", "kind", "chunk", "milliseconds"),
    [
        ("dgx-h200", 32, 16, "delta", 64, 0.472),  # QwenLM/FlashQLA@c18a4860, benchmark/benchmark_results_H200.txt, fla
        ("gb200-nvl72", 32, 16, "delta", 64, 0.482),  # benchmark_results_GB200.txt
        ("dgx-h100", 128, 1, "mamba2", 256, 8192 / 12.62e3),  # vllm-project/vllm 27299, tokens a second
    ],
)
def test_kernels_of_recurrences_take_what_tables_say(
    node: str, heads: int, groups: int, kind: Any, chunk: int, milliseconds: float
) -> None:
    """Of 8,192 tokens, with keys, values, results and the states of chunks moved once, within a fifth.

    Twice as many heads take less than twice as long in these tables (0.814 and 0.761 ms), not so here.
    """
    width = 128 if kind == "delta" else 64
    own = Recurrence(kind=kind, heads=heads, value_dim=width, key_heads=groups, key_dim=128, chunk=chunk)
    model = tiny(recurrence=own, mixers=("recurrent",), sequence=8192)
    ones = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro", "batch", "nodes"), 1)
    grid = single_grid(figures(model, f"{node}:1", "megatron-core"), ones, option_values(precision="bf16"))
    inner = heads * width
    moved = 2.0 * (2.0 * inner + 2.0 * groups * 128 + 4.0 * inner * 128 / chunk) * 8192 / grid.device.memory_rate
    assert float(recurrent_cost.kernel(grid).forward + moved) == pytest.approx(milliseconds * 1e-3, rel=0.2)


@sweep(
    ("node", "causal", "tokens", "forward", "backward"),
    [
        # FlashAttention-3, width 128: meta-pytorch/tritonbench 1254 and facebookexperimental/triton 3463.
        *[("dgx-h100", False, 1024, 541.3, 313.3), ("dgx-h100", False, 2048, 617.8, 434.8)],
        *[("dgx-h100", False, 4096, 628.4, 519.8), ("dgx-h100", False, 8192, 638.6, 561.4)],
        # FlashAttention-4, width 128, and -2 on A5000, width 64: Dao-AILab/flash-attention 2280, gpu-mode 10.
        *[("dgx-b200", True, 8192, 1418.1, 1117.9), ("dgx-b200", True, 8192, 1418.1, 1208.6)],
        *[("dgx-a100-80gb", False, 1024, 81.0, 62.5), ("dgx-a100-80gb", False, 8192, 81.9, 77.4)],
        # Splash attention on TPU v5p, width 128, of a window (apple/axlearn, tpu_attention_benchmark.py).
        *[("tpu-v5p-4", True, 8192, 322.0, 215.0), ("tpu-v5p-4", True, 8192, 338.0, 230.0)],
    ],
)
def test_attention_takes_as_much_longer_backward_as_tables_say(
    node: str, causal: bool, tokens: int, forward: float, backward: float
) -> None:
    """Within a tenth, time a FLOP; attention both ways counts as a causal one of twice the tokens."""
    ones = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro", "batch", "nodes"), 1)
    device = single_grid(figures(tiny(), f"{node}:1", "megatron-core"), ones, option_values(precision="bf16")).device
    found = attention.backward(device, tokens * (1.0 if causal else 2.0)) / attention.BACKWARD
    assert found == pytest.approx(forward / backward, rel=0.1)


@sweep(("heads", "milliseconds"), [(40, 3.2), (56, 4.3), (72, 5.5), (88, 6.7)])
def test_a_windowed_kernel_of_a_tpu_takes_what_its_table_says(heads: int, milliseconds: float) -> None:
    """Within a tenth: 2 x 8,192 tokens, window 4,096 (apple/axlearn, tpu_attention_benchmark.py, TPU v5p)."""
    model = tiny(heads=heads, kv_heads=heads, head_dim=128, sequence=8192, mixers=("window",), window=Window(size=4096))
    ones = dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "batch", "nodes"), 1)
    grid = single_grid(figures(model, "tpu-v5p-4:1", "maxtext"), ones | {"micro": 2}, option_values(precision="bf16"))
    assert float(attention.kernel(grid).forward) == pytest.approx(milliseconds * 1e-3, rel=0.1)


def test_shares_of_the_cost_model_follow_the_blocks() -> None:
    found = shape(workload(read("nemotron-h-8b")), None)
    assert (found.attention_share, found.recurrent_share, found.mixing_share) == (4 / 52, 24 / 52, 28 / 52)
    assert found.idle_share == 28 / 52
    both = shape(workload(read("falcon-h1-0.5b")), None)
    assert (both.attention_share, both.recurrent_share, both.mixing_share, both.idle_share) == (1.0, 1.0, 1.0, 0.0)


def test_the_first_block_of_rwkv7_has_no_values_to_mix_with() -> None:
    """12 h^2, its ranks and 19 vectors a layer; four vectors more, one block's value rank less (arXiv 2503.14456)."""
    found, h, ranks = read("rwkv7-2.9b"), 2560, 96 + 96 + 64 + 320
    by_hand = 2 * 65536 * h + 4 * h + 32 * h * (12 * h + 2 * ranks + 19) - (2 * h * 64 + h)
    assert parameters(found).total == verified.parameters(found) == by_hand
    assert recurrent.lacking(found) == 2 * h * 64 + h


@sweep(
    ("changes", "says"),
    [
        ({"attn": {"layers": [1]}}, "attn = blocks of attention between"),
        ({"value_dim": 5120}, "value_dim = values of another width"),
        ({"head_dim": 96}, "head_dim = 96: heads of it must make"),
    ],
)
def test_what_rwkv7_is_not(changes: dict[str, Any], says: str) -> None:
    assert refused("rwkv7-2.9b", **changes).startswith(says)


def test_rwkv7_has_one_stage_and_no_class_of_transformers() -> None:
    found = read("rwkv7-2.9b")
    with pytest.raises(planner.ClusterwrightError, match="stages of an encoder-decoder, or of RWKV-7"):
        planner.plan(found, "dgx-h100:4", batch=256, pin=["pp=2"])
    plans = planner.plan(found, "dgx-h100:4", batch=256, runtime="hf-trainer", top=1)
    with pytest.raises(planner.ClusterwrightError, match="which has no RWKV-7"):
        planner.export(plans, to="hf-trainer")


# ---- plans -----------------------------------------------------------------------------------------------------------


@cache
def large(entry: str) -> PlanSet:
    return planner.plan(read(entry), "dgx-h100:64", batch=1024, top=1)


@pytest.mark.slow
@sweep("entry", HYBRID, ci=2)
def test_plans_are_made_and_hold_up(entry: str) -> None:
    """Every document is checked as it is written: parameters of its stages, FLOPs, memory, by code of its own."""
    found = large(entry).plans[0]
    work = verified.work(read(entry), found.workload.sequence)
    expected = 6 * (work.products + work.scores + work.states) * 1024 * found.workload.sequence
    assert found.prediction.model_flops == pytest.approx(expected, rel=1e-9)
    assert 0.1 < found.prediction.mfu < 0.7


@pytest.mark.parametrize(("entry", "what"), [("bamba-9b", "recurrence"), ("phi-1", None)])
def test_what_few_runs_have_shown_is_assumed(entry: str, what: str | None) -> None:
    found = planner.plan(read(entry), "dgx-h100:4", batch=256, top=1).plans[0]
    assert [a.what for a in found.assumptions if "few runs with a recurrence are measured" in a.why] == (
        [f"{entry}.{what}"] if what else []
    )


def test_long_patterns_are_summed_up_on_the_screen() -> None:
    shown = {name: value for name, value, _ in models_view.sheet(read("nemotron3-nano-30b-a3b"))}
    assert shown["mixers"] == "recurrent x 21, none x 21, attention x 6, repeated"
    assert {name: value for name, value, _ in models_view.sheet(read("qwen3.5-9b"))}["mixers"] == (
        "recurrent x 3, attention, repeated"
    )


def test_stages_need_not_hold_whole_rounds() -> None:
    """Qwen3-Next's rounds are of four blocks; 48 of them are cut anywhere, the last stage giving up some for the head,
    and equally where a runtime cuts no other way.
    """
    model = read("qwen3-next-80b-a3b")
    found = planner.plan(model, "dgx-h100:16", batch=512, pin={"pp": 4, "vpp": 1}, top=1).plans[0]
    assert [stage.layers for stage in found.parallelism.stages] == [13, 13, 13, 9]
    found = planner.plan(model, "dgx-h100:16", batch=512, pin={"pp": 16, "vpp": 1}, top=1).plans[0]
    assert sum(stage.layers for stage in found.parallelism.stages) == 48
    old = planner.plan(model, "dgx-h100:16", batch=512, pin={"pp": 4, "vpp": 1}, runtime="megatron-core@2024", top=1)
    assert [stage.layers for stage in old.plans[0].parallelism.stages] == [12] * 4


def test_recurrences_are_not_cut_along_the_sequence() -> None:
    with pytest.raises(planner.ClusterwrightError, match="whole sequence on one rank"):
        planner.plan(read("bamba-9b"), "dgx-h100:4", batch=256, pin={"cp": 2})


# ---- what is not understood ------------------------------------------------------------------------------------------


@worded("architectures.not_understood", read=json.loads)
def test_what_is_not_understood(question: tuple[str, dict[str, Any]]) -> str:
    entry, changes = question
    return refused(entry, **changes)


@sweep("kind", ["zamba2", "rwkv", "mimo_v2_flash", "longcat_flash"])
def test_architectures_that_are_not_priced_are_refused_by_name(kind: str) -> None:
    with pytest.raises(WrongQuestion, match=f"model_type '{kind}': .* are not understood"):
        from_config({**DATA["phi-4"]["config"], "model_type": kind}, "x")


@worded("architectures.patterns", read=json.loads)
def test_patterns_that_do_not_go_together(changes: dict[str, Any], tmp_path: Path) -> WrongQuestion:
    path = tmp_path / "own.toml"
    lines = files.dump(tiny()) + "".join(f"{name} = {json.dumps(value)}\n" for name, value in changes.items())
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(WrongQuestion) as raised:
        from_file(path, "tiny")
    return raised.value


@sweep("entry", HYBRID)
def test_written_and_read_again(entry: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(files.dump(read(entry)), encoding="utf-8")
    assert from_file(path, entry) == read(entry)


# ---- exports ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@sweep("target", ["megatron", "torchtitan"])
@sweep(
    ("entry", "says"),
    [
        ("qwen3.5-9b", r"blocks with a recurrence \(delta\) have no flag"),
        ("bamba-9b", r"blocks with a recurrence \(mamba2\) have no flag"),
        ("deepseek-v3.2", "sparse attention's index has no flag"),
        ("olmo-7b", "norms without weights have no flag"),
        ("granite3-8b", "constants on embeddings, residuals or logits have no flag"),
    ],
)
def test_blocks_that_a_trainer_cannot_build_are_refused(entry: str, says: str, target: str) -> None:
    plans = large(entry)
    with pytest.raises(planner.ClusterwrightError, match=says):
        planner.export(plans, to=target)


@pytest.mark.slow
def test_experts_on_a_latent_are_refused() -> None:
    """Megatron has them in its patterns of layers: tests/test_export_hybrids.py."""
    plans = large("nemotron3-super-120b-a12b")
    with pytest.raises(planner.ClusterwrightError, match="experts on a latent have no flag"):
        planner.export(plans, to="torchtitan")


def test_blocks_side_by_side_are_no_blocks_behind_each_other() -> None:
    """One norm for attention and MLP: both read it."""
    plans = planner.plan(read("phi-2"), "dgx-h100:4", batch=256, top=1)
    with pytest.raises(planner.ClusterwrightError, match="1 norms a layer, pre, have no flag"):
        planner.export(plans, to="megatron")


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_page_lists_every_architecture_with_its_count() -> None:
    configurations = architectures.configurations()
    page, _, towers = architectures.PAGE.read_text(encoding="utf-8").partition(architectures.TOWERS)
    assert towers.splitlines() == list(architectures.towers())
    rows = [line.split(" | ") for line in page.splitlines() if "| `" in line]
    assert [cells[0].strip("| `") for cells in rows] == list(configurations)
    assert set(configurations) | {"grok-1", "grok1", "llama4_text"} >= set(ARCHITECTURES) - NOT_SHOWN
    for cells, entry in zip(rows, configurations.values(), strict=True):
        assert cells[2] == f"{entry['parameters']:,}" and cells[3] == "yes", cells[0]
        assert cells[4] in ("yes", "see `models show`"), cells[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["phi3", "qwen3_5_text"])
def test_rows_of_the_page_are_what_is_found(kind: str) -> None:
    page = architectures.PAGE.read_text(encoding="utf-8").splitlines()
    assert architectures.row(kind, architectures.configurations()[kind]) in page


# ---- heads that are other ones where everything is seen --------------------------------------------------------------

GEMMA4 = ("gemma4-31b", "gemma4-26b-a4b")


def test_gemma_4_holds_other_heads_in_every_sixth_block() -> None:
    """16 x 256 in the window; 4 x 512 beyond it, one product for keys and values."""
    model = read("gemma4-31b")
    assert model.mixers == ("window",) * 5 + ("attention",)
    assert (blocks.period(model), blocks.attending_to_all(model)) == (6, 10)
    h, queries = 5376, 32 * 512
    assert parameters(model).full_more_per_layer == h * (2 * queries + 4 * 512) + 2 * 512 - (
        h * (2 * 32 * 256 + 2 * 16 * 256) + 2 * 256
    )


@pytest.mark.parametrize("entry", GEMMA4)
def test_adapters_of_other_heads_are_counted_twice_alike(entry: str) -> None:
    model = read(entry)
    for targets in (("q",), ("v",), ("k", "o"), ("q", "k", "v", "o", "up", "down", "gate")):
        method = workload(model, method="lora", rank=8, targets=targets).method
        assert lora_parameters(model, method) == verified.adapters(model, 8, frozenset(targets))


@pytest.mark.parametrize(("entry", "settings"), [("gemma4-31b", "pp=2 tp=4"), ("gemma4-26b-a4b", "pp=5 ep=8")])
def test_gemma_4_is_planned_and_checked(entry: str, settings: str) -> None:
    """FLOPs, parameters and stages are counted again block by block, else the plan would not leave the program."""
    plan = planner.estimate(read(entry), "dgx-h100:5", settings, batch=80)[0]
    assert sum(stage.layers for stage in plan.parallelism.stages) == read(entry).layers


@worded("architectures.gemma_4", read=json.loads)
def test_what_of_gemma_4_is_not_understood_is_named(changes: dict[str, Any]) -> str:
    return refused("gemma4-31b", **changes)


# ---- Kimi Linear -----------------------------------------------------------------------------------------------------


def test_kimi_linear_is_read_as_the_class_and_as_its_checkpoint_write_it() -> None:
    """Layers listed from 1 on with their own names, or the class's; widths 32 x 128, a rank of 128."""
    own = DATA["kimi-linear-48b-a3b"]["config"]
    plain = {key: value for key, value in own.items() if key != "linear_attn_config"}
    listed = own["linear_attn_config"]["full_attn_layers"]
    kinds = ["full_attention" if layer in listed else "linear_attention" for layer in range(1, 28)]
    asked = from_config({**plain, "layer_types": kinds, "num_experts": 256, "moe_renormalize": True}, "x")
    model = read("kimi-linear-48b-a3b")
    assert (asked.mixers, asked.recurrence, asked.moe) == (model.mixers, model.recurrence, model.moe)
    assert from_config(plain, "x").mixers[:5] == ("recurrent",) * 4 + ("attention",)
    h, i, r = 2304, 4096, 128
    found = recurrent.block(model)
    assert found is not None
    products = h * (3 * i + 2 * r + 32) + 2 * r * i + i * h
    assert recurrent.products(h, found) == products
    assert recurrent.parameters(h, found) == products + 4 * 3 * i + 32 + i + 128


def test_layers_of_kimi_linear_are_each_listed_once() -> None:
    lists = DATA["kimi-linear-48b-a3b"]["config"]["linear_attn_config"]
    for wrong in ({"kda_layers": [1, 2]}, {"full_attn_layers": [4, 4]}, {"full_attn_layers": ["a"]}):
        assert "each once" in refused("kimi-linear-48b-a3b", linear_attn_config={**lists, **wrong})
