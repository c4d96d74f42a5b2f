"""Custom `/commands`: Markdown files whose text is sent as a prompt.

`~/.config/ringfence/commands/review.md` is `/review`, and `git/log.md` in a folder below is `/git:log`. The top of the
file may contain `description:` and `argument-hint:` as YAML between two lines `---`. In the text `$ARGUMENTS` is
replaced by all typed arguments, `$1` to `$9` by single arguments, `$$` by a dollar sign; without any of these, the
arguments follow the text. Nothing in such a file is run, and it grants nothing.

THREAT T103: a repository contains commands that resemble built-in commands or the user's own. They exist only while the
user trusts their exact content, and never replace another command. Their text is sent as the user's prompt, because the
user typed the command.
"""

import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from policy.model.frozen import dataclass
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line, visible_prose

LARGEST = 64 << 10  # bytes of one file
MOST = 200  # entries of one folder that are read
_DEEPEST = 3  # levels of folders
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}")
_TEXTS = ("description", "argument-hint")  # settings that users write as in `argument-hint: [file] [line]`
_PLACEHOLDER = re.compile(r"\$(\$|ARGUMENTS\b|[1-9](?![0-9]))")
_HINT = 200  # characters of a description


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A custom command from one file.

    Attributes:
        name: name of the command.
        usage: hint about its arguments.
        summary: description for a list.
        text: the prompt before its arguments are inserted.
        source: the file.
    """

    name: str
    usage: str
    summary: str
    text: str
    source: str

    def prompt(self, words: str) -> str:
        """Return the prompt for `/name words`. An argument that was not typed is replaced by nothing."""
        try:
            parts = shlex.split(words)
        except ValueError:  # an apostrophe in a sentence
            parts = words.split()
        used = False

        def put(match: re.Match[str]) -> str:
            nonlocal used
            key = match[1]
            if key == "$":
                return "$"
            used = True
            if key == "ARGUMENTS":
                return words
            return parts[int(key) - 1] if int(key) <= len(parts) else ""

        text = _PLACEHOLDER.sub(put, self.text)
        return f"{text}\n\n{words}" if words and not used else text


@dataclass(frozen=True, slots=True)
class CommandFiles:
    """The commands of a folder.

    Attributes:
        found: the commands.
        notices: the files that are not commands, and why.
    """

    found: tuple[PromptFile, ...] = ()
    notices: tuple[str, ...] = ()


def parse(path: PurePosixPath, data: bytes, source: str) -> PromptFile | str:
    """Return the command in a file, or the reason why the file is not a command, as text. `path` is relative to the
    folder of commands, and `source` is the file as shown to the user.
    """
    parts = (*path.parent.parts, path.stem)
    if not all(_NAME.fullmatch(part) for part in parts):
        return "its name may only contain lower-case letters, digits, - and _"
    if len(data) > LARGEST:
        return f"it is larger than {LARGEST >> 10} KiB"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return "it is not UTF-8"
    # THREAT T103: the model reads nothing that the user, who trusts this text, cannot see.
    text = visible_prose(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    fields: Mapping[str, str] = {}
    if text.startswith("---"):
        from runner.config.agentfiles.front_matter import HeadError, front_matter  # imports a YAML parser

        try:
            head = front_matter(text, _TEXTS)
        except HeadError as error:
            return str(error)
        fields, text = head.texts, head.body
    if not text.strip():
        return "it is empty"
    first = next(line for line in text.split("\n") if line.strip())
    summary = fields.get("description", "").strip() or first.lstrip("# ")
    return PromptFile(
        ":".join(parts),
        one_line(fields.get("argument-hint", ""), 60),
        one_line(summary, _HINT),
        text.strip(),
        source,
    )


def of_folder(folder: Path) -> CommandFiles:
    """Return the user's own commands in `folder`; none if the folder does not exist."""
    return _read(_files(folder), str(folder))


def of_contents(contents: Mapping[str, bytes], below: str) -> CommandFiles:
    """Return the commands of a repository whose exact bytes the user trusts. `contents` maps paths in the
    repository to bytes, and `below` is the folder of commands.
    """
    found = ((PurePosixPath(path).relative_to(below), data) for path, data in sorted(contents.items()))
    return _read(((path, data) for path, data in found if path.suffix == ".md"), below)


def _read(files: Iterable[tuple[PurePosixPath, bytes | str]], source: str) -> CommandFiles:
    commands: dict[str, PromptFile] = {}
    notices = []
    for path, data in files:
        made = parse(path, data, f"{source}/{path}") if isinstance(data, bytes) else data
        if isinstance(made, str):
            notices.append(f"`{one_line(f'{source}/{path}', _HINT)}` is not a command: {made}")
        else:
            commands.setdefault(made.name, made)
    return CommandFiles(tuple(commands.values()), tuple(notices))


def _files(folder: Path, depth: int = 1) -> Iterator[tuple[PurePosixPath, bytes | str]]:
    """Yield the Markdown files in `folder` and below in the order of names, each with its bytes or the reason why it
    was not read.
    """
    try:
        entries = sorted(folder.iterdir())[:MOST]
    except OSError:
        return  # missing or unreadable: the folder contains no commands
    for entry in entries:
        try:
            about = entry.stat()
            if stat.S_ISDIR(about.st_mode) and depth < _DEEPEST:
                for path, data in _files(entry, depth + 1):
                    yield PurePosixPath(entry.name) / path, data
            elif entry.suffix == ".md":
                plain = stat.S_ISREG(about.st_mode) and about.st_size <= LARGEST
                yield PurePosixPath(entry.name), entry.read_bytes() if plain else "it is not a file, or too large"
        except OSError as error:
            yield PurePosixPath(entry.name), os_reason(error)
