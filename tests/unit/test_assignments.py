"""Tests of variables that a script sets for a program: an unknown variable is never ignored for a command that reads."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policy.bash.ast import Command, Opaque
from policy.bash.parser import read
from policy.model.tier import Tier
from tests.support.classified import BOOK, judge
from tests.support.law import examples
from tests.support.rule_examples import EXAMPLES

# fmt: off
ROWS = [
    ("PATH=. node --check ok.js",                      Tier.EXECUTE, "another program of that name would run"),
    ("NODE_OPTIONS='-r ./x' node --check ok.js",       Tier.EXECUTE, "hostile: a module that node loads first"),
    ("LD_PRELOAD=./x.so node --check ok.js",           Tier.EXECUTE, "ld.so(8)"),
    ("LD_LIBRARY_PATH=. node --check ok.js",           Tier.EXECUTE, "ld.so(8)"),
    ("OPENSSL_CONF=./x.cnf node --check ok.js",        Tier.EXECUTE, "a configuration that loads engines"),
    ("NODE_V8_COVERAGE=. node --check ok.js",          Tier.EXECUTE, "a folder that node writes to"),
    ("BASH_ENV=./x node --check ok.js",                Tier.EXECUTE, "a script that bash runs first"),
    ("IFS=x node --check ok.js",                       Tier.EXECUTE, "bash obeys it"),
    ("PHPRC=. php -l a.php",                           Tier.EXECUTE, "a php.ini with auto_prepend_file"),
    ("PHP_INI_SCAN_DIR=. php -l a.php",                Tier.EXECUTE, "a folder of such files"),
    ("something=1 node --check ok.js",                 Tier.EXECUTE, "the world of variables is closed, lower case too"),
    ("SOMETHING=1 php -l a.php",                       Tier.EXECUTE, "the world of variables is closed"),
    ("SOMETHING+=1 node --check ok.js",                Tier.EXECUTE, "appending is setting"),
    ("time PATH=. node --check ok.js",                 Tier.EXECUTE, "behind `time`"),
    ("! PATH=. node --check ok.js",                    Tier.EXECUTE, "behind `!`"),
    ("if PATH=. node --check ok.js; then ls; fi",      Tier.EXECUTE, "in a condition"),
    ("ls | PATH=. node --check ok.js",                 Tier.EXECUTE, "in a pipeline"),
    ("(PATH=. node --check ok.js)",                    Tier.EXECUTE, "in a subshell"),
    ("f() { X=1 node --check ok.js; }; f",             Tier.EXECUTE, "in a function"),
    ("f() { node --check ok.js; }; X=1 f",             Tier.EXECUTE, "before a function that runs it"),
    ("X=1 eval 'node --check ok.js'",                  Tier.EXECUTE, "before `eval`"),
    ("X=1 command node --check ok.js",                 Tier.EXECUTE, "before `command`"),
    ("export X=1; node --check ok.js",                 Tier.EXECUTE, "exported before"),
    ("X=1; export X; node --check ok.js",              Tier.EXECUTE, "exported afterwards"),
    ("declare -x X=1; node --check ok.js",             Tier.EXECUTE, "`declare -x` exports"),
    ("env X=1 node --check ok.js",                     Tier.EXECUTE, "`env` exports"),
    ("for PATH in .; do node --check ok.js; done",     Tier.EXECUTE, "a loop sets a variable that is exported"),
    ("read PATH < a.txt; node --check ok.js",          Tier.EXECUTE, "so does `read`"),
    ("printf -v PATH .; node --check ok.js",           Tier.EXECUTE, "so does `printf -v`"),
    ("mapfile PATH < a.txt; node --check ok.js",       Tier.EXECUTE, "so does `mapfile`"),
    ("getopts a PATH; node --check ok.js",             Tier.EXECUTE, "so does `getopts`"),
    ("PATH=(.); node --check ok.js",                   Tier.EXECUTE, "so does an array, by its first element"),
    ("declare -a GIT_CONFIG_COUNT; git status",        Tier.EXECUTE, "bash exports no array: Git obeys the repository"),
    ("typeset -a LESSSECURE; git log",                 Tier.EXECUTE, "likewise"),
    ("f() { declare -g -a GIT_CONFIG_COUNT; git diff; }; f", Tier.EXECUTE, "likewise, in a function"),
    ("declare -a LANG; ls",                            Tier.EXECUTE, "exported from the start, and gone"),
    ("f() { local PATH; ls; }; f",                     Tier.EXECUTE, "without a PATH, bash looks in the current folder"),
    ("f() { declare PATH; ls; }; f",                   Tier.EXECUTE, "`declare` makes it local, too"),
    ("f() { local a PATH b; ls; }; f",                 Tier.EXECUTE, "one of several"),
    ("f() { local OPTIND IFS a i; ls; }; f",           Tier.READ,    "as usual where they are not set"),
    ("declare -a found; ls",                           Tier.READ,    "not exported"),
    ("f() { local -i n; ls; }; f",                     Tier.READ,    "a number that has no value is not evaluated"),
    ("export LC_ALL=C; LC_ALL=../x; node --check a.js", Tier.EXECUTE, "another value, once exported"),
    ("LANG=../../x; ls",                               Tier.EXECUTE, "exported from the start"),
    ("for LANG in C ../x; do ls; done",                Tier.EXECUTE, "likewise by a loop"),
    ("cat a.txt | X=1 xargs node --check",             Tier.EXECUTE, "a wrapper hands it on"),
    ("X=1 timeout 5 node --check ok.js",               Tier.EXECUTE, "a wrapper hands it on"),
    ("X=1 find . -name '*.js' -exec node --check {} +", Tier.EXECUTE, "a wrapper hands it on"),
    ("X=1 node ok.js",                                 Tier.EXECUTE, "code that is not read may do anything already"),
    ("X=1 make",                                       Tier.EXECUTE, "code that is not read may do anything already"),
    ("NODE_ENV=test node --check ok.js",               Tier.READ,    "known to be harmless"),
    ("LC_ALL=C sort a.txt",                            Tier.READ,    "known to be harmless"),
    ("for LANG in C en_US.UTF-8; do ls; done",         Tier.READ,    "harmless values, each of them"),
    ("TERM=$(cat a.txt); ls",                          Tier.READ,    "never the name of a file"),
    ("x=1; X=2; ls",                                   Tier.READ,    "not exported"),
    ("X=1 echo hello",                                 Tier.READ,    "no program runs"),
]
# fmt: on


@pytest.mark.threat("T02")
@pytest.mark.parametrize(("script", "tier", "why"), ROWS, ids=[row[0] for row in ROWS])
def test_a_variable_is_waived_only_for_code_that_nobody_reads(script: str, tier: Tier, why: str) -> None:
    assert judge(script).tiers[0] is tier, why


def _program(line: str) -> bool:
    """Return True if `line` is one simple command that runs a known program, not a builtin of the shell."""
    tree = read(line)
    if isinstance(tree, Opaque) or len(tree.items) != 1 or tree.items[0].then not in (";", ""):
        return False
    node = tree.items[0].node
    name = node.words[0].literal if isinstance(node, Command) and node.words and not node.assignments else None
    rule = BOOK.find((name or "").rpartition("/")[2])
    return rule is not None and not rule.builtin


READS = [each.run for each in EXAMPLES if each.tier is Tier.READ and _program(each.run)]
NAMES = st.from_regex(r"\A[A-Z][A-Z0-9]{0,3}QZ|[a-z]{1,3}qz_[a-z]\Z", fullmatch=True) | st.sampled_from(
    ["PATH", "LD_PRELOAD", "BASH_ENV", "IFS", "NODE_OPTIONS", "PHPRC", "OPENSSL_CONF", "HOME", "GIT_DIR"]
)
FRAMES = st.sampled_from(
    [
        "{v}=x {c}", "{v}+=x {c}", "export {v}=x; {c}", "{v}=x; export {v}; {c}", "declare -x {v}=x; {c}", "env {v}=x {c}",
        "! {v}=x {c}", "if {v}=x {c}; then ls; fi", "ls | {v}=x {c}", "( {v}=x {c} )", "f() {{ {c}; }}; {v}=x f",
        "f() {{ export {v}=x; }}; f; {c}", "echo \"$({v}=x {c})\"", "for {v} in x; do export {v}; {c}; done",
        "printf -v {v} x; export {v}; {c}", "read {v} < a.txt; export {v}; {c}", "{v}=x eval \"ls\"; export {v}; {c}",
        "while {v}=x {c}; do ls; done", "{v}=$y {c}", "{v}=x time {c}", "A=1 {v}=x LC_ALL=C {c}",
    ]
)  # fmt: skip


@pytest.mark.threat("T02")
@examples(600)
@given(st.sampled_from(READS), NAMES, FRAMES)
@example("node --check ok.js", "PATH", "{v}=x {c}")
@example("php -l a.php", "some", "{v}=x {c}")
def test_a_line_that_reads_is_no_longer_a_read_with_an_unknown_variable(command: str, name: str, frame: str) -> None:
    if "\n" in command:
        return  # a here-document, which a frame would cut in two
    assert judge(frame.format(v=name, c=command)).tiers[0] > Tier.READ


def test_every_line_that_reads_is_no_longer_a_read_with_an_unknown_variable() -> None:
    assert len(READS) > 100
    assert [line for line in READS if judge(f"QZQ=x {line}").tiers[0] is Tier.READ] == []
