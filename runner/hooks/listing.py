"""Lists of hooks for commands: the state of each hook, its runs in the audit log, and hooks as `[[hook]]` entries."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from policy.model.frozen import dataclass
from runner.audit.fields import mapping, text
from runner.audit.log import AuditLog
from runner.config.hookfiles.hook import USUAL_TIMEOUT, Hook, HookForm, HookKind
from runner.hooks.confined import hook_rights

_MOST_RECORDS = 200_000  # outcomes of actions that are searched for runs of hooks, the newest first


@dataclass(frozen=True, slots=True)
class HookCounts:
    """The recorded runs of hooks, by event and place.

    Attributes:
        runs: The numbers of runs.
        failures: The numbers of runs without an answer.
    """

    runs: Counter[tuple[str, str]]
    failures: Counter[tuple[str, str]]


def hook_counts(log: AuditLog | None) -> HookCounts:
    """Return the runs that the audit log holds; none without a log."""
    runs, failures = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for record in log.rows(kind="finished", limit=_MOST_RECORDS) if log is not None else ():
        hook = mapping(record.body.get("hook"))
        if hook:
            key = text(hook.get("event")), text(hook.get("place"))
            runs[key] += 1
            failures[key] += hook.get("failed") is True
    return HookCounts(runs, failures)


def rights_words(hook: Hook, workspace: str, home: str) -> str:
    """Return the rights of a hook in words."""
    if hook.kind is HookKind.HTTP:
        return f"sends the event to {hook.url}"
    if hook.kind is HookKind.PROMPT:
        return "asks the small model, on the budget of the run"
    rights = hook_rights(hook, hook.argv or ("bash",), workspace, home)
    parts = ["reads the workspace"]
    parts += [f"reads {path}" for path in rights.read]
    parts += ["changes the workspace" if path == workspace else f"changes {path}" for path in rights.write]
    parts += [f"connects to {host}" for host in rights.hosts]
    parts += [] if rights.hosts else ["no network"]
    return ", ".join((*parts, f"{hook.timeout:g} s"))


def event_words(hook: Hook) -> str:
    """Return the event of a hook with its matcher: `PreToolUse(Bash)`."""
    return f"{hook.event}({hook.matcher})" if hook.matcher else hook.event


def hook_json(hook: Hook, state: str, counts: HookCounts, workspace: str, home: str) -> dict[str, object]:
    """Return a hook for `agent hooks list --json`."""
    key = hook.event, hook.place
    return {
        "event": hook.event,
        "matcher": hook.matcher,
        "state": state,
        "kind": hook.kind.value,
        "form": hook.form.value,
        "scope": hook.scope.value,
        "place": hook.place,
        "runs_what": hook.words,
        "rights": rights_words(hook, workspace, home),
        "on_failure": "deny" if hook.closed else "continue",
        "runs": counts.runs[key],
        "failures": counts.failures[key],
        "fault": None,
    }


def hook_entries(hooks: Iterable[Hook]) -> Iterator[str]:
    """Yield each hook as a `[[hook]]` entry of TOML, with a comment about its origin."""
    for hook in hooks:
        values: dict[str, object] = {"event": hook.event}
        if hook.matcher:
            values["matcher"] = hook.matcher
        if hook.condition:
            values["if"] = hook.condition
        if hook.argv:
            values["run"] = list(hook.argv)
        else:
            values[{HookKind.HTTP: "url", HookKind.PROMPT: "prompt"}.get(hook.kind, "command")] = hook.words
        if hook.form is not HookForm.OURS:
            values["form"] = hook.form.value
        if hook.timeout != USUAL_TIMEOUT:
            values["timeout"] = hook.timeout
        if hook.lenient:
            values["on_failure"] = "continue"
        for name, on in (("background", hook.background), ("once", hook.once)):
            if on:
                values[name] = True
        rows = [f"{key} = {_literal(value)}" for key, value in values.items()]
        if hook.headers:
            pairs = ", ".join(f"{_literal(name)} = {_literal(value)}" for name, value in hook.headers)
            rows.append(f"headers = {{ {pairs} }}")
        yield "\n".join((f"# from {hook.place}", "[[hook]]", *rows, ""))


def _literal(value: object) -> str:
    """Return a value as TOML. The strings of JSON are strings of TOML, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
