"""The confined process: it confines itself by the plan that it receives, then starts commands and ends their processes.

Started by `helper.py`. Standard library only. Requests are marshalled builtins from the runner, which is trusted;
answers are short texts, because the runner does not trust this process.
"""

import fcntl
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

from sandbox.inside import canary, confine, join_network, mount_check, safe_rmtree, syscalls
from sandbox.inside.plan import Plan
from sandbox.inside.watchdog import WALL, Watchdog, send_signal

# All signals are named, because glibc needs an additional system call for each one that is not.
RESET = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
PROCESSORS = len(os.sched_getaffinity(0))
AWAKE = 0.0005  # seconds of polling after a wake: the runner's scan of a workspace of usual size takes less
TAKEN = 0.0001  # seconds: if sched_yield(2) takes longer, another process needs the processor
ROOM = socket.CMSG_LEN(12)  # bytes for three descriptors
TIOCGPTN, TIOCSPTLCK, TIOCSWINSZ = 0x80045430, 0x40045431, 0x5414  # ioctl_tty(2); the same on x86-64 and arm64
TERM = "xterm-256color"  # the type of a terminal whose environment names none
MEANWHILE = ("stop", "signal")  # requests about the command that runs


class CommandServer:
    """The request loop of a confined helper: one command at a time."""

    def __init__(self, control: socket.socket, plan: Plan) -> None:
        self.control = control
        self.environment = dict(item.split("=", 1) for item in plan.environment)
        if plan.warm:
            os.environ.update(self.environment)  # forked file actions look for ripgrep on the command's PATH
        self.watchdog = Watchdog(plan)
        self.alone = plan.tier != "T3"  # PID 1 of its own namespace
        self.vanishing = plan.vanishing
        self.layered = bool(plan.layers)
        smaller = "disk" if plan.disk and (resource.RLIMIT_FSIZE, plan.disk) in plan.rlimits else "file"
        # The limits of one process, signal(7).
        self.signals = {int(signal.SIGXCPU): "cpu", int(signal.SIGXFSZ): smaller}
        self.poll = select.poll()
        self.poll.register(control, select.POLLIN)

    def prove(self) -> str:
        """Receive the decoys of the canary, attack them, and return the answer: `ready` and the results, or `failed`
        and the error.

        This process attacks them itself: its restrictions are those of its commands, which inherit them. An attempt
        that succeeds may change this process, but the runner then ends it.
        """
        request, _ = receive(self.control)
        if request is None:
            os._exit(0)  # the runner is gone
        if not self.alone:  # there, RLIMIT_NPROC counts all processes of the user: it may leave none for a command
            if (pid := os.fork()) == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        try:
            held = canary.attempt(request)
        except Exception as error:  # the seam of the canary: without its results the runner starts nothing
            return f"failed 0 run the canary: {type(error).__name__}: {str(error)[:200]}".replace("\n", " ")
        return " ".join(("ready", *(f"{name}={result:d}" for name, result in held.items())))

    def serve(self) -> None:
        while True:
            request, handles = receive(self.control)
            if request is None:
                return
            if not request:
                self.stay_awake()
                continue
            try:
                if request["op"] in MEANWHILE:
                    continue  # the command had already ended by itself
                self.answer(request, handles)
            finally:
                for handle in handles:
                    os.close(handle)

    def stay_awake(self) -> None:
        """Poll for the announced request for a moment instead of sleeping."""
        self.watchdog.begin()
        now = time.monotonic()
        until = now + AWAKE
        while not self.poll.poll(0):
            before, now = now, time.monotonic()
            if now >= until or now - before > TAKEN or PROCESSORS == 1:
                self.watchdog.end()  # its first measurement would be too old for the next request
                return
            os.sched_yield()

    def answer(self, request: dict[str, object], handles: list[int]) -> None:
        terminal = -1
        started: int | str
        try:
            if request.get("terminal"):
                terminal = open_terminal(request["terminal"])  # type: ignore[arg-type]  # the wire is untyped
            started = self.start(request, handles, terminal)
        except OSError as error:
            started = f"{error.errno} open a terminal"
        for handle in handles:
            os.close(handle)
        handles.clear()
        try:
            if isinstance(started, str):
                self.say(f"failed {started}")
                return
            if request.get("stays"):  # the runner continues while the command runs
                socket.send_fds(self.control, [b"started\n"], [terminal] if terminal >= 0 else [])
        finally:
            if terminal >= 0:
                os.close(terminal)
        watched = os.pidfd_open(started)
        self.poll.register(watched, select.POLLIN)
        if not self.watchdog.begun:
            self.watchdog.begin()
        try:
            status, ended, used = self.watch(started, watched)
            self.end_leftovers(started)
            ended = ended or self.watchdog.last()
            if self.vanishing:
                safe_rmtree.empty(self.vanishing)
            if self.layered:
                os.chdir("/")  # so that nothing uses the overlay of this command any more
            self.say(f"exit {status} {ended or '-'} {used}")
        finally:  # after the answer, so that the runner need not wait for it
            self.poll.unregister(watched)
            os.close(watched)
            self.watchdog.end()

    def start(self, request: dict[str, object], handles: list[int], terminal: int) -> int | str:
        """Start a program, and return its PID, or `ERRNO step` if it could not be started.

        `terminal` is the controlling side of its pseudo-terminal; -1 for none.
        """
        try:
            if request["op"] == "spawn":
                return self.spawn(request, handles, terminal)
            pid = os.fork()
        except OSError as error:
            return f"{error.errno} {error.filename or ''}"
        if pid == 0:
            self.control.close()
            perform(request, handles[-2])
        return pid

    def spawn(self, request: dict[str, object], handles: list[int], terminal: int) -> int:
        argv: list[str] = request["argv"]  # type: ignore[assignment]  # the wire is untyped
        os.chdir(str(request["cwd"]))
        path = find(argv[0], self.environment.get("PATH", ""))
        # Without a descriptor for standard input, the command inherits this process's /dev/null.
        actions: list[tuple[object, ...]] = [
            (os.POSIX_SPAWN_DUP2, handle, 3 - len(handles) + n) for n, handle in enumerate(handles)
        ]
        variables = {**self.environment, "PWD": str(request["cwd"])}
        if terminal >= 0:
            # A new session that opens a terminal gets it as its controlling terminal (open(2), O_NOCTTY).
            place = f"/dev/pts/{struct.unpack('I', fcntl.ioctl(terminal, TIOCGPTN, bytes(4)))[0]}"
            actions = [(os.POSIX_SPAWN_OPEN, 0, place, os.O_RDWR, 0), *((os.POSIX_SPAWN_DUP2, 0, n) for n in (1, 2))]
            if variables.get("TERM", "dumb") == "dumb":
                variables["TERM"] = TERM
        return os.posix_spawn(path, argv, variables, file_actions=actions, setsid=True, setsigdef=RESET, setsigmask=[])

    def watch(self, pid: int, watched: int) -> tuple[int, str | None, str]:
        """Wait for the command `pid` with the descriptor `watched`. End it on request or when a limit is passed.

        Return its exit status, the limit that ended it (or None), and the resources of it and all processes that it
        waited for: milliseconds of processor time, and KiB of the largest process (wait4(2), getrusage(2)).
        """
        ended: str | None = None
        while True:
            ready = [handle for handle, _ in self.poll.poll(self.watchdog.pause() * 1000)]
            if watched in ready:
                ended_already, status, used = os.wait4(pid, os.WNOHANG)
                if not ended_already:
                    # THREAT T153: a process that traces the command keeps its status from its parent (ptrace(2)).
                    self.signal_all(pid, signal.SIGKILL)
                    _, status, used = os.wait4(pid, 0)
                code = os.waitstatus_to_exitcode(status)
                resources = f"{round((used.ru_utime + used.ru_stime) * 1000)} {used.ru_maxrss}"
                return (code if code >= 0 else 128 - code), ended or self.signals.get(-code), resources
            if ready and ended is None:
                request, _handles = receive(self.control)
                if request is None:
                    os._exit(0)  # the runner is gone; the namespace or the other half of the helper ends the rest
                if request["op"] == "signal":
                    self.signal_all(pid, signal.Signals(int(str(request["number"]))))
                    continue
                ended = str(request["why"])
                if ended == "watch":  # at SIGTERM Git removes its locks; others get only some milliseconds more
                    self.signal_all(pid, signal.SIGTERM)
                    time.sleep(float(str(request["parting"])))
            elif ended is None:
                ended = self.watchdog.excess(lambda number: self.signal_all(pid, number))
                reap_others(pid)
            if ended is not None:
                self.end_leftovers(pid, reap=False)

    def end_leftovers(self, pid: int, *, reap: bool = True) -> None:
        """Kill all processes that a command left behind. For PID 1, -1 means all other processes of the namespace."""
        if reap and nobody_left():
            return
        self.signal_all(pid, signal.SIGKILL)
        certain = self.alone or SCOPED
        while reap:
            try:
                if os.waitpid(-1, WALL | (0 if certain else os.WNOHANG))[0] == 0:
                    return  # a process left the process group; `descendants.py` ends it with the helper
            except ChildProcessError:
                return

    def signal_all(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to all processes of the command `pid`, or, if they cannot be found, to its process group."""
        # SAFETY: outside a PID namespace, -1 is only reached when Landlock scopes our signals to our own children.
        send_signal(-1 if self.alone or SCOPED else -pid, number)

    def say(self, text: str) -> None:
        self.control.sendall(text.encode("ascii", "replace") + b"\n")


def perform(request: dict[str, object], answer: int) -> None:
    """Perform one file action in a forked child, and write the answer to the pipe: JSON, or `!` and the error. Never
    returns.
    """
    status, data = 0, b""
    try:
        import json

        from sandbox.inside.files import operations

        data = json.dumps(operations.perform(request)).encode()
    except BaseException as error:  # the seam of the forked child: whatever happens, it must not run the helper's loop
        data = f"!{type(error).__name__}: {error}".encode("utf-8", "replace")
        status = 70
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(answer, view) :]
    finally:
        os._exit(status)


def open_terminal(size: tuple[int, int]) -> int:
    """Return the controlling side of a new pseudo-terminal with `size` in rows and columns (pty(7)). Raises OSError."""
    handle = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(handle, TIOCSPTLCK, struct.pack("i", 0))
        fcntl.ioctl(handle, TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    except OSError:
        os.close(handle)
        raise
    return handle


def nobody_left() -> bool:
    """Return True if this process has no living descendant. Orphans become its children (prctl(2), wait(2))."""
    try:
        while os.waitpid(-1, os.WNOHANG | WALL)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def reap_others(*waited_for: int) -> None:
    """Reap orphans that ended: a zombie keeps its process number, and numbers are limited (waitid(2)).

    Processes that other code waits for are not reaped, because their status would be lost.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in (0, *waited_for):
            return  # the others are reaped after that process
        os.waitpid(ended.si_pid, 0)


def find(name: str, path: str) -> str:
    """Return the path of a program, searched like execvp on the command's own PATH. Raises FileNotFoundError,
    PermissionError.
    """
    if "/" in name:
        return name
    denied = False
    for folder in path.split(":"):
        candidate = f"{folder}/{name}"
        if folder and os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
        denied = denied or (bool(folder) and os.path.isfile(candidate))
    raise OSError(13 if denied else 2, "", name)


def receive(control: socket.socket) -> tuple[dict[str, object] | None, list[int]]:
    """Return one request: an 8-byte length (with up to three descriptors), then that many bytes. None at the end.

    A request without bytes announces that another one will come at once.
    """
    # THREAT T09: the descriptors are closed on exec, or a command would inherit them in addition to 0, 1 and 2.
    head, parts, _, _ = control.recvmsg(8, ROOM, socket.MSG_CMSG_CLOEXEC)
    handles = [handle for _, _, part in parts for handle in memoryview(part[: len(part) & ~3]).cast("i")]
    while 0 < len(head) < 8:
        more = control.recv(8 - len(head))
        if not more:
            return None, handles
        head += more
    if not head:
        return None, handles
    (size,) = struct.unpack("Q", head)
    if not size:
        return {}, handles  # a wake
    body = bytearray()
    while len(body) < size:
        chunk = control.recv(min(size - len(body), 1 << 20))
        if not chunk:
            return None, handles
        body += chunk
    return marshal.loads(bytes(body)), handles  # noqa: S302  # from the trusted runner


def warm() -> None:
    """Import the modules that forked children need, because the standard library may be invisible after confinement."""
    import json

    from sandbox.inside.files import operations

    operations.warm()
    json.dumps({})


SCOPED = False


def shown_network(plan: Plan) -> list[int]:
    """Return the descriptors of this process's network namespace for the runner; none unless the namespace is new."""
    return join_network.show() if plan.loopback and not plan.joined else []


def prepared(control: socket.socket, values: dict[str, object]) -> tuple[Plan, confine.Base | None]:
    """Build the part of the root that `values` name, and wait for the plan. Return both. The root is None if it does
    not belong to the plan, or could not be built.

    THREAT T297: the runner compares the root with the mounts of the plan; what the plan does not grant is never used.
    """
    confine.follow_parent()
    base = confine.prepare_base(values["prepare"])  # type: ignore[arg-type]  # the wire is untyped
    received, _ = receive(control)
    if received is None:
        os._exit(0)  # the runner needs no helper
    plan = Plan(**received)
    if base is not None and not plan.prepared:
        base.drop()
        base = None
    return plan, base


def confined(
    control: socket.socket,
    plan: Plan,
    mapper: socket.socket | None = None,
    base: confine.Base | None = None,
    other: socket.socket | None = None,
) -> None:
    """Run the rest of the confinement and then the loop, in the process that serves requests. Never returns.

    `mapper` is, for root, the socket to the other half of the helper, which can write the maps of a user namespace.
    `base` is a part of the root that exists already. `other` is, for T1, a socket to the other half for the overlays.
    """
    global SCOPED
    if plan.warm:
        warm()
    shown = shown_network(plan) if plan.tier == "T1" else []
    shares = confine.watch_shares() if mapper is not None else ()
    overlays, switch = list[int](), -1
    confine.follow_parent()
    os.setsid()
    if plan.tier == "T1":
        if plan.loopback and not plan.joined:
            confine.loopback_up()
        if len(plan.layers) > 1:
            from sandbox.inside import layer_switch  # for helpers that serve several commands on layers
        settings, overlays = confine.build_root(plan, base)
        if overlays and other is not None:
            switch = layer_switch.offer(other, confine.layered(plan), overlays)
        syscalls.set_hostname("sandbox")
    elif plan.tier == "T2":
        mount_check.check(plan.expected, plan.real)
        confine.seal_devices()
        confine.bound_numbers(plan)
        os.dup2(0, 2)  # only bubblewrap's errors are read from it
    else:
        syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1, "adopt orphans")
    if plan.tier == "T2":
        shown = shown_network(plan)
    listener = confine.listen(plan.egress) if plan.egress else None
    if plan.tier == "T1":
        if mapper is not None:
            with mapper:
                confine.bound_watches(settings, shares, mapper)
            confine.follow_parent()  # again, because new credentials may clear the setting (prctl(2))
        if settings >= 0:
            os.close(settings)
    if other is not None:
        other.close()
    server = CommandServer(control, plan)
    confine.own_input()
    confine.lock_in(plan, overlays)
    if plan.tier == "T3":
        SCOPED = signals_are_scoped(plan.outside)
    said = server.prove()
    # THREAT T52: a process with the listener could answer commands instead of the proxy. No command inherits it.
    handles = [*([listener.detach()] if listener is not None else ()), *shown]
    if plan.layers:
        handles.append(os.pidfd_open(os.getpid()))  # by it the runner sees that all processes have ended
    if switch >= 0:
        handles.append(switch)  # last
    socket.send_fds(control, [said.encode("ascii", "replace") + b"\n"], handles)
    for handle in handles:
        os.close(handle)
    server.serve()
    os._exit(0)


def wait_for_overlays(other: socket.socket, child: int) -> None:
    """Switch the overlays if `child` has several. Any error ends the helper: it must not run a further command."""
    if not other.recv(1, socket.MSG_PEEK):
        other.close()
        return  # the child has one overlay or none
    try:
        from sandbox.inside import layer_switch

        layer_switch.serve(other, child)
    finally:
        os._exit(1)


def signals_are_scoped(outside: int) -> bool:
    """Return True if a signal to a process outside this Landlock domain fails: a proof, not a version check."""
    try:
        os.kill(outside, 0)
    except PermissionError:
        return True
    return False


def main() -> None:
    os.umask(0o022)
    # PID 1 receives only signals that it handles (pid_namespaces(7)). Python handles SIGINT: a command could end PID 1.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A parent process that ignores the ends of its children passes that on, and the status of a command would be lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control = socket.socket(fileno=int(sys.argv[1]))
    # THREAT T09: a command must not inherit this socket, which carries requests and answers.
    control.set_inheritable(False)
    values, network = receive(control)
    if values is None:
        return
    early = "prepare" in values  # T1: a part of the root is built before the plan comes
    plan = Plan(tier="T1") if early else Plan(**values)
    try:
        if plan.tier == "T3":
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1, "adopt orphans")
        else:
            confine.follow_parent()
        plan.outside = os.getppid()
        if plan.tier == "T2":
            confined(control, plan)  # this is process 1 of bubblewrap's namespaces
        mappers = socket.socketpair() if plan.tier == "T1" and confine.may_map_all() else None
        halves = socket.socketpair() if plan.tier == "T1" else None
        if plan.tier == "T1":
            confine.enter_namespaces(network)
        child, builds, early = os.fork(), early, False
        if child == 0:
            if mappers:
                mappers[0].close()
            base = None
            if halves:
                halves[0].close()
            if builds:
                plan, base = prepared(control, values)
            confined(control, plan, mappers[1] if mappers else None, base, halves[1] if halves else None)
        if halves:
            halves[1].close()
        if mappers:
            mappers[1].close()
            confine.map_ids(mappers[0], child)
    except Exception as error:  # the seam of the helper process: report every error to the runner, then end
        reason = f"0 confine a process: {type(error).__name__}: {error}"
        if isinstance(error, OSError):
            step = getattr(error, "step", f"open {error.filename}" if error.filename else "confine a process")
            reason = f"{error.errno} {step}"
        if early:
            receive(control)  # the runner hears of it when it needs the helper, and then tries another tier
        control.sendall(f"failed {reason}\n".encode("ascii", "replace"))
        os._exit(1)
    if plan.tier == "T3":
        from sandbox.inside.descendants import outlive  # needed by T3 only

        outlive(control, child)
    control.close()
    # This half only waits: it ends when the runner ends, and the child ends with it.
    if halves:
        wait_for_overlays(halves[0], child)
    os.waitpid(child, 0)
    os._exit(0)
