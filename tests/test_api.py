"""The Python functions: their surface, what they refuse and how they say so, and ten things that researchers do."""

import ast
import doctest
import importlib
import inspect
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import click
import pytest

import clusterwright as cw
import planner
from planner import catalog, document
from planner.api import entry, wording
from planner.commands import cli
from planner.commands.screen import design_view
from planner.schema.plan import PlanSet
from planner.schema.procurement import Procurement
from planner.schema.study import StudyResult
from tests.asking import ask

ROOT = Path(__file__).resolve().parent.parent
SURFACE = [
    *("Accelerator", "Cluster", "ClusterwrightError", "Model", "NoAnswer", "Node", "WrongQuestion", "__version__"),
    *("accelerator", "calibrate", "cluster", "compare", "design", "estimate", "explain", "export", "fit", "learn"),
    *("list_accelerators", "list_fabrics", "list_models", "list_nodes", "list_regions", "list_runtimes"),
    "list_targets",
    "load",
    *("model", "node", "page", "plan", "plan_images", "procure", "validate"),
]
ASKED = ("plan", "estimate", "procure", "design", "compare", "explain", "export", "validate", "calibrate", "load")
SMALL = {"batch": 64, "pin": {"cp": 1, "micro": 1}}
"""A question whose search takes a moment."""
STUDY = """
objectives = ["cost"]
[base]
node = "dgx-h100"
count = 1
[axes]
"accelerator.memory" = ["40 GiB", "80 GiB"]
"node.accelerators" = [4, 8]
[[workloads]]
model = "llama3-8b"
batch = 64
pins = ["recompute=none", "micro=1", "zero=1", "cp=1", "vpp=1", "offload=none"]
[costs]
basis = "purchase"
accelerator = "$3,000"
"""


@cache
def sets() -> PlanSet:
    return cw.plan("llama3-8b", "dgx-h100:1..2", top=3, **SMALL)


@cache
def offer() -> Procurement:
    return cw.procure(model="llama3-8b", tokens=2e10, node=["hgx-h100", "p5.48xlarge"], quick=True, budget=1e6)


@cache
def study(folder: Path) -> StudyResult:
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    return cw.design(folder / "study.toml")


# ---- the surface -----------------------------------------------------------------------------------------------------


def test_the_surface_is_what_it_was() -> None:
    assert planner.__all__ == SURFACE and cw.__all__ == SURFACE and dir(cw) == SURFACE
    assert all(getattr(cw, name) is getattr(planner, name) for name in SURFACE)


def test_no_package_takes_a_functions_name() -> None:
    for name in SURFACE:
        assert not (ROOT / "planner" / name).exists() and not (ROOT / "planner" / f"{name}.py").exists()


def test_importing_loads_nothing_heavy() -> None:
    said = "import clusterwright, sys; print({'numpy', 'pydantic', 'pandas', 'click'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", said], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


@pytest.mark.parametrize("name", [name for name in SURFACE if name[0].islower()])
def test_every_function_says_what_it_takes_gives_and_raises(name: str) -> None:
    function = getattr(cw, name)
    said = inspect.getdoc(function) or ""
    assert "Raises:" in said and ">>> " in said
    if "Args:" in said:
        missing = [each for each in inspect.signature(function).parameters if f"{each}:" not in said]
        assert not missing or name in ("estimate", "plan_images")


@pytest.mark.parametrize("name", ["entry", "records", "listing", "plans", "buying", "documents", "pages", "runs"])
def test_examples_in_the_functions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert doctest.testmod(importlib.import_module(f"planner.api.{name}")).failed == 0


@pytest.mark.parametrize("module", ["planner", "clusterwright", "planner.commands.screen.explained"])
def test_examples_in_the_packages(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_examples_in_the_pages(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").partition("<!-- functions -->")[0]
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert isinstance(names["plans"], PlanSet)


FLAGS_ONLY = {"json", "help", "verbose"}
"""Flags that say how the terminal shows an answer."""
PYTHON_ONLY = {"progress", "targets", "merge"}
"""What is no flag on a command line: ``design merge`` is a word there."""


@pytest.mark.parametrize("name", ASKED[:-1])
def test_flags_and_keywords_are_called_the_same(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    flags = {f.replace("-", "_") for p in command.params for o in p.opts if (f := o.removeprefix("--")) != o}
    keywords = set(entry._hints(inspect.unwrap(getattr(cw, name))))
    flags -= (FLAGS_ONLY | {"within"} if name == "procure" else FLAGS_ONLY) - keywords
    flags -= {"force"} - keywords  # of -o, which Python has not
    flags -= {"cross_validate"} if name != "calibrate" else set()
    beside = {"sweep", "bom"} if name == "procure" else {"launchable", "objective"} if name == "estimate" else set()
    assert flags - keywords <= beside, "a flag that Python lacks"
    positional = {"model", "cluster", "settings", "portfolio", "study", "mine", "best", "plans", "runs", "output"}
    axes = set(planner.api.Axes.__annotations__) if name == "estimate" else set()
    assert keywords - flags <= positional | PYTHON_ONLY | axes, "a keyword that the command line lacks"


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: cw.plan("llama3-8b", "dgx-h100:1", bacth=3), "plan() has no keyword 'bacth'; did you mean batch=?"),
        (lambda: cw.estimate("llama3-8b", "dgx-h100:1", ppp=3), "no keyword 'ppp'; did you mean pp=?"),
    ],
)
def test_a_misspelt_keyword(call, says: str) -> None:
    with pytest.raises(TypeError) as error:
        call()
    assert says in str(error.value)


def on_one(**asked: object) -> object:
    return cw.plan("llama3-8b", "dgx-h100:1", **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: on_one(seq="8q"), "seq='8q': write 8192 or 8k"),
        (lambda: on_one(seq=True), "seq=True: must be int or str"),
        (lambda: on_one(waive=[3]), "waive=[3]: must be str or Sequence of str"),
        (lambda: on_one(objective="tme"), "did you mean 'time'?"),
        (lambda: on_one(oom_risk=80), "oom_risk=80: must be more than 0 and at most 50 %"),
        (lambda: on_one(deadline=0), "deadline=0: must be more than nothing"),
        (lambda: on_one(deadline="3"), "deadline='3': no unit; write for example '30 d'"),
        (lambda: on_one(max_cost=float("nan")), "max_cost nan is not a finite number"),
        (lambda: on_one(top=0), "top=0: must be from 1 to 1,000"),
        (lambda: on_one(pin={"tq": 8}), "tq=8: no axis 'tq'"),
        (lambda: on_one(batch="8..4"), "batch='8..4': the range is empty; write 4..8"),
        (lambda: cw.plan("llama3-8b"), "on what? cluster='dgx-h100:16', or accelerators='A100:4,V100:8'"),
        (lambda: cw.plan("llama3-8b", 16), "cluster=16: must be str or Path or Cluster"),  # type: ignore[arg-type]
        (lambda: cw.plan("llama3-8b", "dgx-h100"), "cluster='dgx-h100': how many?"),
        (lambda: cw.estimate("llama3-8b", "dgx-h100:1", batch="8..16"), "batch: estimate takes one value"),
        (lambda: cw.procure(), "what for? Give a portfolio file, or model and tokens"),
        (lambda: cw.procure(model="llama3-8b", tokens=1e9, ways="by"), "ways='by': 'by' is none of buy"),
        (lambda: cw.export(sets(), "megatron", set={"lrr": 3}), "did you mean lr?"),
        (lambda: cw.export(sets(), "megatron", alternative=1), "alternative is of an offer"),
        (lambda: cw.explain(sets(), rank=9), "no plan of rank 9; it holds 3"),
        (lambda: cw.load("nowhere.json"), "nowhere.json: No such file"),
        (lambda: cw.calibrate(output="x"), "name one of"),
        (lambda: cw.cluster("dgx-h100:1..4"), "one count of nodes here"),
    ],
)
def test_a_wrong_question_is_told_in_keywords(call, says: str) -> None:
    with pytest.raises(cw.WrongQuestion) as error:
        call()
    assert says in str(error.value)
    assert _is_python(str(error.value))


def test_no_answer_is_told_in_keywords() -> None:
    with pytest.raises(cw.NoAnswer, match=r"deadline='"):
        on_one(deadline=1000.0, **SMALL)


def _is_python(message: str) -> bool:
    """Whether no flag is in a message, and no command but such as are typed in a shell."""
    spoken = re.sub(r"in a shell: clusterwright [^;)\n]*", "", message)
    return " --" not in spoken and "clusterwright " not in spoken


@pytest.mark.parametrize(
    "call",
    [
        lambda: cw.plan("llama3-9b", "dgx-h100:1"),
        lambda: cw.plan("dlrm-large", "dgx-h100:1"),
        lambda: cw.plan("nowhere.toml", "dgx-h100:1"),
        lambda: cw.plan("llama3-8b", "dgx-h101:1"),
        lambda: cw.plan("llama3-8b", ":1"),
        lambda: cw.plan("llama3-8b", accelerators="X100:8"),
        lambda: cw.estimate("llama3-8b", "dgx-h100"),
        lambda: on_one(fabric="infinband"),
        lambda: on_one(region="mars"),
        lambda: on_one(runtime="megatron"),
        lambda: on_one(site="nowhere"),
        lambda: cw.node("dgx-h101"),
        lambda: cw.accelerator("H101"),
        lambda: cw.export(sets(), "megatron+slrm"),
        lambda: cw.export(sets(), "megatron", lost=2),
        lambda: cw.export(sets(), "megatron", workload="base"),
        lambda: cw.learn("train.log"),
        lambda: cw.load("pyproject.toml"),
        lambda: cw.compare("pyproject.toml", sets()),
    ],
)
def test_hints_are_python(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLUSTERWRIGHT_SITE", raising=False)
    monkeypatch.chdir(ROOT)
    with pytest.raises(cw.WrongQuestion) as error:
        call()
    assert _is_python(str(error.value)), error.value


def _texts(tree: ast.AST) -> Iterator[str]:
    """Texts of a module that are no docstrings, with ``X1`` for what is filled in."""
    docstrings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    filled = [part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)]
    inner = {id(node) for node in docstrings} | {id(part) for part in filled if not isinstance(part, ast.JoinedStr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X1" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def test_every_command_that_a_message_names_has_its_python() -> None:
    files = [path for path in (ROOT / "planner").rglob("*.py") if not {"commands", "launchers"} & {*path.parts}]
    texts = [text for path in files for text in _texts(ast.parse(path.read_text(encoding="utf-8")))]
    named = [text for text in texts if re.search(r"clusterwright [a-z]", text) and "(?P" not in text]
    assert len(named) > 20
    assert not [text for text in named if not _is_python(wording.in_keywords(text))]


@pytest.mark.parametrize(
    ("flags", "keywords"),
    [
        ("--seq 8k: no", "seq='8k': no"),
        ("--seq 4096: no", "seq=4096: no"),
        ("at --oom-risk 5 % or more", "at oom_risk=5 % or more"),
        ("another --basis, or (--price '$2/h' each)", "another basis, or (price='$2/h' each)"),
        ("--precision and --pin precision=bf16 say the same", "precision and pin='precision=bf16' say the same"),
        ("(clusterwright plan ... --seq 8k -o p.json) or --json", "(plan(..., seq='8k').to_json()) or json"),
        ("(clusterwright comm choose --table FILE)", "(in a shell: clusterwright comm choose --table FILE)"),
        ("; clusterwright learn LOG adds them", "; learn(LOG) adds them"),
        ("choose another (-o DIR)", "choose another (output=DIR)"),
    ],
)
def test_flags_become_keywords(flags: str, keywords: str) -> None:
    assert wording.in_keywords(flags) == keywords.replace("oom_risk=5 %", "oom_risk='5 %'")


# ---- records of the catalog ------------------------------------------------------------------------------------------


def test_a_record_as_it_is_asks_what_its_name_asks() -> None:
    named = cw.estimate("llama3-8b", "dgx-h100:2", tp=8, batch=64)
    given = cw.estimate(cw.model("llama3-8b"), cw.cluster("dgx-h100:2"), tp=8, batch=64)
    assert given[0].prediction == named[0].prediction and given[0].money == named[0].money
    assert given[0].generator.inputs.items() > named[0].generator.inputs.items()


def test_a_changed_record_changes_the_answer_and_its_inputs() -> None:
    part = cw.accelerator("H100-SXM5-80GB")
    on = [cw.cluster("dgx-h100", 1, accelerator=each) for each in (part, replace(part, memory="40 GB"))]
    assert on[1].accelerator.memory == 40e9
    plans = [cw.estimate("llama3-8b", each, tp=8, batch=64)[0] for each in on]
    held = [plan.cluster.pools[0].accelerator_memory_bytes for plan in plans]
    assert held == [80 * 2**30, 40e9] and plans[0].generator.inputs != plans[1].generator.inputs
    model = cw.model("llama3-8b")
    half = cw.estimate(replace(model, layers=16), on[0], tp=8, batch=64)[0]
    assert half.workload.parameters < plans[0].workload.parameters
    assert half.generator.inputs["model llama3-8b"] != plans[0].generator.inputs["model llama3-8b"]


def test_a_changed_model_is_bought_for() -> None:
    model, how = cw.model("gpt2"), {"tokens": 1e9, "node": "p4d.24xlarge", "quick": True}
    named, same, deeper = (cw.procure(model=m, **how) for m in ("gpt2", model, replace(model, layers=24)))
    assert named[0].value == same[0].value < deeper[0].value
    (job,) = deeper[0].workloads
    assert job.plan.workload.shape["layers"] == 24 and job.name == deeper.question.name == "gpt2"
    assert "model gpt2" in deeper.generator.inputs and deeper.generator.inputs != same.generator.inputs
    with pytest.raises(cw.WrongQuestion, match="must divide heads = 31"):
        cw.procure(model=replace(cw.model("llama3-8b"), heads=31), tokens=1e9)


def test_shards_of_a_study_are_merged(tmp_path: Path) -> None:
    whole = study(tmp_path)
    parts = [tmp_path / f"shard-{n}.json" for n in (1, 2)]
    for n, path in enumerate(parts, 1):
        path.write_text(cw.design(tmp_path / "study.toml", shard=(n, 2), quick=True).to_json(), encoding="utf-8")
    merged = cw.design(tmp_path / "study.toml", merge=parts)
    assert merged.search.exact and (merged.best, merged.trials) == (whole.best, whole.trials)
    with pytest.raises(cw.WrongQuestion, match="appears twice"):
        cw.design(tmp_path / "study.toml", merge=[parts[0], str(parts[0])])


def test_a_changed_node_makes_a_cluster() -> None:
    other = cw.cluster("dgx-h100", 2, accelerator="H200-SXM-141GB")
    assert other.node.accelerator == other.accelerator.id == "H200-SXM-141GB"
    four = replace(cw.node("dgx-h100"), accelerators=4)
    plan = cw.plan("llama3-8b", cw.cluster(four, 2), top=1, **SMALL)[0]
    assert plan.cluster.accelerators == 8


def test_pools_may_be_records_and_names_at_once() -> None:
    plan = cw.plan("gpt2", [cw.cluster("t4-4:1"), "dgx-v100:1"], batch=32, top=1)[0]
    assert "cluster t4-4#1" in plan.generator.inputs


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"memory": -1}, r"cluster\.accelerator\.memory = -1: must be above 0"),
        ({"memory": "80 furlongs"}, r"cluster\.accelerator\.memory = \"80 furlongs\": unknown unit"),
        ({"memory_bandwidth": None}, r"cluster\.accelerator\.memory_bandwidth = None"),
    ],
)
def test_a_wrong_figure_is_told_with_its_field(change: dict, says: str) -> None:
    base = cw.cluster("dgx-h100:1")
    with pytest.raises(cw.WrongQuestion, match=says):
        cw.plan("llama3-8b", replace(base, accelerator=replace(base.accelerator, **change)))


def test_a_model_that_does_not_add_up() -> None:
    with pytest.raises(cw.WrongQuestion, match="must divide heads = 31"):
        cw.plan(replace(cw.model("llama3-8b"), heads=31), "dgx-h100:1")


def test_every_cluster_of_the_catalog_passes_unchanged() -> None:
    known = catalog.load()
    for name, node in known.nodes.items():
        made = catalog.cluster(known, name, 1, None if node.fabric else "ethernet-25g", "us")
        assert cw.cluster(made.node, 1, fabric=made.fabric.id, region="us") == made


# ---- what comes back -------------------------------------------------------------------------------------------------


def test_a_plan_set_is_a_sequence_and_a_table() -> None:
    found = sets()
    assert len(found) == 3 and found[0] == next(iter(found)) == found.plans[0] and found[1:] == found.plans[1:]
    assert (
        repr(found).startswith("<PlanSet: 3 plans; the best: llama3-8b on 2 x dgx-h100: TP") and len(repr(found)) < 150
    )
    shown = found._repr_html_()
    assert shown.count("<tr>") == 4 and "GiB" in shown and "step_matrix_s" not in shown
    frame = found.to_frame()
    assert list(frame["rank"]) == [1, 2, 3] and frame["step_time_s"].is_monotonic_increasing
    assert pickle.loads(pickle.dumps(found)) == found
    assert json.loads(found.to_json()) == document.stamped(found)


def test_a_report_is_plain_and_in_keywords(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as notebooks have it
    said = cw.explain(sets())
    assert capsys.readouterr().out == "" and repr(said) == said
    assert "\x1b" not in said and "--" not in said and "usual for seq, tokens" in said
    assert "verbose=True says what" in said and "8,192 tokens per sequence (seq)" in cw.explain(sets(), verbose=True)


def test_html_is_escaped() -> None:
    odd = replace(sets(), plans=(replace(sets()[0], precision="<b>"),))
    assert "<b>" not in odd._repr_html_() and "&lt;b&gt;" in odd._repr_html_()


def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import clusterwright as cw\nfrom planner.procurement.throughput import columns\n"
        "print('begins')\ncolumns.MANY = 2\n"
        "print(cw.procure(model='gpt2', tokens=1e9, node=['p4d.24xlarge', 'p5.48xlarge'], quick=True)[0])\n",
        encoding="utf-8",
    )
    shown = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=90)
    assert shown.returncode == 0 and shown.stdout.count("begins") == 1, shown.stderr


# ---- ten things that a researcher does -------------------------------------------------------------------------------


def test_sweep_node_counts_and_plot() -> None:
    import matplotlib as mpl
    import pandas as pd

    mpl.use("Agg")
    table = pd.concat(cw.plan("llama3-8b", f"dgx-h100:{n}", top=1, **SMALL).to_frame() for n in (1, 2, 4))
    assert list(table["accelerators"]) == [8, 16, 32] and table["days"].is_monotonic_decreasing
    axes = table.plot(x="accelerators", y="tokens_per_s")
    assert len(axes.lines[0].get_xdata()) == 3


def test_compare_two_models() -> None:
    small, large = (cw.estimate(name, "dgx-h100:1", tp=8, batch=64) for name in ("llama3-8b", "llama2-13b"))
    found = cw.compare(small, large)
    assert "models" in found.questions and found.tokens < 1 and "other" in repr(found)
    frame = found.to_frame().set_index("plan")
    assert frame.loc["second", "step_time_s"] / frame.loc["first", "step_time_s"] == pytest.approx(found.step)
    assert list(found[:1].to_frame().columns) == (["axis", "first", "second"] if len(found) else [])


def test_read_a_breakdown() -> None:
    plan = sets()[0]
    assert sum(plan.prediction.breakdown.values()) == pytest.approx(plan.prediction.step_time_s)
    frame = plan.to_frame()
    parts = frame.filter(regex="^step_(?!time).*_s$").sum(axis=1)
    assert parts[0] == pytest.approx(frame["step_time_s"][0])


def test_change_one_hardware_figure() -> None:
    part = cw.accelerator("H100-SXM5-80GB")
    rates = [part.memory_bandwidth * factor for factor in (1, 2)]
    times = [
        cw.estimate("llama3-8b", cw.cluster("dgx-h100", 1, accelerator=replace(part, memory_bandwidth=rate)), tp=8)[0]
        for rate in rates
    ]
    assert times[1].prediction.step_time_s < times[0].prediction.step_time_s


def test_price_a_list_of_configurations() -> None:
    import pandas as pd

    listed = [{"tp": 8}, {"tp": 4, "pp": 2}, {"tp": 2, "recompute": "full"}]
    table = pd.concat([cw.estimate("llama3-8b", "dgx-h100:1", batch=64, **each).to_frame() for each in listed])  # type: ignore[arg-type]
    assert list(table["tp"]) == [8, 4, 2] and list(table["recompute"]) == ["none", "none", "full"]
    assert (table["usd"] > 0).all() and (table["memory_bytes"] > 0).all()
    as_typed = cw.estimate("llama3-8b", "dgx-h100:1", "tp=4 pp=2", batch=64)
    assert as_typed[0].prediction.step_time_s == table["step_time_s"].iloc[1]


def test_feed_a_plan_to_export(tmp_path: Path) -> None:
    found = cw.export(sets()[0], "megatron+slurm", tmp_path / "run", set={"lr": 3e-4})
    assert "0.0003" in "".join(found.bundles[""].files.values())
    assert sorted(found.to_frame()["file"]) == sorted(path.name for path in (tmp_path / "run").iterdir())
    assert list(cw.export(sets(), "megatron").bundles) == ["rank-1", "rank-2", "rank-3"]
    assert cw.export(sets()[0], ["megatron", "slurm"]).bundles.keys() == found.bundles.keys()


def test_read_an_offers_bill() -> None:
    found = offer()
    assert [each.rank for each in found] == [1, 2, 3] and found.to_frame()["total_usd"].is_monotonic_increasing
    bill = found[2].to_frame()
    assert bill["usd"].sum() == pytest.approx(found[2].cost.cash_usd) and "unit_price_usd" in bill
    assert found[2].workloads[0].plan.prediction.step_time_s > 0
    assert "alternative" in repr(found) and "Rent" in cw.explain(found)


def test_run_a_study(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = study(tmp_path_factory.getbasetemp())
    table = found.to_frame()
    assert len(table) == 4 and {"accelerator.memory_bytes", "node.accelerators"} <= set(table.columns)
    assert found[0].number in set(table["number"]) and "4 points tried" in repr(found)
    assert table.set_index("number")["cost_usd_per_mtoken"].min() == found[0].objectives["cost"]


def test_a_point_at_the_end_of_an_axis_is_said_to_be(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    found = study(tmp_path_factory.getbasetemp())
    design_view.show(found)
    shown = capsys.readouterr().out
    end = {40 * 2**30: "least", 80 * 2**30: "most", 4: "least", 8: "most"}
    listed = ", ".join(f"{axis.partition('.')[2]} ({end[int(value)]})" for axis, value in found[0].axes.items())
    assert f"at the end of what was tried: {listed}; beyond it may be better still" in shown
    assert "40 GiB" in shown and "40.0 GiB" not in shown, "an axis stands in the unit that it was asked in"


def test_validate_own_runs(tmp_path: Path) -> None:
    lines = (ROOT / "benchmarks" / "data" / "measured_runs.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "runs.csv").write_text("\n".join(lines[:40]) + "\n", encoding="utf-8")
    found = cw.validate(tmp_path / "runs.csv", by="model")
    table = found.to_frame()
    assert len(found) == 39 and found.document["overall"]["n"] == 39
    timed = table.dropna(subset=["measured_s", "predicted_s"])
    assert len(timed) and (timed["error"] - (timed["predicted_s"] / timed["measured_s"] - 1)).abs().max() < 1e-3


def test_load_a_document_again(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    images = cw.plan_images("resnet50", accelerators={"A100": 4, "V100": 4}, batch=256)
    for each in (sets(), sets()[1], offer(), study(tmp_path_factory.getbasetemp()), images):
        file = tmp_path / "document.json"
        file.write_text(each.to_json(), encoding="utf-8")
        assert cw.load(file) == each == cw.load(str(file))
        assert pickle.loads(pickle.dumps(each)) == each


@pytest.mark.parametrize(
    ("name", "keyword", "says"),
    [
        ("plan", {"tp": 8}, 'pin={"tp": ...}'),
        ("plan", {"nodes": 2}, 'cluster="dgx-h100:2"'),
        ("plan", {"sequence": 8192}, "did you mean seq=?"),
        ("plan", {"context": 8192}, "did you mean seq=?"),
        ("plan", {"dtype": "bf16"}, "did you mean precision=?"),
        ("procure", {"within": "30 d"}, "did you mean deadline=?"),
    ],
)
def test_what_others_call_a_keyword_is_known(name: str, keyword: dict[str, object], says: str) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(cw, name)(model="llama3-8b", **keyword)
    assert says in str(caught.value)


def test_a_changed_node_is_another_cluster() -> None:
    node = cw.node("dgx-h100")
    whole, half = (
        cw.estimate("llama3-8b", cw.cluster(each, 2), tp=4) for each in (node, replace(node, accelerators=4, nics=4))
    )
    assert "clusters" in cw.compare(whole, half).questions
    with pytest.raises(cw.WrongQuestion, match=r"cluster\(node, 2, accelerator="):
        cw.cluster(replace(node, accelerator=cw.accelerator("H100-SXM5-80GB")), 2)


def test_what_does_not_fit_says_so_and_a_text_is_no_file() -> None:
    assert "does not fit into 80.0 GiB" in repr(cw.estimate("llama3.1-405b", "dgx-h100:1", tp=8))
    with pytest.raises(cw.WrongQuestion, match="a JSON text where a file's name is expected"):
        cw.load("{}")


# ---- documents read again --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("plan llama3-8b --cluster dgx-h100:1 --batch 64 --tp 2 --micro 1 --top 1", "plan-set"),
        ("plan resnet50 --accelerators A100:4,V100:4 --batch 256", "image-plan"),
        ("compare plan.json plan.json", "comparison"),
        ("comm show plan.json", "communication"),
        ("explain plan.json", "plan"),
    ],
)
def test_whatever_json_prints_is_loaded(
    line: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text(sets().to_json(), encoding="utf-8")
    (tmp_path / "answer.json").write_text(ask(capsys, f"{line} --json").out, encoding="utf-8")
    found = cw.load("answer.json")
    assert json.loads(found.to_json())["kind"] == kind
    assert len(found.to_frame()) >= 1
    if kind == "comparison":
        assert found == cw.compare(sets(), sets())


def test_a_report_of_another_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "validation.json"
    report = {"kind": "validation", "schema_version": 1, "groups": [{"name": "all", "n": 3}]}
    file.write_text(json.dumps(report), encoding="utf-8")
    assert [*cw.load(file)] == [{"name": "all", "n": 3}]
    for wrong, says in (
        ({"schema_version": 9}, "schema_version is 9"),
        ({"groups": 3}, "groups: must be a list of tables"),
    ):
        file.write_text(json.dumps({**report, **wrong}), encoding="utf-8")
        with pytest.raises(cw.WrongQuestion, match=says):
            cw.load(file)
    file.write_text(json.dumps({"kind": "valdation", "schema_version": 1}), encoding="utf-8")
    with pytest.raises(cw.WrongQuestion, match=r"kind is 'valdation'; expected plan, .*validation"):
        cw.load(file)
