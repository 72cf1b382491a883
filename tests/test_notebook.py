"""The notebook of the guide runs to its end, its committed outputs are clean, and the site shows them."""

import json
import re
import runpy
from pathlib import Path

import pandas as pd
import pytest

DOCS = Path(__file__).parent.parent / "docs"
NOTEBOOK = DOCS / "guide" / "first-model.ipynb"
LABELS = {"BACKGROUND", "METHOD", "OBJECTIVE", "RESULT"}


@pytest.fixture(scope="module")
def notebook():
    """The names of the module that runs and shows the notebook."""
    return runpy.run_path(str(DOCS / "notebook.py"))


@pytest.fixture(scope="module")
def code_cells():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_committed_cells_were_run_in_order_from_a_fresh_start(code_cells):
    assert [cell["execution_count"] for cell in code_cells] == [*range(1, len(code_cells) + 1)]


def test_the_committed_outputs_have_no_progress_and_no_path_of_a_machine(code_cells):
    outputs = [output for cell in code_cells for output in cell["outputs"]]
    texts = ["".join(output["text"]) for output in outputs if "text" in output]
    assert texts
    assert not [text for text in texts if re.search(r"\r|at work|\d%\|", text)]
    assert not [text for text in texts if re.search(r"(^|[\s'\"(])/\w+/", text)]


def test_progress_is_dropped_and_what_was_found_is_kept(notebook):
    nbformat = pytest.importorskip("nbformat")
    printed = "texts     500 of 500 rows\n\rreading:  50%|##   |\rreading: 100%|####|\nat work   init (8 s)\n"
    output = nbformat.v4.new_output("stream", name="stderr", text=printed)
    cell = nbformat.v4.new_code_cell("dana.init()", outputs=[output])
    content = nbformat.v4.new_notebook(cells=[cell], metadata={"language_info": {"name": "python"}})
    (cleaned,) = notebook["without_progress"](content).cells
    assert cleaned.outputs[0].text == "texts     500 of 500 rows"


def test_the_page_shows_text_code_output_and_figures(notebook):
    page = notebook["as_markdown"](NOTEBOOK)
    assert page.startswith("# A first model")
    assert "```python\nfolder = dana.init(" in page
    assert page.count("](data:image/png;base64,") == 2
    assert "```text\n" in page


@pytest.mark.slow
def test_the_notebook_leads_from_a_table_to_labels_of_new_texts(notebook, tmp_path):
    pytest.importorskip("nbclient")
    cells = notebook["run"](tmp_path).cells
    assert (tmp_path / "roles" / "model" / "result.json").is_file()
    probes = pd.read_csv(tmp_path / "roles" / "tables" / "probe.csv")
    assert set(probes["arm"]) == {"base", "dana"}
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(figures) == 2
    printed = [output.text for output in outputs if output.get("name") == "stdout"]
    rows = printed[-1].splitlines()[1:]
    assert len(rows) == 3
    assert {row.split()[1] for row in rows} <= LABELS
