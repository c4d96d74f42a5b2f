"""The syntax tree of a script. Text that the parser does not fully understand is Opaque."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cache
from itertools import takewhile
from operator import attrgetter
from typing import Any
from typing import Literal as Of

from policy.model.abstract_word import SourceSpan
from policy.model.frozen import dataclass, fields, is_dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Decoded literal text. `quoted`: the text came from quotes or an escape, so it has no glob, brace or tilde
    meaning.
    """

    text: str
    span: SourceSpan
    quoted: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """One of `$x`, `${x}`, `${#x}`, `$1`, `$?`, `$@`. Forms that expand their value again are Opaque."""

    name: str
    span: SourceSpan
    quoted: bool
    length: bool = False  # ${#x}
    subscript: str = ""  # of ${x[0]} the number, or `@`, or `*`


@dataclass(frozen=True, slots=True)
class Expansion:
    """The expansion `${name OPERATOR word}`. The commands in `words` run when the value is expanded, or may run:
    `${x:-$(a)}` runs `a` only if `x` is unset or empty.

    Two words: pattern and replacement of `/`, offset and length of `:`. A Glob in a pattern matches text, not files.
    Offset and length are digits or one Arithmetic. Operator `[`: the element of `index`; no word. Operator `!`: the
    value of `name` is the name of the parameter; no word. With `subscript`, it is the list of the subscripts.
    """

    name: str
    operator: str
    words: tuple["Word", ...]
    span: SourceSpan
    quoted: bool
    subscript: str = ""
    index: "Subscript | None" = None  # of ${x[index]}, if it is neither in `subscript` nor empty


ASSIGNS = frozenset((":=", "="))  # operators of an Expansion that also assign the value if the variable has none


@dataclass(frozen=True, slots=True)
class Number:
    value: int


@dataclass(frozen=True, slots=True)
class Count:
    """A parameter that is a number, never below zero: `$#`, `$?`, `$$`, `${#x}`."""

    spelled: str


@dataclass(frozen=True, slots=True)
class Name:
    """A variable (or `$1`) that arithmetic reads. bash evaluates its value: only numbers are harmless."""

    name: str
    dollar: bool  # `$x`: bash inserts its value as text before it reads the expression


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on one, two or (`?:`) three operands; `,` takes any number of operands."""

    operator: str
    operands: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class ArithmeticAssignment:
    """An assignment in arithmetic: `x=1`, `x+=1`, `x++`, `--x`. The last two have no operand."""

    name: str
    operator: str
    operand: "Expression | None"


@dataclass(frozen=True, slots=True)
class Output:
    """A substitution `$(..)` in arithmetic. Its output is inserted as text; the interpreter checks that the output is a
    number.
    """

    part: "Substitution"


Expression = Number | Count | Name | Operation | ArithmeticAssignment | Output


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield `expression` and the expressions inside it, each before its operands."""
    yield expression
    operands: tuple[Expression, ...] = ()
    if isinstance(expression, Operation):
        operands = expression.operands
    elif isinstance(expression, ArithmeticAssignment) and expression.operand is not None:
        operands = (expression.operand,)
    for operand in operands:
        yield from walk(operand)


def find_outputs(expression: Expression) -> Iterator["Substitution"]:
    """Return the substitutions `$(..)` in `expression`, in order."""
    return (node.part for node in walk(expression) if isinstance(node, Output))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The arithmetic expansion `$((..))`, without assignments."""

    expression: Expression
    span: SourceSpan
    quoted: bool


@dataclass(frozen=True, slots=True)
class Substitution:
    """A command or process substitution: `$(..)`, backquotes, `<(..)` or `>(..)`. `body` runs when the word is
    expanded.
    """

    body: "Script"
    kind: Of["command", "process-in", "process-out"]
    span: SourceSpan
    quoted: bool


@dataclass(frozen=True, slots=True)
class Glob:
    """An unquoted `*`, `?` or `[..]`, replaced by the names of files that exist when the script runs."""

    text: str
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Tilde:
    """An unquoted leading `~` (`user` empty) or `~name`."""

    user: str
    span: SourceSpan


Part = Text | Parameter | Expansion | Arithmetic | Substitution | Glob | Tilde


@dataclass(frozen=True, slots=True)
class Word:
    """One word after quote removal. `parts` cover `span` without gaps; an empty quoted word has one empty Text."""

    parts: tuple[Part, ...]
    span: SourceSpan

    @property
    def literal(self) -> str | None:
        """Return the exact text that the command receives, or None if any part is known only at run time."""
        parts = self.parts
        if len(parts) == 1:
            return parts[0].text if isinstance(parts[0], Text) else None
        texts = [part.text for part in parts if isinstance(part, Text)]
        return "".join(texts) if len(texts) == len(parts) else None

    @property
    def prefix(self) -> str:
        """Return the literal text with which the word certainly starts; may be empty."""
        texts = takewhile(lambda part: isinstance(part, Text), self.parts)
        return "".join(part.text for part in texts if isinstance(part, Text))


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    value: Word
    append: bool
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Subscript:
    """The subscript of one element of an array. bash takes it as text if the array is associative, and otherwise
    evaluates it as arithmetic.

    Attributes:
        key: the subscript as text; None if it cannot be the key of an associative array with certainty.
        number: the subscript as arithmetic; None if it is no plain arithmetic.
    """

    key: Word | None
    number: Expression | None
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class ArrayAssignment:
    """The assignment `name=(items)` or `name[index]=item`.

    Attributes:
        places: of `name=(items)`, the subscript of each item, or None for an item without one; empty if no item has
            a subscript.
    """

    name: str
    items: tuple[Word, ...]
    append: bool
    span: SourceSpan
    index: Subscript | None = None
    places: tuple[Subscript | None, ...] = ()


class RedirectOp(StrEnum):
    __hash__ = str.__hash__  # that of Enum is a Python function

    IN = "<"
    OUT = ">"
    APPEND = ">>"
    CLOBBER = ">|"
    READ_WRITE = "<>"
    OUT_ERR = "&>"
    APPEND_ERR = "&>>"
    DUP_IN = "<&"
    DUP_OUT = ">&"
    HERE_STRING = "<<<"
    HERE_DOC = "<<"


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirection. `fd` is the number before the operator, or None. For HERE_DOC `target` is the body (its
    substitutions are interpreted). `variable`: of `{name}>`, the variable that receives the number of the descriptor.
    The target of `>&` and `<&` is a number, `-`, or a Parameter.
    """

    op: RedirectOp
    fd: int | None
    target: Word
    span: SourceSpan
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command. `words` is empty for a bare assignment or redirection. An array that
    `local`, `declare` or `typeset` assigns is one of `assignments`, not of `words`.
    """

    assignments: tuple[Assignment | ArrayAssignment, ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline, or a single command that is negated (`!`) or `timed`. `merged`: some `|&` also passes standard
    error.
    """

    commands: tuple["Node", ...]
    negated: bool
    span: SourceSpan
    timed: bool = False
    merged: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """The group `{ ..; }`."""

    body: "Script"
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Subshell:
    """The subshell `( .. )`: a `cd` or an assignment inside has no effect after it."""

    body: "Script"
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class For:
    """The loop `for name in words; do body; done`. Without `in`, `words` is None (the positional parameters)."""

    name: str
    words: tuple[Word, ...] | None
    body: "Script"
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Compute:
    """The command `((..))`, which succeeds if the result is not zero."""

    expression: Expression
    place: SourceSpan  # of `((..))` without its redirections
    redirects: tuple[Redirect, ...]
    span: SourceSpan


FILE_TESTS = frozenset(f"-{letter}" for letter in "abcdefghkprsuwxGLNOS")  # of one file, after `test` and in `[[`
FILE_COMPARISONS = frozenset(["-nt", "-ot", "-ef"])
NUMERIC = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))  # operators of a Condition that evaluate both words


@dataclass(frozen=True, slots=True)
class Condition:
    """One test: an operator and its one or two words. Without an operator, the test is true if the word is
    not empty.
    """

    operator: str
    words: tuple[Word, ...]
    span: SourceSpan


TestOperator = Of["!", "&&", "||", "(", ")"]


@dataclass(frozen=True, slots=True)
class Test:
    """The command `[[ .. ]]`. Its words are not split, `<` and `>` compare texts, `==` compares with a pattern, and
    `=~` with a regular expression.
    """

    pieces: tuple[Condition | TestOperator, ...]
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Branch:
    """The branch `patterns) body ;;`. The words of the patterns are expanded, and may run commands."""

    patterns: tuple[Word, ...]
    body: "Script"


@dataclass(frozen=True, slots=True)
class Case:
    """The command `case word in .. esac`, every branch ended by `;;`."""

    word: Word
    branches: tuple[Branch, ...]
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Loop:
    """The loop `for ((first; condition; step)); do body; done`."""

    first: Expression | None
    condition: Expression | None
    step: Expression | None
    body: "Script"
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class While:
    condition: "Script"
    body: "Script"
    until: bool
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class If:
    """The command `if`: `branches` are (condition, body) for `if` and every `elif`; `otherwise` is the `else` body."""

    branches: tuple[tuple["Script", "Script"], ...]
    otherwise: "Script | None"
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Function:
    """The definition `name() { body; }`. The body runs when the function is called, with the words of that call."""

    name: str
    body: Group | Subshell
    span: SourceSpan


Node = Command | Pipeline | Group | Subshell | For | Loop | Compute | Test | Case | While | If | Function


@dataclass(frozen=True, slots=True)
class ListElement:
    """One list element and the operator that follows it: `;` (also newline, or nothing), `&`, `&&`, `||`."""

    node: Node
    then: Of[";", "&", "&&", "||"]


@dataclass(frozen=True, slots=True)
class Script:
    items: tuple[ListElement, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Opaque:
    """Text that the parser refuses. `reason` is the cause as text for the user; `span` is the range of the text."""

    reason: str
    span: SourceSpan


def nodes(tree: object, without: tuple[type, ...] = ()) -> Iterator[object]:
    """Yield every node of `tree`. Nodes of the types `without` are left out with everything that they contain."""
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        kind: Any = type(node)
        if kind is tuple:
            pending += node
            continue
        is_node, below = _below(kind)
        if is_node and kind not in without:
            yield node
            if below is not None:
                pending += below(node)


@cache
def _below(kind: Any) -> tuple[bool, Callable[[object], tuple[object, ...]] | None]:
    """Return True if `kind` is the class of a node, and the function that gives the values below such a node, or None
    if there are none.
    """
    if not is_dataclass(kind) or kind is SourceSpan:
        return False, None
    names = [each.name for each in fields(kind) if each.type not in (SourceSpan, str, bool, int)]
    if len(names) == 1:
        only = attrgetter(*names)
        return True, lambda node: (only(node),)
    return True, attrgetter(*names) if names else None
