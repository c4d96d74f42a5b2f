"""Workspaces for the tests of copies and patches, with real Git as their oracle."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

BARE = {
    **{"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
    **{"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
}
Tree = dict[bytes, tuple[str, bytes]]  # path: kind and content


@pytest.fixture
def base() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="rp"))
    yield folder
    subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def sh(where: Path | str, script: str) -> None:
    done = subprocess.run(["bash", "-ec", script], cwd=where, env=BARE, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")


def tree(top: Path | str) -> Tree:
    """Files and links as Git knows them, but for its own."""
    found: Tree = {}
    for folder, folders, names in os.walk(os.fsencode(top)):
        folders[:] = [each for each in folders if each != b".git"]
        for name in [*names, *(each for each in folders if os.path.islink(os.path.join(folder, each)))]:
            path = os.path.join(folder, name)
            short = os.path.relpath(path, os.fsencode(top))
            if os.path.islink(path):
                found[short] = ("link", os.readlink(path))
            else:
                with open(path, "rb") as file:
                    found[short] = ("program" if os.stat(path).st_mode & 0o100 else "file", file.read())
    return found


def git_apply(where: Path | str, patch: bytes, *flags: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["git", "apply", "--whitespace=nowarn", *flags, "-"], cwd=where, env=BARE, input=patch, capture_output=True
    )


# fmt: off
LINES = st.lists(
    st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"d\r\n", b"x", b"\0", b"\xff\n", b" \n", b"-\n"]), max_size=12
).map(b"".join)
NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a", "d e/\u00e9", 'q"\n', "z\\"])
ENTRY = st.tuples(st.sampled_from(["file", "file", "program", "link"]), LINES)
TREES = st.dictionaries(NAMES, ENTRY, max_size=6)
# fmt: on


def make(top: Path, wanted: dict[str, tuple[str, bytes]]) -> None:
    for path, (kind, content) in wanted.items():
        place = top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            os.symlink(content.replace(b"\0", b"") or b"x", os.fsencode(place))
        else:
            place.write_bytes(content)
            place.chmod(0o755 if kind == "program" else 0o644)
