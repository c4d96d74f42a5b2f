"""The launch of an agent from the command line: on one prompt, or as a conversation at the terminal."""

import os
import stat
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

from runner.agent.startup import RunArgs, SessionStart, prepare_start
from runner.frontends.terminal.probe import at_terminal, spell_out
from runner.problems import Exit, Stopped, usage
from runner.providers.key_options import is_stdin, take_terminal
from runner.stderr import unwritten
from runner.text.phrases import os_reason

if TYPE_CHECKING:
    from runner.approval.approver import Approver
    from runner.events import Emit, Event
    from runner.frontends.jsonl.writer import JsonLines
    from runner.loop import Ending

_LONGEST_PROMPT = 1 << 20  # bytes


def start_run(args: RunArgs, prompt: str | None, prompt_file: Path | None) -> int:
    """Work on one prompt, and return the exit code. Raise Stopped if the prompt or the settings cannot be used."""
    import asyncio

    from runner.gate.gate import is_unattended

    with ExitStack() as stack:
        lines: JsonLines | None = None
        if args.json:
            from runner.frontends.jsonl import writer

            lines = stack.enter_context(writer.JsonLines())
        args.key.check(prompt_from_stdin=is_stdin(prompt_file) if prompt_file else prompt is None)
        text = prompt_text(prompt, prompt_file)
        unattended = is_unattended(args.unattended)
        start = prepare_start(args, unattended=unattended)
        emit = lines or on_stdout()
        code = asyncio.run(play(text, start, _approver(unattended, emit), emit, lines)).exit
        if code is Exit.INTERRUPTED and lines is not None:
            lines.hurry()
        return code


async def play(
    prompt: str, start: SessionStart, approver: "Approver", emit: "Emit", lines: "JsonLines | None" = None
) -> "Ending":
    """Work on one prompt in the session of `start`, and return the end of the run.

    Signals that end a program cancel the run, as Ctrl-C does, and so does a closed reader of `lines`.
    """
    from runner.agent.agent import Agent
    from runner.frontends.signals import end_by_signals

    end = end_by_signals()
    if lines is not None:
        lines.when_lost(end)
    async with Agent(approver=approver, emit=emit, start=lambda: start) as agent:
        return await agent.conversation.prompt(prompt)  # returns normally for a stopped run, too


def start_conversation(args: RunArgs) -> int:
    """Run a conversation at the terminal until the user leaves, and return the exit code.

    Raise Stopped if there is no terminal, or the settings cannot be used.
    """
    import asyncio

    args.key.check(prompt_from_stdin=False)
    if not args.plain and at_terminal():
        from runner.frontends.tui.start import start_terminal

        return start_terminal(lambda: args)
    from runner.agent.agent import Agent

    start = prepare_start(args, unattended=False)
    if not os.isatty(0) and not take_terminal():
        fix = "give a prompt, or start `agent` at a terminal"
        raise usage("there is no user to answer", "standard input was the key, and there is no terminal", fix)
    spell_out()
    emit = on_stdout()
    # A typed prompt is on the screen already.
    emit_others: Emit = lambda event: None if event.type == "prompted" else emit(event)  # noqa: E731  # a filter

    async def work() -> int:
        from runner.frontends.plain.line_input import line_reader
        from runner.frontends.plain.repl import converse
        from runner.frontends.signals import end_by_signals

        end_by_signals()
        async with Agent(approver=_approver(False, emit), emit=emit_others, start=lambda: start) as agent:
            code = await converse(agent, line_reader())
            session = agent.conversation.ctx.journal.kept
        if session is not None:
            print(f"\nto continue: agent --resume {session[:8]}")
        return code

    try:
        return asyncio.run(work())
    except asyncio.CancelledError:  # by a signal
        return Exit.INTERRUPTED


def on_stdout(show: "Emit | None" = None) -> "Emit":
    """Return a function that shows every event with `show`, which is by default a transcript on standard output.

    If the output cannot be written, the function raises BrokenPipeError or Stopped, which ends the session. For a piece
    of command output, it raises the error with the next event of another kind.
    """
    show = show or transcript()
    broken: list[Exception] = []

    def emit(event: "Event") -> None:
        chunk = event.type == "output"
        if broken:
            if chunk:
                return
            raise broken[0]
        try:
            show(event)
        except OSError as error:
            gone = isinstance(error, BrokenPipeError)
            broken.append(error if gone else Stopped(unwritten(error), Exit.FAILED))
            if not chunk:  # output comes through a callback of the event loop, where an exception is lost
                raise broken[0] from None

    return emit


def transcript(stream: "IO[str] | None" = None) -> "Emit":
    """Return a renderer that draws events on `stream`, or on standard output."""
    from rich.console import Console

    from runner.frontends.plain.transcript import Transcript

    class Stdout(Console):
        def on_broken_pipe(self) -> None:
            raise  # re-raise the BrokenPipeError that is being handled; rich would exit here

    return Transcript(Stdout(file=stream))


def _approver(unattended: bool, emit: "Emit") -> "Approver":
    from runner.approval.approver import Terminal, Unattended

    if unattended:
        return Unattended(emit)
    from rich.console import Console

    from runner.frontends.plain.line_input import line_reader

    return Terminal(Console(stderr=True), line_reader(forget=True))


def prompt_text(prompt: str | None, file: Path | None) -> str:
    """Return the text of the prompt: the argument, else the file, else standard input.

    Raise Stopped if there are two prompts or none, if the text is empty, or if the file or standard input cannot be
    read, is longer than 1 MiB or is not UTF-8.
    """
    if prompt is not None and file is not None:
        raise usage("there are two prompts", "one is on the command line and one in --prompt-file", "give only one")
    if prompt is not None:
        text = prompt
    elif file is not None:
        text = _text_of(file, f"`{file}`")
    elif stat.S_ISCHR(os.fstat(0).st_mode):  # a terminal, or /dev/null
        raise usage(
            "there is no prompt",
            "none was given, and standard input is neither a pipe nor a file",
            f'write agent {_command()} "what to do", or add --prompt-file FILE',
        )
    else:
        text = _text_of(0, "standard input")
    if not text.strip():
        raise usage("the prompt is empty", "there is no task", f'write agent {_command()} "what to do"')
    return text


def _command() -> str:
    return "ci" if sys.argv[1:2] == ["ci"] else "run"


def _text_of(file_or_fd: Path | int, name: str) -> str:
    try:
        with open(file_or_fd, "rb", closefd=file_or_fd != 0) as file:
            data = file.read(_LONGEST_PROMPT + 1)
    except OSError as error:
        raise usage(f"the prompt {name} cannot be read", os_reason(error), "check the path") from None
    if len(data) > _LONGEST_PROMPT:
        raise usage(f"the prompt in {name} is longer than 1 MiB", "no model takes as much", "let the model read a file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise usage(f"the prompt in {name} is not text", "it is not UTF-8", "save it as UTF-8 text") from None
