"""A strict parser of everyday bash: returns exactly the tree of what bash would do, or Opaque. It never guesses.

Lists, pipelines, simple commands and redirections are here; `if`, `for`, `case` and `[[` in `compound.py`, words in
`words.py`, `${..}` in `parameter_expansion.py`, `((..))` in `arithmetic.py`, here-documents in `heredoc.py`. Syntax
that none of these modules accepts is refused, so an unforeseen construct is refused as well.
"""

import re
from typing import Literal as Of

from policy.bash import ast
from policy.bash.arithmetic import ArithmeticParser
from policy.bash.ast import Expression, Node, Opaque, Part, Redirect, RedirectOp, Script, Text, Word
from policy.bash.compound import KEYWORD, MAY_REDIRECT, Compound
from policy.bash.heredoc import parse_here_document
from policy.bash.objections import objection, objection_to_command, objection_to_variable
from policy.bash.parameter_expansion import parse_expansion
from policy.bash.scanner import RefusalError
from policy.bash.words import Position
from policy.model.abstract_word import SourceSpan

_ARRAY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=(?=\()")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_ELEMENT = re.compile(r"\$\{#?[A-Za-z_][A-Za-z0-9_]*\[(?:[@*]|-?[0-9]+)\]")
_SUBSCRIPT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\[")
_REDIRECTION = re.compile(r"([0-9]*)(&>>|&>|<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)")
_DUPLICATE = re.compile(r"(?:[0-9]{1,3}-?|-)(?=[ \t\n;|&)]|[<>](?!\()|(?:\\\n)+[ \t]|\Z)")
_COPIED = re.compile(
    r"(?P<quote>\"?)\$(?:[A-Za-z_][A-Za-z0-9_]*|[1-9]|\{(?:[A-Za-z_][A-Za-z0-9_]*|[1-9])\})(?P=quote)"
    r"(?=[ \t\n;|&)]|\Z)"
)
_DESCRIPTOR_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}(?=[<>](?!\())")
_EXPANDING_SIGNS = frozenset("$`\\\"'\n")
_ENDS_COMMAND = frozenset("\n;|)")
_NO_COMMAND = frozenset(("", "-", "!", "\n", ";", "|", "&", ")"))

_Then = Of[";", "&", "&&", "||"]
_OPERATORS: tuple[_Then, ...] = ("&&", "||", "&", ";")


def read(text: str) -> Script | Opaque:
    """Return the tree of `text`, or Opaque with the reason and the place. Never raises; the time is bounded."""
    refused = objection(text)
    if refused is not None:
        return refused
    reader = _Reader(text)
    try:
        tree = reader.commands("")
    except RefusalError as refusal:
        return Opaque(refusal.reason, refusal.span)
    if reader.open_assignments:
        at = max(text.find("="), 0)
        return Opaque("a `${..}` form that is not understood: `${x:=..}` other than after `:`", SourceSpan(at, at + 1))
    return tree


def read_arithmetic(text: str) -> Expression | None:
    """Return the expression that `let` computes for the word `text`, or None if that is not certain."""
    if objection(text) is not None or not _EXPANDING_SIGNS.isdisjoint(text):
        return None
    reader = _Reader(text)
    try:
        expression = reader.arithmetic(changes=True)
    except RefusalError:
        return None
    return expression if reader.pos == len(text) else None


def _declares(word: Word) -> bool:
    """Return True if arrays may be assigned in the words of this command."""
    part = word.parts[0]
    plain = len(word.parts) == 1 and isinstance(part, Text) and not part.quoted
    return plain and word.literal in ("local", "declare", "typeset")


def _assigns_itself(item: ast.Assignment | ast.ArrayAssignment) -> bool:
    """Return True for `x=${x:=y}`: the assignment inside the value and the one around it give `x` the same value."""
    if not isinstance(item, ast.Assignment) or item.append or len(item.value.parts) != 1:
        return False
    part = item.value.parts[0]
    return isinstance(part, ast.Expansion) and part.operator in ast.ASSIGNS and part.name == item.name


class _Reader(Compound):
    def arithmetic(self, *, changes: bool) -> Expression:
        return ArithmeticParser(self, changes).parse_list()

    def expansion(self, start: int, *, quoted: bool, body: bool) -> Part:
        return parse_expansion(self, start, quoted=quoted, body=body)

    # -- lists and pipelines -------------------------------------------------------------------------------------

    def commands(self, close: str) -> Script:
        """Return the list up to `close`, which is not consumed: `)`, keywords separated by blanks, or ""
        for the end.
        """
        keywords = frozenset(close.split()) if close != ")" else frozenset()
        opening = self.pos
        items: list[ast.ListElement] = []
        self.linebreak()
        while not self._closed(close, keywords):
            node = self._pipeline()
            self.blanks()
            then, separated = self._operator(close)
            items.append(ast.ListElement(node, then))
            if then in ("&&", "||"):
                if self._closed(close, keywords):
                    raise self.refusal(f"nothing after `{then}`")
            elif not separated:
                if self.char() not in (")" if close == ")" else ""):
                    raise self.refusal(f"unexpected `{self.char()}`")
                break
        if self.pos >= self.end and close:
            raise self.refusal(f"`{close.replace(' ', '` or `')}` is missing", max(opening - 1, 0))
        if self.pos >= self.end and self.read_bodies is not None:
            raise self.refusal("a line that starts a here-document is continued inside a word")
        if not items:
            if keywords and close != "esac":
                raise self.refusal("an empty list of commands", opening)
            return Script((), SourceSpan(opening, opening))
        return Script(tuple(items), SourceSpan(items[0].node.span.start, items[-1].node.span.end))

    def _closed(self, close: str, keywords: frozenset[str]) -> bool:
        if self.pos >= self.end:
            return True
        if close == ")":
            return self.char() == ")"
        if close == "esac" and self.ahead(";;"):
            return True
        found = KEYWORD.match(self.text, self.pos, self.end) if keywords else None
        return found is not None and found[1] in keywords

    def _operator(self, close: str) -> tuple[_Then, bool]:
        """Step over the operator after a list element. Return the operator, and True if it certainly ends
        the element.
        """
        char = self.char()
        if char == "\n":
            self.linebreak()
            return ";", True
        if char not in ("&", "|", ";"):
            return ";", False
        if char == ";":
            if close == "esac" and self.ahead(";;") and not self.ahead(";;&"):
                return ";", True
            if self.ahead(";;") or self.ahead(";&"):
                branch = "a branch of `case` that continues with the next one (`;&`, `;;&`)"
                reason = branch if close == "esac" else "`;;` or `;&` outside of `case`"
                raise self.refusal(reason, self.pos, self.pos + 2)
        for operator in _OPERATORS:
            if self.ahead(operator):
                self.pos += len(operator)
                self.linebreak()
                return operator, operator in (";", "&")
        return ";", False

    def _pipeline(self) -> Node:
        start = self.pos
        timed = self._time()
        negated = self.char() == "!" and (self.ahead("! ") or self.ahead("!\t"))
        if negated:
            self.pos += 1
            self.blanks()
        nodes = [self.command()]
        self.blanks()
        merged = False
        while self.char() == "|" and not self.ahead("||"):
            both = self.ahead("|&")
            merged = merged or both
            self.pos += 2 if both else 1
            self.linebreak()
            nodes.append(self.command())
            self.blanks()
        if len(nodes) == 1 and not negated and not timed:
            return nodes[0]
        return ast.Pipeline(tuple(nodes), negated, SourceSpan(start, nodes[-1].span.end), timed, merged)

    def _time(self) -> bool:
        """Step over `time` and its `-p`."""
        if not self.ahead("time") or self.keyword_here() != "time":
            return False
        start = self.pos
        self.pos += 4
        self.blanks()
        if self.ahead("-p ") or self.ahead("-p\t"):
            self.pos += 2
            self.blanks()
        if self.level:
            raise self.refusal("`time` inside a substitution, where bash may not know it", start, start + 4)
        blank = self.text[start + 4 : start + 5] in (" ", "\t")
        if not blank or self.char() in _NO_COMMAND:
            raise self.refusal("`time` that is not followed by a command", start, start + 4)
        return True

    # -- simple commands ----------------------------------------------------------------------------------------

    def simple(self) -> ast.Command:
        self.count_words()
        start = last = self.pos
        assignments: list[ast.Assignment | ast.ArrayAssignment] = []
        declared: list[ast.Assignment | ast.ArrayAssignment] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        declares = False
        while True:
            self.blanks()
            char = self.char()
            if not char or char in _ENDS_COMMAND or (char == "&" and not self.ahead("&>")):
                break
            redirect = self.redirection() if char in MAY_REDIRECT else None
            if char == "{" and (found := _DESCRIPTOR_VARIABLE.match(self.text, self.pos, self.end)):
                redirect = self._named_redirection(found)
            if char in ("<", ">") or redirect is not None:
                declares = False  # after such an operator, bash no longer takes `name=(` for an array
            if redirect is not None:
                redirects.append(redirect)
            elif char == "(":
                raise self.refusal("`(` after a word (a function?)")
            elif words:
                array = _ARRAY.match(self.text, self.pos, self.end) if declares else None
                if array:
                    declared.append(self._assignment(array))
                else:
                    words += self.arguments()
            elif found := _ASSIGNMENT.match(self.text, self.pos, self.end):
                assignments.append(self._assignment(found))
            elif found := _SUBSCRIPT.match(self.text, self.pos, self.end):
                assignments.append(self._element(found))
            elif (assignments or redirects) and (found := KEYWORD.match(self.text, self.pos, self.end)):
                raise self.refusal(f"`{found[1]}` after an assignment or a redirection", *found.span())
            else:
                words += self.arguments(name=True)
                declares = bool(words) and _declares(words[0])
            last = self.pos
        span = SourceSpan(start, last)
        if last == start:
            raise self.refusal(f"a command is missing before `{char}`" if char.strip() else "a command is missing")
        if words and any(isinstance(item, ast.ArrayAssignment) for item in assignments):
            raise self.refusal("an array or an array element before a command", start, last)
        if assignments and {each.variable for each in redirects} & {item.name for item in assignments}:
            raise self.refusal("an assignment to the variable that receives a file descriptor", start, last)
        if words and (reason := objection_to_command(tuple(words))):
            raise self.refusal(reason, start, last)
        if not words and not redirects:
            self.open_assignments -= sum(map(_assigns_itself, assignments))
        if words and words[0].literal == ":" and not assignments:
            expansions = (part for word in words for part in word.parts if isinstance(part, ast.Expansion))
            self.open_assignments -= sum(part.operator in ast.ASSIGNS for part in expansions)
        return ast.Command((*assignments, *declared), tuple(words), tuple(redirects), span)

    def _assignment(self, found: re.Match[str]) -> ast.Assignment | ast.ArrayAssignment:
        start = self.pos
        self.pos = found.end()
        if self.char() == "(":
            return self._array(found)
        value = self.word(Position.ASSIGNED)
        append = bool(found[2])
        if reason := objection_to_variable(found[1], None if append else value):
            raise self.refusal(reason, start, self.pos)
        return ast.Assignment(found[1], value, append, SourceSpan(start, self.pos))

    def _element(self, found: re.Match[str]) -> ast.ArrayAssignment:
        """Return the assignment `name[index]=value` at the cursor."""
        start = self.pos
        if self.level:
            raise self.refusal("an array element inside a substitution, where bash may not read it", start, found.end())
        self.pos = found.end()
        from policy.bash.subscript import parse_subscript  # only where there is a subscript

        index = parse_subscript(self)
        if index is None or not self.ahead("]"):
            raise self.refusal("an array element or a glob where a command name is expected", start, start + 1)
        append = self.ahead("]+=")
        if not append and not self.ahead("]="):
            raise self.refusal("an array element or a glob where a command name is expected", start, start + 1)
        self.pos += 3 if append else 2
        if self.char() == "(":
            raise self.refusal("a list as an element of an array", start, self.pos + 1)
        value = self.word(Position.ASSIGNED)
        if reason := objection_to_variable(found[1], None):
            raise self.refusal(reason, start, self.pos)
        return ast.ArrayAssignment(found[1], (value,), append, SourceSpan(start, self.pos), index)

    def _array(self, found: re.Match[str]) -> ast.ArrayAssignment:
        start = found.start()
        if self.level:
            raise self.refusal("an array inside a substitution, where bash may not read it", start, self.pos + 1)
        self.enter(start)
        self.pos += 1
        items: list[Word] = []
        places: list[ast.Subscript | None] = []
        outside, self.in_array = self.in_array, True
        while True:
            self.blanks()
            char = self.char()
            if char == "\n" and self.read_bodies is None:
                self.newline()
            elif char == ")":
                break
            elif char in ("", "\n"):
                raise self.refusal("an array without an end", start, self.pos + 1)
            elif char == "[":
                places.append(self._place())
                items.append(self.word(Position.ASSIGNED))
            else:
                items += self.arguments()
            places += [None] * (len(items) - len(places))
        self.in_array = outside
        self.pos += 1
        self.leave()
        if self.char() not in ("", " ", "\t", "\n", ";", "|", "&", ")"):
            raise self.refusal("text right after an array", start, self.pos + 1)
        for part in (part for item in items for part in item.parts):
            # After a name in an array, bash continues to the `]`, across blanks and parentheses.
            live = isinstance(part, (ast.Glob, ast.Substitution)) or (isinstance(part, Text) and not part.quoted)
            if live and "[" in _ELEMENT.sub("", self.text[part.span.start : part.span.end]):
                raise self.refusal("a `[` in an array", start, self.pos)
        if reason := objection_to_variable(found[1], None):
            raise self.refusal(reason, start, self.pos)
        span = SourceSpan(start, self.pos)
        return ast.ArrayAssignment(
            found[1], tuple(items), bool(found[2]), span, places=tuple(places) if any(places) else ()
        )

    def _place(self) -> ast.Subscript:
        """Return the subscript of the item at the cursor, and step over it and the `=`."""
        from policy.bash.subscript import parse_subscript  # only where there is a subscript

        start = self.pos
        self.pos += 1
        index = parse_subscript(self)
        if index is None or not self.ahead("]="):
            raise self.refusal("an item of an array that begins with `[`", start, start + 1)
        self.pos += 2
        return index

    def _named_redirection(self, found: re.Match[str]) -> Redirect:
        """Return the redirection `{name}>target` at the cursor."""
        start, name = self.pos, found[1]
        self.pos = found.end()
        redirect = self.redirection()
        if redirect is None or redirect.op in (RedirectOp.HERE_DOC, RedirectOp.HERE_STRING):
            raise self.refusal("a here-document for a file descriptor put into a variable", start, self.pos)
        if reason := objection_to_variable(name, None):
            raise self.refusal(reason, start, self.pos)
        return Redirect(redirect.op, None, redirect.target, SourceSpan(start, self.pos), name)

    def redirection(self) -> Redirect | None:
        found = _REDIRECTION.match(self.text, self.pos, self.end)
        if not found:
            return None
        self.count_words(2)  # with its target, a redirection takes as long as three words
        start = self.pos
        digits, spelled = found[1], found[2]
        if self.text.startswith("(", found.end(), self.end):
            if spelled in ("<", ">") and not digits:
                return None  # a process substitution: a word
            raise self.refusal("`(` right after a redirection", start, found.end() + 1)
        if digits and (spelled[0] == "&" or len(digits) > 3):
            raise self.refusal("a number that may or may not belong to the redirection", start, found.end())
        fd = int(digits) if digits else None
        self.pos = found.end()
        self.blanks()
        if spelled in ("<<", "<<-"):
            body = parse_here_document(self, spelled == "<<-")
            return Redirect(RedirectOp.HERE_DOC, fd, body, SourceSpan(start, self.pos))
        op = RedirectOp(spelled)
        if op in (RedirectOp.DUP_IN, RedirectOp.DUP_OUT):
            duplicate = _DUPLICATE.match(self.text, self.pos, self.end)
            # bash expands other words twice, even inside single quotes. The interpreter checks a variable.
            if not duplicate and not _COPIED.match(self.text, self.pos, self.end):
                raise self.refusal(f"`{op}` with anything but a file descriptor")
            target = self.literal_word(duplicate, quoted=False) if duplicate else self.word(Position.STRING)
        else:
            target = self.word(Position.STRING if op is RedirectOp.HERE_STRING else Position.ARGUMENT)
        return Redirect(op, fd, target, SourceSpan(start, self.pos))
