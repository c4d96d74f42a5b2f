"""The network record of one command: every attempt, the number of bytes, and the errors that refuse a request."""

import time

from sandbox.backend import Connection, Violation

ATTEMPTS = 4096  # connections that one command may make
UP, DOWN = 2 << 30, 32 << 30  # bytes that one command may send and receive


class EgressRefused(Exception):
    """The error for a request that no rule allows.

    Attributes:
        what: One sentence without a full stop.
        fix: An action for the user.
        right: The smallest allowlist entry that would allow the request; empty if none does.
        host: The host of the request.
    """

    def __init__(self, what: str, *, fix: str = "", right: str = "", host: str = "", status: int = 403) -> None:
        super().__init__(what)
        self.what, self.right, self.host, self.status = what, right, host, status
        usual = f"the user can allow `{right}` by `agent exec --host` or a rule with `host`"
        self.fix = fix or (usual if right else "no allowlist entry can allow this")


class Malformed(EgressRefused):
    """The error for a request that is invalid, or that two programs may read in two ways."""

    def __init__(self, what: str, status: int = 400) -> None:
        super().__init__(what, status=status)


class Failed(EgressRefused):
    """The error for an allowed request for which the network failed."""

    def __init__(self, what: str, *, host: str = "", fix: str = "", status: int = 502) -> None:
        super().__init__(what, host=host, fix=fix, status=status)


class Attempt:
    """One connection of a command. `moved` is the time of its last data, by `time.monotonic`."""

    def __init__(self, ledger: "Ledger") -> None:
        self.ledger = ledger
        self.host, self.port, self.asked, self.address = "", 0, "", ""
        self.credential = ""
        self.up = self.down = 0
        self.error: EgressRefused | None = None
        self.started = self.moved = time.monotonic()
        self.seconds = -1.0

    def sends(self, size: int) -> None:
        """Count `size` outgoing bytes. Raises EgressRefused above the limit of one command."""
        self.moved = time.monotonic()
        self.up += size
        self.ledger.up += size
        if self.ledger.up > UP:
            raise EgressRefused(f"the command has sent more than {UP >> 30} GiB", host=self.host)

    def receives(self, size: int) -> None:
        self.moved = time.monotonic()
        self.down += size
        self.ledger.down += size
        if self.ledger.down > DOWN:
            raise EgressRefused(f"the command has received more than {DOWN >> 30} GiB", host=self.host)

    def end(self, error: EgressRefused | None) -> None:
        """Set the end of the attempt. Later calls have no effect."""
        if self.seconds < 0:
            self.seconds = time.monotonic() - self.started
            self.error = error

    def connection(self) -> Connection:
        self.end(None)
        error = self.error
        allowed = error is None or isinstance(error, Failed)
        why = error.what if error else ""
        return Connection(
            *(self.host, self.port, self.asked, self.address, allowed, why, self.up, self.down),
            *(round(self.seconds, 6), self.credential),
        )


class Ledger:
    """The attempts of one command."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.excess_attempts = 0  # attempts above ATTEMPTS, which were closed at once
        self.up = self.down = 0

    def attempt(self) -> Attempt | None:
        """Return a new attempt; None if the command has made as many as it may."""
        if len(self.attempts) >= ATTEMPTS:
            self.excess_attempts += 1
            return None
        self.attempts.append(Attempt(self))
        return self.attempts[-1]

    def connections(self, *, so_far: bool = False) -> tuple[Connection, ...]:
        """Return the connections, and end those that are open. With `so_far`, return only those that have ended."""
        connections = tuple(each.connection() for each in self.attempts if not so_far or each.seconds >= 0)
        if self.excess_attempts:
            why = f"{self.excess_attempts} more were closed: a command may make {ATTEMPTS} connections"
            connections += (Connection("", 0, "", "", False, why, 0, 0, 0.0),)
        return connections

    def violations(self) -> tuple[Violation, ...]:
        """Return the refused attempts, each once, in the order of their first time. They are exact, not inferred."""
        violations: dict[str, Violation] = {}
        for attempt in self.attempts:
            error = attempt.error
            if error is not None and not isinstance(error, Failed):
                right = f"--host {error.right}" if error.right else ""
                refusal = Violation(error.what, error.host, error.fix, False, "proxy", right)
                violations.setdefault(error.what, refusal)
        if self.excess_attempts:
            what = f"the command made more than {ATTEMPTS} connections; "
            what += f"the last {self.excess_attempts} were closed at once"
            violations[what] = Violation(what, "", "make fewer connections, or use several commands", False, "proxy")
        return tuple(violations.values())
