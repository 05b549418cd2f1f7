"""``learn --dry-run``: what logs say, run by run, how runs ended, and what of them is learned."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import clusterwright as cw
from planner.commands.command_line import main
from planner.site.logs import verdicts
from tests import training_logs as logs
from tests.sweeps import sweep

H100 = "accelerator=H100-SXM5-80GB"
WATCHDOG = (
    "[rank{rank}]:[E1121 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600029 milliseconds before"
)
OUT_OF_MEMORY = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
TRACE = ["Traceback (most recent call last):", '  File "train.py", line 7, in <module>', "    main()"]


def log(name: str, *parts: Sequence[str]) -> str:
    Path(name).write_text("\n".join(line for part in parts for line in part) + "\n", encoding="utf-8")
    return name


def preview(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["learn", *arguments, "--dry-run", "--json"]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CLUSTERWRIGHT_SITE", raising=False)


def test_a_log_is_shown_without_a_site_and_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """128 sequences of 8,192 tokens on 8 accelerators in 4 s: 32,768 tokens of one in a second."""
    name = log("train.log", logs.megatron_arguments(), logs.megatron(), [logs.MEGATRON_MEMORY])
    before = sorted(Path().iterdir())
    (run,) = preview(capsys, name)["runs"]
    assert (run["step_time_s"], run["tokens_per_s_per_gpu"], run["peak_memory_gib"]) == (4.0, 32768.0, 40.0)
    assert run["cells"].items() >= {"tp": "2", "zero_stage": "1", "model": "llama3-8b"}.items()
    assert (run["missing"], run["refused"]) == (["accelerator"], "")
    assert sorted(Path().iterdir()) == before


def test_a_site_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "site", "lab"]) == 0
    files = {path: path.read_bytes() for path in Path("lab").rglob("*") if path.is_file()}
    name = log("train.log", logs.megatron_arguments(), logs.megatron())
    preview(capsys, name, "--set", H100, "--site", "lab")
    assert {path: path.read_bytes() for path in Path("lab").rglob("*") if path.is_file()} == files


def test_what_is_missing_is_asked_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", log("train.log", logs.hugging_face([9.0, *[3.4] * 60])), "--dry-run"]) == 0
    assert "--set model=... --set family=... --set accelerator=... --set seq_len=..." in capsys.readouterr().out


def test_logs_that_say_nothing_are_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    good = log("train.log", logs.megatron())
    bad = log("notes.txt", ["bought milk"])
    document = preview(capsys, good, bad)
    assert len(document["runs"]) == 1 and document["reasons"][0].startswith("notes.txt: no line of it is a step")
    assert preview(capsys, bad, code=1)["runs"] == []


def test_two_frameworks_in_a_file_are_two_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Each with what is dumped in front of its own steps: the card that torchtitan names is not Megatron's."""
    megatron, titan = [*logs.megatron_arguments(), *logs.megatron()], [*logs.TITAN_HEAD, *logs.torchtitan()]
    for parts in ((megatron, titan), (titan, megatron)):
        runs = preview(capsys, log("train.log", *parts))["runs"]
        by_format = {run["format"]: run["cells"] for run in runs}
        assert (by_format["Megatron-LM"]["tp"], by_format["torchtitan"]["tp"]) == ("2", "1")
        assert "accelerator" not in by_format["Megatron-LM"] and by_format["torchtitan"]["micro_batch"] == "2"
    (run,) = preview(capsys, log("train.log", logs.bars([1.0] * 30), megatron))["runs"]
    assert run["format"] == "Megatron-LM"  # bars of data that are prepared are no run


@sweep(
    ("parts", "says"),
    [
        ((logs.megatron_arguments(world_size=0), logs.megatron()), "num_accelerators is 0"),
        ((logs.megatron_arguments(seq_length=10**11), logs.megatron()), "seq_len 100000000000: at most 1,000,000,000"),
        ((logs.megatron([1e9] * 20),), "step_time_s 1e+09: at most 86,400"),
    ],
)
def test_what_no_run_can_have_been_is_refused(
    capsys: pytest.CaptureFixture[str], parts: tuple[Sequence[str], ...], says: str
) -> None:
    document = preview(capsys, log("train.log", *parts), code=1)
    assert document["runs"][0]["step_time_s"] is None
    assert says in document["reasons"][0]


def test_a_rate_of_tokens_alone_is_no_step_time(capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = preview(capsys, log("train.log", logs.torchtune_disk()))["runs"]
    assert (run["step_time_s"], run["refused"]) == (None, "counts the tokens that are trained on, without padding: "
                                                    "no step time follows from that")  # fmt: skip


def test_python_shows_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    name = log("train.log", logs.megatron_arguments(), logs.megatron())
    assert cw.learn(name, dry_run=True).document == preview(capsys, name)


def test_a_run_by_preferences_is_shown_and_not_learned(capsys: pytest.CaptureFixture[str]) -> None:
    rewards = ["{'loss': 0.6, 'rewards/chosen': 0.1, 'rewards/rejected': -0.1, 'epoch': 0.1}"]
    name = log("train.log", logs.hugging_face([9.0, *[3.4] * 60]), rewards)
    (run,) = preview(capsys, name)["runs"]
    assert run["step_time_s"] == pytest.approx(3.4, rel=0.02) and run["cells"]["task"] == "dpo"
    assert run["refused"] == "runs with --task dpo are not learned from: no column of the journal states it"


def test_a_reward_of_null_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """LLaMA-Factory's trainer_log.jsonl of 2023 and 2024 names a reward in every line of any training."""
    line = '{"current_steps": %d, "total_steps": 90, "loss": 4.4, "reward": null, "elapsed_time": "0:%02d:00"}'
    name = log("trainer_log.jsonl", [line % (step, step) for step in range(1, 31)])
    (run,) = preview(capsys, name)["runs"]
    assert ("task" in run["cells"], run["refused"]) == (False, "") and run["step_time_s"] == pytest.approx(60.0)


def test_mlperfs_rate_of_tokens_is_no_rate_of_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    """2,688 sequences at 5,155,000 in a second would be a step of half a millisecond: they are tokens."""
    head = ':::MLLOG {"time_ms": 1, "event_type": "POINT_IN_TIME", "key": "global_batch_size", "value": 2688}'
    lines = [
        f':::MLLOG {{"time_ms": {step}, "event_type": "POINT_IN_TIME", "key": "tracked_stats", "value": '
        f'{{"throughput": 5155000.5}}, "metadata": {{"step": {step * 5505024}}}}}'
        for step in range(1, 9)
    ]
    (run,) = preview(capsys, log("result.txt", [head, *lines]), code=1)["runs"]
    assert run["step_time_s"] is None and "no count of sequences" in run["refused"]


def test_a_run_without_memory_shows_its_steps_and_learns_none_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "site", "lab"]) == 0
    name = log("train.log", logs.megatron_arguments(), logs.megatron(), [OUT_OF_MEMORY])
    (run,) = preview(capsys, name)["runs"]
    assert (run["step_time_s"], run["verdict"]) == (4.0, "out of memory")
    assert main(["learn", name, "--set", H100, "--site", "lab", "--accept"]) == 0
    assert ",oom," in Path("lab/runs.csv").read_text() and ",4," not in Path("lab/runs.csv").read_text()


# ---- how runs ended --------------------------------------------------------------------------------------------------

SLOWED = [9.0, *([17.4, 17.5, 17.3] * 8), *([20.0, 20.1, 19.9] * 8)]
ENDINGS: dict[str, tuple[list[str], str, dict[str, object]]] = {
    "nothing": (logs.maxtext(), "healthy", {"step": None}),
    "the last step": (logs.llm_c([4.0] * 20), "cut off", {"step": 20}),
    "steps that take longer": (logs.maxtext(SLOWED), "slow", {}),
    "memory": ([*logs.megatron(), *TRACE, OUT_OF_MEMORY], "out of memory", {"rank": 5, "step": 20, "line": 24}),
    "memory before the first step": ([*logs.megatron_arguments(), OUT_OF_MEMORY], "out of memory", {"step": None}),
    "a watchdog": ([*logs.megatron(), WATCHDOG.format(rank=3, number=812)], "hung", {"rank": 3, "line": 21}),
    "a rank that was behind": (
        [*logs.megatron(), *(WATCHDOG.format(rank=rank, number=812 - (rank == 2)) for rank in range(4))],
        "hung", {"cause": "a collective did not end in time: ALLREDUCE number 812; rank 2 was behind, in number 811"},
    ),
    "a loss that is none": ([*logs.megatron(), *(line.replace("loss: 1.1E+01", "loss: NAN") for line in
                                                 logs.megatron([4.0], first=21))], "diverged", {"line": 21}),
    "a loss that came back": (
        ["lm loss: nan", *logs.maxtext(), "loss: 3.1"], "healthy", {},
    ),
    "a node": (
        [*logs.megatron(), "slurmstepd: error: *** JOB 1 ON n7 CANCELLED AT 2026-01-01 DUE TO NODE FAILURE ***"],
        "crashed", {"cause": "an accelerator, a node or the network failed"},
    ),
    "time that was up": (
        [*logs.megatron(), "slurmstepd: error: *** JOB 1 ON n7 CANCELLED AT 2026-01-01 DUE TO TIME LIMIT ***"],
        "cut off", {"cause": "it was stopped from outside"},
    ),
    "a host's memory": ([*logs.megatron(), "exitcode  : -9 (pid: 77)"], "crashed", {}),
    "an error": ([*logs.megatron(), *TRACE, "ValueError: no such file"], "crashed", {"line": 21}),
    "an error that it went on from": ([*logs.maxtext(), *TRACE, *logs.maxtext([4.0] * 30)[20:]], "healthy", {}),
}  # fmt: skip
"""What a log ends with -> its lines, the verdict, and parts of what it rests on."""


@sweep("name", ENDINGS)
def test_a_verdict_says_how_a_run_ended(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines, word, expected = ENDINGS[name]
    run = preview(capsys, log("train.log", lines))["runs"][-1]
    assert run["verdict"] == word
    assert {part: run["ending"][part] for part in expected} == expected
    assert word == "healthy" or (run["ending"]["cause"] and run["ending"]["next"])


def test_a_run_that_failed_teaches_no_speed_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "site", "lab"]) == 0
    name = log("train.log", logs.megatron_arguments(), logs.megatron(), [WATCHDOG.format(rank=3, number=812)])
    assert main(["learn", name, "--set", H100, "--site", "lab"]) == 2
    assert "hung: a collective did not end in time" in capsys.readouterr().err
    assert main(["learn", name, "--set", H100, "--site", "lab", "--failed", "--accept"]) == 0
    assert "4.00 s a step measured" in capsys.readouterr().out


def test_of_a_log_the_runs_that_did_not_fail_are_learned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "site", "lab"]) == 0
    failed = [*logs.megatron_arguments(), *logs.megatron(), WATCHDOG.format(rank=3, number=812)]
    name = log("train.log", failed, logs.megatron_arguments(tensor_model_parallel_size=4), logs.megatron())
    assert main(["learn", name, "--set", H100, "--site", "lab", "--accept"]) == 0
    assert "a run that failed is left out: hung" in capsys.readouterr().out
    assert len(Path("lab/runs.csv").read_text().splitlines()) == 2


@sweep("sign", range(len(verdicts.SIGNS)))
def test_every_sign_says_what_to_do(sign: int) -> None:
    row = verdicts.SIGNS[sign]
    assert row.cause and row.next and row.source and row.hints
