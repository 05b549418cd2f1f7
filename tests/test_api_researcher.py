"""Ten things that a researcher does with the Python functions."""

import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import clusterwright as cw
from planner.commands.screen import design_view
from planner.schema.plan import CAUSES
from planner.schema.procurement import Procurement
from tests.api_questions import ROOT, SMALL, sets, study
from tests.sweeps import sweep


@cache
def offer() -> Procurement:
    return cw.procure(model="llama3-8b", tokens=2e10, node=["hgx-h100", "p5.48xlarge"], quick=True, budget=1e6)


@pytest.mark.slow
def test_sweep_node_counts_and_plot() -> None:
    import matplotlib as mpl
    import pandas as pd

    mpl.use("Agg")
    table = pd.concat(cw.plan("llama3-8b", f"dgx-h100:{n}", top=1, **SMALL).to_frame() for n in (1, 2, 4))
    assert list(table["accelerators"]) == [8, 16, 32] and table["days"].is_monotonic_decreasing
    axes = table.plot(x="accelerators", y="tokens_per_s")
    assert len(axes.lines[0].get_xdata()) == 3


def test_compare_two_models() -> None:
    small, large = (cw.estimate(name, "dgx-h100:1", tp=8, batch=64) for name in ("llama3-8b", "llama2-13b"))
    found = cw.compare(small, large)
    assert "models" in found.questions and found.tokens < 1 and "other" in repr(found)
    frame = found.to_frame().set_index("plan")
    assert frame.loc["second", "step_time_s"] / frame.loc["first", "step_time_s"] == pytest.approx(found.step)
    assert list(found[:1].to_frame().columns) == (["axis", "first", "second"] if len(found) else [])


def test_read_a_breakdown() -> None:
    plan = sets()[0]
    assert all(set(each.prediction.breakdown) <= set(CAUSES) for each in sets())
    assert sum(plan.prediction.breakdown.values()) == pytest.approx(plan.prediction.step_time_s)
    frame = plan.to_frame()
    parts = frame.filter(regex="^step_(?!time).*_s$").sum(axis=1, skipna=False)
    assert parts[0] == pytest.approx(frame["step_time_s"][0])


def test_change_one_hardware_figure() -> None:
    part = cw.accelerator("H100-SXM5-80GB")
    rates = [part.memory_bandwidth * factor for factor in (1, 2)]
    times = [
        cw.estimate("llama3-8b", cw.cluster("dgx-h100", 1, accelerator=replace(part, memory_bandwidth=rate)), tp=8)[0]
        for rate in rates
    ]
    assert times[1].prediction.step_time_s < times[0].prediction.step_time_s


def test_a_changed_figure_is_told_everywhere() -> None:
    part = cw.accelerator("H100-SXM5-80GB")
    peak = {**part.peak, "bf16": 1.2e15}
    own = cw.cluster("dgx-h100", 1, accelerator=replace(part, memory_bandwidth=4.8e12, peak=peak, l2=None))
    stock, changed = (cw.estimate("llama3-8b", each, tp=8, batch=64) for each in ("dgx-h100:1", own))
    assert "changed" not in stock.to_json() and "changed" not in cw.explain(stock)
    said = "peak.bf16 1,200 TFLOP/s (catalog: 989 TFLOP/s), memory_bandwidth 4,800 GB/s (catalog: 3,350 GB/s), l2 none"
    assert f"changed H100-SXM5-80GB in dgx-h100: {said}" in " ".join(cw.explain(changed).split())
    found = cw.compare(stock, changed)
    assert found.questions == ("clusters",)
    assert ("H100-SXM5-80GB memory_bandwidth", "3,350 GB/s", "4,800 GB/s") in found.differing and len(found) == 3
    assert ("H100-SXM5-80GB l2", "none", "50 MiB") in cw.compare(changed, stock).differing
    other = cw.compare(cw.estimate("llama3-8b", "dgx-a100-80gb:1", tp=8, batch=64), changed)
    assert ("H100-SXM5-80GB memory_bandwidth", "-", "4,800 GB/s") in other.differing


def test_a_plan_on_a_changed_part_is_made_again_with_its_cluster(tmp_path: Path) -> None:
    own = cw.cluster("dgx-h100", 1, accelerator=replace(cw.accelerator("H100-SXM5-80GB"), memory_bandwidth=4.8e12))
    changed, file = cw.estimate("llama3-8b", own, tp=8, batch=64), tmp_path / "plan.json"
    file.write_text(changed.to_json(), encoding="utf-8")
    assert cw.load(file) == changed
    with pytest.raises(cw.NoAnswer, match=r"your own cluster \(dgx-h100#1\), which is not given here: cluster="):
        cw.explain(file, recheck=True)
    assert "Recheck" in cw.explain(file, recheck=True, cluster=own)
    plan = changed[0]
    pool = plan.cluster.pools[0]
    for wrong in ({"catalog": 4.8e12}, {"figure": "memory"}):
        cluster = replace(
            plan.cluster, pools=(replace(pool, changed=tuple(replace(c, **wrong) for c in pool.changed or ())),)
        )
        with pytest.raises(cw.ClusterwrightError, match=r"cluster\.pools\.0\.changed"):
            cw.explain(replace(plan, cluster=cluster))


def test_price_a_list_of_configurations() -> None:
    import pandas as pd

    listed = [{"tp": 8}, {"tp": 4, "pp": 2}, {"tp": 2, "recompute": "full"}]
    table = pd.concat([cw.estimate("llama3-8b", "dgx-h100:1", batch=64, **each).to_frame() for each in listed])  # type: ignore[arg-type]
    assert list(table["tp"]) == [8, 4, 2] and list(table["recompute"]) == ["none", "none", "full"]
    assert (table["usd"] > 0).all() and (table["memory_bytes"] > 0).all()
    assert (table["accelerator"] == "H100-SXM5-80GB").all() and list(table["step_p2p_s"] == 0) == [True, False, True]
    assert list(table["step_recompute_s"] > 0) == [False, False, True]
    as_typed = cw.estimate("llama3-8b", "dgx-h100:1", "tp=4 pp=2", batch=64)
    assert as_typed[0].prediction.step_time_s == table["step_time_s"].iloc[1]


def test_feed_a_plan_to_export(tmp_path: Path) -> None:
    found = cw.export(sets()[0], "megatron+slurm", tmp_path / "run", set={"lr": 3e-4})
    assert "0.0003" in "".join(found.bundles[""].files.values())
    assert sorted(found.to_frame()["file"]) == sorted(path.name for path in (tmp_path / "run").iterdir())
    assert list(cw.export(sets(), "megatron").bundles) == ["rank-1", "rank-2", "rank-3"]
    assert cw.export(sets()[0], ["megatron", "slurm"]).bundles.keys() == found.bundles.keys()


def test_read_an_offers_bill() -> None:
    found = offer()
    assert [each.rank for each in found] == [1, 2, 3] and found.to_frame()["total_usd"].is_monotonic_increasing
    bill = found[2].to_frame()
    assert bill["usd"].sum() == pytest.approx(found[2].cost.cash_usd) and "unit_price_usd" in bill
    assert found[2].workloads[0].plan.prediction.step_time_s > 0
    assert "alternative" in repr(found) and "Rent" in cw.explain(found)


def test_run_a_study(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = study(tmp_path_factory.getbasetemp())
    table = found.to_frame()
    assert len(table) == 4 and {"accelerator.memory_bytes", "node.accelerators"} <= set(table.columns)
    assert found[0].number in set(table["number"]) and "4 points tried" in repr(found)
    assert table.set_index("number")["cost_usd_per_mtoken"].min() == found[0].objectives["cost"]


def test_a_point_at_the_end_of_an_axis_is_said_to_be(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    found = study(tmp_path_factory.getbasetemp())
    design_view.show(found)
    shown = capsys.readouterr().out
    end = {40 * 2**30: "least", 80 * 2**30: "most", 4: "least", 8: "most"}
    listed = ", ".join(f"{axis.partition('.')[2]} ({end[int(value)]})" for axis, value in found[0].axes.items())
    assert f"at the end of what was tried: {listed}; beyond it may be better still" in shown
    assert "40 GiB" in shown and "40.0 GiB" not in shown, "an axis stands in the unit that it was asked in"


def test_validate_own_runs(tmp_path: Path) -> None:
    lines = (ROOT / "benchmarks" / "data" / "measured_runs.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "runs.csv").write_text("\n".join(lines[:40]) + "\n", encoding="utf-8")
    found = cw.validate(tmp_path / "runs.csv", by="model")
    table = found.to_frame()
    assert len(found) == 39 and found.document["overall"]["n"] == 39
    timed = table.dropna(subset=["measured_s", "predicted_s"])
    assert len(timed) and (timed["error"] - (timed["predicted_s"] / timed["measured_s"] - 1)).abs().max() < 1e-3


def test_load_a_document_again(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    images = cw.plan_images("resnet50", accelerators={"A100": 4, "V100": 4}, batch=256)
    for each in (sets(), sets()[1], offer(), study(tmp_path_factory.getbasetemp()), images):
        file = tmp_path / "document.json"
        file.write_text(each.to_json(), encoding="utf-8")
        assert cw.load(file) == each == cw.load(str(file))
        assert pickle.loads(pickle.dumps(each)) == each


@sweep(
    ("name", "keyword", "says"),
    [
        ("plan", {"tp": 8}, 'pin={"tp": ...}'),
        ("plan", {"nodes": 2}, 'cluster="dgx-h100:2"'),
        ("plan", {"sequence": 8192}, "did you mean seq=?"),
        ("plan", {"context": 8192}, "did you mean seq=?"),
        ("plan", {"dtype": "bf16"}, "did you mean precision=?"),
        ("procure", {"within": "30 d"}, "did you mean deadline=?"),
    ],
)
def test_what_others_call_a_keyword_is_known(name: str, keyword: dict[str, object], says: str) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(cw, name)(model="llama3-8b", **keyword)
    assert says in str(caught.value)


def test_a_changed_node_is_another_cluster() -> None:
    node = cw.node("dgx-h100")
    whole, half = (
        cw.estimate("llama3-8b", cw.cluster(each, 2), tp=4) for each in (node, replace(node, accelerators=4, nics=4))
    )
    assert "clusters" in cw.compare(whole, half).questions
    with pytest.raises(cw.WrongQuestion, match=r"cluster\(node, 2, accelerator="):
        cw.cluster(replace(node, accelerator=cw.accelerator("H100-SXM5-80GB")), 2)


def test_what_does_not_fit_says_so_and_a_text_is_no_file() -> None:
    assert "does not fit into 80.0 GiB" in repr(cw.estimate("llama3.1-405b", "dgx-h100:1", tp=8))
    with pytest.raises(cw.WrongQuestion, match="a JSON text where a file's name is expected"):
        cw.load("{}")
