"""Tests of the pages in docs/: their examples are correct, and every internal link has a target."""

import importlib.util
import itertools
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from policy.model.profile import Layer
from policy.permission.dead_rules import Severity
from policy.permission.file import LISTS, permissions
from policy.permission.lint import check
from policy.rules.rulebook import RuleBook, parse_rules
from policy.toml.schema import read
from runner.cli.app import whole_command
from runner.cli.batch import with_run
from runner.config import shipped
from runner.frontends.slash.registry import COMMANDS
from runner.gate.policy_tools.tables import parse_table
from runner.providers.script_file import KEYS, read_script
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.places import ROOT

DOCS = ROOT / "docs"
GENERATED = DOCS / "reference" / "commands.md"  # exists after `make site`
PAGES = sorted(page for page in DOCS.rglob("*.md") if page != GENERATED)


def headings(text: str) -> list[str]:
    """Return the anchors of the headings of a Markdown page."""
    lines = [line for line in text.split("\n") if line.startswith("#")]
    return [re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in lines]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_commands", DOCS / "make_commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def commands_page() -> str:
    return str(generator().commands_page(ROOT / "policy" / "commands"))


def test_every_program_is_on_the_page_about_commands() -> None:
    files = {path.name: path.read_text("utf-8") for path in (ROOT / "policy" / "commands").glob("*.toml")}
    assert [name for name in RuleBook(files).names() if f"`{name}`" not in commands_page()] == []


@pytest.mark.parametrize("page", ["README.md", "docs/reference/policy.md"])
def test_the_number_of_known_programs_is_that_of_the_rules(page: str) -> None:
    """The pages round down to hundreds; names of subcommands do not count."""
    files = {path.name: path.read_text("utf-8") for path in (ROOT / "policy" / "commands").glob("*.toml")}
    stated = re.findall(r"about ([\d,]+) programs", (ROOT / page).read_text("utf-8"), re.IGNORECASE)
    assert [int(each.replace(",", "")) for each in stated] == [len(RuleBook(files).names()) // 100 * 100]


def test_the_contents_of_the_page_about_commands_lead_to_its_headings() -> None:
    anchors = re.findall(r"\]\(#(.+?)\)", commands_page())
    assert len(anchors) == len(list((ROOT / "policy" / "commands").glob("*.toml")))
    assert [anchor for anchor in anchors if anchor not in headings(commands_page())] == []


def test_the_page_about_commands_is_generated_and_not_committed() -> None:
    assert "docs/reference/commands.md" in (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert [page for page in PAGES if "(commands.md" in page.read_text("utf-8")] == []


def test_a_table_stays_a_table_whatever_the_rules_hold(tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text(
        '# Odd things.\n[odd]\nwhy = "a | b <script>"\nalso = "[ ]"\nflags = "-x=write -r!execute -i!edit"\noperands = "read write*"\n\n'
        "[[example]]\nrun = '''odd `id` | x\nodd'''\ntier = \"execute\"\nwhy = \"hostile: a | b\"\n"
    )
    page = generator().commands_page(tmp_path)
    rows = [
        line for line in page.split("\n") if line.startswith("|") and "---" not in line and "what it does" not in line
    ]
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows]
    assert [[cell.strip() for cell in row] for row in cells] == [
        ["`odd`, `[`, `]`", "a \\| b &lt;script>", "read", "edits: `-i`; execute: `-r`; writes it: `-x …`", "file read, file written …"],
        ["example", "tier", "why"],
        ["`` odd `id` \\| x⏎odd ``", "execute", "hostile: a \\| b"],
    ]  # fmt: skip


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = page if not path else (page.parent / path)
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            there = found.read_text("utf-8")
            assert f'id="{anchor}"' in there or anchor in headings(there), target


def test_the_page_about_commands_of_a_talk_has_each_of_them_and_no_other() -> None:
    told = re.findall(r"^\| `/(.+?)` \|", (DOCS / "guide" / "slash.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(row.replace("\\|", "|") for row in told) == sorted(
        f"{one.name} {one.usage}".strip() for one in COMMANDS
    )


SHOWN = re.compile(r"`(agent [^`]*)`|^(?:\$ )?(agent .*)$", re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=name_of)
def test_every_option_that_a_page_gives_to_agent_exists(page: Path) -> None:
    agent = whole_command()
    for inline, line in SHOWN.findall(page.read_text("utf-8")):
        words = re.sub(r"'[^']*'|\"[^\"]*\"", "Q", (inline or line).partition("#")[0]).split()
        own = list(itertools.takewhile(lambda word: word not in ("--", "|", ";", "&&"), words))
        command, rest = agent, with_run(own[1:])
        while rest and rest[0] in (below := getattr(command, "commands", {})):
            command, rest = below[rest[0]], rest[1:]
        known = {"--help", *itertools.chain.from_iterable(each.opts for each in command.params)}
        given = {found[0] for word in rest if (found := re.match(r"--[a-z0-9-]+", word))}
        assert given <= known, inline or line


def test_the_page_about_scripted_models_has_a_valid_script_and_every_key(tmp_path: Path) -> None:
    page = (DOCS / "reference" / "scripted.md").read_text("utf-8")
    script = tmp_path / "talk.toml"
    script.write_text(page.partition("```toml\n")[2].partition("```")[0])
    first, second = read_script(script)
    assert [call.name for call in (*first.calls, *second.calls)] == ["bash", "read"]
    assert (second.when, second.otherwise and second.otherwise.text) == ("refused", "All tests pass.")
    assert [key for key in KEYS if key != "turn" and f"`{key}`" not in page and f"{key} = " not in page] == []


def test_the_page_about_the_files_of_the_program_names_each_of_them(tmp_path: Path) -> None:
    script = tmp_path / "talk.toml"
    script.write_text('[[turn]]\ncalls = [{ name = "bash", arguments = { command = "seq 9000; touch new" } }]\n')
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [AGENT, "run", "--mode", "trust-project", "work"]
    forked_agent.run(
        [*command, "--model", f"scripted:{script}"], cwd=workspace, env=environ, check=True, capture_output=True
    )
    page = (DOCS / "guide" / "data.md").read_text("utf-8")
    made = [path.name for path in (tmp_path / ".local/state/ringfence").iterdir()]
    assert {"audit.db", "sessions", "outputs", "snapshots"} <= set(made)
    assert [name for name in made if f"`{name.removesuffix('-shm').removesuffix('-wal')}" not in page] == []


def test_the_page_about_the_architecture_names_modules_that_exist() -> None:
    named = re.findall(
        r"`((?:runner|policy|sandbox|tools|tests)/[\w/.]*)`", (DOCS / "architecture.md").read_text("utf-8")
    )
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_page_about_the_architecture_names_every_folder() -> None:
    page = (DOCS / "architecture.md").read_text("utf-8")
    for package in ("runner", "policy", "sandbox"):
        section = page.partition(f"### `{package}/`")[2].partition("\n##")[0]
        folders = [path.parent.name for path in (ROOT / package).glob("*/__init__.py")]
        assert [name for name in folders if f"`{name}/`" not in section] == [], package


def test_the_readme_and_the_security_page_stay_short() -> None:
    security = (ROOT / "SECURITY.md").read_text("utf-8")
    assert len((ROOT / "README.md").read_bytes()) < 9_000
    assert len(security.encode()) < 12_000
    assert headings(security)[1] == "reporting-a-vulnerability", "a reporter finds the address first"


def test_the_images_that_the_readme_names_exist_and_load_nothing() -> None:
    named = re.findall(r'(?:src|srcset)="([^"]+)"', (ROOT / "README.md").read_text("utf-8"))
    assert len(named) == 2
    for name in named:
        text = (ROOT / name).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert re.search(r"https?:|@font-face|@import|<script|href=", text) is None, name


def test_rules_of_every_family_are_whole() -> None:
    for path in sorted((ROOT / "policy" / "commands").glob("*.toml")):
        assert parse_rules(path.read_text("utf-8"), path.name), path.name
        assert generator()._title(path.read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_of_tests_in_the_pages_can_be_read(page: Path) -> None:
    for block in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
        if "[[test]]" in block:
            assert parse_table(block, page.name).tests
        elif "[[rule]]" in block:
            rules = permissions(read(block, page.name, {}, LISTS), Layer.USER)
            book = shipped()
            assert [
                str(one) for one in check(rules, book.rules, None, book.profile) if one.severity is Severity.ERROR
            ] == []
            assert rules


def test_the_commit_hook_lets_no_script_in_that_would_be_refused(tmp_path: Path) -> None:
    (hook,) = re.findall(r"```python\n(.*?)```", (DOCS / "reference" / "policy.md").read_text("utf-8"), flags=re.DOTALL)
    work, path = tmp_path / "work", f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    for name in ("AUTHOR", "COMMITTER"):
        environ |= {f"GIT_{name}_NAME": "a", f"GIT_{name}_EMAIL": "a@example.com"}

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=work, env=environ, capture_output=True, text=True, timeout=120)

    work.mkdir()
    git("init", "-q")
    (work / ".git" / "hooks" / "pre-commit").write_text(hook)
    (work / ".git" / "hooks" / "pre-commit").chmod(0o755)
    (work / "good.sh").write_text("make test\n")
    git("add", ".")
    good = git("commit", "-qm", "good")
    assert (good.returncode, good.stderr) == (0, "")
    (work / "bad name.sh").write_text("cat ~/.ssh/id_rsa\n")
    git("add", ".")
    bad = git("commit", "-qm", "bad")
    assert bad.returncode == 1
    assert bad.stderr.startswith("bad name.sh: reads ~/.ssh/id_rsa")
    (work / "bad name.sh").write_bytes(b"cat ~/.ssh/id_rsa \xff\n")
    git("add", ".")
    odd = git("commit", "-qm", "odd")
    assert (odd.returncode, "Traceback" in odd.stderr) == (1, False), "a script that is no UTF-8"
    (tmp_path / ".config" / "ringfence").mkdir(parents=True)
    (tmp_path / ".config" / "ringfence" / "config.toml").write_text("mdoe = 1\n")
    broken = git("commit", "-qm", "broken")
    assert broken.returncode == 1
    assert "did you mean `mode`?" in broken.stderr, "why the judge did not start"


THEIRS = {
    "one-command.md",
    "undo.md",
    "credentials.md",
    "grants.md",
    "trust.md",
}  # test_threats runs these, where a keyring and a repository are
CONSOLE = [
    block for page in PAGES if page.name not in THEIRS for block in re.findall(r"```console\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
]  # fmt: skip


@pytest.mark.parametrize("block", CONSOLE, ids=[block.split("\n")[0] for block in CONSOLE])
def test_what_the_pages_show_is_what_comes(block: str, tmp_path: Path) -> None:
    """The lines of a console block appear in this order; `…` stands for what was left out."""
    command, *shown = block.rstrip("\n").split("\n")
    work, path = tmp_path / "work", f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (work / ".git").mkdir(parents=True)
    environ = {"PATH": path, "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", command.removeprefix("$ ")], cwd=work, env=environ, capture_output=True, text=True, timeout=60
    )
    lines = iter(done.stdout.split("\n"))
    for wanted in shown:
        start, gap, _ = wanted.partition("…")
        if start:
            assert any(line.startswith(start) if gap else line == wanted for line in lines), (wanted, done.stdout)
