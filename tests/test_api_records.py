"""Records of the catalog as arguments: as they are, and with a figure changed."""

from dataclasses import replace
from pathlib import Path

import pytest

import clusterwright as cw
from planner import catalog
from tests.api_questions import SMALL, study
from tests.sweeps import sweep


def test_a_record_as_it_is_asks_what_its_name_asks() -> None:
    named = cw.estimate("llama3-8b", "dgx-h100:2", tp=8, batch=64)
    given = cw.estimate(cw.model("llama3-8b"), cw.cluster("dgx-h100:2"), tp=8, batch=64)
    assert given[0].prediction == named[0].prediction and given[0].money == named[0].money
    assert given[0].generator.inputs.items() > named[0].generator.inputs.items()


def test_a_changed_record_changes_the_answer_and_its_inputs() -> None:
    part = cw.accelerator("H100-SXM5-80GB")
    on = [cw.cluster("dgx-h100", 1, accelerator=each) for each in (part, replace(part, memory="40 GB"))]
    assert on[1].accelerator.memory == 40e9
    plans = [cw.estimate("llama3-8b", each, tp=8, batch=64)[0] for each in on]
    held = [plan.cluster.pools[0].accelerator_memory_bytes for plan in plans]
    assert held == [80 * 2**30, 40e9] and plans[0].generator.inputs != plans[1].generator.inputs
    model = cw.model("llama3-8b")
    half = cw.estimate(replace(model, layers=16), on[0], tp=8, batch=64)[0]
    assert half.workload.parameters < plans[0].workload.parameters
    assert half.generator.inputs["model llama3-8b"] != plans[0].generator.inputs["model llama3-8b"]


@pytest.mark.slow
def test_a_changed_model_is_bought_for() -> None:
    model, how = cw.model("gpt2"), {"tokens": 1e9, "node": "p4d.24xlarge", "quick": True}
    named, same, deeper = (cw.procure(model=m, **how) for m in ("gpt2", model, replace(model, layers=24)))
    assert named[0].value == same[0].value < deeper[0].value
    (job,) = deeper[0].workloads
    assert job.plan.workload.shape["layers"] == 24 and job.name == deeper.question.name == "gpt2"
    assert "model gpt2" in deeper.generator.inputs and deeper.generator.inputs != same.generator.inputs
    with pytest.raises(cw.WrongQuestion, match="must divide heads = 31"):
        cw.procure(model=replace(cw.model("llama3-8b"), heads=31), tokens=1e9)


def test_shards_of_a_study_are_merged(tmp_path: Path) -> None:
    whole = study(tmp_path)
    parts = [tmp_path / f"shard-{n}.json" for n in (1, 2)]
    for n, path in enumerate(parts, 1):
        path.write_text(cw.design(tmp_path / "study.toml", shard=(n, 2), quick=True).to_json(), encoding="utf-8")
    merged = cw.design(tmp_path / "study.toml", merge=parts)
    assert merged.search.exact and (merged.best, merged.trials) == (whole.best, whole.trials)
    with pytest.raises(cw.WrongQuestion, match="appears twice"):
        cw.design(tmp_path / "study.toml", merge=[parts[0], str(parts[0])])


def test_a_changed_node_makes_a_cluster() -> None:
    other = cw.cluster("dgx-h100", 2, accelerator="H200-SXM-141GB")
    assert other.node.accelerator == other.accelerator.id == "H200-SXM-141GB"
    four = replace(cw.node("dgx-h100"), accelerators=4)
    plan = cw.plan("llama3-8b", cw.cluster(four, 2), top=1, **SMALL)[0]
    assert plan.cluster.accelerators == 8


@pytest.mark.slow
def test_pools_may_be_records_and_names_at_once() -> None:
    plan = cw.plan("gpt2", [cw.cluster("t4-4:1"), "dgx-v100:1"], batch=32, top=1)[0]
    assert "cluster t4-4#1" in plan.generator.inputs


@sweep(
    ("change", "says"),
    [
        ({"memory": -1}, r"cluster\.accelerator\.memory = -1: must be above 0"),
        ({"memory": "80 furlongs"}, r"cluster\.accelerator\.memory = \"80 furlongs\": unknown unit"),
        ({"memory_bandwidth": None}, r"cluster\.accelerator\.memory_bandwidth = None"),
    ],
)
def test_a_wrong_figure_is_told_with_its_field(change: dict, says: str) -> None:
    base = cw.cluster("dgx-h100:1")
    with pytest.raises(cw.WrongQuestion, match=says):
        cw.plan("llama3-8b", replace(base, accelerator=replace(base.accelerator, **change)))


def test_a_model_that_does_not_add_up() -> None:
    with pytest.raises(cw.WrongQuestion, match="must divide heads = 31"):
        cw.plan(replace(cw.model("llama3-8b"), heads=31), "dgx-h100:1")


def test_every_cluster_of_the_catalog_passes_unchanged() -> None:
    known = catalog.load()
    for name, node in known.nodes.items():
        made = catalog.cluster(known, name, 1, None if node.fabric else "ethernet-25g", "us")
        assert cw.cluster(made.node, 1, fabric=made.fabric.id, region="us") == made


@sweep(
    ("figures", "told"),
    [
        ({"memory_bandwidth": 4800}, r"memory_bandwidth = 4800: a bare number is in B/s, .* '4.8 TB/s'"),
        ({"memory": 96}, r"memory = 96: a bare number is in B, .* '80 GiB'"),
        ({"peak": {"bf16": 989}}, r"peak.bf16 = 989: a bare number is in FLOP/s"),
    ],
)
def test_a_figure_in_another_unit_is_not_taken_for_si(figures: dict[str, object], told: str) -> None:
    """A step of 160 years was the answer."""
    part = replace(cw.accelerator("H100-SXM5-80GB"), **figures)
    with pytest.raises(cw.WrongQuestion, match=told):
        cw.cluster("dgx-h100", 2, accelerator=part)


@pytest.mark.slow
def test_the_front_is_a_table() -> None:
    plans = cw.plan("llama3-8b", "dgx-h100:2..3")
    table = plans.front_to_frame()
    assert table["nodes"].tolist() == [2, 3] and table["step_time_s"].tolist() == [p.step_time_s for p in plans.front]
    best = plans.plans[0].parallelism
    row = table[table["nodes"] == plans.plans[0].cluster.pools[0].count].iloc[0]
    assert (row["tp"], row["pp"], row["cp"], row["dp"]) == (best.tp, best.pp, best.cp, best.dp)
