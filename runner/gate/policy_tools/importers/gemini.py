"""Importer for Gemini CLI: TOML with that product's own `[[rule]]`."""

import re
from collections.abc import Iterator, Mapping

from policy.model.tier import Ruling
from policy.model.tool_names import SERVER, names_tool
from runner.config.toml_tables import TableItem, read_items
from runner.gate.policy_tools.importers.result import REST, Carried, Import, Origin, WordChoice
from runner.gate.policy_tools.importers.wildcards import NotWords, plain
from runner.problems import usage

_DECISIONS = {"allow": Ruling.ALLOW, "ask_user": Ruling.ASK, "deny": Ruling.DENY}
_SHELL = "run_shell_command"
_TOOLS = {
    _SHELL: "bash",
    "read_file": "read",
    "read_many_files": "read",
    "write_file": "write",
    "replace": "edit",
    "glob": "glob",
    "grep_search": "grep",
    "search_file_content": "grep",
    "list_directory": "ls",
}
_KNOWN = (
    "mcpName",
    "toolName", "commandPrefix", "commandRegex", "decision", "priority", "denyMessage", "deny_message", "modes",
    "allowRedirection",
)  # fmt: skip
_EVERYDAY = {"default", "autoEdit", "yolo"}  # modes that may ask
_REGEX_WORD = re.compile(r"[A-Za-z0-9_/:=@,-]+(?:\\[.-][A-Za-z0-9_/:=@,-]*)*\Z")


def read_gemini(text: str, source: str) -> Import:
    """Read the file. Raises a usage error when it cannot be read as such a file."""
    found = Import(source)
    top, *items = read_items(text, source, ("rule",))
    for key in top.values:
        found.leave(Origin(top.lines.get(key, 0), key), "it is not a rule")
    if not items:
        fix = "give a policy of Gemini CLI, or another --from"
        raise usage(f"{source} cannot be imported", "it has no [[rule]]", fix)
    for item in items:
        _rule(found, item)
    if len({rule.verdict for rule in found.rules}) > 1:
        found.remarks["if several rules match, the strictest applies here; `priority` has no effect"] = None
    return found


def _rule(found: Import, item: TableItem) -> None:
    values = item.values
    shown = ", ".join(f"{key} = {value!r}" for key, value in values.items() if key != "priority")
    origin = Origin(item.line, shown)
    why = values.get("denyMessage") or values.get("deny_message") or ""
    why = why if isinstance(why, str) else ""
    try:
        verdict, note = _verdict(values)
        for run, tools in list(_patterns(item, verdict)):
            if run:
                found.carry(Carried(origin, verdict, run=run, why=why, note=note))
            else:
                found.carry_tools(origin, verdict, tools, why, note)
    except NotWords as error:
        found.leave(origin, str(error))


def _verdict(values: Mapping[str, object]) -> tuple[Ruling, str]:
    """Return the verdict of a rule, and a note on conditions that are dropped. Raises NotWords."""
    verdict = _DECISIONS.get(str(values.get("decision")))
    if verdict is None:
        raise NotWords("its decision is not allow, deny or ask_user")
    if "mcpName" not in values and any(name.startswith("mcp_") for name in _texts(values.get("toolName"))):
        raise NotWords("the name of its server is not certain; give the server as `mcpName`")
    if "argsPattern" in values:
        raise NotWords("`argsPattern` is a regular expression over all arguments")
    narrowing = ", ".join(sorted(key for key in values if key not in _KNOWN))
    if narrowing and verdict is Ruling.ALLOW:
        raise NotWords(f"it allows only under conditions that no rule can express: {narrowing}")
    modes = set(_texts(values.get("modes")))
    if not modes or modes >= _EVERYDAY:
        return verdict, f"it applies always; {narrowing} has no effect" if narrowing else ""
    if verdict is Ruling.ALLOW:
        raise NotWords(f"it allows only in the modes {', '.join(sorted(modes))}; rules here apply in all modes")
    return verdict, "it applies in every mode"


def _patterns(item: TableItem, verdict: Ruling) -> Iterator[tuple[tuple[WordChoice, ...], tuple[str, ...]]]:
    """Return (`run`, `tool`) of each rule that corresponds to the original one."""
    values = item.values
    names = _texts(values.get("toolName"))
    if "mcpName" in values:
        tools = tuple(f"{SERVER}{values['mcpName']}__{name}" for name in names or ("*",))
        if not all(map(names_tool, tools)):
            raise NotWords("no tool of a server can have this name")
        yield (), tools
        return
    if "commandPrefix" in values or "commandRegex" in values:
        if any(name != _SHELL for name in names):
            raise NotWords("it names a command for a tool that runs no commands")
        if "commandPrefix" in values and "commandRegex" in values:
            raise NotWords("it has both a prefix and a regular expression")
        if "commandRegex" in values:
            yield _regex(str(values["commandRegex"]), verdict), ()
            return
        prefixes = _texts(values["commandPrefix"])
        if not prefixes:
            raise NotWords("its prefix is not a text")
        for prefix in prefixes:
            yield (*plain(prefix, verdict), REST), ()
        return
    if not names:
        raise NotWords("it names no tool")
    if "*" in names:
        if verdict is Ruling.ALLOW:
            raise NotWords("it allows everything; choose a mode instead (`agent policy matrix`)")
        yield (), tuple(dict.fromkeys(_TOOLS.values()))
        return
    unknown = [name for name in names if name not in _TOOLS]
    if unknown:
        raise NotWords(f"there is no tool {', '.join(f'`{name}`' for name in unknown)} here")
    yield (), tuple(dict.fromkeys(_TOOLS[name] for name in names))


def _regex(text: str, verdict: Ruling) -> tuple[WordChoice, ...]:
    """Return the words of a regular expression that is plain, `(a|b)`, or one of these with any text at the end.

    The original matches the beginning of the command's text, so a rule that denies also matches longer last words.
    """
    ends = ((" .*", True), ("\\s.*", True), ("\\b.*", True), ("\\b", True), (".*", False))
    end, whole = next((each for each in ends if text.endswith(each[0])), ("", False))
    words: list[WordChoice] = []
    for part in re.split(r" |\\s\+?", text.removesuffix(end)):
        group = re.fullmatch(r"\((?:\?:)?([^()]*)\)", part)
        choices = group[1].split("|") if group else [part]
        if not all(_REGEX_WORD.match(choice) for choice in choices):
            raise NotWords("its regular expression contains more than plain words")
        words.append(tuple(choice.replace("\\", "") for choice in choices))
    if verdict is not Ruling.ALLOW and not whole:
        words[-1] = tuple(f"{choice}*" for choice in words[-1])
    blank = end.startswith((" ", "\\s"))  # something must follow
    return (*words, *([("*",)] if blank and verdict is Ruling.ALLOW else []), REST)


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
