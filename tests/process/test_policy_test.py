"""Tests of `agent policy test`: the packaged tables pass on every machine; a wrong expectation is found and shown."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.tier import Mode, Ruling, Tier
from runner.config import shipped
from runner.config.toml_tables import read_items
from runner.gate.policy_tools.expectations import Bench, effect_words, judge_one, shipped_tables
from runner.gate.policy_tools.reference_machine import FILES, WORKSPACE, model_facts
from runner.gate.policy_tools.tables import parse_table
from runner.problems import Exit, Stopped
from tests.support import forked_agent
from tests.support.agent_program import AGENT

TABLES = list(shipped_tables())


def agent(
    *words: str, cwd: Path, given: str = "", home: Path | None = None, more: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home or cwd), "LC_ALL": "C.UTF-8", **(more or {})}
    return forked_agent.run(
        [AGENT, "policy", *words], env=environ, cwd=cwd, input=given, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.source)
def test_the_shipped_tables_hold(table: object) -> None:
    bench = Bench(shipped(), None)
    gate = bench.gate(table)  # type: ignore[arg-type]  # parametrize gives no types
    found = [each for test in table.tests for each in judge_one(gate, test)]  # type: ignore[attr-defined]
    assert [(each.test.source, each.test.line, each.test.shown, each.wanted, each.got) for each in found] == []


def test_the_shipped_tables_are_many_and_each_row_says_why() -> None:
    rows = [test for table in TABLES for test in table.tests if table.source.startswith("policy/tables/")]
    assert len(rows) >= 250
    assert [f"{row.source}:{row.line}" for row in rows if not row.why] == []
    assert len({(row.source, row.shown, row.proposer, row.unattended) for row in rows}) == len(rows), (
        "no row twice in one file"
    )
    verdicts = {(mode, wanted) for row in rows for mode, wanted in row.expected}
    for mode in Mode:
        assert (mode, frozenset({Ruling.ALLOW})) in verdicts
    assert {Ruling.ALLOW, Ruling.ASK, Ruling.DENY} == {ruling for _, wanted in verdicts for ruling in wanted}


def test_without_a_file_the_answer_does_not_depend_on_machine_or_configuration(tmp_path: Path) -> None:
    """A user's own settings, a hostile project and an odd environment change nothing of what is shipped."""
    settings = tmp_path / ".config" / "ringfence"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text('mode = "plan"\n[deny]\ncommands = [["ls"]]\n')
    project = tmp_path / "project"
    (project / ".ringfence").mkdir(parents=True)
    (project / ".ringfence" / "config.toml").write_text("this is not TOML")
    odd = agent("test", "--json", cwd=project, home=tmp_path, more={"RINGFENCE_MODE": "dangerously"})
    plain = agent("test", "--json", cwd=Path("/"), home=tmp_path / "nowhere")
    assert (odd.returncode, odd.stderr) == (0, "")
    assert odd.stdout == plain.stdout
    assert json.loads(odd.stdout)["differences"] == []


GOOD = """
mode = "trust-project"
files = ["data/more.csv", "leak -> ~/.ssh/id_rsa"]

[[test]]
id = "build"
run = "make"
verdict = "allow"

[[test]]
run = '''
cat data/more.csv
[[test]]
'''
verdicts = {default = "not-allow", plan = "deny"}
why = "text in a script is no table"

[[test]]
run = "cat leak"
verdict = "deny"
tier = "secret"

[[test]]
tool = "write"
path = "src/a.py"
mode = "default"
verdict = "ask"
effects = ["writes src/a.py"]

[[test]]
argv = ["git", "log", "-1"]
tier = "read"

[[test]]
run = "make"
mode = "default"
unattended = true
verdict = "deny"
"""


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    done = agent("test", "mine.toml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "6 tests (7 verdicts) in 1 file: all as expected\n"


def test_what_differs_is_shown_with_its_reasons(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        '[[test]]\nid = "letter"\nrun = "cat ~/letter.txt | wc -l"\nverdicts = {default = "allow", plan = "deny"}\n'
        'why = "letters are public"\n\n[[test]]\nrun = "ls"\ntier = "write"\neffects = ["writes x"]\n'
    )
    done = agent("test", "mine.toml", cwd=tmp_path)
    assert done.returncode == Exit.FAILED
    lines = done.stdout.splitlines()
    assert lines[0] == "mine.toml:1 (letter): in mode default: expected allow, got ask"
    assert lines[1] == "  $ cat ~/letter.txt | wc -l"
    assert any(line.strip().startswith("^^^^^^^^^^^^ read-outside: reads ~/letter.txt") for line in lines)
    assert "    cell: read-outside x default = ask" in lines
    assert "    the table says: letters are public" in lines
    assert "mine.toml:7: in mode default: expected tier write, effect `writes x`, got tier read, effects `reads the workspace`" in lines  # fmt: skip
    assert lines[-1] == "2 tests (3 verdicts) in 1 file: 2 differ"
    found = json.loads(agent("test", "--json", "mine.toml", cwd=tmp_path).stdout)
    assert [(each["line"], each["id"], each["expected"], each["got"]) for each in found["differences"]] == [
        (1, "letter", ["allow"], ["ask"]),
        (7, "", ["tier write", "effect `writes x`"], ["tier read", "effects `reads the workspace`"]),
    ]
    assert found["differences"][0]["reasons"][0]["tier"] == "read-outside"


def test_json_lines_and_standard_input(tmp_path: Path) -> None:
    lines = (
        '{"id": 1, "cmd": "git status", "verdict": "allow"}\n\n{"cmd": "make", "verdict": "allow", "mode": "plan"}\n'
    )
    done = agent("test", "-", cwd=tmp_path, given=lines)
    assert done.returncode == Exit.FAILED
    assert done.stdout.splitlines()[0] == "standard input:3: in mode plan: expected allow, got deny"


def test_a_configuration_is_tried_before_it_is_in_force(tmp_path: Path) -> None:
    """Over the shipped tables, too: the answer is what the new policy changes."""
    (tmp_path / "new.toml").write_text('[deny]\ncommands = [["git", "log"]]\n')
    (tmp_path / "mine.toml").write_text('[[test]]\nrun = "git log"\nverdict = "deny"\n')
    assert agent("test", "mine.toml", cwd=tmp_path).returncode == Exit.FAILED
    assert agent("test", "mine.toml", "--config", "new.toml", cwd=tmp_path).returncode == Exit.DONE
    changed = json.loads(agent("test", "--json", "--config", "new.toml", cwd=tmp_path).stdout)["differences"]
    assert changed
    assert all("git log" in each["test"] or "git" in each["test"] for each in changed)


def test_mode_is_for_the_tests_that_name_none(tmp_path: Path) -> None:
    rows = '[[test]]\nrun = "make"\nverdict = "allow"\n[[test]]\nrun = "make"\nmode = "plan"\nverdict = "deny"\n'
    (tmp_path / "mine.toml").write_text(f'mode = "default"\n{rows}')
    assert agent("test", "mine.toml", cwd=tmp_path).returncode == Exit.FAILED
    assert agent("test", "mine.toml", "--mode", "trust-project", cwd=tmp_path).returncode == Exit.DONE


def test_a_real_folder_instead_of_the_model(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "way-out").symlink_to("/var/log")
    (tmp_path / "mine.toml").write_text('[[test]]\nrun = "cat way-out/syslog > x"\ntier = "write"\n')
    model = agent("test", "mine.toml", cwd=tmp_path)
    assert model.returncode == Exit.DONE, "the model has no such link"
    (tmp_path / "real.toml").write_text('[[test]]\nrun = "ls way-out"\nverdict = "not-allow"\n')
    assert agent("test", "real.toml", "--cwd", str(work), cwd=tmp_path, home=work).returncode == Exit.DONE


# text, line of the complaint, a part of why, a part of the fix
BROKEN = [
    ("[[test]]\nrun = 'ls'\nverdct = 'allow'\n", 3, "no such key in [[test]]", "did you mean `verdict`?"),
    ("[[test]]\nrun = 'ls'\n", 1, "no expected result", "verdict"),
    ("[[test]]\nverdict = 'allow'\n", 1, "one action to judge", "run"),
    ("[[test]]\nrun = 'ls'\ncmd = 'ls'\nverdict = 'allow'\n", 3, "one action to judge", "run"),
    ("[[test]]\nrun = 'ls'\nverdict = 'alow'\n", 3, "no verdict `alow`", "did you mean `allow`?"),
    ("[[test]]\nrun = 'ls'\nverdict = true\n", 3, "no verdict `True`", "choose one of"),
    ("[[test]]\nrun = 'ls'\nverdicts = {defalt = 'ask'}\n", 3, "no mode `defalt`", "did you mean `default`?"),
    ("[[test]]\nrun = 'ls'\nverdicts = {}\n", 3, "table of modes", "verdicts = {"),
    ("[[test]]\nrun = 'ls'\nverdict = 'ask'\nverdicts = {plan = 'ask'}\n", 4, "table of modes", "verdicts = {"),
    ("[[test]]\nrun = 'ls'\ntier = 'raed'\n", 3, "no tier `raed`", "did you mean `read`?"),
    ("[[test]]\ntool = 'rite'\npath = 'a'\nverdict = 'ask'\n", 2, "no tool `rite`", "did you mean `write`?"),
    ("[[test]]\ntool = 'write'\nverdict = 'ask'\n", 2, "needs a path", "path ="),
    ("[[test]]\ntool = 'bash'\npath = 'x'\nverdict = 'ask'\n", 2, "needs a script", "run ="),
    ("[[test]]\nrun = 'ls'\npath = 'x'\nverdict = 'ask'\n", 3, "a script has no path", "tool"),
    ("[[test]]\nrun = 3\nverdict = 'ask'\n", 2, "text in quotes", "run ="),
    ("[[test]]\nargv = 'ls'\nverdict = 'ask'\n", 2, "list of texts", "argv ="),
    ("[[test]]\nrun = 'ls'\nverdict = 'ask'\nunattended = 'yes'\n", 4, "true or false", "true"),
    ("mdoe = 'plan'\n[[test]]\nrun = 'ls'\nverdict = 'ask'\n", 1, "no such key at the top", "did you mean `mode`?"),
    ("mode = 'plam'\n[[test]]\nrun = 'ls'\nverdict = 'ask'\n", 1, "no mode `plam`", "did you mean `plan`?"),
    (
        "[[test]]\nid = 'a'\nrun = 'ls'\ntier = 'read'\n[[test]]\nid = 'a'\nrun = 'w'\ntier = 'read'\n",
        5,
        "line 1",
        "id",
    ),
    ("[[test]]\nrun = 'ls\n", 2, "not valid TOML", "correct"),
    ("# nothing\n", 0, "no [[test]]", "[[test]]"),
    ("test = [{run = 'ls', verdict = 'allow'}]\n", 0, "in one line", "[[...]]"),
    ("test = 3\n", 0, "list of tables", "[[test]]"),
    ('{"cmd": "ls", "verdict": "allow"}\n["cmd"]\n', 2, "JSON object", "cmd"),
    (
        '{"cmd": "ls", "verdict": "allow"}\n{"cmd": "ls", "verdic": "ask"}\n',
        2,
        "no such key",
        "did you mean `verdict`?",
    ),
]


@pytest.mark.parametrize(("text", "line", "why", "fix"), BROKEN, ids=[repr(row[0]) for row in BROKEN])
def test_a_broken_table_says_where_and_what_to_do(text: str, line: int, why: str, fix: str) -> None:
    with pytest.raises(Stopped) as caught:
        parse_table(text, "mine.toml")
    problem = caught.value.problem
    assert caught.value.code is Exit.USAGE
    assert problem.what.startswith(f"mine.toml:{line}" if line else "mine.toml"), problem
    assert why in problem.why
    assert fix in problem.fix


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"[[test]]\nrun = '\xff'\n")
    for name, why in (("missing.toml", "no such file"), ("bytes.toml", "line 2 is not UTF-8"), (".", "directory")):
        done = agent("test", name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (Exit.USAGE, "")
        assert why in done.stderr


@given(st.lists(st.sampled_from(['"""', "'''", '"', "'", "[", "]", "[[test]]", "\n", "#", "a = ", "\\", "1", ","])))
def test_lines_of_tables_are_exact_or_the_text_is_no_toml(pieces: list[str]) -> None:
    """Law: as many tables are found as there are, and each begins on a line that says so."""
    text = "".join(pieces)
    try:
        items = read_items(text, "x", ("test",))
    except Stopped:
        return
    for item in items[1:]:
        assert text.split("\n")[item.line - 1].strip().startswith("[[test]]")


def test_the_model_tells_files_folders_links_and_what_is_missing() -> None:
    facts = model_facts(shipped().profile, ("deep/er/file", "way -> /srv/site"))
    rows = [
        (f"{WORKSPACE}/README.md", f"{WORKSPACE}/README.md", "file"),
        (f"{WORKSPACE}/src", f"{WORKSPACE}/src", "folder"),
        (f"{WORKSPACE}/src/../a.txt", f"{WORKSPACE}/a.txt", "file"),
        (f"{WORKSPACE}/deep/er", f"{WORKSPACE}/deep/er", "folder"),
        (f"{WORKSPACE}/way/index.html", "/srv/site/index.html", "file"),
        (f"{WORKSPACE}/out-folder/main.py", "/home/you/other/main.py", "file"),
        (f"{WORKSPACE}/none", f"{WORKSPACE}/none", "missing"),
        ("/tmp/none", "/tmp/none", "missing"),
        ("/", "/", "folder"),
        ("/data/set.csv", "/data/set.csv", "file"),
        ("/home/you/Documents/tax.pdf", "/home/you/Documents/tax.pdf", "file"),
        ("/dev/sda", "/dev/sda", "other"),
    ]
    assert [(path, facts.look(path).real, facts.look(path).kind.value) for path, _, _ in rows] == rows
    assert ".env" in FILES.split()
    assert facts.names(f"{WORKSPACE}/src") == ("app.ts", "index.js", "lib.rs", "main.py", "util")
    assert facts.names(f"{WORKSPACE}/deep") == ("er",)
    assert {"way", "out-link", ".git", "README.md"} <= set(facts.names(WORKSPACE) or ())
    assert [facts.names(path) for path in ("/home/you/other", "/nowhere", f"{WORKSPACE}/README.md")] == [None] * 3


def test_an_effect_in_words() -> None:
    bench = Bench(shipped(), None)
    (table,) = [parse_table('[[test]]\nrun = "echo x > a/b; ls"\ntier = "write"\n', "x")]
    gate = bench.gate(table)
    assessment = gate.context(unattended=True).classify(table.tests[0].action(gate.facts, gate.cwd))
    assert assessment.tiers[0] is Tier.WRITE
    assert {effect_words(effect, gate.facts) for effect in assessment.effects} == {"writes a/b", "reads the workspace"}
