"""The library of models and optimizers, the user's own over it, and the workload that a question builds."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from planner.base import writing
from planner.base.errors import WrongQuestion
from planner.base.resources import data
from planner.models import files, model_rules
from planner.models.fine_tuning import METHODS
from planner.models.parameters import parameters
from planner.models.workload import HUB, ModelLibrary, from_file, library, model, optimizer, optimizers, workload
from planner.schema import choices
from planner.schema.workload import Method, Model, Optimizer
from tests.sweeps import sweep
from tests.words import worded

REQUIRED = """
    gpt3-175b megatron-22b megatron-175b megatron-530b megatron-1t megatron-1.7b megatron-18.4b megatron-39.1b
    llama1-7b llama1-65b llama2-7b llama2-13b llama2-70b llama3-8b llama3-70b llama3.1-8b llama3.1-70b llama3.1-405b
    llama3.2-1b llama3.2-3b llama4-scout llama4-maverick mistral-7b mixtral-8x7b mixtral-8x22b
    qwen2.5-0.5b qwen2.5-1.5b qwen2.5-3b qwen2.5-7b qwen2.5-14b qwen2.5-32b qwen2.5-72b
    qwen3-0.6b qwen3-1.7b qwen3-4b qwen3-8b qwen3-14b qwen3-32b qwen3-30b-a3b qwen3-235b-a22b
    deepseek-v2-lite deepseek-v3 kimi-k2 gpt-oss-20b gpt-oss-120b nemotron4-15b nemotron4-340b grok1-314b
    mpt-125m mpt-350m mpt-760m mpt-1b mpt-3b mpt-7b mpt-13b mpt-30b mpt-70b gpt2 gpt2-medium gpt2-large gpt2-xl
    opt-125m opt-350m opt-1.3b opt-2.7b opt-6.7b opt-13b opt-30b opt-66b opt-175b
    bert-base bert-large t5-base t5-large t5-3b vit-b16 vit-l16 vit-h14
""".split()
"""Ids that stay."""

ENTRY: dict[str, Any] = {
    "name": "Mine",
    "source": "me",
    "layers": 2,
    "hidden": 64,
    "ffn": 256,
    "heads": 4,
    "kv_heads": 4,
    "head_dim": 16,
    "vocab": 100,
    "sequence": 128,
    "batch": 8,
    "tokens": "1M",
}


def toml(entry: str = "mine", **changes: Any) -> str:
    """A model file; a change to None removes the field."""
    rows = {name: value for name, value in {**ENTRY, **changes}.items() if value is not None}
    return "\n".join([f"[{entry}]", *(f"{name} = {_literal(value)}" for name, value in rows.items())]) + "\n"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) and not value.startswith("{") else str(value)


def put(folder: Path, text: str, name: str = "mine.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def refused(path: Path) -> str:
    with pytest.raises(WrongQuestion) as caught:
        model(str(path))
    return str(caught.value).replace(str(path), "FILE")


# ---- the library -----------------------------------------------------------------------------------------------------


def test_it_has_every_model_that_others_rely_on() -> None:
    assert not set(REQUIRED) - set(library())


def test_every_entry_is_valid_sourced_and_consistent() -> None:
    for entry, known in library().items():
        assert known.id == entry
        assert known.source, entry
        assert known.date, entry
        assert not model_rules.problems(known), entry
        if "from memory" in known.source:
            assert "shape" in known.assumed, f"{entry}: a shape that nobody opened must say so"


def test_headers_are_what_a_parser_finds() -> None:
    for path in data("models").glob("*.toml"):
        if path.name == HUB:
            continue  # names, not tables of models
        assert files.headers(path) == list(tomllib.loads(path.read_text(encoding="utf-8"))), path


def test_no_id_is_defined_twice() -> None:
    ids = [entry for path in data("models").glob("*.toml") for entry in files.headers(path)]
    assert len(ids) == len(set(ids))


def test_only_the_file_that_is_asked_for_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(files, "tables", _spy(files.tables, parsed))
    model("llama3-70b")
    assert parsed == ["llama.toml"]


def _spy(function: Any, seen: list[str]) -> Any:
    def call(path: Path) -> Any:
        seen.append(path.name)
        return function(path)

    return call


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(WrongQuestion) as caught:
        model("llama3-70")
    assert str(caught.value) == (
        "no model 'llama3-70'. Did you mean llama3-70b, llama3.1-70b, llama2-70b? (clusterwright models list)"
    )
    with pytest.raises(WrongQuestion, match=r"^no model 'xyzzy'\. \(clusterwright models list\)$"):
        model("xyzzy")


# ---- the user's own --------------------------------------------------------------------------------------------------


def test_own_models_overlay_the_built_in_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    home, env, extra = tmp_path / "config" / "clusterwright" / "models", tmp_path / "env", tmp_path / "extra"
    put(home, toml("mine", layers=1) + toml("gpt2", layers=1))
    assert [model(entry).layers for entry in ("mine", "gpt2", "gpt2-xl")] == [1, 1, 48]
    put(env, toml("mine", layers=2))
    monkeypatch.setenv("CLUSTERWRIGHT_MODELS", str(env))
    assert [model(entry).layers for entry in ("mine", "gpt2")] == [2, 1]
    put(extra, toml("mine", layers=3))
    assert [model(entry, extra).layers for entry in ("mine", "gpt2")] == [3, 1]
    known = library(extra)
    assert known.origin("mine") == str(extra / "mine.toml")
    assert known.origin("gpt2-xl") == "built-in"


def test_a_folder_that_somebody_named_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongQuestion, match="no such folder of models"):
        library(tmp_path / "none")
    monkeypatch.setenv("CLUSTERWRIGHT_MODELS", str(tmp_path / "none"))
    with pytest.raises(WrongQuestion, match="no such folder of models"):
        model("gpt2")


def test_own_optimizers(tmp_path: Path) -> None:
    text = '[lion]\nname = "Lion"\nsource = "me"\nstate_bytes = 4\nstep_bytes = 22\n'
    put(tmp_path, text, "optimizers.toml")
    assert optimizer("lion", tmp_path).state_bytes == 4
    assert "lion" not in optimizers()
    assert set(library(tmp_path)) == set(library())
    put(tmp_path, text.replace("= 4", "= -4"), "optimizers.toml")
    with pytest.raises(WrongQuestion, match=r"optimizers\.toml:4: lion\.state_bytes = -4: "):
        optimizers(tmp_path)


def test_a_model_file_by_path(tmp_path: Path) -> None:
    one, two = put(tmp_path, toml()), put(tmp_path, toml("a") + toml("b", layers=5), "two.toml")
    assert model(str(one)).id == "mine"
    assert model(f"{two}#b").layers == 5
    assert refused(two) == "FILE: holds 2 models; write FILE#ID, one of: a, b"
    with pytest.raises(WrongQuestion, match="no model 'c'"):
        model(f"{two}#c")
    with pytest.raises(WrongQuestion, match="no such file"):
        model("nowhere/config.json")
    with pytest.raises(WrongQuestion, match="no such file"):
        model("nowhere.toml")


# ---- files with mistakes ---------------------------------------------------------------------------------------------


@worded("workload.values", read=json.loads)
def test_a_wrong_value_is_named_with_its_line(changes: dict[str, Any], tmp_path: Path) -> str:
    return refused(put(tmp_path, toml(**changes)))


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    assert len(refused(put(tmp_path, toml(layers=0, heads=-1, vocab=None, hiden=3))).splitlines()) == 4


@worded("workload.shapes", read=json.loads)
def test_an_inconsistent_shape(changes: dict[str, Any], tmp_path: Path) -> str:
    return refused(put(tmp_path, toml(**changes)))


@sweep(
    ("text", "message"),
    [
        ("[mine\nlayers = 2\n", "FILE:1: malformed TOML"),
        (toml() + "a = = 2\n", "FILE:14: malformed TOML"),
        (toml() + toml(), "FILE:14: malformed TOML: Cannot declare"),
        ("x = " + "[" * 100_000, "FILE: malformed TOML"),
        ("mine = 3\n", "FILE: mine: expected a table [mine] of fields"),
        (toml('"my model"'), "FILE: 'my model' is no id"),
        ("", "FILE: holds 0 models"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_malformed_file(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(put(tmp_path, text))


def test_a_malformed_file_in_an_own_folder_is_not_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "[mine")
    with pytest.raises(WrongQuestion, match="malformed TOML"):
        library(tmp_path)


# ---- writing ---------------------------------------------------------------------------------------------------------


def test_every_entry_survives_being_written(tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    known = library()
    path.write_text("\n".join(files.dump(entry) for entry in known.values()), encoding="utf-8")
    assert {entry: from_file(path, entry) for entry in known} == dict(known)


def test_odd_texts_survive_being_written(tmp_path: Path) -> None:
    odd = files.validated(
        Model, {**ENTRY, "name": 'a "b" \\ \n \x7f \x01 é 𝕏', "assumed": {"batch": "[x]\n[y]"}}, "odd.id", tmp_path
    )
    path = put(tmp_path, files.dump(odd))
    assert from_file(path, "odd.id") == odd


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path, "old")
    with pytest.raises(WrongQuestion, match="exists already; --force replaces it"):
        writing.write(path, "new")
    writing.write(path, "new", replace=True)
    assert path.read_text(encoding="utf-8") == "new"

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(WrongQuestion, match="cannot be written: No space left"):
        writing.write(path, "newer", replace=True)
    assert path.read_text(encoding="utf-8") == "new"
    assert [found.name for found in tmp_path.iterdir()] == ["mine.toml"]


# ---- the workload ----------------------------------------------------------------------------------------------------


def test_defaults_come_from_the_model() -> None:
    built = workload("llama3-70b")
    assert (built.sequence, built.batch, built.tokens) == (8192, 1024, 1e12)
    assert (built.method, built.optimizer.id) == (Method(), "adamw")
    assert workload(built.model) == built


def test_everything_can_be_said() -> None:
    built = workload(
        "gpt2", sequence=512, batch=64, tokens="2T", method="lora", rank=8, targets=["v", "q"], optimizer="sgd"
    )
    assert (built.sequence, built.batch, built.tokens) == (512, 64, 2e12)
    assert built.method == Method(kind="lora", rank=8, targets=("q", "v"))
    assert built.optimizer == optimizer("sgd")
    again = workload("gpt2", method=built.method, optimizer=built.optimizer, tokens=5000)
    assert (again.method, again.optimizer, again.tokens) == (built.method, built.optimizer, 5000.0)


@pytest.mark.parametrize(("name", "base"), [("qlora", "nf4"), ("qlora:int8", "int8")])
def test_quantised_bases_are_adapted_everywhere(name: str, base: str) -> None:
    """QLoRA needs adapters on all matrices; a plain MLP has no gate."""
    gated = workload("llama3-8b", method=name).method
    assert (gated.kind, gated.base, gated.name) == ("lora", base, name)
    assert gated.targets == ("q", "k", "v", "o", "up", "down", "gate")
    assert workload("gpt2", method=name).method.targets == ("q", "k", "v", "o", "up", "down")
    assert workload("gpt2", method="full").method == workload("gpt2", method="finetune").method


@sweep("method", ["full", "lora", "qlora:int8"])
def test_a_fine_tuning_is_not_as_long_as_what_made_the_model(method: str) -> None:
    built, short = workload("llama3-8b", method=method), workload("bert-large", method=method)
    assert (built.sequence, built.batch, built.tokens) == (4096, 16, 1e7)
    assert short.sequence == min(model("bert-large").sequence, 4096)
    assert workload("llama3-8b").tokens == model("llama3-8b").tokens


def test_the_command_line_offers_every_method() -> None:
    assert choices.METHODS == METHODS


def test_lora_defaults_are_mlperfs() -> None:
    assert workload("llama2-70b", method="lora").method == Method(kind="lora", rank=16, targets=("q", "k", "v", "o"))
    assert workload("llama2-70b", method="finetune").method == Method(kind="finetune")


@sweep(
    ("entry", "sequence", "rows"),
    [
        ("gpt3-175b", 8192, 8192),
        ("gpt3-175b", 512, 2048),
        ("opt-1.3b", 4096, 4098),
        ("bert-large", 128, 512),
        ("llama3-8b", 131072, 0),
    ],
)
def test_a_position_table_grows_with_the_sequence(entry: str, sequence: int, rows: int) -> None:
    assert workload(entry, sequence=sequence).model.learned_positions == rows


@pytest.mark.parametrize(("entry", "sequence", "billions"), [("mpt-125m", 65536, 0.1741), ("mpt-760m", 32768, 0.8077)])
def test_the_grown_table_gives_llm_foundrys_counts(entry: str, sequence: int, billions: float) -> None:
    """Parameters that llm-foundry's benchmark tables print for their long-sequence runs."""
    assert parameters(workload(entry, sequence=sequence).model).total / 1e9 == pytest.approx(billions, abs=5e-5)


@worded("workload.impossible", read=json.loads)
def test_impossible_workloads(said: dict[str, Any]) -> WrongQuestion:
    with pytest.raises(WrongQuestion) as caught:
        workload("gpt2", **said)
    return caught.value


# ---- optimizers ------------------------------------------------------------------------------------------------------


@sweep(
    ("entry", "state", "step"),
    [
        *((name, 8, 30) for name in ("adamw", "paged-adamw")),
        *((name, 2.03125, 18.0625) for name in ("adam-8bit", "paged-adam-8bit")),
        *(("sgd-momentum", 4, 22), ("sgd", 0, 14)),
    ],
)
def test_optimizer_steps_are_their_traffic(entry: str, state: float, step: float) -> None:
    """States and master copy read and written, the fp32 gradient read, the 16-bit weight written."""
    known: Optimizer = optimizer(entry)
    assert known.state_bytes == state
    assert known.step_bytes == step == 2 * (known.state_bytes + known.master_bytes) + 4 + 2


def test_a_library_is_a_mapping() -> None:
    known = library()
    assert isinstance(known, ModelLibrary)
    assert "gpt2" in known
    assert "gpt5" not in known
    assert len(known) == len(list(known)) >= len(REQUIRED)
    assert known["gpt2"] is known["gpt2"]
    assert model("GPT2") == known["gpt2"]


@sweep(
    ("named", "meant"),
    [("paged_adamw_8bit", "paged-adam-8bit"), ("adamw_bnb_8bit", "adam-8bit"), ("AdamW", "adamw"), ("muon", "muon")],
)
def test_trainers_names_of_optimizers_are_known(named: str, meant: str) -> None:
    assert optimizer(named).id == meant
