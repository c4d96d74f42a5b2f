"""The file actions: one request in, one answer of JSON values out. Standard library only, because it runs confined.

This module does not decide which files may be used: the process is already confined. It must handle everything that can
exist there: pipes and devices instead of files, full disks, protected and vanishing paths, any name.
"""

import os

from sandbox.inside.files.access import Refused, missing, refusal, regular, show
from sandbox.inside.files.edit import edit_file
from sandbox.inside.files.grep import SearchQuery, SearchResult, compiled
from sandbox.inside.files.grep import search as search_by_hand
from sandbox.inside.files.listing import glob_files, list_folder
from sandbox.inside.files.read import read_file
from sandbox.inside.files.write import write_file

SECONDS = 20.0  # seconds after which a search ends with its results so far


def warm() -> None:
    """Load all modules that an operation may need. Call this before confinement, which may hide the library."""
    import difflib
    import hashlib
    import re
    import warnings  # noqa: F401  # used by a search

    from sandbox.inside.files import notebook, ripgrep  # noqa: F401  # used by some operations

    re.compile(r"(?>a*?b)[c-d]", re.DOTALL).fullmatch("abc")
    difflib.get_close_matches("a", ["b"])
    hashlib.sha256(b"")
    "".encode("unicode_escape")  # a codec is a module too


def perform(request: dict[str, object]) -> dict[str, object]:
    """Carry out one file action: `{"op": "ReadFile", **fields}`. A failure is `{"problem": {what, why, fix}}`.

    `seconds` limits the time of a search. The function never raises for any content of the disk; the answer is a dict
    of JSON values without lone surrogates.
    """
    fields = _Request(request)
    try:
        match fields.text("op"):
            case "ReadFile":
                offset, limit = fields.count("offset", 1), fields.count("limit", 2000)
                return read_file(fields.path("path"), offset, limit, paged=fields.maybe("pages") not in (None, ""))
            case "WriteFile":
                return write_file(fields.path("path"), fields.text("content"))
            case "EditNotebook":
                from sandbox.inside.files.notebook import edit_notebook

                operation, cell, source, kind = map(fields.text, ("operation", "cell", "new", "cell_type"))
                return edit_notebook(fields.path("path"), operation, cell, source, kind, fields.maybe("seen"))
            case "EditFile":
                seen, every = fields.maybe("seen"), fields.flag("replace_all")
                return edit_file(fields.path("path"), fields.text("old"), fields.text("new"), every, seen)
            case "ListFolder":
                return list_folder(fields.path("path"))
            case "GlobFiles":
                pattern, root, ignored = fields.text("pattern"), fields.path("root"), fields.flag("ignored")
                return glob_files(pattern, root, fields.seconds(), ignored=ignored)
            case "GrepFiles":
                return _grep(
                    SearchQuery(
                        pattern=fields.text("pattern"),
                        root=fields.path("root"),
                        glob=fields.maybe("glob"),
                        ignore_case=fields.flag("ignore_case"),
                        files_only=fields.flag("files_only"),
                        context=fields.count("context", 0),
                        limit=fields.count("limit", 200),
                        seconds=fields.seconds(),
                    )
                )
            case other:
                raise Refused("cannot do this", f"`{other[:60]}` is not a file action", "use one of the file tools")
    except Refused as refused:
        return {"problem": refused.problem}
    except OSError as error:
        name = error.filename if isinstance(error.filename, str) else str(request.get("path") or request.get("root"))
        return {"problem": refusal(error, f"cannot use `{show(name)}`").problem}
    except MemoryError:
        why = "there is not enough memory for this action"
        return {"problem": Refused("cannot do this", why, "work on a smaller part of the file").problem}


def _grep(query: SearchQuery) -> dict[str, object]:
    """Search with ripgrep if it exists and supports the pattern, else in Python; `engine` of the answer tells which."""
    from sandbox.inside.files import ripgrep

    what = f"cannot search `{show(query.root)}`"
    if not os.path.lexists(query.root):
        raise missing(query.root, what)
    if not os.path.isdir(query.root):
        regular(query.root, what)
    program = ripgrep.program()
    complaint = None
    if program:
        try:
            return _found(ripgrep.search(query, program), query, "ripgrep")
        except ripgrep.Unusable as unusable:
            complaint = str(unusable)
    regex = compiled(query)
    if isinstance(regex, str):
        why = f"it is not a valid regular expression: {complaint or regex}"
        fix = "correct it; to find the text itself, put a backslash before each of `\\ . + * ? ( ) | [ ] { } ^ $`"
        raise Refused(f"cannot search for `{query.pattern[:200]}`", why, fix)
    # Ripgrep may refuse the pattern (look-around), but can still list the files that .gitignore does not exclude.
    paths = ripgrep.files(query, program) if program and complaint else None
    return _found(search_by_hand(query, regex, paths), query, "python")


def _found(result: SearchResult, query: SearchQuery, engine: str) -> dict[str, object]:
    if result.late and not result.count:
        why = f"no match was found within {query.seconds:g} s"
        fix = "search a smaller folder, give `glob`, or write a simpler pattern without nested repetition"
        raise Refused(f"cannot finish the search for `{query.pattern[:200]}`", why, fix)
    files = [[path, [list(line) for line in lines]] for path, lines in result.files]
    counts = {"count": result.count, "unread": result.unread, "limited": result.limited, "late": result.late}
    return {"engine": engine, "files": files, **counts}


class _Request:
    """The fields of a request, read and checked by type."""

    def __init__(self, fields: dict[str, object]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """Return the value as text. Raises Refused for another type, and for text that cannot be written as UTF-8."""
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise Refused("cannot do this", f"the request lacks the text `{name}`", "report this as a bug")
        if not _fits(value, "strict"):
            raise Refused("cannot do this", f"`{name}` is not valid text", "use valid Unicode")
        return value

    def path(self, name: str) -> str:
        """Return the value as an absolute path. Bytes that are not UTF-8 have Python's spelling for file names."""
        value = self._fields.get(name)
        if not isinstance(value, str) or value[:1] != "/" or "\0" in value or not _fits(value, "surrogateescape"):
            raise Refused("cannot do this", f"`{name}` is not an absolute path", "give an absolute path")
        return value

    def maybe(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        return self._fields.get(name) is True

    def count(self, name: str, default: int) -> int:
        value = self._fields.get(name, default)
        return value if isinstance(value, int) and value >= min(default, 1) else default

    def seconds(self) -> float:
        value = self._fields.get("seconds", SECONDS)
        return float(value) if isinstance(value, int | float) and 0 < value < 3600 else SECONDS


def _fits(text: str, errors: str) -> bool:
    """Return True if `text` can be written as UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True
