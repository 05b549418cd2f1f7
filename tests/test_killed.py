"""Killed at any moment: a study goes on to the answer that it would have had, and no command leaves half a file."""

import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from planner import catalog
from planner.comm.tables import measuring
from planner.planning import document
from planner.study import run as designing
from tests import right_files, training_logs
from tests.designing import TINY, TWO, study
from tests.sweeps import depth
from tests.test_docs import generate
from tests.test_whole_or_not import at_events, killed_at

ROOT = Path(__file__).parents[1]
TRIALS = 24
KILLS = depth(30, 8)
"""Of each study."""
SPAN = 40
"""Events after which a study is killed, at most: a few trials' worth."""


def answer(text: str, journal: Path | None = None) -> set[str]:
    """The best points and the front of a study of so many trials, without the numbers of the trials."""
    resume = journal is not None and journal.exists()
    how = designing.How(trials=TRIALS, explained=False, storage=str(journal) if journal else None, resume=resume)
    found = designing.design(catalog.load(), study(text), how)
    assert found.search.tried == TRIALS
    points = [{**document.dump(point), "number": 0} for point in (*found.best, *found.pareto)]
    return {json.dumps(point, sort_keys=True) for point in points}


@pytest.mark.slow
@pytest.mark.parametrize("text", [TINY, TWO], ids=["TPE", "NSGA-II"])
def test_a_study_that_was_killed_and_resumed_has_the_same_answer(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed again and again, each at a random one of the next events that change a file."""
    monkeypatch.setattr(designing, "SMALL", 0)
    chance, journal, killed = random.Random(0), tmp_path / "a.journal", 0
    whole = answer(text)
    for _ in range(KILLS):
        killed += killed_at(chance.randint(1, SPAN), lambda: answer(text, journal))
    assert killed >= 0.8 * KILLS, "the kills came too late"
    assert answer(text, journal) == whole


# ---- every command writes through the one place that is whole or not -------------------------------------------------

METHODS = {"write_text", "write_bytes", "to_csv", "savefig"}
ALLOWED = {
    "planner/base/writing.py": "what test_whole_or_not kills at every event",
    "planner/base/locking.py": "links that name who holds a lock",
    "planner/launchers/folder.py": "fills the folder that writing.put_folder exchanges whole",
    "planner/launchers/reading/imported_plan.py": "a model's file in a folder of the moment",
    "planner/launchers/reading/shell/sandbox.py": "a folder of the moment",
    "planner/launchers/reading/wrappers.py": "a folder of the moment",
    "planner/comm/tables/measuring.py": "a folder of the moment",
    "planner/base/csv_rows.py": "rows appended, half a row left out on reading",
    "planner/site/folder.py": "rows appended under a lock, half a row left out on reading",
    "planner/study/program/trial_storage.py": "trials appended under a lock; half a trial at the end is cut off",
    "planner/commands/command_line.py": "the null device, in place of streams that are closed",
}
"""Files that open others to write: why a kill there leaves nothing half-written."""


def writes(call: ast.Call) -> bool:
    """Whether a call opens or names a file to write: a method that does, or ``open`` in a mode that may."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in METHODS:
        return True
    if name != "open":
        return False
    texts = [a for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Constant | ast.Name)]
    modes = [str(a.value) for a in texts if isinstance(a, ast.Constant)]
    named = [a.id for a in texts if isinstance(a, ast.Name) and a.id == "mode"]
    flags = "O_WRONLY" in ast.dump(call) or "O_RDWR" in ast.dump(call)
    return bool(named) or flags or any(mode.strip("bt+") in ("w", "a", "x") or mode == "r+b" for mode in modes)


@pytest.mark.slow
def test_no_command_writes_by_itself() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "planner").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and writes(node)
    }
    assert found == ALLOWED.keys(), "planner.base.writing writes files: whole or not at all"


@dataclass(frozen=True)
class Writer:
    """A command that writes, in a folder with the files of :func:`prepared`."""

    words: str
    appended: tuple[str, ...] = ()
    """Files to which it adds lines: killed, it leaves the first of them."""
    further: str = ""
    """Words with which it goes on once it has begun."""
    answers: int = 0
    """What the same words answer once they have answered."""


ON = "llama3-8b --cluster dgx-h100:1"
WRITERS = {
    "plan": Writer(f"plan {ON} --top 1 -o out --force"),
    "estimate": Writer(f"estimate {ON} tp=8 -o out --force"),
    "procure": Writer("procure --model llama3-8b --tokens 1B --deadline 60d --quick --node dgx-h100 --ways on-demand "
                      "--as-of 2026-01-01 -o out --force"),
    "design": Writer("design study.toml --trials 6 --quick --storage design.journal -o out",
                     ("design.journal",), further="--resume --force"),
    "export": Writer("export plan.json --to megatron -o folder --force"),
    "import": Writer("import start.sh --from megatron --cluster dgx-h100:16 --model llama3-8b -o out --force"),
    "validate": Writer("validate runs.csv -o out --force"),
    "calibrate": Writer("calibrate runs.csv --site --no-cross-validate -o own"),
    "learn": Writer("learn train.log --plan plan.json --site lab", ("lab/runs.csv",)),
    "profile import": Writer("profile import layers.csv -o own"),
    "catalog import-prices": Writer("catalog import-prices lists -o own --date 2026-01-01 --force"),
    "report": Writer("report plan.json -o page.html"),
    "comm choose": Writer("comm choose plan.json -o out --force"),
    "comm import": Writer("comm import measured.csv --from csv -o table.csv", ("table.csv",)),
    "comm tune": Writer("comm tune --ops all-reduce --sizes 1KiB,4KiB --rounds 2 -o table.csv", ("table.csv",)),
    "models layers": Writer("models layers llama3-8b -o layers.txt --force"),
    "models import": Writer("models import config.json -o out.toml --force"),
    "examples": Writer("examples pretrain-8b -o out.toml --force"),
    "init cluster": Writer("init cluster out.toml --force"),
    "init portfolio": Writer("init portfolio out.toml --force"),
    "init study": Writer("init study out.toml --force"),
    "init site": Writer("init site fresh", answers=2),
    "sign": Writer("sign plan.json --key key -o out --force"),
}  # fmt: skip
"""Every command that has ``-o`` or keeps a folder."""
KEEP_FOLDERS = {"learn", "init site"}
STARTED = {"init cluster", "init portfolio", "init study"}
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "hidden_act": "silu", "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
}  # fmt: skip


def test_every_command_that_writes_is_killed() -> None:
    writing = {
        path.removeprefix("clusterwright ")
        for path, text in generate.all_commands()
        if re.search(r"^ +-o\b", text, re.MULTILINE)
    }
    assert writing | KEEP_FOLDERS | STARTED == WRITERS.keys()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something for each command to read."""
    from planner.commands.command_line import main

    folder = tmp_path_factory.mktemp("killed")
    runs = (ROOT / "benchmarks/data/measured_runs.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    texts = {
        "config.json": json.dumps(CONFIG),
        "study.toml": TINY,
        "start.sh": (ROOT / "tests/golden/export/megatron/start.sh").read_text(encoding="utf-8"),
        "runs.csv": "".join(runs[:6]),
        "train.log": "\n".join([*training_logs.megatron([3.5 * time for time in training_logs.STEADY]), ""]),
        "layers.csv": "".join([right_files.PROFILE_HEADER, *right_files.PROFILE_ROWS]),
        "lists/aws/vms.csv": right_files.PRICES,
        "measured.csv": right_files.COLLECTIVES,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    assert main([*f"plan {ON} --batch 128 --top 1 -o".split(), str(folder / "plan.json")]) == 0
    assert main(["init", "site", str(folder / "lab")]) == 0
    if shutil.which("ssh-keygen"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    return folder


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that measure, without PyTorch: a line of what each would say."""
    said = [
        {"backend": "gloo", "op": "all-reduce", "bytes": size, "round": n, "seconds": 1e-5}
        for n in range(2) for size in (1024, 4096)
    ]  # fmt: skip
    monkeypatch.setattr(measuring, "_there", lambda asked: None)
    monkeypatch.setattr(measuring, "_running", lambda *job: nullcontext(map(json.dumps, said)))


@pytest.mark.slow
@pytest.mark.usefixtures("timed", "capsys")
@pytest.mark.parametrize("name", WRITERS)
def test_a_command_that_is_killed_leaves_all_or_nothing(
    name: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its events that change a file, what stands there is what was there or the whole new file; first where
    nothing is, then where all is. Killed at the last event, the same words work again.
    """
    from planner.commands.command_line import main

    if name == "report":
        pytest.importorskip("jinja2")
        pytest.importorskip("vl_convert")
    if name == "sign" and not shutil.which("ssh-keygen"):
        pytest.skip("no ssh-keygen")
    folder, asked = tmp_path / "here", WRITERS[name]
    words = [*asked.words.split(), *asked.further.split()]
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    before = contents(folder)
    first = states(folder, tmp_path / "first", lambda: main(asked.words.split()))
    whole = contents(folder)
    assert whole != before
    assert first
    for number, found in enumerate(first, 1):
        assert found.keys() >= before.keys()
        for path, text in found.items():
            kept = (before.get(path), *([whole[path][: len(text)]] if path in asked.appended else []))
            assert text in kept or same(path, text, whole[path]), f"{path} at event {number}"
    again = states(folder, tmp_path / "again", lambda: main(words), last=len(first))
    for number, found in enumerate(again, 1):
        assert found.keys() == whole.keys()
        assert all(same(path, text, whole[path]) for path, text in found.items()), f"again, at event {number}"
    assert main(words) == asked.answers
    assert contents(folder).keys() == whole.keys()


def states(folder: Path, log: Path, work: Callable[[], object], last: int = 0) -> list[dict[str, str]]:
    """What a kill at each of the events of `work` that change a file would leave in a folder; at `last` it comes."""
    log.mkdir()

    def note(event: int) -> None:
        (log / f"{event:03}").write_text(json.dumps(contents(folder)), encoding="utf-8")
        if event == last:
            os.kill(os.getpid(), signal.SIGKILL)

    at_events(work, note)
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(log.iterdir())]


def contents(folder: Path) -> dict[str, str]:
    """Files by their names, without those of the moment and locks."""
    found = (path for path in folder.rglob("*") if path.is_file() and ".tmp" not in str(path))
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in found if p.suffix != ".lock"}


def same(path: str, text: str, whole: str) -> bool:
    """The same text; of documents, all but the seconds they took."""
    if path not in ("out", "plan.json") or not text.startswith("{"):
        return text == whole
    return {**json.loads(text), "meta": 0} == {**json.loads(whole), "meta": 0}
