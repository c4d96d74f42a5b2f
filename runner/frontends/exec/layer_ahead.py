"""The folders of a transaction of `agent exec`, made before its helper is launched, so that one helper is enough."""

import os

from policy.model.verdict import Terms
from runner.changes.transaction.place import MadeAhead
from runner.config.settings import Settings
from runner.state.paths import cache_dir, state_dir
from sandbox.linux.layer_probe import has_worked


def folders_ahead(settings: Settings, terms: Terms, backend: str | None, *, always: bool) -> MadeAhead | None:
    """Return the folders for a command that may write the workspace. The caller closes them.

    With `always` the command runs as a transaction whatever the configuration says.

    Return None if the command will not run as a transaction, or if it is not known yet whether it can: then a second
    helper is started once it is known.
    """
    # The default is on; `value` would load the table of keys to tell that.
    wanted = always or settings.values.get(("sandbox", "transactions")) is not False
    wanted = wanted and backend in (None, "T1")
    state, cache = state_dir(os.environ), cache_dir(os.environ)
    if not wanted or terms.writable or not has_worked(terms.workspace, str(state / "transactions"), cache):
        return None
    try:
        return MadeAhead(state, terms.workspace)
    except OSError:
        return None  # reported when the command starts
