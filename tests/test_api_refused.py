"""What the Python functions refuse, and that they say so in keywords."""

import ast
import re
from collections.abc import Iterator

import pytest

import clusterwright as cw
from planner.api import wording
from tests.api_questions import ROOT, SMALL, sets
from tests.sweeps import sweep


@sweep(
    ("call", "says"),
    [
        (lambda: cw.plan("llama3-8b", "dgx-h100:1", bacth=3), "plan() has no keyword 'bacth'; did you mean batch=?"),
        (lambda: cw.plan("gpt2", "dgx-h100:1", global_batch_size=3), "did you mean batch=?"),
        (lambda: cw.plan("gpt2", "dgx-h100:1", tensor_parallel=3), 'axes are fixed by pin={"tp": ...}'),
        (lambda: cw.estimate("gpt2", "dgx-h100:1", pipeline_parallel_size=3), "did you mean pp=?"),
        (lambda: cw.procure(max_cost="$5M"), "did you mean budget=?"),
        (lambda: cw.plan("gpt2", "dgx-h100:1", max_price=5), "did you mean max_cost=?"),
        (lambda: cw.estimate("gpt2", "dgx-h100:1", dp_size=4), "did you mean dp=?"),
        (lambda: cw.plan("gpt2", "dgx-h100:1", n_nodes=4), 'the number stands in the cluster: cluster="dgx-h100:2"'),
        (lambda: cw.cluster("dgx-h100", nodes=4), "did you mean count=?"),
        (lambda: cw.export(sets(), "megatron", folder="x"), "did you mean output=?"),
        (lambda: cw.estimate("llama3-8b", "dgx-h100:1", ppp=3), "no keyword 'ppp'; did you mean pp=?"),
    ],
)
def test_a_misspelt_keyword(call, says: str) -> None:
    with pytest.raises(TypeError) as error:
        call()
    assert says in str(error.value)


def on_one(**asked: object) -> object:
    return cw.plan("llama3-8b", "dgx-h100:1", **asked)  # type: ignore[arg-type]


@sweep(
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
        (lambda: cw.export(3, "megatron"), "that is a rank: give the set of plans, and rank=3"),  # type: ignore[arg-type]
        (lambda: cw.plan("llama3-8b", 16), "cluster=16: must be str or Path or Cluster"),  # type: ignore[arg-type]
        (lambda: cw.plan("llama3-8b", "dgx-h100"), "cluster='dgx-h100': how many?"),
        (lambda: cw.estimate("llama3-8b", "dgx-h100:1", batch="8..16"), "batch: estimate takes one layout a call"),
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


@sweep(
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


@pytest.mark.slow
def test_every_command_that_a_message_names_has_its_python() -> None:
    files = [path for path in (ROOT / "planner").rglob("*.py") if not {"commands", "launchers"} & {*path.parts}]
    texts = [text for path in files for text in _texts(ast.parse(path.read_text(encoding="utf-8")))]
    named = [text for text in texts if re.search(r"clusterwright [a-z]", text) and "(?P" not in text]
    assert len(named) > 20
    assert not [text for text in named if not _is_python(wording.in_keywords(text))]


@sweep(
    ("flags", "keywords"),
    [
        ("--seq 8k: no", "seq='8k': no"),
        ("--seq 4096: no", "seq=4096: no"),
        ("a batch of 17; try --batch 18. Or --seq 8k.", "a batch of 17; try batch=18. Or seq='8k'."),
        ("it is in --catalog own/a.b.", "it is in catalog='own/a.b'."),
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
