"""The public names of ringfence, for programs: `import ringfence`. docs/guide/embedding.md describes them.

    async with ringfence.Agent("project", approver=decide) as agent:
        ending = await agent.run("why does the build fail?")

The names are those of `runner/api.py`. A wheel contains this module as `ringfence/__init__.py`, with the packages of
this program below it (`docs/wheel_package.py`). Every process of the program imports it, so it imports nothing by
itself: the first use of a name does.
"""

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    """Run the command `agent` with the words of `sys.argv`, and end this process with its exit code."""
    from runner.cli.main import main as agent
    from runner.ending import leave

    leave(agent())


if TYPE_CHECKING:
    from runner.api import *  # noqa: F403  # every public name, for type checkers and editors
    from runner.api import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        if not name.startswith("_") or name in ("__all__", "__version__"):  # others are asked for by the import system
            from runner import api

            if name == "__all__" or name in api.__all__:
                return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from runner import api

    return sorted({*globals(), *api.__all__})
