"""A document that somebody edited says so, and one whose catalog has changed since."""

import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.base.errors import DocumentChanged, WrongQuestion
from planner.catalog.loading import Catalog
from planner.planning import document
from planner.schema.digest import content_digest
from tests.asking import ask

COMMANDS = [
    "explain plan.json",
    "explain plan.json --json",
    "compare plan.json plan.json",
    "comm show plan.json",
    "comm choose plan.json",
    "export plan.json --to megatron -o out",
]
EDITED, CHANGED = "plan.json: edited since it was written", "the built-in catalog has changed since it was written"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    from planner.commands.command_line import main

    file = tmp_path_factory.mktemp("plans") / "plan.json"
    assert main(["plan", "llama3-8b", "--cluster", "dgx-h100:2", "--top", "2", "-o", str(file)]) == 0
    return file.read_text(encoding="utf-8")


pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_reader_says_that_a_plan_was_edited(
    command: str, text: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "plan.json").write_text(text, encoding="utf-8")
    assert EDITED not in ask(capsys, command).err
    edited = json.loads(text)
    edited["plans"][0]["energy"]["usd"] *= 1.01
    (folder / "plan.json").write_text(json.dumps(edited), encoding="utf-8")
    answer = ask(capsys, f"{command} --force" if "export" in command else command)
    assert answer.err.count(EDITED) >= 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_reader_says_that_the_catalog_has_changed(
    command: str, text: str, capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "plan.json").write_text(text, encoding="utf-8")
    assert CHANGED not in ask(capsys, command).err
    monkeypatch.setattr(Catalog, "versions", lambda self: {"built-in": "another"})
    assert CHANGED in ask(capsys, f"{command} --force" if "export" in command else command).err


@pytest.mark.parametrize("laid_out", [{"indent": None}, {"indent": 7}, {"sort_keys": True}, {"ensure_ascii": True}])
def test_another_layout_is_no_edit(laid_out: dict[str, Any], text: str, folder: Path) -> None:
    (folder / "plan.json").write_text(json.dumps(json.loads(text), **laid_out), encoding="utf-8")
    document.load(folder / "plan.json")
    whole = text.replace(".0,\n", ",\n")  # as programs that know one kind of number write it
    assert content_digest(json.loads(whole)) == json.loads(text)["digest"]


def test_documents_of_before_have_no_digest(text: str, folder: Path) -> None:
    older = json.loads(text)
    del older["digest"]
    (folder / "plan.json").write_text(json.dumps(older), encoding="utf-8")
    document.load(folder / "plan.json")


@pytest.mark.parametrize("digest", [None, 5, "", [], {"a": 1}])
def test_a_digest_of_another_kind(digest: object, text: str, folder: Path) -> None:
    (folder / "plan.json").write_text(json.dumps({**json.loads(text), "digest": digest}), encoding="utf-8")
    with pytest.warns(DocumentChanged, match="edited") as said:
        document.load(folder / "plan.json")
    assert said[0].filename == __file__


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Places of everything in a document that holds nothing else."""
    if isinstance(value, dict | list) and value:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, key))
    else:
        yield path


def corrupted(value: object, chance: random.Random) -> object:
    """Another value of the same kind, or none."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return chance.choice([value * 2 + 1, value * (1 + 1e-9) + 1e-9, -value - 1, value * 3 + 2])
    if isinstance(value, str):
        return chance.choice([value + " ", value[:-1] + "x", value.upper() + "y"])
    return chance.choice([0, "x", [1], {"a": 1}])


def test_a_leaf_that_was_changed_is_seen(text: str) -> None:
    """Each in turn, to a value of its own kind: what the records don't refuse the digest tells."""
    chance, whole = random.Random(0), json.loads(text)
    places = [place for place in leaves(whole) if place[0] != "meta"]
    assert len(places) > 300
    for place in places:
        edited = json.loads(text)
        inner = edited
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = corrupted(inner[place[-1]], chance)
        with warnings.catch_warnings(), pytest.raises((DocumentChanged, WrongQuestion)):
            warnings.simplefilter("error")
            document.parse(edited, "plan.json")


@pytest.mark.parametrize("rank", [99, 0, -1])
def test_a_recommended_plan_that_is_not_there(
    rank: int, text: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """Was passed over: the first plan stood in for it."""
    (folder / "plan.json").write_text(json.dumps({**json.loads(text), "recommended": rank}), encoding="utf-8")
    answer = ask(capsys, "explain plan.json")
    assert (answer.code, f"recommended is {rank}; it holds plans 1 to 2" in answer.err) == (2, True)
