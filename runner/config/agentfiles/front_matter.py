"""The front matter of a Markdown file: settings in YAML between two lines of `---`.

The settings are read from the events of a YAML parser, so that no Python objects are created. Anchors, aliases and tags
are refused, and so is a head with many lines, characters or nodes, because the file may be from a repository.
"""

import re
from collections.abc import Collection, Mapping

import yaml

from policy.model.frozen import dataclass

_MOST_LINES = 200
_MOST_EVENTS = 500
_LONGEST = 32 << 10  # characters of a head
_DEEPEST = 20  # lists and tables inside each other
# `name: some: text`, which users write although it is no YAML. A comment at the end is not part of the text.
_PLAIN = re.compile(r"([A-Za-z][A-Za-z0-9_-]{0,63}:[ \t]+)([^\s\"'\[\]{}|>&*!%@`#,?-].*)")
# A text such as `[file] [line]` or `@file`, which is a list or an error in YAML.
_LITERAL = re.compile(r"(([A-Za-z][A-Za-z0-9_-]{0,63}):[ \t]+)([\[\]{}&*!%@`,?-].*)")
_COMMENT = re.compile(r"[ \t]#")


class HeadError(ValueError):
    """The error for front matter that cannot be read. Its text is the reason."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The parts of a file.

    Attributes:
        texts: the settings of the front matter that are texts.
        others: the names of the settings that are lists or tables.
        body: the text below the front matter.
        lists: the settings that are lists of texts.
    """

    texts: Mapping[str, str]
    others: tuple[str, ...]
    body: str
    lists: Mapping[str, tuple[str, ...]]


def front_matter(text: str, literal: Collection[str] = ()) -> FrontMatter:
    """Split the text of a file. Without front matter the whole text is the body. Raise HeadError.

    `literal` names settings that are texts even if they begin like a list or another construct of YAML.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return FrontMatter({}, (), text, {})
    ends = (place for place, line in enumerate(lines[1 : _MOST_LINES + 1], 1) if line.rstrip() == "---")
    end = next(ends, None)
    if end is None:
        raise HeadError(f"its front matter has no second line `---` in the first {_MOST_LINES} lines")
    if sum(map(len, lines[:end])) > _LONGEST:
        raise HeadError(f"its front matter is longer than {_LONGEST >> 10} KiB")
    texts, others, lists = _settings([_quoted(line, literal) for line in lines[1:end]])
    return FrontMatter(texts, tuple(others), "\n".join(lines[end + 1 :]).strip("\n"), lists)


def _quoted(line: str, literal: Collection[str]) -> str:
    """Return the line with its text in quotes if YAML would take a colon in the text for a second setting, or the text
    of a setting in `literal` for a list.
    """
    special = _LITERAL.fullmatch(line)
    if special and special[2] in literal:
        return f"{special[1]}{_in_quotes(special[3])}"
    match = _PLAIN.fullmatch(line)
    text = _COMMENT.split(match[2], maxsplit=1)[0].rstrip() if match else ""
    if match is None or (": " not in text and ":\t" not in text and not text.endswith(":")):
        return line
    return f"{match[1]}{_in_quotes(text)}"


def _in_quotes(text: str) -> str:
    escaped = _COMMENT.split(text, maxsplit=1)[0].rstrip().replace("'", "''")
    return f"'{escaped}'"


def _settings(lines: list[str]) -> tuple[dict[str, str], list[str], dict[str, tuple[str, ...]]]:
    """Return the texts, the names of the other settings, and those of them that are lists of texts."""
    texts: dict[str, str] = {}
    others: list[str] = []
    lists: dict[str, tuple[str, ...]] = {}
    depth = count = documents = 0
    name: str | None = None  # the setting whose value comes next
    try:
        for event in yaml.parse("\n".join(lines) + "\n", Loader=yaml.SafeLoader):
            count += 1
            documents += isinstance(event, yaml.DocumentStartEvent)
            _check(event, count, documents, depth)
            if isinstance(event, yaml.CollectionStartEvent):
                if depth == 0 and not isinstance(event, yaml.MappingStartEvent):
                    raise HeadError("its front matter is not a table of `name: text`")
                if depth == 1:
                    if name is None:
                        raise HeadError("a name in its front matter is a list or a table")
                    others.append(name)
                    if isinstance(event, yaml.SequenceStartEvent):
                        lists[name] = ()
                elif depth > 1 and name is not None:
                    lists.pop(name, None)  # a list with lists or tables in it
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
                name = None if depth == 1 else name
            elif isinstance(event, yaml.ScalarEvent) and depth == 0 and event.value:
                raise HeadError("its front matter is not a table of `name: text`")
            elif isinstance(event, yaml.ScalarEvent) and depth == 2 and name in lists:
                lists[name] = (*lists[name], event.value)
            elif isinstance(event, yaml.ScalarEvent) and depth == 1:
                if name is not None:
                    texts[name], name = event.value, None
                elif event.value in texts or event.value in others:
                    raise HeadError(f"`{_shown(event.value)}` is in its front matter twice")
                else:
                    name = event.value
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark else 1
        raise HeadError(f"line {line} of its front matter is not valid YAML: {_shown(error.problem or '')}") from None
    except yaml.YAMLError:
        raise HeadError("its front matter contains a character that YAML forbids") from None
    return texts, others, lists


def _check(event: yaml.Event, count: int, documents: int, depth: int) -> None:
    """Raise HeadError for YAML features that plain settings do not need, and for an excessive amount."""
    if count > _MOST_EVENTS or depth > _DEEPEST:
        raise HeadError("its front matter contains too many lists and tables")
    if documents > 1:
        raise HeadError("its front matter contains more than one document")
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise HeadError("its front matter has an anchor (`&`) or an alias (`*`), which are not supported")
    if getattr(event, "tag", None) is not None:
        raise HeadError("its front matter has a tag (`!`), which is not supported")
    if isinstance(event, yaml.ScalarEvent) and any(
        (char < " " and char not in "\n\t") or char == "\x7f" for char in event.value
    ):
        raise HeadError("a text in its front matter has an escape for a control character")


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)[:80]
