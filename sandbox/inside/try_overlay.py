"""Trial of an overlay: `python -I -S try_overlay.py FOLDER WORKSPACE PLACE`. Standard library only.

FOLDER contains the top-level package of this program. PLACE is an empty folder of the private state. The trial mounts
WORKSPACE below a layer in PLACE, in namespaces of its own, and then tries in a layer of its own folders what a layer
needs: a deleted file, a replaced folder and a changed file. It prints nothing if all of this works, else the reason.
"""

import os
import sys


def main(workspace: str, place: str) -> str:
    """Return the reason why a layer in `place` cannot cover `workspace`; empty if it can."""
    from sandbox.inside import confine, syscalls

    try:
        confine.enter_namespaces([])
        confine.enter_mounts()
    except OSError as error:
        return f"no namespace for mounts can be made here ({(error.strerror or '').lower()})"
    for name in ("upper", "work", "lower", "upper2", "work2", "lower/folder"):
        os.mkdir(f"{place}/{name}", 0o700)
    for name in ("lower/file", "lower/folder/file"):
        with open(f"{place}/{name}", "wb") as file:
            file.write(b"before")
    handles = [syscalls.open_path(path, 0) for path in (workspace, f"{place}/upper", f"{place}/work")]
    try:
        os.close(syscalls.fresh_overlay(*handles))
    except OSError as error:
        step = getattr(error, "step", "")
        return f"the kernel has no overlay for these file systems ({step}: {(error.strerror or '').lower()})"
    handles = [syscalls.open_path(f"{place}/{name}", 0) for name in ("lower", "upper2", "work2")]
    tree = syscalls.fresh_overlay(*handles)
    try:
        os.unlink("folder/file", dir_fd=tree)
        os.rmdir("folder", dir_fd=tree)
        os.mkdir("folder", dir_fd=tree)
        os.rename("file", "moved", src_dir_fd=tree, dst_dir_fd=tree)
        with open(os.open("moved", os.O_WRONLY | os.O_APPEND, dir_fd=tree), "wb") as file:
            file.write(b" after")
        marked = os.getxattr(f"{place}/upper2/folder", "user.overlay.opaque") == b"y"
        gone = os.lstat(f"{place}/upper2/file")
    except OSError as error:
        return f"the file system of {place} cannot keep a layer ({(error.strerror or '').lower()})"
    if not marked or gone.st_rdev != 0 or {*os.listdir(f"{place}/lower")} != {"file", "folder"}:
        return f"the file system of {place} does not mark deleted files"
    return ""


if __name__ == "__main__":
    sys.path.append(sys.argv.pop(1))
    sys.stdout.write(main(*sys.argv[1:]))
