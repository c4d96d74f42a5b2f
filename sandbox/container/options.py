"""The configuration of the container sandbox. A separate module, because every start reads it."""

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """The table `[sandbox.container]`: the pinned image, the daemon's runtime and its socket. Empty values are not
    set.
    """

    image: str = ""
    runtime: str = ""
    socket: str = ""
