"""The bench of the sandbox tests: a workspace, decoys around it, and a driver process under the right user."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
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


class Bench:
    """One user's view: `run` executes a script or argv under terms, and decoys tell what got out.

    Attributes:
        lag: the most seconds for which `ps` may list a process that was killed.
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
        own, environment = python(base) if python else "", {"PATH": "/usr/bin:/bin", "LEAK": SECRET}
        if user == "nobody":
            # The project may lie where the other user cannot go: give it a copy of what the driver needs.
            code = base / "code"
            for package in ("policy", "sandbox", "profiles", "runner"):
                shutil.copytree(ROOT / package, code / package, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(pyseccomp.__file__, code / "pyseccomp.py")
            shutil.copy(DRIVER, code)
            own, environment["PYTHONPATH"] = own or world_readable_python(), str(code)
            for path in (base, *base.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        else:
            own = own or sys.executable
            environment["PYTHONPATH"] = f"{ROOT}:{Path(pyseccomp.__file__).parent}"
        as_other: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if user == "nobody" else {}
        driver = base / "code" / "sandbox_driver.py" if user == "nobody" else DRIVER
        self.process = subprocess.Popen(
            [*wrap, own, str(driver)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd=base,
            **as_other,
        )

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
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the driver died"
        answer: dict[str, Any] = json.loads(line)
        return answer

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
        self.process.wait(timeout=120)


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
