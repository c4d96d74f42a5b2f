"""The table of everyday work that must succeed in every sandbox, run for real.

`rows()` is the table, `everyday(user)` a place to run its rows in; tests/services/test_everyday_work.py runs them, `make tables` writes down
what came of them. The rights are those that the product itself would give: facts from the disk, the packaged profile, a home
with a Python of pyenv's kind in it that stands first on PATH. In a container they are the same, but programs are the image's.
"""

import contextlib
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.toml.profile import parse_profile
from runner.facts.environment import child_environment
from runner.facts.gather import gather
from tests.support.compat_projects import pyenv, write_projects
from tests.support.container_bench import Containers, Dock
from tests.support.places import ROOT
from tests.support.sandbox_bench import Bench, make

BACKENDS = ("T1", "T2", "T3", "container")  # those that this table is run on; a further one joins here
_PROFILE_FILE = ROOT / "profiles" / "default.toml"
_PROFILE = parse_profile(_PROFILE_FILE.read_text("utf-8"), "profiles/default.toml")
_WALL = 500.0  # seconds, only to end a row that hangs


@dataclass(frozen=True, slots=True)
class Row:
    """`script` must end with 0 and print `out` (None: whatever). `needs`: programs without which it says nothing.

    `told`: rights beyond the usual ones. Every row runs in an empty folder of its own, beside `calc`, `words` and
    `padded` (compat_projects).
    """

    name: str
    script: str
    out: str | None
    needs: tuple[str, ...] = ()
    told: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one row.

    `missing` is the program that the image of a container lacks, or empty. `said` is the end of the output of a
    failure.
    """

    ok: bool
    missing: str = ""
    answer: str = ""
    said: str = ""


_PY = "python3 - <<'PY'\n"
_SERVER = (
    _PY + "import http.server, threading, urllib.request\n"
    "server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
    "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
    "print(urllib.request.urlopen(f'http://localhost:{server.server_port}/').status)\nPY"
)
_WAL = (
    _PY + "import sqlite3, subprocess, sys\na = sqlite3.connect('d.db')\n"
    "print(a.execute('pragma journal_mode=wal').fetchone()[0])\n"
    "a.execute('create table t (x)'); a.execute('insert into t values (7)'); a.commit()\n"
    "code = \"import sqlite3; print(sqlite3.connect('d.db').execute('select x from t').fetchone()[0])\"\n"
    "print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout.strip())\nPY"
)
_UNIX = (
    _PY + "import socket, threading\ns = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen()\n"
    "threading.Thread(target=lambda: s.accept()[0].sendall(b'served')).start()\n"
    "c = socket.socket(socket.AF_UNIX); c.connect('s'); print(c.recv(9).decode())\nPY"
)
_POOL = (
    "cat > pool.py <<'PY'\nimport multiprocessing as m\n\n\ndef twice(n):\n    return 2 * n\n\n\nif __name__ == '__main__':\n"
    "    for kind in ('fork', 'spawn', 'forkserver'):\n        try:\n            with m.get_context(kind).Pool(2) as pool:\n"
    "                print(kind, sum(pool.map(twice, range(4))))\n        except OSError as error:\n            print(kind, 'needs AF_UNIX')\n"
    "    queue, value, lock = m.Queue(), m.Value('i', 3), m.Lock()\n    queue.put(1)\n    print(queue.get() + value.value)\nPY\npython3 pool.py"
)
_PTY = (
    _PY
    + "import os, pty\npid, master = pty.fork()\nif pid == 0:\n    os.execvp('sh', ['sh', '-c', 'tty; stty size; test -t 1 && echo terminal'])\n"
    "text = b''\ntry:\n    while chunk := os.read(master, 999):\n        text += chunk\nexcept OSError:\n    pass\n"
    "print(text.decode().split()[-1], os.waitpid(pid, 0)[1])\nPY"
)
_SHM = (
    _PY
    + "from multiprocessing import shared_memory as s\na = s.SharedMemory(create=True, size=1 << 20)\nb = s.SharedMemory(a.name)\n"
    "a.buf[5] = 42; print(b.buf[5]); b.close(); a.close(); a.unlink()\nPY"
)
_PIP = (
    "python3 -m venv env && env/bin/pip install -q --no-compile --no-index --find-links ../../words/wheels words pytest 2>&1 | grep -v notice;"
    " cp -r ../../words/tests . && env/bin/python -m pytest -q tests | tail -1 | cut -d' ' -f1-2"
)
# Without a home of its own in which the kept folder is shown, it is named where it lies.
_KEPT = "case $kept in ~/.cache/* | */own/workspaces/*/kept/*) echo kept;; esac"
# The pip that a virtual environment would get, without making one: that takes many times as long.
_PIP_CACHE = (
    'pip=$(python3 -c \'import ensurepip, glob, os; inner = os.path.dirname(ensurepip.__file__) + "/_bundled";'
    ' print([*glob.glob(inner + "/pip-*.whl"), *glob.glob("/usr/share/python-wheels/pip-*.whl")][0])\') &&'
    f" kept=$(python3 $pip/pip cache dir) && mkdir -p $kept && touch $kept/x && {_KEPT}"
)
_GIT = (
    "git init -q . && echo a > f && git add f && git commit -qm one && git tag v1 && echo b >> f && git commit -qam two &&"
    " git log --format=%s && git diff --stat HEAD~1 | tail -1 && git stash list && git worktree add -q ../tree v1 &&"
    " git -C ../tree status --short && git worktree remove ../tree && git gc -q && git fsck --no-progress 2>&1 && echo sound"
)
_C_LINK = (
    "echo 'int twice(int n) { return 2 * n; }' > lib.c && printf '#include <stdio.h>\\n#include <pthread.h>\\nint twice(int);\\n"
    'int main(void) { printf("%%d\\\\n", twice(21)); return 0; }\\n\' > main.c && gcc -shared -fPIC -o libtwice.so lib.c &&'
    " gcc -g -O2 -o main main.c -L. -ltwice -Wl,-rpath,. -lpthread && ./main && ar rcs lib.a lib.c && strip main && ./main"
)
_CARGO = (
    "cargo init -q --vcs none --name thing . && cargo build -q --offline && ./target/debug/thing && cargo test -q --offline 2>&1 |"
    " grep -c 'test result: ok'"
)
_GO = (
    "printf 'module m\\n' > go.mod; printf 'package main\\nimport \"fmt\"\\nfunc main() { fmt.Println(6*7) }\\n' > m.go; go build -o m"
    ' && ./m && go vet && test -d "$GOCACHE"'
)
_JAVA = "printf 'class A { public static void main(String[] a) { System.out.println(6 * 7); } }' > A.java && javac A.java && java A"
_TMUX = "tmux -f /dev/null -S sock new-session -d 'echo inside > out' && until [ -s out ]; do sleep 0.1; done; cat out"

# fmt: off
_ROWS = (
    # compilers and builds
    Row("gcc compiles, links and runs",       _C_LINK, "42\n42\n", ("gcc",)),
    Row("make builds, checks and installs",   "make -C ../../calc -j2 -s check install DESTDIR=$PWD/out && out/bin/calc 1 2 +", "passed\n3\n", ("make", "gcc")),
    Row("make in parallel with a jobserver",  "printf 'all: a b c d\\n%%: ; @touch $@\\n' > Makefile && make -s -j4 && ls | wc -l", "6\n", ("make",)),
    Row("cargo build and test, offline",      _CARGO, "Hello, world!\n1\n", ("cargo", "rustc")),
    Row("go build",                           _GO, "42\n", ("go",)),
    Row("javac and java",                     _JAVA, "42\n", ("javac",)),
    # Python
    Row("python from below the home",         "python3 -c 'import sys; print(\"/.pyenv/versions/\" in sys.executable)'", "True\n"),
    Row("python modules with libraries",      "python3 -c 'import ssl, sqlite3, ctypes, zlib, lzma, bz2, hashlib, uuid; ssl.create_default_context(); print(ctypes.CDLL(None).getpid() > 0)'", "True\n"),
    Row("venv, pip install of wheels, pytest", _PIP, "2 passed\n"),
    Row("pip keeps its cache",                _PIP_CACHE, "kept\n"),
    Row("multiprocessing",                    _POOL, None),
    Row("shared memory",                      _SHM, "42\n"),
    Row("threads and asyncio",                "python3 -c 'import asyncio; print(asyncio.run(asyncio.to_thread(lambda: 7)))'", "7\n"),
    Row("sqlite with a write-ahead log",      _WAL, "wal\n7\n"),
    Row("sqlite3",                            "sqlite3 d.db 'create table t(x); insert into t values(1); select count(*) from t'", "1\n", ("sqlite3",)),
    Row("locale, time zone, user name",       "python3 -c 'import locale, getpass, zoneinfo; locale.setlocale(locale.LC_ALL, \"\"); zoneinfo.ZoneInfo(\"UTC\"); print(len(getpass.getuser()) > 0)'", "True\n"),
    # Node
    Row("node",                               "node -e 'require(\"fs\").writeFileSync(\"x\", \"y\"); console.log(require(\"os\").cpus().length > 0)'", "true\n", ("node",)),
    Row("npm ci and npm test",                "cp -r ../../padded/. . && npm ci --no-audit --no-fund >/dev/null && cat built && npm test 2>&1 | grep -cE '^# pass 1|ℹ pass 1|^ +7$'", "yes2\n", ("npm",)),
    Row("npm keeps its cache",                f"kept=$(npm config get cache) && {_KEPT}", "kept\n", ("npm",)),
    # Git
    Row("git init, commit, log, worktree, gc", _GIT, "two\none\n 1 file changed, 1 insertion(+)\nsound\n", ("git",)),
    Row("git clone and push in the workspace", "git init -q a && git -C a commit -q --allow-empty -m m && git clone -q --bare a b.git && git clone -q b.git c && git -C c commit -q --allow-empty -m n && git -C c push -q && git -C b.git log --format=%s", "n\nm\n", ("git",)),
    Row("git apply and patch",                "printf 'a\\n' > f && printf -- '--- a/f\\n+++ b/f\\n@@ -1 +1 @@\\n-a\\n+b\\n' > p && patch -s -p1 < p && cat f && git apply -R p && cat f", "b\na\n", ("git", "patch")),
    # files
    Row("cp -p and cp -a",                    "echo x > a && chmod 640 a && touch -d 2020-01-01 a && cp -p a b && cp -a . ../copied && stat -c '%a %Y' b", "640 1577836800\n"),
    Row("tar",                                "mkdir d && echo x > d/f && ln -s f d/l && tar czf a.tgz d && rm -r d && tar xzf a.tgz && cat d/l && tar cf - d | tar tf - | wc -l", "x\n3\n"),
    Row("zip and unzip",                      "echo x > f && zip -q a.zip f && rm f && unzip -q a.zip && cat f", "x\n", ("zip", "unzip")),
    Row("rsync",                              "mkdir a && echo x > a/f && rsync -a a/ b/ && cat b/f", "x\n", ("rsync",)),
    Row("sed -i",                             "echo one > f && sed -i s/one/two/ f && cat f", "two\n"),
    Row("ln, mv, install, truncate",          "echo x > a && ln a b && mv b c && install -m 755 c d && truncate -s 10 d && stat -c '%h %s' c d", "2 2\n1 10\n"),
    Row("find -exec",                         "touch a b && find . -type f -exec basename {} \\; | sort | tr '\\n' ' '", "a b "),
    Row("xargs -P",                           "seq 8 | xargs -P 4 -n 1 sh -c 'echo $0 > out.$0' && ls | wc -l", "8\n"),
    Row("sort with files in between",         "seq 50000 | sort -S 50K -R | sort -n -S 50K --parallel=2 | tail -1", "50000\n"),
    Row("mktemp",                             "f=$(mktemp) && d=$(mktemp -d) && echo x > $f && test -d $d && cat $f", "x\n"),
    Row("perl and awk",                       "perl -e 'print 6 * 7, qq(\\n)' && awk 'BEGIN { print 6 * 7 }'", "42\n42\n", ("perl", "awk")),
    Row("extended attributes and locks",      "exec 9> lock && flock -n 9 && ! flock -n lock true && echo locked", "locked\n"),
    Row("inotify",                            "(sleep 0.3; touch new) & timeout 400 tail -n0 -F --retry new 2>/dev/null & wait %1; kill %2; echo seen", "seen\n"),
    # processes and devices
    Row("ps",                                 "ps -ef >/dev/null && ps -e -o comm= | grep -cx ps && ps -o pid= -p $$ | wc -l", "1\n1\n", ("ps",)),
    Row("jobs, signals, trap, timeout",       "trap 'echo caught' USR1; kill -USR1 $$; timeout 0.2 sleep 400; echo $?; (sleep 0.1; exit 3) & wait $!; echo $?", "caught\n124\n3\n"),
    Row("nproc, ulimit, uname, id, date",     "nproc >/dev/null && ulimit -n >/dev/null && uname -a >/dev/null && id -un >/dev/null && date >/dev/null && hostname >/dev/null && echo ok", "ok\n"),
    Row("null, zero, urandom, full",          "head -c 8 /dev/urandom | wc -c && head -c 8 /dev/zero | tr -d '\\0' | wc -c && echo x > /dev/null; (echo x > /dev/full) 2>/dev/null || echo full", "8\n0\nfull\n"),
    Row("descriptors by name",                "echo a > /dev/stdout && cat <(echo b) && echo c | cat /dev/fd/0 && diff <(echo d) /dev/stdin <<< d && echo same", "a\nb\nc\nsame\n"),
    Row("here-documents, large",              "x=$(printf 'y%.0s' {1..90000}); cat <<< \"$x\" | wc -c", "90001\n"),
    Row("a terminal of its own",              _PTY, "terminal 0\n"),
    Row("script(1)",                          "script -qec 'test -t 1 && echo terminal' /dev/null | tr -d '\\r'", "terminal\n", ("script",)),
    Row("terminfo",                           "TERM=xterm-256color tput colors && TERM=xterm infocmp >/dev/null && echo known", "256\nknown\n", ("tput", "infocmp")),
    # network of its own
    Row("a server and a client",              _SERVER, "200\n"),
    Row("the name of the loopback",           "python3 -c 'import socket; print(socket.gethostbyname(\"localhost\"))'", "127.0.0.1\n"),
    Row("certificates are there",             "python3 -c 'import ssl; print(ssl.create_default_context().cert_store_stats()[\"x509_ca\"] > 9)'", "True\n"),
    Row("AF_UNIX",                            _UNIX, "served\n"),
    Row("tmux",                               _TMUX, "inside\n", ("tmux",)),
)
# fmt: on


_NO_SOCKETS = "no sockets at all"
_NO_MEMORY = "no `/dev/shm`"
_NO_TERMINALS = "no terminals of its own"
_NO_PROC = "`/proc` is withheld"
# Rows that must fail on a tier, and why; all other rows must succeed.
REFUSED = {
    "T1": {},
    "T2": {},
    "T3": {
        "multiprocessing":                 _NO_MEMORY,
        "shared memory":                   _NO_MEMORY,
        "node":                            f"runs, but sees no processors: {_NO_PROC}",
        "ps":                              _NO_PROC,
        "a terminal of its own":           _NO_TERMINALS,
        "script(1)":                       _NO_TERMINALS,
        "a server and a client":           _NO_SOCKETS,
        "AF_UNIX":                         _NO_SOCKETS,
        "tmux":                            _NO_SOCKETS,
    },
    "container": {
        "python from below the home": "toolchains of the home are not in a container; the image's Python runs",
    },
}  # fmt: skip


def rows() -> tuple[Row, ...]:
    return _ROWS


class Everyday:
    """A bench with the projects and the Python in place, and the rights that the product would give there."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        write_projects(bench.workspace)
        shims = pyenv(bench.home)
        for folder in (bench.workspace, bench.home / ".pyenv"):
            bench.own(folder)
        own = pwd.getpwuid(os.getuid()).pw_dir  # HOME is an empty folder under pytest
        more = [f"{own}/.cargo/bin"] if bench.user != "nobody" else []
        environ = {
            "HOME": str(bench.home),
            "PATH": ":".join([str(shims), *more, "/usr/local/bin:/usr/bin:/bin:/usr/sbin"]),
        }
        if bench.user != "nobody":
            environ["RUSTUP_HOME"] = os.environ.get("RUSTUP_HOME", f"{own}/.rustup")
        environ |= {"LANG": "C.UTF-8", "TERM": "xterm", "RINGFENCE_CACHE_DIR": str(bench.base / "own")}
        self.facts = gather(str(bench.workspace), environ, _PROFILE)
        self.environment = {**dict(child_environment(self.facts, environ, _PROFILE)), **dict(self.facts.caching)}
        (bench.base / "own").mkdir(mode=0o700)
        bench.own(bench.base / "own")

    def lacks(self, row: Row, backend: str) -> str:
        """The first program of a row that is not there."""
        if backend != "container":
            return next((name for name in row.needs if self.facts.which(name) is None), "")
        look = (
            f'for each in {" ".join(row.needs)}; do command -v "$each" >/dev/null || {{ echo "$each"; break; }}; done'
        )
        return str(self._asked(look, self.bench.workspace, backend).get("out", "")).strip()

    def run(self, row: Row, backend: str) -> Result:
        missing = self.lacks(row, backend) if row.needs else ""
        if missing:
            return Result(False, missing)
        folder = self.bench.workspace / "rows" / re.sub(r"\W+", "-", row.name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.bench.own(self.bench.workspace / "rows")
        answer = self._asked(row.script, folder, backend, **dict(row.told))
        good = answer.get("status") == 0 and row.out in (None, answer["out"]) and not answer["violations"]
        told = {name: answer.get(name) for name in ("unavailable", "status", "out", "err", "ended", "violations")}
        lines = (
            f"{answer.get('unavailable') or ''}\n{answer.get('out', '')}\n{answer.get('err', '')}".strip().splitlines()
        )
        return Result(good, "", str(told), "" if good or not lines else lines[-1])

    def _asked(self, script: str, folder: Path, backend: str, **told: Any) -> dict[str, Any]:
        given = rights(self.facts, self.environment, cache=self.facts.cache)
        return self.bench.run(script, cwd=str(folder), tier=backend, **given, **told)


def rights(facts: Facts, environment: dict[str, str], *, cache: str) -> dict[str, Any]:
    """Return the rights that the product would give there, in the form of a bench."""
    return {
        "home": facts.home,
        "system": list(facts.system),
        "hidden": list(_PROFILE.secret_names),
        "shown": list(_PROFILE.public_names),
        "locked": list(_PROFILE.locked),
        "env": environment,
        "cache": cache,
        "unix": True,
        "limits": {"wall": _WALL},
    }


@contextlib.contextmanager
def everyday(user: str, docked: Dock | None = None) -> Iterator[Everyday]:
    """A place for rows, as `user` of sandbox_bench.USERS; with `docked` in its containers too."""
    if docked is None:
        yield from (Everyday(bench) for bench in make(user))
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        bench = Containers(user, base, docked)
        try:
            yield Everyday(bench)
        finally:
            bench.close()
