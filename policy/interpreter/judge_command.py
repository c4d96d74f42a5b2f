"""Judgement of a simple command by its rule: flags letter by letter, operands by position."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase

from policy.interpreter.command_call import Call, ParsedOptions, parse_options
from policy.interpreter.operand_roles import LOCAL_URL, apply, enter, judge_bounded, scan
from policy.interpreter.shell_state import MOST_OUTPUT, State
from policy.model.abstract_word import AbstractWord, literal, tokens
from policy.model.assessment import CONSEQUENCE_TEXTS, FLAG_CONSEQUENCES, Consequence, EffectKind, Scope
from policy.model.facts import SERVICE_CLIENTS, Kind
from policy.model.frozen import replace
from policy.model.glob import late
from policy.model.secret_paths import inside
from policy.model.tier import Tier
from policy.rules.rule import CommandRule, Flag, Operands, Role

_VERBS = {
    Tier.WRITE: ("changes files", Consequence.CHANGES_FILES),
    Tier.EXECUTE: ("runs another program", Consequence.RUNS_CODE),
    Tier.NETWORK: ("connects to a network", None),
    Tier.WRITE_OUTSIDE: ("changes files outside the workspace", None),
    Tier.READ_OUTSIDE: ("reads files outside the workspace", None),
    Tier.DANGEROUS: ("cannot be undone or goes around protections", Consequence.IRREVERSIBLE),
    Tier.UNKNOWN: ("cannot be judged", None),
}


_RUNNING = frozenset(["packages", "network-code", "npx"])  # handlers of programs that run the code that they fetched


_SEARCHES = late(r"(?:e|f|z|ze|zf|xz|xze|xzf|bz|bze|bzf|pdf)?grep|rg|ag|ack")
_REVISIONS_ON_INPUT = frozenset(["--batch", "--stdin"])  # of Git: flags by which it reads revisions from its input
# Flags whose value is a file that lists paths; `-f` is one of `file` alone.
_LISTS = frozenset(["-T", "-a", "--arg-file", "-i", "--input-file", "file -f"])


def judge(call: Call) -> None:
    """Judge a command by its rule alone."""
    rule = call.rule
    if rule.alone and len(call.words) == 1 and call.words[0].text in rule.alone:
        if (obeyed := _obeyed_file(call)) is not None:
            call.runs(f"uses {obeyed}, which may run a program of the workspace", consequence=None)
            return
        call.add_fact(Tier.READ, "only prints a text", flag=call.words[0].text or "")
        call.quiet = True
        return
    shape = call.parse()
    if shape.operands and rule.subs and not shape.trouble:
        shape.trouble, shape.where = f"`{call.label}` with a subcommand that is not known", shape.operands[0]
    roles = None if shape.trouble else _described(call, shape)
    if roles is None:
        _not_described(call, shape)
    else:
        _judge_words(call, shape, roles)


def _described(call: Call, shape: ParsedOptions) -> tuple[Role, ...] | None:
    """Return the roles of the operands, or None after stating in `shape` why the rule does not describe the words."""
    rule, operands = call.rule, shape.operands
    given = {flag.name for flag, _ in shape.flags}
    call.flags = {flag.name: value for flag, value in shape.flags}
    call.port = port_of(rule, shape.flags) or call.port
    if looks_only(rule, given) or (given & rule.lists and not given & rule.unless):
        call.rule = rule = replace(rule, tier=Tier.READ, changes="", operands=_read_only_operands(rule.operands))
    elif given & rule.checks:
        call.rule = rule = replace(rule, operands=_read_only_operands(rule.operands))
    if rule.listing and operands and not given & rule.listing:
        shape.trouble = f"`{call.label}` with operands"
        return None
    roles = _roles(rule, given, len(operands))
    if roles is None:
        shape.trouble, shape.where = f"`{call.label}` takes fewer operands", operands[-1]
    elif _shifts(rule, given, operands, roles) and not (rule.anywhere and rule.tier is Tier.READ):
        # The position of a word is only certain if the words before it are single words.
        shape.trouble = f"a word known only at run time may shift the operands of `{call.label}`"
        shape.bounded = rule.bounded
        return None
    return roles


def _judge_words(call: Call, shape: ParsedOptions, roles: tuple[Role, ...]) -> None:
    """Judge the flags and operands of a command that its rule describes."""
    rule, operands, given = call.rule, shape.operands, call.flags.keys()
    for flag, value in shape.flags:
        if flag.role is Role.FOLDER and value is not None:
            call.state = enter(call, value)
    for role, word in zip(roles, operands, strict=True):
        if role is Role.PORT:
            call.port = _port(word)
    if rule.loopback is not None and rule.tier in (Tier.NETWORK, Tier.EXECUTE) and not call.local:
        from policy.interpreter.loopback import bare_loopback_hosts, stays_inside  # only for programs that may use it

        call.local = stays_inside(call, shape, roles) if not rule.open else bool(bare_loopback_hosts(call))
        if call.local and rule.open:
            call.uses_loopback("localhost")
    _add_rule_effects(call)
    if _SEARCHES.fullmatch(call.label):
        from policy.interpreter.name_filters import report_secret_search  # only where there is a search

        report_secret_search(call, shape)
    edits = any(flag.edits for flag, _ in shape.flags)
    for flag, value in shape.flags:
        _apply_flag(call, flag, value)
    for index, (role, word) in enumerate(zip(roles, operands, strict=True)):
        if role is Role.RUN:
            call.run(operands[index:])
            break
        if role is Role.ARGS:
            call.access_path(Role.READ, word)
            scan(call, operands[index + 1 :], Tier.EXECUTE)
            break
        if role is Role.AWAY:
            break  # a command for another machine is not judged here; the tier of the rule covers it
        apply(call, role, word)
        if edits and role is Role.READ:
            call.access_path(Role.WRITE, word)
    if not operands and (rule.here_always or given & rule.here):
        role = rule.operands.rest or Role.READ
        call.access_path(role, literal("."))
        if edits and role is Role.READ:
            call.access_path(Role.WRITE, literal("."))


def descend(call: Call) -> Call:
    """Follow subcommand words: `docker image ls`. Flags before the subcommand are the program's own."""
    rule = call.rule
    if not rule.subs or (len(call.words) == 1 and call.words[0].text in rule.alone):
        return call
    shape = parse_options(rule, call.label, call.words)
    found = None if shape.trouble or not shape.operands else rule.sub(shape.operands[0].text)
    if found is None:
        return call
    for flag, value in shape.flags:
        if flag.role is Role.FOLDER and value is not None:
            call.state = enter(call, value)
        else:
            _apply_flag(call, flag, value)
    name = shape.operands[0].text or ""
    label = f"{call.label} {name}"
    sub = Call(call.interpreter, found, label, shape.operands[1:], call.state, call.span, call.frame, call.hosts)
    sub.offline = call.offline or any(flag.name in rule.offline for flag, _ in shape.flags)
    sub.record_name()
    return descend(sub)


def _roles(rule: CommandRule, given: AbstractSet[str], count: int) -> tuple[Role, ...] | None:
    operands = rule.operands
    head, tail = operands.head, operands.tail
    if head and given & rule.instead:
        head = head[1:]
    if tail and given & rule.target:
        tail = tail[:-1]
    if operands.runs:
        return operands.inner(count)
    if head is operands.head and tail is operands.tail:
        return operands.roles(count)
    return Operands(head, operands.rest, tail).roles(count)


def looks_only(rule: CommandRule, given: AbstractSet[str]) -> bool:
    """Return True if the flags `given` make a command read what it would otherwise change."""
    return bool(given) and any(given >= {*flags.split("+")} for flags in rule.looks)


def _read_only_operands(operands: Operands) -> Operands:
    """Return the operands of a command that reads what it would otherwise change."""
    head, tail = (tuple(map(_read_only_role, roles)) for roles in (operands.head, operands.tail))
    return Operands(head, operands.rest and _read_only_role(operands.rest), tail)


def _read_only_role(role: Role) -> Role:
    return Role.READ if role in (Role.WRITE, Role.OUT, Role.MOVE, Role.DELETE) else role


def _shifts(rule: CommandRule, given: AbstractSet[str], operands: list[AbstractWord], roles: tuple[Role, ...]) -> bool:
    """Return True if a word that becomes several words would change its role or those of later words."""
    for index, word in enumerate(operands):
        if not word.may_split:
            continue
        if not word.globbed and len(set(roles)) > 1:
            return True  # it may also become no word
        if rule.operands.runs:
            continue
        longer = _roles(rule, given, len(operands) + 1)
        if longer != (*roles[: index + 1], *roles[index:]):
            return True
    return False


def port_of(rule: CommandRule, flags: Iterable[tuple[Flag, AbstractWord | None]]) -> str:
    """Return the port to which a bare host name is connected: that of the last flag, or that of the rule."""
    ports = [value for flag, value in flags if flag.role is Role.PORT and value is not None]
    return _port(ports[-1]) if ports else rule.port


def _port(word: AbstractWord) -> str:
    return word.text if word.text is not None and word.text.isascii() and word.text.isdigit() else "*"


def _add_rule_effects(call: Call) -> None:
    rule = call.rule
    if call.local:
        call.hosts += 1  # no default host
    if not call.local or rule.tier is Tier.EXECUTE:
        call.add_rule_fact(rule.tier)
    call.add_writes(rule.tier)
    if rule.tier is Tier.NETWORK and rule.changes == "." and rule.grammar not in _RUNNING:
        # An approval of the host is no approval of changes to files.
        text = f"writes files in the workspace, as `{call.label}` does"
        call.findings.add_reason(Tier.WRITE, text, rule.ref, call.span, consequence=Consequence.WRITES_FILES)
    if rule.tier is Tier.EXECUTE:
        call.findings.add_effect(EffectKind.RUNS, call.label)
    elif rule.tier is Tier.DANGEROUS:
        call.findings.add_effect(EffectKind.PRIVILEGE, call.label)
    elif rule.tier is Tier.UNKNOWN:
        call.findings.add_effect(EffectKind.UNKNOWN, f"`{call.label}` {rule.why}")


def _apply_flag(call: Call, flag: Flag, value: AbstractWord | None) -> None:
    name = flag.name if flag.name != "-#" else "-N"
    if flag.tier is not None:
        if flag.tier is Tier.EXECUTE:
            call.findings.add_effect(EffectKind.RUNS, f"{call.label} {name}")
        elif flag.tier is Tier.NETWORK and flag.role in (None, Role.READ):
            call.findings.add_effect(EffectKind.CONNECTS, "")
        predicate, consequence = _VERBS.get(flag.tier, ("does more than read", None))
        loss = FLAG_CONSEQUENCES.get(f"{call.label} {name}")
        if loss is not None:
            predicate, consequence = CONSEQUENCE_TEXTS[loss], loss
        elif name == "@":
            predicate, consequence = "takes more arguments from a file", None
        call.add_fact(flag.tier, predicate, value, flag=name, consequence=consequence)
        if flag.role is None:
            call.add_writes(flag.tier)
    if flag.edits:
        call.add_fact(Tier.WRITE, "changes files in place", value, flag=name)
    if flag.role is not None and flag.role is not Role.FOLDER and value is not None:
        apply(call, flag.role, value)
        if flag.role is Role.READ and ("files" in name or not _LISTS.isdisjoint((name, f"{call.label} {name}"))):
            # A list of paths: known if its text is known (`<(echo x)`, or the standard input as `-`).
            listed = value.content or (call.frame.stdin_texts if value.text == "-" else ())
            call.access_path(Role.READ, AbstractWord(may_split=True, hints=tokens(listed)))
        elif flag.role is Role.DATA and len(name) > 2:
            for text in value.texts:
                if match := LOCAL_URL.match(text):
                    call.access_path(Role.READ, literal(text[match.end() :], value.span))
    if name in _REVISIONS_ON_INPUT and call.rule.operands.rest is Role.REVISION:
        apply(call, Role.REVISION, AbstractWord(may_split=True, hints=tokens(call.frame.stdin_texts)))


def _obeyed_file(call: Call) -> str | None:
    """Return the project file in the current folder or above that the program obeys at its start, or None."""
    if not call.rule.heeds:
        return None
    # A file that the script itself creates there is not seen, so no change of the action counts as a plain edit.
    call.findings.beyond_plain_edits = True
    if call.state.cwds is None:
        return "the settings of a folder known only at run time"
    facts = call.facts
    for cwd in call.state.cwds:
        place = call.findings.classifier.place(cwd, "/")
        if place.scope not in (Scope.WORKSPACE, Scope.SYSTEM):
            return f"the settings in {place.shown}"
        folder = place.path
        while place.scope is Scope.WORKSPACE and inside(folder, facts.workspace):
            for name in call.rule.heeds:
                if facts.look(f"{folder}/{name}").kind is not Kind.MISSING:
                    return f"`{name}`"
            folder = folder.rpartition("/")[0]
    return None


def _not_described(call: Call, shape: ParsedOptions) -> None:
    """Judge words that the rule does not describe: by the rule's own tier for that, or as `unknown`."""
    rule = call.rule
    tier = rule.tier if rule.open else rule.otherwise
    if tier is None and shape.bounded:
        judge_bounded(call, shape.trouble, shape.where)
        if rule.tier > Tier.EXECUTE:  # what every use of the command needs stays a question: its host, a path outside
            call.add_rule_fact(rule.tier)
        if shape.unlisted:
            from policy.interpreter.unlisted_flags import judge_possible_flags  # only where a flag is not listed

            judge_possible_flags(call)
        return
    if tier is None:
        call.unknown_words(shape.trouble or f"`{call.label}` is used in a way that is not known", shape.where)
        return
    if rule.open:
        if rule.loopback is not None and rule.tier is Tier.NETWORK:
            from policy.interpreter.loopback import bare_loopback_hosts  # only for programs that may use the loopback

            hosts = bare_loopback_hosts(call)
            call.local = hosts is not None
            for host in hosts or ():
                call.uses_loopback(host)
        _add_rule_effects(call)
    else:
        call.add_undescribed_use(tier, shape.where)
        if rule.tier > tier:  # the effects of every use of the command
            call.add_rule_fact(rule.tier)
        call.add_writes(tier)
        if tier is Tier.EXECUTE:
            call.findings.add_effect(EffectKind.RUNS, call.label)
    scan(call, call.words, tier)


def in_family(call: Call) -> bool:
    """Return True if the command certainly belongs to the family of its rule.

    All of its words are certain, none of them is among `family_except`, and it does no more than read from a network. A
    short flag may be in a cluster, and a long flag abbreviated. Case counts for flags only.
    """
    step = call.findings.step
    words = [word.text for word in step.words[1:]]
    if (
        call.quiet
        or not step.reasons
        or any(each.tier not in (Tier.READ, Tier.NETWORK) for each in step.reasons.values())
    ):
        return False
    excepted = call.rule.family_except
    return not any(word is None or _leads_beyond(word, excepted) for word in (*words, *call.flags))


def service_client(call: Call) -> str:
    """Return the client of a service by which `Facts.registries` returns the host that the user's settings name; empty
    for another command, and for one that may contact another host.
    """
    name, _, rest = call.label.partition(" ")
    if name not in SERVICE_CLIENTS or not in_family(call):
        return ""
    if name != "aws":
        return name
    words = [word.text or "" for word in call.findings.step.words[1:]]
    regions = []
    for word, after in zip(words, (*words[1:], ""), strict=True):
        flag, given, value = word.partition("=")
        if flag == "--region":
            regions.append(value if given else after)
        elif len(flag) > len("--") and "--region".startswith(flag):
            return ""  # an abbreviated flag
    return " ".join([name, rest.partition(" ")[0], *regions]) if len(regions) <= 1 else ""


def _leads_beyond(word: str, excepted: AbstractSet[str]) -> bool:
    if word[:1] != "-":
        return any(fnmatchcase(word.lower(), pattern) for pattern in excepted)
    name = word.partition("=")[0]
    letters = "" if name.startswith("--") else name[1:]
    return any(
        fnmatchcase(name, each)
        or (len(name) > len("--") and each.startswith(name))
        or (each[:1] == "-" and each[1:] in letters and len(each) == len("-x"))
        or ("*" in each and fnmatchcase(word.lower(), each))
        for each in excepted
    )


# Commands that print their input.
_PASSING = frozenset(["cat", "head", "tail", "sort", "uniq", "tee", "grep", "rg", "shuf", "xargs", "read"])
_CUTTING = frozenset(["cut", "tr", "awk"])
# Commands that print the names among their operands.
_NAMING = frozenset(
    ["ls", "stat", "du", "realpath", "readlink", "basename", "dirname", "git ls-files", "git check-ignore"]
)
_FINDING = frozenset(["grep", "egrep", "fgrep"])
_PRINTING = frozenset(["echo", "printf"])
_PACKING = frozenset(["tar", "zip", "cpio", "pax"])


def note_output(call: Call, rule: CommandRule, begin: State) -> None:
    """Add the texts that a command is known to print to the output of its frame."""
    frame = call.frame
    if call.label == "cat" and not frame.stdin_shared and all(word.text == "-" for word in call.words[:1]):
        call.output = frame.stdin_script if len(call.words) < 2 else None
    texts = frame.stdin_texts if rule.name in _PASSING else call.says
    if rule.name in _PASSING:
        texts += tuple(text for word in call.words for text in word.content)
    if rule.name in _PRINTING:
        texts += _likely_texts([word for word in call.words if word.pattern], call, begin)
    if call.label in _FINDING:
        from policy.interpreter.name_filters import names_from_grep  # only where there is a search

        texts += names_from_grep(parse_options(rule, call.label, call.words))
    elif rule.name in _CUTTING and frame.stdin_texts:
        from policy.interpreter.name_filters import split_output  # only where its input is known

        texts = split_output(rule.name, call.words, frame.stdin_texts)
    if rule.name in _NAMING:
        texts = tuple(text for text in _likely_texts(call.words, call, begin) if text[:1] != "-")
    if rule.name in _PACKING:  # the names of files may be in their input
        names = tokens([*frame.stdin_texts, *(text for word in call.words for text in word.content)])
        call.findings.suspect(Role.READ, AbstractWord(hints=names), begin.cwds, rule.ref, call.span)
    if texts:
        known = frame.output
        known += [text for text in texts if text not in known][: MOST_OUTPUT - len(known)]


def _likely_texts(words: list[AbstractWord], call: Call, begin: State) -> tuple[str, ...]:
    if not words:
        return ()
    from policy.interpreter.uncertain_paths import likely_texts  # only where the words are printed

    return tuple(text for word in words for text in likely_texts(call.findings.classifier, word, begin.cwds))
