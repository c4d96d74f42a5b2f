"""The question about a repository's files on a terminal, line by line."""

import os
import sys
from collections.abc import Callable
from enum import Enum

from runner.config.trust.evaluate import Brought
from runner.config.trust.text import contents, description, summary
from runner.stderr import say

# Shows a prompt and returns one line without its end. Raises EOFError at the end of input.
ReadLine = Callable[[str], str]

_PROMPT = "use it, exactly as it is now? [yes / no / show / quit] "
_EXPLAINED = """\
  yes   use what is listed, until one byte of it changes
  no    go on without it; you are not asked about this content again (`agent trust revoke` forgets the answer)
  show  print the files whole
  quit  leave"""


class Said(Enum):
    YES = "yes"
    NO = "no"
    QUIT = "quit"


Asker = Callable[[Brought], Said]  # in another way than line by line


def ask(brought: Brought, read_line: ReadLine) -> Said:
    """Show everything and wait for a clear answer. The end of input is `quit`; nothing else is taken for one."""
    head = "this repository brings things that count only when you trust them"
    say("\n".join([head, *description(brought, brief=True), "", summary(brought)]))
    while True:
        try:
            text = read_line(_PROMPT).strip().lower()
        except EOFError:
            say("")
            return Said.QUIT
        match text:
            case "y" | "yes":
                return Said.YES
            case "n" | "no":
                return Said.NO
            case "q" | "quit":
                return Said.QUIT
            case "s" | "show":
                say("\n".join([*contents(brought), ""]))
            case _:
                say(_EXPLAINED)


def typed_line(prompt: str) -> str:
    """Read one line from the terminal. Text that was typed before the question appeared is discarded."""
    if os.isatty(0):
        import termios

        termios.tcflush(0, termios.TCIFLUSH)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line
