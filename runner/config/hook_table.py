"""The entries `[[hook]]` of a configuration file: their keys, and the strict check of each entry."""

from collections.abc import Mapping

from policy.model.host_rule import host_rule
from policy.model.verdict import Problem
from policy.toml.schema import TomlEntry, Value, ValueType

# fmt: off
HOOK_KEYS: Mapping[str, ValueType] = {
    "event":      ValueType.TEXT,
    "matcher":    ValueType.TEXT,
    "if":         ValueType.TEXT,
    "command":    ValueType.TEXT,
    "run":        ValueType.TEXTS,
    "url":        ValueType.TEXT,
    "headers":    ValueType.TABLE,
    "prompt":     ValueType.TEXT,
    "model":      ValueType.TEXT,
    "timeout":    ValueType.SECONDS,
    "on_failure": ValueType.TEXT,
    "hosts":      ValueType.TEXTS,
    "read":       ValueType.TEXTS,
    "write":      ValueType.TEXTS,
    "background": ValueType.SWITCH,
    "once":       ValueType.SWITCH,
    "form":       ValueType.TEXT,
}
HOOK_HELP: Mapping[str, str] = {
    "event":      "the event, such as `PreToolUse` (`docs/guide/hooks.md` lists all events)",
    "matcher":    "names of tools, such as `edit|write` or `Bash`, or a regular expression; by default all",
    "if":         "a condition on the call, such as `Bash(git commit *)`",
    "command":    "the command line, for bash",
    "run":        "instead of `command`: a program and its arguments, without a shell",
    "url":        "instead of `command`: an address that gets the event by POST",
    "headers":    "headers of requests to `url`; `$NAME` inserts a variable of yours",
    "prompt":     "instead of `command`: a question for the small model, in which `$ARGUMENTS` is the event",
    "model":      "the model of `prompt`, as `provider:model`; by default the small model",
    "timeout":    "the maximum wall time of one run; by default 60 s, at most 10 minutes",
    "on_failure": "`deny` (default) or `continue`: the effect of a hook that fails, for events that can deny",
    "hosts":      "hosts that the hook may connect to",
    "read":       "files and folders outside the workspace that the hook may read",
    "write":      "folders that the hook may change; `.` is the workspace",
    "background": "do not wait for the hook, and ignore its answer",
    "once":       "run the hook once in a session",
    "form":       "the program that the hook was written for: `ringfence` (default), `claude`, `codex` or `gemini`",
}
# fmt: on
HOOK_EXAMPLE = """event   = "PostToolUse"
matcher = "edit|write"
command = "ruff format --quiet ."
write   = ["."]"""
MOST_HOOKS = 200  # of one file
_KINDS = ("command", "run", "url", "prompt")
_RIGHTS = ("hosts", "read", "write")  # keys of a hook that runs in a sandbox


def check_hook(entry: TomlEntry) -> None:
    """Raise TomlError for an entry that is no usable hook."""
    from runner.config.hookfiles.hook import EVENTS  # few configurations have hooks
    from runner.config.hookfiles.hook_values import command_fault, hook_url_fault, matcher_fault

    event = str(entry.values.get("event", ""))
    if event not in EVENTS:
        from runner.config.validators import choice

        if not event:
            raise entry.error_at("", "it has no `event`", 'add event = "PreToolUse"')
        raise entry.error_at("event", *choice("event", event, EVENTS))
    if wrong := matcher_fault(str(entry.values.get("matcher", ""))):
        raise entry.error_at("matcher", *wrong)
    kinds = [key for key in _KINDS if key in entry.values]
    if len(kinds) != 1:
        fix = 'write command = "...", run = ["PROGRAM", ...], url = "https://..." or prompt = "..."'
        raise entry.error_at(kinds[1] if kinds else "", "it needs exactly one of command, run, url and prompt", fix)
    words = hook_texts(entry.values[kinds[0]])
    if not any(each.strip() for each in words):
        raise entry.error_at(kinds[0], "it is empty", "write what the hook runs, or remove the entry")
    if wrong := hook_url_fault(words[0]) if kinds == ["url"] else command_fault(words):
        raise entry.error_at(kinds[0], *wrong)
    _check_keys_of_kind(entry, kinds[0])
    for text in hook_texts(entry.values.get("hosts", ())):
        if isinstance(found := host_rule(text), Problem):
            raise entry.error_at("hosts", f"`{text}`: {found.why}", found.fix)


def _check_keys_of_kind(entry: TomlEntry, kind: str) -> None:
    """Raise TomlError for a key that has no meaning for a hook of this kind."""
    for key in ("headers", "model"):
        if key in entry.values and kind != {"headers": "url", "model": "prompt"}[key]:
            raise entry.error_at(key, "a hook with this kind of work has no such key", "remove the key")
    if kind in ("command", "run"):
        return
    wrong = next((key for key in _RIGHTS if key in entry.values), "")
    private = all(text.split()[-1:] == ["private"] for text in hook_texts(entry.values.get("hosts", ())))
    if wrong and not (wrong == "hosts" and kind == "url" and private and not {"read", "write"} & set(entry.values)):
        fix = "write `HOST private` for a server in a private network or on this machine, or remove the key"
        raise entry.error_at(wrong, "no sandbox runs this hook, so it gets no such right", fix)


def hook_texts(value: Value) -> tuple[str, ...]:
    """Return the texts of a list, or the text itself in a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, tuple) else ()
