"""The published JSON Schemas describe what the program writes, and nothing else."""

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest

from planner import verify
from planner.base import resources
from planner.base.errors import WrongQuestion
from planner.planning import document
from planner.planning.comparison import compare
from planner.schema import plan_layout
from planner.schema.reports import Comparison
from tests.asking import ask
from tests.plans import QUESTIONS, plans
from tests.sources import page_script
from tests.sweeps import sweep

ROOT = Path(__file__).resolve().parent.parent


plan_schema = page_script("plan_schema")
LATER = {
    "SiteSection": {"memory_runs"},
    "Prediction": {"own_runs", "text_batches", "passes"},
    "MemorySection": {"oom_risk", "oom_chance", "expanded", "by_stage", "graph_inputs_bytes", "host"},
    "GroupStage": {"held"},
    "SearchSection": {"levers"},
    "FabricSection": {"dimensions"},
    "AskedPlans": {"settings"},
    "Plan": {"communication_choice", "waived", "measured", "nearest_runs", "offloaded"},
    "Axes": {*plan_layout.NEUTRAL, "nodes", *plan_layout.SPELT},
    "PlanSet": {
        "asked",
        "contingency",
        "differences",
        "measured",
        "question",
        "recommended",
        "site",
        "shortlist",
        "usual",
    },
    "WorkloadSection": {"mtp_layers", "imbalance", "task", "texts"},
    "Parallelism": {"cp_exchanging"},
    "RuntimeSection": {"balances_head", "places_head", "cuts_by_work", "chunked_loss", "offload_needs_zero", "older"},
    "Stage": {"chunks"},
    "Pool": {
        "attention_kernels",
        "changed",
        "dispatchers",
        "offered",
        "network",
        "expanded",
        "preemptions_per_node_s",
        "restart_s",
    },
    "PoolBought": {"offer"},
    "PriceUsed": {"offers"},
    "CommunicationRule": {"ranks", "pools"},
    "CallChoice": {"pools"},
    "CommunicationChoice": {"switch_s", "launcher", "sms"},
    "Reasons": {"other_software", "beyond_launchers"},
}
"""Record -> fields that documents written before they existed do not have."""


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def wrong(data: Any, name: str = "plan-set") -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(data)]


@cache
def _written(name: str) -> dict[str, Any]:
    return document.dump(plans(name))


def written(name: str = "mixture") -> dict[str, Any]:
    """What a file holds of one of the questions."""
    return copy.deepcopy(_written(name))


@pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 13),
    reason="before 2.13, pydantic leaves out what named parts of a schema are",
)
def test_the_published_pages_are_current() -> None:
    pages = plan_schema.pages()
    assert not [path for path, text in pages.items() if path.read_text(encoding="utf-8") != text], "run `make docs`"


@pytest.mark.parametrize("name", ["plan", "plan-set"])
def test_no_record_takes_unknown_keys_and_all_keys_are_there(name: str) -> None:
    schema = validator(name).schema
    for record in [schema, *schema["$defs"].values()]:
        assert record["additionalProperties"] is False
        newer = {"digest"} | LATER.get(record["title"], set())
        assert record["required"] == [key for key in record["properties"] if key not in newer]


@sweep("name", QUESTIONS, every=2, ci=2)
def test_what_is_written_is_valid(name: str) -> None:
    data = written(name)
    assert wrong(data) == []
    for plan in data["plans"]:
        assert wrong(plan, "plan") == []
        assert document.dump(document.parse(plan, "here")) == plan
    assert wrong(data, "plan") != []


def test_names_are_those_of_the_document() -> None:
    axes = validator("plan").schema["$defs"]["Axes"]["properties"]
    assert list(document.dump(plans("mixture"))["plans"][0]["axes"]) == list(axes)


def _objects(data: Any, path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in a document that is a record (and no table from names to figures)."""
    if isinstance(data, list):
        for index, item in enumerate(data[:1]):
            yield from _objects(item, f"{path}[{index}]")
    elif isinstance(data, dict):
        free = "inputs peak_flops method optimizer shape env breakdown intervals gains meta pins"
        if path.rpartition(".")[2] not in (*free.split(), "bytes_per_parameter"):
            yield path, data
            for key, value in data.items():
                yield from _objects(value, f"{path}.{key}")


@pytest.mark.slow
def test_every_record_is_guarded() -> None:
    """An unknown key, a missing one, and one of another type: the schema and the program both refuse it."""
    paths = [path for path, _ in _objects(_written("mixture"))]
    assert len(paths) > 20
    for path, corrupt in product(paths, (_unknown, _missing, _other_type)):
        data = written()
        corrupt(dict(_objects(data))[path])
        assert wrong(data), f"{path}: {corrupt.__name__}"
        with pytest.raises(WrongQuestion):
            document.parse(data, "here")


def _unknown(record: dict[str, Any]) -> None:
    record["no_such_key"] = 1


ADDED = {"zone", "offered", "links", "groups", "prices", "gap"}
"""Keys that version 1 gained later: documents written before them are still read."""
AXES_ADDED = {*plan_layout.NEUTRAL, "nodes", *plan_layout.SPELT}
"""Axes that a plan may leave out where it does not use them, as one written before they existed does."""


def _missing(record: dict[str, Any]) -> None:
    # kind and schema_version are what the others are read by; a record always has another.
    optional = (
        ADDED
        | AXES_ADDED
        | {
            "offers",
            "question",
            "places_head",
            "by_stage",
            "held",
            "cuts_by_work",
            "chunks",
            "nearest_runs",
            "levers",
            "usual",
        }
    )
    del record[[key for key in record if key not in optional][-1]]


def test_documents_written_before_a_key_was_added_are_read() -> None:
    data = written()
    for _, record in list(_objects(data)):
        for key in (ADDED | AXES_ADDED - {"ep_overlap", "nodes"}) & record.keys():
            del record[key]
    assert document.parse(data, "here") == document.parse(written(), "here")


def _other_type(record: dict[str, Any]) -> None:
    record[list(record)[-1]] = [["not", "this"]] if not isinstance(list(record.values())[-1], list) else "not this"


@sweep(
    "corrupt",
    [
        lambda plan: plan["axes"].update(micro="2"),
        lambda plan: plan["axes"].update(micro=1.5),
        lambda plan: plan["axes"].update(zero=4),
        lambda plan: plan["axes"].update(schedule="gpipe"),
        lambda plan: plan["axes"].update(sequence_parallel="yes"),
        lambda plan: plan["axes"].update(dispatcher=None),
        lambda plan: plan["axes"].update(ep_overlap=0),
        lambda plan: plan["axes"].update(offload_overlap="on"),
        lambda plan: plan["axes"].update(placement=["optimizer"]),
        lambda plan: plan["axes"].update(nodes="32"),
        lambda plan: plan["axes"].update(tensor=8),
        lambda plan: plan["parallelism"].update(tp=1),
        lambda plan: plan.update(axes=[]),
        lambda plan: plan["parallelism"].update(stages={}),
        lambda plan: plan["prediction"].update(step_time_s=None),
        lambda plan: plan["prediction"]["breakdown"].update(matrix="fast"),
        lambda plan: plan["cluster"].update(region=7),
        lambda plan: plan.update(schema_version=3),
        lambda plan: plan.update(kind="plan-set"),
    ],
)
def test_values_are_guarded(corrupt: Callable[[dict[str, Any]], object]) -> None:
    data = written()["plans"][0]
    corrupt(data)
    assert wrong(data, "plan")
    with pytest.raises(WrongQuestion):
        document.parse(data, "here")


def test_documents_from_before_the_risk_are_read() -> None:
    data = written()
    for plan in data["plans"]:
        memory = plan["prediction"]["memory"]
        del memory["oom_risk"], memory["oom_chance"], plan["prediction"]["intervals"]["memory_bytes"]
        del plan["runtime"]["bytes_per_parameter"]["update"]
        limit = next(k for k in plan["constraints"] if k["name"] == "memory")
        limit["limit"] = memory["capacity_bytes"]
        limit["slack"] = limit["limit"] - limit["value"]
        limit["binding"] = limit["slack"] <= 0.05 * limit["limit"]
    assert wrong(data) == []
    old = document.parse(data, "here")
    for plan in getattr(old, "plans", ()):
        verify.check(plan)


def test_a_comparison_is_valid_and_read_again() -> None:
    first, second = plans("mixture").plans[:2]
    found = compare(first, second)
    data = json.loads(found.to_json())
    assert wrong(data, "comparison") == []
    assert document.parse_answer(data, "here", {"comparison": Comparison}) == found
    assert wrong({**data, "usd": "much"}, "comparison") and wrong({**data, "more": 1}, "comparison")


def test_the_collectives_of_a_plan_are_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plans("mixture").to_json(), encoding="utf-8")
    data = json.loads(ask(capsys, f"comm show {file} --json").out)
    assert data["calls"] and wrong(data, "communication") == []
    del data["calls"][0]["alone_s"]
    assert wrong(data, "communication")


def test_a_validation_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of some of the shipped runs: predicted, not covered, out of memory."""
    rows = resources.runs().read_text(encoding="utf-8").splitlines(keepends=True)
    file = tmp_path / "runs.csv"
    file.write_text("".join([rows[0], *rows[1::120]]), encoding="utf-8")
    data = json.loads(ask(capsys, f"validate {file} --json").out)
    assert data["groups"] and data["not_covered"] and wrong(data, "validation") == []
    assert wrong({**data, "by": "day"}, "validation")
