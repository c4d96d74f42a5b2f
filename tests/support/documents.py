"""Real documents for tests: PDF documents, images and notebooks, and hostile ones of each kind."""

import io
import json
import struct
import zlib
from typing import Any

import nbformat
from PIL import Image
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject, StreamObject, TextStringObject


def pdf(*texts: str, title: str = "", script: str = "") -> bytes:
    """Return a PDF document with one page for each text; an empty text is an empty page."""
    writer = PdfWriter()
    for text in texts:
        page = writer.add_blank_page(612, 792)
        if not text:
            continue
        stream = DecodedStreamObject()
        shown = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        lines = " ".join(f"({line}) Tj T*" for line in shown.split("\n"))
        stream.set_data(f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET".encode("latin-1", "replace"))
        font = DictionaryObject(
            {
                NameObject("/Type"): NameObject("/Font"),
                NameObject("/Subtype"): NameObject("/Type1"),
                NameObject("/BaseFont"): NameObject("/Helvetica"),
            }
        )
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        page[NameObject("/Contents")] = writer._add_object(stream)
    if title:
        writer.add_metadata({"/Title": title})
    if script:
        words = {"/Type": NameObject("/Action"), "/S": NameObject("/JavaScript"), "/JS": TextStringObject(script)}
        action = DictionaryObject({NameObject(key): value for key, value in words.items()})
        writer.root_object[NameObject("/OpenAction")] = writer._add_object(action)
    return written(writer)


def written(writer: PdfWriter) -> bytes:
    """Return the bytes of a PDF document."""
    target = io.BytesIO()
    writer.write(target)
    return target.getvalue()


def pdf_bomb(megabytes: int) -> bytes:
    """Return a PDF document whose page has a content stream that is small, and that many megabytes when decoded."""
    writer = PdfWriter()
    page = writer.add_blank_page(612, 792)
    packer = zlib.compressobj(9)
    block = b"q Q " * (1 << 18)
    data = b"".join(packer.compress(block) for _ in range(megabytes)) + packer.flush()
    stream = StreamObject()
    stream._data = data
    stream[NameObject("/Filter")] = NameObject("/FlateDecode")
    page[NameObject("/Contents")] = writer._add_object(stream)
    return written(writer)


def image(kind: str = "PNG", size: tuple[int, int] = (40, 30), mode: str = "RGB", **options: Any) -> bytes:
    """Return an image of one colour."""
    target = io.BytesIO()
    Image.new(mode, size).save(target, kind, **options)
    return target.getvalue()


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png_bomb(side: int) -> bytes:
    """Return a PNG whose header states `side` by `side` pixels, with the compressed rows for all of them."""
    packer = zlib.compressobj(9)
    row = bytes(side * 3 + 1)
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def png_claiming(width: int, height: int) -> bytes:
    """Return a small PNG whose header states another size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(bytes(100)))
        + _chunk(b"IEND", b"")
    )


def notebook(*cells: Any, **metadata: Any) -> bytes:
    """Return a notebook as Jupyter writes it."""
    made = nbformat.v4.new_notebook(metadata=metadata)
    made["cells"] = list(cells)
    for number, cell in enumerate(made["cells"], 1):
        cell["id"] = cell["id"] if "odd" in cell["metadata"] else f"cell-{number}"
    return (json.dumps(made, indent=1, ensure_ascii=False) + "\n").encode()


def code(source: str, *outputs: Any, count: int | None = None, **more: Any) -> Any:
    """Return a code cell."""
    return nbformat.v4.new_code_cell(source, outputs=list(outputs), execution_count=count, **more)


def markdown(source: str, **more: Any) -> Any:
    """Return a Markdown cell."""
    return nbformat.v4.new_markdown_cell(source, **more)


def stream(text: str) -> Any:
    """Return an output of standard output."""
    return nbformat.v4.new_output("stream", name="stdout", text=text)


def display(**data: Any) -> Any:
    """Return an output with data of several types; `image_png` is the key for `image/png`."""
    return nbformat.v4.new_output("display_data", data={key.replace("_", "/"): value for key, value in data.items()})
