"""``release_check.py``: a job stops before it starts where its program is of a release that nobody tried."""

import subprocess
import sys
from pathlib import Path

import pytest

from planner.launchers import EXPORTERS, bundle, parts
from planner.schema.launcher_table import launcher_table
from tests.launchers.environments import given
from tests.launchers.spread import Case, plan

H100 = "dgx-h100:2"


def checked(folder: Path, target: str, case: Case, **more: str) -> subprocess.CompletedProcess[str]:
    """The check of an exported job, run in a folder that holds what the launcher's release is read from."""
    files = bundle(plan(case), parts(target), given(target.partition("+")[0]) | more).files
    (folder / "release_check.py").write_text(files["release_check.py"], encoding="utf-8")
    return subprocess.run([sys.executable, "release_check.py"], cwd=folder, capture_output=True, text=True)


def megatron(folder: Path, release: str) -> dict[str, str]:
    """A checkout that says a release, as the setting that names it."""
    said = "".join(f"{key} = {n}\n" for key, n in zip(("MAJOR", "MINOR", "PATCH"), release.split("."), strict=True))
    path = folder / "megatron" / "core" / "package_info.py"
    path.parent.mkdir(parents=True)
    path.write_text(said, encoding="utf-8")
    return {"megatron-lm": str(folder)}


@pytest.mark.parametrize(
    ("release", "says"),
    [
        ("0.16.1", ""),
        ("0.18.2", ""),  # between those that were tried
        ("0.15.3", "Megatron-LM 0.15.3 is installed, and this job was written for and tried with 0.16.1, 0.20.0"),
        ("0.14.0", "it has no --exit-signal (since 0.16)"),
        ("0.21.0", "0.21.0 is installed"),
    ],
)
def test_another_release_stops_the_job_with_both_figures(release: str, says: str, tmp_path: Path) -> None:
    case = Case("megatron-core", "llama3-8b", H100, "tp=2")

    done = checked(tmp_path, "megatron+slurm", case, **megatron(tmp_path, release))

    assert (done.returncode, says in done.stderr) == (1 if says else 0, True), done.stderr


def test_a_release_between_the_tried_ones_may_lack_an_option(tmp_path: Path) -> None:
    """FlashAttention's version is an option since core_v0.19."""
    case = Case("megatron-core", "llama3-8b", H100, "tp=2 attention_kernel=flash-3")

    done = checked(tmp_path, "megatron", case, **megatron(tmp_path, "0.18.2"))

    assert "it has no --flash-attention-version (since 0.19)" in done.stderr


OVERLAPPED = "--overlap-moe-expert-parallel-comm with --use-megatron-fsdp"


def test_options_that_go_together_since_a_release_ask_for_it(tmp_path: Path) -> None:
    """Experts' exchanges overlap under Megatron-FSDP since core_v0.18; each option alone is of core_v0.14."""
    case = Case("megatron-core", "qwen3-30b-a3b", H100, "ep=8 zero=2 ep_overlap=on")

    done = checked(tmp_path, "megatron", case, **megatron(tmp_path, "0.17.1"))
    made = bundle(plan(case), parts("megatron+skypilot"), given("megatron")).files

    assert f"it has no {OVERLAPPED} (since 0.18)" in done.stderr
    assert f"Megatron-LM has to be 0.18 or later: {OVERLAPPED}" in made["README"]
    assert "--branch core_v0.18.0 " in "".join(made.values())


def test_the_check_continues_when_told_and_where_nothing_says_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("megatron-core", "llama3-8b", H100, "tp=2")
    assert checked(tmp_path, "megatron", case).returncode == 0

    monkeypatch.setenv("RELEASE_CHECK", "warn")
    done = checked(tmp_path, "megatron", case, **megatron(tmp_path, "0.21.0"))

    assert (done.returncode, "0.21.0 is installed" in done.stderr) == (0, True)


@pytest.mark.parametrize("name", [name for name, exporter in EXPORTERS.items() if exporter.role == "trainer"])
def test_options_that_came_with_a_release_are_written(name: str) -> None:
    """A letter too many would be looked for in vain."""
    table = launcher_table(name)
    for row in table.head.get("release", {}).values():
        named = {option for options in row.get("since", {}).values() for option in options}
        assert {name for option in named for name in option.split(" with ")} <= table.options.keys()
