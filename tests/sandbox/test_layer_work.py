"""Everyday work on a layer: the same result as in the workspace itself, except for the rows of `DIFFERENT`.

Each script runs on a layer first, which leaves the workspace as it was. Its changes are then copied to a second folder
by the list of changes alone. The script runs again in the workspace itself, and both trees are compared.
"""

import os
import random
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.inside import safe_rmtree
from tests.support.places import ROOT
from tests.support.sandbox_bench import SYSTEM, USERS, Bench, make

PY = "/usr/bin/python3"
BASE = Path(os.path.realpath(sys.executable)).parent.parent
GIT = "export GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z' GIT_CONFIG_GLOBAL=/dev/null"
GIT += " GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b"


@pytest.fixture(params=USERS, scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from make(request.param)


@pytest.fixture
def project(bench: Bench) -> Path:
    """A small project with files of several kinds."""
    workspace = bench.base / "home" / f"work-{os.urandom(4).hex()}"
    for folder in ("src/inner", "lib"):
        (workspace / folder).mkdir(parents=True)
    (workspace / "src" / "main.c").write_text('#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n')
    (workspace / "src" / "inner" / "text").write_text("one\ntwo\nthree\n")
    (workspace / "lib" / "part.py").write_text("def part() -> int:\n    return 41\n")
    (workspace / "test_part.py").write_text(
        "import sys; sys.path.insert(0, 'lib')\nimport part, unittest\n"
        "class T(unittest.TestCase):\n    def test_it(self): self.assertEqual(part.part(), 41)\n"
    )
    (workspace / "notes").write_text("a\n" * 2000)
    os.link(workspace / "notes", workspace / "notes-too")
    return bench.own(workspace)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of each entry; the content of a link is its target."""
    found = {}
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(top, name)
            mode = path.lstat().st_mode
            content = os.fsencode(os.readlink(path)) if stat.S_ISLNK(mode) else b""
            found[str(path.relative_to(folder))] = (mode, path.read_bytes() if stat.S_ISREG(mode) else content)
    return found


def copied(source: Path, target: Path) -> None:
    """Copy one entry with its mode, a folder without its content."""
    mode = source.lstat().st_mode
    if stat.S_ISDIR(mode):
        target.mkdir(exist_ok=True)
        target.chmod(stat.S_IMODE(mode))
    elif stat.S_ISLNK(mode):
        target.symlink_to(os.readlink(source))
    elif stat.S_ISREG(mode):
        shutil.copy2(source, target)
    else:
        os.mkfifo(target, stat.S_IMODE(mode))


def apply(answer: dict[str, Any], target: Path) -> None:
    """Make the changes of a command in the folder `target`, from the list of changes and the layer."""
    upper = Path(answer["upper"])
    for path, kind, mode, _, whole, _, _, same_as in answer["changes"]:
        place = target / path
        replaces = kind != "folder" or whole or not place.is_dir() or place.is_symlink()
        if replaces and os.path.lexists(place):
            if place.is_dir() and not place.is_symlink():
                safe_rmtree.remove(str(place))
            else:
                place.unlink()
        if same_as:
            os.link(target / same_as, place)
        elif kind is not None:
            copied(upper / path, place)
            if kind != "link":
                assert stat.S_IMODE(place.lstat().st_mode) == stat.S_IMODE(mode)


# fmt: off
WORK = [
    ("gcc -o built src/main.c && ./built",                                          "built", "a compiler, and its program"),
    ("printf 'all: built\\nbuilt: src/main.c\\n\\tgcc -c -o $@ $<\\n' > Makefile; make; make", "nothing to be done|up to date|Nothing to be done", "make, twice"),
    (f"{GIT}; git init -q . && git add -A && git commit -qm one && git log --oneline | wc -l", "1", "a repository"),
    (f"{GIT}; git init -q -b main r && cd r && for n in 1 2 3; do echo $n > f$n; git add .; git commit -qm $n; done;"
     " git checkout -qb side HEAD~1 && echo s > s && git add . && git commit -qm s && git rebase -q main && git log --oneline | wc -l && git gc -q && git fsck", "4", "branches, a rebase and a garbage collection"),
    ("git init -q r; cd r; git worktree list | wc -l; git stash list; git status --short", "1", "status of an empty repository"),
    (f"{PY} -m unittest -q test_part 2>&1; ls lib/__pycache__ | wc -l",             "OK", "a test run that writes compiled modules"),
    ("mkdir -p dep && echo '{\"name\":\"dep\",\"version\":\"1.0.0\"}' > dep/package.json && echo '{\"name\":\"top\",\"version\":\"1.0.0\"}' > package.json"
     " && npm install --offline --no-audit --no-fund --install-links ./dep >/dev/null && ls node_modules", "dep", "npm, a package that it copies"),
    ("mkdir -p w/x && cd w && printf 'from setuptools import setup\\nsetup(name=\"x\", version=\"1\", packages=[\"x\"])' > setup.py && touch x/__init__.py"
     f" && {PY} setup.py -q bdist_wheel 2>/dev/null; {PY} -m pip install -q --no-index --no-deps --target ../site dist/*.whl 2>&1; ls ../site", "x", "pip, from a local wheel"),
    ("tar cf all.tar src lib && rm -r src && tar xf all.tar && cat src/inner/text",  "one", "an archive and back"),
    ("sed -i s/one/1/ src/inner/text; cat src/inner/text",                          "1", "sed, which replaces the file"),
    ("cp -a src copy; rm -r src; mv copy src; ls src",                              "inner", "a folder copied, removed and renamed"),
    ("mv src moved; ls moved; mv moved/inner lib; ls lib",                          "inner", "folders that mv copies (EXDEV)"),
    ("find . -name '*.py' -exec touch -d @5 {} +; stat -c %Y lib/part.py",          "5", "times"),
    ("chmod -R go-rwx .; stat -c %a lib src/inner/text | tr '\\n' ' '",             "700 600", "modes"),
    ("truncate -s 64M sparse; stat -c '%s %b' sparse; cp --sparse=always sparse s2; stat -c %b s2", "67108864 0", "files of holes"),
    ("dd if=/dev/zero of=big bs=1M count=80 status=none; cp big big2; cmp big big2 && stat -c %s big2", "83886080", "large files"),
    (f"{PY} -c 'import os; os.setxattr(\"notes\", \"user.k\", b\"v\"); print(os.getxattr(\"notes\", \"user.k\"))'", "b'v'", "attributes of a file of the workspace"),
    (f"{PY} -c 'import mmap, os; f = open(\"src/inner/text\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); m[:3] = b\"ONE\"; m.flush(); print(open(\"src/inner/text\").readline())'", "ONE", "a shared mapping that is written"),
    ("flock src/inner/text sh -c 'flock -n src/inner/text true || echo held'; flock -n src/inner/text echo free", "held\nfree", "a lock of flock(2)"),
    (f"{PY} -c 'import fcntl, os; f = open(\"notes\", \"r+\"); fcntl.lockf(f, fcntl.LOCK_EX); p = os.fork(); p or os._exit(0 if not os.system(\"flock -n notes true\") else 3); print(os.waitpid(p, 0)[1])'", "0", "a lock of fcntl(2)"),
    ("sqlite3 d.db 'pragma journal_mode=wal; create table t(x); insert into t values(1); insert into t values(2); select sum(x) from t'", "wal\n3", "SQLite with a log"),
    ("for n in 1 2 3 4; do (for i in $(seq 40); do sqlite3 -cmd '.timeout 60000' d.db 'create table if not exists t(x); insert into t values(1)'; done) & done; wait; sqlite3 d.db 'select count(*) from t'", "160", "four writers of one database"),
    (f"{PY} - <<'E'\nimport ctypes, os, struct\nlibc = ctypes.CDLL(None)\nfd = libc.inotify_init1(0)\nlibc.inotify_add_watch(fd, b'src', 0x3ff)\nopen('src/new', 'w').write('x')\nos.rename('src/new', 'src/named')\nnames = os.read(fd, 4096)\nprint(b'named' in names)\nE", "True", "a watcher inside"),
    (f"{PY} -c 'import os; a = os.open(\"src\", os.O_RDONLY); os.mkdir(\"x\", dir_fd=a); os.fsync(a); print(os.listdir(a).count(\"x\"))'", "1", "descriptors of folders"),
    (f"{PY} -c 'import os; f = os.open(\".\", os.O_TMPFILE | os.O_RDWR); os.write(f, b\"t\"); os.link(f\"/proc/self/fd/{{f}}\", \"named\", src_dir_fd=f); print(open(\"named\").read())'", "t", "a file without a name that gets one"),
    (f"{PY} -c 'import os; a = os.open(\"notes\", os.O_RDONLY); b = os.open(\"part\", os.O_RDWR | os.O_CREAT); print(os.copy_file_range(a, b, 4000)); os.posix_fallocate(b, 0, 9000); print(os.stat(\"part\").st_size)'", "4000\n9000", "copies and allocations in the kernel"),
    (f"{PY} -c 'import ctypes; print(ctypes.CDLL(None).renameat2(-100, b\"notes\", -100, b\"src/inner/text\", 2)); print(open(\"notes\").readline())'", "0\none", "two files that change places"),
    (f"{PY} -c 'import os; s = os.open(\"src\", os.O_RDONLY); f = os.open(\"inner/text\", os.O_RDWR | os.O_APPEND, dir_fd=s); os.ftruncate(f, 3); os.write(f, b\"x\"); print(os.pread(f, 9, 0))'", "b'onex'", "a file that is cut and extended"),
    (f"{PY} -c 'import os; d = os.open(\"src/inner\", os.O_RDONLY); os.unlink(\"text\", dir_fd=d); os.rmdir(\"src/inner\"); print(os.listdir(d), os.path.exists(\"src/inner\"))'", "[] False", "a folder that is removed while it is open"),
    ("ln -s notes l; ln -s missing dangling; ln -sfn lib l; readlink l",            "lib", "links"),
    ("mkfifo p; (echo through > p &) ; cat p; rm p",                                "through", "a pipe with a name"),
    ("for i in $(seq 300); do echo $i > f$i; done; rm f1*; ls | wc -l",             "", "many small files"),
    ("mkdir -p a/b/c; echo x > a/b/c/f; rm -r a; mkdir a; echo y > a/f; ls a",      "f", "a folder that replaces its own"),
    (f"{PY} -c 'import shutil, tempfile, os; d = tempfile.mkdtemp(dir=\".\"); open(d + \"/f\", \"w\").write(\"x\"); os.replace(d + \"/f\", \"notes\"); shutil.rmtree(d); print(open(\"notes\").read())'", "x", "a file that is replaced in one step"),
    ("rsync --version >/dev/null 2>&1 && rsync -a src/ out/ && ls out || cp -a src/. out; ls out", "inner", "a copy with all attributes"),
]
ROOT_WORK = [
    (f"{ROOT}/.venv/bin/python -m pytest -q -p no:cacheprovider test_part.py 2>&1 | tail -1 | cut -c1-8", "1 passed", "pytest"),
    ("export CARGO_HOME=/tmp/c RUSTUP_HOME=/root/.rustup; cargo=$(ls -d /root/.rustup/toolchains/stable*/bin); PATH=$cargo:$PATH;"
     " cargo init -q --vcs none c && cd c && cargo build -q --offline && ./target/debug/c", "Hello, world!", "cargo"),
]
# What differs from work in the workspace itself: (script, output on a layer, output there, why).
DIFFERENT = [
    ("echo new >> notes; tail -1 notes-too", "a", "new", "a hard link: the other name keeps the old content"),
    (f"{PY} -c 'import os; os.rename(\"src\", \"moved\"); print(\"renamed\")' 2>&1 | tail -1 | cut -c1-17", "OSError: [Errno 1", "renamed", "rename(2) of a folder of the workspace (EXDEV); mv copies it"),
]
# fmt: on


def both(bench: Bench, project: Path, script: str, **told: Any) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """Return the answers on a layer and in the workspace itself, and a copy of the workspace with the changes applied."""
    told = {"workspace": str(project), "limits": {"wall": 120.0}, **told}
    before = tree(project)
    layered = bench.run(script, layer=True, **told)
    assert "out" in layered, layered
    assert tree(project) == before
    copy = project.with_name(f"{project.name}-copy")
    shutil.copytree(project, copy, symlinks=True)
    apply(layered, copy)
    return layered, bench.run(script, **told), copy


@pytest.mark.parametrize(("script", "said", "why"), WORK, ids=[row[2] for row in WORK])
def test_work_gives_the_same_on_a_layer(bench: Bench, project: Path, script: str, said: str, why: str) -> None:
    layered, plain, copy = both(bench, project, script)
    assert (layered["status"], layered["out"]) == (plain["status"], plain["out"]), (layered["err"], plain["err"])
    assert layered["status"] == 0, layered["err"]
    assert any(each in layered["out"] for each in said.split("|")), layered["out"]
    shown = {path: mode for path, (mode, _) in tree(copy).items()}
    assert shown == {path: mode for path, (mode, _) in tree(project).items()}


@pytest.mark.parametrize("bench", [user for user in USERS if user == "root"], indirect=True)
@pytest.mark.parametrize(("script", "said", "why"), ROOT_WORK, ids=[row[2] for row in ROOT_WORK])
def test_work_with_tools_of_this_user(bench: Bench, project: Path, script: str, said: str, why: str) -> None:
    if why == "cargo" and not Path("/root/.rustup").exists():
        pytest.skip("the tool is installed for root alone")
    system = [*SYSTEM, str(ROOT / ".venv"), str(BASE), *(["/root/.rustup"] if why == "cargo" else [])]
    layered, plain, _ = both(bench, project, script, system=system)
    assert (layered["status"], layered["out"]) == (plain["status"], plain["out"]), (layered["err"], plain["err"])
    assert said in layered["out"]


@pytest.mark.parametrize(("script", "layered", "plain", "why"), DIFFERENT, ids=[row[3] for row in DIFFERENT])
def test_what_differs_on_a_layer(bench: Bench, project: Path, script: str, layered: str, plain: str, why: str) -> None:
    on_layer, directly, _ = both(bench, project, script)
    assert (on_layer["out"].strip(), directly["out"].strip()) == (layered, plain)


NAMES = ("a", "b", "c")
PLACES = [
    *NAMES,
    *(f"{one}/{two}" for one in NAMES for two in NAMES),
    "src",
    "src/inner",
    "src/inner/text",
    "lib/part.py",
]


# True for two paths of which none lies in the other. A folder that is copied into itself gets whatever its listing says first.
APART = """umask 022
apart() {
  local one two
  one=$(realpath -m "$1")/ two=$(realpath -m "$2")/
  case $one in "$two"*) return 1 ;; esac
  case $two in "$one"*) return 1 ;; esac
}
"""


def program(dice: random.Random) -> str:
    """Return a shell script of file operations with one outcome: none depends on the order of a listing, or on a time, as
    writing into a pipe without a reader does. A step that fails is skipped in the same way everywhere.
    """
    steps = []
    for number in range(25):
        one, two = dice.choice(PLACES), dice.choice(PLACES)
        steps.append(
            dice.choice(
                (
                    f"mkdir -p {one}",
                    f"[ -p {one} ] || echo {number} > {one}",
                    f"[ -p {one} ] || echo {number} >> {one}",
                    f"rm -rf {one}",
                    f"rmdir {one}",
                    f"mv -T {one} {two}",
                    f"apart {one} {two} && cp -rT --remove-destination {one} {two}",
                    f"ln -s {dice.choice(NAMES)} {one}",
                    f"chmod {dice.choice(('700', '750', '755', '711'))} {one}",
                    f"mkfifo {one}",
                    f"truncate -s {number} {one}",
                    f"rm -rf {one}; mkdir {one}",
                )
            )
        )
    return "\n".join(
        f"({step}) </dev/null >/dev/null 2>&1" for step in steps if "mkfifo" not in step or dice.random() < 0.2
    )


@pytest.mark.threat("T301")
@pytest.mark.parametrize("seed", range(25))
def test_random_programs_leave_the_same_tree(bench: Bench, project: Path, seed: int) -> None:
    script = APART + program(random.Random(seed))
    layered, plain, copy = both(bench, project, script)
    assert layered["out"] == plain["out"]
    assert tree(copy) == tree(project), script
