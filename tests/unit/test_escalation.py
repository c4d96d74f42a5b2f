"""Tests of escalation: the exact missing right is offered once, and no output of a program can extend it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from policy.evaluation import EvaluationContext
from policy.grants.extra_right import ExtraRight, ask_for, extra_of
from policy.grants.resolve import approve
from policy.model.action import RunScript
from policy.model.tier import Mode, Tier
from policy.model.verdict import UNNAMED, Allow, Ask, Permit, Terms
from runner.approval.approver import Answer, Halt, No, Question, Yes
from runner.approval.card import card
from runner.events import ActionFinished, Denied, QuestionAnswered, QuestionAsked
from runner.gate.grants.store import RememberedAnswer
from runner.problems import Exit
from runner.providers.scripted import Turn
from sandbox.backend import Outcome, Violation
from sandbox.egress.dialer import Dialer
from sandbox.linux.violations import explain
from tests.support import loop_harness
from tests.support.grant_questions import evaluation_context, resolution
from tests.support.loop_harness import DONE, WORK, LoopHarness, Make, bash
from tests.support.panels import Panel
from tests.support.permission_machine import PROFILE, machine, profile

stage = loop_harness.stage
K8S = "k8s.example.org:6443"
HERE, HOME = machine().workspace, machine().home
TOP = str(Path(HOME).parent)
SCRIPT = RunScript("npm test", HERE)


def had(at: EvaluationContext) -> Terms:
    """Return the terms of the first run of the command."""
    _, verdict = at.evaluate(SCRIPT)
    if isinstance(verdict, Allow):
        return verdict.permit.terms
    assert isinstance(verdict, Ask)
    return verdict.terms


# fmt: off
OFFERED = [
    (f"--read {TOP}/log/syslog",   Tier.READ_OUTSIDE,  "read",  (f"{TOP}/log/syslog",), "a file outside"),
    (f"--read {HOME}/out",         Tier.READ_OUTSIDE,  "read",  (f"{HOME}/out",),       "a folder"),
    (f"--write {TOP}/log/syslog",  Tier.WRITE_OUTSIDE, "write", (f"{TOP}/log/syslog",), "a change"),
    (f"--write {TOP}/log/new",     Tier.WRITE_OUTSIDE, "write", (f"{TOP}/log",),        "to make a file is to write to its folder"),
    ("--write /opt/new-name",      Tier.WRITE_OUTSIDE, "write", ("/opt",),              "a new name where people put their own"),
    (f"--read {HERE}/docs/away",   Tier.READ_OUTSIDE,  "read",  (f"{HOME}/out",),       "a link is named by where it leads"),
    ("--host registry.example.org",      Tier.NETWORK, "hosts", ("registry.example.org",),      "a host"),
    ("--host registry.example.org:8443", Tier.NETWORK, "hosts", ("registry.example.org:8443",), "at its port"),
]
NEVER = [
    (f"--read {HOME}/.ssh/id_rsa",    "a private key"),
    (f"--read {HOME}/.aws/credentials", "a credential store"),
    (f"--read {HOME}",                "all of home, which holds keys"),
    (f"--write {HOME}/.bashrc",       "a new name in home: write access to all of it"),
    (f"--read {TOP}",                 "a folder that holds home"),
    ("--read /",                      "everything"),
    ("--read /proc/1/environ",        "the kernel's view of others"),
    ("--write /proc/sys/kernel/core_pattern", "the kernel's settings"),
    ("--write /dev/sda",              "a device"),
    (f"--write {HERE}/.git/hooks/x",  "what is locked in the workspace"),
    (f"--read {HERE}/.env",           "what is hidden in the workspace"),
    ("--read relative/path",          "no absolute path"),
    ("--read ",                       "no path"),
    ("--read /nowhere/at/all",        "what does not exist"),
    ("--write /new",                  "the root folder"),
    ("--write /var/new",              "a new name in a part of the system"),
    ("--read /tmp/a\x1b[2J",          "a name that cannot be shown"),
    ("--host 127.0.0.1",              "this machine"),
    ("--host localhost:2375 private", "a daemon of this machine"),
    ("--host 10.0.0.1 private",       "a private network"),
    ("--host 169.254.169.254",        "the metadata of a cloud"),
    ("--host [::1]",                  "this machine, in the other family"),
    ("--host *.example.org",          "a pattern"),
    ("--host example.org:*",          "every port"),
    ("--host ",                       "no host"),
    ("--host exa mple.org",           "no name"),
    ("--env A=b",                     "no such right"),
    ("--unix",                        "no such right"),
    ("",                              "none"),
]
# fmt: on


@pytest.mark.threat("T109")
@pytest.mark.parametrize(("words", "tier", "where", "gained", "why"), OFFERED, ids=[row[-1] for row in OFFERED])
def test_exactly_the_right_that_was_missing(
    words: str, tier: Tier, where: str, gained: tuple[str, ...], why: str
) -> None:
    at, extra = evaluation_context(), extra_of(words)
    assert extra is not None
    ask = ask_for(at, SCRIPT, had(at), extra)
    assert ask is not None, why
    assert ask.cell.tier is tier
    assert getattr(ask.terms, where) == gained
    assert replace(ask.terms, read=(), write=(), hosts=(), env=()) == replace(had(at), env=())
    assert "was blocked" in ask.question
    assert approve(ask).permit.terms == ask.terms
    created = words.startswith("--write") and not words.endswith(gained[0])
    assert ("does not exist" in ask.reason.text) is created
    if created:
        assert (
            f"{words.partition(' ')[2]} does not exist, and the sandbox can allow a new file only with its whole"
            in (ask.reason.text)
        )


@pytest.mark.threat("T109")
@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.TRUST_PROJECT, Mode.DANGEROUSLY])
@pytest.mark.parametrize(("words", "why"), NEVER, ids=[why for _, why in NEVER])
def test_what_nobody_may_say_yes_to_is_not_offered(words: str, why: str, mode: Mode) -> None:
    at, extra = evaluation_context(mode), extra_of(words)
    assert extra is None or ask_for(at, SCRIPT, had(at), extra) is None, why


@pytest.mark.threat("T109")
def test_a_link_to_a_secret_is_a_secret(tmp_path: Path) -> None:
    (Path(HOME) / ".ssh").mkdir(exist_ok=True)
    (Path(HOME) / ".ssh" / "id_rsa").write_text("k")
    link = Path(TOP) / "log" / "harmless"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(HOME) / ".ssh" / "id_rsa")
    at = evaluation_context()
    assert ask_for(at, SCRIPT, had(at), ExtraRight("--read", str(link))) is None
    link.unlink()


# fmt: off
STRICT = [
    (replace(evaluation_context(Mode.PLAN)),                        "plan changes nothing"),
    (evaluation_context(Mode.DONT_ASK),                             "nobody wants to be asked"),
    (replace(evaluation_context(), unattended=True),                "there is no user"),
    (replace(evaluation_context(), profile=profile(f'deny read=["{TOP}/log/**"]')), "a rule denies it"),
]
# fmt: on


@pytest.mark.threat("T109")
@pytest.mark.parametrize(("at", "why"), STRICT, ids=[why for _, why in STRICT])
def test_where_nothing_is_asked_nothing_is_offered(at: EvaluationContext, why: str) -> None:
    before = had(evaluation_context())
    assert ask_for(at, SCRIPT, before, ExtraRight("--read", f"{TOP}/log/syslog")) is None, why


@pytest.mark.threat("T109")
def test_rights_that_have_grown_meanwhile_are_not_given_along() -> None:
    """The terms of the second run are those of the first, and the one right."""
    at = evaluation_context()
    less = replace(had(at), limits=replace(had(at).limits, wall=1.0))
    assert ask_for(at, SCRIPT, less, ExtraRight("--read", f"{TOP}/log/syslog")) is None


def test_a_remembered_yes_gives_no_further_right() -> None:
    assert PROFILE.permissions == ()
    assert resolution("npm test", ()).by == ()


# ---- through the loop


class Stopping:
    """A sandbox's answer: stopped as long as the terms lack what it wants."""

    def __init__(self, right: str) -> None:
        self.right = right

    def __call__(self, name: str) -> Outcome:
        stopped = Violation("`it` is not among the paths of this command", "", "fix", True, right=self.right)
        return Outcome(1, stderr=b"no", violations=(stopped,))


def played(stage: Make, panel: Panel, path: Path, mode: Mode = Mode.TRUST_PROJECT, *turns: Turn) -> LoopHarness:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x\n")
    found = stage(
        *(turns or (bash(WORK),)), DONE, approver=panel, mode=mode, unattended=False, behave=Stopping(f"--read {path}")
    )
    permits: list[Permit] = []
    found.sandbox.before_run = permits.append
    found.play()
    found.permits = permits  # type: ignore[attr-defined]  # for the tests below
    return found


def test_a_yes_runs_it_once_more_with_that_right(stage: Make, tmp_path: Path) -> None:
    panel = Panel(lambda _: Yes())
    found = played(stage, panel, tmp_path / "data" / "in.txt")
    first, second = found.permits  # type: ignore[attr-defined]
    assert (first.terms.read, second.terms.read) == ((), (str(tmp_path / "data" / "in.txt"),))
    assert len(panel.asked) == 1, "the second run is not asked about, whatever it says"
    (asked,) = panel.asked[0]
    assert "reported by the program itself" in asked.again
    assert asked.card.choices == ()
    assert not asked.card.editable
    assert f"allowed --read {tmp_path}/data/in.txt once" in found.told()[0]
    assert len([event for event in found.events if isinstance(event, ActionFinished)]) == 1
    rows = [row.body for row in found.audit.rows(kind="decided")][::-1]
    assert [row["typed"] for row in rows] == [[], [f"--read {tmp_path}/data/in.txt"]]
    assert len(list(found.audit.rows(kind="finished"))) == 2


@pytest.mark.threat("T109")
def test_a_registry_and_where_its_files_lie_are_asked_for_one_after_the_other(stage: Make) -> None:
    """Each a question of its own, and no more of them than a user answers in earnest."""
    names = iter(range(1, 99))

    def stopped(_: str) -> Outcome:
        said = Violation("host is not on the allowlist", "", "fix", False, right=f"--host h{next(names)}.example.org")
        return Outcome(1, stderr=b"no", violations=(said,))

    panel = Panel(*[lambda _: Yes()] * 9)
    found = stage(bash(WORK), DONE, approver=panel, mode=Mode.TRUST_PROJECT, unattended=False, behave=stopped)
    permits: list[Permit] = []
    found.sandbox.before_run = permits.append
    found.play()
    hosts = [f"h{number}.example.org" for number in range(1, 5)]
    assert [each.terms.hosts for each in permits] == [tuple(hosts[:count]) for count in range(5)]
    assert len(panel.asked) == 4
    rows = [row.body for row in found.audit.rows(kind="decided")][::-1]
    assert rows[-1]["typed"] == [f"--host {host}" for host in hosts]
    assert "allowed --host h1.example.org and --host h2.example.org" in found.told()[0]


@pytest.mark.threat("T173")
def test_the_host_of_reading_commands_is_remembered_with_the_answer(
    stage: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "programs" / "kubectl"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    blocked = Violation("a connection was refused", "k8s.example.org is not open", "", False, right=f"--host {K8S}")

    def remember(question: Question) -> Answer:
        kept = question.offer.picked("s")
        assert isinstance(kept, RememberedAnswer)
        assert not question.card.editable
        assert K8S in question.card.choices[0].label
        return Yes(kept)

    panel = Panel(lambda _: Yes(), remember, lambda _: No())
    found = stage(
        bash("kubectl get pods"), bash("kubectl logs x"), bash("kubectl delete pod x"), DONE, approver=panel,
        mode=Mode.DEFAULT, unattended=False, behave=lambda _: Outcome(1, stderr=b"no", violations=(blocked,)),
    )  # fmt: skip
    permits: list[Permit] = []
    found.sandbox.before_run = permits.append
    found.play()
    assert [each.terms.hosts for each in permits] == [(UNNAMED,), (K8S,), (K8S,)]
    assert len(panel.asked) == 3, "the second reading command is not asked about, the command that deletes is"
    assert f"allowed --host {K8S}, and it ran again" in found.told()[0]
    rows = [row.body for row in found.audit.rows(kind="decided")][::-1]
    assert rows[1]["grants"]
    assert rows[1]["grants"] == rows[2]["grants"]


@pytest.mark.threat("T109")
def test_where_no_host_can_be_named_before_it_runs_none_is_open() -> None:
    at, script = evaluation_context(), RunScript("npm install left-pad", HERE)
    _, first = at.evaluate(script)
    assert isinstance(first, Ask)
    assert first.terms.hosts == (UNNAMED,)
    assert Dialer(first.terms.hosts).rules == []
    told = card(first)
    assert dict(told.terms)["network"] == "none yet"
    assert UNNAMED not in told.question + told.line + str(told.as_json())
    more = ask_for(at, script, first.terms, ExtraRight("--host", "registry.example.org"))
    assert more is not None
    assert more.terms.hosts == ("registry.example.org",)
    again = ask_for(
        at,
        script,
        more.terms,
        ExtraRight("--host", "files.example.org"),
        (ExtraRight("--host", "registry.example.org"),),
    )
    assert again is not None
    assert again.terms.hosts == ("files.example.org", "registry.example.org")
    assert ask_for(at, script, more.terms, ExtraRight("--host", "files.example.org")) is None, "what it had stays"


@pytest.mark.parametrize("answer", [No("not that"), No()])
def test_a_no_leaves_it_at_the_first_run(stage: Make, tmp_path: Path, answer: Answer) -> None:
    found = played(stage, Panel(lambda _: answer), tmp_path / "data" / "in.txt")
    assert found.sandbox.ran == [WORK]
    assert "refused" in found.told()[0]
    assert not [event for event in found.events if isinstance(event, Denied)], "it did run"
    assert [row.body["verdict"] for row in found.audit.rows(kind="decided")] == ["deny", "allow"]


@pytest.mark.threat("T109")
def test_nobody_is_asked_twice_for_what_they_refused(stage: Make, tmp_path: Path) -> None:
    panel = Panel(lambda _: No())
    found = played(
        stage, panel, tmp_path / "data" / "in.txt", Mode.TRUST_PROJECT, *[bash(f"{WORK} {n}") for n in range(4)]
    )
    assert len(panel.asked) == 1
    assert len(found.sandbox.ran) == 4


@pytest.mark.threat("T109")
def test_another_name_in_a_refused_folder_is_the_same_right(stage: Make, tmp_path: Path) -> None:
    """To make a file is to write to its folder: a no to that holds, whatever name the program thinks of next."""
    folder = tmp_path / "data"
    folder.mkdir()
    panel = Panel(lambda _: No(), lambda _: No(), lambda _: No())
    names = iter(range(9))

    def stopped(_: str) -> Outcome:
        said = Violation("it is outside", "", "fix", True, right=f"--write {folder}/new{next(names)}")
        return Outcome(1, stderr=b"no", violations=(said,))

    turns = [bash(f"{WORK} {n}") for n in range(3)]
    found = stage(*turns, DONE, approver=panel, mode=Mode.TRUST_PROJECT, unattended=False, behave=stopped)
    found.play()
    assert len(panel.asked) == 1
    assert len(found.sandbox.ran) == 3


def test_stopping_there_stops_the_turn(stage: Make, tmp_path: Path) -> None:
    found = played(stage, Panel(lambda _: Halt()), tmp_path / "data" / "in.txt")
    assert found.sandbox.ran == [WORK]
    assert found.events[-1].exit == Exit.INTERRUPTED  # type: ignore[union-attr]  # RunEnded


@pytest.mark.threat("T109")
def test_what_has_changed_meanwhile_is_asked_anew(stage: Make, tmp_path: Path) -> None:
    path, other = tmp_path / "data" / "in.txt", tmp_path / "other"
    other.write_text("x")

    def swap(question: Question) -> Answer:
        path.unlink()
        path.symlink_to(other)
        return Yes()

    panel = Panel(swap, lambda _: No())
    found = played(stage, panel, path)
    assert len(panel.asked) == 2
    assert str(other) in panel.asked[1][0].card.question
    assert found.sandbox.ran == [WORK]


@pytest.mark.threat("T109")
@pytest.mark.parametrize(
    "right", ["", "--read /root/.ssh/id_rsa", "--host 127.0.0.1:2375 private", "--read", "rm -rf /"]
)
def test_what_is_no_right_is_told_and_not_asked(stage: Make, right: str) -> None:
    panel = Panel()
    found = stage(bash(WORK), DONE, approver=panel, mode=Mode.TRUST_PROJECT, unattended=False, behave=Stopping(right))
    found.play()
    assert panel.asked == []
    assert not [event for event in found.events if isinstance(event, QuestionAsked | QuestionAnswered)]


@pytest.mark.threat("T39")
def test_unattended_nothing_is_offered(stage: Make, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("x")
    found = stage(bash(WORK), DONE, behave=Stopping(f"--read {tmp_path}/in.txt"))
    found.play()
    assert found.sandbox.ran == [WORK]


# ---- what the sandbox says of what it stopped

SAYINGS: list[tuple[str, str, str]] = [
    ("curl: (6) Could not resolve host: registry.example.org", "--host registry.example.org", "curl"),
    ("fatal: unable to access 'https://x.example.org/': Could not resolve host: x.example.org",
     "--host x.example.org", "git"),
    ("npm error request to https://r.example.org failed, reason: getaddrinfo EAI_AGAIN r.example.org",
     "--host r.example.org", "npm"),
    ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "", "no host is named"),
    ("cat: /usr/../var/tmp: Permission denied and /var/tmp", "--read /var/tmp", "a path that is there"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "right", "why"), SAYINGS, ids=[why for *_, why in SAYINGS])
def test_the_right_behind_what_a_program_says(line: str, right: str, why: str) -> None:
    at = evaluation_context(Mode.TRUST_PROJECT)
    _, verdict = at.evaluate(SCRIPT)
    assert isinstance(verdict, Allow)
    found = explain(verdict.permit, Outcome(1, stderr=line.encode()))
    assert [each.right for each in found][:1] == [right], why
