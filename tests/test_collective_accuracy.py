"""Timed collectives: reading tables, recovering what was planted, how far published ones are from their fits."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from planner import catalog as catalogs
from planner.base.errors import WrongQuestion
from planner.base.resources import data
from planner.calibration.fit import collectives
from planner.calibration.runs.collective_tables import TimedCollectives, read
from planner.catalog.cluster import cluster
from planner.commands.command_line import cli
from planner.cost import nccl_algorithms
from planner.cost.collective_times import group
from planner.figures import cost_inputs

TABLE = data("hardware_catalog").parent / "benchmarks" / "data" / "measured_collectives.csv"
KNOWN = catalogs.load()
PRIORS = collectives.topologies(KNOWN.collective_efficiencies)


@pytest.fixture(scope="module")
def published():
    return read(TABLE, KNOWN)


def wrong(tmp_path, text: str, accelerator: str | None = "H100-SXM5-80GB") -> str:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(WrongQuestion) as raised:
        collectives.calibrate(path, tmp_path / "own", KNOWN, accelerator, "2026-11-20")
    assert not (tmp_path / "own").exists()
    return str(raised.value)


def test_wrong_tables_are_told_where_they_are_wrong(tmp_path):
    assert "no column op" in wrong(tmp_path, "a,b\n1,2\n")
    assert "time_us or seconds" in wrong(tmp_path, "op,gpus,size\nall-reduce,8,1\n")
    good = "op,ranks,bytes,time_us\n"
    assert "did you mean all-reduce" in wrong(tmp_path, good + "all-reduc,8,1024,3\n")
    assert ":2: time_us = '-3'" in wrong(tmp_path, good + "all_reduce,8,1024,-3\n")
    assert "gpus" not in wrong(tmp_path, good + "AllReduce,x,1024,3\n")
    assert ":2: op = ''" in wrong(tmp_path, "gpus,size,time_us,op\n8,1024,3\n")
    assert ":2: nodes = 'two'" in wrong(tmp_path, "op,gpus,size,time_us,nodes\nall-reduce,8,1024,3,two\n")
    part = "op,gpus,size,time_us,topology,link_GBps\nall-reduce,8,1024,3,"
    assert "there are switch" in wrong(tmp_path, part + "star,5\n")
    assert "link_GBps" in wrong(tmp_path, part + "pcie,fast\n")
    assert "8 rows" in wrong(tmp_path, good + "AllReduce,8,1024,3\n")
    told = wrong(tmp_path, good + "AllReduce,8,1024,3\n", None)
    assert "--accelerator ID" in told
    (tmp_path / "table.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WrongQuestion, match="UTF-8"):
        read(tmp_path / "table.csv", KNOWN)
    with pytest.raises(WrongQuestion, match="No such file"):
        read(tmp_path / "none.csv", KNOWN)


def test_suspects_targets_and_faults_are_left_out(published):
    assert published.left_out["marked suspect"] == 15
    assert published.left_out["a target, not a measurement"] == 16
    assert published.left_out["reported as a fault"] == 8
    assert len(published.rows) + sum(published.left_out.values()) == 6987


def test_what_was_planted_is_found_again():
    part = KNOWN.accelerators["H100-SXM5-80GB"]
    prior = PRIORS["switch/all-gather"]
    planted = replace(
        prior,
        rate=0.7,
        few=0.4,
        base={"LL": 5e-6, "LL128": 9e-6, "Simple": 20e-6},
        step={"LL": 1.2e-6, "LL128": 2e-6, "Simple": 5e-6},
        ramp=0.8,
    )
    rows = [
        TimedCollectives(accelerator=part, op="all-gather", ranks=float(n), size=float(2**power), seconds=1.0)
        for n in (2, 3, 4, 8)
        for power in range(12, 31)
    ]
    times = collectives.CollectiveCell(rows).times(planted)
    cell = collectives.CollectiveCell([replace(row, seconds=float(t)) for row, t in zip(rows, times, strict=True)])
    seen = (cell.ranks != 4) & (np.round(np.log2(cell.size)).astype(int) % 2 == 0)
    found = collectives.fitted(cell, prior, seen)
    assert np.abs(cell.times(found) / times - 1)[~seen].mean() < 0.025
    assert np.abs(cell.times(prior) / times - 1)[~seen].mean() > 0.1
    assert found.rate * (1 - found.few / 8) == pytest.approx(0.7 * (1 - 0.4 / 8), rel=0.1)


def test_a_source_whose_host_launches_slowly_says_as_much_of_the_links():
    part, prior = KNOWN.accelerators["H100-SXM5-80GB"], PRIORS["switch/all-to-all"]
    planted = replace(prior, rate=0.75, ramp=0.3 * prior.ramp)
    rows = [
        TimedCollectives(accelerator=part, op="all-to-all", ranks=8.0, size=2.0**power, seconds=1.0, source="eager")
        for power in range(20, 34)
    ]
    links = collectives.CollectiveCell(rows).times(planted)
    slow = [replace(row, seconds=max(70e-6, float(t))) for row, t in zip(rows, links, strict=True)]
    found = collectives.fitted(collectives.CollectiveCell(slow), prior)
    small = links < 60e-6
    assert small.sum() >= 3
    assert np.abs(collectives.CollectiveCell(rows).times(found) / links - 1)[~small].mean() < 0.04
    assert (collectives.CollectiveCell(rows).times(found)[small] < 50e-6).all()


def test_the_error_of_a_source_left_out(published):
    from docs.accuracy_collectives import by_source

    rows = [row for row in published.rows if row.accelerator.id == "H100-SXM5-80GB" and row.op == "all-to-all"]
    errors = {source: float(error) for source, _, _, error in by_source(rows, PRIORS)}
    assert set(errors) == {"SimuMax", "aiconfigurator"}
    assert errors["aiconfigurator"] < 0.2
    assert np.mean(list(errors.values())) < 0.2


@pytest.mark.slow
def test_alternate_sizes_and_an_unseen_number_of_ranks(published):
    newest = {"a100_sxm": "NCCL 2.27.3", "h100_sxm": "NCCL 2.29.2", "b200_sxm": "NCCL 2.29.2"}
    rows = [row for row in published.rows if row.op in ("all-reduce", "all-gather")]
    errors = []
    for (hardware, backend, _), cell in collectives.cells(rows).items():
        if newest.get(hardware) == backend:
            prior = collectives.prior_of(PRIORS, cell.accelerator, cell.op)
            odd = np.round(np.log2(cell.size)).astype(int) % 2 == 1
            by_size = np.abs(cell.times(collectives.fitted(cell, prior, ~odd)) / cell.measured - 1)[odd]
            four = cell.ranks == 4
            by_ranks = np.abs(cell.times(collectives.fitted(cell, prior, ~four)) / cell.measured - 1)[four]
            errors.append((by_size.mean(), by_size[cell.size[odd] >= 2**24].mean(), by_ranks.mean()))
    small, large, unseen = np.mean(errors, axis=0)
    assert len(errors) == 6
    assert small < 0.07
    assert large < 0.04
    assert unseen < 0.08


def test_several_nodes_with_the_shipped_fits(published):
    rows = [row for row in published.rows if row.node and row.ranks <= collectives.MOST]
    across = collectives.Across(rows, KNOWN, KNOWN.collective_efficiencies)
    assert np.median(np.abs(across.times(KNOWN.fabric_efficiencies) / across.measured - 1)) < 0.2


def test_a_library_takes_the_most_particular_entries():
    dgx = cluster(KNOWN, "dgx-h100", 4)
    entries, fabrics = KNOWN.collective_efficiencies, KNOWN.fabric_efficiencies
    found = cost_inputs.library(dgx, entries, fabrics)
    own = entries["H100-SXM5-80GB/all-reduce"]
    simple = next(p for p in found.protocols["all-reduce"] if p.name == "Simple")
    assert simple.rate == pytest.approx(own.rate * 450e9)
    assert simple.nic == pytest.approx(50e9 * fabrics["infiniband-ndr"].nic)
    assert found.switch == pytest.approx(own.switch * 450e9)
    assert found.protocols["broadcast"] == found.protocols["all-gather"] != found.protocols["reduce-scatter"]
    few = {name: entry for name, entry in entries.items() if name.split("/")[0] in ("hopper", "switch")}
    assert cost_inputs.library(dgx, few, fabrics).protocols["all-reduce"][0].base == few["hopper/all-reduce"].base["LL"]
    v100 = cost_inputs.library(cluster(KNOWN, "dgx-v100", 2), entries, {"default": fabrics["default"]})
    assert v100.switch == 0.0
    assert v100.protocols["all-gather"][0].base == entries["mesh/all-gather"].base["LL"]


def test_every_part_of_the_catalog_has_a_library():
    for node in KNOWN.nodes.values():
        made = cluster(KNOWN, node.id, 1)
        reached = KNOWN.accelerator_efficiencies["default"]
        network = cost_inputs.network(made, reached)
        library = cost_inputs.library(made, KNOWN.collective_efficiencies, KNOWN.fabric_efficiencies)
        for op in nccl_algorithms.OPERATIONS:
            table = nccl_algorithms.times(network, op, 1e6, group(network, float(node.accelerators), 1.0), library)
            assert all(np.isfinite(value) for value in table.values())


def own_table(tmp_path) -> str:
    lines = ["op,ranks,bytes,seconds"]
    for op in ("all_reduce", "AllGather"):
        for n in (2, 4, 8):
            lines += [f"{op},{n},{2**power},{30e-6 + 2**power / 200e9}" for power in range(10, 30, 2)]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.slow
def test_a_table_of_ones_own_becomes_an_overlay(tmp_path):
    folder = tmp_path / "mine"
    command = ["calibrate", "--collectives", own_table(tmp_path), "--accelerator", "H100-SXM5-80GB", "-o", str(folder)]
    result = CliRunner().invoke(cli, [*command, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    assert document["entries"] == ["H100-SXM5-80GB/all-gather", "H100-SXM5-80GB/all-reduce"]
    assert all(each["after"] < each["before"] for each in document["errors"])
    mine = catalogs.load(folder)
    assert "own.csv" in mine.collective_efficiencies["H100-SXM5-80GB/all-reduce"].source
    assert (
        mine.collective_efficiencies["H100-SXM5-80GB/all-to-all"]
        == (KNOWN.collective_efficiencies["H100-SXM5-80GB/all-to-all"])
    )
    shown = CliRunner().invoke(cli, command)
    assert "MAPE before" in shown.output
    assert "--catalog" in shown.output


def test_collectives_stand_alone(tmp_path):
    result = CliRunner().invoke(cli, ["calibrate", "x.csv", "--collectives", "y.csv", "-o", str(tmp_path)])
    assert isinstance(result.exception, WrongQuestion)  # what `main` says in a message, with exit code 2
    assert "--collectives" in str(result.exception)
