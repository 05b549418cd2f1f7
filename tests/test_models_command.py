"""``clusterwright models``: list, show, import."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import WrongQuestion
from planner.base.resources import data
from planner.commands import command_line
from planner.models import families
from planner.models.workload import HUB, library, model
from tests.sweeps import sweep

CONFIG = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "Tiny Llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder / "config.json"


Captured = pytest.CaptureFixture[str]


def run(captured: Captured, *arguments: object) -> str:
    """Standard output of a command that answers."""
    code = command_line.main(["models", *map(str, arguments)])
    out, err = captured.readouterr()
    assert (code, err) == (0, "")
    return out


def refused(captured: Captured, *arguments: object) -> str:
    """The message of a command that is a wrong question."""
    code = command_line.main(["models", *map(str, arguments)])
    out, err = captured.readouterr()
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    return err.strip()


def document(captured: Captured, *arguments: object) -> dict[str, Any]:
    found = json.loads(run(captured, *arguments, "--json"))
    assert found["schema_version"] == 1
    return dict(found)


def test_list_has_a_line_for_every_model_smallest_number_first(capsys: Captured) -> None:
    lines = run(capsys, "list").splitlines()
    ids = [line.split()[0] for line in lines[1 : lines.index("")]]
    assert sorted(ids) == sorted(library())
    assert ids.index("megatron-22b") < ids.index("megatron-175b")
    deepseek = next(line for line in lines if line.startswith("deepseek-v3"))
    assert "671" in deepseek
    assert "8 of 256" in deepseek
    assert "built-in" in deepseek


def test_list_ends_with_convolutional_networks_and_recommenders(capsys: Captured) -> None:
    lines = run(capsys, "list").splitlines()
    others = lines[lines.index("") + 2 :]
    assert [line.split()[0] for line in others][:3] == ["resnet50", "resnet101", "resnet152"]
    assert sorted(line.split()[0] for line in others) == sorted(families.others())
    assert "25.6  M  an image of 224 x 224" in others[0]
    assert any("214 rows of 26 tables" in line for line in others)
    found = {row["id"]: row for row in document(capsys, "list")["models"]}
    assert found.keys() == {*library(), *families.others()}
    assert (found["resnet50"]["family"], found["resnet50"]["parameters"]) == ("cnn", 25_557_032)
    assert found["dlrm-dcnv2"]["active_parameters"] < 1e-3 * found["dlrm-dcnv2"]["parameters"]
    assert found["gpt2"]["sample"] == "a sequence of 1,024 tokens"


def test_show_a_convolutional_network(capsys: Captured) -> None:
    out = run(capsys, "show", "resnet50")
    for said in ("ResNet-50 v1.5 (resnet50)", "3 + 4 + 6 + 3 blocks", "25,557,032", "2,049,000", "FLOP per image"):
        assert said in out
    found = document(capsys, "show", "resnet152")
    assert found["parameters"]["total"] == 60_192_808 == sum(found["parameters"][x] for x in PARTS)
    assert found["training_flops_per_sample"] == pytest.approx(6 * 11.51e9, rel=0.02)


PARTS = ("stem", "conv2", "conv3", "conv4", "conv5", "classifier")


def test_show_a_recommender(capsys: Captured) -> None:
    out = run(capsys, "show", "dlrm-dcnv2")
    assert "97.4 GiB of tables and 97.4 GiB of optimizer state" in out
    assert "of optimizer state" not in run(capsys, "show", "dlrm-criteo1tb")
    found = document(capsys, "show", "dlrm-dcnv2")
    tables = sum(found["tables"]) * found["embedding"]
    assert found["parameters"]["embedding_tables"] == tables
    assert found["memory_bytes"] == {"tables": 4 * tables, "optimizer": 4 * tables}
    # Bottom 13-512-256-128, three cross layers of rank 512 on 27 x 128, top 3456-1024-1024-512-256-1.
    first, bottom, cross = 13 * 512, 512 * 256 + 256 * 128, 3 * 2 * 3456 * 512
    top = 3456 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
    assert found["training_flops_per_sample"] == 4 * first + 6 * (bottom + cross + top)


def test_what_only_transformers_answer_says_so(capsys: Captured) -> None:
    assert command_line.main("estimate resnet50 --cluster dgx-h100:1".split()) == 2
    err = capsys.readouterr().err
    assert "resnet50 is a convolutional network" in err
    assert "clusterwright models layers resnet50" in err and "clusterwright plan resnet50" in err
    assert command_line.main("plan dlrm-small --cluster dgx-h100:1".split()) == 2
    err = capsys.readouterr().err
    assert "dlrm-small is a recommender" in err and "clusterwright plan" not in err


def test_show_names_the_nearest_network(capsys: Captured) -> None:
    assert "no model 'resnet-50'. Did you mean resnet50" in refused(capsys, "show", "resnet-50")


def test_ones_own_model_stands_before_a_network(capsys: Captured, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    run(capsys, "import", config, "--id", "resnet50", "-o", folder / "tiny.toml")
    assert document(capsys, "show", "resnet50", "--models", folder)["hidden"] == 256
    assert run(capsys, "list", "--models", folder).count("resnet50") == 1


def test_list_as_json(capsys: Captured) -> None:
    found = document(capsys, "list")
    assert found["kind"] == "model-list"
    row = next(row for row in found["models"] if row["id"] == "mixtral-8x7b")
    assert row["parameters"] == 46_702_792_704
    assert row["active_parameters"] < row["parameters"]
    assert row["from"] == "built-in"


def test_list_says_what_is_the_users_own(capsys: Captured, config: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    run(capsys, "import", config, "-o", folder / "tiny.toml")
    line = next(line for line in run(capsys, "list", "--models", folder).splitlines() if line.startswith("tiny-llama"))
    assert str(folder / "tiny.toml") in line


def test_show_prints_shape_counts_work_states_and_what_is_assumed(capsys: Captured) -> None:
    out = run(capsys, "show", "llama3-70b")
    assert "Llama 3 70B (llama3-70b)" in out
    assert "70,553,706,496" in out
    assert "69,503,033,344" in out
    assert "449 BFLOP per token" in out
    assert "1.16 TiB" in out  # 18 bytes for each of 70.55e9 parameters
    assert "65.5 M" in out
    assert "assumed: a round planning figure" in out
    assert "transformers 5.23.0" in out


@sweep("entry", ["deepseek-v3", "t5-large", "vit-b16", "bert-large", "gpt-oss-20b", "opt-350m"])
def test_show_covers_every_kind(capsys: Captured, entry: str) -> None:
    assert f"({entry})" in run(capsys, "show", entry)


def test_show_as_json(capsys: Captured) -> None:
    found = document(capsys, "show", "gpt2")
    assert (found["kind"], found["id"], found["layers"]) == ("model", "gpt2", 12)
    assert found["parameters"]["total"] == 124_439_808
    assert found["state_bytes"]["pre-training, fine-tuning"]["together"] == 18 * 124_439_808
    lora = found["state_bytes"]["LoRA, rank 16 on q k v o"]
    adapters = 12 * 4 * 16 * (768 + 768)
    assert lora["weights"] == 2 * (124_439_808 + adapters)
    assert lora["together"] == lora["weights"] + 16 * adapters


def test_show_takes_a_file(capsys: Captured, config: Path) -> None:
    assert "(tiny-llama)" in run(capsys, "show", config)


def test_show_names_the_nearest(capsys: Captured) -> None:
    assert refused(capsys, "show", "gpt3-175") == (
        "clusterwright: no model 'gpt3-175'. Did you mean gpt3-175b, gpt3-5b, opt-175b? (clusterwright models list)"
    )


# ---- import ----------------------------------------------------------------------------------------------------------


def test_import_prints_an_entry_that_can_be_read_back(capsys: Captured, config: Path, tmp_path: Path) -> None:
    text = run(capsys, "import", config)
    (tmp_path / "x.toml").write_text(text, encoding="utf-8")
    assert model(str(tmp_path / "x.toml")) == model(str(config))


def test_import_writes_a_file_that_every_command_takes(capsys: Captured, config: Path, tmp_path: Path) -> None:
    output = tmp_path / "tiny.toml"
    out = run(capsys, "import", config.parent, "--id", "mine", "-o", output)
    assert f"Written        {output}" in out
    assert f"clusterwright plan {output}" in out
    assert model(str(output)).id == "mine"
    assert document(capsys, "show", output)["id"] == "mine"
    assert [path.name for path in tmp_path.glob("*tiny*")] == ["tiny.toml"]


def test_import_as_json(capsys: Captured, config: Path, tmp_path: Path) -> None:
    found = document(capsys, "import", config, "-o", tmp_path / "a.toml")
    assert found["hidden"] == 256
    assert (tmp_path / "a.toml").is_file()


def test_import_replaces_only_when_told(capsys: Captured, config: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.toml"
    output.write_text("precious", encoding="utf-8")
    assert "exists already; --force replaces it" in refused(capsys, "import", config, "-o", output)
    assert output.read_text(encoding="utf-8") == "precious"
    run(capsys, "import", config, "-o", output, "--force")
    assert model(str(output)).hidden == 256


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--id", "my model"], "'my model' is no id"),
        (["-o", "a.json"], "the file's name must end in .toml"),
        (["-o", "/nowhere/at/all/a.toml"], "cannot be written: there is no folder /nowhere/at/all; make it first"),
    ],
)
def test_import_refuses(capsys: Captured, config: Path, arguments: list[str], message: str) -> None:
    assert message in refused(capsys, "import", config, *arguments)


def test_import_leaves_nothing_behind_when_the_question_is_wrong(
    capsys: Captured, config: Path, tmp_path: Path
) -> None:
    config.write_text('{"model_type": "lama"}', encoding="utf-8")
    assert "did you mean 'llama'?" in refused(capsys, "import", config, "-o", tmp_path / "a.toml")
    config.write_text("{", encoding="utf-8")
    assert "malformed JSON" in refused(capsys, "import", config, "-o", tmp_path / "a.toml")
    assert not (tmp_path / "a.toml").exists()
    assert "No such file" in refused(capsys, "import", tmp_path / "none.json")
    os.mkfifo(tmp_path / "pipe.json")
    assert "not a regular file" in refused(capsys, "import", tmp_path / "pipe.json")


# ---- names of the Hugging Face hub -----------------------------------------------------------------------------------


def test_checkpoints_of_the_hub_are_models_of_the_library() -> None:
    table = tomllib.loads((data("models") / HUB).read_text(encoding="utf-8"))
    assert set(table.values()) <= set(library())
    assert len({name.lower() for name in table}) == len(table)
    assert model("Qwen/Qwen3-8B") == model("qwen/qwen3-8b") == model("qwen3-8b")


def test_an_unknown_checkpoint_says_what_to_download() -> None:
    with pytest.raises(WrongQuestion, match=r"meta-llama/Llama-9-70B: no such file.*Did you mean .*config\.json"):
        model("meta-llama/Llama-9-70B")
