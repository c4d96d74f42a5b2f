"""The Linux backend: a pool of confined helpers, one per (terms, slot), and the runner's side of the conversation."""

import asyncio
import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from policy.action import RunArgv, RunScript
from policy.secrecy import inside
from policy.verdict import Permit, Problem, Rights, Terms
from sandbox import canary, kernel, landlock, plan
from sandbox.autorun import Watch
from sandbox.backend import Enforcement, Level, Listener, Outcome, SandboxUnavailable
from sandbox.exchange import Exchange
from sandbox.launch import Ahead, Launch, launch, survey
from sandbox.scan import Scan
from sandbox.scratch import Scratch
from sandbox.spawn import end

SLOTS = 8  # helpers for the same Terms at one time; a further command waits for one
IDLE = 4  # helpers kept for the next command; each holds about 10 MB
READY = 10.0  # seconds until a helper that says nothing is given up
FRESH = 1.0  # seconds for which what was found in the workspace is taken to be true: people edit files meanwhile
GRACE = 0.15  # seconds a helper has to end a command before it is killed itself: cancel stays under 200 ms
ANSWER = 64 << 20  # bytes of a file action's answer
_SHELL = ("/bin/bash", "--norc", "--noprofile", "-c", "--")


@dataclass(slots=True, eq=False)
class Slot:
    """The runner's hold on one helper."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    enforcement: Enforcement
    scan: Scan = field(default_factory=Scan)
    looked: float = field(default_factory=time.monotonic)  # when the workspace was last found to be as in `scan`

    def kill(self) -> None:
        end(self.process, self.control)


class Linux:
    """T1: namespaces, a private root, Landlock and seccomp. T3: Landlock and seccomp alone, labelled weaker."""

    def __init__(
        self,
        tier: str,
        *,
        cache: Path | None = None,
        aside: Path | None = None,
        files: bool = True,
        ahead: Ahead | None = None,
    ) -> None:
        self.name = tier
        self.cache = cache
        self.aside = aside  # where auto-run files that a command made are moved
        self.files = files  # whether file actions will be asked for; without them a helper starts sooner
        self.ahead = ahead
        self.abi = kernel.landlock_abi()
        self.idle: list[tuple[str, Slot]] = []  # least recently used first
        self.gates: dict[str, asyncio.Semaphore] = {}
        self.slots: set[Slot] = set()
        self.scratch: Scratch | None = None  # the session's own /tmp: what one command leaves there the next one finds

    # ---- the Backend protocol

    async def probe(self, terms: Terms | None = None) -> Enforcement:
        """Start one helper (for `terms`, or for reading the current folder) and report what its canary saw."""
        terms = terms or Terms(Rights.LOOK, os.path.realpath(os.getcwd()), "/nonexistent", system=("/usr",))
        slot = await self._take(terms)
        self._give_back(terms, slot)
        return slot.enforcement

    async def run(self, permit: Permit, *, stdin: bytes | None = None, listen: Listener | None = None) -> Outcome:
        """Execute the permit. Raises SandboxUnavailable when the boundary cannot be built: then nothing ran."""
        if not isinstance(permit, Permit):
            raise TypeError("the sandbox runs Permits and nothing else")
        terms = permit.terms
        gate = self.gates.setdefault(plan.helper_key(terms), asyncio.Semaphore(SLOTS))
        async with gate:
            slot = await self._take(terms)
            healthy = False
            watch = Watch(terms, slot.scan, self.aside)
            try:
                outcome = await self._converse(slot, permit, stdin, listen)
                healthy = outcome.problem is None or outcome.status != 125
            except asyncio.CancelledError:
                watch.settle()
                raise
            finally:
                # A helper that was interrupted in the middle of an answer is not asked again.
                if healthy:
                    self._give_back(terms, slot)
                else:
                    self._discard(slot)
        violations = watch.settle()
        if outcome.status != 0:
            from sandbox.violations import explain  # its patterns are for commands that failed

            violations = (*violations, *explain(permit, outcome))
        return replace(outcome, violations=violations, enforcement=slot.enforcement)

    async def close(self) -> None:
        for slot in list(self.slots):
            self._discard(slot)
        self.idle.clear()
        if self.scratch is not None:
            self.scratch.remove()
            self.scratch = None

    # ---- helpers

    async def _take(self, terms: Terms) -> Slot:
        key = plan.helper_key(terms)
        for index in range(len(self.idle) - 1, -1, -1):
            if self.idle[index][0] != key:
                continue
            _, slot = self.idle.pop(index)
            if slot.process.poll() is None and self._still_true(slot, terms):
                return slot
            # It died while idle, or there is a new secret or auto-run file that its mounts know nothing of.
            self._discard(slot)
        return await self._start(terms)

    def _still_true(self, slot: Slot, terms: Terms) -> bool:
        """Whether the mounts of `slot` still cover all that must be covered."""
        now = time.monotonic()
        if now - slot.looked < FRESH:
            return True
        if survey(terms, self.scratch.path if self.scratch else "") != slot.scan:
            return False
        slot.looked = now
        return True

    def _give_back(self, terms: Terms, slot: Slot) -> None:
        self.idle.append((plan.helper_key(terms), slot))
        if len(self.idle) > IDLE:
            self._discard(self.idle.pop(0)[1])

    def _discard(self, slot: Slot) -> None:
        self.slots.discard(slot)
        slot.kill()

    def _launch(self, terms: Terms) -> Launch:
        """The launch that was made ahead, when it was made for this; else a new one."""
        taken = self.ahead.take(self.name, terms) if self.ahead and self.scratch is None and not self.files else None
        if taken is not None:
            launched, self.scratch = taken
            return launched
        self.scratch = self.scratch or Scratch()
        return launch(self.name, terms, self.scratch, cache=self.cache, files=self.files)

    async def _start(self, terms: Terms) -> Slot:
        launched = self._launch(terms)
        found = launched.scan
        slot = Slot(launched.process, launched.control, Enforcement(Level.NONE, self.name), found)
        self.slots.add(slot)
        try:
            first = Exchange(slot.control, 0, None)
            await first.settle(READY)
            if first.line != "ready":
                raise _unavailable(self.name, first.line or "failed 110 start the helper")
            slot.enforcement = await self._canary(slot, terms, found)
        except BaseException:
            self._discard(slot)
            raise
        if any(not held for _, held in slot.enforcement.checks):
            self._discard(slot)
            broken = ", ".join(canary.WORDS[name] for name, held in slot.enforcement.checks if not held)
            raise SandboxUnavailable(
                Problem(
                    f"the {self.name} sandbox does not hold on this machine",
                    f"its canary got out: {broken}",
                    "run `agent doctor` for what the machine lacks; nothing was run",
                )
            )
        return slot

    async def _canary(self, slot: Slot, terms: Terms, found: Scan) -> Enforcement:
        """Lay out decoys, let the helper try them, and look again from outside."""
        with contextlib.ExitStack() as stack:
            where = next((place for place in _places() if not _shown(place, terms)), None)
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-canary-", dir=where))
            secret, target = os.path.join(folder, "secret"), os.path.join(folder, "target")
            for path in (secret, target):
                Path(path).write_text("untouched", encoding="utf-8")
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
            name = f"ringfence-{os.getpid()}-{os.path.basename(folder)}"
            abstract.bind("\0" + name)
            abstract.listen(1)
            request: dict[str, object] = {
                "op": "canary",
                "secret": secret,
                "target": target,
                "port": listener.getsockname()[1],
                "abstract": name,
                "pid": os.getpid(),
                "look": terms.rights is Rights.LOOK,
                "workspace": terms.workspace,
            }
            exchange, _ = await self._exchange(slot, request, None, None, 5.0, 1 << 16)
            text = exchange.streams[0].decode("utf-8", "replace")
            if Path(target).read_text(encoding="utf-8") != "untouched":
                text += "outside 0\n"
        checks = {name: held == "1" for name, _, held in (line.partition(" ") for line in text.splitlines())}
        if text.startswith("!") or not checks:
            raise _unavailable(self.name, f"failed 0 canary {text[:200]}")
        missing: tuple[str, ...] = () if self.name == "T1" else _T3_LACKS
        missing += tuple(f"Landlock: {words}" for words in landlock.missing(self.abi))
        level = Level.FULL if self.name == "T1" else Level.PARTIAL
        if self.name == "T3":
            checks = {name: held for name, held in checks.items() if name not in _T3_OPEN}
            if found.masked:
                missing += (f"{len(found.masked)} secret file(s) of the workspace stay readable",)
        return Enforcement(level, self.name, tuple(sorted(checks.items())), missing)

    # ---- one command

    async def _converse(self, slot: Slot, permit: Permit, stdin: bytes | None, listen: Listener | None) -> Outcome:
        action, limits = permit.action, permit.terms.limits
        started = time.monotonic()
        if isinstance(action, RunScript | RunArgv):
            argv = (*_SHELL, action.script) if isinstance(action, RunScript) else action.argv
            request: dict[str, object] = {"op": "spawn", "argv": list(argv), "cwd": action.cwd}
            wall, most = limits.wall, limits.output
        else:
            request = {"op": type(action).__name__, **asdict(action)}
            wall, most = min(limits.wall, 60.0), ANSWER
        exchange, ended = await self._exchange(slot, request, stdin, listen, wall, most)
        seconds = time.monotonic() - started
        line, (out, err) = exchange.line or "", exchange.streams
        verb, _, rest = line.partition(" ")
        if verb == "failed":
            return _not_started(rest, request, seconds)
        if verb != "exit":
            problem = Problem(
                "the sandbox helper died while a command ran",
                "its process is gone; the command went with it",
                "try again",
            )
            return Outcome(125, bytes(out), bytes(err), seconds, ended or "helper", problem=problem)
        code, _, why = rest.partition(" ")
        ended = ended or (None if why == "-" else why)
        if request["op"] == "spawn":
            return Outcome(int(code), bytes(out), bytes(err), seconds, ended, ended == "output")
        return _file_outcome(int(code), bytes(out), seconds, ended)

    async def _exchange(
        self,
        slot: Slot,
        request: dict[str, object],
        stdin: bytes | None,
        listen: Listener | None,
        wall: float,
        most: int,
    ) -> tuple[Exchange, str | None]:
        """Send one request, enforce wall time and output, and return what came back with the limit that ended it."""
        exchange = Exchange(slot.control, most, listen)
        try:
            ended = await exchange.run(request, stdin, wall)
            if ended is not None:
                # The helper ends everything; when it does not answer in time, the helper itself is ended.
                with contextlib.suppress(OSError):
                    exchange.send({"op": "stop", "why": ended}, [])
                await exchange.settle(GRACE)
                if exchange.line is None:
                    self._discard(slot)
            return exchange, ended
        except OSError:
            if slot.process.poll() is None:  # not the helper's end but the listener's: the caller's own to explain
                self._discard(slot)
                raise
            return exchange, None  # the helper is gone: no line, and the caller says so
        except asyncio.CancelledError:
            # SAFETY: a cancelled command must not outlive the cancel; the helper goes with it, in one signal.
            self._discard(slot)
            raise
        finally:
            exchange.close()


def _places() -> tuple[str, ...]:
    """Where decoys may lie, best first."""
    return tuple(map(os.path.realpath, (tempfile.gettempdir(), "/var/tmp", "/dev/shm")))


def _shown(place: str, terms: Terms) -> bool:
    """Whether a command under `terms` may see `place`: a decoy there would prove nothing."""
    granted = (terms.workspace, *terms.system, *terms.read, *terms.write)
    return any(inside(place, root) for root in granted)


# What T3 cannot do, in words; `agent doctor` and every record of it list them.
_T3_LACKS = (
    "the file names and sizes of the whole machine can be seen (no private root)",
    "modes, times and attributes of files outside can be changed where your user may (Landlock does not cover them)",
    "secret files inside the workspace cannot be masked, nor its auto-run files kept read-only",
    "memory and processes are limited one by one, not for everything that a command starts",
    "a command can end the process that watches it, and what it left then goes on",
    "other processes of the same user share the PID and IPC namespaces",
)
_T3_OPEN = frozenset({"processes"})


def _unavailable(tier: str, answer: str) -> SandboxUnavailable:
    _, _, rest = answer.partition(" ")
    number, _, step = rest.partition(" ")
    why = os.strerror(int(number)) if number.isdigit() and number != "0" else "the helper ended without a word"
    return SandboxUnavailable(
        Problem(
            f"the {tier} sandbox cannot be built here",
            f"the kernel refused to {step or 'start the helper'} ({why.lower()})",
            "run `agent doctor`: it says what this machine lacks and the command that adds it; nothing was run",
        )
    )


def _not_started(rest: str, request: dict[str, object], seconds: float) -> Outcome:
    number, _, name = rest.partition(" ")
    code = int(number) if number.isdigit() else 0
    argv = request.get("argv")
    program = str(argv[0]) if isinstance(argv, list) and argv else "the action"
    reason = os.strerror(code).lower() if code else "the sandbox refused"
    status = 127 if code == 2 else 126
    text = f"{name or program}: {reason}\n"
    problem = Problem(
        f"`{program}` could not be started",
        f"{reason} (inside the sandbox, where only granted paths exist)",
        "check the name, and that the folder and the program lie in the workspace or a system folder",
    )
    return Outcome(status, b"", text.encode(), seconds, problem=problem)


def _file_outcome(status: int, data: bytes, seconds: float, ended: str | None) -> Outcome:
    import json

    failed = Problem("the file action did not finish", f"it ended with status {status}", "try again, or ask for less")
    if ended is not None:
        failed = Problem("the file action was ended", f"it passed the {ended} limit", "ask for less")
        return Outcome(status or 1, seconds=seconds, ended_by=ended, problem=failed)
    try:
        answer = json.loads(data)
    except ValueError:
        return Outcome(status or 1, seconds=seconds, problem=failed)
    if not isinstance(answer, dict):
        return Outcome(status or 1, seconds=seconds, problem=failed)
    told = answer.get("problem")
    if isinstance(told, dict):
        words: Callable[[str], str] = lambda key: str(told.get(key, ""))  # noqa: E731  # three reads of one record
        return Outcome(1, seconds=seconds, problem=Problem(words("what"), words("why"), words("fix")), data=answer)
    return Outcome(status, seconds=seconds, data=answer)
