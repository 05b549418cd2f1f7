"""A page of documents: what it shows, that it is safe whatever they hold, and that it needs nothing from elsewhere.

Only a browser can tell more: ``test_report_real.py`` (``make test-report``). Here the library that draws is a stub.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import planner
from planner import report
from planner.base.errors import WrongQuestion
from planner.commands.screen import design_view
from planner.planning import comparison
from planner.report import key_figures, machines, offers, pass_orders, step_breakdown, vega_lite
from planner.report import plans as reports
from planner.report.html_page import Chart, Drawing, TextTable, library
from planner.schema.plan import Plan, PlanSet
from tests.api_questions import STUDY
from tests.asking import ask, refused
from tests.one_forward_one_backward import seconds
from tests.plans import plans
from tests.procuring_lab import answered
from tests.sweeps import sweep
from tests.words import worded

PLANS = Path(__file__).parent / "golden" / "plans" / "1"
HOSTILE = """</script><script>alert(1)</script><img src=x onerror="alert(2)">'"&<!--"""


@pytest.fixture(autouse=True)
def stubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jinja2")
    monkeypatch.setattr("planner.report.html_page.library", lambda: "window.vegaEmbed = null;")


class Page(HTMLParser):
    """Elements in order, texts, and the contents of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts and data.strip():
            attributes, before = self.scripts[-1]
            self.scripts[-1] = attributes, before + data
        else:
            self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def specs(self) -> list[dict[str, Any]]:
        return [json.loads(text) for attributes, text in self.scripts if attributes.get("type") == "application/json"]


def golden(name: str) -> PlanSet | Plan:
    found = report.file(PLANS / f"{name}.json")
    assert isinstance(found, PlanSet | Plan)
    return found


def first(name: str) -> Plan:
    found = golden(name)
    return found if isinstance(found, Plan) else found.plans[0]


@sweep("name", ["dense", "deepspeed", "fsdp", "mixture", "pools", "uneven"], every=3)
def test_a_page_shows_a_plan_and_asks_no_network(name: str) -> None:
    found = golden(name)
    shown = Page(report.page([report.shown(found, name)]))
    plan = found if isinstance(found, Plan) else found.plans[0]
    assert plan.workload.name in shown.text
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in shown.elements}
    for _, attributes in shown.elements:
        for where in ("src", "href", "data", "action"):
            assert not (attributes.get(where) or "#").startswith(("http", "//")), attributes
    assert "url(" not in report.page([report.shown(found, name)]).split("<script")[0]


def test_every_chart_has_a_title_a_summary_and_a_table() -> None:
    document = report.shown(golden("dense"), "dense")
    charts = [block for section in document.sections for block in section.blocks if isinstance(block, Chart)]
    assert len(charts) >= 3
    for chart in charts:
        assert chart.title and chart.summary and chart.table.rows
        assert all(len(row) == len(chart.table.headers) for row in chart.table.rows)
    shown = Page(report.page([document]))
    assert len(shown.specs()) == len(charts)
    assert all("url" not in json.dumps(spec.get("data", {})) for spec in shown.specs())
    ids = [attributes["id"] for _, attributes in shown.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))


def test_the_policy_lets_only_its_own_scripts_run() -> None:
    shown = Page(report.page([report.shown(golden("dense"), "dense")]))
    policy = next(each["content"] for each in shown.of("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "default-src 'none'" in policy and "unsafe-eval" not in policy
    running = [text for attributes, text in shown.scripts if "type" not in attributes]
    assert len(running) == 2
    for text in running:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_hostile_texts_stay_texts() -> None:
    plan = first("dense")
    wrong = replace(
        plan,
        workload=replace(plan.workload, name=HOSTILE),
        assumptions=tuple(replace(each, what=HOSTILE, why=HOSTILE, flag=HOSTILE) for each in plan.assumptions),
        generator=replace(plan.generator, inputs={HOSTILE: HOSTILE}),
        cluster=replace(
            plan.cluster, pools=tuple(replace(p, node=HOSTILE, accelerator=HOSTILE) for p in plan.cluster.pools)
        ),
        prediction=replace(plan.prediction, breakdown={HOSTILE: 1.0, "matrix": 2.0}),
    )
    html = report.page([report.shown(wrong, HOSTILE)])
    shown = Page(html)
    assert not shown.of("img") and "alert(1)</script>" not in html
    assert len([1 for attributes, _ in shown.scripts if "type" not in attributes]) == 2
    assert HOSTILE in shown.text
    assert any(HOSTILE in json.dumps(spec, ensure_ascii=False).replace('\\"', '"') for spec in shown.specs())
    assert not [name for _, attributes in shown.elements for name in attributes if name.startswith("on")]


# ---- what is drawn ---------------------------------------------------------------------------------------------------


@sweep("stages, count", [(1, 3), (2, 5), (4, 4), (4, 9), (5, 2)])
def test_a_timeline_ends_when_a_second_simulation_does(stages: int, count: int) -> None:
    forward = [1.0 + 0.1 * stage for stage in range(stages)]
    backward = [2.0 - 0.2 * stage for stage in range(stages)]
    works = pass_orders.run(forward, backward, count)
    assert max(work.end for work in works) == pytest.approx(seconds(forward, backward, [0.0] * (stages - 1), count))
    assert len(works) == 2 * stages * count


def test_an_interleaved_bubble_is_as_published() -> None:
    """``(p - 1) (f + b) / v`` (Narayanan et al. 2021, section 2.2.2)."""
    for stages, chunks, count in ((2, 2, 4), (4, 2, 8), (4, 3, 16)):
        works = pass_orders.run([1.0] * stages, [2.0] * stages, count, chunks=chunks)
        end = max(work.end for work in works)
        assert end - 3.0 * count == pytest.approx((stages - 1) * 3.0 / chunks)
        assert len(works) == 2 * stages * chunks * count


def test_stages_never_do_two_things_at_once() -> None:
    works = pass_orders.run([1.0, 1.5, 0.5], [2.0, 2.5, 1.0], 6, chunks=2, transfer=0.1)
    for stage in range(3):
        own = [work for work in works if work.stage == stage]
        assert all(one.end <= other.start + 1e-12 for one, other in pairwise(own))


@sweep("name", ["dense", "mixture", "tied-stages"])
def test_memory_by_stage_is_that_of_the_plan_where_it_is_fullest(name: str) -> None:
    plan = plans(name).plans[0]
    (chart,) = machines.memory_section(plan).blocks
    assert isinstance(chart, Chart)
    held: dict[str, float] = {}
    for each in chart.spec["data"]["values"]:
        held[each["row"]] = held.get(each["row"], 0.0) + each["value"]
    total = plan.prediction.memory.total_bytes / 2**30
    assert len(held) == len(plan.parallelism.stages)
    assert list(held.values())[plan.prediction.memory.stage] == pytest.approx(total)
    assert max(held.values()) <= total * 1.02


@sweep("name", ["dense", "mixture", "pools", "uneven"])
def test_every_accelerator_is_drawn_with_its_stage(name: str) -> None:
    plan = first(name)
    (drawing,) = machines.section(plan).blocks
    assert isinstance(drawing, Drawing)
    squares = [box for box in drawing.boxes if box.text]
    used = [row for row in drawing.table.rows if row[1] != "nothing"]
    assert len(squares) == sum(int(row[2].replace(",", "")) for row in used)
    assert max(box.x + box.width for box in drawing.boxes) <= drawing.width
    assert max(box.y + box.height for box in drawing.boxes) <= drawing.height
    if not plan.parallelism.groups:
        p = plan.parallelism
        assert {row[2] for row in used} == {f"{p.tp * p.cp * p.dp:,}"}


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"])
def test_a_rank_s_places_are_those_of_the_rank_order(order: str) -> None:
    """Counted up as an odometer does, the first axis of the order fastest."""
    sizes = {"tp": 2, "cp": 2, "dp": 3, "pp": 4}
    cut = replace(first("dense").parallelism, rank_order=order, **sizes)
    turned = [axis for axis in order.split("-") if axis in sizes]
    for rank, digits in enumerate(product(*(range(sizes[axis]) for axis in reversed(turned)))):
        at = dict(zip(reversed(turned), digits, strict=True))
        listed = ", ".join(f"{axis.upper()} {at[axis]}" for axis in sizes)
        assert machines._of_rank(cut, rank) == (str(at["pp"] + 1), f"rank {rank}: {listed}")


def test_stages_are_counted_as_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    plan = first("dense")
    (chart,) = machines.memory_section(plan).blocks
    assert isinstance(chart, Chart)
    (fullest,) = [row[0] for row in chart.table.rows if "fullest" in row[0]]
    assert ask(capsys, f"explain {PLANS / 'dense.json'}").out.count(f"on {fullest.split(' (')[0]} of") == 1
    assert "runtime" in chart.table.headers and "resident" not in chart.table.headers


def test_energy_of_the_front_is_that_of_its_plans() -> None:
    found = plans("dense")
    each = {name: value for point in reports._front(found) for name, value in [(point["days"], point["mwh"])]}
    for plan in found.plans:
        if plan.money.days in each and plan.energy.energy_j:
            assert each[plan.money.days] == pytest.approx(plan.energy.energy_j / 3.6e9)
    assert any(plan.money.days in each for plan in found.plans)


def test_axes_are_in_units_that_show_the_figures() -> None:
    """A run of minutes is no thousandth of a day, and its energy no thousandth of a megawatt-hour."""
    short = planner.plan("llama3-8b", "dgx-h100:1", method="dora", top=3)
    points = reports._front(short)
    axes = reports._axes(points)
    assert axes["days"][0] == "minutes" and axes["mwh"][0] == "energy (Wh)"
    scaled = reports._in_units(points, axes)
    assert [each["days"] for each in scaled] == pytest.approx([1440 * point.days for point in short.front])
    assert all(1 <= each["days"] < 60 for each in scaled) and str(points[0]["mwh_text"]).endswith(" Wh")
    assert reports._axes([*reports._front(plans("dense"))])["days"] == ("days", 1.0)


@sweep("asked", [{"method": "dora"}, {"method": "lora", "task": "dpo"}, {"method": "freeze:2"}])
def test_causes_are_of_a_kind(asked: dict[str, Any]) -> None:
    """Only a framework's fixed overhead is none of compute, communication, updating and waiting."""
    plan = planner.plan("llama3-8b", "dgx-h100:1", top=1, **asked)[0]
    assert {cause for cause in plan.prediction.breakdown if step_breakdown.kind(cause) == "other"} <= {"overhead"}


def test_causes_add_up_to_the_step() -> None:
    plan = first("dense")
    chart = next(block for block in step_breakdown.section((plan,), plan).blocks if isinstance(block, Chart))
    assert sum(v["value"] for v in chart.spec["data"]["values"]) == pytest.approx(plan.prediction.step_time_s)


def test_causes_of_the_cost_model_have_their_kind() -> None:
    found = {cause for name in ("dense", "mixture", "pools", "uneven") for cause in first(name).prediction.breakdown}
    assert {cause for cause in found if step_breakdown.kind(cause) == "other"} == set()


def test_a_page_leads_with_three_figures_and_marks_the_recommended_plan() -> None:
    found = plans("dense")
    chosen = found.plan_to_run
    shown = Page(report.page([report.shown(found, "dense")]))
    (marked,) = [each for each in shown.of("tr") if each.get("class") == "recommended"]
    assert marked["data-point"] == f"plan-{chosen.rank}"
    figures = report.shown(found, "dense").figures
    assert len(figures) == 3 and figures[0].value == f"{chosen.prediction.step_time_s:,.1f} s"
    table = reports._choice(found).blocks[0]
    assert isinstance(table, TextTable) and table.headers[:3] == ("plan", "step", "cost")


def test_plans_are_compared_with_their_intervals() -> None:
    """The ends of a line are the interval of the difference times what the recommended plan takes."""
    found = plans("dense")
    apart = comparison.stated(found)
    assert apart
    chart = step_breakdown.section(found.plans, found.plan_to_run, apart).blocks[1]
    assert isinstance(chart, Chart)
    (ends,) = [layer["data"]["values"] for layer in chart.spec["layer"] if "data" in layer]
    first = found.plan_to_run.prediction.step_time_s
    for end, difference in zip(ends, apart, strict=True):
        plan = found.plans[difference.rank - 1]
        same_work = plan.prediction.step_time_s / first / difference.time
        assert end["low"] == pytest.approx(first * difference.interval.low * same_work)
        assert end["low"] < plan.prediction.step_time_s < end["high"]
    point = reports._point(found.plans[1], found, apart[0])
    assert point["days_low"] < found.plans[1].money.days < point["days_high"]  # type: ignore[operator]


def test_axes_that_a_reader_chooses_have_their_titles_in_the_drawing() -> None:
    spec = vega_lite.points(
        [{"id": "a", "kind": "plan", "days": 1.0, "gib": 2.0}], {"days": "days", "gib": "GiB"}, ("plan",)
    )
    texts = [layer["mark"]["text"]["expr"] for layer in spec["layer"] if "expr" in layer["mark"].get("text", "")]
    assert texts == ["titles[across]", "titles[up]"]


def test_of_several_answers_those_are_marked_that_no_other_beats() -> None:
    """A slower plan on the same machines is dearer, too; half the tokens are priced as those of the first."""
    fast = planner.estimate("llama3-8b", "dgx-h100:1", tp=8)
    slow = planner.estimate("llama3-8b", "dgx-h100:1", tp=8, recompute="full", tokens=fast.plans[0].workload.tokens / 2)

    content = report.of_answers([("fast.json", fast), ("slow.json", slow)])

    lines, table = content.sections[0].blocks[0], content.sections[0].blocks[-1]
    assert isinstance(table, TextTable) and [row[-1] for row in table.rows] == ["not beaten", "beaten"]
    assert "tokens to train on, here all for" in str(lines)


def test_of_several_answers_those_for_another_model_are_named() -> None:
    first, other = planner.estimate("llama3-8b", "dgx-h100:1", tp=8), planner.estimate("gpt2", "dgx-h100:1", tp=1)

    content = report.of_answers([("a.json", first), ("b.json", other), ("c.json", first)])

    assert content.title == "2 answers compared"
    assert "b.json: trains GPT-2" in str(content.sections[0].blocks[0])


def test_a_timeline_covers_every_pass_of_the_step() -> None:
    """Of 256 micro-batches on four stages some are drawn one by one and the rest in bars: together all passes."""
    plan = first("dense")
    chart = step_breakdown._of_plan(plan)
    assert isinstance(chart, Chart) and "are one bar" in chart.summary
    bars = chart.spec["data"]["values"]
    merged = [bar for bar in bars if bar["part"] == step_breakdown.BETWEEN]
    alone = sum(bar["part"] in ("forward", "backward") for bar in bars)
    passes = alone + sum(int(bar["text"].partition(" ")[0].replace(",", "")) for bar in merged)
    assert passes == 2 * plan.batch.accumulation * plan.parallelism.pp * plan.parallelism.vpp
    assert len(bars) < 2000
    causes = plan.prediction.breakdown | {"copies": 0.5}
    copied = replace(plan, prediction=replace(plan.prediction, breakdown=causes))
    ends = [max(bar["end"] for bar in one.spec["data"]["values"]) for one in (chart, step_breakdown._of_plan(copied))]
    assert ends[1] == pytest.approx(ends[0] + 0.5)


def test_an_offer_shows_deadlines_and_above_which_use_buying_is_cheaper() -> None:
    """At 2 dollars owned and 5 rented, an hour of use costs the same at 40 % of the time."""
    pair = SimpleNamespace(buy="buy 1 x a", rent="rent 1 x a", owned_usd_per_accelerator_hour=2.0,
                           rented_usd_per_accelerator_hour=5.0, utilisation=0.4)  # fmt: skip
    (chart,) = offers._crossover([pair])  # type: ignore[list-item]
    (crossing,) = chart.spec["layer"][1]["data"]["values"]
    owned = {each["x"]: each["y"] for each in chart.spec["data"]["values"] if not each["level"]}
    assert (crossing["x"], crossing["y"], owned[40]) == (40.0, 5.0, 5.0)
    spans = [SimpleNamespace(pool="a", copy=0, start_day=0.0, end_day=10.0)]
    jobs = [SimpleNamespace(name=f"due {day}", deadline_day=day, schedule=spans) for day in (12.0, 300.0)]
    calendar = offers._calendar(SimpleNamespace(workloads=jobs))  # type: ignore[arg-type]
    assert [mark["start"] for mark in calendar.spec["layer"][1]["data"]["values"]] == [12.0]
    assert "beyond the chart" in calendar.summary and calendar.table.rows[1][3] == "day 300"


def test_bought_machines_that_stand_idle_are_a_warning() -> None:
    pools = [
        SimpleNamespace(id="a", way=way, utilisation=used)
        for way, used in (("buy", 0.09), ("buy", 0.9), ("spot", 0.09))
    ]
    (warning,) = key_figures.idle(SimpleNamespace(pools=pools))  # type: ignore[arg-type]
    assert "in use 9 % of the time" in warning


def test_a_job_that_may_be_late_is_a_warning(home: Path) -> None:
    """From day 10 on 80 to 125 days, 100 by the median: late with 1 in 10 if due on day 135, with 5 in 10 on day 110.
    At 1.12 times the median, ln 1.12 / (ln 1.5625 / 2.5631) = 0.6509 deviations from it, 1 - Phi is 0.2576.
    """
    best = answered(home).alternatives[0]
    job = best.workloads[0]
    job = replace(job, schedule=(replace(job.schedule[0], start_day=10.0, end_day=110.0),), finish_day=110.0)
    job = replace(job, finish_low=90.0, finish_high=135.0)
    chances = {due: replace(job, deadline_day=due).chance_late() for due in (135.0, 110.0, 122.0)}
    assert [*chances.values()] == pytest.approx([0.1, 0.5, 0.2576], abs=1e-4)
    late = replace(job, deadline_day=122.0, late_chance=chances[122.0])
    recurring = [replace(late, name=f"tune#{n}", late_chance=0.21 + 0.01 * n) for n in (1, 2)]
    sure = replace(late, name="sure", late_chance=0.19)
    short = replace(late, name="short", late_chance=0.5, finish_high=122.05)
    warnings = [*key_figures.late(replace(best, workloads=(sure, short, *recurring, late)))]
    assert [line.partition(" ")[0] for line in warnings] == ["base", "tune#2"]
    assert "is late with a chance of 1 in 4: done day 110.0, due 122 (80 %: 90.0 to 135.0)" in warnings[0]
    assert warnings[0].endswith("a deadline on day 99 keeps it at the slow end")  # 10 + 112 / 1.25
    never = replace(job, finish_low=10.0, finish_high=10.0, deadline_day=120.0)
    assert (never.chance_late(), replace(never, deadline_day=100.0).chance_late()) == (0.0, 1.0)


# ---- files -----------------------------------------------------------------------------------------------------------


def test_the_command_writes_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = ask(capsys, f"report {PLANS / 'fsdp.json'} {PLANS / 'dense.json'} -o {tmp_path / 'page.html'}")
    assert found.code == 0 and "page.html" in found.out
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(Page(html).of("h1")) == 3 and "each answer is for another model" in html


@worded("report.no_document")
def test_files_that_hold_no_document_are_refused(text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> str:
    (tmp_path / "file.json").write_text(text, encoding="utf-8")
    message = refused(capsys, f"report {tmp_path / 'file.json'} -o {tmp_path / 'page.html'}")
    assert not (tmp_path / "page.html").exists()
    return message


def test_what_a_page_shows_is_never_replaced_by_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    held = (PLANS / "fsdp.json").read_text(encoding="utf-8")
    (tmp_path / "plan.json").write_text(held, encoding="utf-8")
    (tmp_path / "link.html").symlink_to(tmp_path / "plan.json")
    for name in ("plan.json", "link.html"):
        assert "report.html" in refused(capsys, f"report {tmp_path / 'plan.json'} -o {tmp_path / name}")
    assert (tmp_path / "plan.json").read_text(encoding="utf-8") == held


def test_a_page_replaces_a_page_and_nothing_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    for name in ("fsdp", "dense"):
        assert ask(capsys, f"report {PLANS / name}.json -o {output}").code == 0
    page = output.read_text(encoding="utf-8")
    assert "dense.json" in page and "fsdp.json" not in page
    for text in ("<!doctype html>\n<p>mine</p>\n", ""):
        output.write_text(text, encoding="utf-8")
        assert "no page of clusterwright" in refused(capsys, f"report {PLANS / 'dense.json'} -o {output}")
        assert output.read_text(encoding="utf-8") == text


def test_runs_without_predictions_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("id,measured_s\n1,2.0\n", encoding="utf-8")
    assert "validate RUNS.csv -o per-run.csv" in refused(capsys, f"report {tmp_path / 'runs.csv'}")


def test_runs_are_drawn(tmp_path: Path) -> None:
    rows = "id,source,model,measured_s,predicted_s\n1,a,m,2.0,2.1\n2,a,m,4.0,8.0\n3,a,m,,1\n4,a,m,nan,1\n"
    (tmp_path / "runs.csv").write_text(rows, encoding="utf-8")
    found = report.file(tmp_path / "runs.csv")
    assert isinstance(found, report.Content)
    (chart,) = found.sections[0].blocks
    assert isinstance(chart, Chart) and isinstance(chart.table, TextTable)
    assert len(chart.table.rows) == 2 and "50 %" in chart.summary
    assert report.page([found])


def test_one_run_has_axes_with_a_span(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("id,measured_s,predicted_s\n1,2.0,2.0\n", encoding="utf-8")
    found = report.file(tmp_path / "runs.csv")
    assert isinstance(found, report.Content)
    (chart,) = found.sections[0].blocks
    assert isinstance(chart, Chart)
    least, most = chart.spec["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert least < 2.0 < most


def test_runs_of_a_job_by_one_plan_stand_together() -> None:
    found = planner.procure(model="llama3-8b", tokens=2e10, node=["p5.48xlarge"], ways="on-demand", quick=True)
    best = found.alternatives[0]
    job = best.workloads[0]
    twice = replace(best, workloads=(replace(job, name="a#1"), replace(job, name="a#2")))
    titles = [section.title for section in report.shown(replace(found, alternatives=(twice,)), "offer").sections]
    assert [title for title in titles if "job" in title.lower()] == ["2 jobs, a#1 to a#2"]


@sweep("usd, unit", [(2e7, "million USD"), (1400.0, "thousand USD"), (20.0, "USD"), (0.0, "USD")])
def test_cash_is_drawn_in_a_unit_of_its_size(usd: float, unit: str) -> None:
    assert offers._scale([0.0, usd])[1] == unit


@sweep("count, has", [(1, False), (8, True), (9, False)])
def test_a_legend_tells_colours_apart(count: int, has: bool) -> None:
    parts = [f"job {n}" for n in range(count)]
    assert bool(vega_lite.coloured(parts, [{"part": part} for part in parts])["legend"]) is has


def test_a_study_reads_with_units_and_may_hold_one_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No figure of it has a rate: screen and page say so before the best point, and what was not tried beyond it."""
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    found = planner.design(tmp_path / "study.toml", quick=True)
    shown = Page(report.page([report.shown(found, "study")]))
    assert "accelerator.memory 80.0 GiB" in shown.text and "/Mtoken" in shown.text and "#2" in shown.text
    design_view.show(found)
    free = 'no figure is priced: more costs nothing here, so that the most wins; state dollars in [costs.per] for "acc'
    for text, best in ((shown.text, "Best by cost"), (capsys.readouterr().out, "Build")):
        assert free in text.partition(best)[0] and "at the end of what was tried: " in text.partition(best)[2]
    rates = [{"path": "accelerator.memory", "per_unit": 1e-8, "each": "accelerator"}]
    priced = replace(found, question=replace(found.question, costs=found.question.costs | {"rates": rates}))
    assert "no figure is priced" not in Page(report.page([report.shown(priced, "study")])).text
    trained = [trial for trial in found.trials if trial.objectives]
    for count in (0, 1):
        few = replace(found, trials=tuple(trained[:count]), pareto=found.pareto[:count], best=found.best[:count])
        assert bool(Page(report.page([report.shown(few, "study")])).of("figure")) == bool(count)


def test_a_comparison_from_python_is_a_page(tmp_path: Path) -> None:
    found = planner.compare(PLANS / "fsdp.json", PLANS / "dense.json")
    html = planner.page([found, str(PLANS / "pools.json")], tmp_path / "both.html")
    unlike = planner.page([replace(found, questions=("models",))], tmp_path / "unlike.html")
    assert "slower (80 %" not in unlike and "not comparable: they train different models" in unlike
    assert "Two plans compared" in html and (tmp_path / "both.html").read_text(encoding="utf-8") == html


@pytest.mark.slow
def test_what_fits_is_a_page_with_its_intervals(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The cheapest is recommended, as on the screen; of one accelerator the largest model is."""
    shown = {}
    for asked in ("llama3-8b --most 1 --precision bf16", "--on RTX-4090:1 --seq 512"):
        written = tmp_path / "fit.json"
        written.write_text(ask(capsys, f"fit {asked} --json").out, encoding="utf-8")
        shown[asked] = report.file(written)
    one, other = shown.values()
    assert isinstance(one, report.Content) and isinstance(other, report.Content)
    assert [figure.what for figure in one.figures] == ["the cheapest", "the fastest", "accelerator at least"]
    chart, table = one.sections[0].blocks
    assert isinstance(chart, Chart) and isinstance(table, TextTable)
    cheapest = next(row for row in table.rows if "cheapest" in row[0])
    assert table.ids[list(table.rows).index(cheapest)] == table.recommended and cheapest[3] == one.figures[0].value
    points = chart.spec["data"]["values"]
    assert all(point["days_low"] < point["days"] < point["days_high"] for point in points)
    assert other.figures[0].detail == other.sections[0].blocks[1].rows[0][0]  # type: ignore[union-attr]


def test_a_missing_library_is_a_plain_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(WrongQuestion, match=r"Jinja2.*clusterwright\[report\]"):
        report.page([])
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(WrongQuestion, match="vl-convert-python"):
        library.__wrapped__()


def test_nodes_that_are_rented_for_several_jobs_are_not_multiplied() -> None:
    rented = SimpleNamespace(way="spot", count=1, copies=16, spares=0)
    bought = SimpleNamespace(way="buy", count=4, copies=2, spares=1)
    assert (offers._nodes(rented), offers._nodes(bought)) == ("1 for 16 jobs", "8 + 1 spare")  # type: ignore[arg-type]
