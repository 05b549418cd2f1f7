"""Shadow prices that are not zero: each is what the same question answers when asked with so much more of a limit."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from planner.catalog import load
from planner.catalog.files import TomlDocument
from planner.procurement import run
from planner.procurement.question import reading
from planner.procurement.run import Depth
from planner.question.typed_file import TypedFile
from planner.schema.procurement import Procurement

ASKED = """
name = "shadow"
currency = "USD"
as_of = "2026-08-31"
horizon = "12 months"
objective = "{objective}"
[limits]
{limits}
[[workloads]]
name = "base"
model = "llama3-8b"
tokens = "100B"
deadline = "{deadline!r} d"
[[candidates]]
node = "nebius-8x-h100"
ways = ["on-demand"]
counts = [{counts}]
at_most = {nodes}
[[candidates]]
node = "lambda-8x-h100"
ways = ["on-demand"]
counts = [8]
at_most = 8
"""


def asked(
    *, marginal: bool = False, objective: str = "cost", limits: str = "", deadline: float = 300.0, nodes: int = 8,
    counts: str = "1, 2, 3, 4, 5, 6, 7, 8",
) -> Procurement:  # fmt: skip
    known = load()
    text = ASKED.format(objective=objective, limits=limits, deadline=deadline, nodes=nodes, counts=counts)
    document = TomlDocument(Path("shadow.toml"), text, tomllib.loads(text))
    wanted = reading.portfolio(TypedFile(document=document), known)
    return run.procure(known, wanted, depth=Depth(top=1, marginal=marginal, sensitivity=False))


def gains(found: Procurement) -> dict[str, tuple[float, float]]:
    return {value.limit: (value.step, value.gain) for value in found.marginal_values}


@pytest.mark.slow
def test_of_a_deadline_and_of_a_quota() -> None:
    # On one node less than the work needs by then: the dear offer takes over, and a day or a node more saves money.
    days = {count: asked(counts=str(count), deadline=365.0).alternatives[0].workloads[0].days for count in (2, 3)}
    due = (days[2] + days[3]) / 2
    found = asked(marginal=True, nodes=2, deadline=due)
    assert found.alternatives[0].pools[0].node == "lambda-8x-h100"
    value, worth = found.alternatives[0].value, gains(found)
    step, gain = worth["deadline:base"]
    assert gain > 0 and value - asked(nodes=2, deadline=due + step).alternatives[0].value == pytest.approx(
        gain, abs=0.02
    )
    step, gain = worth["quantity:nebius-8x-h100"]
    assert step == 1 and gain > 0
    assert value - asked(nodes=3, deadline=due).alternatives[0].value == pytest.approx(gain, abs=0.02)


def test_of_a_budget_where_time_counts() -> None:
    cheap = asked().alternatives[0].cost.total_usd
    found = asked(marginal=True, objective="time", limits=f'budget = "{cheap * 1.0001:.2f} USD"')
    step, gain = gains(found)["budget"]
    assert gain > 0
    more = asked(objective="time", limits=f'budget = "{cheap * 1.0001 + step:.2f} USD"')
    assert found.alternatives[0].value - more.alternatives[0].value == pytest.approx(gain, rel=1e-3)
    assert found.binding[0] == "budget"
