"""Changes of single keys in a configuration file. Comments, order and all other text are not changed.

A file is replaced atomically, and never through a link that came with the repository.
"""

import os
import re
import secrets
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from policy.model.verdict import Problem
from policy.toml.lines import StatementKind, lines_of, statements
from policy.toml.schema import KeyPath, TomlError, ValueType, dotted, parse, value_of
from runner.config.migrations import MIGRATIONS, VERSION, renew, value_at
from runner.config.read_layer import plain
from runner.config.schema import Key
from runner.config.settings import ConfigError
from runner.config.toml_value import toml, value_toml
from runner.config.validators import version_up_to
from runner.text.phrases import os_reason

# Errors of tomlkit, besides its own, for tables that it cannot change.
_TOMLKIT_ERRORS = (ValueError, KeyError, TypeError, AttributeError)


# Shapes whose value is typed as TOML.
_AS_TOML = (ValueType.TEXTS, ValueType.WORDS, ValueType.PATTERNS, ValueType.DATE, ValueType.TABLE)


def value_literal(key: Key, words: list[str]) -> str:
    """Return the typed words of a value as TOML. Raise ConfigError if `key` cannot have this value."""
    if key.shape is ValueType.TEXT and len(words) == 1:
        raw: object = words[0]
    elif key.shape in (ValueType.TEXTS, ValueType.WORDS) and not (
        len(words) == 1 and words[0].lstrip().startswith("[")
    ):
        raw = words
    elif key.shape in _AS_TOML and len(words) == 1:
        raw = _parsed(words[0])
    else:
        raw = plain(words[0]) if len(words) == 1 else None
    value = value_of(raw, key.shape)
    what = f"`{key.name}` cannot be `{' '.join(words)}`"
    if value is None or raw is None:
        raise ConfigError(Problem(what, f"it must be {key.shape.value}", "correct the value"))
    if fault := key.fault(value):
        raise ConfigError(Problem(what, *fault))
    return toml(raw) if isinstance(raw, str) else value_toml(value, key.shape) if key.shape in _AS_TOML else toml(value)


def with_value(text: str, path: KeyPath, literal: str) -> str:
    """Return `text` with the TOML `literal` at `path`. Raise ConfigError if the change could lose something."""
    wanted = _document(text)
    _put(wanted, path, tomllib.loads(f"x = {literal}")["x"])
    tries = (_inserted, _replaced) if value_at(_document(text), path) is None else (_replaced,)
    for attempt in tries:
        new = attempt(text, path, literal)
        if new is not None and _same(new, wanted):
            return new
    raise _by_hand(path)


def without_key(text: str, path: KeyPath) -> str | None:
    """Return `text` without a key; None if `text` does not contain the key. Raise ConfigError if the change could lose
    something.
    """
    wanted = _document(text)
    table = value_at(wanted, path[:-1])
    if not isinstance(table, dict) or path[-1] not in table:
        return None
    del table[path[-1]]
    new = _replaced(text, path, None)
    if new is None or not _same(new, wanted):
        raise _by_hand(path)
    return new


def with_table(text: str, path: KeyPath, literals: Mapping[str, str]) -> str:
    """Return `text` with a new table at `path` at its end. `literals` are the values as TOML, by key.

    Raise ConfigError if the change could lose something.
    """
    wanted = _document(text)
    for key, literal in literals.items():
        _put(wanted, (*path, key), tomllib.loads(f"x = {literal}")["x"])
    ready = text if not text or text.endswith("\n") else f"{text}\n"
    blank = "\n" if ready.strip() else ""
    rows = "".join(f"{dotted((key,))} = {literal}\n" for key, literal in literals.items())
    new = f"{ready}{blank}[{dotted(path)}]\n{rows}"
    if not _same(new, wanted):
        raise _by_hand(path)
    return new


def without_table(text: str, path: KeyPath) -> str | None:
    """Return `text` without a table and the tables below it; None if there is no such table. Comments directly above
    the next table are kept. Raise ConfigError if the change could lose something.
    """
    wanted = _document(text)
    above = value_at(wanted, path[:-1])
    if not isinstance(above, dict) or path[-1] not in above:
        return None
    del above[path[-1]]
    rows = text.split("\n")
    headers = [found for found in statements(text) if found.kind is not StatementKind.KEY]
    for number in reversed(range(len(headers))):
        header, following = headers[number], headers[number + 1] if number + 1 < len(headers) else None
        if header.kind is StatementKind.TABLE and header.path[: len(path)] == path:
            end = following.line - 1 if following else len(rows)
            while following and end > header.line and rows[end - 1].lstrip().startswith("#"):
                end -= 1
            del rows[header.line - 1 : end]
    new = "\n".join(rows).rstrip("\n") + "\n" if any(map(str.strip, rows)) else ""
    if not above:  # the last table of its kind
        at = wanted
        for word in path[:-2]:
            at = cast(dict[str, Any], at[word])
        del at[path[-2]]
    if not _same(new, wanted):
        raise _by_hand(path)
    return new


def migrate_text(text: str) -> str:
    """Return `text` in the current format, with the number of the format. Raise ConfigError if the change could lose
    something.
    """
    wanted = _document(text)
    if isinstance(version := wanted.get("version"), int) and (fault := version_up_to(VERSION)(version)):
        raise ConfigError(Problem("a file cannot be converted to the current format", *fault))
    was = renew(wanted)
    rows = text.split("\n")
    for new, old in was.items():
        number = lines_of(text).get(old)
        if number is None:
            raise _by_hand(old)
        spelled = re.compile(rf"""(["']?){re.escape(old[-1])}\1(?=\s*=)""")
        rows[number - 1] = spelled.sub(rf"\g<1>{new[-1]}\g<1>", rows[number - 1], count=1)
    if wanted.get("version") != VERSION and MIGRATIONS:
        at = 1 if rows[0].startswith("#:schema") else 0
        rows.insert(at, f"version = {VERSION}{_end(rows)}")
        wanted["version"] = VERSION
    new_text = "\n".join(rows)
    if not _same(new_text, wanted):
        raise _by_hand(next(iter(was.values()), ("version",)))
    return new_text


def _inserted(text: str, path: KeyPath, literal: str) -> str | None:
    """Return `text` with the key on a new line: below the same key in a comment, else at the end or beginning of its
    table.
    """
    rows = text.split("\n")
    table, key = path[:-1], dotted(path[-1:])
    start = lines_of(text).get(table, 0) if table else 0
    if table and not start:
        ready = text if not text or text.endswith("\n") else f"{text}\n"
        blank = "\n" if ready.strip() else ""
        return f"{ready}{blank}[{dotted(table)}]\n{key} = {literal}\n"
    headers = (found.line for found in statements(text) if found.kind is not StatementKind.KEY)
    end = next((line - 1 for line in headers if line > start), len(rows))
    commented = re.compile(rf"#\s*{re.escape(key)}\s*=")
    at = next((at for at in range(start, end) if commented.match(rows[at])), None)
    if at is None and not table:
        given = [line for found, line in lines_of(text).items() if len(found) == 1 and line <= end]
        at = max(given, default=0) - 1
        if at < 0:  # below the comment at the top of the file
            at = next((place for place in range(end) if not rows[place].startswith("#")), end) - 1
    elif at is None:
        at = start - 1
    rows.insert(at + 1, f"{key} = {literal}{_end(rows)}")
    return "\n".join(rows)


def _end(rows: list[str]) -> str:
    """Return the carriage return that ends each line of a file from Windows, or nothing."""
    return "\r" if len(rows) > 1 and rows[0].endswith("\r") else ""


def _replaced(text: str, path: KeyPath, literal: str | None) -> str | None:
    """Return `text` with `literal` at `path`, or without the key if `literal` is None; None if that fails."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        at: Any = document
        for word in path[:-1]:
            at = at[word]
        if literal is None:
            del at[path[-1]]
        else:
            at[path[-1]] = tomlkit.value(literal)
        return tomlkit.dumps(document)
    except (TOMLKitError, *_TOMLKIT_ERRORS):
        return None


def _document(text: str) -> dict[str, Any]:
    try:
        return parse(text, "the file")
    except TomlError as error:
        raise ConfigError.of(error) from None


def _same(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except ValueError:
        return False


def _put(document: dict[str, Any], path: KeyPath, value: object) -> None:
    at: object = document
    for word in path[:-1]:
        at = cast(dict[str, object], at).setdefault(word, {}) if isinstance(at, dict) else None
    if not isinstance(at, dict):
        raise _by_hand(path)
    at[path[-1]] = value


def _parsed(text: str) -> object:
    try:
        return cast(object, tomllib.loads(f"x = {text}")["x"])
    except ValueError:
        return None


def _by_hand(path: KeyPath) -> ConfigError:
    why = "it is written in an unusual way, and the change could lose something"
    return ConfigError(Problem(f"`{dotted(path)}` cannot be changed by this command", why, "change it with an editor"))


def write(path: Path, text: str, *, own: bool, new: bool = False) -> None:
    """Write `text` to `path` atomically. The folder is created if it does not exist.

    With `own`, the file belongs to the user and may be a symbolic link; otherwise neither the file nor its folder may
    be a link. With `new`, the file must not exist. Raise ConfigError.
    """
    path = Path(os.path.realpath(path)) if own and path.is_symlink() else path
    try:
        path.parent.mkdir(parents=own, exist_ok=True, mode=0o700 if own else 0o777)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if own else os.O_NOFOLLOW))
    except OSError as error:
        if not own and path.parent.is_symlink():
            raise _refused(path.parent, "it is a link", "make it a real folder, or remove it") from None
        raise _refused(path.parent, os_reason(error), "check who owns the folders above it") from None
    try:
        mode = _mode(folder, path, new, 0o600 if own else 0o666 & ~_umask())
        _replace_file(folder, path, text, mode)
    except OSError as error:
        raise _refused(path, os_reason(error), "check the folder and its disk") from None
    finally:
        os.close(folder)


def _mode(folder: int, path: Path, new: bool, usual: int) -> int:
    """Return the permission bits of the existing file, or `usual` if there is no file. Raise ConfigError."""
    try:
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return usual
    if stat.S_ISLNK(found.st_mode):
        raise _refused(path, "it is a link", "remove it")
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "it is not a plain file", "remove it")
    if new:
        raise _refused(path, "it exists already", "check it; `--force` replaces it")
    return stat.S_IMODE(found.st_mode)


def _replace_file(folder: int, path: Path, text: str, mode: int) -> None:
    beside = f".{path.name}.{secrets.token_hex(8)}"
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with open(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.rename(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def _refused(path: Path, why: str, fix: str) -> ConfigError:
    return ConfigError.about(path, why, fix, "cannot be written")
