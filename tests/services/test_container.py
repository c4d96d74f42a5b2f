"""The contract and the escapes of the other sandboxes, in containers of a real daemon, and tests of containers alone."""

import io
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.container.create_body import MASKED
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.container_bench import Containers, Dock
from tests.support.marked_processes import new_nap, processes
from tests.support.sandbox_bench import SECRET, USERS
from tests.support.waiting import until

# Tests of `test_sandbox`, collected again here with the `bench` below.
from tests.sandbox.test_sandbox import test_ordinary_work_works  # noqa: F401  # isort: skip  # first: it looks at an empty home
from tests.sandbox.test_sandbox import (  # noqa: F401  # isort: skip  # pytest finds them in this module
    test_a_command_cannot_end_its_helper,
    test_a_file_cannot_outgrow_its_limit,
    test_a_folder_that_is_not_there_is_a_problem_not_a_crash,
    test_a_fork_bomb_stops_at_the_limit,
    test_a_hard_link_to_an_outside_file_is_read_only,
    test_a_limit_ends_the_whole_tree,
    test_a_program_that_is_not_there_is_127,
    test_a_secret_file_of_the_workspace_is_masked,
    test_a_server_on_the_sandbox_own_loopback,
    test_auto_run_files_are_read_only,
    test_cancelling_reaches_the_child_at_once,
    test_host_sockets_are_out_of_reach,
    test_input_is_empty_unless_given,
    test_new_auto_run_files_are_set_aside_and_reported,
    test_no_capability_is_left,
    test_no_descriptor_is_inherited,
    test_no_packet_leaves,
    test_nothing_of_the_launcher_environment_is_inside,
    test_nothing_outside_can_be_written,
    test_the_kernel_surface_is_closed,
    test_what_a_command_leaves_behind_is_killed,
    test_what_look_grants_is_reading_and_nothing_else,
)

pytestmark = pytest.mark.thorough  # another backend than the default one
NOBODY_ONLY = [user for user in USERS if user == "nobody"]


@pytest.fixture(scope="module", params=USERS)
def bench(request: pytest.FixtureRequest, docked: Dock) -> Iterator[Containers]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        made = Containers(request.param, base, docked)
        try:
            yield made
        finally:
            made.close()


def containers(docked: Dock) -> dict[str, str]:
    """The containers of the product that are there: name to state."""
    return {str(each["Names"][0]).strip("/"): str(each["State"]) for each in docked.ask("containers", all=True)}


# ---- what differs from T1


@pytest.mark.threat("T03")
def test_only_the_image_and_what_was_granted_is_there(bench: Containers) -> None:
    for path in (bench.home / ".ssh" / "id_rsa", bench.outside, bench.outside / "target.txt", bench.base / "cache"):
        for script in (f"cat {path}", f"stat {path}", f"ls {path}", f"cat /proc/1/root/{path}"):
            answer = bench.run(script)
            assert answer["status"] != 0, script
            assert SECRET not in answer["out"] + answer["err"]
    assert SECRET not in bench.run("grep -rs decoy / --exclude-dir=proc --exclude-dir=sys --exclude-dir=project")["out"]
    assert bench.run("ls -A /root /home /data /mnt 2>/dev/null | grep -v :")["out"].split() in (
        [],
        [".bashrc", ".profile"],
    )


@pytest.mark.threat("T08")
def test_what_proc_tells_of_the_machine_is_covered(bench: Containers) -> None:
    places = " ".join(path for path in MASKED if path.startswith("/proc/"))
    script = f'for p in {places}; do [ -d "$p" ] && ls -A "$p" || head -c 9 "$p"; done 2>/dev/null'
    assert bench.run(script)["out"] == ""
    assert bench.run("grep -q MemTotal /proc/meminfo && grep -q ' / ' /proc/mounts && nproc")["status"] == 0


@pytest.mark.whole_matrix("commands have the numbers of the user")
def test_who_commands_are(bench: Containers) -> None:
    status = bench.workspace.stat()
    assert bench.run("id -u; id -g; id -G; hostname")["out"].split() == [
        *map(str, (status.st_uid, status.st_gid, status.st_gid)),
        "sandbox",
    ]
    assert bench.run("touch mine; stat -c %u:%g mine; rm mine")["out"].strip() == f"{status.st_uid}:{status.st_gid}"


@pytest.mark.threat("T05")
@pytest.mark.whole_matrix("the device of the machine differs for root alone")
def test_no_input_of_roots_is_not_the_machines_own_device(bench: Containers) -> None:
    host = os.stat("/dev/null")
    argv = ["stat", "-Lc", "%t:%T %d:%i", "/proc/self/fd/0"]
    for told in ({"kind": "RunScript", "script": shlex.join(argv)}, {"kind": "RunArgv", "argv": argv}):
        answer = bench.ask({**told, "cwd": str(bench.workspace)})
        assert answer.get("out", "").startswith("1:3 "), answer  # it is a null device all the same"
        assert bench.user != "root" or answer["out"].split()[1] != f"{host.st_dev}:{host.st_ino}", answer


@pytest.mark.whole_matrix("root's commands get their input from bash, which adds a variable")
def test_the_environment_is_that_of_the_terms_alone(bench: Containers) -> None:
    answer = bench.ask({"kind": "RunArgv", "argv": ["cat", "/proc/self/environ"], "cwd": str(bench.workspace)})
    of_bash = ["SHLVL"] if bench.user == "root" else []  # which gives root's commands their input
    assert {item.partition("=")[0] for item in answer["out"].split("\0") if item} == {
        *["HOME", "LANG", "PATH", "PWD", "TMPDIR"], *of_bash
    }  # fmt: skip
    assert "LEAKED" not in bench.run("env")["out"], "the image sets it"


def test_the_image_gets_no_volume_no_health_check_and_no_entry_point(bench: Containers) -> None:
    answer = bench.run("touch /data/x; ls /tmp/health")
    assert "Read-only file system" in answer["err"]
    assert "/tmp/health" in answer["err"]


def test_nobody_inside_reaches_the_process_that_keeps_the_container(bench: Containers) -> None:
    for path in ("fd/0", "fd/1", "mem", "environ", "cwd/x", "root/tmp"):
        got = f"( : < $p/{path} ) && echo read; ( : >> $p/{path} ) && echo written"
        assert bench.run(f"for p in /proc/1 /proc/7; do {got}; done")["out"] == "", path
    assert bench.run("kill -9 -1; echo still")["out"] == "still\n"
    assert bench.run("echo here")["out"] == "here\n"


def test_memory_ends_the_command_and_says_so(bench: Containers) -> None:
    answer = bench.run("/usr/bin/python3 -c 'x = bytearray(900 << 20)'", limits={"memory": 256 << 20})
    assert (answer["status"], answer["ended"]) == (137, "memory")
    assert bench.run("echo next", limits={"memory": 256 << 20})["out"] == "next\n"


def test_the_processor_time_of_all_together_ends_it(bench: Containers) -> None:
    answer = bench.run("for i in 1 2 3 4; do while :; do :; done & done; wait", limits={"cpu": 2, "wall": 60.0})
    assert (answer["status"], answer["ended"]) == (137, "cpu"), answer


@pytest.mark.threat("T14")
def test_several_writers_are_ended_at_the_limit_of_the_disk(bench: Containers) -> None:
    """Free space is looked at the sooner the less is left; what is over before a look is told at the end."""
    folder = bench.workspace / "filled"
    try:
        fill = "for i in 1 2 3 4; do (for n in $(seq 40); do head -c 20M /dev/zero > $i.$n; done) & done; wait"
        answer = bench.run(f"mkdir filled; cd filled; {fill}", limits={"disk": 60 << 20, "wall": 60.0})
        assert answer.get("ended") == "disk", answer
        assert sum(path.stat().st_blocks for path in folder.iterdir()) * 512 < 600 << 20
        answer = bench.run("for n in 1 2 3; do head -c 112M /dev/zero > filled/$n; done", limits={"disk": 128 << 20})
        assert answer.get("ended") == "disk", answer
        answer = bench.run("fallocate -l 1M filled/4")
        assert (answer["status"], "not supported" in answer["err"]) == (1, True), answer
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_what_it_writes_to_the_disk_ends_it(bench: Containers) -> None:
    script = "for i in 1 2 3 4 5 6 7 8; do head -c 20000000 /dev/zero > fill$i; sync fill$i; done; sleep 30"
    answer = bench.run(script, limits={"disk": 60 << 20, "wall": 60.0})
    bench.run("rm -f fill*")
    assert (answer["status"], answer["ended"]) == (137, "disk"), answer


def test_a_file_action_needs_nothing_in_the_image_and_sees_the_same_files(bench: Containers) -> None:
    bench.run("echo from-the-container > made.txt; echo shared > /tmp/made.txt")
    for path in (bench.workspace / "made.txt", Path("/tmp/made.txt")):
        answer = bench.ask({"kind": "ReadFile", "path": str(path)})
        assert answer["problem"] is None, answer
        assert "made" in str(path)
    (bench.workspace / ".env").write_text(SECRET)
    bench.own(bench.workspace / ".env")
    answer = bench.ask({"kind": "ReadFile", "path": str(bench.workspace / ".env")}, hidden=[".env"])
    assert SECRET not in str(answer)
    (bench.workspace / ".env").unlink()


def test_fifty_commands_use_one_container_and_leave_nothing(bench: Containers, docked: Dock) -> None:
    for _ in range(25):  # threads are made as they are needed, and each has its connections
        bench.run("true", limits={"pids": 77})
    before, handles = containers(docked), len(os.listdir(f"/proc/{bench.process.pid}/fd"))
    for number in range(50):
        assert bench.run(f"echo {number}", limits={"pids": 77})["out"] == f"{number}\n"
    assert set(containers(docked)) <= set(before)
    assert len(os.listdir(f"/proc/{bench.process.pid}/fd")) <= handles + 12, "none for each command"


@pytest.mark.whole_matrix("only root may look into the folder of a container from outside")
def test_what_a_reading_command_leaves_behind(bench: Containers) -> None:
    answer = bench.run("ls -A /run/tmp; echo x > /run/tmp/left; cat /run/tmp/left", rights="read-only")
    assert answer["out"] == "x\n"
    if bench.user == "root":  # others may not look in there from outside; docs/reference/containers.md says so
        assert bench.run("ls -A /run/tmp", rights="read-only")["out"] == ""


def test_a_new_secret_file_is_covered_for_the_next_command(bench: Containers) -> None:
    assert bench.run("cat later.pem; true", hidden=["*.pem"])["out"] == ""
    (bench.workspace / "later.pem").write_text(SECRET)
    bench.own(bench.workspace / "later.pem")
    assert SECRET not in str(bench.run("cat later.pem", hidden=["*.pem"]))
    (bench.workspace / "later.pem").unlink()


def test_bytes_that_the_daemon_would_change_are_refused(bench: Containers) -> None:
    name = os.fsdecode(b"caf\xe9.pem")
    assert "UTF-8" in bench.run(f"touch '{name}'")["problem"][1]
    assert not [each for each in os.listdir(bench.workspace) if each.startswith("caf")]
    (bench.workspace / name).write_text(SECRET)
    bench.own(bench.workspace / name)
    try:
        assert "UTF-8" in bench.run("ls", hidden=["*.pem"])["unavailable"][1], "it cannot be covered"
    finally:
        (bench.workspace / name).unlink()


def test_a_container_that_is_taken_away_is_a_problem_and_the_next_command_gets_another(
    bench: Containers, docked: Dock
) -> None:
    bench.run("true", limits={"pids": 99})
    before = set(containers(docked))
    bench.run("true", limits={"pids": 98})
    (mine,) = set(containers(docked)) - before
    docked.ask("remove_container", mine, force=True)
    assert bench.run("echo again", limits={"pids": 98})["out"] == "again\n"
    now = set(containers(docked)) - before - {mine}
    nap = new_nap()

    def take_away() -> None:
        until(lambda: processes(nap), of=bench.process)
        for each in now:
            docked.ask("kill", each)

    taking = threading.Thread(target=take_away)
    taking.start()
    answer = bench.run(f"sleep {nap}; echo late", limits={"pids": 98})
    taking.join()
    assert (answer["status"], answer["out"]) in ((125, ""), (137, "")), answer
    assert bench.run("echo again", limits={"pids": 98})["out"] == "again\n"


def test_a_script_that_is_too_long_says_so(bench: Containers) -> None:
    answer = bench.run("true #" + "x" * 200_000)
    assert answer["status"] == 126, answer
    assert answer["problem"][0]
    assert bench.run("echo fine")["out"] == "fine\n"


# ---- what cannot be used


# fmt: off
UNUSABLE = [
    # choice, words of the problem, words of the fix, why
    ({"image": ""},                              "no image is configured",  "[sandbox.container]", "nobody chose one"),
    ({"image": "ringfence-test:latest"},         "is not pinned",           "sha256:",             "a tag; the fix says what to write"),
    ({"image": "ringfence-test"},                "is not pinned",           "sha256:",             "a name"),
    ({"image": "sha256:" + "0" * 64},            "is not on this machine",  "docker images",       "an image that is not there"),
    ({"image": "none@sha256:" + "0" * 64},       "is not on this machine",  "docker pull",         "likewise"),
    ({"runtime": "no-such-runtime"},             "cannot be created",       "runtime",             "a runtime the daemon does not know"),
    ({"socket": "/nowhere/d.sock"},              "no container daemon",     "docker.io",           "no daemon"),
    ({"socket": "tcp://127.0.0.1:1"},            "cannot be used",          "socket",              "one on another machine"),
]
# fmt: on


@pytest.mark.parametrize(("choice", "what", "fix", "why"), UNUSABLE, ids=[row[3] for row in UNUSABLE])
@pytest.mark.threat("T60")
def test_what_cannot_be_used_is_a_problem_with_its_fix(
    bench: Containers, choice: dict[str, str], what: str, fix: str, why: str
) -> None:
    problem = bench.ask({"kind": "RunScript", "script": "true", "cwd": str(bench.workspace)}, choice=choice)[
        "unavailable"
    ]
    assert what in problem[0], why
    assert fix in problem[2], why


def changed(docked: Dock, changes: list[str], files: dict[str, str] | None = None) -> str:
    """The ID of an image that is the usual one with `changes` (as in a Dockerfile) and executable `files`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in (files or {}).items():
            about = tarfile.TarInfo(path)
            about.mode, about.size = 0o755, len(text)
            archive.addfile(about, io.BytesIO(text.encode()))
    made = docked.ask("create_container", docked.image, entrypoint=["/bin/true"])["Id"]
    try:
        docked.ask("put_archive", made, "/", packed.getvalue())
        return str(docked.ask("commit", made, changes=changes)["Id"])
    finally:
        docked.ask("remove_container", made, v=True)


# fmt: off
NO_BASH = [
    # what is in its place, why
    ("#!/bin/sh\nexec cat /dev/zero\n",            "it says something without end, and never a line"),
    ("#!/bin/sh\nexec yes\n",                      "it says other lines"),
    ("#!/bin/sh\necho already\nexec sleep 60\n",  "it says nearly the word"),
]
# fmt: on


@pytest.mark.parametrize(("text", "why"), NO_BASH, ids=[row[1] for row in NO_BASH])
@pytest.mark.threat("T60")
def test_what_an_image_has_in_place_of_bash_is_not_heard_for_long(
    bench: Containers, docked: Dock, text: str, why: str
) -> None:
    choice = {"image": changed(docked, [], {"usr/bin/bash": text})}
    problem = bench.ask({"kind": "RunScript", "script": "true", "cwd": str(bench.workspace)}, choice=choice)[
        "unavailable"
    ]
    assert "its first command had no effect" in problem[1], why


@pytest.mark.threat("T60")
def test_volumes_of_an_image_are_covered_however_they_are_written(bench: Containers, docked: Dock) -> None:
    choice = {"image": changed(docked, ['VOLUME ["/one/", "//two", "/a/../three", "/four/."]'])}
    script = 'for each in /one /two /three /four /data; do touch "$each/x" || echo "closed $each"; done 2>/dev/null'
    answer = bench.run(script, choice=choice)
    assert answer["out"].split() == [
        word for each in ("one", "two", "three", "four", "data") for word in ("closed", f"/{each}")
    ]


@pytest.mark.parametrize("bench", NOBODY_ONLY, indirect=True)  # root may use every socket
def test_a_socket_that_is_somebody_elses(bench: Containers, docked: Dock) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, socket.socket(socket.AF_UNIX) as closed:
        os.chmod(folder, 0o755)
        closed.bind(f"{folder}/d.sock")
        os.chmod(f"{folder}/d.sock", 0o600)
        told = bench.ask(
            {"kind": "RunScript", "script": "true", "cwd": str(bench.workspace)}, choice={"socket": f"{folder}/d.sock"}
        )
        assert "you may not use" in told["unavailable"][0], told
        assert "usermod" in told["unavailable"][2]


@pytest.mark.threat("T58")
def test_the_daemons_socket_is_never_inside(bench: Containers, docked: Dock) -> None:
    folder = os.path.dirname(docked.socket)
    link = bench.workspace / "to-the-daemon"
    link.symlink_to(folder)
    try:
        for told in ({"read": [folder]}, {"write": [docked.socket]}, {"read": [str(link)]}):
            answer = bench.run("true", **told)
            assert "cannot be given to a container" in answer["unavailable"][0], told
            assert bench.run("true")["status"] == 0
        assert bench.run(f"ls {link}/ {docked.socket}")["status"] != 0
    finally:
        link.unlink()


@pytest.mark.threat("T06")
@pytest.mark.parametrize("bench", [user for user in USERS if user != "root"], indirect=True)
def test_who_cannot_enter_the_network_of_a_container_opens_none(bench: Containers) -> None:
    """Root can: test_container_egress."""
    answer = bench.run("touch ran", hosts=["example.org"])
    assert "example.org" in answer["unavailable"][0]
    assert "only root may" in answer["unavailable"][1]
    assert not (bench.workspace / "ran").exists()


# ---- left-overs


@pytest.mark.threat("T59")
def test_a_killed_runner_leaves_no_container_and_no_process(docked: Dock, tmp_path_factory: Any) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder)
        base.chmod(0o755)
        made = Containers(USERS[0], base, docked)
        made.run("true")
        before = containers(docked)
        mark = new_nap()
        assert made.process.stdin is not None
        _send(made, f"sleep {mark}")
        until(lambda: processes(mark), of=made.process)
        made.process.send_signal(signal.SIGKILL)
        made.process.wait()
        until(lambda: not processes(mark), what="the end of the container's input")
        until(lambda: set(containers(docked)) < set(before))


def _send(bench: Containers, script: str) -> None:
    """Ask for a command and do not wait for it."""
    threading.Thread(target=lambda: _quietly(bench, script), daemon=True).start()


def _quietly(bench: Containers, script: str) -> None:
    try:
        bench.run(script)
    except (AssertionError, OSError, ValueError):
        return  # the driver was killed: that is what the test is about


@pytest.mark.threat("T59")
def test_left_over_containers_are_removed_and_those_of_others_are_not(docked: Dock, tmp_path: Path) -> None:
    import asyncio
    import fcntl

    from sandbox.container.daemon import Daemon, labels, sweep

    held = tmp_path / "held"
    held.mkdir()
    (tmp_path / "free").mkdir()
    handle = os.open(held, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    labelled: dict[str, dict[str, str]] = {
        "gone": dict(labels("s1", str(tmp_path / "gone"))),
        "free": dict(labels("s2", str(tmp_path / "free"))),
        "held": dict(labels("s3", str(held))),
        "elsewhere": {**dict(labels("s4", str(tmp_path / "gone"))), "io.ringfence.place": "another boot"},
        "unlabelled": {},
    }
    made = {}
    try:
        for name, told in labelled.items():
            body = {"Image": docked.image, "Entrypoint": ["/bin/sleep", "99"], "Labels": told, "HostConfig": {"NetworkMode": "none"}}  # fmt: skip
            made[name] = docked.ask("create_container_from_config", body)["Id"]
            docked.ask("start", made[name])
        asyncio.run(sweep(Daemon(docked.socket)))
        there = {each["Id"] for each in docked.ask("containers", all=True)}
        assert {name for name, number in made.items() if number in there} == {"held", "elsewhere", "unlabelled"}
    finally:
        os.close(handle)
        for number in made.values():
            if number in {each["Id"] for each in docked.ask("containers", all=True)}:
                docked.ask("remove_container", number, force=True)


# ---- what a user swaps while a container is made


@pytest.mark.threat("T18")
@pytest.mark.threat("T60")
def test_a_name_that_is_swapped_for_a_link_meanwhile_shows_nothing(docked: Dock) -> None:
    """The daemon is root and follows links: what it mounted is looked at before anything runs."""
    if os.geteuid() != 0:
        pytest.skip("the decoy must be a file that only root may read")
    import asyncio

    from policy.model.verdict import Rights, Terms
    from sandbox.backend import ContainerOptions, SandboxUnavailable
    from sandbox.container.backend import Container
    from sandbox.container.container import Box

    class Raced(Container):
        def _body(self, box: Box, terms: Terms) -> dict[str, object]:
            body = super()._body(box, terms)
            (work / ".envrc").unlink()
            (work / ".envrc").symlink_to(secret)
            return body

    async def attempt() -> str:
        backend = Raced(ContainerOptions(image=docked.image, socket=docked.socket))
        try:
            await backend.probe(Terms(Rights.WORKSPACE_WRITE, str(work), "/nonexistent", locked=(".envrc",), env=()))
        except SandboxUnavailable as error:
            return str(error.problem)
        finally:
            await backend.close()
        return ""

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        work, secret = Path(folder) / "work", Path(folder) / "secret"
        work.mkdir()
        (work / ".envrc").write_text("mine")
        secret.write_text(SECRET)
        assert "the mounts differ from the requested ones" in asyncio.run(attempt())
    until(lambda: all("running" in state for state in containers(docked).values()))


# ---- the program


@pytest.fixture
def agent(docked: Dock, tmp_path: Path) -> Any:
    config = tmp_path / "config" / "config.toml"
    config.parent.mkdir(mode=0o700)
    config.write_text(f'[sandbox.container]\nimage = "{docked.image}"\nsocket = "{docked.socket}"\n')
    workspace = tmp_path / "project"
    workspace.mkdir()

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environ = {
            "HOME": str(tmp_path / "home"),
            "PATH": os.environ["PATH"],
            "RINGFENCE_CONFIG_DIR": str(config.parent),
        }
        program = AGENT
        return forked_agent.run([program, *words], cwd=workspace, env=environ, capture_output=True, text=True)

    return run


def test_agent_exec_in_a_container(agent: Any, docked: Dock) -> None:
    done = agent("exec", "--backend", "container", "--mode", "trust-project", "--unattended", "uname -n; exit 3")
    assert (done.returncode, done.stdout) == (3, "sandbox\n"), done.stderr
    done = agent("exec", "--backend", "container", "--json", "echo hi")
    assert '"backend":"container"' in done.stdout, done.stdout
    before = containers(docked)
    assert all("running" in state for state in before.values())


def test_agent_doctor_lists_it(agent: Any) -> None:
    done = agent("doctor")
    assert "sandbox container FULL" in done.stdout, done.stdout
    assert "not enforced: Landlock is not used" in done.stdout


def test_without_an_image_it_says_what_to_write_and_exits_with_4(agent: Any, tmp_path: Path) -> None:
    config = tmp_path / "config" / "config.toml"
    config.write_text(config.read_text().replace("image =", "# image ="))
    done = agent("exec", "--backend", "container", "--mode", "trust-project", "--unattended", "make")
    assert done.returncode == 4, done.stderr
    assert "image =" in done.stderr


def test_a_repository_cannot_choose_the_image(tmp_path: Path) -> None:
    from runner.config import load

    (tmp_path / ".ringfence").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".ringfence" / "config.toml").write_text(
        '[sandbox.container]\nimage = "evil@sha256:0"\nsocket = "/x"\n'
    )
    settings = load(tmp_path, {"HOME": str(tmp_path / "home")})
    assert (settings.container.image, settings.container.socket) == ("", "")
    assert len([notice for notice in settings.notices if "sandbox.container" in notice]) == 2
