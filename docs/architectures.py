"""Writes docs/architectures.md: which architectures of the Hugging Face hub are read, counted, planned and exported.

    python docs/architectures.py

Each row is one configuration of tests/data, imported, counted, planned for on nodes of eight H100, and handed to three
trainers. It takes some minutes, so that docs/generate.py leaves it alone; tests/test_architectures.py holds the page to
the table of architectures and some of its rows to what they say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architectures.md"
TRAINERS = {"megatron": "megatron-core", "torchtitan": "fsdp2", "hf-trainer": "hf-trainer"}
"""Target of `export` -> runtime that is planned for."""
NODES = ("dgx-h100", "dgx-b300")
"""Nodes of eight that are planned for; the second where no plan fits on the first."""
LARGE = 40e9
"""Parameters above which 64 nodes are planned for, else four."""
HEAD = """# Architectures

<!-- Written by docs/architectures.py. Do not edit. -->

What `clusterwright models import` reads, by the `model_type` of a config.json. *Exact*: parameters equal what
transformers 5.23.0 builds of the same configuration (of `rwkv7` what its paper says), to the last one. *Plans*: a
plan on nodes of eight H100 was found, and its document holds up when it is checked. *Megatron*, *torchtitan*,
*Transformers*: it can be exported there (the last as `hf-trainer`, a module around transformers' Trainer), or why
not; what fits no H100 is planned on as many nodes of B300. Where a configuration holds what is not priced (experts
without weights, say) it is refused by name; so is every `model_type` that is not listed (of `longcat_flash`,
`mimo_v2_flash`, `rwkv`, `rwkv6`, `zamba2` it says what is missing). Of models with a vision or an audio tower the
text part is read, and every plan says so; with `--images N` or `--audio N` the towers of the second table are read,
too (frozen, or with `--train-tower` trained); no target of `export` has a module for them.

| model_type | configuration | parameters | exact | plans | Megatron | torchtitan | Transformers |
|---|---|---:|---|---|---|---|---|
"""


TOWERS = """
## Towers

*Parameters*: of the text part and this tower; a model that speaks is counted without its voice.

| model_type | configuration | tower | parameters | exact | each | tokens of each |
|---|---|---|---:|---|---|---:|
"""


def towers() -> Iterator[str]:
    """The lines of the second table: one for each configuration of tests/data and what it reads."""
    from planner.models.huggingface import asked, from_config, heard
    from planner.models.parameters import parameters

    for name, entry in sorted((pair for file in SENSES for pair in published(file)), key=lambda pair: pair[0]):
        given, config = published_counts(entry), entry["config"]
        for sense, total in given.items():
            model = from_config(config, name, asked=heard("1") if sense == "audio" else asked("1"))
            found = parameters(model).total
            exact, own = "yes" if found == total else f"no: {total:,}", model.tower
            assert own is not None
            each = f"{own.seconds} s" if own.seconds else f"{own.patches:,} patches"
            cells = [f"`{config['model_type']}`", entry["hub"], sense, f"{found:,}", exact, each, f"{own.tokens:,}"]
            yield "| " + " | ".join(cells) + " |"


SENSES = ("vision_configs.json", "audio_configs.json")


def published(file: str) -> list[tuple[str, dict[str, Any]]]:
    """Configurations of one file of tests/data, by their names."""
    models = json.loads((ROOT / "tests" / "data" / file).read_text(encoding="utf-8"))["models"]
    return list(models.items())


def published_counts(entry: dict[str, Any]) -> dict[str, int]:
    """Parameters with each tower that a configuration has one of."""
    if "vision_config" in entry["config"]:
        return {"vision": entry["parameters"]}
    return {"audio": entry["parameters"], **({"vision": entry["seeing"]} if "seeing" in entry else {})}


def configurations() -> dict[str, dict[str, Any]]:
    """One published configuration for each `model_type`, the largest; those of the class where there is no other."""
    found: dict[str, dict[str, Any]] = {}
    for file in ("huggingface_configs.json", "published_configs.json"):
        for name, entry in published(file):
            kind = kind_of(entry["config"])
            if kind not in found or entry["parameters"] > found[kind]["parameters"]:
                found[kind] = {**entry, "name": name}
    return dict(sorted(found.items()))


def kind_of(config: dict[str, Any]) -> str:
    """The `model_type` that a configuration is read by."""
    text = config.get("text_config") or config
    return str(text.get("model_type") or config["model_type"])


def row(kind: str, entry: dict[str, Any]) -> str:
    """One line of the table."""
    from planner.models.huggingface import from_config
    from planner.models.parameters import parameters

    model = from_config(entry["config"], entry["name"])
    total = parameters(model).total
    exact = "yes" if total == entry["parameters"] else f"no: {entry['parameters']:,}"
    cells = [f"`{kind}`", entry.get("hub") or entry["name"], f"{total:,}", exact]
    if model.family != "decoder":
        return "| " + " | ".join([*cells, "see `models show`", *["-"] * len(TRAINERS)]) + " |"
    nodes = 64 if total > LARGE else 4
    exports = []
    planned = "no"
    for target, runtime in TRAINERS.items():
        node, plan = planned_on(model, nodes, runtime)
        if plan is None:
            exports.append(f"no plan on {nodes} nodes")
            continue
        planned = "yes"
        exports.append("; ".join(refusals(plan, target)) or ("yes" if node == NODES[0] else f"yes, on {node}"))
    return "| " + " | ".join([*cells, planned, *exports]) + " |"


def planned_on(model: Any, nodes: int, runtime: str) -> tuple[str, Any]:
    """The first of :data:`NODES` on which as many hold a runtime's plan, and the best one; none where none does."""
    import planner

    for node in NODES:
        try:
            return node, planner.plan(model, f"{node}:{nodes}", batch=nodes * 16, runtime=runtime, top=1).plans[0]
        except planner.ClusterwrightError:
            continue
    return NODES[-1], None


def refusals(plan: Any, target: str) -> Iterator[str]:
    """Why a trainer cannot start a plan."""
    from planner.launchers.bundle import refusals as found
    from planner.launchers.registry import EXPORTERS

    return found(plan, EXPORTERS[target])


def main() -> None:
    """Write the page."""
    rows = []
    for kind, entry in configurations().items():
        rows.append(row(kind, entry))
        print(rows[-1], flush=True)
    PAGE.write_text(HEAD + "\n".join(rows) + "\n" + TOWERS + "\n".join(towers()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
