"""Programs that reach other machines: package managers, `ssh`, copiers between machines, and code forges."""

import re
from dataclasses import replace

from policy.interpreter.command_call import Call, ParsedOptions, parse_options
from policy.interpreter.judge_command import judge, looks_only, port_of
from policy.interpreter.operand_roles import apply, connect
from policy.model.abstract_word import below, literal
from policy.model.assessment import Consequence
from policy.model.host_words import elsewhere, endpoint
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
    call.runs("runs code that it downloads", consequence=Consequence.RUNS_DOWNLOADED)


def ssh(call: Call) -> None:
    """Judge `ssh [FLAGS] HOST [FLAGS] [COMMAND]`. The command runs on the other machine."""
    if len(call.words) == 1 and call.words[0].text in call.rule.alone:
        judge(call)
        return
    before = call.parse()
    after = parse_options(call.rule, call.label, before.operands[1:]) if not before.trouble else before
    trouble = before if before.trouble else after
    if trouble.trouble:
        call.unknown(trouble.trouble, trouble.where)
    call.add_rule_fact(Tier.NETWORK)
    flags = [*before.flags, *after.flags]
    port = port_of(call.rule, flags)
    for flag, value in flags:
        if flag.name == "-o":
            match = _SETTING.fullmatch(value.text) if value is not None and value.text is not None else None
            if match is None or match[1].lower() not in _SETTINGS:
                setting = f"the setting {match[1]}" if match else "a setting known only at run time"
                text = f"{setting} of `{call.label}` may run a program"
                call.findings.runs(f"{call.label} -o", text, call.rule.ref, call.span)
            elif match[1].lower() == "port":
                port = match[2] if match[2].isascii() and match[2].isdigit() else "*"
            continue
        if flag.tier is not None:
            call.add_fact(flag.tier, "forwards connections to or from this machine", value, flag=flag.name)
        if flag.role is not None and value is not None:
            apply(call, flag.role, value)
    call.port = port
    for host in before.operands[:1]:
        connect(call, host)


def _judged(call: Call) -> ParsedOptions | None:
    """Judge the command except for its operands, and return them for the caller; None if nothing is left."""
    rule = call.rule
    call.rule = replace(rule, operands=Operands(rest=Role.DATA))
    judge(call)
    shape = parse_options(rule, call.label, call.words)
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
            call.unknown(f"operands of `{call.label}` known only at run time", word)
        role = Role.WRITE if word is target else source
        known = word.text or word.head
        remote = elsewhere(known) or "://" in known
        if remote or (word.text is None and not known.startswith(("/", "."))):
            connect(call, word)
        if not remote:
            call.access_path(role, word)
        if word is target and clears and remote:
            call.add_fact(Tier.DANGEROUS, "deletes files that exist only on the other machine", word, flag="--delete")
        elif word is target and clears:
            for text in word.texts:
                call.access_path(Role.DELETE, below(text, word.span))


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
            call.unknown("an address of `socat` known only at run time", word)
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
            call.add_fact(Tier.NETWORK, f"accepts or opens connections ({kind})", word)
        else:
            call.runs(f"may run a program ({kind})", word)
            call.add_fact(Tier.DANGEROUS, "lets the other address control a program on this machine", word)


_HOSTS = {"gh": "api.github.com", "hub": "api.github.com", "glab": "gitlab.com"}
_FIELDS = frozenset(["-f", "-F", "--field", "--raw-field", "--input", "--form"])
_SHORTEST = 3  # HOST/OWNER/REPOSITORY


def forge(call: Call) -> None:
    """Judge `gh` and `glab`: report the host of the forge for every command that contacts it."""
    judge(call)
    if call.quiet or call.rule.tier is Tier.READ:
        return
    if call.label.endswith(" api"):
        _api(call)
    if call.rule.tier is not Tier.NETWORK or call.hosts:
        return
    call.hosts += 1
    value = call.flags.get("--hostname") or call.flags.get("-R") or call.flags.get("--repo")
    host: str | None = _HOSTS.get(call.label.partition(" ")[0], "")
    if value is not None:
        parts = (value.text or "").split("://")[-1].split("/")
        host = host if value.text is not None else ""
        if value.text is not None and ("--hostname" in call.flags or len(parts) >= _SHORTEST):
            host = endpoint(parts[0])
    call.connects(host or "", value)


def _api(call: Call) -> None:
    """Judge a call of the API: a method, or a field to send, makes it more than a read."""
    given = [value for name, value in call.flags.items() if name in ("-X", "--method")]
    methods = {(value.text or "?").upper() if value is not None else "?" for value in given}
    if methods - {"GET", "HEAD"} or (not methods and _FIELDS & set(call.flags)):
        call.add_fact(Tier.DANGEROUS, "changes data on the code forge with your login")
    for word in call.words:
        for text in word.texts:
            if "://" in text and text[:1] != "-":
                connect(call, literal(text, word.span))
