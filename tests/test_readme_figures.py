"""README's sentences on accuracy say what docs/blind.md and docs/accuracy-details.md found, and unseen runs first."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
PAGE = (ROOT / "docs" / "accuracy-details.md").read_text(encoding="utf-8")


def cells(begins: str) -> list[str]:
    """The cells of the page's row that begins so."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {begins}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def percent(text: str) -> str:
    """``10.4 %`` as README writes it: ``10 %``."""
    return f"{float(text.partition(' %')[0]):.0f} %"


def labs() -> list[list[str]]:
    """Rows of the table of labs: name, runs, error, bias, scatter."""
    table = PAGE.partition("| lab left out | runs | MAPE")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_runs_that_nobody_had_seen_come_before_labs_left_out() -> None:
    off = percent(cells("step time, lab left out, equal weight a lab: MAPE")[-1])
    assert f"labs left out of the fit are predicted {off} off" in README
    assert README.index("that had no part in the model") < README.index("labs left out of the fit")


def test_mixtures_and_the_worst_lab_are_named() -> None:
    mixtures = next(cell for cell in cells("mixtures, lab left out")[3:] if cell.endswith("%"))
    worst = max((row for row in labs() if int(row[1].replace(",", "")) >= 10), key=lambda row: float(row[2].split()[0]))
    assert f"mixtures of experts {percent(mixtures)}, the worst lab of ten runs or more {percent(worst[2])}" in README


def test_intervals_are_judged_on_labs_left_out_and_on_jobs_that_no_fit_has_read() -> None:
    held = cells("80 % intervals, lab left out: hold")[-1]
    assert f"80 % intervals hold {held} of their runs" in README
    inside = re.fullmatch(r"(\d+) of (\d+)", cells("shipped: variances add")[-1])
    assert inside is not None
    assert (
        f"of {inside[2]} published jobs that neither a fit nor a framework's entry rests on, {inside[1]} lie inside"
        in README
    )


def test_the_sweep_is_cut_where_the_page_says() -> None:
    assert "within 1.5 times the fastest count" in README
    assert "only those within 1.5 times the fastest count" in " ".join(PAGE.split())
