"""Facts about commands: the rule files of `policy/commands`, parsed strictly into CommandRule values.

A file is a list of `[program]` and `["program subcommand"]` tables, one fact per key, and `[[example]]` tables that the
tests run. Loading splits the files into tables; a table is parsed when its program or subcommand is needed, so that
start-up and decisions do not pay for tables that are not used.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from policy.model.assessment import RULE_CONSEQUENCES, Consequence, RuleRef
from policy.model.frozen import dataclass
from policy.model.tier import Tier
from policy.rules.rule import GRAMMARS, CommandRule, Flag, Operands, Role
from policy.rules.rule_file import Chunk, RuleError, chunks, rule_error

__all__ = ["CommandRule", "Example", "RuleBook", "RuleError", "parse_examples", "parse_rules"]


@dataclass(frozen=True, slots=True)
class Example:
    """One example of a rule file for the tests: `run` must be assessed as `tier` (the worst one)."""

    run: str
    tier: Tier
    effects: tuple[str, ...]
    why: str
    ref: RuleRef


_TEXT_KEYS = ("why", "does", "tier", "flags", "whole", "operands", "uses", "also", "otherwise", "listing", "instead")
_MORE_TEXT_KEYS = ("target", "here", "grammar", "alone", "below", "heeds", "looks", "lists", "unless", "changes")
_NETWORK_KEYS = ("port", "registry")
_SWITCHES = ("any", "open", "interpreter", "plain", "builtin", "tame", "single", "words", "unreached")
KEYS = (*_TEXT_KEYS, *_MORE_TEXT_KEYS, *_NETWORK_KEYS, *_SWITCHES)
_EXAMPLE_KEYS = ("run", "tier", "effects", "why")

_FLAG = re.compile(
    r"(-#|--?[A-Za-z0-9@?^+][A-Za-z0-9@._+:-]*|\+[A-Za-z]*|@|-)(?:([=?])([a-z]*)(?:,([a-z]+))?)?(?:!([a-z-]+))?\Z"
)
_SLOT = re.compile(r"([a-z]+)([*+?]?)\Z")
_TIERS = {tier.label: tier for tier in Tier if tier < Tier.SECRET}
_ROLES = {role.value: role for role in Role}
_SETS = ("sets",)


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib  # only on the way to an error

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.0)
    return f"did you mean `{close[0]}`?" if close else ""


def _text(table: Mapping[str, object], key: str, chunk: Chunk) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise rule_error(chunk.file, chunk.line_of(key), f"`{key}` must be text", f'write {key} = "..."')
    return value


def _tier(table: Mapping[str, object], key: str, chunk: Chunk) -> Tier | None:
    label = _text(table, key, chunk)
    if not label:
        return None
    if label not in _TIERS:
        raise rule_error(chunk.file, chunk.line_of(key), f"there is no tier `{label}`", _nearest(label, _TIERS))
    return _TIERS[label]


def _consequence(table: Mapping[str, object], chunk: Chunk) -> Consequence | None:
    label = _text(table, "does", chunk)
    if label and label not in RULE_CONSEQUENCES:
        fix = f"{_nearest(label, RULE_CONSEQUENCES)} it is one of: {', '.join(RULE_CONSEQUENCES)}"
        raise rule_error(chunk.file, chunk.line_of("does"), f"there is no consequence `{label}`", fix)
    return RULE_CONSEQUENCES[label] if label else None


def _flags(text: str, key: str, chunk: Chunk) -> dict[str, Flag]:
    """Read a flag list such as `-bcd -k= -f=read --color? --output=write -i?!edit -#`."""
    flags: dict[str, Flag] = {}
    for token in text.split():
        try:
            found = _flag(token, key == "whole")
        except _FlagError as error:
            raise rule_error(chunk.file, chunk.line_of(key), *error.args) from None
        for flag in found:
            flags[flag.name] = flag
    return flags


class _FlagError(Exception):
    """An error in a word of a flag list, with the expected form."""


@lru_cache(maxsize=8192)  # the same few flags stand in hundreds of tables
def _flag(token: str, whole: bool) -> tuple[Flag, ...]:
    found = _FLAG.match(token)
    if found is None:
        raise _FlagError(f"`{token}` is not a flag", "")
    name, sign, role, second, mark = found.groups()
    if any(each and each not in _ROLES for each in (role, second)) or (mark and mark != "edit" and mark not in _TIERS):
        wrong = next((each for each in (role, second) if each and each not in _ROLES), None)
        fix = _nearest(wrong, _ROLES) if wrong else _nearest(mark or "", [*_TIERS, "edit"])
        raise _FlagError(f"`{token}` names nothing known", fix)
    takes = (_ROLES[role] if role else Role.DATA) if sign else None
    if sign and len(name) > 2 and not name.startswith("--") and not whole:
        raise _FlagError(f"`{token}` gives a value to every letter", f"write `-{name[1:-1]} -{name[-1]}{sign}{role}`")
    tier = None if mark in (None, "edit") else _TIERS[mark]
    shorts = [name] if name.startswith("--") or whole or name in ("-#", "+", "@", "-") else []
    return tuple(
        Flag(short, takes, sign == "?", tier, mark == "edit", _ROLES.get(second or ""))
        for short in shorts or [f"-{letter}" for letter in name[1:]]
    )


def _operands(text: str, chunk: Chunk) -> Operands:
    head: list[Role] = []
    tail: list[Role] = []
    rest: Role | None = None
    for token in text.split():
        found = _SLOT.match(token)
        if found is None or found[1] not in _ROLES or (found[2] in ("*", "+") and rest is not None):
            line = chunk.line_of("operands")
            raise rule_error(chunk.file, line, f"`{token}` is not an operand", _nearest(token, _ROLES))
        role = _ROLES[found[1]]
        if found[2] in ("*", "+"):
            rest = role
        elif rest is None:
            head.append(role)
        else:
            tail.append(role)
    return Operands(tuple(head), rest, tuple(tail))


def _rule(chunk: Chunk, sets: Mapping[str, str]) -> CommandRule:
    """Return the rule of one table, validated key by key. The caller adds its subcommands."""
    table = chunk.table()
    for key, value in table.items():
        if key not in KEYS:
            raise rule_error(chunk.file, chunk.line_of(key), f"there is no key `{key}`", _nearest(key, KEYS))
        if key in _SWITCHES and not isinstance(value, bool):
            raise rule_error(chunk.file, chunk.line_of(key), f"`{key}` is true or false", f"write {key} = true")
    why = _text(table, "why", chunk)
    if not why:
        raise rule_error(
            chunk.file, chunk.line, f"`{' '.join(chunk.words)}` has no `why`", 'say what it does: why = "..."'
        )
    flags: dict[str, Flag] = {}
    for name in _text(table, "uses", chunk).split():
        if name not in sets:
            raise rule_error(chunk.file, chunk.line_of("uses"), f"there is no flag set `{name}`", _nearest(name, sets))
        flags |= _flags(sets[name], "uses", chunk)
    flags |= _flags(_text(table, "flags", chunk), "flags", chunk)
    flags |= _flags(_text(table, "whole", chunk), "whole", chunk)
    grammar = _text(table, "grammar", chunk)
    if grammar and grammar not in GRAMMARS:
        raise rule_error(chunk.file, chunk.line_of("grammar"), f"no grammar `{grammar}`", _nearest(grammar, GRAMMARS))
    tier = _tier(table, "tier", chunk) or Tier.READ
    if table.get("open") and tier is Tier.READ:
        raise rule_error(chunk.file, chunk.line, "a command that only reads must list its flags", "drop `open`")
    here = _text(table, "here", chunk)
    return CommandRule(
        name=" ".join(chunk.words),
        ref=chunk.ref,
        why=why,
        tier=tier,
        flags=flags,
        operands=_operands(_text(table, "operands", chunk), chunk),
        anywhere=bool(table.get("any")),
        open=bool(table.get("open")),
        otherwise=_tier(table, "otherwise", chunk),
        listing=frozenset(_text(table, "listing", chunk).split()),
        instead=frozenset(_text(table, "instead", chunk).split()),
        target=frozenset(_text(table, "target", chunk).split()),
        here=frozenset(here.split()) if here != "always" else frozenset(),
        here_always=here == "always",
        looks=frozenset(_text(table, "looks", chunk).split()),
        lists=frozenset(_text(table, "lists", chunk).split()),
        unless=frozenset(_text(table, "unless", chunk).split()),
        changes=_text(table, "changes", chunk),
        alone=frozenset(_text(table, "alone", chunk).split()),
        below=frozenset(_text(table, "below", chunk).split()),
        heeds=tuple(_text(table, "heeds", chunk).split()),
        interpreter=bool(table.get("interpreter")),
        plain=bool(table.get("plain")),
        builtin=bool(table.get("builtin")),
        tame=bool(table.get("tame")),
        single=bool(table.get("single")),
        words=bool(table.get("words")),
        unreached=bool(table.get("unreached")),
        grammar=grammar,
        port=_text(table, "port", chunk),
        registry=_text(table, "registry", chunk),
        consequence=_consequence(table, chunk),
    )


def _sets(tables: Iterable[Chunk]) -> dict[str, str]:
    sets: dict[str, str] = {}
    for chunk in tables:
        if chunk.words == _SETS:
            sets |= {key: _text({key: value}, key, chunk) for key, value in chunk.table().items()}
    return sets


class _Subs(Mapping[str, CommandRule]):
    """The subcommands of a command by name, each parsed when it is needed."""

    __slots__ = ("_chunks", "_made", "_make")

    def __init__(self, named: dict[str, Chunk], make: Callable[[Chunk], CommandRule]) -> None:
        self._chunks, self._make = named, make
        self._made: dict[str, CommandRule] = {}

    def __getitem__(self, name: str) -> CommandRule:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(self._chunks[name])
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._chunks

    def __iter__(self) -> Iterator[str]:
        return iter(self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)


def _assemble(tables: Iterable[Chunk], sets: Mapping[str, str]) -> CommandRule:
    """Return one program built from its tables: the program itself and its subcommands at any depth."""
    found: dict[tuple[str, ...], Chunk] = {}
    for chunk in tables:
        if chunk.words in found:
            why = f"`{' '.join(chunk.words)}` is described twice"
            raise rule_error(chunk.file, chunk.line, why, "merge the two tables")
        found[chunk.words] = chunk
    below: dict[tuple[str, ...], dict[str, Chunk]] = {}
    for words, chunk in found.items():
        above = words[:-1]
        if not above:
            top = chunk
        elif above in found:
            below.setdefault(above, {}).update(dict.fromkeys([words[-1], *chunk.also], chunk))
        else:
            raise rule_error(chunk.file, chunk.line, f"`{' '.join(above)}` is not described", "add its table first")

    def make(chunk: Chunk) -> CommandRule:
        rule = _rule(chunk, sets)
        subs = below.get(chunk.words)
        return rule if subs is None else replace(rule, subs=_Subs(subs, make))

    return make(top)


def _whole(rule: CommandRule) -> None:
    """Read every subcommand; raises the first RuleError."""
    for sub in rule.subs.values():
        _whole(sub)


def _by_program(tables: Iterable[Chunk]) -> dict[str, list[Chunk]]:
    programs: dict[str, list[Chunk]] = {}
    for chunk in tables:
        if chunk.words != _SETS:
            programs.setdefault(chunk.words[0], []).append(chunk)
    return programs


def _also(tables: Iterable[Chunk]) -> list[str]:
    """Return the other names of the program itself."""
    return [alias for chunk in tables if len(chunk.words) == 1 for alias in chunk.also]


def parse_rules(text: str, file: str) -> tuple[CommandRule, ...]:
    """Return the rules of one complete rule file. Raises RuleError with file, line and the nearest key."""
    tables = tuple(chunks(text, file))
    sets = _sets(tables)
    rules = []
    for own in _by_program(tables).values():
        rule = _assemble(own, sets)
        _whole(rule)
        rules += [rule, *(replace(rule, name=alias) for alias in _also(own))]
    return tuple(rules)


def parse_examples(text: str, file: str) -> tuple[Example, ...]:
    """Return the `[[example]]` tables of one rule file, for the tests."""
    examples = []
    for chunk in chunks(text, file, examples=True):
        table = chunk.table()
        for key in table:
            if key not in _EXAMPLE_KEYS:
                raise rule_error(file, chunk.line_of(key), f"there is no key `{key}`", _nearest(key, _EXAMPLE_KEYS))
        label = _text(table, "tier", chunk)
        tier = next((tier for tier in Tier if tier.label == label), None)
        if tier is None:
            raise rule_error(file, chunk.line_of("tier"), f"there is no tier `{label}`", _nearest(label, _TIERS))
        effects = table.get("effects", [])
        if not isinstance(effects, list):
            raise rule_error(file, chunk.line_of("effects"), "`effects` is a list of texts", "")
        effect_texts = tuple(str(effect) for effect in effects)
        examples.append(Example(_text(table, "run", chunk), tier, effect_texts, _text(table, "why", chunk), chunk.ref))
    return tuple(examples)


class RuleBook:
    """The index of all rules by the bare name of the program."""

    __slots__ = ("_chunks", "_rules", "_sets", "files")

    def __init__(self, rules: Iterable[CommandRule] = ()) -> None:
        self._rules: dict[str, CommandRule] = {rule.name: rule for rule in rules}
        self._chunks: dict[str, list[Chunk]] = {}
        self._sets: dict[str, list[Chunk] | dict[str, str]] = {}  # by file; as tables until they are needed
        self.files: Mapping[str, str] = {}  # what it was read from: name -> text

    @classmethod
    def from_files(cls, files: Mapping[str, str]) -> "RuleBook":
        """Index rule files (name -> text). A table is parsed, and its errors raised, when it is needed; `check` parses
        all.
        """
        book = cls()
        book.files = files
        for file, text in files.items():
            tables = list(chunks(text, file))
            book._sets[file] = [chunk for chunk in tables if chunk.words == _SETS]
            for program, own in _by_program(tables).items():
                for name in (program, *_also(own)):
                    if name in book._chunks:
                        other = book._chunks[name][0]
                        why = f"`{name}` is described in {other.file}:{other.line} too"
                        raise rule_error(file, own[0].line, why, "keep one of them")
                    book._chunks[name] = own
        return book

    def find(self, name: str) -> CommandRule | None:
        """Return the rule of the program `name`, or None for an unknown program, which is never only a read."""
        rule = self._rules.get(name)
        if rule is None and (own := self._chunks.get(name)):
            program = own[0].words[0]
            if program == name:
                rule = _assemble(own, self._sets_of(own[0].file))
            else:
                first = self.find(program)
                rule = first and replace(first, name=name)
            if rule is not None:
                self._rules[name] = rule
        return rule

    def _sets_of(self, file: str) -> dict[str, str]:
        sets = self._sets[file]
        if isinstance(sets, list):
            sets = self._sets[file] = _sets(sets)
        return sets

    def names(self) -> tuple[str, ...]:
        """Return every program that has a rule, in alphabetical order."""
        return tuple(sorted({*self._rules, *self._chunks}))

    def check(self) -> None:
        """Parse every table; raises the first RuleError."""
        for name in self.names():
            rule = self.find(name)
            if rule is not None and rule.name == name:
                _whole(rule)
