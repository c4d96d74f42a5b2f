"""One rule file of `policy/commands`, split into tables at the headers. A table is parsed when it is needed.

The files are TOML. Their usual content, `key = "text"` and `key = true`, is read by one regular expression; a table
with any other content is parsed by the TOML parser of the standard library, which takes a hundred times as long.
"""

import re
from collections.abc import Iterator

from policy.model.assessment import RuleKind, RuleRef
from policy.model.frozen import dataclass
from policy.model.glob import late
from policy.model.verdict import Problem, ProblemError

_HEADER = late(r'^\[(?:"([^"\]]+)"|([A-Za-z0-9_.+-]+)|\[example\])\]\s*(?:#.*)?$')
_COMMENT = r"(?:\#[^\x00-\x08\x0a-\x1f\x7f]*+)?"
_SIMPLE_HEADER = late(rf'\[(?:[A-Za-z0-9_-]+|"[^"\\\x00-\x1f\x7f]+")\][ \t]*+{_COMMENT}(?:\n|\Z)')
_LINE = late(
    rf"""[ \t]*+(?:
    ([A-Za-z0-9_-]++)[ \t]*+=[ \t]*+(?:
        "(?!"")([^"\\\x00-\x08\x0a-\x1f\x7f]*+)"|(true|false)|\"""\n?+([^"\\\x00-\x08\x0b-\x1f\x7f]*+)\"""
    )[ \t]*+)?{_COMMENT}(?:\n|\Z)""",
    re.VERBOSE,
)
_ALSO = late(r'^also\s*=\s*"([^"]*)"', re.MULTILINE)
_FAMILY = late(r'^family\s*=\s*"([^"]*)"', re.MULTILINE)


class RuleError(ProblemError):
    """An error in a rule file, with its line and a fix."""

    def __init__(self, file: str, line: int, problem: Problem) -> None:
        super().__init__(problem)
        self.file, self.line = file, line


def rule_error(file: str, line: int, why: str, fix: str = "") -> RuleError:
    """Return the error for a line of a rule file. `line` counts from 1; an empty `fix` is replaced by a general one."""
    fix = fix or "write it as the other tables of that folder do"
    return RuleError(file, line, Problem("a rule file does not load", f"{file}:{line}: {why}", fix))


@dataclass(frozen=True, slots=True)
class Chunk:
    """One table as text. `words` are the command and its subcommands; empty for an example. `line` counts from 1."""

    words: tuple[str, ...]
    text: str
    file: str
    line: int

    @property
    def ref(self) -> RuleRef:
        """Return the reference to this table."""
        return RuleRef(RuleKind.COMMAND, self.file.removesuffix(".toml"), self.line)

    @property
    def also(self) -> list[str]:
        """Return the other names of the command without parsing the table."""
        match = _ALSO.search(self.text) if "\nalso" in self.text else None
        return match[1].split() if match else []

    @property
    def family(self) -> str:
        """Return the family of the command without parsing the table; empty if there is none."""
        match = _FAMILY.search(self.text) if "\nfamily" in self.text else None
        return match[1] if match else ""

    def table(self) -> dict[str, object]:
        """Return the keys and values. Raises RuleError if the table is not valid TOML."""
        table = _simple(self.text)
        if table is not None:
            return table
        import tomllib  # imported here: it is slow to load, and most commands do not need it

        try:
            whole = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            place = re.search(r"at line (\d+)", str(error))
            line = self.line + (int(place[1]) - 1 if place else 0)
            raise rule_error(self.file, line, f"not TOML: {error}") from None
        (value,) = whole.values()
        content = value[0] if isinstance(value, list) else value
        return {str(key): item for key, item in content.items()} if isinstance(content, dict) else {}

    def error(self, why: str, fix: str = "", *, key: str = "") -> RuleError:
        """Return an error at the line that sets `key`, or at the header if no line does."""
        from policy.toml.lines import StatementKind, statements  # imported here: only error messages need it

        keys = (each for each in statements(self.text) if each.kind is StatementKind.KEY)
        line = self.line + next((each.line for each in keys if key and each.path == (key,)), 1) - 1
        return rule_error(self.file, line, why, fix)


def chunks(text: str, file: str, *, examples: bool = False) -> Iterator[Chunk]:
    """Yield the tables of a rule file in their order: those of commands, or the examples. Raises RuleError."""
    starts = [0] if text.startswith("[") else []
    at = text.find("\n[")
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n[", at + 1)
    for number, line in enumerate(text[: starts[0] if starts else None].split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            raise rule_error(file, number, f"`{line.strip()}` is before the first table")
    at, line_number = 0, 1
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        line_number += text.count("\n", at, start)
        at = start
        if text.startswith("[[example]]\n", start) and not examples:
            continue
        whole = text[start:end]
        header = whole.partition("\n")[0]
        found = _HEADER.match(header)
        if found is None:
            raise rule_error(file, line_number, f"`{header}` is not a table of a rule file")
        name = found[1] or found[2] or ""
        if bool(name) is not examples:
            yield Chunk(tuple(name.split()), whole, file, line_number)


def _simple(text: str) -> dict[str, object] | None:
    """Return the table if it contains only plain texts and booleans, else None. The result never differs from that of
    TOML.
    """
    header = _SIMPLE_HEADER.match(text)
    if header is None:
        return None
    table: dict[str, object] = {}
    at, end = header.end(), len(text)
    while at < end:
        line = _LINE.match(text, at)
        if line is None:
            return None
        at = line.end()
        key, plain, switch, long = line.groups()
        if key is None:
            continue
        if key in table:
            return None
        table[key] = plain if plain is not None else long if long is not None else switch == "true"
    return table
