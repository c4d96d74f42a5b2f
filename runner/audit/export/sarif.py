"""SARIF 2.1.0: denied actions as results for code-scanning dashboards.

SOURCE: docs.oasis-open.org/sarif/sarif/v2.1.0 (the format), docs.github.com "SARIF support for code scanning" (the
properties that a dashboard needs, and the number of results it accepts). Text that a model wrote is never Markdown:
dashboards render `message.text` as text, except for links (section 3.11.6), which are escaped.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from urllib.parse import quote

from policy.model.assessment import RuleKind, RuleRef
from runner import VERSION
from runner.audit.decisions import DecisionTrail
from runner.audit.export import rules
from runner.audit.fields import beginning, integer, items, mapping, utc_time
from runner.text.sanitize import one_line, visible

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MOST = 25_000  # results of one run; dashboards accept no more
FALLBACK = ".ringfence/config.toml"  # default file of a result: the repository's configuration of ringfence
_BASE = "%SRCROOT%"
_TEXT = 1_000  # characters of one message
_RECORDS = 100  # records that one result lists


def document(
    deeds: Iterable[DecisionTrail],
    workspace: str,
    *,
    questions: bool = False,
    fallback: str | None = None,
    exits: Mapping[str, int] | None = None,
) -> dict[str, object]:
    """Return one SARIF log of the denied decisions among `deeds`; with `questions`, also of the decisions that were
    allowed after a question.

    Equal denials are one result with a count. Paths are relative to `workspace`. `fallback` is the relative path that a
    result refers to if no file of the workspace is known (a prompt, a workflow; default: FALLBACK). `exits` has the
    exit codes of sessions by their id. Answers to a plan or a tool server are not results.
    """
    run = _Run(workspace, fallback, exits or {})
    for deed in deeds:
        run.session(deed)
        if deed.record.kind in ("planned", "replied"):  # an answer does not run anything
            continue
        if deed.denied or (questions and deed.asked):
            run.result(deed)
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run.whole()]}


class _Run:
    """Collector of the data of a SARIF run: rules in the order of first use, results by fingerprint."""

    def __init__(self, workspace: str, fallback: str | None, exits: Mapping[str, int]) -> None:
        self._workspace = PurePosixPath(workspace)
        self._fallback = fallback or FALLBACK
        self._exits = exits
        self._rules: dict[str, rules.Rule] = {}
        self._results: dict[str, dict[str, object]] = {}
        self._sessions: dict[str, dict[str, object]] = {}
        self._left = 0

    def session(self, deed: DecisionTrail) -> None:
        name = beginning(deed.body.get("session"))
        if name not in self._sessions:
            self._sessions[name] = self._invocation(name, deed.start)

    def result(self, deed: DecisionTrail) -> None:
        body, number = deed.body, deed.record.id
        place = f"session {beginning(body.get('session'))}/record {number}"
        rule = rules.rule_of(deed)
        level = rule.level if deed.denied else "note"
        path, known = self._path(deed)
        action = deed.action
        seed = "\0".join((rule.id, level, beginning(body.get("tool")), action, path))
        print_ = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()
        seen = self._results.get(print_)
        if seen is not None:
            _again(seen, deed)
            return
        if len(self._results) >= MOST:
            self._left += 1
            return
        self._rules.setdefault(rule.id, rule)
        self._results[print_] = {
            "ruleId": rule.id,
            "ruleIndex": list(self._rules).index(rule.id),
            "level": level,
            "message": {"text": _message(deed)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(path), "uriBaseId": _BASE},
                        "region": {"startLine": 1},
                    },
                    "logicalLocations": [{"fullyQualifiedName": place, "kind": "record"}],
                }
            ],
            "partialFingerprints": {
                # A dashboard uses this fingerprint instead of one that it computes from the (unrelated) file.
                "primaryLocationLineHash": f"{print_[:16]}:1",
                "ringfenceAction/v1": print_,
            },
            "occurrenceCount": 1,
            "properties": {
                "records": [number],
                "hash": deed.record.hash,
                "time": utc_time(body.get("time")),
                "tier": deed.tier,
                "mode": _plain(body.get("mode")),
                "tool": _plain(body.get("tool")),
                "agent": one_line(deed.agent, _TEXT),
                **({"parent": one_line(deed.parent, _TEXT)} if deed.parent else {}),
                "rule": one_line(deed.rule, _TEXT),
                "action": one_line(action, _TEXT * 4),
                "fix": _plain(mapping(body.get("problem")).get("fix")),
                "file known": known,
            },
        }

    def whole(self) -> dict[str, object]:
        driver = {
            "name": "ringfence",
            "version": VERSION,
            "semanticVersion": VERSION,
            "rules": [rule.descriptor() for rule in self._rules.values()],
        }
        run: dict[str, object] = {
            "tool": {"driver": driver},
            "automationDetails": {"id": "ringfence/audit/"},
            "originalUriBaseIds": {_BASE: {"uri": _folder(str(self._workspace))}},
            "columnKind": "unicodeCodePoints",
            "results": list(self._results.values()),
        }
        if self._sessions:
            run["invocations"] = list(self._sessions.values())
        if self._left:
            run["properties"] = {"left out": self._left}
        return run

    def _path(self, deed: DecisionTrail) -> tuple[str, bool]:
        """Return the workspace file that the result is about and True, else the fallback and False."""
        body = deed.body
        targets = [
            beginning(effect.get("target"))
            for effect in map(mapping, items(body.get("effects")))
            if effect.get("kind") in ("reads", "writes", "deletes")
        ]
        asked = beginning(mapping(body.get("action")).get("path"))
        rule = RuleRef.parse(deed.rule)
        for target in (asked, *targets, rule.id if rule.kind is RuleKind.USER else ""):
            found = self._relative(target, beginning(deed.start.get("workspace")))
            if found is not None:
                return found, True
        return self._fallback, False

    def _relative(self, target: str, workspace: str) -> str | None:
        if not target or "\0" in target or ".." in PurePosixPath(target).parts:
            return None
        if not target.startswith("/"):
            # The file of a rule may be relative to the workspace; then only files in `.ringfence/` are meant.
            return target if target.startswith(".ringfence/") else None
        for root in (self._workspace, PurePosixPath(workspace or "/nowhere")):
            path = PurePosixPath(target)
            if path.is_relative_to(root) and path != root:
                return str(path.relative_to(root))
        return None

    def _invocation(self, name: str, session: dict[str, object]) -> dict[str, object]:
        code = self._exits.get(name)
        texts = {field: _plain(session.get(field)) for field in ("mode", "model", "commit", "program")}
        found: dict[str, object] = {
            # A denial (3) is a result, not a failure of the tool.
            "executionSuccessful": code in (None, 0, 3),
            "properties": {
                "session": name,
                **{field: text for field, text in texts.items() if text},
                "unattended": session.get("unattended") is True,
            },
        }
        if code is not None:
            found["exitCode"] = code
            found["exitCodeDescription"] = _EXITS.get(code, "")
        if began := utc_time(session.get("time")):
            found["startTimeUtc"] = began
        if (process := integer(session.get("process"))) is not None:
            found["processId"] = process
        if where := beginning(session.get("workspace")):
            found["workingDirectory"] = {"uri": _folder(where)}
        if argv := items(session.get("argv")):
            found["arguments"] = [visible(beginning(word), lines=False) for word in argv[1:]]
        return found


_EXITS = {
    0: "done",
    1: "failed",
    2: "usage or configuration",
    3: "finished, but the policy denied an action",
    4: "sandbox unavailable",
    5: "a limit was reached",
    130: "interrupted",
}


def _again(result: dict[str, object], deed: DecisionTrail) -> None:
    count = result["occurrenceCount"]
    records = items(mapping(result["properties"]).get("records"))
    assert isinstance(count, int)
    result["occurrenceCount"] = count + 1
    if len(records) < _RECORDS:
        records.append(deed.record.id)


def _message(deed: DecisionTrail) -> str:
    what = "denied" if deed.denied else "allowed after a question"
    tool = visible(beginning(deed.body.get("tool")), lines=False)
    shown = one_line(deed.action, _TEXT)
    why = one_line(deed.why, _TEXT)
    text = f"{what}: {tool} `{shown}`: {why}" if shown else f"{what}: {tool}: {why}"
    # SARIF, section 3.11.6: `[a](b)` is a link, unless its brackets are escaped.
    return re.sub(r"([\\\[\]])", r"\\\1", text) if re.search(r"\]\s*\(", text) else text


def _plain(value: object) -> str:
    return one_line(beginning(value), _TEXT)


def _uri(path: str) -> str:
    """Return a relative reference (RFC 3986). Reserved characters except `/` are escaped: a colon in the first segment
    would make that segment a scheme.
    """
    try:
        encoded = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        encoded = path.encode("utf-8", "surrogatepass")
    return quote(encoded, safe="/")


def _folder(path: str) -> str:
    return f"file://{_uri(path).rstrip('/')}/" if path.startswith("/") else "file:///"
