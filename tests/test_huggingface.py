"""A config.json of every known architecture gives the model that transformers builds; anything else is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.models import files, huggingface
from planner.models.huggingface import from_config, read
from planner.models.huggingface.by_model_type import ARCHITECTURES
from planner.models.huggingface.decoders import DECODERS
from planner.models.huggingface.delta_and_compressed import COMPRESSED, KIMI, RWKV
from planner.models.huggingface.hybrids import GEMMA, HYBRIDS
from planner.models.parameters import parameters
from planner.models.workload import from_file, library, model
from planner.schema.workload import Model, Rotary, Window
from tests.sweeps import sweep
from tests.words import worded

DATA = json.loads((Path(__file__).parent / "data" / "huggingface_configs.json").read_text(encoding="utf-8"))["models"]
LLAMA: dict[str, Any] = DATA["llama3-8b"]["config"]
SHAPE = set(Model.__dataclass_fields__) - {
    *("id", "name", "source", "date", "assumed", "notes"),
    *("sequence", "batch", "tokens", "dropout"),
    *("norm_epsilon", "rotary", "context"),
}
"""Fields that a configuration determines, but for norms and positions, which those of the test leave to the class."""


def config(**changes: Any) -> dict[str, Any]:
    return {**LLAMA, **changes}


def refused(changed: dict[str, Any]) -> str:
    with pytest.raises(WrongQuestion) as caught:
        from_config(changed, "x")
    message = str(caught.value)
    assert message.startswith("config.json: ")
    return message.removeprefix("config.json: ")


# ---- what it reads ---------------------------------------------------------------------------------------------------


@sweep("entry", DATA)
def test_counts_what_transformers_builds(entry: str) -> None:
    assert parameters(from_config(DATA[entry]["config"], entry)).total == DATA[entry]["parameters"]


@sweep("entry", sorted(set(DATA) & set(library())))
def test_gives_the_shape_of_the_library(entry: str) -> None:
    read, known = from_config(DATA[entry]["config"], entry), model(entry)
    assert {name: getattr(read, name) for name in SHAPE} == {name: getattr(known, name) for name in SHAPE}


def test_every_architecture_is_covered() -> None:
    """Those of later tables: tests/test_architectures.py; of Omni models: tests/test_sound.py."""
    kinds = {entry["config"]["model_type"] for entry in DATA.values()} | {
        *COMPRESSED,
        *DECODERS,
        *GEMMA,
        *HYBRIDS,
        *KIMI,
        *RWKV,
    }
    kinds |= {name for name in ARCHITECTURES if "_vl" in name or "_omni" in name}
    kinds |= {entry["config"].get("text_config", {}).get("model_type") for entry in DATA.values()}
    # Grok-1's published class is not part of transformers: see the test below.
    assert set(ARCHITECTURES) - kinds == {"grok-1", "grok1"}


@pytest.mark.parametrize("experts", ["num_local_experts", "num_experts"])
def test_grok(experts: str) -> None:
    grok = from_config(
        {
            "model_type": "grok-1",
            "hidden_size": 6144,
            "intermediate_size": 32768,
            "num_hidden_layers": 64,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "vocab_size": 131072,
            experts: 8,
            "num_experts_per_tok": 2,
        },
        "grok",
    )
    assert parameters(grok) == parameters(model("grok1-314b"))


def test_mpt_of_llm_foundry_has_positions_and_biases() -> None:
    shape = {"d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4, "vocab_size": 50368}
    foundry = {**shape, "max_seq_len": 2048, "no_bias": False, "attn_config": {"alibi": False}}
    assert parameters(from_config({"model_type": "mpt", **foundry}, "mpt")) == parameters(model("mpt-7b"))


def test_t5_1_1_has_an_output_of_its_own() -> None:
    """As its configuration says and its published weights have it; transformers 5 ties them all the same."""
    shape = {"d_model": 768, "d_ff": 2048, "d_kv": 64, "num_layers": 12, "num_heads": 12, "vocab_size": 32128}
    newer = {**shape, "model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    assert parameters(from_config(newer, "t5")).total == 247_577_856


@sweep(
    ("changes", "window"),
    [
        ({"model_type": "mistral"}, Window(size=4096)),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "qwen2", "sliding_window": 4096}, None),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 32}, None),
        (
            {"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 0},
            Window(size=4096),
        ),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 4096,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"] * 16,
            },
            Window(size=4096, every=2),
        ),
        ({"model_type": "mistral", "layer_types": ["full_attention", *["sliding_attention"] * 31]}, Window(size=4096)),
        (
            {
                "model_type": "mixtral",
                "num_local_experts": 8,
                "num_experts_per_tok": 2,
                "sliding_window": 512,
                "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 8,
            },
            Window(size=512, every=4, inverted=True),
        ),
    ],
    ids=str,
)
def test_windows(changes: dict[str, Any], window: Window | None) -> None:
    assert from_config(config(**changes), "x").window == window


def test_windows_in_no_regular_pattern_are_listed() -> None:
    late = {"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 28}
    read = from_config(config(**late), "x")
    assert (read.window, read.mixers) == (Window(size=64), ("attention",) * 28 + ("window",) * 4)


def test_mixtures_with_windows() -> None:
    """Qwen2's window stands on every second layer, Qwen3's on all."""
    window = {"sliding_window": 64, "use_sliding_window": True, "max_window_layers": 99}
    two = from_config({**DATA["qwen2-moe"]["config"], **window}, "x")
    three = from_config({**DATA["qwen3-30b-a3b"]["config"], **window}, "x")
    assert (two.window, three.window) == (Window(size=64, every=2), Window(size=64))
    off = from_config({**DATA["qwen2-moe"]["config"], **window, "use_sliding_window": False}, "x")
    assert off.window is None


@sweep(
    ("entry", "said", "epsilon", "rotary"),
    [
        ("llama3-8b", {"rms_norm_eps": 1e-5, "rope_theta": 500000.0}, 1e-5, {"base": 5e5}),
        ("llama3-8b", {"rope_theta": 5e5, "rope_scaling": None}, 1e-6, {"base": 5e5}),
        ("llama3-8b", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, 1e-6, {"base": 5e5}),
        (
            "llama3-8b",
            {
                "rms_norm_eps": 1e-5,
                "rope_theta": 5e5,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 32.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                },
            },
            1e-5,
            {"base": 5e5, "scaling": "llama3", "factor": 32.0, "original": 8192},
        ),
        (
            "deepseek-v3",
            {
                "rms_norm_eps": 1e-6,
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 40,
                    "mscale": 1.0,
                    "mscale_all_dim": 1.0,
                    "original_max_position_embeddings": 4096,
                },
            },
            1e-6,
            {"base": 1e4, "scaling": "yarn", "factor": 40.0, "original": 4096, "mscale_all_dim": 1.0},
        ),
        ("mixtral-8x7b", {}, 1e-5, {"base": 1e6}),
        ("llama3-8b", {"rope_scaling": {"type": "linear", "factor": 2.0}}, 1e-6, None),
        ("gpt2", {}, 1e-5, None),
    ],
)
def test_norms_and_positions(entry: str, said: dict[str, Any], epsilon: float, rotary: dict[str, Any] | None) -> None:
    """As the class takes them where a configuration leaves them out."""
    read = from_config({**DATA[entry]["config"], **said}, "x")
    assert read.norm_epsilon == epsilon
    assert read.rotary == (Rotary(**rotary) if rotary else None)


@worded("huggingface.norms", read=json.loads)
def test_norms_and_positions_that_are_none(said: dict[str, Any]) -> str:
    return refused(config(**said))


def test_gpt2s_own_inner_width_and_dropout() -> None:
    gpt2 = DATA["gpt2"]["config"]
    assert from_config({**gpt2, "n_inner": 1000}, "x").ffn == 1000
    assert from_config(gpt2, "x").dropout
    assert not from_config({**gpt2, "resid_pdrop": 0}, "x").dropout


def test_labels_of_a_vision_model() -> None:
    vit = {key: value for key, value in DATA["vit-b16"]["config"].items() if key != "num_labels"}
    assert from_config(vit, "x").vocab == 2
    assert from_config({**vit, "id2label": {"0": "cat", "1": "dog", "2": "cow"}}, "x").vocab == 3
    with pytest.raises(WrongQuestion, match="id2label = 3: must be an object"):
        from_config({**vit, "id2label": 3}, "x")
    assert from_config({**vit, "num_labels": 10}, "x").sequence == 197


def test_a_dense_deepseek_and_a_dense_llama_4() -> None:
    deepseek = {**DATA["deepseek-biased"]["config"], "n_routed_experts": None}
    assert from_config(deepseek, "x").moe is None
    llama4 = DATA["llama4-scout"]["config"]["text_config"]
    dense = from_config({**llama4, "interleave_moe_layer_step": 0, "attention_chunk_size": None}, "x")
    assert (dense.moe, dense.window) == (None, None)


def test_what_a_configuration_cannot_say_is_assumed() -> None:
    read = from_config(LLAMA, "x")
    assert set(read.assumed) == {"sequence", "batch", "tokens"}
    assert read.sequence == 8192
    assert from_config(config(max_position_embeddings=2048), "x").sequence == 2048


# ---- what it refuses -------------------------------------------------------------------------------------------------


@worded("huggingface.values", read=json.loads)
def test_impossible_values(changes: dict[str, Any]) -> str:
    return refused(config(**changes))


@worded("huggingface.families", read=json.loads)
def test_impossible_values_of_other_families(changed: tuple[str, dict[str, Any]]) -> str:
    entry, changes = changed
    return refused({**DATA[entry]["config"], **changes})


def test_a_product_of_sizes_that_no_record_holds() -> None:
    huge = {**DATA["bert-large"]["config"], "hidden_size": 10**8, "num_attention_heads": 1000}
    assert "x.extra_parameters = 10000000300030522: must be at most 1,000,000,000,000" in refused(huge)


def test_layers_of_llama_4_that_no_rule_describes() -> None:
    text = {**DATA["llama4-maverick"]["config"]["text_config"], "moe_layers": [0, 5]}
    assert "moe_layers = [0, 5]: must be every 2th layer" in refused({"model_type": "llama4", "text_config": text})


@sweep("key", ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_missing_key_is_named(key: str) -> None:
    assert f"{key} missing" in refused({name: value for name, value in LLAMA.items() if name != key})


def test_a_misspelt_key_is_found() -> None:
    misspelt = {("hiden_size" if name == "hidden_size" else name): value for name, value in LLAMA.items()}
    assert refused(misspelt) == "hidden_size missing; did you mean hidden_size by 'hiden_size'?"


def test_a_file_that_nests_endlessly_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(WrongQuestion, match="malformed JSON"):
        read(path)


@worded("huggingface.malformed")
def test_malformed_files(text: str, tmp_path: Path) -> WrongQuestion:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongQuestion) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    return caught.value


def test_files_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(WrongQuestion, match="No such file"):
        read(path)
    with pytest.raises(WrongQuestion, match="Is a directory"):
        read(tmp_path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(WrongQuestion, match="not UTF-8"):
        read(path)
    monkeypatch.setattr(files, "SIZE_LIMIT", 3)
    with pytest.raises(WrongQuestion, match="4 bytes; a model file has at most 3"):
        read(path)


# ---- ids and files ---------------------------------------------------------------------------------------------------


@sweep(
    ("name", "file", "entry"),
    [
        ("meta-llama/Llama-3.2-1B", "config.json", "llama-3.2-1b"),
        ("/models/Qwen3 8B/", "config.json", "qwen3-8b"),
        (None, "config.json", "my-folder"),
        (None, "tiny.json", "tiny"),
        ("///", "---.json", "imported"),
    ],
)
def test_the_id_comes_from_the_file(tmp_path: Path, name: str | None, file: str, entry: str) -> None:
    folder = tmp_path / "My Folder"
    folder.mkdir()
    (folder / file).write_text(json.dumps(config(_name_or_path=name)), encoding="utf-8")
    assert read(folder / file).id == entry
    assert read(folder / file, "mine").id == "mine"
    assert huggingface.load(folder / file)["hidden_size"] == 4096


@sweep("entry", DATA)
def test_what_is_written_is_read_back(tmp_path: Path, entry: str) -> None:
    imported = from_config(DATA[entry]["config"], entry)
    path = tmp_path / "model.toml"
    writing.write(path, files.dump(imported))
    assert from_file(path, entry) == imported
