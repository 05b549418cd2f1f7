"""What Python callers pass in and see: NumPy's numbers, lists, records of the catalog, short lines, tables of parts."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clusterwright as cw
from planner.schema.notebook import spelled
from tests.sweeps import sweep

SMALL = {"pin": {"cp": 1, "micro": 1}, "top": 2}


def on_one(**asked: object) -> object:
    return cw.plan("llama3-8b", "dgx-h100:1", **{"batch": 64, **SMALL, **asked})  # type: ignore[arg-type]


# ---- what goes in ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_numbers_of_numpy_are_numbers() -> None:
    plain = on_one(seq=2048, tokens=1e9, oom_risk=0.25)
    given = on_one(batch=np.int64(64), seq=np.int32(2048), tokens=np.float32(1e9), oom_risk=np.float64(0.25))
    assert given.plans == plain.plans
    pinned = on_one(seq=2048, pin={"tp": np.int64(8), "cp": np.array([1]), "micro": 1})
    assert pinned[0].parallelism.tp == 8


@sweep("value", [np.bool_(True), True, np.float64(2.5), np.array([64.5])])
def test_no_number_of_sequences(value: object) -> None:
    with pytest.raises(cw.WrongQuestion, match=r"batch=.*: must be int or str or Sequence of int"):
        on_one(batch=value)


@pytest.mark.slow
def test_a_list_of_batches_tries_each() -> None:
    one, other, both = (on_one(batch=batch, top=4) for batch in (96, 64, [96, 64]))
    assert {plan.batch.global_ for plan in both} == {64, 96}
    assert both[0].prediction == max((one[0], other[0]), key=lambda plan: plan.prediction.tokens_per_s).prediction
    assert on_one(batch="64|96", top=4).plans == both.plans


def test_figures_of_records_may_be_numpys() -> None:
    part = replace(cw.accelerator("H100-SXM5-80GB"), memory=np.int64(40 * 10**9), compute_units=np.int32(100))
    made = cw.cluster("dgx-h100", np.int64(2), accelerator=part).accelerator
    assert (made.memory, made.compute_units) == (40e9, 100)


@pytest.mark.slow
def test_a_sequence_is_called_as_contexts_are() -> None:
    assert on_one(seq="8k").plans == on_one(seq=8192).plans == on_one(seq="8,192").plans


def test_several_values_of_an_axis_are_a_list() -> None:
    found = [on_one(pin={"tp": tp, "cp": 1, "micro": 1}, top=1)[0].parallelism.tp for tp in ([1, 2, 4, 8], [4, 8], [8])]
    assert found == [1, 4, 8]


@pytest.mark.slow
def test_a_nodes_record_is_one_of_it() -> None:
    node = cw.node("dgx-h100")
    assert on_one()[0].prediction == cw.plan("llama3-8b", node, batch=64, **SMALL)[0].prediction
    less = cw.plan("llama3-8b", [replace(node, accelerators=4)], batch=64, **SMALL)[0]
    assert less.cluster.accelerators == 4


@pytest.mark.slow
def test_nodes_records_are_bought() -> None:
    asked = {"model": "gpt2", "tokens": 1e9, "ways": "on-demand", "quick": True}
    node = cw.node("p4d.24xlarge")
    (price,) = (each for each in node.prices if each.basis == "on-demand")
    dear = replace(node, prices=(replace(price, usd=2 * price.usd),))
    named, same, other = (cw.procure(node=each, **asked) for each in ("p4d.24xlarge", node, [dear]))
    assert named[0].cost == same[0].cost and other[0].cost.total_usd == pytest.approx(
        2 * named[0].cost.total_usd, abs=0.011
    )  # cents
    assert "node p4d.24xlarge" in same.generator.inputs and same.generator.inputs != other.generator.inputs


@sweep(
    ("call", "says"),
    [
        (lambda: on_one(seq=-5), "seq=-5: must be a whole number from 1"),
        (lambda: on_one(tokens=-5), "tokens=-5: must be from 1"),
        (lambda: on_one(batch="4M tokens"), "batch='4M tokens': '4M tokens' is not a count; write 256 (sequences; "),
        (lambda: on_one(batch="256,768"), "'256,768' is not a count; write 256"),
        (lambda: cw.plan("gpt2", "dgx-h100:1,2"), "cluster='dgx-h100:1,2': '1,2' is not a count"),
        (lambda: on_one(tokens="1,5T"), "'1,5T': a comma separates thousands (1,000,000); a decimal point is '.'"),
        (lambda: on_one(seq="8,19,2"), "write 8192 or 8k"),
        (lambda: cw.procure("gpt2", budget="$5M"), "gpt2: no such file; a model is given by its keyword, model='gpt2'"),
        (lambda: on_one(price=-2), "price=-2: must be more than nothing"),
        (lambda: cw.explain(on_one(), rank=0), "no plan of rank 0; it holds 2: rank=1 to 2"),
        (lambda: cw.procure(model="gpt2", tokens=1e9, top=-1), "top=-1: must be from 1 to 20"),
        (lambda: cw.design("x.toml", trials=0), "trials=0: must be from 1"),
        (lambda: cw.design("x.toml", shard=(3, 2)), "shard=(3, 2): must be (i, n) with i from 1 to n"),
        (lambda: cw.plan("resnet50", "dgx-h100:1"), "plan_images('resnet50', ...)"),
        (lambda: cw.accelerator("H100"), "Did you mean H100-"),
        (lambda: cw.plan("meta-llama/Llama-3-8B", "dgx-h100:1"), "Did you mean llama3-8b"),
        (lambda: cw.cluster(replace(cw.node("dgx-h100"), accelerators=0)), "accelerators = 0: must be at least 1"),
        (lambda: cw.plan(replace(cw.model("gpt2"), layers="x"), "dgx-h100:1"), 'layers = "x": must be a whole number'),
    ],
)
def test_messages_are_in_pythons_words(call, says: str) -> None:
    with pytest.raises(cw.WrongQuestion) as error:
        call()
    assert says in str(error.value)


def test_writing_twice_names_the_keyword(tmp_path: Path) -> None:
    plan = cw.estimate("llama3-8b", "dgx-h100:1", tp=8)
    cw.export(plan, "megatron+slurm", tmp_path)
    with pytest.raises(cw.WrongQuestion, match="force=True to replace it"):
        cw.export(plan, "megatron+slurm", tmp_path)


def test_an_attribute_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean list_nodes"):
        _ = cw.nodes


def test_a10_is_no_a100() -> None:
    plan = cw.plan("gpt2", accelerators={"A10": 4}, batch=64, top=1)[0]
    assert plan.cluster.pools[0].accelerator.startswith("A10G")


# ---- what is seen ----------------------------------------------------------------------------------------------------


def test_a_slice_is_a_table() -> None:
    found = on_one()
    assert (
        list(found[:1].to_frame()["step_time_s"]) == [found[0].prediction.step_time_s] and found[:1] == found.plans[:1]
    )
    again = pickle.loads(pickle.dumps(found[:1]))
    assert again == found[:1] and again.table == found[:1].table
    assert "<td>" in found[1:]._repr_html_()


def test_records_are_short_lines() -> None:
    plan = on_one()[0]
    records = [cw.node("dgx-h100"), cw.model("deepseek-v3"), cw.accelerator("H100-SXM5-80GB"), cw.cluster("dgx-h100:2")]
    for record in (*records, plan.prediction, plan.money, plan.parallelism, plan.cluster, plan.constraints[0]):
        assert len(repr(record)) < 140 and type(record).__name__ in repr(record)
    assert "id='dgx-h100'" in repr(records[0]) and "days=" in repr(plan.money)


def test_digests_are_of_every_field() -> None:
    cluster = cw.cluster("dgx-h100:2")
    price = replace(cluster.node.prices[0], source="elsewhere")
    other = replace(cluster, node=replace(cluster.node, prices=(price,)))
    assert repr(other) == repr(cluster) and spelled(other) != spelled(cluster)
    assert "elsewhere" in spelled(other) and spelled(other).startswith("Cluster(name='', node=Node(id='dgx-h100', ")


@sweep(
    ("listed", "one", "column", "figure"),
    [
        (cw.list_nodes, cw.node("dgx-h100"), "power_w", 10200.0),
        (cw.list_accelerators, cw.accelerator("H100-SXM5-80GB"), "memory_bytes", 80 * 2**30),
        (cw.list_models, cw.model("llama3-8b"), "parameters", 8_030_261_248),
    ],
)
def test_what_there_is_can_be_listed(listed, one, column: str, figure: float) -> None:
    found = listed()
    frame = found.to_frame().set_index("id")
    assert one in found and len(frame) == len(found) and frame.loc[one.id, column] == figure


def test_a_changed_cluster_has_nodes() -> None:
    with pytest.raises(cw.WrongQuestion, match=r"cluster\.count = 0: must be at least 1"):
        cw.plan("llama3-8b", replace(cw.cluster("dgx-h100:2"), count=0))


def test_a_hint_can_be_typed_as_it_stands() -> None:
    with pytest.raises(cw.WrongQuestion, match=r"; accelerators='A100:4' takes what is usual"):
        cw.plan_images("resnet50", "A100:4", batch=64)
    with pytest.raises(cw.WrongQuestion, match=r"takes one layout a call; plan tries several"):
        cw.estimate("llama3-8b", "dgx-h100:2", tp=[2, 4])
