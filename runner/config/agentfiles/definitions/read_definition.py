"""The reader of one agent file, in the format of this program or of another."""

import tomllib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

import yaml

from policy.model.host_rule import host_rule
from policy.model.verdict import Problem
from runner.config.agentfiles.definitions.definition import (
    LONGEST,
    LONGEST_DESCRIPTION,
    NAME,
    WORKTREE,
    AgentDefinition,
    AgentOwner,
    BrokenDefinition,
)
from runner.config.agentfiles.definitions.foreign import command_patterns, mode_of, model_of, tools_of
from runner.config.agentfiles.front_matter import HeadError, front_matter
from runner.text.sanitize import one_line, visible_prose

_MOST_TURNS = 1000
HeadValues = Mapping[str, object]


class _Fault(ValueError):
    """The error for a file that defines no agent. Its text is the reason."""


def read_definition(path: str, data: bytes, owner: AgentOwner, source: str) -> AgentDefinition | BrokenDefinition:
    """Return the definition in the file at `path`, or the reason why there is none.

    The name of the folder and of the file decide about the format: a `.toml` file is one of Codex, and a file below
    `opencode` one of opencode. The other formats differ only in the names of their settings. `source` is the file as
    shown to the user.
    """
    try:
        if len(data) > LONGEST:
            raise _Fault(f"is longer than {LONGEST >> 10} KiB")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise _Fault("is not UTF-8 text") from None
        if path.endswith(".toml"):
            return _codex(text, owner, source)
        values, body = _head(text)
        named = PurePosixPath(path).stem
        if "opencode" in path:
            return _opencode(values, body, named, owner, source)
        return _markdown(values, body, named, owner, source)
    except _Fault as fault:
        return BrokenDefinition(source, str(fault))


def _head(text: str) -> tuple[HeadValues, str]:
    """Return the settings of the front matter, with lists and tables, and the text below."""
    try:
        head = front_matter(text, ("description",))  # refuses all YAML but plain values, lists and tables
    except HeadError as error:
        raise _Fault(str(error)) from None
    values: dict[str, object] = dict(head.texts)
    if head.others:
        lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        end = next(place for place, line in enumerate(lines[1:], 1) if line.rstrip() == "---")
        try:
            loaded = yaml.load("\n".join(lines[1:end]), Loader=yaml.BaseLoader)  # noqa: S506  # makes only texts
        except yaml.YAMLError:
            raise _Fault("has lists or tables in its front matter that cannot be read") from None
        values |= {name: loaded[name] for name in head.others if isinstance(loaded, dict) and name in loaded}
    return values, head.body


def _markdown(values: HeadValues, body: str, named: str, owner: AgentOwner, source: str) -> AgentDefinition:
    """Read a file of this program, Claude Code or Gemini CLI."""
    notices: list[str] = []
    known = {
        "name", "description", "tools", "disallowedTools", "exclude_tools", "model", "permissionMode", "mode",
        "maxTurns", "max_turns", "turns", "isolation", "background", "read_only", "hosts", "color", "kind",
    }  # fmt: skip
    notices += [f"`{one_line(key, 40)}` is not used" for key in values if key not in known]
    hosts = None
    if "hosts" in values:
        hosts = tuple(_names(values["hosts"]))
        for host in hosts:
            if isinstance(rule := host_rule(host), Problem):
                raise _Fault(f"names the host `{one_line(host, 80)}`, which is none: {rule.why}")
    turns = next((_text(values, key) for key in ("turns", "maxTurns", "max_turns") if key in values), "")
    isolation = _text(values, "isolation")
    if isolation not in ("", "none", WORKTREE):
        notices.append(f"the isolation `{one_line(isolation, 40)}` is not known; the agent shares the folder")
    tools = tuple(each for each in _names(values.get("tools", ())))
    return _finished(
        _text(values, "name") or named,
        _text(values, "description"),
        body,
        owner,
        source,
        notices,
        tools=_kept(tools, notices),
        without=tools_of(
            (*_names(values.get("disallowedTools", ())), *_names(values.get("exclude_tools", ()))), notices
        ),
        mode=mode_of(_text(values, "mode") or _text(values, "permissionMode"), notices),
        read_only=_switch(values, "read_only"),
        hosts=hosts,
        model=model_of(_text(values, "model"), notices),
        turns=_count(turns),
        isolation=WORKTREE if isolation == WORKTREE else "",
        background=_switch(values, "background"),
    )


def _codex(text: str, owner: AgentOwner, source: str) -> AgentDefinition:
    try:
        values: HeadValues = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise _Fault("is not valid TOML") from None
    notices: list[str] = []
    known = {"name", "description", "developer_instructions", "model", "sandbox_mode"}
    notices += [f"`{one_line(key, 40)}` is not used" for key in values if key not in known]
    box = _text(values, "sandbox_mode")
    return _finished(
        _text(values, "name") or PurePosixPath(source).stem,
        _text(values, "description"),
        _text(values, "developer_instructions"),
        owner,
        source,
        notices,
        read_only=box == "read-only",
        model=_openai_model(_text(values, "model"), notices),
    )


def _openai_model(name: str, notices: list[str]) -> str:
    return model_of(f"openai:{name}" if name and ":" not in name and "/" not in name else name, notices)


def _opencode(values: HeadValues, body: str, named: str, owner: AgentOwner, source: str) -> AgentDefinition:
    notices: list[str] = []
    known = {"description", "mode", "model", "tools", "permission", "temperature", "top_p", "color", "hidden", "steps"}
    notices += [f"`{one_line(key, 40)}` is not used" for key in values if key not in known]
    switched = values.get("tools", {})
    off = [name for name, on in switched.items() if on == "false"] if isinstance(switched, dict) else []
    without = list(tools_of((name for name in off if not name.endswith("*")), notices))
    if "*" in off:
        kept = [name for name, on in switched.items() if on == "true"] if isinstance(switched, dict) else []
        tools = _kept(tuple(kept) or ("none",), notices)
    else:
        tools = ()
        without += [f"mcp__{name.rstrip('*').rstrip('_')}*" for name in off if name.endswith("*")]
    rules = values.get("permission", {})
    rules = {"*": rules} if isinstance(rules, str) else rules if isinstance(rules, dict) else {}
    denied: list[str] = []
    asked: list[str] = []
    for name, rule in rules.items():
        plain = rule if isinstance(rule, str) else ""
        if name == "*" and plain == "deny":
            tools = tools or ("none",)
        elif name == "bash" or (name == "*" and plain == "ask"):
            table = {"*": plain} if plain else {str(key): str(value) for key, value in _table(rule).items()}
            if table.get("*") == "deny":  # THREAT T224: no rule here can say "every command but these"
                without.append("bash*")
                notices.append("it has no commands: its table denies all that it does not name")
                continue
            rest = table.pop("*", "allow")
            more, other = command_patterns(table, notices)
            denied += more
            asked += [*other, *(["**"] if rest == "ask" else [])]
        elif plain == "deny" and name != "edit":
            without += tools_of((name,), notices)
    read_only = rules.get("edit") == "deny"
    turns = _count(_text(values, "steps"))
    return _finished(
        named,
        _text(values, "description"),
        body,
        owner,
        source,
        notices,
        tools=tools,
        without=tuple(without),
        read_only=read_only,
        denied=tuple(denied),
        asked=tuple(asked),
        model=model_of(_text(values, "model"), notices),
        turns=turns,
    )


def _table(value: object) -> Mapping[object, object]:
    return value if isinstance(value, dict) else {}


def _kept(names: tuple[str, ...], notices: list[str]) -> tuple[str, ...]:
    """Return the patterns of `tools`. A list of which nothing remains keeps no tool, instead of all."""
    if not names or names == ("*",):
        return ()
    return tools_of(names, notices) or ("none",)


def _finished(
    name: str, description: str, body: str, owner: AgentOwner, source: str, notices: list[str], **more: object
) -> AgentDefinition:
    if not NAME.fullmatch(name):
        raise _Fault(f"is named `{one_line(name, 40)}`; a name has at most 64 letters, digits, `-`, `_` and `.`")
    told = one_line(description, LONGEST_DESCRIPTION) or "an agent without a description"
    make: Callable[..., AgentDefinition] = AgentDefinition
    # THREAT T224: the model reads nothing that the user, who trusts this text, cannot see.
    return make(name, told, visible_prose(body).strip(), owner, source, notices=tuple(notices), **more)


def _text(values: HeadValues, name: str) -> str:
    value = values.get(name)
    return value.strip() if isinstance(value, str) else ""


def _switch(values: HeadValues, name: str) -> bool:
    return str(values.get(name, "")).strip().lower() in ("true", "yes", "1")


def _count(text: str) -> int:
    return min(int(text), _MOST_TURNS) if text.isascii() and text.isdigit() and len(text) < 9 else 0


def _names(value: object) -> tuple[str, ...]:
    """Return the names of a list, or of a text with commas outside of brackets."""
    if isinstance(value, list | tuple):
        return tuple(str(each).strip() for each in value if str(each).strip())
    names, depth, word = [], 0, ""
    for char in str(value):
        depth += (char == "(") - (char == ")")
        if char == "," and depth <= 0:
            names.append(word)
            word = ""
        else:
            word += char
    return tuple(each.strip() for each in (*names, word) if each.strip())
