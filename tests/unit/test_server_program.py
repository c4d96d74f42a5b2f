"""The folders that a tool server has to read to start: its installation, and no more."""

import sys
from pathlib import Path

import pytest

import runner.mcp
from policy.model.profile import Layer
from runner.mcp import servers
from runner.mcp.confined import ServerRefused, own_folder
from runner.mcp.program import ProgramMissing, find_program, installation
from runner.mcp.server_config import ServerConfig
from runner.mcp.wants import wanted_rights


def program(path: Path, text: str = "#!/bin/sh\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.threat("T179")
@pytest.mark.parametrize(
    ("path", "beside", "needed"),
    [
        ("venv/bin/server", ["venv/pyvenv.cfg"], "venv"),
        ("app/node_modules/pkg/dist/server.js", ["app/node_modules/pkg/package.json"], "app/node_modules"),
        ("tool/dist/server.js", ["tool/package.json"], "tool"),
        ("opt/bin/server", ["opt/lib/x"], "opt"),
        ("data/bin/server", ["data/secrets.txt"], "data/bin"),
        ("data/server", ["data/other"], "data"),
        ("home/server", [], "home/server"),
        ("home/bin/server", ["home/lib/x"], "home/bin/server"),
    ],
    ids=["a virtual environment", "a package of node_modules", "a package alone", "an installation", "a folder of programs",
         "a plain folder", "directly in the home", "in the bin of a home with a lib"],
)  # fmt: skip
def test_the_installation_of_a_program(tmp_path: Path, path: str, beside: list[str], needed: str) -> None:
    (tmp_path / "home").mkdir()
    for each in beside:
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_text("")
    found = installation(program(tmp_path / path), ("/usr", "/bin"), str(tmp_path / "home"))
    assert found == (str(tmp_path / needed),)


def test_what_is_readable_anyway_is_not_needed(tmp_path: Path) -> None:
    assert installation("/bin/sh", ("/usr", "/bin"), str(tmp_path)) == ()


def test_a_missing_program_is_told(tmp_path: Path) -> None:
    for name in ("no-such-program-here", "./no-such-file"):
        with pytest.raises(ProgramMissing):
            find_program(name, {"PATH": "/bin"}, str(tmp_path))


@pytest.mark.threat("T179")
def test_servers_with_one_name_share_no_folder(tmp_path: Path) -> None:
    environ = {"RINGFENCE_STATE_DIR": str(tmp_path)}
    folders = {
        own_folder(ServerConfig("notes", layer), workspace, environ)
        for layer, workspace in ((Layer.USER, "/a"), (Layer.TRUSTED, "/a"), (Layer.TRUSTED, "/b"))
    }
    assert len(folders) == 3
    assert own_folder(ServerConfig("notes", Layer.USER), "/b", environ) in folders


def test_a_missing_library_of_the_protocol_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("client", "stdio"):  # another test may have imported them
        monkeypatch.delitem(sys.modules, f"runner.mcp.{name}", raising=False)
        monkeypatch.delattr(runner.mcp, name, raising=False)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    with pytest.raises(ServerRefused, match="the library `mcp` is not installed"):
        servers._load()


@pytest.mark.parametrize(
    ("words", "hosts", "wanted"),
    [
        (("npx", "-y", "@example/server"), (), ["--host npm.example"]),
        (("/usr/bin/uvx", "server"), (), ["--host uv.example"]),
        (("npx", "-y", "@example/server"), ("npm.example",), []),
        (("server",), (), []),
    ],
    ids=["a package of npm", "a package of uv", "with hosts", "an installed program"],
)
def test_a_program_that_downloads_itself_needs_its_registry(
    words: tuple[str, ...], hosts: tuple[str, ...], wanted: list[str]
) -> None:
    config = ServerConfig("a", Layer.USER, command=words[0], args=words[1:], hosts=hosts)
    found = wanted_rights(config, None, (), lambda program: [f"{program}.example"])
    assert [each.flag for each in found] == wanted
