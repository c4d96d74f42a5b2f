"""The program `agent` with every writing command on a layer of its own, for the escape attempts: `layered_agent.py ARGS`.

Its helper has run another command before, so that the layer is one that took the place of an earlier one. The changes in
the layer are listed and then discarded, so an attempt that shows in the workspace got through the overlay. A command for which there is no layer fails the run, so that no attempt counts as contained without one.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tests.support.long_deadlines  # noqa: F401  # before all modules of the program
from policy.model.action import RunArgv, RunScript
from policy.model.verdict import _MINT, Permit, Rights
from ringfence import main
from sandbox.backend import Outcome
from sandbox.inside import safe_rmtree
from sandbox.linux.backend import Linux
from sandbox.workspace.layer import new_layer, read_layer

_directly = Linux.run


async def _on_layer(self: Linux, permit: Permit, **told: Any) -> Outcome:
    terms = permit.terms
    writes = terms.rights is Rights.WORKSPACE_WRITE and isinstance(permit.action, RunScript | RunArgv)
    if not writes or told.get("layer") is not None:
        return await _directly(self, permit, **told)
    place = tempfile.mkdtemp(prefix="layers-", dir=Path(terms.workspace).parent)
    try:
        if why := await self.layered(terms, place):
            raise RuntimeError(f"there is no layer: {why}")
        self.files = True  # a helper for several commands
        first = Permit(RunArgv(("/bin/true",), terms.workspace), terms, _MINT)
        await _directly(self, first, layer=new_layer(terms.workspace, place))
        layer = new_layer(terms.workspace, place)
        outcome = await _directly(self, permit, **{**told, "layer": layer})
        read_layer(layer)
        return outcome
    finally:
        safe_rmtree.remove(place)


if __name__ == "__main__":
    Linux.run = _on_layer  # type: ignore[method-assign]  # the program itself uses layers only where its user wants that
    sys.exit(main())
