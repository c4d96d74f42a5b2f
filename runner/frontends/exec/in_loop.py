"""The runs of `agent exec` in an event loop: commands that write, use the network, or have a terminal."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from policy.model.verdict import Allow, Terms
from runner.frontends.exec.confined import OpenedSandbox, RunEnd, WantedSandbox, heard_signals, open_sandbox
from runner.frontends.exec.report import Report
from sandbox.backend import Backend, Outcome, interrupted_connections
from sandbox.linux.launch import PrelaunchedHelper

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from runner.config.settings import Settings
    from sandbox.backend import ChangeLayer
    from sandbox.egress.credential_injection import InjectorFactory


class InLoop:
    """The driver of a run in the event loop that runs at present."""

    @contextlib.asynccontextmanager
    async def boundary(
        self,
        wanted: WantedSandbox,
        terms: Terms,
        ahead: PrelaunchedHelper | None,
        settings: "Settings",
        lend: "InjectorFactory | None" = None,
    ) -> "AsyncIterator[Awaitable[OpenedSandbox]]":
        opening = asyncio.create_task(open_sandbox(wanted, terms, ahead, settings, lend))
        await asyncio.sleep(0)  # unless a helper was launched before, it is started now and prepares on another core
        try:
            yield opening
        finally:
            opening.cancel()
            (result,) = await asyncio.gather(opening, return_exceptions=True)
            if isinstance(result, tuple):
                await result[0].close()

    async def run(
        self,
        backend: Backend,
        verdict: Allow,
        stdin: int | None,
        report: Report,
        *,
        interactive: bool = False,
        layer: "ChangeLayer | None" = None,
    ) -> tuple[Outcome, int | None]:
        ending = RunEnd(report, lambda: running.cancel())
        permit = verdict.permit
        if interactive:
            from runner.frontends.exec.interactive import run_interactively  # only at a terminal

            running = asyncio.create_task(run_interactively(backend, permit, ending.listen))
        else:
            running = asyncio.create_task(backend.run(permit, stdin=stdin, listen=ending.listen, layer=layer))
        loop, heard = asyncio.get_running_loop(), heard_signals()
        # Only the first signal gets a handler of the loop, which then wakes at every signal. The others use `signal`:
        # one more `add_signal_handler` takes longer than the start of a command, because it builds the set of all
        # signals.
        for number in heard[:1]:
            loop.add_signal_handler(number, ending.end, 128 + number)
        for number in heard[1:]:
            signal.signal(number, lambda number, _: loop.call_soon_threadsafe(ending.end, 128 + number))
        try:
            outcome = await running
        except asyncio.CancelledError as cancel:
            if ending.code is None:
                raise
            connections = interrupted_connections(cancel)
            outcome = Outcome(status=ending.code, ended_by="cancelled", connections=connections)
        finally:
            for number in heard[:1]:
                loop.remove_signal_handler(number)
            for number in heard[1:]:
                signal.signal(number, signal.SIG_DFL)
        return outcome, ending.code
