"""Detail view of one decision as text: its reasons, the granted and enforced rights, and its outcome."""

import json
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace

from policy.model.profile import MAIN
from policy.model.tier import Ruling
from runner.audit.chain import Record
from runner.audit.decisions import DecisionTrail
from runner.audit.decode import explanation_of, reason_of
from runner.audit.fields import Body, integer, items, mapping, number, text, texts
from runner.audit.list_view import action_line, place
from runner.gate.explain import ExplanationSection, caret_lines, sections, shown, titled
from runner.gate.wording import cell_words, terms_words
from runner.text.sanitize import one_line, visible

_BRIEF = 200  # characters of a text of `brief_rows`

# The fields that have a section of their own; every other field of a record is shown as it is.
# fmt: off
_DECIDED = frozenset((
    "kind", "time", "session", "tool", "action", "tree", "effects", "tiers", "reasons", "counts", "mode", "cell",
    "verdict", "because", "problem", "terms", "digest", "backend", "answer", "typed", "grants", "arguments", "source",
    "granted", "reach", "rules", "facts", "model", "agent", "parent", "client", "hooks",
    "flow", "ran",
))
_FINISHED = frozenset((
    "kind", "time", "decided", "agent", "parent", "status", "seconds", "ended_by", "bytes", "truncated", "problem",
    "violations", "connections", "connected", "enforcement", "started", "used", "changed", "changes",
    "hook", "transaction",
))
# fmt: on
_ACTOR = ("agent", "parent")
_SESSION = ("workspace", "mode", "model", "time", "program", "python", "kernel", "user", "process", "commit", "policy")
_OF_SESSION = frozenset(
    {
        "kind",
        "session",
        "agent",
        "parent",
        "unattended",
        "sources",
        "hashes",
        "offset",
        "argv",
        "enforcement",
        *_SESSION,
    }
)


def deed_text(deed: DecisionTrail, *, colour: bool = False) -> str:
    """Return all recorded facts about one decision, as text that is safe to print on a terminal."""
    body = deed.record.body
    parts = [*_head(deed), *_decision(deed), *_answer(body), *_enforced(deed), *_outcome(deed)]
    parts += _session(deed.session)
    parts += _rest("other fields", body, _DECIDED)
    parts += _rest("other fields of the outcome", deed.finished.body, _FINISHED) if deed.finished else []
    sealed = ((deed.record, ""), (deed.finished, ", its outcome"), (deed.session, ", its session"))
    parts.append(("sealed", shown([_seal(record, what) for record, what in sealed if record])))
    return titled(parts, colour=colour)


def brief_rows(deed: DecisionTrail) -> list[tuple[str, str]]:
    """Return the verdict on one decision with its reason, rights and rule, as labels and texts that are safe to print.

    `deed_text` has all recorded facts.
    """
    body, explanation = deed.record.body, explanation_of(deed.record.body, text(deed.start.get("workspace")))
    answer = mapping(body.get("answer"))
    verdict = {"allow": "allowed", "deny": "denied"}.get(text(body.get("verdict")), text(body.get("verdict")))
    if answer:
        verdict += (
            f", as {text(answer.get('client') or answer.get('by'))} answered {'yes' if answer.get('yes') else 'no'}"
        )
    rows = [("action", action_line(deed)), ("verdict", verdict)]
    if explanation is None:
        problem = mapping(body.get("problem"))
        return _visible([*rows, *((name, text(problem.get(name))) for name in ("what", "why", "fix"))])
    because = reason_of(mapping(body.get("because")))
    rows.append(("because", because.text))
    rows += [pair for pair in terms_words(explanation.terms) if pair[0] != "limits"] if explanation.terms else []
    if explanation.verdict is Ruling.DENY and explanation.problem is not None:
        rows.append(("instead", explanation.problem.fix))
    rows.append(("rule", f"{because.rule}; {cell_words(explanation.cell)}"))
    return _visible(rows)


def _visible(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(label, one_line(words, _BRIEF)) for label, words in rows if words]


def record_text(record: Record, *, ended: Record | None = None, colour: bool = False) -> str:
    """Return the text of a record that is not a decision. `ended` is the record of the end of a session, if any."""
    if record.kind == "session":
        parts = _session(record)
        parts += _rest("ended", ended.body, frozenset({"kind", "session"})) if ended else []
    else:
        title = visible(f"record {record.id}, {record.kind or 'without a kind'}", lines=False)
        parts = _rest(title, record.body, ())
    parts.append(("sealed", shown([_seal(record)])))
    return titled(parts, colour=colour)


def _head(deed: DecisionTrail) -> Iterator[ExplanationSection]:
    body = deed.record.body
    tool = text(body.get("tool"))
    model = text(body.get("model")) or "the model"
    by = {"person": "typed by the user", "model": f"requested by {model}", "agent": f"requested by {model}"}
    by["client"] = f"requested by the client {text(body.get('client'))}"
    acting = "" if deed.agent == MAIN else f" for the agent {deed.agent}, which {deed.parent or 'nobody'} started"
    who = {source: f"{words} ({tool}){acting}" for source, words in by.items()}
    wanted = who.get(text(body.get("source")), f"requested by {tool}")
    yield f"record {deed.record.id}", shown([f"decided {_clock(body)}, {wanted}"])


def _decision(deed: DecisionTrail) -> list[ExplanationSection]:
    body = deed.record.body
    explanation = explanation_of(body, text(deed.start.get("workspace")))
    if explanation is None:
        problem = mapping(body.get("problem"))
        refusal = [text(problem.get("what"))] + [f"{name}: {text(problem.get(name))}" for name in ("why", "fix")]
        verdict = text(body.get("verdict"))
        sent = "arguments" in body
        why = text(mapping(body.get("because")).get("text"))
        return [
            ("arguments, as the model sent them", shown([_plain(body["arguments"])]))
            if sent
            else ("action", shown([_plain(body.get("action"))])),
            ("verdict", shown(["denied" if verdict == "deny" else verdict, *(refusal if problem else [])])),
            *([("because", shown([why]))] if why else []),
        ]
    explained = sections(explanation)
    more = [
        f"only the beginning is recorded: {name} of {cut.get('length')} characters, sha256 {cut.get('sha256')}"
        for name, cut in mapping(body.get("action")).items()
        if isinstance(cut, dict)
    ]
    more += [
        f"recorded are {len(items(body.get(name)))} of {count} {name}"
        for name, count in mapping(body.get("counts")).items()
        if isinstance(count, int) and count > len(items(body.get(name)))
    ]
    because = reason_of(mapping(body.get("because")))
    because = because if because not in explanation.reasons else replace(because, span=None)  # its words are above
    at = next(index for index, (title, _) in enumerate(explained) if title == "verdict") + 1
    explained[at:at] = [("because", list(caret_lines(explanation.action, because)))]
    return [*explained[:1], ("cut", shown(more)), *explained[1:]]


def _answer(body: Body) -> Iterator[ExplanationSection]:
    answer = mapping(body.get("answer"))
    if answer:
        lines = [f"about what the command of record {body['ran']} changed"] if body.get("ran") else []
        lines += [text(answer.get("question")), f"{'yes' if answer.get('yes') else 'no'}, by {text(answer.get('by'))}"]
        if answer.get("client"):
            lines += [f"answered from {text(answer.get('client'))}, process {number(answer.get('process')):g}"]
        waited = number(answer.get("seconds"))
        lines += [f"after {waited:g} s"] if waited is not None else []
        lines += [f"with the comment: {text(answer.get('feedback'))}"] if answer.get("feedback") else []
        yield "answer", shown(lines)
    elif mapping(body.get("cell")).get("ruling") == "ask" and body.get("verdict") == "deny":
        yield "answer", shown(["no user could be asked"])
    kept = {text(grant.get("id")): grant for grant in map(mapping, items(body.get("granted")))}
    names = dict.fromkeys([*texts(body.get("grants")), *kept])
    yield "grants", shown([_grant(name, kept.get(name, {})) for name in names])
    yield "added by flags", shown(list(texts(body.get("typed"))))
    yield "hooks", shown([_hook_line(each) for each in map(mapping, items(body.get("hooks")))])
    yield "untrusted text", shown(list(_flow_lines(mapping(body.get("flow")))))


def _flow_lines(flow: Body) -> Iterator[str]:
    """Yield the source of untrusted text, and what the rules about it found in the action."""
    if not flow:
        return
    yield f"{text(flow.get('because'))} (flow = {text(flow.get('mode'))})"
    if private := text(flow.get("private")):
        yield f"private data: {private}"
    for each in map(mapping, items(flow.get("findings"))):
        yield f"{text(each.get('text'))} ({text(each.get('rule'))})"


def _hook_line(answer: Body) -> str:
    """Return the answer of a hook with its file and line."""
    said = "failed, which counts as" if answer.get("failed") else "answered"
    record = f", record {answer.get('record')}" if answer.get("record") else ", which did not run"
    why = f": {text(answer.get('reason'))}" if answer.get("reason") else ""
    return f"{text(answer.get('place'))} ({text(answer.get('event'))}{record}) {said} {text(answer.get('answer'))}{why}"


def _grant(name: str, kept: Body) -> str:
    """Return the name of a used grant and the action that it allows."""
    what = mapping(kept.get("what"))
    about = shlex.join(texts(what.get("words"))) or ", ".join(texts(what.get("write")) or texts(what.get("read")))
    return f"{name}: {about}, for {text(kept.get('scope'))}" if about else name


def _enforced(deed: DecisionTrail) -> Iterator[ExplanationSection]:
    body = deed.record.body
    backend = text(body.get("backend"))
    report = mapping(deed.outcome.get("enforcement"))
    reach = text(body.get("reach"))
    if reach and reach != backend:
        yield "judged for", shown([f"the capabilities of {reach}"])
    if report:
        yield "enforced", shown(list(_report(report)))
    elif backend and backend != "none":
        known = mapping(deed.start.get("enforcement"))
        yield "to be enforced", shown(list(_report(known)) or [f"by {backend}; no details are recorded"])


def _report(report: Body) -> Iterator[str]:
    yield f"{text(report.get('level'))} by {text(report.get('backend'))}"
    checks = mapping(report.get("checks"))
    held = [name for name, held in checks.items() if held]
    if held:
        yield f"held: {', '.join(held)}"
    if len(held) < len(checks):
        yield f"did not hold: {', '.join(name for name, held in checks.items() if not held)}"
    for missing in texts(report.get("missing")):
        yield f"not enforced: {missing}"
    if report.get("limits"):
        yield f"limits counted by {text(report.get('limits'))}"


def _outcome(deed: DecisionTrail) -> Iterator[ExplanationSection]:
    if deed.finished is None:
        if deed.record.body.get("verdict") == "allow":
            yield "outcome", shown(["no end is recorded: the action still runs, or the program was killed"])
        return
    body = deed.finished.body
    seconds = number(body.get("seconds"))
    took = f" after {seconds:.2f} s" if seconds is not None else ""
    began = f", from {_clock({'time': body['started']})}" if body.get("started") else ""
    lines = [f"exit {body.get('status')}{took}{began} to {_clock(body)}"]
    lines += [f"ended by: {text(body.get('ended_by'))}"] if body.get("ended_by") else []
    counts = mapping(body.get("bytes"))
    streams = [(name, counts.get(name)) for name in ("stdin", "stdout", "stderr")]
    sizes = [f"{count} bytes of {name}" for name, count in streams if isinstance(count, int)]
    cut = ", cut at the limit" if body.get("truncated") else ""
    lines += [f"{', '.join(sizes)}{cut}"] if sizes else []
    used = mapping(body.get("used"))
    cpu, memory = number(used.get("cpu")), used.get("memory")
    lines += [f"{cpu:g} s of CPU" + (f", {memory} bytes of memory" if memory else "")] if cpu is not None else []
    problem = mapping(body.get("problem"))
    lines += [text(problem.get("what")), f"why: {text(problem.get('why'))}"] if problem else []
    lines += [_hook_line(mapping(body.get("hook")))] if body.get("hook") else []
    yield "outcome", shown(lines)
    files = [mapping(item) for item in items(body.get("changed"))]
    exact = bool(body.get("transaction"))  # it has the hashes, too
    changed = [f"{text(file.get('how'))} {text(file.get('path'))}{'' if exact else _hashes(file)}" for file in files]
    yield "changed", shown(changed + _more(body.get("changes"), len(files), "files"))
    yield "transaction", shown([*_transaction(mapping(body.get("transaction")))])
    stopped = []
    for violation in map(mapping, items(body.get("violations"))):
        seen = f"seen by {text(violation.get('layer'))}"
        seen = "inferred from a message of the program" if violation.get("inferred") else seen
        stopped.append(f"{text(violation.get('what'))} ({seen})")
        stopped += [f"  fix: {text(violation.get('fix'))}"] if violation.get("fix") else []
    yield "blocked by the sandbox", shown(stopped)
    yield "network", shown([*_connections(body)])


def _hashes(file: Body) -> str:
    """Return the first digits of the hashes before and after; empty if there is none."""
    before, after = (text(file.get(name))[:16] or "-" for name in ("before", "after"))
    return f" ({before} to {after})" if (before, after) != ("-", "-") else ""


_KEPT = {"whole": "everything", "part": "a part"}


def _transaction(done: Body) -> Iterator[str]:
    """Yield the exact changes of a command that ran as a transaction: with the hashes before and after."""
    if not done:
        return
    files = [mapping(item) for item in items(done.get("files"))]
    yield from [f"a try of which the user kept {_KEPT.get(text(done['tried']), '')}"] if done.get("tried") else []
    yield f"applied by {text(done.get('by'))}: {done.get('count')} files, tree {text(done.get('tree'))}"
    for file in files:
        yield f"  {text(file.get('how'))} {text(file.get('path'))}{_hashes(file) or ' (- to -)'}"
    yield from _more(done.get("count"), len(files), "files")
    unkept = [mapping(item) for item in items(done.get("unapplied"))]
    yield from [f"not kept: {integer(done.get('unkept')) or 0} files"] if unkept else []
    for file in unkept:
        yield f"  {text(file.get('how'))} {text(file.get('path'))}{_hashes(file) or ' (- to -)'}"
    yield from _more(done.get("unkept"), len(unkept), "files")
    held = [mapping(item) for item in items(done.get("held"))]
    for each in held:
        yield f"not applied: {text(each.get('path'))} ({text(each.get('reason'))}: {text(each.get('why'))})"
    yield from _more(done.get("left"), len(held), "changes that were not applied")


def _connections(body: Body) -> Iterator[str]:
    made = [mapping(item) for item in items(body.get("connections"))]
    for each in made:
        verdict = "allowed" if each.get("allowed") else "denied"
        parts = [f"{place(each)} {verdict}", text(each.get("asked"))]
        parts += [f"at {text(each.get('address'))}"] if each.get("address") else []
        parts += [f"sent {integer(each.get('sent')) or 0} bytes, received {integer(each.get('received')) or 0}"]
        parts += [f"with credential {text(each.get('credential'))}"] if each.get("credential") else []
        parts += [text(each.get("why"))] if each.get("why") else []
        yield "; ".join(part for part in parts if part)
    yield from _more(body.get("connected"), len(made), "attempts")


def _more(total: object, listed: int, noun: str) -> list[str]:
    return [f"and {total - listed} more {noun}"] if isinstance(total, int) and total > listed else []


def _session(record: Record | None) -> list[ExplanationSection]:
    if record is None:
        return [("session", shown(["the record of the session is not in this log"]))]
    body = record.body
    lines = [f"{'name':<9} {text(body.get('session'))}"]
    for name in _SESSION:
        if body.get(name) is not None:
            lines.append(f"{'began':<9} {_clock(body)}" if name == "time" else f"{name:<9} {_plain(body[name])}")
    lines.append(f"{'attended':<9} {'no user' if body.get('unattended') else 'a user was present'}")
    hashes = mapping(body.get("hashes"))
    for index, name in enumerate(texts(body.get("sources"))):
        digest = text(hashes.get(name))
        lines.append(f"{'' if index else 'settings':<9} {name}{f' (sha256 {digest})' if digest else ''}")
    if body.get("argv"):
        lines.append(f"{'started':<9} {shlex.join(texts(body.get('argv')))}")
    report = mapping(body.get("enforcement"))
    sandbox = _report(report) if report else ()
    lines += [f"{'sandbox' if not index else '':<9} {line}" for index, line in enumerate(sandbox)]
    return [("session", shown(lines)), *_rest("other fields of the session", body, _OF_SESSION)]


def _seal(record: Record, what: str = "") -> str:
    place = f" ({record.number} of log {record.log})" if record.log else ""
    return f"record {record.id}{place}{what}: {record.hash}"


def _rest(title: str, body: Body, known: Iterable[str]) -> list[ExplanationSection]:
    """Return a section with the fields that are not `known`, because no other section shows them, and not empty."""
    fields = {name: value for name, value in body.items() if name not in known and value not in (None, "", [], {})}
    return [(title, shown([f"{name}: {_plain(value)}" for name, value in fields.items()]))] if fields else []


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and "cut" in value:
        return text(value)
    return json.dumps(value, ensure_ascii=False)


def _clock(body: Body) -> str:
    return text(body.get("time")).replace("T", " ").replace("Z", " UTC")
