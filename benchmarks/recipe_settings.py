"""Which recipe of Megatron-Bridge a published mixture of experts ran, and what it sets that the page does not say.

    git clone https://github.com/NVIDIA-NeMo/Megatron-Bridge
    python -m benchmarks.recipe_settings Megatron-Bridge

Reads ``scripts/performance/configs/*/*workload_base_configs.py`` of the release of each container (it runs none of it)
and matches rows by model, machine, precision, degrees and micro-batch; where a release has no such recipe, the next one
that has. Prints, as JSON, how many rows match, what their recipes set, and the rows of ``measured_runs.csv`` that say
something else. How a release starts a recipe decides between what is named and what is used: until v0.3.1 a back end of
the flexible dispatcher was used on some machines only (training/flex_dispatcher_backend.py, utils/overrides.py).
"""

from __future__ import annotations

import ast
import csv
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RUNS = Path(__file__).resolve().parent / "data" / "measured_runs.csv"
RELEASES = ("v0.2.0", "v0.3.0", "v0.3.1", "v0.4.0", "v0.4.1", "v0.5.0", "v0.5.1")
OF_CONTAINER = {"25.11": "v0.2.0", "26.02": "v0.3.0", "26.02.01": "v0.3.1", "26.04": "v0.4.0", "26.04.01": "v0.4.1",
                "26.06": "v0.5.0", "26.06.01": "v0.5.0", "26.08": "v0.5.1"}  # fmt: skip
"""NeMo's container -> release of Megatron-Bridge; that of 26.08 has its recipes elsewhere: the last before it."""
PRECISIONS = {"bf16": ("BF16",), "fp8": ("FP8_CS", "FP8_SC"), "mxfp8": ("FP8_MX",), "nvfp4": ("NVFP4",)}
DEGREES = {"tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size",
           "vpp": "virtual_pipeline_model_parallel_size", "ep": "expert_model_parallel_size",
           "micro_batch": "micro_batch_size"}  # fmt: skip
TRIED = 4
"""Releases that are looked at for a row: its own, later ones, then earlier ones."""
Row = dict[str, str]
Recipe = dict[str, Any]


def recipes(clone: Path, release: str) -> dict[str, Recipe]:
    """Name -> what a recipe sets, of all workload files of a release: literals of assignments, nothing is run."""
    every: dict[str, Recipe] = {}
    listed = _git(clone, "ls-tree", "-r", "--name-only", release, "scripts/performance/configs").split()
    for path in (path for path in listed if "workload_base_configs" in path):
        for node in ast.parse(_git(clone, "show", f"{release}:{path}")).body:
            if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
                continue
            value = node.value
            if isinstance(value, ast.Name) and value.id in every:
                every[node.targets[0].id] = every[value.id]
            elif isinstance(value, ast.Call):
                base = value.args[0] if value.args else None
                inherited = every.get(base.id, {}) if isinstance(base, ast.Name) else {}
                every[node.targets[0].id] = inherited | {
                    word.arg: _literal(word.value) for word in value.keywords if word.arg
                }
    return every


def _git(clone: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *words], capture_output=True, text=True, check=True).stdout


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def matching(row: Row, known: dict[str, Recipe]) -> list[Recipe]:
    """Recipes of a row's model, machine, precision, degrees and micro-batch; of its batch, too, if any is."""
    stem = re.sub(r"[-.]", "_", row["model"].upper()) + "_"
    alike = [
        recipe
        for name, recipe in known.items()
        if name.startswith(stem)
        and f"_{row['accelerator']}_" in f"{name}_"
        and any(word in name for word in PRECISIONS[row["precision"]])
        and all(int(row[cell] or 1) == (recipe.get(key) or 1) for cell, key in DEGREES.items())
    ]
    return [recipe for recipe in alike if str(recipe.get("global_batch_size")) == row["global_batch_seqs"]] or alike


def dispatcher(row: Row, release: str, recipe: Recipe) -> str | None:
    """How tokens reached experts; None where a release does not say it by its recipe."""
    named = recipe.get("moe_flex_dispatcher_backend")
    model = row["model"]
    within_rack = row["accelerator"] in ("GB200", "GB300")
    if release == "v0.2.0":
        return named if named and within_rack == (named == "hybridep") else "alltoall"
    if release in ("v0.3.0", "v0.3.1") and model.startswith("gpt"):
        return "alltoall"
    if release == "v0.3.0":
        return None if model.startswith(("nemotron", "kimi")) else named or "alltoall"
    if release == "v0.3.1":
        if model.startswith("nemotron"):
            return named or "deepep"
        return "alltoall" if model == "qwen3-235b-a22b" and not within_rack else named
    return named or "alltoall"


def graphs(recipe: Recipe) -> str:
    """Which CUDA graphs a recipe captures, in the words of the notes."""
    how, scope = recipe.get("cuda_graph_impl"), recipe.get("cuda_graph_scope")
    if how in (None, "none"):
        return "none"
    return "full iteration" if how == "full_iteration" or "full_iteration" in str(scope) else "modules"


def _settings(row: Row, release: str, recipe: Recipe) -> dict[str, Any]:
    return {
        "release": release,
        "dispatcher": dispatcher(row, release, recipe),
        "graphs": graphs(recipe),
        "recompute": "+".join(recipe.get("recompute_modules") or ()),
        "overlap": bool(recipe.get("moe_a2a_overlap")),
    }


def said(clone: Path) -> Iterator[tuple[Row, dict[str, Any] | None]]:
    """Each published mixture since v0.2.0 with what its recipe sets; None where none or several unlike ones match."""
    known = {release: recipes(clone, release) for release in RELEASES}
    with RUNS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["family"], row["source"]) == ("moe", "megatron-bridge")]
    for row in (row for row in rows if row["release"] in OF_CONTAINER):
        at = RELEASES.index(OF_CONTAINER[row["release"]])
        tried = [*RELEASES[at:], *reversed(RELEASES[:at])][:TRIED]
        release = next((release for release in tried if matching(row, known[release])), None)
        settings = [] if release is None else [_settings(row, release, one) for one in matching(row, known[release])]
        yield row, settings[0] if settings and all(one == settings[0] for one in settings) else None


def differences(row: Row, setting: dict[str, Any]) -> Iterator[str]:
    """What a row says otherwise."""
    notes = row["notes"]
    for name, found in (("dispatcher", r"dispatcher: (\w+)"), ("graphs", r"CUDA graphs: ([a-z ]+)")):
        stated = re.search(found, notes)
        if stated and setting[name] is not None and stated[1].strip() != setting[name]:
            yield f"{row['id']}: {name} {stated[1]}, {setting[name]} by {setting['release']}"
    if ("do not overlap" not in notes) != setting["overlap"]:
        yield f"{row['id']}: overlap {not setting['overlap']}, {setting['overlap']} by {setting['release']}"
    modules = row["activation_recompute"].partition(":")[2]
    if modules and modules != setting["recompute"]:
        yield f"{row['id']}: recompute {modules}, {setting['recompute']} by {setting['release']}"


def main(clone: Path) -> None:
    """Prints the counts and differences as JSON."""
    pairs = list(said(clone))
    matched = [(row, setting) for row, setting in pairs if setting is not None]
    print(json.dumps({
        "rows": len(pairs),
        "matched": len(matched),
        "by_another_release": sum(s["release"] != OF_CONTAINER[row["release"]] for row, s in matched),
        "dispatchers": Counter(str(setting["dispatcher"]) for _, setting in matched),
        "graphs": Counter(setting["graphs"] for _, setting in matched),
        "differences": [line for row, setting in matched for line in differences(row, setting)],
    }, indent=2))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
