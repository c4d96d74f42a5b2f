"""TOML tables with the line numbers of their headers and keys, for error messages."""

from collections.abc import Iterable, Mapping

from policy.model.frozen import dataclass
from policy.toml.lines import StatementKind, statements
from policy.toml.schema import TomlError, parse
from runner.problems import Stopped, usage


@dataclass(frozen=True, slots=True)
class TableItem:
    """One `[[name]]` table, or the keys above the first table.

    Attributes:
        name: name of the table; empty for the keys above.
        line: line of the header, from 1.
        values: the keys and values.
        lines: line of each key, from 1.
        text: source text of the table.
    """

    name: str
    line: int
    values: Mapping[str, object]
    lines: Mapping[str, int]
    text: str = ""

    def at(self, key: str) -> int:
        """Return the line of `key`, or of the header if the table has no such key."""
        return self.lines.get(key, self.line)


def read_items(text: str, source: str, names: Iterable[str]) -> tuple[TableItem, ...]:
    """Return the top-level keys as one TableItem, then every `[[name]]` table with a name in `names`, in order. Raise a
    usage error.
    """
    document = load(text, source)
    known = tuple(names)
    items = [TableItem("", 1, {key: value for key, value in document.items() if key not in known}, {})]
    waiting = {name: iter(_tables(document, name, source)) for name in known}
    lines = text.split("\n")
    for name, first, last, keys in _spans(text, known):
        if name == "":
            items[0] = TableItem("", 1, items[0].values, keys)
        else:
            body = "\n".join(lines[first - 1 : last])
            items.append(TableItem(name, first, next(waiting[name]), keys, body))
    if any(next(rest, None) is not None for rest in waiting.values()):
        raise usage(f"{source} cannot be used", "its tables are in one line", "write each as a [[...]] table")
    return tuple(items)


def load(text: str, source: str) -> dict[str, object]:
    """Return the TOML document. Raises a usage error that names the line."""
    try:
        return parse(text, source)
    except TomlError as error:
        raise usage(error.problem.what, error.problem.why, error.problem.fix) from None


def wrong(source: str, item: TableItem, key: str, why: str, fix: str) -> Stopped:
    """Return a usage error about one key of one table."""
    return usage(f"{source}:{item.at(key)}: `{key}` cannot be used", why, fix)


def unknown_key(source: str, item: TableItem, key: str, known: Iterable[str]) -> Stopped:
    """Return a usage error that names the nearest known key."""
    from runner.text.phrases import nearest

    names = list(known)
    fix = nearest(key, names, cutoff=0.5) or f"the keys are {', '.join(f'`{name}`' for name in names)}"
    where = f"in [[{item.name}]]" if item.name else "at the top"
    return wrong(source, item, key, f"there is no such key {where}", fix)


def _tables(document: Mapping[str, object], name: str, source: str) -> list[dict[str, object]]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise usage(f"{source}: `{name}` cannot be used", "it is a list of tables", f"write each one below [[{name}]]")
    return found


def _spans(text: str, known: tuple[str, ...]) -> list[tuple[str, int, int, dict[str, int]]]:
    """Return (name, first line, last line, lines of the keys) of the top and of each `[[name]]`.

    Keys below a header of another kind belong to no span, but the text of the span includes them.
    """
    spans: list[tuple[str, int, int, dict[str, int]]] = [("", 1, 0, {})]
    inside = True
    for statement in statements(text):
        if statement.kind is StatementKind.KEY:
            if inside:
                spans[-1][3].setdefault(statement.path[0], statement.line)
            continue
        inside = statement.kind is StatementKind.ARRAY_ENTRY and len(statement.path) == 1 and statement.path[0] in known
        if inside:
            name, first, _, keys = spans[-1]
            spans[-1] = (name, first, statement.line - 1, keys)
            spans.append((statement.path[0], statement.line, 0, {}))
    name, first, _, keys = spans[-1]
    spans[-1] = (name, first, text.count("\n") + 1, keys)
    return spans
