"""Lookup of a session for display, and its export as plain text, Markdown, one HTML file, or its own lines.

THREAT T74: models, files and commands chose most of this text. All of it passes `visible`. In Markdown it stands in
fences longer than any inside; in HTML it is escaped (an answer of a model is written by `answer_html`), and the page
allows no script, no request and no frame.
"""

import base64
import contextlib
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from policy.model.frozen import dataclass
from policy.model.tier import Ruling
from policy.model.verdict import Problem
from runner.audit.legacy import current_rule
from runner.messages import ImageBlock, ThinkingBlock, ToolCall, UserMessage, joined_text
from runner.problems import Exit, Stopped, usage
from runner.sessions.answer_html import STYLE, answer_html
from runner.sessions.entries import Answered, JournalEntry, Unsound, line, message_of
from runner.sessions.history import SessionHistory, history_of, index, no_session
from runner.sessions.store import SessionStore, choose
from runner.sessions.tree import Tree
from runner.text.phrases import many, os_reason
from runner.text.sanitize import one_line, visible


@dataclass(frozen=True, slots=True)
class SessionPart:
    """One part of a session. None of its texts is safe to print unchanged.

    Attributes:
        kind: `user`, `model`, `thinking`, `tool` or `note`.
        time: The time of the entry.
        title: The heading, such as the action of a call.
        text: The text.
        images: The images.
        facts: Rows of a label and a text, such as the verdict.
        failed: True if the call failed.
        prose: True if the user, the model or a program wrote the text; False for a refusal, which is about an action.
    """

    kind: str
    time: str
    title: str = ""
    text: str = ""
    images: tuple[ImageBlock, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    failed: bool = False
    prose: bool = True


def usage_text(tree: Tree, path: Sequence[int]) -> str:
    """Return the usage of the branch on one line, as counted by the providers.

    Return an empty string if no reply reported its usage. Raise Unsound.
    """
    bodies = [entry.body for _, entry in tree.entries(path, ("usage",))]
    if not bodies:
        return ""
    sent, output = (
        sum(int(str(body[name])) for body in bodies for name in names)
        for names in (("input", "cache_read", "cache_write"), ("output",))
    )
    tokens = f"{sent} tokens in, {output} out"
    costs = [cost for body in bodies if isinstance(cost := body["cost"], int | float)]
    if not costs:
        return f"{tokens}; cost unknown (no price is configured)"
    unpriced = len(bodies) - len(costs)
    rest = f", without {unpriced} of {len(bodies)} replies, whose price is unknown" if unpriced else ""
    return f"{tokens}; cost {sum(costs, 0.0):.4f}{rest}"


def parts(tree: Tree, path: Sequence[int]) -> Iterator[SessionPart]:
    """Yield the parts of the branch, in order. The text sent for a /command has that command as its title.

    Raise Unsound at a line with invalid content.
    """
    held: SessionPart | None = None
    for part in _parts(tree, path):
        if held is not None:
            yield replace(held, title=part.title) if part.kind == "typed" else held
        held = part if part.kind == "user" else None
        if part.kind not in ("user", "typed"):
            yield part
    if held is not None:
        yield held


_NOTES = {
    "run": "{model} in mode {mode}, in {cwd}",
    "mode": "the mode is now {mode}",
    "compaction": "the conversation was shortened for the model ({level})",
    "model": "the model is now {model}",
    "notice": "{text}",
    "process": "the process {process} has started: {command}",
    "snapshot": "the changes of this action can be undone: step {snapshot} of `agent undo --list`",
}


# The changes of the information flow that a reader wants to know.
_FLOW = {
    "untrusted": "untrusted text entered the conversation",
    "private": "private data entered the conversation",
    "endorsed": "the user endorsed",
}


def _parts(tree: Tree, path: Sequence[int]) -> Iterator[SessionPart]:
    calls: list[ToolCall] = []
    verdicts: dict[str, JournalEntry] = {}
    open_: set[int] = set()
    last = ""
    for _, entry in tree.entries(path):
        last = entry.time
        body = entry.body
        match entry.type:
            case "run" | "mode" | "compaction" | "model" | "notice" | "process" | "snapshot":
                yield SessionPart("note", entry.time, _NOTES[entry.type].format_map(body))
            case "flow" if body["kind"] in _FLOW:
                yield SessionPart("note", entry.time, f"{_FLOW[str(body['kind'])]}: {body['text']}")
            case "typed":
                yield SessionPart("typed", entry.time, str(body["text"]))
            case "end":
                turns = many(int(str(body["turns"])), "request")
                yield SessionPart("note", entry.time, f"{body['reason']} (exit {body['exit']}, {turns})")
            case "grant":
                yield SessionPart("note", entry.time, _granted(body["grant"]))
            case "call":
                verdicts[str(body["call"])] = entry
            case "message":
                message = message_of(body)
                if isinstance(message, Answered):
                    if message.place in open_:
                        open_.discard(message.place)
                        yield _tool(calls[message.place], verdicts, message, entry.time)
                    continue
                yield from (_tool(calls[place], verdicts, None, entry.time) for place in sorted(open_))
                calls = list(message.calls) if not isinstance(message, UserMessage) else []
                verdicts, open_ = {}, set(range(len(calls)))
                for block in message.content:
                    if isinstance(block, ThinkingBlock) and block.text:
                        yield SessionPart("thinking", entry.time, text=block.text)
                kind = "user" if isinstance(message, UserMessage) else "model"
                text = joined_text(message.content)
                images = tuple(block for block in message.content if isinstance(block, ImageBlock))
                if text or images:
                    yield SessionPart(kind, entry.time, text=text, images=images)
    yield from (_tool(calls[place], verdicts, None, last) for place in sorted(open_))


def _tool(call: ToolCall, verdicts: dict[str, JournalEntry], answered: Answered | None, time: str) -> SessionPart:
    """Return the part of one call, with its verdict and its result."""
    facts: list[tuple[str, str]] = []
    verdict = verdicts.get(call.id)
    title = f"{call.name} {call.raw or json.dumps(call.arguments, ensure_ascii=False)}"
    if verdict is not None:
        body = verdict.body
        title = str(body["action"])
        tiers = ", ".join(map(str, body["tiers"])) if isinstance(body["tiers"], list) else ""
        facts.append(("verdict", f"{body['verdict']} ({tiers}): {body['why']} ({current_rule(str(body['rule']))})"))
        if body["answer"] is not None:
            words = f": {body['feedback']}" if body["feedback"] else ""
            facts.append(("answer", f"{'yes' if body['answer'] else 'no'}, {body['by']}{words}"))
        facts.append(("record", f"agent audit show {body['record']}"))
    if answered is None:
        return SessionPart("tool", time, title, "no result was recorded", facts=tuple(facts), failed=True)
    content = answered.result.content
    text = joined_text(content)
    images = tuple(block for block in content if isinstance(block, ImageBlock))
    ran = verdict is not None and verdict.body["verdict"] == "allow"
    return SessionPart("tool", time, title, text, images, tuple(facts), answered.result.is_error, prose=ran)


def _granted(form: object) -> str:
    """Return a remembered answer in words, or its JSON if it is not a valid answer."""
    from runner.gate.grants.codec import from_json
    from runner.gate.grants.text import about

    try:
        grant = from_json(form)
    except ValueError:
        return f"a remembered answer that is not valid: {json.dumps(form)}"
    verb = "allowed" if grant.ruling is Ruling.ALLOW else "refused"
    return f"{verb} for the rest of this session, as {grant.id}: {about(grant)}"


_NAMES = {"user": "You", "model": "Model", "thinking": "Thinking", "tool": "Call", "note": "Note"}


@dataclass(frozen=True, slots=True)
class Session:
    """A session that was read from its file, with the history of its current branch."""

    tree: Tree
    past: SessionHistory

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the heading. Raise Unsound."""
        past = self.past
        yield "session", past.session
        if past.forked_from:
            yield "forked from", past.forked_from
        yield "workspace", past.workspace
        yield "time", f"{_minute(past.began)} to {_minute(past.until)} UTC"
        yield "model", past.model
        yield "requests", f"{past.turns}, of {many(past.prompts, 'prompt')}"
        if used := usage_text(self.tree, past.path):
            yield "used", used
        yield from (("note", notice) for notice in past.notices)


def as_text(session: Session) -> Iterator[str]:
    """Yield lines for a terminal."""
    for label, words in session.facts():
        yield f"{label:<12}{one_line(words, 2000)}"
    for part in parts(session.tree, session.past.path):
        name = _NAMES[part.kind].lower()
        if part.kind == "note":
            first, *rest = visible(part.title).split("\n")
            yield f"\n[{_minute(part.time)}] {first}"
            yield from (f"    {row}" for row in rest)
            continue
        yield f"\n[{_minute(part.time)}] {name}{': ' if part.title else ''}{visible(part.title)}"
        for label, words in part.facts:
            yield f"    {label:<8} {one_line(words, 2000)}"
        yield from (f"    {row}" for row in visible(part.text, prose=part.prose).split("\n") if part.text)
        yield from (f"    [an image, {image.media_type}]" for image in part.images)


def as_lines(session: Session) -> Iterator[str]:
    """Yield every valid line of the file, including those of other branches, in the form of `entries.line`.

    Raise Unsound at a line with invalid content.
    """
    for _, entry in session.tree.entries(range(len(session.tree))):
        yield line(entry).decode().rstrip("\n")


def as_markdown(session: Session) -> Iterator[str]:
    """Yield Markdown. All text of the session is fenced, so that no link, image or markup in it takes effect."""
    yield "# Session\n"
    yield from _fence("\n".join(f"{label:<12}{one_line(words, 2000)}" for label, words in session.facts()))
    for part in parts(session.tree, session.past.path):
        yield f"### {_NAMES[part.kind]} ({_minute(part.time)} UTC)\n"
        body = [visible(part.title)] if part.title else []
        body += [f"{label}: {one_line(words, 2000)}" for label, words in part.facts]
        if body:
            yield from _fence("\n".join(body))
        if part.text:
            yield from _fence(visible(part.text, prose=part.prose))
        yield from (f"![an image]({source})\n" for source in _sources(part))


def as_html(session: Session) -> Iterator[str]:
    """Yield one HTML page that loads nothing and runs no script."""
    title = f"Session {session.past.session[:8]}"
    yield _PAGE.format(title=title, style=f"{_STYLE}{STYLE}")
    yield f"<h1>{title}</h1><table>"
    for label, words in session.facts():
        shown = _coded(words) if label == "note" else _safe(one_line(words, 2000))
        yield f"<tr><th>{_safe(label)}</th><td>{shown}</td></tr>"
    yield "</table>"
    minute = ""
    for part in parts(session.tree, session.past.path):
        now = _minute(part.time)
        stamp, minute = "" if now == minute else f" <time>{_safe(now)}</time>", now
        if part.kind == "note":
            yield f'<p class="note">{_coded(part.title)}{stamp}</p>'
            continue
        kind = part.kind + (" failed" if part.failed else "")
        yield f'<section class="{kind}"><header><b>{_NAMES[part.kind]}</b>{stamp}</header>'
        if part.title:
            yield f'<pre class="title">{_safe(visible(part.title))}</pre>'
        if part.facts:
            facts = (f"<dt>{_safe(label)}</dt><dd>{_coded(words)}</dd>" for label, words in part.facts)
            yield f"<dl>{''.join(facts)}</dl>"
        if part.text:
            text = f"<pre>{_safe(visible(part.text, prose=part.prose))}</pre>"
            if part.kind == "model":
                text = f'<div class="answer">{answer_html(part.text)}</div>'
            rows = part.text.count("\n") + 1
            # Long results and the text sent for a /command are folded, other texts are not.
            if part.kind == "thinking" or (part.title and rows > 12):
                text = f"<details><summary>{many(rows, 'line')}</summary>{text}</details>"
            yield text
        yield from (f'<img alt="an image" src="{source}">' for source in _sources(part))
        yield "</section>"
    yield "</body></html>"


def _fence(text: str) -> Iterator[str]:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    mark = "`" * max(3, longest + 1)
    yield f"{mark}text\n{text}\n{mark}\n"


def _sources(part: SessionPart) -> Iterator[str]:
    """Yield the valid images as `data:` addresses. This is a second check, after that of the reader of the file."""
    for image in part.images:
        with contextlib.suppress(ValueError):
            base64.b64decode(image.data, validate=True)
            if re.fullmatch("image/[a-z]+", image.media_type):
                yield f"data:{image.media_type};base64,{image.data}"


def _safe(text: str) -> str:
    return html.escape(text, quote=True)


def _coded(text: str) -> str:
    """Return a text of this program as HTML in one line. Words in backticks are shown as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", _safe(one_line(text, 2000)))


def _minute(time: str) -> str:
    return one_line(time[:16].replace("T", " "), 40)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">
<title>{title}</title><style>{style}</style></head><body>"""

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --dim: #777; --you: #2563eb; --bad: #dc2626;
  --tool: #0f766e }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } table { border-collapse: collapse; margin-bottom: 1.5rem }
th { text-align: left; font-weight: 500; color: var(--dim); padding: .1rem 1.5rem .1rem 0; vertical-align: top }
td { overflow-wrap: anywhere } time { color: var(--dim); font-size: .85em }
section { border-left: 3px solid var(--line); padding: .1rem 0 .1rem 1rem; margin: 1.2rem 0 }
section.user { border-color: var(--you) } section.tool { border-color: var(--tool) }
section.failed { border-color: var(--bad) }
section.thinking { color: var(--dim) } pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0;
  font-size: .9em }
section.user pre { font: inherit } pre.title { font-weight: 600 }
section.tool pre:not(.title) { background: var(--soft); padding: .5rem .7rem; border-radius: 4px }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; margin: .2rem 0; font-size: .85em;
  color: var(--dim) }
dd { margin: 0; overflow-wrap: anywhere } .note { color: var(--dim); font-size: .9em }
img { max-width: 100% }
summary { cursor: pointer; color: var(--dim); font-size: .9em }
"""


FORMATS: dict[str, Callable[[Session], Iterator[str]]] = {"md": as_markdown, "html": as_html, "jsonl": as_lines}


@contextmanager
def reading(state: Path, words: str) -> Iterator[Session]:
    """Yield the session whose id begins with `words`. Raise SessionError, also for a line that turns out to be
    invalid."""
    store, id = choose(SessionStore.all(state, of_agents=True), words)
    with store.reading(id) as file:
        tree = index(file, id)
        try:
            yield Session(tree, history_of(tree, id, lenient=True))
        except Unsound as error:
            raise no_session(id, str(error)) from None


def write_new(path: Path, lines: Iterable[str]) -> int:
    """Write `lines` to a new file that only the user can read, and return their number. Raise Stopped."""
    count = 0
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            for line in lines:
                file.write(f"{line.encode('utf-8', 'replace').decode()}\n")
                count += 1
    except FileExistsError:
        raise usage(f"`{path}` exists", "files are not overwritten", "name a new file") from None
    except ValueError:  # a NUL, or a character that cannot be encoded
        raise usage("the file name cannot be used", "it has an invalid character", "name another file") from None
    except OSError as error:
        problem = Problem(f"`{path}` could not be written", os_reason(error), "name another file")
        raise Stopped(problem, Exit.FAILED) from None
    return count
