"""Files of `/etc` inside that differ from the machine's: entries for the current user, and settings of Chromium.

`/etc/passwd` and `/etc/group` have entries for the current user and group, if the machine's have none. Containers run
under any user number, and user directories (LDAP, sssd) are reached over sockets that do not exist inside: without an
entry, Git, ssh, Python and npm find no name and no home.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from policy.model.digest import sha256_hex

_LONGEST = 1 << 20  # bytes
# Debian's launcher of Chromium reads every file in this folder, and fails if there is none.
_CHROMIUM = "/etc/chromium.d"
# Chromium's own sandbox needs namespaces that commands may not make, and it does not start for root with that sandbox.
_CHROMIUM_SETTINGS = b"""# Written by ringfence.
export CHROMIUM_FLAGS="$CHROMIUM_FLAGS --no-sandbox"
case " $* " in
*" --version "* | *" --product-version "*) ;;
*) echo "ringfence: Chromium runs without its own sandbox, inside the sandbox of ringfence" >&2 ;;
esac
"""


def files(cache: Path | None, home: str) -> dict[str, str]:
    """Return the files on the host to show inside, by path inside. A path is omitted if the machine's file has an entry
    or the copy cannot be made. Without `cache` the result is empty. `home` is the home folder inside.
    """
    if cache is None:
        return {}
    replacements = {}
    uid, gid = os.geteuid(), os.getegid()
    for path, number in (("/etc/passwd", uid), ("/etc/group", gid)):
        try:
            with open(path, "rb") as file:
                text = file.read(_LONGEST)
        except OSError:
            continue
        if any(line.split(b":")[2:3] == [b"%d" % number] for line in text.splitlines()):
            continue
        words = [_group(gid), "x", str(gid), ""]
        if path == "/etc/passwd":
            name = _user(uid)
            words = [name, "x", str(uid), str(gid), name, home, "/bin/bash"]
        if any(":" in word or "\n" in word for word in words):
            continue  # the file format cannot express this home
        whole = text.rstrip(b"\n") + b"\n" + os.fsencode(":".join(words)) + b"\n"
        if copy := _kept(cache, os.path.basename(path), whole):
            replacements[path] = copy
    return replacements


def added(cache: Path | None, shown: Iterable[str]) -> tuple[tuple[Literal["ro"], str, str], ...]:
    """Return the mounts of files that are not among the machine's: the settings of Chromium. The result is empty
    without Chromium or `cache`, and where a path of `shown` contains the machine's own settings.
    """
    if cache is None or not os.path.isdir(_CHROMIUM) or any(f"{_CHROMIUM}/".startswith(f"{path}/") for path in shown):
        return ()
    copy = _kept(cache, "chromium", _CHROMIUM_SETTINGS)
    return (("ro", copy, f"{_CHROMIUM}/ringfence"),) if copy else ()


def _user(uid: int) -> str:
    import pwd  # few commands need it

    with contextlib.suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"user{uid}"


def _group(gid: int) -> str:
    import grp

    with contextlib.suppress(KeyError):
        return grp.getgrgid(gid).gr_name
    return f"group{gid}"


def _kept(cache: Path, name: str, text: bytes) -> str:
    """Return the path of a file with the content `text` in the cache; empty if it cannot be written."""
    path = cache / f"{name}-{sha256_hex(text)[:32]}"
    try:
        if path.exists() and path.read_bytes() == text:
            return str(path)
        import tempfile  # needed only for a new copy

        handle, made = tempfile.mkstemp(dir=cache, prefix=f".{name}-")
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.chmod(made, 0o444)
        os.replace(made, path)
    except OSError:
        return ""
    return str(path)
