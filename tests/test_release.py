"""What a release is made of: workflows, container, citation and site hold what the project says elsewhere."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

import planner
from docs import index_page, site_pages
from tests.sweeps import sweep

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def parsed(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


@sweep("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_that_there_are_and_may_only_read(path: Path) -> None:
    workflow = parsed(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow[True], "when it runs: YAML reads `on` as true"
    for name, job in workflow["jobs"].items():
        for step in job["steps"]:
            assert step.keys() & {"uses", "run"}, name
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}")), "a tag may move"
            if "actions/checkout@" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False, "the token would lie on the disk"
            lines = re.findall(r"^make ([^|&;$\n]*)", step.get("run", ""), re.MULTILINE)
            asked = {word for line in lines for word in line.split() if re.fullmatch(r"[a-z][a-z-]*", word)}
            assert asked <= TARGETS, name


def test_every_python_that_is_supported_is_tested() -> None:
    versions = parsed(ROOT / ".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    said = [each.rpartition(" ")[2] for each in PROJECT["project"]["classifiers"] if "Python :: 3." in each]
    assert versions["python"] == said
    assert versions["os"] == ["ubuntu-latest", "macos-latest"]


def test_a_release_has_its_bill_of_materials_and_where_it_comes_from() -> None:
    jobs = parsed(ROOT / ".github/workflows/release.yml")["jobs"]
    assert any("make -s sbom" in step.get("run", "") for step in jobs["build"]["steps"])
    names = [step.get("uses", "").partition("@")[0] for step in jobs["publish"]["steps"]]
    assert names.index("actions/attest-build-provenance") < names.index("pypa/gh-action-pypi-publish")
    assert jobs["publish"]["permissions"] == {"id-token": "write", "attestations": "write"}


def test_only_publishing_may_sign() -> None:
    allowed = {
        (path.stem, name)
        for path in WORKFLOWS
        for name, job in parsed(path)["jobs"].items()
        if "write" in job.get("permissions", {}).values()
    }
    assert allowed == {("release", "publish"), ("docs", "publish")}
    assert not [path for path in WORKFLOWS if "secrets." in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms_ask(path: Path) -> None:
    form = parsed(path)
    assert {"name", "description", "body"} <= form.keys()
    assert all(each["type"] in ("textarea", "input", "checkboxes") for each in form["body"])
    known = {"label", "description", "placeholder", "value", "render", "options"}  # GitHub refuses a form with another
    assert all(each["attributes"].keys() <= known and each["attributes"]["label"] for each in form["body"])
    ids = [each["id"] for each in form["body"]]
    assert len(ids) == len(set(ids)) >= 2


def test_the_container_is_what_readme_says_and_small() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    commands = re.findall(r"^# (docker .*)$", text, re.MULTILINE)
    assert commands[:2] == re.findall(r"^docker .*$", README, re.MULTILINE)
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    last = lines[max(n for n, line in enumerate(lines) if line[0] == "FROM") :]
    images = [line[1].split()[0] for line in lines if line[0] == "FROM"]
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", image) for image in images) and len(set(images)) == 1
    order = [line[0] for line in last]
    assert order.index("USER") < order.index("ENTRYPOINT")
    assert int(dict(last)["USER"]) > 0, "not root, in digits: Kubernetes resolves no names (runAsNonRoot)"
    assert dict(last)["ENTRYPOINT"] == f'["{next(iter(PROJECT["project"]["scripts"]))}"]'


def test_the_container_is_built_from_all_that_the_wheel_needs() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"]
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], *PROJECT["project"]["license-files"], "README.md"]
    assert [name for name in [*needed, "pyproject.toml"] if not any(fnmatch(name, each) for each in kept)] == []
    assert [each for each in kept if not list(ROOT.glob(each))] == []


def test_the_citation_is_of_this_release() -> None:
    citation = parsed(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == planner.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    released = re.search(
        rf"^## \[{re.escape(planner.__version__)}\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
    )
    assert released is not None, "a version has a section in the changelog"
    assert str(citation["date-released"]) == released[1]


def listed(part: object) -> list[str]:
    """Pages of a navigation."""
    if isinstance(part, str):
        return [part]
    return [page for each in (part.values() if isinstance(part, dict) else part) for page in listed(each)]  # type: ignore[attr-defined]


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    config = parsed(ROOT / "mkdocs.yml")
    assert config["strict"] is True
    assert sorted(listed(config["nav"])) == sorted([*site_pages.sources().values(), "records.md"])


def test_links_of_the_site_stay_in_it(tmp_path: Path) -> None:
    site_pages.main(tmp_path / "pages")
    for page in (tmp_path / "pages").glob("*.md"):
        for link in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_an_index_shows_whole_addresses() -> None:
    """Of every link of README.md to a file of the repository; the metadata stay what they are beside the addresses."""
    at = "https://example.org/lab/clusterwright"
    text = index_page.linked(README, at, "v1.2.3")
    files = re.findall(rf"\]\({at}/(?:blob|raw)/v1\.2\.3/([^)#]+)", text)
    assert len(files) > 20 and all((ROOT / name).exists() for name in files)
    assert set(re.findall(r"\]\(([^)]+)\)", text)) <= {each for each in re.findall(r"\]\((https://[^)]+)\)", text)}
    project = tomllib.loads(index_page.addressed((ROOT / "pyproject.toml").read_text(encoding="utf-8"), at, "v1.2.3"))
    assert project["project"].pop("urls")["Repository"] == at
    assert project == PROJECT
    with pytest.raises(SystemExit):
        index_page.main("file:///etc", "v1")
