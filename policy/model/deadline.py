"""Deadlines: the seconds after which this program treats another process, task, server or kernel as failed or slow.

A deadline is short for the sake of the user who waits. On a machine with much more work than processors it would be
crossed although nothing failed. Tests run on such machines: the program of a test raises all deadlines by a factor
before it imports the modules that have them. No variable, argument or file of the user changes the factor, because an
attacker could set it. Intervals, ages, and times in which a key is ignored are not deadlines.
"""

_factor = 1.0
_read = False  # True after the first deadline


def deadline(seconds: float) -> float:
    """Return the time after which something that did not answer has failed, given the seconds for a quiet machine."""
    global _read
    _read = True
    return seconds * _factor


def stretch(factor: float) -> None:
    """Multiply all deadlines by a factor of at least 1. Only the programs of tests call this function.

    Raise RuntimeError if a module has read a deadline already, because that one would stay short.
    """
    global _factor
    if factor < 1:
        raise ValueError("a deadline is never shorter than the program says")
    if _read:
        raise RuntimeError("a module with deadlines was imported before")
    _factor = float(factor)
