"""The use of skills: their texts for the model, and the tools that a skill in force allows.

THREAT T216: a skill never widens anything. `allowed-tools` names what may be used while the skill is in force; what it
does not name is refused before the user is asked, and what it names passes the gate like every call. A name or a
pattern that is not understood allows nothing.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from policy.model.action import Action, LoadSkill, RunArgv, RunScript
from policy.model.assessment import Assessment, Check, EffectKind, Step
from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.profile import Layer, PermissionRule
from policy.model.tier import Ruling, Tier
from policy.model.tool_names import SERVER, meets_name
from policy.model.verdict import Problem
from policy.permission.allow import runs
from policy.permission.paths import covers
from runner.config.agentfiles.skills import TOOL, Skill, skill_text
from runner.engine.run_context import RunContext
from runner.gate.policy_tools.importers.claude import gitignored
from runner.gate.policy_tools.importers.result import REST
from runner.gate.policy_tools.importers.wildcards import NotWords, plain, starred
from runner.text.sanitize import one_line
from sandbox.backend import Outcome

_ITEM = re.compile(r"([A-Za-z_][A-Za-z0-9_.*-]*)(?:\((.*)\))?", re.DOTALL)
_PROCESSES = ("bash_output", "bash_input", "bash_kill")
# The tools that other agents name, by their names there. The own names of the tools are accepted, too.
_ELSEWHERE = {
    "Bash": ("bash", *_PROCESSES),
    "BashOutput": ("bash_output",),
    "KillShell": ("bash_kill",),
    "Read": ("read", "ls"),
    "Grep": ("grep",),
    "Glob": ("glob", "ls"),
    "LS": ("ls",),
    "Edit": ("edit", "write"),
    "MultiEdit": ("edit",),
    "NotebookEdit": ("notebook_edit",),
    "Write": ("write",),
    "Task": ("agent",),
    "Agent": ("agent",),
    "WebFetch": ("web_fetch",),
    "WebSearch": ("web_search",),
}
_OWN = frozenset(["bash", *_PROCESSES, "read", "write", "edit", "glob", "grep", "ls", "agent", "web_fetch",
                  "notebook_edit", "web_search", "remember", "recall", "tool_search",
                  "schedule_job"])  # fmt: skip
_CHANGES = (EffectKind.WRITES, EffectKind.DELETES, EffectKind.RUNS, EffectKind.CONNECTS, EffectKind.UNKNOWN)


@dataclass(frozen=True, slots=True)
class AllowedTool:
    """One entry of `allowed-tools`.

    Attributes:
        tools: the names of the tools, or patterns of the names of tools of servers.
        commands: for `bash`, the commands that may be run; None for any.
        paths: for file tools, patterns of the paths that may be used; None for any.
    """

    tools: tuple[str, ...]
    commands: tuple[PermissionRule, ...] | None = None
    paths: tuple[str, ...] | None = None


@lru_cache(maxsize=256)
def allowed_tool(text: str) -> AllowedTool | None:
    """Return an entry such as `Read`, `Bash(git add:*)`, `Edit(src/**)` or `mcp__docs__*`; None if it is not
    understood.
    """
    found = _ITEM.fullmatch(text.strip())
    if found is None:
        return None
    name, inner = found[1], found[2].strip() if found[2] is not None else ""
    inner = "" if inner == "*" else inner
    if name.startswith(SERVER):
        return None if inner else AllowedTool((name if "__" in name.removeprefix(SERVER) else f"{name}__*",))
    tools = _ELSEWHERE.get(name, (name,) if name in _OWN else ())
    if not tools or not inner:
        return AllowedTool(tools) if tools else None
    if "bash" in tools:
        commands = _commands(inner)
        return AllowedTool(tools, commands) if commands else None
    if set(tools) <= {"read", "ls", "glob", "grep", "edit", "write", "notebook_edit"}:
        paths = gitignored(inner, allow=True)
        return AllowedTool(tools, paths=paths) if paths else None
    return None


def _commands(inner: str) -> tuple[PermissionRule, ...]:
    """Return the rules for the commands of `Bash(...)`; none if they cannot be expressed exactly or narrower."""
    prefix, body = inner.endswith(":*"), inner.removesuffix(":*")
    try:
        found = starred(body, Ruling.ALLOW, goes_on=prefix)[0] if "*" in body else [plain(body, Ruling.ALLOW)]
    except NotWords:
        return ()
    rules = []
    for run in found:
        more = prefix or run[-1] == REST
        words = run[:-1] if run[-1] == REST else run
        rules.append(PermissionRule(Ruling.ALLOW, Check.SKILL, Layer.USER, run=words, more=more))
    return tuple(rules)


def beyond_skills(skills: Sequence[Skill], action: Action, assessment: Assessment, facts: Facts) -> Problem | None:
    """Return the problem of an action that one of the skills in force does not allow, or None."""
    if isinstance(action, LoadSkill):
        return None  # a further skill can only take more away
    for skill in skills:
        entries = [entry for text in skill.allowed or () if (entry := allowed_tool(text)) is not None]
        if not any(_fits(entry, action, assessment, facts) for entry in entries):
            allowed = ", ".join(skill.allowed or ()) or "no tool"
            return Problem(
                f"`{action.tool}` was refused",
                f"the skill `{skill.name}`, which is in force until the user's next prompt, allows only "
                f"{one_line(allowed, 500)}",
                "do it with these tools, or tell the user what the skill lacks",
            )
    return None


def _fits(entry: AllowedTool, action: Action, assessment: Assessment, facts: Facts) -> bool:
    if not meets_name(entry.tools, action.tool, allows=True):
        return False
    if entry.commands is not None and isinstance(action, RunScript | RunArgv):
        certain = all(reason.tier is not Tier.UNKNOWN for reason in assessment.reasons)
        return (
            certain and bool(assessment.steps) and all(_runs(entry.commands, each, facts) for each in assessment.steps)
        )
    if entry.paths is not None:
        path = str(getattr(action, "path", "") or getattr(action, "root", ""))
        return any(covers(pattern, path, facts) for pattern in entry.paths)
    return True


def _runs(rules: Sequence[PermissionRule], step: Step, facts: Facts) -> bool:
    """Return True if the rules name the command of `step`, or if it is the shell itself, which changes nothing."""
    if not step.words and not step.text:
        return all(effect.kind not in _CHANGES for effect in step.effects)
    return any(runs(rule, step, facts) for rule in rules)


def known_skill(action: LoadSkill, ctx: RunContext) -> LoadSkill | Problem:
    """Return the action with the source of its skill, or the problem if the model may not load such a skill."""
    skill = ctx.context.skill(action.skill)
    if skill is not None and not skill.quiet:
        return LoadSkill(skill.name, skill.source)
    names = ", ".join(f"`{each.name}`" for each in ctx.context.skills if not each.quiet) or "none"
    what = f"there is no skill `{one_line(action.skill, 64)}`"
    return Problem(what, f"the skills are {names}", f"call `{TOOL}` with one of these names, or work without a skill")


def load_skill(action: LoadSkill, ctx: RunContext) -> Outcome:
    """Put the skill in force, and return its text."""
    skill = ctx.context.skill(action.skill)
    if skill is None:
        problem = Problem("no skill was loaded", "it is not there any more", "work without it")
        return Outcome(1, problem=problem)
    ctx.skills.load(skill)
    allowed = (
        ""
        if skill.allowed is None
        else f"\nUntil the user's next prompt only these tools can be used: {', '.join(skill.allowed)}"
    )
    head = f"[the skill `{skill.name}`, {skill.source}; paths in it start in its folder]{allowed}"
    return Outcome(0, f"{head}\n{skill_text(skill)}".encode())
