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
from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.core.files import file_digest
from dana.core.tensors import map_arrays
from dana.encoders.base import encoder_identity
from dana.encoders.cache import PATTERN, StoredEncoder, VectorFolder, checksums, pack_vectors, unpack_vectors
from dana.encoders.hashing import HashingEncoder

TEXTS = [f"sentence number {number} of the corpus" for number in range(200)]


@dataclass(frozen=True)
class Counting:
    """Another encoder that remembers what it was asked for."""

    asked: list = field(default_factory=list)

    def identity(self):
        return encoder_identity(HashingEncoder(32))

    def encode(self, texts):
        self.asked.extend(texts)
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


def assert_whole(part):
    """Every file of a cache has the digest of its name, ascending keys, and rows whose checksums hold."""
    for path in part.glob(PATTERN):
        high, low, checks, rows = columns(path)
        assert path.stem == f"vectors-{file_digest(path)}"
        assert (high[1:] > high[:-1]).all()
        assert (checksums(high, low, rows) == checks).all()


def stored(texts):
    """What a cache gives for texts: the encoder's vectors, rounded."""
    return unpack_vectors(pack_vectors(HashingEncoder(32).encode(texts), "float16"), "float16")


def error_bound(vectors, dtype):
    """How far each number may move."""
    if dtype == "float16":
        return vectors.abs() * 2.0**-11 + 2.0**-25  # half a unit in the last place; subnormals have fixed steps
    return vectors.abs().max(1, keepdim=True).values.expand_as(vectors) * ((1 + 1e-5) / 254) + 1e-44


def fill(folder, texts=TEXTS, dtype="float16", batch=10):
    encoder = StoredEncoder(Counting(), folder, dtype)
    for start in range(0, len(texts), batch):
        encoder.encode(texts[start : start + batch])
    encoder.close()
    return encoder


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_second_pass_encodes_nothing_and_gives_the_same_bits(tmp_path, small, dtype):
    first = StoredEncoder(Counting(), tmp_path, dtype)
    fresh = first.encode(TEXTS)
    again = first.encode(TEXTS)
    first.close()
    second = StoredEncoder(Counting(), tmp_path, dtype)
    read = second.encode(TEXTS)
    assert len(first.encoder.asked) == len(TEXTS)
    assert second.encoder.asked == []
    assert torch.equal(fresh, again)
    assert torch.equal(fresh, read)
    assert fresh.dtype == torch.float32
    largest = HashingEncoder(32).encode(TEXTS).abs().max()
    torch.testing.assert_close(read, HashingEncoder(32).encode(TEXTS), atol=float(largest) / 250, rtol=0)


def test_order_and_repeats_in_a_batch(tmp_path):
    fill(tmp_path, TEXTS[:5])
    encoder = StoredEncoder(Counting(), tmp_path)
    mixed = [TEXTS[7], TEXTS[3], TEXTS[7], TEXTS[0], TEXTS[9], TEXTS[3]]
    assert torch.equal(encoder.encode(mixed), stored(mixed))
    assert encoder.encoder.asked == [TEXTS[7], TEXTS[9]]
    assert encoder.encode([]).shape == (0, 32)


def test_hostile_texts_are_keys_like_any_other(tmp_path):
    hostile = ["", " ", "\0", "a\0", "\ud800", "\u202eabc", "🙂" * 5000, "a\r\n", "a\n"]
    encoder = StoredEncoder(EncodesAnything(), tmp_path)
    fresh = encoder.encode(hostile)
    encoder.close()
    assert torch.equal(StoredEncoder(EncodesAnything(), tmp_path).encode(hostile), fresh)
    assert len(np.unique(fresh.numpy(), axis=0)) == len(hostile)


class EncodesAnything:
    """Length and last character, in the range of float16."""

    def identity(self):
        return {"encoder": "anything"}

    def encode(self, texts):
        return torch.tensor([[float(len(text)), float(ord(text[-1]) % 1000 if text else -1)] for text in texts])


def test_encoders_and_dtypes_do_not_share_rows_and_places_do_not_count(tmp_path):
    fill(tmp_path / "a")
    fill(tmp_path / "a", dtype="int8")
    other = StoredEncoder(HashingEncoder(16), tmp_path / "a")
    assert other.encode(TEXTS).shape == (200, 16)
    other.close()
    assert len(list((tmp_path / "a").iterdir())) == 3
    identities = [StoredEncoder(HashingEncoder(32), tmp_path / name, "float16").identity() for name in "ab"]
    assert identities[0] == identities[1] == {**encoder_identity(HashingEncoder(32)), "stored": "float16"}


@given(
    st.integers(1, 20).flatmap(
        lambda dims: st.lists(
            st.lists(st.floats(-1e4, 1e4, width=32), min_size=dims, max_size=dims), min_size=1, max_size=5
        )
    )
)
def test_rounding_errors_have_a_bound_and_rounding_twice_changes_nothing(rows):
    exact = torch.tensor(rows, dtype=torch.float32)
    half = unpack_vectors(pack_vectors(exact, "float16"), "float16")
    assert ((half - exact).abs() <= error_bound(exact, "float16")).all()
    assert torch.equal(unpack_vectors(pack_vectors(half, "float16"), "float16"), half)
    byte = unpack_vectors(pack_vectors(exact, "int8"), "int8")
    assert ((byte - exact).abs() <= error_bound(exact, "int8")).all()
    assert (error_bound(exact, "int8") <= exact.abs().max() / 253 + 1e-44).all()


@pytest.mark.parametrize(("dtype", "value"), [("float16", 1e5), ("float16", float("nan")), ("int8", float("inf"))])
def test_what_cannot_be_kept_is_refused(dtype, value):
    with pytest.raises(DataError, match=f"vector 1 of the batch is not finite in {dtype}"):
        pack_vectors(torch.tensor([[1.0, 2.0], [value, 0.0]]), dtype)
    with pytest.raises(ConfigError, match="dtype='float8': must be one of float16, int8"):
        StoredEncoder(HashingEncoder(), "nowhere", "float8")


def test_an_encoder_without_a_folder_rounds_alike(tmp_path):
    alike = StoredEncoder(HashingEncoder(32), None)
    assert torch.equal(alike.encode(TEXTS), fill(tmp_path).encode(TEXTS))
    assert alike.identity() == StoredEncoder(HashingEncoder(32), tmp_path).identity()


def test_merging_keeps_every_row_in_few_files(tmp_path, small):
    many = [f"text {number}" for number in range(1500)]
    fill(tmp_path, many, batch=16)
    part = next(tmp_path.iterdir())
    files = sorted(part.glob(PATTERN))
    assert len(files) < 20  # of 94 that were written
    assert sum(len(columns(path)[0]) for path in files) == 1500
    assert_whole(part)
    encoder = StoredEncoder(Counting(), tmp_path)
    assert torch.equal(encoder.encode(many), stored(many))
    assert encoder.encoder.asked == []


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
    (merged,) = (tmp_path / "a").glob(PATTERN)
    assert_whole(tmp_path / "a")
    folder_of(tmp_path / "b", three | one | two)
    assert [path.name for path in (tmp_path / "b").glob(PATTERN)] == [merged.name]
    rows, known = folder.find([*two, b"x" * 16, *three, *one])
    assert known.tolist() == [True, False, True, True]
    assert rows[known][:, 0].tolist() == [1, 2, 0]


def test_of_two_texts_that_share_half_a_key_one_is_encoded_again(tmp_path):
    first, second = b"same..8." + b"aaaaaaaa", b"same..8." + b"bbbbbbbb"
    folder = folder_of(tmp_path, {first: [1] * 4, second: [2] * 4})
    rows, known = folder.find([second, first])
    assert known.sum() == 1
    assert rows[known].tolist() == [[1] * 4 if known[1] else [2] * 4]


@pytest.mark.parametrize("damage", ["cut", "header", "empty", "row", "key"])
def test_damage_is_warned_of_and_encoded_again(tmp_path, damage, caplog):
    expected = fill(tmp_path).encode(TEXTS)
    path = next(tmp_path.glob(f"*/{PATTERN}"))
    content = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    if damage == "cut":
        content = content[:-100]
    elif damage == "header":
        content[20] ^= 0xFF
    elif damage == "empty":
        content = b""
    elif damage == "row":
        content[-1] ^= 0x01
    else:
        content[header + 8 * 200] ^= 0x01  # the low half of the first key
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="dana"):
        again = StoredEncoder(Counting(), tmp_path)
        vectors = again.encode(TEXTS)
        again.encode(TEXTS[:3])
    assert torch.equal(vectors, expected)
    assert len(again.encoder.asked) == (1 if damage in ("row", "key") else 200)
    if damage != "key":  # a key that no text has is simply never found; `dana verify` tells
        assert [str(path) in record.message for record in caplog.records] == [True]
    again.close()
    healed = StoredEncoder(Counting(), tmp_path)
    assert torch.equal(healed.encode(TEXTS), vectors)
    assert healed.encoder.asked == []


def test_a_merge_leaves_damaged_rows_behind(tmp_path, small):
    fill(tmp_path, TEXTS[:16])
    path = next(tmp_path.glob(f"*/{PATTERN}"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 0x01
    path.write_bytes(content)
    folder = VectorFolder(path.parent, {"dtype": "float16"})
    folder.find([b"x" * 16])
    folder.merge([path])
    (merged,) = path.parent.glob(PATTERN)
    assert len(columns(merged)[0]) == 15
    assert_whole(path.parent)


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
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=os.environ)


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
    part = next(tmp_path.iterdir())
    assert_whole(part)
    encoder = StoredEncoder(Counting(), tmp_path)
    texts = [f"sentence number {number} of the corpus" for number in range(168)]
    assert torch.equal(encoder.encode(texts), stored(texts))
    assert len(encoder.encoder.asked) <= 16  # what waited in memory


def test_two_processes_append_at_once(tmp_path):
    processes = [append(tmp_path, first, first + 200) for first in (0, 104)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    part = next(tmp_path.iterdir())
    assert_whole(part)
    assert not list(part.glob(".*"))
    encoder = StoredEncoder(Counting(), tmp_path)
    texts = [f"sentence number {number} of the corpus" for number in range(304)]
    assert torch.equal(encoder.encode(texts), stored(texts))
    assert encoder.encoder.asked == []


def test_what_waits_is_written_when_the_encoder_is_let_go(tmp_path):
    encoder = StoredEncoder(Counting(), tmp_path)
    encoder.encode(TEXTS)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    del encoder
    second = StoredEncoder(Counting(), tmp_path)
    second.encode(TEXTS)
    assert second.encoder.asked == []


def test_what_cannot_be_written_at_the_end_is_a_warning(tmp_path, heard):
    encoder = StoredEncoder(Counting(), tmp_path / "store")
    encoder.encode(TEXTS)
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "store").write_text("in the way")
    del encoder
    assert "the last texts will be encoded again" in heard.text


def test_a_place_that_cannot_hold_a_store_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    encoder = StoredEncoder(Counting(), tmp_path / "file")
    with pytest.raises(ArtifactError, match="Not a directory"):
        encoder.encode(["x"])
    assert encoder.encoder.asked == []
    fill(tmp_path / "store")
    meta = next((tmp_path / "store").glob("*/meta.json"))
    for content in ('{"dims": 32}', "[]", "{"):
        meta.write_text(content)
        with pytest.raises(ArtifactError, match=r"meta.json"):
            cache.read_meta(meta.parent)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_vectors_are_packed_whatever_their_strides(dtype):
    rows = torch.linspace(-1, 1, 12).reshape(3, 4)
    for strided, plain in [(rows.T, rows.T.contiguous()), (rows[:1].expand(5, 4), rows[:1].repeat(5, 1))]:
        assert (pack_vectors(strided, dtype) == pack_vectors(plain, dtype)).all()


def test_no_flipped_byte_of_a_file_gives_a_wrong_vector(tmp_path):
    vectors = {bytes([number]) * 16: [number] * 4 for number in (1, 7, 9)}
    folder_of(tmp_path / "whole", vectors)
    (path,) = (tmp_path / "whole").glob(PATTERN)
    whole = path.read_bytes()
    lost = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x01]) + whole[place + 1 :])
        rows, known = VectorFolder(tmp_path / "whole", {"dtype": "int8"}).find(list(vectors))
        assert rows[known].tolist() == [row for row, here in zip(vectors.values(), known, strict=True) if here]
        lost += not known.all()
    assert lost > len(whole) / 2  # padding and the names of columns aside
