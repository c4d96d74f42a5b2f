"""The controller of the terminal: it sends each typed line to the model, to a `/command`, or to a shell behind the
gate.

Lines that are typed before the session is open wait for it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

from policy.model.tier import Mode
from runner.engine.process_view import listening
from runner.events import Display
from runner.frontends.slash.command import SHELL, CommandHost, Row, SlashCommand, find, is_command, run_line
from runner.frontends.slash.servers import prompt_rows
from runner.frontends.tui.app import App
from runner.frontends.tui.keys import HELP
from runner.frontends.tui.menu import MenuEntry, Proposals, best
from runner.problems import Exit

if TYPE_CHECKING:
    from policy.model.verdict import Problem
    from runner.agent.agent import Agent
    from runner.messages import ImageBlock

_PORT_CHECK = 1.0  # seconds between two looks at the ports of the processes
_MODES = (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.TRUST_PROJECT, Mode.PLAN)  # of Shift+Tab; /mode sets the others


class TerminalController(CommandHost):
    """The controller between one App and the sessions of one Agent. `failed` is called with unexpected exceptions."""

    app: App
    keys = HELP

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self.commands: Sequence[SlashCommand] = ()
        self._failed = failed
        self._early: list[str] = []
        self._work: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self, agent: "Agent") -> None:
        """Use the open session, and send the texts that waited for it."""
        self._agent = agent
        self._beside(self._watch_ports())
        early, self._early = self._early, []
        for text in early:
            self.submit(text)

    async def part(self) -> None:
        """Release the session, stop the current work, and wait until it has ended."""
        agent, self._agent = self._agent, None
        for task in tuple(self._tasks):
            task.cancel()
        if agent is not None:
            agent.interrupt(leaving=True)
        if waited := {*self._tasks, *((self._work,) if self._work is not None else ())}:
            await asyncio.wait(waited)

    @property
    def columns(self) -> int:
        return self.app.columns

    @property
    def open(self) -> bool:
        """Return True if a session is open."""
        return self._agent is not None

    # methods for the App

    @property
    def busy(self) -> bool:
        """Return True if a run is in progress, including a command that asks the model."""
        return self._work is not None or (self._agent is not None and self._agent.busy)

    @property
    def waiting(self) -> tuple[str, ...]:
        return (*self._early, *(self.conversation.ctx.steering.waiting if self._agent is not None else ()))

    def submit(self, text: str, *, later: bool = False) -> None:
        if self._agent is None:
            self._early.append(text)
        elif text.strip() == "!":
            self.app.tell(SHELL)
            self.app.edit("!")
        elif text.startswith("!"):
            if self.busy:  # not queued, since its effect may depend on the time: back to the input
                self.app.editor.add(text)
            self._begin(self._shell(text[1:].strip()))
        elif is_command(text):
            self._beside(self._command(text))
        elif not self.busy:
            self._begin(self._prompt(text))
        elif later is (self.settings.value("queue", "enter") == "steer"):
            self.conversation.follow_up(text)
        else:
            self.conversation.steer(text)
        self.app.soon()

    def interrupt(self) -> bool:
        return self._agent is not None and self._agent.interrupt()

    def take_back(self) -> tuple[str, ...]:
        early, self._early = tuple(self._early), []
        return (*early, *(self.conversation.take_back() if self._agent is not None else ()))

    def cycle_mode(self) -> None:
        if self._agent is not None:
            mode = self.conversation.ctx.live.mode
            at = _MODES.index(mode) + 1 if mode in _MODES else 0
            self.conversation.set_mode(_MODES[at % len(_MODES)])

    def proposals(self, before: str) -> Proposals | None:
        """Return the names of commands, or their first arguments, if the input is one line that begins with `/`. After
        `/mcp:`, return the prompts of tool servers, or the names of the arguments of one.

        A `ProposalSource`: `before` is the text before the cursor.
        """
        if not before.startswith("/") or "\n" in before:
            return None
        name, blank, rest = before[1:].partition(" ")
        if not blank:
            if "/" in name:
                return None  # a path
            if name.startswith("mcp:"):
                prompts = best(name, prompt_rows(self) if self.open else (), lambda row: row[0])
                return Proposals(0, [MenuEntry(f"/{each}", note, not args, bool(args)) for each, note, args in prompts])
            known = best(name, self.commands, lambda each: " ".join(each.names))
            known.sort(key=lambda each: not any(own.startswith(name) for own in each.names))
            entries = [MenuEntry(f"/{each.name}", each.summary, each.ready, each.usage != "") for each in known]
            return Proposals(0, entries)
        if name.startswith("mcp:"):
            arguments = next((args for each, _, args in prompt_rows(self) if each == name), ()) if self.open else ()
            typed = rest.split(" ")
            used = {word.partition("=")[0] for word in typed if "=" in word}
            left = [f"{each}=" for each in arguments if each not in used and each.startswith(typed[-1])]
            return Proposals(len(before) - len(typed[-1]), [MenuEntry(each) for each in left]) if left else None
        command = next((each for each in self.commands if name in each.names), None)
        if command is None or " " in rest or not self.open:
            return None
        words = [word for word in command.words(self) if word.startswith(rest)]
        if not words or words == [rest]:
            return None
        return Proposals(len(before) - len(rest), [MenuEntry(word, ready=True) for word in words])

    # methods for a `/command`

    async def pick(self, title: str, rows: Sequence[Row]) -> str | None:
        return await self.app.pick(title, rows)

    async def send(self, prompt: str, typed: str) -> None:
        if not self.busy:
            self._begin(self._prompt(prompt, typed))
        else:
            self.conversation.follow_up(prompt, typed)

    def draft(self, text: str) -> None:
        self.app.edit(text)

    async def pasted(self) -> "ImageBlock | Problem":
        from runner.frontends.terminal.clipboard import pasted_image  # few sessions paste images

        return await pasted_image(self.environ)

    def copy(self, text: str) -> bool:
        self.app.copy(text)
        return True

    def show_thinking(self, shown: bool) -> bool:
        self.app.show_thinking(shown)
        return True

    def leave(self) -> None:
        self.app.leave(Exit.DONE)

    # private methods

    async def _prompt(self, text: str, typed: str = "") -> None:
        """Send a prompt. If the user stops the run, put the queued texts back into the input."""
        conversation = self.conversation
        ending = await conversation.prompt(text, typed)
        if ending.exit is Exit.INTERRUPTED and (texts := conversation.take_back()):
            self.app.editor.add("\n\n".join(texts))

    async def _shell(self, script: str) -> None:
        await self.conversation.shell(script)
        if self.app.screen is not None:  # there is no RunEnded event that ends a stopped command
            self.app.screen.halt()

    async def _command(self, line: str) -> None:
        command = find(line.split(maxsplit=1)[0], self.commands)
        if command is None or not command.sends:
            self.conversation.ctx.emit(Display(f"> {line}", "text"))  # show the command above its answer
        await run_line(line, self)
        self._next()

    async def _watch_ports(self) -> None:
        """Keep the ports of the status line current."""
        while True:
            alive = self.conversation.ctx.processes.alive
            ports = tuple(sorted({port for each in alive for port in listening(each)}))
            if ports != self.app.status.ports:
                self.app.status.ports = ports
                self.app.soon()
            await asyncio.sleep(_PORT_CHECK)

    def _next(self) -> None:
        """Send the next text that waited for the session, for the end of the turn, or for a command."""
        if self._agent is not None and not self.busy and (more := self.conversation.ctx.steering.next()) is not None:
            self._begin(self._prompt(more.text, more.typed))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Start `work` as the only current work. If there is other work, tell the user and drop `work`."""
        if self.busy:
            work.close()
            self.app.tell("a run is in progress: Esc stops it")
            return

        def over(task: asyncio.Task[None]) -> None:
            self._work = None
            self.app.soon()
            self._next()

        self._work = self._beside(work)
        self._work.add_done_callback(over)

    def _beside(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start `work` beside other work. An unexpected exception ends the program."""

        def over(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._failed(error)

        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(over)
        return task
