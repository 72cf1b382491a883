"""Embedding store: encodes only unknown texts, returns equal bits, survives kills and flipped bits."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dana.encoders.cache as cache
from dana.core.errors import ArtifactError, ConfigError, DataError, Preemption
from dana.core.files import file_digest
from dana.core.launch import stop_on_signal
from dana.core.tensors import map_arrays
from dana.encoders.base import encoder_identity
from dana.encoders.cache import (
    PATTERN,
    StoredEncoder,
    VectorFolder,
    checksums,
    pack_vectors,
    unpack_vectors,
)
from dana.encoders.hashing import HashingEncoder

TEXTS = [f"sentence number {number} of the corpus" for number in range(200)]
DTYPES = ("float16", "int8")


@dataclass(frozen=True)
class Counting:
    """The hashing encoder; it remembers the texts that it has encoded."""

    texts: list = field(default_factory=list)

    def identity(self):
        return encoder_identity(HashingEncoder(32))

    def encode(self, texts):
        self.texts.extend(texts)
        return HashingEncoder(32).encode(texts)


@pytest.fixture
def small(monkeypatch):
    """Files of 16 rows, merged by ranges of 64, so that few texts do what many would."""
    monkeypatch.setattr(cache, "FLUSH", 16)
    monkeypatch.setattr(cache, "BLOCK", 64)


def columns(path):
    """High and low half of the keys, checksums and rows of a file."""
    high, low, checks, rows = map_arrays(path).values()
    return high, low, checks, rows.reshape(len(high), -1)


def assert_valid(folder):
    """Every file of a cache has the digest of its name, ascending keys, and rows whose checksums hold."""
    for path in folder.glob(PATTERN):
        high, low, checks, rows = columns(path)
        assert path.stem == f"vectors-{file_digest(path)}"
        assert (high[1:] > high[:-1]).all()
        assert (checksums(high, low, rows) == checks).all()


def rounded(exact, dtype="float16"):
    return unpack_vectors(pack_vectors(exact, dtype), dtype)


def assert_stored(folder, texts, waiting=0):
    """All texts but some that may have waited in memory have the encoder's vectors, rounded, without encoding."""
    encoder = StoredEncoder(Counting(), folder)
    assert torch.equal(encoder.encode(texts), rounded(HashingEncoder(32).encode(texts)))
    assert len(encoder.encoder.texts) <= waiting


def fill(folder, texts=TEXTS, dtype="float16", batch=10):
    encoder = StoredEncoder(Counting(), folder, dtype)
    for start in range(0, len(texts), batch):
        encoder.encode(texts[start : start + batch])
    encoder.close()
    return encoder


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_second_pass_encodes_nothing_and_gives_the_same_bits(tmp_path, small, dtype):
    first, second = (StoredEncoder(Counting(), tmp_path, dtype) for _ in range(2))
    vectors = first.encode(TEXTS)
    assert torch.equal(first.encode(TEXTS), vectors)
    first.close()
    assert torch.equal(second.encode(TEXTS), vectors)
    assert (first.encoder.texts, second.encoder.texts) == (TEXTS, [])
    assert torch.equal(vectors, rounded(HashingEncoder(32).encode(TEXTS), dtype))
    assert torch.equal(StoredEncoder(HashingEncoder(32), None, dtype).encode(TEXTS), vectors), (
        "without a folder alike"
    )
    assert vectors.dtype == torch.float32


def test_order_and_repeats_in_a_batch(tmp_path):
    fill(tmp_path, TEXTS[:5])
    encoder = StoredEncoder(Counting(), tmp_path)
    texts = [TEXTS[number] for number in (7, 3, 7, 0, 9, 3)]
    assert torch.equal(encoder.encode(texts), rounded(HashingEncoder(32).encode(texts)))
    assert encoder.encoder.texts == [TEXTS[7], TEXTS[9]]
    assert encoder.encode([]).shape == (0, 32)


def test_encoders_and_dtypes_do_not_share_rows_and_places_do_not_count(tmp_path):
    for dtype in DTYPES:
        fill(tmp_path / "a", dtype=dtype)
    other = StoredEncoder(HashingEncoder(16), tmp_path / "a")
    assert other.encode(TEXTS).shape == (200, 16)
    other.close()
    assert len(list((tmp_path / "a").iterdir())) == 3
    for folder in (tmp_path / "a", tmp_path / "b", None):
        identity = StoredEncoder(HashingEncoder(32), folder, "float16").identity()
        assert identity == {**encoder_identity(HashingEncoder(32)), "stored": "float16"}


NUMBERS = st.floats(-1e4, 1e4, width=32)


@given(
    st.integers(1, 20).flatmap(
        lambda dims: st.lists(st.lists(NUMBERS, min_size=dims, max_size=dims), min_size=1)
    )
)
def test_rounding_errors_have_a_bound_and_rounding_twice_changes_nothing(rows):
    exact = torch.tensor(rows, dtype=torch.float32)
    half = rounded(exact, "float16")
    # Half a unit in the last place; subnormals have fixed steps.
    assert ((half - exact).abs() <= exact.abs() * 2.0**-11 + 2.0**-25).all()
    assert torch.equal(rounded(half, "float16"), half)
    largest = exact.abs().max(1, keepdim=True).values
    assert ((rounded(exact, "int8") - exact).abs() <= largest * ((1 + 1e-5) / 254) + 1e-44).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_are_packed_whatever_their_strides(dtype):
    rows = torch.linspace(-1, 1, 12).reshape(3, 4)
    for view, plain in [
        (rows.T, rows.T.contiguous()),
        (rows[:1].expand(5, 4), rows[:1].repeat(5, 1)),
    ]:
        assert (pack_vectors(view, dtype) == pack_vectors(plain, dtype)).all()


@pytest.mark.parametrize(
    ("dtype", "value"), [("float16", 1e5), ("float16", float("nan")), ("int8", float("inf"))]
)
def test_what_cannot_be_kept_is_refused(dtype, value):
    with pytest.raises(DataError, match=f"vector 1 of the batch is not finite in {dtype}"):
        pack_vectors(torch.tensor([[1.0, 2.0], [value, 0.0]]), dtype)
    with pytest.raises(ConfigError, match="dtype='float8': must be one of float16, int8"):
        StoredEncoder(HashingEncoder(), "nowhere", "float8")


def test_merging_keeps_every_row_in_few_files(tmp_path, small):
    texts = [f"text {number}" for number in range(600)]
    fill(tmp_path, texts, batch=16)
    (folder,) = tmp_path.iterdir()
    files = list(folder.glob(PATTERN))
    assert len(files) < 15  # of 38 that were written
    assert sum(len(columns(path)[0]) for path in files) == 600
    assert_valid(folder)
    assert_stored(tmp_path, texts)


def folder_of(path, *parts):
    """A folder with a file for each mapping of keys to rows of four bytes."""
    folder = VectorFolder(path, {"encoder": {}, "dtype": "int8"})
    for rows in parts:
        folder.add(list(rows), np.array(list(rows.values()), dtype=np.uint8))
        folder.flush()
    return folder


def test_a_merge_drops_doubles_and_equal_content_has_one_name(tmp_path):
    one, two, three = ({bytes([9 - number]) * 16: [number] * 4} for number in range(3))
    folder = folder_of(tmp_path / "a", one | two, two | three)
    folder.merge(list(folder._files))
    (path,) = (tmp_path / "a").glob(PATTERN)
    assert_valid(tmp_path / "a")
    folder_of(tmp_path / "b", three | one | two)
    assert [other.name for other in (tmp_path / "b").glob(PATTERN)] == [path.name]
    rows, is_stored = folder.find([*two, b"x" * 16, *three, *one])
    assert is_stored.tolist() == [True, False, True, True]
    assert rows[is_stored][:, 0].tolist() == [1, 2, 0]


def test_of_two_texts_that_share_half_a_key_one_is_encoded_again(tmp_path):
    first, second = b"same..8." + b"aaaaaaaa", b"same..8." + b"bbbbbbbb"
    folder = folder_of(tmp_path, {first: [1] * 4, second: [2] * 4})
    rows, is_stored = folder.find([second, first])
    assert is_stored.sum() == 1
    assert rows[is_stored].tolist() == [[1] * 4 if is_stored[1] else [2] * 4]


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0x01
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "lost", "is_warned"),
    [
        (lambda path, header: path.write_bytes(path.read_bytes()[:-100]), 200, True),
        (lambda path, header: flip(path, 20), 200, True),
        (lambda path, header: path.write_bytes(b""), 200, True),
        (lambda path, header: flip(path, -1), 1, True),
        (
            lambda path, header: flip(path, header + 8 * 200),
            1,
            False,
        ),  # a key that no text has; `dana files verify` tells
    ],
    ids=["cut", "header", "empty", "row", "low half of a key"],
)
def test_damage_is_warned_of_and_encoded_again(tmp_path, damage, lost, is_warned, caplog):
    fill(tmp_path)
    path = next(tmp_path.glob(f"*/{PATTERN}"))
    damage(path, 8 + int.from_bytes(path.read_bytes()[:8], "little"))
    with caplog.at_level(logging.WARNING, logger="dana"):
        encoder = StoredEncoder(Counting(), tmp_path)
        vectors = encoder.encode(TEXTS)
        encoder.encode(TEXTS[:3])
    assert torch.equal(vectors, rounded(HashingEncoder(32).encode(TEXTS)))
    assert len(encoder.encoder.texts) == lost
    assert [str(path) in record.message for record in caplog.records] == [True] * is_warned
    encoder.close()
    assert_stored(tmp_path, TEXTS)


def test_no_flipped_byte_of_a_file_gives_a_wrong_vector(tmp_path):
    vectors = {bytes([number]) * 16: [number] * 4 for number in (1, 7, 9)}
    others = [
        key[:at] + bytes([key[at] ^ 0x01]) + key[at + 1 :] for key in vectors for at in (7, 15)
    ]
    folder_of(tmp_path, vectors)
    (path,) = tmp_path.glob(PATTERN)
    size = path.stat().st_size
    lost = 0
    for position in range(size):
        flip(path, position)
        rows, is_stored = VectorFolder(tmp_path, {"dtype": "int8"}).find([*vectors, *others])
        assert not is_stored[3:].any(), "a key that was flipped is another text's"
        is_stored = is_stored[:3]
        assert rows[:3][is_stored].tolist() == [
            row for row, hit in zip(vectors.values(), is_stored, strict=True) if hit
        ]
        lost += not is_stored.all()
        flip(path, position)
    assert lost > size / 2  # padding and the names of columns aside


def test_a_merge_leaves_damaged_rows_behind(tmp_path, small):
    fill(tmp_path, TEXTS[:16])
    path = next(tmp_path.glob(f"*/{PATTERN}"))
    flip(path, -1)
    folder = VectorFolder(path.parent, {"dtype": "float16"})
    folder.find([b"x" * 16])
    folder.merge([path])
    (path,) = path.parent.glob(PATTERN)
    assert len(columns(path)[0]) == 15
    assert_valid(path.parent)


def test_what_a_dead_process_left_unfinished_is_removed_after_a_day(tmp_path):
    fill(tmp_path, TEXTS[:5])
    part = next(tmp_path.iterdir())
    dead, alive = part / f"{cache.UNFINISHED}dead", part / f"{cache.UNFINISHED}alive"
    for folder in (dead, alive):
        folder.mkdir()
    os.utime(dead, (time.time() - 2 * 86400,) * 2)
    fill(tmp_path, TEXTS[:10])
    assert [folder.exists() for folder in (dead, alive)] == [False, True]


APPEND = """
import sys
import dana.encoders.cache as cache
from dana.encoders.hashing import HashingEncoder

cache.FLUSH = 16
encoder = cache.StoredEncoder(HashingEncoder(32), sys.argv[1])
for start in range(int(sys.argv[2]), int(sys.argv[3]), 8):
    encoder.encode([f"sentence number {number} of the corpus" for number in range(start, start + 8)])
    print(start, flush=True)
"""


def append(folder, first, last):
    arguments = [sys.executable, "-c", APPEND, str(folder), str(first), str(last)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_a_valid_store(tmp_path):
    process = append(tmp_path, 0, 10**9)
    try:
        for line in process.stdout:
            if int(line) >= 160:
                break
        time.sleep(0.003)  # somewhere in the middle of the next append
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert_valid(next(tmp_path.iterdir()))
    assert_stored(tmp_path, TEXTS[:168], waiting=16)


def test_two_processes_append_at_once(tmp_path):
    processes = [append(tmp_path, first, first + 120) for first in (0, 80)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    (folder,) = tmp_path.iterdir()
    assert_valid(folder)
    assert not list(folder.glob(".*"))
    assert_stored(tmp_path, TEXTS)


def test_what_waits_is_written_when_the_encoder_is_let_go_or_warned_of(tmp_path, heard):
    encoder = StoredEncoder(Counting(), tmp_path / "store")
    encoder.encode(TEXTS)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    del encoder
    assert_stored(tmp_path / "store", TEXTS)
    encoder = StoredEncoder(Counting(), tmp_path / "file")
    encoder.encode(TEXTS)
    shutil.rmtree(tmp_path / "file")
    (tmp_path / "file").write_text("in the way")
    del encoder
    assert "the last texts will be encoded again" in heard.text


def test_a_place_that_cannot_hold_a_store_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    encoder = StoredEncoder(Counting(), tmp_path / "file")
    with pytest.raises(ArtifactError, match="Not a directory"):
        encoder.encode(["x"])
    assert encoder.encoder.texts == []
    for content in ('{"dims": 32}', "[]", "{"):
        (tmp_path / "meta.json").write_text(content)
        with pytest.raises(ArtifactError, match=r"meta.json"):
            cache.read_meta(tmp_path)


def test_a_signal_while_the_last_rows_are_written_stops_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(VectorFolder, "flush", lambda vectors: os.kill(os.getpid(), signal.SIGTERM))

    def encode():
        assert StoredEncoder(Counting(), tmp_path).vectors
        time.sleep(10)

    with pytest.raises(Preemption), stop_on_signal():
        encode()
