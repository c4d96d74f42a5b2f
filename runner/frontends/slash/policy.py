"""The commands about decisions of the gate: /audit, /why, /grants, /permissions, /sandbox."""

import asyncio
import time
from dataclasses import replace

from policy.model.action import RunScript
from policy.model.assessment import Assessment
from policy.model.profile import PermissionRule
from policy.model.tier import MATRIX, Ruling, Tier
from policy.model.verdict import Ask, Deny, Verdict
from runner.frontends.slash.command import CommandHost, Mistake, SlashCommand, say
from runner.gate.gate import Gate
from runner.gate.grants.text import lines as grant_lines

_WIDTH = 100  # columns of a row of /audit
_MOST = 20  # rows of /audit
_VERDICTS = {"denied": ("deny",), "allowed": ("allow",)}


async def _audit(words: str, host: CommandHost) -> None:
    """Show the decisions of this session, the last one in full for `last`, or any record of the log for its number."""
    from runner.audit.decisions import deeds, record_named, trail_of
    from runner.audit.detail_view import deed_text, record_text
    from runner.audit.list_view import lines
    from runner.audit.log import AuditLog, log_place
    from runner.audit.query import Query

    session = host.conversation.ctx.session
    where = log_place(host.settings, host.environ)

    def read() -> list[str]:
        with AuditLog.open_to_read(where) as log:
            if not words.isdecimal() and words != "last":
                query = Query(sessions=(session,), verdicts=_VERDICTS.get(words, ()), asked=words == "asked")
                return list(lines(log, query, limit=_MOST, width=_WIDTH))
            if words == "last":
                last = next(deeds(log, Query(sessions=(session,)), limit=1), None)
                return deed_text(last).split("\n") if last is not None else ["this session has no decisions"]
            record = record_named(log, words)
            if record is None:
                raise Mistake(f"there is no record {words}; /audit lists the records of this session")
            deed = trail_of(log, record)
            return (record_text(record) if deed is None else deed_text(deed)).split("\n")

    if words and words not in (*_VERDICTS, "asked", "last") and not words.isdecimal():
        raise Mistake("write /audit, /audit denied, /audit asked, or /audit NUMBER")
    say(host, *await asyncio.to_thread(read))


async def _why(words: str, host: CommandHost) -> None:
    """Explain the verdict on a command in this session's mode; without a command, show the session's last decision."""
    if not words:
        await _audit("last", host)
        return
    from policy.describe.summary import summarize
    from runner.gate.explain import explain, render

    gate, assessment, verdict = _evaluated(words, host)
    explanation = explain(
        assessment,
        verdict,
        gate.facts.workspace,
        gate.rulings_by_mode(assessment),
        line=summarize(assessment, gate.facts),
    )
    say(host, *render(explanation).split("\n"))


async def _sandbox(words: str, host: CommandHost) -> None:
    """Show the boundary of every action; with a command, show the exact rights that it would get."""
    from runner.gate.wording import terms_words

    ctx = host.conversation.ctx
    if words:
        _, _, verdict = _evaluated(words, host)
        if isinstance(verdict, Deny):
            say(host, f"denied: {verdict.problem.why}", "the command would get no rights")
            return
        terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
        say(host, *(f"{label:<9} {text}" for label, text in terms_words(terms)))
        return
    enforcement = ctx.enforcement
    rows = [f"sandbox   {enforcement.backend} {enforcement.level.value}"]
    rows += [f"{'enforced' if ok else 'MISSING':<9} {name}" for name, ok in enforcement.checks]
    rows += [f"missing   {text}" for text in enforcement.missing]
    if enforcement.limits:
        rows.append(f"limits    enforced by {enforcement.limits}")
    hosts = sorted({host for rule in ctx.profile.permissions if rule.verdict is Ruling.ALLOW for host in rule.host})
    rows.append(f"network   {', '.join(hosts) if hosts else 'none, except hosts that you approve'}")
    say(host, *rows, "/sandbox COMMAND shows the exact rights of a command")


async def _grants(words: str, host: CommandHost) -> None:
    """Show the remembered answers that apply in this session, or revoke one of them."""
    grants = host.conversation.ctx.grants
    match words.split():
        case []:
            now = time.time()
            rows = [line for grant in grants.live() for line in grant_lines(grant, now, grants.key.workspace)]
            say(host, *(["remembered:", *rows] if rows else ["no answers are remembered"]))
        case ["revoke", name]:
            say(host, f"revoked {name}" if grants.revoke(name) is not None else f"there is no grant `{name}`")
        case _:
            raise Mistake("write /grants, or /grants revoke ID")


async def _permissions(words: str, host: CommandHost) -> None:
    """Show the column of the matrix for the current mode, and the rules in addition to it."""
    ctx = host.conversation.ctx
    if words:
        raise Mistake("/permissions takes no argument; /mode changes the mode, and your configuration has the rules")
    rows = [f"mode {ctx.live.mode.value}:"]
    for ruling, label in ((Ruling.ALLOW, "allowed"), (Ruling.ASK, "asks"), (Ruling.DENY, "denied")):
        tiers = [tier.label for tier in Tier if MATRIX[tier][ctx.live.mode] is ruling]
        if tiers:
            rows.append(f"  {label:<8} {', '.join(tiers)}")
    rules = ctx.profile.permissions
    rows.append("rules:" if rules else "rules: you have none")
    rows += [f"  {rule.verdict.name.lower():<8} {_about(rule)}  ({rule.ref})" for rule in rules]
    live = sum(1 for _ in ctx.grants.live())
    rows.append(f"remembered answers: {live} (/grants)")
    say(host, *rows)


def _about(rule: PermissionRule) -> str:
    """Return one line about the subject of a rule."""
    parts = [f"run {rule.pattern}"] if rule.run else []
    parts += [f"{name} {', '.join(values)}" for name in ("read", "write", "host") if (values := getattr(rule, name))]
    parts += [f"with {', '.join(rule.tool)}"] if rule.tool else []
    parts += [f"tier {', '.join(tier.label for tier in rule.tier)}"] if rule.tier else []
    return "; ".join(parts) or "anything"


def _evaluated(script: str, host: CommandHost) -> tuple[Gate, Assessment, Verdict]:
    """Evaluate a script in this session. Return the gate, the assessment and the verdict."""
    ctx = host.conversation.ctx
    gate = Gate(
        settings=replace(host.settings, profile=ctx.profile, rules=ctx.rules),
        facts=ctx.look(),
        environment=ctx.environment,
        limits=ctx.profile.limits,
        mode=ctx.live.mode,
        cwd=ctx.cwd,
        backend=ctx.sandbox.name,
    )
    return gate, *gate.evaluate(RunScript(script, ctx.cwd), unattended=ctx.unattended)


# fmt: off
COMMANDS = (
    SlashCommand("permissions", "", "show what is allowed, asked and denied here", _permissions, aliases=("rules",)),
    SlashCommand("grants", "[revoke ID]", "show or revoke remembered answers", _grants, words=lambda host: ("revoke",)),
    SlashCommand("audit", "[denied|asked|NUMBER]", "show the decisions of this session", _audit,
                 words=lambda host: ("denied", "asked", "allowed", "last")),
    SlashCommand("why", "[COMMAND]", "explain the last decision, or the verdict on a command", _why),
    SlashCommand("sandbox", "[COMMAND]", "show the sandbox, or the exact rights of a command", _sandbox),
)
# fmt: on
