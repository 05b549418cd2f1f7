"""The notebooks run from top to bottom, and hold no outputs that could grow old."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="of the development install")
nbformat = pytest.importorskip("nbformat", reason="of the development install")

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the kernel's own libraries, not of ours
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.thorough] * (path.stem != "plans"), id=path.stem) for path in NOTEBOOKS],
)
def test_a_notebook_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "clear its outputs"
    nbformat.validate(notebook)
    ran = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(FOLDER)}}).execute()
    shown = [output for cell in ran.cells for output in cell.get("outputs", [])]
    assert any("text/html" in output.get("data", {}) for output in shown)
    assert not any("Traceback" in output.get("text", "") for output in shown)


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["machines", "plans", "runs"]
