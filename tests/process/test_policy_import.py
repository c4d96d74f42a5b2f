"""Tests of `agent policy import`: imported and omitted rules with reasons; no imported rule allows more than its
source.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.model.abstract_word import literal
from policy.model.command_pattern import broad, exact
from policy.model.profile import Layer, PermissionRule
from policy.model.tier import Ruling
from policy.permission.dead_rules import Severity
from policy.permission.file import LISTS, permissions
from policy.permission.lint import check
from policy.toml.schema import read
from runner.config import shipped
from runner.gate.policy_tools.import_rules import AgentProduct, guess, reader, report, sound
from runner.gate.policy_tools.importers.claude import gitignored, read_claude
from runner.gate.policy_tools.importers.codex import read_codex
from runner.gate.policy_tools.importers.gemini import read_gemini
from runner.gate.policy_tools.importers.result import Import, as_json, as_toml, examples_toml
from runner.gate.policy_tools.importers.wildcards import NotWords, starred
from runner.gate.policy_tools.tables import parse_table
from runner.problems import Exit
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.law import examples

BOOK = shipped()


def reread(found: Import) -> list[PermissionRule]:
    """The rules as the real parser reads what was written."""
    text = as_toml(found, "x")
    document = read(text, "imported.toml", {("mode",): next(iter(LISTS["rule"].values()))}, LISTS)
    return list(permissions(document, Layer.NAMED))


def claude(rule: str, verdict: str = "allow") -> Import:
    return read_claude(json.dumps({"permissions": {verdict: [rule]}}), "settings.json")


def said(rule: PermissionRule) -> str:
    """One line for a rule: `allow npm run {build,lint} **`, with what else it names."""
    words = [rule.verdict.name.lower(), *([rule.pattern] if rule.run else [])]
    pairs = tuple(":".join(pair) for pair in rule.arguments)
    for key in ("tool", "read", "write", "host", "arguments"):
        if values := pairs if key == "arguments" else getattr(rule, key):
            words.append(f"{key}={','.join(str(getattr(value, 'value', value)) for value in values)}")
    return " ".join(words)


LOOKS = "tool=read,grep,glob,ls"
# verdict, the rule of Claude Code, ours ("" when left out), why
CLAUDE = [
    ("allow", "Bash(npm test)", "allow npm test", "exactly this command"),
    ("allow", "Bash(npm run test:*)", "allow npm run test **", "a prefix of words"),
    ("allow", "Bash(npm run *)", "allow npm run **", "a last `*` may be nothing"),
    ("allow", "Bash(npm *)", "allow npm **", "the same for a program"),
    ("allow", "Bash(npm run te*)", "allow npm run te* **", "a `*` at a word goes on over blanks"),
    ("allow", "Bash(git * main)", "allow git * main", "in the middle: one word, which is narrower"),
    ("allow", "Bash(git * push *)", "allow git * push * **", "with two, the last one is something"),
    ("allow", "Bash(*.sh run)", "allow *.sh run", "a part of the program"),
    ("allow", 'Bash(git commit -m "a b":*)', "allow git commit -m a b **", "quotes are decoded"),
    ("allow", " Bash( make  all ) ", "allow make all", "blanks do not count"),
    ("allow", "Bash", "", "every command"),
    ("allow", "Bash(*)", "", "the same"),
    ("allow", "Bash(:*)", "", "the same"),
    ("allow", "Bash(* --version)", "", "whatever program"),
    ("allow", "Bash(sudo apt:*)", "", "privilege"),
    ("allow", "Bash(/usr/bin/sudo:*)", "", "privilege with a folder"),
    ("allow", "Bash(make && ls)", "", "two commands"),
    ("allow", "Bash(cat a | sh:*)", "", "a pipe"),
    ("allow", "Bash(echo $HOME)", "", "a word that the run decides"),
    ("allow", "Bash(FOO=1 make:*)", "", "the variable would be lost, and the rule wider"),
    ("allow", "Bash(ls ~/x)", "", "a decoded word has no `~`"),
    ("allow", "Bash(ls file?)", "", "its `?` is itself"),
    ("allow", r"Bash(ls \*)", "", "its `*` is itself"),
    ("allow", "Bash(echo 'open)", "", "an open quote"),
    ("allow", "Bash(echo > x)", "", "a redirection"),
    ("allow", "Bash(ls\nrm)", "", "two lines"),
    ("allow", "Read(~/.zshrc)", f"allow {LOOKS} read=~/.zshrc,~/.zshrc/**", "a file of the home, for the file tools"),
    ("allow", "Read(//etc/nginx/**)", f"allow {LOOKS} read=/etc/nginx/**", "two slashes are the root"),
    ("allow", "Read(docs/*.md)", f"allow {LOOKS} read=docs/*.md,docs/*.md/**", "relative"),
    ("allow", "Read(*.md)", f"allow {LOOKS} read=**/*.md,**/*.md/**", "a bare name is at any depth"),
    ("allow", "Read(src/[ab])", "", "a set of characters"),
    ("allow", "Read(../x)", "", "a parent"),
    ("allow", "Read(~other/x)", "", "another's home"),
    ("allow", "Read", "", "reading the workspace is free"),
    ("allow", "Edit(src/**)", "allow tool=edit,write write=src/**", "every tool that edits"),
    ("allow", "Edit(/src/**)", "allow tool=edit,write write=src/**", "one slash is the project"),
    ("allow", "Write(./a.md)", "allow tool=write write=a.md,a.md/**", "this folder"),
    ("allow", "Edit", "allow tool=edit,write write=**", "in the workspace"),
    ("allow", "WebFetch(domain:example.com)", "allow tool=web_fetch host=example.com", "only fetching"),
    ("allow", "WebFetch", "", "every host"),
    ("deny", "WebFetch", "deny tool=web_fetch", "no fetching"),
    ("deny", "WebSearch", "deny tool=web_search", "no search"),
    ("allow", "mcp__srv__tool", "allow tool=mcp__srv__tool", "a server's tool"),
    ("allow", "mcp__srv", "allow tool=mcp__srv__*", "a whole server"),
    ("deny", "mcp__srv__*", "deny tool=mcp__srv__*", "a pattern"),
    ("allow", "mcp__srv__tool(a)", "", "a pattern in parentheses"),
    ("allow", "mcp___x", "", "no name of a server"),
    ("deny", "Task", "deny tool=agent", "agents"),
    ("allow", "Agent(Explore)", "allow tool=agent arguments=agent:Explore", "one agent"),
    ("allow", "Slash", "", "no such tool"),
    ("allow", "Bash(unclosed", "", "no rule"),
    ("deny", "Bash", "deny tool=bash", "no command at all"),
    ("deny", "Bash(curl:*)", "deny curl **", "a program"),
    ("deny", "Bash(rm -rf *)", "deny rm -rf **", "with its flags"),
    (
        "deny",
        "Bash(git *--force*)",
        "deny git {*--force*,--force*,-*--force*,+*--force*} **",
        "flags are looked for as flags",
    ),
    ("deny", "Bash(* --force)", "deny {*,-*,+*} --force", "any program"),
    ("deny", "Bash(*log)", "deny {*log,-*log,+*log}; deny {*,-*,+*} {*log,-*log,+*log}", "over blanks, too"),
    ("deny", "Bash(a*b)", "deny a*b; deny a* {*b,-*b,+*b}", "the same inside a word"),
    ("deny", "Bash(a*b c*d e*f g*h i*j)", "", "it has too many `*`"),
    ("deny", "Bash(ls file?)", "deny ls file?", "wider is fine"),
    ("deny", "Read(./.env)", "deny read=.env,.env/**", "whatever reads it"),
    ("deny", "Read(.env.*)", "deny read=**/.env.*,**/.env.*/**", "at any depth"),
    ("deny", "Read(secrets/)", "deny read=**/secrets/**", "a folder"),
    ("deny", "Read(//**)", "deny read=/**", "everything"),
    ("deny", "Edit(/db/**)", "deny write=db/**", "whatever changes it"),
    ("deny", "WebFetch(domain:Example.com)", "deny host=example.com", "every command that connects to it"),
    ("deny", "Read", "deny tool=read,grep,glob,ls", "the tools"),
    ("ask", "Bash(git push *)", "ask git push **", "a question"),
    ("ask", "Write", "ask tool=write", "a tool"),
]


@pytest.mark.parametrize(("verdict", "rule", "ours", "why"), CLAUDE, ids=[f"{row[0]} {row[1]}" for row in CLAUDE])
def test_a_rule_of_claude_code(verdict: str, rule: str, ours: str, why: str) -> None:
    found = claude(rule, verdict)
    assert "; ".join(said(one) for one in reread(found)) == ours, why
    assert len(found.left) == (0 if ours else 1), why
    assert all(left.why for left in found.left)


def test_the_rest_of_a_settings_file() -> None:
    settings = {
        "permissions": {
            "allow": ["Bash(ls:*)", 3],
            "defaultMode": "bypassPermissions",
            "additionalDirectories": ["~/ref/", "../docs", "/srv/data"],
            "disableBypassPermissionsMode": "disable",
        },
        "hooks": {"PreToolUse": []},
        "model": "x",
    }
    found = read_claude(json.dumps(settings, indent=2), "settings.json")
    assert [said(rule) for rule in reread(found)] == [
        "allow ls **",
        f"allow {LOOKS} read=~/ref/**",
        f"allow {LOOKS} read=/srv/data/**",
    ]
    assert [(left.origin.line, left.origin.text.split(":")[0]) for left in found.left] == [
        (5, "3"),
        (7, "defaultMode"),
        (10, "additionalDirectories"),
        (13, "disableBypassPermissionsMode"),
        (15, "hooks"),
    ]
    assert found.mode == ""
    assert read_claude('{"permissions": {"defaultMode": "acceptEdits"}}', "x").mode == "accept-edits"


CODEX = r'''
"""What a team agreed on."""
# a comment
prefix_rule(
    pattern = ["git", ["status", "log"]],
    match = [["git", "status"], "git log -1"],
    not_match = ["git push origin", ["git", "gc"]],
)
prefix_rule(pattern = ["git", "push"], decision = "prompt", justification = "look\nfirst")
prefix_rule(pattern=["rm", "-rf"], decision='forbidden', justification="use \"trash\"", match=["rm -rf 'a b'"])
prefix_rule(pattern=["/opt/tool/bin/x"])
prefix_rule(pattern=["find", "*"])
prefix_rule(pattern=["echo", "*"], decision="forbidden")
prefix_rule(pattern=["sudo"])
prefix_rule(pattern=[])
prefix_rule(pattern=["a", []])
prefix_rule(pattern=["a"], decision="maybe")
prefix_rule(pattern=["a"], colour="red")
prefix_rule(["a"])
prefix_rule(pattern=[name])
prefix_rule(pattern=["a"] + ["b"])
host_executable(name = "git", paths = ["/usr/bin/git"])
network_rule(host="example.com", protocol="https", decision="allow")
name = "x"
import os
os.system("touch PWNED")
'''


def test_a_policy_of_codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = read_codex(CODEX, "default.rules")
    assert [(said(rule), rule.why) for rule in reread(found)] == [
        ("allow git {status,log} **", "line 4 in default.rules"),
        ("ask git push **", "look first"),
        ("deny rm -rf **", 'use "trash"'),
        ("allow /opt/tool/bin/x **", 'prefix_rule(pattern=["/opt/tool/bin/x"]) in default.rules'),
        ("deny echo * **", 'prefix_rule(pattern=["echo", "*"], decision="forbidden") in default.rules'),
    ]
    assert [left.origin.line for left in found.left] == [12, *range(14, 27)]
    assert [(example.argv, example.verdict) for example in found.examples] == [
        (("git", "status"), Ruling.ALLOW),
        (("git", "log", "-1"), Ruling.ALLOW),
        (("git", "push", "origin"), Ruling.ASK),
        (("rm", "-rf", "a b"), Ruling.DENY),
    ]
    assert not (tmp_path / "PWNED").exists(), "nothing of the file is run"
    table = parse_table(examples_toml(found), "expected.toml")
    assert [(test.argv, sorted(r.name for r in test.expected[0][1])) for test in table.tests] == [
        (("git", "status"), ["ALLOW"]),
        (("git", "log", "-1"), ["ALLOW"]),
        (("git", "push", "origin"), ["ASK", "DENY"]),
        (("rm", "-rf", "a b"), ["DENY"]),
    ]


# the keys of one rule of Gemini CLI, ours, why
GEMINI = [
    ('toolName = "run_shell_command"\ncommandPrefix = "git status"\ndecision = "allow"', ["allow git status **"], "a prefix"),
    ('commandPrefix = ["git ", "npm run build"]\ndecision = "allow"', ["allow git **", "allow npm run build **"], "two"),
    ('commandPrefix = "rm -rf"\ndecision = "deny"\ndenyMessage = "no"', ["deny rm -rf **"], "a denial"),
    ('commandRegex = "git (commit|push)"\ndecision = "deny"', ["deny git {commit*,push*} **"], "no end: longer words too"),
    ('commandRegex = "git (commit|push)"\ndecision = "allow"', ["allow git {commit,push} **"], "whole words are enough"),
    ("commandRegex = 'git log\\b.*'\ndecision = \"deny\"", ["deny git log **"], "an end"),
    ('commandRegex = "git log .*"\ndecision = "allow"', ["allow git log * **"], "something must follow"),
    ('commandRegex = "^git"\ndecision = "allow"', [], "an anchor never matches there"),
    ('commandRegex = "git.*push"\ndecision = "allow"', [], "more than words"),
    ('commandRegex = "(git status|ls)"\ndecision = "allow"', [], "more than words"),
    ('commandRegex = "ls|rm"\ndecision = "allow"', [], "more than words"),
    ('commandRegex = "l."\ndecision = "allow"', [], "a dot is any character"),
    ('commandPrefix = "ls; rm"\ndecision = "allow"', [], "two commands"),
    ('toolName = ["write_file", "replace"]\ndecision = "ask_user"', ["ask tool=write,edit"], "tools"),
    ('toolName = "write_file"\ndecision = "allow"', ["allow tool=write write=**"], "in the workspace"),
    ('toolName = "read_file"\ndecision = "allow"', [], "needs no rule"),
    ('toolName = "run_shell_command"\ndecision = "allow"', [], "every command"),
    ('toolName = "*"\ndecision = "allow"', [], "everything"),
    ('toolName = "*"\ndecision = "deny"', ["deny tool=bash,read,write,edit,glob,grep,ls"], "nothing"),
    ('toolName = "web_fetch"\ndecision = "deny"', [], "no such tool"),
    ('mcpName = "x"\ntoolName = "y"\ndecision = "deny"', ["deny tool=mcp__x__y"], "a server's tool"),
    ('mcpName = "x"\ndecision = "allow"', ["allow tool=mcp__x__*"], "a server"),
    ('toolName = "mcp_x_y"\ndecision = "deny"', [], "a name whose server is not certain"),
    ('toolName = "write_file"\nargsPattern = "x"\ndecision = "deny"', [], "a regular expression"),
    ('commandPrefix = "ls"\nmodes = ["yolo"]\ndecision = "allow"', [], "only in one mode"),
    ('commandPrefix = "ls"\nmodes = ["default", "autoEdit", "yolo"]\ndecision = "allow"', ["allow ls **"], "wherever it asks"),
    ('commandPrefix = "ls"\nmodes = ["yolo"]\ndecision = "deny"', ["deny ls **"], "wider is fine"),
    ('commandPrefix = "ls"\nsubagent = "a"\ndecision = "allow"', [], "a condition that is lost"),
    ('commandPrefix = "ls"\ninteractive = true\ndecision = "deny"', ["deny ls **"], "wider is fine"),
    ('commandPrefix = "ls"\ndecision = "maybe"', [], "no such decision"),
    ('commandPrefix = "ls"\ncommandRegex = "ls"\ndecision = "allow"', [], "both"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "ours", "why"), GEMINI, ids=[row[0] for row in GEMINI])
def test_a_rule_of_gemini_cli(text: str, ours: list[str], why: str) -> None:
    found = read_gemini(f"[[rule]]\n{text}\npriority = 10\n", "policy.toml")
    assert [said(rule) for rule in reread(found)] == ours, why
    assert bool(found.left) == (not ours), why


WORDS = st.lists(st.sampled_from(["git", "log", "logs", "-p", "--force", "a b", "x", "main", "l*", ""]), min_size=1, max_size=5)  # fmt: skip
PIECES = st.lists(st.sampled_from(["git", "log", "lo", "-p", "--force", "*", " ", " ", " *", "x", '"a b"', "main"]), min_size=1, max_size=7)  # fmt: skip


def meant(pattern: str, text: str) -> bool:
    """Return True if a pattern of Claude Code matches `text`, by an independent implementation.

    A `:*` at the end, and a single ` *` at the end, also match the empty text.
    """
    prefix = pattern.endswith(":*")
    body = pattern.removesuffix(":*")
    if body.endswith(" *") and body.count("*") == 1 and not prefix:
        prefix, body = True, body.removesuffix(" *")
    told = ".*".join(re.escape(part) for part in body.split("*"))
    return re.fullmatch(told + ("( .*)?" if prefix else ""), text, re.DOTALL) is not None


@examples(100, many=2000)
@given(PIECES, st.booleans(), WORDS)
def test_what_allows_never_gets_wider(pieces: list[str], prefix: bool, words: list[str]) -> None:
    """Law: a command that the imported rule allows is one that the original allowed, however it was quoted."""
    pattern = " ".join("".join(pieces).split()) + (":*" if prefix else "")
    rules = reread(claude(f"Bash({pattern})"))
    for rule in rules:
        if exact(words, rule.run, more=rule.more):
            texts = {" ".join(f'"{word}"' if word in ("a b", "") else word for word in words)}
            assert any(meant(pattern, text) for text in texts), (pattern, words, said(rule))


@examples(100, many=2000)
@given(PIECES, st.booleans(), WORDS)
def test_what_denies_never_gets_narrower(pieces: list[str], prefix: bool, words: list[str]) -> None:
    """Law: a command that the original denied is denied by the imported rule, as the gate compares words."""
    pattern = " ".join("".join(pieces).split()) + (":*" if prefix else "")
    text = " ".join(f'"{word}"' if word in ("a b", "") else word for word in words)
    if words[0] and meant(pattern, text):
        found = claude(f"Bash({pattern})", "deny")
        senses = [literal(word) for word in words]
        met = any(rule.tool or broad(senses, rule.run) for rule in reread(found))
        assert met or found.left, (pattern, words, [said(rule) for rule in reread(found)])


@settings(deadline=None)  # the check looks for near names among a thousand programs
@given(st.text(), st.sampled_from(["allow", "ask", "deny"]))
def test_any_text_is_carried_over_or_left_out(text: str, verdict: str) -> None:
    """Law: nothing is lost silently, and what is written can be read back."""
    for rule in (text, f"Bash({text})", f"Read({text})", f"Edit({text})", f"WebFetch(domain:{text})"):
        found = claude(rule, verdict)
        assert found.rules or len(found.left) == 1
        assert len(reread(found)) == len(found.rules)
        sound(found, BOOK)
        assert found.rules or found.left
        assert [
            one for one in check(reread(found), BOOK.rules, None, BOOK.profile) if one.severity is Severity.ERROR
        ] == []
        json.dumps(as_json(found, "claude"))


@given(st.text(alphabet="*? ab-'\"\\/", max_size=12))
def test_a_pattern_is_words_or_none(text: str) -> None:
    for verdict in Ruling:
        try:
            patterns, _ = starred(text, verdict)
        except NotWords:
            continue
        assert patterns
        assert all(patterns)


# pattern, the paths that rules write, why
PATHS = [
    ("/", (), "nothing"),
    ("//", (), "the root alone"),
    ("//x", ("/x", "/x/**"), "an absolute path"),
    ("~/x/", ("~/x/**",), "a folder of the home"),
    ("**", ("**",), "everything"),
    ("**/x", ("**/x", "**/x/**"), "at any depth"),
    ("a**b", (), "two stars in a name"),
    ("x/", ("**/x/**",), "a folder at any depth"),
    ("x/y", ("x/y", "x/y/**"), "a slash ties it to the folder"),
    ("./.env", (".env", ".env/**"), "a dot file here"),
    ("!x", (), "an exception"),
    ("", (), "nothing"),
]


@pytest.mark.parametrize(("pattern", "paths", "why"), PATHS, ids=[row[0] for row in PATHS])
def test_paths_are_read_as_gitignore_does(pattern: str, paths: tuple[str, ...], why: str) -> None:
    assert gitignored(pattern, allow=True) == paths, why


# text, whose it is
GUESSES = [
    ('{"permissions": {}}', AgentProduct.CLAUDE),
    ("# x\nprefix_rule(pattern=['a'])", AgentProduct.CODEX),
    ('[[rule]]\ntoolName = "x"\n', AgentProduct.GEMINI),
]


@pytest.mark.parametrize(("text", "kind"), GUESSES)
def test_whose_it_is_is_guessed_by_what_it_says(text: str, kind: AgentProduct) -> None:
    assert guess(text, "x") is kind


# text, the option, a part of what is said
BROKEN = [
    ("hello", None, "not recognized"),
    ('[[rule]]\nverdict = "allow"\ntool = ["read"]\n', None, "needs no import"),
    ("{", None, "not valid JSON"),
    ("[]", "claude", "no `permissions`"),
    ("{}", None, "no `permissions`"),
    ("prefix_rule(", None, "not a list of calls"),
    ('[[rule]]\ntoolName = "x\n', None, "not valid TOML"),
    ("a = 1\n", "gemini", "no [[rule]]"),
]


@pytest.mark.parametrize(("text", "kind", "part"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_file_that_cannot_be_used(text: str, kind: str | None, part: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    done = agent("import", "x", *(["--from", kind] if kind else []), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert part in done.stderr


@pytest.mark.parametrize("option", ["--out", "--tests"])
def test_json_writes_no_file_and_says_so(option: str, tmp_path: Path) -> None:
    (tmp_path / "default.rules").write_text(CODEX)
    done = agent("import", "default.rules", "--json", option, "new.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    assert f"--json cannot be combined with {option}" in done.stderr
    assert not (tmp_path / "new.toml").exists()


def agent(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(cwd), "LC_ALL": "C.UTF-8"}
    return forked_agent.run(
        [AGENT, "policy", *words], env=environ, cwd=cwd, capture_output=True, text=True, timeout=60
    )  # fmt: skip


def test_examples_that_do_not_print_are_not_written(tmp_path: Path) -> None:
    (tmp_path / "x.rules").write_text(r'prefix_rule(pattern=["ls"], match=[["ls", "\ud800"], ["ls", "\x1b"], "ls -l"])')
    done = agent("import", "x.rules", "--tests", "t.toml", cwd=tmp_path)
    assert done.returncode == 0
    assert [test.argv for test in parse_table((tmp_path / "t.toml").read_text(), "t.toml").tests] == [("ls", "-l")]


class _Counted(str):
    """A text that counts the characters that its methods look at."""

    __slots__ = ()
    looked = 0

    def find(self, *given: object) -> int:
        _Counted.looked += len(self)
        return str.find(self, *given)  # type: ignore[arg-type]  # passed on

    def count(self, *given: object) -> int:
        start, end = (*given[1:], 0, len(self))[:2] if len(given) == 3 else (0, len(self))
        _Counted.looked += int(str(end)) - int(str(start))
        return str.count(self, *given)  # type: ignore[arg-type]  # passed on

    def split(self, *given: object) -> list[str]:  # type: ignore[override]  # passed on
        _Counted.looked += len(self)
        return str.split(self, *given)  # type: ignore[arg-type]  # passed on


def _work(text: str, kind: AgentProduct) -> int:
    """Return the number of Python lines that run to import `text`, plus the number of characters that these look at."""
    steps = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal steps
        steps += 1
        return trace

    _Counted.looked = 0
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = sound(reader(kind)(_Counted(text), "x"), shipped())
        as_toml(found, "x")
        report(found, None, None)
    finally:
        sys.settrace(before)
    assert len(found.rules) + len(found.left) >= text.count("\n") // 9
    return steps + _Counted.looked


LARGE: list[tuple[AgentProduct, Callable[[int], str], str]] = [
    (AgentProduct.CLAUDE, lambda n: json.dumps({"permissions": {"allow": [f"Bash(prog{i} x:*)" for i in range(n)]}}, indent=1), "unknown programs"),
    (AgentProduct.CLAUDE, lambda n: json.dumps({"permissions": {"deny": [f"Read(a{i}/**)" for i in range(n)]}}, indent=1), "paths"),
    (AgentProduct.CLAUDE, lambda n: json.dumps({"permissions": {"allow": [f"WebFetch(domain:{i} x)" for i in range(n)]}}, indent=1), "all are left out"),
    (AgentProduct.CODEX, lambda n: "".join(f'prefix_rule(pattern=["git", "x{i}"], match=["git x{i} y"])\n' for i in range(n)), "examples"),
    (AgentProduct.CODEX, lambda n: ";".join(f'prefix_rule(pattern=["p{i}"])' for i in range(n)), "in one line"),
    (AgentProduct.GEMINI, lambda n: "".join(f'[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "p{i}"\ndecision = "allow"\npriority = 1\n' for i in range(n)), "tables"),
]  # fmt: skip


@pytest.mark.threat("T41")
@pytest.mark.parametrize(("kind", "text", "why"), LARGE, ids=[f"{row[0]}: {row[2]}" for row in LARGE])
def test_the_work_of_an_import_grows_with_its_rules(kind: AgentProduct, text: Callable[[int], str], why: str) -> None:
    _work(text(10), kind)  # what is loaded once
    few, many = (_work(text(count), kind) for count in (60, 240))
    assert many < 5 * few, f"{few} steps for 60 rules, {many} for 240"


def test_more_rules_than_a_file_may_hold_are_remarked() -> None:
    for count, said in ((1000, False), (1001, True)):
        text = json.dumps({"permissions": {"allow": [f"Bash(npm run x{i})" for i in range(count)]}})
        found = sound(reader(AgentProduct.CLAUDE)(text, "x"), shipped())
        assert len(found.rules) == count
        assert ("a file can contain at most 1000 rules" in report(found, None, None)) is said


def test_from_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "default.rules").write_text(CODEX)
    words = ("import", "default.rules", "-o", "rules.toml", "--tests", "expected.toml")
    done = agent(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-2:] == [
        "5 rules carried over, into `rules.toml`, 14 left out",
        "4 examples, into `expected.toml`",
    ]
    assert 'left out, line 12: prefix_rule(pattern=["find", "*"])' in done.stderr
    again = agent(*words, cwd=tmp_path)
    assert again.returncode == Exit.USAGE
    assert "it exists already" in again.stderr
    printed = agent("import", "default.rules", cwd=tmp_path)
    assert printed.stdout == (tmp_path / "rules.toml").read_text()
    found = json.loads(agent("import", "--json", "default.rules", cwd=tmp_path).stdout)
    assert (found["kind"], len(found["rules"]), len(found["left"]), len(found["examples"])) == ("codex", 5, 14, 4)
    assert found["rules"][0]["run"] == ["git", ["status", "log"], "**"]
    assert found["left"][0]["from"]["line"] == 12
