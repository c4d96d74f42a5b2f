"""The image in the user's clipboard, read with the clipboard program of the desktop."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping

from policy.model.deadline import deadline
from policy.model.verdict import Problem
from runner.messages import ImageBlock

_SECONDS = deadline(5.0)
_MOST = 32 << 20  # bytes
# THREAT T250: PATH is not used, because it may contain a folder of a workspace.
_FOLDERS = ("/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin", "/run/current-system/sw/bin")
_WHAT = "no image was pasted"
_TYPES = ("image/png", "image/jpeg")


async def pasted_image(environ: Mapping[str, str], folders: tuple[str, ...] = _FOLDERS) -> ImageBlock | Problem:
    """Return the image in the clipboard, or the Problem: no program, no image, or one that models do not accept."""
    ways = _ways(environ, ":".join(folders))
    if isinstance(ways, Problem):
        return ways
    for media, argv in ways:
        content = await _output(argv, environ)
        if content:
            return _checked(content, media)
    return Problem(_WHAT, "there is no PNG or JPEG image in the clipboard", "copy an image first, or write `@FILE`")


def _ways(environ: Mapping[str, str], path: str) -> list[tuple[str, tuple[str, ...]]] | Problem:
    """Return the commands that print the image, with its type."""
    words: tuple[str, ...]
    if environ.get("WAYLAND_DISPLAY"):
        name, words = "wl-paste", ("--no-newline", "--type")
    elif environ.get("DISPLAY"):
        name, words = "xclip", ("-selection", "clipboard", "-o", "-t")
    elif sys.platform == "darwin":
        name, words = "pngpaste", ()
    else:
        why = "this terminal has no desktop (neither WAYLAND_DISPLAY nor DISPLAY is set)"
        return Problem(_WHAT, why, "save the image to a file, and write `@FILE` in the prompt")
    program = shutil.which(name, path=path)
    if program is None:
        fix = f"install `{name}`, or save the image to a file and write `@FILE` in the prompt"
        return Problem(_WHAT, f"`{name}` is not installed", fix)
    if not words:
        return [("image/png", (program, "-"))]
    return [(media, (program, *words, media)) for media in _TYPES]


async def _output(argv: tuple[str, ...], environ: Mapping[str, str]) -> bytes:
    """Return what a clipboard program prints; empty if it fails, prints too much, or takes more than five seconds."""
    names = ("WAYLAND_DISPLAY", "DISPLAY", "XDG_RUNTIME_DIR", "XAUTHORITY", "HOME")
    own = {name: environ[name] for name in names if name in environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=own,
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        return b""
    assert process.stdout is not None
    content = bytearray()
    try:
        async with asyncio.timeout(_SECONDS):
            while len(content) <= _MOST and (chunk := await process.stdout.read(1 << 16)):
                content += chunk
            if len(content) <= _MOST and await process.wait() == 0:
                return bytes(content)
    except TimeoutError:
        return b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()
    return b""


def _checked(content: bytes, media: str) -> ImageBlock | Problem:
    import binascii

    from sandbox.inside.files.image_check import SIDE_CAP, picture
    from sandbox.inside.files.read import IMAGE_CAP

    found = picture(content)
    if found is None or found[0] != media:
        return Problem(_WHAT, "the image in the clipboard is damaged", "copy it again, or write `@FILE`")
    if len(content) > IMAGE_CAP or max(found[1:]) > SIDE_CAP:
        why = f"it has {len(content):,} bytes and {found[1]:,} by {found[2]:,} pixels, which no model accepts"
        return Problem(_WHAT, why, "save it to a file and write `@FILE`: a smaller copy of the file is sent")
    return ImageBlock(media, binascii.b2a_base64(content, newline=False).decode())
