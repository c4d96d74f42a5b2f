"""The conversion of a page to text by a confined program.

THREAT T241: HTML and PDF are read by large parsers, which a hostile page attacks. Each page is read in a new process
that has no network, no files of the user, and small limits.
"""

from collections.abc import Awaitable, Callable

from policy.model.verdict import Permit, ProblemError
from runner.web.content import PageKind, PageText
from sandbox.backend import Backend

# Takes a document, its kind, its address, the permit of the action that fetched it, and the sandbox. Raises
# ProblemError.
Convert = Callable[[bytes, PageKind, str, Permit, Backend], Awaitable[PageText]]


async def converted_page(data: bytes, kind: PageKind, url: str, permit: Permit, sandbox: Backend) -> PageText:
    """Return the text of a document. Raises ProblemError."""
    from runner.documents.convert import converted  # few sessions convert documents
    from runner.documents.document import Document

    options: dict[str, object] = {"images": False, "first": 1, "last": 1_000_000}
    if kind is PageKind.HTML:
        options = {"base": url}
    found = await converted(data, kind.value, permit, sandbox, options)
    if not isinstance(found, Document):
        raise ProblemError(found)
    parts = [f"## {each.label}\n\n{each.text}" if each.label else each.text for each in found.sections]
    return PageText("\n\n".join(parts), found.title, found.notes)
