"""Tests of the caches of the sandbox: made on demand, kept for one workspace, never followed outside, cleared, and
removed when unused.
"""

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest

from sandbox.backend import SandboxUnavailable
from sandbox.inside import safe_rmtree
from sandbox.workspace import tool_cache
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.sandbox_bench import SECRET, Bench, only_on
from tests.support.waiting import until

PY = "/usr/bin/python3 -c"


def kept(base: Path, workspace: Path) -> Path:
    workspace.mkdir(exist_ok=True)
    folder = tool_cache.place(str(base), str(workspace))
    tool_cache.ready(folder, str(workspace))
    return Path(folder)


def test_it_is_made_on_demand_and_private(tmp_path: Path) -> None:
    folder = kept(tmp_path, tmp_path / "a")
    assert folder != kept(tmp_path, tmp_path / "b")
    for each in (folder, folder.parent):
        assert each.stat().st_mode & 0o777 == 0o700
    (folder / "x").write_bytes(b"y" * 100_000)
    tool_cache.ready(str(folder), str(tmp_path / "a"))
    first, second = tool_cache.everything(str(tmp_path))
    assert (first.workspace, first.folder, first.gone) == (str(tmp_path / "a"), str(folder), False)
    assert first.size > 100_000 > second.size


def test_that_of_a_workspace_that_is_gone_is_swept_up_when_a_new_one_is_made(tmp_path: Path) -> None:
    folder, other = kept(tmp_path, tmp_path / "a"), kept(tmp_path, tmp_path / "b")
    for sweeping in threading.enumerate():  # the caches above are new as well: their sweeps must not find "a" gone
        if sweeping.name == tool_cache.SWEEPING:
            sweeping.join()
    (tmp_path / "a").rmdir()
    assert [each.gone for each in tool_cache.everything(str(tmp_path))] == [True, False]
    kept(tmp_path, tmp_path / "c")
    until(lambda: not folder.parent.exists(), what="the sweep")
    assert other.exists()


def test_what_has_no_owner_is_left_alone(tmp_path: Path) -> None:
    kept(tmp_path, tmp_path / "a")
    (tmp_path / "workspaces" / "strange" / "kept").mkdir(parents=True)
    tool_cache.sweep(str(tmp_path))
    assert (tmp_path / "workspaces" / "strange" / "kept").exists()
    assert tool_cache.everything(str(tmp_path / "nothing")) == ()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_is_no_folder_of_ours_is_refused(tmp_path: Path, kind: str) -> None:
    folder = Path(tool_cache.place(str(tmp_path), "/w"))
    folder.parent.mkdir(parents=True)
    if kind == "file":
        folder.write_text("")
    else:
        folder.symlink_to(tmp_path)
    with pytest.raises(SandboxUnavailable, match="cannot be used"):
        tool_cache.ready(str(folder), "/w")


# ---- removal


def test_nothing_that_a_command_left_keeps_it_from_being_removed(tmp_path: Path) -> None:
    """Modes, depth beyond any path or recursion, names, links: in front of a file that must stay as it is."""
    outside = tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    (outside / "file").write_text("kept")
    outside.chmod(0o750)
    top = tmp_path / "top"
    (top / "shut" / "inner").mkdir(parents=True)
    (top / "shut" / "inner" / "f").write_text("x")
    (top / "link").symlink_to(outside)
    (top / "shut" / "link").symlink_to(outside / "file")
    os.mkfifo(top / "pipe")
    (top / os.fsdecode(b"\xff\n")).write_text("odd")
    (top / "shut" / "inner").chmod(0)
    (top / "shut").chmod(0)
    at = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    safe_rmtree.empty(str(top))
    assert list(top.iterdir()) == []
    safe_rmtree.empty(str(top))
    safe_rmtree.remove(str(top))
    safe_rmtree.remove(str(top))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert ((outside / "file").read_text(), outside.stat().st_mode & 0o777) == ("kept", 0o750)
    assert (outside / "inner").is_dir()


def test_a_link_is_no_folder_to_empty(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("kept")
    (tmp_path / "link").symlink_to("real")
    safe_rmtree.empty(str(tmp_path / "link"))
    safe_rmtree.remove(str(tmp_path / "link"))
    assert (tmp_path / "real" / "file").exists()


# ---- in the sandbox


@pytest.mark.threat("T62")
def test_the_cache_is_kept_for_one_workspace_and_for_work_alone(bench: Bench) -> None:
    folder = str(bench.base / "cache" / "workspaces" / "one" / "kept")
    other = folder.replace("one", "two")
    told = {"cache": folder, "limits": {"pids": 403}}
    assert bench.run("mkdir ~/.cache/pip && echo poison > ~/.cache/pip/wheel", **told)["status"] == 0
    again = bench.run("cat ~/.cache/pip/wheel", cache=folder, limits={"pids": 404})  # a helper of its own
    assert again["out"] == "poison\n"
    for answer in (
        bench.run("cat ~/.cache/pip/wheel", cache=folder, rights="read-only"),
        bench.run("cat ~/.cache/pip/wheel", cache=other, limits={"pids": 405}),
        bench.run("cat ~/.cache/pip/wheel", limits={"pids": 406}),
    ):
        assert answer["status"] == 1, answer
    assert not (bench.home / ".cache").exists(), "the user's own"
    assert (bench.base / "cache" / "workspaces" / "one" / "path").read_text() == str(bench.workspace)


@pytest.mark.threat("T62")
def test_nothing_is_mounted_or_made_through_a_link_in_the_cache(bench: Bench) -> None:
    """A folder of the real `~/.cache` that was named is shown inside the sandbox's own: a command bends the way there."""
    folder = str(bench.base / "cache" / "workspaces" / "bent" / "kept")
    shown = bench.home / ".cache" / "models" / "one"
    shown.mkdir(parents=True)
    (shown / "weights").write_text("shown")
    bench.own(bench.home / ".cache")
    told = {"cache": folder, "read": [str(shown)]}
    assert bench.run(f"cat {shown}/weights; echo x > {shown}/new; echo x > ~/.cache/mine", **told)["out"] == "shown"
    assert [path.name for path in shown.iterdir()] == ["weights"]
    bent = f"rm -rf ~/.cache/models; ln -s {bench.home}/.ssh ~/.cache/models; ls ~/.cache"
    assert "models" in bench.run(bent, cache=folder, limits={"pids": 407})["out"]
    refused = bench.run("echo ran; cat ~/.cache/models/id_rsa", limits={"pids": 408}, **told)
    assert SECRET not in str(refused)
    assert "blocks the path" in refused["unavailable"][1]
    assert [path.name for path in (bench.home / ".ssh").iterdir()] == ["id_rsa"]


def test_without_a_private_root_the_cache_is_where_it_lies(bench: Bench) -> None:
    folder = str(bench.base / "cache" / "workspaces" / "bare" / "kept")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(bench.home), "XDG_CACHE_HOME": f"{bench.home}/.cache"}
    answer = bench.run('echo $XDG_CACHE_HOME; echo x > "$XDG_CACHE_HOME/made"', tier="T3", cache=folder, env=env)
    assert (answer["out"], answer["status"]) == (f"{folder}\n", 0), answer
    assert (Path(folder) / "made").exists()
    refused = bench.run('echo x > "$XDG_CACHE_HOME/new"', tier="T3", cache=folder, env=env, rights="read-only")
    assert refused["status"] != 0


# ---- where a look may write


LOOK = {"rights": "read-only", "env": {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TMPDIR": "/run/tmp"}}


@pytest.mark.threat("T02")
def test_a_look_has_a_temporary_folder_that_nobody_else_ever_sees(bench: Bench) -> None:
    assert bench.run("echo kept > /tmp/session")["status"] == 0
    made = bench.run(
        "echo x > $TMPDIR/left; mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a; cat $TMPDIR/left /tmp/session", **LOOK
    )
    assert made["out"] == "x\nkept\n", made
    assert bench.run("ls -A $TMPDIR", **LOOK)["out"] == "", "emptied after every command"
    assert bench.run("ls /run/tmp; rm /tmp/session")["out"] == ""
    assert bench.run("echo x > /tmp/new; echo x > file.txt; echo x > ~/x", **LOOK)["status"] != 0


def test_what_readers_need_a_temporary_folder_for_works(bench: Bench) -> None:
    rows = [
        ("cat <<EOF | wc -c\n" + "y" * 70_000 + "\nEOF", "70001\n", "a here-document beyond the pipe's buffer"),
        ("seq 400000 | sort -S 100K | tail -1", "99999\n", "sorting on disk"),
        ("head -c 100M /dev/zero > $TMPDIR/x; stat -c %s $TMPDIR/x", "104857600\n", "a large one"),
    ]
    for script, expected, why in rows:
        assert bench.run(script, **LOOK)["out"] == expected, why


@pytest.mark.threat("T14")
def test_the_temporary_folder_of_a_look_is_bounded(bench: Bench) -> None:
    answer = bench.run("head -c 700M /dev/zero > $TMPDIR/x; stat -c %s $TMPDIR/x", **LOOK)
    assert int(answer["out"]) <= 512 << 20, answer
    assert bench.run("stat -f -c %f $TMPDIR", **LOOK)["out"] == "131072\n", "all of it is free again"


@pytest.mark.threat("T14")
@only_on(tiers=("T1",))  # bubblewrap bounds the bytes of a tmpfs, not its files: see docs/security/limits.md
def test_so_are_the_files_in_it_that_have_no_bytes(bench: Bench) -> None:
    many = f'{PY} \'import os\nfor n in range(200_000): os.mknod(os.environ["TMPDIR"] + f"/{{n}}")\''
    answer = bench.run(many, **LOOK)
    assert "No space left" in answer["err"], answer
    assert int(bench.run("stat -f -c %d $TMPDIR", **LOOK)["out"]) > 131_000


# ---- on the command line


@pytest.mark.thorough
def test_the_command_shows_and_empties_them(tmp_path: Path) -> None:
    agent = AGENT
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}

    def run(cwd: str, *words: str) -> str:
        done = forked_agent.run(
            [agent, *words], cwd=tmp_path / cwd, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    code = "import os; open(os.environ['XDG_CACHE_HOME'] + '/x', 'wb').write(os.urandom(3 << 20)); print('x')"
    fill = ("exec", "--mode", "trust-project", "--", "/usr/bin/python3", "-c", code)
    assert run("one", "sandbox", "cache") == f"there is no cache of {tmp_path}/one\n"
    assert run("one", *fill) == run("two", *fill) == "x\n"
    shown = run("one", "sandbox", "cache")
    assert "3 MiB" in shown
    assert (f"{tmp_path}/one" in shown, f"{tmp_path}/two" in shown) == (True, False)
    assert "emptied" in run("one", "sandbox", "cache", "--clear")
    (tmp_path / "one").rmdir()
    rows = [json.loads(line) for line in run("two", "sandbox", "cache", "--all", "--json").splitlines()]
    assert [(row["workspace"], row["gone"], row["bytes"] > 1 << 20) for row in rows] == [
        (f"{tmp_path}/one", True, False),
        (f"{tmp_path}/two", False, True),
    ]
    run("two", "sandbox", "cache", "--all", "--clear")
    assert run("two", *fill) == "x\n", "and it is filled anew"
    assert len(run("two", "sandbox", "cache", "--all", "--json").splitlines()) == 1, "what is gone is swept up"
