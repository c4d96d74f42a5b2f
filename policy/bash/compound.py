"""Compound commands: groups, branches, loops, conditions. The subclass in `parser.py` reads the lists inside them."""

import re
from abc import abstractmethod
from collections.abc import Callable

from policy.bash import ast
from policy.bash.ast import Command, Expression, Group, Node, Redirect, Script, Subshell, Word
from policy.bash.objections import objection_to_function, objection_to_variable
from policy.bash.test_expression import parse_conditions
from policy.bash.words import Position, Words
from policy.model.abstract_word import SourceSpan

_RESERVED = r"if|then|elif|else|fi|for|while|until|do|done|case|esac|select|function|time|coproc|in|\[\[|\]\]|!|\{|\}"
KEYWORD = re.compile(rf"({_RESERVED})(?=[ \t\n;|&()]|[<>](?!\()|\Z)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?=[ \t\n;]|\Z)")
_FUNCTION = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*\([ \t]*\)")
_AFTER_FUNCTION = re.compile(r"[ \t]+([A-Za-z_][A-Za-z0-9_.-]*)(?:[ \t]*\([ \t]*\)|(?=[ \t\n]))")
MAY_REDIRECT = frozenset("<>&0123456789")

_UNSUPPORTED = {"select": "`select`", "time": "`time` inside a pipeline", "coproc": "`coproc`"}


class Compound(Words):
    """The parser of one command that is not simple. A subclass reads the lists inside."""

    @abstractmethod
    def simple(self) -> Command:
        """Return the simple command at the cursor."""

    @abstractmethod
    def redirection(self) -> Redirect | None:
        """Return the redirection at the cursor, or None if a word begins there."""

    def command(self) -> Node:
        """Return one command, without the operator after it."""
        start = self.pos
        if self.char() == "(":
            return self._compute(start) if self.ahead("((") else self._subshell()
        found = KEYWORD.match(self.text, start, self.end)
        if not found:
            named = _FUNCTION.match(self.text, start, self.end)
            return self._function(named, start) if named else self.simple()
        keyword = found[1]
        if keyword == "function" and (named := _AFTER_FUNCTION.match(self.text, found.end(), self.end)):
            return self._function(named, start)
        readers: dict[str, Callable[[int], Node]] = {
            **{"if": self._if, "for": self._for, "while": self._while, "until": self._while},
            **{"{": self._group, "[[": self._test, "case": self._case},
        }
        if keyword not in readers:
            known = _UNSUPPORTED.get(keyword)
            reason = f"{known} is not understood yet" if known else f"unexpected `{keyword}`"
            raise self.refusal(reason, start, found.end())
        self.enter(start)
        self.pos = found.end()
        return readers[keyword](start)

    def _body(self, close: str) -> Script:
        """Return the list of commands up to the keyword `close`, and step over that keyword."""
        body = self.commands(close)
        self._take_keyword()
        return body

    def _take_keyword(self) -> str:
        """Step over the keyword that ended `commands`, and return it."""
        keyword = self.keyword_here()
        if not keyword:
            raise self.refusal("a keyword is missing")
        self.pos += len(keyword)
        return keyword

    def _finish(self, start: int) -> tuple[tuple[Redirect, ...], SourceSpan]:
        """Return the redirections after a compound command, and the range of the whole command."""
        self.leave()
        last = self.pos
        redirects: list[Redirect] = []
        self.blanks()
        while self.char() in MAY_REDIRECT and (redirect := self.redirection()):
            redirects.append(redirect)
            last = self.pos
            self.blanks()
        return tuple(redirects), SourceSpan(start, last)

    def _function(self, named: re.Match[str], start: int) -> ast.Function:
        name = named[1]
        if reason := f"a function named `{name}`" if KEYWORD.fullmatch(name) else objection_to_function(name):
            raise self.refusal(reason, *named.span())
        self.enter(start)
        self.pos = named.end()
        self.linebreak()
        body: Group | Subshell
        first = self.pos
        if self.char() == "(" and not self.ahead("(("):
            body = self._subshell()
        elif self.keyword_here() == "{":
            self.pos += 1
            self.enter(first)
            body = self._group(first)
        else:
            raise self.refusal("a function whose body is not `{ .. }` or `( .. )`", start, self.pos + 1)
        self.leave()
        return ast.Function(name, body, SourceSpan(start, body.span.end))

    def _subshell(self) -> Subshell:
        start = self.pos
        self.enter(start)
        self.pos += 1
        body = self.commands(")")
        if not body.items:
            raise self.refusal("an empty list of commands", start, self.pos + 1)
        self.pos += 1
        return Subshell(body, *self._finish(start))

    def _group(self, start: int) -> Group:
        if self.char() not in (" ", "\t", "\n"):
            raise self.refusal("`{` without a blank after it", start, self.pos + 1)
        return Group(self._body("}"), *self._finish(start))

    def _if(self, start: int) -> ast.If:
        branches: list[tuple[Script, Script]] = []
        otherwise: Script | None = None
        keyword = "if"
        while keyword != "fi":
            if keyword == "else":
                otherwise = self.commands("fi")
            else:
                branches.append((self._body("then"), self.commands("elif else fi")))
            keyword = self._take_keyword()
        return ast.If(tuple(branches), otherwise, *self._finish(start))

    def _while(self, start: int) -> ast.While:
        until = self.text.startswith("until", start)
        return ast.While(self._body("do"), self._body("done"), until, *self._finish(start))

    def _case(self, start: int) -> ast.Case:
        self.blanks()
        if self.char() in ("<", ">"):
            raise self.refusal("a process substitution as the word of `case`")
        word = self.word(Position.TEST)
        self.linebreak()
        if self.keyword_here() != "in":
            raise self.refusal("`in` is missing")
        self.pos += 2
        self.linebreak()
        branches: list[ast.Branch] = []
        self.case_depth += 1
        while self.keyword_here() != "esac":
            branches.append(self._branch())
        self.case_depth -= 1
        self.pos += 4
        return ast.Case(word, tuple(branches), *self._finish(start))

    def _branch(self) -> ast.Branch:
        start = self.pos
        bare = self.char() != "("
        if not bare:
            self.pos += 1
        patterns: list[Word] = []
        while True:
            self.blanks()
            if self.keyword_here() == "esac" or self.char() in ("<", ">"):
                raise self.refusal("a pattern of `case` that is not plain")
            patterns.append(self.word(Position.TEST))
            self.blanks()
            if self.char() == ")":
                break
            if self.char() != "|" or self.ahead("||"):
                raise self.refusal("a pattern of `case` that is not plain", start, self.pos + 1)
            self.pos += 1
        self.pos += 1
        close = self.pos
        body = self.commands("esac")
        ended = self.ahead(";;") and "\n" not in self.text[close : self.pos] and self.case_depth == 1
        if bare and self.level and not ended:
            # Older versions of bash take the `)` for the end of the substitution; then only a `;;` on the same line
            # ensures that they run no part of the branch.
            raise self.refusal("a pattern of `case` without `(` before it, inside a substitution", start, close)
        if self.ahead(";;"):
            self.pos += 2
            if self.char() == "&":
                raise self.refusal("`;;&` continues with the next pattern", self.pos - 2, self.pos + 1)
            self.linebreak()
        return ast.Branch(tuple(patterns), body)

    def _test(self, start: int) -> ast.Test:
        if self.char() not in (" ", "\t"):
            raise self.refusal("`[[` without a blank after it", start, self.pos + 1)
        return ast.Test(parse_conditions(self), *self._finish(start))

    def _compute(self, start: int) -> ast.Compute:
        self.enter(start)
        self.pos += 2
        expression = self.arithmetic(changes=True)
        if not self.ahead("))"):
            raise self.refusal("arithmetic `((..))` that is not plain", start, self.pos + 1)
        self.pos += 2
        return ast.Compute(expression, SourceSpan(start, self.pos), *self._finish(start))

    def _loop(self, start: int) -> ast.Loop:
        self.pos += 2
        heads: list[Expression | None] = []
        for end in (";", ";", "))"):
            while self.char() in (" ", "\t"):
                self.pos += 1
            heads.append(None if self.ahead(end) else self.arithmetic(changes=True))
            if not self.ahead(end):
                raise self.refusal("a `for ((..))` that is not plain", start, self.pos + 1)
            self.pos += len(end)
        self.blanks()
        self._line_end()
        first, condition, step = heads
        return ast.Loop(first, condition, step, self._done(), *self._finish(start))

    def _done(self) -> Script:
        """Read `do .. done` and return its body."""
        if self.keyword_here() != "do":
            raise self.refusal("`do` is missing")
        self.pos += 2
        return self._body("done")

    def _for(self, start: int) -> ast.For | ast.Loop:
        self.blanks()
        if self.ahead("(("):
            return self._loop(start)
        found = _NAME.match(self.text, self.pos, self.end)
        if not found or KEYWORD.match(self.text, self.pos, self.end):
            raise self.refusal("`for` without a plain variable name")
        name = found[1]
        if reason := objection_to_variable(name, None):
            raise self.refusal(reason, *found.span())
        self.pos = found.end()
        words: list[Word] | None = None
        self.blanks()
        ended = self.char() == ";"
        self._line_end()
        if not ended and self.keyword_here() == "in":
            self.pos += 2
            self.blanks()
            words = []
            while self.char() not in ("", ";", "\n"):
                words += self.arguments()
                self.blanks()
            self._line_end()
        return ast.For(name, None if words is None else tuple(words), self._done(), *self._finish(start))

    def _line_end(self) -> None:
        """Step over one `;` and newlines."""
        if self.char() == ";":
            self.pos += 1
        self.linebreak()

    def keyword_here(self) -> str | None:
        """Return the keyword at the cursor, or None."""
        found = KEYWORD.match(self.text, self.pos, self.end)
        return found[1] if found else None
