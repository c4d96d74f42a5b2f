"""The grants that are offered with a question: the narrowest useful ones, each evaluated before it is offered."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile

from policy.decide import open_reasons
from policy.describe.phrases import plain
from policy.describe.summary import INTERPRETER
from policy.evaluation import EvaluationContext
from policy.grants.grant import Grant, GrantScope, GrantSubject
from policy.grants.near_misses import misses
from policy.grants.resolve import covering
from policy.model.action import (
    Action,
    CallServerTool,
    ProcessAction,
    ReadServerResource,
    RunArgv,
    RunScript,
    SpawnAgent,
    ToolAction,
)
from policy.model.assessment import Assessment, EffectKind, Reason, Scope, Step
from policy.model.command_pattern import HOLE, CommandPattern, belongs, is_flag, program_of
from policy.model.facts import Facts, Kind
from policy.model.frozen import dataclass, replace
from policy.model.profile import Tool
from policy.model.tier import Mode, Ruling, Tier
from policy.model.tool_arguments import argument_values, below_folder, bounds_folder, canonical_value
from policy.model.verdict import Ask, Deny, Problem
from policy.permission.allow import NEVER, OF_SERVER
from policy.permission.paths import absolute

_CHANGES = (EffectKind.WRITES, EffectKind.DELETES)
_SPECIAL = frozenset("*?")  # wildcards of patterns
_LONGEST = 600  # characters of a command that a user can be expected to recognize
_MOST_WORDS = 48
_MOST_COMMANDS = 4
_STREAMS = ("/dev/", "/proc/")
# Programs that execute their standard input, unless they have at least this number of operands. SOURCE: sqlite3(1),
# ed(1), vim(1), gdb(1), ssh(1), patch(1), git-am(1), git-apply(1), psql(1), ftp(1), socat(1).
_NEVER_ENOUGH = 99
_ORDERED_BY_INPUT = {
    "sqlite3": 2, "ssh": 2, "patch": 2, "git am": 1, "git apply": 1, "m4": 1, "tclsh": 1, "expect": 1,
    **dict.fromkeys(("ed", "ex", "vi", "vim", "gdb", "lldb", "psql", "mysql", "mariadb", "redis-cli", "mongosh", "ftp",
                     "sftp", "telnet", "nc", "ncat", "socat", "cpio", "git fast-import"), _NEVER_ENOUGH),
}  # fmt: skip
_CODE_FLAG = re.compile(r"-[a-zA-Z]*[ceErp]|--eval|--print|--command|--execute")
_READERS = (Tool.READ, Tool.LS, Tool.GLOB, Tool.GREP)
_WRITERS = (Tool.WRITE, Tool.EDIT)


@dataclass(frozen=True, slots=True)
class GrantChoice:
    """One answer that can be remembered.

    Attributes:
        whats: the subjects, each of which becomes a grant.
        words: the exact description of the subjects.
        label: a short description that is read below the action, such as "this exact command".
        not_covered: at most two actions, as text, that were evaluated with the grants and are not allowed; empty for
            a refusal.
    """

    whats: tuple[GrantSubject, ...]
    words: str
    label: str
    not_covered: tuple[str, ...] = ()


def choices(context: EvaluationContext, ask: Ask) -> tuple[GrantChoice, ...]:
    """Return the approvals of `ask` that can be remembered, narrowest first; empty if only a single approval is useful.

    Each was evaluated: with it, the action is allowed with exactly the terms of the question.
    """
    offered: dict[tuple[GrantSubject, ...], GrantChoice] = {}
    samples: tuple[tuple[str, ...], ...] = ()
    for whats in _forms(ask.assessment, context):
        samples = samples or tuple(what.shape.words for what in whats)  # the first form has the exact words
        grants = tuple(draft_grant(what, f"draft{index}") for index, what in enumerate(whats))
        if whats not in offered and covering(context, ask, grants) is not None:
            action = ask.assessment.action
            words = " and ".join(what.words for what in whats)
            label = _label(action, whats, exact=not offered)
            offered[whats] = GrantChoice(whats, words, label, misses(context, action, grants, samples))
    return tuple(offered.values())


def choice_of_host(context: EvaluationContext, ask: Ask) -> GrantChoice | None:
    """Return the approval of a question about one more host that can be remembered: the reading commands of the one
    program that the action starts, with exactly that host. None if the action is anything else.

    THREAT T173: the name of the host comes from the confined program. That program is one of the machine, all of its
    words are known and only read, and no settings of the repository name the host.
    """
    from policy.model.host_rule import host_rule  # only for a question after a run
    from policy.model.host_words import names_private_network

    steps = [step for step in ask.assessment.steps if step.words or step.text or step.effects or step.reasons]
    hosts = ask.terms.open_hosts
    if context.mode is Mode.PLAN or ask.assessment.asked or len(steps) != 1 or len(hosts) != 1 or ask.terms.write:
        return None
    (step,), rule, words = steps, host_rule(hosts[0]), steps[0].literal
    if isinstance(rule, Problem) or rule.private or rule.bound or "*" in hosts[0] or names_private_network(rule.host):
        return None
    connections = [each for each in step.effects if each.kind is EffectKind.CONNECTS]
    if words is None or not connections or any(each.target or each.scope is not Scope.NONE for each in connections):
        return None  # the host was known before the run, so the first question offered its answers
    program = program_of(words[0], context.facts.workspace, context.facts)
    if not program or not step.family or not belongs(step, step.family, context.facts):
        return None
    shape = CommandPattern(words[:1], program=program, family=step.family)
    what = GrantSubject(shape, (Tool.BASH,), host=hosts, tiers=(Tier.NETWORK,))
    grants = (draft_grant(what, "draft0"),)
    if covering(context, ask, grants) is None:
        return None
    return GrantChoice((what,), what.words, what.words, misses(context, ask.assessment.action, grants, (words,)))


def never(context: EvaluationContext, ask: Ask) -> GrantChoice | None:
    """Return the subject that a remembered refusal of `ask` forbids: its one command, or its one path. None if there is
    no such subject, or if the refusal would not deny `ask`.
    """
    steps = _steps_to_approve(ask.assessment, context)
    if steps is None or len(steps) != 1:
        return None
    what = _exact(steps[0], ask.assessment, context.facts)
    if what is None or not (what.shape.words or what.read or what.write or what.calls):
        return None
    grant = replace(draft_grant(what, "draft0"), ruling=Ruling.DENY)
    _, verdict = context.evaluate(ask.assessment.action, (grant.rule,))
    refused = isinstance(verdict, Deny) and verdict.reason.rule == grant.rule.ref
    words = what.command or what.words
    return GrantChoice((what,), words, words) if refused else None


def _label(action: Action, whats: Sequence[GrantSubject], *, exact: bool) -> str:
    """Return a choice in short, for a card that shows the action itself.

    With `exact`, the subjects are the commands and paths of the action, else one wider subject.
    """
    if exact and whats[0].values and whats[0].only == tuple(name for name, _ in whats[0].values):
        return "this tool with exactly these arguments"
    commands = [what for what in whats if what.shape.words]
    paths = [what.paths for what in whats if not what.shape.words]
    if not exact or not commands:
        return " and ".join([*(what.words for what in commands), *paths])
    typed = _typed_words(action)
    own = [what for what in commands if what.shape.words == typed[: len(what.shape.words)] and not what.shape.folder]
    if len(commands) == 1 and own and (paths or own[0].shape.words == typed):
        return ", ".join(["this exact command", *paths])
    if any(what.shape.words == typed for what in own):  # `python3 -m pytest` is a command that runs another one
        inner = " and ".join(what.command for what in commands if what.shape.words != typed)
        return ", ".join([f"this exact command and {inner}, which it runs", *paths])
    folders = {what.shape.folder for what in commands}
    if len(folders) == 1 and all(_within(what.shape.words, typed) for what in commands):
        shown = f"these {len(commands)} commands" if len(commands) > 1 else commands[0].command
        folder = "".join(f" in {plain(name)}/" for name in folders if name)
        if len(commands) > 1 or folder:  # the card shows the hosts and the paths
            return ", ".join([f"exactly {shown}{folder}", *paths])
    return " and ".join([*(what.words for what in commands), *paths])


def _within(words: Sequence[str], typed: Sequence[str]) -> bool:
    count = len(words)
    return len(typed) > count and any(tuple(typed[at : at + count]) == words for at in range(len(typed) - count + 1))


def _typed_words(action: Action) -> tuple[str, ...]:
    """Return the words of the action, or nothing if they cannot be split."""
    if isinstance(action, RunArgv):
        return action.argv
    try:
        return tuple(shlex.split(action.script)) if isinstance(action, RunScript) else ()
    except ValueError:
        return ()


def draft_grant(what: GrantSubject, name: str) -> Grant:
    """Return a grant that was not given yet, for evaluation."""
    return Grant(name, what, Ruling.ALLOW, GrantScope.SESSION, "", "", "", 0.0)


def _steps_to_approve(assessment: Assessment, context: EvaluationContext) -> list[Step] | None:
    """Return the steps that need an approval, or None if no part of the action may be remembered."""
    if context.mode is Mode.PLAN or assessment.asked:
        return None
    wanted = {each for each in open_reasons(assessment, context.mode, context.matrix) if each not in assessment.covered}
    if not wanted or any(each.tier in NEVER for each in wanted):
        return None
    steps = [step for step in assessment.steps if not wanted.isdisjoint(step.reasons)]
    if len(steps) > _MOST_COMMANDS or any(step.text for step in steps):
        return None
    return list({(step.words, step.effects): step for step in steps}.values())


def _forms(assessment: Assessment, context: EvaluationContext) -> Iterator[tuple[GrantSubject, ...]]:
    steps = _steps_to_approve(assessment, context)
    if steps is None:
        return
    exact = [_exact(step, assessment, context.facts) for step in steps]
    whole = tuple(dict.fromkeys(what for what in exact if what is not None))
    if None in exact or any(_ordered_by_input(step) or _is_missing(step, context.facts) for step in steps):
        return
    if isinstance(assessment.action, CallServerTool | ReadServerResource):
        yield from ((narrower,) for narrower in _bounded_calls(whole[0], assessment.action, context.facts))
    yield whole
    if len(whole) == 1 and len(steps) == 1:
        for wider in _wider(whole[0], steps[0], context.facts):
            yield (wider,)


def _exact(step: Step, assessment: Assessment, facts: Facts) -> GrantSubject | None:
    """Return the subject of exactly this step: its words, and the paths and hosts that it names. None if they are
    uncertain.
    """
    reasons = [reason for reason in step.reasons if reason.tier is not Tier.READ]
    tiers = {reason.tier for reason in reasons}
    if isinstance(assessment.action, CallServerTool):
        return _call(assessment.action, (), tuple(tiers)) if len(tiers) == 1 and tiers <= OF_SERVER else None
    shape = CommandPattern()
    if step.words:
        words, folder = step.literal, _folder(step, facts)
        if words is None or folder is None or step.set_up or not _displayable(words) or _runs_input(step, words):
            return None
        shape = CommandPattern(words, folder=folder, program=program_of(words[0], (step.cwds or ("/",))[0], facts))
        if any(reason.uncertain for reason in reasons):
            if not step.stranger or sum(reason.uncertain for reason in reasons) != 1:
                return None
            tiers = (tiers - {Tier.UNKNOWN}) | {Tier.EXECUTE}
    elif any(reason.uncertain for reason in reasons):
        return None
    writes = _bounds(reasons, step, (Tier.WRITE, Tier.WRITE_OUTSIDE), _CHANGES, facts)
    reads = _bounds(reasons, step, (Tier.READ_OUTSIDE,), (EffectKind.READS,), facts)
    if writes is None and (Tier.WRITE_OUTSIDE in tiers or not step.words):
        return None  # a command may change unnamed files of the workspace; every other change needs exact paths
    if reads is None or (Tier.READ_OUTSIDE in tiers and not reads):
        return None
    hosts = tuple(dict.fromkeys(each.target for each in step.effects if each.kind is EffectKind.CONNECTS))
    if Tier.NETWORK in tiers and (not hosts or not all(hosts)):
        return None  # the hosts are unknown, so an approval cannot cover later runs
    tool: tuple[str, ...] = (Tool.BASH,)
    if isinstance(assessment.action, ToolAction):
        return _call(assessment.action, hosts, tuple(sorted(tiers)))
    if isinstance(assessment.action, ProcessAction):
        return None  # each text for a process is judged on its own
    if not isinstance(assessment.action, RunScript | RunArgv):
        tool = _WRITERS if writes else _READERS
    return GrantSubject(shape, tool, reads, writes or (), hosts if Tier.NETWORK in tiers else (), tuple(sorted(tiers)))


def _call(action: ToolAction, hosts: tuple[str, ...], tiers: tuple[Tier, ...]) -> GrantSubject | None:
    """Return the subject of further calls of the same tool: on the same host, or of the same agent in the same mode."""
    if not _displayable((action.tool,)) or "[" in action.tool:
        return None
    if isinstance(action, SpawnAgent):
        bound = (("agent", action.agent), ("mode", action.mode))
        return GrantSubject(CommandPattern(), (action.tool,), tiers=tiers, arguments=bound)
    return GrantSubject(CommandPattern(), (action.tool,), host=hosts, tiers=tiers)


# The names of arguments that select what a call acts on. Servers use these names.
_SELECTS = re.compile(
    r"(?:repo|repository|owner|org|organi[sz]ation|project|workspace|team|namespace|database|db|schema|table|collection"
    r"|bucket|container|cluster|account|channel|site|host|server|service|region|env|environment|branch|ref|index|board"
    r"|dataset|tenant|domain|uri|profile|context)(?:_?(?:id|name|key|slug))?",
    re.IGNORECASE,
)
_PATHS = re.compile(
    r"(?:\w+_)?(?:path|paths|file|files|file_?name|dir|directory|folder|root|cwd|src|dst|source|destination|target|dest)",
    re.IGNORECASE,
)
# The names of arguments that may differ from call to call without another meaning of the call.
_VARIES = re.compile(
    r"content|contents|text|body|title|message|description|comment|query|q|search|pattern|edits|old_?text|new_?text"
    r"|cursor|after|before|since|until|reason|summary|prompt|code|sql|observations|entities|relations|labels",
    re.IGNORECASE,
)
_COUNTS = re.compile(
    r"n|max\w*|min\w*|\w*(?:number|limit|page|count|offset|head|tail|lines?|depth|length|timeout|start|end)",
    re.IGNORECASE,
)
_CERTAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_ADDRESS = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]{1,5})?/", re.ASCII)


def _bounded_calls(
    what: GrantSubject, action: CallServerTool | ReadServerResource, facts: Facts
) -> Iterator[GrantSubject]:
    """Yield the subjects of calls of a server's tool that bound every argument, narrowest first: exactly these
    arguments, then the same folder, repository or the like with other texts and numbers.

    INVARIANT: each names all arguments that a call may have, and is shown completely.
    """
    given = argument_values(action) or {}
    names = tuple(sorted(given))
    values = {name: canonical_value(value) for name, value in given.items()}
    if not all(map(_CERTAIN_NAME.fullmatch, names)):
        return
    if sum(map(len, (*names, *values.values()))) <= _LONGEST:
        yield replace(what, values=tuple(sorted(values.items())), only=names)
    below: dict[str, str] = {}
    free: list[str] = []
    for name, value in sorted(given.items()):
        folder = _folder_of(name, value, facts)
        if folder and not _SELECTS.fullmatch(name):
            below[name] = folder
        elif not _SELECTS.fullmatch(name) and _may_vary(name, value):
            free.append(name)
    fixed = tuple((name, values[name]) for name in names if name not in below and name not in free)
    shown = sum(map(len, (*names, *(text for _, text in fixed), *below.values())))
    if (below or (fixed and free)) and shown <= _LONGEST:
        yield replace(what, values=fixed, below=tuple(below.items()), only=names)


def _may_vary(name: str, value: object) -> bool:
    """Return True if an answer can leave an argument open: a text for a reader, or a number that counts something.

    A switch, a word such as `delete`, an amount and a list with another name are kept as they are.
    """
    if isinstance(value, bool) or value is None:
        return False
    counts = isinstance(value, int | float) and _COUNTS.fullmatch(name) is not None
    return counts or _VARIES.fullmatch(name) is not None


def _folder_of(name: str, value: object, facts: Facts) -> str:
    """Return the folder that can bound an argument: the one that contains its paths, or the host of its address. Empty
    if there is none, or if it is too broad to approve.
    """
    given = value if isinstance(value, list) else [value]
    texts = [text for text in given if isinstance(text, str)]
    if not texts or len(texts) < len(given):
        return ""
    found: set[str] = set()
    for text in texts:
        if address := _ADDRESS.match(text):
            found.add(address[0])
        elif text.startswith("/") or (_PATHS.fullmatch(name) and "/" in text):
            bare = text.rstrip("/")
            is_folder = facts.look(absolute(bare, facts)).kind is Kind.FOLDER
            path = f"{bare}/" if is_folder else f"{bare.rpartition('/')[0]}/"
            whole = absolute(path, facts)
            broad = whole.count("/") < 2 or f"{facts.home}/".startswith(f"{whole}/")
            found.add("" if broad or f"{facts.workspace}/".startswith(f"{whole}/") else path)
    folder = min(found, key=len, default="")
    sound = bool(folder) and bounds_folder(folder) and all(below_folder(text, folder) for text in texts)
    return folder if sound else ""


def _wider(what: GrantSubject, step: Step, facts: Facts) -> Iterator[GrantSubject]:
    """Yield wider subjects without the parts that are likely to differ the next time: flags, the last word, the file
    name.
    """
    words, name, runs = what.shape.words, max(step.name, 1), Tier.EXECUTE in what.tiers
    if step.family and what.host and what.shape.program and belongs(step, step.family, facts):
        from policy.model.host_words import names_private_network  # only for commands of a family

        if not any(map(names_private_network, what.host)):  # an answer does not open these
            yield replace(what, shape=CommandPattern(words[:1], program=what.shape.program, family=step.family))
        return
    named = bool(what.read or what.write)
    if step.stranger:
        return
    if runs and not named and Tier.NETWORK not in what.tiers and not _has_code(words):
        bare = list(words)
        while len(bare) > name and is_flag(bare[-1]):
            bare.pop()
        yield replace(what, shape=replace(what.shape, words=tuple(bare), flags=True))
    hole = None
    if (
        len(words) > name
        and not is_flag(words[-1])
        and not (runs and (name == 1 or is_flag(words[-2])))
        and (named or not what.host or _names_host(words, what.host))
    ):
        hole = replace(what.shape, words=(*words[:-1], HOLE))
    # Words that may be commands for another program or machine get no hole.
    orders = not {"".join(words[:1]).rpartition("/")[2], " ".join(words[:2])}.isdisjoint(_ORDERED_BY_INPUT)
    if hole is not None and not named and not step.interprets and not orders:
        yield replace(what, shape=hole)
    if named and not (words and hole is None) and not runs:
        read, write = _above(what.read, facts, "/"), _above(what.write, facts, "/**")
        if read is not None and write is not None:
            yield replace(what, shape=hole or what.shape, read=read, write=write)


def _has_code(words: Sequence[str]) -> bool:
    """Return True if one of the words is code for an interpreter, as in `python3 -c CODE`: more flags may change what
    the code means.
    """
    flags = takewhile(is_flag, words[1:])
    return bool(INTERPRETER.fullmatch(words[0].rpartition("/")[2])) and any(map(_CODE_FLAG.fullmatch, flags))


def _names_host(words: Sequence[str], hosts: Sequence[str]) -> bool:
    """Return True if only the last word names the hosts, so that the hosts bound the values of that word.

    THREAT T76: elsewhere the last word is an operation or data for the host: `ssh host 'rm -rf /'`, `curl URL -X
    DELETE`, `-d @file`.
    """
    names = [re.sub(r":\d+$", "", host) for host in hosts]
    last, others = words[-1].lower(), " ".join(words[:-1]).lower()
    return any(name in last and name not in others for name in names)


def _folder(step: Step, facts: Facts) -> str | None:
    """Return the current folder of the step, relative to the workspace, or None if it is not exactly one
    folder in it.
    """
    if step.cwds is None or len(step.cwds) != 1:
        return None
    here = step.cwds[0]
    if here == facts.workspace:
        return ""
    root = f"{facts.workspace.rstrip('/')}/"
    return here[len(root) :] if here.startswith(root) and here.isprintable() else None


def _runs_input(step: Step, words: Sequence[str]) -> bool:
    """Return True if the step runs its standard input: its words then do not describe what was approved."""
    operands = [word for word in words[1:] if not is_flag(word)]
    return step.interprets and (not operands or any(word == "-" or word.startswith(_STREAMS) for word in operands))


def _ordered_by_input(step: Step) -> bool:
    """Return True if the step executes its input. A grant does not contain the input, so later input cannot be
    approved.

    A refusal can still be remembered. Each flag may take a word as its value, so words after flags are not
    counted.
    """
    words = step.literal
    if not words:
        return False
    runs = any(reason.tier is Tier.EXECUTE for reason in step.reasons)
    if runs and any(word == "-" or word.startswith(_STREAMS) for word in words[1:]):
        return True  # `make -f -`, `awk -f /dev/stdin`
    name = words[0].rpartition("/")[2]
    flags = sum(map(is_flag, words[1:]))
    operands = [word for word in words[1:] if not is_flag(word)]
    needed = _ORDERED_BY_INPUT.get(name, 0)
    if operands and (more := _ORDERED_BY_INPUT.get(f"{name} {operands[0]}", 0)):
        operands, needed = operands[1:], more
    return bool(needed) and len(operands) - flags < needed


def _is_missing(step: Step, facts: Facts) -> bool:
    """Return True if nothing is known about the program of the step and there is no such program on this machine.

    An approval that is remembered would apply to any program that is installed later under that name.
    """
    words = step.literal
    return step.stranger and words is not None and facts.which(words[0]) is None


def _displayable(words: Sequence[str]) -> bool:
    """Return True if the words can be shown completely and contain no wildcard of a pattern."""
    short = len(words) <= _MOST_WORDS and sum(map(len, words)) <= _LONGEST
    return short and all(word and word.isprintable() and not _SPECIAL & set(word) for word in words)


def _bounds(
    reasons: Sequence[Reason], step: Step, tiers: Sequence[Tier], kinds: Sequence[EffectKind], facts: Facts
) -> tuple[str, ...] | None:
    """Return the paths of the reasons with these tiers, or None if one of the paths is not known exactly."""
    if not any(reason.tier in tiers for reason in reasons):
        return ()
    effects = [reason.about for reason in reasons if reason.tier in tiers and reason.about is not None]
    anywhere = Tier.WRITE in tiers
    effects += [each for each in step.effects if each.kind in kinds and (anywhere or each.scope is Scope.OUTSIDE)]
    if not effects or any(not e.exact or not e.target.startswith("/") or e.kind not in kinds for e in effects):
        return None
    paths = [_path(effect.target, facts) for effect in dict.fromkeys(effects)]
    return None if None in paths else tuple(dict.fromkeys(filter(None, paths)))


def _path(target: str, facts: Facts) -> str | None:
    """Return `target` in the notation of a grant (a folder with everything in it), or None if a grant must
    not name it.
    """
    if _SPECIAL & set(target) or not target.isprintable() or target in ("/", facts.home, facts.workspace):
        return None
    root = f"{facts.workspace.rstrip('/')}/"
    path = target[len(root) :] if target.startswith(root) and target[len(root) :][:1] not in "~/" else target
    return f"{path}/" if facts.look(target).kind is Kind.FOLDER else path


def _above(paths: tuple[str, ...], facts: Facts, end: str) -> tuple[str, ...] | None:
    """Return the folders that contain `paths`, with `end` appended, or None if one of them is too broad to approve."""
    folders = []
    for path in paths:
        folder = path.rstrip("/").rpartition("/")[0]
        whole = absolute(folder, facts)
        broad = whole.count("/") < 2 or f"{facts.home}/".startswith(f"{whole}/")
        if not folder or broad or f"{facts.workspace}/".startswith(f"{whole}/"):
            return None
        folders.append(f"{folder}{end}")
    return tuple(dict.fromkeys(folders))
