"""Suggestions for mistyped names."""


def nearest(text: str, names: list[str]) -> str | None:
    import difflib

    spelled = {name.casefold(): name for name in names}
    found = difflib.get_close_matches(text.casefold(), spelled, n=1)
    return f"did you mean `{spelled[found[0]]}`?" if found else None
