"""Assignments: the values that a script gives to variables, and the variables that the shell or programs obey."""

import re
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import partial
from itertools import takewhile

from policy.bash.ast import (
    ASSIGNS,
    ArrayAssignment,
    Assignment,
    Command,
    Expansion,
    Expression,
    Subscript,
    Text,
    Word,
)
from policy.interpreter.arithmetic import ordered_changes, value_after
from policy.interpreter.expansion import Expander
from policy.interpreter.findings import Findings
from policy.interpreter.shell_state import ExecutionFrame, State
from policy.interpreter.traps import TrapTable
from policy.model import abstract_word
from policy.model.abstract_word import ANYTHING, NUMBER, AbstractWord, SourceSpan, concatenate, join, literal
from policy.model.assessment import Check
from policy.model.frozen import replace

_DECLARATION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_SELF_CHANGING = frozenset(["SECONDS", "OPTIND"])  # bash changes them by itself
# The values that bash uses while these variables are unset.
_UNSET = {"IFS": literal(" \t\n"), "OPTIND": literal("1"), "SECONDS": literal("0")}
_DECLARERS = frozenset(["export", "declare", "typeset", "local", "readonly"])


class VariableReach(IntEnum):
    """The reach of a variable. OWN: only the script reads it. PASSED: later programs may obey it. SHELL: bash itself,
    or every program, obeys it.
    """

    OWN = 0
    PASSED = 1
    SHELL = 2


# The longer expressions are texts: `re` compiles them at their first use and keeps them, and most commands use none.
# Of the variables in `_LOOKS`, these never name a file: counts, switches, and terminal types, which hold no `/`
# (terminfo(5)). If the script does not export them, they may have any value.
_INERT = (
    r"NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|COLORTERM|COLUMNS|LINES|TERM|CI|SOURCE_DATE_EPOCH|RUST_BACKTRACE"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
)
# When exported, these only change the appearance of output.
_LOOKS = rf"LC_[A-Z]+|LANG|LANGUAGE|TZ|GIT_OPTIONAL_LOCKS|DEBIAN_FRONTEND|NODE_ENV|{_INERT}"
_VALUE = re.compile(r"[A-Za-z0-9_.,+@ -]*(/[A-Za-z0-9_+-]+)*")
_TRAVERSAL = re.compile(r"(^|/)\.\.?(/|$)|^[/:]")  # LC_ALL and TZ may name files
_PAGERS = frozenset(["PAGER", "GIT_PAGER", "MANPAGER", "SYSTEMD_PAGER"])

# Values with which a program connects to no host and otherwise does what it does without the variable.
_OFFLINE_VALUES = {
    "GOPROXY": ("off",),
    "CARGO_NET_OFFLINE": ("true",),
    "PIP_NO_INDEX": ("1", "true"),
    "UV_OFFLINE": ("1", "true"),
    "npm_config_offline": ("true",),
}

# Harmless values of a clock, a counter and the separators (the interpreter relies on no splitting after IFS is set).
_SAFE_VALUES = {"SECONDS": re.compile("[0-9]{1,9}"), "OPTIND": re.compile("1"), "IFS": re.compile("[ \t\n]*")}
# bash obeys these even when they are not exported.
_SHELL = (
    r"BASH.*|CDPATH|CHILD_MAX|COMP.*|DIRSTACK|EMACS|ENV|EPOCH.*|EUID|EXECIGNORE|FCEDIT|FIGNORE|FUNC.*|GLOBIGNORE|GROUPS"
    r"|HIST.*|HOME|HOST.*|IFS|IGNOREEOF|INPUTRC|INSIDE_EMACS|LINENO|MAIL.*|MAPFILE|OLDPWD|OPT.*|PATH|PIPESTATUS"
    r"|POSIXLY_CORRECT|PPID|PROMPT_.*|PS[0-9]|PWD|RANDOM|READLINE_.*|SECONDS|SHELL.*|SHLVL|SRANDOM|TIMEFORMAT|TMOUT|UID"
    r"|auto_resume|histchars|_"
)
# Programs obey these, some in lower case too (npm_config_.., http_proxy), and the environment in the sandbox already
# contains some of them.
_TOOLS = (
    r"(LD|DYLD|GLIBC|GCONV|MALLOC|GIT|SSH|GPG|PYTHON|PIP|NODE|NPM|RUBY|GEM|BUNDLE|PERL|LUA|PHP|JAVA|JDK|MAVEN|GRADLE|GO|CARGO"
    r"|RUST|MAKE|CMAKE|CC|CXX|TAR|GREP|RIPGREP|LESS|MAN|PAGER|EDITOR|VISUAL|BROWSER|XDG|TMP|TEMP|DOCKER|KUBE|AWS|CURL|WGET"
    r"|SYSTEMD|DBUS|TERMINFO|NLSPATH|LOCPATH|LOCALDOMAIN|HOSTALIASES|RES_OPTIONS|USER|LOGNAME|TZDIR|DISPLAY|RINGFENCE)"
    r"([A-Z0-9]*(_.*)?)|.*_PROXY|.*(PATH|OPTIONS|OPTS|FLAGS|COMMAND|EDITOR|PAGER|PRELOAD|ASKPASS)"
)


def keeps_offline(name: str, value: str | None) -> bool:
    """Return True if the variable only keeps a program from the network."""
    return value in _OFFLINE_VALUES.get(name, ())


def exported_entry(name: str, value: AbstractWord) -> str:
    """Return the entry of `State.exports` for a variable with this value."""
    return f"{name}={value.text}" if keeps_offline(name, value.text) else name


def variable_reach(name: str, value: str | None, inherited: tuple[str, ...], *, exported: bool) -> VariableReach:
    """Return the reach of setting `name`. `value` is None if it is known only at run time.

    `inherited` are name patterns of variables that are in a command's environment from the start, so that setting one
    exports it.
    """
    if keeps_offline(name, value):
        return VariableReach.PASSED if exported else VariableReach.OWN
    if re.fullmatch(_LOOKS, name):
        harmless = value is not None and _VALUE.fullmatch(value) and not _TRAVERSAL.search(value)
        return VariableReach.OWN if harmless or (not exported and re.fullmatch(_INERT, name)) else VariableReach.PASSED
    if name in _PAGERS:
        return VariableReach.OWN if value in ("cat", "") else VariableReach.SHELL
    if value is not None and not exported and name in _SAFE_VALUES and _SAFE_VALUES[name].fullmatch(value):
        return VariableReach.OWN
    if re.fullmatch(_SHELL, name):
        return VariableReach.SHELL
    if re.fullmatch(_TOOLS, name, re.IGNORECASE):
        # The script does not export the variable, but it may be in the environment already. Of those in lower case, the
        # sandbox sets these.
        lower = name == name.lower() and not name.startswith("npm_config_") and not name.endswith("_proxy")
        return VariableReach.OWN if lower and not exported else VariableReach.SHELL
    if exported:
        return VariableReach.PASSED  # closed world: some program may obey a name that no table contains
    known = any(fnmatchcase(name, pattern) for pattern in inherited)
    return VariableReach.PASSED if known else VariableReach.OWN


# Some variables configure the guards of a command, and others make a loader, a shell or Git run another program than
# the one that was judged. Sources: ld.so(8), bash(1), git(1).
_UNDOING = (
    (r"(?:LD|DYLD)_.*|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH|MALLOC_.*|RES_OPTIONS|HOSTALIASES|LOCALDOMAIN",
     "the system libraries use it in every program, so code could run that was not judged"),
    (r"(?i:(?:.*_)?PROXY|NO_PROXY|npm_config_(?:https_|http_|no)?proxy)",
     "the sandbox's own proxy is the only way to a network, and the sandbox sets it"),
    (r"(?i:GIT_(?!(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)\Z).*|SSH_ASKPASS|GPG_.*)",
     "Git uses it, and it could disable the protection from programs that a repository's settings name"),
    (r"XDG_CONFIG_(?:HOME|DIRS)|CURL_HOME|WGETRC|RIPGREP_CONFIG_PATH",
     "programs that only read, such as Git, take settings from it, and these may start other programs"),
    (r"RINGFENCE_.*|TMPDIR|PAGER|MANPAGER|SYSTEMD_PAGER|LESSOPEN|LESSCLOSE|LESSSECURE|EDITOR|VISUAL",
     "the sandbox sets it, or it makes programs start code that was not judged"),
)  # fmt: skip


def undone_guard(name: str) -> str | None:
    """Return why `name` must not be set for a command from outside the script; None if it may.

    Such a variable would undo a guard of the command.
    """
    if re.fullmatch(_SHELL, name):
        return "bash uses it, so the script could do something other than what was judged"
    return next((why for names, why in _UNDOING if re.fullmatch(names, name)), None)


AssignedValues = list[tuple[Assignment | ArrayAssignment, AbstractWord]]  # the value of each assignment


class Variables:
    """The assignments of a script: the values of its variables, and the variables that bash or programs obey.

    Attributes:
        arrays: names that may be indexed arrays at this point of the script.
        associative: names that may be associative arrays at this point of the script.
        integers: names whose values bash may evaluate at this point (`declare -i`).
        unread: the script has run text that was not analysed, so any name may be an array.
        revealed: names whose outer value a function may have changed while it has a local variable of that name.
    """

    def __init__(self, findings: Findings, expander: Expander, traps: TrapTable) -> None:
        self.arrays: set[str] = set()
        self.associative: set[str] = set()
        self.unread = False
        self.integers: set[str] = set()
        self.revealed: set[str] = set()
        self._findings = findings
        self._expander = expander
        self._traps = traps

    def marks(self) -> int:
        """Return the number of names that are arrays or evaluated. It never decreases."""
        return len(self.arrays) + len(self.associative) + len(self.integers) + self.unread

    def assign_defaults(self, words: tuple[Word, ...], state: State, frame: ExecutionFrame) -> State:
        """Return the state after the assignments inside `words` (`: "${x:=..}"`)."""
        for word in words:
            for part in word.parts:
                if isinstance(part, Expansion) and part.operator in ASSIGNS:
                    value = self._expander.expand_single(Word((replace(part, quoted=True),), part.span), state, frame)
                    state = self.assign(state, part.name, replace(value, may_split=False), frame.place(part.span))
        return state

    def expand_command(self, words: tuple[Word, ...], state: State, frame: ExecutionFrame) -> list[AbstractWord]:
        """Return the expanded words of a command, in which `export`, `local` and so on assign without splitting."""
        name = words[0].parts[0] if words and len(words[0].parts) == 1 else None
        if not isinstance(name, Text) or name.quoted or name.text not in _DECLARERS:
            return self._expander.expand_all(words, state, frame)
        return self._expander.expand_all(words, state, frame, self._declared)

    def _declared(self, word: Word, state: State, frame: ExecutionFrame) -> list[AbstractWord]:
        """Expand a word after `local`, `export` and so on: the value is not split, and its globs stay as they are."""
        first = word.parts[0]
        match = _DECLARATION.match(first.text) if isinstance(first, Text) and not first.quoted else None
        if not match or not isinstance(first, Text) or word.literal is not None:
            return self._expander.expand(word, state, frame)
        rest = first.text[match.end() :]
        parts = (replace(first, text=rest), *word.parts[1:]) if rest else word.parts[1:]
        value = self._expander.expand_single(Word(parts, word.span), state, frame)
        value = replace(value, may_split=False, globbed=value.globbed and not value.may_split)
        return [replace(concatenate([literal(match[0]), value], frame.place(word.span)), value=value)]

    def expand_assignments(
        self,
        items: tuple[Assignment | ArrayAssignment, ...],
        state: State,
        frame: ExecutionFrame,
        *,
        keyed: bool = False,
    ) -> tuple[AssignedValues, State]:
        """Return the value of each assignment, and the state after all. Later items see the values of earlier items.

        `keyed`: the assignments are words of `declare -A`.
        """
        values: AssignedValues = []
        for item in items:
            if keyed and isinstance(item, ArrayAssignment) and self.become_associative(item.name):
                old = state.variables.get(item.name, ANYTHING)
                state = state.assign(item.name, replace(old, texts=(), items=None, may_split=True, keyed=True))
            values.append((item, self._value(item, state, frame)))
            state = state.assign(item.name, values[-1][1])
        return values, state

    def _value(self, item: Assignment | ArrayAssignment, state: State, frame: ExecutionFrame) -> AbstractWord:
        if isinstance(item, ArrayAssignment):
            return self._array(item, state, frame)
        value = self._expander.expand_single(item.value, state, frame)
        # An assignment is not split, and its globs stay as they are.
        value = replace(value, may_split=False, globbed=value.globbed and not value.may_split)
        if item.name in self.integers:
            self.number(item.name, value, frame.place(item.span))
            return NUMBER if item.append else value  # it adds
        if item.append:
            old = state.variables.get(item.name)
            return concatenate([old, value], None) if old is not None else AbstractWord()
        return value

    def note_declared(self, command: Command, words: list[AbstractWord]) -> None:
        """Note the arrays of `declare` that may be associative: one of the expanded `words` may be the flag `-A`."""
        if any(word.text is None or (word.text[:1] == "-" and "A" in word.text) for word in words[1:]):
            self.associative.update(item.name for item in command.assignments)

    def become_associative(self, name: str) -> bool:
        """Note that `declare -A` makes `name` an associative array. Return True if it is one certainly: bash does not
        convert an indexed array.
        """
        self.associative.add(name)
        return name not in self.arrays and not self.unread

    def _element(self, item: ArrayAssignment, index: Subscript, state: State, frame: ExecutionFrame) -> AbstractWord:
        """Return the array after `name[index]=value`. bash evaluates the subscript, and ends the line if it is below
        zero and counts too far from the end.
        """
        old = state.variables.get(item.name, ANYTHING)
        place = self._expander.subscript(item.name, index, old, state, frame)
        if not old.keyed and not place.plain:
            text = f"`{item.name}[..]=` with a subscript that may be negative, at which bash ends the line"
            self._findings.unknown(text, Check.ARRAY_INDEX, frame.place(item.span))
        value = replace(self._expander.expand_single(item.items[0], state, frame), may_split=False)
        number = int(place.text) if place.text is not None and place.text.isdigit() and not old.keyed else None
        if old.items and number is not None and number <= len(old.items) and not item.append and not value.globbed:
            items = (*old.items[:number], value, *old.items[number + 1 :])
            return replace(items[0], items=items, span=None)
        known = (text for each in old.items or () for text in each.texts)
        hints = (*value.texts, *value.hints, *old.texts, *old.hints, *known, *_keys(old, (place,)))
        return _some_array(hints, keyed=old.keyed)

    def _array(self, item: ArrayAssignment, state: State, frame: ExecutionFrame) -> AbstractWord:
        old = state.variables.get(item.name, ANYTHING)
        if not old.keyed:
            self.arrays.add(item.name)
        if item.index is not None:
            return self._element(item, item.index, state, frame)
        words, places = self._expand_items(item, old, state, frame)
        self._findings.classifier.budget.spend(len(words))
        from policy.interpreter.uncertain_paths import likely_texts  # only where there is an array

        classifier = self._findings.classifier
        likely = tuple(text for each in words for text in likely_texts(classifier, each, state.cwds))
        hints = (*likely[: abstract_word.MOST_HINTS], *_keys(old, places))
        unordered = old.keyed or item.name in self.associative or _has_gaps(places)
        items = None if unordered or any(each.may_split for each in words) else words
        if item.append:
            hints = (*old.hints, *old.texts, *hints)
            items = (*old.items, *items) if old.items is not None and items is not None and not places else None
        if items:
            return replace(items[0], items=items, span=None)
        return replace(_some_array(hints, keyed=old.keyed), items=items)

    def _expand_items(
        self, item: ArrayAssignment, old: AbstractWord, state: State, frame: ExecutionFrame
    ) -> tuple[tuple[AbstractWord, ...], tuple[AbstractWord, ...]]:
        """Return the items of a list, and their subscripts if it has any."""
        if not item.places:
            return tuple(self._expander.expand_all(item.items, state, frame)), ()
        words: list[AbstractWord] = []
        places: list[AbstractWord] = []
        for word, index in zip(item.items, item.places, strict=True):
            if index is None:
                found = self._expander.expand_all((word,), state, frame)
                words += found
                places += [ANYTHING] * len(found)
            else:
                places.append(self._expander.subscript(item.name, index, old, state, frame))
                words.append(replace(self._expander.expand_single(word, state, frame), may_split=False))
        return tuple(words), tuple(places)

    def declare(self, state: State, name: str, value: AbstractWord, span: SourceSpan, *, own: bool) -> State:
        """Return the state after `local name=(..)`."""
        if own:
            return self.assign(state.own(name, ANYTHING), name, value, span)
        return self.assign(state, name, self.join_outer_value(state, name, value), span)

    def join_outer_value(self, state: State, name: str, value: AbstractWord) -> AbstractWord:
        """Return the value of a name after `declare -g`, which may change a variable hidden by a local variable."""
        if state.locals is None:
            return value
        self.revealed.add(name)
        return join(state.variables.get(name, ANYTHING), value)

    def assign(self, state: State, name: str, value: AbstractWord, span: SourceSpan | None) -> State:
        """Return the state after an assignment without `export`. A variable that is in the environment from the start
        still reaches later programs.
        """
        if state.allexport:
            return self.export(state, name, value, span)
        own = self.may_assign(name, value, span, exported=False)
        if not own:
            state = self._note_export(state, name, value)
        value = value if own and name not in _SELF_CHANGING else ANYTHING
        self._traps.note_value(name, value)
        return state.assign(name, value)

    def declare_unset(self, state: State, name: str, span: SourceSpan | None, *, array: bool) -> State:
        """Judge a declaration without a value: the shell no longer sees the old value, and of an array no program does.

        A local variable is unset at first, so that bash finds no `PATH` in it. Arrays are never exported (bash(1)).
        """
        if self.reach(name, _UNSET.get(name, ANYTHING), exported=False) is VariableReach.SHELL:
            self.report_obeyed(name, span)
        return self._note_export(state, name, ANYTHING) if array else state

    def _note_export(self, state: State, name: str, value: AbstractWord) -> State:
        """Return the state after a change that later programs see, if the variable was exported from the start."""
        if self.reach(name, value, exported=False) is VariableReach.PASSED:
            state = replace(state, exports=tuple(dict.fromkeys((*state.exports, name))))
            self._traps.note_state(state)
        return state

    def may_assign(self, name: str, value: AbstractWord, span: SourceSpan | None, *, exported: bool) -> bool:
        """Return True if setting a variable changes no program. Report a variable that the shell itself obeys."""
        if name in self.integers:
            self.number(name, value, span)
        verdict = self.reach(name, value, exported=exported)
        if verdict is VariableReach.SHELL:
            self.report_obeyed(name, span)
        return verdict is VariableReach.OWN

    def reach(self, name: str, value: AbstractWord, *, exported: bool) -> VariableReach:
        """Return the widest reach of setting `name` to one of the texts of `value`."""
        inherited = self._findings.classifier.profile.environment
        return max(variable_reach(name, text, inherited, exported=exported) for text in value.texts or (None,))

    def number(self, name: str, value: AbstractWord, span: SourceSpan | None) -> None:
        """Report a value of a `declare -i` variable that may not be a number, because bash evaluates it."""
        each = (value,) if value.items is None else value.items
        if not all(abstract_word.is_number(item) and not item.empty for item in each):
            text = f"bash evaluates the value assigned to `{name}`, which may not be a number"
            self._findings.unknown(text, Check.INTEGER_VARIABLE, span)

    def report_obeyed(self, name: str, span: SourceSpan | None) -> None:
        """Report that the script sets a variable that the shell or programs obey.

        A variable of programs can at most make a later program run other code inside the sandbox. One of bash itself
        may change the meaning of the rest of the script.
        """
        text = f"sets {name}, which the shell or other programs may use"
        of_bash = name != "PATH" and re.fullmatch(_SHELL, name)
        (self._findings.unknown if of_bash else self._findings.bounded)(text, Check.SPECIAL_VARIABLE, span)

    def export(self, state: State, name: str, value: AbstractWord | None, span: SourceSpan | None) -> State:
        """Return the state after a variable was exported to every later program. With `value` None, it keeps its
        value.
        """
        known = value if value is not None else state.variables.get(name, ANYTHING)
        if not self.may_assign(name, known, span, exported=True):
            state = replace(state, exports=(*state.exports, exported_entry(name, known)))
            self._traps.note_state(state)
        if value is None:
            return state
        self._traps.note_value(name, value)
        return state.assign(name, value)

    def compute(self, expression: Expression | None, state: State, frame: ExecutionFrame, span: SourceSpan) -> State:
        """Return the state after `((..))`."""
        if expression is None:
            return state
        self._expander.evaluate(expression, state, frame, span, fails=any(ordered_changes(expression)))
        for change, certain in ordered_changes(expression):
            before = partial(self._expander.value, state=state)
            known = value_after(change, before)
            if not certain:
                known = join(before(change.name), NUMBER)
            state = self.assign(state, change.name, known, frame.place(span))
        return state


KEYED_FLAGS = frozenset(["-A", "-gA", "-Ag", "-rA", "-Ar"])  # of `declare`, for an associative array


def declares_keyed(command: Command) -> bool:
    """Return True if the command is `declare -A name=(..)`, with the flag certainly before the names."""
    flags = list(takewhile(lambda word: (word.literal or "")[:1] == "-" and word.literal != "--", command.words[1:]))
    begin = min(item.span.start for item in command.assignments)
    return any(word.literal in KEYED_FLAGS for word in flags) and all(word.span.end < begin for word in flags)


def _some_array(hints: tuple[str, ...], *, keyed: bool) -> AbstractWord:
    """Return the value of an array whose elements are not known."""
    return replace(ANYTHING, hints=tuple(dict.fromkeys(hints))[: abstract_word.MOST_HINTS], keyed=keyed)


def _keys(array: AbstractWord, places: tuple[AbstractWord, ...]) -> tuple[str, ...]:
    """Return the known keys among subscripts of an associative array. `${!x[@]}` is the list of them."""
    return tuple(text for place in places for text in place.texts) if array.keyed else ()


def _has_gaps(places: tuple[AbstractWord, ...]) -> bool:
    """Return True if the subscripts of a list may be others than 0, 1, 2 and so on."""
    return any(place.text != str(number) for number, place in enumerate(places))
