"""The sandbox: takes a Permit, returns an Outcome, and grants exactly the rights of its Terms.

The names below are public (`docs/guide/embedding.md`). This package may import `policy`, but imports each module only
when it is used, because every helper starts here. Start reading at `backend.py`, then `linux/backend.py`.
"""

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from policy.model.verdict import Limits, Permit, Problem, Rights, Terms
    from sandbox.backend import Backend, Connection, Enforcement, Level, Outcome, SandboxUnavailable, Violation
    from sandbox.backends import open_backend

# fmt: off
__all__ = [
    "Backend", "Connection", "Enforcement", "Level", "Limits", "Outcome", "Permit", "Problem", "Rights",
    "SandboxUnavailable", "Terms", "Violation", "open_backend",
]
# fmt: on


def __getattr__(name: str) -> object:
    if name == "open_backend":
        from sandbox.backends import open_backend

        return open_backend
    if name in __all__:
        from policy.model import verdict
        from sandbox import backend

        return getattr(verdict if hasattr(verdict, name) else backend, name)
    raise AttributeError(f"sandbox has no name {name!r}")
