"""One running container for one set of Terms, which runs one command at a time."""

import asyncio
import contextlib
import ctypes
import errno
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policy.model.deadline import deadline
from policy.model.verdict import READ_ONLY_TMP, Rights, Terms
from sandbox.backend import DIRECT, Enforcement, Level, NetworkOptions, SandboxUnavailable, TerminalSize
from sandbox.container import canary, create_body
from sandbox.container.daemon import Daemon, DaemonRefused
from sandbox.container.exec_stream import Ended, Running, Wire, open_wire
from sandbox.container.processes import ContainerUsage, Processes
from sandbox.inside import safe_rmtree
from sandbox.inside.confine import listen
from sandbox.linux.canary_probe import decoys_for
from sandbox.workspace.protected_paths import Scan

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET (setns(2))
LOOKS = 0.2  # seconds between two checks of memory, and of a command that has closed its output
EARLY = 0.05  # seconds until the first check: most commands have ended by then
_GREETING = 64  # bytes of the output of the first process that are read
_DIAL = deadline(5.0)  # seconds until a connection to a port inside counts as failed
_WORDS = 500  # characters of a daemon's error text
DRAIN = deadline(1.0)  # seconds that streams may stay open after all processes that could hold them were killed
GRACE = deadline(0.15)  # seconds for the streams to end after a limit was passed
if TYPE_CHECKING:
    from sandbox.egress.credential_injection import Broker
    from sandbox.egress.dialer import Resolve
    from sandbox.egress.proxy import Egress
    from sandbox.workspace.autorun_watch import Live

# A command with the container's own /dev/null as input. It gets bash's `SHLVL` in addition to its variables.
_OWN_INPUT = ("/bin/bash", "--norc", "--noprofile", "-c", 'exec "$@" < /dev/null', "bash")
_CANARY = ("/bin/bash", "--norc", "--noprofile", "-c", canary.SCRIPT, "canary")


class Box:
    """One container. Call `start` first. `usable` is True while the container can run another command."""

    def __init__(
        self, daemon: Daemon, name: str, terms: Terms, user: str, later: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        """Prepare the container. `later` schedules work in the background that is done before the session ends."""
        self.daemon, self.name, self.terms, self.user = daemon, name, terms, user
        self.network = ""  # name of the container that was the first in the network of this one
        self.neighbour = ""  # name of a container whose network this one joins; empty if it has a network of its own
        self.scan = Scan()
        self.disks: tuple[str, ...] = ()  # folders on a disk that commands may write to, as paths of the host
        self.enforcement = Enforcement(Level.NONE, "container")
        self.egress: Egress | None = None  # the proxy, if the terms name hosts
        self.refused = 0  # processes that the kernel did not start for the last command
        self.environment = dict(terms.env)
        if terms.hosts:
            from sandbox.egress.variables import variables  # only for the few commands that reach a host

            self.environment |= variables(self.environment, terms.hosts)
        self.pid = 0  # number of the first process, from the daemon
        self._later = later
        self._tree: Processes | None = None
        self._keepers = 0  # processes that belong to no command, if processes are visible to the daemon only
        self._wire: Wire | None = None  # its end ends the container
        self._making: asyncio.Future[Any] | None = None
        self._dead = False
        self._removed = asyncio.Event()

    @property
    def usable(self) -> bool:
        return self._tree is not None and not self._dead and (not self._tree.seen or self._tree.alive)

    async def start(self, body: create_body.CreateBody) -> None:
        """Create the container and wait until it runs. Raises SandboxUnavailable; then the caller calls `kill`."""
        try:
            # Shielded from cancellation, because a container can be removed only after its creation is complete.
            self._making = asyncio.ensure_future(
                self.daemon.call(lambda client: client.create_container_from_config(body, name=self.name))
            )
            await asyncio.shield(self._making)
            path = f"/v{self.daemon.version}/containers/{self.name}/attach?stream=1&stdin=1&stdout=1"
            self._wire = await open_wire(self.daemon.socket, path)
            await self.daemon.call(lambda client: client.start(self.name))
            greeting = bytearray()

            def take(_: int, piece: bytes) -> bool:
                greeting.extend(piece[:_GREETING])  # a program of the image writes it, possibly without end
                return b"\n" not in greeting and len(greeting) < _GREETING

            # In Python 3.11 asyncio.wait_for would drop a cancellation that comes together with the result.
            async with asyncio.timeout(30):
                await self._wire.read(take)
            state = await self.daemon.call(lambda client: client.inspect_container(self.name))
        except DaemonRefused as error:
            raise _not_made(str(error)) from None
        except TimeoutError:
            raise _not_made("it did not start within 30 seconds") from None
        if not state["State"]["Running"]:
            raise _not_made("its first process, /bin/bash, ended at once")
        if not greeting.startswith(f"{create_body.READY}\n".encode()):
            raise _not_made("its first process, /bin/bash, is not bash: its first command had no effect")
        self.pid = int(state["State"]["Pid"])
        self._tree = Processes(str(state["Id"]), self.pid)
        if not self._tree.seen:
            self._keepers = len((await self.daemon.call(lambda client: client.top(self.name)))["Processes"])

    def open_egress(
        self, resolver: "Resolve | None", broker: "Broker | None" = None, network: NetworkOptions = DIRECT
    ) -> None:
        """Start the runner's proxy on a listener inside. Without a possible listener, raises
        SandboxUnavailable if a host is allowed.
        """
        from sandbox.egress.dialer import resolve
        from sandbox.egress.proxy import Egress
        from sandbox.egress.variables import PORT

        tree = self._tree
        try:
            if tree is None or not tree.seen:
                raise OSError(0, "the container's processes are not visible here")
            listener = listen_inside(self.pid, PORT)
        except OSError as error:
            if not self.terms.open_hosts:
                return  # no host is allowed, so only the record of refused hosts is missing
            what = f"the container sandbox cannot open the network to {', '.join(self.terms.hosts)}"
            why = f"only root may enter the container's network ({(error.strerror or '').lower()}), and "
            why += "this program never opens the whole network for one host"
            raise SandboxUnavailable.of(what, why, "use T1 for commands that need a host") from None
        self.egress = Egress(listener, self.terms.hosts, resolver or resolve, broker, network)

    async def prove(self, scratch: str, body: create_body.CreateBody, sockets: tuple[str, ...]) -> dict[str, bool]:
        """Run a canary and set `enforcement`. Return each check by name, True if the boundary held. Raises
        SandboxUnavailable."""
        terms = self.terms
        with contextlib.ExitStack() as stack:
            decoys = stack.enter_context(decoys_for(terms, everybody=True))
            same = Path(scratch, decoys.folder)
            same.write_text(decoys.folder, encoding="utf-8")
            same.chmod(0o644)
            stack.callback(same.unlink)
            net = "no" if terms.rights is Rights.READ_ONLY and not terms.hosts else "yes"
            words = (decoys.secret, decoys.target, str(decoys.port), terms.workspace, terms.rights.value)
            argv = (*_CANARY, *words, str(os.getpid()), decoys.abstract, decoys.folder, net, *sockets)
            ended = await self.run(Running(1 << 20, None), argv, "/", wall=20.0)
            text = ended.out.decode("utf-8", "replace")
            if decoys.touched:
                text += "outside 0\n"
        if ended.failed or ended.why or not ended.out:
            raise _not_made(ended.failed or ended.err.decode("utf-8", "replace")[:300] or "the canary printed nothing")
        checks, lost, gaps = canary.judge(text, terms.limits, self.user, body, self.environment)
        level = Level.PARTIAL if lost else Level.FULL
        limits = "" if lost else "the container's cgroup (memory, pids)"
        self.enforcement = Enforcement(level, "container", tuple(sorted(checks.items())), (*lost, *gaps), limits)
        return checks

    async def run(
        self,
        running: Running,
        argv: tuple[str, ...],
        cwd: str,
        *,
        wall: float = math.inf,
        alarm: "Live | None" = None,
    ) -> Ended:
        """Run one command with the streams `running` (which it closes) until it and all its descendants have ended.

        Raises SandboxUnavailable if the daemon does not answer; the command is then killed, as it is on cancel.
        """
        try:
            return await self._run(running, argv, cwd, wall, alarm)
        except DaemonRefused:
            self.kill()
            raise _gone() from None
        except BaseException:
            self.kill()  # SAFETY: no process of an interrupted command continues
            raise
        finally:
            running.close()

    async def _run(
        self,
        running: Running,
        argv: tuple[str, ...],
        cwd: str,
        wall: float,
        alarm: "Live | None",
    ) -> Ended:
        tree = self._tree
        assert tree is not None
        until = time.monotonic() + wall
        usage = ContainerUsage(self.terms.limits, tree, self.disks)
        variables = {**self.environment, "PWD": cwd}
        terminal = running.terminal
        if not running.given and self.user.partition(":")[0] == "0" and argv[: len(_CANARY)] != _CANARY:
            # THREAT T05: without input the runtime uses the machine's /dev/null, whose mode uid 0 could change.
            argv = (*_OWN_INPUT, *argv)
        try:
            options = {"stdin": running.given, "user": self.user, "environment": variables, "workdir": cwd}
            body: dict[str, object] = {"Detach": False, "Tty": terminal is not None}
            if terminal is not None:
                options |= {"tty": True, "detach_keys": _no_detaching()}
                body["ConsoleSize"] = [terminal.rows, terminal.columns]  # ignored before version 1.42 of the API
            made = await self.daemon.call(lambda client: client.exec_create(self.name, list(argv), **options))
            path = f"/v{self.daemon.version}/exec/{made['Id']}/start"
            wire = await open_wire(self.daemon.socket, path, body)
        except DaemonRefused as error:
            if error.status in (404, 409) and not await self._alive():
                raise _gone() from None
            return Ended(126, b"", b"", None, str(error))
        running.number = str(made["Id"])
        running.follow(wire)
        if terminal is not None:
            await self.resize(running.number, terminal)
        running.started.set()
        if alarm is not None:
            running.heed(alarm)
        why = await self._wait(running, tree, usage, until, alarm) or usage.excess()
        late: int | None = None
        if not await self._clear(tree):
            if why is None:  # asked only once, because descendants still run; the daemon may know the status now
                with contextlib.suppress(DaemonRefused, TimeoutError):
                    async with asyncio.timeout(DRAIN):
                        late = _code(await self.daemon.call(lambda client: client.exec_inspect(running.number)))
            self.kill()
        await running.settle(GRACE if why else DRAIN)
        if running.over:  # output that arrived during other checks, or after the end
            why, late = why or "output", None
        if why or self._dead:
            status = 137 if late is None else late
        else:
            status = await self._status(running.number)
            why = "disk" if await usage.filled() else None
        self.refused = tree.refused()
        return Ended(status, bytes(running.streams[0]), bytes(running.streams[1]), why)

    async def _wait(
        self, running: Running, tree: Processes, usage: ContainerUsage, until: float, alarm: "Live | None"
    ) -> str | None:
        """Wait until the main process has ended, and return None, or until a limit is passed, and return its name."""
        pause, watched = EARLY, False
        while not running.done:
            left = until - time.monotonic()
            if left <= 0:
                return "wall"
            await running.wait(min(left, pause))
            if running.over:
                return "output"
            if alarm is not None:
                alarm.tick()
                if alarm.raised:
                    return "watch"
            if running.done:
                break
            if why := usage.excess():
                return why
            if await usage.filled():
                return "disk"
            if not watched:
                report = await self.daemon.call(lambda client: client.exec_inspect(running.number))
                if _code(report) is not None:
                    break  # the command has ended, but its descendants hold its output open
                if tree.seen and report["Pid"]:
                    running.watch(int(report["Pid"]))
                    watched = True
            pause = min(LOOKS, usage.pause)
        # The alarm may have been raised during one of the other checks.
        return "watch" if alarm is not None and alarm.raised else None

    async def _status(self, number: str) -> int:
        """Return the exit status of a command whose streams have ended, which the daemon learns a moment later."""
        for turn in range(200):
            report = await self.daemon.call(lambda client: client.exec_inspect(number))
            if (code := _code(report)) is not None:
                return code
            await asyncio.sleep(min(0.002 * (turn + 1), 0.05))
        raise _gone()

    async def _clear(self, tree: Processes) -> bool:
        """Kill the remaining processes of the command if they are visible here. Return False if some may be left."""
        if tree.seen:
            cleared = await tree.clear()
            if cleared and self.terms.rights is Rights.READ_ONLY and os.geteuid() == 0:
                safe_rmtree.empty(f"/proc/{self.pid}/root{READ_ONLY_TMP}")  # only root can access it from outside
            return cleared
        listing = await self.daemon.call(lambda client: client.top(self.name))
        return len(listing["Processes"]) <= self._keepers

    async def resize(self, number: str, size: TerminalSize) -> None:
        """Change the size of the terminal of the command `number`. After its end this has no effect.

        Raises SandboxUnavailable if the daemon does not answer.
        """
        with contextlib.suppress(DaemonRefused):
            await self.daemon.call(lambda client: client.exec_resize(number, height=size.rows, width=size.columns))

    async def signal(self, number: int) -> None:
        """Send a signal to all processes of commands. Raises SandboxUnavailable if the daemon does not answer."""
        if self._tree is not None and self._tree.seen:
            self._tree.send_all(number)
            return
        # Another command of the same user signals all that it may signal, which is not the process of the container.
        argv = ["/bin/bash", "--norc", "--noprofile", "-c", f"kill -s {number} -- -1"]
        with contextlib.suppress(DaemonRefused):  # the container has ended
            made = await self.daemon.call(lambda client: client.exec_create(self.name, argv, user=self.user))
            await self.daemon.call(lambda client: client.exec_start(made["Id"]))

    def ports(self) -> tuple[int, ...]:
        """Return the TCP ports on which something listens inside, except the proxy; none if that is not visible."""
        if self._tree is None or self._dead or not self._tree.seen:
            return ()
        from sandbox.linux.shared_network import listening_ports  # only where the ports are shown

        ports: set[int] = set()
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):  # without IPv6 there is one table
                ports |= listening_ports(Path(f"/proc/{self.pid}/net/{table}").read_text("ascii"))
        if not self._tree.alive:
            return ()  # the number may belong to another process now
        if self.egress is not None:
            from sandbox.egress.variables import PORT

            ports.discard(PORT)
        return tuple(sorted(ports))

    async def connect(self, port: int) -> socket.socket:
        """Return a connection to `port` of the loopback inside. Raises OSError."""
        tree = self._tree
        if tree is None or self._dead or not tree.seen:
            raise OSError(errno.ENETDOWN, "the container has ended, or its processes are not visible here")
        # The thread is not ended when the caller is cancelled: it closes what it made.
        return await asyncio.shield(asyncio.to_thread(connect_inside, self.pid, port, lambda: tree.alive))

    async def _alive(self) -> bool:
        try:
            state = await self.daemon.call(lambda client: client.inspect_container(self.name))
        except DaemonRefused:
            return False
        return bool(state["State"]["Running"])

    def kill(self) -> None:
        """End the container and all its processes: at once if they are visible here, else through the daemon."""
        if self._dead:
            return
        self._dead = True
        if self._tree is not None:
            self._tree.strike(everything=True)
        if self.egress is not None:
            self.egress.close()
        if self._wire is not None:
            self._wire.close()
        if self._making is not None:
            self._later(self._remove())

    async def cleared(self) -> None:
        """Wait after `kill` until all processes have ended: the visible ones, or else the whole container."""
        if self._tree is not None and self._tree.seen:
            await self._tree.clear()
        elif self._making is not None:
            await self._removed.wait()

    async def _remove(self) -> None:
        try:
            await self._remove_container()
        finally:
            self._removed.set()

    async def _remove_container(self) -> None:
        assert self._making is not None
        await asyncio.wait({self._making})
        self._making.exception()  # `start` has already raised the error
        if self._tree is not None and self._tree.seen:
            await self._tree.clear()
        with contextlib.suppress(DaemonRefused, SandboxUnavailable):  # it is gone, or `sweep` removes it
            await self.daemon.call(lambda client: client.remove_container(self.name, force=True))


def _not_made(why: str) -> SandboxUnavailable:
    usual = "examine the image and the log of the daemon; nothing was run"
    fix = next((better for words, better in _FIXES if words in why.lower()), usual)
    return SandboxUnavailable.of("the container cannot be created", why.strip().rstrip(".")[:_WORDS], fix)


_FIXES = (
    ("unknown runtime", "install that runtime and add it to `runtimes` of daemon.json, or remove `runtime`"),
    ("invalid runtime", "install that runtime and add it to the daemon, or remove `runtime`"),
    ("bind source path does not exist", "use a daemon that sees this machine's files (one from a snap does not)"),
    ("/bin/bash", "use an image that contains /bin/bash, which runs the scripts"),
)


def _code(report: Mapping[str, Any]) -> int | None:
    """Return the exit status from the daemon's report about a command; None while the command runs, or is not yet
    reaped.
    """
    return int(report["ExitCode"]) if not report["Running"] and report["ExitCode"] is not None else None


def _gone() -> SandboxUnavailable:
    return SandboxUnavailable.of(
        "the container is gone", "the daemon ended it, or another program removed it", "try again: a new one is created"
    )


def listen_inside(pid: int, port: int) -> socket.socket:
    """Return a TCP listener on the loopback of process `pid`, which stays in that network. Raises OSError if the
    network cannot be entered (setns(2)).
    """
    return _inside(pid, lambda: listen(port))


def connect_inside(pid: int, port: int, alive: Callable[[], bool]) -> socket.socket:
    """Return a connection to `port` of the loopback of process `pid`. Raises OSError.

    `alive` tells, after the network was opened, that the number belongs to the same process.
    """

    def dial() -> socket.socket:
        try:
            made = socket.create_connection(("127.0.0.1", port), _DIAL)
        except ConnectionRefusedError:
            made = socket.create_connection(("::1", port), _DIAL)
        made.setblocking(False)
        return made

    return _inside(pid, dial, alive)


def _inside(pid: int, work: Callable[[], socket.socket], alive: Callable[[], bool] = lambda: True) -> socket.socket:
    """Return the result of `work` in the network of process `pid`. Raises OSError.

    SAFETY: setns moves only the calling thread, which is started for this purpose and ends here.
    """
    made: list[socket.socket | OSError] = []

    def enter() -> None:
        try:
            with safe_rmtree.closing(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)) as handle:
                if not alive():
                    raise OSError(errno.ENETDOWN, "the container has ended")
                if os.path.samestat(os.fstat(handle), os.stat("/proc/self/ns/net")):
                    raise OSError(0, "the container shares the network of this machine")
                if ctypes.CDLL(None, use_errno=True).setns(handle, _NEW_NETWORK) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            made.append(work())
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=enter, name="inside a container's network")
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def _no_detaching() -> str:
    """Return a sequence of keys that nobody types.

    The daemon would end the streams of a terminal after Ctrl-P and Ctrl-Q (its usual sequence), and holds back a
    Ctrl-P until the next key. The first key of the sequence has the same effect: a NUL, which hardly any program needs.
    """
    return ",".join(("ctrl-@", *(f"ctrl-{secrets.choice('abcdefghijklmnopqrstuvwxyz')}" for _ in range(20))))
