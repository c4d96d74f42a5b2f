"""PDF documents: the text of each page, and drawings of pages without text. Scripts and forms are not loaded."""

from pypdfium2 import PdfDocument, PdfiumError, PdfPage

from .answer import IMAGES, PIXELS, SIDE, DocumentAnswer, DocumentPart, JsonFields, RefusedDocument, chosen, encoded

_USUAL = 20  # pages that are shown if the request names none
_LONGEST = 400_000  # characters of one page that are read


def read(data: bytes, options: JsonFields) -> DocumentAnswer:
    """Return the answer with the chosen pages. Raises RefusedDocument."""
    try:
        document = PdfDocument(data)
    except PdfiumError as error:
        why = str(error)
        if "password" in why.lower():
            raise RefusedDocument("it needs a password", "save a copy without a password, and read that") from None
        raise RefusedDocument(
            f"it is damaged ({why[:200]})", "repair it with another program, such as `qpdf`"
        ) from None
    total = len(document)
    answer = DocumentAnswer(document.get_metadata_value("Title")[:300], total)
    if not total:
        answer.notes.append("the document has no pages")
    for number in chosen(options, total, _USUAL, "page", answer):
        part = DocumentPart(f"page {number:,}")
        try:
            page = document[number - 1]
        except PdfiumError:
            answer.notes.append(f"page {number:,} is damaged")
            continue
        try:
            part.text = _text(page)
        except PdfiumError:
            answer.notes.append(f"the text of page {number:,} is damaged")
        if not part.text.strip():
            _draw(page, part, number, options, answer)
        page.close()
        if not answer.add(part):
            answer.notes.append(
                f"pages from {number:,} on are not shown, because the text is long; ask for them by `pages`"
            )
            break
    return answer


def _text(page: PdfPage) -> str:
    text = page.get_textpage()
    try:
        count = text.count_chars()
        return str(text.get_text_bounded() if count <= _LONGEST else text.get_text_range(0, _LONGEST))
    finally:
        text.close()


def _draw(page: PdfPage, part: DocumentPart, number: int, options: JsonFields, answer: DocumentAnswer) -> None:
    if options.get("images") is False:
        answer.notes.append(f"page {number:,} has no text")
        return
    if answer.images() >= IMAGES:
        answer.notes.append(f"page {number:,} has no text, and is not drawn: ask for it alone by `pages`")
        return
    width, height = page.get_size()
    if not (width > 0 and height > 0):
        answer.notes.append(f"page {number:,} has no text and no size")
        return
    scale = min(SIDE / max(width, height), 4.0)
    if width * height * scale * scale > PIXELS:
        answer.notes.append(f"page {number:,} has no text, and is too large to draw")
        return
    try:
        bitmap = page.render(scale=scale, may_draw_forms=False)
        part.images.append(encoded(bitmap.to_pil(), f"page {number:,}"))
        bitmap.close()
    except (PdfiumError, ValueError, MemoryError) as error:
        answer.notes.append(f"page {number:,} has no text, and could not be drawn ({str(error)[:100]})")
        return
    answer.notes.append(f"page {number:,} has no text: it is shown as an image")
