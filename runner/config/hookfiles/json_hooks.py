"""Hooks of the table `hooks` in the files of Claude Code, Codex and Gemini CLI, and of bundles."""

import json
import re
from collections.abc import Iterator, Mapping

from policy.toml.schema import TomlError, parse
from runner.config.hookfiles.hook import (
    EVENTS,
    LONGEST_TIMEOUT,
    USUAL_TIMEOUT,
    Hook,
    HookFault,
    HookFile,
    HookForm,
    HookKind,
    HookScope,
)
from runner.config.hookfiles.hook_values import command_fault, hook_url_fault, matcher_fault
from runner.text.sanitize import one_line
from runner.text.strict_json import json_object, json_text

# fmt: off
_GEMINI_EVENTS = {
    "BeforeTool": "PreToolUse",        "AfterTool": "PostToolUse",  "BeforeAgent": "UserPromptSubmit",
    "AfterAgent": "Stop",              "AfterModel": "PostSampling", "PreCompress": "PreCompact",
    "SessionStart": "SessionStart",    "SessionEnd": "SessionEnd",   "Notification": "Notification",
}
# fmt: on
_TYPES = {"command": HookKind.COMMAND, "http": HookKind.HTTP, "prompt": HookKind.PROMPT}
_USED = frozenset((
    "type", "command", "args", "url", "headers", "prompt", "model", "timeout", "if", "async", "once", "onFailure",
    "name", "description", "statusMessage", "shell", "matcher", "sequential",
))  # fmt: skip
_GUARD = re.compile(r" guard hook [a-z]+")  # a line that `agent guard` wrote for another agent
_MOST = 200  # hooks of one file


def json_hooks(
    data: bytes, path: str, form: HookForm, scope: HookScope, *, key: str = "hooks", root: str = ""
) -> HookFile:
    """Return the hooks of a JSON file. Entries with a fault are in `faults`. Raise ValueError for an unusable file.

    `path` is the path for the user, `key` the key of the table, and `root` the folder of the bundle of the file.
    """
    text = json_text(data, commented=form is HookForm.GEMINI)
    content = json_object(text)
    return table_hooks(content.get(key), text, path, form, scope, root=root, switches=content)


def toml_hooks(data: bytes, path: str, scope: HookScope) -> HookFile:
    """Return the hooks of the table `[hooks]` of a `config.toml` of Codex. Raise ValueError for an unusable file."""
    try:
        text = data.decode("utf-8-sig")
        content = parse(text, path)
    except (TomlError, UnicodeDecodeError):
        raise ValueError("it is not valid TOML") from None
    return table_hooks(content.get("hooks"), text, path, HookForm.CODEX, scope)


def table_hooks(
    table: object,
    text: str,
    path: str,
    form: HookForm,
    scope: HookScope,
    *,
    root: str = "",
    switches: Mapping[str, object] | None = None,
) -> HookFile:
    """Return the hooks of a table whose keys are events. `text` is the whole file, for the lines of the hooks.

    A table that is missing has no hooks. `switches` are the keys beside the table, such as `disableAllHooks`.
    """
    if table is None:
        return HookFile(path)
    if not isinstance(table, dict):
        raise ValueError("its `hooks` are not a table")
    if switches is not None and switches.get("disableAllHooks") is True:
        return HookFile(path, left=(f"{path}: `disableAllHooks` switches its hooks off",))
    reader = _Reader(text, path, form, scope, root)
    for event, groups in table.items():
        reader.event(str(event), groups)
    return HookFile(path, tuple(reader.hooks[:_MOST]), tuple(reader.faults), tuple(dict.fromkeys(reader.left)))


class _EntryFault(ValueError):
    """The error for one entry that cannot be used. Its text is the reason."""


class _Reader:
    """A reader of the events of one file."""

    def __init__(self, text: str, path: str, form: HookForm, scope: HookScope, root: str) -> None:
        self.hooks: list[Hook] = []
        self.faults: list[HookFault] = []
        self.left: list[str] = []
        self._text, self._path, self._form, self._scope, self._root = text, path, form, scope, root
        self._at: dict[str, int] = {}  # where the search for the same literal continues
        self._lines: dict[int, int] = {}  # of entries that were looked for, by identity

    def event(self, name: str, groups: object) -> None:
        """Add the hooks of one event."""
        own = _GEMINI_EVENTS.get(name, "") if self._form is HookForm.GEMINI else name if name in EVENTS else ""
        if not own:
            if name not in ("enabled", "disabled", "notifications"):  # switches of Gemini CLI
                self.left.append(f"{self._path}: the event `{one_line(name, 60)}` has no counterpart")
            return
        if not isinstance(groups, list):
            self.faults.append(HookFault(f"{self._path}:1", own, f"`{name}` is not a list"))
            return
        for group in groups:
            for matcher, entry in self._entries(own, group):
                try:
                    hook = self._hook(own, matcher, entry)
                except _EntryFault as fault:
                    self.faults.append(HookFault(f"{self._path}:{self._line_of(entry)}", own, str(fault)))
                else:
                    if hook is not None:
                        self.hooks.append(hook)

    def _entries(self, event: str, group: object) -> Iterator[tuple[object, dict[str, object]]]:
        if not isinstance(group, dict):
            self.faults.append(HookFault(f"{self._path}:1", event, "an entry is not a table"))
            return
        inner = group.get("hooks", [group] if "type" in group or "command" in group else None)
        if not isinstance(inner, list):
            self.faults.append(HookFault(f"{self._path}:1", event, "an entry has no list `hooks`"))
            return
        for each in inner:
            if isinstance(each, dict):
                yield group.get("matcher", ""), each
            else:
                self.faults.append(HookFault(f"{self._path}:1", event, "an entry of `hooks` is not a table"))

    def _hook(self, event: str, matcher: object, entry: dict[str, object]) -> Hook | None:
        kind = _TYPES.get(str(entry.get("type", "command")))
        if kind is None:
            raise _EntryFault(f"hooks of the type `{one_line(str(entry.get('type')), 40)}` are not supported")
        if not isinstance(matcher, str) or len(matcher) > 1000:
            raise _EntryFault("the matcher is not a short text")
        if wrong := matcher_fault(matcher):
            raise _EntryFault(wrong[0])
        texts: dict[str, str] = {}
        for key in ("command", "url", "prompt", "model", "if"):
            value = entry.get(key, "")
            if not isinstance(value, str):
                raise _EntryFault(f"`{key}` is not a text")
            texts[key] = value
        args = entry.get("args", [])
        if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
            raise _EntryFault("`args` is not a list of texts")
        line = self._line_of(entry)
        wanted = texts[{HookKind.COMMAND: "command", HookKind.HTTP: "url", HookKind.PROMPT: "prompt"}[kind]]
        if not wanted.strip():
            raise _EntryFault(f"a hook of the type `{kind}` has no text to run, send to or ask")
        if _GUARD.search(texts["command"]):
            self.left.append(f"{self._path}:{line}: `agent guard` wrote this hook for the other agent")
            return None
        if wrong := hook_url_fault(wanted) if kind is HookKind.HTTP else command_fault((wanted, *args)):
            raise _EntryFault(wrong[0])
        self.left += [
            f"{self._path}:{line}: `{one_line(str(key), 60)}` has no counterpart" for key in entry if key not in _USED
        ]
        return Hook(
            event=event,
            matcher=matcher,
            kind=kind,
            form=self._form,
            scope=self._scope,
            source=self._path,
            line=line,
            argv=(wanted, *args) if kind is HookKind.COMMAND and args else (),
            command=wanted if kind is HookKind.COMMAND and not args else "",
            url=wanted if kind is HookKind.HTTP else "",
            headers=_headers(entry.get("headers")) if kind is HookKind.HTTP else (),
            prompt=wanted if kind is HookKind.PROMPT else "",
            model=texts["model"] if ":" in texts["model"] else "",
            timeout=self._timeout(entry.get("timeout")),
            # The user's own choice only: a repository cannot switch off that its guard fails closed.
            lenient=entry.get("onFailure") == "continue" and self._scope is HookScope.USER,
            condition=texts["if"],
            background=entry.get("async") is True,
            once=entry.get("once") is True,
            root=self._root,
        )

    def _timeout(self, value: object) -> float:
        if value is None:
            return USUAL_TIMEOUT
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise _EntryFault("`timeout` is not a time above 0")
        return min(float(value) / 1000 if self._form is HookForm.GEMINI else float(value), LONGEST_TIMEOUT)

    def _line_of(self, entry: Mapping[str, object]) -> int:
        """Return the line of the command, address or question of an entry in the text of the file."""
        if id(entry) not in self._lines:
            self._lines[id(entry)] = self._search(entry)
        return self._lines[id(entry)]

    def _search(self, entry: Mapping[str, object]) -> int:
        for key in ("command", "url", "prompt"):
            value = entry.get(key)
            if not isinstance(value, str) or not value:
                continue
            for literal in (json.dumps(value), json.dumps(value, ensure_ascii=False), f"'{value}'", value):
                found = self._text.find(literal, self._at.get(literal, 0))
                if found >= 0:
                    self._at[literal] = found + len(literal)
                    return self._text.count("\n", 0, found) + 1
        return 1


def _headers(value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise _EntryFault("`headers` is not a table of texts")
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not text.isprintable():
            raise _EntryFault(f"the header `{one_line(name, 60)}` cannot be sent")
    return tuple(value.items())
