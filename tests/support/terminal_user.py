"""A person who answers questions at a pseudo-terminal."""


class ScriptedUser:
    """Types the given lines; an exception in their place is raised."""

    def __init__(self, *lines: str | BaseException) -> None:
        self._lines = list(lines)

    async def __call__(self, prompt: str) -> str:
        line = self._lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        return line
