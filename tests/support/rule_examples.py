"""The packaged rules of commands with their examples."""

from importlib.resources import files

from policy.rules.rulebook import RuleBook, parse_examples

FILES = {
    item.name: item.read_text() for item in (files("policy") / "commands").iterdir() if item.name.endswith(".toml")
}


BOOK = RuleBook(FILES)


EXAMPLES = [example for name, text in sorted(FILES.items()) for example in parse_examples(text, name)]
