"""Names of tools and arguments in both directions: ours, and those of Claude Code, Codex and Gemini CLI."""

import re
from collections.abc import Mapping

from policy.model.glob import glob
from runner.config.hookfiles.hook import HookForm

# fmt: off
# Our tool, and its names in the form of Claude Code, the usual one first.
_CLAUDE: Mapping[str, tuple[str, ...]] = {
    "bash": ("Bash",),             "bash_output": ("BashOutput", "TaskOutput"), "bash_input": ("BashInput",),
    "bash_kill": ("KillShell", "TaskStop"),
    "read": ("Read",),             "write": ("Write",),                         "edit": ("Edit", "MultiEdit"),
    "notebook_edit": ("NotebookEdit",),
    "glob": ("Glob",),             "grep": ("Grep",),                           "ls": ("LS",),
    "agent": ("Task", "Agent"),    "skill": ("Skill",),                         "tool_search": ("ToolSearch",),
    "web_fetch": ("WebFetch",),    "web_search": ("WebSearch",),
    "ask_user": ("AskUserQuestion",),
}
_CODEX: Mapping[str, tuple[str, ...]] = {
    **_CLAUDE,
    "bash": ("Bash", "shell", "shell_command", "local_shell", "exec_command"),
    "edit": ("Edit", "apply_patch"),
    "write": ("Write", "apply_patch"),
}
_GEMINI: Mapping[str, tuple[str, ...]] = {
    "bash": ("run_shell_command",), "read": ("read_file",),           "write": ("write_file",),
    "edit": ("replace",),           "glob": ("glob",),                "grep": ("grep_search", "search_file_content"),
    "ls": ("list_directory",),      "web_fetch": ("web_fetch",),      "web_search": ("google_web_search",),
    "skill": ("activate_skill",),
}
_TOOLS = {HookForm.CLAUDE: _CLAUDE, HookForm.OURS: _CLAUDE, HookForm.CODEX: _CODEX, HookForm.GEMINI: _GEMINI}
# Our argument and theirs, for each tool.
_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "bash":  {"background": "run_in_background"},
    "read":  {"path": "file_path"},
    "write": {"path": "file_path"},
    "edit":  {"path": "file_path"},
    "notebook_edit": {"path": "notebook_path", "cell": "cell_id", "source": "new_source", "operation": "edit_mode"},
}
_GEMINI_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "bash":  {"background": "is_background"},
    "read":  {"path": "file_path", "offset": "start_line"},
    "write": {"path": "file_path"},
    "edit":  {"path": "file_path"},
    "ls":    {"path": "dir_path"},
    "glob":  {"path": "dir_path"},
    "grep":  {"path": "dir_path", "glob": "include"},
}
_EVENTS = {
    "PreToolUse": "BeforeTool",     "PostToolUse": "AfterTool",   "UserPromptSubmit": "BeforeAgent",
    "Stop": "AfterAgent",           "PostSampling": "AfterModel", "PreCompact": "PreCompress",
}
_MODES = {
    "plan": "plan",                  "default": "default",    "accept-edits": "acceptEdits",
    "trust-project": "acceptEdits",  "dont-ask": "dontAsk",   "dangerously": "bypassPermissions",
}
# fmt: on
_PATHS = ("path",)  # arguments that are paths; hooks get them as absolute paths
_EXACT = re.compile(r"[A-Za-z0-9_\-,| ]*")
_MILLISECONDS = 1000.0


def foreign_names(tool: str, form: HookForm) -> tuple[str, ...]:
    """Return the names of our tool `tool` in a form, the usual one first. A hook of ours also knows our own name."""
    if tool.startswith("mcp__"):
        single = f"mcp_{tool[5:].replace('__', '_', 1)}"  # as Gemini CLI writes it
        return (single, tool) if form is HookForm.GEMINI else (tool,)
    names = _TOOLS[form].get(tool, (tool,))
    return (*names, tool) if form is HookForm.OURS else names


def own_name(name: str, form: HookForm = HookForm.CLAUDE) -> str:
    """Return our name of a tool that another program calls `name`; `name` itself if no tool has that name there."""
    return next((ours for ours, names in _TOOLS[form].items() if name in names), name)


def foreign_event(event: str, form: HookForm) -> str:
    """Return the name of an event in a form."""
    return _EVENTS.get(event, event) if form is HookForm.GEMINI else event


def foreign_mode(mode: str) -> str:
    """Return the permission mode of Claude Code that is nearest to ours."""
    return _MODES.get(mode, "default")


def foreign_arguments(tool: str, arguments: Mapping[str, object], form: HookForm, cwd: str) -> dict[str, object]:
    """Return the arguments of a call of our tool `tool` with the names of a form, and absolute paths."""
    if tool.startswith("mcp__"):
        return dict(arguments)
    names = _names_of(tool, form)
    found = {}
    for key, value in arguments.items():
        if key in _PATHS and isinstance(value, str) and not value.startswith("/"):
            value = f"{cwd.rstrip('/')}/{value}"
        if tool == "bash" and key == "timeout" and isinstance(value, int | float) and form is not HookForm.GEMINI:
            value = value * _MILLISECONDS
        found[names.get(key, key)] = value
    return found


def own_arguments(tool: str, arguments: Mapping[str, object], form: HookForm) -> dict[str, object]:
    """Return arguments with the names of a form as those of our tool `tool`. Unknown names stay as they are."""
    if tool.startswith("mcp__"):
        return dict(arguments)
    names = {theirs: ours for ours, theirs in _names_of(tool, form).items()}
    found = {}
    for key, value in arguments.items():
        if tool == "bash" and key == "timeout" and isinstance(value, int | float) and form is not HookForm.GEMINI:
            value = value / _MILLISECONDS
        found[names.get(key, key)] = value
    return found


def _names_of(tool: str, form: HookForm) -> Mapping[str, str]:
    table = _GEMINI_ARGUMENTS if form is HookForm.GEMINI else _ARGUMENTS
    return table.get(tool, {})


def matches(matcher: str, names: tuple[str, ...]) -> bool:
    """Return True if a matcher matches one of the names of a subject, as Claude Code compares them.

    Empty and `*` match all. A text of letters, digits and `_-,|` is a list of exact names. Any other text is a regular
    expression that may match anywhere in the name.
    """
    if matcher.strip() in ("", "*"):
        return True
    if _EXACT.fullmatch(matcher):
        listed = {each.strip() for each in re.split(r"[,|]", matcher)}
        return not listed.isdisjoint(names)
    return any(re.search(matcher, name) for name in names)


def condition_met(condition: str, names: tuple[str, ...], arguments: Mapping[str, object]) -> bool:
    """Return True unless a call certainly does not match a condition such as `Bash(git *)` or `Edit(*.ts)`.

    A condition that cannot be read is met: a hook that guards something runs once too often rather than not at all.
    """
    if not condition.strip():
        return True
    match = re.fullmatch(r"\s*([A-Za-z0-9_\-*]+)\s*(?:\((.*)\))?\s*", condition, re.DOTALL)
    if match is None:
        return True
    tool, pattern = match[1], match[2]
    if not any(glob(name, tool) for name in names):
        return False
    if pattern is None or pattern.strip() in ("", "*"):
        return True
    if isinstance(command := arguments.get("command"), str):
        prefix = pattern.removesuffix(":*").removesuffix(" *") if pattern.endswith((":*", " *")) else ""
        # The words may have quotes, and other words between them: `git -c x=y commit` meets `Bash(git commit *)`.
        words = ".*".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in prefix.split())
        if words and re.search(words, re.sub(r"[\\'\"]", "", command), re.DOTALL):
            return True
        return any(glob(part.strip(), pattern) for part in (command, *re.split(r"\|\|?|&&?|;|\n|[(){}`]", command)))
    texts = [each for key in ("file_path", "path", "url", "pattern") if isinstance(each := arguments.get(key), str)]
    if not texts:
        return True
    pattern = pattern.removeprefix("//").removeprefix("./").removeprefix("/")
    return any(glob(text, pattern) or glob(text.rpartition("/")[2], pattern) or glob(text, f"*/{pattern}")
               for text in texts)  # fmt: skip
