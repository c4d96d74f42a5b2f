"""Tests of signatures: real gpg and ssh-keygen sign outside of the sandbox what the user approved, and nothing else."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policy.languages.git_object import LONGEST, GitObjectError, read_git_object
from policy.model.action import SignGit
from policy.model.tier import Mode
from runner.agent.agent import Agent
from runner.approval.approver import Question
from runner.audit.log import AuditLog
from runner.events import ActionFinished, Event
from runner.messages import ToolCall
from runner.providers import OpenModel
from runner.providers.scripted import ScriptedProvider, Turn

WHO = "Jo <jo@example.org>"
COMMIT = f"tree {'a' * 40}\nparent {'b' * 40}\nauthor {WHO} 1 +0000\ncommitter {WHO} 1 +0000\n\nsubject\n"
TAG = f"object {'a' * 40}\ntype commit\ntag v1\ntagger {WHO} 1 +0000\n\nnote\n"


class Signer:
    """A user with a repository, a gpg key and an SSH key, and own Git settings that name one of them."""

    def __init__(self, base: Path, form: str) -> None:
        self.state, self.home, self.work = base / "state", base / "home", base / "home" / "w"
        self.environ = {"HOME": str(self.home), "GNUPGHOME": str(base / "keys"), "PATH": os.environ["PATH"]}
        self.work.mkdir(parents=True)
        (base / "keys").mkdir(mode=0o700)
        settings = ["[user]", "name = Jo", "email = jo@example.org"]
        if form == "openpgp":
            self.sh(
                f"gpg -q --batch --pinentry-mode loopback --passphrase '' --quick-gen-key '{WHO}' ed25519 sign never"
            )
        else:
            key = base / "keys" / "signer"
            self.sh(f"ssh-keygen -q -t ed25519 -N '' -C jo -f {key}")
            public = Path(f"{key}.pub").read_text()
            (base / "signers").write_text(f"jo@example.org {public}")
            settings += [f"signingKey = {key}.pub", "[gpg]", "format = ssh"]
            settings += ['[gpg "ssh"]', f"allowedSignersFile = {base / 'signers'}"]
        (self.home / ".gitconfig").write_text("".join(f"{line}\n" for line in settings))
        self.sh("git init -q -b main . && git commit -q --allow-empty -m first")
        self.questions: list[Question] = []

    def sh(self, script: str) -> str:
        done = subprocess.run(
            ["sh", "-c", script], cwd=self.work, env=self.environ, capture_output=True, text=True, check=True
        )
        return done.stdout + done.stderr

    def run(
        self, script: str, answer: Callable[[int], bool] | None = lambda _: True, mode: Mode = Mode.TRUST_PROJECT
    ) -> str:
        """Run a script in a session, and return the text that the model gets. None: there is no user."""

        async def decide(question: Question) -> bool:
            self.questions.append(question)
            return answer is not None and answer(len(self.questions))

        async def work() -> list[Event]:
            turns = Turn(calls=(ToolCall("", "bash", {"command": script}),)), Turn("done")
            opened = OpenModel(ScriptedProvider(turns), "m")
            approver = decide if answer is not None else None
            async with Agent(self.work, model=opened, mode=mode, approver=approver) as agent:
                return [event async for event in agent.prompt("go")]

        events = asyncio.run(work())
        return next(event.text for event in events if isinstance(event, ActionFinished))

    def signed(self) -> list[tuple[str, int]]:
        """Return the verdict on each signature in the record, with the status of the ones that were made."""
        with AuditLog.open_to_read(self.state / "audit.db") as log:
            rows = [row.body for row in log.rows()]
        return [
            (str(row["verdict"]), str(row["action"]).count("author"))
            for row in rows
            if row["kind"] == "decided" and row["action"]["type"] == "SignGit"  # type: ignore[index,call-overload]  # JSON
        ]


@pytest.fixture
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Signer]:
    base = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="sign"))  # short, for the socket of gpg-agent
    try:
        signer = Signer(base, getattr(request, "param", "ssh"))
        for name in [name for name in os.environ if name.startswith(("RINGFENCE_", "GIT_"))]:
            monkeypatch.delenv(name)
        for name, value in (signer.environ | {"RINGFENCE_STATE_DIR": str(signer.state)}).items():
            monkeypatch.setenv(name, value)
        yield signer
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], env=signer.environ, check=False)
    finally:
        shutil.rmtree(base, ignore_errors=True)


@pytest.mark.parametrize("user", ["openpgp", "ssh"], indirect=True)
def test_a_commit_and_a_tag_are_signed_after_a_yes_each(user: Signer) -> None:
    said = user.run("git commit -q --allow-empty -S -m 'second one' && git tag -s -m 'a note' v1 && echo made")
    assert "made" in said
    actions = [question.ask.assessment.action for question in user.questions]
    assert [action.what for action in actions if isinstance(action, SignGit)] == ["commit", "tag"]
    card = user.questions[0].card
    assert "second one" in card.command
    assert f"parent {user.sh('git rev-parse HEAD~1').strip()}" in card.command
    assert "author Jo <jo@example.org>" in card.command
    assert [label for label, _ in card.rights] == ["signs"]
    assert card.choices == ()
    assert "Good" in user.sh("git verify-commit HEAD")
    assert "Good" in user.sh("git verify-tag v1")
    assert [verdict for verdict, _ in user.signed()] == ["allow", "allow"]


@pytest.mark.parametrize("user", ["openpgp"], indirect=True)
def test_the_users_own_setting_signs_every_commit_of_an_attended_session(user: Signer) -> None:
    user.sh("git config --global commit.gpgSign true")
    user.run("git commit -q --allow-empty -m second")
    assert len(user.questions) == 1
    assert "Good" in user.sh("git verify-commit HEAD")
    user.run("git commit -q --allow-empty -m third", None)
    assert "third" in user.sh("git log -1 --format=%s%G?")
    assert user.sh("git log -1 --format=%G?").strip() == "N"


@pytest.mark.threat("T139")
@pytest.mark.parametrize("answer", [lambda _: False, None], ids=["a no", "there is no user"])
def test_without_a_yes_nothing_is_signed(user: Signer, answer: Callable[[int], bool] | None) -> None:
    said = user.run("git commit -q --allow-empty -S -m second; echo status $?", answer)
    assert "the text was not signed" in said
    assert "status 128" in said
    assert user.sh("git log --format=%s") == "first\n"
    assert user.signed() == [("deny", 1)]


# A command that uses the broker without Git. `request KEY` takes the text from standard input.
REQUEST = r"""
folder=$(echo ~/.cache/ringfence-signing-*)
request() {
    { printf '%s\n' "$1"; cat; } > $folder/r1-1.new; mv $folder/r1-1.new $folder/r1-1.request
    while [ ! -e $folder/r1-1.answer ]; do sleep 0.05; done
    head -n 2 $folder/r1-1.answer | cut -c 1-150; rm $folder/r1-1.answer
}
own=ringfence-signing-key
"""
# what a command does, the questions, what it is told, why
ATTACKS = [
    ("echo hello | request $own", 0, "neither a commit nor a tag", "a text that is no commit"),
    ("(cat commit; printf 'x\\0y') | request $own", 0, "contains control characters", "a commit with a NUL byte"),
    ("(cat commit; head -c 70000 /dev/zero | tr '\\0' x) | request $own", 0, "longer than 64 KiB", "a giant commit"),
    ("request 'Someone Else <else@example.org>' < commit", 0, "only the key that the user", "another key"),
    ("request $own < commit; request $own < commit", 2, "signed", "a replay is a question of its own"),
    ("ln -s ~/w/commit $folder/r2-2.request; request $own < commit", 1, "signed", "a link to a text"),
    ("mkfifo $folder/r2-2.request; mkdir $folder/r3-3.request; request $own < commit", 1, "signed", "no regular file"),
    ("ln -s ~/w/made $folder/r2-2.partial; cp commit $folder/r2-2.request; request $own < commit; ls made", 1, "No such file", "an answer through a link"),
    ("rm -rf $folder; mkdir -p ~/w/x; ln -s ~/w/x $folder; cp commit x/r1-1.request; sleep 0.5; ls x", 0, "r1-1.request", "another folder"),
    ("ls -A ~ ~/.gnupg ~/.ssh; ls $folder; env | grep -i -e agent -e gnupghome; ssh-add -l", 0, "gpg", "no key and no socket"),
]  # fmt: skip


@pytest.mark.threat("T139")
@pytest.mark.parametrize(("script", "questions", "told", "why"), ATTACKS, ids=[row[3] for row in ATTACKS])
def test_a_command_that_talks_to_the_broker_gets_nothing_without_a_question(
    user: Signer, script: str, questions: int, told: str, why: str
) -> None:
    (user.work / "commit").write_text(COMMIT)
    (user.work / "attack.sh").write_text(REQUEST + script)
    said = user.run("bash attack.sh 2>&1")
    assert told in said
    assert len(user.questions) == questions
    assert len(user.signed()) == questions
    assert said.count("SSH SIGNATURE") == (questions if told != "No such file" else 1)
    assert "signer" not in said
    assert not (user.work / "made").exists()


@pytest.mark.threat("T139")
def test_no_mode_and_no_rule_signs_without_a_question(user: Signer) -> None:
    config = user.home / ".config" / "ringfence" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[[rule]]\nverdict = "allow"\nrun = ["git", "commit", "..."]\nwhy = "x"\n')
    user.run("git commit -q --allow-empty -S -m second", lambda _: False, Mode.DANGEROUSLY)
    assert len(user.questions) == 1
    assert user.sh("git log --format=%s") == "first\n"


@pytest.mark.threat("T139")
def test_a_second_signature_needs_a_second_yes(user: Signer) -> None:
    script = "git commit -q --allow-empty -S -m second; git commit -q --allow-empty -S -m third; true"
    user.run(script, lambda number: number == 1)
    assert len(user.questions) == 2
    assert user.sh("git log --format=%s") == "second\nfirst\n"


OBJECTS = [
    (COMMIT, "commit", "a commit"),
    (COMMIT.replace(f"parent {'b' * 40}\n", ""), "commit", "the first commit"),
    (COMMIT.replace("parent", "parent " + "c" * 40 + "\nparent"), "commit", "a merge"),
    (TAG, "tag", "a tag"),
    (COMMIT.replace("a" * 40, "a" * 39), "", "a short hash"),
    (COMMIT.replace("\n\n", "\ngpgsig x\n\n"), "", "a header that Git adds later"),
    (COMMIT.replace("1 +0000", "1"), "", "no time zone"),
    ("x" + COMMIT, "", "a text before it"),
    (COMMIT.replace("\n\n", "\n"), "", "no message"),
    (COMMIT + "\r", "", "a carriage return"),
    (COMMIT + "\x1b[2K", "", "an escape sequence"),
    (COMMIT + "x" * LONGEST, "", "too long"),
    ("", "", "nothing"),
]


@pytest.mark.threat("T139")
@pytest.mark.parametrize(("text", "kind", "why"), OBJECTS, ids=[row[2] for row in OBJECTS])
def test_only_the_form_that_git_writes_is_a_commit_or_a_tag(text: str, kind: str, why: str) -> None:
    if kind:
        assert read_git_object(text.encode()) == (kind, text)
    else:
        with pytest.raises(GitObjectError):
            read_git_object(text.encode())
