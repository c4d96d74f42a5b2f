"""The parts of an answer, and the limits that hold for every kind of document."""

import base64
import io
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from PIL.Image import Image

TEXT_CAP = 200_000  # characters of one answer; the next request continues after them
IMAGES = 20  # images of one answer
PIXELS = 64_000_000  # of one image before it is made smaller: 256 MB as RGBA
SIDE = 1568  # pixels of a side after it: models make larger images smaller themselves
_LARGE = 1 << 20  # bytes of a PNG above which JPEG is tried
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MOST = 3_932_160  # bytes: 5 MiB as base64, the most that model vendors take

JsonFields = dict[str, object]


class RefusedDocument(Exception):
    """The error for a document that cannot be read: `why` and `fix` are texts for the user."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why, self.fix = why, fix


class DocumentPart:
    """A page, a cell, or a whole document without parts."""

    def __init__(self, label: str, text: str = "") -> None:
        self.label, self.text = label, text
        self.images: list[JsonFields] = []

    def json(self) -> JsonFields:
        """Return the part as JSON values."""
        return {"label": self.label, "text": valid(self.text), "images": self.images}


class DocumentAnswer:
    """A converted document."""

    def __init__(self, title: str = "", total: int = 0) -> None:
        self.title, self.total = title, total
        self.parts: list[DocumentPart] = []
        self.notes: list[str] = []
        self.room = TEXT_CAP

    def add(self, part: DocumentPart) -> bool:
        """Add a part if there is room for its text, which is cut if it is the first one. Return False if there is
        none.
        """
        if len(part.text) > self.room:
            if self.parts:
                return False
            cut = len(part.text) - self.room
            part.text = part.text[: self.room]
            self.notes.append(f"{part.label or 'the text'}: {cut:,} characters more are not shown")
        self.room -= len(part.text)
        self.parts.append(part)
        return True

    def images(self) -> int:
        """Return the number of images so far."""
        return sum(len(part.images) for part in self.parts)

    def json(self) -> JsonFields:
        """Return the document as JSON values."""
        sections = [part.json() for part in self.parts]
        return {"title": valid(self.title), "total": self.total, "sections": sections, "notes": self.notes}


def valid(text: str) -> str:
    """Return `text` with what cannot be written as UTF-8, and control characters, replaced."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text).encode("utf-8", "replace").decode()


def encoded(image: "Image", label: str) -> JsonFields:
    """Return `image` as a PNG, or as a JPEG if that is much smaller, within the limits of models."""
    image = fitting(image)
    while True:
        media, data = _smallest(image)
        if len(data) <= _MOST:
            return {"media": media, "data": base64.b64encode(data).decode(), "label": label}
        image = image.resize((max(image.width * 3 // 4, 1), max(image.height * 3 // 4, 1)))


def fitting(image: "Image") -> "Image":
    """Return `image` in a mode that can be written, with no side longer than SIDE pixels."""
    if image.mode.startswith(("I", "F")):
        grey = image.convert("F")
        low, high = (float(str(value)) for value in grey.getextrema())
        scale = 255 / ((high - low) or 1.0)
        image = grey.point(lambda value: value * scale - low * scale).convert("L")
    elif image.mode not in ("RGB", "RGBA", "L", "1", "P"):
        image = image.convert("RGBA" if image.mode in ("LA", "PA", "La", "RGBa") else "RGB")
    if max(image.size) > SIDE:
        ratio = SIDE / max(image.size)
        size = max(round(image.width * ratio), 1), max(round(image.height * ratio), 1)
        if image.mode in ("P", "1"):
            image = image.convert("RGBA" if "transparency" in image.info else "RGB")
        image = image.resize(size, reducing_gap=3.0)
    return image


def _smallest(image: "Image") -> tuple[str, bytes]:
    png = io.BytesIO()
    image.save(png, "PNG")
    if png.tell() <= _LARGE:
        return "image/png", png.getvalue()
    flat = image
    if flat.mode in ("RGBA", "P"):
        from PIL import Image

        flat = Image.new("RGB", image.size, "white")
        with_alpha = image.convert("RGBA")
        flat.paste(with_alpha, mask=with_alpha.getchannel("A"))
    jpeg = io.BytesIO()
    flat.convert("RGB").save(jpeg, "JPEG", quality=85)
    return ("image/jpeg", jpeg.getvalue()) if jpeg.tell() < png.tell() else ("image/png", png.getvalue())


def chosen(options: JsonFields, total: int, usual: int, word: str, answer: DocumentAnswer) -> range:
    """Return the numbers of the parts to show, from 1: those that the request names, or the first `usual` ones.

    Raises RefusedDocument if the first one does not exist.
    """
    first, last = int(str(options.get("first", 0))) or 1, int(str(options.get("last", 0)))
    if total and first > total:
        raise RefusedDocument(
            f"there is no {word} {first:,}: it has {total:,}", f"ask for a {word} from 1 to {total:,}"
        )
    end = min(last or first + usual - 1, total)
    if end < total and not last:
        answer.notes.append(f"{word}s {first:,} to {end:,} of {total:,} are shown; ask for others by `pages`")
    return range(first, end + 1)
