"""Builtins of the shell that change the folder or variables, or that read shell text."""

import re
from dataclasses import replace

from policy.handlers.echo_printf import echoed, printed
from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge
from policy.interpreter.operand_roles import enter
from policy.interpreter.options import ParsedOptions, parse
from policy.interpreter.shell_state import UNDEFINED, ExitStates, State
from policy.interpreter.traps import Trap
from policy.model.abstract_word import ANYTHING, NUMBER, AbstractWord, join, literal, tokens
from policy.model.consequence import Consequence
from policy.model.span import SourceSpan
from policy.model.tier import Tier
from policy.rules.rule import Role

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)
_SET_LETTERS = re.compile(r"[-+][euxfvC]+|[-+][eux]*o")
_SET_NAMES = frozenset(["pipefail", "errexit", "nounset", "noglob", "noclobber", "xtrace", "verbose"])


def cd(call: Call) -> None:
    """Judge `cd`: determine the folder of the shell after success and after failure."""
    shape = parse(call.rule, call.label, call.words)
    if shape.trouble or len(shape.operands) > 1:
        call.unknown(shape.trouble or "`cd` with more than one folder", shape.where)
        call.after = ExitStates.same(call.state.moved(None))
        return
    call.add_rule_fact(Tier.READ)
    physical = any(flag.name == "-P" for flag, _ in shape.flags)
    call.interpreter.traps.wandered = True
    call.after = _go(call, shape.operands[0] if shape.operands else None, physical=physical)


def _go(call: Call, word: AbstractWord | None, *, physical: bool = False) -> ExitStates:
    state = call.state
    if word is None:
        word = literal(call.facts.home)
    if word.text == "-":
        return ExitStates(state.moved(state.previous), state)
    call.access_path(Role.NAMES, word)
    if physical:
        return ExitStates(enter(call, word), state)
    if not word.texts or (state.cwds is None and not all(text.startswith("/") for text in word.texts)):
        return ExitStates(state.moved(None), state)
    classifier = call.findings.classifier
    logical = [classifier.logical(text, cwd) for text in word.texts for cwd in state.cwds or ("/",)]
    moved = state.moved(tuple(dict.fromkeys(logical)))
    # A folder of the workspace that is there, in a script that has deleted nothing: `cd` into it works.
    sure = not call.findings.deleted and len(logical) == 1 and classifier.surely_folder(logical[0])
    return ExitStates(moved, moved if sure else state)


def push(call: Call) -> None:
    """Judge `pushd FOLDER`."""
    words = [word for word in call.words if word.text != "--"]
    if len(words) != 1 or words[0].text is None or words[0].text[:1] in ("-", "+"):
        call.unknown(f"`{call.label}` other than with one folder")
        call.after = ExitStates.same(replace(call.state.moved(None), stack=None))
        return
    call.add_rule_fact(Tier.READ)
    call.interpreter.traps.wandered = True
    ok, fail = _go(call, words[0])
    stack = None if call.state.stack is None else (*call.state.stack, call.state.cwds)
    call.after = ExitStates(replace(ok, stack=stack), fail if fail is call.state else replace(ok, stack=stack))


def popd(call: Call) -> None:
    """Judge `popd` without arguments."""
    call.interpreter.traps.wandered = True
    if call.words:
        call.unknown(f"`{call.label}` with arguments")
    call.add_rule_fact(Tier.READ)
    stack = call.state.stack
    if stack is None:
        call.after = ExitStates(call.state.moved(None), call.state)
    elif stack:
        call.after = ExitStates(replace(call.state.moved(stack[-1]), stack=stack[:-1]), call.state)


def assign(call: Call) -> None:
    """Judge `export`, `declare`, `typeset`, `local` and `readonly`: names with or without a value."""
    variables, state = call.interpreter.variables, call.state
    if call.label in ("declare", "typeset") and _shows_functions(call.words):
        call.add_fact(Tier.READ, "shows functions", flag=call.words[0].text or "")
        return
    exports, fixes, names = call.label == "export", call.label == "readonly", set()
    own = state.locals is not None and call.label in ("local", "declare", "typeset")
    integers = False
    for word in call.words:
        text = word.text
        head = text if text is not None else word.head
        if word.may_split:
            call.unknown(f"`{call.label}` with a word that may become several", word)
            continue
        if text is not None and text[:1] in ("-", "+"):
            fixes = fixes or "r" in text
            own = own and "g" not in text
            if text not in _ASSIGN_FLAGS.get(call.label, _DECLARE_FLAGS) or (text == "-p" and len(call.words) > 1):
                # -A, -n, -c .. evaluate what is assigned, or make names for other names. With a flag that it does not
                # know (`export -x`), or to be listed by -p, nothing is assigned at all.
                call.unknown(f"`{call.label} {text}` changes how values are read", word)
            exports = exports or "x" in text
            integers = integers or text == "-i"
            continue
        found = _ASSIGNMENT.fullmatch(head)
        if found:
            value = literal(found[3]) if text is not None else word.value or ANYTHING
            value = replace(value, may_split=False, span=None) if not found[2] else AbstractWord()
            name = found[1]
            names.add(name)
            if integers:
                variables.integers.add(name)
            if name in variables.integers:
                variables.number(name, value, word.span or call.span)
                value = NUMBER if found[2] else value
            if any(flag.text == "-a" for flag in call.words):
                variables.arrays.add(name)
            if own:
                state = state.own(name, ANYTHING)
            elif call.label == "local":
                value = join(state.variables.get(name, ANYTHING), value)  # outside of functions it fails
            elif state.locals is not None and call.label in ("declare", "typeset"):
                value = variables.beneath(state, name, value)
            if name in variables.arrays and not _surely_no_array(value):
                call.unknown(f"`{call.label}` may read the value as an array, and evaluate its subscripts", word)
            state = (
                variables.export(state, name, value, word.span or call.span)
                if exports
                else variables.assign(state, name, value, word.span or call.span)
            )
        elif text is not None and _NAME.fullmatch(text):
            names.add(text)
            if integers:
                variables.integers.add(text)
            array = any(flag.text == "-a" for flag in call.words)
            if array:
                variables.arrays.add(text)
            if own or array:
                state = variables.hidden(state, text, word.span or call.span, array=array)
            if own:
                state = state.own(text, ANYTHING)
                call.interpreter.traps.note_value(text, ANYTHING)
            if exports:
                state = variables.export(state, text, None, word.span or call.span)
        else:
            call.unknown(f"`{call.label}` with a name known only when it runs", word)
    call.add_rule_fact(Tier.READ)
    if fixes:
        state = replace(state, fixed=state.fixed | names)
        call.interpreter.traps.note_state(state)
    call.after = ExitStates.same(state)


_DECLARE_FLAGS = frozenset(["-x", "-gx", "-rx", "-i", "-r", "-g", "-p", "-a", "--", "-rg", "-gr"])
_ASSIGN_FLAGS = {"export": frozenset(["-p", "--"]), "readonly": frozenset(["-p", "-a", "--"])}


def let(call: Call) -> None:
    """Judge `let EXPRESSION ..`: arithmetic over numbers."""
    from policy.bash.parser import read_arithmetic  # only where there is something to compute

    state, variables = call.state, call.interpreter.variables
    for word in call.words:
        expression = read_arithmetic(word.text) if word.text is not None else None
        if expression is None:
            call.unknown(f"`{call.label}` computes, and may run what it finds in variables", word)
            return
        state = variables.compute(expression, state, call.frame, word.span or call.span or SourceSpan(0, 0))
    call.add_rule_fact(Tier.READ)
    call.after = ExitStates.same(state)


def _shows_functions(words: list[AbstractWord]) -> bool:
    shows = bool(words) and words[0].text in ("-f", "-F")
    return shows and all(word.text is not None and _FUNCTION.fullmatch(word.text) for word in words[1:])


def _surely_no_array(value: AbstractWord) -> bool:
    """Return True if the value is certainly not an array literal: `declare x='([$(cmd)]=b)'` runs `cmd` if `x` is an
    array.
    """
    if value.texts:
        return not any(text.startswith("(") for text in value.texts)
    return value.number or value.head[:1] not in ("", "(")


def unset(call: Call) -> None:
    """Judge `unset NAME`. A subscript, which bash would evaluate, is refused."""
    state, variables, kind = call.state, call.interpreter.variables, ""
    for word in call.words:
        text = word.text
        if text in ("-v", "-f", "--"):
            kind = text if text != "--" else kind
            continue
        if text is not None and kind == "-f" and _FUNCTION.fullmatch(text):
            state = state.define(text, UNDEFINED)
            call.interpreter.traps.note_function(text, UNDEFINED)
            continue
        if text is None or not _NAME.fullmatch(text):
            call.unknown("`unset` with a name known only when it runs", word)
            continue
        if kind == "":
            meanings = (*state.functions.get(text, UNDEFINED), None)  # without such a variable, the function
            state = state.define(text, tuple(dict.fromkeys(meanings)))
            call.interpreter.traps.note_function(text, UNDEFINED)
        if state.locals is not None:
            variables.revealed.add(text)
        known = literal(" \t\n") if text == "IFS" else ANYTHING
        state = variables.assign(state, text, known, word.span or call.span)
    call.add_rule_fact(Tier.READ)
    call.after = ExitStates.same(state)


def _input(call: Call, shape: ParsedOptions) -> tuple[str, ...]:
    """Return the texts known to arrive on the descriptor that `-u` names, or on the standard input."""
    numbers = [value.text for flag, value in shape.flags if flag.name == "-u" and value is not None]
    return call.interpreter.redirections.streams.get(numbers[-1] or "", ()) if numbers else call.frame.stdin_texts


def read(call: Call) -> None:
    """Judge `read`, which assigns its input to variables."""
    shape = parse(call.rule, call.label, call.words)
    if shape.trouble:
        call.unknown(shape.trouble, shape.where)
        return
    state, variables = call.state, call.interpreter.variables
    arrays = [value for flag, value in shape.flags if flag.name == "-a" and value is not None]
    heard = AbstractWord(may_split=True, hints=tokens(_input(call, shape)))
    for word in [*shape.operands, *arrays] or [literal("REPLY")]:
        if word.text == "_" and word not in arrays:
            continue  # what nobody wants: the next command gives it another value anyway
        if word in arrays and word.text is not None:
            variables.arrays.add(word.text)
        if word.text is None or not _NAME.fullmatch(word.text):
            call.unknown(f"`{call.label}` into a name known only when it runs", word)
        else:
            state = variables.assign(state, word.text, heard, word.span or call.span)
    call.add_rule_fact(Tier.READ)
    call.after = ExitStates.same(state)


def printf(call: Call) -> None:
    """Judge `printf FORMAT ..`; `-v NAME` is an assignment."""
    words, state = list(call.words), call.state
    while words and words[0].text is not None and words[0].text[:2] == "-v":
        first = words.pop(0)
        name = literal(first.text[2:]) if first.text and first.text[2:] else words.pop(0) if words else ANYTHING
        if name.text is None or not _NAME.fullmatch(name.text):
            call.unknown("`printf -v` into a name known only when it runs", first)
            return
        # A second -v wins over the first, which bash has looked at by then.
        heard = AbstractWord(may_split=True, hints=printed(words[:1], words[1:]))
        state = call.interpreter.variables.assign(state, name.text, heard, call.span)
        call.after = ExitStates.same(state)
    if words and words[0].text is None and not words[0].plain:
        call.unknown("a word known only when it runs may become `printf -v`, which sets a variable", words[0])
        return
    words = words[1:] if words and words[0].text == "--" else words
    call.says = printed(words[:1], words[1:])
    call.add_rule_fact(Tier.READ)


def set_options(call: Call) -> None:
    """Judge `set`: only options that make a script stricter or more verbose are accepted."""
    words, arguments = list(call.words), call.state.arguments
    while words:
        word = words[0]
        if word.text == "--" or (word.text is not None and word.text[:1] not in ("-", "+")):
            arguments = tuple(words[1:] if word.text == "--" else words)
            break
        del words[0]
        if word.text == "-":
            arguments = tuple(words) or arguments
            break
        if word.text is None or not _SET_LETTERS.fullmatch(word.text):
            call.unknown("`set` changes how the shell works", word)
            return
        if word.text.endswith("o"):
            name = words.pop(0) if words else None
            if name is not None and name.text not in _SET_NAMES:
                call.unknown("`set -o` changes how the shell works", name)
                return
    call.add_rule_fact(Tier.READ)
    call.after = ExitStates.same(replace(call.state, arguments=arguments))


def shift(call: Call) -> None:
    """Judge `shift`, which drops arguments, or none of them if there are fewer."""
    count = call.words[0].text if call.words else "1"
    if len(call.words) > 1 or count is None or not count.isdigit():
        call.unknown(f"`{call.label}` other than by a number", call.words[0])
    call.add_rule_fact(Tier.READ)
    state, number = call.state, int(count) if count is not None and count.isdigit() else 0
    known = state.arguments
    if known is None or any(word.may_split for word in known[:number]):
        known = None
    elif number <= len(known):
        known = known[number:]
    call.after = ExitStates.same(replace(state, arguments=known))


def trap(call: Call) -> None:
    """Judge `trap TEXT SIGNALS`: the text is parsed now, and interpreted at the end of the shell."""
    words = [word for word in call.words if word.text != "--"]
    call.add_rule_fact(Tier.READ)
    if not words or words[0].text in ("-p", "-l"):
        return
    if any(word.text is None for word in words):
        call.unknown("a trap that is known only when it runs")
        return
    text, signals = words[0].text or "", [(word.text or "").upper().removeprefix("SIG") for word in words[1:]]
    if len(words) == 1 or text.startswith("-") or text.isdigit():
        if text[1:] or not set(signals) <= _SIGNALS:
            call.unknown("a trap that is not plain", words[0])
        return  # back to what it was
    if not set(signals) <= _SIGNALS:
        call.unknown("a trap for something that is not known", words[-1])
        return
    if text.strip():
        ends = set(signals) <= {"EXIT", "0"}
        call.interpreter.traps.add(Trap(text, call.state, words[0].span or call.span, call.rule.ref, ends))


_SIGNALS = frozenset(["EXIT", "0", "ERR", "DEBUG", "RETURN", "HUP", "INT", "QUIT", "TERM", "PIPE", "USR1", "USR2"])


def getopts(call: Call) -> None:
    """Judge `getopts LETTERS NAME`."""
    words = call.words
    if len(words) < 2 or any(word.text is None for word in words[:2]) or not _NAME.fullmatch(words[1].text or ""):
        call.unknown("`getopts` with a name known only when it runs")
        return
    state = call.interpreter.variables.assign(call.state, words[1].text or "", ANYTHING, words[1].span or call.span)
    for name in ("OPTARG", "OPTIND"):
        call.interpreter.traps.note_value(name, ANYTHING)
        state = state.assign(name, ANYTHING)
    call.add_rule_fact(Tier.READ)
    call.after = ExitStates.same(state)


def mapfile(call: Call) -> None:
    """Judge `mapfile NAME`, which assigns lines to an array. `-C` runs a command for them; its rule does
    not list `-C`.
    """
    shape = parse(call.rule, call.label, call.words)
    names = shape.operands or [literal("MAPFILE")]
    if shape.trouble or len(names) > 1 or names[0].text is None or not _NAME.fullmatch(names[0].text):
        call.unknown(shape.trouble or f"`{call.label}` into a name known only when it runs", shape.where)
        return
    variables = call.interpreter.variables
    variables.arrays.add(names[0].text)
    heard = AbstractWord(may_split=True, hints=tokens(_input(call, shape)))
    state = variables.assign(call.state, names[0].text, heard, names[0].span or call.span)
    call.add_rule_fact(Tier.READ)
    call.after = ExitStates.same(state)


def shopt(call: Call) -> None:
    """Judge `shopt`: the files that a pattern matches may change, within the folder that bounds them."""
    for word in call.words:
        if word.text not in _SHOPT:
            call.unknown("`shopt` changes how the shell works", word)
            return
    call.add_rule_fact(Tier.READ)


_SHOPT = frozenset(["-s", "-u", "-q", "-p", "nullglob", "failglob", "globstar", "inherit_errexit"])


def umask(call: Call) -> None:
    """Judge `umask`: restricting new files is harmless; granting rights to others is like a `chmod` of every later
    file.
    """
    shape = parse(call.rule, call.label, call.words)
    if shape.trouble or len(shape.operands) > 1:
        call.unknown(shape.trouble or f"`{call.label}` with more than one mode", shape.where)
        return
    call.add_rule_fact(Tier.READ)
    if shape.operands and not _keeps_others_out(shape.operands[0].text or ""):
        call.add_reason(Tier.WRITE, "everybody may change what is made afterwards", shape.operands[0])
        call.changes(Tier.WRITE)


def _keeps_others_out(mode: str) -> bool:
    """Return True if a mode of umask(1p), numeric or symbolic, gives others no write permission."""
    if _MASK.fullmatch(mode):
        return bool(int(mode, 8) & 0o002)
    clauses = [_CLAUSE.fullmatch(clause) for clause in mode.split(",")]
    return all(
        clause is not None
        and (clause[2] == "-" or clause[1] in ("u", "g", "ug", "gu") or not set(clause[3]) & set("wug"))
        for clause in clauses
    )


_MASK = re.compile(r"[0-7]{1,4}", re.ASCII)
_CLAUSE = re.compile(r"([ugoa]*)([-+=])([rwxXstugo]*)", re.ASCII)


def evaluate(call: Call) -> None:
    """Judge `eval`: its words are a script, interpreted in the current shell."""
    texts = [word.text for word in call.words]
    if texts[:1] == ["--"]:
        del texts[0]
    call.add_rule_fact(Tier.READ)
    if call.frame.words_from_network:
        call.add_fact(Tier.DANGEROUS, "runs what was just downloaded", consequence=Consequence.RUNS_DOWNLOADED)
    if None in texts:
        call.unknown("the script that `eval` runs is known only when it runs")
        for text in (text for word in call.words for text in (*word.heads, *word.hints, word.head)):
            call.find_secrets(text)
        call.after = ExitStates.same(_lost(call))
        return
    script = " ".join(text for text in texts if text is not None)
    call.after = call.interpreter.run_text(script, call.state, call.frame, call.span, call.rule.ref)


def source(call: Call) -> None:
    """Judge `source FILE`: the commands of the file run in the current shell."""
    if not call.words:
        call.unknown(f"`{call.label}` without a file")
        return
    call.runs(call.rule.why)
    if call.words[0].text != "/dev/fd/0":
        call.access_path(Role.READ, call.words[0])
    if call.frame.words_from_network:
        call.add_fact(Tier.DANGEROUS, "runs what was just downloaded", consequence=Consequence.RUNS_DOWNLOADED)
    call.after = ExitStates.same(_lost(call))


def _lost(call: Call) -> State:
    """Return the state after shell text that was not read: any folder, any value."""
    state = call.state
    call.interpreter.traps.wandered = True
    for name in state.variables:
        call.interpreter.traps.note_value(name, ANYTHING)
    return replace(state, cwds=None, variables={}, stack=None, previous=None, arguments=None)


def alias(call: Call) -> None:
    """Judge `alias` and `hash`, which only list if they get no arguments."""
    if call.words:
        call.unknown(f"`{call.label}` with arguments changes what a command name means", call.words[0])
        return
    judge(call)


def echo(call: Call) -> None:
    """Judge `echo`, `true` and `:`, which have no effect besides their output."""
    if call.label == "echo":
        call.says = echoed(call.words)
    call.add_rule_fact(Tier.READ)
