"""Removal of repeated text at the point where a model continues an answer that broke off.

The model is asked to begin with the last words that arrived, which shows whether a word was cut in the middle. Repeated
text is removed. The text of a model that repeats nothing stays complete.
"""

REMEMBERED = 4000  # characters that are looked through for what comes again
_LEAST = 20  # characters that are no coincidence
_WORDS = 80  # characters, about, that a model is asked to begin with


def last_words(text: str) -> str:
    """Return the end of `text`, from the beginning of a word."""
    end = text[-_WORDS:]
    if len(text) > len(end) and (begin := end.find(" ")) >= 0:
        end = end[begin + 1 :]
    return end.strip()


class OverlapFilter:
    """A filter for the pieces of an answer that continues after the text `before`."""

    def __init__(self, before: str) -> None:
        self._tail = before[-REMEMBERED:].rstrip()
        self._blank = before[len(before.rstrip()) :]  # it was shown as well
        self._held = ""
        self._open = bool(self._tail)

    def feed(self, text: str) -> str:
        """Add `text` and return the text that may be shown now. Text that may be a repetition is held back."""
        if not self._open:
            return text
        self._held += text
        if self._held.strip() and self._held.strip() not in self._tail:
            return self.end()
        return ""

    def end(self) -> str:
        """Return the text that was held back, without the repetition."""
        held, self._held, self._open = self._held, "", False
        said = held.lstrip()
        least = min(_LEAST, len(self._tail)) if self._tail else len(said) + 1
        for size in range(min(len(said), len(self._tail)), least - 1, -1):
            if self._tail.endswith(said[:size]):
                rest = said[size:]
                return (
                    rest[len(self._blank) :] if rest.startswith(self._blank) else rest.lstrip() if self._blank else rest
                )
        return held
