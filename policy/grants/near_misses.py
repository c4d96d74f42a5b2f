"""Near misses of a grant: actions that it does not allow, each evaluated with the grant before it is shown."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from policy.describe.phrases import near, plain, quoted
from policy.evaluation import EvaluationContext
from policy.grants.grant import Grant, GrantSubject
from policy.model import action as actions
from policy.model.action import Action, GlobFiles, GrepFiles, RunArgv, RunScript
from policy.model.command_pattern import HOLE
from policy.model.frozen import replace
from policy.model.tier import Mode
from policy.model.tool_arguments import argument_values, canonical
from policy.model.verdict import Allow
from policy.permission.paths import absolute
from policy.rules.rule import CommandRule
from policy.rules.rulebook import RuleBook

_SHOWN = 2
_STRANGE_HOST = "example.net"
_LONGEST = 100  # characters of one shown command
_ADDRESS = re.compile(r"(\w+://[^/]+)(?:/.*)?\Z")
_Words = tuple[str, ...]


def misses(
    context: EvaluationContext, action: Action, grants: Sequence[Grant], samples: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """Return at most two actions like `action`, as text, that `grants` do not allow: a question remains, or a refusal.

    `samples` has, for each grant, the words of the command that led to it.
    """
    rules = tuple(grant.rule for grant in grants)
    not_allowed = (
        words
        for other, words in _candidates(action, [grant.what for grant in grants], samples, context)
        if not isinstance(context.evaluate(other, rules, unattended=True)[1], Allow)
    )
    return tuple(islice(dict.fromkeys(not_allowed), _SHOWN))


def _candidates(
    action: Action, whats: Sequence[GrantSubject], samples: Sequence[_Words], context: EvaluationContext
) -> Iterator[tuple[Action, str]]:
    match action:
        case RunScript() | RunArgv():
            for argv, script in _commands(whats, samples, context):
                line = script or " ".join(map(quoted, argv))
                if isinstance(action, RunScript):
                    yield replace(action, script=line), f"`{plain(line, _LONGEST)}`"
                elif not script:
                    yield replace(action, argv=argv), f"`{plain(line, _LONGEST)}`"
        case (
            actions.SignGit()
            | actions.ConvertDocument()
            | actions.SearchTools()
            | actions.ManageAgent()
            | actions.ManageTasks()
            | actions.ProposeNote()
            | actions.SearchNotes()
            | actions.LoadSkill()
            | actions.QueryCode()
            | actions.AskUser()
            | actions.ScheduleJob()
        ):
            return  # no approval of these can be remembered
        case actions.CallServerTool() | actions.ReadServerResource():
            yield from _other_arguments(action, whats[0])
            other = actions.CallServerTool(action.server, f"{action.tool.rpartition('__')[2].strip('@')}_other")
            yield other, f"another tool of the server `{plain(action.server)}`"
            yield replace(action, server=f"{action.server}-other"), "the same tool of another server"
        case actions.SpawnAgent():
            yield replace(action, agent=f"{action.agent}_other"), "another agent"
            if action.mode != Mode.DANGEROUSLY.value:
                yield replace(action, mode=Mode.DANGEROUSLY.value), "the same agent in another mode"
        case actions.FetchAddress():
            yield replace(action, url="https://other.invalid/"), "another host"
        case actions.SearchWeb():
            yield replace(action, host="other.invalid"), "another search service"
        case actions.ReadProcess() | actions.WriteProcess() | actions.SignalProcess():
            return  # no approval of these can be remembered
        case _:
            verb = "changing" if whats[0].write else "reading"
            for path in _beside(whats[0], context):
                if isinstance(action, GlobFiles | GrepFiles):
                    moved: Action = replace(action, root=path)
                else:
                    moved = replace(action, path=path)
                yield moved, f"{verb} `{near(path, context.facts)}`"


def _other_arguments(
    action: actions.CallServerTool | actions.ReadServerResource, what: GrantSubject
) -> Iterator[tuple[Action, str]]:
    """Yield calls of the same tool with arguments outside of those of the grant."""
    if what.only is None:
        return
    if isinstance(action, actions.ReadServerResource):
        yield replace(action, uri=f"{action.uri}_other"), "another resource of this server"
        return
    given = argument_values(action) or {}
    for name, folder in what.below:
        away = f"{folder.removesuffix('/')}_other/x"
        yield replace(action, arguments=canonical({**given, name: away})), f"{name} outside of {plain(folder)}"
    for name, _ in what.values[:1]:
        yield replace(action, arguments=canonical({**given, name: f"{given.get(name)}_other"})), f"another {name}"
    more = canonical({**given, "other_argument": True})
    yield replace(action, arguments=more), "a further argument"


def _commands(
    whats: Sequence[GrantSubject], samples: Sequence[_Words], context: EvaluationContext
) -> Iterator[tuple[_Words, str]]:
    """Yield pairs of a command similar to those of the grants and a script; exactly one of both is not empty."""
    whole = " && ".join(" ".join(map(quoted, words)) for words in samples if words)
    pairs = sorted(zip(whats, samples, strict=True), key=lambda pair: not pair[1])  # commands before redirections
    for what, words in pairs:
        folder = f"{absolute(what.shape.folder, context.facts).rstrip('/')}/"
        paths = [path.removeprefix(folder) for path in _beside(what, context)]  # as a user would type them there
        if what.shape.family:
            yield from ((beside, "") for beside in beyond_family(words, what.shape.family, context.rules))
            continue
        if not words:
            yield from (((), f"echo x > {quoted(path)}") for path in paths)
            continue
        for host in what.host:
            # Another address of the same host, then another host.
            beside = tuple(_ADDRESS.sub(r"\1/other", word) if host in word else word for word in words)
            if beside != words:
                yield beside, ""
            if any(host in word for word in words):
                yield tuple(word.replace(host, _STRANGE_HOST) for word in words), ""
        if what.read or what.write:
            yield from (((*words[:-1], path), "") for path in paths)
        if not what.shape.flags:
            yield (*words, "--force"), ""
        if what.shape.flags or HOLE in what.shape.words:
            yield (*words, "other"), ""
        elif len(words) > 1:
            yield (*words[:-1], "other"), ""
    if whole:
        yield (), f"{whole} && curl https://{_STRANGE_HOST}"
        yield (), f"cd .. && {whole}"


def beyond_family(words: _Words, family: str, rules: RuleBook) -> Iterator[_Words]:
    """Yield commands of the program that are not in the family: first those beside the command `words`, worst first."""
    rule, path = rules.find(words[0]), list(words[:1])
    above: list[tuple[_Words, CommandRule]] = []
    for word in words[1:]:
        if rule is None or not rule.subs:
            break
        above.append((tuple(path), rule))
        rule = rule.sub(word)
        path.append(word)
    for before, each in reversed(above):
        subs = {sub.name: sub for sub in each.subs.values() if sub.family != family and not sub.subs}
        for sub in sorted(subs.values(), key=lambda sub: -sub.tier):
            if "*" not in sub.name:
                yield (*before, sub.name.rpartition(" ")[2])


def _beside(what: GrantSubject, context: EvaluationContext) -> Iterator[str]:
    """Yield absolute paths outside those of the grant; for reads, paths that are likely to exist."""
    for path in (*what.write, *what.read):
        above = absolute(path, context.facts).rpartition("/")[0]
        if what.write:
            yield f"{above}/other.txt"
            yield f"{above.rpartition('/')[0]}/other/notes.txt"
        else:
            yield above or "/"
            yield context.facts.home
