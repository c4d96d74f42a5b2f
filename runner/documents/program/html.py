"""Web pages: HTML as Markdown. Text that a browser does not show, scripts and images are left out."""

import html
import re

from html_to_markdown import ConversionOptions, convert

from .answer import DocumentAnswer, DocumentPart, JsonFields, RefusedDocument

_ROOM = 16_000_000  # characters of one page
_HEAD = 1 << 18  # characters in which the title is searched
_TITLE = re.compile(r"<title(?:\s[^>]{0,200})?>([^<]{0,2000})</title", re.IGNORECASE)


def read(data: bytes, options: JsonFields) -> DocumentAnswer:
    """Return the page as one part. `base` of the options is its address, which completes the links.

    Raises RefusedDocument.
    """
    text = data.decode("utf-8", "replace")
    found = _TITLE.search(text[:_HEAD])
    answer = DocumentAnswer(" ".join(html.unescape(found[1]).split()) if found else "")
    answer.room = _ROOM
    base = options.get("base")
    settings = ConversionOptions(
        base_url=base if isinstance(base, str) else None,
        skip_images=True,
        extract_metadata=False,  # it would be written in front of the text
        compact_tables=True,
    )
    try:
        result = convert(text, settings)
    except Exception as error:  # the seam of a library that raises errors of many kinds for content of other people
        why = f"it cannot be converted ({type(error).__name__}: {str(error)[:200]})"
        raise RefusedDocument(why, "look for another page with the same content") from None
    answer.add(DocumentPart("", result.content or ""))
    answer.notes += [f"the page is damaged or unusual: {warning.message}"[:300] for warning in result.warnings[:5]]
    return answer
