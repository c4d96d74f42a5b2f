"""Tests of checkpoints, seals and signatures: their statements about a log, and every change that invalidates them."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.model.verdict import Problem
from runner.audit import log as log_module
from runner.audit.chain import AuditError, canonical
from runner.audit.checkpoint import MerkleTree, leaf
from runner.audit.log import AuditLog
from runner.audit.seal import create_seal, read_seal
from runner.audit.signing import Signer, has_valid_signature, statement
from runner.audit.verify import BrokenChain, ExpectedRecord
from runner.secrets.secret import Secret
from tests.support import forked_agent
from tests.support.agent_program import AGENT
from tests.support.audit_records import fill, refusal, unfenced
from tests.support.places import ROOT
from tests.support.sandbox_bench import USERS
from tests.support.sealed_records import OTHER, SIGNER, broken, resealed, whole
from tests.support.secret_service import KeyringHarness, harness


def reference(leaves: list[bytes]) -> bytes:
    """MTH of RFC 9162 section 2.1.1, as it is written there."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\1" + reference(leaves[:k]) + reference(leaves[k:])).digest()


@pytest.mark.thorough
@given(st.integers(0, 70), st.integers(0, 70))
def test_the_tree_is_the_one_of_the_rfc_wherever_it_is_taken_up_again(count: int, kept: int) -> None:
    leaves = [leaf(hashlib.sha256(bytes([n])).hexdigest()) for n in range(count)]
    tree = MerkleTree()
    for number, each in enumerate(leaves):
        if number == kept:
            tree = MerkleTree.of(tree.count, json.loads(json.dumps(tree.peak_texts)))
        tree.add(each)
    assert tree.root == reference(leaves).hex()
    assert tree.count == count


# SOURCE: RFC 9162 section 2.1.1 says of no leaves "the hash of an empty string"; of one, with its prefix.
def test_the_roots_that_are_known() -> None:
    assert MerkleTree().root == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert leaf("").hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"


@pytest.mark.parametrize("told", [(3, ["00" * 32]), (1, ["00"]), (-1, []), (1, "x"), ("1", ["00" * 32]), (1, [5])])
def test_what_is_no_tree_is_refused(told: tuple[object, object]) -> None:
    with pytest.raises(ValueError, match="peak"):
        MerkleTree.of(*told)


def test_a_checkpoint_comes_by_itself_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "EVERY", 8)
    path = tmp_path / "audit.db"
    fill(path, 20)
    with AuditLog.open(path) as log:
        made = [(record.id, record.body["count"]) for record in log.rows(kind="checkpoint")]
        assert made == [(number, number - 1) for number in (46, 37, 28, 19, 10)], "one in eight records"
        assert log.checkpoint() is None, "there is nothing new since the last"
        log.refused("s", refusal())
        assert log.checkpoint() == 48
        assert log.checkpoint() is None
        assert log.checkpoint() is None
    chain = whole(path)
    assert (chain.checkpoints, chain.signed, chain.keys) == (6, 0, ())
    assert json.loads(next(iter(rows(path, "checkpoint"))))["root"] != chain.root


def rows(path: Path, kind: str) -> list[str]:
    with AuditLog.open_to_read(path) as log:
        return [canonical(record.body) for record in log.rows(kind=kind)]


def signed(path: Path, signer: Signer | None = SIGNER) -> None:
    """A log of 14 records, of which the 12th is a checkpoint."""
    fill(path, 5)
    with AuditLog.open(path, signer=(lambda: signer) if signer else None) as log:
        log.checkpoint()
        log.refused("s", refusal())
        log.refused("s", refusal())


@pytest.mark.threat("T25")
def test_a_signed_checkpoint_says_who_signed_up_to_where(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    signed(path)
    chain = whole(path, keys=(SIGNER.public,))
    assert (chain.signed, chain.keys) == (11, (SIGNER.public,))
    assert "another key" in broken(path, keys=(OTHER.public,)).why
    assert broken(path, keys=(OTHER.public,)).id == 12
    unsigned = tmp_path / "unsigned.db"
    signed(unsigned, None)
    assert "no checkpoint is signed" in broken(unsigned, keys=(SIGNER.public,)).why


FORGED: list[tuple[str, Callable[[dict[str, object]], None], str]] = [
    ("the root", lambda body: body.update(root="00" * 32), "does not match the records"),
    ("the count", lambda body: body.update(count=10), "is not valid"),
    ("a smaller tree", lambda body: body.update(count=8, peaks=body["peaks"][:1]), "does not match the records"),  # type: ignore[index]
    ("the head", lambda body: body.update(hash="00" * 32), "does not match the records"),
    ("the chain", lambda body: body.update(log="0" * 16), "does not match the records"),
    ("the time", lambda body: body.update(time="2000"), "signature"),
    ("the key", lambda body: body.update(key=OTHER.public), "signature"),
    ("the signature", lambda body: body.update(signature="00" * 64), "signature"),
    ("a signature of another shape", lambda body: body.update(signature=5), "signature"),
    ("no root", lambda body: body.pop("root") and None, "is not valid"),
    ("peaks that are none", lambda body: body.update(peaks=["x"] * 3), "is not valid"),
]


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("name", "change", "why"), FORGED, ids=[row[0] for row in FORGED])
def test_a_forged_checkpoint_is_named(
    tmp_path: Path, name: str, change: Callable[[dict[str, object]], None], why: str
) -> None:
    path = tmp_path / "audit.db"
    signed(path)
    resealed(path, change)
    found = broken(path)
    assert (found.id, why in found.why) == (12, True), found


@pytest.mark.threat("T25")
def test_a_history_that_was_written_anew_does_not_fit_its_signed_checkpoints(tmp_path: Path) -> None:
    """Without the key, anyone who rewrites must leave out every signature from there on, which the key's owner sees."""
    path = tmp_path / "audit.db"
    signed(path)
    resealed(path, lambda body: body.update(tool="another"), at=3)
    assert broken(path).id == 12, "the checkpoint speaks of other records"
    copy = tmp_path / "copy.db"
    signed(copy)
    resealed(copy, lambda body: [body.pop(name) for name in ("signature", "key")] and None)
    assert whole(copy).signed == 0, "without a key to look for, the stripped signature is not missed"
    assert broken(copy, keys=(SIGNER.public,)).why == "no checkpoint is signed with the given key"


@pytest.mark.threat("T25")
def test_a_key_that_cannot_be_had_leaves_a_checkpoint_that_says_so(tmp_path: Path) -> None:
    def locked() -> Signer:
        raise AuditError(Problem("the log cannot be signed", "the keyring: it is locked", "unlock it"))

    path = tmp_path / "audit.db"
    fill(path, 1)
    with AuditLog.open(path, signer=locked) as log:
        log.checkpoint()
    (text,) = rows(path, "checkpoint")
    assert json.loads(text)["unsigned"] == "the keyring: it is locked"
    assert whole(path).signed == 0


def test_a_seal_holds_while_the_log_grows(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    signed(path)
    with AuditLog.open_to_read(path) as log:
        body = create_seal(log.store, lambda: SIGNER)
    assert body["root"] == whole(path).root
    noted = read_seal(json.dumps(body).encode(), (SIGNER.public,))
    head = ExpectedRecord(14, noted.hash)
    assert whole(path, noted=(noted, head)).count == 14
    assert broken(path, noted=(noted, replace(head, hash="00" * 32))).id == 14, "one does not stand for the other"
    fill(path, 3)
    assert whole(path, noted=(noted,)).count == 21


SEALS: list[tuple[str, Callable[[dict[str, object]], object], str]] = [
    ("a changed count", lambda body: body.update(count=13), "signature"),
    ("no signature", lambda body: body.pop("signature") and body.pop("key"), "not signed"),
    (
        "another key",
        lambda body: body.update(OTHER.signed({k: v for k, v in body.items() if k != "signature"})),
        "signed with",
    ),
    ("another format", lambda body: body.update(format="2"), "not what"),
    ("a count of nothing", lambda body: body.update(count=0), "not what"),
    ("a hash that is none", lambda body: body.update(hash="x"), "not what"),
    ("a hash of another type", lambda body: body.update(hash=5), "not what"),
    ("no root", lambda body: body.pop("root"), "not what"),
]


@pytest.mark.threat("T25")
@pytest.mark.parametrize(("name", "change", "why"), SEALS, ids=[row[0] for row in SEALS])
def test_a_changed_seal_is_refused(
    tmp_path: Path, name: str, change: Callable[[dict[str, object]], object], why: str
) -> None:
    path = tmp_path / "audit.db"
    signed(path)
    with AuditLog.open_to_read(path) as log:
        body = create_seal(log.store, lambda: SIGNER)
    change(body)
    with pytest.raises(AuditError, match=why):
        read_seal(json.dumps(body).encode(), (SIGNER.public,))


@pytest.mark.parametrize("text", [b"", b"[]", b"5", b"\xff", b"{}", b"[" * 100_000])
def test_what_is_no_seal_is_refused(text: bytes) -> None:
    with pytest.raises(AuditError, match="not what"):
        read_seal(text, ())


@pytest.mark.threat("T25")
def test_another_log_does_not_fit_a_seal(tmp_path: Path) -> None:
    path, other = tmp_path / "audit.db", tmp_path / "other.db"
    signed(path)
    signed(other)
    with AuditLog.open_to_read(path) as log:
        noted = read_seal(json.dumps(create_seal(log.store, lambda: None)).encode(), ())
    assert "another log" in broken(other, noted=(noted,)).why
    assert "rewritten" in broken(other, noted=(replace(noted, log=""),)).why
    assert broken(path, noted=(ExpectedRecord(noted.number, noted.hash, "00" * 32),)).why.startswith(
        "the Merkle root of the records up to it"
    )
    unfenced(path, "DELETE FROM records WHERE id > 12; DELETE FROM cards WHERE id > 12;"
             "UPDATE logs SET last = 12, hash = (SELECT hash FROM records WHERE id = 12)")  # fmt: skip
    assert whole(path).count == 12, "the end cut off with care: the chain alone cannot tell"
    assert broken(path, noted=(noted,)) == BrokenChain(13, "the log ends before the expected record 14")


def test_a_signature_is_over_all_but_itself() -> None:
    body = SIGNER.signed({"kind": "checkpoint", "count": 1})
    assert has_valid_signature(body)
    assert statement(body) == b'ringfence audit 1\n{"count":1,"key":"%s","kind":"checkpoint"}' % SIGNER.public.encode()
    assert "1111" not in repr(SIGNER)
    with pytest.raises(ValueError, match="32 bytes"):
        Signer(Secret("11"))


def test_cryptography_is_loaded_only_when_something_is_signed(tmp_path: Path) -> None:
    """And not by a run that records a session, a decision and its outcome."""
    script = """
        import sys
        from pathlib import Path
        from runner.audit import log, signing
        from runner.config import Settings
        from sandbox.backend import Outcome
        from tests.support.audit_records import RunScript, allowed, info
        with log.AuditLog.open(Path(sys.argv[1]), signer=signing.required_signer) as audit:
            audit.finished(audit.decided(audit.session(info()), allowed(RunScript("ls", "/w"))), Outcome(0))
            print([name for name in ("cryptography", "keyring", "sqlalchemy") if name in sys.modules])
            log.EVERY = 1
            audit.finished(2, Outcome(0))
            print([name for name in ("cryptography", "keyring", "sqlalchemy") if name in sys.modules])
    """
    import textwrap

    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "audit.db")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[0] == "[]", done.stderr
    assert "keyring" in done.stdout.splitlines()[1]


@pytest.fixture(params=USERS)
def place(request: pytest.FixtureRequest) -> Iterator[KeyringHarness]:
    with harness(request.param) as made:
        yield made


@pytest.mark.thorough
def test_the_key_lies_in_the_keyring_and_signs_what_comes(place: KeyringHarness) -> None:
    config = place.home / ".config/ringfence/config.toml"

    def said(*words: str, code: int = 0) -> str:
        done = place.agent(*words)
        assert done.returncode == code, done.stdout + done.stderr
        return (done.stdout + done.stderr).strip()

    with place.secret_service():
        assert "contains no signing key" in said("audit", "key", "show", code=1)
        public = said("audit", "key", "new")
        assert said("audit", "key", "show") == public
        assert public in said("audit", "key", "new", code=2), "a key is not lost by accident"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text("[audit]\nsign = true\n")
        said("exec", "--", "/bin/true")
        seal = said("audit", "seal")
        assert json.loads(seal)["key"] == public
        other = said("audit", "key", "new", "--replace")
        assert other != public == json.loads(seal)["key"]
    assert "no signing key" in said("audit", "key", "show", code=1)


@pytest.mark.thorough
def test_the_commands(tmp_path: Path) -> None:
    path, kept = tmp_path / "audit.db", tmp_path / "audit.seal"
    signed(path)

    def said(*words: str, code: int = 0) -> str:
        command = [AGENT, "audit", *words, "--file", str(path)]
        done = forked_agent.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert said("seal", "--out", str(kept)) == ""
    told = said("verify", "--seal", str(kept)).splitlines()
    assert told[:3] == ["all 14 records are intact", "1 checkpoint, signed up to record 11", f"key {SIGNER.public}"]
    assert told[-1] == "the seal matches the first 14 records"
    chains = json.loads(said("verify", "--json", "--public-key", SIGNER.public))["chains"]
    assert (chains[0]["signed"], chains[0]["keys"], chains[0]["root"]) == (
        11,
        [SIGNER.public],
        json.loads(kept.read_text())["root"],
    )
    assert "another key" in said("verify", "--public-key", OTHER.public, code=1)
    assert "is not a public key" in said("verify", "--public-key", "mine", code=2)
    assert "cannot be read" in said("verify", "--seal", str(tmp_path / "none"), code=2)
    assert "it is not signed" in said("verify", "--seal", str(kept), "--public-key", SIGNER.public, code=1)
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"count": 13}))
    assert "rewritten" in said("verify", "--seal", str(kept), code=1)
