"""Small real projects that the compatibility rows build and test, and a Python below the home as pyenv lays it out."""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sysconfig
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from tests.support.sandbox_bench import world_readable_python

_TESTERS = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")

_C = {
    "Makefile": (
        "CFLAGS = -O1 -Wall -Werror\nobjects = main.o stack.o\n\nall: calc\n\ncalc: $(objects) libnumber.a\n"
        "\t$(CC) -o $@ $(objects) -L. -lnumber\n\nlibnumber.a: number.o\n\t$(AR) rcs $@ $^\n\n$(objects) number.o: calc.h\n\n"
        "check: calc\n\t./check.sh\n\ninstall: calc\n\tinstall -D -m 755 calc $(DESTDIR)/bin/calc\n\nclean:\n\trm -f *.o *.a calc\n"
    ),
    "calc.h": "#include <stdlib.h>\nlong number(const char *text);\nvoid push(long value);\nlong pop(void);\n",
    "number.c": '#include "calc.h"\nlong number(const char *text) { return strtol(text, NULL, 0); }\n',
    "stack.c": '#include "calc.h"\nstatic long values[64];\nstatic int top;\nvoid push(long value) { values[top++ % 64] = value; }\nlong pop(void) { return values[--top % 64]; }\n',
    "main.c": (
        '#include <stdio.h>\n#include "calc.h"\nint main(int argc, char **argv) {\n  for (int i = 1; i < argc; i++) {\n'
        "    if (argv[i][0] == '+') push(pop() + pop());\n    else push(number(argv[i]));\n  }\n"
        '  printf("%ld\\n", pop());\n  return 0;\n}\n'
    ),
    "check.sh": '#!/bin/sh\nset -eu\n[ "$(./calc 2 0x28 +)" = 42 ]\necho passed\n',
}
_PYTHON = {
    "words/__init__.py": 'def count(text):\n    """How often each word stands in it."""\n    found = {}\n    for word in text.split():\n        found[word] = found.get(word, 0) + 1\n    return found\n',
    "tests/test_words.py": (
        "import sqlite3\nimport words\n\n\ndef test_count(tmp_path):\n    assert words.count('a b a') == {'a': 2, 'b': 1}\n"
        "    (tmp_path / 'x').write_text('x')\n\n\ndef test_it_is_the_installed_one():\n    assert 'site-packages' in words.__file__\n"
    ),
}
_NODE = {
    "index.js": "const pad = require('pad');\nmodule.exports = (value) => pad(String(value), 5);\n",
    "test/index.test.js": (
        "const test = require('node:test');\nconst assert = require('node:assert');\nconst five = require('../index.js');\n\n"
        "test('it pads', () => assert.strictEqual(five(42), '   42'));\n"
    ),
}


def write_projects(workspace: Path) -> None:
    """`calc/` in C with make, `words/` in Python with its wheels, `padded/` for npm with a tarball of its own."""
    for folder, files in (("calc", _C), ("words", _PYTHON), ("padded", _NODE)):
        for name, text in files.items():
            path = workspace / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (workspace / "calc" / "check.sh").chmod(0o755)
    wheels = workspace / "words" / "wheels"
    wheels.mkdir()
    _wheel(wheels, "words", {"words/__init__.py": _PYTHON["words/__init__.py"].encode()})
    shutil.rmtree(workspace / "words" / "words")  # what is tested is the installed one
    for name in _TESTERS:
        _repack(wheels, distribution(name))
    _npm(workspace / "padded")


def pyenv(home: Path) -> Path:
    """Install a Python below `home` as pyenv does, with shims and with its bytecode. Return the folder of the shims.

    Sandboxes show the home read-only, so that without the bytecode each start would compile every module.
    """
    python = world_readable_python()
    ask = "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('stdlib'), *sys.version_info[:3])"
    prefix, library, *version = subprocess.run(
        [python, "-c", ask], capture_output=True, text=True, check=True
    ).stdout.split()
    short, whole = ".".join(version[:2]), ".".join(version)
    root = home / ".pyenv"
    place = root / "versions" / whole
    (place / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(f"{prefix}/bin/python{short}"), place / "bin" / f"python{short}")
    skip = shutil.ignore_patterns(
        "*.opt-?.pyc", "test", "idlelib", "config-*", "lib2to3", "turtledemo", "site-packages"
    )
    shutil.copytree(
        library, place / "lib" / f"python{short}", ignore=skip, symlinks=False, ignore_dangling_symlinks=True
    )
    (place / "lib" / f"python{short}" / "site-packages").mkdir(exist_ok=True)
    (root / "version").write_text(f"{whole}\n")
    (root / "shims").mkdir()
    for name in ("python", "python3", f"python{short}"):
        if not (place / "bin" / name).exists():
            (place / "bin" / name).symlink_to(f"python{short}")
        shim = root / "shims" / name
        shim.write_text(
            f'#!/usr/bin/env bash\nset -e\nexport PYENV_ROOT="{root}"\nexec "{place}/bin/${{0##*/}}" "$@"\n'
        )
        shim.chmod(0o755)
    return root / "shims"


def _wheel(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """A pure wheel (the binary distribution format of packaging.python.org)."""
    info = f"{name}-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    _zip(folder / f"{name}-1.0-py3-none-any.whl", info, files)


def _repack(folder: Path, installed: Distribution) -> None:
    """The wheel that an installed, pure package came from, so that nothing has to be fetched."""
    root = Path(sysconfig.get_path("purelib"))
    files, info = {}, ""
    for entry in installed.files or ():
        name = entry.as_posix()
        if name.startswith("..") or name.endswith((".pyc", "/RECORD", "/INSTALLER", "/REQUESTED", "/direct_url.json")):
            continue
        files[name] = Path(str(entry.locate() or root / name)).read_bytes()
        info = name.split("/")[0] if ".dist-info/" in name else info
    stem = info.removesuffix(".dist-info")
    _zip(folder / f"{stem}-py3-none-any.whl", info, files)


def _zip(path: Path, info: str, files: dict[str, bytes]) -> None:
    record = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for name, data in files.items()
    ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,"]) + "\n")


def _npm(folder: Path) -> None:
    """A project whose one dependency is a tarball beside it, with the lock file that `npm ci` insists on."""
    package = {
        "package/package.json": json.dumps(
            {"name": "pad", "version": "1.0.0", "main": "pad.js", "bin": {"pad": "cli.js"}}
        ),
        "package/pad.js": "module.exports = (text, width) => text.padStart(width);\n",
        "package/cli.js": "#!/usr/bin/env node\nconsole.log(require('./pad.js')(process.argv[2], Number(process.argv[3])));\n",
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in package.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o755 if name.endswith("cli.js") else 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    data = buffer.getvalue()
    (folder / "vendor").mkdir()
    (folder / "vendor" / "pad-1.0.0.tgz").write_bytes(data)
    needs = {"pad": "file:vendor/pad-1.0.0.tgz"}
    scripts = {
        "test": "pad 7 3 && node --test",
        "postinstall": "node -e \"require('fs').writeFileSync('built', 'yes')\"",
    }
    top = {"name": "padded", "version": "1.0.0", "dependencies": needs}
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    lock = {
        "name": "padded",
        "version": "1.0.0",
        "lockfileVersion": 3,
        "requires": True,
        "packages": {
            "": {**top, "hasInstallScript": True},
            "node_modules/pad": {
                "version": "1.0.0",
                "resolved": "file:vendor/pad-1.0.0.tgz",
                "integrity": integrity,
                "bin": {"pad": "cli.js"},
            },
        },
    }
    (folder / "package.json").write_text(json.dumps({**top, "private": True, "scripts": scripts}, indent=2))
    (folder / "package-lock.json").write_text(json.dumps(lock, indent=2))
