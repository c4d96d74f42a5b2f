"""The language servers that are used without any configuration if their programs are installed."""

from policy.model.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """The command of one language server.

    Attributes:
        name: The name of the server, which `[language.NAME]` uses as well.
        argv: The program and its arguments.
        files: Patterns of names of files.
    """

    name: str
    argv: tuple[str, ...]
    files: tuple[str, ...]


_PYTHON = ("*.py", "*.pyi")
_SCRIPT = ("*.ts", "*.tsx", "*.mts", "*.cts", "*.js", "*.jsx", "*.mjs", "*.cjs")
_C = ("*.c", "*.h", "*.cc", "*.cpp", "*.cxx", "*.hh", "*.hpp", "*.m", "*.mm", "*.cu")

# Of several servers for a file, the first one that is installed is used.
# fmt: off
PRESETS: tuple[Preset, ...] = (
    Preset("basedpyright",          ("basedpyright-langserver", "--stdio"),        _PYTHON),
    Preset("pyright",               ("pyright-langserver", "--stdio"),             _PYTHON),
    Preset("ty",                    ("ty", "server"),                              _PYTHON),
    Preset("pylsp",                 ("pylsp",),                                    _PYTHON),
    Preset("ruff",                  ("ruff", "server"),                            _PYTHON),
    Preset("typescript",            ("typescript-language-server", "--stdio"),     _SCRIPT),
    Preset("vtsls",                 ("vtsls", "--stdio"),                          _SCRIPT),
    Preset("gopls",                 ("gopls",),                                    ("*.go",)),
    Preset("rust-analyzer",         ("rust-analyzer",),                            ("*.rs",)),
    Preset("clangd",                ("clangd",),                                   _C),
    Preset("jdtls",                 ("jdtls",),                                    ("*.java",)),
    Preset("kotlin",                ("kotlin-language-server",),                   ("*.kt", "*.kts")),
    Preset("csharp",                ("csharp-ls",),                                ("*.cs",)),
    Preset("ruby-lsp",              ("ruby-lsp",),                                 ("*.rb",)),
    Preset("solargraph",            ("solargraph", "stdio"),                       ("*.rb",)),
    Preset("intelephense",          ("intelephense", "--stdio"),                   ("*.php",)),
    Preset("phpactor",              ("phpactor", "language-server"),               ("*.php",)),
    Preset("lua",                   ("lua-language-server",),                      ("*.lua",)),
    Preset("bash",                  ("bash-language-server", "start"),             ("*.sh", "*.bash")),
    Preset("zls",                   ("zls",),                                      ("*.zig",)),
    Preset("sourcekit",             ("sourcekit-lsp",),                            ("*.swift",)),
    Preset("haskell",               ("haskell-language-server-wrapper", "--lsp"),  ("*.hs",)),
    Preset("ocaml",                 ("ocamllsp",),                                 ("*.ml", "*.mli")),
    Preset("metals",                ("metals",),                                   ("*.scala", "*.sbt")),
    Preset("elixir",                ("elixir-ls",),                                ("*.ex", "*.exs")),
    Preset("clojure",               ("clojure-lsp",),                              ("*.clj", "*.cljs", "*.cljc")),
    Preset("dart",                  ("dart", "language-server"),                   ("*.dart",)),
    Preset("terraform",             ("terraform-ls", "serve"),                     ("*.tf", "*.tfvars")),
    Preset("nil",                   ("nil",),                                      ("*.nix",)),
    Preset("yaml",                  ("yaml-language-server", "--stdio"),           ("*.yaml", "*.yml")),
    Preset("json",                  ("vscode-json-language-server", "--stdio"),    ("*.json", "*.jsonc")),
    Preset("html",                  ("vscode-html-language-server", "--stdio"),    ("*.html",)),
    Preset("css",                   ("vscode-css-language-server", "--stdio"),     ("*.css", "*.scss", "*.less")),
    Preset("marksman",              ("marksman", "server"),                        ("*.md",)),
)
# fmt: on

# SOURCE: LSP 3.17, TextDocumentItem: names of languages. Other files have their extension as the name.
_LANGUAGES = {
    "py": "python", "pyi": "python", "ts": "typescript", "mts": "typescript", "cts": "typescript",
    "tsx": "typescriptreact", "js": "javascript", "mjs": "javascript", "cjs": "javascript", "jsx": "javascriptreact",
    "rs": "rust", "cc": "cpp", "cxx": "cpp", "hh": "cpp", "hpp": "cpp", "h": "c", "m": "objective-c",
    "mm": "objective-cpp", "cu": "cuda", "kt": "kotlin", "kts": "kotlin", "cs": "csharp", "rb": "ruby",
    "sh": "shellscript", "bash": "shellscript", "hs": "haskell", "ml": "ocaml", "mli": "ocaml.interface",
    "ex": "elixir", "exs": "elixir", "clj": "clojure", "cljs": "clojure", "cljc": "clojure", "tf": "terraform",
    "tfvars": "terraform-vars", "yml": "yaml", "md": "markdown",
}  # fmt: skip


def language_of(path: str) -> str:
    """Return the name of the language of a file for a language server."""
    extension = path.rpartition("/")[2].rpartition(".")[2].lower()
    return _LANGUAGES.get(extension, extension or "plaintext")
