"""A strict reader of everyday bash: exactly the tree of what bash would do, or Opaque. It never guesses.

`if`, `for`, lists, pipelines and redirections are here; words are in `words.py`, here-documents in `heredoc.py`.
What is not in one of these modules is refused, so a construct that nobody thought of is refused as well.
"""

import re
from typing import Literal as Of

from policy.assessment import Span
from policy.script.cursor import RefusalError
from policy.script.heredoc import here_document
from policy.script.lexical import objection
from policy.script.switches import objection_to_command, objection_to_variable
from policy.script.tree import (
    Assignment,
    Command,
    For,
    Group,
    If,
    Item,
    Node,
    Opaque,
    Pipeline,
    Redirect,
    RedirectOp,
    Script,
    Subshell,
    Text,
    While,
    Word,
)
from policy.script.words import Where, Words

_RESERVED = r"if|then|elif|else|fi|for|while|until|do|done|case|esac|select|function|time|coproc|in|\[\[|\]\]|!|\{|\}"
_KEYWORD = re.compile(rf"({_RESERVED})(?=[ \t\n;|&()<>]|\Z)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?=[ \t\n;]|\Z)")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_SUBSCRIPT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\[")
_REDIRECTION = re.compile(r"([0-9]*)(&>>|&>|<<<|<<-|<<|<>|<&|<|>>|>\||>&|>)")
_DUPLICATE = re.compile(r"(?:[0-9]{1,3}-?|-)(?=[ \t\n;|&)<>]|\Z)")
_MAY_REDIRECT = frozenset("<>&0123456789")
_ENDS_COMMAND = frozenset("\n;|)")

_KNOWN = {
    "case": "`case`",
    "select": "`select`",
    "function": "a function",
    "time": "`time`",
    "coproc": "`coproc`",
    "[[": "`[[ .. ]]`",
}

_Then = Of[";", "&", "&&", "||"]


def read(text: str) -> Script | Opaque:
    """The tree of `text`, or Opaque with the reason and the place. Total, and its time is bounded for any input."""
    refused = objection(text)
    if refused is not None:
        return refused
    try:
        return _Reader(text).commands("")
    except RefusalError as refusal:
        return Opaque(refusal.reason, refusal.span)


class _Reader(Words):
    __slots__ = ()

    # -- lists and pipelines -------------------------------------------------------------------------------------

    def commands(self, close: str) -> Script:
        """A list up to `close`, which is not consumed: `)`, keywords separated by blanks, or "" for the end."""
        keywords = frozenset(close.split()) if close != ")" else frozenset()
        opening = self.pos
        items: list[Item] = []
        self.linebreak()
        while not self._closed(close, keywords):
            node = self._pipeline()
            self.blanks()
            then, separated = self._operator()
            items.append(Item(node, then))
            if then in ("&&", "||"):
                if self._closed(close, keywords):
                    raise self.refusal(f"nothing after `{then}`")
            elif not separated:
                if self.char() not in (")" if close == ")" else ""):
                    raise self.refusal(f"unexpected `{self.char()}`")
                break
        if self.pos >= self.end and close:
            raise self.refusal(f"`{close.replace(' ', '` or `')}` is missing", max(opening - 1, 0))
        if self.pos >= self.end and self.skipped is not None:
            raise self.refusal("a line that starts a here-document is continued inside a word")
        if not items:
            if keywords:
                raise self.refusal("an empty list of commands", opening)
            return Script((), Span(opening, opening))
        return Script(tuple(items), Span(items[0].node.span.start, items[-1].node.span.end))

    def _closed(self, close: str, keywords: frozenset[str]) -> bool:
        if self.pos >= self.end:
            return True
        if close == ")":
            return self.char() == ")"
        found = _KEYWORD.match(self.text, self.pos, self.end) if keywords else None
        return found is not None and found[1] in keywords

    def _operator(self) -> tuple[_Then, bool]:
        """The operator after a list element, stepped over, and whether it ends the element for sure."""
        char = self.char()
        if char == "\n":
            self.linebreak()
            return ";", True
        if char == ";":
            if self.ahead(";;") or self.ahead(";&"):
                raise self.refusal("`;;` or `;&` outside of `case`", self.pos, self.pos + 2)
            self.pos += 1
            self.linebreak()
            return ";", True
        if self.ahead("&&") or self.ahead("||"):
            then: _Then = "&&" if char == "&" else "||"
            self.pos += 2
            self.linebreak()
            return then, False
        if char == "&":
            self.pos += 1
            self.linebreak()
            return "&", True
        return ";", False

    def _pipeline(self) -> Node:
        start = self.pos
        negated = self.ahead("! ") or self.ahead("!\t")
        if negated:
            self.pos += 1
            self.blanks()
        nodes = [self._command()]
        self.blanks()
        while self.char() == "|" and not self.ahead("||"):
            self.pos += 2 if self.ahead("|&") else 1
            self.linebreak()
            nodes.append(self._command())
            self.blanks()
        if len(nodes) == 1 and not negated:
            return nodes[0]
        return Pipeline(tuple(nodes), negated, Span(start, nodes[-1].span.end))

    # -- commands ------------------------------------------------------------------------------------------------

    def _command(self) -> Node:
        start = self.pos
        if self.char() == "(":
            if self.ahead("(("):
                raise self.refusal("arithmetic `((..))`", start, start + 2)
            return self._subshell()
        found = _KEYWORD.match(self.text, start, self.end)
        if not found:
            return self._simple()
        keyword = found[1]
        if keyword not in ("if", "for", "while", "until", "{"):
            known = _KNOWN.get(keyword)
            raise self.refusal(
                f"{known} is not understood yet" if known else f"unexpected `{keyword}`", start, found.end()
            )
        self.enter(start)
        self.pos = found.end()
        match keyword:
            case "if":
                return self._if(start)
            case "for":
                return self._for(start)
            case "{":
                return self._group(start)
            case _:
                return self._while(start, keyword == "until")

    def _simple(self) -> Command:
        self.counted()
        start = last = self.pos
        assignments: list[Assignment] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self.blanks()
            char = self.char()
            if not char or char in _ENDS_COMMAND or (char == "&" and not self.ahead("&>")):
                break
            redirect = self._redirection() if char in _MAY_REDIRECT else None
            if redirect is not None:
                redirects.append(redirect)
            elif char == "(":
                raise self.refusal("`(` after a word (a function?)")
            elif words:
                words += self.arguments()
            elif found := _ASSIGNMENT.match(self.text, self.pos, self.end):
                assignments.append(self._assignment(found))
            elif _SUBSCRIPT.match(self.text, self.pos, self.end):
                raise self.refusal("an array element or a glob where a command name is expected")
            elif (assignments or redirects) and (found := _KEYWORD.match(self.text, self.pos, self.end)):
                raise self.refusal(f"`{found[1]}` after an assignment or a redirection", *found.span())
            else:
                words += self.arguments()
            last = self.pos
        span = Span(start, last)
        if last == start:
            raise self.refusal(f"a command is missing before `{char}`" if char.strip() else "a command is missing")
        if words and (reason := objection_to_command(tuple(words))):
            raise self.refusal(reason, start, last)
        return Command(tuple(assignments), tuple(words), tuple(redirects), span)

    def _assignment(self, found: re.Match[str]) -> Assignment:
        start = self.pos
        self.pos = found.end()
        if self.char() == "(":
            raise self.refusal("an array", start, self.pos + 1)
        value = self.word(Where.ASSIGNED)
        append = bool(found[2])
        if reason := objection_to_variable(found[1], None if append else value):
            raise self.refusal(reason, start, self.pos)
        return Assignment(found[1], value, append, Span(start, self.pos))

    def _redirection(self) -> Redirect | None:
        found = _REDIRECTION.match(self.text, self.pos, self.end)
        if not found:
            return None
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
            body = here_document(self, spelled == "<<-")
            return Redirect(RedirectOp.HERE_DOC, fd, body, Span(start, self.pos))
        op = RedirectOp(spelled)
        if op in (RedirectOp.DUP_IN, RedirectOp.DUP_OUT):
            target = self._descriptor(op)
        else:
            target = self.word(Where.STRING if op is RedirectOp.HERE_STRING else Where.ARGUMENT)
        return Redirect(op, fd, target, Span(start, self.pos))

    def _descriptor(self, op: RedirectOp) -> Word:
        found = _DUPLICATE.match(self.text, self.pos, self.end)
        if not found:
            # bash expands such a word twice, even inside single quotes.
            raise self.refusal(f"`{op}` with anything but a file descriptor")
        span = Span(*found.span())
        self.pos = span.end
        return Word((Text(found[0], span, False),), span)

    # -- compound commands ---------------------------------------------------------------------------------------

    def _closing(self) -> str:
        """Step over the keyword that ended `commands`."""
        found = _KEYWORD.match(self.text, self.pos, self.end)
        if not found:
            raise self.refusal("a keyword is missing")
        self.pos = found.end()
        return found[1]

    def _finish(self, start: int) -> tuple[tuple[Redirect, ...], Span]:
        """After a compound command: its redirections, and where it ends."""
        self.leave()
        last = self.pos
        redirects: list[Redirect] = []
        self.blanks()
        while self.char() in _MAY_REDIRECT and (redirect := self._redirection()):
            redirects.append(redirect)
            last = self.pos
            self.blanks()
        return tuple(redirects), Span(start, last)

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
        body = self.commands("}")
        self._closing()
        return Group(body, *self._finish(start))

    def _if(self, start: int) -> If:
        branches: list[tuple[Script, Script]] = []
        otherwise: Script | None = None
        keyword = "if"
        while keyword != "fi":
            if keyword == "else":
                otherwise = self.commands("fi")
            else:
                condition = self.commands("then")
                self._closing()
                branches.append((condition, self.commands("elif else fi")))
            keyword = self._closing()
        return If(tuple(branches), otherwise, *self._finish(start))

    def _while(self, start: int, until: bool) -> While:
        condition = self.commands("do")
        self._closing()
        body = self.commands("done")
        self._closing()
        return While(condition, body, until, *self._finish(start))

    def _for(self, start: int) -> For:
        self.blanks()
        found = _NAME.match(self.text, self.pos, self.end)
        if not found or _KEYWORD.match(self.text, self.pos, self.end):
            raise self.refusal("`for` without a plain variable name")
        name = found[1]
        if reason := objection_to_variable(name, None):
            raise self.refusal(reason, *found.span())
        self.pos = found.end()
        words: list[Word] | None = None
        self.blanks()
        if self.char() == ";":
            self.pos += 1
            self.linebreak()
        else:
            self.linebreak()
            if self._keyword_here() == "in":
                self.pos += 2
                words = self._for_words()
        if self._keyword_here() != "do":
            raise self.refusal("`do` is missing")
        self.pos += 2
        body = self.commands("done")
        self._closing()
        return For(name, None if words is None else tuple(words), body, *self._finish(start))

    def _for_words(self) -> list[Word]:
        words: list[Word] = []
        self.blanks()
        while self.char() not in ("", ";", "\n"):
            words += self.arguments()
            self.blanks()
        if self.char() == ";":
            self.pos += 1
        self.linebreak()
        return words

    def _keyword_here(self) -> str | None:
        found = _KEYWORD.match(self.text, self.pos, self.end)
        return found[1] if found else None
