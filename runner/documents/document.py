"""The content of a document, and the strict reading of the answer of the converter, which is not trusted."""

import binascii

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.text.sanitize import one_line
from sandbox.inside.files.image_check import picture

_LABEL = 300  # characters
_NOTES = 100


@dataclass(frozen=True, slots=True)
class Picture:
    """An image in a form that models accept.

    Attributes:
        media_type: `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        data: the image as base64.
        label: the name of the image, such as `page 3`.
    """

    media_type: str
    data: str
    label: str


@dataclass(frozen=True, slots=True)
class DocumentSection:
    """One part of a document.

    Attributes:
        label: the name of the part on one line, such as `page 3`; empty for a document without parts.
        text: the text as Markdown or plain text.
        images: the images that belong to the text.
    """

    label: str
    text: str
    images: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a document.

    Attributes:
        kind: `pdf`, `image`, `notebook` or `html`.
        title: the title that the document states, on one line; empty for none.
        total: the number of pages or cells of the whole document; 0 if it has no parts.
        sections: the converted parts, in order.
        notes: remarks about what is not in the parts, such as `page 3 has no text`.
    """

    kind: str
    title: str
    total: int
    sections: tuple[DocumentSection, ...]
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the text of all parts."""
        return "\n\n".join(each.text for each in self.sections if each.text)

    @property
    def images(self) -> tuple[Picture, ...]:
        """Return the images of all parts."""
        return tuple(image for each in self.sections for image in each.images)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Image(_Answer):
    media: str
    data: str
    label: str


class _Part(_Answer):
    label: str
    text: str
    images: list[_Image] = Field(max_length=100)


class _Converted(_Answer):
    title: str
    total: int = Field(ge=0)
    sections: list[_Part] = Field(max_length=10_000)
    notes: list[str] = Field(max_length=10_000)


class _Refused(_Answer):
    what: str
    why: str
    fix: str


class _Whole(_Answer):
    document: _Converted | None = None
    problem: _Refused | None = None


def document_of(kind: str, answer: bytes) -> Document | Problem:
    """Return the document in `answer`, the output of the converter, or the Problem that it states.

    An image that is no image of its type, or is damaged, becomes a note: a model refuses the whole conversation for it.
    """
    try:
        whole = _Whole.model_validate_json(answer)
    except ValidationError:
        return Problem("the document was not converted", "the converter gave no valid answer", _UNREADABLE)
    if whole.problem is not None:
        stated = whole.problem
        return Problem(*(one_line(text, _LABEL) for text in (stated.what, stated.why, stated.fix)))
    if whole.document is None:
        return Problem("the document was not converted", "the converter gave no answer", _UNREADABLE)
    found, notes = whole.document, [one_line(note, _LABEL) for note in whole.document.notes[:_NOTES]]
    sections = []
    for part in found.sections:
        images = []
        for image in part.images:
            label = one_line(image.label, _LABEL)
            if _is_image(image):
                images.append(Picture(image.media, image.data, label))
            else:
                notes.append(f"the image `{label}` is damaged")
        sections.append(DocumentSection(one_line(part.label, _LABEL), part.text, tuple(images)))
    return Document(kind, one_line(found.title, _LABEL), found.total, tuple(sections), tuple(notes))


_UNREADABLE = "the document may be damaged or hostile: check it, or convert it with another program"


def _is_image(image: _Image) -> bool:
    try:
        content = binascii.a2b_base64(image.data, strict_mode=True)
    except (ValueError, binascii.Error):
        return False
    found = picture(content)
    return found is not None and found[0] == image.media
