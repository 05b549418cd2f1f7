"""Documents that schema version 1 wrote are read for good: as what they say, and as the same documents of today."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from planner import catalog, verify
from planner.planning import document
from planner.schema.plan import Plan, PlanSet
from planner.schema.procurement import Procurement
from planner.schema.versions import of_version_1
from tests.asking import ask

FOLDER = Path(__file__).parent / "data" / "plans_version_1"
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.json"))}


def plans_of(name: str) -> list[Plan]:
    """Every plan in a document, with those that it continues with."""
    answer: PlanSet | Plan | Procurement
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # A document that is not as it was written would warn.
        answer = document.load_any(FILES[name])
    if isinstance(answer, Plan):
        return [answer]
    if isinstance(answer, PlanSet):
        return [*answer.plans, *(case.plan for case in answer.contingency or ())]
    return [job.plan for alternative in answer.alternatives for job in alternative.workloads]


def test_folder_is_whole() -> None:
    """The page of the folder says how each file was made."""
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(FILES) == 18
    assert [name for name in FILES if f"-o {name}.json" not in page] == []


def test_makers_follow_from_names_of_accelerators() -> None:
    """Version 1 does not say who makes an accelerator; its name does, for every maker that launchers know."""
    for name, accelerator in catalog.load().accelerators.items():
        plan = {"schema_version": 1, "cluster": {"pools": [{"accelerator": name}]}}

        (pool,) = of_version_1(plan)["cluster"]["pools"]
        assert pool["vendor"] == ("" if accelerator.vendor == "Tesla" else accelerator.vendor), name


def test_documents_are_read_and_hold() -> None:
    for name, path in FILES.items():
        plans = plans_of(name)

        assert json.loads(path.read_text(encoding="utf-8"))["schema_version"] == 1, name
        assert plans, name
        for plan in plans:
            verify.check(plan, may_exceed_limits=True)


@pytest.mark.slow
def test_documents_written_again_give_the_same_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Explained, compared and exported, a document of version 1 and its copy of today answer with the same bytes."""
    differing = []
    exported = 0

    for name, path in FILES.items():
        answers: list[dict[str, Any]] = []
        for copy, text in (("old", path.read_text(encoding="utf-8")), ("new", document.load_any(path).to_json())):
            folder = tmp_path / name / copy
            folder.mkdir(parents=True)
            monkeypatch.chdir(folder)
            Path("plan.json").write_text(text, encoding="utf-8")
            answers.append({line: ask(capsys, line) for line in _questions(name)} | _exported(capsys))
        exported += len(answers[0]) > 6
        if answers[0] != answers[1]:
            differing.append(name)

    assert differing == []
    assert exported > 10


def _questions(name: str) -> list[str]:
    if name == "offer":
        return ["explain plan.json", "explain plan.json --workload llama3-8b"]
    return ["explain plan.json", f"compare plan.json {FILES['offload']}", "comm show plan.json"]


def _exported(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What export to torchrun says, and the text of each of its files but the document itself."""
    answer = ask(capsys, "export plan.json --to torchrun+slurm -o job")
    files = [path for path in Path("job").rglob("*") if path.is_file() and path.name != "plan.json"]
    return {"export": answer} | {str(path): path.read_text(encoding="utf-8") for path in files}
