"""The start of a language server: its rights, the verdict of the gate, the record, and its process."""

import os
import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from policy.evaluation import EvaluationContext
from policy.model.action import StartLanguageServer
from policy.model.assessment import RuleKind, RuleRef
from policy.model.verdict import Allow, Deny, Problem, ProblemError
from policy.permission.flag_rights import FlagRights
from runner.audit.fact_recorder import FactRecorder
from runner.audit.records import Decision
from runner.engine.processes import SessionProcess
from runner.engine.run_context import RunContext
from runner.gate.wording import action_words
from runner.lsp.language_config import LanguageConfig
from runner.mcp.program import find_program, installation
from runner.state.paths import state_dir

_FOLDER = "language-servers"


class LanguageServerRefused(ProblemError):
    """The error for a language server that the gate does not start. Nothing was started."""


def own_folder(name: str, workspace: str, environ: Mapping[str, str]) -> Path:
    """Return the folder that belongs to this server in this workspace, created with mode 0700. Raise PlaceError."""
    owner = sha256(os.fsencode(workspace)).hexdigest()[:16]
    folder = state_dir(environ) / _FOLDER / owner / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


async def start_language_server(
    config: LanguageConfig,
    ctx: RunContext,
    environ: Mapping[str, str],
    messages: Callable[[bytes], None],
    number: int,
    *,
    agent: str,
) -> SessionProcess:
    """Judge the start, record the verdict, and start the process. `number` makes the name of the process unique.

    The process ends with `agent`, whichever agent asked first.

    A question counts as a denial: the user answers it by a mode or a rule.

    Raise LanguageServerRefused for a denial, ProgramMissing, PlaceError, AuditError or SandboxUnavailable.
    """
    noted = FactRecorder(ctx.look(), ctx.profile)
    facts = noted.facts
    folder = str(own_folder(config.name, facts.workspace, environ))
    command = os.path.expanduser(config.argv[0]) if config.argv[0].startswith("~/") else config.argv[0]
    program = find_program(command, environ, facts.workspace)
    needed = installation(program, (facts.workspace, *facts.system), facts.home)
    present = tuple(path for path in config.read if os.path.exists(path))
    place, _, line = config.place.rpartition(":")
    by = RuleRef(RuleKind.USER, place, int(line)) if line.isdecimal() else RuleRef(RuleKind.FLAG, "--read")
    rights = FlagRights(read=tuple(dict.fromkeys((*present, *needed))), by=by)
    action = StartLanguageServer((program, *config.argv[1:]), facts.workspace, language=config.name, folder=folder)
    context = EvaluationContext(
        facts,
        ctx.rules,
        ctx.profile,
        ctx.live.mode,
        _environment(ctx.environment, config, folder),
        source=ctx.source,
        typed=rights if rights.read else None,
        unattended=True,
        backend=ctx.sandbox.name,
    )
    assessment, verdict = context.evaluate(action)
    assert isinstance(verdict, Allow | Deny)  # the context is unattended
    decision = Decision(
        action.tool,
        assessment,
        verdict,
        ctx.sandbox.name,
        typed=rights.words,
        source=ctx.source,
        reach=ctx.sandbox.name,
        noted=noted,
        policy=ctx.profiles.fingerprint(ctx.rules),
        agent=ctx.agent,
        parent=ctx.parent,
        client=ctx.client,
    )
    record = ctx.audit.decided(ctx.session, decision)
    if isinstance(verdict, Deny):
        problem = verdict.problem
        what = f"the language server `{config.name}` was not started"
        raise LanguageServerRefused(Problem(what, problem.why, problem.fix))
    return await ctx.processes.start(
        verdict.permit,
        action_words(action, facts.workspace).partition(": ")[2],
        record,
        agent=agent,
        tiers=tuple(tier.label for tier in assessment.tiers),
        by_user=True,
        name=f"lsp-{config.name}-{number}",
        server=f"lsp {config.name}",
        messages=messages,
    )


def installed(config: LanguageConfig, environ: Mapping[str, str], workspace: str) -> str:
    """Return the absolute path of the program of a server, or an empty text if there is none."""
    command = os.path.expanduser(config.argv[0])
    return shutil.which(command if "/" not in command else os.path.join(workspace, command),
                        path=environ.get("PATH")) or ""  # fmt: skip


def _environment(
    environment: tuple[tuple[str, str], ...], config: LanguageConfig, folder: str
) -> tuple[tuple[str, str], ...]:
    """Return the variables of the server: those of every command, its own, and caches in its own folder."""
    caches = {
        "XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "XDG_DATA_HOME": "data", "GOCACHE": "cache/go",
        "CARGO_TARGET_DIR": "target", "npm_config_cache": "cache/npm", "PYTHONPYCACHEPREFIX": "cache/python",
    }  # fmt: skip
    own = {name: f"{folder}/{below}" for name, below in caches.items()}
    return tuple(sorted((dict(environment) | own | dict(config.env)).items()))
