"""Tests of grants as users see them: a real terminal, a real sandbox, a real audit log, and several processes."""

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.terminal import Terminal

ASKED = "allow once? [y/N"


class Harness:
    def __init__(self, base: Path) -> None:
        self.base, self.work = base, base / "work"
        for folder in ("work/docs", "home", "config"):
            (base / folder).mkdir(parents=True)
        (self.work / "Makefile").write_text("build:\n\t@echo built\nother:\n\t@echo other\n")
        self.environ = {
            "HOME": str(base / "home"),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "RINGFENCE_STATE_DIR": str(base / "state"),
            "RINGFENCE_CONFIG_DIR": str(base / "config"),
        }

    def agent(self, *words: str) -> subprocess.CompletedProcess[str]:
        return forked_agent.run(
            [AGENT, *words], cwd=self.work, env=self.environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )  # fmt: skip

    def listed(self, *words: str) -> list[dict[str, object]]:
        said = self.agent("grants", "list", "--json", *words).stdout
        found: list[dict[str, object]] = [json.loads(line) for line in said.splitlines()]
        return found

    def at_terminal(self, *words: str, answers: tuple[str, ...] = (), columns: int = 0) -> tuple[int, str, int]:
        """Run at a terminal, and answer each question; the exit status, what was on the screen, questions asked.

        With `columns`, the terminal has that width.
        """
        left, answered = list(answers), 0
        with closing(
            Terminal([AGENT, *words], self.work, self.environ, size=(columns, 24 if columns else 0))
        ) as terminal:
            while terminal.shows_or_ends(ASKED, answered + 1):
                answered += 1
                terminal.type(f"{left.pop(0) if left else 'n'}\r")
            return terminal.end(), terminal.seen.replace("\r", ""), answered


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


@pytest.mark.threat("T76")
def test_what_was_answered_at_one_question_answers_the_next_and_nothing_else(harness: Harness) -> None:
    status, screen, asked = harness.at_terminal("exec", "make build", answers=("p because it is ours",))
    assert (status, asked) == (0, 1), screen
    assert "built" in screen
    grant = harness.listed()[0]
    name = str(grant["id"])
    assert f"remembered as {name}" in screen
    assert grant["says"] == "exactly `make build`"
    assert (grant["script"], grant["reason"]) == ("$ make build", "it is ours")
    status, screen, asked = harness.at_terminal("exec", "make build")
    assert (status, asked) == (0, 0), screen
    status, screen, asked = harness.at_terminal("exec", "make other")
    assert (status, asked) == (3, 1), screen
    record = json.loads(harness.agent("audit", "--json").stdout.splitlines()[1])
    assert record["grants"] == [name]
    assert record["because"]["rule"] == f"grant:{name}"
    assert (record["answer"]["yes"], record["answer"]["by"]) == (True, f"grant {name}")
    first = json.loads(harness.agent("audit", "--json").stdout.splitlines()[2])
    assert (first["grants"], first["answer"]["by"]) == ([name], "terminal")
    listed = harness.agent("audit").stdout
    assert f"answered: yes, by grant {name}" in listed
    assert f"answered: yes, by terminal, remembered as {name}" in listed
    assert name in harness.agent("why", "make build").stdout
    assert json.loads(harness.agent("why", "--json", "make build").stdout)["because"]["rule"] == f"grant:{name}"
    assert name not in harness.agent("why", "make other").stdout
    assert first["answer"]["seconds"] > 0
    assert record["answer"]["seconds"] is None, "nobody was waited for"
    assert record["granted"][0]["id"] == name
    harness.agent("grants", "revoke", name)  # the record has it as it was
    told = json.loads(harness.agent("audit", "replay", "--json").stdout)
    assert (told["replayed"], told["differences"], told["unknown"]) == (3, [], [])


@pytest.mark.threat("T76")
def test_where_nobody_is_a_grant_answers_nothing(harness: Harness) -> None:
    assert harness.agent("grants", "add", "make build", "p").returncode == 0
    assert harness.agent("exec", "make build").returncode == 3
    assert harness.agent("exec", "--unattended", "make build").returncode == 3


@pytest.mark.threat("T77")
def test_a_remembered_no_holds_where_nobody_is_and_whatever_the_mode(harness: Harness) -> None:
    status, screen, _ = harness.at_terminal("exec", "make build", answers=("d because it is slow",))
    assert status == 3, screen
    for words in (("--mode", "trust-project"), ("--mode", "dangerously"), ("--unattended", "--mode", "trust-project")):
        done = harness.agent("exec", *words, "make build")
        assert done.returncode == 3, done
        assert "it is slow" in done.stderr
    assert harness.agent("exec", "--mode", "trust-project", "make other").returncode == 0
    name = str(harness.listed()[0]["id"])
    assert harness.agent("grants", "revoke", name).returncode == 0
    assert harness.agent("exec", "--mode", "trust-project", "make build").returncode == 0
    told = json.loads(harness.agent("audit", "replay", "--json").stdout)
    assert (told["differences"], told["unknown"]) == ([], []), "a no that was taken back is in the record"


@pytest.mark.threat("T78")
def test_uses_run_out_and_what_is_revoked_is_asked_again(harness: Harness) -> None:
    assert harness.agent("grants", "add", "make build", "p", "2x").returncode == 0
    for expected in (0, 0, 1):
        status, screen, asked = harness.at_terminal("exec", "make build")
        assert (status, asked) == (3 if expected else 0, expected), screen
    assert harness.listed() == []
    assert [grant["uses"] for grant in harness.listed("--all")] == [0]
    assert "removed g" in harness.agent("grants", "prune").stdout
    assert harness.listed("--all") == []
    assert harness.agent("grants", "add", "make build", "p").returncode == 0
    assert harness.at_terminal("exec", "make build")[2] == 0
    assert harness.agent("grants", "revoke", "--all").returncode == 0
    assert harness.at_terminal("exec", "make build")[2] == 1


@pytest.mark.threat("T79")
@pytest.mark.parametrize("damage", ["torn", "open", "link"])
def test_a_file_that_cannot_be_believed_leads_back_to_the_question(harness: Harness, damage: str) -> None:
    assert harness.agent("grants", "add", "make build", "p").returncode == 0
    path = harness.base / "state" / "grants.json"
    if damage == "torn":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "open":
        path.chmod(0o666)
    else:
        path.rename(harness.base / "elsewhere.json")
        path.symlink_to(harness.base / "elsewhere.json")
    status, screen, asked = harness.at_terminal("exec", "make build")
    assert (status, asked) == (3, 1), screen
    assert "grants.json" in screen
    assert ("corrupt-1" in screen) is (damage == "torn")


def test_grants_of_another_folder_are_listed_when_asked_for(harness: Harness) -> None:
    assert harness.agent("grants", "add", "make build", "p").returncode == 0
    other = harness.base / "other"
    other.mkdir()
    assert len(harness.listed("--workspace", str(harness.work))) == 1
    alone = [json.loads(line) for line in harness.agent("grants", "--json").stdout.splitlines()]
    assert alone == harness.listed(), "the list needs no word of its own"
    assert harness.listed("--workspace", str(other)) == []
    assert len(harness.listed("--all", "--workspace", str(other))) == 1


@pytest.mark.threat("T77")
def test_no_command_of_the_agent_gives_itself_a_grant(harness: Harness) -> None:
    assert harness.agent("grants", "add", "make build", "p").returncode == 0
    path = harness.base / "state" / "grants.json"
    before = path.read_bytes()
    tries = [
        f"{AGENT} grants add 'make other' 1",
        f"{AGENT} grants revoke --all",
        f"RINGFENCE_STATE_DIR={harness.base}/state {AGENT} grants add 'make other' 1",
        f"python3 -c 'open({str(path)!r}, \"w\")'",
        f"echo x > {path}",
        f"rm -rf {harness.base}/state",
        f'ln -s {path} g; python3 -c \'open("g", "w")\'',
    ]
    for line in tries:
        for mode in ("dont-ask", "dangerously"):
            harness.agent("exec", "--mode", mode, line)
            assert path.read_bytes() == before, (mode, line)


# fmt: off
MISTAKES: list[tuple[tuple[str, ...], int, str, str]] = [
    (("grants", "show", "g00000000"),           2, "there is no grant",        "a name that nobody has"),
    (("grants", "revoke"),                      2, "no grant is selected",     "nothing to take back"),
    (("grants", "revoke", "--all", "g1"),       2, "no grant is selected",     "one and all"),
    (("grants", "revoke", "g\x1b[2J"),          2, "there is no grant",        "a name that drives the terminal"),
    (("grants", "--json", "prune"),             2, "must follow",              "an option that nothing would come of"),
    (("grants", "add", "sudo ls"),              2, "cannot be remembered",     "dangerous: once at most"),
    (("grants", "add", "make build", "1"),      2, "is not an answer",         "a number"),
    (("grants", "add", "make build", "often"),  2, "not a possible answer",    "words that mean nothing"),
    (("grants", "add", "cat ~/.ssh/id_rsa"),    3, "private key",              "what no yes allows"),
    (("grants", "add", "ls"),                   0, "",                         "what needs no answer"),
]
# fmt: on


@pytest.mark.parametrize(("words", "status", "said", "why"), MISTAKES, ids=[why for *_, why in MISTAKES])
def test_mistakes(harness: Harness, words: tuple[str, ...], status: int, said: str, why: str) -> None:
    done = harness.agent(*words)
    assert (done.returncode, said in done.stderr) == (status, True), done
    assert "\x1b" not in done.stdout + done.stderr
    assert not (harness.base / "state" / "grants.json").exists()


def test_messages_at_a_terminal_are_wrapped_at_words(harness: Harness) -> None:
    """Other outputs get whole lines, for the programs that read them."""
    long = (
        "npm install --registry https://registries.example a-package-with-a-long-name another-package-with-a-long-name"
    )
    runs: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
        (("grants", "add", long), (), "p  exactly"),
        (("grants", "add", long, "d"), (), "remembered as"),
        (("exec", "make a-target-with-a-long-name another-target-with-a-long-name"), ("d",), "notice: remembered as"),
        (("exec", "--mode", "plan", "make"), (), "`make` runs"),
    ]
    for words, answers, part in runs:
        _, seen, _ = harness.at_terminal(*words, answers=answers, columns=80)
        assert part in seen, words
        rows = seen[seen.index(part) :].split("\n")
        assert max(map(len, rows)) <= 80, words
        assert not any(row.startswith(" ") and not row.strip() for row in rows), words
    whole = harness.agent("grants", "add", "make all && " + long).stdout
    assert any(len(row) > 80 for row in whole.split("\n"))
