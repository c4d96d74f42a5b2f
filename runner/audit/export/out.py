"""Output of an export: standard output, or a private file that appears complete or not at all."""

import contextlib
import os
import secrets
import stat
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TextIO, TypeVar

from policy.model.verdict import Problem
from runner.problems import Exit, Stopped, usage
from runner.text.phrases import os_reason

_Item = TypeVar("_Item")
_EVERY = 0.25  # seconds between two updates of the progress


def write(lines: Iterable[str], path: Path | None) -> None:
    """Write each line with a line end, without holding all lines in memory. A file is in UTF-8.

    `path` is None for standard output. Raises Stopped if the file cannot be written, and BrokenPipeError if the reader
    of standard output is gone.
    """
    if path is None:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        return
    with whole(path) as file:
        for line in lines:
            file.write(f"{line}\n")


@contextlib.contextmanager
def whole(path: Path) -> Iterator[TextIO]:
    """Open a file with mode 0600 that replaces `path` when the block succeeds; a failed block changes nothing.

    Raises Stopped if the file cannot be written, and a usage error if `path` exists and is not a regular file.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.lstat(path).st_mode):
                why = "only a plain file can be replaced"
                raise usage(f"`{path}` is not a plain file", why, "name another with --out")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritten(path, error) from None
    try:
        # A text of a model may contain lone surrogates. JSON escapes them; the other formats must not fail.
        with open(handle, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            yield file
            file.flush()
            os.fsync(handle)
        os.rename(beside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise _unwritten(path, error) from None
        raise


def counted(found: Iterable[_Item], noun: str) -> Generator[_Item, None, None]:
    """Yield the items unchanged, and show their count with `noun` on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield from found
        return
    shown, count = time.monotonic(), 0
    try:
        for count, item in enumerate(found, 1):
            if time.monotonic() - shown > _EVERY:
                shown = time.monotonic()
                sys.stderr.write(f"\r{count:,} {noun} ...")
                sys.stderr.flush()
            yield item
    finally:
        if count:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _unwritten(path: Path, error: OSError) -> Stopped:
    why = os_reason(error)
    fix = "name another file with --out, or omit --out to print"
    return Stopped(Problem(f"`{path}` cannot be written", why, fix), Exit.FAILED)
