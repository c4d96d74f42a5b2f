"""The line input of a user. Text that was typed before a question appeared does not answer it."""

import os
import sys
import termios

from prompt_toolkit import PromptSession
from prompt_toolkit.history import DummyHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import create_output

from runner.approval.approver import ReadLine
from runner.frontends.terminal.input import Intake
from runner.frontends.terminal.probe import at_terminal


def line_reader(*, forget: bool = False) -> ReadLine:
    """Return a reader of lines from standard input, with line editing and, unless `forget` is set, a history.

    With `forget`, text that was typed ahead is discarded and the answer joins no history: for questions, where a stray
    key must never approve. Lines that arrive at once, as a paste does, are one line that contains newlines; Enter ends
    that line.
    """
    keys = KeyBindings()

    @keys.add(Keys.BracketedPaste)
    def paste(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
        event.current_buffer.insert_text(text)
        # A terminal without cursor control shows only the last character of the inserted text.
        if (lines := text.count("\n") + 1) > 1 and not at_terminal():
            print(f"\n[{lines} lines; Enter takes them as one]", end=" ", flush=True)

    session: PromptSession[str] = PromptSession(
        history=DummyHistory() if forget else InMemoryHistory(),
        key_bindings=keys,
        input=Intake(sys.stdin, ends="\r\n"),
        output=create_output(always_prefer_tty=True),  # standard output may be a file for the answer
        enable_suspend=True,
    )

    async def read(prompt: str) -> str:
        if forget:
            clear_typeahead(session.input)
            if os.isatty(0):
                termios.tcflush(0, termios.TCIFLUSH)
        # prompt_toolkit's SIGINT handler would replace the one that stops a turn, and not restore it.
        return await session.prompt_async(prompt, handle_sigint=False)

    return read
