"""DeepSeek-V4: compressed attention and residual streams, counted by hand, planned, checked, exported nowhere."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planner
from planner.base.errors import WrongQuestion
from planner.cost import hyper_connections, layer_activations, pipeline, transformer
from planner.cost.figures import stacked
from planner.figures.cost_inputs import shape
from planner.launchers.bundle import refusals
from planner.launchers.registry import EXPORTERS
from planner.models import files, model_rules
from planner.models.context import attended
from planner.models.huggingface import from_config
from planner.models.workload import from_file, workload
from planner.schema.workload import Model
from planner.verify import model as verified
from planner.verify import violations
from tests.sweeps import sweep
from tests.test_architectures import DATA
from tests.test_golden import grid_of

FLASH = DATA["deepseek-v4-flash"]["config"]


def flash(**changes: Any) -> Model:
    return from_config({**FLASH, **changes}, "v4")


def by_hand(model: Model, sequence: int) -> float:
    """Positions of one token after the other, the mean over blocks: its window, and entries that are complete."""
    own, window = model.compressed, model.window
    assert own is not None and window is not None
    kinds = [model.mixers[i % len(model.mixers)] for i in range(model.layers)]
    total = 0.0
    for token in range(sequence):
        seen = {"window": 0.0, "csa": min(token / own.csa_rate, own.csa_top), "hca": token / own.hca_rate}
        total += sum(min(token, window.size) + seen[kind] for kind in kinds)
    return total / sequence / len(kinds)


@sweep("sequence", [1024, 4096, 16384])
def test_positions_are_those_of_a_window_and_of_entries(sequence: int) -> None:
    assert attended(flash(), sequence) == pytest.approx(by_hand(flash(), sequence), rel=2e-3)


def test_work_of_a_token_by_hand() -> None:
    """A block of each kind, of widths 4096, 64 heads of 512, latents of 1024 and 8 x 1024; four streams."""
    model = flash(num_hidden_layers=3, compress_ratios=[0, 4, 128])
    base = 4096 * 1024 + 1024 * 32768 + 4096 * 512 + 32768 * 1024 + 8192 * 4096
    entries = 4 * 4096 * (512 + 128) + 1024 * 64 * 128 + 4096 * 64 + 2 * 4096 * 512
    streams = 3 * 2 * 24 * 4 * 4096 + 4 * 4 * 4096
    experts = 3 * (4096 * 256 + 7 * 3 * 4096 * 2048)
    work = verified.work(model, 4096)
    assert work.products == 3 * base + entries + streams + experts + 4096 * 129280
    assert work.states == 4096 / 4 * 64 * 128
    positions = 3 * 128 * (2 - 128 / 4096) + 512 * (2 - 512 / 1024) + 32
    assert work.scores == pytest.approx(positions * 64 * 1024)


def test_streams_are_kept_moved_and_sent() -> None:
    """Two halves of a layer keep four streams and what they gave; a transfer is of four hidden states."""
    one, four = (grid_of(replace(shape(workload(flash()), None), streams=n), {"batch": 8}) for n in (1.0, 4.0))
    tokens = float(four.layout.micro * four.shape.sequence / four.layout.cp)
    more = layer_activations.layer_activations(four, 1.0).full - layer_activations.layer_activations(one, 1.0).full
    assert float(more) == pytest.approx(2 * 2 * (4 + 1) * tokens * 4096)
    assert float(pipeline.transfer_bytes(four)) == 4 * float(pipeline.transfer_bytes(one))
    assert float(hyper_connections.vector_bytes(four)) == pytest.approx(2 * 11 * 2 * tokens * 4096)


def test_other_models_of_one_table_keep_their_figures() -> None:
    """Runs of all models are predicted at once, as columns."""
    one, other = (shape(workload(model), None) for model in ("deepseek-v3", flash()))
    both = stacked([one, other])
    options = {"recompute_latents": 1.0, "sequence_parallel": 1.0}
    alone, beside = (
        transformer.layers(grid_of(each, {"batch": 8, "tp": 2, "ep": 4}, options))[1] for each in (one, both)
    )
    for name in ("forward", "backward", "modules"):
        assert np.ravel(getattr(beside, name))[0] == pytest.approx(float(getattr(alone, name)), rel=1e-12)


def plans(**more: Any) -> Any:
    return planner.plan(flash(), "dgx-h100:32", batch=512, top=3, **more)


def test_plans_hold_up_and_say_what_they_rest_on() -> None:
    found = plans(runtime="automodel")
    assert all(not violations(plan) for plan in found.plans)
    assert "v4.compressed" in {each.what for each in found.plans[0].assumptions}
    assert all(8 % plan.parallelism.tp == 0 and plan.parallelism.cp == 1 for plan in found.plans)


def test_an_altered_shape_is_found() -> None:
    plan = plans(runtime="automodel").plans[0]
    for name, changed in (("streams", 2), ("compressed", {**plan.workload.shape["compressed"], "csa_top": 8})):
        wrong = {**plan.workload.shape, name: changed}
        assert violations(replace(plan, workload=replace(plan.workload, shape=wrong)))


@pytest.mark.slow
def test_trainers_without_such_blocks_say_so() -> None:
    said = "; ".join(refusals(plans(runtime="megatron-core").plans[0], EXPORTERS["megatron"]))
    assert "attention on compressed entries has no flag" in said
    assert "4 residual streams have no flag" in said


def test_written_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "v4.toml"
    path.write_text(files.dump(flash()))
    assert from_file(path, "v4") == flash()


def test_the_class_alternates_where_nothing_is_said() -> None:
    model = flash(compress_ratios=None, num_hidden_layers=6)
    assert model.mixers == ("hca", "hca", "hca", "csa", "hca", "csa")


@sweep(
    ("changes", "says"),
    [
        ({"compress_ratios": [0, 4]}, "compress_ratios = must be 0, 4 or 128 for each of 43 layers"),
        ({"compress_ratios": [8] * 43}, "compress_ratios = must be 0, 4 or 128"),
        ({"scoring_func": "tanh"}, "scoring_func = 'tanh': not understood"),
        ({"o_groups": 7}, "compressed: kv_heads must be 1, and output_groups divide heads = 64"),
    ],
)
def test_what_is_not_understood(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongQuestion) as caught:
        flash(**changes)
    assert says in str(caught.value)


def test_rules() -> None:
    assert "compressed: goes with mixers" in model_rules.problems(replace(flash(), mixers=("window",)))[0]
    assert "compressed: goes with mixers" in model_rules.problems(replace(flash(), compressed=None))[0]
