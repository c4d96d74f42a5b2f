"""A helper that builds a part of its root before it knows the Terms: the result is the root of the Terms, or not used."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox_bench import SYSTEM, USERS, Bench, make

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
# What a command can see of its sandbox. The numbers of mounts and devices differ between any two sandboxes.
LOOK = """
echo "$$"; cut -d ' ' -f 4- /proc/self/mountinfo | sort; find / -xdev 2>&1 | sort; ls -la /etc /dev /run /tmp /proc/sys/user 2>&1
ls /proc | grep -v '[0-9]'; cat /proc/sys/kernel/pid_max /proc/sys/vm/memfd_noexec /proc/sys/user/max_* 2>&1
for f in /proc/kallsyms /proc/keys /proc/cmdline /proc/fs /etc/shadow ~/.ssh; do cat $f 2>&1; ls $f 2>&1; done
echo x 2>&1 >/etc/x; echo x 2>&1 >/x; echo 1 2>&1 >/proc/sys/kernel/pid_max; id; hostname; cat /proc/self/status | grep -v ctxt
cat /proc/net/dev | cut -d : -f 1; ulimit -a
"""
CHANGING = re.compile(
    r"ringfence-\S+|\S+-[0-9a-f]{32}|\d\d:\d\d|(size|pid_max|VmPeak|VmSize|VmRSS|RssAnon|RssFile|VmHWM|VmPTE|VmData).*"
)


@pytest.fixture(scope="module", params=USERS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from make(request.param)


def seen(bench: Bench, script: str, **told: Any) -> dict[str, Any]:
    answer = bench.run(script, **told)
    assert "unavailable" not in answer, answer
    answer["lines"] = [CHANGING.sub("#", line) for line in (answer["out"] + answer["err"]).splitlines()]
    return answer


@pytest.mark.threat("T297")
@pytest.mark.parametrize("rights", ["read-only", "workspace-write"])
def test_the_root_is_the_same(bench: Bench, rights: str) -> None:
    plain = seen(bench, LOOK, rights=rights, prepared=[])
    early = seen(bench, LOOK, rights=rights, prepared=SYSTEM)
    assert early["used"]
    assert len(plain["lines"]) > 100
    assert early["lines"] == plain["lines"]
    assert early["checks"] == plain["checks"]
    assert all(early["checks"].values())


# fmt: off
NOT_USED: list[tuple[list[str], dict[str, Any], str]] = [
    # what was built early besides the system files, other Terms, why
    (["{outside}"],           {},                                       "the Terms do not grant a folder"),
    (["/etc/shadow"],         {},                                       "the Terms do not grant a file"),
    ([],                      {"system": ["/usr", "/bin"]},             "the Terms grant less"),
    ([],                      {"read": ["/etc"]},                       "a mount of the Terms would cover one of the root"),
    ([],                      {"read": ["/usr/share"]},                 ""),
    ([],                      {"env": {"PATH": "/usr/bin:/bin"}},       ""),
]
# fmt: on


@pytest.mark.threat("T297")
@pytest.mark.parametrize(("more", "told", "why"), NOT_USED, ids=[row[2] or str(row[1]) for row in NOT_USED])
def test_a_root_is_used_only_if_the_terms_contain_it(
    bench: Bench, more: list[str], told: dict[str, Any], why: str
) -> None:
    names = [name.format(outside=bench.outside) for name in more]
    script = f"cat {bench.outside}/target.txt /etc/shadow; ls /etc | wc -l; ls /usr/share | wc -l"
    early = seen(bench, script, prepared=[*SYSTEM, *names], **told)
    assert early["used"] is (not why)
    plain = seen(bench, script, **told)
    assert early["lines"] == plain["lines"]


@pytest.mark.threat("T297")
def test_a_file_that_was_replaced_meanwhile_is_the_new_one(bench: Bench) -> None:
    folder = bench.base / "tools"
    folder.mkdir(exist_ok=True)
    for name, text in (("old", "old\n"), ("new", "new\n")):
        (folder / name).write_text(text)
    bench.own(folder)
    system = [*SYSTEM, str(folder / "old")]
    told: dict[str, Any] = {"system": system, "prepared": system}
    assert seen(bench, f"cat {folder}/old", **told)["used"]
    early = seen(bench, f"cat {folder}/old", swap=[str(folder / "new"), str(folder / "old")], **told)
    assert not early["used"]
    assert early["out"] == "new\n"


@pytest.mark.threat("T297")
def test_another_tier_gets_a_helper_of_its_own(bench: Bench) -> None:
    """A helper that has entered namespaces must not serve T3, which has none."""
    early = seen(bench, "readlink /proc/self/ns/net; ls / | wc -l", tier="T3", prepared=SYSTEM)
    plain = seen(bench, "readlink /proc/self/ns/net; ls / | wc -l", tier="T3")
    assert not early["used"]
    assert early["lines"] == plain["lines"]
    assert Path("/proc/self/ns/net").readlink().name in early["out"]


@pytest.mark.threat("T298")
@pytest.mark.parametrize(("tier", "helper"), [("T1", ["alive", "ended"]), ("T3", ["ended", "ended"])])
def test_a_caller_need_not_wait_for_the_end_of_a_helper(bench: Bench, tier: str, helper: list[str]) -> None:
    """But for the end of all processes of the command: in T1 the helper has waited for them before it answered."""
    mark = bench.base / "home" / "project" / "mark"
    script = f"(setsid sh -c 'sleep 3; echo late > {mark}' &) >/dev/null 2>&1; exit 7"
    answer = seen(bench, script, tier=tier, prepared=SYSTEM)
    assert answer["status"] == 7
    assert answer["helper"] == helper
