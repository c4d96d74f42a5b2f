"""What a person configured of the container sandbox. A module of its own, since every start reads it."""

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Choice:
    """`[sandbox.container]`: the pinned image, the daemon's runtime and its socket. Empty: not said."""

    image: str = ""
    runtime: str = ""
    socket: str = ""
