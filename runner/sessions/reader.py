"""A session part by part, for readers: the messages, and each call with its verdict and its result."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from policy.model.frozen import dataclass
from policy.model.tier import Ruling
from runner.audit.legacy import current_rule
from runner.messages import ImageBlock, ThinkingBlock, ToolCall, UserMessage, joined_text
from runner.sessions.entries import Answered, JournalEntry, message_of
from runner.sessions.tree import Tree


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
    "compaction": "the model is shown less from here on ({level})",
    "model": "the model is now {model}",
    "notice": "{text}",
    "snapshot": "what this changes can be taken back: step {snapshot} of `agent undo --list`",
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
            case "run" | "mode" | "compaction" | "model" | "notice" | "snapshot":
                yield SessionPart("note", entry.time, _NOTES[entry.type].format_map(body))
            case "typed":
                yield SessionPart("typed", entry.time, str(body["text"]))
            case "end":
                turns = f"{body['turns']} {'turn' if body['turns'] == 1 else 'turns'}"
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
        return SessionPart("tool", time, title, "no result was written down", facts=tuple(facts), failed=True)
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
        return f"an answer that holds nothing: {json.dumps(form)}"
    verb = "allowed" if grant.ruling is Ruling.ALLOW else "refused"
    return f"{verb} for the rest of this session, as {grant.id}: {about(grant)}"
