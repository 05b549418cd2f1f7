"""Step times that logs say, in all the ways in which frameworks say them: within 2 %, or refused with the reason."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from planner.catalog import load
from planner.site import cells, log_rows
from planner.site.logs import reading
from planner.site.logs.records import LoggedRun
from tests import training_logs as logs
from tests.sweeps import sweep

WITHIN = 0.02
"""What a step time may be off by."""
NOISE = random.Random(39)
UNEVEN = [9.0, *(3.37 * NOISE.uniform(0.97, 1.03) for _ in range(120))]
"""Steps of 3.37 s, which whole seconds do not show."""
FAST = [2.0, *(0.31 * NOISE.uniform(0.97, 1.03) for _ in range(400))]
SLOWED = [20.0, *([17.4, 17.5, 17.3] * 15), *([20.0, 20.1, 19.9] * 15)]
PAUSED = [9.0, *([3.3, 3.4, 3.5] * 20)]
SHORT = [9.0, *[3.4] * 9]


def with_pauses(times: Sequence[float]) -> list[str]:
    """Bars between which an evaluation takes a minute every twenty steps."""
    lines, spent = [], 0.0
    for step, time in enumerate(times, 1):
        spent += time
        lines.append(f" 10%|█         | {step}/{len(times)} [{logs.clock(spent)}<01:00,  {time:.2f}s/it]")
        if step % 20 == 0:
            spent += 60.0
            lines.append("{'eval_loss': 1.1, 'eval_runtime': 60.0, 'epoch': 0.1}")
            lines.append(f" 10%|█         | {step}/{len(times)} [{logs.clock(spent)}<01:00,  {time:.2f}s/it]")
    return lines


RUNTIME = "{'train_runtime': 412.5, 'train_samples_per_second': 7.76, 'train_steps_per_second': 0.121, 'epoch': 1.0}"
HEAD = ["***** Running training *****", "  Total optimization steps = 50"]

TIMES: dict[str, tuple[list[str], list[float]]] = {
    "a bar of every step": (["\r".join(logs.bars(UNEVEN))], [3.37]),
    "a bar of every tenth step": (["\r".join(logs.bars(UNEVEN, drawn=10))], [3.37]),
    "a bar on lines of its own": (logs.bars(UNEVEN), [3.37]),
    "a bar behind a rank and a date": (
        [f"[rank0]: 2026-01-01T12:00:00Z {bar.strip()}" for bar in logs.bars(UNEVEN)], [3.37],
    ),
    "bars one behind another on a line": (["".join(logs.bars(UNEVEN))], [3.37]),
    "three steps in a second": (["\r".join(logs.bars(FAST))], [0.31]),
    "evaluations between": (with_pauses(PAUSED), [3.4]),
    "too little time for whole seconds, but every step": (["\r".join(logs.bars([5.0, *[0.52] * 40]))], [0.52]),
    "too little time for whole seconds": (["\r".join(logs.bars(SHORT))], []),
    "a sum in place of a rounded rate": ([*HEAD, RUNTIME], [8.25]),
    "a rate of samples in place of a rounded one": (
        ["  Total train batch size (w. parallel, distributed & accumulation) = 64", RUNTIME.replace("runtime", "run")],
        [64 / 7.76],
    ),
    "seconds of a table": ([*HEAD, "  train_runtime            = 0:06:52.50"], [8.25]),
    "two regimes": (logs.megatron(SLOWED), [17.4, 20.0]),
    "two regimes on a bar": (["\r".join(logs.bars(SLOWED))], [17.4, 20.0]),
    "a regime that is faster": (logs.megatron([20.0, *SLOWED[46:], *SLOWED[1:46]]), [20.0, 17.4]),
    "a long warm-up is no regime": (
        logs.megatron([30.0, 20.0, 15.0, 12.0, 10.0, 9.0, 8.0, 7.5, 7.0, *[4.0] * 60]), [4.0],
    ),
    "a few slow steps are no regime": (logs.megatron([9.0, *[4.0] * 40, *[6.0] * 3, *[4.0] * 40]), [4.0]),
    "a day and more": (
        [line.replace('"0:', '"1 day, 0:') for line in logs.llama_factory([9.0, *[7.5] * 40])], [7.5],
    ),
    "seconds in place of milliseconds": (logs.bigscience(), [4.0]),
    "DLLogger": (logs.dllogger(), [4.0]),
    "NeMo's bar": (logs.nemo_bar(), [4.0]),
    "micro-batches that are all printed": (logs.litgpt([9.0, *[2.4] * 20], of=4), [2.4]),
    "micro-batches of which the last is printed": (
        [line for line in logs.litgpt([9.0, *[2.4] * 20], of=4) if "(step)" in line], [],
    ),
    "a step of one micro-batch, every tenth of which is printed": (logs.litgpt([9.0, *[2.4] * 200])[9::10], [2.4]),
    "tokens without padding": (logs.torchtune_disk(), []),
    "three digits of which the last are zeros": (
        [line.replace("4.1K", "4K").replace("3.9K", "4K") for line in logs.nanotron()], [4.0],
    ),
    "batches in a second": ([line for line in logs.composer() if "samples" not in line], [4.0]),
    "three regimes in whole milliseconds": (
        ["step:0/900 train_time:0ms", *(
            f"step:{n}/900 train_time:{33 * min(n, 300) + 60 * min(max(n - 300, 0), 300) + 87 * max(n - 600, 0)}ms"
            for n in range(1, 901)
        )],
        [0.033, 0.06, 0.087],
    ),
    "two jobs that write to one file": (
        [line for pair in zip(logs.llama_factory([7.5] * 50), logs.llama_factory([7.5] * 90)[40:], strict=True)
         for line in pair], [7.5],
    ),
    "a bar that counts micro-batches": (
        [f"Epoch 0: 0%| | {n}/999 [01:{n:02}<1:00:00, 0.54it/s, global_step={n // 8}.0, train_step_timing in s=2.2]"
         for n in range(1, 50)], [],
    ),
    "bars of two runs": (
        [*logs.torchtune([50.0, *[7.3] * 14]), *logs.torchtune([200.0, *[31.0] * 14])], [7.3, 31.0],
    ),
    "bars of two jobs, line by line": (
        [line for two in zip(logs.bars([7.0] * 80)[20:], logs.bars([3.1] * 80)[:-20], strict=True) for line in two], [],
    ),
    "steps of two jobs, line by line": (
        [line for pair in zip(logs.megatron([10.0] * 40), logs.megatron([14.0] * 40, first=501), strict=True)
         for line in pair], [],
    ),
    "two regimes of ranks one after another": (
        [f"{rank}: {line}" for rank in range(2) for line in logs.megatron(SLOWED)], [17.4, 20.0],
    ),
    "a change that whole seconds cannot place": (["\r".join(logs.bars([*[1.1] * 36, *[1.55] * 36]))], []),
    "a bar whose steps are near whole seconds": (["\r".join(logs.bars([5.875] * 90))], [5.875]),
    "runs that take turns": (logs.maxtext([2.0, 7.3, 2.0, 1.0, 7.3, 2.0, 7.3, 2.0, 2.0, 7.3] * 3), []),
    "too few digits": (logs.bridge([0.5, *[0.05] * 20]), []),
    "MLPerf's blocks, without evaluations": (logs.mlperf_blocks([9.0, *[6.0] * 20]), [6.0 / 256]),
    "only the average of all steps": (
        [f"[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/{n}0, SamplesPerSec=83.5, MemAllocated=0.26GB"
         for n in range(1, 20)], [],
    ),
    "losses without a time": (["{'loss': 1.2, 'learning_rate': 1e-05, 'epoch': 0.1}"] * 20, []),
}  # fmt: skip
"""What a log is like -> its lines, and the times that must be read (of a step, or of what a line counts)."""


def runs(folder: Path, lines: Sequence[str]) -> list[LoggedRun]:
    path = folder / "train.log"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return reading.read(path)


def seconds(run: LoggedRun) -> list[float]:
    times = [one.seconds for one in reading.measured(run)]
    return times or ([run.whole_run_s] if run.whole_run_s else [])


@sweep("name", TIMES)
def test_a_step_time_is_within_two_percent_or_refused(tmp_path: Path, name: str) -> None:
    lines, expected = TIMES[name]
    (run,) = runs(tmp_path, lines)
    assert seconds(run) == [pytest.approx(time, rel=WITHIN) for time in expected]
    assert run.format and (expected or reading.why_unread(run))


REASONS = {
    "too little time for whole seconds": "the bar's own rate is a moving average",
    "micro-batches of which the last is printed": "prints the time of one micro-batch of 4, not of a step",
    "tokens without padding": "counts the tokens that are trained on, without padding",
    "bars of two jobs, line by line": "of two kinds, of two jobs that write to one file",
    "steps of two jobs, line by line": "of two kinds, of two jobs that write to one file",
    "a change that whole seconds cannot place": "a change that its clock is too coarse to place",
    "runs that take turns": "so far apart that they are not of one run",
    "too few digits": "printed with too few digits (10 % are lost)",
    "a bar that counts micro-batches": "it counts micro-batches, and times one of them",
    "only the average of all steps": "DeepSpeed: its lines say no time of a step",
    "losses without a time": "Hugging Face Trainer: its lines say no time of a step",
}


@sweep("name", REASONS)
def test_a_log_that_says_no_step_time_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    (run,) = runs(tmp_path, TIMES[name][0])
    assert REASONS[name] in reading.why_unread(run)


def test_lines_without_numbers_are_counted_rank_by_rank(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]:{line}" for line in logs.bridge([4.0] * 9) for rank in range(4)]
    assert [step.step for step in runs(tmp_path, lines)[0].steps] == sorted([*range(1, 10)] * 4)


def test_a_moving_average_is_off_where_differences_are_not(tmp_path: Path) -> None:
    """The last average that is drawn: 3.37 s, and a last step of 12 s of which it weighs 0.3."""
    lines = ["\r".join(logs.bars([*UNEVEN, 12.0]))]
    (run,) = runs(tmp_path, lines)
    assert run.ticks[-1].average_s == pytest.approx(0.7 * 3.37 + 0.3 * 12.0, rel=0.03)
    assert seconds(run) == [pytest.approx(3.37, rel=WITHIN)]


def test_regimes_are_named_by_their_steps(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, logs.megatron(SLOWED))
    before, behind = reading.measured(run)
    assert (before.regime, before.slower) == ("steps 2 to 46", False)
    assert (behind.regime, behind.slower) == ("steps 47 to 91", True)


RUNS: dict[str, tuple[list[str], int, str]] = {
    "the same configuration again": ([*logs.megatron(), *logs.megatron()], 2, ""),
    "resumed from a checkpoint": ([*logs.megatron(), *logs.megatron(first=11)], 1, "10 steps were done again"),
    "two of the Trainer": ([*logs.hugging_face(UNEVEN), *logs.hugging_face(UNEVEN)], 2, ""),
    "epochs of torchtune": ([*logs.torchtune(UNEVEN), *logs.torchtune(UNEVEN)], 1, ""),
    "ranks between one another": (
        [f"[rank{rank}]:{line}" for line in logs.megatron() for rank in range(4)], 1, "lines of 4 ranks",
    ),
    "ranks one after another": (
        [f"[rank{rank}]:{line}" for rank in range(4) for line in logs.megatron()], 1, "lines of 4 ranks",
    ),
}  # fmt: skip
"""What a file holds -> its lines, how many runs they are, and what is said of that."""


@sweep("name", RUNS)
def test_a_file_holds_the_runs_that_there_were(tmp_path: Path, name: str) -> None:
    lines, count, says = RUNS[name]
    found = runs(tmp_path, lines)
    assert len(found) == count
    assert says in "; ".join(note for run in found for note in run.notes)
    expected = 3.37 if "Trainer" in name or "torchtune" in name else 4.0
    assert [seconds(run) for run in found] == [[pytest.approx(expected, rel=WITHIN)]] * count


def written(folder: Path, files: Mapping[str, Sequence[str]]) -> list[Path]:
    """Files with these lines."""
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [folder / name for name in files]


ARGUMENTS = logs.megatron_arguments()
FILES: dict[str, tuple[dict[str, Sequence[str]], list[str]]] = {
    "files of ranks": (
        {f"rank_{rank}.log": logs.megatron([30.0, 9.0, *[4.0 - rank / 10] * 18]) for rank in range(3)},
        ["3 files of one job's ranks: the slowest of each step counts"],
    ),
    "torchrun's files": (
        {f"attempt_0/{rank}/stdout.log": logs.megatron() for rank in range(2)}, ["2 files of one job's ranks"],
    ),
    "files of which one rank prints": (
        {"rank0.log": ["waiting"], "rank1.log": logs.megatron()}, ["2 files of one job's ranks"],
    ),
    "a file that was rotated": (
        {"train.log": logs.megatron(first=21), "train.log.1": [*ARGUMENTS, *logs.megatron()]},
        ["continued at step 21 in train.log"],
    ),
    "a run that was resumed": (
        {"first.log": [*ARGUMENTS, *logs.megatron()], "again.log": [*ARGUMENTS, *logs.megatron(first=15)]},
        ["continued at step 15 in again.log: 6 steps were done again"],
    ),
    "two runs": ({"a.log": logs.megatron(), "b.log": logs.megatron()}, ["", ""]),
    "two configurations": (
        {"a.log": [*ARGUMENTS, *logs.megatron()],
         "b.log": [*logs.megatron_arguments(tensor_model_parallel_size=4), *logs.megatron(first=21)]}, ["", ""],
    ),
    "a rotated file next to another job's": (
        {"other.log": logs.megatron(), "train.log": logs.megatron(first=21), "train.log.1": logs.megatron()},
        ["", "continued at step 21 in train.log"],
    ),
    "a file that could go on two runs": (
        {"a.log": logs.megatron(), "b.log": logs.megatron(), "c.log": logs.megatron(first=21)}, ["", "", ""],
    ),
    "plans of a shortlist": ({"rank-1/train.log": logs.megatron(), "rank-2/train.log": logs.megatron()}, ["", ""]),
}  # fmt: skip
"""What there is -> files and their lines, and what is said of each run that they are."""


@sweep("name", FILES)
def test_files_are_the_runs_that_there_were(tmp_path: Path, name: str) -> None:
    files, says = FILES[name]
    runs_of_all = [run for _, of_file in log_rows.read_all(written(tmp_path, files)) for run in of_file]
    assert len(runs_of_all) == len(says)
    assert all(expected in "; ".join(run.notes) for run, expected in zip(runs_of_all, says, strict=True))
    assert [seconds(run) for run in runs_of_all] == [[pytest.approx(4.0, rel=WITHIN)]] * len(says)


def test_a_rotated_file_has_the_configuration_of_the_first(tmp_path: Path) -> None:
    ((_, (run,)),) = log_rows.read_all(written(tmp_path, FILES["a file that was rotated"][0]))
    assert run.stated["tp"] == "2" and (run.first, run.last) == (1, 40)


def test_mlperf_says_model_and_platform(tmp_path: Path) -> None:
    """Two nodes of four accelerators each."""
    values = {"submission_benchmark": "llama31_8b", "submission_platform": "2xNVIDIA GB200"}
    lines = [
        f':::MLLOG {{"time_ms": 1, "key": "{key}", "value": "{value}", "metadata": {{}}}}'
        for key, value in values.items()
    ]
    (run,) = runs(tmp_path, [*lines, *logs.mlperf_blocks()])
    row = cells.of_log(run, load())
    expected = {"model": "llama3.1-8b", "family": "dense", "accelerator": "GB200", "num_accelerators": "8"}
    assert row.items() >= (expected | {"accelerators_per_node": "4"}).items()


@sweep("described", ["Epoch 0: ", "Loading checkpoint shards: ", "Map (num_proc=8): "])
def test_a_bar_of_something_else_says_no_step(tmp_path: Path, described: str) -> None:
    """Lightning counts micro-batches of an epoch, others count files."""
    assert runs(tmp_path, logs.bars(UNEVEN, before=described)) == []


def test_a_bar_that_begins_again_is_no_resumed_run(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    first, second = logs.bars([5.0] * 100, before="1|7|Loss: 1.2: "), logs.bars([9.0] * 100, before="1|7|Loss: 1.2: ")
    path.write_text("\n".join([*first, *second]) + "\n")
    (run,) = reading.read(path)
    assert run.notes == ()

    path.write_text("\n".join([*first, *first[61:]]) + "\n")
    (run,) = reading.read(path)
    assert run.notes == ("resumed from a checkpoint: 40 steps were done again",)
