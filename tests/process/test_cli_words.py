"""Tests of the arguments of `agent`: accepted words, and the message for each mistake. No sandbox is started."""

import errno
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.tier import Mode
from policy.model.verdict import Limits, Problem, limit_names
from policy.rules.rule_file import RuleError
from runner import VERSION
from runner.agent.options import OPTIONS, Given, options_of
from runner.audit.chain import AuditError
from runner.config.amounts import apply_limits, parse_seconds
from runner.frontends.exec.argv import parse_gate, wants_help
from runner.frontends.exec.report import ending
from runner.gate.gate import GateArgs
from runner.messages import ProviderError
from runner.problems import Exit, Stopped, known_problem
from runner.providers.endpoint import SetupError
from runner.sessions.store import JournalError, SessionError
from sandbox.backend import Outcome, SandboxUnavailable
from sandbox.container.daemon import NoDaemon
from sandbox.linux.helper_process import ProcessLimitReached, starting_process
from tests.support.agent_program import AGENT
from tests.support.places import ROOT

# words after `agent exec`, what they mean
UNDERSTOOD = [
    (["ls -la"], GateArgs("ls -la", None)),
    (["--", "ls", "-la"], GateArgs(None, ("ls", "-la"))),
    (["--", "ls"], GateArgs(None, ("ls",))),
    (["--", "--"], GateArgs(None, ("--",))),
    (["--", "echo", "--mode", "plan"], GateArgs(None, ("echo", "--mode", "plan"))),
    (["--mode", "plan", "ls"], GateArgs("ls", None, mode=Mode.PLAN)),
    (["--mode=plan", "ls"], GateArgs("ls", None, mode=Mode.PLAN)),
    (["ls", "--mode", "plan"], GateArgs("ls", None, mode=Mode.PLAN)),
    (["--mode", "plan", "--mode", "default", "ls"], GateArgs("ls", None, mode=Mode.DEFAULT)),
    (["--limit", "memory=2G", "--limit=cpu=3", "x"], GateArgs("x", None, limits=("memory=2G", "cpu=3"))),
    (["--unattended", "--json", "x"], GateArgs("x", None, unattended=True, json=True)),
    (["--cwd", "--mode", "x"], GateArgs("x", None, cwd="--mode")),
    (["--backend", "T3", "--accept-partial", "x"], GateArgs("x", None, backend="T3", least="partial")),
    (["--require", "full", "x"], GateArgs("x", None, least="full")),
    (["--require=partial", "--accept-partial", "x"], GateArgs("x", None, least="partial")),
    (["--read", "a", "--read=b", "--write", "c", "x"], GateArgs("x", None, read=("a", "b"), write=("c",))),
    (["--host", "x.org", "--env", "A=b=c", "x"], GateArgs("x", None, hosts=("x.org",), env=("A=b=c",))),
    (["-"], GateArgs("-", None)),
    ([""], GateArgs("", None)),
]


@pytest.mark.parametrize(("words", "meaning"), UNDERSTOOD, ids=[" ".join(row[0]) for row in UNDERSTOOD])
def test_what_is_understood(words: list[str], meaning: GateArgs) -> None:
    assert parse_gate("exec", words) == meaning


# command, words, a part of what is said, a part of the fix
MISTAKES = [
    ("exec", [], "nothing to run", "agent exec 'git status'"),
    ("why", [], "nothing to judge", "agent why 'git status'"),
    ("exec", ["--"], "nothing to run", "agent exec"),
    ("exec", ["ls", "-la"], "got 2 words", "agent exec 'ls -la'"),
    ("exec", ["git", "status"], "got 2 words", "agent exec -- git status"),
    ("exec", ["ls", "--", "-la"], "is before `--`", "agent exec [options] -- ls -la"),
    ("exec", ["--mode", "x", "x"], "no mode `x`", "pick one"),
    ("exec", ["--mode", "trust-projects", "x"], "no mode", "did you mean `trust-project`?"),
    ("exec", ["--mode"], "needs a value", "--help"),
    ("exec", ["--unatended", "x"], "no option `--unatended`", "did you mean `--unattended`?"),
    ("exec", ["--json=yes", "x"], "takes no value", "write just `--json`"),
    ("exec", ["--require", "ful", "x"], "`--require ful` is not known", "did you mean `full`?"),
    ("exec", ["--require", "full", "--accept-partial", "x"], "exclude each other", "leave one"),
    ("exec", ["--backend", "T9", "x"], "no backend called `T9`", "leave --backend out"),
    ("exec", ["--backend", "t2", "x"], "no backend called `t2`", "did you mean `T2`?"),
    ("exec", ["--backend", "containers", "x"], "no backend called `containers`", "did you mean `container`?"),
    ("exec", ["-x"], "no option `-x`", "goes after `--`"),
    ("why", ["--backend", "T1", "x"], "no option `--backend`", "--help"),
]


@pytest.mark.parametrize(("command", "words", "what", "fix"), MISTAKES, ids=[" ".join(row[1]) for row in MISTAKES])
def test_what_a_mistake_is_told(command: str, words: list[str], what: str, fix: str) -> None:
    with pytest.raises(Stopped) as caught:
        parse_gate(command, words)
    assert caught.value.code is Exit.USAGE
    assert what in caught.value.problem.what
    assert fix in caught.value.problem.fix


@given(st.lists(st.one_of(st.text(), st.sampled_from([*options_of("exec"), "--", "-h", "--mode=plan"]))))
def test_any_words_are_understood_or_a_mistake(words: list[str]) -> None:
    """Law: no words crash the parser, and what follows `--` arrives exactly."""
    try:
        args = parse_gate("exec", words)
    except Stopped:
        return
    assert (args.script is None) != (args.argv is None)
    if args.argv is not None:
        assert words[len(words) - len(args.argv) :] == list(args.argv)


def test_help_is_asked_for_only_where_an_option_may_stand() -> None:
    assert wants_help(["--help"])
    assert wants_help(["x", "-h"])
    assert not wants_help(["--", "ls", "--help"])


def test_the_help_of_typer_and_our_parser_know_the_same_options() -> None:
    from runner.cli.app import whole_command

    group = whole_command()
    commands = {**group.commands, "sandbox show": group.commands["sandbox"].commands["show"]}  # type: ignore[attr-defined]  # groups have commands
    for name in ("exec", "why", "sandbox show", "run", "ci"):
        shown = {option for item in commands[name].params for option in item.opts if option.startswith("-")}
        assert shown - {"--help", "-h"} == set(options_of(name))
    shown = {option for item in group.params for option in item.opts if option.startswith("-")}
    assert shown - {"--help", "-h", "--install-completion", "--show-completion"} == set(options_of("agent"))
    assert set(options_of("terminal")) < set(options_of("agent"))


def test_a_command_knows_each_option_once() -> None:
    for command in {command for option in OPTIONS for command in option.commands}:
        keys = [option.key for option in OPTIONS if command in option.commands]
        assert len(keys) == len(set(keys)), command


def test_options_of_which_none_was_given_have_no_value() -> None:
    given = Given.of_words("terminal", [("--mode", "plan"), ("--limit", "a=1"), ("--limit", "b=2"), ("-c", "")])
    assert (given.text("mode"), given.texts("limit"), given.switch("continue_")) == ("plan", ("a=1", "b=2"), True)
    assert (given.text("cwd"), given.texts("cwd"), given.number("max_turns"), given.switch("fork")) == (
        None,
        (),
        None,
        False,
    )
    assert given.any()
    assert not Given({"mode": None, "json": False, "limit": []}).any()


def test_the_version_is_the_one_of_the_project() -> None:
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text("utf-8"))
    assert project["project"]["version"] == VERSION


# setting, field, value
AMOUNTS = [
    ("memory=2G", "memory", 2 << 30),
    ("memory=512MiB", "memory", 512 << 20),
    ("memory=512mb", "memory", 512 << 20),
    ("memory=1.5k", "memory", 1536),
    ("output=100", "output", 100),
    ("wall=30s", "wall", 30.0),
    ("wall=0.5", "wall", 0.5),
    ("wall=250ms", "wall", 0.25),
    ("wall=2m", "wall", 120.0),
    ("cpu=1h", "cpu", 3600),
    ("open-files=64", "open_files", 64),
    ("open_files=64", "open_files", 64),
    ("pids= 7 ", "pids", 7),
]


@pytest.mark.parametrize(("setting", "field", "value"), AMOUNTS, ids=[row[0] for row in AMOUNTS])
def test_an_amount(setting: str, field: str, value: float) -> None:
    found = getattr(apply_limits(Limits(), (setting,)), field)
    assert found == value
    assert type(found) is type(getattr(Limits(), field)), "the type stays what the limit has"


# fmt: off
NO_AMOUNTS = [
    "", "=2", "mem=2G", "memory", "memory=", "memory=2X", "memory=-1", "memory=0", "memory=1e9", "memory=nan",
    "memory=inf", "memory=٣", "memory=2 G G", "memory=1..2", "memory=" + "9" * 400, "pids=2G", "pids=0.5",
    "cpu=0.2", "wall=0",
]
# fmt: on


@pytest.mark.parametrize("setting", NO_AMOUNTS)
def test_no_amount(setting: str) -> None:
    with pytest.raises(Stopped) as caught:
        apply_limits(Limits(), (setting,))
    assert caught.value.code is Exit.USAGE


@given(st.sampled_from(limit_names()), st.text())
def test_any_amount_is_positive_or_a_mistake(name: str, text: str) -> None:
    try:
        limits = apply_limits(Limits(), (f"{name}={text}",))
    except Stopped:
        return
    assert getattr(limits, name.replace("-", "_")) > 0


def test_seconds_name_their_option() -> None:
    assert parse_seconds("2m", "--timeout") == 120
    with pytest.raises(Stopped, match="--timeout"):
        parse_seconds("soon", "--timeout")


# outcome, exit code, a part of what is printed
ENDINGS = [
    (Outcome(0), 0, None, "the command's own status"),
    (Outcome(7), 7, None, "the command's own status"),
    (Outcome(139), 139, None, "ended by a signal: 128 + N"),
    (Outcome(137, ended_by="wall"), Exit.LIMIT, "wall time (120 s)", "a limit"),
    (Outcome(137, ended_by="output"), Exit.LIMIT, "--limit output", "a limit says how to raise it"),
    (Outcome(137, ended_by="something new"), Exit.LIMIT, "something new", "a limit that we do not know by name"),
    (
        Outcome(125, ended_by="helper", problem=Problem("it is gone", "a", "b")),
        125,
        "it is gone",
        "no limit: a failure",
    ),
    (Outcome(130, ended_by="cancelled"), 130, None, "interrupted"),
    (Outcome(127, problem=Problem("no such program", "a", "b")), 127, "no such program", "a Problem keeps the status"),
    (Outcome(0, problem=Problem("bad", "a", "b")), Exit.FAILED, "bad", "a Problem is never success"),
]


@pytest.mark.parametrize(("outcome", "code", "said", "why"), ENDINGS, ids=[row[3] for row in ENDINGS])
def test_an_ending(outcome: Outcome, code: int, said: str | None, why: str) -> None:
    problem, found = ending(outcome, Limits())
    assert found == code, why
    assert (problem is None) == (said is None)
    if said is not None:
        assert said in str(problem)


def test_a_deliberate_error_keeps_its_exit_code() -> None:
    problem = Problem("a", "b", "c")
    assert known_problem(SandboxUnavailable(problem)) == (problem, Exit.SANDBOX)
    assert known_problem(Stopped(problem, Exit.LIMIT)) == (problem, Exit.LIMIT)
    assert known_problem(RuleError("x.toml", 3, problem)) == (problem, Exit.USAGE)
    assert known_problem(ValueError("a defect")) is None
    foreign = type("Foreign", (Exception,), {"problem": problem})
    assert known_problem(foreign()) is None, "only errors of this program carry a problem"
    for kind, code in (
        (NoDaemon, Exit.SANDBOX),
        (AuditError, Exit.FAILED),
        (ProviderError, Exit.FAILED),
        (SetupError, Exit.USAGE),
        (JournalError, Exit.FAILED),
        (SessionError, Exit.USAGE),
    ):
        renamed = type("Renamed", (kind,), {})
        assert known_problem(renamed(problem)) == (problem, code), "the name of a class is not looked at"


@pytest.mark.parametrize(
    ("error", "word", "why"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "open files", "our own shell gave us few"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory", "no memory"),
        (MemoryError(), "memory", "Python's word for it"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), None, "a defect: nothing was being started"),
        (ProcessLimitReached(errno.EAGAIN, "Resource temporarily unavailable"), "processes", "too many run"),
        (OSError(errno.ENOENT, "No such file or directory"), None, "a defect"),
    ],
)
def test_surroundings_that_give_us_too_little_are_no_defect(error: Exception, word: str | None, why: str) -> None:
    found = known_problem(error)
    assert (found is None) == (word is None), why
    if found is not None and word is not None:
        assert word in found[0].what
        assert found[1] is Exit.FAILED


@pytest.mark.parametrize(("number", "raised"), [(errno.EAGAIN, ProcessLimitReached), (errno.ENOENT, FileNotFoundError)])
def test_only_a_limit_on_processes_is_an_error_of_its_own_where_one_is_started(
    number: int, raised: type[OSError]
) -> None:
    with pytest.raises(OSError, match="cannot start") as caught, starting_process():
        raise OSError(number, "cannot start")
    assert type(caught.value) is raised
    assert caught.value.errno == number


@pytest.mark.parametrize("most", [5, 6, 8, 11, 14, 17, 20, 24])
def test_few_open_files_are_told_as_such_and_nothing_half_confined_runs(most: int, tmp_path: Path) -> None:
    agent, work = AGENT, tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        ["bash", "-c", f'ulimit -n {most}; exec "$@"', "bash", agent, "exec", "--unattended", "pwd"],
        cwd=work,
        env={"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "defect" not in done.stderr, done.stderr
    if done.returncode == 0:
        assert done.stdout == f"{work}\n"
    else:
        assert done.stdout == ""
        assert "open files" in done.stderr, done.stderr
