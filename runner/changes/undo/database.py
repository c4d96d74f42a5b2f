"""The SQLite file with the list of steps: creation, opening, and setting aside of a damaged file."""

import contextlib
import os
import sqlite3
from pathlib import Path

from runner.changes.undo.lock import PATIENCE, opened, unusable

_FORMAT = 1
_TABLES = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE names(root BLOB, folder BLOB, body BLOB NOT NULL, PRIMARY KEY(root, folder)) WITHOUT ROWID;
CREATE TABLE content(
  hash BLOB PRIMARY KEY, pack INTEGER NOT NULL, start INTEGER NOT NULL, size INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE step(
  id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, words TEXT NOT NULL, session TEXT NOT NULL,
  call TEXT NOT NULL, started REAL NOT NULL, ended REAL, notes TEXT NOT NULL DEFAULT '[]', undone INTEGER,
  takes_back TEXT NOT NULL DEFAULT '[]', roots TEXT NOT NULL DEFAULT '[]', killed INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE change(
  step INTEGER NOT NULL, root BLOB NOT NULL, path BLOB NOT NULL, was BLOB, became BLOB,
  hash_was BLOB, hash_became BLOB, PRIMARY KEY(step, root, path)
) WITHOUT ROWID;
"""
# Conversion of a file of an earlier version, which stated only in a note that the runner was killed. The notes about
# files begin with a quoted path, and no other note begins like this one.
_ADD_KILLED = """
BEGIN IMMEDIATE;
ALTER TABLE step ADD COLUMN killed INTEGER NOT NULL DEFAULT 0;
UPDATE step SET killed = 1 WHERE EXISTS(
  SELECT 1 FROM json_each(notes)
  WHERE value GLOB 'the runner was killed while it ran; what anybody else changed until *'
);
COMMIT;
"""


class Database(sqlite3.Connection):
    """A connection to the tables and named values. The caller ensures that one thread at a time uses the connection."""

    def value(self, name: str, default: str | int) -> str | int:
        row = self.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return default if row is None else row[0]

    def set_value(self, name: str, value: str | int) -> None:
        self.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (name, value))


def connect(folder: Path) -> tuple[Database, tuple[str, ...]]:
    """Open the database in `folder` and return it with notices for the user. The caller must hold the lock.

    A damaged file is set aside and replaced by an empty one. Raise UndoError if the system refuses to open it.
    """
    path = folder / "steps.db"
    db, notices = _open(path), tuple[str, ...]()
    try:
        if db.value("format", 0) != _FORMAT:
            raise sqlite3.DatabaseError("another format")
        if "killed" not in {row[1] for row in db.execute("PRAGMA table_info(step)")}:
            db.executescript(_ADD_KILLED)
    except sqlite3.DatabaseError as error:
        db.close()
        if isinstance(error, sqlite3.OperationalError) and "no such table" not in str(error):
            raise unusable(folder, f"the list of steps cannot be opened ({error})") from None
        if path.stat().st_size > 4096:  # else it was made just now, by this process or by one that was killed
            notices = (_set_aside(path),)
        db = _open(path)
        db.executescript(_TABLES)
        db.set_value("format", _FORMAT)
    return db, notices


def _open(path: Path) -> Database:
    os.close(opened(path))
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=PATIENCE, factory=Database)
    with contextlib.suppress(sqlite3.DatabaseError):  # no database: the next query reports that
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # a power failure may lose the last steps, but damages nothing
    return db


def _set_aside(path: Path) -> str:
    number = 1
    while (aside := path.with_name(f"steps.db.corrupt-{number}")).exists():
        number += 1
    os.rename(path, aside)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")
    return f"the list of stored actions was damaged and moved to `{aside}`; earlier actions cannot be undone"
