"""Fixtures that several folders share: a tiny tokenizer from this repository's text, corpora on disk."""

import logging
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

# Before torch is imported: bits depend on the number of threads, and tests compare this process
# with those it starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# float32 on every machine: tests compare to 1e-6, and some CPUs have bfloat16.
os.environ.setdefault("ACCELERATE_MIXED_PRECISION", "no")

import pyarrow as pa
import pytest
from hypothesis import settings

from dana.core.memory import loaded_set_aside
from dana.core.schemas import DOCUMENTS, WEIGHTS, write_parts

settings.register_profile(
    "any machine", deadline=None
)  # an example that a busy machine computes slowly is no failure
settings.load_profile("any machine")

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module", autouse=True)
def loaded_before():
    """Leave what earlier files loaded out of each collection of garbage; a step of a run collects after its work."""
    with loaded_set_aside():
        yield


@pytest.fixture
def made_and_removed():
    """Make a folder with folders inside and remove it, again and again, for as long as a block runs."""

    @contextmanager
    def at_work(folder: Path):
        is_over = threading.Event()

        def make_and_remove():
            while not is_over.is_set():
                (folder / "new" / "inner").mkdir(parents=True)
                shutil.rmtree(folder)

        thread = threading.Thread(target=make_and_remove)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    return at_work


@pytest.fixture(scope="session")
def repository_texts() -> list[str]:
    """300 paragraphs of the project's documents, as they were once: real text that is always there and the same."""
    text = (REPOSITORY / "tests" / "paragraphs.txt").read_text(encoding="utf-8")
    return text.rstrip("\n").split("\n\n\n")


@pytest.fixture(scope="session")
def tiny_tokenizer(repository_texts):
    """A WordPiece tokenizer of 800 entries."""
    from dana.models.language_model import train_tokenizer

    return train_tokenizer(lambda: repository_texts, 800, max_tokens=64)


@pytest.fixture(scope="session")
def byte_level():
    """A tokenizer whose pieces are single bytes: a character may be in four of them."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    letters = sorted(ByteLevel.alphabet())
    inner = Tokenizer(BPE({letter: at for at, letter in enumerate(letters)}, []))
    inner.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=inner)


@pytest.fixture
def heard(caplog, monkeypatch):
    """caplog with each line of dana once: newer pytest listens at the root and at loggers that do not propagate."""
    logger = logging.getLogger("dana")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.INFO, logger="dana")
    return caplog


def write_documents(folder: Path, texts: list[str]) -> Path:
    """A documents folder; ids are the folder's name and a number."""
    name = folder.name
    rows = [
        {"doc_id": f"{name}-{number}", "source": name, "text": text}
        for number, text in enumerate(texts)
    ]
    write_parts([pa.Table.from_pylist(rows, schema=DOCUMENTS)], folder, DOCUMENTS)
    return folder


@pytest.fixture
def write_corpus(tmp_path) -> Callable[[str, list[str]], Path]:
    """Writes texts as a documents folder; ids are ``NAME-0``, ``NAME-1`` …"""

    return lambda name, texts: write_documents(tmp_path / name, texts)


@pytest.fixture
def write_weights(tmp_path) -> Callable[..., Path]:
    """Writes rows ``(doc_id, unit, start, end, segment, weight)`` as a weights folder."""

    def write(rows: list[tuple], name: str = "weights") -> Path:
        names = ("doc_id", "unit", "start", "end", "segment", "weight")
        records = [{"source": "s", **dict(zip(names, row, strict=True))} for row in rows]
        write_parts([pa.Table.from_pylist(records, schema=WEIGHTS)], tmp_path / name, WEIGHTS)
        return tmp_path / name

    return write


@pytest.fixture(scope="session")
def dana_data() -> Path:
    """The folder of real text; tests that need it are skipped where there is none."""
    folder = os.environ.get("DANA_DATA")
    if not folder:
        pytest.skip("DANA_DATA is not set: it names the folder with the real text")
    return Path(folder)


@pytest.fixture
def memory():
    """The file system of memory://, empty before and after."""
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


@pytest.fixture(scope="session")
def store():
    """A local S3 server behind a proxy that can cut connections."""
    from object_store import object_store

    with object_store() as proxy:
        yield proxy


@pytest.fixture
def s3(store, monkeypatch):
    """The file system of s3://, which is that server; with an empty bucket ``pool``; waits are short."""
    import fsspec

    from dana.core import storage

    monkeypatch.setitem(fsspec.config.conf, "s3", store.options)
    monkeypatch.setattr(storage, "WAITS", (0.01, 0.01, 0.01))
    store.cut(0, 0)
    fs = fsspec.filesystem("s3")
    fs.invalidate_cache()
    if fs.exists("pool"):
        fs.rm("pool", recursive=True)
    fs.mkdir("pool")
    yield fs
    store.cut(0, 0)
