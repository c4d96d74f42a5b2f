"""Starting a model: which one, on what prompt, watched by whom. The one `asyncio.run` of a session is here."""

import os
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from policy.record import dataclass
from policy.tier import Mode
from runner.budget_flags import BudgetFlags
from runner.key_flags import KeyFlags, is_stdin, take_terminal, wanted
from runner.problems import Exit, Stopped, usage
from runner.sessions.flags import GoOn
from runner.stderr import unwritten
from runner.tui.ground import at_terminal, spell_out

if TYPE_CHECKING:
    from runner.approval import Approver
    from runner.config import Settings
    from runner.events import Emit, Event
    from runner.json_output import JsonLines
    from runner.loop import Ending
    from runner.providers import Opened
    from runner.run_limits import RunLimits
    from runner.secrets import Secret
    from runner.session import SessionOptions
    from runner.trust.question import Asker

_LONGEST_PROMPT = 1 << 20


@dataclass(frozen=True, slots=True)
class RunArgs:
    """The options of `agent run` and of plain `agent`, as typed."""

    mode: Mode | None = None
    model: str | None = None
    provider: str | None = None
    json: bool = False
    unattended: bool = False
    cwd: str | None = None
    limits: tuple[str, ...] = ()
    config: str | None = None
    backend: str | None = None
    least: str | None = None
    go_on: GoOn = field(default_factory=GoOn)
    trust_config: str | None = None
    no_instructions: bool = False
    key: KeyFlags = field(default_factory=KeyFlags)
    budget: BudgetFlags = field(default_factory=BudgetFlags)
    plain: bool = False
    fallback: str | None = None


def start_run(args: RunArgs, prompt: str | None, prompt_file: Path | None) -> int:
    """Work on one prompt; answers the exit code."""
    if not args.json:
        return _run(args, prompt, prompt_file, None)
    from runner.json_output import JsonLines

    with JsonLines() as lines:
        return _run(args, prompt, prompt_file, lines)


def _run(args: RunArgs, prompt: str | None, prompt_file: Path | None, lines: "JsonLines | None") -> int:
    import asyncio

    from runner.gate import nobody_there

    args.key.check(prompt_from_stdin=is_stdin(prompt_file) if prompt_file else prompt is None)
    text = prompt_text(prompt, prompt_file)
    unattended = nobody_there(args.unattended)
    options, settings = prepared(args, unattended)
    model = chosen_model(args, settings, options.cwd)
    emit = lines or on_stdout()
    approver = _approver(unattended, emit)
    options = begun(args, options, settings, model)
    another = opener(args, settings, options.cwd, model)
    code = asyncio.run(
        play(
            text, options, settings, os.environ, model=model, approver=approver, emit=emit, opener=another, lines=lines
        )
    ).exit
    if code is Exit.INTERRUPTED and lines is not None:
        lines.hurry()
    return code


async def play(
    prompt: str,
    options: "SessionOptions",
    settings: "Settings",
    environ: Mapping[str, str],
    *,
    model: "Opened",
    approver: "Approver",
    emit: "Emit",
    opener: "Callable[[str], Opened] | None" = None,
    lines: "JsonLines | None" = None,
) -> "Ending":
    """One prompt in a session of its own, or in the one that it goes on with. Signals that end a program end it as
    Ctrl-C does; `lines` that nobody reads do, too."""
    from runner.agent import Agent
    from runner.farewell import end_by_signals
    from runner.starting import Start

    end = end_by_signals()
    if lines is not None:
        lines.when_lost(end)
    start = Start(options, settings, environ, model, opener)
    async with Agent(approver=approver, emit=emit, start=lambda: start) as agent:
        return await agent.talk.prompt(prompt)  # who was told to stop still learns how it ended


def start_conversation(args: RunArgs) -> int:
    """Talk at the terminal until the user leaves."""
    import asyncio

    args.key.check(prompt_from_stdin=False)
    if not args.plain and at_terminal():
        from runner.tui.start import start_terminal

        return start_terminal(lambda: args)
    from runner.agent import Agent
    from runner.starting import starting

    start = starting(args, unattended=False)
    if not os.isatty(0) and not take_terminal():
        fix = "name a prompt, or start it at a terminal"
        raise usage("there is nobody to talk to", "standard input was the key, and there is no terminal", fix)
    spell_out()
    emit = on_stdout()
    # What was typed is on the screen already.
    shown: Emit = lambda event: None if event.type == "prompted" else emit(event)  # noqa: E731  # a filter

    async def work() -> int:
        from runner.conversation import converse
        from runner.farewell import end_by_signals
        from runner.terminal_input import line_reader

        end_by_signals()
        async with Agent(approver=_approver(False, emit), emit=shown, start=lambda: start) as agent:
            code = await converse(agent, line_reader())
            kept = agent.talk.ctx.journal.kept
        if kept is not None:
            print(f"\nto go on: agent --resume {kept[:8]}")
        return code

    try:
        return asyncio.run(work())
    except asyncio.CancelledError:  # by a signal
        return Exit.INTERRUPTED


def begun(args: RunArgs, options: "SessionOptions", settings: "Settings", model: "Opened") -> "SessionOptions":
    """Choose the session that is gone on with, while nothing is open that a picker could disturb; and see the price."""
    from runner.budget import priced
    from runner.sessions.choice import beginning

    where = beginning(args.go_on, options.cwd, os.environ, model.named, unattended=options.unattended)
    return replace(options, beginning=where, bounds=priced(options.bounds, model, settings))


def prepared(
    args: RunArgs,
    unattended: bool,
    *,
    repository: bool = True,
    usual: "RunLimits | None" = None,
    asks: bool = True,
    asker: "Asker | None" = None,
) -> "tuple[SessionOptions, Settings]":
    """What flags and settings come to. Without `repository`, nothing that came with the folder counts, not even what
    tightens. `usual`: the bounds where nobody said any. `asks`: about trust, on this terminal, or by `asker`."""
    from functools import partial

    from runner.amounts import apply_limits
    from runner.budget import bounds
    from runner.config import load
    from runner.config.flags import said, with_flags
    from runner.context.given import given
    from runner.gate import folder, refuse_folder
    from runner.session import SessionOptions
    from runner.trust.start import Wish, started, workspace_at

    cwd = folder(args.cwd)
    config = Path(args.config) if args.config else None
    again = partial(load, cwd, os.environ, config=config, unattended=unattended, repository=repository)
    settings = again()
    refuse_folder(str(cwd), os.environ, settings.profile)
    wish = Wish(
        workspace=workspace_at(str(cwd), os.environ),
        attended=not unattended,
        pinned=args.trust_config,
        reads=bool(settings.value("instructions")) and not args.no_instructions,
        asks=asks,
        asker=asker,
        skilled=bool(settings.value("skills")),
        cwd=str(cwd),
    )
    instructions, brought = "", None
    if repository:
        settings, instructions, brought = started(wish, settings, os.environ, lambda trusted: again(trusted=trusted))
    told = given(brought, os.environ, skilled=bool(settings.value("skills")))
    settings = replace(settings, notices=(*settings.notices, *told.notices))
    flags = said(
        mode=args.mode,
        model=args.model,
        fallback=args.fallback,
        max_turns=args.budget.turns,
        budget=args.budget.said(),
        least=args.least,
        no_instructions=args.no_instructions,
        limits=args.limits,
        total=apply_limits(settings.profile.limits, args.limits),
    )
    settings = with_flags(settings, flags)
    options = SessionOptions(
        cwd=cwd,
        unattended=unattended,
        mode=args.mode,
        limits=args.limits,
        backend=args.backend,
        least=args.least,
        bounds=bounds(args.budget, settings, usual),
        argv=("agent", *sys.argv[1:]),
        instructions=instructions,
        context=told.context,
    )
    return options, settings


def chosen_model(args: RunArgs, settings: "Settings", cwd: Path, given: "Secret | None" = None) -> "Opened":
    """The model that flags and settings come to. `given`: the key that standard input held, once it was read."""
    from runner.providers import PROVIDERS, open_provider

    spec = args.model or args.provider or settings.model
    if args.model and args.provider and not args.model.startswith(f"{args.provider}:"):
        if args.model.partition(":")[0] in PROVIDERS:
            raise usage(
                f"`{args.model}` is not a model of `{args.provider}`",
                "--provider and --model name two providers",
                "leave --provider out, since --model says it too",
            )
        spec = f"{args.provider}:{args.model}"
    if not spec:
        raise usage(
            "no model is chosen",
            "neither --model nor --provider was given, and the configuration names none",
            "add for example --model anthropic:claude-sonnet-5-5, or try `agent demo`, which needs no model",
        )
    if ":" not in spec and spec in settings.models:
        spec = f"{spec}:{settings.models[spec]}"
    name = spec.strip().partition(":")[0]
    key = wanted(settings, name, os.environ, cwd, args.key)
    key = key if given is None else replace(key, stdin_key=given)
    api = settings.value("provider", "openai", "api") if name == "openai" else None
    url = settings.base_urls.get(name)
    return open_provider(spec, base_url=url, environ=os.environ, key=key, api=str(api) if api else None)


def opener(args: RunArgs, settings: "Settings", cwd: Path, first: "Opened") -> "Callable[[str], Opened]":
    """Opens another model in the session that began with `first`.

    THREAT T21: what was said about the key (--api-key-stdin, --account) is about the provider of the first model;
    another one's server is never sent that key. Standard input is not read again.
    """

    def another(spec: str) -> "Opened":
        same = spec.strip().partition(":")[0] == first.provider.name
        flags = args.key if same and not args.key.from_stdin else KeyFlags()
        given = first.secrets[0] if same and args.key.from_stdin and first.secrets else None
        return chosen_model(replace(args, model=spec, provider=None, key=flags), settings, cwd, given)

    return another


def on_stdout(show: "Emit | None" = None) -> "Emit":
    """Shows every event on standard output, by `show` where somebody has a way of its own. When that takes no more,
    BrokenPipeError or Stopped ends the session."""
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
            if not chunk:  # output comes through a callback of the event loop, where nobody would catch it
                raise broken[0] from None

    return emit


def transcript(stream: "IO[str] | None" = None) -> "Emit":
    """Draws events on `stream`, else on standard output."""
    from rich.console import Console

    from runner.transcript import Transcript

    class Stdout(Console):
        def on_broken_pipe(self) -> None:
            raise  # called while BrokenPipeError is handled; rich would end the program on the spot

    return Transcript(Stdout(file=stream))


def _approver(unattended: bool, emit: "Emit") -> "Approver":
    from runner.approval import Terminal, Unattended

    if unattended:
        return Unattended(emit)
    from rich.console import Console

    from runner.terminal_input import line_reader

    return Terminal(Console(stderr=True), line_reader(forget=True))


def prompt_text(prompt: str | None, file: Path | None) -> str:
    """The prompt's text: the argument, else the file, else stdin when it is not a terminal."""
    if prompt is not None and file is not None:
        raise usage("there are two prompts", "one on the command line and one in --prompt-file", "give one of them")
    if prompt is not None:
        text = prompt
    elif file is not None:
        text = _text_of(file, f"`{file}`")
    elif stat.S_ISCHR(os.fstat(0).st_mode):  # a terminal, or /dev/null
        raise usage(
            "there is no prompt",
            "none was given, and standard input is no pipe or file to read one from",
            f'write agent {_command()} "what to do", or add --prompt-file FILE',
        )
    else:
        text = _text_of(Path("/dev/stdin"), "standard input")
    if not text.strip():
        raise usage("the prompt is empty", "there is nothing to work on", f'write agent {_command()} "what to do"')
    return text


def _command() -> str:
    return "ci" if sys.argv[1:2] == ["ci"] else "run"


def _text_of(path: Path, shown: str) -> str:
    try:
        with open(path if shown != "standard input" else 0, "rb", closefd=shown != "standard input") as file:
            data = file.read(_LONGEST_PROMPT + 1)
    except OSError as error:
        raise usage(f"the prompt {shown} cannot be read", (error.strerror or "").lower(), "check the path") from None
    if len(data) > _LONGEST_PROMPT:
        raise usage(f"the prompt in {shown} is longer than 1 MB", "no model takes that", "let the model read a file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise usage(f"the prompt in {shown} is not text", "it is not UTF-8", "save it as UTF-8 text") from None
