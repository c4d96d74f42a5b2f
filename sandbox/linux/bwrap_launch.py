"""The launch of T2: starts bubblewrap, waits for its control group, and then passes it the options."""

import contextlib
import os

from policy.model.verdict import Terms
from sandbox.inside import mount_check, syscalls
from sandbox.inside.plan import Plan
from sandbox.linux import bwrap, interpreter_paths
from sandbox.linux.helper_process import spawn
from sandbox.linux.plan_builder import Step
from sandbox.linux.session_tmp import Scratch
from sandbox.problems import no_bubblewrap, too_many, unavailable


def own(terms: Terms) -> tuple[Step, ...]:
    """Return the paths that the helper needs inside in addition to those that `terms` show, because the helper
    starts there.
    """
    return interpreter_paths.steps((*terms.system, terms.workspace, *terms.read, *terms.write))


class Waiting:
    """A helper behind a bubblewrap that reads its options until `go`. The caller ends the helper.

    Raises SandboxUnavailable. Sets the mounts that `plan` expects.
    """

    def __init__(self, plan: Plan, scratch: Scratch) -> None:
        program = interpreter_paths.bubblewrap()
        if program is None:
            raise no_bubblewrap()
        if len(plan.mounts) > bwrap.MOST:
            raise too_many(bwrap.MOST)
        empty = scratch.empty()
        try:
            plan.expected = mount_check.expect(plan, empty)
        except OSError as error:
            step = getattr(error, "step", f"look at {error.filename}")
            raise unavailable("T2", f"failed {error.errno} {step}") from None
        self._options = b"\0".join(map(os.fsencode, bwrap.options(plan, empty, admin=syscalls.is_admin())))
        words, write = os.pipe2(os.O_CLOEXEC)
        self._pipe = os.fdopen(write, "wb")
        inner = (*interpreter_paths.interpreter(), interpreter_paths.HELPER)
        try:
            self.helper = spawn(lambda control: (program, "--args", str(words), "--", *inner, str(control)), (words,))
        except BaseException:
            self.drop()
            raise
        finally:
            os.close(words)

    def go(self) -> None:
        """Let it build."""
        with contextlib.suppress(BrokenPipeError), self._pipe:  # it ended: its socket tells
            self._pipe.write(self._options)

    def drop(self) -> None:
        """Give up. After `go` too."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.close()
