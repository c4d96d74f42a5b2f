"""The tools that a model may call. This file is the registry, with one line for each tool.

A tool plans an action and words its result; it never acts. May import `policy.model`. Start reading at `tool.py`, then
`bash.py`.
"""

from tools.bash import Bash
from tools.edit import Edit
from tools.glob import Glob
from tools.grep import Grep
from tools.ls import Ls
from tools.read import Read
from tools.tool import Tool
from tools.write import Write

TOOLS: tuple[Tool, ...] = (
    Bash(),
    Read(),
    Write(),
    Edit(),
    Glob(),
    Grep(),
    Ls(),
)
