"""An audio tower: counted as published, its positions and tokens by the seconds of a clip, priced, checked, refused."""

import json
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.base.errors import WrongQuestion
from planner.commands.command_line import main
from planner.cost import tower
from planner.figures.cost_inputs import shape
from planner.models import files
from planner.models.huggingface import asked, from_config, heard
from planner.models.parameters import parameters
from planner.models.workload import from_file, workload
from planner.schema.workload import Model
from planner.verify import model as verified
from planner.verify import violations
from tests import towers
from tests.sweeps import sweep


@sweep("entry", towers.SOUND)
def test_counts_are_those_published(entry: str) -> None:
    model = towers.hearing(entry)
    assert parameters(model).total == verified.parameters(model) == towers.SOUND[entry]["parameters"]


@sweep("entry", [name for name, entry in towers.SOUND.items() if "seeing" in entry])
def test_models_that_hear_see_too(entry: str) -> None:
    own = towers.SOUND[entry]
    assert parameters(from_config(own["config"], entry, asked=asked("1"))).total == own["seeing"]


@sweep(
    ("entry", "clips", "positions", "tokens", "attended"),
    [
        # 50 positions a second in windows of 2 s, 25 tokens a second (arXiv 2503.20215).
        ("qwen2.5-omni-7b", "1@10", 500, 250, 100),
        # 12.5 a second (arXiv 2509.17765), 13 in each chunk of 1 s, eight of which see each other.
        ("qwen3-omni-30b-a3b", "1@10", 130, 130, 104),
        ("qwen3-omni-30b-a3b", "1@2", 26, 26, 26),
        # 12.5 a second, of whole windows of 30 s (arXiv 2507.13264).
        ("voxtral-mini-3b", "1@31", 3000, 750, 1500),
        ("qwen2-audio-7b", "1", 1500, 750, 1500),
    ],
)
def test_positions_and_tokens_of_a_clip(entry: str, clips: str, positions: int, tokens: int, attended: float) -> None:
    own = towers.hearing(entry, clips).tower
    assert own is not None and (own.patches, own.tokens, own.attended) == (positions, tokens, attended)


def test_work_by_hand() -> None:
    """Whisper's encoder on 30 s, 32 blocks 1280 wide, then 375 tokens by 5120 x 3072 and 3072 x 3072."""
    model = towers.hearing("voxtral-mini-3b", "1")
    blocks = 1500 * 32 * (4 * 1280**2 + 2 * 1280 * 5120 + 2 * 1500 * 1280)
    convolutions = 3000 * 3 * 128 * 1280 + 1500 * 3 * 1280 * 1280
    by_hand = blocks + convolutions + 375 * (5120 * 3072 + 3072 * 3072)
    assert verified.tower_work(model) == by_hand
    assert float(tower.work(shape(workload(model), None))) == by_hand


def test_work_of_convolutions_over_time_and_bins_by_hand() -> None:
    """A second: 100 frames of 128 bins, of which 50 x 64, 25 x 32 and 13 x 16 are left with 480 channels."""
    own = towers.hearing("qwen3-omni-30b-a3b", "1@1").tower
    convolutions = 9 * 480 * (50 * 64 + 480 * 25 * 32 + 480 * 13 * 16)
    assert own is not None
    assert own.joining == convolutions + 13 * (480 * 16 * 1280 + 1280 * 1280 + 1280 * 2048)


@pytest.mark.parametrize("trained", [False, True])
def test_plans_hold_up(trained: bool) -> None:
    model: Model = towers.hearing("voxtral-mini-3b", "4@60", trained)
    found = planner.plan(model, "dgx-h100:4", batch=64, runtime="megatron-core", top=3, pin="pp=1")
    assert all(not violations(plan) and plan.prediction.breakdown["tower"] > 0 for plan in found.plans)


def test_written_and_read_again(tmp_path: Path) -> None:
    path, model = tmp_path / "hearing.toml", towers.hearing("qwen2.5-omni-7b")
    path.write_text(files.dump(model))
    assert from_file(path, model.id) == model


def test_import_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "config.json"
    source.write_text(json.dumps(towers.SOUND["qwen3-omni-30b-a3b"]["config"]))
    assert main(["models", "import", str(source), "--audio", "4@60"]) == 0
    shown = capsys.readouterr().out
    assert "4 clips of 60 s a sequence, 780 positions and 780 tokens each; frozen" in shown
    assert "of a model with vision and voice the text part and the audio tower alone" in shown
    assert main(["models", "import", str(source)]) == 0
    assert "models import --images N or --audio N: with it" in capsys.readouterr().out
    assert main(["models", "import", str(source), "--audio", "4", "--images", "1"]) == 2
    assert "--images and --audio: one tower stands before the decoder" in capsys.readouterr().err


@sweep("text", ["0", "x", "4@", "4@0.5", "-1", "10001", "1@99999", ""])
def test_clips_are_a_number(text: str) -> None:
    with pytest.raises(WrongQuestion, match="must be N or N@SECONDS"):
        heard(text)


def refused(config: dict[str, Any], clips: str) -> str:
    with pytest.raises(WrongQuestion) as caught:
        from_config(config, "x", asked=heard(clips))
    return str(caught.value)


def test_what_cannot_be_heard_is_refused() -> None:
    assert "its clips have 30 s at most, not 31" in refused(towers.SOUND["qwen2-audio-7b"]["config"], "1@31")
    assert "'qwen3_vl': it has no audio tower that is understood" in refused(towers.DATA["qwen3-vl-8b"]["config"], "1")
    with pytest.raises(WrongQuestion, match="20 clips of 30 s of 750 tokens"):
        workload(towers.hearing("qwen2.5-omni-7b", "20"), sequence=4096)
