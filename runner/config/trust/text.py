"""Text about a repository's files for the user. It contains no control or invisible characters of the files."""

import json
import shlex
from collections.abc import Iterator

from runner.config.agentfiles.instructions import CAP, texts
from runner.config.trust.evaluate import Brought
from runner.config.trust.inventory import EntryKind, InventoryEntry
from runner.config.trust.widening import Widening
from runner.text.phrases import many
from runner.text.sanitize import EMOJI_SELECTORS, one_line, visible

_FIRST = 3  # lines of a text, the beginning of each; `show` has the whole
_WIDE = 150  # characters
_ROWS = 20  # lines of a section, and their length, where the whole is one command away
_LONG = 300


def description(brought: Brought, *, brief: bool = False) -> list[str]:
    """Return the description of all files, by effect.

    With `brief`, files without an effect are shortened, so that many hooks cannot push important lines off the screen.
    """
    inventory = brought.inventory
    lines = [f"workspace  {visible(inventory.workspace, lines=False)}", f"hash       {inventory.sha256}"]
    if since := brought.since:
        changed = _begun([f"  {_whole(path)}  {change}" for path, change in since[1]], brief)
        lines += ["", f"changed since you said yes on {_day(since[0].time)}", *changed]
    if brought.widenings:
        lines += ["", "it would change your settings", *map(_widening, brought.widenings)]
    for title, rows in _sections(brought):
        if rows:
            lines += ["", title, *_begun(rows, brief)]
    return lines


def summary(brought: Brought) -> str:
    """Return the effects of the answer in one line."""
    told = len([path for path in brought.counts if path in [each.path for each in texts(brought.inventory)]])
    wide, skills = len(brought.widenings), len(brought.skills[0]) if brought.skilled else 0
    prompts, commands = len(brought.prompts), len(brought.commands.found)
    effects = (
        (wide, "setting", "would change"),
        (prompts, "text", "would stand in the system prompt"),
        (told, "text", "would be given to the model"),
        (commands, "command", "could be typed"),
        (skills, "skill", "would be offered to it"),
    )
    return "in short: " + ", ".join(f"{many(count, noun)} {effect}" for count, noun, effect in effects if count)


def _begun(rows: list[str], brief: bool) -> list[str]:
    if not brief:
        return rows
    more = len(rows) - _ROWS
    shown = [row if len(row) <= _LONG else f"{row[:_LONG]}…" for row in rows[:_ROWS]]
    return [*shown, f"  and {more:,} more lines: `agent trust show`"] if more > 0 else shown


def _widening(each: Widening) -> str:
    old = f"{_whole(each.old)} -> " if each.old else ""
    return f"  {_whole(each.path)}:{each.line}  {_whole(each.key)}: {old}{_whole(each.new)}"


def _sections(brought: Brought) -> Iterator[tuple[str, list[str]]]:
    entries = [each for each in brought.inventory.entries if not each.refused]
    known = {each.path for each in (*brought.widenings, *brought.never)} | set(brought.faulty)
    yield (
        "it only tightens your settings, which needs no yes",
        [f"  {each.path}" for each in entries if each.kind is EntryKind.CONFIGURATION and each.path not in known],
    )
    yield "no repository may set it, trusted or not", list(map(_widening, brought.never))
    yield "it cannot be used, and counts for nothing", [f"  {path}" for path in brought.faulty]
    yield (
        "the system prompt would hold it: SYSTEM.md instead of our words about the work, the other behind them; it "
        "changes no rule",
        [line for each in brought.prompts for line in _text(brought, each)],
    )
    title = "the model would read it as the words of the repository; it changes no rule"
    told = [line for each in entries if each.kind is EntryKind.INSTRUCTIONS for line in _text(brought, each)]
    yield title if brought.reads else "texts for agents, which are switched off", told
    title = "the model would be told of these skills, and may read them; they change no rule"
    rows = [f"  {_whole(each.path)}  {one_line(each.description, _WIDE)}" for each in brought.skills[0]]
    yield title if brought.skilled else "skills, which are switched off", rows
    title = "you could type these /commands, and what they say would go to the model as your words; they change no rule"
    commands = brought.commands
    yield title, [f"  /{each.name}  {_whole(each.source)}  {each.summary}" for each in commands.found]
    yield "commands that cannot be used", [f"  {_whole(each)}" for each in commands.notices]
    yield "skills that cannot be used", [f"  {_whole(each.path)}  {_whole(each.why)}" for each in brought.skills[1]]
    yield (
        "this version does nothing with it",
        [line for each in entries if not each.kind.used for line in _unused(brought, each)],
    )
    yield (
        "not read, and never used",
        [f"  {_whole(each.path)}  {each.refused}" for each in brought.inventory.entries if each.refused],
    )


def _whole(text: str) -> str:
    """Return the text on one line, never shortened: the user must see all of what is approved."""
    return visible(text, lines=False)


def _text(brought: Brought, entry: InventoryEntry) -> Iterator[str]:
    text = brought.inventory.contents[entry.path].decode("utf-8")
    notes = [f"{entry.size:,} bytes"]
    is_prompt = entry.kind is EntryKind.PROMPT
    if entry.size > CAP and not is_prompt:
        notes.append(f"only the first {CAP >> 10} KiB are given")
    unseen = (char for char in set(text) - {"\n", "\t", "\r", *EMOJI_SELECTORS} if visible(char, prose=True) != char)
    if hidden := sum(map(text.count, unseen)):
        notes.append(f"{hidden} characters in it cannot be seen, and are spelled out")
    if not is_prompt and entry.size and entry.path not in [each.path for each in texts(brought.inventory)]:
        notes.append("the same as another" if text.strip() else "blank")
    yield f"  {entry.path}  {', '.join(notes)}"
    for line in [line for line in text.splitlines() if line.strip()][:_FIRST]:
        yield f"    | {one_line(line, _WIDE)}"


def _unused(brought: Brought, entry: InventoryEntry) -> Iterator[str]:
    what = f"{entry.kind.value}{', executable' if entry.executable else ''}"
    if entry.kind is not EntryKind.SERVERS:
        yield f"  {_whole(entry.path)}  {what}, {entry.size:,} bytes"
        return
    try:
        found = servers(brought.inventory.contents[entry.path])
    except ValueError as error:
        yield f"  {_whole(entry.path)}  MCP servers, but {error}"
        return
    yield f"  {_whole(entry.path)}  {many(len(found), 'MCP server')}"
    for name, words in found:
        yield f"    {_whole(name)}: {_whole(words)}"


def contents(brought: Brought) -> list[str]:
    """Return every file in full, line by line: approved text must not have a hidden part."""
    lines = []
    for entry in brought.inventory.entries:
        if entry.refused:
            continue
        text = brought.inventory.contents[entry.path].decode("utf-8", "backslashreplace")
        lines += ["", f"--- {_whole(entry.path)}", *visible(text).splitlines()]
    return lines


def state_word(brought: Brought) -> str:
    """Return the state of the answer in one or two words."""
    if not brought.counts:
        return "nothing to decide"
    answer = brought.answer
    return "not asked" if answer is None else "trusted" if answer.yes else "refused"


def state_line(brought: Brought) -> str:
    answer = brought.answer
    if not brought.counts:
        return "nothing in it needs an approval"
    if answer is None:
        return "nobody has trusted this content: nothing of it is used, except what tightens your settings"
    if answer.yes:
        return f"you trust this content since {_day(answer.time)}"
    return f"you said no to this content on {_day(answer.time)}: nothing of it is used but what tightens your settings"


def named(paths: tuple[str, ...]) -> str:
    """Return a few paths as part of a sentence: ``AGENTS.md` and `CLAUDE.md``."""
    shown = [f"`{one_line(path, 80)}`" for path in paths[:3]]
    if len(paths) > len(shown):
        shown.append(f"{len(paths) - len(shown)} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _day(time: str) -> str:
    return one_line(time[:10], 10) or "an unknown day"


class _Twice(ValueError):
    pass


def servers(data: bytes) -> tuple[tuple[str, str], ...]:
    """Return the name and the command line or address of each server in the text; both are untrusted.

    Names of variables are included, but not their values, which may be keys. Raises ValueError, with the reason as its
    text, for another text.
    """
    try:
        content = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except _Twice:
        raise ValueError("a key stands in it twice, and readers differ in which one they take") from None
    except ValueError:
        raise ValueError("it is not valid JSON") from None
    named = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(named, dict):
        raise ValueError("it has no `mcpServers`")
    return tuple((name, _server_words(server)) for name, server in named.items())


def _server_words(server: object) -> str:
    if not isinstance(server, dict):
        return "not a server"
    if isinstance(url := server.get("url"), str):
        return f"connects to {url}"
    command, arguments = server.get("command"), server.get("args", [])
    if not isinstance(command, str) or not isinstance(arguments, list):
        return "not a server"
    line = " ".join(shlex.quote(word if isinstance(word, str) else json.dumps(word)) for word in (command, *arguments))
    variables = server.get("env")
    named = f" (sets {', '.join(map(str, variables))})" if isinstance(variables, dict) and variables else ""
    return f"{line}{named}"


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Twice
    return found
