"""All that ``--json`` prints of fits, models, the catalog and written files is as the published schemas say."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import right_files, training_logs
from tests.asking import ask
from tests.plans import plans
from tests.test_docs import generate
from tests.test_killed import CONFIG
from tests.test_plan_schema import plan_schema, wrong

LINES = {
    "fit llama3-8b --most 1 --seq 2k": "fit",
    "fit --on RTX-4090:1 --top 2 --seq 2k --method lora": "fit",
    "fit llama3.1-8b --task grpo --response 1k/4k --on H100": "rl-fit",
    "models list": "model-list",
    "models show deepseek-v3": "model",
    "models show nemotron3-nano-30b-a3b": "model",
    "models show resnet50": "model",
    "models show dlrm-criteo1tb": "model",
    "models import config.json": "model",
    "models layers mixtral-8x7b --tp 2 --ep 4 --dp 8": "model-layers",
    "models layers resnet50": "model-layers",
    "models layers workload.txt": "text-workload",
    "catalog list": "catalog-overview",
    "catalog list node": "catalog-list",
    "catalog list runtimes --catalog own": "catalog-list",
    "catalog check": "catalog-check",
    "catalog check own": "catalog-check",
    "catalog import-prices aws": "catalog-import",
    "catalog stale": "catalog-stale",
    "export plan.json --to megatron+slurm -o job": "export",
    "export plan.json --to megatron+slurm --benchmark -o measured": "export",
    "export --to list": "export-targets",
    "profile import layers.csv --model opt-350m -o layers": "profile-import",
    "learn --share shared.csv --yes --site lab": "shared-runs",
    "learn train.log --dry-run": "lesson-preview",
    "runs list --site lab": "site-runs",
    "learn rl.log --plan rl.json --site lab": "rl-lesson",
}
"""What is asked, without ``--json`` -> the schema of what is printed."""
ENTRIES = (
    "accelerators/H100-SXM5-80GB",
    "dgx-h100",
    "efa-v3",
    "us-east-1",
    "runtimes/megatron-core",
    "accelerator_efficiencies/H100-PCIE-80GB",
    "runtime_efficiency/megatron-core",
    "collective_efficiencies/A100-SXM4-80GB/all-reduce",
    "fabric_efficiency/default",
)
OPTIONAL = ("price", "hours_low", "hours_high")
"""Keys of rows that older documents lack."""
ELSEWHERE = (
    "calibrate", "comm choose", "comm import", "comm show", "comm tune", "compare", "design", "estimate",
    "explain", "import", "plan", "procure", "validate",
)  # fmt: skip
"""Commands whose documents ``load`` reads again: other tests hold those to their schemas."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the questions read."""
    place = tmp_path_factory.mktemp("files")
    texts = {
        "own/nodes/lab.toml": '[lab]\nname = "Lab"\nkind = "servr"\n',
        "renamed/nodes/lab.toml": '[lab]\nextends = "dgx-h100"\nname = "Lab"\n',
        "aws/vms.csv": right_files.PRICES.replace("p5.48xlarge,H100,8", "p5.48xlarge,H100,4"),
        "layers.csv": "".join([right_files.PROFILE_HEADER, *right_files.PROFILE_ROWS]),
        "plan.json": plans("mixture").to_json(),
        "config.json": json.dumps(CONFIG),
        "train.log": "\n".join(training_logs.megatron()),
    }
    for name, text in texts.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")
    return place


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The document that a question prints, and what the schema of a kind says against it."""
    monkeypatch.chdir(folder)

    def document(line: str) -> dict[str, Any]:
        answer = ask(capsys, f"{line} --json")
        assert answer.out, answer.err
        found: dict[str, Any] = json.loads(answer.out)
        return found

    return document


@pytest.mark.parametrize(("line", "kind"), LINES.items())
def test_what_is_printed_is_as_its_schema_says(line: str, kind: str, asked: Any, capsys: Any) -> None:
    if "workload.txt" in line:
        ask(capsys, "models layers gpt2 --tp 2 --dp 8 -o workload.txt --force")
    if "learn" in line or "--site lab" in line:
        ask(capsys, "init site lab")
        ask(capsys, "learn --step-time 4.31s --plan plan.json --rank 1 --site lab")
    if "rl.json" in line:
        stated = "--placement colocated recompute=full --task grpo --response 1k/4k"
        ask(capsys, f"estimate llama3.1-8b --cluster dgx-h100:2 {stated} -o rl.json --force")
        Path("rl.log").write_text("step:1 - timing_s/gen:99.0 - timing_s/update_actor:80\n" * 3, encoding="utf-8")
    found = asked(line)
    assert wrong(found, kind) == [] and found["kind"] == kind
    always = [key for key in found if key != "recommended" and kind != "catalog-list"]
    for key in {"kind", "schema_version", *always[-1:]}:
        assert wrong({name: value for name, value in found.items() if name != key}, kind), key
    assert wrong({**found, "more": 1}, kind) and wrong({**found, "schema_version": 3}, kind)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_kind_of_entry_is_as_the_schema_says(entry: str, asked: Any) -> None:
    found = asked(f"catalog show {entry}")
    assert wrong(found, "catalog-entry") == [] and found["kind"] == "catalog-entry"
    assert entry.endswith(found["entry"]["id"])
    del found["entry"]["source"]
    assert wrong(found, "catalog-entry")


@pytest.mark.slow
def test_rows_are_guarded(asked: Any) -> None:
    """Inside of lists, too: a key that is missing, and one of another type."""
    for line, kind, rows in (
        ("catalog stale", "catalog-stale", "prices"),
        ("catalog check own", "catalog-check", "problems"),
        ("catalog import-prices aws", "catalog-import", "mended"),
        ("models list", "model-list", "models"),
        ("models layers gpt2", "model-layers", "layers"),
        ("fit llama3-8b --most 1 --seq 2k", "fit", "fits"),
        ("profile import layers.csv --model opt-350m -o layers", "profile-import", "profiles"),
    ):
        found = asked(line)
        assert found[rows], line
        for key in found[rows][0]:
            less, other = copy.deepcopy(found), copy.deepcopy(found)
            del less[rows][0][key]
            other[rows][0][key] = object
            assert wrong(other, kind) and (wrong(less, kind) or key in OPTIONAL), f"{line}: {key}"


def test_every_command_that_prints_json_has_a_schema() -> None:
    printing = {
        path.removeprefix("clusterwright ")
        for path, text in generate.all_commands()
        if re.search(r"^ +--json\b", text, re.MULTILINE)
    }
    here = {command for command in printing if any(f"{line} ".startswith(f"{command} ") for line in LINES)}
    as_listed = {f"runs {command}" for command in ("show", "edit", "remove", "undo", "merge")}
    assert printing - here - {"catalog show"} - as_listed == set(ELSEWHERE)
    assert {*LINES.values(), "catalog-entry"} == plan_schema.printed().keys()
    assert {path.name.partition(".")[0] for path in plan_schema.SCHEMAS.iterdir()} == (
        plan_schema.kinds().keys() | plan_schema.printed().keys()
    )
