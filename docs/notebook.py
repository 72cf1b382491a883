"""Run the notebook of the guide anew, and show it as a page of the site.

``python docs/notebook.py`` runs ``docs/guide/first-model.ipynb`` in a temporary folder and writes it
with its outputs, but for progress; it needs the extra ``test``. For MkDocs it is a hook, which
needs neither Jupyter nor dana: ``<!-- notebook: FILE -->`` becomes the cells of the notebook FILE
beside the page.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

NOTEBOOK = Path(__file__).parent / "guide" / "first-model.ipynb"
SHOWN = re.compile(r"^<!-- notebook: (\S+) -->$", re.MULTILINE)
# A bar is drawn again and again on one line; a heartbeat says what has been at work for some seconds. tqdm warns that
# a widget is not installed, and DeepSpeed that there is no GPU.
PASSING = re.compile(r".*\r|at work |.*TqdmWarning|  from \.autonotebook|\[.*\] \[WARNING\]")
SECONDS = 3600  # for one cell, on a machine that is busy


def run(folder: Path) -> Any:
    """Run the notebook's cells in a folder, and return it with their outputs.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell ends with an error.
    """
    import nbformat
    from nbclient import NotebookClient

    content = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(content, timeout=SECONDS, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return content


def without_progress(content: Any) -> Any:
    """Return the notebook without what says only how a run went: progress, times, versions."""
    content.metadata.pop("language_info", None)
    for cell in content.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [output for output in _joined(cell.outputs) if output.get("text") != ""]
    return content


def _joined(outputs: list[Any]) -> list[Any]:
    """Return outputs with neighbouring ones of one stream as one, without lines that pass."""
    joined: list[Any] = []
    for output in outputs:
        if (
            joined
            and output.get("name") is not None
            and output.get("name") == joined[-1].get("name")
        ):
            joined[-1].text += output.text
        else:
            joined.append(output)
    for output in joined:
        if output.output_type == "stream":
            lines = output.text.strip("\n").split("\n")
            output.text = "\n".join(line for line in lines if not PASSING.match(line))
    return joined


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Show the cells of a notebook in the page that names it."""
    folder = Path(page.file.abs_src_path).parent
    return SHOWN.sub(lambda match: as_markdown(folder / match[1]), markdown)


def as_markdown(notebook: Path) -> str:
    """Return a notebook as Markdown: text, blocks of code, what they printed, figures."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            image = "".join(data["image/png"]).replace("\n", "")
            yield f"![What the cell draws](data:image/png;base64,{image})"
        elif "text" in output:
            text = "".join(output["text"]).rstrip()
            yield f"```text\n{text}\n```"


if __name__ == "__main__":
    import nbformat

    with TemporaryDirectory() as folder:
        content = run(Path(folder))
    nbformat.write(without_progress(content), NOTEBOOK)
