"""What a model may call. The registry: one line a tool."""

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
