"""The bench of the sandbox tests: a workspace, decoys around it, and a driver process under the right user."""

import atexit
import base64
import contextlib
import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyseccomp
import pytest

from tests.support.places import ROOT

NOBODY = 65534
DRIVER = Path(__file__).with_name("sandbox_driver.py")
USERS = ["root", "nobody"] if os.geteuid() == 0 else ["self"]
SYSTEM = [
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt"),
    *(
        f"/etc/{name}"
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives", "localtime", "ssl")
    ),
]
SECRET = "decoy-4f2a91-do-not-leak"


@functools.cache
def world_readable_python() -> str:
    """An interpreter that the other user may run: ours may live in a home folder that is closed to it."""
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for candidate in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            subprocess.run([candidate, "-c", check], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    pytest.fail("no Python >= 3.11 that uid 65534 may run: `apt-get install python3`")


_CODE = Path("/var/tmp/ringfence-test-code")


@functools.cache
def code_for_others() -> Path:
    """Return a folder with the driver and the code that it imports, which every user may read.

    The project may lie where another user cannot go. All workers of one run of pytest share the folder: the first one
    makes it, with bytecode, and the last one removes it. Each holds a shared lock on it meanwhile.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"process-{os.getpid()}"
    code, lock = Path(f"{_CODE}-{run}"), Path(f"{_CODE}-{run}.lock")
    while True:
        shared = _lock(lock, fcntl.LOCK_SH)  # waits for a worker that is making the folder
        assert shared is not None
        if (code / "complete").exists():
            atexit.register(_leave, code, shared)
            return code
        os.close(shared)
        making = _lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if making is not None:
            _remove_unused()
            _make_code(code)
            os.close(making)


def _make_code(code: Path) -> None:
    shutil.rmtree(code, ignore_errors=True)
    code.mkdir()
    for package in ("policy", "sandbox", "profiles", "runner"):
        shutil.copytree(ROOT / package, code / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(pyseccomp.__file__, code / "pyseccomp.py")
    shutil.copy(DRIVER, code)
    subprocess.run(["chmod", "-R", "a+rX,go-w", code], check=True)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(code)}
    for words in (
        [str(code / DRIVER.name)],  # it ends at once without requests
        ["-c", "import runner.config.credential_table, runner.secrets.broker.session"],  # what it imports late
        ["-m", "compileall", "-q", str(code / "sandbox" / "inside")],  # for the helper
    ):
        subprocess.run(
            [world_readable_python(), *words], env=environment, cwd="/", stdin=subprocess.DEVNULL, check=True
        )
    (code / "complete").touch()


def _lock(path: Path, how: int) -> int | None:
    """Open and lock a file of this user. Return None if the lock is held by others and `how` has LOCK_NB."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            assert os.fstat(lock).st_uid == os.geteuid(), f"{path} belongs to another user"
            fcntl.flock(lock, how)
            if os.path.exists(path) and os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        os.close(lock)  # another process removed the file before this one had the lock


def _leave(code: Path, lock: int) -> None:
    """Give up the shared lock, and remove the folder if no other process uses it."""
    os.close(lock)
    last = _lock(code.with_name(f"{code.name}.lock"), fcntl.LOCK_EX | fcntl.LOCK_NB)
    if last is not None:
        shutil.rmtree(code, ignore_errors=True)
        os.unlink(f"{code}.lock")
        os.close(last)


def _remove_unused() -> None:
    """Remove what runs of pytest left behind that were killed."""
    for path in _CODE.parent.glob(f"{_CODE.name}-*.lock"):
        with contextlib.suppress(OSError, AssertionError):
            _leave(path.with_suffix(""), os.open(path, os.O_RDONLY))


class Bench:
    """One user's view: `run` executes a script or argv under terms, and decoys tell what got out.

    Attributes:
        lag: the most seconds for which `ps` may list a process that was killed.
        modules: further modules for the driver of another user, which tests put there before it imports them.
    """

    lag = 0.0

    def __init__(
        self, user: str, base: Path, wrap: tuple[str, ...], tier: str, python: Callable[[Path], str] | None
    ) -> None:
        self.user = user
        self.tier = tier
        self.base = base
        self.workspace = base / "home" / "project"
        self.home = base / "home"
        self.outside = base / "outside"
        for folder in (self.workspace, self.outside, self.home / ".ssh", base / "cache"):
            folder.mkdir(parents=True)
        (self.home / ".ssh" / "id_rsa").write_text(SECRET)
        (self.outside / "target.txt").write_text("original")
        (self.workspace / "file.txt").write_text("hello\n")
        self.modules = base / "modules"
        own, environment = python(base) if python else "", {"PATH": "/usr/bin:/bin", "LEAK": SECRET}
        driver = DRIVER
        if user == "nobody":
            self.modules.mkdir()
            code = code_for_others()
            driver = code / DRIVER.name
            own, environment["PYTHONPATH"] = own or world_readable_python(), f"{code}:{self.modules}"
            for path in (base, *base.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        else:
            own = own or sys.executable
            environment["PYTHONPATH"] = f"{ROOT}:{Path(pyseccomp.__file__).parent}"
        as_other: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if user == "nobody" else {}
        self._driver = functools.partial(
            subprocess.Popen,
            [*wrap, own, str(driver)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=base,
            **as_other,
        )
        self.process: subprocess.Popen[bytes] = self._driver()
        self.answers: dict[str, dict[str, dict[str, Any]]] = {}  # of `row_of_many`, by test and script

    def own(self, path: Path) -> Path:
        """Give what a test made to the user that the commands run as."""
        if self.user == "nobody":
            for each in (path, *path.rglob("*")) if path.is_dir() and not path.is_symlink() else (path,):
                os.chown(each, NOBODY, NOBODY, follow_symlinks=False)
        return path

    def ask(
        self, action: dict[str, Any], *, tier: str | None = None, stdin: bytes | None = None, **told: Any
    ) -> dict[str, Any]:
        """`tier`: the sandbox for this one, when it is not the bench's own."""
        self._send(self.request(action, tier=tier, stdin=stdin, **told))
        answer = self._answer()
        assert answer is not None, "the driver died"
        return answer

    def request(
        self, action: dict[str, Any], *, tier: str | None = None, stdin: bytes | None = None, **told: Any
    ) -> dict[str, Any]:
        """Return the request that `ask` sends."""
        others = (
            *("cancel", "names", "counted", "container", "lend", "process", "stream", "layer", "layers", "why_not"),
            *("prepared", "swap", "foreseen"),
        )
        extra = {name: told.pop(name) for name in others if name in told}
        terms = {
            "rights": "workspace-write",
            "workspace": str(self.workspace),
            "home": str(self.home),
            "system": SYSTEM,
            "env": {
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(self.home),
                "TMPDIR": "/tmp",
                "LANG": "C.UTF-8",
            },
            **told,
        }
        request = {
            "tier": tier or self.tier,
            "cache": str(self.base / "cache"),
            "action": action,
            "terms": terms,
            **extra,
        }
        if stdin is not None:
            request["stdin"] = base64.b64encode(stdin).decode()
        return request

    def _send(self, *requests: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # there is no answer then
            self.process.stdin.write(b"".join(json.dumps(each).encode() + b"\n" for each in requests))
            self.process.stdin.flush()

    def _answer(self) -> dict[str, Any] | None:
        """Return the next answer, or None if the driver has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def run_many(self, scripts: Sequence[str], **told: Any) -> list[dict[str, Any]]:
        """Run the scripts of a table in one exchange with the driver, one after the other, and return their answers.

        If the driver ends, the answer of the script that it was running is `{"broken": True}`. The others are run again by
        a new driver, each in an exchange of its own.
        """
        cwd = str(told.get("workspace", self.workspace))
        asked = [self.request({"kind": "RunScript", "script": each, "cwd": cwd}, **told) for each in scripts]
        sending = threading.Thread(target=self._send, args=asked)  # neither side waits for the other
        sending.start()
        answers: list[dict[str, Any]] = []
        while len(answers) < len(asked) and (answer := self._answer()) is not None:
            answers.append(answer)
        sending.join()
        while len(answers) < len(asked):
            answers.append({"broken": True})
            self._renew()
            while len(answers) < len(asked):
                self._send(asked[len(answers)])
                if (answer := self._answer()) is None:
                    break
                answers.append(answer)
        return answers

    def _renew(self) -> None:
        """Start another driver in the place of one that has ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process = self._driver()

    def run(self, script: str, **told: Any) -> dict[str, Any]:
        cwd = told.pop("cwd", str(told.get("workspace", self.workspace)))
        return self.ask({"kind": "RunScript", "script": script, "cwd": cwd}, **told)

    def start(self, name: str, script: str, *, terminal: tuple[int, int] | None = None, **told: Any) -> dict[str, Any]:
        """Start a process that stays. `process` asks about it by `name`."""
        return self.run(script, process={"do": "start", "name": name, "terminal": terminal}, **told)

    def process_do(self, name: str, do: str, **told: Any) -> dict[str, Any]:
        """Let the driver do something with a process: write, until, signal, resize, close, wait, end, look, ports."""
        return self.ask({}, process={"do": do, "name": name, **told})

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def row_of_many(request: pytest.FixtureRequest, bench: Bench, **told: Any) -> dict[str, Any]:
    """Return the answer to the parameter `script` of a test.

    All rows of the test that run on this bench share one exchange: `Bench.run_many`. So they may not depend on each other.
    """
    name = request.node.nodeid.partition("[")[0]
    if name not in bench.answers:
        parameters = [
            item.callspec.params
            for item in request.session.items
            if isinstance(item, pytest.Function) and item.nodeid.partition("[")[0] == name
        ]
        mine = request.node.callspec.params["bench"]
        scripts = [each["script"] for each in parameters if each["bench"] == mine]
        bench.answers[name] = dict(zip(scripts, bench.run_many(scripts, **told), strict=True))
    answer = bench.answers[name][request.node.callspec.params["script"]]
    assert "broken" not in answer, "the driver of the sandbox ended during this script"
    return answer


def only_on(*, users: Sequence[str] = USERS, tiers: Sequence[str] = ("T1", "T2")) -> pytest.MarkDecorator:
    """Return the parametrization of a test that is about some of the benches only.

    A test that skipped the others could be lost: of the variants of a row, the rotation chooses one.
    """
    chosen = [f"{user}-{tier}" for user in USERS if user in users for tier in tiers]
    return pytest.mark.parametrize("bench", chosen, indirect=True)


# A machine where namespaces are refused: a user namespace that allows no other, entered without any capability.
NO_NAMESPACES = (
    *("unshare", "--user", "--map-root-user", "sh", "-c"),
    'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --no-new-privs "$@"',
    "sh",
)


def make(
    user: str, wrap: tuple[str, ...] = (), tier: str = "T1", python: Callable[[Path], str] | None = None
) -> Iterator[Bench]:
    """`python`: makes the interpreter that the driver runs under, below the base folder; None: the one that we are."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        bench = Bench(user, base, wrap, tier, python)
        try:
            yield bench
        finally:
            bench.close()
