"""Text for the user about a repository's files, without control or invisible characters of the files."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from runner.config.agentfiles.instructions import CAP, read_texts
from runner.config.inventory import EntryKind, InventoryEntry
from runner.config.server_values import pairs_in, texts_in
from runner.config.trust.evaluate import TrustReview
from runner.config.trust.widening import Widening
from runner.secrets.redactor import masked
from runner.secrets.secret import names_secret
from runner.text.phrases import many
from runner.text.sanitize import EMOJI_SELECTORS, one_line, visible

if TYPE_CHECKING:
    from runner.config.serverfiles.foreign_server import ForeignServer

HEADING = "this repository contains files that are used only if you trust them"
QUESTION = "trust these files exactly as they are now?"
SERVERS = "these tool servers (MCP) would be started, each in a sandbox, and the model could call their tools"
HOOKS = "these hooks would run at events of a session, each in a sandbox that may only read the workspace"
_FIRST = 3  # lines of a text that are shown; `show` prints the whole text
_WIDE = 150  # characters of such a line
_ROWS = 20  # lines of a section in a brief description
_LONG = 300  # characters of a line in a brief description


def description(review: TrustReview, *, brief: bool = False) -> list[str]:
    """Return the description of all files, by effect.

    With `brief`, files without an effect are shortened, so that many hooks cannot push important lines off the screen.
    """
    inventory = review.inventory
    lines = [f"workspace  {visible(inventory.workspace, lines=False)}", f"hash       {inventory.sha256}"]
    if since := review.since:
        changed = _shorten_rows([f"  {_line(path)}  {change}" for path, change in since[1]], brief)
        lines += ["", f"changed since your approval of {_day(since[0].time)}", *changed]
    if review.widenings:
        lines += ["", "these entries would change your settings", *map(_widening, review.widenings)]
    if servers := list(_server_rows(review)):
        lines += ["", SERVERS, *servers]
    if hooks := list(_hook_rows(review)):
        lines += ["", HOOKS, *hooks]
    for title, rows in _sections(review):
        if rows:
            lines += ["", title, *_shorten_rows(rows, brief)]
    return lines


def summary(review: TrustReview) -> str:
    """Return the effects of the answer in one line."""
    told = len([path for path in review.counts if path in [each.path for each in read_texts(review.inventory)]])
    wide, skills = len(review.widenings), len(review.skills[0]) if review.skilled else 0
    prompts, commands = len(review.prompts), len(review.commands.found)
    servers = sum(not each.fault for file in review.servers for each in file.servers)
    hooks = sum(len(file.hooks) for file in review.hooks)
    effects = (
        (wide, "setting", "would change"),
        (prompts, "text", "would be part of the system prompt"),
        (told, "text", "would be given to the model"),
        (commands, "command", "could be typed"),
        (skills, "skill", "would be offered to the model"),
        (len(review.agents.definitions), "sub-agent", "could be started by the model"),
        (servers, "tool server", "would be started"),
        (hooks, "hook", "would run"),
    )
    return "in short: " + ", ".join(f"{many(count, noun)} {effect}" for count, noun, effect in effects if count)


def _shorten_rows(rows: list[str], brief: bool) -> list[str]:
    if not brief:
        return rows
    more = len(rows) - _ROWS
    shown = [row if len(row) <= _LONG else f"{row[:_LONG]}…" for row in rows[:_ROWS]]
    return [*shown, f"  and {more:,} more lines: `agent trust show`"] if more > 0 else shown


def _widening(each: Widening) -> str:
    old = f"{_line(each.old)} -> " if each.old else ""
    return f"  {_line(each.path)}:{each.line}  {_line(each.key)}: {old}{_line(each.new)}"


def _sections(review: TrustReview) -> Iterator[tuple[str, list[str]]]:
    entries = [each for each in review.inventory.entries if not each.refused]
    known = {each.path for each in (*review.widenings, *review.never)} | set(review.faulty)
    yield (
        "these files only tighten your settings, and need no approval",
        [f"  {each.path}" for each in entries if each.kind is EntryKind.CONFIGURATION and each.path not in known],
    )
    yield "no repository may set these, even if it is trusted", list(map(_widening, review.never))
    yield "these files cannot be used, and are ignored", [f"  {path}" for path in review.faulty]
    yield (
        "the system prompt would contain these: SYSTEM.md replaces ringfence's instructions for the work, the other "
        "is added after them; no rule changes",
        [line for each in review.prompts for line in _text_rows(review, each)],
    )
    title = "the model would get these, marked as texts of the repository; no rule changes"
    told = [line for each in entries if each.kind is EntryKind.INSTRUCTIONS for line in _text_rows(review, each)]
    yield title if review.reads else "texts for agents, which are switched off", told
    title = "the model would get the list of these skills, and may read them; no rule changes"
    rows = [f"  {_line(each.path)}  {one_line(each.description, _WIDE)}" for each in review.skills[0]]
    yield title if review.skilled else "skills, which are switched off", rows
    title = "you could type these /commands, whose texts go to the model as if you wrote them; no rule changes"
    commands = review.commands
    yield title, [f"  /{each.name}  {_line(each.source)}  {each.summary}" for each in commands.found]
    title = "the model could start these sub-agents, which get at most the rights of the session; no rule changes"
    agents = review.agents
    rows = [f"  {each.name}  {_line(each.source)}  {one_line(each.description, _WIDE)}" for each in agents.definitions]
    yield title, rows
    yield "sub-agents that cannot be used", [f"  {_line(each)}" for each in agents.notices]
    yield "commands that cannot be used", [f"  {_line(each)}" for each in commands.notices]
    yield "skills that cannot be used", [f"  {_line(each.path)}  {_line(each.why)}" for each in review.skills[1]]
    settings = {file.path for file in review.hooks}
    yield (
        "files that hooks may run; a change of one of them ends your trust",
        [_script_row(each) for each in entries if each.kind is EntryKind.HOOK and each.path not in settings],
    )
    yield (
        "these are not read, and never used",
        [f"  {_line(each.path)}  {each.refused}" for each in review.inventory.entries if each.refused],
    )


def _line(text: str) -> str:
    """Return the text on one line, never shortened: the user must see everything that is approved."""
    return visible(text, lines=False)


def _text_rows(review: TrustReview, entry: InventoryEntry) -> Iterator[str]:
    text = review.inventory.contents[entry.path].decode("utf-8")
    notes = [f"{entry.size:,} bytes"]
    is_prompt = entry.kind is EntryKind.PROMPT
    if entry.size > CAP and not is_prompt:
        notes.append(f"only the first {CAP >> 10} KiB are given")
    unseen = (char for char in set(text) - {"\n", "\t", "\r", *EMOJI_SELECTORS} if visible(char, prose=True) != char)
    if hidden := sum(map(text.count, unseen)):
        notes.append(f"{hidden} invisible characters, shown as codes")
    if not is_prompt and entry.size and entry.path not in [each.path for each in read_texts(review.inventory)]:
        notes.append("same as another file" if text.strip() else "blank")
    yield f"  {entry.path}  {', '.join(notes)}"
    for line in [line for line in text.splitlines() if line.strip()][:_FIRST]:
        yield f"    | {one_line(line, _WIDE)}"


def _script_row(entry: InventoryEntry) -> str:
    return f"  {_line(entry.path)}  {'executable, ' if entry.executable else ''}{entry.size:,} bytes"


def _hook_rows(review: TrustReview) -> Iterator[str]:
    """Yield the hooks of each file. They are never shortened: the user must see the complete command line."""
    for file in review.hooks:
        yield f"  {_line(file.path)}  {many(len(file.hooks), 'hook')}"
        for each in file.hooks:
            on = f"{each.event}({each.matcher})" if each.matcher else each.event
            yield f"    {_line(on)}: {_line(each.words)}"
        for fault in file.faults:
            yield f"    {_line(fault.event or 'a hook')}: cannot be used: {_line(fault.why)}"


def _server_rows(review: TrustReview) -> Iterator[str]:
    """Yield the servers of each file. They are never shortened: the user must see the complete command line."""
    for file in review.servers:
        if file.fault:
            yield f"  {_line(file.path)}  cannot be used: {file.fault}"
            continue
        yield f"  {_line(file.path)}  {many(len(file.servers), 'tool server')}"
        for each in file.servers:
            yield f"    {_line(each.name)}: {_line(server_words(each))}"


def contents(review: TrustReview) -> list[str]:
    """Return every file in full, line by line: approved text must not have a hidden part."""
    lines = []
    for entry in review.inventory.entries:
        if entry.refused:
            continue
        text = review.inventory.contents[entry.path].decode("utf-8", "backslashreplace")
        lines += ["", f"--- {_line(entry.path)}", *visible(text).splitlines()]
    return lines


def state_word(review: TrustReview) -> str:
    """Return the state of the answer in one or two words."""
    if not review.counts:
        return "nothing to decide"
    answer = review.answer
    return "not asked" if answer is None else "trusted" if answer.yes else "refused"


def state_line(review: TrustReview) -> str:
    """Return the state of the answer in one sentence."""
    answer = review.answer
    if not review.counts:
        return "nothing in this repository needs an approval"
    if answer is None:
        return "you have not trusted this content: it is not used, except settings that tighten yours"
    if answer.yes:
        return f"you have trusted this content since {_day(answer.time)}"
    return f"you refused this content on {_day(answer.time)}: it is not used, except settings that tighten yours"


def named(paths: tuple[str, ...]) -> str:
    """Return paths as part of a sentence, at most three of them by name: ``AGENTS.md` and `CLAUDE.md``."""
    shown = [f"`{one_line(path, 80)}`" for path in paths[:3]]
    if len(paths) > len(shown):
        shown.append(f"{len(paths) - len(shown)} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _day(time: str) -> str:
    return one_line(time[:10], 10) or "an unknown day"


def server_words(server: "ForeignServer") -> str:
    """Return the complete command line or address of a server, and its variables and headers without secrets."""
    values = server.values
    if server.fault:
        return f"cannot be used: {server.fault}"
    if "url" in values:
        line = f"connects to {values['url']}"
    else:
        line = " ".join(shlex.quote(word) for word in (*texts_in(values["command"]), *texts_in(values.get("args"))))
    parts = []
    for key, what in (("env", "sets"), ("headers", "sends")):
        if pairs := pairs_in(values.get(key)):
            parts.append(f"{what} {', '.join(_shown_pair(name, text) for name, text in pairs)}")
    parts += [f"starts in {values['cwd']}"] if "cwd" in values else []
    parts += ["switched off"] if values.get("enabled") is False else []
    return f"{line} ({'; '.join(parts)})" if parts else line


def _shown_pair(name: str, text: str) -> str:
    """Return a variable or header with its value, which can change what a program does. A secret is not shown."""
    hidden = names_secret(name.replace("-", "_")) and "$" not in text
    return name if hidden else f"{name}={shlex.quote(masked(text.replace('$$', '$')))}"
