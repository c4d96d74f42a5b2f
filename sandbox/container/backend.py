"""The container backend: a permit's command runs in a container of its terms, its file actions in a local backend."""

import asyncio
import math
import os
import secrets
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policy.model.action import RunArgv, RunScript
from policy.model.verdict import Permit, Problem, Rights, Terms
from sandbox.backend import (
    DIRECT,
    Backend,
    ChangeLayer,
    ContainerOptions,
    Enforcement,
    Listener,
    NetworkOptions,
    Outcome,
    Process,
    SandboxUnavailable,
    TerminalSize,
    argv_of,
    interrupted_connections,
    leaks,
    refuse_layer,
)
from sandbox.container import canary, create_body, mount_guard, syscalls
from sandbox.container.box_pool import BoxPool
from sandbox.container.container import Box
from sandbox.container.daemon import Daemon, Image, find_image, find_socket, labels, sweep, usual
from sandbox.container.exec_stream import Ended, Running
from sandbox.linux import plan_builder
from sandbox.linux.backend import Linux, broker_for
from sandbox.linux.cgroup_places import MEMORY, PIDS
from sandbox.linux.command_watch import CommandWatch
from sandbox.linux.launch import known_trees, make_points, survey
from sandbox.linux.session_tmp import Scratch
from sandbox.workspace import tool_cache
from sandbox.workspace.protected_paths import Scan

if TYPE_CHECKING:
    from sandbox.container.process import ContainerProcess
    from sandbox.egress.credential_injection import InjectorFactory
    from sandbox.egress.dialer import Resolve
    from sandbox.workspace.autorun_watch import Live

_LONGEST = 1 << 17  # bytes of one word: MAX_ARG_STRLEN, execve(2)
NO_LAYER = "a container mounts the workspace itself, without an overlay"
LOCAL = ("T1", "T2", "T3")  # tiers for file actions, best first

# The restrictions of T1 that a container does not enforce, in words, for `agent doctor` and the audit log.
LACKS = (
    "Landlock is not used: only the mounts restrict where a command can write",
    "the daemon and its runtime are trusted and have the rights of root (unless the daemon is rootless)",
    "programs and libraries come from the image, which is trusted as much as /usr",
    "file systems that are mounted below the workspace or another granted path are not visible",
    "all folders of the image can be read",
    "if the daemon lacks CAP_SYS_RESOURCE, a command can make the kernel end other processes first for lack of memory",
)


class Container:
    """One hardened container for each (session, terms), kept for the next command."""

    def __init__(
        self,
        choice: ContainerOptions,
        *,
        cache: Path | None = None,
        aside: Path | None = None,
        resolver: "Resolve | None" = None,
        lend: "InjectorFactory | None" = None,
        network: NetworkOptions = DIRECT,
    ) -> None:
        self.name = "container"
        self.network = network
        self.resolver = resolver  # resolves names for the egress proxy; None: the resolver of this machine
        self.lend = lend  # factory of the credential injector, for terms with credentials
        self.choice, self.cache, self.aside = choice, cache, aside
        self.pool = BoxPool(self._launch, self._prove, self._still_true, self._covers)
        self.session = secrets.token_hex(8)
        self.daemon: Daemon | None = None
        self.image: Image | None = None
        self.scratch: Scratch | None = None
        self.local: Linux | None = None
        self.processes: set[ContainerProcess] = set()  # those that run beside the commands
        self._later: set[asyncio.Task[None]] = set()
        self._count = 0
        self._opening = asyncio.Lock()

    # ---- the Backend protocol

    async def probe(self, terms: Terms | None = None) -> Enforcement:
        """Create one container (for `terms`, or for reading the current folder), and return its canary's result."""
        terms = terms or Terms(Rights.READ_ONLY, os.path.realpath(os.getcwd()), "/nonexistent")
        await self._open()
        box = await self.pool.take(terms)
        self.pool.give_back(terms, box)
        return box.enforcement

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
        """Execute the permit. Raises SandboxUnavailable if the boundary cannot be built; then nothing ran."""
        if not isinstance(permit, Permit):
            raise TypeError("the sandbox runs Permits and nothing else")
        refuse_layer(layer, NO_LAYER)
        if self.processes and permit.terms.write:
            from sandbox.linux.process_watch import end_exposed

            await end_exposed(self.processes, permit.terms.write)
        if not isinstance(permit.action, RunScript | RunArgv):
            return await (await self._files(permit.terms)).run(permit, stdin=stdin, listen=listen)
        await self._open()
        terms = permit.terms
        box = await self.pool.take(terms)
        watch = CommandWatch(permit, box.scan, self.aside, self.cache)
        box.refused = 0
        running = Running(terms.limits.output, listen, stdin)
        try:
            work = _converse(box, permit, running, watch.live, terms.limits.wall)
            outcome = await (work if box.egress is None else box.egress.around(work))
        except SandboxUnavailable as error:  # an outcome instead of the error, because the command may have started
            connections = interrupted_connections(error)
            outcome = Outcome(125, ended_by="container", problem=error.problem, connections=connections)
        except BaseException:
            watch.settle()
            self.pool.discard(terms, box)
            raise
        finally:
            watch.close()
        self.pool.give_back(terms, box)  # ends the container if it is not usable any more
        return self._completed(outcome, permit, box, watch)

    def _completed(self, outcome: Outcome, permit: Permit, box: Box, watch: CommandWatch) -> Outcome:
        """Return the outcome of a command with all its violations."""
        violations, enforcement = watch.completed(outcome.violations, box.enforcement)
        if outcome.status != 0:
            from sandbox.linux.limits import reached  # imported only for failed commands, to save time
            from sandbox.linux.violations import explain

            limits, held = permit.terms.limits, frozenset({MEMORY, PIDS}) if box.enforcement.limits else frozenset()
            violations = (*violations, *explain(permit, outcome), *reached(outcome, limits, box.refused, held))
        return replace(outcome, violations=violations, enforcement=enforcement)

    async def start(self, permit: Permit, *, listen: Listener, terminal: TerminalSize | None = None) -> Process:
        """Start the permit's command in a container of its own. Raises SandboxUnavailable; then nothing ran.

        A program that cannot be started is a process that has ended, with the status of a shell (127 or 126).
        """
        from sandbox.container.process import ContainerProcess  # most sessions start no such process
        from sandbox.linux.process_watch import LateFiles

        if not isinstance(permit, Permit):
            raise TypeError("the sandbox runs Permits and nothing else")
        if not isinstance(permit.action, RunScript | RunArgv):
            raise TypeError("only commands can stay")
        await self._open()
        box = await self.pool.take_apart(permit.terms)
        box.refused = 0

        def complete(outcome: Outcome) -> Outcome:
            self.pool.end(box)
            return self._completed(outcome, permit, box, watch)

        try:
            watch = CommandWatch(permit, box.scan, self.aside, self.cache)
            late = LateFiles(permit.terms, box.scan, known_trees(self.cache), lambda: self._survey(permit.terms))
            process = ContainerProcess(permit, box, watch, late, listen, terminal)
            await process.begin(lambda running: _converse(box, permit, running, watch.live, math.inf), complete)
        except BaseException:
            self.pool.end(box)
            raise
        self.processes.add(process)
        process.when_ended(self.processes.discard)
        process.when_ended(lambda _: self.pool.end(box))  # also after a failure, when `complete` was not called
        return process

    async def close(self) -> None:
        await asyncio.gather(*(process.end() for process in self.processes))
        self.pool.close()
        while self._later:
            await asyncio.wait(set(self._later))
        if self.daemon is not None:
            self.daemon.close()
        if self.local is not None:
            self.local.scratch = None  # shared with this backend, and removed below
            await self.local.close()
            self.local = None
        if self.scratch is not None:
            self.scratch.remove()
            self.scratch = None

    async def _files(self, terms: Terms) -> Backend:
        """Return the local backend for actions on single files, so that no image needs a Python."""
        first: SandboxUnavailable | None = None
        async with self._opening:  # the engine runs several reading tools at one time
            for tier in LOCAL if self.local is None else ():
                local = Linux(tier, cache=self.cache, aside=self.aside)
                self.scratch = local.scratch = self.scratch or Scratch()  # one /tmp for both
                try:
                    await local.probe(replace(terms, hosts=()))
                    self.local = local
                    break
                except BaseException as error:
                    local.scratch = None
                    await local.close()
                    if not isinstance(error, SandboxUnavailable):
                        raise
                    first = first or error
        if self.local is None:
            assert first is not None
            raise first
        return self.local

    # ---- containers

    async def _open(self) -> None:
        """Find the daemon and the image, once, and remove containers of killed sessions."""
        async with self._opening:
            if self.image is not None:
                return
            if os.uname().machine not in syscalls.MACHINES:
                why = f"there is no list of system calls for {os.uname().machine}"
                raise SandboxUnavailable.of("the container sandbox cannot be built here", why, "use another machine")
            self.daemon = Daemon(find_socket(self.choice.socket, os.environ))
            image = await find_image(self.daemon, self.choice.image)
            await sweep(self.daemon)
            self.image = image

    def _launch(self, terms: Terms) -> Box:
        assert self.daemon is not None
        try:
            status = os.stat(terms.workspace)
        except OSError as error:
            raise SandboxUnavailable.of(
                f"the workspace `{terms.workspace}` is not a folder",
                (error.strerror or "it cannot be examined").lower(),
                "use --cwd FOLDER",
            ) from None
        self._count += 1
        name = f"ringfence-{self.session}-{self._count}"
        # Commands run as the owner of the workspace, so that their files belong to the user and modes hold.
        return Box(self.daemon, name, terms, f"{status.st_uid}:{status.st_gid}", self._do_later)

    async def _prove(self, box: Box, terms: Terms) -> None:
        """Start the container. Raises SandboxUnavailable unless it runs as requested and its canary cannot escape."""
        assert self.daemon is not None
        sockets = (self.daemon.socket, *usual(os.environ))
        plan_builder.refuse_hosts(terms, self.name)
        mount_guard.refuse_daemons(terms, sockets)
        box.network = box.name
        if (neighbour := self.pool.neighbour(terms)) is not None:
            box.network, box.neighbour = neighbour.network, neighbour.name
        body = await asyncio.to_thread(self._body, box, terms)
        await box.start(body)
        if terms.hosts:
            box.open_egress(self.resolver, broker_for(terms, self.lend), self.network)
        assert self.scratch is not None
        checks = await box.prove(self.scratch.path, body, sockets)
        if broken := tuple(canary.WORDS[name] for name, held in checks.items() if not held):
            raise leaks(self.name, broken)
        box.enforcement = replace(box.enforcement, missing=(*box.enforcement.missing, *LACKS))

    def _body(self, box: Box, terms: Terms) -> create_body.CreateBody:
        assert self.image is not None
        assert self.daemon is not None
        self.scratch = self.scratch or Scratch()
        empty = self.scratch.empty()
        place_of_empty = os.path.dirname(empty["file"])
        os.chmod(place_of_empty, 0o755)  # noqa: S103  # the daemon of another user must find the way; both are closed
        box.scan = survey(terms, self.scratch.path, self.cache)
        plan_builder.refuse_impossible(terms, box.scan, plan_builder.kind)
        named = (terms.workspace, *terms.read, *terms.writable, *box.scan.masked, *box.scan.locked, *box.scan.shared)
        if problem := _unspeakable((*named, *(f"{name}={value}" for name, value in terms.env))):
            raise SandboxUnavailable(problem)
        if terms.cache and terms.rights is Rights.WORKSPACE_WRITE:
            tool_cache.ready(terms.cache, terms.workspace)
        place = create_body.ContainerSettings(
            image=self.image.id,
            user=box.user,
            keeper=create_body.keeper(box.user),
            scratch=self.scratch.path,
            empty_file=empty["file"],
            empty_folder=empty["dir"],
            profile=self._profile(terms, place_of_empty),
            runtime=self.choice.runtime,
            labels=labels(self.session, self.scratch.path),
            unset=tuple(sorted({*self.image.variables, "HOSTNAME", "PATH", "HOME"})),
            volumes=self.image.volumes,
            owned=not self.daemon.podman,
            neighbour=box.neighbour,
            hosts=_hosts_file(place_of_empty) if box.neighbour else "",
        )
        steps = plan_builder.mounts(replace(terms, system=()), box.scan, plan_builder.kind, self.scratch.path)
        make_points(self.scratch, terms, steps)
        uid, _, gid = box.user.partition(":")
        if os.geteuid() == 0 and os.stat(self.scratch.path).st_uid != int(uid):
            os.chown(self.scratch.path, int(uid), int(gid))  # only root can run commands as another user
        body = create_body.body(terms, box.scan, place, plan_builder.kind)
        box.disks = create_body.writable(body)
        return body

    def _profile(self, terms: Terms, folder: str) -> str:
        """Return the seccomp profile for the daemon: as JSON, or (Podman) as the path of a file in `folder`, which the
        daemon can read.
        """
        assert self.daemon is not None
        rights = Rights.WORKSPACE_WRITE if terms.hosts else terms.rights  # the proxy is reached over TCP
        unix = terms.unix and terms.rights is Rights.WORKSPACE_WRITE
        trace = terms.rights is Rights.WORKSPACE_WRITE
        text = syscalls.profile(rights, unix=unix, trace=trace, machine=os.uname().machine)
        if not self.daemon.podman:
            return text
        path = Path(folder, f"{rights.value}-{unix}-{trace}.json")
        path.write_text(text, encoding="utf-8")
        return str(path)

    def _still_true(self, box: Box, terms: Terms) -> bool:
        """Return True if the mounts of `box` still cover all paths that must be protected."""
        return self.pool.is_current(box) and self._survey(terms) == box.scan

    def _covers(self, box: Box, terms: Terms) -> bool:
        """Return True if no file that must be protected was moved while the container was made."""
        return not box.scan.lacks(self._survey(terms))

    def _survey(self, terms: Terms) -> Scan:
        return survey(terms, self.scratch.path if self.scratch else "", self.cache)

    def _do_later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)


async def _converse(box: Box, permit: Permit, running: Running, alarm: "Live | None", wall: float) -> Outcome:
    """Run the command and return its outcome."""
    action = permit.action
    assert isinstance(action, RunScript | RunArgv)
    argv = argv_of(action)
    if problem := _unspeakable((*argv, action.cwd)):
        return Outcome(126, stderr=f"{problem.why}\n".encode(), problem=problem)
    started = time.monotonic()
    ended = await box.run(running, argv, action.cwd, wall=wall, alarm=alarm)
    seconds = time.monotonic() - started
    if failure := _start_failure(ended):
        box.refused = 0  # the refused processes were those of the runtime
        missing = any(words in failure for words in ("not found", "no such file or directory"))
        denied = "permission denied" if "denied" in failure else failure.strip()
        reason = "no such file or directory" if missing else denied
        why = f"{reason} (inside the container, where only the image and granted paths exist)"
        fix = "check the name, and that the folder is in the workspace and the program is in the image"
        problem = Problem(f"`{argv[0]}` could not be started", why, fix)
        # The status is that of a shell.
        return Outcome(127 if missing else 126, b"", f"{argv[0]}: {reason}\n".encode(), seconds, problem=problem)
    given = running.wire.copied if running.wire is not None else 0
    return Outcome(ended.status, ended.out, ended.err, seconds, ended.why, ended.why == "output", given=given)


def _hosts_file(folder: str) -> str:
    """Return the path of a file for /etc/hosts in `folder`, which is closed to commands."""
    path = Path(folder, "hosts")
    if not path.exists():
        path.write_text("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n", "ascii")
        path.chmod(0o644)
    return str(path)


def _unspeakable(words: tuple[str, ...]) -> Problem | None:
    """Return the Problem of a command that cannot be sent to the daemon; None if it can.

    The daemon is sent JSON, which has no form for bytes other than UTF-8: the daemon would run another command.
    """
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        why = "it contains bytes that are not UTF-8, which the daemon would change"
        return Problem("the command cannot be given to a container", why, "use names in UTF-8, or use T1")
    if any(len(word.encode()) >= _LONGEST for word in words):
        why = f"one of its words (a script is one word) has {_LONGEST} bytes or more, and the kernel accepts fewer"
        return Problem("the command is too long", why, "write the script to a file of the workspace, and run that file")
    return None


def _start_failure(ended: Ended) -> str:
    """Return the error text of a runtime that could not start the command; empty if the command was started."""
    if ended.failed or ended.status not in (126, 127) or ended.err or b"OCI runtime exec failed" not in ended.out[:200]:
        return ended.failed
    return ended.out.decode("utf-8", "replace")
