"""The start of a server: its rights from the configuration, the verdict of the gate, the record, and its process."""

import os
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from policy.evaluation import EvaluationContext
from policy.model.action import StartServer
from policy.model.assessment import Assessment, RuleKind, RuleRef
from policy.model.frozen import dataclass, replace
from policy.model.host_words import endpoint
from policy.model.profile import Layer, Source
from policy.model.verdict import Allow, Deny, Problem, ProblemError, Verdict
from policy.permission.flag_rights import FlagRights
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import Decision
from runner.engine.processes import SessionProcess
from runner.engine.run_context import RunContext
from runner.gate.wording import action_words
from runner.mcp.program import find_program, installation
from runner.mcp.server_config import ServerConfig
from runner.state.paths import state_dir

_FOLDER = "servers"


class ServerRefused(ProblemError):
    """The error for a server that the gate does not start. Nothing was started."""


@dataclass(frozen=True, slots=True)
class JudgedStart:
    """The verdict on the start of one server.

    Attributes:
        action: The start.
        rights: The rights of the server, from its configuration.
    """

    action: StartServer
    rights: FlagRights
    assessment: Assessment
    verdict: Verdict


def judge_start(
    config: ServerConfig, context: EvaluationContext, environ: Mapping[str, str], *, least: bool = False
) -> JudgedStart:
    """Return the verdict on the start of `config` in `context`, whose source and rights are replaced. With `least`, the
    server gets no right but to its own installation.

    A question counts as a denial: the user answers it by the configuration. Raise ProgramMissing, PlaceError.
    """
    facts = context.facts
    by = RuleRef(RuleKind.USER, *_place(config))
    if config.url:
        hosts = config.hosts or tuple(filter(None, (endpoint(config.url),)))
        action = StartServer((), facts.workspace, server=config.name, url=config.url)
        rights = FlagRights(hosts=hosts, by=by, server=config.name)
    else:
        folder = str(own_folder(config, facts.workspace, environ))
        reads = () if least else config.read
        seen = not least and any(facts.workspace == path for path in (*config.read, *config.write))
        cwd = (config.cwd if not least else "") or (facts.workspace if seen else folder)
        program = find_program(config.command, environ, facts.workspace)
        needed = installation(program, facts.system, facts.home)
        action = StartServer((program, *config.args), cwd, server=config.name, folder=folder)
        rights = FlagRights(
            read=tuple(dict.fromkeys((*reads, *needed))),
            write=() if least else config.write,
            hosts=() if least else config.hosts,
            env=config.env,
            by=by,
            server=config.name,
        )
    context = replace(
        context,
        environment=_environment(context.environment, config, action.folder),
        source=Source.PERSON,
        typed=rights,
        unattended=True,
        backend=context.backend if action.argv else None,
    )
    assessment, verdict = context.evaluate(action)
    return JudgedStart(action, rights, assessment, verdict)


def own_folder(config: ServerConfig, workspace: str, environ: Mapping[str, str]) -> Path:
    """Return the folder that belongs to this server alone, created with mode 0700. Raise PlaceError.

    THREAT T179: servers of two repositories, or of a repository and of the user, may have the same name. What one of
    them stored is not for the other.
    """
    of_repository = config.layer in (Layer.REPOSITORY, Layer.TRUSTED)
    owner = sha256(os.fsencode(workspace)).hexdigest()[:16] if of_repository else "user"
    folder = state_dir(environ) / _FOLDER / owner / config.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _place(config: ServerConfig) -> tuple[str, int]:
    path, _, line = config.place.rpartition(":")
    return (path, int(line)) if path and line.isdecimal() else (config.place or f"[mcp.{config.name}]", 0)


def _environment(
    environment: tuple[tuple[str, str], ...], config: ServerConfig, folder: str
) -> tuple[tuple[str, str], ...]:
    """Return the variables of the server: those of every command, its own, and caches in its own folder."""
    caches = {"XDG_CACHE_HOME": "cache", "npm_config_cache": "cache/npm", "UV_CACHE_DIR": "cache/uv"}
    own = {name: f"{folder}/{below}" for name, below in caches.items()} if folder else {}
    return tuple(sorted((dict(environment) | own | dict(config.env)).items()))


def start_in(
    config: ServerConfig, ctx: RunContext, environ: Mapping[str, str], *, least: bool = False
) -> tuple[JudgedStart, int]:
    """Judge the start of `config` in a session, and record the verdict durably. Return both.

    The parameters are those of `judge_start`. Raise ServerRefused for a denial, AuditError, ProgramMissing, PlaceError.
    """
    profile = ctx.profile
    noted = FactRecorder(ctx.look(), profile)
    context = EvaluationContext(
        noted.facts, ctx.rules, profile, ctx.live.mode, ctx.environment, backend=ctx.sandbox.name
    )
    judged = judge_start(config, context, environ, least=least)
    return judged, _record(judged, noted, ctx)


def _record(judged: JudgedStart, noted: FactRecorder, ctx: RunContext) -> int:
    verdict = judged.verdict
    assert isinstance(verdict, Allow | Deny)  # the context is unattended
    decision = Decision(
        judged.action.tool,
        judged.assessment,
        verdict,
        ctx.sandbox.name if judged.action.argv else "none",
        typed=judged.rights.words,
        source=Source.PERSON,
        reach=ctx.sandbox.name if judged.action.argv else None,
        noted=noted,
        policy=ctx.profiles.fingerprint(ctx.rules),
        agent=ctx.agent,
        parent=ctx.parent,
    )
    number = ctx.audit.decided(ctx.session, decision)
    if isinstance(verdict, Deny):
        raise ServerRefused(_explained(verdict.problem, judged))
    return number


def _explained(problem: Problem, judged: JudgedStart) -> Problem:
    return Problem(f"the server `{judged.action.server}` was not started", problem.why, problem.fix)


async def start_process(
    judged: JudgedStart, number: int, ctx: RunContext, messages: Callable[[bytes], None]
) -> SessionProcess:
    """Start the process of an allowed server. `number` is the record of the verdict.

    Raise SandboxUnavailable, AuditError.
    """
    verdict = judged.verdict
    assert isinstance(verdict, Allow)
    words = action_words(judged.action, os.path.dirname(judged.action.cwd)).partition(": ")[2]
    return await ctx.processes.start(
        verdict.permit,
        words,
        number,
        agent=ctx.agent,
        tiers=tuple(tier.label for tier in judged.assessment.tiers),
        by_user=True,
        name=f"mcp-{judged.action.server}",
        server=judged.action.server,
        messages=messages,
    )
