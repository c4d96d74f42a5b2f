"""`agent sandbox show`: the exact rights of a permit, and what a sandbox would mount for them. Runs nothing."""

import os
from dataclasses import asdict, replace

from policy.model.action import RunArgv
from policy.model.assessment import Assessment, Check, Effect, EffectKind, Reason, Scope
from policy.model.frozen import dataclass
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Ask, Deny, Problem, Rights, Terms
from policy.terms import Floor, terms_for
from runner.gate.explain import names_of
from runner.gate.gate import Gate, GateArgs, open_gate
from runner.gate.wording import RULING_WORDS, terms_words
from runner.problems import Exit, Stopped
from runner.secrets.redactor import masked
from runner.stderr import print_problem, say_notice
from runner.text.json_line import json_line
from runner.text.sanitize import visible
from sandbox.backend import SandboxUnavailable
from sandbox.inside import syscalls

_STEPS = {"ro": "read", "rw": "write", "tmpfs": "empty", "folder": "empty", "mask": "masked", "link": "link to"}


@dataclass(frozen=True, slots=True)
class RightsReport:
    """One set of rights.

    Attributes:
        title: The kind of command that gets the rights.
        terms: The rights.
        mounts: The mounts of the full sandbox.
        refused: The reason why the full sandbox cannot build the mounts, or an empty string.
    """

    title: str
    terms: Terms
    mounts: tuple[tuple[str, str, str], ...] = ()  # kind, source, target
    refused: str = ""


def run_show(args: GateArgs) -> int:
    """Print the terms of the script, or without a script those of the two standard sets, and return the exit code.

    The code is DENIED if the script is denied. Raise Stopped if the standard sets with the added rights are denied.
    """
    bare = args.script is None and args.argv is None
    gate, action = open_gate(replace(args, script="") if bare else args, os.environ)
    for notice in gate.settings.notices:
        say_notice(notice)
    if bare:
        titles = {
            "rights of commands that only read": Rights.READ_ONLY,
            "rights of commands that may change the workspace": Rights.WORKSPACE_WRITE,
        }
        found = [_rights_report(title, _standard(gate, rights)) for title, rights in titles.items()]
    else:
        _, verdict = gate.evaluate(action, unattended=args.unattended)
        if isinstance(verdict, Deny):
            print_problem(verdict.problem, label="denied")
            return Exit.DENIED
        if isinstance(verdict, Ask):
            found = [_rights_report("asks; after an approval the command gets", verdict.terms)]
        else:
            found = [_rights_report(f"{RULING_WORDS[Ruling.ALLOW]}; the command gets", verdict.permit.terms)]
    print(masked("\n".join(json_line(_as_json(one)) if args.json else _render(one) for one in found)))
    return Exit.DONE


def _standard(gate: Gate, rights: Rights) -> Terms:
    """Return the terms of an action that needs exactly `rights`, with the rights that flags add, or raise Stopped."""
    works = rights is Rights.WORKSPACE_WRITE
    tier = Tier.EXECUTE if works else Tier.READ
    effects = (Effect(EffectKind.RUNS, "code", Scope.NONE),) if works else ()
    action = RunArgv(("true",), gate.cwd, gate.limits.wall)
    assessment = Assessment(action, effects, (Reason(tier, "shown", Check.SANDBOX_SHOW),))
    if gate.typed:
        from policy.permission.flag_rights import widened

        assessment = widened(assessment, gate.typed, gate.facts, gate.settings.profile)
    terms = terms_for(assessment, gate.facts, gate.settings.profile, gate.environment, gate.limits)
    secret = next((reason for reason in assessment.reasons if reason.tier >= Tier.SECRET), None)
    if isinstance(terms, Terms) and secret is None:
        return terms

    why, fix = (terms.why, terms.fix) if isinstance(terms, Floor) else (secret.text if secret else "", "remove it")
    raise Stopped(Problem("these rights are never granted", f"{why}; no mode allows that", fix), Exit.DENIED)


def _rights_report(title: str, terms: Terms) -> RightsReport:
    """Return the rights with the mounts of the full sandbox, except that of a session's /tmp: no session is open."""
    from sandbox.linux.launch import survey
    from sandbox.linux.plan_builder import compile_plan

    try:
        plan = compile_plan(terms, survey(terms, ""), (b"", b""), tier="T1", abi=syscalls.landlock_abi())
    except SandboxUnavailable as error:
        return RightsReport(title, terms, refused=str(error.problem))
    return RightsReport(title, terms, plan.mounts)


def _as_json(shown: RightsReport) -> dict[str, object]:
    """Return an object for JSON without the values of environment variables."""
    terms = {**asdict(shown.terms), "env": [name for name, _ in shown.terms.env], "digest": shown.terms.digest}
    mounts = [{"kind": kind, "from": source, "to": target} for kind, source, target in shown.mounts]
    return {"title": shown.title, "terms": terms, "mounts": mounts, "refused": shown.refused or None}


def _render(shown: RightsReport) -> str:
    lines = [shown.title]
    lines += [f"  {name:<8} {words}" for name, words in terms_words(shown.terms)]
    lines.append(f"  {'environ':<8} {names_of(shown.terms) or 'empty'}")
    lines.append(f"  {'digest':<8} {shown.terms.digest[:16]}")
    if shown.refused:
        lines.append(f"  no sandbox can grant this: {shown.refused}")
    else:
        lines.append("  mounts   (everything else does not exist)")
        for kind, source, target in shown.mounts:
            other = f" <- {source}" if source not in ("", target) and kind in ("ro", "rw", "link") else ""
            lines.append(f"    {_STEPS[kind]:<8} {target}{other}")
    return "\n".join(visible(line, lines=False) for line in lines)
