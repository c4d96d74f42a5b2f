"""Values in the agent files of other programs: names of tools, modes, models and permissions."""

from collections.abc import Iterable, Mapping

from policy.model.profile import REST, Tool
from policy.model.tier import Mode
from policy.model.tool_names import is_pattern, names_tool

# Names of tools in Claude Code, Gemini CLI and opencode, in lower case without `_`. SOURCE: their documentation.
_TOOLS: Mapping[str, tuple[str, ...]] = {
    "bash": ("bash", "bash_output", "bash_input", "bash_kill"),
    "runshellcommand": ("bash", "bash_output", "bash_input", "bash_kill"),
    "shell": ("bash", "bash_output", "bash_input", "bash_kill"),
    "bashoutput": ("bash_output",),
    "killshell": ("bash_kill",),
    "killbash": ("bash_kill",),
    "read": ("read",),
    "readfile": ("read",),
    "readmanyfiles": ("read",),
    "notebookread": ("read",),
    "write": ("write",),
    "writefile": ("write",),
    "edit": ("edit",),
    "multiedit": ("edit",),
    "replace": ("edit",),
    "patch": ("edit", "write"),
    "notebookedit": ("notebook_edit",),
    "glob": ("glob",),
    "grep": ("grep",),
    "searchfilecontent": ("grep",),
    "grepsearch": ("grep",),
    "ls": ("ls",),
    "list": ("ls",),
    "listdirectory": ("ls",),
    "webfetch": ("web_fetch",),
    "websearch": ("web_search",),
    "googlewebsearch": ("web_search",),
    "task": ("agent", "agent_output", "agent_message", "agent_stop"),
    "agent": ("agent", "agent_output", "agent_message", "agent_stop"),
    "toolsearch": ("tool_search",),
    "askuserquestion": ("ask_user",),
}
# Tools of other programs that this version does not have; a definition loses nothing without them.
_NONE = frozenset(["todowrite", "todoread", "exitplanmode", "slashcommand", "skill", "savememory"])

_MODES = {
    "plan": Mode.PLAN,
    "default": Mode.DEFAULT,
    "manual": Mode.DEFAULT,
    "acceptedits": Mode.ACCEPT_EDITS,
    "accept-edits": Mode.ACCEPT_EDITS,
    "dontask": Mode.DONT_ASK,
    "dont-ask": Mode.DONT_ASK,
    "trust-project": Mode.TRUST_PROJECT,
}
_PROVIDERS = ("anthropic", "openai", "gemini", "scripted")


def tools_of(names: Iterable[str], notices: list[str]) -> tuple[str, ...]:
    """Return patterns of this program's tools for names of any of the programs. A name that is no tool here is left out
    with a notice.
    """
    found: dict[str, None] = {}
    for name in names:
        bare, _, bound = name.strip().partition("(")
        folded = bare.casefold().replace("_", "")
        if bound:  # THREAT T224: a tool with a restriction must not become the tool without it
            notices.append(f"the tool `{name}` is left out: a bound of a tool's arguments is not supported here")
        elif bare in list(Tool) or (bare.startswith("mcp__") and names_tool(bare)) or bare == "*":
            found[bare] = None
        elif folded in _TOOLS:
            found |= dict.fromkeys(_TOOLS[folded])
        elif folded not in _NONE:
            notices.append(f"there is no tool `{name}` here")
    return tuple(found)


def mode_of(name: str, notices: list[str]) -> Mode | None:
    """Return the mode, or None for the mode of the agent that starts it."""
    folded = name.strip().casefold()
    if not folded or folded == "inherit":
        return None
    if (mode := _MODES.get(folded)) is None:
        notices.append(f"the mode `{name}` is not used: an agent never has more rights than the one that starts it")
    return mode


def model_of(name: str, notices: list[str]) -> str:
    """Return the model as `provider:model`; empty for that of the agent that starts it."""
    text = name.strip()
    if not text or text.casefold() == "inherit":
        return ""
    provider, _, model = text.replace("/", ":", 1).partition(":")
    if model and provider in _PROVIDERS:
        return f"{provider}:{model}"
    notices.append(f"the model `{text}` is not used: write it as `provider:model`")
    return ""


def command_patterns(rules: Mapping[str, str], notices: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the patterns of commands that are denied, and those that are asked about, for a table of patterns such as
    `{"git push *": "ask"}`. What a table allows is not used: the gate decides.
    """
    denied: list[str] = []
    asked: list[str] = []
    for pattern, action in rules.items():
        if action == "allow":
            continue
        words = pattern.split()
        if words[-1:] == ["*"]:
            words[-1] = REST
        fits = bool(words) and words != [REST] and not any(is_pattern(word) for word in words[:-1])
        if not fits:
            # THREAT T224: a restriction that cannot be expressed becomes a wider one
            words = [*[word for word in words[:1] if not is_pattern(word)], REST]
            notices.append(f"the pattern `{pattern}` is read as `{' '.join(words)}`")
        (denied if action == "deny" else asked).append(" ".join(words))
    return tuple(denied), tuple(asked)
