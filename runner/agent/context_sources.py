"""The context that a session begins with: the user's own prompt files and skills, and those of a trusted repository.

The user's prompt files are SYSTEM.md and APPEND_SYSTEM.md in the configuration folder; the user's skills are in
`~/.agents/skills`, which every sandbox may read. No command can read the configuration folder.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from policy.model.verdict import Problem
from runner.config.agentfiles import instructions
from runner.config.agentfiles.skills import FILE, Broken, Skill, built_in_skills, choose_skills, skills_in
from runner.config.inventory import EntryKind
from runner.engine.context.context import Context, SourcedText
from runner.problems import Exit, Stopped
from runner.state import paths
from runner.text.phrases import os_reason
from runner.text.sanitize import one_line, visible
from sandbox.inside.regular_file import NotRegularError, open_regular, read_descriptor

if TYPE_CHECKING:
    from runner.bundles.bundle import Bundle
    from runner.config.agentfiles.custom_commands import PromptFile
    from runner.config.inventory import Inventory

BASE_FILE, ADDED_FILE = "SYSTEM.md", "APPEND_SYSTEM.md"
LONGEST = 64 << 10  # bytes
_NAMED = 3  # broken skills that are named in notices


@dataclass(frozen=True, slots=True)
class ContextSources:
    """The context of a session, with the notices for the user about it."""

    context: Context
    notices: tuple[str, ...]


def read_context(
    inventory: "Inventory | None",
    environ: Mapping[str, str],
    *,
    skilled: bool = True,
    packaged: bool = False,
    bundles: "tuple[Bundle, ...]" = (),
) -> ContextSources:
    """Return the context of a session, with notices. `inventory` is the trusted content of the repository, or None, and
    `bundles` are the user's bundles.

    With `skilled`, the context contains the skills, and with `packaged` those of the program, too. Raise Stopped if a
    prompt file of the user cannot be used, since the user relies on its text.
    """
    folder = os.path.dirname(str(paths.config_file(environ)))
    base, added = (read_own_text(os.path.join(folder, name)) for name in (BASE_FILE, ADDED_FILE))
    theirs = _prompts(inventory) if inventory is not None else {}
    notices = []
    if project := theirs.get(BASE_FILE):
        base = project
        notices.append(f"`{project.source}`, which you trusted, replaces ringfence's own system prompt")
    texts = tuple(each for each in (added, theirs.get(ADDED_FILE)) if each is not None)
    if ADDED_FILE in theirs:
        notices.append(f"`{theirs[ADDED_FILE].source}`, which you trusted, is part of the system prompt")
    skills, broken = skills_at(inventory, environ, bundles, packaged=packaged) if skilled else ((), ())
    files = tuple(each.path for each in instructions.read_texts(inventory)) if inventory is not None else ()
    # THREAT T221: of two commands with one name the first is used, so a repository replaces none of a bundle.
    commands: tuple[PromptFile, ...] = tuple(command for each in bundles for command in each.commands)
    if inventory is not None:
        from runner.config.trust.evaluate import commands_of

        commands += commands_of(inventory).found
    return ContextSources(
        Context(base, texts, skills, commands=commands, files=files), (*notices, *_broken_notices(broken))
    )


def read_own_text(path: str) -> SourcedText | None:
    """Return the text of one of the user's own files; None if it is missing or blank. Links are followed. Raise Stopped
    if the file cannot be used, for example because other users can write to it.
    """
    try:
        handle, found = open_regular(path, follow=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegularError:
        raise _unfit(path, "it is not a regular file") from None
    except OSError as error:
        raise _unfit(path, os_reason(error)) from None
    try:
        if _others_may_write(found):
            raise _unfit(path, "other users can write to it")
        data = read_descriptor(handle, LONGEST + 1)
    finally:
        os.close(handle)
    if len(data) > LONGEST:
        raise _unfit(path, f"it is longer than {LONGEST >> 10} KiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise _unfit(path, "it is not UTF-8 text") from None
    return SourcedText(path, visible(text, prose=True)) if text.strip() else None


def _unfit(path: str, why: str) -> Stopped:
    return Stopped(Problem(f"`{path}` cannot be given to the model", why, "correct or remove the file"), Exit.USAGE)


def _prompts(inventory: "Inventory") -> dict[str, SourcedText]:
    """Return the trusted prompt files by name. A file that is too long is left out; the question about trust showed
    its length.
    """

    found = {}
    for entry in inventory.entries:
        data = inventory.contents.get(entry.path, b"")
        if entry.kind is EntryKind.PROMPT and data.strip():
            found[os.path.basename(entry.path)] = SourcedText(entry.path, visible(data.decode("utf-8"), prose=True))
    return found


def skills_at(
    inventory: "Inventory | None",
    environ: Mapping[str, str],
    bundles: "tuple[Bundle, ...]" = (),
    *,
    packaged: bool = False,
) -> tuple[tuple[Skill, ...], tuple[Broken, ...]]:
    """Return the user's skills, with `packaged` those of the program, those of bundles, and then the trusted skills of
    the repository; and the skills that are not used, with the reason. Paths are absolute.

    THREAT T217, T221: of skills with one name the first is used, so that a repository or a bundle replaces no other.
    """
    home = os.path.realpath(paths.home(environ))
    groups: list[tuple[Skill, ...]] = []
    broken: list[Broken] = []
    place = os.path.join(home, *OWN_SKILLS)
    if os.path.isdir(place) and not _others_may_write(os.stat(place)):
        mine, bad = _below(place)
        groups.append(mine)
        broken += bad
    elif os.path.isdir(place):
        broken.append(Broken(place, "is a folder that other users can write to"))
    if packaged:
        groups.append(built_in_skills())
    groups += (each.skills for each in bundles)
    if inventory is not None:
        from runner.config.trust.evaluate import skills_of

        theirs, bad = skills_of(inventory)
        groups.append(tuple(replace(each, path=os.path.join(inventory.workspace, each.path)) for each in theirs))
        broken += bad
    found, left = choose_skills(groups)
    return found, (*broken, *left)


OWN_SKILLS = (".agents", "skills")


def _below(place: str) -> tuple[tuple[Skill, ...], tuple[Broken, ...]]:
    from runner.config.trust.discover import look_below

    found = look_below(place, FILE)
    files = {os.path.join(place, path): data for path, data in found.contents.items()}
    good, bad = skills_in(files, "yours")
    refused = (
        Broken(os.path.join(place, each.path).rstrip("/"), each.refused) for each in found.entries if each.refused
    )
    return good, (*bad, *refused)


def _others_may_write(state: os.stat_result) -> bool:
    return state.st_uid not in (0, os.geteuid()) or bool(state.st_mode & stat.S_IWOTH)


def _broken_notices(broken: tuple[Broken, ...]) -> tuple[str, ...]:
    shown = [f"`{one_line(each.path, 200)}` is not used as a skill: it {each.why}" for each in broken[:_NAMED]]
    if len(broken) > _NAMED:
        shown.append(f"{len(broken) - _NAMED} more skills are not used either")
    return tuple(shown)
