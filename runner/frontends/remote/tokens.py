"""The tokens for remote access, the one-time links, and the sign-ins of browsers, in one private state file.

THREAT T283: the file contains salted hashes alone, so that a copy of it opens nothing. Each secret has 256 random bits,
which is why a fast hash is enough. A token, its links and its sign-ins end together.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from runner.frontends.remote.scope import TokenScope
from runner.problems import usage
from runner.secrets.secret import Secret
from runner.state.json_file import StateFile

FILE = "remote.json"
TOKEN, LINK, SIGN_IN = "rft_", "rfl_", "rfs_"  # beginnings of the three kinds of secrets
LINK_SECONDS = 600  # in which a one-time link can be used
SIGN_IN_SECONDS = 30 * 86_400  # for which a browser stays signed in
MOST_TOKENS = 64
_MOST_LINKS = 16
_MOST_SIGN_INS = 128
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_LONGEST = 128  # characters of a secret that is looked up at all

_Kept = TypeVar("_Kept", bound="HashedSecret")


@dataclass(frozen=True, slots=True)
class HashedSecret:
    """A secret that the file knows only by its hash.

    Attributes:
        name: The name of the token to which it belongs.
        salt: The salt, in hexadecimal digits.
        digest: The HMAC-SHA256 of the secret with the salt as key, in hexadecimal digits.
        until: The end of its validity in seconds since 1970, or None if it has none.
    """

    name: str
    salt: str
    digest: str
    until: float | None

    def is_valid(self, now: float) -> bool:
        """Return True if it has not expired."""
        return self.until is None or now < self.until


@dataclass(frozen=True, slots=True)
class Token(HashedSecret):
    """A token.

    Attributes:
        scope: What it allows.
        created: The time of its creation in seconds since 1970.
        folder: The folder whose sessions it shows, with those below it; None for all sessions.
    """

    scope: TokenScope
    created: float
    folder: str | None = None

    def shows(self, folder: str) -> bool:
        """Return True if the token shows sessions in `folder`."""
        return self.folder is None or inside(folder, self.folder)


@dataclass(frozen=True, slots=True)
class RemoteAccess:
    """The content of the file."""

    tokens: tuple[Token, ...] = ()
    links: tuple[HashedSecret, ...] = ()
    sign_ins: tuple[HashedSecret, ...] = ()


class RemoteTokens:
    """The file of the tokens in `folder`. A reader sees a change of another process with its next call."""

    def __init__(self, folder: Path) -> None:
        self._file = StateFile(
            folder / FILE, "the list of tokens for remote access", 1, RemoteAccess, _parsed, _dumped
        )  # fmt: skip

    def tokens(self) -> tuple[Token, ...]:
        """Return every token, also those that have expired. Raise StateError."""
        return self._file.read().value.tokens

    def add(self, name: str, scope: TokenScope, now: float, *, until: float | None, folder: str | None) -> Secret:
        """Store a new token, and return it: this is the only time at which it is known. Raise a usage error for a name
        that is not valid or is taken, and StateError.
        """
        if not _NAME.fullmatch(name):
            why = "a name has up to 32 of a-z, 0-9, `.`, `_` and `-`, and begins with a letter or a digit"
            raise usage(f"`{name}` is not a name for a token", why, "choose another one, such as `phone`")
        secret = _new(TOKEN)
        salt, digest = _hashed(secret.reveal())
        token = Token(name, salt, digest, until, scope, now, folder)

        def edit(found: RemoteAccess) -> tuple[RemoteAccess, str]:
            if any(each.name == name for each in found.tokens):
                return found, "taken"
            if len(found.tokens) >= MOST_TOKENS:
                return found, "full"
            return replace(found, tokens=(*found.tokens, token)), ""

        match self._change(edit):
            case "taken":
                fix = f"choose another name, or run `agent serve token remove {name}` first"
                raise usage(f"there is a token `{name}` already", "each name is used once", fix)
            case "full":
                fix = "remove some: `agent serve token list`"
                raise usage("the token was not added", f"there are {MOST_TOKENS} tokens, which is the most", fix)
        return secret

    def add_link(self, name: str, now: float) -> Secret:
        """Store a code that signs in once as the token `name`, and return it. Raise a usage error if there is no such
        token.
        """
        secret = _new(LINK)
        salt, digest = _hashed(secret.reveal())
        link = HashedSecret(name, salt, digest, now + LINK_SECONDS)

        def edit(found: RemoteAccess) -> tuple[RemoteAccess, bool]:
            if not any(each.name == name and each.is_valid(now) for each in found.tokens):
                return found, False
            return replace(found, links=(*_valid(found.links, now), link)[-_MOST_LINKS:]), True

        if not self._change(edit):
            raise usage(f"there is no token `{name}`", "a link signs in as a token that is valid", _LIST)
        return secret

    def remove(self, name: str) -> None:
        """Remove a token with its links and sign-ins. Raise a usage error if there is no such token."""

        def edit(found: RemoteAccess) -> tuple[RemoteAccess, bool]:
            kept = RemoteAccess(_others(found.tokens, name), _others(found.links, name), _others(found.sign_ins, name))
            return (kept, True) if any(each.name == name for each in found.tokens) else (found, False)

        if not self._change(edit):
            raise usage(f"there is no token `{name}`", "no token has this name", _LIST)

    def of_token(self, secret: str, now: float) -> Token | None:
        """Return the valid token with this secret, or None."""
        return _match(self.tokens(), secret, TOKEN, now)

    def of_link(self, secret: str, now: float) -> Token | None:
        """Return the token of a one-time link, and remove the link; None if the link is not valid."""
        if _match(self._file.read().value.links, secret, LINK, now) is None:
            return None  # without a change of the file, which anybody could cause

        def edit(found: RemoteAccess) -> tuple[RemoteAccess, HashedSecret | None]:
            link = _match(found.links, secret, LINK, now)
            kept = tuple(each for each in _valid(found.links, now) if each != link)
            return replace(found, links=kept), link

        link = self._change(edit)
        return self._named(link.name, now) if link is not None else None

    def sign_in(self, token: Token, now: float) -> tuple[str, float]:
        """Store a sign-in as `token`, and return the value of its cookie with the end of its validity.

        The value is no `Secret`, because this process would remember one of each sign-in for as long as it runs. It is
        in the header of one answer and nowhere else.
        """
        secret = SIGN_IN + secrets.token_urlsafe(32)
        salt, digest = _hashed(secret)
        until = min(now + SIGN_IN_SECONDS, token.until if token.until is not None else float("inf"))
        added = HashedSecret(token.name, salt, digest, until)

        def edit(found: RemoteAccess) -> tuple[RemoteAccess, None]:
            return replace(found, sign_ins=(*_valid(found.sign_ins, now), added)[-_MOST_SIGN_INS:]), None

        self._change(edit)
        return secret, until

    def of_sign_in(self, cookie: str, now: float) -> Token | None:
        """Return the valid token as which the browser with this cookie is signed in, or None."""
        found = _match(self._file.read().value.sign_ins, cookie, SIGN_IN, now)
        return self._named(found.name, now) if found is not None else None

    def sign_out(self, cookie: str, now: float) -> None:
        """Remove a sign-in."""

        def edit(found: RemoteAccess) -> tuple[RemoteAccess, None]:
            gone = _match(found.sign_ins, cookie, SIGN_IN, now)
            if gone is None:
                return found, None
            return replace(found, sign_ins=tuple(each for each in found.sign_ins if each != gone)), None

        self._change(edit)

    def still_valid(self, token: Token, now: float) -> bool:
        """Return True if the token was neither removed nor replaced and has not expired. Costs one stat."""
        return token in self.tokens() and token.is_valid(now)

    def _named(self, name: str, now: float) -> Token | None:
        return next((each for each in self.tokens() if each.name == name and each.is_valid(now)), None)

    def _change(self, edit: "Callable[[RemoteAccess], tuple[RemoteAccess, _Answer]]") -> "_Answer":
        return self._file.change(edit)[0]


_Answer = TypeVar("_Answer")
_LIST = "see `agent serve token list`"


def _new(kind: str) -> Secret:
    return Secret(kind + secrets.token_urlsafe(32))


def _hashed(secret: str) -> tuple[str, str]:
    salt = secrets.token_bytes(16).hex()
    return salt, _digest(secret, salt)


def _digest(secret: str, salt: str) -> str:
    return hmac.digest(bytes.fromhex(salt), secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hex()


def _match(known: "tuple[_Kept, ...]", secret: str, kind: str, now: float) -> "_Kept | None":
    """Return the valid one of `known` with this secret. The time does not depend on which one it is, nor on where a
    wrong secret differs.
    """
    if not secret.startswith(kind) or len(secret) > _LONGEST:
        return None
    found = None
    for each in known:
        if hmac.compare_digest(_digest(secret, each.salt), each.digest):
            found = each
    return found if found is not None and found.is_valid(now) else None


def _valid(known: Iterable[_Kept], now: float) -> tuple[_Kept, ...]:
    return tuple(each for each in known if each.is_valid(now))


def _others(known: Iterable[_Kept], name: str) -> tuple[_Kept, ...]:
    return tuple(each for each in known if each.name != name)


# ---- the form of the file

_HEX = re.compile("(?:[0-9a-f]{2}){16,64}")


def _parsed(content: dict[str, object], version: int) -> RemoteAccess:
    """Return the content of the file. Raise ValueError if ringfence did not write it."""
    if set(content) != {"tokens", "links", "sign_ins"}:
        raise ValueError("its fields are not those of tokens")
    tokens = tuple(
        Token(*_hashed_fields(each), TokenScope(_text(each, "scope")), _time(each, "created"), _folder(each))
        for each in _rows(content, "tokens", {"name", "salt", "digest", "until", "scope", "created", "folder"})
    )
    if len({each.name for each in tokens}) != len(tokens):
        raise ValueError("it has a name twice")
    links, sign_ins = (
        tuple(HashedSecret(*_hashed_fields(each)) for each in _rows(content, name, {"name", "salt", "digest", "until"}))
        for name in ("links", "sign_ins")
    )
    return RemoteAccess(tokens, links, sign_ins)


def _rows(content: dict[str, object], name: str, fields: set[str]) -> list[dict[str, object]]:
    rows = content[name]
    if not isinstance(rows, list) or not all(isinstance(each, dict) and set(each) == fields for each in rows):
        raise ValueError(f"`{name}` is not a list of its entries")
    return rows


def _hashed_fields(row: dict[str, object]) -> tuple[str, str, str, float | None]:
    name, salt, digest = (_text(row, field) for field in ("name", "salt", "digest"))
    if not _NAME.fullmatch(name) or not _HEX.fullmatch(salt) or not _HEX.fullmatch(digest):
        raise ValueError("an entry is not valid")
    return name, salt, digest, None if row["until"] is None else _time(row, "until")


def _text(row: dict[str, object], field: str) -> str:
    value = row[field]
    if not isinstance(value, str):
        raise ValueError(f"`{field}` is not a text")
    return value


def _time(row: dict[str, object], field: str) -> float:
    value = row[field]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"`{field}` is not a time")
    return float(value)


def _folder(row: dict[str, object]) -> str | None:
    if row["folder"] is None:
        return None
    folder = _text(row, "folder")
    if not folder.startswith("/") or "\0" in folder:
        raise ValueError("`folder` is not an absolute path")
    return folder


def _dumped(value: RemoteAccess) -> dict[str, object]:
    return {
        "tokens": [
            {**_hash_of(each), "scope": each.scope.value, "created": each.created, "folder": each.folder}
            for each in value.tokens
        ],
        "links": [_hash_of(each) for each in value.links],
        "sign_ins": [_hash_of(each) for each in value.sign_ins],
    }


def _hash_of(each: HashedSecret) -> dict[str, object]:
    return {"name": each.name, "salt": each.salt, "digest": each.digest, "until": each.until}
