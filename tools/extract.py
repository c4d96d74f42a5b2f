"""The tool `extract`: a reader without tools reads a text in place of the model, and answers with checked values."""

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from policy.model.action import FetchAddress, ReadFile
from policy.model.verdict import Problem
from tools.arguments import PATH_CAP
from tools.paths import SeenFiles
from tools.read import ReadArgs, ReadTool
from tools.tool import Arguments, Finished, Keep, ResultPart
from tools.web import WebFetchArgs, WebFetchTool

_MOST_FIELDS = 20
_LINES = 20_000
_TYPES = "choice (one of `choices`), number, boolean, id (letters, digits and ._:/#@+- only, by `pattern`), path, text"


class ExtractField(Arguments):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$", description="The name of the value.")]
    type: Annotated[Literal["choice", "number", "boolean", "id", "path", "text"], Field(description=_TYPES)]
    about: Annotated[str, Field(max_length=300, description="What the value is.")] = ""
    choices: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=50)] = Field(default_factory=list)
    pattern: Annotated[str | None, Field(max_length=200, description="A regular expression for the whole id.")] = None


class ExtractArgs(Arguments):
    path: Annotated[str | None, Field(max_length=PATH_CAP, description="The file to read; or `url`.")] = None
    url: Annotated[str | None, Field(max_length=8000, description="The page to read; or `path`.")] = None
    question: Annotated[str, Field(min_length=1, max_length=2000, description="What to find in the text.")]
    fields: Annotated[list[ExtractField], Field(min_length=1, max_length=_MOST_FIELDS)]

    @classmethod
    @cache
    def schema_for_model(cls) -> dict[str, object]:
        """Return the JSON Schema with the fields in their place."""
        whole = super().schema_for_model()
        properties = whole["properties"]
        assert isinstance(properties, dict)  # the schema of an object
        fields = {"type": "array", "items": ExtractField.schema_for_model(), "description": "The values to find."}
        return {**whole, "properties": {**properties, "fields": fields}}


class ExtractTool:
    """The quarantined reader. Its action is that of the tool `read` or `web_fetch`, and is judged like it."""

    name = "extract"
    description = (
        "Let a reader without tools answer questions about a page or a file that strangers wrote, without its text "
        "entering this conversation. The values are checked: a choice, number, boolean, id or existing path does not "
        "make the conversation untrusted; a text does."
    )
    example = (
        '{"url": "https://example.org/", "question": "Which version is the latest?", '
        '"fields": [{"name": "version", "type": "id", "pattern": "[0-9.]+"}]}'
    )
    Args = ExtractArgs

    def plan(self, args: ExtractArgs, cwd: str, seen: SeenFiles) -> ReadFile | FetchAddress | Problem:
        """Return the action that reads the text."""
        what = "nothing was read"
        if (args.path is None) == (args.url is None):
            return Problem(what, "exactly one of `path` and `url` is needed", "give one of them")
        names = [field.name for field in args.fields]
        if len(set(names)) < len(names):
            return Problem(what, "two fields have the same name", "give each field a name of its own")
        for field in args.fields:
            if (field.type == "choice") is not bool(field.choices):
                return Problem(
                    what, f"`{field.name}` needs `choices` exactly if its type is choice", "correct the field"
                )
        if args.url is not None:
            return WebFetchTool().plan(WebFetchArgs(url=args.url), cwd, seen)
        return ReadTool().plan(ReadArgs(path=args.path or "", limit=_LINES), cwd, seen)

    def render(
        self, action: Any, finished: Finished, seen: SeenFiles, *, keep: Keep | None = None
    ) -> tuple[ResultPart, ...]:
        """Return the text for the reader. The engine replaces it by the checked values before the model gets it."""
        if isinstance(action, ReadFile):
            return ReadTool().render(action, finished, SeenFiles())
        return WebFetchTool().render(action, finished, SeenFiles())
