"""Date and machine of a session, as they were when the session began."""

import os
import time

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The date, the machine and the state of the repository.

    Attributes:
        day: The weekday and the local date.
        system: The kernel and the processor.
        git: The state of the repository. Contains names and subjects that others wrote.
    """

    day: str = ""
    system: str = ""
    git: str = ""

    @property
    def text(self) -> str:
        """Return the sentence for the system prompt, without text that others wrote. Empty if nothing was read."""
        if not self.day:
            return ""
        return f"When and where this session began\n- {self.day}, on {self.system}.\n"


def surroundings(workspace: str) -> Surroundings:
    """Read the date, the machine and the Git state of `workspace`. No program of the workspace is run."""
    from runner.facts.git.status import git_state

    name = os.uname()
    return Surroundings(time.strftime("%A, %Y-%m-%d"), f"{name.sysname} ({name.machine})", git_state(workspace))
