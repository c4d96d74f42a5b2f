"""The outcome of the action that reads a document: its content, which the confined converter made of the bytes."""

import binascii
from dataclasses import replace

from policy.model.action import ReadFile
from policy.model.verdict import Permit, Problem
from runner.documents.convert import converted
from runner.documents.document import Document
from sandbox.backend import Backend, Outcome
from sandbox.inside.files.read import page


async def converted_outcome(outcome: Outcome, permit: Permit, sandbox: Backend) -> Outcome:
    """Return the outcome of a ReadFile whose answer is a document, with the content in place of the bytes.

    A notebook that cannot be converted becomes text, and another document the Problem. Raises SandboxUnavailable.
    """
    action, answer = permit.action, outcome.data
    assert isinstance(action, ReadFile)
    kind, content = str(answer.get("kind")), _bytes(answer.get("base64"))
    if content is None:
        return replace(outcome, data={}, problem=_INVALID)
    first, last = page_numbers(action.pages)
    kept = {name: answer.get(name) for name in ("real", "size", "sha256")}
    found = await converted(content, kind, permit, sandbox, {"first": first, "last": last})
    if isinstance(found, Document):
        return replace(outcome, data=kept | _fields(found))
    if kind == "notebook" and not action.pages:
        text = page(content, False, action.offset, action.limit)
        return replace(
            outcome, data=kept | {"type": "text", **text, "note": f"shown as JSON: {found.why}; {found.fix}"}
        )
    what = f"cannot read `{action.path}`, {answer.get('guess')}"
    return replace(outcome, status=1, data={}, problem=Problem(what, found.why, found.fix))


def page_numbers(pages: str) -> tuple[int, int]:
    """Return the first and the last number of `3`, `2-5` or `2-`, 0 for an open end; (0, 0) for an empty text."""
    first, dash, last = pages.partition("-")
    start = int(first) if first.isdecimal() else 0
    return start, (int(last) if last.isdecimal() else 0) if dash else start


_INVALID = Problem("the answer of the sandbox is not valid", "it is no document", "try again")


def _bytes(text: object) -> bytes | None:
    try:
        return binascii.a2b_base64(str(text), strict_mode=True)
    except (ValueError, binascii.Error):
        return None


def _fields(document: Document) -> dict[str, object]:
    """Return a document as JSON values for the tool that shows it."""
    return {
        "type": "converted",
        "kind": document.kind,
        "title": document.title,
        "total": document.total,
        "sections": [
            {
                "label": each.label,
                "text": each.text,
                "images": [
                    {"media": image.media_type, "base64": image.data, "label": image.label} for image in each.images
                ],
            }
            for each in document.sections
        ],
        "notes": list(document.notes),
    }
