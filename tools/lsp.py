"""The `lsp` tool: questions about code that a language server answers."""

from typing import Annotated, Literal

from pydantic import Field

from policy.model.action import QueryCode
from policy.model.verdict import Problem
from tools.arguments import PATH_CAP
from tools.paths import SeenFiles, place
from tools.text_result import TextResultTool
from tools.tool import Arguments


class LspArgs(Arguments):
    operation: Literal["definition", "references", "symbols", "workspace_symbols", "hover", "diagnostics", "rename"]
    path: Annotated[str, Field(max_length=PATH_CAP, description="A file; needed except by `workspace_symbols`.")] = ""
    line: Annotated[int, Field(ge=1, le=10**7, description="The line of the symbol, as `read` numbers it.")] | None = (
        None
    )
    symbol: Annotated[
        str,
        Field(max_length=200, description="The word on that line; alone, a symbol of the file such as `Class.method`."),
    ] = ""
    new_name: Annotated[str, Field(max_length=200, description="For `rename`.")] = ""


_AT_SYMBOL = ("definition", "references", "hover", "rename")


class LspTool(TextResultTool):
    """The only tool for language servers, because each tool costs tokens in each request."""

    name = "lsp"
    description = (
        "Ask a language server, which understands the code: where a symbol is defined or used, the symbols of a file "
        "or the workspace, the type and documentation of a symbol, errors of a file. `rename` changes a symbol in all "
        "files, each as an `edit`."
    )
    example = '{"operation": "references", "path": "src/main.py", "line": 12, "symbol": "parse"}'
    Args = LspArgs

    def plan(self, args: LspArgs, cwd: str, seen: SeenFiles) -> QueryCode | Problem:
        """Return the action, or the problem of arguments that do not belong together."""
        what = f"`{args.operation}` was not done"
        if args.operation == "workspace_symbols":
            if not args.symbol.strip():
                return Problem(what, "`symbol` is what to search for", "give a name, or a part of one")
        elif not args.path:
            return Problem(what, "it is about a file", "give its `path`")
        if args.operation in _AT_SYMBOL and not args.symbol and args.line is None:
            return Problem(what, "it is about a symbol", "give `line` and `symbol`")
        if (args.operation == "rename") is not bool(args.new_name.strip()):
            return Problem(what, "`new_name` belongs to `rename`, which needs it", "call `lsp` again")
        path = place(args.path, cwd) if args.path else ""
        if isinstance(path, Problem):
            return path
        return QueryCode(args.operation, path, args.line or 0, args.symbol.strip(), args.new_name.strip())
