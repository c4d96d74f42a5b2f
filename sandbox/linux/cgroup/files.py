"""The files of a control group as the kernel wants them read and written (cgroups(7))."""

import os


def read_line(folder: str, name: str) -> list[str]:
    """Return the words of a file in their order; none where there is no such file."""
    try:
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            return file.read().split()
    except OSError:
        return []


def read_words(folder: str, name: str) -> set[str]:
    """Return the words of a file of which the order says nothing."""
    return set(read_line(folder, name))


def write(folder: str, name: str, text: str, *, optional: bool = False) -> None:
    """Write in one call, because the kernel takes each write as a whole order."""
    try:
        handle = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if optional:
            return
        raise
    try:
        os.write(handle, text.encode())
    except OSError:
        if not optional:
            raise
    finally:
        os.close(handle)


def read(handle: int) -> bytes:
    return os.pread(handle, 4096, 0)


def field(content: bytes, name: bytes) -> int:
    """Return the number behind `name` in lines of `NAME NUMBER`."""
    for line in content.splitlines():
        if line.startswith(name + b" "):
            return int(line.split()[1])
    return 0


def removed(path: str) -> bool:
    """Take the group away. False while something is in it."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
