"""The change of one cell in the text of a notebook: all else stays, and what cannot be changed is refused."""

import json

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.action import EditNotebook
from runner.approval.card import change
from sandbox.inside.files.access import Refused
from sandbox.inside.files.notebook import changed_notebook
from tests.support import documents
from tools.registry import ToolSelection

BASE = documents.notebook(
    documents.markdown("# Title"), documents.code("a = 1\nb = 2", documents.stream("x\n"), count=7), odd="é"
).decode()


def cells(text: str) -> list[dict[str, object]]:
    return json.loads(text)["cells"]


# fmt: off
CHANGES: list[tuple[tuple[str, str, str, str], list[tuple[str, str]], str]] = [
    (("replace", "2", "c = 3", ""),               [("markdown", "# Title"), ("code", "c = 3")],              "by number"),
    (("replace", "cell-1", "x\ny\n", ""),         [("markdown", "x\ny\n"), ("code", "a = 1\nb = 2")],        "by id"),
    (("replace", "2", "text", "markdown"),        [("markdown", "# Title"), ("markdown", "text")],           "another type"),
    (("replace", "1", "n = 1", "code"),           [("code", "n = 1"), ("code", "a = 1\nb = 2")],             "to code"),
    (("insert", "", "first", "markdown"),         [("markdown", "first"), ("markdown", "# Title"), ("code", "a = 1\nb = 2")], "at the start"),
    (("insert", "0", "first", "raw"),             [("raw", "first"), ("markdown", "# Title"), ("code", "a = 1\nb = 2")], "as number 0"),
    (("insert", "2", "", ""),                     [("markdown", "# Title"), ("code", "a = 1\nb = 2"), ("code", "")], "at the end"),
    (("delete", "1", "", ""),                     [("code", "a = 1\nb = 2")],                                "delete"),
]
# fmt: on


@pytest.mark.parametrize(("call", "expected", "why"), CHANGES, ids=[row[2] for row in CHANGES])
def test_a_cell_is_changed(call: tuple[str, str, str, str], expected: list[tuple[str, str]], why: str) -> None:
    after, _ = changed_notebook(BASE, *call, "cannot edit")
    found = [(each["cell_type"], "".join(each["source"])) for each in cells(after)]
    assert found == expected
    made = nbformat.reads(after, as_version=4)
    nbformat.validate(made)
    assert len({each["id"] for each in made["cells"]}) == len(made["cells"])
    assert after.endswith("}\n")
    assert "é" in after
    assert changed_notebook(BASE, *call, "cannot edit")[0] == after  # the card shows what is written


def test_outputs_of_old_code_are_removed_and_others_stay() -> None:
    after = cells(changed_notebook(BASE, "replace", "2", "new", "", "")[0])
    assert (after[1]["outputs"], after[1]["execution_count"]) == ([], None)
    after = cells(changed_notebook(BASE, "replace", "1", "new", "", "")[0])
    assert after[1]["outputs"] == cells(BASE)[1]["outputs"]


# fmt: off
REFUSED = [
    (BASE, ("delete", "3", "", ""), "there is no cell `3`: it has 2"),
    (BASE, ("delete", "0", "", ""), "there is no cell `0`"),
    (BASE, ("delete", "x\x1b[2J", "", ""), "there is no cell `x\\x1b[2J`"),
    (BASE, ("move", "1", "", ""), "`move` is no operation"),
    (BASE, ("insert", "1", "", "html"), "`html` is no type"),
    (BASE.replace("cell-1", "2"), ("delete", "2", "", ""), "names several cells: 1, 2"),
    ("{", ("delete", "1", "", ""), "not valid JSON"),
    ("[" * 200_000, ("delete", "1", "", ""), "not valid JSON"),
    ("[]", ("delete", "1", "", ""), "it is no notebook"),
    ('{"nbformat": 3, "worksheets": []}', ("delete", "1", "", ""), "no notebook of format 4"),
    ('{"nbformat": 4, "cells": [1]}', ("delete", "1", "", ""), "no cell"),
    ('{"nbformat": 4, "cells": [], "cells": []}', ("insert", "", "", ""), "a key twice"),
]
# fmt: on


@pytest.mark.threat("T248")
@pytest.mark.parametrize(("text", "call", "why"), REFUSED, ids=[row[2][:30] for row in REFUSED])
def test_what_cannot_be_changed_is_refused(text: str, call: tuple[str, str, str, str], why: str) -> None:
    with pytest.raises(Refused) as refused:
        changed_notebook(text, *call, "cannot edit")
    assert why in str(refused.value.problem["why"])
    assert str(refused.value.problem["why"]).isprintable()


@pytest.mark.parametrize("indent", [None, 1, 2, 4])
def test_the_form_of_the_file_is_kept(indent: int | None) -> None:
    text = json.dumps(json.loads(BASE), indent=indent, ensure_ascii=True).replace("\n", "\r\n")
    after, _ = changed_notebook(text, "replace", "1", "# Title", "", "")
    assert after == text


@given(st.text(), st.sampled_from(["code", "markdown", "raw"]))
def test_any_text_can_be_the_text_of_a_cell(source: str, kind: str) -> None:
    after, _ = changed_notebook(BASE, "insert", "1", source, kind, "")
    assert "".join(cells(after)[1]["source"]) == source
    assert [cells(after)[0], cells(after)[2]] == cells(BASE)


@pytest.mark.threat("T248")
def test_the_card_shows_the_change_of_the_file() -> None:
    shown = change(
        EditNotebook("/w/n.ipynb", "", "evil = 1", operation="replace", cell="2"), BASE, "n.ipynb", new=False
    )
    assert any(row.startswith("+") and "evil = 1" in row for row in shown.diff)
    assert any(row.startswith("-") and "a = 1" in row for row in shown.diff)
    failing = change(EditNotebook("/w/n.ipynb", "", "x", operation="delete", cell="9"), BASE, "n.ipynb", new=False)
    assert "there is no cell `9`" in failing.note


@pytest.mark.threat("T248")
def test_a_selection_without_edit_has_no_other_edit() -> None:
    assert not ToolSelection(without=("edit",)).selects("notebook_edit")
    assert not ToolSelection(only=("read", "edit")).selects("notebook_edit")
    assert ToolSelection(only=("notebook_*",)).selects("notebook_edit")
