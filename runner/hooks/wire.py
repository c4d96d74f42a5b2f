"""The wire format of hooks, as Claude Code defined it: JSON on standard input; an exit status, text and JSON back.

Exit status 0 with optional JSON is an answer. Status 2 denies, with standard error as the reason. Everything else is a
failure: another status, a limit, broken JSON, a value of a wrong type, an unknown decision.
"""

import json
from collections.abc import Mapping

from policy.model.frozen import dataclass
from runner.config.hookfiles.hook import Hook, HookForm
from runner.engine.hook_access import HookDecision
from runner.hooks.names import own_arguments
from runner.text.strict_json import DuplicateNameError, parse_strictly

LONGEST_REASON = 10_000  # characters of a reason or an added text
_DENIES = 2  # the exit status
# Events after which a denial can only be a text for the model, which goes on.
_AFTERWARDS = frozenset(("PostToolUse", "Stop", "SubagentStop", "PostSampling"))
# Events whose plain output on status 0 is added for the model.
_ADDS_OUTPUT = frozenset(("UserPromptSubmit", "SessionStart", "Setup", "SubagentStart"))

# fmt: off
_WORDS = {
    "allow": HookDecision.ALLOW,  "approve": HookDecision.ALLOW,
    "deny":  HookDecision.DENY,   "block": HookDecision.DENY,
    "ask":   HookDecision.ASK,    "modify": HookDecision.MODIFY, "retry": HookDecision.RETRY,
    "defer": HookDecision.ALLOW,  # no opinion: the usual course goes on
}
# fmt: on


class WireError(ValueError):
    """The error for an answer that does not keep the wire format. Its text is the reason."""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The content of one answer.

    Attributes:
        decision: The kind of the answer.
        reason: The reason for the model or the user.
        input: The input that replaces that of the call, with our names; None without one.
        context: The text that is added for the model.
        notice: A message for the user.
        halts: True if the hook ends the run.
    """

    decision: HookDecision = HookDecision.ALLOW
    reason: str = ""
    input: Mapping[str, object] | None = None
    context: str = ""
    notice: str = ""
    halts: bool = False


def encoded(fields: Mapping[str, object]) -> bytes:
    """Return the input of a hook: one line of JSON."""
    return json.dumps(fields, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def parsed_exit(
    hook: Hook, status: int, stdout: bytes, stderr: bytes, tool: str = "", arguments: Mapping[str, object] | None = None
) -> ParsedAnswer:
    """Return the answer of a command that ended by itself. Raise WireError for a failure.

    `tool` and `arguments` are our names of the call that the event is about. `arguments` are in the form of the hook.
    """
    out, err = (each.decode("utf-8", "replace").strip() for each in (stdout, stderr))
    if status == _DENIES:
        reason = (err or "the hook gave no reason")[:LONGEST_REASON]
        if hook.event in _AFTERWARDS:
            return ParsedAnswer(HookDecision.RETRY, reason)
        return ParsedAnswer(HookDecision.DENY, reason)
    if status != 0:
        said = f": {err.splitlines()[-1][:300]}" if err else ""
        raise WireError(f"it ended with status {status}{said}")
    if not out.startswith(("{", "[")):
        return ParsedAnswer(context=out[:LONGEST_REASON] if hook.event in _ADDS_OUTPUT else "")
    return parsed_json(hook, out, tool, arguments)


def parsed_json(hook: Hook, text: str, tool: str = "", arguments: Mapping[str, object] | None = None) -> ParsedAnswer:
    """Return the answer that a JSON text states. Raise WireError for a text that is no answer."""
    try:
        found = parse_strictly(text)
    except RecursionError:
        raise WireError("it printed JSON that is nested too deeply") from None
    except DuplicateNameError:
        raise WireError("it printed JSON with the same name twice") from None
    except ValueError:
        raise WireError("it printed invalid JSON") from None
    if not isinstance(found, dict):
        raise WireError("it printed JSON that is not an object")
    special = found.get("hookSpecificOutput", {})
    special = {} if special is None else special
    if not isinstance(special, dict):
        raise WireError("its `hookSpecificOutput` is not an object")
    decision, reason = _decision(hook, found, special)
    changed = _input(hook, found, special, tool, arguments)
    if changed is not None and decision < HookDecision.MODIFY:
        decision = HookDecision.MODIFY
    if decision is HookDecision.MODIFY and changed is None:
        raise WireError("it changes the input, and gives no input")
    context = _text(special, "additionalContext") or _text(found, "additionalContext") or _text(found, "context")
    going = found.get("continue", True)
    if not isinstance(going, bool):
        raise WireError("its `continue` is neither true nor false")
    if not going:
        reason = _text(found, "stopReason") or reason or "the hook ended the run"
        if hook.event not in _AFTERWARDS and decision is not HookDecision.ASK:
            decision = HookDecision.DENY
    return ParsedAnswer(
        decision,
        reason[:LONGEST_REASON],
        changed,
        context[:LONGEST_REASON],
        _text(found, "systemMessage")[:LONGEST_REASON],
        not going,
    )


def _decision(hook: Hook, found: Mapping[str, object], special: Mapping[str, object]) -> tuple[HookDecision, str]:
    """Return the strictest of the decisions in the old and the new place, and its reason."""
    stated: list[tuple[HookDecision, str]] = []
    for place, key, why in ((special, "permissionDecision", "permissionDecisionReason"), (found, "decision", "reason")):
        if place.get(key) is not None:
            stated.append((_word(place[key]), _text(place, why)))
    if (inner := special.get("decision")) is not None:  # of PermissionRequest
        if not isinstance(inner, dict) or "behavior" not in inner:
            raise WireError("its `hookSpecificOutput.decision` has no `behavior`")
        stated.append((_word(inner["behavior"]), _text(inner, "message")))
    decision, reason = max(stated, key=lambda each: each[0], default=(HookDecision.ALLOW, ""))
    if hook.event in _AFTERWARDS and decision >= HookDecision.ASK:
        decision = HookDecision.RETRY
    if decision >= HookDecision.RETRY and not reason:
        reason = "the hook gave no reason"
    return decision, reason


def _word(value: object) -> HookDecision:
    decision = _WORDS.get(value) if isinstance(value, str) else None
    if decision is None:
        raise WireError(f"there is no decision `{str(value)[:60]}`")
    return decision


def _input(
    hook: Hook,
    found: Mapping[str, object],
    special: Mapping[str, object],
    tool: str,
    arguments: Mapping[str, object] | None,
) -> Mapping[str, object] | None:
    """Return the changed input with our names. Gemini CLI merges it into the old input, the others replace that."""
    inner = special.get("decision")
    places = (special.get("updatedInput"), special.get("tool_input"), found.get("input"),
              inner.get("updatedInput") if isinstance(inner, dict) else None)  # fmt: skip
    changed = next((each for each in places if each is not None), None)
    if changed is None or hook.event not in ("PreToolUse", "PermissionRequest"):
        return None
    if not isinstance(changed, dict):
        raise WireError("its changed input is not an object")
    if hook.form is HookForm.GEMINI or special.get("tool_input") is changed:
        changed = {**(arguments or {}), **changed}
    return own_arguments(tool, changed, hook.form)


def _text(place: Mapping[str, object], key: str) -> str:
    value = place.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WireError(f"its `{key}` is not a text")
    return value
