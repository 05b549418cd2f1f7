"""The documents that plans are written as: their JSON Schemas, and the tables of fields in ``plan-schema.md``."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "planner" / "schema"
SOURCES = [SCHEMA / f"plan{part}.py" for part in ("_machines", "_layout", "_prediction", "")]
"""Of a plan's records, the plan itself last."""
OTHERS = [
    SCHEMA / f"{name}.py"
    for name in (
        *("procurement", "study", "images", "reports", "listings"),
        *("hardware", "efficiency", "workload"),
    )
]
SCHEMAS = ROOT / "docs" / "schemas"
PAGE = ROOT / "docs" / "plan-schema.md"
TABLES = re.compile(r"(<!-- fields -->\n).*(<!-- end of fields -->\n)", re.DOTALL)

SECTIONS = {
    "parallelism": "Parallelism",
    "batch": "Batch",
    "recompute": "RecomputeSection",
    "overlap": "Overlap",
}
"""Sections of a plan that hold axes in Python, and their records."""
UNITS = {
    r"preemptions_per_node_s": "1/s",
    r"peak_flops": "FLOP/s",
    r"model_flops": "FLOP",
    r".*bytes_per_s": "B/s",
    r"bytes_per_parameter": "B",
    r"(.*_)?bytes(_.*)?": "B",
    r"usd_per_hour": "USD/h",
    r"usd.*": "USD",
    r"tokens_per_usd": "1/USD",
    r"tokens_per_s": "1/s",
    r".*_s|breakdown": "s",
    r".*_w": "W",
    r".*_j": "J",
    r".*_kg": "kg",
    r"days": "d",
}
"""Field names, as far as they say it, and the unit; the first match wins."""


def _classes(source: Path) -> Iterator[tuple[str, str, list[tuple[str, str, str]]]]:
    """``(record, its docstring, [(field, type, docstring), ...])`` in the order of the source."""
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name != "Record":
            yield node.name, ast.get_docstring(node) or "", list(_fields(node))


def _fields(record: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    for node, after in zip(record.body, [*record.body[1:], None], strict=True):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        said = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        alias = re.search(r"alias='(\w+)'", ast.unparse(node.annotation))
        kind = re.sub(r"Annotated\[(\w+), .*", r"\1", ast.unparse(node.annotation))
        kind = re.sub(r"Sparse\[(.*)\]", r"\1 | None", kind)
        yield alias[1] if alias else node.target.id, kind, " ".join(str(said).split())


DIGEST_SAYS = "First 16 digits of the SHA-256 of all else in what a file holds; readers say where it differs."


def kinds() -> dict[str, Any]:
    """Every document that files hold and ``load`` reads: its name, its record."""
    from planner.schema import images, plan, procurement, reports, rl, study

    return {
        "plan": plan.Plan, "plan-set": plan.PlanSet, "procurement": procurement.Procurement, "study": study.StudyResult,
        "image-plan": images.ImagePlan, "comparison": reports.Comparison, "validation": reports.Validation,
        "communication": reports.Communication, "communication-table": reports.CommunicationTable,
        "calibration": reports.FitToRuns, "kernel-calibration": reports.FitToKernels,
        "collective-calibration": reports.FitToCollectives, "lesson": reports.Learnt,
        "procurement-sweep": reports.ProcurementSweep, "trace-report": reports.TraceReport, "rl-plan": rl.RLPlanSet,
    }  # fmt: skip


def printed() -> dict[str, Any]:
    """What ``--json`` prints besides: without a digest."""
    from planner.schema import listings, rl_fit, rl_site

    return {
        "fit": listings.Fits, "rl-fit": rl_fit.FittingSteps, "model-list": listings.ModelList,
        "model": listings.ShownModel, "model-layers": listings.ModelLayers, "text-workload": listings.TextModel,
        "catalog-overview": listings.CatalogOverview, "catalog-list": listings.CatalogList,
        "catalog-entry": listings.CatalogEntry, "catalog-check": listings.CatalogCheck,
        "catalog-import": listings.CatalogImport, "catalog-stale": listings.StalePrices,
        "export": listings.WrittenFolders, "export-targets": listings.ExportTargets,
        "profile-import": listings.ProfileImport, "shared-runs": listings.SharedRuns,
        "lesson-preview": listings.LessonPreview, "site-runs": listings.ListedRuns, "rl-lesson": rl_site.RLLesson,
    }  # fmt: skip


def json_schema(kind: Any, *, digest: bool = True) -> dict[str, Any]:
    """The JSON Schema of a document's kind, or of several: every key is there in what is written, and no other."""
    from pydantic import TypeAdapter

    from planner.schema.digest import DIGEST

    described: dict[str, Any] = TypeAdapter(kind).json_schema(by_alias=True)
    _move_axes(described)
    if digest:
        described["properties"][DIGEST] = {"default": None, "title": "Digest", "type": "string"}
    for record in [described, *described.get("$defs", {}).values()]:
        if "properties" not in record:
            continue  # one of several kinds
        # What a document written before a field existed lacks has no value; all else must be there.
        record["required"] = [key for key, each in record["properties"].items() if each.get("default", "") is not None]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def _move_axes(schema: dict[str, Any]) -> None:
    """Moves the axes of a plan from its sections into a table of their own, in a JSON Schema that has plans."""
    from planner.schema.plan_layout import FIRST, HOST, NEUTRAL, NODES, PLACES, SPELT

    records = {record.get("title"): record for record in (schema, *schema.get("$defs", {}).values())}
    if (plan := records.get("Plan")) is None:
        return
    axes: dict[str, Any] = {}
    for axis, (*section, key) in PLACES.items():
        record = records[SECTIONS[section[0]]] if section else plan
        axes[axis] = _never_null(record["properties"].pop(key), NEUTRAL.get(axis)) | {"title": axis}
    for key in HOST:
        del records["Offloaded"]["properties"][key]
    for key in ("overlap", "offload", "placement"):
        del plan["properties"][key]
    del schema["$defs"]["Overlap"]
    for axis, neutral in SPELT.items():
        axes[axis] = {"type": "boolean" if neutral is False else "string", "default": None, "title": axis}
    axes[NODES] = {"type": "integer", "default": None, "title": NODES}
    schema["$defs"]["Axes"] = {"additionalProperties": False, "properties": axes, "title": "Axes", "type": "object"}
    written = plan["properties"]
    first = {key: written.pop(key) for key in FIRST}
    plan["properties"] = {**first, "axes": {"$ref": "#/$defs/Axes"}, **written}


def _never_null(described: dict[str, Any], neutral: object) -> dict[str, Any]:
    """What a section says of a value, with the word for none in place of null."""
    kinds = [kind for kind in described.get("anyOf", [described]) if kind.get("type") != "null"]
    if neutral == "none":
        kinds = [{"const": "none"}, *kinds]
    only = {key: value for key, value in described.items() if key == "default"}
    return {**(kinds[0] if len(kinds) == 1 else {"anyOf": kinds}), **only}


def schemas() -> dict[Path, str]:
    """The text of all schemas, with what the records' docstrings say of the fields."""
    described = {name: json_schema(kind) for name, kind in kinds().items()}
    described |= {name: json_schema(kind, digest=False) for name, kind in printed().items()}
    every = [each for source in (*SOURCES, *OTHERS) for each in _classes(source)]
    told = {name: {field: says for field, _, says in fields} for name, _, fields in every}
    for schema in described.values():
        for each in [schema, *schema.get("$defs", {}).values()]:
            _describe(each, told)
    return {
        SCHEMAS / f"{name}.schema.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in described.items()
    }


def _describe(schema: dict[str, Any], told: dict[str, dict[str, str]]) -> None:
    """Says of a record's fields what its docstrings say; of those that it inherits, what those of all entries say."""
    if schema.get("title") == "Axes":
        from planner.axes.table import AXES

        told = {**told, "Axes": {axis.name: axis.help for axis in AXES.values()}}
    for field, described in schema.get("properties", {}).items():
        inherited = DIGEST_SAYS if field == "digest" else told["Entry"].get(field, "")
        if says := told.get(schema["title"], {}).get(field, inherited):
            described["description"] = says


def page() -> str:
    """The text of ``plan-schema.md`` with its tables as the records are today."""
    tables = "\n".join(_table(*record) for record in reversed([*_records()]))
    return TABLES.sub(lambda found: f"{found[1]}\n{tables}\n{found[2]}", PAGE.read_text(encoding="utf-8"))


def _records() -> Iterator[tuple[str, str, list[tuple[str, str, str]]]]:
    """The records of a plan as its document has them: the axes in one table, and not in the sections that hold them."""
    from planner.axes.table import AXES
    from planner.schema import plan_layout

    places = {
        (SECTIONS[place[0]] if place[1:] else "Configuration", place[-1]) for place in plan_layout.PLACES.values()
    }
    places |= {("Offloaded", key) for key in plan_layout.HOST}
    places |= {("Configuration", key) for key in ("offload", "overlap", "placement")}
    records = {
        name: (says, [field for field in fields if (name, field[0]) not in places])
        for source in SOURCES
        for name, says, fields in _classes(source)
    }
    plan_says, fields = records.pop("Plan")
    _, chosen = records.pop("Configuration")
    axes = ("axes", "Axes", "")
    first = len(plan_layout.FIRST)
    del records["Overlap"]
    for name, (says, kept) in records.items():
        yield name, says, kept
        if name == "RecomputeSection":
            rows = [(axis.name, type(axis.state(axis.neutral)).__name__, axis.help) for axis in AXES.values()]
            yield "Axes", "Every axis of the plan, those that it does not use too, spelt as a pin spells them.", rows
        if name == "Assumption":
            yield "Plan", plan_says, [*fields[:first], axes, *chosen, *fields[first:]]


def _table(name: str, says: str, fields: list[tuple[str, str, str]]) -> str:
    rows = [f"| `{field}` | {_kind(kind)} | {_unit(field)} | {text} |" for field, kind, text in fields]
    return "\n".join([f"### {name}\n", f"{says}\n", "| field | type | unit | |", "|---|---|---|---|", *rows, ""])


def _kind(annotation: str) -> str:
    text = re.sub(r"Literal\[(.*)\]", r"\1", annotation).replace("'", '"')
    text = re.sub(r"tuple\[(\w+), \.\.\.\]", r"list of \1", text)
    text = re.sub(r"dict\[str, (\w+)\]", r"object of \1", text)
    for name, spelt in (("str", "string"), ("int", "integer"), ("float", "number"), ("bool", "boolean")):
        text = re.sub(rf"\b{name}\b", spelt, text)
    return text.replace(" | None", " or null").replace("Any", "anything")


def _unit(field: str) -> str:
    return next((unit for pattern, unit in UNITS.items() if re.fullmatch(pattern, field)), "")


def pages() -> dict[Path, str]:
    """Every file with generated parts, and what it should say."""
    return {PAGE: page(), **schemas()}
