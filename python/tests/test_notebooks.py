"""The notebooks run from top to bottom, and answer in words."""

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, cache, monkeypatch):
    monkeypatch.setenv("NEARFAR_CACHE", str(cache))
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": path.parent}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs), "it draws"
    said = "".join(output.get("text", "") for output in outputs)
    assert "Answer:" in said
    assert all(not cell.get("outputs") for cell in nbformat.read(path, as_version=4).cells), "kept without outputs"


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
