"""The input line of an attached terminal, below the output that appears meanwhile."""

import asyncio
import contextlib
import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import DummyHistory, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import StdoutProxy

from runner.frontends.terminal.input import Intake

_SOON = 0.02  # seconds until output is drawn
_QUIET = 0.5  # seconds without a key before an answer can be typed


class _RawInput(Intake):
    """The input of a terminal that stays in raw mode between two prompts and while output is printed.

    In its own mode the terminal would handle a key that is pressed at such a moment: Ctrl-D would be lost, and Ctrl-C
    would end this client instead of the turn. In raw mode the key is kept for the next prompt.
    """

    def cooked_mode(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def suspend(self) -> None:
        """Suspend this program until it is continued, with the terminal in its own mode."""
        with super().cooked_mode():
            os.kill(0, signal.SIGTSTP)  # the process group, as a terminal's own Ctrl-Z does


class _Interrupted(Exception):
    """The exception of a prompt that ends with Ctrl-C: a KeyboardInterrupt in its task would end the event loop."""


class InputLine:
    """The line where the user types prompts and answers.

    THREAT T279: keys that were typed before a question appeared must not answer it. At a question every key is ignored
    until half a second has passed without one, and pasted text is no answer. The wait begins when a question is drawn,
    and again with pasted text: on a busy machine, keys that were typed one after another arrive at once.
    """

    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed
        self._typed = ""  # the text of the prompt that a question interrupted
        self._last: float | None = None  # the time of the last key or paste at a question; None before it is drawn
        self._open = False  # the question accepts keys
        self._input = _RawInput(sys.stdin, ends="\r\n")
        self._prompts: PromptSession[str] = PromptSession(
            history=InMemoryHistory(),
            key_bindings=_prompt_keys(self._input),
            input=self._input,
            interrupt_exception=_Interrupted,
        )
        self._answers: PromptSession[str] = PromptSession(
            history=DummyHistory(),
            key_bindings=self._guarded_keys(),
            input=self._input,
            interrupt_exception=_Interrupted,
        )
        self._answers.app.after_render += self._drawn

    @contextlib.contextmanager
    def beside_output(self) -> Iterator[None]:
        """Print everything inside this context above the line, and keep every key that is pressed for the line."""
        before = sys.stdout
        with self._input.raw_mode(), StdoutProxy(sleep_between_writes=_SOON, raw=True) as above:
            sys.stdout = above
            try:
                yield
            finally:
                sys.stdout = before

    async def read(self, prompt: str, until: Callable[[], bool], *, answer: bool = False) -> str | None:
        """Return the typed line, or None as soon as `until` is true after a change. With `answer`, keys that were
        typed ahead do not count. Raise EOFError for Ctrl-D in an empty line, and KeyboardInterrupt for Ctrl-C.
        """
        session = self._answers if answer else self._prompts
        if answer:
            clear_typeahead(session.input)
            if os.isatty(0):
                termios.tcflush(0, termios.TCIFLUSH)
            self._last, self._open = None, False
        typed = "" if answer else self._typed
        reading = asyncio.ensure_future(session.prompt_async(prompt, default=typed, handle_sigint=False))
        try:
            while not until():
                self._changed.clear()
                change = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait((reading, change), return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                if reading.done():
                    self._typed = "" if not answer else self._typed
                    return reading.result()
            return None
        except _Interrupted:
            raise KeyboardInterrupt from None
        finally:
            if not reading.done():
                self._typed = self._typed if answer else session.default_buffer.text
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    def _drawn(self, _: object) -> None:
        """Let the wait begin when a question is drawn for the first time."""
        if self._last is None:
            self._last = time.monotonic()

    def _guarded_keys(self) -> KeyBindings:
        """Return the bindings that ignore keys until half a second has passed without one."""
        keys = KeyBindings()

        def early() -> bool:
            if not self._open:
                now = time.monotonic()
                self._open, self._last = self._last is not None and now - self._last >= _QUIET, now
            return not self._open

        guarded = Condition(lambda: not self._open)

        def ignore(event: KeyPressEvent) -> None:
            if not early():
                event.app.key_processor.feed(event.key_sequence[0], first=True)

        def pasted(event: KeyPressEvent) -> None:
            self._last, self._open = time.monotonic(), False

        for key in (Keys.Any, Keys.ControlM, Keys.ControlJ):
            keys.add(key, filter=guarded, eager=True)(ignore)
        keys.add(Keys.BracketedPaste, eager=True)(pasted)
        return keys


def _prompt_keys(input: _RawInput) -> KeyBindings:
    """Return the bindings that insert pasted text with its newlines and suspend the program."""
    keys = KeyBindings()

    @keys.add(Keys.BracketedPaste)
    def paste(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(event.data.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n"))

    @keys.add("c-z")
    def suspend(event: KeyPressEvent) -> None:
        run_in_terminal(input.suspend)

    return keys
