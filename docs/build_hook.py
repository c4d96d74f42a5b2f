"""The build hook of the wheel.

A wheel gets the package `ringfence` (`wheel_package.py`) and the generated page about all known commands,
`share/doc/ringfence/commands.md`. An editable install gets neither: it imports the checkout.
"""

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Wheel(BuildHookInterface):  # type: ignore[type-arg]  # hatchling's own examples leave the argument out
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the package and the page, and name them in `build_data`. Raise PackageError (`wheel_package.py`)."""
        if version == "editable":
            return
        root = Path(self.root)
        self.folder = tempfile.TemporaryDirectory(prefix="ringfence-wheel-")
        package = Path(self.folder.name, "ringfence")
        runpy.run_path(str(root / "docs" / "wheel_package.py"))["copy_package"](root, package)
        build_data["force_include"][str(package)] = package.name
        page = root / "docs" / "reference" / "commands.md"
        generator = runpy.run_path(str(root / "docs" / "make_commands.py"))
        page.write_text(generator["commands_page"](root / "policy" / "commands"), "utf-8")
        build_data["shared_data"][str(page)] = "share/doc/ringfence/commands.md"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the written package."""
        if version != "editable":
            self.folder.cleanup()
