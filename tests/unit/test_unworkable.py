"""Tests of calls that cannot work: they go back to the model without a question, and tell nothing that is not its own."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from policy.evaluation import EvaluationContext
from policy.missing_program import missing_program
from policy.model.action import Action, ReadFile, RunArgv, RunScript
from policy.model.tier import Mode
from runner.approval.approver import Answer, No, Question, Yes
from runner.events import ActionFinished, Denied, MalformedCall, QuestionAsked, VerdictReached
from runner.gate.missing_program import no_such_program
from runner.messages import ToolCall
from runner.problems import Exit
from runner.providers.scripted import Turn
from sandbox.inside.regular_file import open_regular
from tests.support.loop_harness import DONE, FixedApprover, LoopHarness, Make, bash

BEFORE = "one\ntwo\ntwo\n"
Edit = tuple[str, str, str]


def edits(*calls: Edit) -> Turn:
    names = ("path", "old_string", "new_string")
    return Turn(calls=tuple(ToolCall("", "edit", dict(zip(names, call, strict=True))) for call in calls))


def play(found: LoopHarness, **files: str) -> LoopHarness:
    for name, text in files.items():
        (Path(found.ctx.cwd) / name).write_text(text)
    found.play()
    return found


# fmt: off
# path, old text, part of the answer, or empty if the user is asked, why
EDITS = [
    ("a",            "three", "the old text is not in the file, and no line is similar", "it is nowhere"),
    ("a",            "twoo", "the closest line is 2: `two`",                            "the model sees its mistake"),
    ("a",            "two", "in the file 2 times, on lines 2, 3",                      "several times"),
    ("b",            "one", "there is no such file",                                   "no file"),
    ("sub/x/y",      "one", "there is no such file",                                   "no folder"),
    (".git/config",  "three", "there is no such file",                                   "a file that other programs run"),
    ("a",            "one", "",                                                        "it can be applied"),
]
# fmt: on


@pytest.mark.parametrize(("path", "old", "part", "why"), EDITS, ids=[row[-1] for row in EDITS])
def test_an_edit_that_cannot_be_applied_is_not_asked_about(
    path: str, old: str, part: str, why: str, stage: Make
) -> None:
    person = FixedApprover(No())
    turns = edits((path, old, "new")), DONE
    found = play(stage(*turns, mode=Mode.DEFAULT, approver=person, unattended=False), a=BEFORE)
    assert len(person.asked) == len(found.of(QuestionAsked)) == (part == ""), why
    assert part in found.told()[0]
    if part:
        assert found.told()[0].startswith(f"not done: cannot edit `{found.ctx.cwd}/{path}`")
        assert found.results()[0].is_error
        assert not found.of(VerdictReached, Denied, ActionFinished)
        assert len(found.of(MalformedCall)) == 1
        (record,) = found.audit.rows(kind="refused")
        assert record.body["tool"] == "edit"
        assert not list(found.audit.rows(kind="decided")), "nothing was decided"
        assert found.events[-1].exit == Exit.DONE  # type: ignore[attr-defined]  # RunEnded; and no denial


@pytest.mark.threat("T121")
@pytest.mark.parametrize(("size", "old"), [(300 << 10, "three"), (10, "3" * (33 << 10))], ids=["file", "old text"])
def test_a_large_edit_is_asked_about_so_that_the_check_takes_no_time(size: int, old: str, stage: Make) -> None:
    person = FixedApprover(No())
    turns = edits(("a", old, "new")), DONE
    play(stage(*turns, mode=Mode.DEFAULT, approver=person, unattended=False), a="x" * size)
    assert len(person.asked) == 1


@pytest.mark.threat("T121")
def test_the_closest_line_of_a_large_file_is_not_looked_for(stage: Make) -> None:
    turns = edits(("a", "three", "new")), DONE
    found = play(stage(*turns, mode=Mode.DEFAULT, approver=FixedApprover(No()), unattended=False), a="x\n" * 50_000)
    assert "the old text is not in the file\n" in found.told()[0]


def outside(found: LoopHarness, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("secret text")


def link(found: LoopHarness, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("secret text")
    (Path(found.ctx.cwd) / "link").symlink_to(tmp_path / "out")


def link_to_folder(found: LoopHarness, tmp_path: Path) -> None:
    (tmp_path / "home" / ".ssh").mkdir()
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text("secret text")
    (Path(found.ctx.cwd) / "keys").symlink_to(tmp_path / "home" / ".ssh")


def hidden(found: LoopHarness, tmp_path: Path) -> None:
    (Path(found.ctx.cwd) / ".env").write_text("TOKEN=secret text")


def nothing(found: LoopHarness, tmp_path: Path) -> None:
    return None


def pipe(found: LoopHarness, tmp_path: Path) -> None:
    os.mkfifo(Path(found.ctx.cwd) / "pipe")


# fmt: off
SECRETS = [
    ("../out",          outside,        "a file outside"),
    ("../none",         nothing,        "whether there is a file outside"),
    ("link",            link,           "a file outside, by a link"),
    ("keys/id_rsa",     link_to_folder, "a key, by a linked folder"),
    ("keys/other",      link_to_folder, "whether there is a key"),
    (".env",            hidden,         "a secret file of the workspace"),
    (".env.local",      nothing,        "whether there is a secret file"),
    ("/etc/shadow",     nothing,        "a file of the system"),
    ("pipe",            pipe,           "a pipe, which would block"),
]
# fmt: on


@pytest.mark.threat("T124")
@pytest.mark.parametrize("guess", ["secret", "no such text"])
@pytest.mark.parametrize(("path", "make", "why"), SECRETS, ids=[row[-1] for row in SECRETS])
def test_no_answer_tells_about_a_file_that_the_model_may_not_read(
    path: str, make: Callable[[LoopHarness, Path], None], why: str, guess: str, stage: Make, tmp_path: Path
) -> None:
    found = stage(edits((path, guess, "new")), DONE, mode=Mode.DEFAULT, approver=FixedApprover(No()), unattended=False)
    make(found, tmp_path)
    found.play()
    assert not found.of(MalformedCall), why
    assert found.of(Denied), "asked about and refused, or denied"
    assert not any(part in found.told()[0] for part in ("old text", "such file", "closest", "lines"))


@pytest.mark.threat("T124")
def test_a_link_that_appears_after_the_verdict_tells_nothing(
    stage: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process replaces the file, or a folder above it, between the verdict on the read and the read."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("secret text")
    person = FixedApprover(No())
    call = edits(("sub/a", "guess", "new"))
    found = stage(call, DONE, mode=Mode.DEFAULT, approver=person, unattended=False)
    sub = Path(found.ctx.cwd) / "sub"
    sub.mkdir()
    (sub / "a").write_text("guess")

    def swapped(path: str, *, follow: bool) -> tuple[int, os.stat_result]:
        if not sub.is_symlink():
            sub.rename(tmp_path / "aside")
            sub.symlink_to(tmp_path / "out")
        return open_regular(path, follow=follow)

    monkeypatch.setattr("runner.engine.unworkable.open_regular", swapped)
    found.play()
    assert sub.is_symlink(), "the race took place"
    assert not found.of(MalformedCall)


def test_an_edit_that_an_earlier_call_makes_possible_is_asked_about_when_it_is_due(stage: Make) -> None:
    class Person:
        name = "person"

        def __init__(self) -> None:
            self.lists: list[list[str]] = []

        async def ask_all(self, questions: tuple[Question, ...]) -> tuple[Answer, ...]:
            self.lists.append([each.call for each in questions])
            return (Yes(),) * len(questions)

        async def ask(self, *_: object) -> Answer:
            raise AssertionError("questions come as lists")

    person = Person()
    calls = edits(("a", "one", "1"), ("a", "three", "3"), ("b", "x", "y"), ("a", "two\ntwo", "2"))
    found = stage(calls, DONE, mode=Mode.DEFAULT, approver=person, unattended=False)
    # The sandbox of this test changes nothing, so the first edit does it here.
    found.sandbox.before_run = lambda permit: (Path(found.ctx.cwd) / "a").write_text("1\nthree\ntwo\ntwo\n")
    play(found, a=BEFORE)
    assert person.lists[0] == ["1.1", "1.4"], "what cannot work now is in no list"
    assert person.lists[1:] == [["1.2"], ["1.4"]], "what works later, and what is about another text meanwhile"
    assert [each.call for each in found.of(MalformedCall)] == ["1.3"]


def test_a_refusal_that_was_given_before_holds_even_if_the_call_cannot_work_any_more(stage: Make) -> None:
    class Person:
        name = "person"

        async def ask_all(self, questions: tuple[Question, ...]) -> tuple[Answer, ...]:
            return (Yes(), No("leave that file alone"))

        async def ask(self, *_: object) -> Answer:
            raise AssertionError("both were asked about at once")

    found = stage(
        edits(("a", "one", "1"), ("a", "two\ntwo", "2")), DONE, mode=Mode.DEFAULT, approver=Person(), unattended=False
    )
    found.sandbox.before_run = lambda permit: (Path(found.ctx.cwd) / "a").write_text("other")
    play(found, a=BEFORE)
    assert "leave that file alone" in found.told()[1]


# fmt: off
# script, the missing program, why
SCRIPTS = [
    ("gti status",                     "gti",  "the first command"),
    ("cd sub && gti status",           "gti",  "after `cd`"),
    ("set -e\ncd .\ngti status",       "gti",  "after commands of the shell, one per line"),
    ("gti status | cat",               "gti",  "in a pipeline"),
    ("cat x | gti",                    "gti",  "at the end of a pipeline, whose commands start together"),
    ("gti log > out.txt 2>&1",         "gti",  "with redirections"),
    ("LANG=C gti log",                 "gti",  "with a variable"),
    ("gti 'a b' *.py ~ $HOME; ls",     "gti",  "words that run nothing when they are expanded"),
    ("time gti log",                   "gti",  "with the time that it takes"),
    ("'gti' log",                      "gti",  "quoted"),
    ("git status",                     None,   "it exists"),
    ("ls && gti",                      None,   "not the first: it may be created before"),
    ("make; gti",                      None,   "the same"),
    ("gti || git status",              None,   "the script expects that it may be missing"),
    ("gti || true",                    None,   "the same"),
    ("! gti",                          None,   "the same"),
    ("gti & wait",                     None,   "beside others"),
    ("if gti; then ls; fi",            None,   "in a condition"),
    ("(gti)",                          None,   "in a subshell"),
    ("gti() { ls; }; gti",             None,   "a function of the script"),
    ("ls() { gti; }; ls",              None,   "inside of a function"),
    ("command_not_found_handle() { ls; }; gti", None, "a function that bash calls for it"),
    ("alias gti=git; gti",             None,   "an alias"),
    ("source ./x; gti",                None,   "a file that may define it"),
    (". ./x; gti",                     None,   "the same"),
    ("eval 'gti() { ls; }'; gti",      None,   "text that may define it"),
    ("enable -f ./x gti; gti",         None,   "a builtin that is loaded"),
    ("hash -p /bin/ls gti; gti",       None,   "a place that bash remembers"),
    ("PATH=/x gti",                    None,   "another PATH"),
    ("PATH=/x; gti",                   None,   "another PATH before"),
    ("export PATH=/x; gti",            None,   "the same"),
    ("printf -v PATH /x; gti",         None,   "the same, by a builtin"),
    (": ${PATH:=/x}; gti",             None,   "the same, by an expansion"),
    ("echo ls > /bin/gti; gti",        None,   "a redirection may create it"),
    ("gti $(git log)",                 None,   "a substitution runs before"),
    ("gti <<< $(git log)",             None,   "the same"),
    ("X=$(git log) gti",               None,   "the same"),
    ("a=(1 2) gti",                    None,   "an array"),
    ("$gti status",                    None,   "known only at run time"),
    ("g*i status",                     None,   "the same"),
    ("./gti",                          "./gti", "a path in the workspace"),
    ("sub/gti --x | cat",              "sub/gti", "the same, at the beginning of a pipeline"),
    ("touch gti | ./gti",              None,   "a path after a pipe"),
    ("cd sub && ./gti",                None,   "a path after a change of the folder"),
    ("ls; ./gti",                      None,   "a path that may be created before"),
    ("./.env",                         None,   "whether a secret exists is not told"),
    ("../gti",                         None,   "whether a path outside exists is not told"),
    ("/usr/bin/gti",                   None,   "the same"),
    ("./linked/gti",                   None,   "the same, through a link of the workspace"),
    ("linked/../gti",                  None,   "a folder above the target of a link"),
    ("command gti",                    None,   "a builtin that runs it"),
    ("env gti",                        None,   "a program that runs it"),
    ("n\u0440m install",               None,   "a letter of another script: the card explains it"),
    ("mapfile x",                      None,   "a builtin"),
    ("coproc gti",                     None,   "a reserved word"),
    ("gti 'x",                         None,   "it cannot be read"),
    ("",                               None,   "nothing"),
]
# fmt: on


def context_of(found: LoopHarness) -> EvaluationContext:
    ctx = found.ctx
    return EvaluationContext(ctx.look(), ctx.rules, ctx.profile, Mode.DEFAULT, ctx.environment)


@pytest.mark.parametrize(("script", "name", "why"), SCRIPTS, ids=[f"{row[0]!r}-{row[-1]}" for row in SCRIPTS])
def test_a_program_is_reported_only_if_it_certainly_does_not_exist(
    script: str, name: str | None, why: str, stage: Make
) -> None:
    found = stage(DONE)
    (Path(found.ctx.cwd) / "linked").symlink_to("/var/tmp")
    context = context_of(found)
    assert missing_program(RunScript(script, found.ctx.cwd), context) == name, why
    assert missing_program(RunScript(script, found.ctx.cwd), replace(context, backend="container")) is None
    for changed in (("PATH", "/elsewhere"), ("BASH_ENV", "x"), ("BASH_FUNC_gti%%", "() { ls; }")):
        environment = tuple((dict(context.environment) | dict((changed,))).items())
        assert missing_program(RunScript(script, found.ctx.cwd), replace(context, environment=environment)) is None


@pytest.mark.parametrize(
    ("action", "fix"),
    [
        (RunScript("gti status", "/"), "did you mean `git`?"),
        (RunScript("Git status", "/"), "did you mean `git`?"),
        (RunScript("bahs x", "/"), "did you mean `bash`?"),
        (RunArgv(("gti",), "/"), "did you mean `git`?"),
        (RunArgv(("cd",), "/"), "use another program, or ask the user to install it where the sandbox finds it"),
        (RunScript("zzqxv", "/"), "use another program, or ask the user to install it where the sandbox finds it"),
        (RunScript("git status", "/"), None),
        (ReadFile("/gti"), None),
        (RunArgv((), "/"), None),
    ],
)
def test_a_similar_program_is_suggested(action: Action, fix: str | None, stage: Make) -> None:
    context = context_of(stage(DONE))
    problem = no_such_program(context.classify(action), context)
    assert (problem.fix if problem else None) == fix


# mode, without a user, True if the program is reported in place of a verdict, why
MODES = [
    (Mode.DEFAULT,       False, True,  "the user is not asked"),
    (Mode.TRUST_PROJECT, False, True,  "nor in this mode, which would allow it"),
    (Mode.DEFAULT,       True,  True,  "there is no user: the model learns more than that it is denied"),
    (Mode.PLAN,          False, False, "nothing may run in any case"),
    (Mode.DONT_ASK,      False, True,  "likewise"),
    (Mode.DANGEROUSLY,   False, True,  "likewise"),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "unattended", "told", "why"), MODES, ids=[row[-1] for row in MODES])
def test_a_command_whose_program_is_missing_goes_back_to_the_model(
    mode: Mode, unattended: bool, told: bool, why: str, stage: Make
) -> None:
    person = FixedApprover(Yes())
    found = stage(bash("gti status"), DONE, mode=mode, approver=person, unattended=unattended)
    found.play()
    assert not person.asked
    assert bool(found.of(MalformedCall)) is told, why
    assert ("no such program: `gti`" in found.told()[0]) is ("did you mean `git`?" in found.told()[0]) is told
    assert not found.sandbox.ran
    assert len(list(found.audit.rows(kind="refused"))) == told


def test_a_command_beyond_the_workspace_is_decided_even_if_its_program_is_missing(stage: Make) -> None:
    """The record of what a model tried is worth more than the shorter answer."""
    person = FixedApprover(No())
    calls = bash("gti; rm -rf .git", "doas-x ls; sudo ls", "gti > /var/tmp/x", "gti; curl http://x.test")
    found = stage(calls, DONE, mode=Mode.TRUST_PROJECT, approver=person, unattended=False)
    found.play()
    assert not found.of(MalformedCall)
    assert len(found.of(Denied)) == len(list(found.audit.rows(kind="decided"))) == 4
