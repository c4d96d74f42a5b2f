"""HTML report: one file that a reviewer opens without a server and without a network.

The page consists of a template with a style and a script (the folder `report`), and the decisions as JSON. Text that a
model wrote is never markup: the JSON contains no `<`, `>` and `&`, the script creates text nodes from it, and the
content security policy of the page runs only that script, by its hash, loads nothing, and accepts no text as markup
(Trusted Types).
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from importlib.resources import files

from policy.model.frozen import dataclass
from policy.model.profile import MAIN
from runner.audit.decisions import DecisionTrail
from runner.audit.fields import beginning, integer, items, length, mapping, milliseconds, number, text_span, utc_time

MOST = 10_000  # default limit of decisions in one report
# The columns of a row, which the page's script also uses.
FIELDS = (
    "id", "time", "session", "verdict", "tool", "kind", "tier", "tiers", "cell", "action", "parts", "why", "rule",
    "span", "reasons", "effects", "hosts", "terms", "backend", "answer", "typed", "grants", "problem", "outcome",
    "hash", "more", "agent", "parent",
)  # fmt: skip
# Pairs of the longest text (characters) and the longest list. The first pair that keeps the data of the page within the
# budget is used, else the last pair.
_SHAPES = ((4_000, 24), (1_200, 12), (500, 8), (240, 5), (120, 3), (60, 2))
_LEAST, _EACH = 2_000_000, 440  # the budget is the larger of _LEAST bytes and _EACH bytes for each decision


@dataclass(frozen=True, slots=True)
class About:
    """Facts about the log for the head of the page.

    Attributes:
        sealed: head of the verified chain
        broken: reason why the chain is invalid
        chosen: filters as typed
        left: True if more decisions matched than are on the page
        ends: bodies of the records of session ends, by session id
    """

    program: str
    made: str
    log: str
    sealed: str = ""
    broken: str = ""
    chosen: str = ""
    left: bool = False
    ends: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def document(found: Iterable[DecisionTrail], about: About) -> str:
    """Return the complete page. All decisions are in memory at once."""
    deeds = list(found)
    budget = max(_LEAST, _EACH * len(deeds))
    for longest, listed in _SHAPES:
        data = _data(deeds, about, longest, listed)
        if len(data) <= budget:
            break
    folder = files(__package__).joinpath("report")
    page, style, script = (folder.joinpath(f"report.{end}").read_text("utf-8") for end in ("html", "css", "js"))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    for mark, text in (("@POLICY@", policy), ("@STYLE@", style), ("@SCRIPT@", script)):
        page = page.replace(mark, text)
    before, _, after = page.partition("@DATA@")
    return before + data + after


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _data(deeds: list[DecisionTrail], about: About, longest: int, listed: int) -> str:
    pool = _Pool(longest, listed)
    rows = [_row(deed, pool, about.ends) for deed in deeds]
    whole = {
        "fields": FIELDS,
        "rows": rows,
        "texts": list(pool.texts),
        "sessions": pool.sessions,
        "terms": pool.terms,
        "longest": longest,
        **{item.name: getattr(about, item.name) for item in fields(about) if item.name != "ends"},
    }
    # ASCII: the file itself contains no invisible or right-to-left characters.
    text = json.dumps(whole, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


class _Pool:
    """Pool that stores each text, session and set of terms once; rows refer to them by index."""

    def __init__(self, longest: int, listed: int) -> None:
        self.longest, self.listed = longest, listed
        self.texts: dict[str, int] = {"": 0}  # 0 is no text
        self.sessions: list[dict[str, object]] = []
        self.terms: list[dict[str, object]] = []
        self._sessions: dict[str, int] = {}
        self._terms: dict[str, int] = {}

    def text(self, value: object) -> object:
        """Return the index of a text, with the length of the whole text if it was cut."""
        start, whole = beginning(value)[: self.longest], length(value)
        index = self.texts.setdefault(start, len(self.texts))
        return index if len(start) == whole else [index, whole]

    def list(self, value: object) -> list[object]:
        return items(value)[: self.listed]

    def session(self, deed: DecisionTrail, ends: Mapping[str, Mapping[str, object]]) -> int:
        name = beginning(deed.body.get("session"))
        if name not in self._sessions:
            self._sessions[name] = len(self.sessions)
            body, end = deed.start, ends.get(name, {})
            numbers = {key: number(body.get(key)) for key in ("user", "process")}
            enforcement = mapping(body.get("enforcement"))
            texts = ("workspace", "model", "program", "kernel", "mode", "policy", "commit")
            self.sessions.append({
                "name": name,
                "time": utc_time(body.get("time")),
                "unattended": body.get("unattended") is True,
                **{key: value for key, value in numbers.items() if value is not None},
                **{key: self.text(body.get(key)) for key in texts if body.get(key)},
                "argv": [self.text(word) for word in self.list(body.get("argv"))],
                "sources": [self.text(word) for word in self.list(body.get("sources"))],
                "level": beginning(enforcement.get("level")),
                "missing": [self.text(word) for word in self.list(enforcement.get("missing"))],
            })  # fmt: skip
            if end:
                numbers = {key: number(end.get(key)) for key in ("exit", "turns", "cost")}
                self.sessions[-1] |= {"end": numbers, "reason": self.text(end.get("reason"))}
        return self._sessions[name]

    def term(self, body: dict[str, object]) -> int:
        terms, digest = mapping(body.get("terms")), beginning(body.get("digest"))
        if not terms:
            return -1
        if digest not in self._terms:
            self._terms[digest] = len(self.terms)
            lists = ("read", "write", "shown", "hosts", "credentials")
            limits = {key: number(value) for key, value in mapping(terms.get("limits")).items()}
            self.terms.append({
                "digest": digest,
                "rights": beginning(terms.get("rights")),
                **{name: [self.text(each) for each in self.list(terms.get(name))] for name in lists},
                "counts": {name: len(items(terms.get(name))) for name in (*lists, "hidden", "locked", "env")},
                "limits": {key: amount for key, amount in limits.items() if amount is not None},
            })  # fmt: skip
        return self._terms[digest]


def _row(deed: DecisionTrail, pool: _Pool, ends: Mapping[str, Mapping[str, object]]) -> list[object]:
    body = deed.body
    cell, because, action, counts = (mapping(body.get(name)) for name in ("cell", "because", "action", "counts"))
    reasons, effects = items(body.get("reasons")), items(body.get("effects"))
    row: dict[str, object] = {
        "id": deed.record.id,
        "time": milliseconds(body.get("time")),
        "session": pool.session(deed, ends),
        "verdict": 0 if deed.denied else 1 if deed.asked else 2,
        "tool": pool.text(body.get("tool")),
        "kind": pool.text(action.get("type")),
        "tier": pool.text(deed.tier),
        "tiers": [pool.text(tier) for tier in pool.list(body.get("tiers"))],
        "cell": [pool.text(cell.get("mode")), pool.text(cell.get("ruling"))] if cell else 0,
        "action": pool.text(deed.action_value),
        # The other parts of an action: `cwd`, the content of a written file, the text that an edit replaces.
        "parts": [
            [name, pool.text(action[name] if isinstance(action[name], dict) else str(action[name]))]
            for name in ("cwd", "root", "glob", "offset", "content", "old", "new")
            if action.get(name) not in (None, "")
        ],
        "why": pool.text(deed.why),
        "rule": pool.text(deed.rule),
        "span": text_span(because.get("span")) or 0,
        "reasons": [
            [*(pool.text(one.get(name)) for name in ("tier", "text", "rule")), text_span(one.get("span")) or 0]
            for one in map(mapping, pool.list(reasons))
        ],
        "effects": [
            [*(pool.text(one.get(name)) for name in ("kind", "target", "scope")), int(one.get("exact") is True)]
            for one in map(mapping, pool.list(effects))
        ],
        "hosts": [pool.text(host) for host in deed.hosts[: pool.listed]],
        "terms": pool.term(body),
        "backend": pool.text(body.get("backend")),
        "answer": _answer(mapping(body.get("answer")), pool),
        "typed": [pool.text(each) for each in pool.list(body.get("typed"))],
        "grants": [pool.text(each) for each in pool.list(body.get("grants"))],
        "problem": _problem(mapping(body.get("problem")), pool),
        "outcome": _outcome(deed, pool),
        "hash": deed.record.hash[:16],
        "agent": pool.text("" if deed.agent == MAIN else deed.agent),
        "parent": pool.text(deed.parent),
        "more": [
            max(int(number(counts.get(name)) or 0), len(all_)) - min(len(all_), pool.listed)
            for name, all_ in (("reasons", reasons), ("effects", effects))
        ],
    }  # fmt: skip
    return [row[name] or 0 for name in FIELDS]


def _answer(answer: dict[str, object], pool: _Pool) -> object:
    if not answer:
        return 0
    feedback = pool.text(answer.get("feedback")) if answer.get("feedback") else 0
    return [pool.text(answer.get("question")), int(answer.get("yes") is True), pool.text(answer.get("by")), feedback]


def _problem(problem: dict[str, object], pool: _Pool) -> object:
    return [pool.text(problem.get(name)) for name in ("what", "why", "fix")] if problem else 0


def _outcome(deed: DecisionTrail, pool: _Pool) -> object:
    if deed.finished is None:
        return 0
    body = deed.finished.body
    sizes, used = mapping(body.get("bytes")), mapping(body.get("used"))
    level = beginning(mapping(body.get("enforcement")).get("level"))
    found: dict[str, object] = {
        "status": number(body.get("status")),
        "seconds": number(body.get("seconds")),
        "ended": pool.text(body.get("ended_by")) if body.get("ended_by") else None,
        "stdout": number(sizes.get("stdout")),
        "stderr": number(sizes.get("stderr")),
        "truncated": body.get("truncated") is True,
        "problem": _problem(mapping(body.get("problem")), pool) or None,
        "violations": [
            [*(pool.text(one.get(name)) for name in ("what", "fix", "layer")), int(one.get("inferred") is True)]
            for one in map(mapping, pool.list(body.get("violations")))
        ],
        "stopped": len(items(body.get("violations"))),
        "connections": [
            [pool.text(one.get("host")), integer(one.get("port")), int(one.get("allowed") is True),
             pool.text(one.get("why")), *(number(one.get(name)) for name in ("sent", "received")),
             pool.text(one.get("credential"))]
            for one in map(mapping, pool.list(body.get("connections")))
        ],
        "connected": number(body.get("connected")),
        "cpu": number(used.get("cpu")),
        "memory": number(used.get("memory")),
        "changed": [
            [pool.text(one.get("path")), pool.text(one.get("how"))]
            for one in map(mapping, pool.list(body.get("changed")))
        ],
        "changes": number(body.get("changes")),
        "level": level if level != "FULL" else None,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value not in (None, [], 0) or name == "status"}
