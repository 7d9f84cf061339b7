"""The notebooks run from top to bottom, draw what they promise, and stand in the repository as they ran.

Those that use Spark run in one kernel, one after the other and each in an empty namespace: a session takes longer to
start than the notebooks take to run.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from lakelog.spark import SparkUnavailable
from lakelog.spark.session import require_java, require_spark

FOLDER = Path(__file__).parents[2] / "notebooks"
CELL_TIMEOUT_S = 240
PLOT_BYTES_MAX = 100_000
OF_THE_MACHINE = re.compile(r"(?<![\w.])/(tmp|home|root|Users|work|var)/|127\.0\.0\.1|localhost:")

NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def uses_spark(name: str) -> bool:
    """By a session of its own, or by a job that starts one."""
    text = (FOLDER / f"{name}.ipynb").read_text()
    return "delta_session" in text or "compaction_jobs" in text


def read(name: str) -> NotebookNode:
    notebook: NotebookNode = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    return notebook


def outputs(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            yield number, output


def kinds(notebook: NotebookNode) -> set[tuple[int, str]]:
    """What each cell shows, as far as it has to be the same every time: printed text, a value, a plot."""
    found = set()
    for number, output in outputs(notebook):
        if output.get("name") != "stderr":  # warnings are of the machine
            plot = "image/png" in output.get("data", {})
            found.add((number, "plot" if plot else output.get("name", output.output_type)))
    return found


def plots(notebook: NotebookNode) -> list[bytes]:
    shown = (output.get("data", {}).get("image/png") for _, output in outputs(notebook))
    return [base64.b64decode(plot) for plot in shown if plot is not None]


def run_in(kernel: KernelManager | None, notebook: NotebookNode) -> None:
    """In a kernel that goes on afterwards, or in one of its own."""
    where = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, kernel, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources=where).execute()


@pytest.fixture(scope="module")
def spark_kernel() -> Iterator[KernelManager]:
    try:
        require_spark()
        require_java()
    except SparkUnavailable as missing:
        pytest.skip(str(missing))
    kernel = KernelManager(kernel_name="python3")
    yield kernel
    if kernel.has_kernel:
        kernel.shutdown_kernel()


@pytest.fixture
def kernel(name: str, request: pytest.FixtureRequest) -> KernelManager | None:
    """For a notebook with Spark the shared one, which keeps its session and has forgotten everything else."""
    if not uses_spark(name):
        return None
    shared: KernelManager = request.getfixturevalue("spark_kernel")
    run_in(shared, new_notebook(cells=[new_code_cell("%reset -f")]))
    return shared


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.spark if uses_spark(name) else ()) for name in NOTEBOOKS]
)
def test_it_runs_from_top_to_bottom(name: str, kernel: KernelManager | None) -> None:
    notebook = read(name)
    committed = kinds(notebook)
    run_in(kernel, notebook)
    assert plots(notebook)
    assert kinds(notebook) == committed, "run it again and commit what it shows"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_committed_is_small_and_says_nothing_of_the_machine(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert all(len(plot) <= PLOT_BYTES_MAX for plot in plots(notebook))
    for number, output in outputs(notebook):
        assert output.output_type != "error", f"cell {number}"
        said = output.get("text", "") + "".join(
            text for kind, text in output.get("data", {}).items() if kind.startswith("text/")
        )
        assert not OF_THE_MACHINE.search(said), f"cell {number}"


def test_every_notebook_is_in_the_list() -> None:
    listed = re.findall(r"\]\(([\w]+)\.ipynb\)", (FOLDER / "README.md").read_text())
    assert sorted(set(listed)) == NOTEBOOKS
