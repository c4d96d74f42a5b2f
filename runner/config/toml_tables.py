"""TOML tables with the lines that they and their keys stand on, so that a complaint can name the place."""

import re
import tomllib
from collections.abc import Iterable, Mapping

from policy.model.frozen import dataclass
from policy.toml.schema import too_deep
from runner.problems import Stopped, usage

_HEADER = re.compile(r"\[\[\s*([A-Za-z0-9_-]+)\s*\]\]")
_KEY = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*[.=]""")
_WHERE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


@dataclass(frozen=True, slots=True)
class Item:
    """One `[[name]]` table, or what stands above the first one (name ""). `lines` are those of its keys, from 1."""

    name: str
    line: int
    values: Mapping[str, object]
    lines: Mapping[str, int]
    text: str = ""

    def at(self, key: str) -> int:
        return self.lines.get(key, self.line)


def read_items(text: str, source: str, names: Iterable[str]) -> tuple[Item, ...]:
    """The keys at the top as one Item, then every table of an array in `names`, in order. Raises a usage error."""
    document = load(text, source)
    known = tuple(names)
    items = [Item("", 1, {key: value for key, value in document.items() if key not in known}, {})]
    waiting = {name: iter(_tables(document, name, source)) for name in known}
    lines = text.split("\n")
    for name, first, last, keys in _spans(text, known):
        if name == "":
            items[0] = Item("", 1, items[0].values, keys)
        else:
            body = "\n".join(lines[first - 1 : last])
            items.append(Item(name, first, next(waiting[name]), keys, body))
    if any(next(rest, None) is not None for rest in waiting.values()):
        raise usage(f"{source} cannot be used", "a list is written in one line", "write each as a [[...]] table")
    return tuple(items)


def load(text: str, source: str) -> dict[str, object]:
    """The TOML document, or a usage error with the line."""
    if deep := too_deep(text):
        raise usage(f"{source}:{deep} cannot be read", "a key has too many parts", "correct that line")
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or a number too long to be one
        found = _WHERE.search(str(error))
        line = int(found[1]) if found and found[1] else max(text.count("\n") + (not text.endswith("\n")), 1)
        known = isinstance(error, tomllib.TOMLDecodeError)
        why = _WHERE.sub("", str(error)).strip().rstrip(".") if known else "a number in it is too long"
        why = f"it is not valid TOML: {why[:1].lower()}{why[1:]}"
        raise usage(f"{source}:{line} cannot be read", why, "correct that line") from None
    except RecursionError:
        raise usage(
            f"{source} cannot be read", "its lists are nested too deeply", "write it with less nesting"
        ) from None


def wrong(source: str, item: Item, key: str, why: str, fix: str) -> Stopped:
    """A usage error about one key of one table."""
    return usage(f"{source}:{item.at(key)}: `{key}` cannot be used", why, fix)


def unknown_key(source: str, item: Item, key: str, known: Iterable[str]) -> Stopped:
    """A usage error that names the nearest key there is."""
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(key, names, n=1, cutoff=0.5)
    fix = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(f'`{name}`' for name in names)}"
    where = f"in [[{item.name}]]" if item.name else "at the top"
    return wrong(source, item, key, f"there is no such key {where}", fix)


def _tables(document: Mapping[str, object], name: str, source: str) -> list[dict[str, object]]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise usage(f"{source}: `{name}` cannot be used", "it is a list of tables", f"write each one below [[{name}]]")
    return found


def _spans(text: str, known: tuple[str, ...]) -> list[tuple[str, int, int, dict[str, int]]]:
    """(name, first line, last line, lines of its keys) of what stands above the tables, and of each `[[name]]`."""
    spans: list[tuple[str, int, int, dict[str, int]]] = [("", 1, 0, {})]
    lines = text.split("\n")
    inside = True  # whether the keys seen belong to the last span: not after a header of another kind
    for number in _statements(text):
        line = lines[number - 1].strip()
        header = _HEADER.match(line)
        if header and header[1] in known:
            name, first, _, keys = spans[-1]
            spans[-1] = (name, first, number - 1, keys)
            spans.append((header[1], number, 0, {}))
            inside = True
        elif line.startswith("["):
            inside = False
        elif inside and (key := _KEY.match(line)):
            spans[-1][3].setdefault(key[1] or key[2] or key[3] or "", number)
    name, first, _, keys = spans[-1]
    spans[-1] = (name, first, len(lines), keys)
    return spans


# A piece of TOML that may hold brackets or quotes of its own, or a bracket, or the end of a line.
_PIECE = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'" r"|\#[^\n]*|[\[\]{}\n]",
    re.DOTALL,
)


def _statements(text: str) -> Iterable[int]:
    """The lines, from 1, that begin a key or a header: not those inside a text or a list. `text` is valid TOML."""
    yield 1
    number, depth = 1, 0
    for found in _PIECE.finditer(text):
        piece = found[0]
        number += piece.count("\n")
        if piece in "[{":
            depth += 1
        elif piece in "]}":
            depth -= 1
        elif piece == "\n" and depth == 0:
            yield number
