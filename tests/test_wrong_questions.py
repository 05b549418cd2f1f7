"""Bad input to ``plan``, ``estimate`` and ``explain``: exit code 2 (1 where the question is right and has no answer),
one message that solves it, nothing printed, nothing written, never a traceback."""

import contextlib
import io
import json
import os
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.commands import command_line
from planner.planning.document import reader
from tests.asking import ask, refused
from tests.sweeps import depth, sweep
from tests.words import worded

PLAN = "plan llama3-8b --cluster dgx-h100:4"
ESTIMATE = "estimate llama3-8b --cluster dgx-h100:4"


pytestmark = pytest.mark.usefixtures("folder")


# ---- names and values ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@worded("refused")
def test_a_wrong_question_gets_one_message(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    return refused(capsys, f"{line} -o plan.json" if line.startswith(("plan ", "estimate ")) else line)


# ---- right questions without an answer -------------------------------------------------------------------------------


@pytest.mark.slow
@sweep(
    "line",
    [
        "plan llama3.1-405b --cluster dgx-a100-40gb:4",
        "plan llama3-70b --cluster p5.4xlarge:1 --method lora",
        "plan llama3-70b --cluster dgx-h100:1 --seq 1000000",
        f"{PLAN} --seq 100000000",
    ],
    ci=2,
)
def test_what_would_fit_fits(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, line, code=1)
    assert "No plan fits into memory" in message and "over by" in message
    flags = re.findall(r"\((--[a-z]+) (\S+)\)", message)
    assert flags, message
    for flag, value in flags:
        if flag == "--cluster":
            mended = re.sub(r"--cluster \S+", f"--cluster {value}", line)
        else:
            mended = re.sub(rf" {flag} \S+", "", line) + f" {flag} {value}"
        assert ask(capsys, mended).code == 0, mended


@pytest.mark.slow
@sweep(
    "line",
    [
        f"{PLAN} --deadline '1 s'",
        f"{PLAN} --max-cost '$1'",
        f"{PLAN} --deadline '60 d' --max-cost '$100k'",
        f"{PLAN} --deadline '10 d' --max-cost '$1M' --objective cost",
        "plan llama3-8b --cluster dgx-h100:1..8 --deadline '20 d' --max-cost '$100k' --objective energy",
    ],
    ci=2,
)
def test_what_would_do_does(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = refused(capsys, line, code=1)
    assert message.startswith("No plan keeps a ")
    ways = re.findall(r"\((--[^)]*)\)", message)
    assert ways
    for way in ways:
        mended = line
        for flag in re.findall(r"--[a-z-]+", way):
            mended = re.sub(rf" {flag} ('[^']*'|\S+)", "", mended)
        assert ask(capsys, f"{mended} {way}").code == 0, f"{mended} {way}"


def test_a_job_that_fails_faster_than_it_restarts(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("plan", "estimate"):
        line = f"{command} llama3-8b --cluster dgx-h100:200000 --batch 1600000"
        assert "get nowhere" in refused(capsys, line, code=1)


def test_an_estimate_that_does_not_fit_says_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, f"{ESTIMATE} micro=2")
    assert answer.code == 1
    ways = re.findall(r"(\S+=\S+) would fit", answer.out)
    assert ways
    for way in ways:
        kept = "" if way.startswith("micro=") else "micro=2"
        assert ask(capsys, f"{ESTIMATE} {kept} {way}").code == 0, way


# ---- files that are asked about --------------------------------------------------------------------------------------

FILES: dict[str, tuple[str | bytes, str]] = {
    "cluster.toml": ('node = "dgx-h100"\ncount = [\n', r"cluster.toml:\d"),
    "zero.toml": ('node = "dgx-h100"\ncount = 0\n', "zero.toml:2: count = 0: must be a whole number"),
    "typo.toml": ('node = "dgx-h10"\ncount = 4\n', "typo.toml:1: .*dgx-h100"),
    "key.toml": ('node = "dgx-h100"\ncuont = 4\n', "key.toml:2: cuont: unknown key.*count"),
    "nan.toml": ('node = "dgx-h100"\ncount = nan\n', "nan.toml:2: count"),
    "binary.toml": (b"\xff\xfe\x00\x01", "binary.toml"),
    "empty.toml": ("", "empty.toml"),
}


@sweep("name", FILES)
def test_a_cluster_file_that_is_wrong(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, says = FILES[name]
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert re.search(says, refused(capsys, f"plan llama3-8b --cluster {name}"))


def test_a_cluster_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder.toml").mkdir()
    assert "No such file" in refused(capsys, "plan llama3-8b --cluster missing.toml")
    assert "directory" in refused(capsys, "plan llama3-8b --cluster folder.toml").lower()


@sweep(
    ("content", "says"),
    [
        ('{"model_type": "lama", "hidden_size": 64}', "llama"),
        ('{"hidden_size": 64}', "model_type"),
        ('{"model_type": "llama", "num_hidden_layers": 0}', "config.json: "),
        ('{"model_type": "llama",\n "hidden_size": }', "config.json:2"),
        ('{"model_type": "llama", "hidden_size": NaN}', "NaN"),
        ("[]", "object"),
        ("[" * 100_000, "config.json"),
        ("", "config.json:1"),
    ],
)
def test_a_config_that_is_wrong(content: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.json").write_text(content)
    assert says in refused(capsys, "plan config.json --cluster dgx-h100:4")


def test_a_catalog_that_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own/nodes").mkdir(parents=True)
    Path("own/nodes/lab.toml").write_text('[lab]\nextends = "dgx-h100"\naccelerators = -8\n')
    assert "lab.toml:3" in refused(capsys, "plan llama3-8b --cluster lab:4 --catalog own")


# ---- plans that are read ---------------------------------------------------------------------------------------------


@cache
def two_plans() -> str:
    """What ``plan --top 2`` writes."""
    return api.plan("llama3-8b", "dgx-h100:4", top=2).to_json()


@pytest.fixture
def written(folder: Path) -> dict[str, Any]:
    """What is in ``plan.json``."""
    Path("plan.json").write_text(two_plans(), encoding="utf-8")
    found: dict[str, Any] = json.loads(two_plans())
    return found


def _step_time(data: dict[str, Any]) -> None:
    data["plans"][0]["prediction"]["step_time_s"] *= 0.5


def _degrees(data: dict[str, Any]) -> None:
    data["plans"][0]["axes"]["dp"] *= 2


def _memory(data: dict[str, Any]) -> None:
    data["plans"][0]["prediction"]["memory"]["total_bytes"] *= 0.9


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another version": (lambda d: d.update(schema_version=99), "schema_version is 99, this program reads 1 and 2"),
    "no version": (lambda d: d.pop("schema_version"), "schema_version is None"),
    "another kind": (
        lambda d: d.update(kind="plam"),
        "kind is 'plam'; expected plan, plan-set, procurement, study, image-plan or rl-plan",
    ),
    "a kind that is no word": (lambda d: d.update(kind=["plan"]), "kind is"),
    "an unknown key": (lambda d: d["plans"][0]["batch"].update(mikro=2), "plans.0.batch.mikro"),
    "a missing key": (lambda d: d["plans"][0]["batch"].pop("per_pool"), "plans.0.batch.per_pool"),
    "a missing axis": (lambda d: d["plans"][0]["axes"].pop("micro"), "plans.0.axes.micro"),
    "an unknown axis": (lambda d: d["plans"][0]["axes"].update(mikro=2), "plans.0: axes.mikro: no such axis"),
    "an axis in a section": (lambda d: d["plans"][0]["batch"].update(micro=2), "batch.micro: it stands among the axes"),
    "another count of nodes": (lambda d: d["plans"][0]["axes"].update(nodes=9), "axes.nodes: 9, and its pools have"),
    "no such part": (lambda d: d["plans"][0]["axes"].update(offload="loss"), "axes.offload: 'loss' is neither"),
    "text for a number": (lambda d: d["plans"][0]["axes"].update(micro="two"), "plans.0.axes.micro"),
    "no plans": (lambda d: d.update(plans=[]), "no plan"),
    "a faster step": (_step_time, "step_time_s"),
    "other degrees": (_degrees, "dp"),
    "less memory": (_memory, "total_bytes"),
    "a cheaper runner-up": (lambda d: d["plans"][1]["money"].update(usd_total=1.0), "usd_total"),
    "a number beyond floats": (lambda d: d["plans"][0]["axes"].update(batch=10**400), "batch.global_ is beyond"),
    "a billion layers": (
        lambda d: [plan["workload"]["shape"].update(layers=10**9) for plan in d["plans"]],
        "at most 10,000",
    ),
    "a kind of ten megabytes": (lambda d: d.update(kind="x" * 10**7), "kind is 'xxx"),
}


@sweep("name", EDITS)
def test_an_edited_plan_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    edit, says = EDITS[name]
    data = json.loads(two_plans())
    edit(data)
    Path("plan.json").write_text(json.dumps(data), encoding="utf-8")
    answer = ask(capsys, "explain plan.json")
    assert (answer.code, answer.out) == (2, "")
    *warned, error = answer.err.split("clusterwright: ")[1:]
    assert set(warned) <= {"plan.json: edited since it was written\n"} and says in error


def test_control_characters_of_a_plan_do_not_reach_the_terminal(
    written: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for plan in written["plans"]:
        plan["workload"]["name"] = "red\x1b[31m\u202e"
    written["reasons"]["why_not"] = ["two\nlines"]
    Path("plan.json").write_text(json.dumps(written), encoding="utf-8")
    told = ask(capsys, "explain plan.json").out
    assert "red [31m ," in told
    assert "two lines" in told


@pytest.mark.usefixtures("written")
@sweep("rank", ["0", "-1", "3", "99999999999999999999"])
def test_a_rank_that_is_not_there(rank: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "it holds 2: --rank 1 to 2" in refused(capsys, f"explain plan.json --rank {rank}")


@sweep(
    ("content", "says"),
    [
        (b'{"kind": "plan",\n "rank": }', "plan.json:2: "),
        (b"", "plan.json:1: "),
        (b'{"kind": "plan", "rank": NaN}', "NaN is not a finite number"),
        (b"[" * 100_000, "plan.json: "),
        (b"[1, 2]", "not a plan"),
        (b"7", "not a plan"),
        (b"\xff\xfe\x00binary", "not UTF-8 text"),
        (b'{"kind": "plan", "schema_version": 1, "rank": ' + b"9" * 5000 + b"}", "plan.json: "),
    ],
)
def test_a_file_that_is_no_plan(content: bytes, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.json").write_bytes(content)
    assert says in refused(capsys, "explain plan.json")


@pytest.mark.usefixtures("written")
def test_a_truncated_plan(capsys: pytest.CaptureFixture[str]) -> None:
    whole = Path("plan.json").read_text(encoding="utf-8")
    for share in (0.1, 0.5, 0.99):
        Path("plan.json").write_text(whole[: int(share * len(whole))], encoding="utf-8")
        assert re.match(r"plan.json:\d+: ", refused(capsys, "explain plan.json"))


def test_a_plan_that_is_no_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    assert "No such file" in refused(capsys, "explain missing.json")
    assert "Is a directory" in refused(capsys, "explain folder")
    if Path("/dev/zero").exists():
        assert "not a regular file" in refused(capsys, "explain /dev/zero")
    Path("huge.json").write_bytes(b" " * 1000)
    monkeypatch.setattr(reader, "LARGEST_STUDY", 999)
    assert "a document has at most 999" in refused(capsys, "explain huge.json")


# ---- plans that are written ------------------------------------------------------------------------------------------


def test_output_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    assert "missing/plan.json: cannot be written: there is no folder missing" in refused(
        capsys, f"{PLAN} -o missing/plan.json"
    )
    assert "folder: cannot be written" in refused(capsys, f"{PLAN} -o folder")
    assert "cannot be written: names no file" in refused(capsys, f"{PLAN} -o .")
    assert not list(Path.cwd().glob(".*"))


@pytest.mark.usefixtures("written")
@sweep(("owner", "step"), [(os, "fsync"), (Path, "replace")])
def test_a_plan_that_was_there_outlives_a_failed_write(
    owner: Any, step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("plan.json").read_bytes()
    assert "exists already; --force" in refused(capsys, f"{PLAN} -o plan.json")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, step, full)
    assert "plan.json: cannot be written: No space left" in refused(capsys, f"{PLAN} --top 1 -o plan.json --force")
    assert Path("plan.json").read_bytes() == before
    assert [path.name for path in Path.cwd().iterdir()] == ["plan.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(capsys: pytest.CaptureFixture[str]) -> None:
    Path("closed").mkdir(mode=0o500)
    assert "Permission denied" in refused(capsys, f"{PLAN} -o closed/plan.json")


# ---- anything at all -------------------------------------------------------------------------------------------------

MODELS = ["llama3.2-1b", "llama3-8b", "mixtral-8x7b", "deepseek-v2-lite", "vit-b16", "bert-base"] * 4 + ["nothing", ""]
CLUSTERS = ["dgx-h100", "dgx-a100-40gb", "p5.4xlarge", "gb200-nvl72", "tpu-v5e-8", "ws-2xrtx4090", "dgx-v100"] * 4 + [
    "x"
]
COUNTS = ["1", "2", "3", "4", "7", "8", "1..4"] * 3 + ["0", "3..2", "200000", "x", ""]
AXIS = st.sampled_from(
    "tp pp vpp cp ep etp dp micro batch nodes precision recompute sequence_parallel tp_overlap zero zero_scope "
    "dp_overlap p2p_overlap rank_order offload tpp".split()
)
NUMBER = st.one_of(st.integers(-1, 9), st.sampled_from([16, 64, 257, 10**6, 10**12])).map(str)
VALUE = st.one_of(
    NUMBER,
    st.tuples(NUMBER, NUMBER).map("..".join),
    st.sampled_from("on off none full selective block:0.5 bf16 fp8 mxfp8 node optimizer 1|2 .. nan".split()),
)
JUNK = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=6)
SENSIBLE = st.sampled_from(
    "tp=1 tp=2 tp=8 pp=2 pp=4 vpp=2 cp=2 ep=4 micro=1 micro=2 zero=0 zero=3 recompute=full recompute=selective "
    "sequence_parallel=off offload=optimizer precision=bf16 dp_overlap=off zero_scope=full etp=1".split()
)
PINS = st.lists(st.one_of(SENSIBLE, SENSIBLE, SENSIBLE, st.tuples(AXIS, VALUE).map("=".join)), max_size=3)
FLAGS = {
    "--batch": st.one_of(VALUE, JUNK),
    "--seq": st.one_of(NUMBER, JUNK),
    "--tokens": st.one_of(NUMBER, st.sampled_from(["1T", "1e18", "2 B", "nan"]), JUNK),
    "--method": st.sampled_from(["pretrain", "finetune", "lora"]),
    "--rank": NUMBER,
    "--optimizer": st.sampled_from(["adamw", "sgd", "adam-8bit", "adafactor", "muon", "x"]),
    "--runtime": st.sampled_from(["megatron-core", "megatron-core@2021", "fsdp", "fsdp2", "deepspeed", "maxtext", "x"]),
    "--precision": st.sampled_from(["bf16", "fp8", "fp16,fp8", "mxfp8", "fp32", ",", "x"]),
    "--fabric": st.sampled_from(["infiniband-ndr", "ethernet-10g", "ici-v5e", "efa-v2", "x"]),
    "--region": st.sampled_from(["us", "france", "x"]),
    "--price": st.sampled_from(["$2/h", "$1e9/h", "2", "$0/h", "$0.0001/h"]),
    "--basis": st.sampled_from(["on-demand", "spot", "reserved-1y", "reserved-3y"]),
    "--oom-risk": st.sampled_from(["5 %", "50%", "0.01", "0", "70 %", "x"]),
    "--waive": st.sampled_from(["tp_in_domain", "context_chunk", "micro_batch_tokens", "batch_divides", "x"]),
}
SEARCH_FLAGS = {
    "--objective": st.sampled_from(["time", "cost", "energy", "tokens-per-dollar"]),
    "--deadline": st.sampled_from(["1 s", "30 d", "9999 y", "d", "-1 d"]),
    "--max-cost": st.sampled_from(["$1", "$5M", "$999B", "5"]),
    "--top": st.one_of(st.integers(-1, 3).map(str)),
}


@st.composite
def questions(draw: st.DrawFn) -> list[str]:
    """A command line that somebody might type, or a cat."""
    command = draw(st.sampled_from(["plan", "estimate"]))
    cluster = f"{draw(st.sampled_from(CLUSTERS))}:{draw(st.sampled_from(COUNTS))}"
    words = [command, draw(st.sampled_from(MODELS)), f"--cluster={cluster}"]
    pins = draw(PINS)
    words += pins if command == "estimate" else [f"--pin={','.join(pins)}"]
    known = FLAGS if command == "estimate" else FLAGS | SEARCH_FLAGS
    for flag in draw(st.lists(st.sampled_from(sorted(known)), max_size=2, unique=True)):
        words.append(f"{flag}={draw(known[flag])}")
    return [*words, *draw(st.lists(st.sampled_from(["--json", "--json", "--help", "-x", "tp=2"]), max_size=1))]


@pytest.mark.slow
@settings(max_examples=depth(75, 40), deadline=None)
@given(questions())
def test_no_question_ends_in_a_traceback(words: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command_line.main(words)
    told = f"{shlex.join(words)}\n{err.getvalue()}"
    assert code in (0, 1, 2), told
    assert "Traceback" not in out.getvalue() + err.getvalue(), told
    # A plan that the program made and its own checker refuses is the program's fault, not the question's.
    assert "follows from the plan" not in err.getvalue(), told
    if code == 2:
        assert out.getvalue() == "" and err.getvalue().startswith("clusterwright: "), told
    elif "--json" in words and out.getvalue().startswith("{"):
        json.loads(out.getvalue(), parse_constant=lambda text: pytest.fail(f"{text}: {told}"))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40) | st.binary(max_size=40), st.sampled_from(["explain {}", "plan {} --cluster dgx-h100:1"]))
def test_no_file_ends_in_a_traceback(content: str | bytes, line: str) -> None:
    path = Path("anything.json")
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        code = command_line.main(line.format(path).split())
    assert (code, err.getvalue().count("anything.json") > 0) == (2, True), err.getvalue()
