"""The text of Git's own files: configuration files, `.git` files and `commondir`, read as Git reads them.

Text that Git refuses, and text that versions of Git read differently, raises GitConfigError, so every result is the
one of Git. `tests/fuzz/fuzz_git.py` compares the results with a real Git.

Sources: git-config(1), gitrepository-layout(5), and in Git's source code `get_next_char`, `parse_value`,
`get_base_var`, `parse_config_key` (config.c) and `read_gitfile_gently`, `get_common_dir_noenv` (setup.c).
"""

import re
from functools import lru_cache

from policy.model.frozen import dataclass
from policy.model.glob import late

LONGEST = 1 << 20  # bytes: the largest file that is read here; Git itself has no such limit
_MOST_SETTINGS = 50_000  # sections and settings of a file, which take a fraction of a second to read

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEADER = late(rb'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
_KEY = late(rb"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=|\n|\Z)")
_LOOSE_HEADER = late(rb"\s*\[\s*([^\]\s\"]*)(?:\s+\"((?:[^\"\\\n]|\\.)*)\")?[^\]\n]*\]")
_LOOSE_SETTING = late(rb"\s*([A-Za-z][A-Za-z0-9-]*)\s*=(.*)")
_ESCAPED = late(rb"\\(.)")
_PLAIN = late(rb'[^ \t"\\#;\n]+')
_QUOTED = late(rb'[^"\\\n]+')
_BLANK = late(rb"[ \t]+")
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"b": b"\b", b"\\": b"\\", b'"': b'"'}


class GitConfigError(Exception):
    """Error for a file that cannot be read with certainty. Its text is the reason, as the end of a sentence about the
    file.


    Attributes:
        line: the line of the error, counted from 1; 0 if the error has no line.
    """

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable of a configuration file. Bytes that are not UTF-8 are kept as surrogate escapes (PEP 383).

    Attributes:
        section: the part of the full name before the first dot, in lower case.
        subsection: the part between the first and the last dot, or None. Git joins a header and a key to one name and
            splits this name at its first and last dot, so `[diff.X "Y"]` has the section `diff` and the subsection
            `x.Y`. The unquoted part is in lower case.
        key: the part after the last dot, in lower case.
        value: the value; None for a key without `=`, which means true.
        older: the value in Git before 2.45, which replaces each unquoted tab inside a value by a space. Nearly always
            equal to `value`.
        line: the line on which the setting begins, counted from 1.
        last: the line on which the setting ends.
    """

    section: str
    subsection: str | None
    key: str
    value: str | None
    older: str | None
    line: int
    last: int

    @property
    def name(self) -> str:
        """Return the full name, as `git config --list` prints it."""
        middle = "" if self.subsection is None else f"{self.subsection}."
        return f"{self.section}.{middle}{self.key}"

    @property
    def values(self) -> frozenset[str]:
        """Return the value in each version of Git; empty for a key without a value."""
        return frozenset(each for each in (self.value, self.older) if each is not None)


def read_settings(content: bytes) -> tuple[Setting, ...]:
    """Return the settings of one configuration file, in order; includes are not followed. Raises GitConfigError if the
    meaning of the text is uncertain."""
    if len(content) > LONGEST:
        raise GitConfigError("is longer than 1 MiB")
    text = content.removeprefix(_BYTE_ORDER_MARK).replace(b"\r\n", b"\n")
    for byte, what in ((b"\0", "a NUL byte"), (b"\r", "a carriage return inside a line")):
        if byte in text:
            raise GitConfigError(f"contains {what}", 1 + text.count(b"\n", 0, text.index(byte)))
    found: list[Setting] = []
    prefix, at, line, counted = "", 0, 1, 0
    for _ in range(_MOST_SETTINGS):
        while at < len(text) and text[at] in b" \t\n#;":  # blanks and comments before a section or setting
            at = _line_end(text, at) if text[at] in b"#;" else at + 1
        line, counted = line + text.count(b"\n", counted, at), at
        if at >= len(text):
            return tuple(found)
        if header := _HEADER.match(text, at):
            prefix = _name_prefix(header[1], header[2], line)
            at = header.end()
        elif (setting := _KEY.match(text, at)) and prefix:
            start = at
            value, older, at = _value(text, setting.end(), line) if setting[2] == b"=" else (None, None, setting.end())
            section, _, rest = prefix.partition(".")
            key, last = setting[1].decode().lower(), line + text.count(b"\n", start, at - 1)
            found.append(Setting(section, rest[:-1] if rest else None, key, value, older, line, last))
        else:
            raise GitConfigError("has a line that is neither a section, a setting nor a comment", line)
    raise GitConfigError(f"has more than {_MOST_SETTINGS} sections and settings", line)


@lru_cache(maxsize=64)
def possible_settings(content: bytes) -> tuple[tuple[str, str], ...]:
    """Return the full name and the value of each setting that some version of Git may read in a configuration file.

    Uncertain text is read line by line, so the result may include settings that no version of Git uses.
    """
    try:
        return tuple((each.name, value) for each in read_settings(content) for value in sorted(each.values))
    except GitConfigError:
        pass
    found, section = [], ""
    for line in content.replace(b"\\\n", b"").replace(b"\r", b"\n").split(b"\n"):
        if header := _LOOSE_HEADER.match(line):
            section = _decode(header[1] + (b"." + header[2] if header[2] else b""))
            line = line[header.end() :]
        if setting := _LOOSE_SETTING.match(line):
            plain = setting[2].split(b" #")[0].split(b" ;")[0].replace(b'"', b"").strip()
            found.append((f"{section}.{setting[1].decode()}".lower(), _decode(plain)))
    return tuple(found)


def _line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at)
    return end if end >= 0 else len(text)


def _name_prefix(name: bytes, quoted: bytes | None, line: int) -> str:
    """Return the prefix of full names that a header defines, with the final dot."""
    text = name.decode().lower()
    if text.startswith("."):
        raise GitConfigError("has a section without a name", line)
    if quoted is None:
        return f"{text}."
    subsection = _decode(_ESCAPED.sub(rb"\1", quoted))
    return f"{text}.{subsection}."


def _value(text: bytes, at: int, line: int) -> tuple[str, str, int]:
    """Return the value that starts at `at` in newer and older versions of Git, and the position of the next line."""
    end = _line_end(text, at)
    whole = text[at:end].strip(b" \t")
    if not any(special in whole for special in (b'"', b"\\", b"#", b";", b"\t")):
        return _decode(whole), _decode(whole), end + 1  # nearly every value
    found, tabs = bytearray(), []
    blanks, quoted = b"", False
    while at < len(text) and text[at : at + 1] != b"\n":
        if not quoted and (blank := _BLANK.match(text, at)):
            blanks += blank[0] if found else b""  # blanks at the end of the value are dropped
            at = blank.end()
            continue
        if not quoted and text[at] in b"#;":
            at = _line_end(text, at)
            break
        tabs += [len(found) + index for index, blank in enumerate(blanks) if blank == ord("\t")]
        found += blanks
        blanks = b""
        if run := (_QUOTED if quoted else _PLAIN).match(text, at):
            found += run[0]
            at = run.end()
        elif text[at : at + 1] == b'"':
            quoted = not quoted
            at += 1
        else:
            escaped = text[at + 1 : at + 2]
            if escaped != b"\n":
                if escaped not in _ESCAPES:
                    raise GitConfigError("has a backslash before a character that Git does not escape", line)
                found += _ESCAPES[escaped]
            at += 2
    if quoted:
        raise GitConfigError("has a quotation mark that is not closed", line)
    older = bytearray(found)
    for index in tabs:
        older[index] = ord(" ")
    return _decode(found), _decode(older), at + 1


def gitdir_target(content: bytes) -> str:
    """Return the folder that a `.git` file names; a relative path is relative to the folder of that file. Raises
    GitConfigError if the content is not `gitdir: ` and a path."""
    if not content.startswith(b"gitdir: "):
        raise GitConfigError("does not begin with `gitdir: `")
    return _only_path(content.removeprefix(b"gitdir: "))


def commondir_target(content: bytes) -> str:
    """Return the folder that the file `commondir` names; a relative path is relative to the folder of that file. Raises
    GitConfigError if the content is not exactly one path."""
    return _only_path(content)


def _only_path(content: bytes) -> str:
    target = content.rstrip(b"\r\n")  # blanks belong to the name
    if not target or b"\0" in target or len(content) > LONGEST:
        raise GitConfigError("does not contain exactly one path")
    return _decode(target)


def expand_home(path: str, home: str) -> str:
    """Return a path of a setting with a leading `~` replaced by `home`. Raises GitConfigError for `~user`, for
    `%(prefix)` (the folder where Git is installed), and for `:(optional)` (of newer versions)."""
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    if path.startswith(("~", "%(", ":(")):
        raise GitConfigError("names a path that only Git can expand")
    return path


def _decode(raw: bytes | bytearray) -> str:
    return raw.decode("utf-8", "surrogateescape")


# Settings that start no program: `_DISPLAY` with any value, `_SAFE` with these values only. `re` compiles the texts at
# their first use.
_DISPLAY = (
    r"(?:advice|color|column|i18n)\.[a-z0-9.-]+|core\.(?:abbrev|quotepath|commentchar|precomposeunicode|ignorecase|filemode"
    r"|autocrlf|safecrlf|eol|whitespace|longpaths|bigfilethreshold|preloadindex|checkstat|trustctime)"
    r"|diff\.(?:algorithm|colormoved|colormovedws|context|interhunkcontext|mnemonicprefix|noprefix|renames|renamelimit"
    r"|statgraphwidth|statnamewidth|suppressblankempty|wordregex|ignoresubmodules|indentheuristic|relative)"
    r"|log\.(?:abbrevcommit|date|decorate|mailmap|showroot|graphcolors|initialdecorationset|excludedecoration)"
    r"|status\.(?:short|branch|relativepaths|showstash|showuntrackedfiles|aheadbehind|renames|renamelimit)"
    r"|blame\.(?:date|showemail|showroot|coloring|blankboundary)|grep\.(?:linenumber|column|patterntype|fullname|threads)"
    r"|format\.pretty|merge\.(?:conflictstyle|ff|renames|renamelimit|stat)|pull\.(?:rebase|ff)|push\.default|branch\.sort|tag\.sort"
    r"|rebase\.(?:autosquash|autostash|updaterefs)|user\.(?:name|email)|init\.defaultbranch|rerere\.enabled|safe\.directory"
    r"|fetch\.prune|stash\.showincludeuntracked|versionsort\.suffix|pack\.threads|index\.threads|gc\.auto"
)
_SAFE = (
    r"(?:pager\.[a-z-]+|core\.(?:fsmonitor|untrackedcache)|(?:commit|tag)\.gpgsign|log\.showsignature|submodule\.recurse"
    r"|status\.submodulesummary|core\.usebuiltinfsmonitor)=(?:false|no|off|0)"
    r"|core\.pager=(?:cat)?|core\.hookspath=/dev/null|(?:core|sequence)\.editor=(?:true|:)"
    r"|diff\.submodule=(?:short|log)|protocol\.(?:file|git|ssh|https?)\.allow=(?:always|user|never)"
)


def starts_nothing(name: str, value: str | None) -> bool:
    """Return True if the setting `name` with `value` certainly makes Git start no program; False for an unknown name.
    `value` is None for a name without `=`, which means true."""
    name = name.lower()
    return bool(re.fullmatch(_DISPLAY, name)) or (value is not None and bool(re.fullmatch(_SAFE, f"{name}={value}")))
