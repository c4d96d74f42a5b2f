"""A hostile model, through the real loop and the real sandbox: each attack is contained, and each is in the record.

The attacks are rows in `adversary/`. Many share a run of the loop; what happened is looked at from outside (`arena.py`).
"""

import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "adversary"))

from arena import Told, played
from attack import Attack
from attacks import ATTACKS
from sandbox_bench import USERS

SECURITY = (Path(__file__).parent.parent / "SECURITY.md").read_text("utf-8")
KINDS = {"exfiltrate", "steal", "persist", "tamper", "race", "lie", "exhaust", "malformed", "confuse", "pipeline"}


@cache
def outcomes() -> dict[tuple[str, str], Told]:
    return {(told.user, told.attack.id): told for told in played(*USERS)}


@pytest.mark.threat("T36")
@pytest.mark.skipif(sys.platform != "linux", reason="the attacks are about Linux")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda each: each.id)
def test_it_is_contained_and_in_the_record(attack: Attack, user: str) -> None:
    assert outcomes()[user, attack.id].wrong == []


def test_the_table_is_sound() -> None:
    assert len({attack.id for attack in ATTACKS}) == len(ATTACKS) >= 70
    assert {attack.kind for attack in ATTACKS} == KINDS
    threats = SECURITY.partition("## Threats")[2].partition("\n## ")[0]
    assert [attack.id for attack in ATTACKS if f"| {attack.threat} |" not in threats] == []


def test_what_is_not_kept_from_it_is_said() -> None:
    gaps = " ".join(SECURITY.partition("## What is NOT protected")[2].partition("\n## ")[0].split())
    assert [attack.id for attack in ATTACKS if attack.yours not in gaps] == []


def test_the_document_lists_every_attack() -> None:
    """All but the columns of users: those are `make tables`'s to write."""
    told = SECURITY.partition("<!-- attacks: begin -->")[2].partition("<!-- attacks: end -->")[0]
    rows = [
        tuple(part.strip() for part in line.split("|")[1:6]) for line in told.splitlines() if line.startswith("| `")
    ]
    assert rows == [attack.row for attack in ATTACKS], "run `python tests/make_tables.py --rows-only --no-escapes`"
