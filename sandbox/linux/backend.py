"""The Linux backend: passes a permit to a confined helper for its terms, and returns the outcome."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.action import ConvertDocument, RunArgv, RunScript
from policy.model.frozen import replace
from policy.model.secret_paths import inside
from policy.model.verdict import Permit, Rights, Terms
from sandbox.backend import (
    DIRECT,
    ChangeLayer,
    Enforcement,
    Level,
    Listener,
    NetworkOptions,
    Outcome,
    Process,
    SandboxUnavailable,
    TerminalSize,
    argv_of,
    file_limits,
    file_outcome,
    file_request,
    helper_failed,
    leaks,
    refuse_layer,
)
from sandbox.inside import syscalls
from sandbox.linux import canary_probe, landlock
from sandbox.linux import cgroup as group_module
from sandbox.linux.cgroup import ControlGroup
from sandbox.linux.helper_handle import GRACE, HelperHandle
from sandbox.linux.helper_pool import NetworkPool
from sandbox.linux.helper_request import PollWait, ended_outcome, not_started
from sandbox.linux.launch import PrelaunchedHelper, known_trees, launch, survey
from sandbox.linux.session_tmp import Scratch
from sandbox.workspace.protected_paths import Scan

if TYPE_CHECKING:
    import asyncio

    from sandbox.egress.credential_injection import Broker, InjectorFactory
    from sandbox.egress.dialer import Resolve
    from sandbox.linux.command_watch import CommandWatch
    from sandbox.linux.helper_layers import HelperLayers
    from sandbox.linux.landlock_log import Feed
    from sandbox.linux.process import LinuxProcess
    from sandbox.linux.process_watch import LateFiles
    from sandbox.workspace.autorun_watch import Live

# The restrictions that T3 cannot enforce, in words, for `agent doctor` and the audit log.
T3_LACKS = (
    "commands can see and watch the names, sizes, attributes and link targets of all files (no private root)",
    "commands can change modes, times and attributes of your files outside (Landlock does not restrict this)",
    "secret files in the workspace are not masked, and its auto-run files and hard links are not read-only",
    "limits of memory and processes apply to each process, not to all processes of a command together",
    "before Linux 6.12, a command can end the processes that watch it; processes that it started then continue",
    "commands share the PID and IPC namespaces (memory, queues) with your processes, and can slow them down",
    "a change of a file of the workspace also changes its second name outside (a hard link)",
)
_T3_OPEN = frozenset({"processes"})  # checks that T3 does not pass
_T3_WITHOUT_GROUP = T3_LACKS[3:5]  # not lacking if a control group enforces all limits
_T3_UNSCOPED = T3_LACKS[4]  # not lacking if Landlock scopes protect the unconfined half of the helper


class Linux:
    """The backend of the tiers T1, T2 and T3.

    T1 uses namespaces, a private root, Landlock and seccomp. T2 is the same with a root that bubblewrap builds. T3 uses
    Landlock and seccomp only, and is labelled as weaker.
    """

    def __init__(
        self,
        tier: str,
        *,
        cache: Path | None = None,
        aside: Path | None = None,
        files: bool = True,
        ahead: PrelaunchedHelper | None = None,
        resolver: "Resolve | None" = None,
        lend: "InjectorFactory | None" = None,
        network: NetworkOptions = DIRECT,
        waits: PollWait | None = None,
    ) -> None:
        self.name = tier
        self.network = network
        self.cache = cache
        self.aside = aside  # folder for auto-run files that commands created
        self.files = files  # True if file actions will be requested; without them a helper starts sooner
        self.ahead = ahead
        self.resolver = resolver  # resolves names for the egress proxy; None: the resolver of this machine
        self.lend = lend  # factory of the credential injector, for terms with credentials
        self.waits = waits  # those of a program without an event loop, which runs one command that only reads
        self.abi = syscalls.landlock_abi()
        self.pool = NetworkPool(self._launch, self._prove, self._still_true, self._covers, timed=waits is None)
        self.feed: Feed | None = None
        self.scratch: Scratch | None = None  # the session's own /tmp, whose files stay between commands
        self.processes: set[LinuxProcess] = set()  # those that run beside the commands
        self._layered = False  # True after a helper with layers was started
        # By the Terms and the folder of the layers.
        self._preparing: dict[tuple[str, str], asyncio.Task[None]] = {}

    # ---- the Backend protocol

    async def probe(self, terms: Terms | None = None) -> Enforcement:
        """Start one helper (for `terms`, or for reading the current folder), and return the result of its canary."""
        terms = terms or Terms(Rights.READ_ONLY, os.path.realpath(os.getcwd()), "/nonexistent", system=("/usr",))
        layer = self.ahead.layer if self.ahead is not None and not self._no_layer(terms) else None
        if layer is not None:
            folder = _folder_of(layer)
            helper = await self.pool.take(terms, lambda terms: self._launch(terms, layer), folder)
            self.pool.give_back(terms, helper, folder)
        else:
            helper = await self.pool.take(terms)
            self.pool.give_back(terms, helper)
        return helper.enforcement

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
        terms = permit.terms
        refuse_layer(layer, self._no_layer(terms))
        if self.processes and terms.write:
            from sandbox.linux.process_watch import end_exposed

            await end_exposed(self.processes, terms.write)
        if layer is None:
            helper = await self.pool.take(terms)
        else:
            helper = await self._take_layered(terms, layer)
        healthy, since = False, time.time()
        halves = self.feed.processes(helper.process.pid) if self.feed is not None else frozenset()
        try:
            watched = terms.rights is Rights.WORKSPACE_WRITE and (layer is None or bool(terms.writable))
            watch = self._watch(permit, helper.scan) if watched else None
            try:
                work = _converse(helper, permit, stdin, listen, watch.live if watch is not None else None)
                outcome = await (work if helper.egress is None else helper.egress.around(work))
                refused = helper.group.refused() if outcome.status else 0
                # After a memory kill the private file systems may still be full, so the helper is not used again.
                healthy = outcome.ended_by != "memory"
            except BaseException:
                helper.kill()  # first, so that the command cannot create files after the scan
                if watch is not None:
                    watch.settle()
                raise
            finally:
                if watch is not None:
                    watch.close()
        finally:
            # A helper that was interrupted in the middle of an answer is not used again.
            if helper.layers is not None:
                assert layer is not None  # such a helper is taken for no other command
                self._leave_layered(terms, layer, helper, helper.layers, healthy=healthy)
            elif healthy:
                self.pool.give_back(terms, helper)
            else:
                self.pool.discard(terms, helper)
        outcome = self._completed(outcome, permit, helper, watch, halves, since, refused)
        if layer is not None and os.geteuid():
            from sandbox.linux.foreign_owners import foreign_report  # root can copy every owner

            outcome = replace(
                outcome, violations=(*outcome.violations, *foreign_report(outcome, terms.workspace, self.cache))
            )
        return outcome

    def _completed(
        self,
        outcome: Outcome,
        permit: Permit,
        helper: HelperHandle,
        watch: "CommandWatch | None",
        halves: frozenset[int],
        since: float,
        refused: int,
    ) -> Outcome:
        """Return the outcome of a command with all its violations.

        Args:
            halves: The process numbers of the helper, for the kernel's log.
            since: The time of the start, in seconds since the epoch.
            refused: The number of processes that the kernel did not start.
        """
        violations, enforcement = outcome.violations, helper.enforcement
        if watch is not None:
            violations, enforcement = watch.completed(violations, enforcement)
        if outcome.status != 0:
            from sandbox.linux.limits import reached  # imported only for failed commands, to save time
            from sandbox.linux.violations import explain

            logged = self.feed.denials(halves, since) if self.feed is not None else ()
            paths = {violation.path for violation in logged}
            guessed = explain(permit, outcome, helper.scan, private=self.name != "T3")
            violations += (*logged, *(guess for guess in guessed if guess.path not in paths))
            violations += reached(outcome, permit.terms.limits, refused, helper.group.held)
        if violations == outcome.violations and outcome.enforcement is enforcement:
            return outcome
        return replace(outcome, violations=violations, enforcement=enforcement)

    async def _take_layered(self, terms: Terms, layer: ChangeLayer) -> HelperHandle:
        """Return a helper whose next command changes `layer`. Raises SandboxUnavailable."""
        from sandbox.linux.launch import unusable

        folder = _mark(layer)
        for preparing in [task for (_, place), task in self._preparing.items() if place == folder]:
            import asyncio

            await asyncio.wait({preparing})
        try:
            helper = await self.pool.take(terms, lambda terms: self._launch(terms, layer), folder)
        except SandboxUnavailable:
            from sandbox.linux.layer_probe import forget

            forget(terms.workspace, self.cache)  # another command runs without a layer if that is the reason
            raise
        assert helper.layers is not None  # `_launch` made them
        try:
            helper.layers.use(layer)
        except OSError as error:
            self.pool.discard(terms, helper, folder)
            raise unusable(error) from None
        return helper

    def _leave_layered(
        self, terms: Terms, layer: ChangeLayer, helper: HelperHandle, layers: "HelperLayers", *, healthy: bool
    ) -> None:
        """Keep a helper whose command has ended for its next layer, or end it. No process uses `layer` afterwards."""
        import asyncio

        folder, alone = _mark(layer), healthy and not layer.shared and layers.alone()
        if healthy and not alone:
            layers.end()
        if healthy:
            layers.settle()
        # A program that runs one command need not wait for the end of its helper, which ends with the backend.
        if alone and (layers.leave() or not layers.several):
            self.pool.give_back(terms, helper, folder)
            asyncio.get_running_loop().call_soon(layers.advance)  # the caller need not wait for the other process
            return
        if healthy:
            asyncio.get_running_loop().call_soon(self.pool.discard, terms, helper, folder)  # the caller need not wait
        else:
            self.pool.discard(terms, helper, folder)
        if layers.lingers:
            os.rename(layer.upper, f"{layer.upper}.in-use")  # THREAT T300: nothing reads it while it may change
        elif healthy and layers.several:
            self.prepare(terms, folder)

    def prepare(self, terms: Terms, folder: str) -> None:
        """Start a helper for later commands on layers made in `folder` in the background. `run` raises what fails."""
        key = (terms.digest, folder)
        if self._no_layer(terms) or key in self._preparing:
            return
        import asyncio

        making = self.pool.keep(terms, lambda terms: self._launch(terms, folder=folder), folder)
        task = self._preparing[key] = asyncio.get_running_loop().create_task(making)

        def done(task: "asyncio.Task[None]") -> None:
            del self._preparing[key]
            _ = task.cancelled() or task.exception()  # marks the exception as read

        task.add_done_callback(done)

    async def layered(self, terms: Terms, folder: str) -> str:
        """Return why a command under `terms` cannot run on a layer made in `folder`; empty if it can."""
        if why := self._no_layer(terms):
            return why
        from sandbox.linux.layer_probe import why_not  # a command that only reads needs none

        return await why_not(terms.workspace, folder, self.cache)

    def _no_layer(self, terms: Terms) -> str:
        """Return why this backend has no layer for `terms`, whatever the machine has; empty if it may have one."""
        if self.name == "T2":
            return "bubblewrap builds the root of the T2 sandbox"
        if self.name == "T3":
            return "the T3 sandbox has no private root"
        # THREAT T299: such a command could put a link in the place of the workspace before its changes are applied.
        if above := [path for path in terms.writable if inside(terms.workspace, path)]:
            return f"the command may change `{above[0]}`, which contains the workspace"
        return "" if terms.rights is Rights.WORKSPACE_WRITE else "the command only reads the workspace"

    async def start(self, permit: Permit, *, listen: Listener, terminal: TerminalSize | None = None) -> Process:
        """Start the permit's command in a helper of its own. Raises SandboxUnavailable; then nothing ran.

        A program that cannot be started is a process that has ended, with the status of a shell (127 or 126).
        """
        from sandbox.linux.process import LinuxProcess  # most sessions start no such process

        if not isinstance(permit, Permit):
            raise TypeError("the sandbox runs Permits and nothing else")
        if not isinstance(permit.action, RunScript | RunArgv):
            raise TypeError("only commands can stay")
        if terminal is not None and self.name == "T3":
            what, why = "the T3 sandbox has no terminal for a command", "it has no private root with its own terminals"
            raise SandboxUnavailable.of(what, why, "run `agent doctor` for what the T1 sandbox needs here")
        helper, since = await self.pool.take_apart(permit.terms), time.time()
        halves = self.feed.processes(helper.process.pid) if self.feed is not None else frozenset()

        def complete(outcome: Outcome) -> Outcome:
            refused = helper.group.refused() if outcome.status else 0
            self.pool.end(helper)  # first, so that nothing can create files after the scan
            return self._completed(outcome, permit, helper, watch, halves, since, refused)

        try:
            watch = self._watch(permit, helper.scan)
            process = LinuxProcess(permit, helper, watch, self._late_files(permit.terms, helper), listen)
            await process.begin(terminal, complete)
        except BaseException:
            self.pool.end(helper)
            raise
        self.processes.add(process)
        process.when_ended(self.processes.discard)
        process.when_ended(lambda _: self.pool.end(helper))  # also after a failure, when `complete` was not called
        return process

    def _watch(self, permit: Permit, protected: Scan) -> "CommandWatch":
        from sandbox.linux.command_watch import CommandWatch  # a command that only reads needs none

        return CommandWatch(permit, protected, self.aside, self.cache, sockets=self.name != "T3")

    def _late_files(self, terms: Terms, helper: HelperHandle) -> "LateFiles | None":
        from sandbox.linux.process_watch import LateFiles

        if self.name == "T3":  # hides no file anyway (`T3_LACKS`)
            return None
        return LateFiles(terms, helper.scan, known_trees(self.cache), lambda: self._survey(terms))

    async def close(self) -> None:
        if self._preparing or self.processes:
            import asyncio

            for preparing in (*self._preparing.values(),):
                preparing.cancel()
                await asyncio.wait({preparing})
            await asyncio.gather(*(process.end() for process in self.processes))
        if self.feed is not None:
            self.feed.close()
            self.feed = None
        later = self.ahead.later if self.ahead is not None else None
        # THREAT T298: a command must not continue when its caller was told that it has ended. In T3 only the end of the
        # helper ends every process; elsewhere the helper has answered after it had killed and reaped them.
        if later is None or self.name == "T3" or any(helper.egress is not None for helper in self.pool.all):
            self._end_helpers()
        else:
            later.callback(self._end_helpers)

    def _end_helpers(self) -> None:
        self.pool.close()
        if self._layered:
            from sandbox.linux.helper_layers import finish_removals

            finish_removals()
        if self.scratch is not None:
            self.scratch.remove()
            self.scratch = None

    # ---- helpers

    def _still_true(self, helper: HelperHandle, terms: Terms) -> bool:
        """Return True if the mounts of `helper` still cover all paths that must be protected. Users edit files while a
        helper is idle.
        """
        if helper.layers is not None and not helper.layers.fits():
            return False
        helper.wake()  # the helper wakes up while the runner scans
        return self._survey(terms, layered=helper.layers is not None) == helper.scan

    def _covers(self, helper: HelperHandle, terms: Terms) -> bool:
        """Return True if no file that must be protected was moved while `helper` made its mounts. T3 makes none."""
        return self.name == "T3" or not helper.scan.lacks(self._survey(terms, layered=helper.layers is not None))

    def _survey(self, terms: Terms, *, layered: bool = False) -> Scan:
        return survey(terms, self.scratch.path if self.scratch else "", self.cache, layered=layered)

    def _launch(self, terms: Terms, layer: ChangeLayer | None = None, folder: str = "") -> HelperHandle:
        """Return the prelaunched helper if it fits these terms and this layer; else launch a new one.

        `folder`: the place of the layers of a helper for later commands; empty for a helper that starts with `layer`.
        """
        if self.feed is None and os.geteuid() == 0:  # only root may read the log
            from sandbox.linux.landlock_log import feed

            self.feed = feed()
        network = None
        fits = self.scratch is None and not self.files
        taken = self.ahead.take(self.name, terms, layer) if self.ahead and fits else None
        if taken is not None:
            launched, self.scratch = taken
        else:
            self.scratch = self.scratch or Scratch()
            network = self.pool.network(terms)
            handles, port = (network.handles, network.free_port()) if network is not None else ((), 0)
            layers = self._layers(terms, layer, folder)
            try:
                launched = launch(
                    self.name,
                    terms,
                    self.scratch,
                    cache=self.cache,
                    files=self.files,
                    network=handles,
                    port=port,
                    layers=layers,
                )
            except BaseException:
                if layers is not None:
                    layers.close()
                raise
        parts = (launched.process, launched.control, launched.group, launched.scan)
        none, grace = Enforcement(Level.NONE, self.name), GRACE if self.name == "T3" else 0.0
        helper = HelperHandle(
            *parts, none, grace=grace, decoys=launched.decoys, layers=launched.layers, waits=self.waits
        )
        if network is not None:
            network.enter(helper, port)
            helper.entered = network
        return helper

    def _layers(self, terms: Terms, layer: ChangeLayer | None, folder: str) -> "HelperLayers | None":
        """Return the layers of a new helper: several for a session, one for a program that runs one command."""
        place = folder if layer is None else _folder_of(layer)
        if not place:
            return None
        self._layered = True
        from sandbox.linux.helper_layers import several_layers
        from sandbox.linux.launch import own_layer, unusable

        if layer is not None and (layer.shared or not self.files):
            return own_layer(layer)
        try:
            return several_layers(terms.workspace, place)
        except OSError as error:
            raise unusable(error) from None

    async def _prove(self, helper: HelperHandle, terms: Terms) -> None:
        """Raise SandboxUnavailable unless the helper has confined itself and its canary failed to escape."""
        verb, _, said = (await helper.ready()).partition(" ")
        if verb != "ready":
            raise helper_failed(self.name, f"{verb} {said}", helper.complaint())
        hosts = () if self.name == "T3" else terms.hosts  # T3 opens no host
        if hosts and not helper.handed:
            raise helper_failed(self.name, "failed 0 pass on a listener for the proxy")
        if hosts:
            helper.open_egress(terms.hosts, self.resolver, broker_for(terms, self.lend), self.network)
        self.pool.note_network(helper, terms)
        checks = canary_probe.judge_canary(said, helper.decoys, self.name, shared=helper.entered is not None)
        if self.name != "T1" or self.ahead is None or self.ahead.later is None:  # else with the helper, later
            helper.drop_decoys()
        helper.enforcement = self._enforced(checks, helper.scan, helper.group)
        if broken := [name for name, held in helper.enforcement.checks if not held]:
            from sandbox.inside.canary import WORDS

            raise leaks(self.name, tuple(WORDS[name] for name in broken))

    def _enforced(self, checks: dict[str, bool], protected: Scan, group: ControlGroup) -> Enforcement:
        closed = _T3_WITHOUT_GROUP if group.held == set(group_module.ALL) else ()
        if landlock.known(self.abi).scoped:
            closed = (*closed, _T3_UNSCOPED)
        missing = tuple(lack for lack in T3_LACKS if lack not in closed) if self.name == "T3" else ()
        missing += tuple(f"Landlock: {words}" for words in landlock.missing(self.abi))
        level = Level.PARTIAL if self.name == "T3" else Level.FULL
        if self.name == "T3":
            checks = {name: held for name, held in checks.items() if name not in _T3_OPEN}
            if protected.masked:
                missing += (f"{len(protected.masked)} secret file(s) of the workspace can be read",)
        return Enforcement(level, self.name, tuple(sorted(checks.items())), missing, group_module.words(group))


def _folder_of(layer: ChangeLayer) -> str:
    """Return the folder of the private state in which a layer was made."""
    return os.path.dirname(os.path.dirname(layer.upper))


def _mark(layer: ChangeLayer) -> str:
    """Return the mark of the helpers for a layer. One for a shared layer serves that layer alone (T317)."""
    return layer.upper if layer.shared else _folder_of(layer)


def broker_for(terms: Terms, lend: "InjectorFactory | None") -> "Broker | None":
    """Return the injector for the credentials of `terms`; None without credentials. Raises SandboxUnavailable."""
    if not terms.credentials:
        return None
    from sandbox.egress.credential_injection import injector_for

    return injector_for(terms.credentials, lend)


async def _converse(
    helper: HelperHandle,
    permit: Permit,
    stdin: bytes | int | None,
    listen: Listener | None,
    alarm: "Live | None" = None,
) -> Outcome:
    """Run one action, from the request to the outcome."""
    action, limits = permit.action, permit.terms.limits
    started = time.monotonic()
    if isinstance(action, RunScript | RunArgv | ConvertDocument):
        request: dict[str, object] = {"op": "spawn", "argv": list(argv_of(action)), "cwd": action.cwd}
    else:
        request, limits = file_request(action), file_limits(limits)
    exchange, ended = await helper.ask(request, stdin, listen, limits.wall, limits.output, alarm)
    seconds = time.monotonic() - started
    line, streams = exchange.line or "", (bytes(exchange.streams[0]), bytes(exchange.streams[1]))
    verb, _, rest = line.partition(" ")
    if verb == "failed":
        return not_started(rest, request, seconds)
    outcome = ended_outcome(line, streams, seconds, ended, helper.group.excess, helper.enforcement)
    if exchange.given:
        outcome = replace(outcome, given=exchange.given)
    if request["op"] == "spawn" or outcome.problem is not None or verb != "exit":
        return outcome
    return replace(file_outcome(outcome.status, streams[0], seconds, outcome.ended_by), used=outcome.used)
