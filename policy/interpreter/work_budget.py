"""The bound on the work of one decision. Scripts are short; a script that exhausts the budget is written to delay the
gate.
"""

MOST = 25_000  # about as many microseconds, on the machines of today
MOST_AFTER = 5_000  # for looking over what was not judged


class TooMuchError(Exception):
    """The error for an exhausted budget. `classify` turns it into a question; nothing else catches it."""


class Budget:
    """A count of work, not of time, so that the same script always gets the same answer.

    INVARIANT: every loop of a decision whose length a script can choose spends budget before each round, or iterates
    over data that the parser has counted.
    """

    __slots__ = ("left",)

    def __init__(self, most: int = MOST) -> None:
        self.left = most

    def spend(self, steps: int) -> None:
        """Subtract `steps`. Raises TooMuchError if fewer are left."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchError
