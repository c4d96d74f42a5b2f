"""The last exchanges of a session, for the screen of the user who continues it."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from runner.event_values import PastRow
from runner.messages import AssistantMessage, StopNotice, TextBlock, ToolCall, UserMessage
from runner.sessions.entries import Answered, JournalEntry, Unsound, message_of
from runner.sessions.history import SessionHistory
from runner.sessions.rewind import said_of, text_of
from runner.sessions.tree import Tree
from runner.text.sanitize import one_line

_PROMPTS = 3  # prompts at most, with everything that followed each
_ENTRIES = 600  # entries at most that are read
_CALLS = 8  # calls at most that followed one prompt
_LINES, _LAST_LINES = 12, 60  # lines at most of an answer, and of the last answer
_CHARACTERS = 200  # of a line about a call
_TYPES = ("message", "typed", "call")
_STOPPED = frozenset(notice.value for notice in StopNotice)


def recent_rows(tree: Tree, past: SessionHistory) -> tuple[PastRow, ...]:
    """Return the last prompts of the branch, each with its calls and answers, in order.

    Long answers are cut, and of many calls only the last ones are returned, as of many steps after one prompt. Lines
    that cannot be read are left out.
    """
    marks = past.marks[-_PROMPTS:]
    if not marks:
        return ()
    path, leaves = past.path, {mark.leaf for mark in marks}
    start, found = len(path), 0
    while start > max(0, len(path) - _ENTRIES) and found < len(marks):
        start -= 1
        found += tree.id(path[start]) in leaves
    cut = start > 0 and found < len(marks)
    rows = list(_bounded(list(_rows(tree, path[start if cut else start + 1 :]))))
    if cut:
        marks = marks[len(marks) - found - 1 :]
        rows[:0] = [PastRow("prompt", marks[0].text), PastRow("earlier steps", "")]
    if rows and rows[0].kind == "prompt" and (before := len(past.marks) - len(marks)):
        rows.insert(0, PastRow("left out", str(before)))
    return tuple(rows)


def _rows(tree: Tree, path: Sequence[int]) -> Iterator[PastRow]:
    """Yield a row for each prompt, answer and call."""
    calls: Sequence[ToolCall] = ()
    verdicts: dict[str, JournalEntry] = {}
    prompt: PastRow | None = None
    for entry in _entries(tree, path):
        if prompt is not None and entry.type == "typed":  # the /command that the user typed for the prompt
            prompt = PastRow("prompt", str(entry.body["text"]))
            continue
        if prompt is not None:
            yield prompt
            prompt = None
        if entry.type == "call":
            verdicts[str(entry.body["call"])] = entry
        elif entry.type == "message":
            try:
                message = message_of(entry.body)
            except Unsound:
                continue
            if isinstance(message, UserMessage):
                prompt = PastRow("prompt", said_of(message)) if message.content else None
            elif isinstance(message, AssistantMessage):
                calls, verdicts = message.calls, {}
                if text := text_of(message).strip():
                    yield PastRow("answer", text)
            elif message.place < len(calls):
                yield _call(calls[message.place], verdicts, message)
    if prompt is not None:
        yield prompt


def _entries(tree: Tree, path: Sequence[int]) -> Iterator[JournalEntry]:
    for at in path:
        try:
            yield from (entry for _, entry in tree.entries((at,), _TYPES))
        except Unsound:
            continue  # `history_of` reported a line that the conversation needs


def _call(call: ToolCall, verdicts: dict[str, JournalEntry], answered: Answered) -> PastRow:
    """Return the row of one call, with its outcome in one word."""
    verdict = verdicts.get(call.id)
    words = f"{call.name} {call.raw or json.dumps(call.arguments, ensure_ascii=False)}"
    if verdict is not None:
        words = str(verdict.body["action"])
    outcome = "done"  # the exit status of a command is not recorded
    if answered.result.is_error:
        first = answered.result.content[:1]
        head = first[0].text.rstrip("\n") if first and isinstance(first[0], TextBlock) else ""
        outcome = "stopped" if head in _STOPPED else "failed"
    if verdict is not None and verdict.body["verdict"] == "deny":
        outcome = "denied"
    return PastRow("call", one_line(words, _CHARACTERS), outcome)


def _bounded(rows: Sequence[PastRow]) -> Iterator[PastRow]:
    """Yield `rows` without the first ones of many calls in a row, and with long texts cut."""
    last = next((row for row in reversed(rows) if row.kind == "answer"), None)
    for calls, group in groupby(rows, key=lambda row: row.kind == "call"):
        some = list(group)
        if calls and len(some) > _CALLS:
            yield PastRow("more calls", str(len(some) - _CALLS))
            some = some[-_CALLS:]
        yield from (_cut(row, _LAST_LINES if row is last else _LINES) for row in some)


def _cut(row: PastRow, most: int) -> PastRow:
    text = "\n".join(row.text.split("\n")[:most])
    if len(text) > (longest := most * _CHARACTERS):
        text = text[:longest].rpartition(" ")[0]  # not inside a word, which may be a secret that is masked as a whole
    return row if text == row.text else PastRow(row.kind, f"{text}\n…", row.outcome)
