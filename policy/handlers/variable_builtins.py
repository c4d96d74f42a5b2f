"""Shell builtins that assign to variables: `export`, `let`, `read`, `mapfile` and others."""

import re
from itertools import takewhile

from policy.interpreter.assignments import KEYED_FLAGS
from policy.interpreter.command_call import Call, ParsedOptions
from policy.interpreter.shell_state import UNDEFINED, ExitStates
from policy.model.abstract_word import ANYTHING, NUMBER, AbstractWord, SourceSpan, join, literal, tokens
from policy.model.frozen import replace
from policy.model.tier import Tier

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(.*)", re.DOTALL)


def assign(call: Call) -> None:
    """Judge `export`, `declare`, `typeset`, `local` and `readonly`: names with or without a value."""
    variables, state = call.shell.variables, call.state
    texts = [word.text for word in call.words]
    prints_only = call.label in ("declare", "typeset") and texts[:1] in (["-f"], ["-F"])
    if prints_only and all(text is not None and _FUNCTION.fullmatch(text) for text in texts[1:]):
        call.add_fact(Tier.READ, "prints functions", flag=texts[0] or "")
        return
    exports, readonly, names = call.label == "export", call.label == "readonly", set()
    is_local = state.locals is not None and call.label in ("local", "declare", "typeset")
    integers = False
    flags = takewhile(lambda text: text is not None and text[:1] == "-" and text != "--", texts)
    array, keyed = "-a" in texts, not KEYED_FLAGS.isdisjoint(flags)
    for word in call.words:
        text = word.text
        head = text if text is not None else word.head
        if word.may_split:
            call.unknown(f"`{call.label}` with a word that may become several words", word)
            continue
        if text is not None and text[:1] in ("-", "+"):
            readonly = readonly or "r" in text
            is_local = is_local and "g" not in text
            if text not in _ASSIGN_FLAGS.get(call.label, _DECLARE_FLAGS) or (text == "-p" and len(call.words) > 1):
                # -n, -c .. evaluate the assigned value, or make the name an alias of another. With an unknown flag
                # (`export -x`), or with -p and names, bash assigns nothing.
                call.unknown(f"`{call.label} {text}` changes the meaning of assigned values", word)
            exports = exports or "x" in text
            integers = integers or text == "-i"
            continue
        match = _ASSIGNMENT.fullmatch(head)
        if not match and (text is None or not _NAME.fullmatch(text)):
            call.unknown(f"`{call.label}` with an uncertain variable name", word)
            continue
        name, span = match[1] if match else head, word.span or call.span
        names.add(name)
        if integers:
            variables.integers.add(name)
        if keyed:
            certain = variables.become_associative(name)
        if not match and keyed:
            state = variables.declare_unset(state, name, span, array=True)
            hidden = state.locals is not None and not is_local  # a local variable may hide the one that `-g` declares
            if is_local:
                state = state.own(name, ANYTHING)
            old = state.variables.get(name, ANYTHING)
            certain = certain and not hidden and (call.label != "local" or is_local)
            value = replace(ANYTHING, hints=(*old.texts, *old.hints), keyed=certain)
            call.shell.traps.note_value(name, value)
            state = state.assign(name, value)
            continue
        if not match:
            if array:
                variables.arrays.add(name)
            if is_local or array:
                state = variables.declare_unset(state, name, span, array=array)
            if is_local:
                state = state.own(name, ANYTHING)
                call.shell.traps.note_value(name, ANYTHING)
            if exports:
                state = variables.export(state, name, None, span)
            continue
        value = literal(match[3]) if text is not None else word.value or ANYTHING
        value = replace(value, may_split=False, span=None) if not match[2] else AbstractWord()
        if name in variables.integers:
            variables.number(name, value, span)
            value = NUMBER if match[2] else value
        if array:
            variables.arrays.add(name)
        if is_local:
            state = state.own(name, ANYTHING)
        elif call.label == "local":
            value = join(state.variables.get(name, ANYTHING), value)  # outside of a function, `local` fails
        elif state.locals is not None and call.label in ("declare", "typeset"):
            value = variables.join_outer_value(state, name, value)
        if (name in variables.arrays or name in variables.associative) and not _surely_no_array(value):
            call.unknown(f"`{call.label}` may read the value as an array, and evaluate its subscripts", word)
        state = (variables.export if exports else variables.assign)(state, name, value, span)
    call.add_rule_fact(Tier.READ)
    if readonly:
        state = replace(state, fixed=state.fixed | names)
        call.shell.traps.note_state(state)
    call.after = ExitStates.same(state)


_DECLARE_FLAGS = frozenset(["-x", "-gx", "-rx", "-i", "-r", "-g", "-p", "-a", "--", "-rg", "-gr"]) | KEYED_FLAGS
_ASSIGN_FLAGS = {"export": frozenset(["-p", "--"]), "readonly": frozenset(["-p", "-a", "--"])}


def let(call: Call) -> None:
    """Judge `let EXPRESSION ..`, which evaluates arithmetic."""
    from policy.bash.parser import read_arithmetic  # imported only for `let`, to keep other starts short

    state, variables = call.state, call.shell.variables
    for word in call.words:
        expression = read_arithmetic(word.text) if word.text is not None else None
        if expression is None:
            call.unknown(f"`{call.label}` evaluates an expression that may run commands from variables", word)
            return
        state = variables.compute(expression, state, call.frame, word.span or call.span or SourceSpan(0, 0))
    call.accept(state)


def _surely_no_array(value: AbstractWord) -> bool:
    """Return True if the value is certainly not an array literal: `declare x='([$(cmd)]=b)'` runs `cmd` if `x` is an
    array.
    """
    if value.texts:
        return not any(text.startswith("(") for text in value.texts)
    return value.number or value.head[:1] not in ("", "(")


def unset(call: Call) -> None:
    """Judge `unset NAME`. A subscript, which bash would evaluate, is refused."""
    state, variables, kind = call.state, call.shell.variables, ""
    for word in call.words:
        text = word.text
        if text in ("-v", "-f", "--"):
            kind = text if text != "--" else kind
            continue
        if text is not None and kind == "-f" and _FUNCTION.fullmatch(text):
            state = state.define(text, UNDEFINED)
            call.shell.traps.note_function(text, UNDEFINED)
            continue
        if text is None or not _NAME.fullmatch(text):
            call.unknown("`unset` with an uncertain variable name", word)
            continue
        if kind == "":
            meanings = (*state.functions.get(text, UNDEFINED), None)  # without a variable, bash unsets the function
            state = state.define(text, tuple(dict.fromkeys(meanings)))
            call.shell.traps.note_function(text, UNDEFINED)
        if state.locals is not None:
            variables.revealed.add(text)
        if any(entry.startswith(f"{text}=") for entry in state.exports):
            state = replace(state, exports=(*state.exports, text))  # the known value is gone
        known = literal(" \t\n") if text == "IFS" else ANYTHING
        state = variables.assign(state, text, known, word.span or call.span)
    call.accept(state)


def _input_texts(call: Call, shape: ParsedOptions) -> tuple[str, ...]:
    """Return the known input texts of the descriptor that `-u` names, or of the standard input."""
    numbers = [value.text for flag, value in shape.flags if flag.name == "-u" and value is not None]
    return call.shell.redirections.streams.get(numbers[-1] or "", ()) if numbers else call.frame.stdin_texts


def read(call: Call) -> None:
    """Judge `read NAME ..`, which assigns its input to variables."""
    shape = call.parse()
    if shape.trouble:
        call.unknown(shape.trouble, shape.where)
        return
    state, variables = call.state, call.shell.variables
    arrays = [value for flag, value in shape.flags if flag.name == "-a" and value is not None]
    value = AbstractWord(may_split=True, hints=tokens(_input_texts(call, shape)))
    for word in [*shape.operands, *arrays] or [literal("REPLY")]:
        if word.text == "_" and word not in arrays:
            continue  # bash itself overwrites `_` before the next command
        if word in arrays and word.text is not None:
            variables.arrays.add(word.text)
        if word.text is None or not _NAME.fullmatch(word.text):
            call.unknown(f"`{call.label}` sets a variable whose name is uncertain", word)
        else:
            state = variables.assign(state, word.text, value, word.span or call.span)
    call.accept(state)


def getopts(call: Call) -> None:
    """Judge `getopts LETTERS NAME`, which assigns NAME, OPTARG and OPTIND."""
    words = call.words
    if len(words) < 2 or any(word.text is None for word in words[:2]) or not _NAME.fullmatch(words[1].text or ""):
        call.unknown("`getopts` sets a variable whose name is uncertain")
        return
    state = call.shell.variables.assign(call.state, words[1].text or "", ANYTHING, words[1].span or call.span)
    for name in ("OPTARG", "OPTIND"):
        call.shell.traps.note_value(name, ANYTHING)
        state = state.assign(name, ANYTHING)
    call.accept(state)


def mapfile(call: Call) -> None:
    """Judge `mapfile NAME`, which assigns lines to an array. `-C`, which runs a command, is not in the rule and so
    unknown.
    """
    shape = call.parse()
    names = shape.operands or [literal("MAPFILE")]
    if shape.trouble or len(names) > 1 or names[0].text is None or not _NAME.fullmatch(names[0].text):
        call.unknown(shape.trouble or f"`{call.label}` sets a variable whose name is uncertain", shape.where)
        return
    variables = call.shell.variables
    variables.arrays.add(names[0].text)
    value = AbstractWord(may_split=True, hints=tokens(_input_texts(call, shape)))
    state = variables.assign(call.state, names[0].text, value, names[0].span or call.span)
    call.accept(state)
