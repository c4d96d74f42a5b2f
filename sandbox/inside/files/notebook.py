"""Changes of one cell of a notebook: a cell is replaced, inserted or deleted, and all else stays. Runs confined:
standard library only.

SOURCE: the notebook format 4 (nbformat.readthedocs.io/en/latest/format_description.html). Jupyter writes a list of
lines for `source`, and an `id` for each cell since 4.5.
"""

import json
import os

from sandbox.inside.files.access import CAP, Refused, digest, read_capped, regular, show
from sandbox.inside.files.diff import unified
from sandbox.inside.files.write import lines_of, put

_TYPES = ("code", "markdown", "raw")
_BAD = "read it as text, repair its JSON, or save it again with a notebook program"
NotebookFields = dict[str, object]


def edit_notebook(
    path: str, operation: str, cell: str, source: str, cell_type: str, seen: str | None
) -> dict[str, object]:
    """Change one cell of the notebook at `path`. Raises Refused. The parameters are those of `changed_notebook`."""
    what = f"cannot edit `{show(path)}`"
    real = os.path.realpath(path)
    state = regular(path, what)
    before, more = read_capped(real, what)
    if more:
        raise Refused(what, f"it is larger than {CAP >> 20} MiB", "clear its outputs, or change it with a command")
    if seen is not None and digest(before) != seen:
        raise Refused(what, "it changed since you last read it", "read it again, then edit its current content")
    try:
        text = before.decode()
    except UnicodeDecodeError:
        raise Refused(what, "it is not UTF-8", _BAD) from None
    changed, words = changed_notebook(text, operation, cell, source, cell_type, what)
    after = changed.encode()
    diff, dropped = unified(text, changed, show(path))
    notes = put(real, after, state, before, what)
    written = {"real": show(real), "sha256": digest(after), "size": len(after), "lines": lines_of(after)}
    return {**written, "done": words, "diff": diff, "dropped": dropped, "notes": notes}


def changed_notebook(text: str, operation: str, cell: str, source: str, cell_type: str, what: str) -> tuple[str, str]:
    """Return the text of a notebook after one change, and the change in words. Raises Refused. No file is opened.

    Args:
        operation: `replace`, `insert` (after `cell`; before the first one if `cell` is empty or `0`) or `delete`.
        cell: the `id` of a cell, or its number from 1.
        cell_type: `code`, `markdown` or `raw`; empty to keep the type, and for a new cell of code.
        what: the attempt in words, for an error.
    """
    notebook = _parsed(text, what)
    cells = _cells(notebook, what)
    if cell_type and cell_type not in _TYPES:
        raise Refused(what, f"`{cell_type}` is no type of a cell", f"the types are {', '.join(_TYPES)}")
    if operation == "insert":
        at = 0 if cell in ("", "0") else _place(cells, cell, what) + 1
        made = _new_cell(notebook, cells, cell_type or "code", source, text)
        cells.insert(at, made)
        words = f"inserted cell {at + 1:,}" + (f", id `{made['id']}`" if "id" in made else "")
    else:
        at = _place(cells, cell, what)
        if operation == "delete":
            del cells[at]
            words = f"deleted cell {at + 1:,}"
        elif operation == "replace":
            _replace(cells[at], cell_type, source)
            words = f"replaced cell {at + 1:,}"
        else:
            raise Refused(what, f"`{operation}` is no operation", "use `replace`, `insert` or `delete`")
    try:
        return _written(notebook, text), f"{words} of now {len(cells):,}"
    except (ValueError, RecursionError):
        raise Refused(what, "its content cannot be written as JSON", _BAD) from None


def _parsed(text: str, what: str) -> NotebookFields:
    twice: list[str] = []

    def pairs(found: list[tuple[str, object]]) -> NotebookFields:
        made = dict(found)
        if len(made) != len(found):
            twice.append("key")
        return made

    try:
        notebook = json.loads(text.removeprefix("\ufeff"), object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        raise Refused(what, "it is not valid JSON", _BAD) from None
    if twice:
        raise Refused(what, "an object in it has a key twice, and one of the values would be lost", _BAD)
    if not isinstance(notebook, dict):
        raise Refused(what, "it is no notebook", "use `edit` or `write`")
    return notebook


def _cells(notebook: NotebookFields, what: str) -> list[NotebookFields]:
    cells = notebook.get("cells")
    if notebook.get("nbformat") != 4 or not isinstance(cells, list):
        fix = "convert it with `jupyter nbconvert --to notebook`, or use `edit` on its text"
        raise Refused(what, "it is no notebook of format 4", fix)
    if not all(isinstance(each, dict) for each in cells):
        raise Refused(what, "one of its cells is no cell", _BAD)
    return cells


def _place(cells: list[NotebookFields], cell: str, what: str) -> int:
    """Return the index of the cell with this `id` or number. Raises Refused if there is none, or more than one."""
    found = [index for index, each in enumerate(cells) if each.get("id") == cell]
    if cell.isascii() and cell.isdecimal() and 0 < int(cell[:9]) <= len(cells):
        found.append(int(cell[:9]) - 1)
    found = sorted(set(found))
    if len(found) > 1:
        numbers = ", ".join(str(index + 1) for index in found)
        raise Refused(what, f"`{show(cell[:64])}` names several cells: {numbers}", "name the cell by its other name")
    if not found:
        fix = "read the notebook again for the numbers and ids of its cells"
        raise Refused(what, f"there is no cell `{show(cell[:64])}`: it has {len(cells):,}", fix)
    return found[0]


def _replace(cell: NotebookFields, cell_type: str, source: str) -> None:
    """Give a cell new text. The outputs of the old code are removed, because they are not those of the new code."""
    kind = cell_type or cell.get("cell_type")
    cell["cell_type"] = kind
    cell["source"] = source if isinstance(cell.get("source"), str) else source.splitlines(keepends=True)
    if kind == "code":
        cell["execution_count"] = None
        cell["outputs"] = []
    else:
        cell.pop("execution_count", None)
        cell.pop("outputs", None)


def _new_cell(
    notebook: NotebookFields, cells: list[NotebookFields], kind: str, source: str, text: str
) -> NotebookFields:
    lines: object = source.splitlines(keepends=True)
    if cells and all(isinstance(each.get("source"), str) for each in cells):
        lines = source
    made: NotebookFields = {"cell_type": kind}
    if kind == "code":
        made["execution_count"] = None
    minor = notebook.get("nbformat_minor")
    if isinstance(minor, int) and minor >= 5:
        made["id"] = _new_id(cells, f"{text}\0{source}")
    made["metadata"] = {}
    if kind == "code":
        made["outputs"] = []
    made["source"] = lines
    return made


def _new_id(cells: list[NotebookFields], seed: str) -> str:
    """Return an id that no cell has. It follows from the content, so that a preview shows the same change."""
    used = {each.get("id") for each in cells}
    number = 0
    while (name := digest(f"{number}{seed}".encode("utf-8", "surrogatepass"))[:8]) in used:
        number += 1
    return name


def _written(notebook: NotebookFields, before: str) -> str:
    """Return the notebook as text with the indentation, escapes and line ends of the text `before`."""
    body = before.removeprefix("\ufeff")
    second = body.lstrip().partition("\n")[2][:100]
    blanks = second[: len(second) - len(second.lstrip(" \t"))]
    indent = blanks or (None if "\n" not in body.strip() else 1)
    text = json.dumps(notebook, indent=indent, ensure_ascii=body.isascii() and "\\u" in body)
    text = before[: len(before) - len(body)] + text + ("\n" if body.endswith("\n") else "")
    return text.replace("\n", "\r\n") if "\r\n" in before else text
