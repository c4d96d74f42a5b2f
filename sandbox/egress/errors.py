"""Why the proxy does not do what it was asked, in the words that the command, the model and the record all get."""


class Refused(Exception):
    """`what`: one sentence without a full stop. `fix`: what a person could do, or empty. `right`: the smallest entry of
    an allowlist that would have let it through, or empty where none does. `host`: whom it is about."""

    def __init__(self, what: str, *, fix: str = "", right: str = "", host: str = "", status: int = 403) -> None:
        super().__init__(what)
        self.what, self.fix, self.right, self.host, self.status = what, fix, right, host, status


class Malformed(Refused):
    """A request that is no request, or one that two programs may read in two ways."""

    def __init__(self, what: str, status: int = 400) -> None:
        super().__init__(what, status=status)


class Failed(Refused):
    """Nothing forbids it; the network did not do it."""

    def __init__(self, what: str, *, host: str = "", fix: str = "", status: int = 502) -> None:
        super().__init__(what, host=host, fix=fix, status=status)
