"""Narrowing of a profile by a source that may only restrict, such as the settings of the repository."""

from dataclasses import fields, replace

from policy.model.matrix import MATRIX, Ruling
from policy.model.profile import Profile
from policy.model.tier import Mode
from policy.model.verdict import Limits


def narrow(base: Profile, by: Profile) -> Profile:
    """Return `base` with every setting of `by` that is stricter. INVARIANT: the result never allows what `base` does
    not.

    Secret, locked and denied lists grow; public, readable and passed-through lists shrink; every limit is the lower
    one. The rules of `by` that ask and deny are added.
    """
    return replace(
        base,
        secret_home=_both(base.secret_home, by.secret_home),
        secret_paths=_both(base.secret_paths, by.secret_paths),
        secret_names=_both(base.secret_names, by.secret_names),
        public_names=_shared(base.public_names, by.public_names),
        locked=_both(base.locked, by.locked),
        personal=_both(base.personal, by.personal),
        system=_shared(base.system, by.system),
        etc=_shared(base.etc, by.etc),
        environment=_shared(base.environment, by.environment),
        denied=tuple(dict.fromkeys((*base.denied, *by.denied))),
        permissions=tuple(
            dict.fromkeys((*base.permissions, *(rule for rule in by.permissions if rule.verdict is not Ruling.ALLOW)))
        ),
        limits=lower(base.limits, by.limits),
        unix_sockets=base.unix_sockets and by.unix_sockets,
    )


def lower(base: Limits, by: Limits) -> Limits:
    """Return the lower one of each limit."""
    names = [field.name for field in fields(Limits)]
    return Limits(**{name: min(getattr(base, name), getattr(by, name)) for name in names})


def no_looser(mode: Mode, than: Mode) -> bool:
    """Return True if no cell of `mode` is looser than the cell of `than` for the same tier."""
    return all(row[mode] >= row[than] for row in MATRIX.values())


def _both(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _shared(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(entry for entry in first if entry in second)
