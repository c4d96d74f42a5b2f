"""Tests of embedded languages (awk, sed, jq and others): each reads programs by an allowlist, and shell constructs do
not bypass it.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.bash.ast import Arithmetic, Expansion, Script
from policy.bash.parser import read
from policy.handlers.sqlite import sql_only_reads
from policy.interpreter.arithmetic import evaluate
from policy.interpreter.assignments import VariableReach, variable_reach
from policy.interpreter.parameter_ops import apply_operation
from policy.languages.awk import read_awk
from policy.languages.jq import read_jq
from policy.languages.language_result import Reading
from policy.languages.sed import read_sed
from policy.model.abstract_word import (
    ANYTHING,
    NUMBER,
    AbstractWord,
    below,
    concatenate,
    join,
    literal,
    unquoted,
)
from policy.model.host_words import endpoint, is_remote_path, mounted
from policy.model.tier import Tier
from policy.rules.rulebook import parse_rules

R, W, X, N, U = Tier.READ, Tier.WRITE, Tier.EXECUTE, Tier.NETWORK, Tier.UNKNOWN

# fmt: off
SED = [
    ("p", R, "one command"),
    ("1,200p", R, "a range"),
    ("$!d", R, "all but the last"),
    ("/start/,/end/p", R, "a range of patterns"),
    ("/a/I,+3p", R, "a range of lines"),
    ("0~4!d;2q", R, "steps"),
    ("10,20p;30q", R, "two commands"),
    (r"\,a/b,d", R, "another delimiter"),
    ("s/a/b/g", R, "a replacement"),
    ("s|a|b|2gIp", R, "with flags"),
    (r"s/\//x/", R, "an escaped delimiter"),
    ("s/[0-9]/x/", R, "a bracket"),
    ("/x/{s/a/b/;p}", R, "a group"),
    ("/x/{", R, "a group that another -e closes"),
    ("a hello; w out", R, "text goes to the end of its line"),
    ("a\\\nhello\\\nw x\np", R, "text over several lines"),
    (":a;N;$!ba;s/\\n/ /g", R, "a loop"),
    ("y/abc/xyz/", R, "a translation"),
    ("# w out\np", R, "a remark"),
    ("e", X, "runs its input"),
    ("1e touch x", X, "runs a program"),
    ("$!{e touch x\n}", X, "in a group"),
    ("s/.*/touch x/e", X, "runs what it matched"),
    ("s,a,b,gie", X, "among other flags"),
    ("s/a/b/;e", X, "as the second command"),
    ("s/a/b/\n1e id", X, "on the second line"),
    ("a text\n1e id", X, "after a text"),
    ("w out.txt", W, "writes a file"),
    ("/x/w out.txt", W, "writes matches"),
    ("s/a/b/w out.txt", W, "writes replacements"),
    ("$!W out.txt", W, "writes a line"),
    ("w /dev/stdout", R, "writes what it would print"),
    ("s/[/]/x/", U, "implementations differ on where the pattern ends"),
    ("s/[/]/w out/", U, "implementations differ on where the pattern ends"),
    ("s/a/b", U, "unfinished"),
    ("s/a/b/z", U, "an unknown flag"),
    ("/a", U, "an unfinished address"),
    ("k", U, "an unknown command"),
    ("v", U, "an unknown command"),
    ("p x", U, "text after a command"),
    ("", R, "nothing"),
]

AWK = [
    ("{print $1}", R, "a field"),
    ("NR>1 {print $2}", R, "a comparison in a pattern"),
    ("$1 > 5 {print $2}", R, "a comparison in a pattern"),
    ("length > 80", R, "a comparison in a pattern"),
    ("!seen[$0]++", R, "an array"),
    ("/start/,/end/", R, "a range of patterns"),
    ("/a|b/ {n++} END {print n/2}", R, "a bar in a pattern, a division"),
    ("{print ($1 > 5)}", R, "a comparison in parentheses"),
    ("{print \"a > b | c\"}", R, "signs in a string"),
    ("a || b", R, "two bars are or"),
    ("{printf \"%s\\n\", $1 > \"/dev/stderr\"}", R, "the error output is no file"),
    ("BEGIN{system(\"id\")}", X, "runs a program"),
    ("{print | \"sh\"}", X, "a pipe to a program"),
    ("{\"id\" | getline x}", X, "a pipe from a program"),
    ("{print |& \"sh\"}", X, "a pipe both ways"),
    ("{print > \"out.txt\"}", W, "writes a file"),
    ("{print $1, $2 >> \"out.txt\"}", W, "appends to a file"),
    ("{print $1,\n$2 > \"out.txt\"}", W, "over two lines"),
    ("{print(1) > \"out.txt\"}", W, "after parentheses"),
    ("{print > $1}", U, "a file known only at run time"),
    ("{print > \"a\" \"b\"}", U, "a file that is put together"),
    ("{print $1 > f}", U, "a file in a variable"),
    ("{getline x < \"/etc/passwd\"}", R, "reads another file, which is an effect"),
    ("BEGIN{while((getline l < \"a.txt\") > 0) print l}", R, "in a loop"),
    ("{getline; print}", R, "the next line of its own input"),
    ("NR%2{getline x; print x}", R, "into a variable"),
    ("{getline < f}", U, "a file in a variable"),
    ("{getline x < \"a\" \"b\"}", U, "a file that is put together"),
    ("{getline x < \"a\" y}", U, "with a value"),
    ("{getline x < \"a\\x62\"}", U, "an escape in its name"),
    ("{getline x < \"/inet/tcp/0/a.org/80\"}", U, "a connection"),
    ("{getline $1 < \"a\"}", U, "into a field"),
    ("{getline x y}", U, "not plain"),
    ("{\"id\" | getline}", X, "a pipe from a program"),
    ("{x = \"id\" \"\" | getline; y}", X, "a pipe from a program"),
    ("{getline x < \"a\" | getline}", U, "a pipe from what is named there"),
    ("{print > \"/inet/tcp/0/a.org/80\"}", N, "a connection"),
    ("@load \"x\"", U, "loads a library"),
    ("BEGIN{f=\"system\"; @f(\"id\")}", U, "calls by name"),
    ("if (x) /a/ {system(\"id\")} /b/", U, "a slash that could be read in two ways"),
    ("{x = y / 2; system(\"id\"); z = 1 / x}", X, "divisions hide nothing"),
    ("{x = f(1) / 2; system(\"id\") / 3}", U, "after a parenthesis a slash could be either"),
    ("/[/]/ {print}", R, "a slash in a bracket, and nothing risky"),
    ("/[/]/ {system(\"id\")} /x/", U, "a slash in a bracket, and something risky"),
    ("{print 'x'}", U, "not awk"),
    ("{print \"x}", U, "an unfinished string"),
    ("", R, "nothing"),
]

JQ = [
    (".", R, "the input"),
    (".scripts | keys[]", R, "a path"),
    (".[] | select(.x > 1) | .name", R, "a filter"),
    ("to_entries[] | \"\\(.key)=\\(.value)\"", R, "a string with values"),
    (".load", R, "a key"),
    ("\"load\"", R, "a string"),
    ("load(\"/etc/passwd\")", U, "yq reads another file"),
    ("\"\\(load(\"x\"))\"", U, "inside a string"),
    ("import \"a\" as b; .", U, "a module"),
]
# fmt: on


@pytest.mark.parametrize(("program", "tier", "why"), SED, ids=[row[0] for row in SED])
def test_sed(program: str, tier: Tier, why: str) -> None:
    assert worst(read_sed(program)) is tier, why


@pytest.mark.parametrize(("program", "tier", "why"), AWK, ids=[row[0] for row in AWK])
def test_awk(program: str, tier: Tier, why: str) -> None:
    assert worst(read_awk(program)) is tier, why


@pytest.mark.parametrize(("program", "tier", "why"), JQ, ids=[row[0] for row in JQ])
def test_jq(program: str, tier: Tier, why: str) -> None:
    assert worst(read_jq(program)) is tier, why


def worst(reading: Reading) -> Tier:
    return max(reading.tier, W if reading.writes else R)


def test_the_files_that_a_program_names_are_told() -> None:
    assert read_sed("r in.txt\ns/a/b/w out.txt").reads == ("in.txt",)
    assert read_sed("r in.txt\ns/a/b/w out.txt").writes == ("out.txt",)
    assert read_awk('{print > "out.txt"}').writes == ("out.txt",)


@given(st.text(alphabet="spewWrR/|,;{}[]\\ab1$!\n .~+g", max_size=25))
def test_a_sed_program_that_is_called_harmless_holds_no_command_that_runs(program: str) -> None:
    """Whatever the text, a lone `e` line appended to a harmless program is seen."""
    before = read_sed(program)
    if before.tier is R and not program.endswith("\\"):
        after = read_sed(f"{program}\n1e id")
        inside = program.rpartition("\n")[2].lstrip(" 0123456789$!/~+,{}").startswith(("a", "i", "c"))
        assert after.tier in (X, U) or inside


@given(st.text(max_size=40))
def test_every_text_has_an_answer_in_every_language(program: str) -> None:
    for reader in (read_sed, read_awk, read_jq):
        assert reader(program).tier in Tier


SQL = [
    ("select * from t", True, "a question"),
    ("SELECT count(*), max(a) FROM t WHERE a IN (1, 2) AND b LIKE '%x;y%'; values (1)", True, "two questions"),
    ("with a as (select 1) select * from a", True, "a name for a question"),
    ("explain query plan select 1", True, "how it would be answered"),
    ("pragma table_info(t)", True, "what there is"),
    ("pragma user_version", True, "a number"),
    ("select 'drop table t -- x'", True, "a string"),
    ('select "delete" from [insert]', True, "names in quotes"),
    ("-- a comment\nselect 1 /* another */", True, "comments"),
    ("", True, "nothing"),
    ("select 1; delete from t", False, "a second statement"),
    ("with a as (select 1) delete from t", False, "a statement behind a name"),
    ("select 1 /* ' */; delete from t /* ' */", False, "quotes in comments"),
    ("select '--'; delete from t", False, "no comment, but a string"),
    ("pragma user_version=3", False, "sets it"),
    ("pragma journal_mode(wal)", False, "sets it"),
    ("pragma temp_store_directory", False, "not a setting that is known"),
    ("explain", False, "unfinished"),
    ("explain explain delete from t", False, "a change, explained or not"),
    ("select load_extension('x')", False, "loads code"),
    ("select \"load_extension\"('x')", False, "loads code, in quotes"),
    ("select load_extension /* x */ ('x')", False, "loads code, with a comment between"),
    ("select writefile('x', 'y')", False, "writes a file"),
    ("select f(1)", False, "a function that nobody knows"),
    ("select * from fsdir('/')", False, "a table that is a function"),
    ("attach 'x' as y", False, "another file"),
    ("vacuum into 'x'", False, "another file"),
    ("select 1 into x", False, "not a plain question"),
    ("select 'x", False, "unfinished"),
    ("select #1", False, "not understood"),
    ("begin; select 1", False, "holds a lock"),
]


@pytest.mark.parametrize(("text", "harmless", "why"), SQL, ids=[row[0] for row in SQL])
def test_sql_that_only_looks(text: str, harmless: bool, why: str) -> None:
    assert sql_only_reads(text) is harmless, why


SQL_PARTS = st.sampled_from(["select 1", "--", "/*", "*/", "'", '"', ";", "\n", " ", "x"])


@given(st.lists(SQL_PARTS, max_size=12).map("".join))
def test_a_statement_that_changes_is_seen_behind_any_text(text: str) -> None:
    if sql_only_reads(text):
        assert not sql_only_reads(f"{text}\n;delete from t")


HOSTS = [
    ("https://example.org/x", "example.org"),
    ("https://example.org", "example.org"),
    ("HTTP://Example.ORG:80/", "example.org:80"),
    ("ftp://u:p@example.org", "example.org:21"),
    ("https://a@b.org@example.org/", "example.org"),
    ("https://a.org\\@example.org/", ""),
    ("http://[::1]:80/x", "[::1]:80"),
    ("user@example.org:path", "example.org:22"),
    ("example.org", "example.org"),
    ("example.org/path", "example.org"),
    ("http://2130706433/", ""),
    ("file:///etc/passwd", None),
    ("./local", None),
    ("/local", None),
]


@pytest.mark.parametrize(("text", "host"), HOSTS)
def test_hosts(text: str, host: str | None) -> None:
    assert endpoint(text) == host


ELSEWHERE = [
    ("web:/etc/passwd", True, "a path in a container"),
    ("me@example.org:x", True, "a path on another machine"),
    ("s3://bucket/x", True, "a path in a cloud"),
    ("./web:x", False, "a local path with a colon"),
    ("dir/web:x", False, "a local path with a colon"),
    (":x", False, "nothing before the colon"),
    ("notes.txt", False, "no colon"),
]


@pytest.mark.parametrize(("text", "expected", "why"), ELSEWHERE)
def test_what_is_elsewhere(text: str, expected: bool, why: str) -> None:
    assert is_remote_path(text) is expected, why


MOUNTS = [
    ("/:/host", "/", False, "the whole machine, to write"),
    ("./src:/app:ro", "./src", True, "to read only"),
    ("./src:/app:ro,z", "./src", True, "among other options"),
    ("./src:/app:rw,ro", "./src", False, "both: the worse"),
    ("/a,b:/c", "/a,b", False, "a comma in a path"),
    ("data:/var/lib/x", "", False, "a volume by its name"),
    ("/data", "/data", False, "a path alone"),
    ("type=bind,source=/etc,target=/x", "/etc", False, "spelled out, to write"),
    ("type=bind,src=/etc,dst=/x,readonly", "/etc", True, "to read only"),
    ("type=bind,src=/etc,dst=/x,readonly=false", "/etc", False, "not to read only"),
    ("type=bind,readonly,src=/etc,dst=/x,ro=false", "/etc", False, "both: the worse"),
    ("type=volume,source=data,target=/x", "", False, "a volume by its name"),
    ("source=secrets,target=/x,type=bind", "secrets", False, "a relative path"),
    ("type=tmpfs,target=/x", "", False, "nothing of this machine"),
]


@pytest.mark.parametrize(("text", "source", "fixed", "why"), MOUNTS)
def test_what_a_mount_hands_over(text: str, source: str, fixed: bool, why: str) -> None:
    assert mounted(text)[0] == source, why
    assert mounted(text)[1] is fixed, why


# Possible texts of words

DASH = literal("-o")
WORDS = [
    ([literal("a"), literal("b")], ("ab",), True, "certain parts"),
    ([literal(""), ANYTHING], (), False, "an empty start says nothing"),
    ([AbstractWord(never_an_option=True), literal("-o")], (), False, "what may be empty uncovers what follows"),
    ([literal("a"), AbstractWord()], (), True, "a certain start"),
    (
        [literal("a"), AbstractWord(may_split=True, never_an_option=True)],
        (),
        True,
        "later words are known to start with no dash",
    ),
    (
        [literal("a"), AbstractWord(may_split=True, never_an_option=True), literal("-o")],
        (),
        False,
        "what follows a split starts a word",
    ),
    (
        [AbstractWord(may_split=True, never_an_option=True), literal("-"), literal("o")],
        (),
        False,
        "a dash alone is the start of a flag",
    ),
    ([literal("a"), ANYTHING], (), False, "later words of a split may start with a dash"),
    ([literal("src/"), AbstractWord(globbed=True, may_split=True)], (), True, "every match starts like that"),
    ([AbstractWord(globbed=True, may_split=True), literal(".py")], (), False, "a match may start with a dash"),
    ([AbstractWord(texts=("a", "b")), literal("c")], ("ac", "bc"), True, "either"),
    ([DASH], ("-o",), False, "a flag"),
    ([literal("-")], ("-",), True, "a lone dash is no flag"),
]


@pytest.mark.parametrize(("parts", "texts", "plain", "why"), WORDS, ids=[row[3] for row in WORDS])
def test_a_word_of_parts(parts: list[AbstractWord], texts: tuple[str, ...], plain: bool, why: str) -> None:
    word = concatenate(parts, None)
    assert (word.texts, word.plain) == (texts, plain), why


def test_a_bound_holds_only_while_nothing_leads_out_of_it() -> None:
    glob = AbstractWord(globbed=True, may_split=True)
    assert concatenate([literal("src/"), glob], None).globbed
    assert not concatenate([literal("src/"), glob, literal("/../..")], None).globbed
    assert not concatenate([literal("src/"), glob, AbstractWord()], None).globbed


def test_splitting_and_joining_states_keep_what_is_certain() -> None:
    assert unquoted(literal("a")).text == "a"
    assert unquoted(literal("a b")).may_split
    assert not unquoted(literal("a -o")).plain
    assert unquoted(literal("*")).text is None
    assert unquoted(literal("")).may_split
    assert join(literal("a"), literal("b")).texts == ("a", "b")
    assert join(literal("a"), ANYTHING).texts == ()
    assert join(literal("a"), ANYTHING).likely_texts == ("a",)
    assert concatenate([literal("x"), join(literal("a"), ANYTHING)], None).likely_texts == ("xa",)
    assert concatenate([ANYTHING, join(literal("a"), ANYTHING)], None).likely_texts == ()
    assert unquoted(literal("a b")).likely_texts == ("a", "b")
    assert unquoted(join(literal("a * b"), ANYTHING)).likely_texts == ()
    assert below("./x").plain
    assert not below("-x").plain


# Values that are known

SUMS = [
    ("1+2*3", ("7",), "what binds tighter comes first"),
    ("2**3*2", ("16",), "a power binds tightest"),
    ("-2**2", ("4",), "a sign binds tighter than a power"),
    ("7/2", ("3",), "whole numbers"),
    ("(0-7)/2", ("-3",), "cut towards zero"),
    ("(0-7)%3", ("-1",), "the sign of the left side"),
    ("1<<4|1", ("17",), "bits"),
    ("!0 && ~1 < 0", ("1",), "truth is one"),
    ("n?2:3", ("2", "3"), "either, when the name may be either"),
    ("n+1", ("1", "2"), "one of two"),
    ("2+$n", ("2", "3"), "put in as text"),
    ("9*999999999999999999", (), "near the end of what bash counts"),
    ("2**60*2**60", (), "beyond it"),
    ("$#+1", (), "some number"),
    ("m+1", (), "some number"),
]


@pytest.mark.parametrize(("text", "texts", "why"), SUMS, ids=[row[0] for row in SUMS])
def test_arithmetic(text: str, texts: tuple[str, ...], why: str) -> None:
    tree = read(f"n=0; m=0; a $(({text}))")
    assert isinstance(tree, Script), tree
    (part,) = tree.items[2].node.words[1].parts  # type: ignore[union-attr, index]
    assert isinstance(part, Arithmetic)
    values = {"n": AbstractWord(texts=("0", "1")), "m": NUMBER}
    sense = evaluate(part.expression, values.__getitem__)
    assert (sense.texts, sense.number) == (texts, not texts), why


PIECES = [
    ("${x#a/}", "a/b.c.d", "b.c.d", "a start"),
    ("${x#b}", "a/b.c.d", "a/b.c.d", "not its start"),
    ("${x##*/}", "a/b/c", "c", "the last name"),
    ("${x#*/}", "a/b/c", "b/c", "without the first name"),
    ("${x%/*}", "a/b/c", "a/b", "the folder"),
    ("${x%%/*}", "a/b/c", "a", "the first name"),
    ("${x%.*}", "a.tar.gz", "a.tar", "without the last ending"),
    ("${x%/*}", "a", "a", "nothing to take off"),
    ("${x%[0-9]}", "a1", None, "another pattern"),
    ("${x#?}", "a1", None, "another pattern"),
    ("${x//./-}", "a.b.c", "a-b-c", "all of them"),
    ("${x/./-}", "a.b.c", "a-b.c", "the first"),
    ("${x/#a/b}", "aa", "ba", "at the start"),
    ("${x/%a/b}", "aa", "ab", "at the end"),
    ('"${x/a/&}"', "aa", None, "newer versions put in what matched"),
    ("${x/a*/b}", "aa", None, "a pattern"),
    ("${x^}${y}", "ab", None, "two parts"),
    ("${x^}", "ab", "Ab", "the first letter"),
    ("${x,,}", "AB", "ab", "all letters"),
    ("${x^^}", "é", None, "not the same everywhere"),
    ("${x:2}", "abcd", "cd", "from there on"),
    ("${x:1:2}", "abcd", "bc", "so many"),
    ("${x:9}", "abcd", "", "beyond the end"),
    ("${x: -2}", "abcd", "cd", "from the end"),
    ("${x: -9}", "abcd", "", "before the start"),
]


@pytest.mark.parametrize(("text", "value", "result", "why"), PIECES, ids=[f"{row[0]} {row[1]}" for row in PIECES])
def test_pieces_of_a_known_value(text: str, value: str, result: str | None, why: str) -> None:
    tree = read(f"a {text}")
    assert isinstance(tree, Script), tree
    parts = tree.items[0].node.words[1].parts  # type: ignore[union-attr, index]
    assert isinstance(parts[0], Expansion)
    found = apply_operation(parts[0], literal(value)) if len(parts) == 1 else None
    assert (found.text if found is not None else None) == result, why


STANDINGS = [
    ("x", "1", False, VariableReach.OWN, "a name of the script"),
    ("x", "1", True, VariableReach.PASSED, "exported, a name that no table has may mean something"),
    ("http_proxy", "x", True, VariableReach.SHELL, "except where it is a user's"),
    ("npm_config_script_shell", "x", True, VariableReach.SHELL, "except where it is a user's"),
    ("FOO", "1", False, VariableReach.OWN, "seen by this shell only"),
    ("FOO", "1", True, VariableReach.PASSED, "a program may obey it"),
    ("LC_ALL", "C", True, VariableReach.OWN, "how output looks"),
    ("LC_ALL", None, True, VariableReach.PASSED, "a value known only at run time"),
    ("LC_ALL", "/tmp/x", True, VariableReach.PASSED, "a file"),
    ("TZ", "Europe/Berlin", True, VariableReach.OWN, "a zone"),
    ("PAGER", "cat", True, VariableReach.OWN, "the one harmless pager"),
    ("PAGER", "less", True, VariableReach.SHELL, "a program"),
    ("PATH", "x", False, VariableReach.SHELL, "which programs run"),
    ("IFS", ",", False, VariableReach.SHELL, "how words split"),
    ("BASH_ENV", "x", False, VariableReach.SHELL, "what bash runs first"),
    ("PS4", "x", False, VariableReach.SHELL, "what bash expands"),
    ("GIT_DIR", "x", False, VariableReach.SHELL, "the environment may hold it already"),
    ("LD_PRELOAD", "x", True, VariableReach.SHELL, "code in every program"),
    ("USER", "x", False, VariableReach.SHELL, "the environment holds it already"),
    ("MY_TERM", "x", False, VariableReach.OWN, "not a name that anybody knows"),
]


@pytest.mark.parametrize(("name", "value", "exported", "expected", "why"), STANDINGS)
def test_variables(name: str, value: str | None, exported: bool, expected: VariableReach, why: str) -> None:
    assert variable_reach(name, value, ("LANG", "USER"), exported=exported) is expected, why


def test_a_flag_list_reads_as_its_comment_says() -> None:
    (rule,) = parse_rules(
        '[x]\nwhy = "y"\nflags = "-ab -k= -f=read -i?!edit --color? --out=write --run=!execute --arg=data,read -#"\nwhole = "-version"\n',
        "x.toml",
    )
    flags = rule.flags
    assert sorted(flags) == sorted(
        ["-a", "-b", "-k", "-f", "-i", "--color", "--out", "--run", "--arg", "-#", "-version"]
    )
    assert flags["-a"].role is None
    assert (flags["-i"].optional, flags["-i"].edits) == (True, True)
    assert flags["--run"].tier is X
    assert (flags["--arg"].role, flags["--arg"].second) == ("data", "read")


ROLES = [
    ("read*", 3, ["read", "read", "read"]),
    ("data read*", 1, ["data"]),
    ("data read*", 3, ["data", "read", "read"]),
    ("read* write", 1, ["write"]),
    ("read* write", 3, ["read", "read", "write"]),
    ("read write", 2, ["read", "write"]),
    ("read write", 3, None),
    ("", 1, None),
    ("", 0, []),
]


@pytest.mark.parametrize(("spec", "count", "roles"), ROLES)
def test_operands_by_position(spec: str, count: int, roles: list[str] | None) -> None:
    (rule,) = parse_rules(f'[x]\nwhy = "y"\noperands = "{spec}"\n', "x.toml")
    found = rule.operands.roles(count)
    assert (None if found is None else [role.value for role in found]) == roles
