"""The handler of `sqlite3`: allowlists of dot commands, SQL statements and SQL functions that only read."""

import re
from itertools import pairwise

from policy.interpreter.command_call import Call
from policy.model.abstract_word import AbstractWord, literal
from policy.model.tier import Tier
from policy.rules.rule import Role

_DOT = re.compile(
    r"\.(?:tables?|schema|indexes|indices|databases|dbinfo|fullschema|dump|headers?|mode|width|separator|nullvalue|timer|show"
    r"|help|quit|exit|stats|eqp|explain|sha3sum|print|echo|bail|changes|limit|version|dbtotxt)(?: [A-Za-z0-9_ .,%*-]*)?"
)


# A URI that only opens the file at its path for reading. With `immutable=1`, a database in WAL mode whose `-wal` and
# `-shm` files do not exist can be opened in a folder that cannot be changed.
_READING_URI = re.compile(
    r"file:(?P<path>(?!//)[A-Za-z0-9_./@+-]+)\?(?:immutable=1|mode=ro)(?:&(?:immutable=1|mode=ro))*"
)


def sqlite(call: Call) -> None:
    """Judge `sqlite3 [FLAGS] FILE [TEXT]..`. Texts are SQL or dot commands; without one, the standard input is run."""
    if len(call.words) == 1 and call.words[0].text in call.rule.alone:
        call.add_fact(Tier.READ, "only prints a text", flag=call.words[0].text or "")
        call.quiet = True
        return
    shape = call.parse()
    if shape.trouble:
        call.unknown(shape.trouble, shape.where)
        return
    file, *texts = shape.operands or [AbstractWord()]
    commands = [value for flag, value in shape.flags if flag.name in ("-cmd", "--cmd") and value is not None]
    if file.text and file.text != ":memory:":
        uri = _READING_URI.fullmatch(file.text)
        if uri is None and file.text.startswith("file:"):
            call.unknown(f"`{call.label}` with a database named by a URI", file)
        call.access_path(Role.READ, file if uri is None else literal(uri["path"], file.span))
    if texts and all(word.text is not None and _text_only_reads(word.text) for word in (*texts, *commands)):
        call.add_rule_fact(Tier.READ)
    else:
        call.runs("may change the database, or run programs", consequence=None)


def _text_only_reads(text: str) -> bool:
    dotted = text.lstrip().startswith(".")
    return _DOT.fullmatch(text) is not None if dotted else "\n." not in text and sql_only_reads(text)


_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      |(?P<string>'(?:[^']|'')*')
      |(?P<name>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])
      |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<number>[0-9][0-9.eExXa-fA-F]*)
      |(?P<end>;)
      |(?P<sign>[-+*/%=<>!|&~,.()?:@])""",
    re.VERBOSE | re.DOTALL,
)
# fmt: off
_VERBS = frozenset(("select", "with", "values", "explain", "pragma"))
_REFUSED_WORDS = frozenset((
    "insert", "update", "delete", "create", "drop", "alter", "attach", "detach", "vacuum", "reindex", "begin",
    "commit", "rollback", "savepoint", "release", "into", "returning", "load_extension", "writefile", "edit",
    "fts3_tokenizer",
))
_FUNCTIONS = frozenset((
    "abs", "avg", "cast", "changes", "char", "coalesce", "concat", "concat_ws", "count", "cume_dist", "date",
    "datetime", "dense_rank", "exists", "first_value", "format", "glob", "group_concat", "hex", "ifnull", "iif",
    "instr", "json", "json_array", "json_array_length", "json_each", "json_extract", "json_group_array",
    "json_group_object", "json_object", "json_quote", "json_tree", "json_type", "json_valid", "julianday", "lag",
    "last_insert_rowid", "last_value", "lead", "length", "like", "lower", "ltrim", "max", "median", "min",
    "nth_value", "ntile", "nullif", "octet_length", "percent_rank", "printf", "quote", "random", "rank", "replace",
    "round", "row_number", "rtrim", "sign", "sqlite_version", "strftime", "string_agg", "substr", "substring",
    "sum", "time", "timediff", "total", "total_changes", "trim", "typeof", "unhex", "unicode", "unixepoch", "upper",
    "ceil", "floor", "sqrt", "pow", "power", "mod", "exp", "ln", "log", "log10", "log2", "trunc",
))
_BEFORE_PARENTHESIS = frozenset((
    "in", "as", "and", "or", "not", "from", "join", "on", "where", "select", "values", "over", "using", "union",
    "all", "by", "when", "then", "else", "case", "between", "is", "like", "glob", "having", "except", "intersect",
    "filter", "materialized",
))
_READ_PRAGMAS = frozenset((
    "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list",
    "database_list", "integrity_check", "quick_check", "foreign_key_check", "collation_list", "compile_options",
    "function_list", "module_list", "pragma_list",
))
_VALUE_PRAGMAS = frozenset((
    "user_version", "schema_version", "application_id", "page_count", "page_size", "freelist_count", "encoding",
    "journal_mode", "foreign_keys", "auto_vacuum", "data_version", "synchronous", "cache_size",
))
# fmt: on


def sql_only_reads(text: str) -> bool:
    """Return True if every statement of `text` only reads the open database."""
    statement: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return False
        at = match.end()
        if match.lastgroup == "end":
            if not _statement_only_reads(statement):
                return False
            statement = []
        elif match.lastgroup != "space":
            statement.append((str(match.lastgroup), match[0].lower()))
    return _statement_only_reads(statement)


def _statement_only_reads(tokens: list[tuple[str, str]]) -> bool:
    if not tokens:
        return True
    words = [text for kind, text in tokens if kind == "word"]
    if tokens[0][0] != "word" or words[0] not in _VERBS or _REFUSED_WORDS & set(words):
        return False
    if words[0] == "explain":
        rest = [token for token in tokens[1:] if token[1] not in ("query", "plan")]
        return bool(rest) and _statement_only_reads(rest)
    if words[0] == "pragma":
        name = words[1] if len(words) > 1 else ""
        is_value = name in _VALUE_PRAGMAS and len(tokens) == 2
        return is_value or (name in _READ_PRAGMAS and all(text != "=" for _, text in tokens))
    # A name before a parenthesis is a function call. Quoted names, and names defined by WITH, could hide a function, so
    # they are refused.
    for (kind, text), (_, after) in pairwise(tokens):
        if after == "(" and (kind == "name" or (kind == "word" and text not in _FUNCTIONS | _BEFORE_PARENTHESIS)):
            return False
    return True
