"""The `notebook_edit` tool in a real session: verdict, change, the check of what was read, undo and record."""

import json
from pathlib import Path

import pytest

from policy.model.tier import Mode
from tests.support import documents
from tests.support.document_session import session

BASE = documents.notebook(documents.markdown("# Title"), documents.code("a = 1", documents.stream("1\n"), count=1))


def sources(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]


def test_cells_are_replaced_inserted_and_deleted(tmp_path: Path) -> None:
    got = session(
        tmp_path,
        ("read", {"path": "n.ipynb"}),
        ("notebook_edit", {"path": "n.ipynb", "cell": "cell-2", "source": "a = 2"}),
        ("notebook_edit", {"path": "n.ipynb", "operation": "insert", "cell": "1", "source": "b = 1"}),
        ("notebook_edit", {"path": "n.ipynb", "operation": "delete", "cell": "1"}),
        ("read", {"path": "n.ipynb"}),
        files={"n.ipynb": BASE},
    )
    assert not any(each.is_error for each in got.results), [got.text(n) for n in range(5)]
    assert sources(got.work / "n.ipynb") == ["b = 1", "a = 2"]
    assert "replaced cell 2 of now 2" in got.text(1)
    assert '+   "source": "a = 2"' in got.text(1)
    assert "inserted cell 2, id `" in got.text(2)
    assert "[output of cell" not in got.text(4)
    kinds = [record["action"]["type"] for record in got.records if record.get("action")]
    assert kinds.count("EditNotebook") == 3


@pytest.mark.threat("T248")
def test_the_verdict_is_that_of_an_edit(tmp_path: Path) -> None:
    call = ("notebook_edit", {"path": "n.ipynb", "cell": "1", "source": "x"})
    got = session(tmp_path, call, files={"n.ipynb": BASE}, mode=Mode.PLAN)
    assert "not done" in got.text()
    assert (got.work / "n.ipynb").read_bytes() == BASE
    outside = ("notebook_edit", {"path": str(tmp_path / "other.ipynb"), "cell": "1", "source": "x"})
    (tmp_path / "other.ipynb").write_bytes(BASE)
    got = session(tmp_path, outside)
    assert got.results[0].is_error
    assert (tmp_path / "other.ipynb").read_bytes() == BASE


@pytest.mark.threat("T248")
def test_a_notebook_that_changed_since_it_was_read_is_not_changed(tmp_path: Path) -> None:
    got = session(
        tmp_path,
        ("read", {"path": "n.ipynb"}),
        ("bash", {"command": "sed -i 's/Title/Other/' n.ipynb"}),
        ("notebook_edit", {"path": "n.ipynb", "cell": "1", "source": "mine"}),
        files={"n.ipynb": BASE},
    )
    assert "it changed since you last read it" in got.text(2)
    assert sources(got.work / "n.ipynb")[0] == "# Other"


def test_a_change_of_a_cell_can_be_undone(tmp_path: Path) -> None:
    from tests.support import forked_agent
    from tests.support.server_session import environ
    from tests.support.session_harness import AGENT

    got = session(
        tmp_path, ("notebook_edit", {"path": "n.ipynb", "cell": "1", "source": "mine"}), files={"n.ipynb": BASE}
    )
    assert sources(got.work / "n.ipynb")[0] == "mine"
    done = forked_agent.run(
        [AGENT, "undo"], cwd=got.work, env=environ(tmp_path), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert (got.work / "n.ipynb").read_bytes() == BASE
