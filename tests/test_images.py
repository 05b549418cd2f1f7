"""Convolutional networks shared by images over unlike accelerators, and ``clusterwright plan`` of one."""

import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from planner import api
from planner.base.errors import NoAnswer
from planner.cost import convolution
from planner.figures import cost_inputs
from planner.figures.efficiency import Efficiencies
from planner.models import families
from planner.question.plan_options import PlanOptions
from planner.question.several_pools import pooled_request
from planner.rebalancing import batch_split, image_split
from planner.rebalancing.shares import of_plan
from planner.schema.images import ImagePlan
from tests.asking import ask
from tests.cases import CATALOG
from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent
MIXTURE = ("dgx-a100-40gb:1", "dgx-v100:1", "quad-rtx6000:2")


def shared(*clusters: str, network: str = "resnet50", batch: int = 1024, **asked: object) -> ImagePlan:
    return api.plan_images(network, clusters, batch=batch, **asked)


def test_what_an_image_holds_is_what_others_count() -> None:
    """torchinfo 1.8 on torchvision's ResNet-50, one image of 224 x 224 in fp32: 177.83 MB forward and backward."""
    model = convolution.layers(families.network("resnet50"))
    software = cost_inputs.software(
        Efficiencies.of(CATALOG).runtime(image_split.RUNTIME[:1], image_split.RUNTIME[1], "", "ampere"), "fp32"
    )
    outputs = convolution.image_bytes(model, software) - 4 * 3 * 224**2
    assert 2 * outputs / 1e6 == pytest.approx(177.83, abs=0.005)
    assert convolution.state_bytes(model, software) == 12.0 * 25_557_032


@sweep(
    ("cluster", "batch"), [("dgx-a100-40gb:4", 3200), ("dgx-v100:8", 4096), ("t4-4:2", 512), ("ws-8xrtx2080:4", 512)]
)
def test_one_pool_is_what_the_cost_model_says(cluster: str, batch: int) -> None:
    """The line through two batches stays close to the cost of others, reductions and waiting among it."""
    found = shared(cluster, batch=batch)
    _, _, pools = pooled_request("gpt2", (cluster,), PlanOptions())
    (pool,) = pools.all
    of, using = image_split.part(CATALOG, "resnet50", pool, "fp16"), Efficiencies.of(CATALOG)
    network = cost_inputs.network(pool.cluster, using.accelerator(pool.cluster.accelerator))
    model = convolution.layers(families.network("resnet50"))
    ranks = float(pool.cluster.accelerators)
    step = convolution.step_time(model, of.device, network, of.software, np.array([float(batch)]), ranks)
    assert found.step_time_s == pytest.approx(float(step[0]), rel=0.02)
    assert (found.pools[0].images, found.left_out) == (batch, ())


def test_unlike_accelerators_get_what_they_do_in_the_time() -> None:
    found = shared(*MIXTURE)
    each = {p.node: p.images / p.accelerators for p in found.pools}
    assert each["dgx-a100-40gb"] > each["dgx-v100"] > each["quad-rtx6000"]
    assert sum(p.images for p in found.pools) == 1024
    assert all(p.most - p.fewest <= 1 for p in found.pools)
    assert sum(found.breakdown.values()) == pytest.approx(found.step_time_s)
    assert found.even_step_s and found.even_step_s > found.step_time_s
    assert found.best_pool_step_s and found.best_pool_step_s >= found.step_time_s


def test_no_set_of_pools_is_better_and_slow_ones_stay_out() -> None:
    found = shared("dgx-h100:1", "t4-4:1@far", batch=256)
    assert [p.node for p in found.pools] == ["dgx-h100"] and found.left_out == ("t4-4@far",)
    assert found.step_time_s == shared("dgx-h100:1", batch=256).step_time_s
    whole = shared(*MIXTURE).step_time_s
    for left in range(3):
        assert shared(*MIXTURE[:left], *MIXTURE[left + 1 :]).step_time_s >= whole


def test_memory_caps_what_an_accelerator_gets() -> None:
    """A 16 GiB card gets less than its speed would let it, and no more than fits."""
    _, _, pools = pooled_request("gpt2", ("dgx-v100:1", "t4-4:1"), PlanOptions())
    of = image_split.nodes_of(CATALOG, "resnet152", pools, pools.all)
    room = int(np.sum(of.cap))
    found = shared("dgx-v100:1", "t4-4:1", network="resnet152", batch=room)
    assert [p.most for p in found.pools] == [int(of.cap[0]), int(of.cap[-1])]
    assert all(p.memory_bytes < p.capacity_bytes for p in found.pools)
    assert batch_split.whole(of, room).time == pytest.approx(found.step_time_s)
    with pytest.raises(NoAnswer, match=f"batch={room}"):
        shared("dgx-v100:1", "t4-4:1", network="resnet152", batch=room + 1)


def test_wider_elements_take_longer_and_hold_more() -> None:
    wide, narrow = (shared("dgx-v100:1", batch=1024, precision=name) for name in ("fp32", "fp16"))
    assert wide.step_time_s > narrow.step_time_s
    assert wide.pools[0].memory_bytes > 1.5 * narrow.pools[0].memory_bytes


def test_the_report_and_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"plan resnet50 {' '.join('--cluster ' + c for c in MIXTURE)} --batch 1024"
    answer = ask(capsys, f"{words} -o {tmp_path / 'shares.json'}")
    assert answer.code == 0 and "Gain" in answer.out and "than an even split" in answer.out
    document = json.loads((tmp_path / "shares.json").read_text(encoding="utf-8"))
    schema = json.loads((ROOT / "docs" / "schemas" / "image-plan.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(document, schema)
    assert json.loads(ask(capsys, f"{words} --json").out) == document
    shares = of_plan(tmp_path / "shares.json")
    assert [sum(shares[:8]), sum(shares[8:16]), sum(shares[16:])] == [p["images"] for p in document["pools"]]


def test_the_screen_begins_with_the_shares_to_run_with(capsys: pytest.CaptureFixture[str]) -> None:
    shown = ask(capsys, "plan resnet50 --accelerators A100:4,V100:4 --batch 1024").report.splitlines()
    labels = [line.split("  ")[0] for line in shown[2:8]]
    assert labels == ["Configuration", "Speed", "Fits", "Bottleneck", "Cost", "Confidence"]
    shares = r"per-GPU batch [\d-]+ on 4 x A100-SXM4-40GB, [\d-]+ on 4 x V100-SXM2-16GB"
    assert re.fullmatch(rf"Configuration  {shares}", shown[2])
