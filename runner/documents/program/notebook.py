"""Notebooks: the cells with numbers, identifiers and kinds, and their outputs as text and images."""

import base64
import binascii
import json
import logging
import warnings

import nbformat

from .answer import IMAGES, DocumentAnswer, DocumentPart, JsonFields, RefusedDocument, chosen, encoded
from .image import opened

_USUAL = 200  # cells that are shown if the request names none
_OUTPUT = 4_000  # characters of one output
_OUTPUT_OF_CELL = 20_000  # characters of all outputs of one cell
_SOURCE = 50_000  # characters of one cell
_OUTPUTS = 50  # outputs of one cell
logging.disable(logging.CRITICAL)  # nbformat reports every invalid field
warnings.simplefilter("ignore")


def read(data: bytes, options: JsonFields) -> DocumentAnswer:
    """Return the answer with the chosen cells. Raises RefusedDocument."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedDocument("it is not UTF-8", "save it again with a notebook program") from None
    try:
        notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]  # the library has no types
        cells, language = list(notebook["cells"]), _language(notebook)
    except RecursionError:
        raise
    except Exception as error:  # the seam of a library that raises errors of many kinds for content of other people
        why = f"it is no valid notebook ({type(error).__name__}: {str(error)[:200]})"
        raise RefusedDocument(why, "read it as text with `offset` and `limit`, and repair its JSON") from None
    answer = DocumentAnswer("", len(cells))
    if language:
        answer.notes.append(f"the language is {_word(language)}")
    if not cells:
        answer.notes.append("the notebook has no cells")
    for number in chosen(options, len(cells), _USUAL, "cell", answer):
        parts = _cell(cells[number - 1], number, options, answer)
        if not all(map(answer.add, parts)):
            answer.notes.append(
                f"cells from {number:,} on are not shown, because the text is long; ask for them by `pages`"
            )
            break
    return answer


def _language(notebook: JsonFields) -> str:
    metadata = notebook.get("metadata")
    for table, field in (("language_info", "name"), ("kernelspec", "language")):
        found = metadata.get(table) if isinstance(metadata, dict) else None
        name = found.get(field) if isinstance(found, dict) else None
        if isinstance(name, str) and name:
            return name[:50]
    return ""


def _cell(cell: object, number: int, options: JsonFields, answer: DocumentAnswer) -> list[DocumentPart]:
    """Return the cell, then its outputs if it has some."""
    if not isinstance(cell, dict):
        answer.notes.append(f"cell {number:,} is no cell")
        return [DocumentPart(f"cell {number:,}")]
    kind, name, count = cell.get("cell_type"), cell.get("id"), cell.get("execution_count")
    label = f"cell {number:,}"
    label += f", id {_word(name)}" if isinstance(name, str) and name else ""
    label += f", {_word(kind)}" if isinstance(kind, str) else ""
    label += f", run {count}" if isinstance(count, int) else ""
    source = _joined(cell.get("source"))
    if len(source) > _SOURCE:
        answer.notes.append(f"cell {number:,}: {len(source) - _SOURCE:,} characters more are not shown")
        source = source[:_SOURCE]
    part, result = DocumentPart(label, source), DocumentPart(f"output of cell {number:,}")
    outputs = cell.get("outputs")
    if isinstance(outputs, list):
        texts = [_output(output, number, result, options, answer) for output in outputs[:_OUTPUTS]]
        result.text = "\n".join(filter(None, texts))
        if len(result.text) > _OUTPUT_OF_CELL:
            more = len(result.text) - _OUTPUT_OF_CELL
            answer.notes.append(f"cell {number:,}: {more:,} characters of its outputs are not shown")
            result.text = f"{result.text[:_OUTPUT_OF_CELL]}…"
        if len(outputs) > _OUTPUTS:
            answer.notes.append(f"cell {number:,}: {len(outputs) - _OUTPUTS:,} outputs more are not shown")
    return [part, result] if result.text or result.images else [part]


def _output(output: object, number: int, part: DocumentPart, options: JsonFields, answer: DocumentAnswer) -> str:
    """Return the text of an output, and add its images to the part."""
    if not isinstance(output, dict):
        return ""
    kind = output.get("output_type")
    if kind == "stream":
        return _cut(_joined(output.get("text")), number, answer)
    if kind == "error":
        trace = output.get("traceback")
        lines = [line for line in trace if isinstance(line, str)] if isinstance(trace, list) else []
        return _cut("\n".join(map(_plain, lines)) or f"{output.get('ename')}: {output.get('evalue')}", number, answer)
    data = output.get("data")
    if not isinstance(data, dict):
        return ""
    text = _joined(data.get("text/markdown") or data.get("text/plain"))
    for media in ("image/png", "image/jpeg"):
        if isinstance(data.get(media), str | list):
            _image(_joined(data[media]), number, part, options, answer)
            break
    others = [key for key in data if isinstance(key, str) and key not in _SHOWN]
    for key in others[:10]:
        answer.notes.append(f"cell {number:,}: an output of the type {_word(key)} is not shown")
    return _cut(text, number, answer)


_SHOWN = ("text/plain", "text/markdown", "image/png", "image/jpeg")


def _image(text: str, number: int, part: DocumentPart, options: JsonFields, answer: DocumentAnswer) -> None:
    if options.get("images") is False or answer.images() + len(part.images) >= IMAGES:
        answer.notes.append(f"cell {number:,}: an image is not shown")
        return
    try:
        image, _ = opened(base64.b64decode("".join(text.split()), validate=True))
        part.images.append(encoded(image, f"output of cell {number:,}"))
    except (RefusedDocument, binascii.Error, ValueError) as error:
        why = error.why if isinstance(error, RefusedDocument) else "it is no base64"
        answer.notes.append(f"cell {number:,}: an image is not shown, because {why}")


def _joined(text: object) -> str:
    """Return the text of a field, which may be a list of lines."""
    if isinstance(text, list):
        return "".join(piece for piece in text if isinstance(piece, str))
    if isinstance(text, dict):
        return json.dumps(text)
    return text if isinstance(text, str) else ""


def _cut(text: str, number: int, answer: DocumentAnswer) -> str:
    if len(text) <= _OUTPUT:
        return text.rstrip("\n")
    answer.notes.append(f"cell {number:,}: {len(text) - _OUTPUT:,} characters of an output are not shown")
    return f"{text[:_OUTPUT]}…"


def _word(text: str) -> str:
    """Return a name of the notebook as one printable word in quotes."""
    return f"`{''.join(char if char.isprintable() and char != '`' else '?' for char in text[:64])}`"


def _plain(line: str) -> str:
    """Return a line of a traceback without the escape sequences for colours."""
    pieces = line.split("\x1b[")
    return pieces[0] + "".join(piece.partition("m")[2] if "m" in piece[:12] else piece for piece in pieces[1:])
