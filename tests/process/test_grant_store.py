"""Tests of the store of grants: which contents are accepted, visibility of changes, and single use."""

import json
import multiprocessing
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.grants.grant import EVERYWHERE, Grant, GrantHolder, GrantScope, GrantSubject
from policy.model.command_pattern import HOLE, CommandPattern
from policy.model.profile import Tool
from policy.model.tier import Ruling, Tier
from policy.permission.allow import BY_TOOL, NEVER
from runner.gate.grants.codec import from_json, to_json
from runner.gate.grants.store import NAME, USUAL_LIFE, GrantStore, RememberedAnswer, pruned
from runner.state.json_file import StateError
from tests.support.grant_questions import approved_grants
from tests.support.law import examples

WHAT = approved_grants("npm test", "exactly `npm test`")[0].what
OTHER = approved_grants("npm run build", "`npm run *`")[0].what
NOW = 1_700_000_000.0


class Clock:
    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Harness:
    """One process's store, with what it said and what it wrote into a journal."""

    def __init__(self, folder: Path | None, clock: Clock | None = None, key: GrantHolder | None = None) -> None:
        self.clock = clock or Clock()
        self.said: list[str] = []
        self.journal: list[Grant] = []
        self.store = GrantStore(
            folder,
            key or GrantHolder("/w", "main", "s1"),
            self.said.append,
            journal=self.journal.append,
            clock=self.clock,
            redact=lambda text: text.replace("hunter2hunter2", "[secret]"),
        )

    def keep(
        self, span: GrantScope = GrantScope.PROJECT, *, uses: int | None = None, life: float | None = None
    ) -> Grant:
        return self.store.keep(RememberedAnswer((WHAT,), Ruling.ALLOW, span, life, uses), "$ npm test")[0]

    @property
    def names(self) -> list[str]:
        return [grant.id for grant in self.store.live()]


def test_a_grant_is_kept_outside_every_sandbox_and_for_its_owner_alone(tmp_path: Path) -> None:
    grant = Harness(tmp_path).keep()
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert Harness(tmp_path).names == [grant.id]
    assert (grant.created, grant.expires) == (NOW, NOW + USUAL_LIFE)
    assert grant.agent == "main"
    assert Harness(tmp_path, key=GrantHolder("/elsewhere", "main", "s1")).names == []
    assert Harness(tmp_path, key=GrantHolder("/w", "helper", "s1")).names == []


def test_a_grant_of_a_session_is_in_its_journal_and_in_no_file(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    grant = harness.keep(GrantScope.SESSION)
    assert harness.journal == [grant]
    assert not (tmp_path / NAME).exists()
    assert grant.expires is None
    assert Harness(tmp_path).names == []


def test_the_grants_of_a_session_come_back_as_they_were_last(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    first, second, third = (
        harness.keep(GrantScope.SESSION, uses=3),
        harness.keep(GrantScope.SESSION),
        harness.keep(GrantScope.SESSION, uses=1),
    )
    assert harness.store.spend([first])
    assert harness.store.spend([third])
    assert harness.store.revoke(second.id) is not None
    again = Harness(tmp_path, key=GrantHolder("/w", "main", "s2"))
    written = json.loads(json.dumps([to_json(grant) for grant in harness.journal]))
    found = again.store.restore([*written, {"id": "forged"}, "nothing"])
    assert [(grant.id, grant.uses) for grant in found] == [(first.id, 2)]
    assert again.names == [first.id]
    assert len(again.said) == 2
    assert Harness(tmp_path, key=GrantHolder("/other", "main", "s2")).store.restore(written) == ()


@pytest.mark.threat("T77")
def test_a_fork_forgets_no_no_and_takes_over_no_yes() -> None:
    harness = Harness(None)
    yes = harness.keep(GrantScope.SESSION)
    no, gone = (
        harness.store.keep(RememberedAnswer((what,), Ruling.DENY, GrantScope.SESSION), "")[0] for what in (WHAT, OTHER)
    )
    harness.store.revoke(gone.id)
    fork = Harness(None, key=GrantHolder("/w", "main", "s2"))
    held = fork.store.restore([to_json(grant) for grant in (yes, *harness.journal)], fork=True)
    assert [grant.id for grant in held] == [no.id]
    assert fork.names == [no.id]
    assert fork.journal == [replace(no, session="s2")], "its own journal has it, for a session that continues the fork"


@pytest.mark.threat("T79")
@pytest.mark.parametrize("reason", ["x" * 20_000, "x" * (17 << 20)], ids=["an entry", "the file"])
def test_what_no_reader_would_take_is_not_written_and_what_was_there_stays(tmp_path: Path, reason: str) -> None:
    """Else one pasted reason would have the whole list set aside, with every remembered no."""
    harness = Harness(tmp_path)
    no = harness.store.keep(RememberedAnswer((OTHER,), Ruling.DENY, GrantScope.PROJECT), "")[0]
    with pytest.raises(StateError, match="the new content is not valid"):
        harness.store.keep(RememberedAnswer((WHAT,), Ruling.ALLOW, GrantScope.PROJECT, reason=reason), "")
    assert Harness(tmp_path).names == [no.id]
    assert [path.name for path in tmp_path.glob("*.corrupt-*")] == []


def test_a_use_is_taken_once_whoever_takes_it(tmp_path: Path) -> None:
    grant = Harness(tmp_path).keep(uses=2)
    first, second = Harness(tmp_path), Harness(tmp_path)
    held = [harness.store.live() for harness in (first, second)]
    assert first.store.spend(held[0])
    assert second.store.spend(held[1])
    assert not first.store.spend(held[0]), "the file says so, whatever was known before"
    assert first.names == second.names == []
    assert grant.id in (tmp_path / NAME).read_text(), "it is listed until a user prunes it"


def _spend_all(folder: Path, grant: Grant, taken: "multiprocessing.Queue[int]") -> None:
    harness = Harness(folder)
    taken.put(sum(harness.store.spend([grant]) for _ in range(20)))


@pytest.mark.threat("T78")
def test_no_use_is_spent_twice_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.state.json_file._PATIENCE", 300.0)  # of a slow disk
    grant = Harness(tmp_path).keep(uses=17)
    spawn = multiprocessing.get_context("fork")
    taken: multiprocessing.Queue[int] = spawn.Queue()
    others = [spawn.Process(target=_spend_all, args=(tmp_path, grant, taken)) for _ in range(3)]
    for each in others:
        each.start()
    total = sum(taken.get(timeout=300) for _ in others)
    for each in others:
        each.join()
    assert total == 17


def test_several_grants_are_spent_together_or_not_at_all(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    one, two, mine = harness.keep(uses=1), harness.keep(uses=5), harness.keep(GrantScope.SESSION, uses=1)
    assert harness.store.spend([mine, two])
    assert not harness.store.spend([one, mine])
    left = {grant.id: grant.uses for grant in harness.store.live()}
    assert left == {one.id: 1, two.id: 4}


@pytest.mark.threat("T78")
def test_what_is_revoked_elsewhere_holds_no_more_at_the_next_question(tmp_path: Path) -> None:
    harness, other = Harness(tmp_path), Harness(tmp_path)
    grant = harness.keep()
    assert other.names == [grant.id]
    assert harness.store.revoke(grant.id) is not None
    assert other.names == []
    assert not other.store.spend([grant])
    assert harness.store.revoke(grant.id) is None


# fmt: off
TIMES = [
    ((60.0,),                  True,  "before its time is over"),
    ((100.0,),                 False, "when it is"),
    ((1000.0, 60.0),           False, "once over, always over: the clock went back"),
    ((1000.0, -1e9),           False, "far back"),
    ((60.0, 50.0),             True,  "a clock that goes back a little within its time"),
    ((-200.0,),                True,  "clocks differ by some minutes"),
    ((-301.0,),                False, "made at a time that has not come"),
]
# fmt: on


@pytest.mark.threat("T78")
@pytest.mark.parametrize("fresh", [False, True], ids=["one process", "a new process each time"])
@pytest.mark.parametrize(("looks", "holds", "why"), TIMES, ids=[why for *_, why in TIMES])
def test_time(tmp_path: Path, looks: tuple[float, ...], holds: bool, why: str, fresh: bool) -> None:
    clock = Clock()
    harness = Harness(tmp_path, clock)
    grant = harness.keep(life=100.0)
    names: list[str] = []
    for look in looks:
        clock.now = NOW + look
        harness = Harness(tmp_path, clock) if fresh else harness
        names = harness.names
    assert (names == [grant.id]) is holds
    early = looks[-1] < -300
    assert any("clock" in text for text in harness.said) is (early and len(looks) == 1), (
        "said of what would hold otherwise"
    )


@pytest.mark.threat("T78")
def test_a_no_from_the_future_is_still_a_no(tmp_path: Path) -> None:
    harness = Harness(tmp_path, Clock(NOW + 1e6))
    made = harness.store.keep(RememberedAnswer((WHAT,), Ruling.DENY, GrantScope.PROJECT), "$ npm test")
    assert made[0].expires is None
    assert Harness(tmp_path).names == [made[0].id]


HELD = to_json(replace(approved_grants("npm test", "exactly `npm test`")[0], id="g00000001", span=GrantScope.PROJECT, workspace="/w",
                       agent="main", created=1.0))  # fmt: skip
ABOUT = HELD["what"]
assert isinstance(ABOUT, dict)


def _with(**changes: object) -> dict[str, object]:
    return {**HELD, **changes}


def _about(**changes: object) -> dict[str, object]:
    assert isinstance(ABOUT, dict)
    return _with(what={**ABOUT, **changes})


# fmt: off
NO_GRANTS: list[tuple[object, str]] = [
    (None, "nothing"),
    ([], "a list"),
    (_with(more=1), "a field that nobody knows"),
    ({name: value for name, value in HELD.items() if name != "over"}, "a field too few"),
    (_with(id="../../x"), "a name that is a path"),
    (_with(ruling="maybe"), "a ruling that is none"),
    (_with(scope="once"), "a scope that is never kept"),
    (_with(scope="user"), "all folders, and one"),
    (_with(workspace=""), "one folder, and none"),
    (_with(session="s1"), "a project's grant of a session"),
    (_with(scope="session"), "a session's grant of none"),
    (_with(agent=""), "for nobody"),
    (_with(created="1"), "a time as text"),
    (_with(created=True), "a time that only counts as one"),
    (_with(expires=float("nan")), "a time that is none, and so is never over"),
    (_with(expires=float("inf")), "a time that never comes"),
    (_with(uses=-1), "fewer uses than none"),
    (_with(uses=1.5), "a use and a half"),
    (_with(over=0), "a switch as a number"),
    (_about(words=["npm", "te*"]), "a star in a word"),
    (_about(words=["npm", "tes?"]), "a question mark in a word"),
    (_about(words=["npm", ""]), "an empty word"),
    (_about(words=["npm", "\x1b[2J"]), "a word that nobody can see"),
    (_about(words="npm test"), "words as a text"),
    (_about(words=[]), "no words and no path: anything"),
    (_about(words=["x"] * 201), "more words than one can have agreed to"),
    (_about(tiers=[]), "no tiers"),
    (_about(tiers=["execute", "dangerous"]), "a tier that is asked about each time"),
    (_about(tiers=["secret"]), "a floor"),
    (_about(tiers=["unknown"]), "what nobody could read"),
    (_about(tiers=["read"]), "what needs no grant"),
    (_about(tools=["magic"]), "a tool that there is not"),
    (_about(write=["**"]), "everything"),
    (_about(write=["/**"]), "everything on the machine"),
    (_about(write=["docs/*.md"]), "a star in a path"),
    (_about(write=["docs**"]), "two stars that are no folder"),
    (_about(write=["docs/../.."]), "a path that climbs"),
    (_about(hosts=["*.com"]), "most of the internet"),
    (_about(flags=1), "a switch as a number"),
    (_about(program=None), "a program that is nothing"),
]
# fmt: on


@pytest.mark.threat("T79")
@pytest.mark.parametrize(("found", "why"), NO_GRANTS, ids=[why for _, why in NO_GRANTS])
def test_what_is_no_grant_is_refused_and_its_file_set_aside(tmp_path: Path, found: object, why: str) -> None:
    assert from_json(HELD).id == "g00000001"
    with pytest.raises(ValueError, match=r".+"):
        from_json(found)
    path = tmp_path / NAME
    path.write_text(json.dumps({"version": 1, "grants": [HELD, found]}))
    path.chmod(0o600)
    harness = Harness(tmp_path)
    assert harness.names == [], "not even the one that is whole: nobody knows who wrote it"
    assert len(harness.said) == 1
    assert f"{NAME}.corrupt-1" in harness.said[0]
    assert harness.names == []
    assert len(harness.said) == 1


@pytest.mark.threat("T79")
@pytest.mark.parametrize(
    ("grants", "why"),
    [
        ([HELD, HELD], "one name twice"),
        ([_with(scope="session", session="s1")], "a session's grant, which its journal keeps"),
    ],
)
def test_a_list_that_nobody_wrote_so_is_set_aside(tmp_path: Path, grants: list[object], why: str) -> None:
    path = tmp_path / NAME
    path.write_text(json.dumps({"version": 1, "grants": grants}))
    path.chmod(0o600)
    assert Harness(tmp_path).names == []
    assert not path.exists()


@pytest.mark.threat("T79")
def test_a_file_that_others_could_have_written_grants_nothing_and_is_told_once(tmp_path: Path) -> None:
    Harness(tmp_path).keep()
    (tmp_path / NAME).chmod(0o666)
    harness = Harness(tmp_path)
    assert harness.names == []
    assert harness.names == []
    assert len(harness.said) == 1
    assert "it grants nothing" in harness.said[0]
    assert not harness.store.spend([from_json(HELD)])


def test_a_live_secret_is_not_kept(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    assert harness.store.holds_secret(replace(WHAT, shape=CommandPattern(("curl", "-H", "token: hunter2hunter2"))))
    assert not harness.store.holds_secret(WHAT)
    harness.store.keep(
        RememberedAnswer((WHAT,), Ruling.ALLOW, GrantScope.PROJECT, reason="hunter2hunter2"), "$ echo hunter2hunter2"
    )
    assert "hunter2" not in (tmp_path / NAME).read_text()


def test_what_is_over_or_for_a_folder_that_is_gone_is_pruned() -> None:
    base = from_json(HELD)
    live, over, spent = base, replace(base, id="g2", over=True), replace(base, id="g3", uses=0)
    late, gone = replace(base, id="g4", expires=5.0), replace(base, id="g5", workspace="/gone")
    user = replace(base, id="g6", span=GrantScope.USER, workspace=EVERYWHERE)
    kept, dropped = pruned((live, over, spent, late, gone, user), 10.0, gone=lambda folder: folder == "/gone")
    assert kept == (live, user)
    assert dropped == (over, spent, late, gone)
    assert pruned(kept, 10.0, gone=lambda folder: False)[0] is kept


# Any grant that could be made, there and back

words = st.text(st.characters(blacklist_categories=("C", "Z"), blacklist_characters="*?"), min_size=1, max_size=8)
tails = st.sampled_from(["", "/", "/**"])
paths = st.tuples(st.from_regex(r"/?[a-z]{1,4}(/[a-z]{1,4}){0,3}", fullmatch=True), tails).map("".join)
whats = st.builds(
    GrantSubject,
    st.builds(
        CommandPattern, st.lists(words | st.just(HOLE), min_size=1, max_size=4).map(tuple), st.booleans(), words, words
    ),
    st.lists(st.sampled_from([Tool.BASH, Tool.READ, Tool.WRITE, Tool.EDIT]), max_size=2).map(tuple),
    *(st.lists(paths, max_size=2).map(tuple) for _ in range(2)),
    st.lists(words, max_size=2).map(tuple),
    st.lists(
        st.sampled_from([tier for tier in Tier if tier not in (*NEVER, *BY_TOOL, Tier.READ, Tier.UNKNOWN)]), min_size=1
    ).map(tuple),
)
times = st.floats(0, 4e9, allow_nan=False)
grants = st.builds(
    Grant,
    st.integers(0, 2**32 - 1).map(lambda number: f"g{number:08x}"),
    whats,
    st.sampled_from([Ruling.ALLOW, Ruling.DENY]),
    st.just(GrantScope.PROJECT),
    words,
    words,
    st.just(""),
    times,
    st.none() | times,
    st.none() | st.integers(0, 99),
    *(st.text(max_size=9) for _ in range(3)),
    st.booleans(),
)


@examples(60)
@given(grants)
def test_law_json_there_and_back_is_the_same_grant(grant: Grant) -> None:
    assert from_json(json.loads(json.dumps(to_json(grant)))) == grant
