"""Axes of a study and its file: figures of the catalog, and everything that is refused."""

from dataclasses import replace

import pytest

from planner.base.errors import WrongQuestion
from planner.catalog.files import FileProblem, read_document
from planner.study.question import axes as figures
from planner.study.question import reading
from tests.designing import STUDIES, TINY, known, parsed, study
from tests.sweeps import sweep
from tests.words import worded


def wrong(text: str) -> str:
    with pytest.raises(WrongQuestion) as caught:
        reading.study(parsed(text), known())
    return str(caught.value)


@sweep(
    ("path", "kind"),
    [
        ("accelerator.memory", "bytes"),
        ("accelerator.memory_bandwidth", "bandwidth"),
        ("accelerator.peak.bf16", "compute"),
        ("node.scaleup_bandwidth", "bandwidth"),
        ("node.accelerators", "count"),
        ("fabric.nic_bandwidth", "bandwidth"),
        ("fabric.oversubscription", "number"),
        ("cluster.count", "count"),
        ("node", "name"),
    ],
)
def test_axes_are_the_catalogs_own_figures(path, kind):
    assert figures.paths()[figures.known(path)] == kind


def test_a_figure_is_changed_where_plans_read_it():
    base = study().base
    plain = figures.built(known(), base, {})
    for path, kind in figures.paths().items():
        before = figures.current(plain, path)
        if kind in ("bytes", "bandwidth", "compute", "power", "time", "number") and before is not None:
            value = float(before) * 0.875 if path.endswith("power") else float(before) * 1.0625
            assert figures.current(figures.built(known(), base, {path: value}), path) == value, path


def test_a_larger_pod_keeps_nics_watts_and_dollars_per_accelerator():
    base = replace(study().base, count=None, accelerators=64)
    small, large = (figures.built(known(), base, {"node.accelerators": n}) for n in (8, 16))
    assert large.accelerators == small.accelerators == 64
    assert large.node.nics == 2 * small.node.nics
    assert large.node.max_power == 2 * small.node.max_power
    assert [p.usd for p in large.node.prices] == [2 * p.usd for p in small.node.prices]


def test_equal_peaks_stay_equal():
    changed = figures.built(known(), study().base, {"accelerator.peak.bf16": 5e14})
    assert changed.accelerator.peak["fp16"] == changed.accelerator.peak["bf16"] == 5e14
    assert changed.accelerator.peak["fp8"] == known().accelerators[changed.accelerator.id].peak["fp8"]


def test_axes_without_quotes_and_ranges():
    text = TINY.replace('"accelerator.memory" = [', "accelerator.memory_bandwidth = [").replace("GiB", "TB/s", 3)
    read = reading.study(parsed(text.replace("[costs.per]", "[costs.per]")), known())
    axis = next(a for a in read.axes if a.path == "accelerator.memory_bandwidth")
    assert axis.values == (24e12, 48e12, 80e12)
    peak = next(a for a in read.axes if a.path == "accelerator.peak.bf16")
    assert peak.values == pytest.approx((2.5e14, 5e14, 1e15))


@worded("design.studies")
def test_wrong_studies_are_told_with_line_and_key(change):
    old, new = change.split(" => ")
    assert old in TINY
    told = wrong(TINY.replace(old, new, 1))
    assert told.startswith("study.toml:")
    return told


def test_a_rate_that_would_count_nothing_is_refused():
    """Nodes of another size keep the dollars of an accelerator: a rate on their size was taken and never charged."""
    text = TINY.replace("[costs.per]", '[costs.per]\n"node.accelerators" = "$3,000 each"', 1)
    assert reading.study(parsed(text), known()).costs.rates[0].path == "node.accelerators"
    catalog_priced = text.replace('accelerator = "$3,000"\nnode = "$20,000"\n', "")
    assert "costs.per.node.accelerators: " in wrong(catalog_priced)


def test_every_problem_is_told_at_once():
    told = wrong(TINY.replace('"24 GiB"', "24").replace('"cost"', '"price"').replace("llama3-8b", "llama9"))
    assert len(told.splitlines()) == 3


@sweep("path", STUDIES, ids=lambda path: path.stem)
def test_shipped_studies_can_be_read(path):
    problems: list[FileProblem] = []
    assert read_document(path, problems) is not None
    found = reading.read(path, known())
    assert found.size > 1 and found.name == path.stem


def test_a_missing_file_and_a_folder(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(WrongQuestion):
            reading.read(path, known())
