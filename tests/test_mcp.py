"""What an agent may ask: some of the questions, straight to the tools (over stdio all of them: make test-report)."""

from __future__ import annotations

import json
import sys
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path

import pytest

from planner.base.errors import ClusterwrightError, WrongQuestion
from planner.commands.agent_tools import AgentTools
from planner.commands.one_search import OneSearch
from planner.commands.serving import answered, server
from tests import agent_questions as asked
from tests.sweeps import sweep


def test_there_are_questions_of_every_tool(tmp_path: Path) -> None:
    assert len(asked.QUESTIONS) == 43
    tools = {tool.__name__ for tool in AgentTools(tmp_path).all()}
    assert {question.tool for question in asked.QUESTIONS} == tools
    assert sum(isinstance(question.holds, str) for question in asked.QUESTIONS) >= 15


@sweep("number", asked.FIRST)
def test_tools_answer_and_refuse(number: int, tmp_path: Path) -> None:
    question = asked.QUESTIONS[number]
    tool = getattr(AgentTools(tmp_path), question.tool)
    if isinstance(question.holds, str):
        with pytest.raises(ClusterwrightError) as refused:
            tool(**question.arguments)
        assert question.holds in str(refused.value)
    else:
        assert question.holds(tool(**question.arguments))


@sweep("name", ["../x.json", "/tmp/x.json", "", " ", "a/../../x.json", "x\0.json", "link/x.json"])
def test_nothing_is_written_outside_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    tools = AgentTools(folder)
    with pytest.raises(WrongQuestion, match="only files below the server's folder"):
        tools.estimate("llama3-8b", "dgx-h100:1", "tp=8", batch=64, save=name)
    with pytest.raises(WrongQuestion, match="only files below the server's folder"):
        tools.explain(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own"]


@sweep(
    "model",
    ["other/secret.json", "other/secret.toml#x", "secret.toml#x", "secret.toml", "other/secret", "~/x", "a/../../x"],
)
def test_models_outside_the_folder_are_never_read(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from where the server runs, nor by a link, nor by what a portfolio names."""
    (tmp_path / "own").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("other/secret.json", "other/secret.toml", "secret.toml", "other/secret"):
        (tmp_path / name).write_text("SECRET", encoding="utf-8")
    (tmp_path / "own" / "secret.toml").symlink_to(tmp_path / "secret.toml")
    steps = ('response = "1k/2k", critic = "MODEL"', 'response = "1k/2k", reward = "MODEL"', 'response = "MODEL"')
    trained = [f'model = "llama3-8b"\ntask = "ppo"\nstep = {{ {step} }}'.replace("MODEL", model) for step in steps]
    for place, job in enumerate((f'model = "{model}"', *trained)):
        (tmp_path / "own" / f"{place}.toml").write_text(f"[[workloads]]\n{job}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    tools = AgentTools(tmp_path / "own")
    for ask in (
        lambda: tools.plan(model, "dgx-h100:1"),
        lambda: tools.plan("llama3-8b", model),
        lambda: tools.fit(model),
        *(partial(tools.procure, f"{place}.toml") for place in range(4)),
    ):
        with pytest.raises(WrongQuestion, match=r"server's folder|no such file|No such file|by id|writes lengths"):
            ask()


def test_names_in_measured_runs_are_no_files(tmp_path: Path) -> None:
    """A row names entries of the library and the catalog: one that is a path is a run that nothing is said of."""
    model, header = "models/llama.toml", "id,source,model,family,accelerator,num_accelerators,seq_len,global_batch_seqs"
    (tmp_path / "models").mkdir()
    (tmp_path / model).write_text("SECRET", encoding="utf-8")
    row = "decoder,{},8,8192,64,1.0"
    lines = [f"a,x,{model},{row.format('H100-SXM5-80GB')}", f"b,x,llama3-8b,{row.format(model)}"]
    (tmp_path / "runs.csv").write_text("\n".join([f"{header},step_time_s", *lines, ""]), encoding="utf-8")
    found = AgentTools(tmp_path).validate("runs.csv")
    assert (found["overall"]["n"], found["overall"]["covered"]) == (2, 0)


def test_checkpoints_of_the_hub_are_models(tmp_path: Path) -> None:
    assert AgentTools(tmp_path)._named("meta-llama/Meta-Llama-3-8B") == "meta-llama/Meta-Llama-3-8B"


def test_plans_are_counted_from_one(tmp_path: Path) -> None:
    tools = AgentTools(tmp_path)
    tools.estimate("llama3-8b", "dgx-h100:1", "tp=8", batch=64, save="plan.json")
    with pytest.raises(WrongQuestion, match="from 1"):
        tools.export("plan.json", "megatron", rank=0)


def test_only_what_was_saved_is_saved_over(tmp_path: Path) -> None:
    tools = AgentTools(tmp_path)
    ask = partial(tools.estimate, "llama3-8b", "dgx-h100:1", batch=64)
    ask("tp=8", save="plan.json")
    ask("tp=4", save="plan.json")
    written = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    for content in (
        {"precious": 1},
        [],
        {**written, "note": "mine"},
        {k: v for k, v in written.items() if k != "digest"},
    ):
        (tmp_path / "plan.json").write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(WrongQuestion, match="was not saved here; choose another name"):
            ask("tp=8", save="plan.json")
        assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == content


def test_links_in_a_circle_lie_nowhere(tmp_path: Path) -> None:
    (tmp_path / "one.json").symlink_to("other.json")
    (tmp_path / "other.json").symlink_to("one.json")
    with pytest.raises(WrongQuestion, match="Too many levels"):
        AgentTools(tmp_path).explain("one.json")


def test_a_missing_sdk_is_a_plain_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(WrongQuestion, match=r"clusterwright\[mcp\]"):
        server(tmp_path)


def test_tools_keep_their_names_and_types(tmp_path: Path) -> None:
    for tool in AgentTools(tmp_path).all():
        assert answered(tool).__name__ == tool.__name__ and tool.__doc__


def test_tools_that_may_take_minutes_end_with_who_asked(tmp_path: Path) -> None:
    """Others answer in the server itself, where nothing ends them."""
    search = OneSearch(tmp_path)
    apart = {tool.__name__ for tool in AgentTools(tmp_path).all() if iscoroutinefunction(answered(tool, search))}
    assert apart == {"plan", "fit", "procure", "validate"}
