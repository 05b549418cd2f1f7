"""Forty-two questions as an agent would put them to the tools, each with what can be checked of the answer.

An answer is checked against figures that follow from the question (counts, limits, prices that it states), against
another tool's answer, or against the words of a refusal: none is a figure that a fit may change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Answer = dict[str, Any]


class Question(NamedTuple):
    """A tool, its arguments, and what the answer (or the refusal) must be."""

    tool: str
    arguments: dict[str, Any]
    holds: Callable[[Answer], bool] | str
    """Of the answer; a text: part of the refusal, which names what to ask instead."""


def best(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = answer["plans"][answer["recommended"] - 1]
    return found


def axis(answer: Answer, name: str) -> str:
    return dict(part.split("=", 1) for part in best(answer)["configuration"].split())[name]


def linear_usd(answer: Answer, usd_per_accelerator_hour: float) -> bool:
    plan = best(answer)
    hours = plan["days"] * 24.0 * plan["accelerators"]
    return bool(abs(plan["usd"] / (hours * usd_per_accelerator_hour) - 1.0) < 1e-9)


def ids(answer: Answer, what: str) -> list[str]:
    return [str(next(iter(row.values()))) for row in answer[what]]


SMALL = {"model": "llama3-8b", "cluster": "dgx-h100:1", "batch": 64, "pin": "cp=1,micro=1", "top": 1}
GIVEN = {"model": "llama3-8b", "cluster": "dgx-h100:1", "batch": 64}
SAVED = {"file": "small.json"}
RENTED = {"model": "llama3-8b", "tokens": "20B", "node": ["p5.48xlarge"], "ways": "on-demand"}
QUESTIONS: Sequence[Question] = (
    # What there is.
    Question("catalog", {"what": "nodes", "containing": "dgx-h100"}, lambda a: "dgx-h100" in ids(a, "nodes")),
    Question("catalog", {"what": "models", "containing": "deepseek"}, lambda a: "deepseek-v3" in ids(a, "models")),
    Question("catalog", {"what": "targets"}, lambda a: {"megatron", "slurm"} <= set(ids(a, "targets"))),
    Question("catalog", {"what": "accelerators", "containing": "nonesuch"}, lambda a: a["count"] == 0),
    Question("catalog", {"what": "clouds"}, "what"),
    Question("catalog", {"what": "runtimes"}, lambda a: "megatron-core" in ids(a, "runtimes")),
    # Plans.
    Question("plan", {**SMALL, "save": "small.json"}, lambda a: best(a)["accelerators"] == 8 and bool(a["saved"])),
    Question("plan", {**SMALL, "pin": "tp=4,cp=1,micro=1"}, lambda a: axis(a, "tp") == "4" and axis(a, "dp") == "2"),
    Question("plan", {**SMALL, "price": "$2/h"}, lambda a: linear_usd(a, 2.0)),
    Question("plan", {**SMALL, "precision": "fp8"}, lambda a: best(a)["precision"] == "fp8"),
    Question("plan", {**SMALL, "cluster": "dgx-h100:2"}, lambda a: best(a)["accelerators"] == 16),
    Question("plan", {**GIVEN, "cluster": ["dgx-h100:1", "dgx-a100-80gb:1"]}, lambda a: len(a["plans"]) >= 1),
    Question("plan", {**SMALL, "method": "lora"}, lambda a: best(a)["memory_bytes"] < best(a)["memory_capacity_bytes"]),
    Question("plan", {**SMALL, "max_cost": "$1"}, "No plan"),
    Question("plan", {**SMALL, "deadline": "1 s"}, "No plan"),
    Question("plan", {"model": "llama3.1-405b", "cluster": "dgx-a100-40gb:4"}, "What would fit"),
    Question("plan", {**SMALL, "model": "llama3-8B-instruct-x"}, "Did you mean"),
    Question("plan", {**SMALL, "cluster": "dgx-h1000:1"}, "Did you mean"),
    Question("plan", {**SMALL, "cluster": "dgx-h100"}, "dgx-h100:"),
    Question("plan", {**SMALL, "cluster": "dgx-h100:0"}, "0"),
    Question("plan", {**SMALL, "batch": -1}, "batch"),
    Question("plan", {**SMALL, "precision": "fp3"}, "precision"),
    Question("plan", {**SMALL, "price": "cheap"}, "price"),
    Question("plan", {**SMALL, "pin": "tq=8"}, "tp"),
    Question("plan", {**SMALL, "sequence": 8192}, "sequence"),
    Question("plan", {**SMALL, "model": 8}, "model"),
    Question("plan", {**SMALL, "model": "../../etc/secret.toml"}, "server's folder"),
    Question("plan", {**SMALL, "save": "../out.json"}, "server's folder"),
    Question("plan", {**SMALL, "save": "plan.txt"}, "plan.json"),
    # One configuration.
    Question("estimate", {**GIVEN, "settings": "tp=8 micro=1", "save": "eight.json"}, lambda a: axis(a, "tp") == "8"),
    Question("estimate", {**GIVEN, "settings": "tp=2 micro=1 zero=3"}, lambda a: axis(a, "zero") == "3"),
    Question("estimate", {**GIVEN, "settings": "tp=3"}, "tp"),
    Question(
        "evaluate_many",
        {**GIVEN, "configurations": ["tp=8 micro=1", "tp=3", *["tp=4 micro=2"] * 60]},
        lambda a: (a["count"], a["refused"]) == (62, 1) and len(a["evaluated"]) == min(60, a["fit"]),
    ),
    # What holds it.
    Question("fit", {"model": "llama3-8b", "on": "RTX-4090:1", "seq": 2048}, lambda a: a["count"] == 1),
    Question("fit", {}, "Name a model"),
    # Machines.
    Question("procure", {**RENTED, "budget": "$1M"}, lambda a: 0 < a["alternatives"][0]["total_usd"] <= 1e6),
    Question("procure", {**RENTED, "budget": "$1"}, "budget"),
    # Saved plans.
    Question("compare", {"mine": "eight.json", "best": "small.json"}, lambda a: a["tokens"] > 1.0 and a["step"] < 1.0),
    Question("explain", {"file": "small.json"}, lambda a: "Llama 3 8B" in a["text"]),
    Question("explain", {"file": "missing.json"}, "No such file"),
    Question("export", {**SAVED, "to": "megatron+slurm", "output": "job"}, lambda a: "job.sbatch" in a["files"]),
    Question("export", {"file": "small.json", "to": "megatrom"}, "megatron"),
    Question("validate", {"runs": "/etc/passwd"}, "server's folder"),
)  # fmt: skip
FIRST = (0, 6, 8, 16, 27)
"""Of those, the questions that the usual tests put."""
