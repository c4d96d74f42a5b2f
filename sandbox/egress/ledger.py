"""The network record of one command: every attempt, the number of bytes, and the refusals in words."""

import time

from sandbox.backend import Connection, Violation
from sandbox.egress.errors import Failed, Refused

ATTEMPTS = 4096  # that one command may make
UP, DOWN = 2 << 30, 32 << 30  # bytes that one command may send and receive


class Attempt:
    """One connection while it lives. `moved`: when something last went through, by `time.monotonic`."""

    __slots__ = (
        "address",
        "asked",
        "credential",
        "down",
        "error",
        "host",
        "ledger",
        "moved",
        "port",
        "seconds",
        "started",
        "up",
    )

    def __init__(self, ledger: "Ledger") -> None:
        self.ledger = ledger
        self.host, self.port, self.asked, self.address = "", 0, "", ""
        self.credential = ""
        self.up = self.down = 0
        self.error: Refused | None = None
        self.started = self.moved = time.monotonic()
        self.seconds = -1.0

    def sends(self, size: int) -> None:
        """Count `size` outgoing bytes. Raises Refused above the limit of one command."""
        self.moved = time.monotonic()
        self.up += size
        self.ledger.up += size
        if self.ledger.up > UP:
            raise Refused(f"the command has sent more than {UP >> 30} GB", host=self.host)

    def receives(self, size: int) -> None:
        self.moved = time.monotonic()
        self.down += size
        self.ledger.down += size
        if self.ledger.down > DOWN:
            raise Refused(f"the command has received more than {DOWN >> 30} GB", host=self.host)

    def end(self, error: Refused | None) -> None:
        """Set the end of the attempt. Later calls have no effect."""
        if self.seconds < 0:
            self.seconds = time.monotonic() - self.started
            self.error = error

    def told(self) -> Connection:
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
        self.beyond = 0  # attempts past the most, which were closed unheard
        self.up = self.down = 0

    def attempt(self) -> Attempt | None:
        """Return a new attempt; None if the command has made as many as it may."""
        if len(self.attempts) >= ATTEMPTS:
            self.beyond += 1
            return None
        self.attempts.append(Attempt(self))
        return self.attempts[-1]

    def connections(self) -> tuple[Connection, ...]:
        found = tuple(attempt.told() for attempt in self.attempts)
        if self.beyond:
            why = f"{self.beyond} more: a command may make {ATTEMPTS}"
            found += (Connection("", 0, "", "", False, why, 0, 0, 0.0),)
        return found

    def violations(self) -> tuple[Violation, ...]:
        """Return the refused attempts, each once, in the order of their first time. They are exact, not inferred."""
        found: dict[str, Violation] = {}
        for attempt in self.attempts:
            error = attempt.error
            if error is not None and not isinstance(error, Failed):
                found.setdefault(error.what, _refusal(error))
        if self.beyond:
            what = f"more than {ATTEMPTS} connections were made; the last {self.beyond} were closed unheard"
            found[what] = Violation(what, "", "connect less often, or in several commands", False, "proxy")
        return tuple(found.values())


def _refusal(error: Refused) -> Violation:
    right = f"--host {error.right}" if error.right else ""
    return Violation(error.what, error.host, fix(error), False, "proxy", right)


def fix(error: Refused) -> str:
    """Return an action for the user."""
    if error.fix:
        return error.fix
    if error.right:
        return f"a person could allow `{error.right}`, by `agent exec --host` or a rule with `host`"
    return "no entry of an allowlist opens this"
