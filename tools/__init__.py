"""The tools that a model may call. This file is the registry, with one line for each tool.

A tool plans an action and formats its result; it never executes the action. May import `policy.model`. Start reading
at `tool.py`, then `bash.py`.
"""

from tools.ask_user import AskUserTool
from tools.bash import BashTool
from tools.edit import EditTool
from tools.extract import ExtractTool
from tools.glob import GlobTool
from tools.grep import GrepTool
from tools.ls import LsTool
from tools.memory import RecallTool, RememberTool
from tools.notebook_edit import NotebookEditTool
from tools.processes import BashInputTool, BashKillTool, BashOutputTool
from tools.read import ReadTool
from tools.skill import SkillTool
from tools.tool import ModelTool
from tools.write import WriteTool

TOOLS: tuple[ModelTool, ...] = (
    BashTool(),
    ReadTool(),
    WriteTool(),
    EditTool(),
    NotebookEditTool(),
    GlobTool(),
    GrepTool(),
    LsTool(),
    BashOutputTool(),
    BashInputTool(),
    BashKillTool(),
)

# Tools of sessions with notes, and of sessions with skills.
NOTE_TOOLS: tuple[ModelTool, ...] = (RememberTool(), RecallTool())
SKILL_TOOL: ModelTool = SkillTool()
# The tool of sessions in which untrusted text changes verdicts.
EXTRACT_TOOL: ModelTool = ExtractTool()
# The tool of sessions with a user who can answer. It can be called in others as well, and then says that nobody can.
ASK_TOOL: ModelTool = AskUserTool()
