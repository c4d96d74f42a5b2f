"""Programs that compose a command before they run it: `watch`, `parallel`, `busybox`, `script`, `fd -x`."""

import re

from policy.handlers.wrappers import with_data
from policy.interpreter.command_call import Call, ParsedOptions
from policy.interpreter.judge_command import judge
from policy.interpreter.name_filters import paths_from_fd
from policy.interpreter.operand_roles import apply
from policy.model.abstract_word import ANYTHING, LIMIT, AbstractWord, literal, tokens
from policy.model.frozen import replace
from policy.model.tier import Tier
from policy.rules.rule import Role


def _judge_flags(call: Call) -> ParsedOptions | None:
    """Judge the flags and return the parsed options. If the words cannot be parsed, report this and return None."""
    shape = call.parse()
    incomplete = [flag for flag, value in shape.flags if flag.role is not None and not flag.optional and value is None]
    if shape.trouble or incomplete:
        call.unknown(shape.trouble or f"`{incomplete[0].name}` of `{call.label}` without its value", shape.where)
        return None
    call.add_rule_fact(Tier.READ)
    for flag, value in shape.flags:
        if flag.tier is not None:
            call.add_fact(flag.tier, "has effects besides the command", value, flag=flag.name)
        if flag.role is not None and value is not None:
            apply(call, flag.role, value)
    return shape


def watch(call: Call) -> None:
    """Judge `watch COMMAND`. The joined words are a script; with `-x` they are one command."""
    shape = _judge_flags(call)
    if shape is None or not shape.operands:
        return
    if {"-x", "--exec"} & {flag.name for flag, _ in shape.flags}:
        call.run(shape.operands)
        return
    texts = [word.text for word in shape.operands]
    if None in texts:
        call.unknown(f"`{call.label}` runs a script known only at run time", shape.operands[0])
    else:
        apply(call, Role.SCRIPT, literal(" ".join(filter(None, texts)), shape.operands[0].span))


def busybox(call: Call) -> None:
    """Judge `busybox APPLET ..`: the applet has the effects of the program with that name."""
    if not call.words or (len(call.words) == 1 and call.words[0].text in call.rule.alone):
        call.add_fact(Tier.READ, "lists its applets")
    elif call.words[0].text is None or call.words[0].text[:1] == "-":
        call.unknown(f"the applet that `{call.label}` runs is not known", call.words[0])
    else:
        call.add_rule_fact(Tier.READ)
        call.run(call.words)


def script(call: Call) -> None:
    """Judge `script -c COMMAND FILE` (Linux) and `script FILE COMMAND ..` (macOS). Without a command, a shell runs."""
    shape = _judge_flags(call)
    if shape is None:
        return
    apply(call, Role.WRITE, shape.operands[0] if shape.operands else literal("typescript"))
    if len(shape.operands) > 1:
        call.run(shape.operands[1:])
    elif not {"-c", "--command"} & {flag.name for flag, _ in shape.flags}:
        call.runs("runs commands from its standard input")


_REPLACEMENT = re.compile(r"\{(?://|/\.|[./#%]|[0-9]+)?\}")
_SAFE_WORD = re.compile(r"(?:[A-Za-z0-9_./=+:@%^,-]|\{(?://|/\.|[./#%]|[0-9]+)?\})+")
_SOURCE_MARKS = frozenset([":::", ":::+", "::::", "::::+"])


def parallel(call: Call) -> None:
    """Judge GNU parallel, which inserts quoted data into a command line and runs it in a shell."""
    shape = _judge_flags(call)
    if shape is None:
        return
    words = list(shape.operands)
    marks = [index for index, word in enumerate(words) if word.text in _SOURCE_MARKS]
    data, end = replace(ANYTHING, hints=tokens(call.frame.stdin_texts)), marks[0] if marks else len(words)
    if marks:
        values = words[end + 1 :]
        if len(marks) == 1 and words[end].text == ":::" and len(values) <= LIMIT and all(v.text for v in values):
            data = AbstractWord(texts=tuple(dict.fromkeys(str(value.text) for value in values)))
        elif words[end].text in ("::::", "::::+"):
            for word in values:
                call.access_path(Role.READ, word)
    texts = [word.text for word in words[:end]]
    line = " ".join(filter(None, texts))
    if not texts or None in texts or "--" in texts:
        call.unknown(f"`{call.label}` with a command known only at run time", words[0] if words else None)
    elif all(_SAFE_WORD.fullmatch(text or "") for text in texts):
        command = [literal(text) for text in line.split(" ")]
        for marker in dict.fromkeys(_REPLACEMENT.findall(line)):
            command = with_data(command, marker, data if marker == "{}" else replace(ANYTHING, hints=data.hints))
        call.run(command if _REPLACEMENT.search(line) else [*command, data])
    elif re.search(r"['\"\\$`{}]", _REPLACEMENT.sub("", line)):
        call.unknown(f"`{call.label}` with data inside quotes or an expansion", words[0])
    else:
        line = line if _REPLACEMENT.search(line) else f"{line} {{}}"
        apply(call, Role.SCRIPT, literal(_REPLACEMENT.sub('"$1"', line), words[0].span))


_EXEC_FLAGS = frozenset(["-x", "--exec", "-X", "--exec-batch"])


def fd(call: Call) -> None:
    """Judge `fd`: the words after `-x` or `-X` are a command that gets the paths found."""
    at = next((index for index, word in enumerate(call.words) if word.text in _EXEC_FLAGS), None)
    if at is None:
        judge(call)
        return
    command, several = call.words[at + 1 :], call.words[at].text in ("-X", "--exec-batch")
    call.words = call.words[:at]
    shape = call.parse()
    incomplete = any(flag.role is not None and not flag.optional and value is None for flag, value in shape.flags)
    judge(call)
    if incomplete or "--" in [word.text for word in call.words]:
        call.unknown("`-x` may be the value of the flag before it")
        return
    if not command or any(word.text is None or word.text == ";" for word in command):
        call.unknown(f"`{call.label}` runs a command known only at run time")
        return
    path = replace(paths_from_fd(call, shape), may_split=several)
    line = " ".join(str(word.text) for word in command)
    markers = dict.fromkeys(re.findall(r"\{(?://|/\.|[./])?\}", line))
    for marker in markers:
        command = with_data(command, marker, path if marker == "{}" else ANYTHING, several=several)
    call.run(command if markers else [*command, path])
