"""Tests of the finder of this program's modules: it finds what the usual one finds, and runs no outdated code."""

import importlib.util
import json
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

IMPORT = """
import json, sys
sys.path.insert(0, {root!r})
from runner.cli.module_finder import use_finder
if {finder}:
    use_finder({home!r}, "", ("package",))
else:
    sys.path.append({home!r})
import package.inner.module as module
names = ("__file__", "__cached__", "__package__", "__name__", "__doc__")
found = [[getattr(each, name) for name in names] for each in (module, sys.modules["package.inner"])]
print(json.dumps([module.VALUE, found, list(sys.modules["package.inner"].__path__), type(module.__loader__).__name__]))
"""


def imported(home: Path, *, finder: bool = True, options: tuple[str, ...] = ()) -> list[object]:
    script = IMPORT.format(root=str(ROOT), home=str(home), finder=finder)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, *options, "-c", script], capture_output=True, text=True, env=environ, check=True, timeout=60
    )
    found: list[object] = json.loads(done.stdout)
    return found


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """Return the source of `package.inner.module`, whose VALUE is `a`."""
    (inner := tmp_path / "package" / "inner").mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text('"""A package."""\n')
    (inner / "module.py").write_text('"""A module."""\n\nVALUE = "a"\n')
    return inner / "module.py"


def compiled(source: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(source)))


def test_a_module_is_the_same_as_with_the_usual_finder(module: Path, tmp_path: Path) -> None:
    usual = imported(tmp_path, finder=False)
    ours = imported(tmp_path)
    assert ours[:3] == usual[:3]
    assert (ours[3], usual[3]) == ("_Loader", "SourceFileLoader")


def test_the_compiled_file_is_used_only_for_its_source(module: Path, tmp_path: Path) -> None:
    assert imported(tmp_path)[0] == "a"
    assert compiled(module).exists(), "the usual loader writes it"
    stamp = os.stat(module)
    module.write_text('"""A module."""\n\nVALUE = "longer"\n')
    os.utime(module, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert imported(tmp_path)[0] == "longer", "another size"
    module.write_text('"""A module."""\n\nVALUE = "others"\n')
    os.utime(module, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 5 * 10**9))
    assert imported(tmp_path)[0] == "others", "another time"
    code = compiled(module).read_bytes()
    module.write_text('"""A module."""\n\nVALUE = "source"\n')
    os.utime(module, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 5 * 10**9))
    assert imported(tmp_path)[0] == "others", "the same time and size: nothing tells that it has changed"
    for damaged in (b"", code[:10], b"\0\0\0\0" + code[4:]):
        compiled(module).write_bytes(damaged)
        assert imported(tmp_path)[0] == "source"


@pytest.mark.parametrize(
    "mode", [py_compile.PycInvalidationMode.CHECKED_HASH, py_compile.PycInvalidationMode.UNCHECKED_HASH]
)
def test_a_file_that_is_valid_for_a_digest_is_left_to_the_usual_loader(
    mode: py_compile.PycInvalidationMode, module: Path, tmp_path: Path
) -> None:
    py_compile.compile(str(module), invalidation_mode=mode)
    module.write_text('"""A module."""\n\nVALUE = "b"\n')
    checked = mode is py_compile.PycInvalidationMode.CHECKED_HASH
    assert imported(tmp_path)[0] == imported(tmp_path, finder=False)[0] == ("b" if checked else "a")


@pytest.mark.parametrize("options", [("-O",), ("-OO",), ("-X", "pycache_prefix=/nonexistent")])
def test_other_places_of_compiled_files_are_left_to_the_usual_finder(
    options: tuple[str, ...], module: Path, tmp_path: Path
) -> None:
    """Then the package is not found: its folder is on no path."""
    with pytest.raises(subprocess.CalledProcessError):
        imported(tmp_path, options=options)
    assert imported(tmp_path)[0] == "a"


def test_a_missing_module_is_missing(module: Path, tmp_path: Path) -> None:
    imported(tmp_path)
    module.unlink()
    with pytest.raises(subprocess.CalledProcessError):
        imported(tmp_path)


@pytest.mark.threat("T22")
def test_every_module_of_a_command_comes_from_the_folder_of_this_program(tmp_path: Path) -> None:
    """Also if the workspace and PYTHONPATH have packages of the same names."""
    for name in ("policy", "sandbox", "tools"):
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / "__init__.py").write_text("raise SystemExit('a package of the workspace')\n")
    script = (
        "import json, sys\n"
        "from runner.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n"
        "    tops = ('policy', 'profiles', 'sandbox', 'tools', 'runner')\n"
        "    ours = [each for name, each in sys.modules.items() if name.partition('.')[0] in tops]\n"
        "    found = [[each.__file__, type(each.__loader__).__name__] for each in ours]\n"
        "    print(json.dumps(found), file=sys.stderr)\n"
    )
    argv = [sys.executable, "-c", script, "why", "ls"]
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{tmp_path / 'work'}"}
    done = subprocess.run(
        argv, cwd=tmp_path / "work", env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    found = json.loads(done.stderr.splitlines()[-1])
    assert len(found) > 50
    assert all(file.startswith(f"{ROOT}/") for file, _ in found)
    assert sum(kind == "_Loader" for _, kind in found) >= len(found) - 5, "all but those of the start"
