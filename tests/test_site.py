"""A site's folder: made, read, and refused with the place of what is wrong."""

import re
import shutil
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from planner.base.errors import WrongQuestion
from planner.commands.command_line import main
from planner.site import folder, profile
from tests.test_whole_or_not import killed_at
from tests.words import worded


@pytest.fixture
def made(tmp_path: Path) -> Path:
    assert main(["init", "site", str(tmp_path / "lab 1")]) == 0
    return tmp_path / "lab 1"


def test_a_new_site_holds_nothing_but_comments(made: Path) -> None:
    assert folder.opened(made, "--site").profile == profile.SiteProfile(name="lab-1")
    assert (made / "runs.csv").read_text().splitlines() == [",".join(folder.COLUMNS)]
    assert (made / "catalog").is_dir()


def test_the_template_shows_every_key_and_holds_once_uncommented() -> None:
    text = re.sub(r"^# (?=\w+ = )", "", profile.TEMPLATE.format(name="x"), flags=re.MULTILINE)
    shown = tomllib.loads(text)
    for item in fields(profile.SiteProfile):
        assert item.name in shown
        kind = getattr(profile.SiteProfile(), item.name)
        if is_dataclass(kind):
            assert shown[item.name].keys() == {inner.name for inner in fields(kind)}


def test_a_full_profile_is_read(made: Path) -> None:
    text = re.sub(r"^# (?=\w+ = )", "", (made / "site.toml").read_text(), flags=re.MULTILINE)
    (made / "site.toml").write_text(text)
    found = folder.opened(made, "--site").profile
    assert found.container.shared_memory == 64 * 2**30
    assert found.container.mounts[0] == "/data:/data:ro"
    assert found.environment == {"NCCL_IB_HCA": "mlx5"}


@worded("site.profile")
def test_a_wrong_profile_says_where(line: str, made: Path) -> str:
    (made / "site.toml").write_text(line)
    with pytest.raises(WrongQuestion) as raised:
        folder.opened(made, "--site")
    return str(raised.value).replace(str(made), "SITE")


def test_nothing_that_is_there_is_overwritten(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "runs.csv").unlink()
    assert main(["init", "site", str(made)]) == 2
    assert "site.toml: exists already; nothing was written" in capsys.readouterr().err
    assert not (made / "runs.csv").exists()


def test_a_site_whose_making_was_killed_is_made_by_the_same_command(tmp_path: Path) -> None:
    lab, number = tmp_path / "lab", 0
    while killed_at(number := number + 1, lambda: main(["init", "site", str(lab)])):
        if not (lab / "site.toml").exists():
            assert main(["init", "site", str(lab)]) == 0
        assert folder.opened(lab, "--site").runs.read_text(encoding="utf-8") == folder.HEADER
        shutil.rmtree(lab)
    assert number > 5


def test_a_journal_that_is_there_is_not_overwritten(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "site.toml").unlink()
    (made / "runs.csv").write_text(folder.HEADER + "one\n")
    assert main(["init", "site", str(made)]) == 2
    assert "runs.csv: exists already; nothing was written" in capsys.readouterr().err
    assert not (made / "site.toml").exists()


def test_a_file_for_a_folder_names_the_folder(made: Path) -> None:
    with pytest.raises(Exception, match=re.escape(f"site.toml: a file; name the folder that holds it: {made}")):
        folder.opened(made / "site.toml", "--site x/site.toml")


def test_a_folder_that_is_no_site_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match=r"holds no site\.toml; make a site with: clusterwright init site"):
        folder.named(tmp_path)
    assert folder.named(None) is None
    monkeypatch.setenv("CLUSTERWRIGHT_SITE", str(tmp_path / "none"))
    with pytest.raises(Exception, match=r"CLUSTERWRIGHT_SITE=.*: no such folder"):
        folder.named(None)
