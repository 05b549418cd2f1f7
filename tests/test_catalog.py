"""The catalog: what the built-in one holds, how folders overlay, and that everything wrong is said at once."""

import dataclasses
import math
import os
from pathlib import Path

import pytest

from planner import catalog
from planner.base.errors import WrongQuestion, same_but_case
from planner.base.resources import data
from planner.catalog import Catalog, UnknownName
from planner.question import given, pools
from tests.words import worded

STABLE = (
    "dgx-v100 dgx2-v100 dgx-a100-40gb dgx-a100-80gb dgx-h100 dgx-h200 dgx-b200 gb200-nvl72 mi300x-8 "
    "p4d.24xlarge p5.48xlarge a3-highgpu-8g ND96isr_H100_v5 dgx-1-p100 quad-rtx6000 ws-8xrtx2080ti mi250x-4"
).split()
NODE = """
[lab]
name = "Lab"
kind = "server"
provider = "own"
accelerator = "A100-SXM4-80GB"
accelerators = 8
source = "us"
"""


@pytest.fixture
def known() -> Catalog:
    return catalog.load()


def folder(root: Path, **files: str) -> Path:
    """A catalog folder; ``nodes__lab="..."`` writes ``nodes/lab.toml``, under ``prices`` a CSV."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        kind, _, stem = name.partition("__")
        (root / kind).mkdir(exist_ok=True)
        (root / kind / f"{stem}{'.csv' if kind == 'prices' else '.toml'}").write_text(text)
    return root


# ---- the built-in catalog --------------------------------------------------------------------------------------------


def test_the_built_in_catalog_has_no_problem() -> None:
    assert catalog.problems(data("hardware_catalog")) == []


@pytest.mark.parametrize("name", STABLE)
def test_stable_ids_stay(known: Catalog, name: str) -> None:
    node = known.node(name)
    assert node.accelerator in known.accelerators


def test_figures_read_in_their_sources(known: Catalog) -> None:
    h100 = known.accelerator("H100-SXM5-80GB")
    assert h100.peak["bf16"] == pytest.approx(989e12)
    assert h100.memory == 80 * 2**30
    assert h100.scaleup.bandwidth == 450e9
    assert known.accelerator("MI300X").scaleup.pair_bandwidth == 64e9
    assert known.node("dgx-h100").nic_bandwidth == 50e9
    assert known.node("dgx-h100").max_power == 10200.0
    price = {price.basis: price for price in known.node("p5.48xlarge").prices}["on-demand"]
    assert (price.usd, price.date) == (55.04, "2025-11")
    assert known.region("us").electricity == 0.0826


def test_every_entry_says_where_it_was_read(known: Catalog) -> None:
    for kind in catalog.FOLDERS:
        for entry in known.entries(kind).values():
            assert entry.source and entry.date, entry.id
            assert all(entry.assumed.values()), entry.id


def test_figures_are_of_the_order_of_hardware(known: Catalog) -> None:
    """A slip of an eighth or a thousand shows here."""
    for part in known.accelerators.values():
        assert 1e12 < max(part.peak.values()) < 4e16, part.id
        assert 1e11 < part.memory_bandwidth < 3e13, part.id
        assert 7.5e9 < (part.scaleup.bandwidth or 10.1e9) <= 2e12, part.id  # PCIe 3.0 through the host: 7.9 GB/s
    for node in known.nodes.values():
        assert node.fabric is None or node.fabric in known.fabrics
        if node.nic_bandwidth and node.fabric:
            assert node.nic_bandwidth == known.fabrics[node.fabric].nic_bandwidth, node.id
        if node.max_power:
            tdp = known.accelerators[node.accelerator].tdp or 0
            assert node.max_power >= tdp * node.accelerators, node.id
    for fabric in known.fabrics.values():
        assert 1e-6 <= fabric.latency < 1e-4, fabric.id
    for region in known.regions.values():
        assert 0.01 < region.electricity < 1 and 0 <= region.carbon < 1500, region.id


def test_a_box_that_is_rented_as_an_instance_holds_the_same_accelerators(known: Catalog) -> None:
    for node in known.nodes.values():
        if node.rented_as:
            instance = known.node(node.rented_as)
            assert (instance.accelerator, instance.accelerators) == (node.accelerator, node.accelerators)
            assert instance.prices


def test_fsdp_runtimes_keep_no_parameters_beside_the_master_copy(known: Catalog) -> None:
    for runtime in known.runtimes.values():
        assert runtime.gathers_working_copy == (runtime.parameter_bytes == 0), runtime.id


def test_version_follows_the_bytes(tmp_path: Path) -> None:
    own = folder(tmp_path / "own", nodes__lab=NODE)
    before = catalog.load(own).versions()
    assert before["built-in"] == catalog.version() and len(catalog.version()) == 12
    folder(tmp_path / "own", nodes__lab=NODE.replace("Lab", "Bal"))
    after = catalog.load(own).versions()
    assert after["--catalog"] != before["--catalog"] and after["built-in"] == before["built-in"]


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "near"),
    [
        ("node", "dgx-h10", "dgx-h100"),
        ("node", "DGX-H10", "dgx-h100"),
        ("accelerator", "h100-sxm5-80g", "H100-SXM5-80GB"),
        ("fabric", "infiniband-nrd", "infiniband-ndr"),
        ("region", "us-est-1", "us-east-1"),
        ("runtime", "megatron", "megatron-core"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(known: Catalog, kind: str, name: str, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        getattr(known, kind)(name)
    assert f"no {kind} {name!r}. Did you mean" in str(caught.value)
    assert near in str(caught.value)
    assert caught.value.exit_code == 2


# ---- overlays --------------------------------------------------------------------------------------------------------


def test_upper_and_lower_case_are_one_where_no_other_entry_differs_by_it(known: Catalog) -> None:
    assert known.node("DGX-H100") is known.node("dgx-h100")
    assert known.accelerator("h100-sxm5-80gb").id == "H100-SXM5-80GB"
    assert same_but_case("ab", ["AB", "aB"]) is None


def test_later_folders_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lab(name: str, **more: str) -> dict[str, str]:
        return {"nodes__lab": NODE.replace('"Lab"', f'"{name}"')} | more

    config = folder(tmp_path / "config" / "clusterwright" / "catalog", **lab("config"))
    assert "lab" not in catalog.load().nodes
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert catalog.load().node("lab").name == "config"
    monkeypatch.setenv("CLUSTERWRIGHT_CATALOG", str(folder(tmp_path / "env", **lab("env"))))
    assert catalog.load().node("lab").name == "env"
    last = catalog.load(folder(tmp_path / "last", **lab("last")))
    assert last.node("lab").name == "last"
    assert last.origins["nodes"]["lab"] == str(tmp_path / "last" / "nodes" / "lab.toml")
    assert last.origins["nodes"]["dgx-h100"] == "built-in"
    assert config.is_dir()


def test_an_entry_replaces_the_whole_weaker_one(tmp_path: Path) -> None:
    own = catalog.load(folder(tmp_path, nodes__mine=NODE.replace("[lab]", "[dgx-h100]"))).node("dgx-h100")
    assert own.accelerator == "A100-SXM4-80GB"
    assert own.max_power is None and own.prices == ()


def test_extends_starts_from_another_entry(known: Catalog, tmp_path: Path) -> None:
    name = "dgx-a100-80gb"
    text = f'[{name}]\nextends = "{name}"\nhost_memory = "1 TiB"\n[twin]\nextends = "{name}"\nname = "Twin"\n'
    own = catalog.load(folder(tmp_path, nodes__mine=text))
    base = known.node(name)
    assert own.node(name).host_memory == 2**40
    assert own.node(name).prices == base.prices
    assert "host_memory" in base.assumed
    assert "host_memory" not in own.node(name).assumed, "what is stated is not assumed"
    expected = dataclasses.replace(own.node(name), id="twin", name="Twin")
    assert own.node("twin") == expected


def test_a_price_list_alone_renews_prices_of_its_basis(known: Catalog, tmp_path: Path) -> None:
    text = "kind,id,basis,usd,date,source\nnode,p5.48xlarge,on-demand,40,2026-11,contract\n"
    own = catalog.load(folder(tmp_path, prices__our=text)).node("p5.48xlarge")
    assert [price.usd for price in own.prices if price.basis == "on-demand"] == [40.0]
    spot = [price for price in known.node("p5.48xlarge").prices if price.basis == "spot"]
    assert [price for price in own.prices if price.basis == "spot"] == spot


@pytest.mark.parametrize("variable", ["CLUSTERWRIGHT_CATALOG", None])
def test_a_named_folder_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str | None) -> None:
    missing = tmp_path / "missing"
    if variable:
        monkeypatch.setenv(variable, str(missing))
    with pytest.raises(WrongQuestion, match="no such catalog folder"):
        catalog.load(None if variable else missing)


# ---- what is wrong ---------------------------------------------------------------------------------------------------


@worded("catalog.fields")
def test_a_wrong_field_is_named_with_file_line_and_reason(line: str, tmp_path: Path) -> str:
    own = folder(tmp_path, nodes__lab=NODE + line + "\n")
    (problem,) = catalog.problems(own)
    assert problem.file == str(own / "nodes" / "lab.toml")
    assert problem.line == len((NODE + line).splitlines())
    return f"{problem.key}: {problem.reason}"


def test_every_problem_is_listed_at_once(tmp_path: Path) -> None:
    broken = NODE.replace("= 8", "= 0").replace('"server"', '"servr"').replace("A100-SXM4-80GB", "A100")
    own = folder(
        tmp_path,
        nodes__a=broken.replace('source = "us"', ""),
        nodes__b="[lab]\nname = \n",
        nodes__c=NODE,
        fabrics__d='[slow]\nname = "x"\noversubscription = 0.5\n',
    )
    found = catalog.problems(own)
    said = "\n".join(map(str, found))
    for part in ("accelerators = 0", "did you mean server", "lab.source: missing", "no such accelerator"):
        assert part in said
    assert "b.toml:2: not valid TOML" in said
    assert "c.toml:2: lab: defined twice" in said
    assert "slow.oversubscription = 0.5: must be at least 1" in said
    assert found == sorted(found)
    with pytest.raises(WrongQuestion, match=r"lab\.accelerators = 0"):
        _ = catalog.load(own).nodes


def test_what_follows_from_a_wrong_name_is_not_said_as_well(tmp_path: Path) -> None:
    found = catalog.problems(folder(tmp_path, nodes__lab='[lab]\nextends = "dgx-h10"\n'))
    assert [problem.key for problem in found] == ['lab.extends = "dgx-h10"']


def test_entries_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    own = folder(tmp_path, nodes__x='[a]\nextends = "b"\n[b]\nextends = "a"\n')
    assert any("extends itself" in problem.reason for problem in catalog.problems(own))


@worded("catalog.price_rows")
def test_a_wrong_price_row_is_named_with_its_line(row: str, tmp_path: Path) -> str:
    own = folder(tmp_path, prices__our=f"kind,id,basis,usd,date,source\nnode,dgx-h100,spot,3,2026,x\n{row}\n")
    found = [problem for problem in catalog.problems(own) if problem.file.endswith("our.csv")]
    assert [problem.line for problem in found] == [3]
    return str(found[0])


def test_a_price_list_without_its_columns_is_refused(tmp_path: Path) -> None:
    found = catalog.problems(folder(tmp_path, prices__our="kind,id,basis,usdollars,date,source\n"))
    assert [problem.key for problem in found] == ["usd", "usdollars"]


def test_files_that_nobody_would_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "lab.yaml").write_text("x: 1")
    (tmp_path / "README.md").write_text("prose is welcome")
    said = [str(problem) for problem in catalog.problems(tmp_path)]
    assert len(said) == 2
    assert "did you mean nodes/?" in said[0]
    assert "lab.yaml: not read" in said[1]
    with pytest.raises(WrongQuestion, match="did you mean nodes/"):
        catalog.load(tmp_path)


def test_hostile_files_are_refused_without_a_traceback(tmp_path: Path) -> None:
    own = folder(tmp_path, nodes__deep="x = " + "[" * 5000)
    (own / "nodes" / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    (own / "nodes" / "big.toml").write_bytes(b"#" * 10_000_001)
    (own / "nodes" / "folder.toml").mkdir()
    os.mkfifo(own / "nodes" / "pipe.toml")
    said = "\n".join(str(problem) for problem in catalog.problems(own))
    for part in ("deep.toml", "not UTF-8", "at most 10,000,000", "Is a directory", "not a regular file"):
        assert part in said


# ---- clusters --------------------------------------------------------------------------------------------------------


def test_a_cluster_takes_the_nodes_own_fabric_or_another(known: Catalog) -> None:
    usual = catalog.cluster(known, "dgx-h100", 16)
    assert usual.accelerators == 128 and usual.fabric.id == "infiniband-ndr" and usual.node.nic_bandwidth == 50e9
    slower = catalog.cluster(known, "dgx-h100", 16, "infiniband-hdr", "us")
    assert slower.node.nic_bandwidth == 25e9 and slower.node.nics == 8 and slower.node.fabric == "infiniband-hdr"
    assert slower.region is not None and slower.region.id == "us"


def test_a_node_without_a_network_stands_alone(known: Catalog) -> None:
    assert catalog.cluster(known, "lambda-8x-v100", 1).accelerators == 8
    assert catalog.cluster(known, "lambda-8x-v100", 2, "ethernet-25g").node.nics == 1
    with pytest.raises(WrongQuestion, match="choose it with --fabric"):
        catalog.cluster(known, "lambda-8x-v100", 2)


@pytest.mark.parametrize("count", [0, -1, 10**9, True, 1.5, math.nan])
def test_absurd_counts_are_refused(known: Catalog, count: int) -> None:
    with pytest.raises(WrongQuestion, match="from 1 to 1,000,000"):
        catalog.cluster(known, "dgx-h100", count)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_cluster_file_by_id(known: Catalog, tmp_path: Path) -> None:
    text = """
name = "our lab"
node = "dgx-h100"
count = 4
fabric = "roce-200g"
region = "us-texas"
utilisation_of_peak_power = 0.6
[[prices]]
basis = "on-demand"
usd = "$40"
date = "2026-11"
source = "contract"
"""
    own = catalog.cluster_from_file(write(tmp_path / "lab.toml", text), known)
    assert (own.name, own.count, own.utilisation_of_peak_power) == ("our lab", 4, 0.6)
    assert own.node.nic_bandwidth == 25e9
    assert {price.basis: price.usd for price in own.node.prices} == {"purchase": 375000.0, "on-demand": 40.0}
    assert own.region == known.region("us-texas")


def test_a_cluster_file_with_tables_of_its_own(known: Catalog, tmp_path: Path) -> None:
    text = """
count = 2
[node]
extends = "dgx-h100"
accelerators = 4
host_memory = "1 TiB"
[fabric]
name = "Our network"
kind = "roce"
nic_bandwidth = "100 Gbit/s"
latency = "9 us"
topology = "fat-tree"
leaf_nodes = 16
"""
    own = catalog.cluster_from_file(write(tmp_path / "lab.toml", text), known)
    base = known.node("dgx-h100")
    assert own.accelerators == 8 and own.node.host_memory == 2**40 and own.node.max_power == base.max_power
    assert own.node.assumed.keys() == base.assumed.keys() - {"host_memory"}
    assert own.fabric.name == "Our network" and own.node.nic_bandwidth == 12.5e9
    assert own.name == "lab"


def test_every_problem_of_a_cluster_file_is_said(known: Catalog, tmp_path: Path) -> None:
    text = 'node = "dgx-h10"\ncount = 0\nfabrik = "x"\nregion = "us-texs"\nutilisation_of_peak_power = 2\n'
    text += "[fabric]\nname = 3\n"
    path = write(tmp_path / "lab.toml", text)
    with pytest.raises(WrongQuestion) as caught:
        catalog.cluster_from_file(path, known)
    said = str(caught.value)
    for part in (
        f'{path}:1: node = "dgx-h10": no such node; did you mean dgx-h100',
        f"{path}:2: count = 0: must be a whole number from 1 to",
        f"{path}:3: fabrik: unknown key; did you mean fabric?",
        f"{path}:4: region = 'us-texs': no such region; did you mean us-texas",
        f"{path}:5: utilisation_of_peak_power = 2: must be",
        f"{path}:7: fabric.name = 3: must be some text",
        "fabric.latency: missing",
    ):
        assert part in said


@worded("catalog.cluster_files")
def test_a_malformed_cluster_file_is_refused(text: str, known: Catalog, tmp_path: Path) -> WrongQuestion:
    with pytest.raises(WrongQuestion) as raised:
        catalog.cluster_from_file(write(tmp_path / "lab.toml", text), known)
    return raised.value


def test_a_file_of_pools_is_a_cluster_for_each(known: Catalog, tmp_path: Path) -> None:
    """What the file states once holds for every pool that states nothing else; each is one --cluster."""
    text = (
        "region = 'us-texas'\n[[pools]]\nnode = 'dgx-h100'\ncount = 2\n"
        "[[pools]]\nnode = 'dgx-a100-80gb'\ncount = 3\nregion = 'fr'\nzone = 'b'\n"
    )
    file = write(tmp_path / "lab.toml", text)

    named = given.listed(file)

    assert named == [f"{file}#1", f"{file}#2@b"] == given.listed([str(file)])
    first, second = pools.own_clusters(file, known)
    assert [(c.node.id, c.count, c.region.id) for c in (first, second)] == [
        ("dgx-h100", 2, "us-texas"),
        ("dgx-a100-80gb", 3, "fr"),
    ]
    assert given.listed("dgx-h100:2") == ["dgx-h100:2"]


@pytest.mark.parametrize(
    ("text", "asked", "said"),
    [
        (
            "[[pools]]\nnode = 'dgx-h100'\ncount = 2\n",
            "",
            "several pools where one cluster is asked for: name one, from",
        ),
        ("[[pools]]\nnode = 'dgx-h100'\ncount = 2\n", "#2", r"the file has 1 \[\[pools\]\]"),
        ("[[pools]]\nnode = 'dgx-h10'\ncount = 2\n", "#1", 'lab.toml:2: node = "dgx-h10".*no such node; did you mean'),
        ("count = 2\n[[pools]]\nnode = 'dgx-h100'\n", "#1", r"count.*belongs into one of \[\[pools\]\]"),
        ("[a]\naccelerators = 8\n[b]\naccelerators = 4\n", "", r"several kinds of nodes: write \[\[pools\]\]"),
    ],
)
def test_a_file_of_several_kinds_says_what_it_should_be(tmp_path: Path, text: str, asked: str, said: str) -> None:
    file = write(tmp_path / "lab.toml", text)
    with pytest.raises(WrongQuestion, match=said):
        catalog.cluster_from_file(Path(f"{file}{asked}"), catalog.load())


def test_a_cluster_file_that_is_not_there_is_refused(known: Catalog, tmp_path: Path) -> None:
    with pytest.raises(WrongQuestion, match="No such file"):
        catalog.cluster_from_file(tmp_path / "none.toml", known)
