"""PyYAML's parser in C for the benchmarks, whose environments are large YAML texts."""

import yaml


def use_fast_yaml() -> None:
    """Let `yaml.safe_load` use the parser in C from now on. Without that parser, nothing changes."""
    loader = getattr(yaml, "CSafeLoader", None)
    if loader is not None:
        yaml.safe_load = lambda text: yaml.load(text, loader)
