"""Where a path argument points, by words alone: nothing on the disk is looked at."""

from policy.model.verdict import Problem
from tools.truncate import short


def place(path: str, cwd: str) -> str | Problem:
    """`path` as an absolute path: relative ones start at `cwd`. `..` stays: only the disk knows what it means."""
    if not path:
        return Problem("the path is empty", "there is nothing to look at", "give a path, or `.` for this folder")
    if path == "~" or path.startswith("~/"):
        why = "`~` is a shorthand of the shell, and this is no shell"
        return Problem(
            f"cannot use the path `{short(path)}`", why, f"give the whole path; this folder is `{short(cwd, 200)}`"
        )
    whole = path if path.startswith("/") else f"{cwd}/{path}"
    return "/" + "/".join(part for part in whole.split("/") if part not in ("", "."))
