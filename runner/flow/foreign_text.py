"""Texts of strangers inside the words of the user, such as the text of an issue in the prompt of a workflow."""

_SHORTEST = 4  # characters of a line that is compared

StrangersText = tuple[str, str]  # the source in words, and the text


def without_texts(prompt: str, texts: tuple[StrangersText, ...]) -> tuple[str, tuple[StrangersText, ...]]:
    """Return `prompt` without the texts of strangers, and those of `texts` that it contained."""
    own, found = prompt.replace("\r\n", "\n"), []
    for words, text in texts:
        text = text.replace("\r\n", "\n")
        lines = {line.strip() for line in text.split("\n") if len(line.strip()) >= _SHORTEST}
        kept = [line for line in own.replace(text, "\n").split("\n") if line.strip() not in lines]
        less = "\n".join(kept)
        if less != own:
            found.append((words, text))
            own = less
    return own, tuple(found)
