"""The plain conversation at a terminal: the user types a line, and the model answers with a turn.

Ctrl-C stops a turn; Ctrl-D leaves. This front end is used for `--plain`, and on terminals that support nothing else. No
text is overwritten, so a screen reader reads the output in order, and a log of it is complete.
"""

import asyncio
import shutil
import signal
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from runner.approval.approver import ReadLine
from runner.events import Notice
from runner.frontends.slash.command import SHELL, CommandHost, Row, SlashCommand, is_command, run_line, say
from runner.frontends.slash.registry import known
from runner.problems import Exit
from runner.text.sanitize import one_line

if TYPE_CHECKING:
    from policy.model.verdict import Problem
    from runner.agent.agent import Agent
    from runner.agent.conversation import Conversation
    from runner.messages import ImageBlock

_T = TypeVar("_T")
_WIDTH = 200  # characters of a row
_SHOWN = 30  # rows to pick from
_NARROWEST = 40  # columns of a text that is laid out


class PlainHost(CommandHost):
    """The host of commands at a plain terminal. Rows to pick from are shown as a numbered list."""

    keys = (("Ctrl-C", "stop the model and its commands; press twice to leave"), ("Ctrl-D", "leave"))

    def __init__(self, agent: "Agent", read_line: ReadLine, commands: Sequence[SlashCommand]) -> None:
        self.left = False
        self.commands = commands
        self._agent = agent
        self._read_line = read_line

    @property
    def columns(self) -> int:
        return max(shutil.get_terminal_size((101, 24)).columns - 1, _NARROWEST)

    async def pick(self, title: str, rows: Sequence[Row]) -> str | None:
        for number, row in enumerate(rows[:_SHOWN], 1):
            mark = " (now)" if row.now else ""
            say(self, f"{number:>3}  {one_line(f'{row.label}{mark}  {row.detail}'.rstrip(), _WIDTH)}")
        if len(rows) > _SHOWN:
            say(self, f"     and {len(rows) - _SHOWN} more: type the name")
        try:
            answer = (await self._read_line(f"{title} (a number; Enter leaves) ")).strip()
        except (EOFError, KeyboardInterrupt):
            return None
        if answer.isascii() and answer.isdigit() and 1 <= int(answer[:9]) <= min(len(rows), _SHOWN):
            return rows[int(answer) - 1].value
        named = next((row.value for row in rows if answer in (row.value, row.label)), None)
        if answer and named is None:
            say(self, f"`{one_line(answer, 40)}` is not a number or a name from this list")
        return named

    async def send(self, prompt: str, typed: str) -> None:
        await stoppable(self.conversation, self.conversation.prompt(prompt, typed))

    def draft(self, text: str) -> None:
        say(self, "your earlier prompt:", text)

    async def pasted(self) -> "ImageBlock | Problem":
        from runner.frontends.terminal.clipboard import pasted_image  # few sessions paste images

        return await pasted_image(self.environ)

    def copy(self, text: str) -> bool:
        return False  # a control sequence may be read out by a screen reader, or be written to a log

    def leave(self) -> None:
        self.left = True


async def converse(agent: "Agent", read_line: ReadLine) -> int:
    """Run the conversation until the user leaves, and return the exit code.

    Denials do not change the exit code, because the user saw the denials.
    """
    known_commands = known(agent.environ, agent.conversation.ctx.context)
    for notice in known_commands.notices:
        agent.conversation.ctx.emit(Notice(notice))
    host = PlainHost(agent, read_line, known_commands.commands)
    agent.conversation.ctx.emit(Notice("type /help for help, /quit to leave"))
    interrupted = False
    task = asyncio.current_task()
    while not host.left:
        if task is not None and task.cancelling():  # a signal ended the turn and the conversation
            return Exit.INTERRUPTED
        try:
            line = (await read_line("\n> ")).strip()
        except EOFError:
            return Exit.DONE
        except KeyboardInterrupt:
            if interrupted:
                return Exit.INTERRUPTED
            interrupted = True
            agent.conversation.ctx.emit(Notice("press Ctrl-C again, or Ctrl-D, to leave"))
            continue
        interrupted = False
        pasted = "\n" in line  # THREAT T112: lines that came at once are a prompt, never a command
        if is_command(line) and not pasted:
            await stoppable(agent.conversation, run_line(line, host))
        elif line == "!":
            say(host, SHELL)
        elif line.startswith("!") and not pasted:
            await stoppable(agent.conversation, agent.conversation.shell(line[1:].strip()))
        elif line:
            ending = await stoppable(agent.conversation, agent.conversation.prompt(line))
            interrupted = ending.exit is Exit.INTERRUPTED
    return Exit.DONE


async def stoppable(conversation: "Conversation", work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work` of `conversation`. Ctrl-C stops the work and not the conversation."""
    loop = asyncio.get_running_loop()
    # Not a handler of the event loop: prompt_toolkit removes that when it asks a question.
    before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(conversation.interrupt))
    try:
        return await work
    finally:
        signal.signal(signal.SIGINT, before)
