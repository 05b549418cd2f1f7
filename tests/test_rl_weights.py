"""New weights to replicas elsewhere: the ways there are, priced, chosen, exported and read back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import planner
from planner import catalog
from planner.base.errors import WrongQuestion
from planner.commands.command_line import cli
from planner.cost import weight_sync
from planner.figures import cost_inputs
from planner.figures.efficiency import reached
from planner.launchers import post_training
from planner.models.parameters import parameters
from planner.models.workload import find_model, workload
from planner.rl.measured import accelerators

PUBLISHED = (
    ("glm4.5-air", "H800", 8, 2.0, 3.47),
    ("qwen3-235b-a22b", "H800", 8, 2.0, 6.22),
    ("deepseek-v3", "H20", 16, 1.0, 10.19),
    ("kimi-k2", "H20", 16, 1.0, 14.36),
    ("deepseek-v3", "H20", 256, 1.0, 11.33),
    ("kimi-k2", "H20", 256, 1.0, 16.04),
)
"""Model, accelerators, bytes of a weight, seconds of an update from host memory by broadcast (MoonshotAI
checkpoint-engine 59a3c4ff, README.md)."""


@pytest.mark.parametrize(("name", "part", "ranks", "weight_bytes", "measured_s"), PUBLISHED)
def test_update_from_host_memory_takes_about_what_its_engine_publishes(
    name: str, part: str, ranks: int, weight_bytes: float, measured_s: float
) -> None:
    """Nothing is fitted to these: measured seconds are 0.56 to 1.02 times the predicted ones."""
    known = catalog.load()
    model = find_model(name)
    cluster = accelerators(known, part, ranks)
    runtime = known.runtime("megatron-core")
    efficiency = reached(known, cluster.accelerator, runtime, runtime.releases[-1])
    network = cost_inputs.network(cluster, efficiency.accelerator)
    host = ranks * (cluster.accelerator.host_bandwidth or cost_inputs.HOST_BANDWIDTH)
    shape = cost_inputs.shape(workload(model, method="full"), None)

    predicted_s = weight_sync.from_host(weight_bytes * parameters(model).total, shape, network, ranks, host)

    assert 0.5 < measured_s / predicted_s < 1.1


def test_trainers_copy_their_parts_to_host_memory_first() -> None:
    """30.5 B parameters in bf16 over 4 ranks: 7 s, as verl publishes of its copy; then as from host memory."""
    known = catalog.load()
    cluster = accelerators(known, "H100", 16)
    runtime = known.runtime("megatron-core")
    network = cost_inputs.network(
        cluster, reached(known, cluster.accelerator, runtime, runtime.releases[-1]).accelerator
    )
    shape = cost_inputs.shape(workload(find_model("qwen3-30b-a3b"), method="full"), None)
    whole_s = weight_sync.by_checkpoint_engine(61e9, shape, network, network, (4, 16))

    fetched = 4 * float(network.nic)
    assert whole_s - weight_sync.from_host(61e9, shape, network, 16, fetched) == pytest.approx(7.0, rel=0.02)


def asked(*clusters: str, **more: Any) -> planner.schema.rl.RLPlan:
    """The best step one step off."""
    pinned = {"response": "1k/4k", "placement": "one-step-off", "prompts": 64, "pin": "tp=1,pp=1,cp=1,recompute=full"}
    return planner.plan_rl("llama3.1-8b", clusters, **{**pinned, **more})[0]  # type: ignore[arg-type]


def test_the_quicker_way_is_taken_and_a_stated_one_followed() -> None:
    """One node of p4de sends 8 x 5 GB/s of what its fabric reaches; 64 trainers copy 64 x 2.2 GB/s to host memory and
    send 64 x 5 GB/s. Where one node sends as much as one takes in, a broadcast passes all weights once.
    """
    slow = ("p4de.24xlarge:8", "p5en.48xlarge:2")
    quick = asked(*slow, split="64:16")
    stated = asked(*slow, split="64:16", weights="broadcast")

    assert (quick.weights, stated.weights) == ("checkpoint-engine", "broadcast")
    assert quick.phases.sync_s < stated.phases.sync_s
    assert quick.step_s + stated.phases.sync_s - quick.phases.sync_s == pytest.approx(stated.step_s)
    assert asked("dgx-h100:2", split="8:8").weights == "broadcast"
    with pytest.raises(WrongQuestion, match="weights change in place there"):
        asked("dgx-h100:1", placement="colocated", weights="broadcast")
    assert asked("dgx-h100:1", placement="colocated").weights is None


def test_way_of_weights_is_written_for_trainers_that_have_it_and_read_back(tmp_path: Path) -> None:
    given = {"model": "org/policy", "train-files": "a", "val-files": "b"}
    answer = planner.plan_rl("llama3.1-8b", "dgx-h100:2", response="1k/4k", split="8:8", placement="one-step-off",
                             weights="checkpoint-engine", pin="tp=2,zero=1", rollout="tp=1")  # fmt: skip
    made = post_training.made(answer, answer[0], "verl", given)
    text = made.files["start.sh"]
    assert "checkpoint_engine.backend=kimi_ckpt_engine" in text
    with pytest.raises(WrongQuestion, match=r"weights checkpoint-engine \(it has broadcast\)"):
        post_training.made(answer, answer[0], "nemo-rl", {"model": "m", "dataset": "d"})
    before = replace(answer[0], weights=None)
    assert "checkpoint_engine" not in post_training.made(answer, before, "verl", given).files["start.sh"]

    for backend, way, differs in (
        ("kimi_ckpt_engine", "checkpoint engine", False),
        ("nccl", "broadcast", False),
        ("mooncake", "broadcast", True),
    ):
        file = tmp_path / "run.sh"
        file.write_text(text.replace("kimi_ckpt_engine", backend), encoding="utf-8")
        words = ["import", str(file), "--from", "verl", "--cluster", "dgx-h100:2", "--model", "llama3.1-8b"]
        shown = CliRunner().invoke(cli, [*words, "--response", "1k/4k"])
        assert shown.exit_code == 0, shown.output
        assert f"by {way}" in shown.output
        assert ("sent by mooncake" in " ".join(shown.output.split())) == differs
