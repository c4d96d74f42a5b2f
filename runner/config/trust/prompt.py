"""The question about a repository's files on a terminal, line by line."""

import os
import sys
from collections.abc import Callable
from enum import Enum

from runner.config.trust.evaluate import TrustReview
from runner.config.trust.text import HEADING, QUESTION, contents, description, summary
from runner.stderr import say

# Shows a prompt and returns one line without its end. Raises EOFError at the end of input.
LineReader = Callable[[str], str]

_PROMPT = f"{QUESTION} [yes / no / show / quit] "
_EXPLAINED = """\
  yes   use the listed files until they change
  no    continue without them; you are not asked about this content again (`agent trust revoke` deletes the answer)
  show  print the complete files
  quit  exit"""


class TrustReply(Enum):
    YES = "yes"
    NO = "no"
    QUIT = "quit"


Asker = Callable[[TrustReview], TrustReply]  # asks with another front end


def ask(review: TrustReview, read_line: LineReader) -> TrustReply:
    """Show the files, ask, and return the answer. The question is repeated after unclear input. End of input is
    QUIT.
    """
    say("\n".join([HEADING, *description(review, brief=True), "", summary(review)]))
    while True:
        try:
            text = read_line(_PROMPT).strip().lower()
        except EOFError:
            say("")
            return TrustReply.QUIT
        match text:
            case "y" | "yes":
                return TrustReply.YES
            case "n" | "no":
                return TrustReply.NO
            case "q" | "quit":
                return TrustReply.QUIT
            case "s" | "show":
                say("\n".join([*contents(review), ""]))
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
