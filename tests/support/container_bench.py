"""A daemon and an image for the container tests, both made here, without a registry or existing images.

As root a daemon of our own is started, with its own folders. Otherwise one that the user may connect to is taken, when there
is one. The image is built from Debian packages, by the machine's own apt sources, and kept for the next run outside of
the repository.
"""

import contextlib
import fcntl
import glob
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.model.frozen import dataclass
from sandbox.backend import SandboxUnavailable
from sandbox.container.daemon import Daemon, find_socket
from tests.support.sandbox_bench import NOBODY, Bench
from tests.support.waiting import until

PACKAGES = ("bash", "coreutils", "curl", "git", "mount", "procps", "python3", "tar", "util-linux")
# An image that everyday work can be done with; go, cargo and java would make it several times as large.
EVERYDAY = (
    *(
        *PACKAGES,
        "bsdutils",
        "ca-certificates",
        "gcc",
        "libc6-dev",
        "locales",
        "make",
        "ncurses-bin",
        "nodejs",
        "patch",
    ),
    *("perl", "python3-venv", "rsync", "sqlite3", "tmux", "tzdata", "unzip", "zip"),
)
KEPT = Path(os.environ.get("XDG_CACHE_HOME") or "/var/tmp") / "ringfence-test-image"
# Settings of an image that no command may see.
CHANGES = [
    "ENV LEAKED=from-the-image",
    "VOLUME /data",
    "HEALTHCHECK CMD touch /tmp/health",
    'ENTRYPOINT ["/bin/false"]',
]
_FLAGS = ("--iptables=false", "--ip6tables=false", "--bridge=none", "--userland-proxy=false", "--group", str(NOBODY))
_NEEDS = ("docker", "requests", "urllib3", "idna", "charset_normalizer", "certifi")


@dataclass(frozen=True, slots=True)
class Dock:
    """A daemon with our image in it. `image` is its ID; `pid` that of the daemon, 0 when it is not ours."""

    socket: str
    image: str
    pid: int

    def ask(self, what: str, *words: Any, **named: Any) -> Any:
        return Daemon(self.socket).ask(lambda client: getattr(client, what)(*words, **named))


@contextlib.contextmanager
def dock(packages: tuple[str, ...] = PACKAGES) -> Iterator[Dock]:
    """Skips where nobody lets us have a daemon; on a machine where we are root it fails instead."""
    if os.geteuid() == 0:
        with _started() as (socket, pid):
            yield Dock(socket, _imported(socket, packages), pid)
        return
    try:
        socket = find_socket("", os.environ)
        image = _imported(socket, packages)
    except SandboxUnavailable as error:
        pytest.skip(f"not root, and no daemon may be used: {error.problem.why}")
    yield Dock(socket, image, 0)


@contextlib.contextmanager
def _started() -> Iterator[tuple[str, int]]:
    missing = [name for name in ("dockerd", "mmdebstrap") if shutil.which(name) is None]
    if missing:
        pytest.fail(f"not found: {', '.join(missing)}; `.ci/system test` installs them")
    # Short: a path of a socket has room for 107 bytes, and the runtime makes some below these folders.
    with tempfile.TemporaryDirectory(prefix="rf-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        for driver in ((), ("--storage-driver=vfs",)):
            process = _dockerd(Path(folder), driver)
            if process is not None:
                break
        else:
            pytest.fail((Path(folder) / "log").read_text(errors="replace")[-2000:])
        try:
            yield f"{folder}/d.sock", process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _dockerd(folder: Path, driver: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
    """Return a daemon that answers; None if it ended instead."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *("dockerd", *_FLAGS, *driver, "-H", f"unix://{folder}/d.sock", "--pidfile", f"{folder}/pid"),
                *("--data-root", str(folder / "data"), "--exec-root", str(folder / "run")),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    if until(lambda: process.poll() is not None or _answers(f"{folder}/d.sock")) and process.poll() is None:
        return process
    return None


def _answers(socket: str) -> bool:
    if not os.path.exists(socket):  # cheaper than a client, and the usual case in the first seconds
        return False
    with contextlib.suppress(SandboxUnavailable):
        Daemon(socket).ask(lambda client: client.ping())
        return True
    return False


def _imported(socket: str, packages: tuple[str, ...]) -> str:
    made, tag = _tarball(packages), "latest" if packages == PACKAGES else "everyday"
    told = Daemon(socket).ask(
        lambda client: client.import_image_from_file(str(made), "ringfence-test", tag, changes=CHANGES)
    )
    number = told.rpartition("sha256:")[2][:64]
    assert len(number) == 64, told
    return f"sha256:{number}"


def _tarball(packages: tuple[str, ...]) -> Path:
    """Return a root file system of a few Debian packages, built once and kept.

    A lock lets one process build it, while the others wait: test workers, and the tests of another checkout.
    """
    os_release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    suite = os_release["VERSION_CODENAME"].strip('"')
    key = hashlib.sha256("\n".join((suite, os.uname().machine, *packages)).encode()).hexdigest()[:16]
    KEPT.mkdir(parents=True, exist_ok=True)
    found = KEPT / f"{key}.tar"
    with found.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            _build(found, suite, packages)
    return found


def _build(found: Path, suite: str, packages: tuple[str, ...]) -> None:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not there, which builds the image")
    sources = [*glob.glob("/etc/apt/sources.list"), *glob.glob("/etc/apt/sources.list.d/*.sources")]
    sources += glob.glob("/etc/apt/sources.list.d/*.list")
    with tempfile.TemporaryDirectory(dir=KEPT) as folder:
        options, made = Path(folder) / "apt.conf", Path(folder) / "root.tar"
        dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True).stdout
        options.write_text("".join(f"{line}\n" for line in dump.splitlines() if "::Proxy" in line))
        argv = ["mmdebstrap", "--variant=essential", f"--include={','.join(packages)}", f"--aptopt={options}"]
        done = subprocess.run([*argv, suite, str(made), *sources], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        made.replace(found)


class Containers(Bench):
    """A bench whose driver connects to a container daemon."""

    lag = 20.0  # the processes are children of the daemon, so that this backend cannot wait for their end

    def __init__(self, user: str, base: Path, given: Dock) -> None:
        super().__init__(user, base, (), "container", None)
        self.dock = given
        if user == "nobody":  # the driver's copy of our code lacks what only this backend needs
            for name in _NEEDS:
                found = importlib.util.find_spec(name)
                assert found is not None
                assert found.origin is not None
                shutil.copytree(
                    Path(found.origin).parent, self.modules / name, ignore=shutil.ignore_patterns("__pycache__")
                )

    def request(self, action: dict[str, Any], **told: Any) -> dict[str, Any]:  # type: ignore[override]  # the same words
        choice = {"image": self.dock.image, "socket": self.dock.socket, **told.pop("choice", {})}
        return super().request(action, container=choice, **told)
