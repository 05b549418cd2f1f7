"""Figures that no file should hold: each was once a crash, a hang or minutes of work, and is now one line."""

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.asking import ask
from tests.sweeps import sweep

KEPT = Path(__file__).parent / "golden" / "plans" / "1" / "pools.json"
RUNS = Path(__file__).parents[1] / "benchmarks" / "data" / "measured_runs.csv"
QWEN = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
}


pytestmark = pytest.mark.usefixtures("folder")


def edited(path: str, value: object) -> str:
    """A file with one leaf of the first plan replaced."""
    document = json.loads(KEPT.read_text(encoding="utf-8"))
    *outer, last = path.split(".")
    place: Any = document["plans"][0]
    for key in outer:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[last] = value
    Path("plan.json").write_text(json.dumps(document), encoding="utf-8")
    return "explain plan.json"


@sweep(
    ("path", "value", "says"),
    [
        ("prediction.memory.total_bytes", 0, "memory.total_bytes is 0"),
        ("prediction.intervals.memory_bytes.high", 0.0, "intervals.memory_bytes.high is 0"),
        ("prediction.intervals.memory_bytes.high", 5e-324, "intervals_are_ordered"),
        ("cluster.fabric.oversubscription", 0, "cluster.fabric.oversubscription is 0"),
        ("batch.micro", 10**400, "batch.micro is beyond"),
        ("workload.tokens", float("1e200"), "workload.tokens is beyond"),
    ],
)
def test_a_figure_of_a_plan(capsys: pytest.CaptureFixture[str], path: str, value: object, says: str) -> None:
    answer = ask(capsys, edited(path, value))
    assert answer.code == 2
    assert any(each in answer.err for each in says.split("|")), answer.err


@sweep("dense", [[0, "1"], ["10 Gbit/s", 1], [[0]], [True], [None]])
def test_layers_that_are_no_numbers(capsys: pytest.CaptureFixture[str], dense: list[object]) -> None:
    Path("config.json").write_text(json.dumps({**QWEN, "mlp_only_layers": dense}), encoding="utf-8")
    answer = ask(capsys, "models show config.json")
    assert (answer.code, "mlp_only_layers" in answer.err) == (2, True)


@sweep("layers", ["100000000", "99999999999999999999"])
@sweep("more", ["", "--num-experts 8", "--num-experts 8 --moe-layer-freq 2"])
def test_more_layers_than_can_be_looked_at(capsys: pytest.CaptureFixture[str], layers: str, more: str) -> None:
    Path("x").write_text(f"--num-layers {layers} --hidden-size 1024 --num-attention-heads 16 {more}", encoding="utf-8")
    answer = ask(capsys, "import x --from megatron --cluster dgx-h100:1")
    assert (answer.code, f"--num-layers {layers}: at most 10,000" in answer.err) == (2, True)


def test_layers_of_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.json").write_text(json.dumps({**QWEN, "num_hidden_layers": 99_999_999}), encoding="utf-8")
    answer = ask(capsys, "models show config.json")
    assert (answer.code, "from 1 to 10,000" in answer.err or "at most 10,000" in answer.err) == (2, True)


def test_an_option_that_lacks_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    text = "--training.seq_len 8 --parallelism.pipeline_parallel_schedule --training.steps 5"
    Path("x").write_text(text, encoding="utf-8")
    answer = ask(capsys, "import x --from torchtitan --cluster dgx-h100:1 --model llama3-8b")
    assert (answer.code, "pipeline_parallel_schedule: needs a value" in answer.err) == (2, True)


@sweep("tokens", ["1e-308", "0.5", "0"])
def test_less_than_a_token(capsys: pytest.CaptureFixture[str], tokens: str) -> None:
    answer = ask(capsys, f"estimate llama3-8b --cluster dgx-h100:1 --tokens {tokens}")
    assert (answer.code, "from 1 to 1e18" in answer.err) == (2, True)


@sweep("column", ["ffn_hidden", "global_batch_seqs", "micro_batch", "seq_len", "num_accelerators", "vocab"])
def test_a_cell_of_measured_runs(capsys: pytest.CaptureFixture[str], column: str) -> None:
    with RUNS.open(encoding="utf-8", newline="") as text:
        rows = csv.DictReader(text)
        row = next(row for row in rows if row["tp"] and row["micro_batch"])
    with Path("runs.csv").open("w", encoding="utf-8", newline="") as text:
        writer = csv.DictWriter(text, list(row))
        writer.writeheader()
        writer.writerow({**row, column: "1e308"})
    assert ask(capsys, "validate runs.csv").code in (0, 1, 2)


ENTRIES = 4000
SHIPPED = 'extends = "dgx-h100"'
MANY = {
    "unknown keys": ('[n{n}]\nname = "x"\nwrong = 1\n', "n3999.wrong: unknown key"),
    "nothing to extend": ('[n{n}]\nextends = "m{n}"\n', 'n3999.extends = "m3999": no such entry'),
    "nothing to refer to": (f'[n{{n}}]\n{SHIPPED}\nrented_as = "m{{n}}"\n', 'n3999.rented_as = "m3999": no such node'),
}  # fmt: skip


@pytest.mark.slow
@sweep("kind", MANY)
def test_many_wrong_entries_are_read_in_time_in_proportion(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every problem was looked up by walking the whole file, and every name was compared with all others: minutes."""
    entry, says = MANY[kind]
    Path("mine/nodes").mkdir(parents=True, exist_ok=True)  # cases share the folder
    Path("mine/nodes/nodes.toml").write_text("".join(entry.format(n=n) for n in range(ENTRIES)), encoding="utf-8")
    began = time.process_time()
    answer = ask(capsys, "catalog check mine")
    assert time.process_time() - began < 10
    assert answer.code == 2
    assert says in answer.out + answer.err


@pytest.mark.slow
def test_entries_that_extend_each_other_may_be_many(capsys: pytest.CaptureFixture[str]) -> None:
    """Each was filled by a call within that of the one before: the thousandth was one too many."""
    Path("mine/nodes").mkdir(parents=True)
    chain = [f'[n{n}]\nextends = "n{n - 1}"\n' for n in range(ENTRIES, 0, -1)]
    Path("mine/nodes/nodes.toml").write_text("".join([*chain, f"[n0]\n{SHIPPED}\n"]), encoding="utf-8")
    assert ask(capsys, "catalog check mine").code == 0
    Path("mine/nodes/nodes.toml").write_text("".join([*chain, f'[n0]\nextends = "n{ENTRIES}"\n']), encoding="utf-8")
    answer = ask(capsys, "catalog check mine")
    assert answer.code == 2
    assert "extends itself" in answer.out + answer.err
