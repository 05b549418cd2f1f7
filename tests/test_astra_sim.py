"""ASTRA-sim's text workloads: written, read back, and with LIBRA's byte counts."""

import json
from pathlib import Path

import pytest

from planner.commands import command_line
from planner.launchers import astra_sim
from planner.planning.by_layer import LayerOptions, layered
from tests.cases import CATALOG
from tests.sweeps import sweep
from tests.test_golden import LIBRA
from tests.words import worded

LIBRAS = """Q1 -1 2343750 NONE 0 2343750 ALLREDUCE 805306368 2343750 ALLREDUCE 226492416 10
QK1 -1 97656 NONE 0 97656 NONE 0 97656 NONE 0 10
"""
"""Two rows in LIBRA's form: no training loop, no number of layers."""


def shaped(tmp_path: Path, hidden: int, heads: int) -> str:
    """A model of LIBRA's width: 2 layers, MLP of 4 h."""
    text = f"""[wide]
name = "wide"
source = "LIBRA"
layers = 2
hidden = {hidden}
ffn = {4 * hidden}
heads = {heads}
kv_heads = {heads}
head_dim = {hidden // heads}
gated = false
norm = "layer"
vocab = 51200
sequence = 2048
batch = 1024
tokens = "1T"
"""
    path = tmp_path / "wide.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@sweep("case", LIBRA["case"], ids=lambda case: case["model"])
def test_byte_counts_are_libras(case, tmp_path):
    asked = LayerOptions(tp=case["tp"], dp=2, micro=case["micro"], sequence=case["sequence"])
    found = layered(CATALOG, shaped(tmp_path, case["hidden"], case["tp"]), asked)
    rows = astra_sim.of_layers(found).rows
    regions = [each for row in rows for each in (row.forward, row.inward) if each.size]
    assert len(regions) == (8 if case["tp"] > 1 else 0)
    assert {each.size for each in regions} <= {case["activation_bytes"]}
    # Megatron reduces gradients in fp32, LIBRA's workloads in 16 bit; norms are no part of 12 h^2.
    reduced = sum(row.weight.size for row in rows) / 2
    assert reduced == pytest.approx(case["gradient_bytes"], rel=1e-3)


@sweep(
    ("name", "loop", "rows"),
    [
        ("llama3-8b", "HYBRID_TRANSFORMER model_parallel_NPU_group: 4", 1 + 32 * 7 + 2),
        ("deepseek-v2-lite", "HYBRID_TRANSFORMER model_parallel_NPU_group: 4", None),
        ("resnet50", "DATA", 54),
        ("dlrm-criteo1tb", "HYBRID_DLRM DLRM_LAST_BOTTOM_LAYER: 3", 10),
    ],
)
def test_what_is_written_is_read(name, loop, rows, tmp_path):
    asked = LayerOptions(tp=4 if "HYBRID_TRANS" in loop else 1, dp=8)
    made = layered(CATALOG, name, asked)
    workload = astra_sim.of_layers(made)
    path = tmp_path / "workload.txt"
    path.write_text(astra_sim.written(workload), encoding="utf-8")
    found = astra_sim.read(path)
    assert found.loop == workload.loop == loop
    assert rows is None or len(found.rows) == rows
    assert len(found.rows) == sum(layer.count for layer in made.layers)
    assert astra_sim.written(found) == path.read_text(encoding="utf-8")
    seconds = sum(each.seconds for row in found.rows for each in row.passes)
    expected = sum(layer.count * each.seconds for layer in made.layers for each in layer.passes)
    assert seconds == pytest.approx(expected, rel=1e-3)


def test_libras_files_have_no_loop(tmp_path):
    path = tmp_path / "MSFT_1T.txt"
    path.write_text(LIBRAS, encoding="utf-8")
    found = astra_sim.read(path)
    assert (found.loop, [row.name for row in found.rows]) == ("", ["Q1", "QK1"])
    assert found.rows[0].weight == astra_sim.Step(2.34375e-3, "ALLREDUCE", 226492416)
    assert astra_sim.written(found) == LIBRAS


@worded("astra_sim")
def test_what_is_no_workload_is_refused(text, tmp_path, capsys):
    path = tmp_path / "w.txt"
    path.write_text(text, encoding="utf-8")
    assert command_line.main(["models", "layers", str(path)]) == 2
    return capsys.readouterr().err


def test_a_plan_is_exported(tmp_path, capsys):
    plan, folder = tmp_path / "plan.json", tmp_path / "out"
    asked = ["plan", "llama3-8b", "--cluster", "dgx-h100:2", "--pin", "pp=1,cp=1", "--top", "1", "-o", str(plan)]
    assert command_line.main(asked) == 0
    assert command_line.main(["export", str(plan), "--to", "astra-sim", "-o", str(folder)]) == 0
    found = astra_sim.read(folder / "workload.txt")
    assert len(found.rows) == 1 + 32 * 7 + 2
    assert json.loads((folder / "target.json").read_text(encoding="utf-8"))["target"] == "astra-sim"
    assert command_line.main(["export", str(plan), "--to", "astra-sim", "-o", str(folder), "--force"]) == 0
    assert "Not expressed" in capsys.readouterr().out


OWN_FABRIC = """
[fabric]
name = "Our network"
kind = "roce"
nic_bandwidth = "100 Gbit/s"
latency = "9 us"
topology = "fat-tree"
leaf_nodes = 16
dimension1 = { topology = "switch", size = 8, bandwidth = "400 GB/s", latency = "1 us" }
dimension2 = { topology = "ring", size = 2, bandwidth = "50 GB/s", latency = "2 us" }
"""
LABS = {
    "fabric": 'count = 2\nnode = "dgx-h100"\n' + OWN_FABRIC,
    "no-usual-fabric": 'count = 2\nnode = "lambda-8x-a100-80gb"\n' + OWN_FABRIC,
    "matrix": 'count = 2\nnode = "dgx-h100"\n[accelerator]\nreachable = 0.3\n',
    "vector": 'count = 2\nnode = "dgx-h100"\n[accelerator]\nmemory_bandwidth = "3.0 TB/s"\n' + OWN_FABRIC,
    "node": 'count = 2\n[node]\nname = "Our box"\nkind = "server"\nprovider = "own"\nsource = "us"\n'
    'accelerator = "H100-SXM5-80GB"\naccelerators = 8\nnics = 4\n' + OWN_FABRIC,
}


@sweep("name", LABS, every=4)
def test_a_cluster_of_ones_own(name, tmp_path, capsys):
    plan, lab, out = tmp_path / "plan.json", tmp_path / "lab.toml", tmp_path / "out"
    lab.write_text(LABS[name], encoding="utf-8")
    asked = ["plan", "llama3.2-1b", "--cluster", str(lab), "--pin", "pp=1,cp=1", "--top", "1", "-o", str(plan)]
    assert command_line.main(asked) == 0
    export = ["export", str(plan), "--to", "astra-sim", "-o", str(out)]
    alone = command_line.main(export)
    said = capsys.readouterr().err
    if name in ("matrix", "vector"):
        assert alone == 2 and f"plan 1: {name} takes" in said and "(--cluster FILE.toml)" in said
    elif name == "node":
        assert alone == 2 and "is not in the catalog; give the cluster's file" in said
    else:
        assert alone == 0, said
        network = (out / "network.yml").read_text(encoding="utf-8")
        assert "npus_count: [ 8, 2 ]" in network and "bandwidth: [ 400, 50 ]" in network
    assert command_line.main([*export, "--cluster", str(lab), "--force"]) == 0, capsys.readouterr().err
    found = astra_sim.read(out / "workload.txt")
    document = json.loads(plan.read_text(encoding="utf-8"))["plans"][0]
    parts = sum(
        document["prediction"]["breakdown"][k] for k in ("matrix", "attention", "vector", "embedding", "logits")
    )
    rows = sum(each.seconds for row in found.rows for each in row.passes)
    assert rows * document["batch"]["accumulation"] == pytest.approx(parts, rel=1e-4)


def test_another_cluster_than_the_plans_is_refused(tmp_path, capsys):
    plan, lab = tmp_path / "plan.json", tmp_path / "lab.toml"
    lab.write_text('count = 2\nnode = "dgx-a100-80gb"\n', encoding="utf-8")
    asked = ["plan", "llama3.2-1b", "--cluster", "dgx-h100:2", "--pin", "pp=1,cp=1", "--top", "1", "-o", str(plan)]
    assert command_line.main(asked) == 0
    export = ["export", str(plan), "--cluster", str(lab), "-o", str(tmp_path / "out")]
    assert command_line.main([*export, "--to", "astra-sim"]) == 2
    assert "--cluster lab has dgx-a100-80gb" in capsys.readouterr().err
    assert command_line.main([*export, "--to", "megatron"]) == 2
    assert "--cluster is for astra-sim" in capsys.readouterr().err


def test_adapters_have_no_layers(tmp_path, capsys):
    plan = tmp_path / "plan.json"
    asked = ["plan", "llama2-7b", "--method", "lora", "--cluster", "dgx-h100:1", "--pin", "pp=1,cp=1", "--top", "1"]
    assert command_line.main([*asked, "-o", str(plan)]) == 0
    assert command_line.main(["export", str(plan), "--to", "astra-sim", "-o", str(tmp_path / "out")]) == 2
    assert "have no layers here" in capsys.readouterr().err


def test_stages_have_no_place_in_it(tmp_path, capsys):
    plan = tmp_path / "plan.json"
    asked = ["plan", "llama3-8b", "--cluster", "dgx-h100:2", "--pin", "pp=2,cp=1", "--top", "1", "-o", str(plan)]
    assert command_line.main(asked) == 0
    assert command_line.main(["export", str(plan), "--to", "astra-sim", "-o", str(tmp_path / "out")]) == 2
    assert "pp 2" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
