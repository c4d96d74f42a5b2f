"""Programs that reach other machines: package managers, `ssh`, and the copiers between machines."""

import re
from dataclasses import replace

from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge, looks_only, port_of
from policy.interpreter.operand_roles import apply, connect
from policy.interpreter.options import ParsedOptions, parse
from policy.model.abstract_word import AbstractWord, below, literal
from policy.model.assessment import Consequence
from policy.model.host_words import elsewhere
from policy.model.tier import Tier
from policy.rules.rule import Operands, Role

# Settings of `ssh -o` that neither run a program here nor name a file.
# fmt: off
_SETTINGS = frozenset((
    "addressfamily", "batchmode", "checkhostip", "ciphers", "compression", "connectionattempts", "connecttimeout",
    "controlpersist", "exitonforwardfailure", "forwardagent", "forwardx11", "hashknownhosts", "hostkeyalgorithms",
    "identitiesonly", "ipqos", "kexalgorithms", "kbdinteractiveauthentication", "loglevel", "macs",
    "numberofpasswordprompts", "passwordauthentication", "port", "preferredauthentications", "pubkeyacceptedalgorithms",
    "pubkeyacceptedkeytypes", "pubkeyauthentication", "requesttty", "serveralivecountmax", "serveraliveinterval",
    "stricthostkeychecking", "tcpkeepalive", "updatehostkeys", "user", "verifyhostkeydns", "visualhostkey",
))
# fmt: on
_FEWEST = 2  # with less than a source and a target it lists
_SETTING = re.compile(r"([A-Za-z0-9]+)\s*[=\s]\s*(.*)", re.DOTALL)


def network_code(call: Call) -> None:
    """Judge a command that connects to a network and runs code from there (install scripts, build back ends)."""
    judge(call)
    if call.quiet:
        return
    call.runs("runs code that it fetched", consequence=Consequence.RUNS_DOWNLOADED)


def ssh(call: Call) -> None:
    """Judge `ssh [FLAGS] HOST [FLAGS] [COMMAND]`. The command runs on the other machine."""
    if len(call.words) == 1 and call.words[0].text in call.rule.alone:
        judge(call)
        return
    before = parse(call.rule, call.label, call.words)
    after = parse(call.rule, call.label, before.operands[1:]) if not before.trouble else before
    trouble = before if before.trouble else after
    if trouble.trouble:
        call.unknown(trouble.trouble, trouble.where)
    call.add_rule_fact(Tier.NETWORK)
    for flag, value in [*before.flags, *after.flags]:
        if flag.name == "-o":
            _setting(call, value)
        elif flag.tier is not None:
            call.add_fact(flag.tier, "lets other machines in, or this one out", value, flag=flag.name)
        if flag.role is not None and flag.name != "-o" and value is not None:
            apply(call, flag.role, value)
    flags = [*before.flags, *after.flags]
    call.port = port_of(call.rule, flags)
    for flag, value in flags:
        found = _SETTING.fullmatch(value.text) if flag.name == "-o" and value is not None and value.text else None
        if found and found[1].lower() == "port":
            call.port = found[2] if found[2].isascii() and found[2].isdigit() else "*"
    for host in before.operands[:1]:
        connect(call, host)


def _setting(call: Call, value: AbstractWord | None) -> None:
    found = _SETTING.fullmatch(value.text) if value is not None and value.text is not None else None
    if found is None or found[1].lower() not in _SETTINGS:
        named = f"the setting {found[1]}" if found else "a setting known only when it runs"
        call.findings.runs(f"{call.label} -o", f"{named} of `{call.label}` may run a program", call.rule.ref, call.span)


def _judged(call: Call) -> ParsedOptions | None:
    """Judge the command except for its operands, and return them for the caller; None if nothing is left."""
    rule = call.rule
    call.rule = replace(rule, operands=Operands(rest=Role.DATA))
    judge(call)
    shape = parse(rule, call.label, call.words)
    return None if call.quiet or shape.trouble else shape


def transfer(call: Call) -> None:
    """Judge `scp` and `rsync`: the last operand is written, the others are read; `HOST:PATH` is on another machine."""
    rule = call.rule
    shape = _judged(call)
    if shape is None:
        return
    given = {flag.name for flag, _ in shape.flags}
    looks = looks_only(rule, given) or len(shape.operands) < _FEWEST
    source = Role.MOVE if "--remove-source-files" in given and not looks else Role.READ
    target = shape.operands[-1] if shape.operands and not looks else None
    clears = any(name.startswith("--del") for name in given)
    for word in shape.operands:
        if word.may_split and not word.globbed:
            call.unknown(f"operands of `{call.label}` known only when it runs", word)
        role = Role.WRITE if word is target else source
        known = word.text or word.head
        remote = elsewhere(known) or "://" in known
        if remote or (word.text is None and not known.startswith(("/", "."))):
            connect(call, word)
        if not remote:
            call.access_path(role, word)
        if word is target and clears:
            _clear(call, word, remote=remote)


def _clear(call: Call, target: AbstractWord, *, remote: bool) -> None:
    if remote:
        call.add_fact(Tier.DANGEROUS, "deletes what is only on the other machine", target, flag="--delete")
        return
    for text in target.texts:
        call.access_path(Role.DELETE, below(text, target.span))


_ENDS = {"OPEN": Role.WRITE, "FILE": Role.WRITE, "GOPEN": Role.WRITE, "CREATE": Role.WRITE, "CREAT": Role.WRITE}
_QUIET_ENDS = frozenset(["-", "STDIO", "STDIN", "STDOUT", "STDERR", "PIPE"])
_AFAR = re.compile(r"(?:TCP|UDP|SCTP|IP|OPENSSL|SSL|DCCP|VSOCK)[0-9]?(?:-(?:CONNECT|SENDTO|DATAGRAM))?")


def socat(call: Call) -> None:
    """Judge `socat END END`: each end is `TYPE:WHAT,settings`. The peer at one end controls a program at
    the other end.
    """
    shape = _judged(call)
    if shape is None:
        return
    for word in shape.operands:
        kind, _, rest = (word.text or "").partition(":")
        what = rest.partition(",")[0]
        if word.text is None or "!!" in word.text:
            call.unknown("an end of `socat` that is known only when it runs", word)
        elif word.text.partition(",")[0].upper() in _QUIET_ENDS:
            continue
        elif not what or "/" in kind:
            call.access_path(Role.WRITE, literal(word.text.partition(",")[0], word.span))
        elif kind.upper() in _ENDS:
            call.access_path(Role.READ, literal(what, word.span))
            call.access_path(Role.WRITE, literal(what, word.span))
        elif _AFAR.fullmatch(kind.upper()):
            connect(call, literal(what, word.span))
        elif kind.upper().startswith("UNIX") or "LISTEN" in kind.upper():
            call.access_path(Role.READ, literal(what, word.span))
            call.add_fact(Tier.NETWORK, f"waits for or makes connections by {kind}", word)
        else:
            call.runs(f"may run a program by {kind}", word)
            call.add_fact(Tier.DANGEROUS, "gives what it runs to the other end", word)
