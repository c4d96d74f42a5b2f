"""The image in the clipboard: programs of the desktop, replaced by scripts that print, hang and lie."""

import asyncio
import base64
from pathlib import Path

import pytest

from policy.model.verdict import Problem
from runner.frontends.terminal.clipboard import pasted_image
from runner.messages import ImageBlock
from tests.support import documents


def program(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(folder)


def paste(folder: str, **environ: str) -> ImageBlock | Problem:
    return asyncio.run(pasted_image(environ, (folder,)))


@pytest.mark.parametrize(("name", "variable"), [("wl-paste", "WAYLAND_DISPLAY"), ("xclip", "DISPLAY")])
def test_the_program_of_the_desktop_is_asked(tmp_path: Path, name: str, variable: str) -> None:
    image = documents.image("JPEG")
    (tmp_path / "image").write_bytes(image)
    folder = program(tmp_path, name, f'for last; do :; done; [ "$last" = image/jpeg ] && cat {tmp_path}/image')
    found = paste(folder, **{variable: ":0"})
    assert found == ImageBlock("image/jpeg", base64.b64encode(image).decode())


@pytest.mark.threat("T250")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exit 1", "there is no PNG or JPEG image"),
        ("echo text", "is damaged"),
        ("exec cat /dev/zero", "there is no PNG or JPEG image"),
        ("printf '\\211PNG\\r\\n\\032\\n'", "is damaged"),
    ],
)
def test_what_is_no_image_is_not_sent(tmp_path: Path, text: str, why: str) -> None:
    found = paste(program(tmp_path, "xclip", text), DISPLAY=":0")
    assert isinstance(found, Problem)
    assert why in found.why


@pytest.mark.threat("T250")
def test_a_program_on_the_path_of_the_user_is_not_used(tmp_path: Path) -> None:
    folder = program(tmp_path, "wl-paste", f"touch {tmp_path}/ran")
    found = asyncio.run(pasted_image({"WAYLAND_DISPLAY": "x", "PATH": folder}, ("/nonexistent",)))
    assert isinstance(found, Problem)
    assert "`wl-paste` is not installed" in found.why
    assert not (tmp_path / "ran").exists()


def test_without_a_desktop_the_message_says_so(tmp_path: Path) -> None:
    found = paste(str(tmp_path))
    assert isinstance(found, Problem)
    assert "@FILE" in found.fix
