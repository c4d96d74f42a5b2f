"""The macOS backend: each command under /usr/bin/sandbox-exec with a profile that is written for its Terms."""

import asyncio
import contextlib
import json
import marshal
import os
import signal
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from policy.model.action import ConvertDocument, RunArgv, RunScript
from policy.model.deadline import deadline
from policy.model.verdict import Limits, Permit, Rights, Terms
from sandbox.backend import (
    DIRECT,
    ChangeLayer,
    Enforcement,
    InterruptedCommand,
    Level,
    Listener,
    NetworkOptions,
    Outcome,
    OutputBuffer,
    Process,
    SandboxUnavailable,
    TerminalSize,
    argv_of,
    file_limits,
    file_outcome,
    file_request,
    leaks,
    refuse_layer,
)
from sandbox.egress.proxy import Egress
from sandbox.egress.variables import variables
from sandbox.inside import canary
from sandbox.linux.helper_process import import_folder, starting_process
from sandbox.linux.input_stream import InputStream
from sandbox.linux.launch import in_scratch, survey
from sandbox.linux.session_tmp import Scratch
from sandbox.macos.sbpl import profile_for
from sandbox.workspace.autorun import Watch
from sandbox.workspace.protected_paths import Scan

NO_LAYER = "macOS has no overlay file system"
_PROGRAM = "/usr/bin/sandbox-exec"
_TICK = 0.01  # seconds between two looks at whether a command has ended
_DRAIN = deadline(1.0)  # seconds that streams may stay open after the process group was killed
_MOST = 600_000  # bytes of profile and parameters: a command line holds a megabyte (sysctl kern.argmax)
_TRIES = r"""secret=$0 target=$1 port=$2 pid=$3
try() { if ( eval "$2" ) >/dev/null 2>&1; then echo "$1 0"; else echo "$1 1"; fi; }
try hidden 'cat "$secret"'
try outside 'echo got out > "$target"'
try processes 'kill -0 $pid'
try network 'exec 3<>/dev/tcp/127.0.0.1/$port'
try workspace 'echo got in > .ringfence-canary && rm .ringfence-canary'
"""
# The restrictions that seatbelt cannot enforce, in words, for `agent doctor` and the audit log.
LACKS = (
    "other programs of this machine can use the egress proxy while a command with allowed hosts runs",
    "commands share the loopback of the machine: they may listen on localhost, but not connect to it",
    "commands can see the other processes of your user, but not signal them",
    "processes that a command moved to another process group continue after the command",
    "memory and processes are not limited; CPU time, file size and open files are limited for each process",
    "a secret file that appears in the workspace while a command runs is not masked",
    "hard links and clones of files cannot be made",
)


class _ConfinedProcess(OutputBuffer):
    """One confined process and its output, up to `most` bytes of both streams together."""

    def __init__(self, process: asyncio.subprocess.Process, most: int, listen: Listener | None) -> None:
        super().__init__(most, listen)
        self.process = process

    async def whole(self, stdin: bytes | int | None) -> None:
        """Wait until the process has ended, and up to one second longer for descendants that hold its streams open."""
        taking = asyncio.gather(
            self._take(self.process.stdout, 1), self._take(self.process.stderr, 2), self._feed(stdin)
        )
        try:
            # Before Python 3.12 `wait` also waits for every process that holds the streams open.
            while self.process.returncode is None:  # noqa: ASYNC110  # asyncio has no event for it
                await asyncio.sleep(_TICK)
            self.end()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN):
                    await taking
        finally:
            taking.cancel()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # no process is left, or only zombies
            os.killpg(self.process.pid, signal.SIGKILL)

    async def _take(self, reader: asyncio.StreamReader | None, stream: int) -> None:
        while reader is not None and (chunk := await reader.read(1 << 16)):
            if not self.take(stream, chunk):
                self.end()

    async def _feed(self, stdin: bytes | int | None) -> None:
        if self.process.stdin is not None:
            assert not isinstance(stdin, int)  # `InputStream` copies from a descriptor
            with contextlib.suppress(ConnectionError):  # a command need not read all of its input
                self.process.stdin.write(stdin or b"")
                await self.process.stdin.drain()
            self.process.stdin.close()


class Seatbelt:
    """The backend for macOS. A kernel profile restricts paths, services and network. The level is PARTIAL (LACKS)."""

    name = "seatbelt"

    def __init__(self, *, aside: Path | None = None, program: str = _PROGRAM, network: NetworkOptions = DIRECT) -> None:
        self.aside, self.program, self.network = aside, program, network
        self.scratch: Scratch | None = None
        self.enforcement: Enforcement | None = None

    async def probe(self, terms: Terms | None = None) -> Enforcement:
        """Try to escape from a real sandbox. Raises SandboxUnavailable if it cannot be built or does not hold."""
        if sys.platform != "darwin" or not os.access(self.program, os.X_OK):
            why = "seatbelt is a part of macOS" if sys.platform != "darwin" else f"`{self.program}` is missing"
            fix = "leave --backend out to get the best one"
            raise SandboxUnavailable.of("the seatbelt sandbox is not on this machine", why, fix)
        terms = terms or Terms(Rights.READ_ONLY, os.path.realpath(os.getcwd()), "/nonexistent")
        checks = await self._canary(replace(terms, rights=Rights.READ_ONLY, hosts=(), limits=Limits(wall=10.0)))
        if broken := tuple(canary.WORDS[name] for name, held in checks.items() if not held):
            raise leaks(self.name, broken)
        self.enforcement = Enforcement(Level.PARTIAL, self.name, tuple(sorted(checks.items())), LACKS)
        return self.enforcement

    def prepare(self, terms: Terms, folder: str) -> None:
        pass  # there are no layers

    async def layered(self, terms: Terms, folder: str) -> str:
        return NO_LAYER

    async def run(
        self,
        permit: Permit,
        *,
        stdin: bytes | int | None = None,
        listen: Listener | None = None,
        layer: ChangeLayer | None = None,
    ) -> Outcome:
        """Execute the permit. Raises SandboxUnavailable if the Terms cannot be granted exactly; then nothing ran."""
        if not isinstance(permit, Permit):
            raise TypeError("the sandbox runs Permits and nothing else")
        refuse_layer(layer, NO_LAYER)
        enforcement = self.enforcement or await self.probe()
        action, terms = permit.action, permit.terms
        if isinstance(action, RunScript | RunArgv | ConvertDocument):
            done = await self._confined(terms, argv_of(action), action.cwd, stdin, listen)
            return replace(done, enforcement=enforcement)
        request = marshal.dumps(file_request(action))
        asked = replace(terms, limits=file_limits(terms.limits))
        top = import_folder()
        perform = (sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "child.py"), "perform", top)
        package = os.path.join(top, __name__.partition(".")[0])
        code = tuple({os.path.realpath(path) for path in (sys.base_prefix, sys.prefix, package)})
        done = await self._confined(asked, perform, terms.workspace, request, None, *code)
        answer = file_outcome(done.status, done.stdout, done.seconds, done.ended_by)
        return replace(answer, violations=done.violations, enforcement=enforcement)

    async def start(self, permit: Permit, *, listen: Listener, terminal: TerminalSize | None = None) -> Process:
        """Raise SandboxUnavailable: nothing on macOS ends a process with certainty when this program is killed."""
        what, why = "the seatbelt sandbox keeps no process running", "macOS would not end it if this program was killed"
        raise SandboxUnavailable.of(
            what, why, "run it in one command with the commands that need it, or in a container"
        )

    async def close(self) -> None:
        if self.scratch is not None:
            self.scratch.remove()
            self.scratch = None

    def command(
        self, terms: Terms, protected: Scan, argv: tuple[str, ...], code: tuple[str, ...] = (), proxy: int | None = None
    ) -> tuple[str, ...]:
        """Return the whole command line: limits first, then sandbox-exec, then `argv`. Raises SandboxUnavailable."""
        self.scratch = self.scratch or Scratch()
        written = profile_for(terms, protected, scratch=self.scratch.path, code=code, proxy=proxy)
        size = len(written.text) + sum(len(name) + len(path) + 16 for name, path in written.parameters)
        crowded = protected.crowded and terms.rights is Rights.WORKSPACE_WRITE
        if protected.truncated or crowded or size > _MOST:
            what = "the workspace contains too many secret, auto-run or hard-linked files to protect one by one"
            why = "protecting only some of them would leave a gap"
            raise SandboxUnavailable.of(what, why, "use --cwd with a smaller folder")
        limits = terms.limits
        bounds = {"RLIMIT_CORE": 0, "RLIMIT_CPU": limits.cpu, "RLIMIT_FSIZE": limits.largest}
        bounds["RLIMIT_NOFILE"] = limits.open_files
        environment = dict(in_scratch(terms, self.scratch.path).env)
        if proxy is not None:
            environment |= variables(environment, terms.hosts, proxy)
        start = (sys.executable, "-I", "-S", os.path.join(os.path.dirname(__file__), "child.py"), "start")
        parameters = tuple(part for name, path in written.parameters for part in ("-D", f"{name}={path}"))
        confined = (self.program, "-p", written.text, *parameters, *argv)
        return (*start, json.dumps(bounds), json.dumps(environment), *confined)

    async def _confined(
        self,
        terms: Terms,
        argv: tuple[str, ...],
        cwd: str,
        stdin: bytes | int | None,
        listen: Listener | None,
        *own: str,
    ) -> Outcome:
        if terms.credentials:
            from sandbox.egress.credential_injection import injector_for

            # Always raises: every program of this machine can use the proxy's port, and so the credential.
            injector_for(terms.credentials, None)
        protected = survey(terms, self.scratch.path if self.scratch else "")
        watch, started = Watch(terms, protected, self.aside), time.monotonic()
        # Terms without hosts get no proxy. With a proxy, its port is the only one that the profile allows.
        listener = socket.create_server(("127.0.0.1", 0)) if terms.hosts else None
        egress = Egress(listener, terms.hosts, network=self.network) if listener else None
        streaming: InputStream | None = None
        try:
            line = self.command(terms, protected, argv, own, listener.getsockname()[1] if listener else None)
            source = asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE
            if isinstance(stdin, int):
                source, target = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
                streaming = InputStream(stdin, target)
            try:
                with starting_process():
                    process = await asyncio.create_subprocess_exec(
                        *line,
                        cwd=cwd,
                        env={},
                        start_new_session=True,  # no controlling terminal, and one process group to end
                        stdin=source,
                        stdout=asyncio.subprocess.PIPE,
                        stderr=asyncio.subprocess.PIPE,
                    )
            finally:
                if streaming is not None:
                    os.close(source)
            confined, ended = _ConfinedProcess(process, terms.limits.output, listen), None
            try:
                if egress is not None:
                    egress.begin()
                async with asyncio.timeout(terms.limits.wall):
                    await confined.whole(stdin)
            except TimeoutError:
                ended = "wall"
            except asyncio.CancelledError as error:
                connections = (await egress.end())[0] if egress is not None else ()
                raise error from InterruptedCommand(connections, error.__cause__)
            finally:
                confined.end()
                violations = watch.settle()
            connections, refused = await egress.end() if egress is not None else ((), ())
        finally:
            if streaming is not None:
                streaming.close()
            if egress is not None:
                egress.close()
        code, seconds, (out, err) = await process.wait(), time.monotonic() - started, confined.streams
        status, ended = code if code >= 0 else 128 - code, "output" if confined.over else ended
        every = (*violations, *refused)
        given = streaming.copied if streaming is not None else 0
        return Outcome(status, bytes(out), bytes(err), seconds, ended, confined.over, every, connections, given=given)

    async def _canary(self, terms: Terms) -> dict[str, bool]:
        """Create decoys, let a confined shell attack them, and check them from outside. Return the result per check."""
        with tempfile.TemporaryDirectory(prefix="ringfence-canary-") as folder, socket.socket() as listener:
            secret, target = os.path.join(os.path.realpath(folder), "secret"), os.path.join(folder, "target")
            for path in (secret, target):
                Path(path).write_text("untouched", encoding="utf-8")
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            argv = ("/bin/bash", "-c", _TRIES, secret, target, str(listener.getsockname()[1]), str(os.getpid()))
            done = await self._confined(terms, argv, terms.workspace, None, None)
            untouched = Path(target).read_text(encoding="utf-8") == "untouched"
        lines = (line.partition(" ") for line in done.stdout.decode("utf-8", "replace").splitlines())
        checks = {name: held == "1" for name, _, held in lines}
        if len(checks) != _TRIES.count("\ntry "):
            reason = done.stderr.decode("utf-8", "replace").strip()[:200] or "the canary ended without output"
            raise SandboxUnavailable.of(
                "the seatbelt sandbox cannot be built here",
                reason,
                "report this as a bug, with this text; nothing was run",
            )
        return {**checks, "outside": checks["outside"] and untouched}
