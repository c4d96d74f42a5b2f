"""The exact set of columns, constraints, indexes, triggers and rules of a log's tables in a database.

Who owns the tables, or runs the server, can put a rule, a policy for rows or a view in the way of what is selected,
or take rows out of an index; every record still holds. So all of it must be as this program makes it, and what an
index answers is compared with what the table holds.
"""

import re

import sqlalchemy as sa

from runner.audit.stores.postgres_rights import functions

_TABLES = ("ringfence_logs", "ringfence_records")
_OIDS = "ARRAY['ringfence_logs'::regclass, 'ringfence_records'::regclass]::oid[]"
_NO_INDEX = ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan")
# fmt: off
# Each is a list of texts, in which the schema's name is left out.
_FOUND = {
    "table": """
        SELECT concat_ws(' ', relname, relkind, relpersistence, relispartition, relhassubclass, relhasrules,
                         relrowsecurity, relforcerowsecurity, reloftype, coalesce(reloptions::text, ''))
        FROM pg_class WHERE oid = ANY(@tables@)""",
    "column": """
        SELECT concat_ws(' ', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, atthasdef,
                         attidentity, attgenerated, attcollation::regcollation)
        FROM pg_attribute WHERE attrelid = ANY(@tables@) AND attnum > 0 AND NOT attisdropped""",
    "constraint": """
        SELECT concat_ws(' ', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint
        WHERE conrelid = ANY(@tables@)""",
    "index": """
        SELECT concat_ws(' ', pg_get_indexdef(indexrelid), indisvalid, indisready, indislive)
        FROM pg_index WHERE indrelid = ANY(@tables@)""",
    "trigger": """
        SELECT concat_ws(' ', tgenabled, pg_get_triggerdef(oid)) FROM pg_trigger
        WHERE tgrelid = ANY(@tables@) AND NOT tgisinternal""",
    "rule": "SELECT concat_ws(' ', ev_class::regclass, rulename) FROM pg_rewrite WHERE ev_class = ANY(@tables@)",
    "policy": "SELECT concat_ws(' ', polrelid::regclass, polname) FROM pg_policy WHERE polrelid = ANY(@tables@)",
    "parent": """
        SELECT concat_ws(' ', inhrelid::regclass, inhparent::regclass) FROM pg_inherits
        WHERE inhrelid = ANY(@tables@) OR inhparent = ANY(@tables@)""",
}
_TEXTS = ("kind", "time", "session", "verdict", "mode", "tool", "name")
_MADE = {
    "table": {f"{name} r p f f f f f 0 " for name in _TABLES},
    "column": {
        "ringfence_logs number integer t t   -",  # its default is a sequence of the same name
        "ringfence_logs last bigint t f   -",
        "ringfence_logs schema integer t f   -",
        *(f'ringfence_logs {name} text t f   "default"' for name in ("name", "hash")),
        "ringfence_records id bigint t f   -",
        *(f'ringfence_records {name} text t f   "default"' for name in ("body", "hash")),
        *(f'ringfence_records {name} text f f   "default"' for name in _TEXTS),
        *(f'ringfence_records {name} text[] f f   "default"' for name in ("tiers", "rules")),
        "ringfence_records decided bigint f f   -",
    },
    "constraint": {"ringfence_logs PRIMARY KEY (number)", "ringfence_records PRIMARY KEY (id)"},
    "index": {f"CREATE {text} t t t" for text in (
        "UNIQUE INDEX ringfence_logs_pkey ON ringfence_logs USING btree (number)",
        "UNIQUE INDEX ringfence_records_pkey ON ringfence_records USING btree (id)",
        "INDEX ringfence_by_outcome ON ringfence_records USING btree (decided) WHERE (decided IS NOT NULL)",
        "INDEX ringfence_by_denial ON ringfence_records USING btree (id) WHERE (verdict = 'deny'::text)",
        "INDEX ringfence_by_name ON ringfence_records USING btree (name) WHERE (name IS NOT NULL)",
        "INDEX ringfence_by_mark ON ringfence_records USING btree (id)"
        " WHERE (kind = ANY (ARRAY['checkpoint'::text, 'tombstone'::text]))",
    )},
    "trigger": {
        "O CREATE TRIGGER ringfence_fence BEFORE DELETE OR UPDATE OR TRUNCATE ON ringfence_records"
        " FOR EACH STATEMENT EXECUTE FUNCTION ringfence_append_only()"
    },
    "rule": set(), "policy": set(), "parent": set(),
}
# What the indexes are for: the number of the rows that one answers, and a sum over them. The condition is that of the
# index alone, so that no other index is a way to the answer.
_ANSWERS = (
    ("ringfence_by_denial", "SELECT count(*), sum(id) FROM ringfence_records WHERE verdict = 'deny'"),
    ("ringfence_by_mark", "SELECT count(*), sum(id) FROM ringfence_records WHERE kind IN ('checkpoint', 'tombstone')"),
    ("ringfence_by_outcome", "SELECT count(*), sum(decided) FROM ringfence_records WHERE decided IS NOT NULL"),
    ("ringfence_by_name", "SELECT count(*), sum(hashtext(name)) FROM ringfence_records WHERE name IS NOT NULL"),
    ("ringfence_records_pkey", "SELECT count(*), sum(id) FROM ringfence_records WHERE id > 0"),
)
# fmt: on


def replaced(connection: sa.Connection) -> str:
    """Name a view, or whatever else is no plain table, that stands under the name of one of ours; else empty."""
    query = f"SELECT relname FROM pg_class WHERE oid = ANY({_OIDS}) AND relkind <> 'r'"  # noqa: S608  # a constant
    found = connection.exec_driver_sql(query).scalars().first()
    return f"its table `{found}` is none that this program makes" if found else ""


def unlike(connection: sa.Connection) -> str:
    """Say what of the tables this program did not make, or which index answers something else; empty when nothing."""
    schema = str(
        connection.exec_driver_sql(
            "SELECT quote_ident(nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
            " WHERE c.oid = 'ringfence_records'::regclass"
        ).scalar_one()
    )
    for kind, query in _FOUND.items():
        rows = connection.exec_driver_sql(query.replace("@tables@", _OIDS)).scalars()
        found = {re.sub(rf"(?<![\w.\"]){re.escape(schema)}\.", "", str(row)) for row in rows}
        for odd in sorted(found - _MADE[kind]):
            return f"its {kind} `{odd[:160].strip()}` is none that this program makes"
        for missing in sorted(_MADE[kind] - found):
            return f"its {kind} `{missing[:160].strip()}` is missing"
    return _functions(connection, schema) or _answers(connection)


def _functions(connection: sa.Connection, schema: str) -> str:
    """Name the functions of the schema that were changed. A log of an earlier version may lack some."""
    rows = connection.exec_driver_sql(
        "SELECT proname::text, trim(prosrc), prosecdef, coalesce(array_to_string(proconfig, ','), ''),"
        " proowner = (SELECT relowner FROM pg_class WHERE oid = 'ringfence_records'::regclass)"
        " FROM pg_proc WHERE pronamespace ="
        " (SELECT relnamespace FROM pg_class WHERE oid = 'ringfence_records'::regclass) AND proname LIKE 'ringfence%%'"
    )
    fixed = "search_path=pg_catalog, pg_temp,lock_timeout=5s"
    made = {name: (source.strip(), True, fixed, True) for name, (source, _) in functions(schema).items()} | {
        "ringfence_append_only": ("BEGIN RAISE EXCEPTION 'the audit log is append-only'; END", False, "", True)
    }
    for name, source, *rest in rows:
        if made.get(name) != (source.strip(), *rest):
            return f"its function `{name}` is none that this program makes"
    return ""


def _answers(connection: sa.Connection) -> str:
    """Which index does not answer what the table holds."""
    for index, query in _ANSWERS:
        counted = []
        for off in (("enable_seqscan",), _NO_INDEX):
            for name in ("enable_seqscan", *_NO_INDEX):
                connection.exec_driver_sql(f"SET LOCAL {name} = {'off' if name in off else 'on'}")
            counted.append(tuple(connection.exec_driver_sql(query).one()))
        if counted[0] != counted[1]:
            return f"its index `{index}` does not hold what its table does"
    return ""
