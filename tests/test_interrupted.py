"""Ctrl-C during a search: the best plan so far, marked as not proven, and exit code 130."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import planner
from planner.base import stopping
from planner.commands import command_line
from planner.commands.asked_questions import summary
from planner.mixed import dependence, pool_subsets
from planner.question.job_pools import JobPool
from planner.report import plans
from planner.search import costing, waves

ASKED = ["plan", "llama3-8b", "--cluster", "dgx-h100:1", "--batch", "64", "--pin", "tp=1|2|4,recompute=none|full"]


@pytest.fixture(autouse=True)
def ctrl_c_is_python_s() -> Iterator[None]:
    """A test runner's workers may ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_during_the_search_prints_the_best_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def one_row(block: object) -> int:
        if not stopping.asked():
            os.kill(os.getpid(), signal.SIGINT)
        return 1

    monkeypatch.setattr(costing, "rows_per_chunk", one_row)
    kept = tmp_path / "plan.json"
    assert command_line.main([*ASKED, "--json", "-o", str(kept)]) == 130
    search = json.loads(capsys.readouterr().out)["search"]
    assert search["method"].endswith(", stopped") and not search["proven_optimal"]
    assert "levers" not in search
    assert summary(kept, 0)[1].endswith(", search stopped")
    assert "stopped: the best so far of " in str(plans.of_set(planner.load(kept), "").sections[0])  # type: ignore[arg-type]


def test_ctrl_c_during_the_levers_prints_the_best_without_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = waves._waves

    def interrupted(levers: waves.Levers) -> Iterator[tuple[str, tuple[str, ...]]]:
        os.kill(os.getpid(), signal.SIGINT)
        return tables(levers)

    monkeypatch.setattr(waves, "_waves", interrupted)
    assert command_line.main(ASKED) == 130
    shown = capsys.readouterr().out
    assert shown.count("Recommended") == 1
    assert "Search         stopped: the best so far of " in shown and ", not proven: another may be up to " in shown


def test_ctrl_c_over_several_pools_prints_the_best_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the pools by themselves: no set of several is searched, so nothing bounds what they would reach."""
    sets = pool_subsets.pool_sets

    def interrupted(pools: Sequence[JobPool]) -> list[tuple[JobPool, ...]]:
        if not stopping.asked():
            os.kill(os.getpid(), signal.SIGINT)
        return sets(pools)

    monkeypatch.setattr(pool_subsets, "pool_sets", interrupted)
    monkeypatch.setattr(dependence, "_otherwise", lambda *_: pytest.fail("other software was tried after Ctrl-C"))
    assert command_line.main(["plan", "gpt2", "--cluster", "dgx-v100:1", "--cluster", "t4-4:1", "--batch", "64"]) == 130
    shown = capsys.readouterr().out
    assert "Search         stopped: the best so far of " in shown and ", not proven: what is left has no bound" in shown
    assert "excluded: all 1 x t4-4: the search was stopped" in " ".join(shown.split())


@pytest.mark.parametrize("launchable", [False, True])
def test_progress_over_several_pools_ends_whole_and_names_the_best(launchable: bool) -> None:
    """Two pools and three sets of them; the first pool by itself counts nothing."""
    done = [0.0]
    notes = []

    def advance(n: float, note: str = "") -> None:
        done.append(done[-1] + n)
        notes.append(note)

    vars(advance)["notes"] = True

    @contextmanager
    def progress(what: str, total: float | None) -> Iterator[Callable[[int], None]]:
        assert (what, total) == ("search", 4) or what == "other software"
        yield advance if what == "search" else lambda n: None

    planner.plan("gpt2", ["dgx-v100:1", "t4-4:1"], batch=64, launchable=launchable, progress=progress)
    assert done[-1] == 4
    assert any(note.startswith("best ") and note.endswith("trying dgx-v100 + t4-4") for note in notes) != launchable


def test_a_second_ctrl_c_ends_the_program() -> None:
    with pytest.raises(KeyboardInterrupt), stopping.best_so_far() as asked:
        os.kill(os.getpid(), signal.SIGINT)
        assert asked()
        os.kill(os.getpid(), signal.SIGINT)
    assert not stopping.asked()


def test_procure_says_that_it_was_stopped_before_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While jobs are still planned on machines nothing can be shown."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.procurement.run.procure", interrupted)
    asked = ["procure", "--model", "llama3-8b", "--tokens", "2T", "--budget", "$5M", "--deadline", "60d", "--quick"]
    assert command_line.main(asked) == 130
    assert "stopped before there was an answer" in capsys.readouterr().err
