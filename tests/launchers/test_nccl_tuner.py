"""NVIDIA's example tuner plugin, asked what it chooses by an exported table.

``NCCL_TUNER`` names its shared object, or the folder of its source, which is then compiled here with gcc.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from planner.launchers import bundle, nccl_tuner, parts
from tests.launchers.conformance import kept
from tests.launchers.environments import given
from tests.launchers.spread import chosen_plan, expressible

ALGORITHMS, PROTOCOLS = len(nccl_tuner.ALGORITHMS), len(nccl_tuner.PROTOCOLS)
UNTOUCHED, IMPOSSIBLE = 1000.0, -1.0


class Plugin(ctypes.Structure):
    """``ncclTuner_v5_t``, up to what is called here."""

    _fields_ = [("name", ctypes.c_char_p), ("init", ctypes.c_void_p), ("choose", ctypes.c_void_p)]


class Tuner:
    """The plugin with one table loaded."""

    def __init__(self, plugin: Plugin, nodes: int, ranks: int) -> None:
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        self.context = pointer()
        init = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_uint64, size, size, pointer, pointer, pointer)
        assert init(plugin.init)(ctypes.addressof(self.context), 0, ranks, nodes, None, None, None) == 0
        asked = (pointer, ctypes.c_int, size, ctypes.c_int, pointer, ctypes.c_int, ctypes.c_int, ctypes.c_int, pointer)
        self.ask = ctypes.CFUNCTYPE(ctypes.c_int, *asked)(plugin.choose)

    def choice(self, collective: str, size: int, impossible: tuple[str, str] | None = None) -> tuple[str, str] | None:
        """The algorithm and protocol that it makes cheapest; None where it leaves the choice to NCCL."""
        table = (ctypes.c_float * (ALGORITHMS * PROTOCOLS))(*[UNTOUCHED] * (ALGORITHMS * PROTOCOLS))
        if impossible is not None:
            algorithm, protocol = (
                names.index(name)
                for names, name in zip((nccl_tuner.ALGORITHMS, nccl_tuner.PROTOCOLS), impossible, strict=True)
            )
            table[algorithm * PROTOCOLS + protocol] = IMPOSSIBLE
        kind, channels = nccl_tuner.COLLECTIVES.index(collective), ctypes.c_int()
        at = ctypes.addressof(channels)
        assert self.ask(self.context, kind, size, 1, ctypes.addressof(table), ALGORITHMS, PROTOCOLS, 0, at) == 0
        chosen = [n for n, cost in enumerate(table) if cost not in (UNTOUCHED, IMPOSSIBLE)]
        if not chosen:
            return None
        (best,) = chosen
        return nccl_tuner.ALGORITHMS[best // PROTOCOLS], nccl_tuner.PROTOCOLS[best % PROTOCOLS]


@cache
def shared_object() -> str:
    """The compiled plugin; skips where there is neither it nor its source and a compiler."""
    path = Path(os.environ.get("NCCL_TUNER", ""))
    if path.is_file():
        return str(path)
    source, gcc = path / "plugin.c", shutil.which("gcc")
    if not source.is_file() or gcc is None:
        pytest.skip("NCCL_TUNER names neither NCCL's example tuner plugin nor its source (with gcc to compile it)")
    made = Path(tempfile.mkdtemp()) / "plugin.so"
    words = [gcc, "-shared", "-fPIC", "-I", str(path), "-I", str(path / "nccl"), str(source), "-o", str(made)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(made)


@contextmanager
def tuner(text: str, folder: Path, nodes: int = 4, ranks: int = 32) -> Iterator[Tuner]:
    path = shared_object()
    (folder / nccl_tuner.NAME).write_text(text, encoding="utf-8")
    before = os.environ.get("NCCL_TUNER_CONFIG_FILE")
    os.environ["NCCL_TUNER_CONFIG_FILE"] = str(folder / nccl_tuner.NAME)
    try:
        yield Tuner(Plugin.in_dll(ctypes.CDLL(path), "ncclTunerPlugin_v5"), nodes, ranks)
    finally:
        del os.environ["NCCL_TUNER_CONFIG_FILE"]
        if before is not None:
            os.environ["NCCL_TUNER_CONFIG_FILE"] = before


def test_it_chooses_what_the_plan_says(tmp_path: Path) -> None:
    plans = expressible("nccl-tuner")
    assert len(plans) >= 30
    for asked, whole in plans:
        made = bundle(whole, parts("torchrun+nccl-tuner"), given("torchrun+nccl-tuner"))
        with tuner(made.files[nccl_tuner.NAME], tmp_path) as real:
            for rule in whole.communication:
                wanted = (rule.algorithm, rule.protocol)
                end = int(rule.bytes_max)
                for size in (int(rule.bytes_min), (int(rule.bytes_min) + end) // 2, end):
                    assert real.choice(nccl_tuner.collective(rule), size) == wanted, f"{asked}: {rule.op} {size}"
            beyond = max(int(rule.bytes_max) for rule in whole.communication) + 1
            assert real.choice("allreduce", beyond) is None, asked
            assert real.choice("broadcast", 1024) is None, asked
    choices = max(3 * len(whole.communication) + 2 for _, whole in plans)
    kept("nccl-tuner", plans=len(plans), fields=choices, refused=0)


def test_it_takes_every_wrong_word(tmp_path: Path) -> None:
    """Why the exporter checks every token: the plugin would turn these into others."""
    for row, became in (
        ("allreduce,0,1000,rong,simple,-1,-1,-1", ("ring", "simple")),
        ("allreduce,0,1000,tree,ll256,-1,-1,-1", ("tree", "simple")),
        ("alltoall,0,1000,tree,ll,-1,-1,-1", ("tree", "ll")),
    ):
        with tuner(row + "\n", tmp_path) as real:
            assert real.choice("allreduce", 10) == became, row


def test_ranks_and_choices_of_a_real_plan_reach_it(tmp_path: Path) -> None:
    """Rules as ``comm choose`` writes them: every call gets what the plan says, a group of another size nothing."""
    whole = chosen_plan()
    told = whole.communication_choice
    assert told is not None
    made = bundle(whole, parts("torchrun+nccl-tuner"), given("torchrun+nccl-tuner"))
    asked = [call for call in told.calls if " " in call.choice]
    assert {call.op for call in asked} >= {"all-gather", "reduce-scatter"}
    for call in asked:
        name = call.op.replace("-", "")
        with tuner(made.files[nccl_tuner.NAME], tmp_path, nodes=1, ranks=call.ranks) as real:
            assert real.choice(name, int(call.bytes)) == tuple(call.choice.split(" ")[1].split("/"))
        with tuner(made.files[nccl_tuner.NAME], tmp_path, nodes=1, ranks=call.ranks + 1) as real:
            assert real.choice(name, int(call.bytes)) is None


def test_it_says_nothing_of_what_nccl_has_not(tmp_path: Path) -> None:
    """Why combinations are checked: the plugin leaves a cost that NCCL marked as impossible as it is."""
    with tuner("allgather,0,1000,tree,ll,-1,-1,-1\n", tmp_path) as real:
        assert real.choice("allgather", 10, impossible=("tree", "ll")) is None
