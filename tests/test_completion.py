"""Completion in a shell, by the protocol in which a shell asks for it: words, and which of them is typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from click.shell_completion import BashComplete

from planner import catalog, launchers
from planner.axes import PINNED
from planner.commands import completion
from planner.commands.command_line import COMMANDS, cli
from planner.models import families, workload
from tests.asking import ask
from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent
LIGHT = {"numpy", "pydantic", "pandas", "rich", "optuna", "planner.catalog", "planner.launchers", "planner.cost"}
"""What must not be imported while somebody waits at the Tab key."""


def offered(line: str) -> list[str]:
    """What is offered for the last word of a line; an empty one stands behind a space."""
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    with mock.patch.dict(os.environ, asked):
        completion = BashComplete(cli, {}, "clusterwright", "_CLUSTERWRIGHT_COMPLETE")
        return [line.partition(",")[2] for line in completion.complete().splitlines()]


@sweep(
    ("line", "expected"),
    [
        ("clusterwright pro", ["procure", "profile"]),
        ("clusterwright plan llama3-7", ["llama3-70b"]),
        ("clusterwright plan resnet5", ["resnet50"]),
        ("clusterwright plan llama3-8b --cluster dgx-h2", ["dgx-h200"]),
        ("clusterwright plan llama3-8b --fabric infiniband-h", ["infiniband-hdr"]),
        ("clusterwright plan llama3-8b --optimizer adamw", ["adamw"]),
        ("clusterwright plan llama3-8b --runtime megatron-c", ["megatron-core"]),
        ("clusterwright plan llama3-8b --objective tok", ["tokens-per-dollar"]),
        ("clusterwright plan llama3-8b --pin tp=8,zero_", ["tp=8,zero_scope="]),
        ("clusterwright plan llama3-8b --obj", ["--objective"]),
        ("clusterwright estimate llama3-8b v", ["vpp="]),
        ("clusterwright export plan.json --to megatron+slu", ["megatron+slurm"]),
        ("clusterwright models show llama3-7", ["llama3-70b"]),
        ("clusterwright fit llama3-7", ["llama3-70b"]),
        ("clusterwright fit --on RTX-40", ["RTX-4090"]),
        ("clusterwright fit llama3-8b --optimizer adamw", ["adamw"]),
        ("clusterwright catalog show dgx-h2", ["dgx-h200"]),
        ("clusterwright procure --node dgx-h2", ["dgx-h200"]),
        ("clusterwright completion z", ["zsh"]),
    ],
)
def test_words_are_completed(line: str, expected: list[str]) -> None:
    assert offered(line) == expected


def test_every_name_of_the_library_is_offered() -> None:
    known = catalog.load()
    assert [*COMMANDS] == completing_commands()
    assert set(completion.TARGETS) == set(launchers.EXPORTERS)
    for kind in completion.KINDS:
        assert set(known.entries(kind)) == set(completion._ids(f"hardware_catalog/{kind}")), kind
    assert {*workload.library(), *families.ids()} == set(completion._ids("models"))
    assert set(PINNED) == {each.rstrip("=") for each in completion.axes(None, None, "")}  # type: ignore[arg-type]


def completing_commands() -> list[str]:
    return offered("clusterwright ")


def test_nothing_heavy_is_imported_to_complete() -> None:
    """A completion takes less than half a second because of what it does not import."""
    asked = {"_CLUSTERWRIGHT_COMPLETE": "bash_complete", "COMP_CWORD": "4"}
    start = "import sys; from planner.commands.command_line import main"
    code = f"{start}\ntry: main([])\nexcept SystemExit: print(*sys.modules)"
    for words in ("plan llama3-8b --cluster dgx", "export plan.json --to meg", "plan x --runtime meg"):
        line = {"COMP_WORDS": f"clusterwright {words}"}
        found = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | asked | line, capture_output=True, encoding="utf-8",
            check=True, cwd=ROOT,
        )  # fmt: skip
        assert not LIGHT - {"pydantic"} & {*found.stdout.splitlines()[-1].split()}, words


@sweep("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, f"completion {shell}")
    assert answer.code == 0 and f"_CLUSTERWRIGHT_COMPLETE={shell}_complete" in answer.report
    assert ask(capsys, "completion tcsh").code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_by_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script as bash runs it, on a program that is this one."""
    script = tmp_path / "completion.sh"
    script.write_text(ask(capsys, "completion bash").report, encoding="utf-8")
    (tmp_path / "clusterwright").write_text(
        f'#!/bin/sh\nexec {sys.executable} {ROOT / "cli.py"} "$@"\n', encoding="utf-8"
    )
    (tmp_path / "clusterwright").chmod(0o755)
    typed = (
        f"source {script}; COMP_WORDS=(clusterwright plan llama3-7); COMP_CWORD=2; "
        '_clusterwright_completion clusterwright; echo "${COMPREPLY[@]}"'
    )
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    found = subprocess.run(
        ["bash", "--norc", "-c", typed], env=os.environ | path, capture_output=True, encoding="utf-8", check=False
    )
    assert found.stdout.split() == ["llama3-70b"], found.stderr
