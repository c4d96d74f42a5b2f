"""Tests of reading regular files at hostile paths: links, pipes, devices, sockets, folders, growth."""

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.inside.regular_file import (
    FileTooLongError,
    NotRegularError,
    open_regular,
    read_descriptor,
    read_start,
    read_whole,
)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def _link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


# fmt: off
OTHERS: list[tuple[str, Callable[[Path], None], Callable[[int], bool]]] = [
    ("pipe",             _pipe,           stat.S_ISFIFO),
    ("socket",           _socket,         stat.S_ISSOCK),
    ("folder",           os.mkdir,        stat.S_ISDIR),
    ("link to a pipe",   _link_to_pipe,   stat.S_ISFIFO),
    ("link to a device", _link_to_device, stat.S_ISCHR),
]
# fmt: on


@pytest.mark.parametrize(("make", "kind"), [row[1:] for row in OTHERS], ids=[row[0] for row in OTHERS])
def test_what_is_no_regular_file_is_refused_without_waiting(
    tmp_path: Path, make: Callable[[Path], None], kind: Callable[[int], bool]
) -> None:
    path = tmp_path / "x"
    make(path)
    with pytest.raises(NotRegularError) as caught:
        open_regular(path, follow=True)
    assert kind(caught.value.mode)
    with pytest.raises(OSError, match=r"regular|symbolic links"):
        read_whole(path, 10, follow=False)
    assert read_start(path, 10, follow=True) == read_start(path, 10, follow=False) == b""


def test_a_device_is_never_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", lambda *_, **__: pytest.fail("opened"))
    with pytest.raises(NotRegularError):
        open_regular("/dev/zero", follow=True)


def test_a_link_is_followed_only_if_the_caller_wants_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    assert read_whole(tmp_path / "link", 4, follow=True) == b"text"
    assert read_start(tmp_path / "link", 4, follow=False) == b""
    with pytest.raises(OSError, match="symbolic links") as caught:
        read_whole(tmp_path / "link", 4, follow=False)
    assert caught.value.errno == errno.ELOOP
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with open(open_regular("file", follow=False, dir_fd=folder)[0], "rb") as file:
            assert file.read() == b"text"
        with pytest.raises(OSError, match="symbolic links"):
            open_regular("link", follow=False, dir_fd=folder)
    finally:
        os.close(folder)


def test_the_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_whole(path, 5, follow=False) == b"12345"
    assert read_start(path, 3, follow=False) == b"123"
    assert read_start(path, 0, follow=False) == b""
    with pytest.raises(FileTooLongError):
        read_whole(path, 4, follow=False)


def test_a_file_that_grows_while_it_is_read_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    read = os.read

    def growing(handle: int, size: int) -> bytes:
        with path.open("ab") as file:
            file.write(b"2" * 100)
        return read(handle, min(size, 10))

    monkeypatch.setattr(os, "read", growing)
    with pytest.raises(FileTooLongError):
        read_whole(path, 1000, follow=False)
    assert len(read_start(path, 1000, follow=False)) == 1000


@pytest.mark.parametrize("make", [_pipe, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "link"])
def test_a_file_that_is_exchanged_between_check_and_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    look = os.stat

    def late(*args: object, **named: object) -> os.stat_result:
        state = look(*args, **named)  # type: ignore[arg-type, call-overload]  # the arguments of the caller
        path.unlink()
        make(path)
        return state  # type: ignore[no-any-return]  # follows from the line above

    monkeypatch.setattr(os, "stat", late)
    with pytest.raises(OSError, match=r"regular|symbolic links"):
        open_regular(path, follow=False)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    before = len(os.listdir("/proc/self/fd"))
    read_start(path, 1, follow=False)
    read_whole(path, 1, follow=True)
    with pytest.raises(FileTooLongError):
        read_whole(path, 0, follow=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_name_that_no_kernel_takes(tmp_path: Path) -> None:
    assert read_start("a\0b", 1, follow=False) == b""
    with pytest.raises(ValueError, match="null"):
        read_whole("a\0b", 1, follow=False)
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "none", 1, follow=True)


def test_reading_begins_at_the_current_position(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    handle, state = open_regular(path, follow=False)
    try:
        assert state.st_size == 5
        os.lseek(handle, 3, os.SEEK_SET)
        assert read_descriptor(handle, 10) == b"45"
    finally:
        os.close(handle)
