"""A real Secret Service for tests: gnome-keyring-daemon on its own message bus, for any user; and unusual ones."""

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support import forked_agent
from tests.support.forked_agent import AGENT
from tests.support.long_deadlines import FACTOR
from tests.support.sandbox_bench import NOBODY, ROOT, world_readable_python
from tests.support.terminal import Terminal
from tests.support.waiting import until

PASSWORD = "the-password-of-the-keyring"
# A bus that starts nothing by itself, unlike a desktop's, where a message to the Secret Service starts one.
BARE_BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:tmpdir=/tmp</listen><listen>unix:path=RUNTIME/bus</listen>
<listen>unix:abstract=RUNTIME/abstract</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
</busconfig>
"""
LOCK = """
import secretstorage
secretstorage.get_default_collection(secretstorage.dbus_init()).lock()
"""
# Takes the name of the Secret Service and answers as the first argument says.
ODD = """
import sys
from jeepney import HeaderFields, MessageType, new_error, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection
bus = open_dbus_connection("SESSION")
bus.send_and_get_reply(message_bus.RequestName("org.freedesktop.secrets"))
print("ready", flush=True)
while True:
    message = bus.receive()
    if message.header.message_type is not MessageType.method_call or sys.argv[1] == "mute":
        continue
    if sys.argv[1] == "refuse":
        bus.send(new_error(message, "org.freedesktop.DBus.Error.AccessDenied", "s", (sys.argv[2],)))
    else:
        bus.send(new_method_return(message, "s", (sys.argv[2],)))
"""
# Prints a line for each line that it reads, when every process with a connection to the bus is still alive, and the
# service has handled all that came before: `ListNames` no longer has what ended, and messages arrive in order.
REST = """
import os, sys
from jeepney import DBusAddress, MessageType, Properties
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection
bus = open_dbus_connection("SESSION")
service = DBusAddress("/org/freedesktop/secrets", "org.freedesktop.secrets", "org.freedesktop.Secret.Service")
def ended(name):
    reply = bus.send_and_get_reply(message_bus.GetConnectionUnixProcessID(name))
    return reply.header.message_type is MessageType.method_return and not os.path.exists(f"/proc/{reply.body[0]}")
for _ in sys.stdin:
    while any(ended(name) for name in bus.send_and_get_reply(message_bus.ListNames()).body[0] if name.startswith(":")):
        pass
    bus.send_and_get_reply(Properties(service).get("Collections"))
    print("at rest", flush=True)
"""

LONGER = f"from policy.model.deadline import stretch\nstretch({FACTOR})\n"  # all deadlines
IMPATIENT = """
import sys
from runner.secrets import keyring_store
keyring_store.PATIENCE = 0.5
from runner.cli.main import main
sys.exit(main())
"""


class KeyringHarness:
    """A home, and the command `agent` in it as one user. `environ` is all that a command is given.

    With `executed`, each `agent` is started by execve(2), so that /proc shows its own arguments and environment.
    Otherwise `agent` is a fork of a process that has imported the product, which saves time.
    """

    def __init__(self, user: str, base: Path, *, executed: bool = False) -> None:
        self.user, self.base = user, base
        self._run = subprocess.run if executed else forked_agent.run
        self.home, self.work, runtime = base / "home", base / "home" / "work", base / "run"
        for folder in (self.work, runtime):
            folder.mkdir(parents=True)
        runtime.chmod(0o700)
        self.who: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if user == "nobody" else {}
        self.command, path = _command(self.who, base)
        self._observer: subprocess.Popen[Any] | None = None  # runs REST while gnome-keyring-daemon runs
        self._keyring: subprocess.Popen[str] | None = None
        self.environ = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home), "LC_ALL": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(runtime), **path,
        }  # fmt: skip
        if self.who:
            for each in (base, self.home, self.work, runtime):
                os.chown(each, NOBODY, NOBODY)

    def agent(
        self, *words: str, stdin: str | bytes = b"", env: dict[str, str] | None = None, forked: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run the command. With `forked` it is a fork also where the others are executed."""
        run = forked_agent.run if forked else self._run
        self._rest()
        done = run(
            [*self.command, *words], input=stdin.encode() if isinstance(stdin, str) else stdin, capture_output=True,
            env={**self.environ, **(env or {})}, cwd=self.work, **self.who,
        )  # fmt: skip
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def python(self, program: str, *words: str, stdin: str = "") -> str:
        """Return the output of a program that has the libraries of the product, as the same user.

        The program runs in a fork of a process that has imported them, whatever `executed` is: it is no part of the
        product.
        """
        interpreter = self.command[:-1] or [sys.executable]
        self._rest()
        done = forked_agent.run(
            [*interpreter, "-c", program, *words], input=stdin, env=self.environ, cwd=self.work, capture_output=True,
            text=True, **self.who,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def configure(self, text: str) -> Path:
        """The user's configuration."""
        folder = self.home / ".config" / "ringfence"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)
        for each in (folder.parent, folder, folder / "config.toml"):
            self.own(each)
        folder.chmod(0o700)
        return folder / "config.toml"

    def own(self, path: Path) -> Path:
        if self.who:
            os.chown(path, NOBODY, NOBODY)
        return path

    def impatient(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command, which counts a keyring as failed that has not answered within half a second."""
        python = self.command[0] if len(self.command) > 1 else sys.executable
        self._rest()
        done = self._run(
            [python, "-c", IMPATIENT, *words],
            input=b"",
            capture_output=True,
            env=self.environ,
            cwd=self.work,
            **self.who,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def files(self) -> Iterator[Path]:
        """Every file that was left anywhere, except the keyring's own."""
        for path in self.base.rglob("*"):
            if path.is_file() and "keyrings" not in path.parts:
                yield path

    @contextlib.contextmanager
    def secret_service(self, kind: str = "unlocked", said: str = "") -> "Iterator[Service]":
        """`unlocked` and `locked` are gnome-keyring-daemon; `mute`, `refuse` and `garble` answer oddly with `said`;
        `none` is a bus without any. `environ` leads to it meanwhile."""
        config = self.base / "bus.conf"
        config.write_text(BARE_BUS.replace("RUNTIME", self.environ["XDG_RUNTIME_DIR"]))
        bus = subprocess.Popen(
            ["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", "--print-address"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self.environ, cwd="/", **self.who,
        )  # fmt: skip
        assert bus.stdout is not None
        started = [bus]
        try:
            self.environ["DBUS_SESSION_BUS_ADDRESS"] = bus.stdout.readline().strip()
            service = Service(self)
            if kind in ("unlocked", "locked"):
                self._keyring = self._daemon()
                started.append(self._keyring)
                service.wait(started[-1])
                self._observer = self._observed()
                started.append(self._observer)
            elif kind != "none":
                started.append(self._odd(kind, said))
            if kind == "locked":
                service.lock()
            yield service
        finally:
            self._observer = self._keyring = None
            self.environ.pop("DBUS_SESSION_BUS_ADDRESS", None)
            for process in reversed(started):
                process.kill()
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        pipe.close()

    def _rest(self) -> None:
        """Wait until the service knows that the last client is gone.

        gnome-keyring-daemon ends with an assertion when a client comes while another one is being forgotten.
        """
        if self._observer is None or self._keyring is None:
            return
        self._observer.stdin.write("\n")
        assert self._observer.stdout.readline() == "at rest\n"
        assert self._keyring.poll() is None, "gnome-keyring-daemon has ended: " + self._errors.read_text()

    @contextlib.contextmanager
    def unobserved(self) -> "Iterator[subprocess.Popen[str]]":
        """Yield the daemon, which answers nobody meanwhile."""
        observer, self._observer = self._observer, None
        assert self._keyring is not None
        try:
            yield self._keyring
        finally:
            self._observer = observer

    def _observed(self) -> "subprocess.Popen[Any]":
        interpreter = self.command[:-1] or [sys.executable]
        return forked_agent.Process(
            [*interpreter, "-c", REST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env=self.environ, cwd=self.work, **self.who,
        )  # fmt: skip

    @property
    def _errors(self) -> Path:
        return self.base / "gnome-keyring-daemon.log"

    def _daemon(self) -> "subprocess.Popen[str]":
        with self._errors.open("w") as errors:
            process = subprocess.Popen(
                ["gnome-keyring-daemon", "--foreground", "--unlock", "--components=secrets"],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, text=True,
                env=self.environ, cwd="/", **self.who,
            )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(PASSWORD)
        process.stdin.close()
        return process

    def _odd(self, kind: str, said: str) -> "subprocess.Popen[str]":
        python = self.command[0] if len(self.command) > 1 else sys.executable
        process = subprocess.Popen(
            [python, "-c", ODD, kind, said],
            stdout=subprocess.PIPE, text=True, env=self.environ, cwd="/", **self.who,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


class Service:
    """The one that runs."""

    def __init__(self, harness: KeyringHarness) -> None:
        self._desk = harness

    def wait(self, daemon: "subprocess.Popen[str]") -> None:
        """Wait until the daemon answers and its collection is unlocked."""
        ask = (
            "import secretstorage\nbus = secretstorage.dbus_init()\n"
            "from jeepney.bus_messages import message_bus\n"
            "print(bus.send_and_get_reply(message_bus.NameHasOwner('org.freedesktop.secrets')).body[0]"
            " and not secretstorage.get_default_collection(bus).is_locked())"
        )
        until(lambda: self._desk.python(ask).strip() == "True", of=daemon, what="the start of gnome-keyring-daemon")

    def lock(self) -> None:
        self._desk.python(LOCK)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        with self._desk.unobserved() as daemon:
            daemon.send_signal(signal.SIGSTOP)
            try:
                yield
            finally:
                daemon.send_signal(signal.SIGCONT)

    def item(self, name: str, value: bytes, program: str = "Python keyring library") -> None:
        """Put anything there, past the product, as another `program` does."""
        self._desk.python(
            "import secretstorage, sys\n"
            "kept = secretstorage.get_default_collection(secretstorage.dbus_init())\n"
            "attributes = {'service': 'ringfence', 'username': sys.argv[1], 'application': sys.argv[2]}\n"
            "kept.create_item('x', attributes, bytes.fromhex(sys.stdin.read()), replace=True)",
            name, program, stdin=value.hex(),
        )  # fmt: skip


@contextlib.contextmanager
def harness(user: str, *, executed: bool = False) -> Iterator[KeyringHarness]:
    with tempfile.TemporaryDirectory(prefix="keyring-", dir="/var/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        yield KeyringHarness(user, base, executed=executed)


@contextlib.contextmanager
def terminal(harness: KeyringHarness, *words: str, command: Sequence[str] | None = None) -> Iterator[Terminal]:
    """With `agent` in it, or with `command`."""
    made = Terminal(
        [*(command or harness.command), *words],
        harness.work,
        {**harness.environ, "TERM": "xterm"},
        other=bool(harness.who),
        execve=True,
    )
    try:
        yield made
    finally:
        made.close()


def _command(who: dict[str, Any], base: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command line of `agent` for that user and its variables.

    A user who cannot read the folder of the installation gets a copy of it.
    """
    if not who or _can_run_agent(json.dumps(who)):
        return [AGENT], {}
    import keyring

    code = base / "code"
    skip = shutil.ignore_patterns("__pycache__", "anthropic", "openai", "mypy*", "ruff*", "hypothesis*", "pip*")
    shutil.copytree(Path(keyring.__file__).parent.parent, code, ignore=skip)
    for package in ("policy", "sandbox", "profiles", "tools", "runner"):
        shutil.copytree(
            ROOT / package, code / package, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
        )
    (code / "agent.py").write_text(LONGER + "import sys\nfrom runner.cli.main import main\nsys.exit(main())\n")
    return [world_readable_python(), str(code / "agent.py")], {"PYTHONPATH": str(code)}


@functools.cache
def _can_run_agent(who: str) -> bool:
    """Return True if the user, given as JSON, may run the installed `agent`."""
    try:
        done = subprocess.run([AGENT, "--version"], capture_output=True, cwd="/", env={}, **json.loads(who))
    except OSError:
        return False
    return done.returncode == 0
