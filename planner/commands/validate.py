"""``clusterwright validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from planner.commands import options
from planner.question.asked_documents import ValidateQuestion


@click.command()
@click.argument("file", required=False, type=options.PATH)
@options.declared(ValidateQuestion, "by")
@options.output("Write every run's prediction to a CSV.")
@options.declared(ValidateQuestion, ("catalog", "site"), "oom_risk")
@options.json("Print the document instead of the tables.")
def validate(file: Path | None, output: Path | None, as_json: bool, **asked: Any) -> None:
    """Predict every measured run in FILE as it was configured, and print the errors.

    FILE is a CSV with the columns of docs/runs.md; add rows of your own runs the same way.
    Nothing is searched: missing values of a row are inferred by stated rules. A run that cannot be predicted counts as
    not covered. Without FILE, the runs are those of --site, and without both the published ones that are shipped
    (`clusterwright examples measured_runs` prints them).

    \b
      clusterwright validate
      clusterwright validate my-runs.csv --by model -o per-run.csv
      clusterwright validate --site my-site
    """  # noqa: D301 - click reads the control character itself
    from planner.api import runs
    from planner.base import writing
    from planner.commands.screen import render

    document, per_run = runs.validated(ValidateQuestion(file, **asked))
    if output is not None:
        writing.write(output, per_run, replace=True)
    if as_json:
        render.report(document)
        return
    _show(document, output)


def _show(document: dict[str, Any], output: Path | None) -> None:
    from planner.base.units import format_risk
    from planner.commands.screen import render

    groups = sorted(document["groups"], key=lambda group: -group["covered"])
    rows = [_row(group["name"], group) for group in groups if group["covered"]]
    rows.append(_row("all", document["overall"]))
    headers = [document["by"], "runs", "covered", "MAPE", "median", "p90", "bias", "Spearman", "in 80 %", "infeasible"]
    render.table(headers, rows, align="l" + "r" * 9, priority=["Spearman", "p90", "runs", "infeasible"])
    render.text()
    if document["levers"]:
        _show_levers(document["levers"])
    overall = document["overall"]
    for each in document["coverage"]:
        share = f"{100 * each['covered'] / each['n']:.1f} %" if each["n"] else "-"
        render.labelled("Coverage", f"{each['covered']:,} of {each['n']:,} ({share}): {each['rows']}")
    memory, oom, choice = overall["memory"], overall["oom"], overall["choice"]
    if memory["n"]:
        render.labelled(
            "Memory",
            f"{memory['n']} measured: MAPE {_percent(memory['mape'])}, bias {_percent(memory['bias'])}, "
            f"in 80 % interval {_percent(memory['interval80_coverage'], 0)}",
        )
    for label, each, at in (("Fits", oom, 0.5), ("", oom["at_risk"], oom["at_risk"]["oom_risk"])):
        render.labelled(
            label,
            f"at a risk of {format_risk(at)}: {each['called_infeasible']:,} of {oom['ran']:,} runs that fitted "
            f"are predicted infeasible; {each['foreseen']} of {oom['n']} out-of-memory runs are predicted",
        )
    if choice["groups"]:
        render.labelled(
            "Choice",
            f"{choice['groups']} groups of plans for one job: regret {_percent(choice['mean_regret'])} on "
            f"average, {_percent(choice['max_regret'])} at most; "
            f"pairs over 3 % apart in the right order {_percent(choice['pairwise'])}",
        )
    if gain := document["profiles"]:
        errors = (
            f"{name}: MAPE {_percent(gain[key]['mape'])}, bias {_percent(gain[key]['bias'])}"
            for name, key in (("measured layer times", "measured"), ("modelled ones", "modelled"))
        )
        render.labelled("Profile", f"{gain['n']:,} runs that a profile holds for: {'; '.join(errors)}")
    for index, (rule, count) in enumerate(document["inferred"].items()):
        render.labelled("" if index else "Inferred", f"{count:,} x {rule}")
    if unread := document["unread_columns"]:
        render.labelled(
            "Not read", f"column{'s' * (len(unread) > 1)} {', '.join(unread)} (docs/runs.md has those that are)"
        )
    for index, each in enumerate(document["not_covered"][:8]):
        render.labelled("" if index else "Not covered", f"{each['n']:,} x {each['source']}: {each['reason']}")
    if output is not None:
        render.labelled("Next", f"every run's prediction is in {output}")


def _show_levers(levers: list[dict[str, Any]]) -> None:
    from planner.commands.screen import render

    rows = [
        [
            each["lever"],
            f"{each['pairs']:,}",
            f"{each['apart']:,}",
            _percent(each["ordered"]),
            _percent(each["ratio_error"]),
        ]
        for each in levers
    ]
    render.text("Pairs of runs that differ in one lever alone:")
    render.table(["lever", "pairs", "over 3 % apart", "in order", "ratio off by (median)"], rows, align="l" + "r" * 4)
    render.text()


def _row(name: str, group: dict[str, Any]) -> list[str]:
    rank = group["spearman"]
    return [
        name,
        f"{group['n']:,}",
        f"{group['covered']:,}",
        *(_percent(group[key]) for key in ("mape", "median_ape", "p90_ape", "bias")),
        "-" if rank is None else f"{rank:.3f}",
        _percent(group["interval80_coverage"], 0),
        f"{group['oom']['called_infeasible']:,}",
    ]


def _percent(value: float | None, places: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{places}f} %"
