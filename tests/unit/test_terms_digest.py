"""The digests of Terms and of a policy are those of their canonical JSON forms, which earlier records have as well."""

import hashlib
import json
import re._parser as parser  # type: ignore[import-not-found]  # the width of a pattern
from dataclasses import asdict, fields, replace

import pytest

from policy.evaluation import _PLACES, _plain, fingerprint
from policy.model.profile import Profile
from policy.model.tier import MATRIX
from policy.model.verdict import Limits, Rights, Terms
from runner.config.load import packaged
from runner.secrets.redactor import _LEAST, SHAPES, Redactor

TERMS = [
    Terms(Rights.READ_ONLY, "/w", "/home/u"),
    Terms(Rights.WORKSPACE_WRITE, "/w", "/h", env=(("A", "b"), ("C", "ä")), hosts=("x.org",), read=("/r",), unix=True),
    Terms(Rights.ISOLATED, "/w\udcff", "/h", limits=Limits(wall=1.5, memory=1 << 20), credentials=("token",)),
]


@pytest.mark.parametrize("terms", TERMS, ids=["plain", "with rights", "a name that is no UTF-8"])
def test_it_is_that_of_the_canonical_form(terms: Terms) -> None:
    text = json.dumps(asdict(terms), sort_keys=True, separators=(",", ":"))
    assert terms.digest == hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def changed_profiles() -> list[Profile]:
    profile = packaged().profile
    return [
        profile,
        replace(profile, unix_sockets=not profile.unix_sockets),
        replace(profile, personal=("a/b",)),
        replace(profile, secret_paths=(*profile.secret_paths, "/ä")),
        replace(profile, limits=replace(profile.limits, wall=7.5)),
        profile,
    ]


def test_that_of_a_policy_is_that_of_the_canonical_form() -> None:
    """The texts of some parts are kept for later calls, so the profiles are read twice and in turn."""
    rules, seen = packaged().rules, set()
    for profile in (*changed_profiles(), *changed_profiles()):
        content = {
            "commands": hashlib.sha256("\0".join(sorted(rules.files.values())).encode()).hexdigest(),
            "profile": {
                each.name: _plain(getattr(profile, each.name)) for each in fields(profile) if each.name not in _PLACES
            },
            "matrix": [[ruling.value for ruling in row.values()] for row in MATRIX.values()],
        }
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        assert fingerprint(profile, rules) == hashlib.sha256(text.encode("ascii")).hexdigest()
        seen.add(fingerprint(profile, rules))
    assert len(seen) == 4, "the personal patterns are a fact about the disk"


def test_no_key_is_shorter_than_the_texts_that_are_looked_at() -> None:
    widths = [len(begin) + parser.parse(pattern).getwidth()[0] for begin, pattern in SHAPES.items()]
    assert min(widths) == _LEAST


@pytest.mark.parametrize("begin", sorted(SHAPES))
def test_a_text_with_the_beginning_of_a_key_is_read_whole(begin: str) -> None:
    """Texts without such a beginning are not looked at any further."""
    redactor = Redactor(live=True, shapes=True)
    for text in (f"say {begin}", f"{begin}{'a1B2' * 20}", f"x {begin}{'Z9' * 40} y", "plain text"):
        assert redactor.text(text) == redactor._whole(text)
