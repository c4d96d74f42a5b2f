"""The launch of an agent from the command line: on one prompt, or as a conversation at the terminal."""

import os
import sys
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING

from runner.agent.model_choice import ask_on_terminal
from runner.agent.startup import RunArgs, SessionStart, prepare_start
from runner.frontends.output_file import Outlets
from runner.frontends.prompt_input import prompt_input
from runner.frontends.terminal.probe import at_terminal, spell_out
from runner.problems import Exit, Stopped, usage
from runner.providers.key_options import is_stdin, take_terminal
from runner.stderr import unwritten
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.approval.approver import Approver, ReadLine
    from runner.engine.steering import UserInput
    from runner.events import Emit, Event
    from runner.frontends.jsonl.writer import JsonLines
    from runner.loop import Ending


class OutputForm(StrEnum):
    """The output of a run. `text`: the answer alone on stdout, and everything else on stderr. `full`: everything on
    stdout. `json`: one event per line on stdout.
    """

    TEXT = "text"
    FULL = "full"
    JSON = "json"


def start_run(
    args: RunArgs,
    prompt: str | None,
    prompt_file: Path | None,
    form: OutputForm | None = None,
    last_message: str | None = None,
) -> int:
    """Work on one prompt, and return the exit code.

    `form` is by default `full` at a terminal, and `text` otherwise; `args.json` takes precedence. The answer is also
    written to the file `last_message`. Raise Stopped if the prompt, the settings or the file cannot be used.
    """
    import asyncio

    from runner.frontends.plain.answer_apart import AnswerApart
    from runner.gate.gate import folder, is_unattended
    from runner.state.workspace import workspace_at
    from runner.text.sanitize import visible_prose

    form = form or (OutputForm.FULL if os.isatty(1) else OutputForm.TEXT)
    with ExitStack() as stack:
        lines: JsonLines | None = None
        if args.json:
            from runner.frontends.jsonl import writer

            lines = stack.enter_context(writer.JsonLines())
        args.key.check(prompt_from_stdin=is_stdin(prompt_file) if prompt_file else prompt is None)
        words = prompt_input(prompt, prompt_file, with_stdin=not args.key.from_stdin)
        # The file may be in the workspace: its text is by the model, as is every file that its commands write there.
        workspace = workspace_at(str(folder(args.cwd)), os.environ)
        files = Outlets.opened({"--last-message": last_message}, workspace, os.environ, inside_too=True)
        outlet = stack.enter_context(files).get("--last-message")
        unattended = is_unattended(args.unattended)
        asks = not (unattended or args.json) and os.isatty(0) and os.isatty(2)
        start = prepare_start(args, unattended=unattended, choose=ask_on_terminal if asks else None, notes=True)
        apart = lines is None and form is OutputForm.TEXT
        emit = lines or (AnswerApart(guarded(transcript(sys.stderr))) if apart else guarded(transcript()))
        ending = asyncio.run(play(words, start, approver_for(unattended, emit), emit, lines, urls=args.urls))
        if ending.exit is Exit.INTERRUPTED and lines is not None:
            lines.hurry()
        if outlet is not None:
            outlet.write(f"{ending.text}\n".encode("utf-8", "backslashreplace") if ending.text else b"")
        if apart and ending.text:
            print(visible_prose(ending.text), flush=True)
        return ending.exit


async def play(
    prompt: "UserInput",
    start: SessionStart,
    approver: "Approver",
    emit: "Emit",
    lines: "JsonLines | None" = None,
    *,
    urls: tuple[str, ...] = (),
) -> "Ending":
    """Work on one prompt in the session of `start`, and return the end of the run. The pages at `urls` are attached to
    the prompt; raise Stopped for a page that cannot be attached.

    Signals that end a program cancel the run, as Ctrl-C does, and so does a closed reader of `lines`.
    """
    from runner.agent.agent import Agent
    from runner.frontends.signals import end_by_signals

    end = end_by_signals()
    if lines is not None:
        lines.when_lost(end)
    async with Agent(approver=approver, emit=emit, start=lambda: start) as agent:
        for url in urls:
            await agent.conversation.attach(url)
        return await agent.conversation.prompt(prompt.text, prompt.typed)  # returns normally for a stopped run, too


def start_conversation(args: RunArgs) -> int:
    """Run a conversation at the terminal until the user leaves, and return the exit code.

    Raise Stopped if there is no terminal, or the settings cannot be used.
    """
    import asyncio

    args.key.check(prompt_from_stdin=False)
    if not args.plain and at_terminal():
        from runner.frontends.tui.fast_start import hushed
        from runner.frontends.tui.start import start_terminal

        with hushed() as early:  # the terminal would show its own reply to the program's query
            return start_terminal(lambda: args, early, args.prompt)
    from runner.agent.agent import Agent

    start = prepare_start(args, unattended=False, choose=ask_on_terminal if os.isatty(0) else None, notes=True)
    if not os.isatty(0) and not take_terminal():
        fix = "give a prompt, or start `agent` at a terminal"
        raise usage("there is no user to answer", "standard input was the key, and there is no terminal", fix)
    spell_out()
    emit = guarded(transcript(recalls=True))
    # A typed prompt is on the screen already.
    emit_others: Emit = lambda event: None if event.type == "prompted" else emit(event)  # noqa: E731  # a filter

    async def work() -> int:
        from runner.frontends.plain.line_input import line_reader
        from runner.frontends.plain.repl import converse
        from runner.frontends.signals import end_by_signals

        end_by_signals()
        async with Agent(approver=approver_for(False, emit), emit=emit_others, start=lambda: start) as agent:
            for url in args.urls:
                await agent.conversation.attach(url)
            code = await converse(agent, _with_prompt(line_reader(), args.prompt))
            session = agent.conversation.ctx.journal.kept
        if session is not None:
            print(f"\nto continue: agent --resume {session[:8]}")
        return code

    try:
        return asyncio.run(work())
    except asyncio.CancelledError:  # by a signal
        return Exit.INTERRUPTED


def _with_prompt(read: "ReadLine", prompt: str | None) -> "ReadLine":
    """Return a reader whose first line is `prompt`, which is shown as if it was typed; `read` for None."""
    first = [prompt] if prompt is not None else []

    async def line(shown: str) -> str:
        if not first:
            return await read(shown)
        print(f"{shown}{visible(first[0])}")
        return first.pop()

    return line


def guarded(show: "Emit") -> "Emit":
    """Return a function that shows every event with `show`.

    If the output cannot be written, the function raises BrokenPipeError or Stopped, which ends the session. For a piece
    of command output, it raises the error with the next event of another kind.
    """
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


def transcript(stream: "IO[str] | None" = None, *, recalls: bool = False) -> "Emit":
    """Return a renderer that draws events on `stream`, or on standard output; `recalls` as for Transcript."""
    from rich.console import Console

    from runner.frontends.plain.transcript import Transcript

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise  # re-raise the BrokenPipeError that is being handled; rich would exit here

    return Transcript(Output(file=stream), recalls=recalls)


def approver_for(unattended: bool, emit: "Emit", *, model: bool = True) -> "Approver":
    """Return the approver of a plain terminal, or that of a run without a user. `model` is as in `Terminal`."""
    from runner.approval.approver import Unattended
    from runner.approval.terminal import Terminal

    if unattended:
        return Unattended(emit)
    from rich.console import Console

    from runner.frontends.plain.line_input import line_reader

    return Terminal(Console(stderr=True), line_reader(forget=True), model=model)
