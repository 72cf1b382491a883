"""Cache of embeddings: encodes only unknown texts, returns equal bits, survives kills and flipped bits."""

import logging
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dana.core.errors import ArtifactError, ConfigError, DataError
from dana.encoders import cache
from dana.encoders.base import encoder_identity
from dana.encoders.cache import (
    PATTERN,
    StoredEncoder,
    VectorFolder,
    pack_vectors,
    unpack_vectors,
)
from dana.encoders.hashing import HashingEncoder

TEXTS = [f"sentence number {number} of the pool" for number in range(200)]
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


def row_count(folder):
    """Number of rows in all files of a cache."""
    counts = []
    for path in folder.glob(PATTERN):
        with sqlite3.connect(path) as database:
            counts += database.execute("SELECT count(*) FROM vectors").fetchone()
    return sum(counts)


def rounded(exact, dtype="float16"):
    return unpack_vectors(pack_vectors(exact, dtype), dtype)


def assert_stored(folder, texts):
    """All texts have the encoder's vectors, rounded, without encoding."""
    encoder = StoredEncoder(Counting(), folder)
    assert torch.equal(encoder.encode(texts), rounded(HashingEncoder(32).encode(texts)))
    assert encoder.encoder.texts == []


def fill(folder, texts=TEXTS, dtype="float16", batch=10):
    encoder = StoredEncoder(Counting(), folder, dtype)
    for start in range(0, len(texts), batch):
        encoder.encode(texts[start : start + batch])
    return encoder


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_second_pass_encodes_nothing_and_gives_the_same_bits(tmp_path, dtype):
    first, second = (StoredEncoder(Counting(), tmp_path, dtype) for _ in range(2))
    vectors = first.encode(TEXTS)
    assert torch.equal(first.encode(TEXTS), vectors)
    assert torch.equal(second.encode(TEXTS), vectors)
    assert (first.encoder.texts, second.encoder.texts) == (TEXTS, [])
    assert torch.equal(vectors, rounded(HashingEncoder(32).encode(TEXTS), dtype))
    assert torch.equal(StoredEncoder(HashingEncoder(32), None, dtype).encode(TEXTS), vectors), (
        "without a folder alike"
    )
    assert vectors.dtype == torch.float32


def test_an_encoder_that_names_no_device_may_say_so_by_none(tmp_path):
    @dataclass(frozen=True)
    class OfPlugin(Counting):
        device: None = None

    encoder = StoredEncoder(OfPlugin(), tmp_path)
    assert torch.equal(encoder.encode(TEXTS[:3]), rounded(HashingEncoder(32).encode(TEXTS[:3])))


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
    assert ((rounded(exact, "int8") - exact).abs() <= largest * ((1 + 1e-5) / 254) + 1e-43).all()


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


def test_a_process_has_one_file_and_all_files_are_read(tmp_path):
    first = fill(tmp_path, TEXTS[:100])
    second = StoredEncoder(Counting(), tmp_path)
    second.encode(TEXTS)
    assert first.encoder.texts + second.encoder.texts == TEXTS
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.glob(PATTERN))) == 2
    assert row_count(folder) == 200
    assert_stored(tmp_path, TEXTS)


def test_threads_may_begin_a_cache_together(tmp_path):
    def encode(number):
        for part in range(5):
            encoder = StoredEncoder(HashingEncoder(32), tmp_path / str(part))
            together.wait()
            encoder.encode([f"{number} of {part}", "a text of all"])

    together = threading.Barrier(8, timeout=20)
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(encode, number) for number in range(8)]:
            done.result()


def test_a_cache_may_be_removed_while_it_is_used(tmp_path):
    encoder = fill(tmp_path, TEXTS[:100])
    shutil.rmtree(tmp_path)
    encoder.encode(TEXTS)
    assert_stored(tmp_path, TEXTS[100:])


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0x01
    path.write_bytes(content)


def _change_row(path):
    with sqlite3.connect(path) as database:
        (key,) = database.execute("SELECT key FROM vectors LIMIT 1").fetchone()
        database.execute("UPDATE vectors SET vector = zeroblob(64) WHERE key = ?", (key,))


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-5000]), 200),
        (lambda path: path.write_bytes(b"no database" * 100), 200),
        (lambda path: path.write_bytes(b""), 200),
        (_change_row, 1),
    ],
    ids=["cut", "other", "empty", "row"],
)
def test_damage_is_warned_of_and_encoded_again(tmp_path, damage, lost, caplog):
    fill(tmp_path)
    path = next(tmp_path.glob(f"*/{PATTERN}"))
    damage(path)
    with caplog.at_level(logging.WARNING, logger="dana"):
        encoder = StoredEncoder(Counting(), tmp_path)
        vectors = encoder.encode(TEXTS)
        encoder.encode(TEXTS[:3])
    assert torch.equal(vectors, rounded(HashingEncoder(32).encode(TEXTS)))
    assert len(encoder.encoder.texts) == lost
    assert [str(path) in record.message for record in caplog.records] == [True]
    assert_stored(tmp_path, TEXTS)


def test_no_flipped_byte_of_a_file_gives_a_wrong_vector(tmp_path):
    vectors = {bytes([number]) * 16: bytes([number]) * 4 for number in (1, 7, 9)}
    others = [
        key[:at] + bytes([key[at] ^ 0x01]) + key[at + 1 :] for key in vectors for at in (7, 15)
    ]
    folder = VectorFolder(tmp_path, {})
    folder.add(vectors)
    (path,) = tmp_path.glob(PATTERN)
    content = path.read_bytes()
    used = [position for position, byte in enumerate(content) if byte]
    lost = 0
    for position in used:
        flip(path, position)
        rows = VectorFolder(tmp_path, {}).find([*vectors, *others])
        assert rows.items() <= vectors.items()
        lost += len(rows) < 3
        path.write_bytes(content)
    assert lost > 50


APPEND = """
import sys
import dana.encoders.cache as cache
from dana.encoders.hashing import HashingEncoder

encoder = cache.StoredEncoder(HashingEncoder(32), sys.argv[1])
for start in range(int(sys.argv[2]), int(sys.argv[3]), 8):
    encoder.encode([f"sentence number {number} of the pool" for number in range(start, start + 8)])
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
    assert_stored(tmp_path, TEXTS[:168])


def test_two_processes_append_at_once(tmp_path):
    processes = [append(tmp_path, first, first + 120) for first in (0, 80)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.glob(PATTERN))) == 2
    assert_stored(tmp_path, TEXTS)


def test_a_file_that_another_process_is_just_making_is_not_called_damaged(
    tmp_path, monkeypatch, caplog
):
    """It has its name when it has its table."""
    connect = cache._connect

    @dataclass
    class Watched:
        """A connection before whose script another process opens the cache."""

        inner: sqlite3.Connection

        def executescript(self, script):
            self.inner.execute("PRAGMA user_version = 0")  # makes the file
            with monkeypatch.context() as patch:
                patch.setattr(cache, "_connect", connect)
                VectorFolder(tmp_path, {}).find([b"k" * 16])
            return self.inner.executescript(script)

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def __enter__(self):
            return self.inner.__enter__()

        def __exit__(self, *error):
            return self.inner.__exit__(*error)

    monkeypatch.setattr(cache, "_connect", lambda path: Watched(connect(path)))
    with caplog.at_level(logging.WARNING, logger="dana"):
        VectorFolder(tmp_path, {}).add({b"k" * 16: b"v" * 64})
    monkeypatch.setattr(cache, "_connect", connect)
    assert caplog.records == []
    assert VectorFolder(tmp_path, {}).find([b"k" * 16]) == {b"k" * 16: b"v" * 64}
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".sqlite"}


def test_a_place_that_cannot_hold_a_store_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    encoder = StoredEncoder(Counting(), tmp_path / "file")
    with pytest.raises(ArtifactError, match="Not a directory"):
        encoder.encode(["x"])
    assert encoder.encoder.texts == []
