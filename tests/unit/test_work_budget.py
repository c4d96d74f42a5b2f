"""Tests of the bounded work of a decision, counted in steps and file lookups, for any script."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.bash.objections import MOST_CHARACTERS
from policy.classify import _TOO_MUCH, classify
from policy.interpreter.path_classifier import MOST_WORK, WORK_PER_CHARACTER, TooMuchError, WorkBudget
from policy.model.action import Action, ReadFile, RunArgv, RunScript
from policy.model.assessment import Assessment
from policy.model.facts import Facts, PathFact
from policy.model.tier import Tier
from runner.config import Settings, load
from runner.facts.gather import gather

MEGABYTE = 1 << 20


def nested(levels: int, body: str) -> str:
    for level in range(levels):
        body = f"for v{level} in a b; do {body}; done"
    return body


LONG = (
    ("a" * MEGABYTE, "one word"),
    ("a " * (MEGABYTE // 2), "words"),
    ("a;" * (MEGABYTE // 2), "commands"),
    ("a\n" * (MEGABYTE // 2), "lines"),
    ("$(" * (MEGABYTE // 2), "substitutions"),
    ("echo '" + "x" * MEGABYTE + "'", "a quoted word"),
    ("cat <<E\n" + "x\n" * (MEGABYTE // 2) + "E", "a here-document"),
    ("\0" * MEGABYTE, "what is no text"),
    ("cat " + "/" * MEGABYTE, "a path"),
)

DEEP = (
    (nested(7, "; ".join(f"z{i}=$z{i}a$v0; cat $z{i}" for i in range(20))), "loops in loops, four rounds each"),
    ("git " + "-C a " * 190 + "log", "folders in folders, each looked at from the top"),
    (
        "a=(" + "b " * 90 + "); " + 'a=("${a[@]}" "${a[@]}"); ' * 2 + "; ".join(['ls "${a[@]}"'] * 60),
        "arrays that double, and many commands with them",
    ),
    ("x=" + "/".join(["abc"] * 60) + "; cat " + " ".join(f"$x/{i}" for i in range(200)), "deep folders"),
    ("x=" + "../" * 100 + "; cat " + " ".join(f"${{x}}{i}" for i in range(60)), "up and up"),
    ("x='" + "ls; " * 900 + "'; " + 'bash -c "$x"; ' * 200, "one long script, many times"),
    ("for i in " + " ".join(f"f{i}" for i in range(40)) + "; do ls " + ">$i " * 200 + "; done", "readings of a word"),
    ("; ".join(f"x{i}=a; test -f a && x{i}=b" for i in range(400)), "states that are compared"),
    (
        "; ".join(f"a{i}=${{y:-/etc/a{i}}}" for i in range(9)) + "; " + "rm $a0 $a1 $a2 $a3 $a4 $a5 $a6 $a7 $a8; " * 70,
        "readings of a command",
    ),
    ("x='" + "{print} " * 900 + "'; " + 'awk "$x" a; ' * 200, "one long program, many times"),
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("settings")
    return load(home, {"HOME": str(home)})


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory, settings: Settings) -> Facts:
    """A workspace beside a home with a key, as the program itself looks at them."""
    top = Path(tmp_path_factory.mktemp("budget")).resolve()
    for folder in ("work/.git", "home/.ssh"):
        (top / folder).mkdir(parents=True)
    return gather(str(top / "work"), {"HOME": str(top / "home"), "PATH": "/usr/bin:/bin"}, settings.profile)


class Looks:
    """Facts that count the paths which are looked up on the disk."""

    def __init__(self, facts: Facts) -> None:
        self.seen: set[str] = set()
        self._facts = facts
        self.facts = replace(facts, look=self.look)

    def look(self, path: str) -> PathFact:
        self.seen.add(path)
        return self._facts.look(path)


def judged(action: Action | str, facts: Facts, settings: Settings) -> Assessment:
    asked = RunScript(action, facts.workspace) if isinstance(action, str) else action
    return classify(asked, facts, settings.rules, settings.profile)


@pytest.mark.parametrize(("text", "why"), LONG, ids=[row[1] for row in LONG])
def test_a_long_text_is_not_read_at_all(text: str, why: str, facts: Facts, settings: Settings) -> None:
    looks = Looks(facts)
    assert len(text) > MOST_CHARACTERS
    assert judged(text, looks.facts, settings).tiers == (Tier.UNKNOWN,)
    assert len(looks.seen) < 10


@pytest.mark.parametrize(("text", "why"), DEEP, ids=[row[1] for row in DEEP])
def test_too_much_work_is_a_question(text: str, why: str, facts: Facts, settings: Settings) -> None:
    """Each of them took more than the whole budget, and some would never have ended, before there was a bound."""
    looks = Looks(facts)
    assessment = judged(text, looks.facts, settings)
    assert Tier.UNKNOWN in assessment.tiers, why
    # Bounded elsewhere by now? Then the row needs another input, which only the budget ends.
    assert _TOO_MUCH in {reason.text for reason in assessment.reasons}, why
    most = MOST_WORK + WORK_PER_CHARACTER * len(text)
    assert len(looks.seen) <= most // 15
    assert sum(path.count("/") for path in looks.seen) <= most


def test_what_people_write_is_far_below_it(facts: Facts, settings: Settings) -> None:
    step = """
# Count the errors of this run, and add the number to the report that is sent in the evening.
if [ -f "$folder/{i}.log" ]; then
    count=$(grep -c error "$folder/{i}.log" | head -1)
    echo "run {i}: $count" >> "$folder/report.txt"
fi
"""
    rows = (
        "folder=logs\n" + "".join(step.format(i=i) for i in range(245)),
        "cat > src/page.html <<'EOF'\n" + "<p>one line of a long page</p>\n" * 2_000 + "EOF\nwc -l src/page.html",
        "for f in *.py; do for g in a b c; do if [ -f $f ]; then grep -n $g $f | head -3; fi; done; done",
        "; ".join(["git log --oneline -5 src | head; wc -l a.txt 2>/dev/null || echo none"] * 20),
        "cat " + " ".join(f"src/{i}.py" for i in range(150)),
    )
    for text in rows:
        assert _TOO_MUCH not in {reason.text for reason in judged(text, facts, settings).reasons}
    for text in rows[:2]:
        assert len(text) > 55_000
        assert Tier.UNKNOWN not in judged(text, facts, settings).tiers


@pytest.mark.threat("T01")
def test_a_credential_store_named_after_too_much_keeps_the_floor(facts: Facts, settings: Settings) -> None:
    for start, why in DEEP:
        assessment = judged(start.rstrip("; ") + "; cat ~/.ssh/id_x", facts, settings)
        assert Tier.SECRET in assessment.tiers
        assert _TOO_MUCH in {reason.text for reason in assessment.reasons}, why


def test_the_other_actions_have_the_same_bound(facts: Facts, settings: Settings) -> None:
    argv = judged(RunArgv(("git", *("-C", "a") * 900, "log"), facts.workspace), facts, settings)
    looks = Looks(facts)
    judged(ReadFile("/" + "a/../" * 9000), looks.facts, settings)
    assert Tier.UNKNOWN in argv.tiers
    assert len(looks.seen) < 10


@given(st.lists(st.integers(0, MOST_WORK), max_size=50))
def test_a_budget_is_never_overdrawn_in_silence(steps: list[int]) -> None:
    purse, spent = WorkBudget(), 0
    for step in steps:
        spent += step
        if spent > MOST_WORK:
            with pytest.raises(TooMuchError):
                purse.spend(step)
            return
        purse.spend(step)
    assert purse.left == MOST_WORK - spent
