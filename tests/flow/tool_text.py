"""The text of a result, as both benchmarks show it to a model."""

from typing import Any

import yaml
from pydantic import BaseModel


def result_text(result: Any) -> str:
    """Return `result` as YAML, or as it is if it is a text."""
    return result if isinstance(result, str) else yaml.safe_dump(_plain(result), default_flow_style=False)


def _plain(value: Any) -> Any:
    match value:
        case BaseModel():
            return value.model_dump(mode="json")
        case list() | tuple():
            return [_plain(each) for each in value]
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case str() | int() | float() | bool() | None:
            return value
        case _:
            return str(value)
