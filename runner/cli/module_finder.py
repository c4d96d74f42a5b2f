"""The finder of the modules of this program, which takes half of the time of the usual one.

A short command imports a hundred modules of this program. The usual finder lists each folder and asks for every ending
that a module may have; the usual loader computes the name of the compiled file and looks at it twice. Everything that
is not the usual case is left to them.
"""

import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER, spec_from_file_location

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec, SourceFileLoader
    from types import ModuleType
else:
    from _frozen_importlib_external import SourceFileLoader

_HEADER = 16  # bytes before the code. SOURCE: PEP 552
_LARGEST = 1 << 20  # bytes of a compiled file that is read here
_PLAIN = bytes(4)  # the flags of a file that is valid for the time and the size of its source


class _Loader(SourceFileLoader):
    """The loader of a module whose compiled file is up to date; otherwise it does what its base class does."""

    def __init__(self, name: str, path: str, source: os.stat_result) -> None:
        super().__init__(name, path)
        self._source = source

    def exec_module(self, module: "ModuleType") -> None:
        """Execute the module."""
        spec = module.__spec__
        assert spec is not None  # the import system sets it
        assert spec.cached is not None  # set by the finder
        try:
            handle = os.open(spec.cached, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(handle, _LARGEST)
            finally:
                os.close(handle)
        except OSError:
            data = b""
        stamp = (int(self._source.st_mtime) & 0xFFFFFFFF, self._source.st_size & 0xFFFFFFFF)
        head = MAGIC_NUMBER + _PLAIN + b"".join(value.to_bytes(4, "little") for value in stamp)
        if data[:_HEADER] != head or len(data) == _LARGEST:
            super().exec_module(module)
        else:
            exec(marshal.loads(memoryview(data)[_HEADER:]), module.__dict__)  # noqa: S102, S302  # as the base class


class ModuleFinder:
    """The finder of the modules below the packages `names` in the folder `home`. `above` precedes their names."""

    def __init__(self, home: str, above: str, names: "Sequence[str]") -> None:
        self._home, self._above, self._names = home, above, frozenset(names)

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Return the place of a module of this program; None if it is to be found in the usual way."""
        own = name.removeprefix(self._above)
        if own.partition(".")[0] not in self._names:
            return None
        place = f"{self._home}/{own.replace('.', '/')}"
        for file, folders in ((f"{place}.py", None), (f"{place}/__init__.py", [place])):
            try:
                source = os.stat(file)
            except OSError:
                continue
            spec = spec_from_file_location(
                name, file, loader=_Loader(name, file, source), submodule_search_locations=folders
            )
            assert spec is not None  # there is a loader
            folder, _, last = file.rpartition("/")
            spec.cached = f"{folder}/__pycache__/{last.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"
            return spec
        return None


def use_finder(home: str, above: str, names: "Sequence[str]") -> None:
    """Find the modules of this program by a ModuleFinder from now on. Calling this again has no effect."""
    usual = sys.pycache_prefix is None and not sys.flags.optimize and sys.implementation.cache_tag is not None
    if usual and not any(isinstance(each, ModuleFinder) for each in sys.meta_path):
        sys.meta_path.insert(0, ModuleFinder(home, above, names))
