"""Runs files of a user: rows that are odd, impossible or too few are told, and never end a command."""

import csv
import json
import math
from pathlib import Path

import pytest

from planner import api, catalog
from planner.axes.table import ZERO
from planner.base.errors import WrongQuestion
from planner.calibration.runs import columns, names, reading
from planner.commands.command_line import main
from planner.figures import conformal_intervals
from planner.site import row_words
from planner.site.cells import of_plan
from tests.sweeps import sweep
from tests.words import worded

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "benchmarks" / "data" / "measured_runs.csv"
GOOD = {
    "id": "mine-1",
    "source": "mine",
    "model": "llama3-8b",
    "family": "dense",
    "accelerator": "H100",
    "num_accelerators": "8",
    "seq_len": "8192",
    "global_batch_seqs": "128",
    "tp": "1",
    "pp": "1",
    "micro_batch": "1",
    "precision": "bf16",
    "step_time_s": "12.5",
    "runtime": "megatron-core@2026",
    "activation_recompute": "none",
}


def wrote(tmp_path, *rows, also=()):
    """A runs file of good rows with some cells changed."""
    path = tmp_path / "mine.csv"
    columns = list(dict.fromkeys([*GOOD, *also, *(name for row in rows for name in row)]))
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        table.writerows(GOOD | row for row in rows)
    return path


def validated(capsys, path, *options):
    """The document of `validate`."""
    assert main(["validate", str(path), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


@sweep(
    "rows",
    [
        [],
        [{"accelerator": "Gaudi3"}],
        [{"tp": "16"}],
        [{"tp": ""}],
        [{"model": "resnet50", "family": "cnn", "precision": "fp16", "metric": "samples_per_s", "value": "1000"}],
    ],
)
def test_a_file_without_a_predictable_transformer_is_judged(tmp_path, capsys, rows):
    path = wrote(tmp_path, *rows)
    document = validated(capsys, path)
    assert document["overall"]["n"] == len(rows)
    assert main(["validate", str(path)]) == 0


@worded("runs.one_cell", read=json.loads)
def test_one_bad_cell_leaves_out_its_row_only(cells, tmp_path, capsys):
    document = validated(capsys, wrote(tmp_path, {}, cells, {"family": "encoder", "precision": "bf15"}))
    assert (document["overall"]["n"], document["overall"]["covered"]) == (3, 1)
    return "\n".join(row["reason"] for row in document["not_covered"])


def test_a_row_that_ends_early_leaves_out_itself(tmp_path, capsys):
    path = wrote(tmp_path, {})
    path.write_text(path.read_text(encoding="utf-8") + "mine-2,mine\n", encoding="utf-8")
    assert validated(capsys, path)["overall"]["covered"] == 1


def test_runs_of_one_id_keep_their_own_predictions(tmp_path):
    path = wrote(tmp_path, {}, {"global_batch_seqs": "256", "step_time_s": "25"}, {"tp": "16"})
    assert main(["validate", str(path), "-o", str(tmp_path / "each.csv")]) == 0
    with (tmp_path / "each.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["measured_s"] for row in rows] == ["12.5", "25", ""]
    assert float(rows[1]["predicted_s"]) > 1.5 * float(rows[0]["predicted_s"])
    assert "tp 16" in rows[2]["reason"]


def test_a_site_without_runs_is_told_in_a_sentence(tmp_path, capsys):
    assert main(["calibrate", str(wrote(tmp_path)), "--site", "-o", str(tmp_path / "out")]) == 2
    assert "no run with a time that can be predicted" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@sweep(
    ("published", "known_as"),
    [
        ("V100-PCIE-32GB", "V100-PCIE-32GB"),
        ("Tesla V100 PCIe 16GB", "V100-PCIE-16GB"),
        ("V100-32GB PCIe", "V100-PCIE-32GB"),
        ("V100-SXM2-32GB", "V100-SXM2-32GB"),
    ],
)
def test_boards_are_not_taken_for_modules(published, known_as):
    assert names.accelerator(published) == known_as


def test_every_catalog_id_is_itself():
    known = catalog.load().accelerators
    assert {names.accelerator(name, known) for name in known} == set(known)
    assert names.accelerator("h100-mine", ["H100-mine"]) == "H100-mine"


def test_an_accelerator_of_ones_own_catalog_is_taken_as_it_is(tmp_path):
    text = (ROOT / "hardware_catalog" / "accelerators" / "nvidia.toml").read_text(encoding="utf-8")
    start = text.index("[H100-SXM5-80GB]")
    entry = text[start : text.index("\n[", start)].replace("H100-SXM5-80GB", "H100-mine")
    (tmp_path / "own" / "accelerators").mkdir(parents=True)
    (tmp_path / "own" / "accelerators" / "own.toml").write_text(entry + "\n", encoding="utf-8")
    known = catalog.load(tmp_path / "own")
    (run,) = reading.read(wrote(tmp_path, {"accelerator": "H100-mine"}), known)
    assert run.reason == "no node with H100-mine in the catalog"


MIXTURE = {
    "model": "own",
    "family": "moe",
    "layers": "8",
    "hidden": "1024",
    "heads": "8",
    "num_experts": "8",
    "topk": "2",
}


@worded("runs.not_covered", read=json.loads)
def test_what_no_run_can_have_been_is_not_covered(cells, tmp_path):
    good, bad = reading.read(wrote(tmp_path, MIXTURE, cells), catalog.load())
    assert good.covered, good.reason
    return bad.reason


def test_nothing_is_fitted_to_no_run(tmp_path, capsys):
    for rows in ([], [{"tp": "16"}], [{"grade": "C"}]):
        assert main(["calibrate", str(wrote(tmp_path, *rows)), "-o", str(tmp_path / "out")]) == 2
        assert "no grade A or B pre-training run" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_runs_of_one_source_are_fitted_without_leaving_it_out(tmp_path, capsys):
    path = wrote(tmp_path, {}, {"global_batch_seqs": "256", "step_time_s": "25"})
    assert main(["calibrate", str(path), "-o", str(tmp_path / "out"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["left_out"] is None
    assert document["skipped"] == ["all runs are of mine: no lab can be held out, the built-in intervals stay"]
    assert not (tmp_path / "out" / "intervals").exists()


@pytest.mark.slow
def test_runs_on_one_generation_say_nothing_of_others(tmp_path, capsys):
    path = wrote(tmp_path, {}, {"source": "hers", "step_time_s": "13"})
    assert main(["calibrate", str(path), "-o", str(tmp_path / "out")]) == 0
    assert "all runs are on hopper" in capsys.readouterr().out
    assert "unmeasured" not in (tmp_path / "out" / "intervals" / "time.csv").read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_interrupted_fit_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.calibration.fit.calibrate.interval_widths", interrupted)
    path = wrote(tmp_path, {}, {"source": "hers", "step_time_s": "13"})
    assert main(["calibrate", str(path), "-o", str(tmp_path / "out")]) != 0
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path, capsys):
    (tmp_path / "taken").write_text("", encoding="utf-8")
    command = ["calibrate", str(wrote(tmp_path, {})), "--no-cross-validate", "-o", str(tmp_path / "taken")]
    assert main(command) == 2
    assert "cannot be written" in capsys.readouterr().err
    with pytest.raises(WrongQuestion, match="cannot be written"):
        conformal_intervals.write(tmp_path / "taken", {}, "")


def test_what_was_inferred_is_counted(tmp_path, capsys):
    path = wrote(tmp_path, {"activation_recompute": ""}, {"micro_batch": ""}, {"micro_batch": "", "zero_stage": "1"})
    found = validated(capsys, path)["inferred"]
    assert found["micro-batch: 1, megatron-core's default"] == 2
    assert found["recompute: none, megatron-core's default"] == 1
    assert main(["validate", str(path)]) == 0
    assert "2 x micro-batch: 1, megatron-core's default" in " ".join(capsys.readouterr().out.split())


def test_how_states_are_shared_is_read_or_told(tmp_path, capsys):
    """No stage is silently 0: FSDP has stage 3 only, words of `sharding` count, and what nobody reads is listed."""
    rows = [{"runtime": "fsdp2@2025", "sharding": "FSDP, ~ZeRO-2"}, {"runtime": "fsdp2@2025"}, {"sharding": "swarm"}]
    runs = reading.read(wrote(tmp_path, *rows), catalog.load())
    assert [{v.options[ZERO] for v in run.variants} for run in runs] == [{2}, {3}, {0, 1}]
    found = validated(capsys, tmp_path / "mine.csv")["inferred"]
    assert found["ZeRO stage: 3, as fsdp2 shares"] == 1 and found["sharding 'swarm' was not read"] == 1


def test_what_was_inferred_as_often_is_told_in_one_order(tmp_path, capsys):
    """Whatever the order of rows: most often first, then by name (a set's order changes from run to run)."""
    rows = [{"activation_recompute": "", "seq_len": ""}, {"micro_batch": ""}, {"tp": "16"}, {"accelerator": "Gaudi3"}]
    found = [validated(capsys, wrote(tmp_path, *way)) for way in (rows, rows[::-1])]
    for document in found:
        assert list(document["inferred"].items()) == sorted(document["inferred"].items(), key=lambda x: (-x[1], x[0]))
    assert found[0]["not_covered"] == found[1]["not_covered"] and len(found[0]["not_covered"]) > 1
    assert list(found[0]["inferred"]) == list(found[1]["inferred"])


def test_choice_has_the_same_keys_where_nothing_was_chosen(tmp_path, capsys):
    choice = validated(capsys, wrote(tmp_path, {}))["overall"]["choice"]
    assert choice == {"groups": 0, "mean_regret": None, "max_regret": None, "pairwise": None, "spearman": None}


def test_a_missing_column_points_at_the_page_that_lists_them(tmp_path, capsys):
    path = tmp_path / "runs.csv"
    path.write_text("id,source\n1,me\n", encoding="utf-8")
    assert main(["validate", str(path)]) == 2
    assert "docs/runs.md" in capsys.readouterr().err
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in (*reading.REQUIRED, *columns.COUNTS) if name not in ("dp",))


def test_a_site_fitted_again_gives_the_same(tmp_path, monkeypatch):
    command = ["calibrate", str(wrote(tmp_path, {})), "--site", "-o", str(tmp_path / "out")]
    assert main(command) == 0
    first = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.toml")}
    monkeypatch.setenv("CLUSTERWRIGHT_CATALOG", str(tmp_path / "out"))
    assert main(command) == 0
    assert first == {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.toml")}


@pytest.mark.parametrize("name", ["fitted.toml", "H100-SXM5-80GB.toml"])
def test_a_site_does_not_go_where_another_fit_hides_it(tmp_path, capsys, name):
    folder = tmp_path / "out" / "accelerator_efficiencies"
    folder.mkdir(parents=True)
    (folder / name).write_text("", encoding="utf-8")
    assert main(["calibrate", str(wrote(tmp_path, {})), "--site", "-o", str(tmp_path / "out")]) == 2
    assert "name another folder with -o" in capsys.readouterr().err


# ---- a site's own runs -----------------------------------------------------------------------------------------------

SLOW = [
    {"id": f"mine-{batch}", "global_batch_seqs": str(batch), "step_time_s": str(0.13 * batch)}
    for batch in (64, 96, 128)
]


def adapted(tmp_path, rows, folder):
    assert main(["calibrate", str(wrote(tmp_path, *rows)), "--site", "-o", str(folder)]) == 0
    return folder


def planned(capsys, *options):
    capsys.readouterr()
    assert main(["estimate", "llama3-8b", "--cluster", "dgx-h100:1", "tp=2", "zero=1", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["plans"][0]


def test_a_sites_runs_move_plans_on_its_machines_and_are_named(tmp_path, capsys):
    folder = adapted(tmp_path, SLOW, tmp_path / "site")
    shipped, found = planned(capsys), planned(capsys, "--catalog", str(folder))
    assert found["prediction"]["step_time_s"] > 1.05 * shipped["prediction"]["step_time_s"]
    told = [each["why"] for each in found["assumptions"] if each["flag"] == "calibrate"]
    assert any("3 runs of mine.csv" in why and "site.toml" in why for why in told), told
    assert found["nearest_runs"][0]["lab"] == "own run" != shipped["nearest_runs"][0]["lab"]
    assert not any("site.toml" in each["why"] for each in shipped["assumptions"])


@pytest.mark.slow
def test_a_table_does_not_hide_what_a_site_runs_say(tmp_path, capsys):
    """Both hold an entry of this very accelerator: the one named last counts."""
    site, table = adapted(tmp_path, SLOW, tmp_path / "site"), tmp_path / "table"
    kernels = str(ROOT / "benchmarks" / "data" / "gemm_measured.csv")
    assert main(["calibrate", "--table", kernels, "--accelerator", "H100-SXM5-80GB", "-o", str(table)]) == 0
    alone = planned(capsys, "--catalog", str(site))["prediction"]["step_time_s"]
    both = planned(capsys, "--catalog", str(table), "--catalog", str(site))["prediction"]["step_time_s"]
    assert both == alone


def test_a_site_whose_runs_scatter_gets_wider_intervals(tmp_path, capsys):
    rows = [{"id": "a", "step_time_s": "8"}, {"id": "b", "step_time_s": "12.5"}, {"id": "c", "step_time_s": "20"}]
    folder = adapted(tmp_path, rows, tmp_path / "site")
    assert (folder / "intervals" / "site.csv").exists()

    def span(plan):
        interval = plan["prediction"]["intervals"]["step_time_s"]
        return math.log(interval["high"] / interval["low"])

    shipped, found = planned(capsys), planned(capsys, "--catalog", str(folder))
    assert span(found) > 1.5 * span(shipped)
    adapted(tmp_path, SLOW, folder)  # runs that agree, into the same folder: surer than of a lab that nobody knows
    assert 0.3 * span(shipped) < span(planned(capsys, "--catalog", str(folder))) < span(shipped)


# ---- what a row states -----------------------------------------------------------------------------------------------


def test_a_librarys_model_states_its_shape(tmp_path, capsys):
    document = validated(capsys, wrote(tmp_path, {}))
    assert [each["n"] for each in document["coverage"]] == [1, 0]


@sweep(
    ("convention", "release", "halved"),
    [
        ("MFU x peak (causal attention)", "2024", True),
        ("MFU x peak (full, non-causal attention)", "2026", False),
        ("model FLOPs incl. attention; causal factor not stated", "2026", False),
        ("MFU of 989.5 TFLOP/s, attention in full", "2026", False),
        ("", "2024", False),
        ("", "2025", True),  # Megatron-LM 8873b55d, megatron/training/training.py
    ],
)
def test_attention_is_halved_where_the_convention_or_the_release_says_so(tmp_path, convention, release, halved):
    given = {"step_time_s": "", "tflops_per_gpu": "400", "runtime": f"megatron-core@{release}"}
    cells, full = ({**given, "flops_convention": says} for says in (convention, "non-causal"))
    run, whole = reading.read(wrote(tmp_path, cells, full), catalog.load())
    assert (run.measured < 0.99 * whole.measured) == halved


def test_a_row_of_a_plan_is_predicted_as_the_plan_is(tmp_path):
    """Levers have no columns: overlaps, dispatchers, kernels, the order of ranks and what lives in host memory stand in
    notes, in words that are read back. Stages of layers of several kinds are cut and priced as the plan's are, and a
    model whose published runs predict further tokens need not.
    """
    dense = api.estimate(
        "llama3-8b", "dgx-h100:2", ["tp=2", "pp=2", "dp=4", "tp_overlap=off", "dp_overlap=on"], batch=64
    )
    mixture = ["ep=8", "dp=16", "micro=1", "dispatcher=deepep", "ep_overlap=off", "attention_kernel=flash-3"]
    mixed = api.estimate("qwen3-30b-a3b", "dgx-h100:2", [*mixture, "recompute=full"], batch=64)
    moved = ["activation_offload=moe_act", "offload=optimizer:0.5", "offload_overlap=on"]
    staged = ["pp=4", "ep=4", "rank_order=tp-cp-ep-pp-dp", *moved]
    windows = api.estimate("gpt-oss-20b", "dgx-h100:2", staged, batch=256)
    ahead = api.estimate("deepseek-v3", "dgx-h100:32", ["pp=4", "vpp=2", "ep=4", "recompute=full"], batch=256)
    for plan in (dense.plans[0], mixed.plans[0], windows.plans[0], ahead.plans[0]):
        took = sum(plan.prediction.breakdown.values())
        cells = of_plan(plan) | {"id": "a", "source": "site", "step_time_s": str(took)}
        path = tmp_path / "rows.csv"
        path.write_text(",".join(cells) + "\n" + ",".join(f'"{cell}"' for cell in cells.values()) + "\n")
        (judged,) = api.validate(str(path)).table
        assert judged["error"] == pytest.approx(0.0, abs=1e-3), cells["notes"]
        assert row_words.are_ours(cells["notes"])
    assert not row_words.are_ours(f"{cells['notes']}; on Ada's machine")
