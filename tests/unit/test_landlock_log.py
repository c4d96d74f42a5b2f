"""Tests of the kernel's records of denials: records of the product's helper are used, all others ignored."""

import os
import socket

import pytest

from sandbox.linux import landlock_log
from sandbox.linux.landlock_log import Feed

OURS = frozenset((299, 300))
# Lines in the form that the kernel's admin guide of Landlock shows.
DOMAIN = 'audit(1729738800.268:30): domain=195ba459b status=allocated mode=enforcing pid={pid} uid=0 exe="/usr/bin/x" comm="x"'
ACCESS = 'audit(1729738800.268:30): domain={domain} blockers={blockers} path={path} dev="vda2" ino=351'


def fed(*records: tuple[int, str]) -> Feed:
    made, _ = socket.socketpair()
    feed = Feed(made)
    for kind, text in records:
        feed.note(kind, text)
    return feed


@pytest.mark.threat("T66")
@pytest.mark.parametrize(
    ("domain", "blockers", "path", "pid", "expected", "why"),
    [
        ("195ba459b", "fs.write_file", '"/etc/x"', 300, [("writing `/etc/x` was denied", "/etc/x")], "ours"),
        (
            "195ba459b",
            "fs.make_reg,fs.refer",
            '"/var"',
            300,
            [("making a file in, moving or linking between folders at `/var` was denied", "/var")],
            "two rights",
        ),
        ("195ba459b", "fs.read_file", "2F612062", 300, [("reading `/a b` was denied", "/a b")], "a path in digits"),
        ("195ba459b", "fs.something_new", '"/x"', 300, [("fs.something_new `/x` was denied", "/x")], "a right to come"),
        ("195ba459b", "fs.read_file", '"/x"', 301, [], "another process entered that domain"),
        ("999999999", "fs.read_file", '"/x"', 300, [], "a domain that nobody told us of"),
        ("195ba459b", "fs.read_file", "2F6", 300, [("reading was denied", "")], "digits that are no bytes"),
    ],
)
def test_a_record_is_taken_for_the_helper_that_made_its_domain(
    domain: str, blockers: str, path: str, pid: int, expected: list[tuple[str, str]], why: str
) -> None:
    access = ACCESS.format(domain=domain, blockers=blockers, path=path)
    feed = fed((1424, DOMAIN.format(pid=pid)), (1423, access), (1423, access), (1300, access), (1423, "garbage"))
    told = feed.denials(OURS, 1729738800.2689)
    assert [(each.what, each.path) for each in told] == expected, why
    assert all((each.inferred, each.layer) == (False, "landlock") for each in told)
    assert feed.denials(OURS, 1729738800.2689) == (), "told once"
    if pid == 301:
        assert feed.denials(frozenset((301,)), 0.0), "kept for the one it belongs to"
    feed.close()


def test_what_an_earlier_command_was_denied_is_not_told_of_a_later_one() -> None:
    access = ACCESS.format(domain="195ba459b", blockers="fs.read_file", path='"/x"')
    feed = fed((1424, DOMAIN.format(pid=300)), (1423, access))
    assert feed.denials(OURS, 1729738800.27) == ()
    feed.close()


def test_the_log_is_read_only_where_it_is_written() -> None:
    """For real: without the right, or with auditing off, there is no feed; and nothing of ours switches it on."""
    feed = landlock_log.feed()
    if os.geteuid() != 0:
        assert feed is None
    if feed is not None:
        assert feed.denials(Feed.processes(os.getpid()), 0.0) == ()
        feed.close()
