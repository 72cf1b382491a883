"""Embedding stores are listed, checked and made smaller; damage is reported."""

import os
import time

import pytest
import torch

from dana.cli.main import main
from dana.core.artifacts import fingerprint
from dana.core.errors import ConfigError
from dana.encoders.hashing import HashingEncoder
from dana.encoders.segment import ASIDE, PATTERN
from dana.encoders.store import StoredEncoder, create_encoder
from dana.stages.stores import describe_store, parse_bytes, prune_store, verify_store


@pytest.fixture
def filled(tmp_path):
    """A store of two encoders and three segments."""
    texts = [f"sentence {number}" for number in range(300)]
    for spec, part in [("hashing:32", texts[:100]), ("hashing:32", texts[100:]), ("hashing:64", texts)]:
        encoder = create_encoder(spec, str(tmp_path / "store"), "int8" if spec.endswith("64") else "float16")
        encoder.encode(part)
        encoder.close()
    return tmp_path / "store"


def named(store, spec):
    return next(row for row in describe_store(store) if row.spec == spec)


def test_info_counts(filled, capsys):
    half, byte = named(filled, "hashing:32"), named(filled, "hashing:64")
    assert (half.dtype, half.dims, half.segments, half.rows) == ("float16", 32, 2, 300)
    assert (byte.dtype, byte.dims, byte.segments, byte.rows) == ("int8", 64, 1, 300)
    assert half.name == fingerprint(StoredEncoder(HashingEncoder(32), filled).identity())
    assert byte.size == sum(path.stat().st_size for path in (filled / byte.name).iterdir())
    assert main(["store", "info", str(filled)]) == 0
    assert "hashing:64                   int8        64        1            300" in capsys.readouterr().out


def test_verify_passes_a_whole_store_and_encodes_a_sample_again(filled, capsys):
    verdicts = verify_store(filled)
    assert [(verdict.rows, verdict.problems, verdict.why_not) for verdict in verdicts] == [(300, [], "")] * 2
    assert sorted(verdict.encoded for verdict in verdicts) == [8, 16]
    assert all(verdict.difference < 1e-2 for verdict in verdicts)
    assert main(["store", "verify", str(filled)]) == 0
    assert "300 rows; 16 texts encoded again" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "says"),
    [(-1, "1 of 300 rows fail their checksum"), (None, "not a whole segment"), ("key", "keys are not ascending")],
)
def test_verify_reports_damage(filled, place, says, capsys):
    path = next((filled / named(filled, "hashing:64").name).glob(PATTERN))
    content = bytearray(path.read_bytes())
    if place is None:
        content = content[: len(content) // 2]
    elif place == "key":
        content[8 + int.from_bytes(content[:8], "little") + 7] ^= 0xFF  # the first key becomes large
    else:
        content[place] ^= 0x10
    path.unlink()
    path.write_bytes(content)
    problems = [problem for verdict in verify_store(filled) for problem in verdict.problems]
    assert any(says in problem and str(path) in problem for problem in problems)
    assert main(["store", "verify", str(filled)]) == 2
    assert "1 of 2 encoders' rows have problems" in capsys.readouterr().err


def test_verify_notices_vectors_of_another_encoder(filled, monkeypatch):
    encode = HashingEncoder.encode
    monkeypatch.setattr(HashingEncoder, "encode", lambda self, texts: torch.roll(encode(self, texts), 1, 1))
    problems = [problem for verdict in verify_store(filled) for problem in verdict.problems]
    assert len(problems) == 3
    assert all("vectors differ from what hashing:" in problem for problem in problems)


def test_verify_says_why_it_encoded_nothing(tmp_path):
    encoder = StoredEncoder(HashingEncoder(8), tmp_path, spec="hashing:16")
    encoder.encode(["x"])
    encoder.close()
    assert verify_store(tmp_path)[0].why_not == "hashing:16 is another encoder now than the one that filled this"
    assert verify_store(tmp_path)[0].problems == []


def test_prune_keeps_what_is_named(filled):
    gone = named(filled, "hashing:64")
    assert prune_store(filled, keep=["hashing:32"]).freed == gone.size
    assert [row.spec for row in describe_store(filled)] == ["hashing:32"]
    assert prune_store(filled, keep=[describe_store(filled)[0].name[:6]]).freed == 0
    with pytest.raises(ConfigError, match="no such encoder here; did you mean 'hashing:32'"):
        prune_store(filled, keep=["hashing:3"])
    assert named(filled, "hashing:32").rows == 300


def test_prune_drops_the_oldest_segments_until_it_fits(filled):
    part = filled / named(filled, "hashing:32").name
    for age, path in enumerate(sorted(filled.glob(f"*/{PATTERN}"), key=lambda path: path.parent == part)):
        os.utime(path, (1e9 - age, 1e9 - age))  # those of the part are older
    older, newer = sorted(part.glob(PATTERN), key=lambda path: path.stat().st_mtime)
    total = sum(path.stat().st_size for path in filled.glob(f"*/{PATTERN}"))
    size = older.stat().st_size
    assert prune_store(filled, max_bytes=total).freed == 0
    assert prune_store(filled, max_bytes=total - 1).freed == size
    assert newer.exists()
    assert not older.exists()
    assert prune_store(filled, max_bytes=0).freed == total - size
    assert [row.rows for row in describe_store(filled)] == [0, 0]


def test_prune_removes_what_dead_processes_left_and_says_so(filled, capsys):
    part = filled / named(filled, "hashing:32").name
    dead, alive = part / f"{ASIDE}dead", part / f"{ASIDE}alive"
    for path in (dead, alive):
        path.write_bytes(b"half")
    os.utime(dead, (time.time() - 7200,) * 2)
    broken = next(part.glob(PATTERN))
    broken.write_bytes(b"")
    assert main(["store", "prune", str(filled), "--max-bytes", "1T"]) == 0
    assert "freed: 4 bytes (0 encoders, 0 oldest, 1 damaged, 1 unfinished)" in capsys.readouterr().out
    assert not dead.exists()
    assert not broken.exists()
    assert alive.exists()


@pytest.mark.parametrize(("text", "size"), [("500", 500), ("1.5k", 1500), ("200G", 2e11), ("2T", 2e12), ("0", 0)])
def test_sizes_are_read(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "5X", "nan", "1e30"])
def test_other_sizes_are_refused(text):
    with pytest.raises(ConfigError, match="must be a size such as 500M, 200G or 2T"):
        parse_bytes(text)


def test_no_store_here_is_one_line(tmp_path, capsys):
    assert main(["store", "verify", str(tmp_path)]) == 2
    assert "no embedding store here" in capsys.readouterr().err
