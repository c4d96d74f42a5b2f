"""Expansion: the words that the words of a script become, as far as they are certain."""

import re
from collections.abc import Callable
from functools import reduce
from typing import assert_never

from policy.bash import ast
from policy.bash.ast import Expansion, Parameter, Script, Text, Word
from policy.interpreter.arithmetic import evaluate, evaluated_names, inserted_names
from policy.interpreter.findings import Findings
from policy.interpreter.path_classifier import SCRATCH
from policy.interpreter.shell_state import CommandResult, ExecutionFrame, State
from policy.model import abstract_word
from policy.model.abstract_word import ANYTHING, NOTHING, AbstractWord, SourceSpan, concatenate, join, literal
from policy.model.assessment import Check
from policy.model.facts import Facts
from policy.model.frozen import dataclass, replace
from policy.model.secret_paths import inside
from policy.model.tier import Tier
from policy.rules.rule import Role

_LIVE = frozenset("*?[]\\")
_ENDING = re.compile(r"\.[A-Za-z0-9]+\Z")
_FLAG_SIGNS = ("-", "+", "@")  # some programs give words with these first characters a special meaning
_BLANKS = frozenset(" \t")

MOST_WORDS = 400  # of one command, after expansion
_FOR_UNSET = frozenset([":-", "-", ":+", "+"])
_COUNTS = frozenset(["?", "#", "$"])
_MOST_JOINED = 40  # elements of an array whose values are joined
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"(?:[A-Za-z0-9_./:,@%]|\+(?!\+)|-(?!-))+")  # without what arithmetic may change
_NUMBERS = _COUNTS | {"!", "PPID", "UID", "EUID", "RANDOM", "SECONDS", "LINENO", "EPOCHSECONDS"}


@dataclass(frozen=True, slots=True)
class Expander:
    """The expansion of words during one interpretation. Commands inside a word are interpreted on the way.

    Attributes:
        run_script: interprets the body of a substitution.
    """

    facts: Facts
    findings: Findings
    run_script: Callable[[Script, State, ExecutionFrame], CommandResult]

    def expand_single(self, word: Word, state: State, frame: ExecutionFrame) -> AbstractWord:
        """Return the meaning of `word` where bash does not split it. Its substitutions are interpreted."""
        parts = word.parts
        if len(parts) == 1 and isinstance(parts[0], Text):
            return AbstractWord(texts=(parts[0].text,), span=frame.place(word.span))
        self.findings.classifier.budget.spend(5 * len(parts))
        whole = concatenate([self._part(part, state, frame) for part in parts] or [NOTHING], frame.place(word.span))
        if len(whole.likely_texts) >= abstract_word.MOST_MAYBE:
            self.findings.unknown("a word with too many possible values", Check.AMBIGUOUS_WORD, whole.span)
        return whole

    def expand_all(
        self,
        words: tuple[Word, ...],
        state: State,
        frame: ExecutionFrame,
        expand: Callable[[Word, State, ExecutionFrame], list[AbstractWord]] | None = None,
    ) -> list[AbstractWord]:
        """Return the words that `words` become by `expand`, or by `self.expand`; at most about `MOST_WORDS`."""
        self.findings.classifier.budget.spend(3 * len(words))
        found: list[AbstractWord] = []
        for word in words:
            found += (expand or self.expand)(word, state, frame)
            if len(found) > MOST_WORDS:
                self.findings.unknown("a command with too many words", Check.TOO_MANY_WORDS, frame.place(word.span))
                return [*found[:1], ANYTHING]
        return found

    def expand(self, word: Word, state: State, frame: ExecutionFrame) -> list[AbstractWord]:
        """Return the words that `word` becomes: several if an unquoted known value is certainly split."""
        whole = self.expand_single(word, state, frame)
        if whole.texts and word.literal is not None:
            return [whole]
        if whole.pattern:  # bash itself lists the folder for every command
            self.findings.suspect(Role.NAMES, whole, state.cwds, Check.PATTERN_LISTING, whole.span)
        if isinstance(word.parts[0], ast.Glob) and not whole.never_an_option:
            # A bare `*` stays unknown, because the line alone does not show that the folder contained no flag.
            only = (
                all(isinstance(part, (ast.Glob, Text)) for part in word.parts)
                and _ENDING.search(whole.tail) is not None
            )
            whole = replace(whole, never_an_option=only and self._no_dashes(state))
        part = word.parts[0]
        if len(word.parts) == 1 and isinstance(part, (Parameter, Expansion)) and part.name == "@":
            arguments = _arguments(part, state.arguments)
            if arguments is not None:
                self.findings.classifier.budget.spend(3 * len(arguments))
                return [replace(item, span=whole.span) for item in arguments]
        if len(word.parts) == 1 and isinstance(part, Parameter) and part.subscript == "@" and not part.length:
            items = self.value(part.name, state, whole=True).items
            self.findings.classifier.budget.spend(5 * len(items or ()))
            placed = None if items is None else [_placed(item, part.quoted) for item in items]
            if placed is not None and (part.quoted or all(item.texts for item in placed)):
                return [replace(item, span=whole.span) for item in placed]
        if len(word.parts) == 1 and isinstance(part, Expansion) and (part.subscript, part.operator) == ("@", "!"):
            items = self.value(part.name, state, whole=True).items
            if items is not None:
                return [literal(str(number), whole.span) for number in range(len(items))]
        if len(word.parts) == 1 and isinstance(part, Expansion) and (part.subscript, part.operator) == ("@", ":"):
            sliced = _slice(part, self.value(part.name, state, whole=True).items)
            self.findings.classifier.budget.spend(5 * len(sliced or ()))
            placed = None if sliced is None else [_placed(item, part.quoted) for item in sliced]
            if placed is not None and (part.quoted or all(item.texts for item in placed)):
                return [replace(item, span=whole.span) for item in placed]
        lone = whole.may_split and len(word.parts) == 1 and "IFS" not in state.variables
        if lone and isinstance(part, (Parameter, Expansion)) and not part.quoted:
            raw = self._raw(part, state)
            if raw is not None and raw.text is not None and not _LIVE.intersection(raw.text):
                return [literal(text, whole.span) for text in abstract_word.fields(raw.text)]
        return [whole]

    def _no_dashes(self, state: State) -> bool:
        """Return True if no match of `*` looks like a flag: no file has such a name, and no command changed files
        before.
        """
        facts, findings = self.facts, self.findings
        if state.cwds is None or findings.worst > Tier.READ:
            return False
        for cwd in state.cwds:
            names = facts.names(cwd) if inside(cwd, facts.workspace) else None
            if names is None or any(name.startswith(_FLAG_SIGNS) for name in names):
                return False
        return True

    def _part(self, part: ast.Part, state: State, frame: ExecutionFrame) -> AbstractWord:
        match part:
            case Text(text=text):
                return AbstractWord(texts=(text,))
            case ast.Tilde(user=user, span=span):
                if user:
                    what = f"`~{user}` is an unknown home folder"
                    self.findings.unknown(what, Check.UNKNOWN_HOME, frame.place(span))
                    # The effects in the usual home folders are judged, too.
                    beside = self.facts.home.rpartition("/")[0]
                    likely = ("/root",) if user == "root" else (f"{beside}/{user}", f"/home/{user}")
                    return AbstractWord(never_an_option=True, likely_texts=likely)
                return AbstractWord(texts=(self.facts.home,))
            case ast.Glob(text=text):
                return AbstractWord(globbed=True, may_split=True, pattern=text)
            case Parameter():
                return self._parameter(part, state, frame)
            case Expansion():
                return self._expansion(part, state, frame)
            case ast.Arithmetic(expression=expression, span=span):
                return self.evaluate(expression, state, frame, span)
            case ast.Substitution(body=body, kind=kind, quoted=quoted):
                return self._substitution(body, kind, quoted, state, frame)
            case never:
                assert_never(never)

    def evaluate(
        self, expression: ast.Expression, state: State, frame: ExecutionFrame, span: SourceSpan, *, fails: bool = True
    ) -> AbstractWord:
        """Return the value of an arithmetic expression, and report names that may hold something other than a number.

        `fails` is true where a missing number makes bash skip the rest of the line.
        """
        for name in evaluated_names(expression):
            if name not in _NUMBERS and not abstract_word.is_number(self.value(name, state)):
                self.require_number(f"arithmetic on `{name}`", frame.place(span))
        for part in ast.find_outputs(expression):
            printed = self._substitution(part.body, part.kind, True, state, frame)
            if not abstract_word.is_number(printed) or (fails and printed.empty):
                self.require_number("arithmetic on what a command prints", frame.place(span))
        for name in inserted_names(expression):
            if fails and self.value(name, state).empty:
                self.require_number(f"arithmetic on `${name}`", frame.place(span))
        return evaluate(expression, lambda name: self.value(name, state))

    def require_number(self, what: str, span: SourceSpan) -> None:
        """Report a text that bash evaluates as arithmetic: a subscript of an array in it may run a command."""
        text = f"{what}, which may not be a number: bash evaluates its value"
        self.findings.unknown(text, Check.ARITHMETIC_EVALUATION, span)

    def _parameter(self, part: Parameter, state: State, frame: ExecutionFrame) -> AbstractWord:
        name = part.name
        self._report_missing_element(part, state, frame)
        if part.length or name in _COUNTS:
            return abstract_word.COUNT
        if name in _NUMBERS:
            return replace(abstract_word.MAYBE_NUMBER, may_split=not part.quoted)  # `$!` may be empty
        arguments = None if "IFS" in state.variables else state.arguments
        if name == "*" and part.quoted and arguments is not None and not any(word.may_split for word in arguments):
            apart = [each for word in arguments for each in (literal(" "), word)]
            return concatenate(apart[1:] or [NOTHING], None)
        if name in ("@", "*"):
            return ANYTHING if name == "@" or not part.quoted else AbstractWord()
        if part.subscript in ("@", "*"):
            whole = self.value(name, state, whole=True)
            items = (text for item in whole.items or () for text in item.texts)
            hints = (*whole.hints, *items)[: abstract_word.MOST_HINTS]
            return replace(ANYTHING if part.subscript == "@" or not part.quoted else AbstractWord(), hints=hints)
        return _placed(self.value(name, state, part.subscript), part.quoted)

    def value(self, name: str, state: State, subscript: str = "", *, whole: bool = False) -> AbstractWord:
        """Return the value of a variable, of one element of an array or, with `whole`, of the array."""
        value = state.variables.get(name)
        if whole:
            return value or ANYTHING
        if subscript not in ("", "0"):
            items = value.items if value is not None else None
            place = int(subscript)
            known = items is not None and -len(items) <= place < len(items)
            unknown = ANYTHING if value is None else replace(ANYTHING, hints=value.hints)
            return items[place] if items is not None and known else unknown
        if name.isdigit():
            argument = state.argument(int(name)) if name != "0" else value
            hints = tuple(hint for word in state.arguments or () for hint in word.hints)
            return replace(ANYTHING, hints=hints[: abstract_word.MOST_HINTS]) if argument is None else argument
        if value is not None:
            return replace(value, items=None, keyed=False)
        if name == "HOME":
            return literal(self.facts.home)
        if name == "TMPDIR":
            return literal(SCRATCH)  # set in the environment of every command
        if name == "PWD" and state.cwds is not None:
            return AbstractWord(texts=state.cwds)
        return ANYTHING

    def _report_missing_element(self, part: Parameter | Expansion, state: State, frame: ExecutionFrame) -> None:
        """Report `${x[-1]}` of an array that may have no such element: bash then skips the rest of the line."""
        if not part.subscript.startswith("-"):
            return
        items = self.value(part.name, state, whole=True).items
        if items is None or len(items) < -int(part.subscript):
            text = f"`{part.name}[{part.subscript}]`, which may not exist"
            self.findings.unknown(text, Check.ARRAY_INDEX, frame.place(part.span))

    def _raw(self, part: Parameter | Expansion, state: State) -> AbstractWord | None:
        """Return the value of a known variable before it is split. No command is interpreted a second time."""
        if part.name in ("@", "*") or part.name in _NUMBERS or part.subscript in ("@", "*"):
            return None
        if isinstance(part, Expansion) and part.index is not None:
            return None
        value = self.value(part.name, state, part.subscript)
        if isinstance(part, Parameter):
            return None if part.length else value
        from policy.interpreter.parameter_ops import apply_operation  # only where a script uses `${..}`

        return apply_operation(part, value)

    def _expansion(self, part: Expansion, state: State, frame: ExecutionFrame) -> AbstractWord:
        self._report_missing_element(part, state, frame)
        inner = [self._inside(word, state, frame) for word in part.words]  # interpreted even if bash may skip it
        if part.operator == ":":
            part = self._bounded(part, inner, frame)
        if part.subscript in ("@", "*"):
            unknown = ANYTHING if part.subscript == "@" or not part.quoted else AbstractWord()
            return replace(unknown, hints=_hints(self.value(part.name, state, whole=True)))
        if part.name in ("@", "*"):
            return ANYTHING if part.name == "@" or not part.quoted else AbstractWord()
        if part.index is not None:
            array = self.value(part.name, state, whole=True)
            place = self.subscript(part.name, part.index, array, state, frame)
            value = _element(array, place)
            if part.operator == "[":
                return _placed(value, part.quoted)
        else:
            value = self.value(part.name, state, part.subscript)
        if part.operator == "!":
            return _placed(self._named(part, value, state, frame), part.quoted)
        if part.operator in ast.ASSIGNS:
            part = replace(part, operator=":-" if part.operator == ":=" else "-")
        current = _placed(value, part.quoted)
        if part.name.isdigit() and state.arguments is not None and int(part.name) > 0:
            unset = int(part.name) > len(state.arguments) and not any(word.may_split for word in state.arguments)
            if unset and part.operator in _FOR_UNSET:
                return inner[0] if part.operator in (":-", "-") else _placed(NOTHING, part.quoted)
            texts = value.texts
        else:
            # Only the variables that the script has set are certainly set, and the elements of an array may be not.
            texts = value.texts if part.name in state.variables and part.index is None else ()
        full = tuple(text for text in texts if text)
        filled = _placed(replace(value, texts=full), part.quoted) if full else None
        match part.operator:
            case ":-" | "-" if not texts:
                return join(current, inner[0])
            case ":-" if filled is None or len(full) < len(texts):
                return inner[0] if filled is None else join(filled, inner[0])
            case ":-" | "-":
                return current
            case ":+" if texts and filled is None:
                return _placed(NOTHING, part.quoted)
            case ":+" | "+" if not texts or (part.operator == ":+" and len(full) < len(texts)):
                return join(inner[0], _placed(NOTHING, part.quoted))
            case ":+" | "+":
                return inner[0]
            case ":?" | "?":
                return current if filled is None or part.operator == "?" else filled  # without a value the script ends
        from policy.interpreter.parameter_ops import apply_operation  # only where a script uses `${..}`

        known = apply_operation(part, value)
        return AbstractWord(may_split=not part.quoted) if known is None else _placed(known, part.quoted)

    def subscript(
        self, name: str, index: ast.Subscript, array: AbstractWord, state: State, frame: ExecutionFrame
    ) -> AbstractWord:
        """Return the subscript of an element of the array `name`, with the value `array`.

        A key that is not plain is reported even for an array that is certainly associative: versions of bash before 4.0
        know no such arrays and evaluate every subscript, as every version does for an indexed array.
        """
        span = frame.place(index.span)
        if not array.keyed:
            if index.number is not None:
                return self.evaluate(index.number, state, frame, span)
            text = f"the subscript of `{name}`, which may not be associative: bash evaluates it"
            self.findings.unknown(text, Check.ARRAY_INDEX, span)
            return ANYTHING
        key = ANYTHING if index.key is None else self.expand_single(index.key, state, frame)
        names = {found for text in key.texts for found in _VARIABLE.findall(text)}
        values = (state.variables[each] for each in names if each in state.variables)
        if not key.texts or not all(map(_KEY.fullmatch, key.texts)) or not all(map(abstract_word.is_number, values)):
            text = f"the key of `{name}`, which may be empty, or text that some versions of bash evaluate"
            self.findings.unknown(text, Check.ARRAY_INDEX, span)
        return key

    def _bounded(self, part: Expansion, bounds: list[AbstractWord], frame: ExecutionFrame) -> Expansion:
        """Return `${x:offset:length}` with the known values of offset and length, as digits.

        bash ends the line at a length below zero that leaves nothing, so a length that may be negative is reported.
        """
        certain = all(length.plain for length in bounds[1:])
        if not certain:
            text = f"`${{{part.name}:..}}` with a length that may be negative, at which bash ends the line"
            self.findings.unknown(text, Check.ARITHMETIC_EVALUATION, frame.place(part.span))
        known = [
            word if bound.text is None else Word((Text(bound.text, word.span, False),), word.span)
            for word, bound in zip(part.words, bounds, strict=True)
        ]
        return replace(part, words=tuple(known))

    def _named(self, part: Expansion, value: AbstractWord, state: State, frame: ExecutionFrame) -> AbstractWord:
        """Return the value of `${!x}`: of the variables that `value` names. A subscript in a name may run a command."""
        if not value.texts or not all(map(_VARIABLE.fullmatch, value.texts)):
            text = f"`${{!{part.name}}}`, whose value may not be a plain name: bash evaluates it"
            self.findings.unknown(text, Check.ARITHMETIC_EVALUATION, frame.place(part.span))
            return ANYTHING
        values = [self._parameter(Parameter(name, part.span, True), state, frame) for name in value.texts]
        return reduce(join, values)

    def _inside(self, word: Word, state: State, frame: ExecutionFrame) -> AbstractWord:
        """Return the meaning of a word inside `${..}`. Outside double quotes, bash splits its unquoted text, too."""
        senses = [self._part(part, state, frame) for part in word.parts]
        split = [isinstance(part, Text) and not part.quoted and bool(_BLANKS & set(part.text)) for part in word.parts]
        if any(split):
            return abstract_word.unquoted(senses[0]) if len(senses) == 1 else ANYTHING
        return concatenate(senses, None)

    def _substitution(self, body: Script, kind: str, quoted: bool, state: State, frame: ExecutionFrame) -> AbstractWord:
        worst = self.findings.worst
        inside = replace(frame, stdin_from_network=False, output=[])
        if kind == "process-out":
            inside = replace(inside, stdin_script=None)
        result = self.run_script(body, state, inside)
        texts = tuple(dict.fromkeys(inside.output))
        if kind != "command":
            printed = result.output if kind == "process-in" else None
            # The name of a pipe that bash makes; its other end was interpreted.
            return replace(literal("/dev/fd/0"), content=texts, output=printed)
        from policy.interpreter.substitution_output import output_of  # only where there is a substitution

        word = output_of(body, result.printed, state, self.findings, worst, quoted=quoted)
        if word.texts or not texts:
            return word
        whole = tuple(text.rstrip("\n") for text in texts)
        return replace(word, hints=whole if quoted else abstract_word.tokens(texts))


def _arguments(part: Parameter | Expansion, arguments: tuple[AbstractWord, ...] | None) -> list[AbstractWord] | None:
    """Return the words of `$@` or of `${@:2}`, or None if they are not certain."""
    if arguments is None or (isinstance(part, Parameter) and part.length):
        return None
    if isinstance(part, Expansion):
        if any(word.literal is None for word in part.words):
            return None
        bounds = [int(word.literal or "") for word in part.words] if part.operator == ":" else [0]
        first = bounds[0] - 1
        if first < 0 or any(word.may_split for word in arguments[: first + sum(bounds[1:])]):
            return None
        arguments = arguments[first : first + bounds[1] if len(bounds) > 1 else None]
    if part.quoted:
        return list(arguments)
    placed = [_placed(word, False) for word in arguments]
    return placed if all(word.texts for word in placed) else None


def _slice(part: Expansion, items: tuple[AbstractWord, ...] | None) -> tuple[AbstractWord, ...] | None:
    """Return the elements of `${x[@]:offset:length}`, or None if they are not certain."""
    if items is None or any(word.literal is None for word in part.words):
        return None
    first, *length = (int(word.literal or "") for word in part.words)
    if first < 0 or (length and length[0] < 0):
        return None
    return items[first : first + length[0] if length else None]


def _element(array: AbstractWord, index: AbstractWord) -> AbstractWord:
    """Return the element of `array` with the number `index`."""
    items = array.items
    unknown = replace(ANYTHING, hints=_hints(array))
    if not items or any(item.may_split for item in items):
        return unknown
    if not index.texts:
        return reduce(join, (*items, NOTHING)) if len(items) <= _MOST_JOINED else unknown
    places = [int(text) for text in index.texts]
    if not all(-len(items) <= place < len(items) for place in places):
        return unknown
    return reduce(join, (items[place] for place in places))


def _hints(array: AbstractWord) -> tuple[str, ...]:
    """Return the texts that an element of `array` is known to be."""
    items = (text for item in array.items or () for text in item.texts)
    return (*array.hints, *array.texts, *items)[: abstract_word.MOST_HINTS]


def _placed(value: AbstractWord, quoted: bool) -> AbstractWord:
    """Return the meaning of a value at its place in a word: one word inside double quotes, else split."""
    return replace(value, may_split=False) if quoted else abstract_word.unquoted(value)
