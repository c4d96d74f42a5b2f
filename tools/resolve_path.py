"""Resolution of path arguments by text alone, without access to the disk."""

from policy.model.verdict import Problem
from tools.truncate import short


def place(path: str, cwd: str) -> str | Problem:
    """Return `path` as an absolute path, relative to `cwd`. `..` stays, because only the disk tells what it means."""
    if not path:
        return Problem("the path is empty", "there is nothing to look at", "give a path, or `.` for this folder")
    if path == "~" or path.startswith("~/"):
        why = "`~` is a shorthand of the shell, and this is no shell"
        return Problem(
            f"cannot use the path `{short(path)}`", why, f"give the whole path; this folder is `{short(cwd, 200)}`"
        )
    whole = path if path.startswith("/") else f"{cwd}/{path}"
    return "/" + "/".join(part for part in whole.split("/") if part not in ("", "."))
