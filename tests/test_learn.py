"""``clusterwright learn``: logs to rows of a site's journal, and what the journal then says."""

import csv
import io
import json
import multiprocessing
import sys
from pathlib import Path

import pytest

import clusterwright as cw
from planner.base.errors import WrongQuestion
from planner.calibration import run
from planner.calibration.runs import reading
from planner.catalog import load
from planner.commands.command_line import main
from planner.planning import document
from planner.schema.plan import PlanSet
from planner.site import cells, folder, log_rows, sharing
from tests import training_logs as logs
from tests.sweeps import sweep
from tests.words import worded

H100 = "accelerator=H100-SXM5-80GB"
POSSIBLE = [3.5 * time for time in logs.STEADY]
"""14 s a step: the matrix products of the plans here take 6 s at the peak rate."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "site", "lab"]) == 0
    return tmp_path / "lab"


ALIKE = "tp=2,attention_kernel=none,graphs=none,offload=none,activation_offload=none"
"""Plans that a log tells apart: none differs from another in what it does not say."""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plans.json"
    asked = ["plan", "llama3-8b", "--cluster", "dgx-h100:1", "--batch", "128", "--pin", ALIKE, "--top", "4"]
    assert main([*asked, "-o", str(path)]) == 0
    return path


def plans(path: Path) -> PlanSet:
    found = document.load(path)
    assert isinstance(found, PlanSet)
    return found


def log(name: str, *parts: list[str]) -> str:
    Path(name).write_text("\n".join(line for part in parts for line in part) + "\n")
    return name


def rows(site: Path) -> list[dict[str, str]]:
    with (site / "runs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def learn(*arguments: str) -> int:
    """Whatever the times: synthetic ones are far off their predictions."""
    return main(["learn", *arguments, "--site", "lab", "--accept"])


def test_a_run_twice_off_is_learned_only_if_it_is_accepted(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = log("train.log", logs.megatron_arguments(), logs.megatron([9.0, *[400.0] * 20]))
    assert main(["learn", name, "--set", H100, "--site", "lab"]) == 2
    said = capsys.readouterr().err
    assert "times off. Nothing was written" in said and "--accept" in said
    assert len((site / "runs.csv").read_text(encoding="utf-8").splitlines()) == 1
    assert learn(name, "--set", H100) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "MFU measured" in shown and "tokens/s/GPU measured" in shown and "the next plan of the kind" in shown


def test_a_log_that_says_all_needs_no_plan(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = log("train.log", logs.megatron_arguments(), logs.megatron(), [logs.MEGATRON_MEMORY])
    assert learn(name, "--set", H100) == 0
    (row,) = rows(site)
    expected = {"model": "llama3-8b", "family": "dense", "runtime": "megatron-core", "step_time_s": "4", "tp": "2"}
    assert row.items() >= (expected | {"steps": "18", "memory_gb_per_gpu": "42.95", "source": "lab"}).items()
    assert "4.00 s a step measured" in capsys.readouterr().out
    assert reading.read(site / "runs.csv", load())[0].measured == 4.0


def test_rates_become_step_times(site: Path) -> None:
    assert learn(log("train.log", logs.TITAN_HEAD, logs.torchtitan()), "--set", "model=llama3-8b", "--set",
                 "family=dense", "--set", "num_accelerators=8") == 0  # fmt: skip
    (row,) = rows(site)
    assert float(row["step_time_s"]) == pytest.approx(4.0, rel=1e-3)
    assert (row["accelerator"], row["runtime"], row["zero_stage"]) == ("H100-SXM5-80GB", "fsdp2", "3")


def test_the_plan_says_what_the_log_does_not(site: Path, planned: Path) -> None:
    assert learn(log("train.log", logs.megatron(POSSIBLE)), "--plan", str(planned), "--rank", "2") == 0
    (row,) = rows(site)
    assert cells.key(row) == cells.key(cells.of_plan(plans(planned).plans[1]))


def test_of_several_plans_the_log_allows_one(site: Path, planned: Path) -> None:
    wanted = plans(planned).plans[2]
    cut = wanted.parallelism
    arguments = logs.megatron_arguments(
        tensor_model_parallel_size=cut.tp, pipeline_model_parallel_size=cut.pp, context_parallel_size=cut.cp,
        micro_batch_size=wanted.batch.micro, recompute_granularity=wanted.recompute.policy,
        use_distributed_optimizer=None, sequence_parallel=cut.sequence_parallel,
    )  # fmt: skip
    assert learn(log("train.log", arguments, logs.megatron(POSSIBLE)), "--plan", str(planned)) == 0
    assert cells.key(rows(site)[0]) == cells.key(cells.of_plan(wanted))


def test_the_plan_that_export_left_next_to_the_log_is_found(site: Path, planned: Path) -> None:
    Path("rank-1").mkdir()
    Path("rank-1/plan.json").write_text(document.as_json(plans(planned).plans[0]))
    assert learn(log("rank-1/train.log", logs.megatron(POSSIBLE))) == 0
    assert rows(site)[0]["model"] == "llama3-8b"


def test_the_next_plan_of_the_benchmark_is_named(site: Path, planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("benchmark.sh").touch()
    for plan in plans(planned).plans[:3]:
        Path(f"rank-{plan.rank}").mkdir()
        Path(f"rank-{plan.rank}/plan.json").write_text(document.as_json(plan))
    Path("rank-2/plan.json").write_text("{")
    assert learn(log("rank-1/train.log", logs.megatron(POSSIBLE))) == 0
    assert "run rank-3: the first of its benchmark that has not been" in capsys.readouterr().out
    assert learn(log("rank-3/train.log", logs.megatron(POSSIBLE))) == 0
    assert "of its benchmark" not in capsys.readouterr().out


def test_a_plan_of_another_run_is_refused_with_what_differs(
    site: Path, planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = log("train.log", logs.megatron_arguments(world_size=64), logs.megatron())
    assert learn(name, "--plan", str(planned), "--rank", "1") == 2
    assert "num_accelerators is 64 in the log and 8 in the plan" in capsys.readouterr().err
    assert not rows(site)


def test_of_a_log_with_two_configurations_the_plans_own_is_learned(
    site: Path, planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"tensor_model_parallel_size": 8, "use_distributed_optimizer": None}
    name = log("two.log", logs.megatron_arguments(use_distributed_optimizer=None), logs.megatron(POSSIBLE),
               logs.megatron_arguments(**other), logs.megatron(POSSIBLE))  # fmt: skip
    assert learn(name, "--plan", str(planned), "--rank", "1") == 0
    (row,) = rows(site)
    assert row["tp"] == "2"
    assert "1 further configuration of this log" in capsys.readouterr().out
    assert learn(name, "--set", H100) == 0  # without a plan: both, each with all of its own dump
    assert [(each["tp"], each["seq_len"], each["micro_batch"], each["model"]) for each in rows(site)][1:] == [
        (tp, "8192", "1", "llama3-8b") for tp in ("2", "8")
    ]


def test_another_framework_than_the_plans_is_a_contradiction(site: Path, planned: Path) -> None:
    (found, *_) = [cells.of_plan(plan) for plan in plans(planned).plans]
    assert cells.contradictions({"runtime": "nemo"}, found, load()) == []
    assert [each.column for each in cells.contradictions({"runtime": "fsdp2"}, found, load())] == ["runtime"]


def test_stated_times_and_memory_that_ran_out(site: Path, planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learn("--step-time", "14.31s", "--plan", str(planned), "--rank", "1") == 0
    assert learn("--oom", "--plan", str(planned), "--rank", "2") == 0
    first, second = rows(site)
    assert (first["step_time_s"], second["step_time_s"], second["metric"]) == ("14.31", "", "oom")
    runs = reading.read(site / "runs.csv", load())
    assert [run.out_of_memory for run in runs] == [False, True]
    assert "out of memory, as stated" in capsys.readouterr().out


def test_repetitions_of_one_configuration_are_held_out_together(site: Path, planned: Path) -> None:
    """A twin in the fit would say how well a run predicts itself."""
    for time in ("30s", "31s"):
        assert learn("--step-time", time, "--plan", str(planned), "--rank", "1") == 0
    fit = run.fit_site(site / "runs.csv", site / "again", load())
    assert fit["rows"] == 2
    assert fit["left_out"]["mape"] == pytest.approx(fit["before"]["mape"])


def test_a_time_that_no_machine_reaches_is_refused(
    site: Path, planned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert learn("--step-time", "1 ms", "--plan", str(planned), "--rank", "1") == 2
    assert "of the peak rate; at the peak it takes" in capsys.readouterr().err
    assert not rows(site)


def test_so_it_is_by_the_plan_next_to_the_log(site: Path, planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rank-1").mkdir()
    Path("rank-1/plan.json").write_text(document.as_json(plans(planned).plans[0]))
    assert learn(log("rank-1/train.log", logs.megatron())) == 2
    assert "4.00 s a step is" in capsys.readouterr().err
    assert not rows(site)


def test_a_batch_that_grew_is_held_to_what_its_own_tokens_take(site: Path, planned: Path) -> None:
    name = log("train.log", logs.megatron(batch=32), logs.megatron(POSSIBLE, first=len(logs.STEADY) + 1))
    assert learn(name, "--plan", str(planned), "--rank", "1") == 0
    assert [(row["global_batch_seqs"], row["step_time_s"]) for row in rows(site)] == [("32", "4"), ("128", "14")]


def test_what_keeps_a_run_from_being_known_as_a_plans_is_told(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = log("train.log", logs.megatron_arguments(), logs.megatron())
    assert learn(name, "--set", H100) == 0
    assert "no plan is matched with it" not in capsys.readouterr().out
    name = log("titan.log", logs.TITAN_HEAD, logs.torchtitan())
    assert learn(name, "--set", "model=llama3-8b", "--set", "family=dense", "--set", "num_accelerators=8") == 0
    assert "does not say activation_recompute, precision: no plan is matched with it" in capsys.readouterr().out


def test_a_log_that_ends_without_memory_is_such_a_row(site: Path) -> None:
    end = ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
    assert learn(log("train.log", logs.megatron_arguments(), end), "--set", H100, "--set", "runtime=megatron-core") == 0
    assert (rows(site)[0]["metric"], rows(site)[0]["step_time_s"]) == ("oom", "")


def test_a_run_out_of_memory_alone_moves_the_plans_beside_it(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It teaches no speed, so that nothing was fitted: plans that hold more were recommended behind it. The verdict
    names what fits and its price, before it is learned and after.
    """
    end = ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
    name = log("train.log", logs.megatron_arguments(), end)
    given = ["--set", H100, "--set", "runtime=megatron-core"]
    assert main(["learn", name, "--dry-run", "--json", *given]) == 0
    (before,) = json.loads(capsys.readouterr().out)["runs"]
    for plan in before["fits_instead"]:
        assert plan["memory_bytes"] < plan["ran_out_at_bytes"] < 80 * 2**30 and plan["usd"] > 0.0
    assert {plan["where"] for plan in before["fits_instead"]} == {"with its degrees", "on its accelerators"}
    assert learn(name, *given, "--json") == 0
    (after,) = json.loads(capsys.readouterr().out)["rows"]
    assert main(["plan", "llama3-8b", "--cluster", "dgx-h100:1", "--top", "1", "--site", str(site)]) == 0
    assert "1 run out of memory: predictions of it are wider" in " ".join(capsys.readouterr().out.split())
    assert 0.8 < after["fits_instead"][0]["step_time_ratio"] < 1.5
    assert after["fits_instead"][0]["memory_bytes"] < before["fits_instead"][0]["ran_out_at_bytes"]
    assert "megatron-core" in (site / "catalog" / "intervals" / "memory-site.csv").read_text()
    assert main(["runs", "remove", after["row"]["id"], "--site", str(site)]) == 0
    assert not list((site / "catalog").rglob("memory-site.csv"))


def test_the_same_log_twice_is_one_row(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = log("train.log", logs.megatron_arguments(), logs.megatron())
    assert learn(name, "--set", H100) == learn(name, name, "--set", H100) == 0
    assert len(rows(site)) == 1
    assert "0 of 2 rows new" in capsys.readouterr().out


def test_three_runs_say_how_far_off_predictions_are(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tp, factor in ((1, 3.0), (2, 3.1), (4, 3.3)):
        arguments = logs.megatron_arguments(tensor_model_parallel_size=tp, sequence_parallel=tp > 1)
        name = log(f"{tp}.log", arguments, logs.megatron([factor * time for time in logs.STEADY]))
        assert learn(name, "--set", H100) == 0
    out = capsys.readouterr().out
    assert "3 runs, 1 framework: error before" in out and "(each configuration held out)" in out
    assert (site / "catalog" / "runtime_efficiencies" / "site.toml").is_file()
    assert learn("--json", "3.log") == 2
    fit = json.loads(_json(capsys, "1.log"))["fit"]
    assert fit["rows"] == 3 and fit["left_out"]["mape"] < fit["before"]["mape"]


def _json(capsys: pytest.CaptureFixture[str], name: str) -> str:
    capsys.readouterr()
    assert learn(name, "--set", H100, "--json") == 0
    return capsys.readouterr().out


@worded("learn.refused", read=json.loads)
def test_wrong_questions(arguments: list[str], site: Path, capsys: pytest.CaptureFixture[str]) -> str:
    log("empty.log", [])
    log("short.log", logs.megatron_arguments(), logs.megatron([9.0, 4.0, 4.0]))
    log("bare.log", logs.megatron())
    log("rate.log", logs.deepspeed())
    capsys.readouterr()
    assert learn(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert not rows(site)
    return captured.err.replace(str(site), "SITE")


def test_without_a_site_it_says_how_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", "--oom"]) == 2
    assert "clusterwright init site DIR makes one" in capsys.readouterr().err


def test_one_bad_log_of_several_leaves_nothing_written(site: Path) -> None:
    good = log("good.log", logs.megatron_arguments(), logs.megatron())
    assert learn(good, log("bad.log", ["nothing"]), "--set", H100) == 2
    assert not rows(site)


# ---- the journal -----------------------------------------------------------------------------------------------------


def row(number: int) -> dict[str, str]:
    return folder.identified({"model": "llama3-8b", "step_time_s": str(number)}, "lab")


def _add(path: Path, first: int) -> None:
    for number in range(first, first + 20):
        folder.add(path, [row(number)])


def test_several_writers_lose_nothing(site: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_add, args=(site / "runs.csv", 10 * n)) for n in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    found = [int(each["step_time_s"]) for each in folder.read(site / "runs.csv")]
    assert sorted(found) == list(range(50))


def test_a_last_line_without_an_end_stays_a_line(site: Path) -> None:
    path = site / "runs.csv"
    path.write_text(folder.HEADER + "mine" + "," * (len(folder.COLUMNS) - 2))
    folder.add(path, [row(1)])
    assert [each["id"] for each in rows(site)] == ["mine", row(1)["id"]]


def test_columns_that_a_person_has_moved_or_added_stay(site: Path) -> None:
    path = site / "runs.csv"
    path.write_text("colour,step_time_s,model,id\nred,2,gpt2,a\n")
    folder.add(path, [row(3)])
    assert path.read_text().splitlines()[1:] == ["red,2,gpt2,a", f",3,llama3-8b,{row(3)['id']}"]


def test_a_full_disk_leaves_the_journal_as_it_was(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = site / "runs.csv"
    before = path.read_bytes()
    written = folder.os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return written(file, data[: len(data) // 2])

    monkeypatch.setattr(folder.os, "write", half)
    with pytest.raises(Exception, match="cannot be written: No space left on device"):
        folder.add(path, [row(1)])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no column id, model"), ("a,b\n", "no column id, model"), ("id,model\n\xff", "not UTF-8 text")],
)
def test_what_is_no_journal(site: Path, text: str, message: str) -> None:
    (site / "runs.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(Exception, match=message):
        folder.add(site / "runs.csv", [row(1)])


# ---- sharing ---------------------------------------------------------------------------------------------------------


def test_shared_rows_say_nothing_of_who_ran_them(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (site / "site.toml").write_text('name = "secret-lab"')
    name = log("train.log", logs.megatron_arguments(), logs.megatron())
    assert learn(name, "--set", H100, "--set", "notes=node-17 of Alice") == 0
    capsys.readouterr()
    assert learn("--share", "out.csv", "--yes") == 0
    text = Path("out.csv").read_text()
    assert capsys.readouterr().out == text
    assert not any(word in text for word in ("secret", "Alice", "node-17", "20" + "26-", str(site)))
    assert main(["validate", "out.csv"]) == 0


def whole_row(number: int, **more: str) -> dict[str, str]:
    """A row with all that somebody else needs."""
    counts = {"num_accelerators": "8", "seq_len": "8192", "global_batch_seqs": "128"}
    return {**row(number), "family": "dense", "accelerator": "H100-SXM5-80GB", **counts, **more}


def test_shared_rows_name_neither_own_models_nor_networks(site: Path) -> None:
    network = "fab-17 of Alice"
    own = whole_row(1, model="acme-9b", layers="30", hidden="4096", inter_node_network=network)
    plain = whole_row(2, inter_node_network="8x400 Gb")
    found = list(csv.DictReader(io.StringIO(sharing.shared([own, plain], load()).text)))
    assert [(each["model"], each["inter_node_network"]) for each in found] == [
        ("30x4096", ""),
        ("llama3-8b", "8x400 Gb"),
    ]


@sweep("column", folder.COLUMNS)
@sweep("canary", ["canary", "H100 canary", "1 canary", "canary@2026", "megatron-core@canary"])
def test_no_word_of_ones_own_is_shared(column: str, canary: str) -> None:
    """Whatever stands in whatever column: the cell is left out and named, or the row is."""
    found = sharing.shared([whole_row(1, layers="32", hidden="4096") | {column: canary}, whole_row(2)], load())
    assert "canary" not in found.text and found.rows >= 1
    assert bool(found.notes) == (column not in folder.OWN)


def test_a_journal_of_ones_own_hardware_is_not_shared(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (site / "runs.csv").open("a") as file:
        table = csv.DictWriter(file, folder.COLUMNS, restval="")
        table.writerow(whole_row(1, accelerator="acme-chip"))
    assert learn("--share", "out.csv", "--yes") == 2
    assert "nothing of it can be shared" in capsys.readouterr().err and not Path("out.csv").exists()


def test_a_published_name_of_an_accelerator_is_taken(site: Path, planned: Path) -> None:
    assert learn("--step-time", "50s", "--plan", str(planned), "--rank", "1", "--set", "accelerator=NVIDIA H100") == 0
    assert rows(site)[0]["accelerator"] == "H100-SXM5-80GB"


@worded("learn.cells")
def test_a_cell_that_no_run_has_is_not_written(
    cell: str, site: Path, planned: Path, capsys: pytest.CaptureFixture[str]
) -> str:
    before = (site / "runs.csv").read_bytes()
    assert learn("--step-time", "50s", "--plan", str(planned), "--rank", "1", "--set", cell) == 2
    assert (site / "runs.csv").read_bytes() == before
    return capsys.readouterr().err.replace(str(site), "SITE")


def test_nobody_who_says_yes_is_a_no(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert learn(log("train.log", logs.megatron_arguments(), logs.megatron()), "--set", H100) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert learn("--share", "out.csv") == 2
    assert "nothing was written; --yes writes without asking" in capsys.readouterr().err
    assert not Path("out.csv").exists()


# ---- details ---------------------------------------------------------------------------------------------------------


@sweep(("text", "seconds"), [("4.31s", 4.31), ("4310 ms", 4.31), ("4.31", 4.31), ("2 min", 120.0)])
def test_step_times_as_people_write_them(text: str, seconds: float) -> None:
    assert log_rows.seconds(text) == pytest.approx(seconds)


def test_blocks_of_recomputed_layers_are_counted_in_a_stage(planned: Path) -> None:
    plan = plans(planned).plans[0]
    assert cells.of_plan(plan)["activation_recompute"] == plan.recompute.policy == "none"


def test_site_of_the_environment(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERWRIGHT_SITE", str(site))
    found = folder.named(None)
    assert found is not None and found.runs == site / "runs.csv"


@sweep(
    ("asked", "told"),
    [
        ({"method": "qlora"}, "--method qlora"),
        ({"method": "freeze:2"}, "--method freeze:2"),
        ({"lengths": "600/2k"}, "--lengths"),
    ],
)
def test_a_run_that_no_column_states_is_not_taken_for_another(asked: dict[str, str], told: str) -> None:
    """A QLoRA run had the row of a LoRA run."""
    plan = cw.estimate("llama3-8b", "dgx-h100:1", runtime="hf-trainer", **({"method": "lora"} | asked)).plans[0]
    assert cells.of_plan(plan)["task"] == told
    with pytest.raises(
        WrongQuestion, match=rf"runs with {told} are not learned from.*9\.00 s a step measured.*predicted"
    ):
        log_rows.of_value(9.0, plan, {}, "lab")


def test_one_replica_is_the_same_under_every_zero_stage() -> None:
    row = cells.of_plan(cw.estimate("qwen3-0.6b", "p5.4xlarge:1", runtime="fsdp2").plans[0])
    assert row["zero_stage"] == "3"
    assert not cells.contradictions({"zero_stage": "0"}, row, load())
    two = row | {"num_accelerators": "2"}
    assert [each.column for each in cells.contradictions({"zero_stage": "0"}, two, load())] == ["zero_stage"]


@pytest.mark.slow
def test_a_terminal_of_eighty_columns_gets_no_longer_line(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe gets lines whole. Only a word that cannot be broken, such as a long path, may be longer than a terminal's
    line.
    """
    start = [*logs.megatron_arguments(), *logs.megatron(POSSIBLE)]
    good, none = log("good.log", start), log("none.log", ["no step"])
    failed = log("oom.log", start, ["[rank5]: torch.OutOfMemoryError: CUDA out of memory."])
    asked = ["--set", H100, "--site", "lab"]
    capsys.readouterr()
    assert main(["learn", good, failed, "--dry-run", *asked]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) > 300

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert main(["learn", good, failed, "--dry-run", *asked]) == 0
    assert main(["learn", good, failed, *asked, "--accept"]) == 0
    assert main(["learn", none, *asked]) == main(["learn", good, "--set", "tp=3", *asked]) == 2
    assert main(["runs", "list", "--site", "lab"]) == 0
    assert main(["runs", "show", rows(site)[0]["id"], "--site", "lab"]) == 0
    shown = capsys.readouterr()
    assert max(map(len, (shown.out + shown.err).splitlines())) <= 80
