"""The shell around the commands: start-up, names, exit codes, and never a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import planner
from planner.base.errors import NoAnswer, WrongQuestion
from planner.commands import command_line
from planner.commands.lazy import LazyCommand
from tests.asking import ask
from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("numpy", "pandas", "optuna", "pulp", "highspy", "pydantic", "rich")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, as a user does."""
    return subprocess.run(
        [
            sys.executable,
            *(("-X", "importtime") if environment.pop("importtime", "") else ()),
            str(ROOT / "cli.py"),
            *arguments,
        ],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        check=False,
    )


@sweep("arguments", [["--help"], ["-h"], [], ["--version"], ["plam"]], ids=str)
def test_start_up_loads_nothing_heavy(arguments: list[str]) -> None:
    loaded = {line.rpartition("|")[2].strip() for line in run(*arguments, importtime="1").stderr.splitlines()}
    assert "click" in loaded
    assert not [name for name in loaded if name.split(".")[0] in HEAVY]


def test_help_lists_every_command_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "--help")
    assert answer.code == 0
    for name, entry in command_line.COMMANDS.items():
        assert f"  {name} " in answer.out
        assert entry.summary in answer.out


def test_without_a_command_it_prints_the_help() -> None:
    assert run().stdout == run("--help").stdout == run("-h").stdout


def test_version() -> None:
    assert run("--version").stdout == f"clusterwright {planner.__version__}\n"


@sweep("name", command_line.COMMANDS)
def test_every_command_exists_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = command_line.cli.get_command(click.Context(command_line.cli), name)
    assert command is not None
    assert command.name == name
    for flag in ("--help", "-h"):
        answer = ask(capsys, f"{name} {flag}")
        assert (answer.code, answer.err) == (0, "")
        assert f"Usage: clusterwright {name}" in answer.out
        assert "\\" not in answer.out


@sweep("name", ["plan", "estimate", "explain"])
def test_examples_in_the_help_stand_on_lines_of_their_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = [line for line in ask(capsys, f"{name} --help").out.splitlines() if "clusterwright" in line]
    assert len([line for line in examples if line.startswith(f"    clusterwright {name} ")]) >= 2


def test_a_missing_argument_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "plan")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("clusterwright: missing ")
    assert len(answer.err.splitlines()) == 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Install a command ``fake`` that runs the given function."""

    def install(action: Callable[[], object]) -> None:
        monkeypatch.setitem(command_line.COMMANDS, "fake", LazyCommand(__name__, "fake_command", "Fake."))
        monkeypatch.setattr(
            sys.modules[__name__], "fake_command", click.Command("fake", callback=action), raising=False
        )

    return install


def _raise(error: BaseException) -> Callable[[], object]:
    def action() -> object:
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (WrongQuestion("no model 'x'. Did you mean y?"), 2, "clusterwright: no model 'x'. Did you mean y?\n"),
        (NoAnswer("nothing fits: memory binds"), 1, "clusterwright: nothing fits: memory binds\n"),
        (click.UsageError("Say what to plan."), 2, "clusterwright: say what to plan. (clusterwright fake --help)\n"),
        (click.Abort(), 130, ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_exit_codes(
    fake: Callable[[Callable[[], object]], None],
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    message: str,
) -> None:
    fake(_raise(error))
    assert command_line.main(["fake"]) == code
    assert capsys.readouterr() == ("", message)


def test_ctrl_c_is_quiet(fake: Callable[[Callable[[], object]], None], capsys: pytest.CaptureFixture[str]) -> None:
    fake(_raise(KeyboardInterrupt()))
    assert command_line.main(["fake"]) == 130
    assert capsys.readouterr().err.strip() == ""


def test_a_command_may_return_its_exit_code(fake: Callable[[Callable[[], object]], None]) -> None:
    fake(lambda: 1)
    assert command_line.main(["fake"]) == 1


def test_a_defect_asks_for_a_report(
    fake: Callable[[Callable[[], object]], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTERWRIGHT_DEBUG", raising=False)
    fake(_raise(ZeroDivisionError("division by zero")))
    assert command_line.main(["fake"]) == 70
    captured = capsys.readouterr().err
    assert captured.startswith("clusterwright: this should not have happened: ZeroDivisionError: division by zero\n")
    assert "report" in captured
    assert "Traceback" not in captured
    monkeypatch.setenv("CLUSTERWRIGHT_DEBUG", "1")
    assert command_line.main(["fake"]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["models", "list"]], ids=" ".join)
def test_a_closed_pipe_is_quiet(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    result = _into(write, *arguments)
    os.close(write)
    assert (result.returncode, result.stderr) == (command_line.PIPE_CLOSED, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["models", "list"]], ids=" ".join)
def test_a_full_disk_is_said_in_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        result = _into(full.fileno(), *arguments)
    said = "clusterwright: the output cannot be written: No space left on device\n"
    assert (result.returncode, result.stderr) == (2, said)


def test_a_closed_output_is_no_error() -> None:
    result = subprocess.run(
        ["sh", "-c", '"$0" "$1" models list >&-', sys.executable, str(ROOT / "cli.py")],
        stderr=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


def _into(output: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )


def test_it_runs_from_a_folder_with_a_hostile_package(tmp_path: Path) -> None:
    for name in ("models", "hardware_catalog", "planner_data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('imported the wrong package')")
    (tmp_path / "cli.py").write_text("raise SystemExit('ran the wrong program')")
    result = subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), "models", "list"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "llama3-70b" in result.stdout
