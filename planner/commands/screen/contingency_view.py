"""What goes on when nodes are lost, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.base.units import format_bytes, format_count, format_seconds
from planner.commands.screen import render
from planner.report.quantities import degrees

if TYPE_CHECKING:
    from planner.schema.plan import PlanSet


def show(found: PlanSet) -> None:
    """A line for each number of lost nodes; nothing where none were asked for."""
    if not found.contingency:
        return
    run = found.plan_to_run
    rows = []
    for each in found.contingency:
        plan = each.plan
        rows.append(
            [
                each.lost_nodes,
                plan.cluster.pools[0].count,
                degrees(plan.parallelism),
                format_seconds(plan.prediction.step_time_s),
                f"{plan.prediction.step_time_s / run.prediction.step_time_s:.2f}x",
                format_count(plan.prediction.tokens_per_s),
                format_bytes(plan.prediction.memory.total_bytes),
                format_seconds(each.reshard_s),
            ]
        )
    render.text()
    headers = ["lost", "nodes", "continues as", "step", f"of #{run.rank}", "tokens/s", "memory", "resumes in"]
    render.table(headers, rows, align="rrlrrrrr", priority=["tokens/s"])
    each = found.contingency[0]
    render.text(
        f"  resumes in: restart {format_seconds(each.plan.money.goodput.restart_s)}, and a checkpoint of "
        f"{format_bytes(each.checkpoint_bytes)} read at {format_bytes(each.read_bytes_per_s)}/s a node, as Llama 3's "
        "storage sustained; export --lost N writes the plan for N lost nodes"
    )
