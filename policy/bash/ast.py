"""The small tree that a script becomes. Whatever the reader does not fully understand is Opaque, never a guess."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Literal as Of

from policy.model.frozen import dataclass
from policy.model.span import SourceSpan


@dataclass(frozen=True, slots=True)
class Text:
    """Decoded literal text. `quoted`: came from quotes or an escape, so no glob, brace or tilde meaning."""

    text: str
    span: SourceSpan
    quoted: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$x`, `${x}`, `${#x}`, `$1`, `$?`, `$@`. Never the forms that expand their value again (those are Opaque)."""

    name: str
    span: SourceSpan
    quoted: bool
    length: bool = False  # ${#x}
    subscript: str = ""  # of ${x[0]} the number, or `@`, or `*`


@dataclass(frozen=True, slots=True)
class Expansion:
    """`${name OPERATOR word}`. `words` run when the value is expanded, or may: `${x:-$(a)}` runs `a` only if need be.

    Two words: pattern and replacement of `/`, offset and length of `:`. A Glob in a pattern matches text, not files.
    """

    name: str
    operator: str
    words: tuple["Word", ...]
    span: SourceSpan
    quoted: bool
    subscript: str = ""


ASSIGNS = frozenset((":=", "="))  # operators of an Expansion that give the variable the value, if it has none


@dataclass(frozen=True, slots=True)
class Number:
    value: int


@dataclass(frozen=True, slots=True)
class Count:
    """`$#`, `$?`, `$$`, `${#x}`: some number, never below zero."""

    spelled: str


@dataclass(frozen=True, slots=True)
class Name:
    """A variable (or `$1`) that arithmetic reads. bash evaluates its value: only numbers are harmless."""

    name: str
    dollar: bool  # `$x`: put in as text before the rest is read


@dataclass(frozen=True, slots=True)
class Operation:
    """One, two or (`?:`) three operands; `,` takes any number."""

    operator: str
    operands: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Change:
    """`x=1`, `x+=1`, `x++`, `--x`. The last two have no operand."""

    name: str
    operator: str
    operand: "Expression | None"


@dataclass(frozen=True, slots=True)
class Output:
    """`$(..)` in arithmetic: what it prints is put in as text. That this is a number, the walk must see."""

    part: "Substitution"


Expression = Number | Count | Name | Operation | Change | Output


def outputs(expression: Expression) -> Iterator["Substitution"]:
    """The substitutions in it."""
    match expression:
        case Output(part=part):
            yield part
        case Operation(operands=operands):
            for operand in operands:
                yield from outputs(operand)
        case Change(operand=operand) if operand is not None:
            yield from outputs(operand)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`$((..))`. It changes nothing."""

    expression: Expression
    span: SourceSpan
    quoted: bool


@dataclass(frozen=True, slots=True)
class Substitution:
    """`$(..)`, backquotes, `<(..)` or `>(..)`. `body` runs when the word is expanded."""

    body: "Script"
    kind: Of["command", "process-in", "process-out"]
    span: SourceSpan
    quoted: bool


@dataclass(frozen=True, slots=True)
class Glob:
    """Unquoted `*`, `?` or `[..]`: becomes file names that exist when the script runs."""

    text: str
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Tilde:
    """Unquoted leading `~` (`user` empty) or `~name`."""

    user: str
    span: SourceSpan


Part = Text | Parameter | Expansion | Arithmetic | Substitution | Glob | Tilde


@dataclass(frozen=True, slots=True)
class Word:
    """One word after quote removal. `parts` tile `span`; an empty quoted word has one empty Text."""

    parts: tuple[Part, ...]
    span: SourceSpan

    @property
    def literal(self) -> str | None:
        """The exact text the command receives, or None when any part depends on the moment."""
        if len(self.parts) == 1:  # as most words have
            part = self.parts[0]
            return part.text if isinstance(part, Text) else None
        if all(isinstance(part, Text) for part in self.parts):
            return "".join(part.text for part in self.parts if isinstance(part, Text))
        return None

    @property
    def prefix(self) -> str:
        """The literal text the word certainly starts with (may be empty)."""
        text = []
        for part in self.parts:
            if not isinstance(part, Text):
                break
            text.append(part.text)
        return "".join(text)


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    value: Word
    append: bool
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class ArrayAssignment:
    """`name=(items)`, without subscripts."""

    name: str
    items: tuple[Word, ...]
    append: bool
    span: SourceSpan


class RedirectOp(StrEnum):
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
    """`fd` is the number written, or None. For HERE_DOC `target` is the body (its substitutions walked)."""

    op: RedirectOp
    fd: int | None
    target: Word
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command. `words` is empty for a bare assignment or redirection. An array among the assignments of
    `local`, `declare` or `typeset` stands after that word."""

    assignments: tuple[Assignment | ArrayAssignment, ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Also a single command that is negated (`!`) or `timed`. `merged`: some `|&` takes errors along."""

    commands: tuple["Node", ...]
    negated: bool
    span: SourceSpan
    timed: bool = False
    merged: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """`{ ..; }`."""

    body: "Script"
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Subshell:
    """`( .. )`: a `cd` or assignment inside does not outlive it."""

    body: "Script"
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class For:
    """`for name in words; do body; done`. Without `in`, `words` is None (the positional parameters)."""

    name: str
    words: tuple[Word, ...] | None
    body: "Script"
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Compute:
    """`((..))`, a command that succeeds when the result is not zero."""

    expression: Expression
    place: SourceSpan  # of `((..))` alone
    redirects: tuple[Redirect, ...]
    span: SourceSpan


FILE_TESTS = frozenset(f"-{letter}" for letter in "abcdefghkprsuwxGLNOS")  # of one file, after `test` and in `[[`
FILE_COMPARISONS = frozenset(["-nt", "-ot", "-ef"])
NUMERIC = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))  # operators of a Condition that evaluate both words


@dataclass(frozen=True, slots=True)
class Condition:
    """One test: an operator and its one or two words. Without an operator, whether the word is not empty."""

    operator: str
    words: tuple[Word, ...]
    span: SourceSpan


Joint = Of["!", "&&", "||", "(", ")"]


@dataclass(frozen=True, slots=True)
class Test:
    """`[[ .. ]]`. No word in it is split, `<` and `>` compare, and after `==` stands a pattern, after `=~` a regex."""

    pieces: tuple[Condition | Joint, ...]
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Branch:
    """`patterns) body ;;`. The words of the patterns are expanded, and may run something."""

    patterns: tuple[Word, ...]
    body: "Script"


@dataclass(frozen=True, slots=True)
class Case:
    """`case word in .. esac`, every branch ended by `;;`."""

    word: Word
    branches: tuple[Branch, ...]
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Loop:
    """`for ((first; condition; step)); do body; done`."""

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
    """`branches` are (condition, body) for `if` and every `elif`; `otherwise` is the `else` body."""

    branches: tuple[tuple["Script", "Script"], ...]
    otherwise: "Script | None"
    redirects: tuple[Redirect, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Function:
    """`name() { body; }`: nothing of it runs before the function is called, and then with the words of that call."""

    name: str
    body: Group | Subshell
    span: SourceSpan


Node = Command | Pipeline | Group | Subshell | For | Loop | Compute | Test | Case | While | If | Function


@dataclass(frozen=True, slots=True)
class Item:
    """One list element and the operator that follows it: `;` (also newline, or nothing), `&`, `&&`, `||`."""

    node: Node
    then: Of[";", "&", "&&", "||"]


@dataclass(frozen=True, slots=True)
class Script:
    items: tuple[Item, ...]
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Opaque:
    """Text the reader will not vouch for. `reason` says what, in the user's words; `span` says where."""

    reason: str
    span: SourceSpan
