"""A hash of the content of a policy: equal for equal rules, lists and matrices."""

import hashlib
import json
from dataclasses import fields, is_dataclass

from policy.model.matrix import MATRIX, Matrix
from policy.model.profile import Profile
from policy.rules.rulebook import RuleBook

# Where a rule stands, whose file that is, and where this machine keeps one, is no part of what is allowed. `personal`
# is a fact about the disk: what settings of other programs say there.
_PLACES = frozenset(["ref", "layer", "bundle", "personal"])


def fingerprint(profile: Profile, rules: RuleBook, matrix: Matrix = MATRIX) -> str:
    """Return the SHA-256 (hex) of everything that determines a verdict except the action, the disk and the mode: the
    facts about commands, the profile with the users' rules in their order, and the matrix.
    """
    content = {
        "commands": hashlib.sha256("\0".join(sorted(rules.files.values())).encode("utf-8")).hexdigest(),
        "profile": _plain(profile),
        "matrix": [[ruling.value for ruling in row.values()] for row in matrix.values()],
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _plain(value: object) -> object:
    """Return `value` as JSON data, with every field by its name."""
    if value is None or isinstance(value, str | int | float):  # an enumeration is one of these as well
        return value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if each.name not in _PLACES}
    return str(value)  # a day
