"""Documents that are converted in the real sandbox: good ones, hostile ones, and a converter that is taken over."""

import asyncio
import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from policy.model.action import ReadFile
from policy.model.verdict import _MINT, Limits, Permit, Problem, Rights, Terms
from runner.documents.convert import _PROGRAM, converted
from runner.documents.document import Document
from sandbox.linux.backend import Linux
from tests.support import documents

SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc")
TIERS = ("T1", "T2", "T3")


@pytest.fixture
def permit(tmp_path: Path) -> Permit:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "file.txt").write_text("of the workspace\n")
    terms = Terms(Rights.READ_ONLY, str(workspace), "/nonexistent", system=SYSTEM, env=(("PATH", "/usr/bin"),))
    return Permit(ReadFile(f"{workspace}/file.txt"), terms, _MINT)


@pytest.fixture(params=[TIERS[0], *(pytest.param(tier, marks=pytest.mark.thorough) for tier in TIERS[1:])])
def backend(request: pytest.FixtureRequest) -> Iterator[Linux]:
    made = Linux(request.param)
    yield made
    asyncio.run(made.close())


def convert(backend: Linux, permit: Permit, data: bytes, kind: str, program: Path = _PROGRAM, **options: object):
    async def once() -> Document | Problem:
        try:
            return await converted(data, kind, permit, backend, options, program=program)
        finally:
            await backend.close()

    return asyncio.run(once())


def test_a_pdf_has_its_pages_title_and_drawings(backend: Linux, permit: Permit) -> None:
    made = documents.pdf("First page (one)", "", "Third page", title="A report")
    found = convert(backend, permit, made, "pdf")
    assert isinstance(found, Document), found
    assert (found.title, found.total) == ("A report", 3)
    assert [each.label for each in found.sections] == ["page 1", "page 2", "page 3"]
    assert [each.text.strip() for each in found.sections] == ["First page (one)", "", "Third page"]
    assert [image.label for image in found.images] == ["page 2"]
    assert "page 2 has no text: it is shown as an image" in found.notes


@pytest.mark.parametrize(
    ("options", "labels"),
    [({"first": 2, "last": 3}, ["page 2", "page 3"]), ({"first": 3}, ["page 3", "page 4"]), ({"last": 1}, ["page 1"])],
)
def test_a_request_chooses_pages(permit: Permit, options: dict[str, object], labels: list[str]) -> None:
    found = convert(Linux("T1"), permit, documents.pdf("1", "2", "3", "4"), "pdf", **options)
    assert [each.label for each in found.sections] == labels


def test_a_page_that_does_not_exist_is_named(permit: Permit) -> None:
    found = convert(Linux("T1"), permit, documents.pdf("1", "2"), "pdf", first=7)
    assert isinstance(found, Problem)
    assert found.why == "there is no page 7: it has 2"


@pytest.mark.parametrize("kind", ["BMP", "TIFF", "GIF", "JPEG", "PNG", "WEBP", "PPM", "TGA", "JPEG2000", "PCX"])
def test_images_of_many_formats_become_png_or_jpeg(permit: Permit, kind: str) -> None:
    found = convert(Linux("T1"), permit, documents.image(kind, (64, 48)), "image")
    assert isinstance(found, Document), found
    with Image.open(io.BytesIO(base64.b64decode(found.images[0].data))) as image:
        assert (image.format, image.size) == ("PNG", (64, 48))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "I", "F", "I;16", "YCbCr", "LAB"])
def test_images_of_every_mode_can_be_shown(permit: Permit, mode: str) -> None:
    found = convert(Linux("T1"), permit, documents.image("TIFF", (2000, 3), mode), "image")
    assert isinstance(found, Document), found
    with Image.open(io.BytesIO(base64.b64decode(found.images[0].data))) as image:
        assert image.size[0] == 1568


def test_a_notebook_has_its_cells_and_outputs(backend: Linux, permit: Permit) -> None:
    dot = base64.b64encode(documents.image()).decode()
    made = documents.notebook(
        documents.markdown("# Title"),
        documents.code("print('x')", documents.stream("x\n"), documents.display(image_png=dot), count=3),
        language_info={"name": "python"},
    )
    found = convert(backend, permit, made, "notebook")
    assert isinstance(found, Document), found
    assert [(each.label, each.text) for each in found.sections] == [
        ("cell 1, id `cell-1`, `markdown`", "# Title"),
        ("cell 2, id `cell-2`, `code`, run 3", "print('x')"),
        ("output of cell 2", "x"),
    ]
    assert [image.label for image in found.images] == ["output of cell 2"]
    assert (found.total, found.notes) == (2, ("the language is `python`",))


# ---- hostile documents


@pytest.mark.threat("T243")
@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("image", documents.png_claiming(60_000, 60_000), "60,000 by 60,000 pixels"),
        ("image", documents.png_bomb(9_000), "9,000 by 9,000 pixels"),
        ("image", documents.png_claiming(4_000, 4_000), "it is damaged"),
    ],
)
def test_a_bomb_is_refused_before_it_is_decoded(permit: Permit, kind: str, data: bytes, why: str) -> None:
    found = convert(Linux("T1"), permit, data, kind)
    assert isinstance(found, Problem), found
    assert why in found.why


@pytest.mark.threat("T243")
@pytest.mark.thorough
@pytest.mark.slow("a document is decoded until a limit ends the process")
def test_a_pdf_bomb_ends_at_the_limits_of_its_process(permit: Permit) -> None:
    small = Limits(memory=400 << 20, cpu=20, wall=30)
    own = Permit(
        permit.action, Terms(Rights.READ_ONLY, permit.terms.workspace, "/nonexistent", SYSTEM, limits=small), _MINT
    )
    found = convert(Linux("T1"), own, documents.pdf_bomb(1500), "pdf")
    # PDFium may stop decoding itself; then the page is empty. Otherwise a limit ends the process.
    if isinstance(found, Problem):
        assert "limit" in found.why or "status" in found.why, found
    else:
        assert not found.text.strip()


# ---- a converter that a document took over

HOSTILE = """
import json, os, socket, sys
kind = sys.stdin.buffer.read()
done = []
def attempt(name, call):
    try:
        call()
    except Exception as error:
        return
    done.append(name)
def net(family, address):
    s = socket.socket(family); s.settimeout(1); s.connect(address)
attempt("passwd", lambda: open("/etc/passwd").read())
attempt("shadow", lambda: open("/etc/shadow").read())
attempt("workspace", lambda: open(WORKSPACE + "/file.txt").read())
attempt("list workspace", lambda: os.listdir(WORKSPACE))
attempt("session tmp", lambda: open("/tmp/session.txt").read())
attempt("write workspace", lambda: open(WORKSPACE + "/new", "w"))
attempt("write own program", lambda: open(__file__, "a"))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("tcp", lambda: net(socket.AF_INET, ("127.0.0.1", PORT)))
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("state", lambda: open("/run/tmp/left").read())
open("/run/tmp/left", "w").write("for the next document") if os.path.isdir("/run/tmp") else None
part = {"label": "", "text": " ".join(done), "images": []}
print(json.dumps({"document": {"title": "", "total": 0, "sections": [part], "notes": []}}))
"""


def planted(tmp_path: Path, text: str) -> Path:
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "start.py").write_text(text)
    return folder


@pytest.mark.threat("T244")
def test_a_converter_that_is_taken_over_reaches_nothing(backend: Linux, permit: Permit, tmp_path: Path) -> None:
    import socket

    from policy.model.action import RunScript

    with socket.create_server(("127.0.0.1", 0)) as listener:
        head = f"WORKSPACE, PORT = {permit.terms.workspace!r}, {listener.getsockname()[1]}\n"
        program = planted(tmp_path, head + HOSTILE)

        async def scene() -> list[Document | Problem]:
            work = Terms(Rights.WORKSPACE_WRITE, permit.terms.workspace, "/nonexistent", SYSTEM)
            left = RunScript("echo secret > /tmp/session.txt; echo $TMPDIR", permit.terms.workspace)
            try:
                await backend.run(Permit(left, work, _MINT))
                return [await converted(b"x", "pdf", permit, backend, program=program) for _ in range(2)]
            finally:
                await backend.close()

        found = asyncio.run(scene())
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    for each in found:
        assert isinstance(each, Document), each
        assert each.text == ""
    assert sorted(path.name for path in Path(permit.terms.workspace).iterdir()) == ["file.txt"]


@pytest.mark.threat("T245")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import os; os.abort()", "status 134"),
        ("raise SystemExit(3)", "status 3"),
        ("print('no json')", "no valid answer"),
        ("print('{}')", "no answer"),
        ('print(\'{"document": {"title": 1}}\')', "no valid answer"),
        ("import sys\nwhile True: sys.stdout.write('x' * 1000000)", "output limit"),
        ("raise ValueError('\\x1b[2J' + 'x' * 1000)", "ended with status 1: ValueError: "),
    ],
)
def test_a_converter_that_fails_is_a_problem(permit: Permit, tmp_path: Path, text: str, why: str) -> None:
    found = convert(Linux("T1"), permit, b"x", "pdf", planted(tmp_path, text))
    assert isinstance(found, Problem), found
    assert why in found.why
    assert str(found).isprintable()


@pytest.mark.threat("T245")
def test_an_image_of_the_converter_that_is_none_is_left_out(permit: Permit, tmp_path: Path) -> None:
    good = base64.b64encode(documents.image()).decode()
    images = [
        {"media": "image/png", "data": good, "label": "good"},
        {"media": "image/jpeg", "data": good, "label": "another type"},
        {"media": "image/png", "data": good[:40], "label": "a part"},
        {"media": "text/html", "data": base64.b64encode(b"<script>").decode(), "label": "html"},
        {"media": "image/png", "data": "no base64", "label": "a\nb"},
    ]
    answer = {
        "document": {"title": "", "total": 0, "sections": [{"label": "", "text": "", "images": images}], "notes": []}
    }
    found = convert(Linux("T1"), permit, b"x", "pdf", planted(tmp_path, f"print({json.dumps(json.dumps(answer))})"))
    assert isinstance(found, Document)
    assert [image.label for image in found.images] == ["good"]
    assert len(found.notes) == 4
