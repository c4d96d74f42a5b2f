"""Opening an address in the user's browser, without a shell."""

import os
import subprocess
import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

_OPENERS = ("open",) if sys.platform == "darwin" else ("xdg-open", "wslview")


def open_browser(address: str, environ: Mapping[str, str], workspace: str = "") -> bool:
    """Open an http or https address in the browser, and return True if a program for it was started.

    The program is looked up in the absolute folders of PATH outside of `workspace`.
    """
    # SAFETY: other schemes start other programs, and a word that begins with `-` is an option.
    if urlsplit(address).scheme not in ("http", "https") or not all("!" <= char <= "~" for char in address):
        return False
    program = _opener(environ.get("PATH", ""), workspace)
    if not program:
        return False
    try:
        subprocess.Popen(
            (program, address),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    except OSError:
        return False
    return True


def _opener(path: str, workspace: str) -> str:
    inside = os.path.realpath(workspace) if workspace else ""
    for folder in path.split(os.pathsep):
        for name in _OPENERS:
            found = os.path.join(folder, name)
            real = os.path.realpath(found)
            if not folder.startswith("/") or (inside and (real == inside or real.startswith(f"{inside}/"))):
                continue
            if os.path.isfile(found) and os.access(found, os.X_OK):
                return found
    return ""
