"""The commands about decisions of the gate: /audit, /why, /grants, /permissions, /sandbox."""

import asyncio
import time
from dataclasses import replace
from functools import partial

from policy.model.action import RunScript
from policy.model.assessment import Assessment
from policy.model.profile import PermissionRule
from policy.model.tier import MATRIX, Ruling, Tier
from policy.model.verdict import Ask, Deny, Verdict
from runner.frontends.slash.command import POLICY_GROUP, CommandHost, Mistake, SlashCommand, say, table
from runner.gate.gate import Gate
from runner.gate.grants.text import lines as grant_lines

_MOST = 20  # rows of /audit
# What the boundary is checked for when a session begins, by the name of the check.
# fmt: off
_CHECKS = {
    "abstract":     "no abstract socket of this machine can be reached",
    "capabilities": "a command has no capabilities of the kernel",
    "hidden":       "files outside the granted folders cannot be read",
    "io_uring":     "io_uring, a second way to make system calls, is not available",
    "mounted":      "only the granted folders are mounted",
    "mounts":       "file systems cannot be mounted",
    "namespaces":   "a command cannot make a user namespace of its own",
    "network":      "servers on this machine cannot be reached",
    "outside":      "files outside the granted folders cannot be written",
    "privileges":   "a command cannot gain privileges (setuid programs)",
    "processes":    "processes outside the sandbox cannot be seen",
    "seccomp":      "system calls are filtered (seccomp)",
    "sysctl":       "settings of the kernel cannot be written",
    "user":         "a command runs as the expected user",
    "variables":    "the environment has only the expected variables",
    "workspace":    "the workspace cannot be written with read-only rights",
}
# fmt: on
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
                return list(lines(log, query, limit=_MOST, width=host.columns))
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
        say(host, *await asyncio.to_thread(_last, host))
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


def _last(host: CommandHost) -> list[str]:
    """Return the verdict, the reason, the rights and the rule of the session's last decision."""
    from runner.audit.decisions import deeds
    from runner.audit.detail_view import brief_rows
    from runner.audit.log import AuditLog, log_place
    from runner.audit.query import Query

    with AuditLog.open_to_read(log_place(host.settings, host.environ)) as log:
        last = next(deeds(log, Query(sessions=(host.conversation.ctx.session,)), limit=1), None)
        if last is None:
            return ["this session has no decisions"]
        return [*table(brief_rows(last), host.columns), f"/audit {last.record.id} shows the whole record"]


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
    held = sum(ok for _, ok in enforcement.checks)
    rows = [
        ("sandbox", f"{enforcement.level.value.lower()} ({enforcement.backend})"),
        ("workspace", ctx.look().workspace),
        ("checked", f"{held} of {len(enforcement.checks)} checks passed when the session began:"),
    ]
    rows += [("yes" if ok else "NO", _CHECKS.get(name, name)) for name, ok in enforcement.checks]
    rows += [("missing", text) for text in enforcement.missing]
    if enforcement.limits:
        rows.append(("limits", f"of memory, processes and time: enforced by {enforcement.limits}"))
    hosts = sorted({host for rule in ctx.profile.permissions if rule.verdict is Ruling.ALLOW for host in rule.host})
    rows.append(("network", ", ".join(hosts) if hosts else "none, except hosts that you approve"))
    say(host, *table(rows, host.columns), "/sandbox COMMAND shows the exact rights of a command")


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
        tiers = [tier.shown for tier in Tier if MATRIX[tier][ctx.live.mode] is ruling]
        if tiers:
            rows.append(f"  {label:<8} {', '.join(tiers)}")
    rules = ctx.profile.permissions
    rows.append("rules:" if rules else "rules: you have none")
    rows += [f"  {rule.word:<8} {_about(rule)}  ({rule.ref})" for rule in rules]
    live = sum(1 for _ in ctx.grants.live())
    rows.append(f"remembered answers: {live} (/grants)")
    say(host, *rows)


def _about(rule: PermissionRule) -> str:
    """Return one line about the subject of a rule."""
    parts = [f"run {rule.pattern}"] if rule.run else []
    parts += [f"{name} {', '.join(values)}" for name in ("read", "write", "host") if (values := getattr(rule, name))]
    parts += [f"with {', '.join(rule.tool)}"] if rule.tool else []
    parts += [f"whose {name} is like {pattern}" for name, pattern in rule.arguments]
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


_command = partial(SlashCommand, group=POLICY_GROUP)

# fmt: off
COMMANDS = (
    _command("permissions", "", "show what is allowed, asked and denied here", _permissions, aliases=("rules",)),
    _command("grants", "[revoke ID]", "show or revoke remembered answers", _grants, words=lambda host: ("revoke",)),
    _command("audit", "[WHICH]", "decisions so far; denied, asked, or a NUMBER", _audit,
             words=lambda host: ("denied", "asked", "allowed", "last")),
    _command("why", "[COMMAND]", "explain the last decision, or that on COMMAND", _why),
    _command("sandbox", "[COMMAND]", "show the sandbox, or the exact rights of a command", _sandbox),
)
# fmt: on
