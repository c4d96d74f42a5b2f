"""Faults of an SQLite log, found by the codes of SQLite and of the operating system, with their remedies."""

import contextlib
import errno
import os
import sqlite3
from pathlib import Path

from policy.model.verdict import Problem
from runner.audit.chain import LogFault, LogFaultError

_INDEX = 1 << 16  # bytes; SOURCE: sqlite.org/walformat.html, the index grows by 32 KiB, and the log needs a page

# fmt: off
_FAULT_OF_ERRNO = {
    errno.ENOSPC: LogFault.FULL,
    errno.EDQUOT: LogFault.FULL,
    errno.EFBIG:  LogFault.FULL,
    errno.ENOENT: LogFault.MISSING,
}
_FAULT_OF_CODE = {
    sqlite3.SQLITE_FULL:    LogFault.FULL,
    sqlite3.SQLITE_CORRUPT: LogFault.DAMAGED,
    sqlite3.SQLITE_NOTADB:  LogFault.DAMAGED,
    sqlite3.SQLITE_ERROR:   LogFault.DAMAGED,  # the schema was checked, so the content is invalid: not JSON
}
# fmt: on


def problem_of(error: Exception, path: Path, what: str) -> Problem:
    """Return the problem of an error while the log at `path` was used; `what` is the message."""
    why = (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()
    fault = _fault_of(error)
    if sqlite_code(error) == sqlite3.SQLITE_IOERR:
        with contextlib.suppress(OSError):  # then the message of SQLite is used
            free = os.statvfs(path.parent)
            if free.f_bavail * free.f_frsize < _INDEX:  # for the index of the write-ahead file
                fault, why = LogFault.FULL, "the disk is full"  # which SQLite does not report
    return Problem(what=what, why=f"`{path}`: {why}", fix=_fix(path, fault))


def sqlite_code(error: Exception) -> int:
    """Return the primary result code of an error of SQLite; 0 for any other error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _fault_of(error: Exception) -> LogFault | None:
    """Return the fault of the log that caused an error, or None if the error has another cause."""
    if isinstance(error, LogFaultError):
        return error.fault
    if isinstance(error, OSError):
        return _FAULT_OF_ERRNO.get(error.errno or 0)
    return _FAULT_OF_CODE.get(sqlite_code(error))


def _fix(path: Path, fault: LogFault | None) -> str:
    aside = "to continue with a new log"
    fixes = {
        LogFault.FULL: "free some disk space, or set RINGFENCE_STATE_DIR to a folder on another disk",
        LogFault.DAMAGED: f"run `agent audit verify`; {aside}, move this one aside: mv '{path}' '{path}.damaged'",
        LogFault.EMPTY: "run a command first, or name another file",
        LogFault.CHANGED: f"run `agent audit verify`, and keep the file as evidence; {aside}: "
        f"mv '{path}' '{path}.changed'",
        LogFault.REPLACED: f"find out what changes `{path.parent}`, and try again",
        LogFault.MISSING: "run a command first, or set RINGFENCE_STATE_DIR to the folder of the log",
        LogFault.NEWER: f"install that version or a newer one; {aside}: mv '{path}' '{path}.newer'",
        LogFault.MERGED: f"name the log of this machine; {aside}, move this one aside: mv '{path}' '{path}.merged'",
        LogFault.NO_WAL: "set RINGFENCE_STATE_DIR to a folder on a local disk",
    }
    owner = f"check who owns `{path.parent}` and that you may write there, or set RINGFENCE_STATE_DIR to another folder"
    return owner if fault is None else fixes.get(fault, owner)
