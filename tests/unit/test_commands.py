"""Tests of the rule files: they load completely, every example holds, and every name that they use exists."""

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

import pytest

from policy.classify import classify
from policy.handlers import HANDLERS, grammar
from policy.model.action import RunArgv, RunScript
from policy.model.assessment import Assessment, Effect
from policy.model.facts import Facts, Kind, PathFact
from policy.model.profile import Profile
from policy.model.tier import Tier
from policy.rules.rule import GRAMMARS, CommandRule
from policy.rules.rule_file import RuleError
from policy.rules.rulebook import RuleBook, parse_examples, parse_rules
from policy.toml.profile import parse_profile
from runner.gate.policy_tools.reference_machine import EXAMPLE_FILES
from tests.support.rule_examples import BOOK, FILES

# Programs whose operands or first words are not told from flags by the table: their grammars have tests of their own.
_OWN_SYNTAX = {
    "find",
    "tar",
    "test",
    "[",
    "printf",
    "set",
    "echo",
    "true",
    "false",
    ":",
    "export",
    "declare",
    "typeset",
}


@lru_cache(maxsize=1)
def profile() -> Profile:
    return parse_profile((files("profiles") / "default.toml").read_text(), "default.toml")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A workspace with the files that the examples name, and a home beside it."""
    top = Path(os.path.realpath(tmp_path_factory.mktemp("machine")))
    workspace, home = top / "work", top / "home"
    for folder in (home / ".ssh", home / ".aws"):
        folder.mkdir(parents=True)
    for name in EXAMPLE_FILES.split():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            (workspace / name).mkdir(exist_ok=True)
        else:
            (workspace / name).write_text("x\n")
    (home / ".ssh" / "id_rsa").write_text("decoy\n")
    (home / ".aws" / "credentials").write_text("decoy\n")

    @cache  # nothing there changes
    def look(path: str) -> PathFact:
        real = os.path.realpath(path)
        try:
            mode = os.stat(real).st_mode
        except OSError:
            return PathFact(real, Kind.MISSING)
        kind = Kind.FOLDER if stat.S_ISDIR(mode) else Kind.FILE if stat.S_ISREG(mode) else Kind.OTHER
        return PathFact(real, kind)

    system = (*profile().system, *(f"/etc/{entry}" for entry in profile().etc))
    path = ("/usr/bin", "/bin")

    def names(folder: str) -> tuple[str, ...] | None:
        return tuple(os.listdir(folder)) if os.path.isdir(folder) else None

    return Facts(str(workspace), str(home), path, system, (), look, lambda name: None, names=names)


def judge(script: str, facts: Facts) -> Assessment:
    return classify(RunScript(script, facts.workspace), facts, BOOK, profile())


def told(effect: Effect, facts: Facts) -> str:
    target = "the workspace" if effect.target == facts.workspace else effect.target.removeprefix(facts.workspace + "/")
    return f"{effect.kind.value} {target}"


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_example_of_a_rule_file_comes_out_as_it_says(name: str, facts: Facts) -> None:
    failures = []
    examples = parse_examples(FILES[name], name)
    for example in examples:
        assessment = judge(example.run, facts)
        said = [told(effect, facts) for effect in assessment.effects]
        if assessment.tiers[0] is not example.tier:
            failures.append((example.ref.line, example.run, assessment.reasons))
        if not set(example.effects) <= set(said):
            failures.append((example.ref.line, example.run, said))
    assert failures == []
    assert examples


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_rule_file_loads_and_has_a_hostile_example(name: str) -> None:
    assert parse_rules(FILES[name], name)
    assert any("hostile" in example.why for example in parse_examples(FILES[name], name))


def test_the_book_is_large_and_whole() -> None:
    BOOK.check()
    assert len(BOOK.names()) >= 2600


def test_every_grammar_that_a_rule_may_name_exists() -> None:
    assert list(HANDLERS) == sorted(HANDLERS)
    assert HANDLERS.keys() == GRAMMARS, "the reader of rule files accepts these names, and no other"
    for name in GRAMMARS:
        assert (grammar(name).__doc__ or "").strip(), name


@cache
def readable() -> dict[str, list[tuple[str, CommandRule]]]:
    """Return every program and subcommand that can be a read, with the words that name it, by the name of the rule file."""

    def below(words: str, rule: CommandRule) -> Iterator[tuple[str, CommandRule]]:
        if rule.tier is Tier.READ and rule.grammar in ("", "git", "cd", "read", "date") and not rule.operands.runs:
            yield words, rule
        for name, sub in rule.subs.items():
            yield from below(f"{words} {name}", sub)

    found: dict[str, list[tuple[str, CommandRule]]] = {name: [] for name in FILES}
    for name in BOOK.names():
        rule = BOOK.find(name)
        if rule is not None and name not in _OWN_SYNTAX:
            found[f"{rule.ref.id}.toml"].extend(below(name, rule))
    return found


def test_the_laws_of_flags_are_about_many_programs() -> None:
    assert sum(map(len, readable().values())) >= 1190


# Each of the next four laws is one test for each rule file, which lists every program that breaks the law.


def unlisted(rule: CommandRule) -> Iterator[str]:
    """Yield flags that `rule` does not list: unknown ones, abbreviations, flags with a value where none belongs."""
    longs = [name for name in rule.flags if name.startswith("--")]
    tries = ["--zzz", "--zzz=x", "--output-that-nobody-lists=x", "--output=x", "--outp=x", "--exec=x"]
    tries += [f"{name}zz" for name in longs]
    tries += [name[:-1] for name in longs if len(name) > 4]
    tries += [f"{name[:-1]}=x" for name in longs if len(name) > 4 and rule.flags[name].role is not None]
    tries += [f"{name}=x" for name in longs if rule.flags[name].role is None]
    tries = [
        flag
        for flag in tries
        if flag.partition("=")[0] not in rule.flags or rule.flags[flag.partition("=")[0]].role is None
    ]
    tries += [
        f"-{letter}"
        for letter in "oOeEwWxXzZ~@"
        if f"-{letter}" not in rule.flags and "-" + letter * 2 not in rule.flags
    ]
    yield from (flag for flag in tries if flag not in rule.flags and flag not in rule.alone)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_flag_that_no_table_lists_is_never_a_read(name: str, facts: Facts) -> None:
    """The closed world, checked mechanically."""
    reads = [
        f"{words} {flag}"
        for words, rule in readable()[name]
        for flag in unlisted(rule)
        if classify(RunArgv((*words.split(), flag), facts.workspace), facts, BOOK, profile()).tiers[0] <= Tier.READ
    ]
    assert reads == []


def spelled(words: str, rule: CommandRule) -> Iterator[str]:
    """Yield scripts in which quotes, escapes, braces or a variable hide a flag that `rule` does not list."""
    if (
        "-o" in rule.flags
        or "--zzz" in rule.flags
        or any(set("o") <= set(name[1:]) for name in rule.flags if len(name) == 2)
    ):
        given = "--zzz"
    else:
        given = "-o"
    letters = given.lstrip("-")
    yield f"x={given}; {words} $x"
    for text in (
        f"-'{given[1:]}'",
        f"{given[0]}\\{given[1:]}",
        f'"{given}"',
        f"$'\\x2d{given[1:]}'",
        f"{given[:-1]}{{{letters[-1]},{letters[-1]}x}}",
        f"{given}\\\n{letters[-1]}",
    ):
        yield f"{words} {text} out.txt"


@pytest.mark.parametrize("name", sorted(FILES))
def test_an_unlisted_flag_is_seen_in_every_spelling(name: str, facts: Facts) -> None:
    """Each spelling is decoded before the flag is looked up; a value does not hide the next flag."""
    scripts = [script for words, rule in readable()[name] for script in spelled(words, rule)]
    assert [script for script in scripts if judge(script, facts).tiers[0] <= Tier.READ] == []


def harmful(words: str, rule: CommandRule) -> Iterator[str]:
    """Yield scripts with each flag that writes, or has a tier of its own."""
    for name, flag in rule.flags.items():
        if flag.tier is None and not flag.edits and (flag.role is None or flag.role.value != "write"):
            continue
        given = f"{name}x" if flag.optional else f"{name} out.txt" if flag.role else name
        given = f"{name}=x" if flag.optional and name.startswith("--") else given
        yield f"{words} {given} notes.txt"


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_flag_that_writes_or_runs_is_never_a_read(name: str, facts: Facts) -> None:
    scripts = [script for words, rule in readable()[name] for script in harmful(words, rule)]
    assert [script for script in scripts if judge(script, facts).tiers[0] <= Tier.READ] == []


def dynamic(words: str, rule: CommandRule) -> Iterator[str]:
    """Yield scripts with an operand that is known only at run time, and may become a flag."""
    if rule.anywhere or (rule.builtin and words in ("shift", "break", "continue", "exit", "return", "logout")):
        return
    for word in ("$OPT", '"$OPT"', "*", "$(cat notes.txt)"):
        if not (rule.single and word == '"$OPT"'):
            yield f"{words} {word}"


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_dynamic_word_is_no_operand_where_a_flag_could_hurt(name: str, facts: Facts) -> None:
    any_name = replace(facts, names=lambda folder: None)  # any name may be there
    scripts = [script for words, rule in readable()[name] for script in dynamic(words, rule)]
    assert [script for script in scripts if judge(script, any_name).tiers[0] <= Tier.READ] == []


GLOBS = [
    ("sort *.txt", Tier.READ, "no name there is a flag"),
    ("sed -n 1p n*.txt *.sh", Tier.READ, "no name there is a flag"),
    ('for f in *.txt; do sort "$f"; done', Tier.READ, "nor is any of them alone"),
    ("cd src && sort *.py", Tier.READ, "in the folder that it is in then"),
    ("sort *", Tier.EXECUTE, "anything at all may become a flag"),
    ("cd dashes && sort *.txt", Tier.EXECUTE, "there is one"),
    ("cd /tmp && sort *.txt", Tier.EXECUTE, "a folder outside"),
    ('cd "$d"; sort *.txt', Tier.EXECUTE, "a folder known only at run time"),
    ("touch ./-ox.txt; sort *.txt", Tier.EXECUTE, "one is made first"),
    ("sort *$x.txt", Tier.EXECUTE, "what follows may begin another word"),
    ("uniq *.txt", Tier.EXECUTE, "the second match would be written"),
    ("tar cf /dev/null *.txt", Tier.EXECUTE, "of all programs, tar"),
    ("less *.txt", Tier.READ, "no name there is a command to less"),
]


@pytest.mark.parametrize(("script", "tier", "why"), GLOBS, ids=[row[0] for row in GLOBS])
def test_a_glob_is_an_operand_where_no_name_is_a_flag(script: str, tier: Tier, why: str, facts: Facts) -> None:
    folder = Path(facts.workspace) / "dashes"
    folder.mkdir(exist_ok=True)
    (folder / "-o").touch()
    assert judge(script, facts).tiers[0] is tier, why


BROKEN = [
    ('[ls]\nwhy = "x"\nflgas = "-a"\n', 3, "did you mean `flags`?", "an unknown key names the nearest one"),
    ('[ls]\nflags = "-a"\n', 1, "why", "every rule says what the command does"),
    ('[ls]\nwhy = "x"\nflags = "-a=raed"\n', 3, "did you mean `read`?", "an unknown role names the nearest one"),
    ('[ls]\nwhy = "x"\ntier = "raed"\n', 3, "did you mean `read`?", "an unknown tier"),
    ('[ls]\nwhy = "x"\ntier = "secret"\n', 3, "tier", "the floors are not for rule files"),
    ('[ls]\nwhy = "x"\nany = "yes"\n', 3, "true", "a switch is true or false"),
    ('[ls]\nwhy = "x"\nopen = true\n', 1, "open", "an open command cannot be a read"),
    ('[ls]\nwhy = "x"\ngrammar = "fnid"\n', 3, "did you mean `find`?", "an unknown grammar"),
    ('[ls]\nwhy = "x"\noperands = "reads*"\n', 3, "did you mean `read`?", "an unknown operand"),
    ('[ls]\nwhy = "x"\nuses = "diff"\n', 3, "diff", "a flag set that is not there"),
    ('[ls]\nwhy = "x"\n\n[ls]\nwhy = "y"\n', 4, "twice", "described twice"),
    ('["git log"]\nwhy = "x"\n', 1, "git", "a subcommand without its program"),
    ('[ls]\nwhy = "x\n', 2, "TOML", "not TOML"),
    ('name = "ls"\n', 1, "before", "text before the first table"),
    ('[ls]\nwhy = "x"\nflags = "a"\n', 3, "`a`", "a flag begins with a dash"),
]


@pytest.mark.parametrize(("text", "line", "word", "why"), BROKEN, ids=[row[3] for row in BROKEN])
def test_a_broken_rule_file_says_where_and_what_to_do(text: str, line: int, word: str, why: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(text, "mine.toml")
    error = caught.value
    assert (error.file, error.line) == ("mine.toml", line)
    assert word in str(error.problem)


def test_a_broken_table_raises_when_its_program_is_asked_for_and_when_all_are_checked() -> None:
    book = RuleBook({"a.toml": '[ls]\nwhy = "lists"\n\n[cat]\nwhy = "x"\nflgas = "-a"\n'})
    assert book.find("ls") is not None
    with pytest.raises(RuleError):
        book.find("cat")
    with pytest.raises(RuleError):
        book.check()


def test_a_command_in_two_files_is_an_error() -> None:
    with pytest.raises(RuleError, match="too"):
        RuleBook({"a.toml": '[ls]\nwhy = "x"\n', "b.toml": '[dir]\nwhy = "x"\nalso = "ls"\n'})


PATTERNS = """
["cloud"]
why = "manages a cloud"
tier = "dangerous"
below = "--help"
otherwise = "dangerous"

["cloud *"]
why = "manages a part of it"
tier = "dangerous"
otherwise = "dangerous"

["cloud * get-secret"]
why = "prints a secret"
tier = "dangerous"
open = true

["cloud * get-*"]
why = "shows something"
also = "list-*"
tier = "network"
open = true

[tool]
why = "is a tool"
tier = "execute"
open = true
alone = "--version"
heeds = "evil.sh"
"""

PATTERN_ROWS = [
    ("cloud disks get-size --id 1", Tier.NETWORK, "a pattern"),
    ("cloud disks list-all", Tier.NETWORK, "another one of the same table"),
    ("cloud disks get-secret", Tier.DANGEROUS, "an exact name is before any pattern"),
    ("cloud disks forget-get-x", Tier.DANGEROUS, "a pattern is about the whole name"),
    ("cloud disks --x get-size", Tier.DANGEROUS, "a flag is not a name"),
    ("cloud --get-x get-size get-size", Tier.DANGEROUS, "a flag that is not known hides what follows"),
    ("cloud disks --help", Tier.READ, "help, of any subcommand"),
    ("cloud disks get-secret --help", Tier.READ, "help, however deep"),
    ("cloud disks get-secret --help x", Tier.DANGEROUS, "more than help"),
    ("cloud unknown-verb --help", Tier.READ, "a pattern knows it"),
    ("tool --version", Tier.EXECUTE, "it obeys a file that is there"),
    ("cd src && tool --version", Tier.EXECUTE, "in a folder above"),
    ("cd /usr && tool --version", Tier.READ, "no such file there"),
    ("cd /tmp && tool --version", Tier.EXECUTE, "who knows what lies there"),
    ('cd "./$X" && tool --version', Tier.EXECUTE, "who knows where"),
]


@pytest.mark.parametrize(("script", "tier", "why"), PATTERN_ROWS)
def test_patterns_of_subcommands_help_below_and_files_that_are_heeded(
    script: str, tier: Tier, why: str, facts: Facts
) -> None:
    book = RuleBook({"mine.toml": PATTERNS, "shell.toml": FILES["shell.toml"]})
    assessment = classify(RunScript(script, facts.workspace), facts, book, profile())
    assert assessment.tiers[0] is tier, (why, assessment.reasons)
