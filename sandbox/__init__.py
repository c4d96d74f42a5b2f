"""The sandbox: takes a Permit, returns an Outcome, and grants exactly the rights of its Terms.

Other programs may rely on the names below (`docs/guide/embedding.md`). May import `policy`, but nothing is imported
before it is used, because helpers start here. Start reading at `backend.py`, then `linux/backend.py`.
"""

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from policy.model.verdict import Limits as Limits
    from policy.model.verdict import Permit as Permit
    from policy.model.verdict import Problem as Problem
    from policy.model.verdict import Rights as Rights
    from policy.model.verdict import Terms as Terms
    from sandbox.backend import Backend as Backend
    from sandbox.backend import Connection as Connection
    from sandbox.backend import Enforcement as Enforcement
    from sandbox.backend import Level as Level
    from sandbox.backend import Outcome as Outcome
    from sandbox.backend import SandboxUnavailable as SandboxUnavailable
    from sandbox.backend import Violation as Violation
    from sandbox.backends import open_backend as open_backend

_FROM = {
    "policy.model.verdict": ("Limits", "Permit", "Problem", "Rights", "Terms"),
    "sandbox.backend": (
        *("Backend", "Connection", "Enforcement", "Level", "Outcome", "SandboxUnavailable", "Violation"),
    ),
    "sandbox.backends": ("open_backend",),
}
__all__ = sorted(name for names in _FROM.values() for name in names)


def __getattr__(name: str) -> object:
    for module, names in _FROM.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"sandbox has no name {name!r}")
