"""Build hook of the wheel: adds the generated page about all known commands, `share/doc/ringfence/commands.md`."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommandsPage(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own examples leave the argument out
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the page and name it in `build_data`; an editable install gets none."""
        if version == "editable":
            return
        root = Path(self.root)
        page = root / "docs" / "reference" / "commands.md"
        generator = runpy.run_path(str(root / "docs" / "make_commands.py"))
        page.write_text(generator["commands_page"](root / "policy" / "commands"), "utf-8")
        build_data["shared_data"][str(page)] = "share/doc/ringfence/commands.md"
