"""Evaluation of one action without a model, for `agent exec`, `agent why` and other commands."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from policy.evaluation import EvaluationContext
from policy.model.action import Action, RunArgv, RunScript, file_action
from policy.model.assessment import Assessment
from policy.model.facts import Facts
from policy.model.frozen import dataclass, replace
from policy.model.profile import Profile, Source
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Allow, Ask, Limits, Verdict
from runner.config import Settings, load
from runner.config.load import flag_settings, with_flags
from runner.facts.environment import child_environment
from runner.facts.gather import gather, unfit_folder
from runner.problems import option
from runner.secrets.secret import register_environment
from runner.state.paths import private
from runner.state.workspace import folder as folder  # commands that open a gate take it from here
from runner.state.workspace import refused_folder

if TYPE_CHECKING:
    from policy.flow.state import FlowState
    from policy.permission.flag_rights import FlagRights


@dataclass(frozen=True, slots=True)
class GateArgs:
    """Arguments of `agent exec`, `agent why` or `agent sandbox show`, which name one action to judge.

    `tool` is the name of a file tool, or None for a command. For a command, exactly one of `script` and `argv` is
    given, except for `sandbox show`. For a file tool, `script` is the content or pattern. `read`, `write`, `hosts` and
    `env` are the values as typed.
    """

    script: str | None
    argv: tuple[str, ...] | None
    mode: Mode | None = None
    unattended: bool = False
    cwd: str | None = None
    config: str | None = None
    json: bool = False
    limits: tuple[str, ...] = ()
    timeout: str | None = None
    backend: str | None = None
    least: str | None = None  # `full` or `partial`: what --require and --accept-partial say
    unix: bool = False
    background: bool = False
    preview: bool = False
    guard_token: str | None = None
    tool: str | None = None
    path: str | None = None
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    untrusted: str | None = None  # the source of untrusted text that the command may come from, in words


@dataclass(frozen=True, slots=True)
class Gate:
    """Settings and facts of one moment, for evaluating actions without a session. A gate runs nothing."""

    settings: Settings
    facts: Facts
    environment: tuple[tuple[str, str], ...]
    limits: Limits
    mode: Mode
    cwd: str
    backend: str | None = None  # the backend that the user named
    typed: "FlagRights | None" = None  # rights that flags add to the action
    flow: "FlowState | None" = None  # the information flow that `--untrusted` states

    def context(self, source: Source = Source.MODEL, *, unattended: bool) -> EvaluationContext:
        """Return the context of the evaluation of an action proposed by `source`."""
        return EvaluationContext(
            self.facts,
            self.settings.rules,
            self.settings.profile,
            self.mode,
            self.environment,
            self.limits,
            source,
            self.typed,
            unattended,
            self.backend,
            flow=self.flow,
        )

    def evaluate(
        self, action: Action, source: Source = Source.MODEL, *, unattended: bool
    ) -> tuple[Assessment, Verdict]:
        """Classify `action`, proposed by `source`, and decide about it."""
        return self.context(source, unattended=unattended).evaluate(action)

    def rulings_by_mode(self, assessment: Assessment) -> tuple[tuple[Mode, Ruling], ...]:
        """Return the ruling of every mode on the same action, for a session in which a person can answer."""
        context = self.context(unattended=False)
        return tuple((mode, ruling(context.decide(assessment, mode=mode))) for mode in Mode)


def ruling(verdict: Verdict) -> Ruling:
    if isinstance(verdict, Allow):
        return Ruling.ALLOW
    return Ruling.ASK if isinstance(verdict, Ask) else Ruling.DENY


def open_gate(args: GateArgs, environ: Mapping[str, str]) -> tuple[Gate, Action]:
    """Read the configuration and the state of the machine, and return a gate and the action of `args`."""
    register_environment(environ)  # a typed variable may contain a secret
    cwd = folder(args.cwd)
    config = Path(args.config) if args.config else None
    unattended = is_unattended(args.unattended)
    trusted = None
    if not unattended:  # unattended, no trust of the user applies
        from runner.config.trust.cached import remembered

        trusted = remembered(str(cwd), environ)
    settings = load(cwd, environ, config=config, unattended=unattended, trusted=trusted)
    if settings.notices:
        from runner.config.trust.widening import condense_notices  # only if there are notices

        settings = replace(settings, notices=condense_notices(settings))
    if trusted is not None and trusted.notices:
        settings = replace(settings, notices=(*settings.notices, *trusted.notices))
    if args.unix:
        settings = replace(settings, profile=replace(settings.profile, unix_sockets=True))
    if any(credential.intercept for credential in settings.profile.credentials):
        from runner.secrets.broker.session import with_bundle

        settings = replace(settings, profile=with_bundle(settings.profile))
    facts = gather(str(cwd), environ, settings.profile)
    limits = settings.profile.limits
    if args.limits or args.timeout is not None:
        from runner.config.amounts import apply_limits, parse_seconds  # most command lines name no limit

        limits = apply_limits(limits, args.limits)
        if args.timeout is not None:
            limits = replace(limits, wall=parse_seconds(args.timeout, "--timeout"))
    action: Action
    if args.tool is not None:
        path, text = args.path or ".", args.script or ""
        path = f"{facts.home}/{path[2:]}" if path.startswith("~/") else path
        path = str(cwd) if path == "." else path if path.startswith("/") else f"{cwd}/{path}"
        action = file_action(args.tool, path, content=text, old=text, glob=text or "*", regex=text)
    elif args.argv is not None:
        action = RunArgv(args.argv, str(cwd), limits.wall)
    else:
        action = RunScript(args.script or "", str(cwd), limits.wall)
    flags = flag_settings(
        mode=args.mode, least=args.least, unix=args.unix, limits=args.limits, timeout=args.timeout, total=limits
    )
    settings = with_flags(settings, flags)
    environment = child_environment(facts, environ, settings.profile)
    mode = args.mode or settings.mode or Mode.DEFAULT
    typed = None
    if args.read or args.write or args.hosts or args.env:
        from runner.gate.flag_rights import notices, parse_flag_rights  # only if some were typed

        home = facts.home
        typed = parse_flag_rights(str(cwd), home, read=args.read, write=args.write, hosts=args.hosts, env=args.env)
        settings = replace(settings, notices=(*settings.notices, *notices(typed)))
        environment = tuple(sorted((dict(environment) | dict(typed.env)).items()))
    flow = None
    if args.untrusted is not None:
        from runner.gate.stated_flow import stated_flow  # few commands come from such a conversation

        flow = stated_flow(args.untrusted, settings, facts, waits=not args.background)
    return Gate(settings, facts, environment, limits, mode, str(cwd), args.backend, typed, flow), action


def is_unattended(unattended: bool) -> bool:
    """Return True if no person can answer: the user said so, or there is no terminal."""
    return unattended or not (os.isatty(0) and os.isatty(2))


def refuse_folder(cwd: str, environ: Mapping[str, str], profile: Profile) -> None:
    """Refuse to start in a folder in which every action would be denied.

    These are `/`, the home, a folder above the home, a folder that is or contains a folder of secrets, and a folder of
    the kernel such as /proc. Raises Stopped with exit code 2, before a model is asked or anything is opened.
    """
    floor = unfit_folder(cwd, environ, profile)
    if floor is not None:
        fix = f"go to a project folder first (`cd FOLDER`), or name one with `{option('--cwd', 'FOLDER')}`"
        raise refused_folder(cwd, floor.why, fix)


def has_remembered_answers() -> bool:
    """Return True if the list of grants exists. Only this file is looked up, and no module is loaded."""
    return os.path.lexists(f"{private(os.environ)[0]}/grants.json")
