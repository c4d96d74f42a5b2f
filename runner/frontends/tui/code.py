"""The rows of source code, coloured for known languages, and of changes of files, with line numbers."""

import re
import time
from collections.abc import Sequence
from functools import cache, lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text, _TokenType

from policy.model.deadline import deadline
from runner.frontends.tui.rows import Fragments, chop, hang, safe, wrap
from runner.frontends.tui.theme import Theme
from runner.text.sanitize import visible

# Languages that get colours. A fixed list, because Pygments searches every installed package for an unknown name.
# fmt: off
_LANGUAGES = frozenset({
    "bash", "c", "c++", "cpp", "csharp", "cs", "css", "dart", "diff", "docker", "dockerfile", "elixir", "erlang", "go",
    "golang", "graphql", "haskell", "hcl", "html", "ini", "java", "javascript", "js", "json", "jsx", "julia", "kotlin",
    "lua", "make", "makefile", "nix", "perl", "php", "powershell", "proto", "protobuf", "py", "python", "r", "rb",
    "rs", "ruby", "rust", "scala", "sh", "shell", "sql", "svelte", "swift", "terraform", "toml", "ts", "tsx",
    "typescript", "vue", "xml", "yaml", "yml", "zig", "zsh",
})
# fmt: on
_PROSE = frozenset({"console", "none", "output", "plain", "plaintext", "text", "txt"})
_SAME = {"jsx": "js", "shell": "bash", "golang": "go", "terraform": "hcl", "svelte": "html", "vue": "html"}
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_LONGEST = 300  # characters of a line: a longer line gets no colours, which avoids the worst case of a lexer
_SLOW = deadline(0.25)  # seconds of processor time for one call; a language that takes longer loses its colours


def code_rows(info: str, lines: Sequence[str], width: int, theme: Theme, before: Sequence[str] = ()) -> list[Fragments]:
    """Return `lines` as rows of at most `width` cells, indented by two cells.

    `before` are the lines above, used only for the colours. `info` is the text after the fence; if it is more than a
    known language, it is shown above the code.
    """
    language, _, more = info.strip().partition(" ")
    rows: list[Fragments] = []
    if info and not before and (more or language.lower() not in _LANGUAGES | _PROSE):
        rows += hang(wrap(safe(info, theme.dim), max(width - 2, 10)), ("", "  "), ("", "  "))
    for line in coloured(language, lines, theme, before):
        rows += hang(chop(line, max(width - 2, 10)), ("", "  "), ("", "  "))
    return rows


def coloured(language: str, lines: Sequence[str], theme: Theme, before: Sequence[str] = ()) -> list[Fragments]:
    """Return each of `lines` coloured for `language`; `before` are the lines above, used only for the colours."""
    if language.lower() == "diff":
        return [[(diff_style(line, theme), visible(line))] for line in lines]
    texts = [visible(line) for line in (*before, *lines)]
    lexer = None if language.lower() in _too_slow else _lexer(language.lower())
    if lexer is None or any(len(line) > _LONGEST for line in texts):
        return [[("", line)] for line in texts[len(before) :]]
    rows: list[Fragments] = [[]]
    began = time.thread_time()
    try:
        tokens = list(lexer.get_tokens("\n".join(texts)))
    except Exception:  # foreign code reads untrusted text: on failure the text is shown without colours
        tokens = [(Text, "\n".join(texts))]
    if time.thread_time() - began > _SLOW:
        _too_slow.add(language.lower())
    for kind, text in tokens:
        for number, piece in enumerate(text.split("\n")):
            rows += [[]] if number else []
            rows[-1] += [(_style(kind, theme), piece)] if piece else []
    rows = rows[len(before) : len(texts)]
    return rows + [[] for _ in range(len(lines) - len(rows))]


_too_slow: set[str] = set()


def diff_style(line: str, theme: Theme) -> str:
    """Return the style of a line of a unified diff."""
    return {"+": theme.added, "-": theme.removed, "@": theme.hunk}.get(line[:1], "")


@cache
def _lexer(language: str) -> Lexer | None:
    if language not in _LANGUAGES:
        return None
    lexer: Lexer = get_lexer_by_name(_SAME.get(language, language), stripnl=False, ensurenl=True)
    return lexer


@lru_cache(maxsize=512)
def _style(kind: _TokenType, theme: Theme) -> str:
    for families, style in (
        ((Comment,), theme.comment),
        ((Keyword, Operator.Word), theme.keyword),
        ((String,), theme.string),
        ((Number,), theme.number),
        ((Name.Function, Name.Class, Name.Tag, Name.Decorator, Name.Attribute), theme.name_style),
    ):
        if any(kind in family for family in families):
            return style
    return ""


def diff_rows(lines: Sequence[str], width: int, theme: Theme, fold: tuple[int, int] | None = None) -> list[Fragments]:
    """Return a unified diff (and the lines before it) with line numbers: the new number, or the old one of a removed
    line.

    `fold` are the numbers of lines kept before and after the lines that are left out.
    """
    first, last = fold or (len(lines), 0)
    hidden = len(lines) - first - last
    hunks = [header for line in lines if (header := _HUNK.match(line))]
    size = max((len(str(int(hunk[at]) + int(hunk[at + 1] or 1))) for hunk in hunks for at in (1, 3)), default=1) + 1
    rows: list[Fragments] = []
    old = new = 0
    rest = (0, 0)  # the old and the new number after the last line of the hunk; then another file begins
    inside = False
    for place, line in enumerate(lines):
        number = ""
        if header := _HUNK.match(line):
            old, new, inside = int(header[1]), int(header[3]), True
            rest = old + int(header[2] or 1), new + int(header[4] or 1)
        elif inside and (old, new) == rest and line[:1] != "\\":
            inside = False
        elif inside and line[:1] in ("+", "-", " ", ""):
            number = str(old if line[:1] == "-" else new)
            old += line[:1] != "+"
            new += line[:1] != "-"
        if hidden > 1 and first <= place < first + hidden:
            if place == first:
                rows.append([(theme.dim, f"… {hidden} more lines (ctrl-o shows them)")])
            continue
        gutter = f"{number:>{size}} " if inside else ""
        style = diff_style(line, theme) if inside else ""
        room = max(width - len(gutter), 10)
        rows += hang(chop([(style, visible(line))], room), (theme.dim, gutter), ("", " " * len(gutter)))
    return rows
