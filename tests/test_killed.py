"""Killed at any moment: a study goes on to the answer that it would have had, and no command leaves half a file."""

import ast
import json
import random
from pathlib import Path

import pytest

from planner import catalog, document
from planner.study import run as designing
from tests.test_design import TINY, TWO, study
from tests.test_whole_or_not import killed_at

ROOT = Path(__file__).parents[1]
TRIALS = 24
KILLS = 15
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


@pytest.mark.parametrize("text", [TINY, TWO], ids=["TPE", "NSGA-II"])
def test_a_study_that_was_killed_and_resumed_has_the_same_answer(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifteen kills, each at a random one of the next events that change a file."""
    monkeypatch.setattr(designing, "SMALL", 0)
    chance, journal, killed = random.Random(0), tmp_path / "a.journal", 0
    whole = answer(text)
    for _ in range(KILLS):
        killed += killed_at(chance.randint(1, SPAN), lambda: answer(text, journal))
    assert killed >= 0.8 * KILLS, "the kills came too late"
    assert answer(text, journal) == whole


# ---- every command writes through the one place that is whole or not -------------------------------------------------

WRITERS = {"write_text", "write_bytes", "to_csv", "savefig"}
ALLOWED = {
    "planner/base/writing.py": "what test_whole_or_not kills at every event",
    "planner/base/locking.py": "links that name who holds a lock",
    "planner/launchers/folder.py": "fills the folder that writing.put_folder exchanges whole",
    "planner/launchers/reading/present.py": "a model's file in a folder of the moment",
    "planner/launchers/reading/shell/sandbox.py": "a folder of the moment",
    "planner/comm/tables/measuring.py": "a folder of the moment",
    "planner/calibration/measuring/journal.py": "rows appended, half a row left out on reading",
    "planner/comm/tables/records.py": "rows appended, half a row left out on reading",
    "planner/site/journal.py": "rows appended under a lock, half a row left out on reading",
    "planner/study/program/ledger.py": "trials appended under a lock",
    "planner/study/program/storing.py": "half a trial at the end is cut off",
    "planner/commands/__init__.py": "the null device, in place of streams that are closed",
}
"""Files that open others to write: why a kill there leaves nothing half-written."""


def writes(call: ast.Call) -> bool:
    """Whether a call opens or names a file to write: a method that does, or ``open`` in a mode that may."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name in WRITERS:
        return True
    if name != "open":
        return False
    texts = [a for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Constant | ast.Name)]
    modes = [str(a.value) for a in texts if isinstance(a, ast.Constant)]
    named = [a.id for a in texts if isinstance(a, ast.Name) and a.id == "mode"]
    flags = "O_WRONLY" in ast.dump(call) or "O_RDWR" in ast.dump(call)
    return bool(named) or flags or any(mode.strip("bt+") in ("w", "a", "x") or mode == "r+b" for mode in modes)


def test_no_command_writes_by_itself() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "planner").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and writes(node)
    }
    assert found == ALLOWED.keys(), "planner.base.writing writes files: whole or not at all"


COMMANDS = {
    "plan": "plan llama3-8b --cluster dgx-h100:1 --top 1 -o out --force",
    "estimate": "estimate llama3-8b --cluster dgx-h100:1 tp=8 -o out --force",
    "export": "export plan.json --to megatron -o folder --force",
    "comm choose": "comm choose plan.json -o out --force",
    "models import": "models import config.json -o out.toml --force",
    "init site": "init site lab",
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "hidden_act": "silu", "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_killed_leaves_all_or_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At each of its events that change a file: what it leaves is what was there or the whole new file, and the same
    command works again.
    """
    from planner.commands import main

    monkeypatch.chdir(tmp_path)
    assert main(["plan", "llama3-8b", "--cluster", "dgx-h100:2", "--top", "1", "-o", "plan.json"]) == 0
    Path("config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    command = COMMANDS[name].split()
    assert main(command) == 0
    whole = contents(tmp_path)
    for number in range(1, 60):
        if not killed_at(number, lambda: main(command)):
            break
        assert contents(tmp_path).keys() >= whole.keys()
        for path, text in contents(tmp_path).items():
            assert same(path, text, whole.get(path, "")), f"{path} after event {number}"
    assert number > 1 or name == "init site"
    assert main(command) == (2 if name == "init site" else 0)
    capsys.readouterr()


def contents(folder: Path) -> dict[str, str]:
    """Files by their names, without those of the moment and locks."""
    found = (path for path in folder.rglob("*") if path.is_file() and ".tmp" not in str(path))
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in found if p.suffix != ".lock"}


def same(path: str, text: str, whole: str) -> bool:
    """The same text; of documents, all but the seconds they took."""
    if path not in ("out", "plan.json") or not text.startswith("{"):
        return text == whole
    return {**json.loads(text), "meta": 0} == {**json.loads(whole), "meta": 0}
