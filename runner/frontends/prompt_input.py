"""The prompt of a run from the command line: an argument or a file, with standard input behind it."""

import os
import re
import select
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.problems import usage
from runner.providers.key_options import is_stdin
from runner.stderr import say
from runner.text.phrases import many, os_reason

if TYPE_CHECKING:
    from runner.engine.steering import UserInput

_LONGEST_PROMPT = 1 << 20  # bytes
_SILENCE = 2.0  # seconds without input before the user is told what the program waits for


def prompt_input(prompt: str | None, file: Path | None, *, with_stdin: bool = True) -> "UserInput":
    """Return the prompt: the argument, else the file, else standard input.

    With `with_stdin`, standard input is appended to an argument or a file if it is a pipe or a file. Raise Stopped if
    there are two prompts or none, if the text is empty, or if an input cannot be read, is longer than 1 MiB or is not
    UTF-8.
    """
    from runner.engine.steering import STANDARD_INPUT, UserInput

    if prompt is not None and file is not None:
        raise usage("there are two prompts", "one is on the command line and one in --prompt-file", "give only one")
    text = prompt if prompt is not None else _text_of(file, f"`{file}`") if file is not None else _stdin_prompt()
    if not text.strip():
        raise usage("the prompt is empty", "there is no task", f'write agent {_command()} "what to do"')
    if not with_stdin or (prompt is None and (file is None or is_stdin(file))):
        return UserInput(text)
    appended = _stdin_beside_prompt()
    if not appended.strip():
        return UserInput(text)
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", appended)), 0)
    whole = f"{text}{STANDARD_INPUT}{fence}\n{appended.removesuffix(chr(10))}\n{fence}"
    if len(whole.encode("utf-8", "surrogatepass")) > _LONGEST_PROMPT:
        raise _too_long("standard input")
    return UserInput(whole, f"{text}\n[standard input: {many(len(appended.splitlines()), 'line')}]")


def _stdin_prompt() -> str:
    if stat.S_ISCHR(os.fstat(0).st_mode):  # a terminal, or /dev/null
        raise usage(
            "there is no prompt",
            "none was given, and standard input is neither a pipe nor a file",
            f'write agent {_command()} "what to do", or add --prompt-file FILE',
        )
    return _text_of(0, "standard input")


def _stdin_beside_prompt() -> str:
    """Return the text of standard input, if it is a pipe or a file, else an empty text."""
    kind = os.fstat(0).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind) or stat.S_ISREG(kind)):
        return ""
    if not select.select((0,), (), (), _SILENCE)[0]:
        say("waiting for standard input, which is appended to the prompt (without input, add: < /dev/null)")
    return _text_of(0, "standard input")


def _command() -> str:
    return "ci" if sys.argv[1:2] == ["ci"] else "run"


def _text_of(file_or_fd: Path | int, name: str) -> str:
    try:
        with open(file_or_fd, "rb", closefd=file_or_fd != 0) as file:
            data = file.read(_LONGEST_PROMPT + 1)
    except OSError as error:
        raise usage(f"the prompt {name} cannot be read", os_reason(error), "check the path") from None
    if len(data) > _LONGEST_PROMPT:
        raise _too_long(name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise usage(f"the prompt in {name} is not text", "it is not UTF-8", "save it as UTF-8 text") from None


def _too_long(name: str) -> Exception:
    return usage(f"the prompt in {name} is longer than 1 MiB", "no model takes as much", "let the model read a file")
