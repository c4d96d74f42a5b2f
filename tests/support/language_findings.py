"""Findings about the language of the source code: fragments, rejected words, and repeated names of classes."""

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import StringIO

from tests.support.places import ROOT

PRODUCT = ("policy", "runner", "sandbox", "tools")
QUOTING = ("tests/process/test_language.py", "tests/unit/test_source_language.py")  # they quote rejected words

# A docstring that begins with one of these words is the answer to a question that the reader has to guess, such as
# "Whether it is open." It needs a verb or a noun that defines: "Return True if the log is open."
FRAGMENTS = (
    *("What", "Whether", "Where", "Who", "Whom", "Whose", "How", "Why", "Which"),
    *("The same", "Neither", "As", "Those", "Its", "One that"),
)
FRAGMENT = re.compile(rf"({'|'.join(FRAGMENTS)})\b")
_FRAGMENT_CANDIDATE = re.compile(rf"""["'](?:\s|\\\n)*{FRAGMENT.pattern}""")  # a string that begins like one

_GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8").partition("## Words that are not used")[2]
REJECTED = [
    word for word in re.findall(r"^\| (.+?) \| .+ \|$", _GLOSSARY, re.MULTILINE) if word not in ("instead of", "---")
]
_ANY = "|".join(word.replace(" ", r"\s+") for word in REJECTED)
REJECTED_WORD = re.compile(rf"\b({_ANY})\b", re.IGNORECASE)
# The same in a text with comment signs, and with quotes where a string ends and the next one begins. A module without any
# such words is not parsed.
_BETWEEN = r"\\W+(?:[bfru]{1,2}\\W+)?"
_CANDIDATE = re.compile(rf"\b({'|'.join(re.sub(' +', _BETWEEN, word) for word in REJECTED)})\b", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One fault of the language. `subject` is the path of a module or the name of a class."""

    kind: str
    subject: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.kind}: {self.text}"


def modules(*folders: str) -> Iterator[tuple[str, str]]:
    """Yield the path relative to the project, and the text, of every module below the folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring."""
    statements: list[ast.AST] = [tree]
    for node in statements:  # which grows; expressions have no docstrings
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            statements += getattr(node, field, ())
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def prose(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every comment block, and of every string with white space in it.

    The strings include docstrings, help texts and error messages. A word in backticks is code and left out.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\s", node.value):
            yield node.lineno, node.value
    last, block = -2, ""
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, text = token.start[0], token.string.lstrip("# ")
            if line != last + 1 and block:
                yield last, block
                block = ""
            last, block = line, f"{block} {text}"
    if block:
        yield last, block


def fragments(path: str, tree: ast.Module) -> Iterator[Finding]:
    """Yield every docstring that begins with a word of FRAGMENTS."""
    for line, text in docstrings(tree):
        if FRAGMENT.match(text):
            yield Finding("docstring", path, f"{path}:{line}", text.partition("\n")[0])


def rejected_words(path: str, source: str, tree: ast.Module) -> Iterator[Finding]:
    """Yield every use of a word that the glossary replaces."""
    if _CANDIDATE.search(source) is None:
        return
    for line, text in prose(source, tree):
        for hit in REJECTED_WORD.finditer(re.sub(r"`[^`\n]*`", "``", text)):
            yield Finding("word", path, f"{path}:{line}", hit[0])


_ALIAS = re.compile(r"[A-Z][A-Za-z]*[a-z][A-Za-z]*")


def names_of_classes(path: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the name of each public class and type alias that a module defines, and the place."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, f"{path}:{node.lineno}"
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            yield from ((name, f"{path}:{node.lineno}") for name in filter(_ALIAS.fullmatch, names))


@cache
def findings() -> tuple[Finding, ...]:
    """Return the findings in the product and, for docstrings and words, in the tests."""
    found: list[Finding] = []
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, source in modules(*PRODUCT, "tests"):
        if not path.startswith(PRODUCT) and not _FRAGMENT_CANDIDATE.search(source) and not _CANDIDATE.search(source):
            continue  # nearly all tests: parsing them takes most of the time
        tree = ast.parse(source)  # one at a time: all of them together keep the garbage collector busy
        found += fragments(path, tree)
        if path not in QUOTING:
            found += rejected_words(path, source, tree)
        for name, place in names_of_classes(path, tree) if path.startswith(PRODUCT) else ():
            places[name].append(place)
    repeated = sorted((name, each) for name, each in places.items() if len(each) > 1)
    return tuple(found + [Finding("class", name, place, name) for name, each in repeated for place in each])
