"""Tests of the filters of `agent audit`: their meaning, and the message for each mistake."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from runner.audit.query import Query
from runner.cli.audit_query import log_path, moment, query_of
from runner.problems import Stopped

NOW = datetime(2026, 3, 4, 5, 6, 7, 89_999, tzinfo=UTC)

# fmt: off
TIMES = [
    ("2h",                         "2026-03-04T03:06:07.089Z", "ago"),
    ("90s",                        "2026-03-04T05:04:37.089Z", "seconds"),
    ("15m",                        "2026-03-04T04:51:07.089Z", "m is a minute, a month is not a length"),
    ("7d",                         "2026-02-25T05:06:07.089Z", "days, over the end of a month"),
    ("2w",                         "2026-02-18T05:06:07.089Z", "weeks"),
    (" 7D ",                       "2026-02-25T05:06:07.089Z", "as a user types it"),
    ("now",                        "2026-03-04T05:06:07.089Z", ""),
    ("today",                      "2026-03-04T00:00:00.000Z", "since midnight, in UTC"),
    ("yesterday",                  "2026-03-03T00:00:00.000Z", "its beginning"),
    ("2026-03-01",                 "2026-03-01T00:00:00.000Z", "a day is its beginning"),
    ("2026-03-01T12:30",           "2026-03-01T12:30:00.000Z", "UTC where no zone is said"),
    ("2026-03-01 12:30:15",        "2026-03-01T12:30:15.000Z", "as the list prints it"),
    ("2026-03-01T12:30:15.250Z",   "2026-03-01T12:30:15.250Z", "as a record has it"),
    ("2026-03-01T12:30:00+02:00",  "2026-03-01T10:30:00.000Z", "with an offset"),
]
NO_TIMES = ["", "soon", "7", "7y", "-2h", "2026-13-01", "99999999d", "0001-01-01T00:00+23:00", "12:30", "٣d", "1h30m"]
# fmt: on


@pytest.mark.parametrize(("typed", "meant", "why"), TIMES, ids=[typed for typed, _, _ in TIMES])
def test_a_time(typed: str, meant: str, why: str) -> None:
    assert moment(typed, "--since", NOW) == meant, why
    elsewhere = NOW.astimezone(timezone(timedelta(hours=9)))
    assert moment(typed, "--since", elsewhere) == meant, "whatever zone the clock has"


@pytest.mark.parametrize("typed", NO_TIMES)
def test_what_is_no_time_is_said(typed: str) -> None:
    with pytest.raises(Stopped, match="is not a time for --until") as stopped:
        moment(typed, "--until", NOW)
    assert stopped.value.problem.fix == "try --until 7d"


def test_what_is_no_log_is_said(tmp_path: Path) -> None:
    for name, why in ((".", "it is not a plain file"), ("missing", "no such file")):
        with pytest.raises(Stopped) as stopped:
            log_path(str(tmp_path / name))
        assert stopped.value.problem.why == why


# fmt: off
MEANT: list[tuple[dict[str, object], Query, str]] = [
    ({},                                        Query(),                                            "no filter, no wish"),
    ({"denied": True},                          Query(verdicts=("deny",)),                          ""),
    ({"verdict": ["deny"], "denied": True},     Query(verdicts=("deny",)),                          "said twice"),
    ({"verdict": ["allow"], "asked": True},     Query(verdicts=("allow",), asked=True),             "two filters"),
    ({"tier": ["secret", "network"]},           Query(tiers=("secret", "network")),                 "either"),
    ({"mode": ["plan"], "tool": ["exec"]},      Query(modes=("plan",), tools=("exec",)),            ""),
    ({"tool": ["frobnicate"]},                  Query(tools=("frobnicate",)),                       "a model may call what is not there"),
    ({"path": ["src"]},                         Query(paths=("/w/src", "/w/src/*")),                "a folder with what is below"),
    ({"path": ["../x/./y"]},                    Query(paths=("/x/y", "/x/y/*")),                    "as effects spell it"),
    ({"path": ["*.pem"]},                       Query(paths=("*.pem",)),                            "a pattern from anywhere"),
    ({"path": ["src/*.py"]},                    Query(paths=("/w/src/*.py",)),                      "a pattern from here"),
    ({"path": ["/"]},                           Query(paths=("/", "/*")),                           "everything"),
    ({"path": ["~/.ssh"]},                      Query(paths=("/home/ann/.ssh", "/home/ann/.ssh/*")), "where the shell left it"),
    ({"host": ["Example.com"]},                 Query(hosts=("example.com", "example.com:*")),      "any port"),
    ({"host": ["example.com:443"]},             Query(hosts=("example.com:443",)),                  "one port"),
    ({"workspace": ["."]},                      Query(workspaces=("/w",)),                          "here"),
    ({"since": "2h", "until": "1h"},            Query(since="2026-03-04T03:06:07.089Z", until="2026-03-04T04:06:07.089Z"), "an hour"),
    ({"session": ["a1"], "rule": ["policy/"]},  Query(sessions=("a1",), rules=("policy/",)),        "beginnings"),
]
WRONG: list[tuple[dict[str, object], str, str]] = [
    ({"verdict": ["ask"]},                      "there is no `--verdict ask`",                      "--asked"),
    ({"verdict": ["denied"]},                   "there is no `--verdict denied`",                   "did you mean `deny`?"),
    ({"tier": ["secert"]},                      "there is no `--tier secert`",                      "did you mean `secret`?"),
    ({"tier": ["READ_OUTSIDE"]},                "there is no `--tier READ_OUTSIDE`",                "did you mean `read-outside`?"),
    ({"mode": ["trustproject"]},                "there is no `--mode trustproject`",                "did you mean `trust-project`?"),
    ({"denied": True, "verdict": ["allow"]},    "`--denied` and `--verdict allow` exclude each other", "no decision is both"),
    ({"since": "1h", "until": "2h"},            "--until is not after --since",                     "swap them"),
    ({"since": "1h", "until": "1h"},            "--until is not after --since",                     "swap them"),
    ({"tool": [""]},                            "`--tool` has no value",                            "omit the option"),
    ({"rule": [" "]},                           "`--rule` has no value",                            "would match everything"),
]
# fmt: on


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getcwd", lambda: "/w")
    monkeypatch.setenv("HOME", "/home/ann")


@pytest.mark.parametrize(("typed", "meant", "why"), MEANT, ids=[str(typed) for typed, _, _ in MEANT])
def test_filters(typed: dict[str, object], meant: Query, why: str) -> None:
    assert query_of(**typed, now=NOW) == meant, why  # type: ignore[arg-type]  # as typer would


@pytest.mark.parametrize(("typed", "what", "said"), WRONG, ids=[what for _, what, _ in WRONG])
def test_a_mistake_is_said(typed: dict[str, object], what: str, said: str) -> None:
    with pytest.raises(Stopped) as stopped:
        query_of(**typed, now=NOW)  # type: ignore[arg-type]  # as typer would
    problem = stopped.value.problem
    assert problem.what == what
    assert said in f"{problem.why} {problem.fix}"


def test_the_filters_stand_where_the_query_stood(tmp_path: Path) -> None:
    import inspect

    from runner.cli.audit_filters import FILTERS, filtered

    def command(query: Query, limit: int = 3) -> int:
        return len(query.verdicts) + limit

    made = filtered(command)
    assert [*inspect.signature(made).parameters] == [*(each.name for each in FILTERS), "limit"]
    nothing = {each.name: each.default for each in FILTERS}
    assert made(**{**nothing, "denied": True}, limit=4) == 5
