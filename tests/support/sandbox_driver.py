"""Program that runs permits for the sandbox tests as the user who starts it: JSON lines in, JSON lines out.

A process of its own, because the tests run as root and as another user, and one Python process has one user.
"""

# ruff: noqa: E402  # the deadlines are raised before the modules that have them are imported
import asyncio
import base64
import contextlib
import json
import os
import select
import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from policy.model.deadline import stretch

stretch(10.0)  # as in the other processes of the tests (`long_deadlines`)

from policy.model import action as actions
from policy.model.profile import Profile
from policy.model.verdict import _MINT, Limits, Permit, Rights, Terms
from sandbox.backend import (
    ContainerOptions,
    Outcome,
    Process,
    SandboxUnavailable,
    TerminalSize,
    interrupted_connections,
)
from sandbox.container.backend import Container
from sandbox.container.container import Box
from sandbox.inside.plan import Plan
from sandbox.linux import cgroup, helper_layers
from sandbox.linux.backend import Linux
from sandbox.linux.helper_process import SpareHelper
from sandbox.linux.launch import LaunchRequest, launched_ahead
from sandbox.linux.prepared_helper import PreparedHelper, WorkerSpare
from sandbox.linux.prepared_root import PreparedRoot
from sandbox.workspace.layer import ChangeLayer, LayerUnreadable, new_layer, read_layer


def lender(told: dict[str, Any], stack: contextlib.ExitStack) -> Any:
    """The runner's own: `rows` of `[[credential]]`, the variables that hold secrets, whose certificates are believed."""
    from policy.toml.schema import read
    from runner.config.credential_table import CREDENTIAL_KEYS, credentials
    from runner.secrets.broker.session import injector_for

    os.environ["SSL_CERT_FILE"] = told["trust"]
    rows = credentials(read(told["rows"], "test.toml", {}, {"credential": CREDENTIAL_KEYS}).entries)
    profile = replace(Profile(*[()] * 8), credentials=rows, bundle=told.get("bundle", ""))
    return stack.enter_context(injector_for(profile, told["environ"] | {"SSL_CERT_FILE": told["trust"]}, "/nowhere"))


def terms_of(told: dict[str, Any]) -> Terms:
    limits = Limits(**told.pop("limits", {}))
    tuples = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
    env = tuple(sorted((told.get("env") or {}).items()))
    rights = Rights(told["rights"])
    return Terms(**{**told, **tuples, "env": env, "rights": rights, "limits": limits})


names: dict[str, list[str]] = {}  # what the egress proxy finds for a name


async def resolve(host: str, port: int) -> tuple[str, ...]:
    return tuple(names.get(host, ()))


def outcome_words(outcome: Outcome) -> dict[str, Any]:
    enforcement = outcome.enforcement
    return {
        "status": outcome.status,
        "out": outcome.stdout.decode("utf-8", "replace"),
        "err": outcome.stderr.decode("utf-8", "replace"),
        "ended": outcome.ended_by,
        "seconds": outcome.seconds,
        "connections": [list(astuple(each)) for each in outcome.connections],
        "violations": [[v.what, v.path, v.fix, v.layer] for v in outcome.violations],
        "problem": outcome.problem and [outcome.problem.what, outcome.problem.why, outcome.problem.fix],
        "data": outcome.data,
        "level": enforcement and enforcement.level.value,
        "checks": enforcement and dict(enforcement.checks),
        "limits": enforcement and enforcement.limits,
        "inferred": [v.what for v in outcome.violations if v.inferred],
        "missing": list(enforcement.missing) if enforcement else [],
    }


class Noted(PreparedRoot):
    """A prepared root that remembers whether it was used."""

    used = False

    def fits(self, plan: Plan) -> bool:
        self.used = super().fits(plan)
        return self.used


async def prepared(told: dict[str, Any], permit: Permit) -> dict[str, Any]:
    """Run a command in a helper that has built a root with the system files `prepared` before it got its plan.

    `swap` are two files: the first replaces the second when the root was chosen.
    """
    root, cache, events = Noted(told["prepared"]), Path(told["cache"]), list[str]()
    with contextlib.ExitStack() as later:
        with SpareHelper(later) as spare:
            spare.prepare(root)
            if "swap" in told:
                os.replace(*told["swap"])
            with launched_ahead(told["tier"], permit.terms, cache=cache, spare=spare) as ahead:
                backend = Linux(told["tier"], cache=cache, aside=cache / "aside", files=False, ahead=ahead)
                try:
                    answer = outcome_words(await backend.run(permit))
                    helper = next(iter(backend.pool.all)).process
                finally:
                    await backend.close()
        events.append("alive" if helper.poll() is None else "ended")
    events.append("alive" if helper.poll() is None else "ended")
    return {**answer, "used": root.used, "helper": events}


foreseen = contextlib.ExitStack()  # the helper that was prepared for a later command
waiting: list[WorkerSpare] = []


def foresee(told: dict[str, Any], permit: Permit) -> dict[str, Any]:
    """Prepare a helper for these Terms, and wait until it has run its canary."""
    spare = foreseen.enter_context(WorkerSpare())
    with SpareHelper() as own:
        spare.beside = PreparedHelper(LaunchRequest("T1", permit.terms, Path(told["cache"])), own)
    launched = spare.beside._launch
    assert launched is not None
    ready = select.poll()
    ready.register(launched.control, select.POLLIN)
    assert ready.poll(60_000)
    waiting.append(spare)
    return {"pid": launched.process.pid}


async def run_foreseen(told: dict[str, Any], permit: Permit) -> dict[str, Any]:
    """Run a command as `agent exec` does, with the helper of `foresee` if it fits."""
    cache, spare = Path(told["cache"]), waiting.pop()
    assert spare.beside is not None
    with foreseen.pop_all(), launched_ahead(told["tier"], permit.terms, cache=cache, spare=spare) as ahead:
        used = spare.beside._launch is None
        backend = Linux(told["tier"], cache=cache, aside=cache / "aside", files=False, ahead=ahead)
        try:
            answer = outcome_words(await backend.run(permit))
        finally:
            await backend.close()
    return {**answer, "used": used}


def layer_words(layer: ChangeLayer) -> dict[str, Any]:
    """Return the changes in a layer. Bytes of names that are no text are escaped as by `os.fsdecode`."""
    try:
        changes = [list(astuple(change)) for change in read_layer(layer)]
    except LayerUnreadable as error:
        return {"unreadable": error.problem.why}
    return {"changes": changes, "upper": layer.upper}


class Staying:
    """The processes that the tests started, by name, with what each has printed."""

    def __init__(self) -> None:
        self.processes: dict[str, Process] = {}
        self.printed: dict[str, tuple[bytearray, bytearray]] = {}

    async def start(
        self, backend: Linux | Container, permit: Permit, do: str, name: str, terminal: list[int] | None = None
    ) -> dict[str, Any]:
        printed = self.printed[name] = (bytearray(), bytearray())
        size = TerminalSize(*terminal) if terminal else None

        def listen(stream: int, chunk: bytes) -> None:
            printed[stream - 1].extend(chunk)

        try:
            process = await backend.start(permit, listen=listen, terminal=size)
        except SandboxUnavailable as error:
            return {"unavailable": [error.problem.what, error.problem.why, error.problem.fix]}
        self.processes[name] = process
        return {"started": True, "level": process.enforcement.level.value}

    async def ask(self, do: str, name: str, **told: Any) -> dict[str, Any]:
        """`until` waits for a text in the output so far, or for the end of the process."""
        process, printed = self.processes[name], self.printed[name]
        answer: dict[str, Any] = {}
        if do == "write":
            try:
                await process.write(told["text"].encode("latin-1"))
            except BrokenPipeError:
                answer["broken"] = True
        elif do == "until":
            wanted = told["text"].encode()
            while wanted not in printed[0] + printed[1] and process.outcome is None:
                await asyncio.sleep(0.01)
        elif do == "signal":
            await process.signal(told["number"])
        elif do == "resize":
            process.resize(TerminalSize(*told["size"]))
        elif do == "close":
            process.close_input()
        elif do == "connect":
            try:
                with await process.connect(told["port"]) as made:
                    answer["received"] = (await asyncio.get_running_loop().sock_recv(made, 100)).decode()
            except OSError as error:
                answer["error"] = error.strerror or str(error)
        elif do in ("wait", "end"):
            outcome = await (process.wait() if do == "wait" else process.end())
            answer |= outcome_words(outcome)
        answer["out"], answer["err"] = (bytes(each).decode("utf-8", "replace") for each in printed)
        answer["alive"] = process.outcome is None
        answer["so_far"] = [v.what for v in process.violations]
        if do == "ports":
            answer["ports"] = list(process.ports())
        return answer


async def main() -> None:
    # On a busy machine a session starts another helper instead; the tests are about the one that switches.
    helper_layers._SWITCHED = 60.0
    staying = Staying()
    backends: dict[tuple[str, str], Linux | Container] = {}
    stack = contextlib.ExitStack()
    usable = cgroup.usable  # type: ignore[attr-defined]  # the name as the backend looks it up
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        told = json.loads(line)
        name = told["tier"]
        names.update(told.get("names", {}))
        counted = told.get("counted", "kernel")
        # As on a machine where no group can be made.
        cgroup.usable = usable if counted == "kernel" else tuple  # type: ignore[attr-defined]  # the backend's name for it
        key = (name, f"{counted} {told.get('container')} {told.get('lend')}")
        backend = backends.get(key)
        if backend is None:
            cache = Path(told["cache"])
            lend = lender(told["lend"], stack) if told.get("lend") else None
            if name == "container":
                backend = Container(
                    ContainerOptions(**told["container"]),
                    cache=cache,
                    aside=cache / "aside",
                    resolver=resolve,
                    lend=lend,
                )
            else:
                backend = Linux(name, cache=cache, aside=cache / "aside", resolver=resolve, lend=lend)
            backends[key] = backend
        if "process" in told and told["process"]["do"] != "start":
            print(json.dumps(await staying.ask(**told["process"])), flush=True)
            continue
        made = getattr(actions, told["action"].pop("kind"))
        if "argv" in told["action"]:
            told["action"]["argv"] = tuple(told["action"]["argv"])
        permit = Permit(made(**told["action"]), terms_of(told["terms"]), _MINT)
        if "why_not" in told:
            print(json.dumps({"why_not": await backend.layered(permit.terms, told["why_not"])}), flush=True)
            continue
        stdin = base64.b64decode(told["stdin"]) if told.get("stdin") else None
        answer: dict[str, Any]
        if "process" in told:
            print(json.dumps(await staying.start(backend, permit, **told["process"])), flush=True)
            continue
        try:
            if "prepared" in told:
                print(json.dumps(await prepared(told, permit)), flush=True)
                continue
            if "foreseen" in told:
                work = foresee(told, permit) if told["foreseen"] == "make" else await run_foreseen(told, permit)
                print(json.dumps(work), flush=True)
                continue
            if "stream" in told:
                stdin = told["stream"]  # a descriptor that this process inherited
            layer = None
            if "layer" in told:
                folder = Path(told.get("layers") or f"{told['cache']}/layers")
                folder.mkdir(exist_ok=True)
                used = str(told["layer"])  # True, or the folder of an earlier layer
                layer = ChangeLayer(permit.terms.workspace, f"{used}/upper", f"{used}/work")
                layer = layer if used != "True" else new_layer(permit.terms.workspace, str(folder))
            output: list[bytes] = []

            def listen(stream: int, chunk: bytes, output: list[bytes] = output) -> None:
                output.append(chunk)

            run = asyncio.create_task(backend.run(permit, stdin=stdin, layer=layer, listen=listen))
            if "cancel" in told:  # as soon as this text is in the output
                while told["cancel"].encode() not in b"".join(output) and not run.done():
                    await asyncio.sleep(0.01)
                before = loop.time()
                run.cancel()
                await asyncio.wait({run})
                answer = {"cancelled": run.cancelled(), "seconds": loop.time() - before}
                try:
                    run.result()
                except asyncio.CancelledError as end:
                    answer["connections"] = [list(astuple(each)) for each in interrupted_connections(end)]
            else:
                answer = outcome_words(await run)
                answer["helpers"] = [
                    slot.pid if isinstance(slot, Box) else slot.process.pid for slot in backend.pool.all
                ]
            if layer is not None:
                answer |= layer_words(layer)
        except SandboxUnavailable as error:
            answer = {"unavailable": [error.problem.what, error.problem.why, error.problem.fix]}
        print(json.dumps(answer), flush=True)
    for backend in backends.values():
        await backend.close()
    stack.close()


asyncio.run(main())
