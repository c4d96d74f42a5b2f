"""One research run: the temporary workspace, what is put into it, the session, and the output."""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from policy.flow.state import FlowMode
from policy.model.assessment import RuleKind, RuleRef
from policy.model.profile import Layer, PermissionRule, Tool
from policy.model.tier import Mode, Ruling
from policy.permission.hosts import PUBLIC
from runner.agent.startup import RunArgs, SessionStart, chosen_model, opener, prepare_options, with_session
from runner.approval.approver import Unattended
from runner.engine.context.context import Context, SourcedText
from runner.frontends.launch import guarded, play, transcript
from runner.frontends.output_file import Outlet, Outlets
from runner.frontends.plain.answer_apart import AnswerApart
from runner.frontends.prompt_input import prompt_input
from runner.frontends.research.clone import Clone, CloneError, check_out, fetch, place, words_left_out
from runner.frontends.research.prompts import repo_prompt, web_prompt
from runner.frontends.research.sources import SourceList
from runner.problems import Exit, usage
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider
from runner.stderr import print_problem, say
from runner.text.sanitize import visible, visible_prose

if TYPE_CHECKING:
    from runner.agent.open_session import SessionOptions
    from runner.config import Settings
    from runner.engine.run_context import RunContext
    from runner.engine.steering import UserInput
    from runner.events import Emit
    from runner.frontends.jsonl.writer import JsonLines
    from runner.frontends.research.address import RepositoryAddress
    from tools.tool import ModelTool

# The user asked for the web. Denials of the user hold, and private networks are open to no rule of this kind.
WEB_RULE = PermissionRule(
    Ruling.ALLOW,
    RuleRef(RuleKind.FLAG, "agent web"),
    Layer.TYPED,
    tool=(Tool.WEB_FETCH.value, Tool.WEB_SEARCH.value),
    host=(PUBLIC,),
)


def start_repo(
    args: RunArgs, url: str, question: str | None, *, full: bool, keep: bool, last: str | None = None
) -> int:
    """Answer a question about the repository at `url`, and return the exit code. Raise a usage error."""
    from runner.frontends.research.address import repository_address
    from tools.git import GIT_TOOLS

    address = repository_address(url, os.getcwd())
    tools = (*_reading_tools(), *GIT_TOOLS)
    with ExitStack() as stack:
        words, outlets = _inputs(args, question, last)
        files = stack.enter_context(outlets)
        top = stack.enter_context(_temporary("repo", keep=keep))
        run = _Research(args, top, tools)
        try:
            clone = asyncio.run(_cloned(address, run, full=full))
        except CloneError as error:
            print_problem(error.problem)
            return Exit.FAILED
        folder = f"{top}/{address.name}"
        left_out = words_left_out(clone)
        if left_out:
            say(left_out)
        prompt = repo_prompt(address.url, clone.commit or "unknown", left_out, full=full)
        name = f"{address.url} at {clone.commit[:12]}"
        return run.answer(words, Path(folder), prompt, files.get("--last-message"), name, foreign=address.url)


def start_web(args: RunArgs, question: str | None, *, keep: bool, last: str | None = None) -> int:
    """Answer a question by reading the web, and return the exit code. Raise a usage error."""
    from runner.web.session_web import usable

    if not usable():
        why, fix = "the libraries for pages are not installed", "install the extra `web`"
        raise usage("`agent web` cannot be used", why, fix)
    with ExitStack() as stack:
        words, outlets = _inputs(args, question, last)
        files = stack.enter_context(outlets)
        top = stack.enter_context(_temporary("web", keep=keep))
        run = _Research(args, top, _reading_tools(), (WEB_RULE,), web=True)
        web = run.settings.value("web", "fetch"), run.settings.value("web", "search")
        if not any(web):
            why = "`[web]` in your configuration switches both tools off"
            raise usage("`agent web` cannot be used", why, "set `fetch` or `search` in `[web]`")
        prompt = web_prompt(searches=web[1] is not None)
        return run.answer(words, Path(top), prompt, files.get("--last-message"), "", urls=args.urls)


async def _cloned(address: "RepositoryAddress", run: "_Research", *, full: bool) -> Clone:
    """Clone the repository into its folder and check it out, each step in a session of its own."""
    from runner.agent.open_session import open_session
    from runner.frontends.signals import end_by_signals

    end_by_signals()
    say(visible(f"cloning {address.url}{'' if full else ' (latest commit only)'}", lines=False))
    approver = Unattended(lambda event: None)

    def inside(folder: str) -> "contextlib.AbstractAsyncContextManager[RunContext]":
        options = replace(run.options, cwd=Path(folder), mode=Mode.DEFAULT, output=None)
        model = OpenModel(ScriptedProvider(()), "none")
        return open_session(options, run.settings, os.environ, model=model, approver=approver, emit=lambda event: None)

    async with inside(run.top) as ctx:
        await fetch(address, ctx, full=full)
    async with inside(place(run.top, address.name)) as ctx:
        return await check_out(ctx)


class _Research:
    """The settings of one run. The configuration is that of the user; nothing in the workspace is configuration."""

    def __init__(
        self,
        args: RunArgs,
        top: str,
        tools: "tuple[ModelTool, ...]",
        rules: "tuple[PermissionRule, ...]" = (),
        *,
        web: bool = False,
    ) -> None:
        self.top = top
        args = replace(args, cwd=top, mode=Mode.DONT_ASK)
        options, settings = prepare_options(args, True, repository=False)
        self.settings: Settings = replace(
            settings,
            profile=replace(settings.profile, credentials=(), permissions=(*settings.profile.permissions, *rules)),
            # Everything here is untrusted, and the folder has no private data: `guard` would only stop the reading.
            values={**settings.values, ("flow",): FlowMode.NOTE.value},
        )
        self._model = chosen_model(args, self.settings, options.cwd)
        self._another = opener(args, self.settings, options.cwd, self._model)
        options, _ = with_session(args, options, self.settings, lambda own: self._model)
        self.json = args.json
        self.options: SessionOptions = replace(
            options, tools=tools, servers=(), agents=(), hooks=None, bundles=(), notes=False, code=False, web=web,
            instructions="", context=Context(), source=None,
        )  # fmt: skip

    def answer(
        self,
        words: "UserInput",
        folder: Path,
        prompt: str,
        outlet: Outlet | None,
        name: str,
        *,
        foreign: str = "",
        urls: tuple[str, ...] = (),
    ) -> int:
        """Let the model answer in the workspace `folder`, print the answer with its sources, and return the code.

        The pages at `urls` are attached to the question.
        """
        context = Context(base=SourcedText("ringfence", prompt))
        options = replace(self.options, cwd=folder, context=context, foreign=foreign)
        start = SessionStart(options, self.settings, os.environ, self._model, self._another)
        with ExitStack() as stack:
            lines: JsonLines | None = None
            if self.json:
                from runner.frontends.jsonl import writer

                lines = stack.enter_context(writer.JsonLines())
            show: Emit = lines or AnswerApart(guarded(transcript(sys.stderr)))
            sources = SourceList(show, str(folder), name, urls)
            ending = asyncio.run(play(words, start, Unattended(sources), sources, lines, urls=urls))
            if ending.exit is Exit.INTERRUPTED and lines is not None:
                lines.hurry()
            text = ending.text
            if text and options.output is None and (listed := sources.text()):
                text = f"{text.rstrip()}\n\n{listed}"
            if outlet is not None:
                outlet.write(f"{text}\n".encode("utf-8", "backslashreplace") if text else b"")
            if lines is None and text:
                print(visible_prose(text), flush=True)
            return ending.exit


def _reading_tools() -> "tuple[ModelTool, ...]":
    """Return the tools that read the workspace."""
    from tools import TOOLS

    return tuple(tool for tool in TOOLS if tool.name in ("read", "grep", "glob", "ls"))


def _inputs(args: RunArgs, question: str | None, last: str | None) -> "tuple[UserInput, Outlets]":
    """Return the question and the open output file. Raise a usage error."""
    from runner.state.workspace import workspace_at

    args.key.check(prompt_from_stdin=question is None)
    words = prompt_input(question, None, with_stdin=not args.key.from_stdin)
    here = workspace_at(os.getcwd(), os.environ)
    return words, Outlets.opened({"--last-message": last}, here, os.environ, inside_too=True)


@contextlib.contextmanager
def _temporary(kind: str, *, keep: bool) -> Iterator[str]:
    """Yield the path of a new folder that only this user can enter. It is removed at the end unless `keep`."""
    top = os.path.realpath(tempfile.mkdtemp(prefix=f"ringfence-{kind}-"))
    try:
        yield top
    finally:
        if keep:
            say(f"the workspace is kept: {visible(top, lines=False)}")
        else:
            shutil.rmtree(top, ignore_errors=True)
            if os.path.lexists(top):
                say(f"the workspace could not be removed completely: {visible(top, lines=False)}")
