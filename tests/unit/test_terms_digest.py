"""The digest of Terms is that of their canonical JSON form, which records of earlier versions have as well."""

import hashlib
import json
from dataclasses import asdict

import pytest

from policy.model.verdict import Limits, Rights, Terms
from runner.secrets.redactor import SHAPES, Redactor

TERMS = [
    Terms(Rights.READ_ONLY, "/w", "/home/u"),
    Terms(Rights.WORKSPACE_WRITE, "/w", "/h", env=(("A", "b"), ("C", "ä")), hosts=("x.org",), read=("/r",), unix=True),
    Terms(Rights.ISOLATED, "/w\udcff", "/h", limits=Limits(wall=1.5, memory=1 << 20), credentials=("token",)),
]


@pytest.mark.parametrize("terms", TERMS, ids=["plain", "with rights", "a name that is no UTF-8"])
def test_it_is_that_of_the_canonical_form(terms: Terms) -> None:
    text = json.dumps(asdict(terms), sort_keys=True, separators=(",", ":"))
    assert terms.digest == hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@pytest.mark.parametrize("begin", sorted(SHAPES))
def test_a_text_with_the_beginning_of_a_key_is_read_whole(begin: str) -> None:
    """Texts without such a beginning are not looked at any further."""
    redactor = Redactor(live=True, shapes=True)
    for text in (f"say {begin}", f"{begin}{'a1B2' * 20}", f"x {begin}{'Z9' * 40} y", "plain text"):
        assert redactor.text(text) == redactor._whole(text)
