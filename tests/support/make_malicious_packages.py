"""Merge records of the OSV format into the table of known malicious packages.

`python -m tests.support.make_malicious_packages FOLDER` reads the files `*.json` below FOLDER, which you have fetched
yourself, for example a part of a database of malicious packages. Only records about malicious packages count: those
with an id `MAL-...`, and others whose weakness is CWE-506. With `--check` the script prints what would change, and
changes nothing. The result is sorted, and does not depend on the order of the files.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from policy.handlers import malicious_packages
from policy.handlers.suspicious_packages import normalized
from tests.support.places import ROOT

MODULE = ROOT / "policy" / "handlers" / "malicious_packages.py"
# By the name of an OSV record, up to its first dot.
ECOSYSTEMS = {"npm": "npm", "PyPI": "pypi", "crates": "cargo", "RubyGems": "rubygems"}
MALICIOUS = "CWE-506"  # embedded malicious code
BEGIN, END = 'TABLE = """\n', '"""\n'
PLAIN = re.compile(r"[A-Za-z0-9@/._+~-]+\Z", re.ASCII)  # a name or a version that needs no quoting

Rows = dict[tuple[str, str], str]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder with records of the OSV format")
    parser.add_argument("--check", action="store_true", help="only print what would change")
    told = parser.parse_args(arguments)
    source = MODULE.read_text("utf-8")
    old = rows_of(malicious_packages.TABLE)
    new = merged(old, records(told.folder))
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
    """Return the records below `folder` in the order of their ids."""
    found = [json.loads(path.read_text("utf-8")) for path in folder.rglob("*.json")]
    return sorted((each for each in found if is_malicious(each)), key=lambda each: str(each["id"]))


def is_malicious(record: dict[str, Any]) -> bool:
    """Return True if the record is valid and reports a malicious package."""
    identifier = str(record.get("id", ""))
    weaknesses = record.get("database_specific", {}).get("cwe_ids", [])
    return not record.get("withdrawn") and (identifier.startswith("MAL-") or MALICIOUS in weaknesses)


def merged(rows: Rows, found: list[dict[str, Any]]) -> Rows:
    """Return `rows` with the packages of the records. A package that has a row keeps its date and source, and gets the
    versions of both.
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
            before, date, source = result.get(key, f"- {record['published'][:10]} {record['id']}").split(" ", 2)
            known = set() if before == "-" else {*before.split(",")}
            both = "*" if "*" in known | versions else ",".join(sorted(known | versions))
            result[key] = f"{both} {date} {source}"
    return result


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
