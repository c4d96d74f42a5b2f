"""Every `/command` of one talk: ours, then your own, then those that a repository brings and you trust."""

from policy.record import dataclass
from runner.places import config_file
from runner.slash import custom
from runner.slash.command import Command
from runner.slash.commands import COMMANDS
from runner.slash.skills import commands as of_skills

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.context.skills import Skill


@dataclass(frozen=True, slots=True)
class Known:
    """`notices` say which files are no commands, and why."""

    commands: tuple[Command, ...]
    notices: tuple[str, ...] = ()


def known(environ: "Mapping[str, str]", skills: "Sequence[Skill]" = ()) -> Known:
    """What can be typed, with a `/skill:NAME` for each of `skills`. Reads the disk."""
    mine = custom.of_folder(config_file(environ).parent / "commands")
    return Known((*COMMANDS, *custom.merged(mine), *of_skills(skills)), mine.notices)
