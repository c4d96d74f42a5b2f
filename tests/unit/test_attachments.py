"""The names of attached files in a prompt, and images in the lines of JSON mode."""

import base64
import json

import pytest

from runner.engine.attachments import named_files
from runner.engine.steering import UserInput, joined
from runner.frontends.jsonl import protocol
from runner.messages import ImageBlock
from tests.support import documents

# fmt: off
NAMES = [
    ("look at @a.png",                      ("a.png",),             "at the end"),
    ("@a.png and @b/c.PDF, please",         ("a.png", "b/c.PDF"),   "several"),
    ("see @a.png.",                         ("a.png",),             "the end of a sentence"),
    ('see @"my file.png" now',              ("my file.png",),       "in quotes"),
    ("@a.png @a.png",                       ("a.png",),             "each once"),
    ("icon@2x.png, me@host.png",            (),                     "no name behind @"),
    ("@a.py @dir/ @decorator",              (),                     "other files stay words"),
    ("@a.png.bak @a.pngx",                  (),                     "another ending"),
    ("@../../x.pdf @/etc/x.png",            ("../../x.pdf", "/etc/x.png"), "the gate judges paths"),
]
# fmt: on


@pytest.mark.parametrize(("prompt", "names", "why"), NAMES, ids=[row[2] for row in NAMES])
def test_images_and_pdf_documents_behind_at_are_attached(prompt: str, names: tuple[str, ...], why: str) -> None:
    assert named_files(prompt) == names


def line(*images: object) -> bytes:
    return json.dumps({"type": "prompt", "text": "x", "images": list(images)}).encode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_prompt_of_json_mode_has_images() -> None:
    data = b64(documents.image())
    found = protocol.parse(line({"media": "image/png", "data": data}))
    assert found == protocol.Prompt("x", (ImageBlock("image/png", data),))
    assert protocol.parse(b'{"type": "prompt", "text": "x"}') == protocol.Prompt("x")
    assert joined([UserInput("a", images=found.images), UserInput("b")]) == UserInput("a\n\nb", "", found.images)


# fmt: off
REFUSED = [
    ({"media": "image/png", "data": "no base64"},                              "is not base64"),
    ({"media": "image/png", "data": "é"},                                      "is not base64"),
    ({"media": "image/jpeg", "data": b64(documents.image())},                  "its type is not that of `media`"),
    ({"media": "image/png", "data": b64(documents.image()[:30])},              "is damaged"),
    ({"media": "text/html", "data": b64(b"<script>")},                         "is damaged"),
    ({"media": "image/png", "data": b64(documents.image(size=(8001, 1)))},     "is too large"),
    ({"media": "image/png"},                                                   "with `media` and `data` alone"),
    ({"media": "image/png", "data": "", "path": "/etc/shadow"},                "with `media` and `data` alone"),
    ({"media": 1, "data": ""},                                                 "are not texts"),
    ("image",                                                                  "is not an object"),
]
# fmt: on


@pytest.mark.threat("T249")
@pytest.mark.parametrize(("image", "why"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_an_image_that_no_model_accepts_is_refused(image: object, why: str) -> None:
    with pytest.raises(protocol.Misread) as misread:
        protocol.parse(line(image))
    assert why in misread.value.problem.why


@pytest.mark.threat("T249")
def test_too_many_images_are_refused() -> None:
    with pytest.raises(protocol.Misread):
        protocol.parse(line(*[{"media": "image/png", "data": b64(documents.image())}] * 21))
    with pytest.raises(protocol.Misread):
        protocol.parse(b'{"type": "prompt", "text": "x", "images": {}}')
