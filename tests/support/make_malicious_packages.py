"""Merge records of databases into the table of known malicious packages.

`python -m tests.support.make_malicious_packages FOLDER` reads a checkout of a database that you have fetched yourself:
the files `*.json` below FOLDER are records of the OSV format, the files `*.md` are advisories of RustSec. Only records
about malicious packages count: those with an id `MAL-...` or with the category `malicious`, and others whose weakness
is CWE-506. Instead of a folder, `FILE --source NAME --date YYYY-MM-DD` reads a list of hijacked versions: one
`[ECOSYSTEM:]NAME:VERSION` or `NAME,"VERSION, VERSION",...` a line; `#` starts a comment. `--only FILE` leaves out the
packages whose names the file does not contain, one a line. With `--check` the script prints what would change, and
changes nothing. The result is sorted, and does not depend on the order of the files.

A package that many users install is never reported as a whole: neither one with a row for single versions, nor one of
the tables of popular names.
"""

import argparse
import csv
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from policy.handlers import malicious_packages
from policy.handlers.package_tables import NEIGHBOURS, POPULAR
from policy.handlers.suspicious_packages import normalized
from tests.support.places import ROOT

MODULE = ROOT / "policy" / "handlers" / "malicious_packages.py"
# By the name of an OSV record, up to its first dot.
ECOSYSTEMS = {"npm": "npm", "PyPI": "pypi", "crates": "cargo", "RubyGems": "rubygems"}
MALICIOUS = "CWE-506"  # embedded malicious code
BEGIN, END = 'TABLE = """\n', '"""  # noqa: E501 (one row a line)\n'
PLAIN = re.compile(r"[A-Za-z0-9@/._+~-]+\Z", re.ASCII)  # a name or a version that needs no quoting

Rows = dict[tuple[str, str], str]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder with records, or the file with a list of versions")
    parser.add_argument("--source", help="the source of the rows of a list")
    parser.add_argument("--date", help="the date of the rows of a list")
    parser.add_argument("--only", type=Path, help="a file with the names of the packages to add")
    parser.add_argument("--check", action="store_true", help="only print what would change")
    told = parser.parse_args(arguments)
    source = MODULE.read_text("utf-8")
    old = rows_of(malicious_packages.TABLE)
    if told.folder.is_dir():
        found = records(told.folder)
    elif told.source and told.date:
        found = listed(told.folder.read_text("utf-8"), told.source, told.date)
    else:
        parser.error("a list of versions needs --source and --date")
    only = None if told.only is None else {*told.only.read_text("utf-8").lower().split()}
    new = merged(old, found, only)
    for key in sorted(new):
        if new[key] != old.get(key):
            print(f"{'changed' if key in old else 'new'}: {' '.join(key)} {new[key]}")
    if not told.check:
        MODULE.write_text(f"{source.partition(BEGIN)[0]}{BEGIN}{table_of(new)}{END}", "utf-8")
    return 0


def rows_of(table: str) -> Rows:
    """Return the rows of a table by ecosystem and name."""
    parts = (line.split(" ", 2) for line in table.strip().splitlines())
    return {(ecosystem, name): rest for ecosystem, name, rest in parts}


def table_of(rows: Rows) -> str:
    return "".join(f"{ecosystem} {name} {rows[ecosystem, name]}\n" for ecosystem, name in sorted(rows))


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the records of malicious packages below `folder` in the order of their ids."""
    found = [json.loads(path.read_text("utf-8")) for path in folder.rglob("*.json")]
    found += [rust_record(path.read_text("utf-8")) for path in folder.rglob("*.md")]
    return sorted((each for each in found if is_malicious(each)), key=lambda each: str(each["id"]))


def rust_record(text: str) -> dict[str, Any]:
    """Return an advisory of RustSec as a record of the OSV format; an empty record for any other file."""
    match = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    if match is None:
        return {}
    advisory, versions = (tomllib.loads(match[1]).get(each, {}) for each in ("advisory", "versions"))
    package = {"ecosystem": "crates", "name": advisory.get("package", "")}
    event = {"introduced": "known" if versions.get("unaffected") or versions.get("patched") else "0"}
    return {
        "id": advisory.get("id", ""),
        "published": str(advisory.get("date", "")),
        "withdrawn": advisory.get("withdrawn"),
        "affected": [{"package": package, "ranges": [{"events": [event]}]}],
        "database_specific": {"cwe_ids": [MALICIOUS] if "malicious" in advisory.get("categories", ()) else []},
    }


def listed(text: str, source: str, date: str) -> list[dict[str, Any]]:
    """Return the records of a list of hijacked versions."""
    found = []
    for row in csv.reader(line for line in text.splitlines() if line and not line.startswith("#")):
        if len(row) > 1:
            name, versions = row[0], re.findall(r"[^\s=,|]+", row[1])
        else:
            name, _, version = row[0].rpartition(":")
            versions = [version]
        prefix, colon, rest = name.partition(":")
        package = {"ecosystem": prefix, "name": rest} if colon else {"ecosystem": "npm", "name": name}
        package["ecosystem"] = {"pypi": "PyPI"}.get(package["ecosystem"], package["ecosystem"])
        exact = [each for each in versions if each[:1].isdigit()]
        found.append({"id": source, "published": date, "affected": [{"package": package, "versions": exact}]})
    return found


def is_malicious(record: dict[str, Any]) -> bool:
    """Return True if the record is valid and reports a malicious package."""
    identifier = str(record.get("id", ""))
    weaknesses = record.get("database_specific", {}).get("cwe_ids", [])
    return not record.get("withdrawn") and (identifier.startswith("MAL-") or MALICIOUS in weaknesses)


def merged(rows: Rows, found: list[dict[str, Any]], only: set[str] | None = None) -> Rows:
    """Return `rows` with the packages of the records, of new ones only those whose name is in `only`. A package that
    has a row keeps its date and source, and gets the versions of both.
    """
    result = dict(rows)
    for record in found:
        for affected in record.get("affected", []):
            package = affected.get("package", {})
            ecosystem = ECOSYSTEMS.get(package.get("ecosystem", "").partition(".")[0])
            name = str(package.get("name", ""))
            if ecosystem is None or not PLAIN.match(name):
                continue
            versions = bad_versions(affected)
            if versions is None:
                continue
            key = ecosystem, normalized(ecosystem, name)
            if only is not None and key not in result and name.lower() not in only:
                continue
            if "*" in versions and is_in_use(result, *key):
                continue
            before, date, source = result.get(key, f"- {record['published'][:10]} {record['id']}").split(" ", 2)
            known = set() if before == "-" else {*before.split(",")}
            both = "*" if "*" in known | versions else ",".join(sorted(known | versions))
            result[key] = f"{both} {date} {source}"
    return result


def is_in_use(rows: Rows, ecosystem: str, name: str) -> bool:
    """Return True for a package that has good versions."""
    known = {*POPULAR[ecosystem].split(), *NEIGHBOURS[ecosystem].split()}
    return name in known or not rows.get((ecosystem, name), "*").startswith("*")


def bad_versions(affected: dict[str, Any]) -> set[str] | None:
    """Return the malicious versions, or `*` for all. Return None for a range that is not open, and for no version at
    all: a hijacked package must not be reported as a whole.
    """
    versions = {str(each) for each in affected.get("versions", []) if PLAIN.match(str(each))}
    if versions:
        return versions
    events = [event for each in affected.get("ranges", []) for event in each.get("events", [])]
    return {"*"} if events and all(str(event.get("introduced")) in ("0", "0.0.0") for event in events) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
