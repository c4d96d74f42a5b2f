"""The commands about the conversation itself: /help, /resume, /fork, /clear, /compact, /context, /copy, /paste, /cost,
/trust, /quit.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.verdict import Problem
from runner.frontends.slash.command import (
    LONGEST_NAME,
    POLICY_GROUP,
    CommandHost,
    Mistake,
    Row,
    SlashCommand,
    find,
    say,
    table,
)
from runner.sessions.selection import SessionSelection
from runner.state.paths import state_dir
from runner.text.phrases import many
from runner.text.sanitize import visible

if TYPE_CHECKING:
    from runner.engine.run_context import RunContext

_MOST_SOURCES = 5  # sources that /context lists
_LONGEST_COPY = 50_000  # characters; xterm, kitty and others accept at most about 100 kB


async def _resume(words: str, host: CommandHost) -> None:
    """Continue an earlier session of this workspace."""
    from runner.sessions.store import SessionStore
    from runner.sessions.summary import labels, summarize_sessions

    ctx = host.conversation.ctx
    if not words:
        store = SessionStore.of(state_dir(host.environ), ctx.look().workspace)
        current = ctx.journal.kept
        sessions = await asyncio.to_thread(lambda: [each for each in summarize_sessions(store) if each.id != current])
        if not sessions:
            raise Mistake("no other session of this workspace has an answer (`agent sessions list --all`)")
        rows = [Row(each.id, *labels(each)) for each in sessions]
        words = await host.pick("resume which session?", rows) or ""
    if words:
        await host.switch(SessionSelection(resume=words))


async def _fork(words: str, host: CommandHost) -> None:
    """Continue in a copy of this session. The original stays unchanged."""
    session = host.conversation.ctx.journal.kept
    if words:
        raise Mistake("/fork takes no argument: it copies this session; `agent --fork ID` copies another one")
    if session is None:
        raise Mistake("this session has no file yet, so it cannot be copied")
    await host.switch(SessionSelection(fork=session))


async def _clear(words: str, host: CommandHost) -> None:
    """Begin a new session with an empty conversation. The current session is kept."""
    await host.switch(SessionSelection())


async def _compact(words: str, host: CommandHost) -> None:
    """Shorten the conversation for the model. `words` names the topic whose details the summary must keep."""
    try:
        if not await host.conversation.compact(words):
            say(host, "the conversation is too short to be shortened")
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        say(host, "stopped: the conversation of the model is unchanged")


async def _context(words: str, host: CommandHost) -> None:
    """Show the parts of the context that the model gets, and how full its window is; with a name, show that part."""
    conversation, ctx = host.conversation, host.conversation.ctx
    parts = ctx.context_parts(ctx.view.visible(conversation.history))
    if words:
        chosen = [part for part in parts if part.name == words and part.text]
        if not chosen:
            raise Mistake(
                f"there is no part `{words}` with text; the parts are {', '.join(part.name for part in parts)}"
            )
        say(host, *(line for part in chosen for line in (f"{part.name}, from {part.source}:", part.text)))
        return
    size, window = ctx.gauge.size(ctx.view.visible(conversation.history)), ctx.view.window(ctx.live.named)
    total = sum(part.tokens for part in parts)
    tokens = total if ctx.gauge.counted is None else size.tokens  # without a count, the parts are all that is known
    about = "" if size.exact else "about "
    of = f" of {window:,} ({tokens / window:.0%})" if window else "; the window of this model is unknown"
    wide = max(len(part.name) for part in parts)
    rows = [f"  {part.name:<{wide}}  {part.tokens:>9,}  {part.where:<12}  {part.source}" for part in parts]
    rows.append(f"  {'sum':<{wide}}  {total:>9,}  estimated from the number of characters")
    if ctx.gauge.counted is not None:
        rows.append(f"the last request and its answer were {ctx.gauge.counted:,} tokens by the provider's count")
    rows += _flow_rows(ctx)
    say(host, f"the next request is {about}{tokens:,} tokens{of}", *rows, "/context PART shows its text")


def _flow_rows(ctx: "RunContext") -> list[str]:
    """Return the label of the conversation with its latest sources, as rows."""
    flow = ctx.flow
    if flow is None:
        return []
    latest = flow.untrusted[::-1]
    rows = [f"label: {flow.label.word}; what it changes (`flow`): {flow.mode(ctx.live.mode).value}"]
    rows += [f"  untrusted: {visible(each.said)}" for each in latest[:_MOST_SOURCES]]
    rows += [f"  and {len(latest) - _MOST_SOURCES} more"] * (len(latest) > _MOST_SOURCES)
    return rows + [f"  private: {visible(each)}" for each in flow.private[::-1][:_MOST_SOURCES]]


async def _copy(words: str, host: CommandHost) -> None:
    """Put the last answer into the clipboard."""
    from runner.messages import AssistantMessage, TextBlock

    answers = (each for each in reversed(host.conversation.history) if isinstance(each, AssistantMessage))
    texts = ("\n\n".join(block.text for block in each.content if isinstance(block, TextBlock)) for each in answers)
    text = next((text for text in texts if text.strip()), "")
    if not text:
        raise Mistake("there is no answer yet")
    # THREAT T105: the text is pasted into other programs, where control characters could act as keys.
    text = "\t".join(visible(part, prose=True) for part in host.conversation.ctx.redactor.text(text).split("\t"))
    if len(text) > _LONGEST_COPY:
        raise Mistake("the answer is too long for the clipboard; /export writes the session to a file")
    if not host.copy(text):
        raise Mistake("this screen cannot set a clipboard; /export writes the session to a file")
    say(host, f"{many(len(text), 'character')} sent to the clipboard, if the terminal supports that")


async def _cost(words: str, host: CommandHost) -> None:
    """Show the tokens and the cost of this process in this session, and of all processes if the session was resumed."""
    conversation = host.conversation
    usage = conversation.usage
    sent = usage.input + usage.cache_read + usage.cache_write
    ctx = conversation.ctx
    cost = "unknown: no price of this model is known; a [price] table of your configuration can name one"
    if ctx.live.named.startswith("scripted:"):
        cost = "nothing, because the model is scripted"
    elif conversation.cost is not None:
        cost = f"{conversation.cost:.4f}, by {_price_source(host)}"
    rows = [
        f"model     {ctx.live.named}",
        f"sent      {sent:,} tokens, {usage.cache_read:,} of them read from the cache",
        f"received  {usage.output:,} tokens",
        f"requests  {conversation.turns:,}",
        f"cost      {cost}",
    ]
    session = ctx.journal.kept
    if session not in (None, ctx.session) and (whole := await asyncio.to_thread(_used, session, host)):
        rows.append(f"session   {whole}")
    say(host, *rows)


def _price_source(host: CommandHost) -> str:
    """Return the origin of the current model's price, in words."""
    from runner.providers.catalog import published

    if host.conversation.ctx.live.named in host.settings.named("price"):
        return "the [price] table of your configuration (agent config show price)"
    return f"the vendor's published prices of {published().as_of}"


def _used(session: str, host: CommandHost) -> str:
    """Return the usage of all runs of the session, including prompts that were rewound."""
    from runner.sessions.export import reading, usage_text

    with reading(state_dir(host.environ), session) as stored:
        return usage_text(stored.tree, range(len(stored.tree)))


async def _paste(words: str, host: CommandHost) -> None:
    """Attach the image in the clipboard to the next prompt, or send it with the words."""
    found = await host.pasted()
    if isinstance(found, Problem):
        raise Mistake(str(found))
    host.conversation.attach_image(found)
    if words:
        await host.send(words, f"/paste {words}")
    else:
        say(host, "the image in the clipboard is attached to your next prompt")


async def _trust(words: str, host: CommandHost) -> None:
    """Show the files of the repository that are used only if trusted, and ask for or store the user's decision."""
    from runner.config import load
    from runner.config.trust.session_check import evaluate_files, look_at, now
    from runner.config.trust.store import TrustStore
    from runner.config.trust.text import description, state_line

    ctx = host.conversation.ctx
    if words == "last":
        say(host, _endorse_last(ctx))
        return
    workspace = ctx.look().workspace
    inventory = await asyncio.to_thread(look_at, workspace, ctx.cwd, host.environ)
    settings = await asyncio.to_thread(lambda: load(Path(workspace), host.environ, unattended=True))
    reads, skilled = bool(settings.value("instructions")), bool(settings.value("skills"))
    brought, notices = evaluate_files(inventory, settings, host.environ, reads=reads, skilled=skilled)
    if not inventory.entries:
        say(host, "this repository has no files that configure the agent")
        return
    say(host, *notices, *description(brought), "", state_line(brought))
    rows = (Row("no", "no: ignore these files"), Row("yes", "yes: use them until one byte changes"))
    answer = words if words in ("yes", "no") else await host.pick("trust exactly these files?", rows)
    if answer is None:
        return
    changes = TrustStore(state_dir(host.environ)).remember(inventory, yes=answer == "yes", time=now())
    say(host, *changes, f"stored: {answer}; it applies from the next session on (/clear begins one)")


def _endorse_last(ctx: "RunContext") -> str:
    """Endorse the latest result of an untrusted source, and return a report."""
    source = ctx.flow.endorse_last() if ctx.flow is not None else None
    if source is None:
        raise Mistake("there is no result of an untrusted source that can be endorsed (/context lists the sources)")
    assert ctx.flow is not None  # the source is of it
    left = len(ctx.flow.untrusted)
    rest = f"{many(left, 'untrusted source')} remain" if left else "no untrusted source remains"
    return f"endorsed: {visible(source.said)}; its text counts as text of the workspace, and {rest}"


async def _help(words: str, host: CommandHost) -> None:
    known = host.commands
    if words:
        command = find(words, known)
        if command is None:
            raise Mistake(f"there is no command `{words}`; /help lists them")
        names = ", ".join(f"/{each}" for each in command.names)
        lines = [f"/{command.name} {command.usage}".rstrip(), f"  {command.summary}", f"  names: {names}"]
        say(host, *lines, *([f"  from: {command.source}"] if command.source else []))
        return
    groups: dict[str, list[tuple[str, str]]] = {}
    for each in known:
        groups.setdefault(each.group, []).append((f"/{each.name} {each.usage}".rstrip(), each.summary))
    groups["Your own actions"] = [("!COMMAND", "run a command of yours; the model gets its output")]
    if host.keys:
        groups["Keys"] = list(host.keys)
    wide = max(len(name) for rows in groups.values() for name, _ in rows if len(name) <= LONGEST_NAME)
    lines = ["Type a task for the model; every action passes the gate."]
    for title, rows in groups.items():
        lines += ["", title, *table(rows, host.columns, column=wide)]
    say(host, *lines)


async def _quit(words: str, host: CommandHost) -> None:
    host.leave()


_command = partial(SlashCommand, group="Conversation")

# fmt: off
COMMANDS = (
    _command("help", "[COMMAND]", "list the commands, or describe one", _help, aliases=("?",)),
    _command("resume", "[ID]", "continue an earlier session", _resume, idle=True, aliases=("continue",)),
    _command("fork", "", "continue in a copy of this session", _fork, idle=True),
    _command("clear", "", "begin a new session; this one is kept", _clear, idle=True, aliases=("new",)),
    _command("compact", "[FOCUS]", "shorten the conversation; keep FOCUS in detail", _compact, idle=True),
    _command("context", "[PART]", "show the model's context and how full its window is", _context),
    _command("copy", "", "copy the last answer to the clipboard", _copy),
    _command("paste", "[WORDS]", "attach the image in the clipboard to the next prompt, or send it with WORDS", _paste,
             idle=True),
    _command("cost", "", "show tokens and cost of this session", _cost, aliases=("usage",)),
    _command("trust", "[yes|no|last]", "decide about files that need trust, or endorse the last result", _trust,
             group=POLICY_GROUP, words=lambda host: ("yes", "no", "last")),
    _command("quit", "", "leave (also Ctrl-D)", _quit, aliases=("exit",)),
)
# fmt: on
