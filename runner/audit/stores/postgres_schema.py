"""Schema of a log in a database: its exact columns, constraints, indexes, triggers and rules, and its functions and
rights.

The schema must be exactly as this program creates it, and the answers of an index are compared with the table. The
owner of the tables, or the administrator of the server, can add a rule, a row policy or a view that hides records, or
remove rows from an index, although every record is valid.

The functions are the only way for a machine to append. A role that may INSERT and UPDATE could use numbers in advance,
change the head, or add invalid checkpoints, and so stop the recording of every machine. Therefore machines get SELECT
and two functions, which run with the rights of the owner: one locks the head, the other checks a record, computes its
hash and its index columns, and appends it.

SOURCE: PostgreSQL's documentation, "Writing SECURITY DEFINER Functions Safely".
"""

import re

import sqlalchemy as sa

_TABLES = ("ringfence_logs", "ringfence_records")
_OIDS = "ARRAY['ringfence_logs'::regclass, 'ringfence_records'::regclass]::oid[]"
_SCHEMA_NAME = (  # quoted
    "SELECT quote_ident(n.nspname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.oid = 'ringfence_records'::regclass"
)
_OF_SCHEMA = (
    "FROM pg_proc WHERE pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'ringfence_records'::regclass)"
)
_NO_INDEX = ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan")
# fmt: off
# Queries of the catalog by kind of object. Each returns texts, from which the name of the schema is removed.
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
# For each index, a query that counts and sums the rows in it. Its condition is that of this index, so that PostgreSQL
# cannot use another index.
_ANSWERS = (
    ("ringfence_by_denial", "SELECT count(*), sum(id) FROM ringfence_records WHERE verdict = 'deny'"),
    ("ringfence_by_mark", "SELECT count(*), sum(id) FROM ringfence_records WHERE kind IN ('checkpoint', 'tombstone')"),
    ("ringfence_by_outcome", "SELECT count(*), sum(decided) FROM ringfence_records WHERE decided IS NOT NULL"),
    ("ringfence_by_name", "SELECT count(*), sum(hashtext(name)) FROM ringfence_records WHERE name IS NOT NULL"),
    ("ringfence_records_pkey", "SELECT count(*), sum(id) FROM ringfence_records WHERE id > 0"),
)
# fmt: on


def find_replaced_table(connection: sa.Connection) -> str:
    """Return a description of a view, or another object that is not a plain table, with the name of a table of the log;
    else empty.
    """
    query = f"SELECT relname FROM pg_class WHERE oid = ANY({_OIDS}) AND relkind <> 'r'"  # noqa: S608  # a constant
    found = connection.exec_driver_sql(query).scalars().first()
    return f"its table `{found}` was not made by this program" if found else ""


def find_schema_fault(connection: sa.Connection) -> str:
    """Return a description of the first object that this program did not create, or of a wrong index; empty if there is
    none.
    """
    schema = str(connection.exec_driver_sql(_SCHEMA_NAME).scalar_one())
    for kind, query in _FOUND.items():
        rows = connection.exec_driver_sql(query.replace("@tables@", _OIDS)).scalars()
        found = {re.sub(rf"(?<![\w.\"]){re.escape(schema)}\.", "", str(row)) for row in rows}
        for odd in sorted(found - _MADE[kind]):
            return f"its {kind} `{odd[:160].strip()}` was not made by this program"
        for missing in sorted(_MADE[kind] - found):
            return f"its {kind} `{missing[:160].strip()}` is missing"
    return _find_changed_function(connection, schema) or _find_wrong_index(connection)


def _find_changed_function(connection: sa.Connection, schema: str) -> str:
    """Return a description of a changed function; empty if there is none. A log of an earlier version may lack some."""
    rows = connection.exec_driver_sql(
        "SELECT proname::text, trim(prosrc), prosecdef, coalesce(array_to_string(proconfig, ','), ''),"  # noqa: S608  # constants only
        " proowner = (SELECT relowner FROM pg_class WHERE oid = 'ringfence_records'::regclass)"
        f" {_OF_SCHEMA} AND proname LIKE 'ringfence%%'"
    )
    fixed = "search_path=pg_catalog, pg_temp,lock_timeout=5s"
    made = {name: (source.strip(), True, fixed, True) for name, (source, _) in functions(schema).items()} | {
        "ringfence_append_only": ("BEGIN RAISE EXCEPTION 'the audit log is append-only'; END", False, "", True)
    }
    for name, source, *rest in rows:
        if made.get(name) != (source.strip(), *rest):
            return f"its function `{name}` was not made by this program"
    return ""


def _find_wrong_index(connection: sa.Connection) -> str:
    """Return a description of an index that differs from its table; empty if there is none."""
    for index, query in _ANSWERS:
        counted = []
        for off in (("enable_seqscan",), _NO_INDEX):
            for name in ("enable_seqscan", *_NO_INDEX):
                connection.exec_driver_sql(f"SET LOCAL {name} = {'off' if name in off else 'on'}")
            counted.append(tuple(connection.exec_driver_sql(query).one()))
        if counted[0] != counted[1]:
            return f"its index `{index}` does not match its table"
    return ""


# The head is locked until the end of the transaction. An advisory lock, which is also taken, shows which role holds it.
# A role that holds it in one transaction for a whole `lock_timeout` is disconnected if the owner may do that
# (`pg_signal_backend`), and named in an error otherwise. Transactions of the owner (pruning) are not disconnected.
_HEAD = """
DECLARE
    before text[]; holder record; key integer := '@schema@.ringfence_logs'::regclass::oid::bigint::integer;
BEGIN
    FOR attempt IN 1..3 LOOP
        SELECT coalesce(array_agg(k.virtualtransaction), '{}') INTO before FROM pg_locks k
            WHERE k.locktype = 'advisory' AND k.classid = 1919512167 AND k.objid = key::oid AND k.granted;
        BEGIN
            PERFORM pg_advisory_xact_lock(1919512167, key);
            SELECT l.name, l.last, l.hash INTO STRICT log, last, hash
                FROM @schema@.ringfence_logs l WHERE l.number = 1 FOR UPDATE;
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            FOR holder IN SELECT k.pid, a.usename FROM pg_locks k JOIN pg_stat_activity a ON a.pid = k.pid
                WHERE k.locktype = 'advisory' AND k.classid = 1919512167 AND k.objid = key::oid AND k.granted
                    AND k.virtualtransaction = ANY (before) AND a.usename IS DISTINCT FROM current_user
            LOOP
                BEGIN
                    PERFORM pg_terminate_backend(holder.pid);
                EXCEPTION WHEN insufficient_privilege THEN
                    RAISE EXCEPTION 'the role % (process %) holds the log; an administrator ends that with '
                        'SELECT pg_terminate_backend(%), and for the next time with GRANT pg_signal_backend TO %',
                        holder.usename, holder.pid, holder.pid, current_user;
                END;
            END LOOP;
        END;
    END LOOP;
    RAISE EXCEPTION 'others hold the log all the time';
END
"""
# The function refuses records that would make verification or lists fail: checkpoints and tombstones (a signature
# cannot be checked here), JSON that readers cannot parse, and times in the future, which would prevent pruning of older
# records. The columns are those of `index_columns_of`: escaped backslashes are replaced first, then NUL and halves of
# surrogate pairs.
_APPEND = r"""
DECLARE
    told jsonb; bare text; nested integer := 0; listed text[]; ruled text[]; log text; last bigint; previous text;
BEGIN
    IF octet_length(body) > 16777216 OR body !~ '^[ -~]*$' THEN
        RAISE EXCEPTION 'the record is too long, or not ASCII';
    END IF;
    bare := regexp_replace(body, '"([^"\\]|\\.)*"', '', 'g');
    IF bare ~ '[0-9]{255}' THEN
        RAISE EXCEPTION 'a number in the record is too long';
    END IF;
    WHILE bare ~ '[][{}]' LOOP
        bare := regexp_replace(bare, '\[[^][{}]*\]|\{[^][{}]*\}', '', 'g');
        nested := nested + 1;
        IF nested > 64 THEN  -- readers end with an error at about a thousand levels
            RAISE EXCEPTION 'the record is nested too deeply, or is no JSON';
        END IF;
    END LOOP;
    bare := replace(replace(body, '\\', '\u005c'), '\u0000', '\ufffd');
    bare := regexp_replace(bare, '\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2})', '?', 'g');
    bare := regexp_replace(bare, '(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2}', '?', 'g');
    told := bare::jsonb;
    IF coalesce(jsonb_typeof(told->'kind'), '') <> 'string' OR told->>'kind' IN ('checkpoint', 'tombstone') THEN
        RAISE EXCEPTION 'only the owner of the log adds such a record';
    END IF;
    IF coalesce(told->>'time', '') !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,15}Z$'
            OR (told->>'time')::timestamptz > clock_timestamp() + interval '1 day' THEN
        RAISE EXCEPTION 'the time of the record lies in the future, or is none: see to the clock of this machine';
    END IF;
    IF bare::json->>'decided' !~ '^[0-9]{1,18}$' OR jsonb_typeof(told->'decided') NOT IN ('number', 'null') THEN
        RAISE EXCEPTION 'the record names no decision that can be';
    END IF;
    IF jsonb_typeof(told->'tiers') = 'array' THEN
        IF jsonb_path_exists(told, '$.tiers[*] ? (@.type() != "string")') THEN
            RAISE EXCEPTION 'a tier of the record is no text';
        END IF;
        SELECT coalesce(array_agg(tier ORDER BY place), '{}') INTO listed
            FROM jsonb_array_elements_text(told->'tiers') WITH ORDINALITY AS t(tier, place);
    END IF;
    IF jsonb_typeof(told->'reasons') = 'array' THEN
        SELECT coalesce(array_agg(rule ORDER BY first), '{}') INTO ruled FROM (
            SELECT coalesce(each->>'rule', 'None') AS rule, min(place) AS first
                FROM jsonb_array_elements(jsonb_build_array(told->'because') || (told->'reasons'))
                WITH ORDINALITY AS t(each, place)
                WHERE jsonb_typeof(each) = 'object' GROUP BY 1) AS found;
        IF EXISTS (SELECT FROM jsonb_array_elements(jsonb_build_array(told->'because') || (told->'reasons')) AS t(each)
                WHERE jsonb_typeof(each->'rule') NOT IN ('string', 'null')) THEN
            RAISE EXCEPTION 'a rule of the record is no text';
        END IF;
    END IF;
    SELECT h.log, h.last, h.hash INTO STRICT log, last, previous FROM @schema@.ringfence_head() h;
    number := last + 1;
    hash := encode(sha256(decode(previous, 'hex') || convert_to(body, 'UTF8')), 'hex');
    INSERT INTO @schema@.ringfence_records
            (id, body, hash, kind, time, session, verdict, mode, tool, tiers, rules, name, decided)
        SELECT number, body, append.hash, told->>'kind', told->>'time', @text@session@, @text@verdict@, @text@mode@,
            @text@tool@, listed, ruled, CASE WHEN told->>'kind' IN ('session', 'ended') THEN @text@session@
            ELSE @text@sha256@ END, (told->>'decided')::bigint
        FROM (SELECT ringfence_append.hash) AS append;
    UPDATE @schema@.ringfence_logs l
        SET name = CASE WHEN l.name = '' THEN left(ringfence_append.hash, 16) ELSE l.name END,
            last = ringfence_append.number, hash = ringfence_append.hash
        WHERE l.number = 1;
END
"""
TAKES_HEAD = "SELECT log, last, hash FROM ringfence_head()"
LOCKS_HEAD = "SELECT name, last, hash FROM ringfence_logs WHERE number = 1 FOR UPDATE"  # needs the right to UPDATE
_SIGNATURES = {
    "ringfence_head": ("OUT log text, OUT last bigint, OUT hash text", _HEAD),
    "ringfence_append": ("body text, OUT number bigint, OUT hash text", _APPEND),
}
# fmt: off
# Rights that only the owner needs, because with them one role can stop the recording of all machines: more than SELECT
# on a table or a column, more than USAGE of the schema, or membership in the role that owns the tables, in the role
# that owns the schema, or in a role that writes all tables. Superusers always have these rights.
_WIDE = """
SELECT CASE WHEN a.grantee = 0 THEN 'every role' ELSE 'the role `' || pg_get_userbyid(a.grantee) || '`' END
       || ' has the right ' || a.privilege_type || ' on ' || o.name
FROM (
    SELECT c.relname::text, c.relowner, c.relacl FROM pg_class c
        WHERE c.oid IN ('ringfence_records'::regclass, 'ringfence_logs'::regclass)
    UNION ALL
    SELECT 'the column ' || a.attname || ' of ' || c.relname, c.relowner, a.attacl
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.oid IN ('ringfence_records'::regclass, 'ringfence_logs'::regclass) AND NOT a.attisdropped
    UNION ALL
    SELECT 'the schema ' || n.nspname, n.nspowner, n.nspacl
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = 'ringfence_records'::regclass
    ) AS o(name, owner, acl), aclexplode(o.acl) AS a
WHERE a.privilege_type NOT IN ('SELECT', 'USAGE') AND a.grantee <> o.owner
    AND a.grantee <> (SELECT relowner FROM pg_class WHERE oid = 'ringfence_records'::regclass)
UNION
SELECT 'the role `' || r.rolname || '` has the rights of ' || pg_get_userbyid(o.oid) || ', ' || o.what
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
    LATERAL (VALUES (c.relowner, 'who owns the tables'), (n.nspowner, 'who owns the schema'),
                    (to_regrole('pg_write_all_data')::oid, 'who writes all tables')) AS o(oid, what),
    pg_roles r
WHERE c.oid = 'ringfence_records'::regclass AND r.rolcanlogin AND NOT r.rolsuper
    AND r.oid NOT IN (c.relowner, o.oid) AND pg_has_role(r.oid, o.oid, 'MEMBER')
ORDER BY 1
"""
# fmt: on


def functions(schema: str) -> dict[str, tuple[str, str]]:
    """Return the source and the definition of each function for tables in `schema` (a quoted name)."""
    found = {}
    for name, (arguments, source) in _SIGNATURES.items():
        text = source.replace("@schema@", schema)
        for field in ("session", "verdict", "mode", "tool", "sha256"):
            text = text.replace(
                f"@text@{field}@", f"CASE WHEN jsonb_typeof(told->'{field}') = 'string' THEN told->>'{field}' END"
            )
        found[name] = (
            text,
            f"CREATE OR REPLACE FUNCTION {schema}.{name}({arguments}) LANGUAGE plpgsql SECURITY DEFINER"
            f" SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $ringfence${text}$ringfence$;"
            f" REVOKE ALL ON FUNCTION {schema}.{name} FROM PUBLIC;",
        )
    return found


def install(connection: sa.Connection) -> None:
    """Create the functions, or update them to this version, if the current role owns the tables."""
    owned = "pg_get_userbyid(c.relowner) = current_user"
    schema = connection.exec_driver_sql(f"{_SCHEMA_NAME} AND {owned}").scalar()
    if schema is None:
        return
    present = connection.exec_driver_sql(f"SELECT proname::text, prosrc {_OF_SCHEMA}")
    known = {str(name): str(source) for name, source in present}
    for name, (source, definition) in functions(str(schema)).items():
        if known.get(name) != source:
            connection.exec_driver_sql(definition.replace("%", "%%"))


def function_rights(connection: sa.Connection) -> tuple[bool, bool]:
    """Return two flags: the current role reads the head with `ringfence_head()`, and it appends with
    `ringfence_append()`.

    The owner writes to the tables directly, because pruning adds records that a machine may not add.
    """
    query = (
        "SELECT coalesce(has_function_privilege(to_regprocedure('ringfence_head()'), 'EXECUTE'), false),"
        " coalesce(has_function_privilege(to_regprocedure('ringfence_append(text)'), 'EXECUTE'), false)"
        " AND NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'ringfence_records'::regclass), 'MEMBER')"
    )
    takes, appends = connection.exec_driver_sql(query).one()
    return bool(takes), bool(appends)


def excessive_rights(connection: sa.Connection) -> tuple[str, ...]:
    """Return a sentence for each right with which a role other than the owner could stop the recording of all
    machines."""
    return tuple(connection.exec_driver_sql(_WIDE).scalars())
