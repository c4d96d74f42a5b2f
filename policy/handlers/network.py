"""Handlers of programs that connect to other machines: `ssh`, `scp`, `rsync`, `socat`, and code forges."""

import re

from policy.interpreter.command_call import Call, ParsedOptions, parse_options
from policy.interpreter.judge_command import judge, looks_only, port_of
from policy.interpreter.operand_roles import apply, connect
from policy.model.abstract_word import below, literal
from policy.model.assessment import Consequence
from policy.model.frozen import replace
from policy.model.host_words import endpoint, is_remote_path, listens_on_loopback
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
_FEWEST_OPERANDS = 2  # with fewer, the program lists files
_SETTING = re.compile(r"([A-Za-z0-9]+)\s*[=\s]\s*(.*)", re.DOTALL)


# Programs of this handler that install packages of PyPI, npm or RubyGems.
_INSTALLERS = frozenset(["bun", "bundle", "bundler", "easy_install", "gem", "pipenv", "rye"])


def network_code(call: Call) -> None:
    """Judge a command that runs code which it downloads, such as install scripts and build back ends."""
    judge(call)
    if call.label.partition(" ")[0] in _INSTALLERS:
        from policy.handlers.packages import judge_packages  # only for a command that may install

        judge_packages(call)
    if call.quiet or call.rule.tier is not Tier.NETWORK:
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


def _judge_except_operands(call: Call) -> ParsedOptions | None:
    """Judge the flags of the command. Return the parsed options with the operands, which the caller must judge; None if
    there is nothing more to judge.
    """
    rule = call.rule
    call.rule = replace(rule, operands=Operands(rest=Role.DATA))
    judge(call)
    shape = parse_options(rule, call.label, call.words)
    return None if call.quiet or shape.trouble else shape


def transfer(call: Call) -> None:
    """Judge `scp` and `rsync`: the last operand is written, the others are read; `HOST:PATH` is on another machine."""
    rule = call.rule
    shape = _judge_except_operands(call)
    if shape is None:
        return
    flags = {flag.name for flag, _ in shape.flags}
    lists_only = looks_only(rule, flags) or len(shape.operands) < _FEWEST_OPERANDS
    source = Role.MOVE if "--remove-source-files" in flags and not lists_only else Role.READ
    target = shape.operands[-1] if shape.operands and not lists_only else None
    deletes = any(name.startswith("--del") for name in flags)
    for word in shape.operands:
        if word.may_split and not word.globbed:
            call.unknown(f"operands of `{call.label}` known only at run time", word)
        role = Role.WRITE if word is target else source
        known = word.text or word.head
        remote = is_remote_path(known) or "://" in known
        if remote or (word.text is None and not known.startswith(("/", "."))):
            connect(call, word)
        if not remote:
            call.access_path(role, word)
        if word is target and deletes and remote:
            call.add_fact(Tier.DANGEROUS, "deletes files that exist only on the other machine", word, flag="--delete")
        elif word is target and deletes:
            for text in word.texts:
                call.access_path(Role.DELETE, below(text, word.span))


def netcat(call: Call) -> None:
    """Judge `nc`. With `-l` it waits for connections, and its only operand is a port."""
    shape = call.parse()
    flags = {flag.name for flag, _ in shape.flags}
    if not shape.trouble and flags & {"-l", "--listen"} and not flags & {"-x", "--proxy", "-U", "--unixsock"}:
        *address, _port = [word.text for word in shape.operands] or [None]
        given = [value.text for flag, value in shape.flags if flag.name in ("-s", "--source") and value is not None]
        if all(text is not None and listens_on_loopback(text) for text in (*address, *given)):
            call.local = True
            call.rule = replace(call.rule, operands=Operands(rest=Role.DATA))
    judge(call)
    if call.local and not call.quiet and flags & {"-l", "--listen"}:
        call.uses_loopback()


_FILE_TYPES = {"OPEN": Role.WRITE, "FILE": Role.WRITE, "GOPEN": Role.WRITE, "CREATE": Role.WRITE, "CREAT": Role.WRITE}
_STANDARD_STREAMS = frozenset(["-", "STDIO", "STDIN", "STDOUT", "STDERR", "PIPE"])
_NETWORK_TYPES = re.compile(r"(?:TCP|UDP|SCTP|IP|OPENSSL|SSL|DCCP|VSOCK)[0-9]?(?:-(?:CONNECT|SENDTO|DATAGRAM))?")


def socat(call: Call) -> None:
    """Judge `socat ADDRESS ADDRESS`; each address is `TYPE:TARGET,OPTIONS`. The peer at one address controls a program
    at the other.
    """
    shape = _judge_except_operands(call)
    if shape is None:
        return
    for word in shape.operands:
        kind, _, rest = (word.text or "").partition(":")
        target = rest.partition(",")[0]
        if word.text is None or "!!" in word.text:
            call.unknown("an address of `socat` known only at run time", word)
        elif word.text.partition(",")[0].upper() in _STANDARD_STREAMS:
            continue
        elif not target or "/" in kind:
            call.access_path(Role.WRITE, literal(word.text.partition(",")[0], word.span))
        elif kind.upper() in _FILE_TYPES:
            call.access_path(Role.READ, literal(target, word.span))
            call.access_path(Role.WRITE, literal(target, word.span))
        elif _NETWORK_TYPES.fullmatch(kind.upper()):
            connect(call, literal(target, word.span))
        elif kind.upper().startswith("UNIX") or "LISTEN" in kind.upper():
            call.access_path(Role.READ, literal(target, word.span))
            call.add_fact(Tier.NETWORK, f"accepts or opens connections ({kind})", word)
        else:
            call.runs(f"may run a program ({kind})", word)
            call.add_fact(Tier.DANGEROUS, "lets the other address control a program on this machine", word)


_HOSTS = {"gh": "api.github.com", "hub": "api.github.com", "glab": "gitlab.com"}
_FIELD_FLAGS = frozenset(["-f", "-F", "--field", "--raw-field", "--input", "--form"])
_REPOSITORY_PARTS = 3  # HOST/OWNER/REPOSITORY


def forge(call: Call) -> None:
    """Judge `gh` and `glab`: report the host of the forge for every command that contacts it."""
    judge(call)
    if call.quiet or call.rule.tier is Tier.READ:
        return
    if call.label.endswith(" api"):
        _judge_api(call)
    if call.rule.tier is not Tier.NETWORK or call.hosts:
        return
    call.hosts += 1
    value = call.flags.get("--hostname") or call.flags.get("-R") or call.flags.get("--repo")
    host: str | None = _HOSTS.get(call.label.partition(" ")[0], "")
    if value is not None:
        parts = (value.text or "").split("://")[-1].split("/")
        host = host if value.text is not None else ""
        if value.text is not None and ("--hostname" in call.flags or len(parts) >= _REPOSITORY_PARTS):
            host = endpoint(parts[0])
    call.connects(host or "", value)


def _judge_api(call: Call) -> None:
    """Judge a call of the API. A method other than GET and HEAD, or a field to send, changes data."""
    values = [value for name, value in call.flags.items() if name in ("-X", "--method")]
    methods = {(value.text or "?").upper() if value is not None else "?" for value in values}
    if methods - {"GET", "HEAD"} or (not methods and _FIELD_FLAGS & set(call.flags)):
        call.add_fact(Tier.DANGEROUS, "changes data on the code forge with your login")
    for word in call.words:
        for text in word.texts:
            if "://" in text and text[:1] != "-":
                connect(call, literal(text, word.span))
