"""The errors with which the proxy refuses a request, in the words that the command, the model and the record get."""


class Refused(Exception):
    """The error for a request that no rule allows.

    Attributes:
        what: One sentence without a full stop.
        fix: An action for the user, or empty.
        right: The smallest allowlist entry that would allow the request; empty if none does.
        host: The host of the request.
    """

    def __init__(self, what: str, *, fix: str = "", right: str = "", host: str = "", status: int = 403) -> None:
        super().__init__(what)
        self.what, self.fix, self.right, self.host, self.status = what, fix, right, host, status


class Malformed(Refused):
    """The error for a request that is invalid, or that two programs may read in two ways."""

    def __init__(self, what: str, status: int = 400) -> None:
        super().__init__(what, status=status)


class Failed(Refused):
    """The error for an allowed request for which the network failed."""

    def __init__(self, what: str, *, host: str = "", fix: str = "", status: int = 502) -> None:
        super().__init__(what, host=host, fix=fix, status=status)
