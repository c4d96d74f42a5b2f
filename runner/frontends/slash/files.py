"""The commands about the files of a session: /undo, /rewind, /diff, /export, /init."""

import asyncio
import contextlib
import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from runner.changes.file_state import Change
from runner.frontends.slash.command import CommandHost, Mistake, Row, SlashCommand, say
from runner.sessions.rewind import RewindPoint
from runner.sessions.selection import SessionSelection
from runner.text.phrases import many

T = TypeVar("T")

_INIT = """\
Write a file AGENTS.md for this repository, for coding agents that will work here. Look at the repository first: its
README, build files, tests, CI and a few sources. Put into it, briefly: what the project is, how it is laid out, the
exact commands to build, test, lint and run (only those that you found or tried), the conventions that the code shows,
and what to be careful about. If there is an AGENTS.md already, improve it and keep what is right. No guesses."""


async def _undo(words: str, host: CommandHost) -> None:
    """Restore the files as they were before the last action of this session, or the last N. The model is informed."""
    keeper = host.conversation.ctx.undo
    if keeper is None:
        raise Mistake("this session stores no changes, so nothing can be undone")
    count = words or "1"
    if not count.isascii() or not count.isdigit() or not int(count[:9]) >= 1:
        raise Mistake(f"`{words}` is not a number of actions; write /undo, or /undo 3")
    _, lines = await _to_its_end(partial(keeper.rewind, int(count[:9]), _UndoInLoop(host, "/undo")))
    say(host, *lines)


class _UndoInLoop:
    """The recorder of an undo that runs in another thread. It writes the log of the session in the thread of the event
    loop, which owns it.
    """

    def __init__(self, host: CommandHost, command: str) -> None:
        from runner.audit.undo_record import UndoRecord

        ctx = host.conversation.ctx
        self._record = UndoRecord(
            lambda: contextlib.nullcontext(ctx.audit),
            ctx.session,
            ctx.look().workspace,
            command,
            lambda text: say(host, text),
        )
        self._loop = asyncio.get_running_loop()

    def begin(self, changes: Sequence[Change], steps: int) -> None:
        self._in_loop(partial(self._record.begin, changes, steps))

    def end(self, changes: Sequence[Change]) -> None:
        self._in_loop(partial(self._record.end, changes))

    def _in_loop(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()


async def _to_its_end(work: Callable[[], T]) -> T:
    """Run `work` in a thread until its end, even if the command is stopped, so that no undo is incomplete or
    unreported.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()


async def _rewind(words: str, host: CommandHost) -> None:
    """Go back to an earlier prompt: files, conversation, or both. With a number, do the same as /undo."""
    if words:
        await _undo(words, host)
        return
    marks = tuple(host.conversation.marks)
    if not marks:
        raise Mistake("this session has no prompt yet to return to")
    keeper = host.conversation.ctx.undo
    taken = await asyncio.to_thread(keeper.actions) if keeper is not None else ()
    rows = []
    for place, mark in reversed(tuple(enumerate(marks))):
        count = _since(taken, mark)
        rows.append(Row(str(place), mark.text, f"{many(count, 'action')} changed files since" if count else ""))
    picked = await host.pick("return to before which prompt?", rows)
    if picked is None:
        return
    mark = marks[int(picked)]
    ways = (
        Row("both", "files and conversation", "as if the prompt had not been sent"),
        Row("talk", "the conversation only", "files stay unchanged"),
        Row("files", "the files only", "the model is told that the files were restored"),
        Row("copy", "nothing: continue in a copy", "this session and the files stay unchanged"),
    )
    how = await host.pick("what is restored?", ways)
    if how is None:
        return
    if mark not in host.conversation.marks or host.conversation.busy:
        raise Mistake("the conversation continued in the meantime; write /rewind again")
    if how == "copy":
        session = host.conversation.ctx.journal.kept
        if session is None or mark.leaf is None:
            raise Mistake("this session has no file yet, so it cannot be copied")
        await host.switch(SessionSelection(fork=session, upto=mark.leaf))
        host.draft(mark.text)
        return
    steps = _since(await asyncio.to_thread(keeper.actions), mark) if keeper is not None else 0
    if how != "talk" and keeper is not None and steps:
        done, lines = await _to_its_end(partial(keeper.rewind, steps, _UndoInLoop(host, "/rewind")))
        say(host, *lines)
        if not done:
            return  # the conversation does not go back either, to stay consistent with the files
    if how != "files":
        if how == "both" and keeper is not None:
            keeper.news()  # discard the news about the files: the model no longer knows of the changes
        host.conversation.rewind(mark)
        say(host, "the conversation continues from there; later messages stay in the session file")
        host.draft(mark.text)


def _since(steps: Sequence[int], mark: RewindPoint) -> int:
    """Return the number of `steps`, ordered newest first, that are later than `mark`."""
    return bisect_left(steps, -mark.step, key=lambda step: -step)


async def _diff(words: str, host: CommandHost) -> None:
    """Show the changes that this session's actions made to files, as a diff. Git is not needed."""
    from runner.events import Display

    keeper = host.conversation.ctx.undo
    if keeper is None:
        raise Mistake("this session stores no changes, so its changes are unknown; try `!git diff`")
    lines = await asyncio.to_thread(keeper.diff)
    if not lines:
        say(host, "this session's actions changed no file")
        return
    host.conversation.ctx.emit(Display("\n".join(lines), "diff"))


async def _export(words: str, host: CommandHost) -> None:
    """Write this session to a file, as Markdown, HTML or JSON Lines."""
    from pathlib import Path

    from runner.sessions.export import FORMATS, reading, write_new
    from runner.state.paths import state_dir

    parts = words.split(maxsplit=1)
    named = parts[0] if parts and parts[0] in FORMATS else None
    rest = parts[1] if named and len(parts) > 1 else "" if named else words
    kept = host.conversation.ctx.journal.kept
    if kept is None:
        if host.conversation.history:
            raise Mistake(
                "this copy of the session has no file yet: it gets one with your first prompt. To export the original "
                "now, run `agent sessions list` and `agent sessions export ID`"
            )
        raise Mistake("this session has no file, so it cannot be exported")
    format = named or (Path(rest).suffix[1:] if Path(rest).suffix[1:] in FORMATS else "md")
    target = Path(host.conversation.ctx.cwd, os.path.expanduser(rest) or f"session-{kept[:8]}.{format}")

    def written() -> int:
        with reading(state_dir(host.environ), kept) as session:
            return write_new(target, FORMATS[format](session))

    count = await asyncio.to_thread(written)
    say(host, f"written: {target} ({count:,} lines)", "known secrets are masked; check the file before you share it")


async def _init(words: str, host: CommandHost) -> None:
    """Have the model write AGENTS.md."""
    await host.send(f"{_INIT}\n\nAlso: {words}" if words else _INIT, f"/init {words}".rstrip())


_command = partial(SlashCommand, group="Files")

# fmt: off
COMMANDS = (
    _command("undo", "[N]", "undo file changes of the last N actions (default 1)", _undo, idle=True),
    _command("rewind", "[N]", "return to an earlier prompt, with or without files", _rewind, idle=True),
    _command("diff", "", "show the file changes of this session", _diff),
    _command("export", "[FORMAT] [FILE]", "write this session to a file: md, html or jsonl", _export,
             words=lambda host: ("md", "html", "jsonl")),
    _command("init", "[WISHES]", "let the model write an AGENTS.md", _init, sends=True),
)
# fmt: on
