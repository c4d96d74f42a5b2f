"""The run of one command hook: its rights from the configuration, the verdict of the gate, the record, the sandbox."""

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace

from policy.evaluation import EvaluationContext
from policy.model.action import RunHook
from policy.model.assessment import RuleKind, RuleRef
from policy.model.frozen import dataclass
from policy.model.profile import Source
from policy.model.secret_paths import inside
from policy.model.verdict import Allow, Deny, Permit, Problem, ProblemError
from policy.permission.flag_rights import FlagRights
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import Decision, Ran, RecordedHook
from runner.changes.undo.lock import UndoError
from runner.config.hookfiles.hook import Hook, HookKind, HookScope
from runner.engine.run_context import RunContext
from runner.gate.wording import action_words
from runner.mcp.program import installation
from sandbox.backend import Outcome

_HOME = re.compile(r"\$\{?HOME\}?/|~/")
_WORD = re.compile(r"""[^\s"'=;|&()<>`]+""")
_PLACEHOLDERS = re.compile(r"\$\{?(CLAUDE_PROJECT_DIR|CLAUDE_PLUGIN_ROOT|GEMINI_PROJECT_DIR|CODEX_PROJECT_DIR)\}?")


class HookRefused(ProblemError):
    """The error for a hook that the gate does not run. Nothing was run."""


@dataclass(frozen=True, slots=True)
class AllowedHook:
    """A hook that the gate allows to run.

    Attributes:
        hook: The hook.
        permit: The permit for one run.
        record: The number of the record of the verdict.
    """

    hook: Hook
    permit: Permit
    record: int


def allow_hook(hook: Hook, ctx: RunContext, environ: Mapping[str, str], agent: str = "") -> AllowedHook:
    """Judge one run of `hook` in a session, record the verdict durably, and return the permit.

    A question counts as a denial: the user answers it by the configuration. Raise HookRefused, AuditError.
    """
    profile = ctx.profile
    noted = FactRecorder(ctx.look(), profile)
    facts = noted.facts
    variables = hook_variables(hook, facts.workspace)
    command = hook.kind is HookKind.COMMAND
    argv: tuple[str, ...] = ()
    if command:
        argv = tuple(_inserted(word, variables) for word in hook.argv) or (_bash(), "-c", hook.command)
    rights = hook_rights(hook, argv, facts.workspace, facts.home, facts.system)
    action = RunHook(
        argv,
        ctx.cwd,
        hook.timeout,
        event=hook.event,
        place=hook.place,
        wider=command and bool(rights.hosts or rights.write),
        url=hook.url,
        question=hook.prompt,
    )
    context = EvaluationContext(
        facts,
        ctx.rules,
        profile,
        ctx.live.mode,
        tuple(sorted((dict(ctx.environment) | variables).items())),
        source=Source.HOOK,
        typed=rights,
        unattended=True,
        backend=ctx.sandbox.name if command else None,
    )
    assessment, verdict = context.evaluate(action)
    assert isinstance(verdict, Allow | Deny)  # the context is unattended
    backend = ctx.sandbox.name if command else "none"
    decision = Decision(
        action.tool,
        assessment,
        verdict,
        backend,
        typed=rights.words,
        source=Source.HOOK,
        reach=ctx.sandbox.name if command else None,
        noted=noted,
        policy=ctx.profiles.fingerprint(ctx.rules),
        agent=agent or ctx.agent,
        parent=ctx.parent,
    )
    number = ctx.audit.decided(ctx.session, decision)
    if isinstance(verdict, Deny):
        raise HookRefused(verdict.problem)
    return AllowedHook(hook, verdict.permit, number)


def hook_rights(
    hook: Hook, argv: tuple[str, ...], workspace: str, home: str, system: tuple[str, ...] = ()
) -> FlagRights:
    """Return the rights of a hook: those that the configuration names, and reading the files of the hook itself.

    INVARIANT: a hook of a repository gets no right beyond reading the workspace, and one of a bundle reads its bundle,
    too.
    """
    by = RuleRef(RuleKind.USER, hook.source, hook.line)
    if hook.kind is HookKind.HTTP:
        from policy.model.host_words import endpoint

        host = endpoint(hook.url)
        return FlagRights(hosts=hook.hosts or tuple(filter(None, (host,))), by=by, hook=hook.event)
    if hook.kind is HookKind.PROMPT or hook.scope is HookScope.REPOSITORY:
        return FlagRights(by=by, hook=hook.event)
    if hook.scope is HookScope.BUNDLE:  # THREAT T221: the files of the bundle, whatever its command names
        return FlagRights(read=(hook.root,), by=by, hook=hook.event)
    own = _own_files(hook, argv, workspace, home)
    if hook.argv:  # a program that is named without a shell may be installed in the home of the user
        program = argv[0] if "/" in argv[0] else shutil.which(argv[0]) or ""
        own += installation(program, (workspace, *system), home) if program.startswith("/") else ()
    read = tuple(dict.fromkeys((*hook.read, *own)))
    return FlagRights(read=read, write=hook.write, hosts=hook.hosts, by=by, hook=hook.event)


def _own_files(hook: Hook, argv: tuple[str, ...], workspace: str, home: str) -> tuple[str, ...]:
    """Return the existing files below the home of the user that the command names, and the folder of the bundle.

    A file in a folder called `hooks` gets the whole folder, because scripts use the files beside them.
    """
    found = [hook.root] if hook.root and not inside(hook.root, workspace) else []
    words = argv if hook.argv else tuple(_WORD.findall(hook.command))
    for word in words:
        path = _HOME.sub(f"{home}/", word, count=1) if _HOME.match(word) else word
        if not path.startswith(f"{home}/") or inside(path, workspace) or not os.path.isfile(path):
            continue
        folder = os.path.dirname(os.path.normpath(path))
        found.append(folder if os.path.basename(folder) == "hooks" else os.path.normpath(path))
    return tuple(dict.fromkeys(found))


def hook_variables(hook: Hook, workspace: str) -> dict[str, str]:
    """Return the variables that a hook gets beyond those of every command."""
    found = dict.fromkeys(("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "CODEX_PROJECT_DIR"), workspace)
    return found | {"CLAUDE_PLUGIN_ROOT": hook.root} if hook.root else found


def _inserted(word: str, variables: Mapping[str, str]) -> str:
    return _PLACEHOLDERS.sub(lambda match: variables.get(match[1], match[0]), word)


def _bash() -> str:
    return "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


async def run_command(allowed: AllowedHook, given: bytes, ctx: RunContext) -> tuple[Outcome, Ran]:
    """Run an allowed command with `given` as its standard input. Return the outcome and its measures.

    What the command changes can be undone. The caller records the outcome. Raise SandboxUnavailable.
    """
    began = time.time()
    if ctx.undo is None or not allowed.hook.write:
        outcome = await ctx.sandbox.run(allowed.permit, stdin=given)
        return outcome, Ran(began, given=len(given))
    words = ctx.redactor.text(action_words(allowed.permit.action, ctx.cwd))
    try:
        running = await ctx.undo.before(allowed.permit, words, f"hook {allowed.hook.place}")
    except UndoError as error:
        return Outcome(status=1, problem=error.problem), Ran(began)
    step = None
    try:
        outcome = await ctx.sandbox.run(allowed.permit, stdin=given)
    finally:
        step = ctx.undo.after(running)
        if step is not None:
            ctx.journal.snapshot(str(step), "")
    return outcome, Ran(began, given=len(given), changed=ctx.undo.changed)


def record_outcome(
    allowed: AllowedHook, outcome: Outcome, ran: Ran, answer: RecordedHook, ctx: RunContext, agent: str = ""
) -> None:
    """Record the outcome of a run with the answer of the hook. Raise AuditError."""
    ctx.audit.finished(allowed.record, outcome, replace(ran, hook=answer), agent=agent or ctx.agent, parent=ctx.parent)


def changed_script(hook: Hook, workspace: str) -> Problem | None:
    """Return the problem if a script of a repository's hook is not the one that the user trusts; None if it is.

    THREAT T209: a script that changed, or appeared, after the user trusted the hook is not run.
    """
    if hook.scope is not HookScope.REPOSITORY:
        return None
    from hashlib import sha256

    from runner.config.hookfiles.hook_scripts import named_scripts
    from sandbox.inside.regular_file import read_whole

    trusted = dict(hook.files)
    for path in dict.fromkeys((*named_scripts(hook, workspace), *trusted)):
        place = os.path.join(workspace, path)
        if path not in trusted and not os.path.lexists(place):
            continue  # a program that is found on PATH, not in the repository
        if path not in trusted and os.path.isdir(place):
            continue
        try:
            same = sha256(read_whole(place, _LARGEST, follow=False)).hexdigest() == trusted.get(path)
        except (OSError, ValueError):
            same = False
        if not same:
            why = f"`{path}` is not the file that you trusted"
            return Problem("the hook was not run", why, "`agent trust` shows the change and asks again")
    return None


_LARGEST = 1 << 20  # bytes of a script, as for the files that are trusted
