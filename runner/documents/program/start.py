"""The start script: `start.py FOLDER ...` with the folders of the packages. Started with `-I -S`, without any path."""

import importlib
import os
import sys
from importlib.util import module_from_spec, spec_from_file_location


def start() -> None:
    """Load this folder as the package `program`, because its parent folder is not visible, and convert the document."""
    sys.path.extend(sys.argv[1:])  # last, so that no package replaces a module of the standard library
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = spec_from_file_location("program", f"{folder}/__init__.py", submodule_search_locations=[folder])
    assert spec is not None
    sys.modules["program"] = module_from_spec(spec)
    importlib.import_module("program.main").run()


if __name__ == "__main__":
    start()
