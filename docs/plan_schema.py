"""The documents that plans are written as: their JSON Schemas, and the tables of fields in ``plan-schema.md``."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ROOT / "planner" / "schema"
SOURCES = [
    SCHEMA / f"plan{part}.py" for part in ("_machines", "_layout", "_communication", "_prediction", "_measured", "")
]
"""Of a plan's records, the plan itself last."""
OTHERS = [SCHEMA / f"{name}.py" for name in ("procurement", "study", "images", "comparison", "reports")]
PAGE = ROOT / "docs" / "plan-schema.md"
TABLES = re.compile(r"(<!-- fields -->\n).*(<!-- end of fields -->\n)", re.DOTALL)

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
        yield alias[1] if alias else node.target.id, kind, " ".join(str(said).split())


DIGEST_SAYS = "First 16 digits of the SHA-256 of all else in what a file holds; readers say where it differs."


def schemas() -> dict[Path, str]:
    """The text of all schemas, with what the records' docstrings say of the fields."""
    from planner import document
    from planner.schema.comparison import Comparison
    from planner.schema.images import ImagePlan
    from planner.schema.plan import Plan, PlanSet
    from planner.schema.procurement import Procurement
    from planner.schema.reports import Communication, Validation
    from planner.schema.study import StudyResult

    records = [record for source in (*SOURCES, *OTHERS) for record in _classes(source)]
    told = {name: {field: says for field, _, says in fields} for name, _, fields in records}
    found = {}
    kinds = {"plan": Plan, "plan-set": PlanSet, "procurement": Procurement, "study": StudyResult,
             "image-plan": ImagePlan, "comparison": Comparison, "validation": Validation,
             "communication": Communication}  # fmt: skip
    for name, kind in kinds.items():
        schema = document.json_schema(kind)
        for record in [schema, *schema.get("$defs", {}).values()]:
            for field, described in record["properties"].items():
                if says := told[record["title"]].get(field, DIGEST_SAYS):
                    described["description"] = says
        found[ROOT / "docs" / f"{name}.schema.json"] = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    return found


def page() -> str:
    """The text of ``plan-schema.md`` with its tables as the records are today."""
    records = [record for source in SOURCES for record in _classes(source)]
    tables = "\n".join(_table(*record) for record in reversed(records))
    return TABLES.sub(lambda found: f"{found[1]}\n{tables}\n{found[2]}", PAGE.read_text(encoding="utf-8"))


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
