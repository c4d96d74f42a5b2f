"""When and on what a session works: its day and machine, as they were when it began."""

import os
import time

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`day` is the local date, with the weekday; `system` the kernel and the processor; `git` says how the repository
    stands, in words of which some are whoever's who wrote into it."""

    day: str = ""
    system: str = ""
    git: str = ""

    @property
    def text(self) -> str:
        """What of it is ours to say; empty when nobody looked."""
        if not self.day:
            return ""
        return f"When and where this session began\n- {self.day}, on {self.system}.\n"


def surroundings(workspace: str) -> Surroundings:
    """Look now. Nothing of the workspace is run."""
    from runner.facts.git.status import git_state

    name = os.uname()
    return Surroundings(time.strftime("%A, %Y-%m-%d"), f"{name.sysname} ({name.machine})", git_state(workspace))
