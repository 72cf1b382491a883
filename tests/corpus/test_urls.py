"""Text at a URL is read like a local file: the same bytes, whatever connections drop; what cannot be read is named."""

import gzip
import json
import logging
import threading
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import moto.settings
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from dana.cli.main import main
from dana.core import storage
from dana.core.errors import ArtifactError, ConfigError, DataError, without_secrets
from dana.core.storage import RemoteFile, is_url, list_url
from dana.corpus import documents
from dana.corpus.documents import Tally, read_documents, source_digests
from dana.corpus.hub import is_hub
from dana.corpus.inputs import Inputs
from dana.corpus.slices import iterate_slices, parse_slice
from dana.corpus.sources import expand, find_files
from dana.stages.texts import corpus_stage

ROWS = [{"id": f"{number}", "text": f"Row {number} of the pool, ähnlich 😀"} for number in range(3000)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
PLAIN = {
    ".jsonl": LINES,
    ".jsonl.gz": gzip.compress(LINES, mtime=0),
    ".jsonl.zst": zstandard.compress(LINES),
    ".csv": ("id,text\n" + "".join(f'{row["id"]},"{row["text"]}"\n' for row in ROWS)).encode(),
    ".tsv": ("id\ttext\n" + "".join(f"{row['id']}\t{row['text']}\n" for row in ROWS)).encode(),
    ".txt": "\n\n".join(row["text"] for row in ROWS).encode(),
}


def _parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=256)
    return sink.getvalue().to_pybytes()


FILES = {**PLAIN, ".parquet": _parquet()}


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_slices_of_a_remote_file_are_its_records(ending, memory):
    memory.pipe_file(f"/pool/a{ending}", FILES[ending])
    parts = list(iterate_slices(f"memory://pool/a{ending}", size=len(FILES[ending]) // 5))
    assert len(parts) >= 5
    parsed = [one for part in parts for one in parse_slice(part, Inputs())[0]]
    assert [{"id": one.document.doc_id, "text": one.document.text} for one in parsed] == ROWS


def test_a_folder_is_read_in_order_without_what_is_hidden_unknown_or_made_by_dana(memory):
    for name in (
        "b.txt", "a/c.txt", ".hidden.txt", ".git/d.txt", "e.pdf", "run/corpus/part-00000.parquet",
        "run/corpus/__dana__/manifest.json", "run/scores/part-00000.parquet", "old/weights/__dana__/x.csv",
        "old/weights/part-00000.parquet",
    ):  # fmt: skip
        memory.pipe_file(f"/pool/{name}", b"x")
    skips = Counter()
    assert [file.url for file in expand("memory://pool", skips=skips)] == [
        "memory:///pool/a/c.txt",
        "memory:///pool/b.txt",
    ]
    assert skips == {"folder that dana wrote": 2, ".pdf": 1}
    own = [file.url for file in expand("memory://pool/run/corpus")]
    assert own == ["memory:///pool/run/corpus/part-00000.parquet"]  # named itself, it is read
    globbed = [file.name for file in expand("memory://pool/**/*.txt")]
    assert globbed == ["c.txt", "b.txt"]


def test_a_corpus_has_the_same_bytes_from_s3_with_dropped_connections_as_from_a_folder(s3, store, tmp_path):
    for ending in FILES:
        (tmp_path / "pool").mkdir(exist_ok=True)
        (tmp_path / "pool" / f"some{ending}").write_bytes(FILES[ending])
        s3.pipe_file(f"pool/some{ending}", FILES[ending])
    here = corpus_stage([str(tmp_path / "pool")], tmp_path / "here" / "corpus")
    store.cut(12, 20_000)
    there = corpus_stage(["s3://pool"], tmp_path / "there" / "corpus")
    assert store.cuts >= 3
    assert there.manifest["files"] == here.manifest["files"]
    assert there.manifest["counts"] == here.manifest["counts"]
    etag = there.manifest["depends_on"]["files"]["some.jsonl"]
    assert etag == f"ETag {s3.info('pool/some.jsonl')['ETag'].strip(chr(34))}, {len(LINES)} bytes"
    assert corpus_stage(["s3://pool"], tmp_path / "there" / "corpus").fingerprint == there.fingerprint
    s3.pipe_file("pool/some.txt", b"another text")
    with pytest.raises(ArtifactError, match=r"files\.some\.txt: \"ETag .* there, \"ETag .* now"):
        corpus_stage(["s3://pool"], tmp_path / "there" / "corpus")


def test_a_connection_that_goes_on_dropping_ends_in_one_line_and_leaves_nothing(s3, store, tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "WAITS", (0.01,))
    s3.pipe_file("pool/a.jsonl", LINES)
    store.cut(1000, 20_000)
    with pytest.raises(DataError, match=r"s3://pool/a\.jsonl: cannot be read: .*2 attempts\)"):
        corpus_stage(["s3://pool/a.jsonl"], tmp_path / "run" / "corpus")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://pool/none.txt", "no such file, folder or bucket"),
        ("s3://nobucket/a.txt", "no such file, folder or bucket"),
        ("s3://pool/*.txt", "no file there"),
    ],
)
def test_what_is_not_there_is_named(url, said, s3):
    with pytest.raises(DataError) as caught:
        expand(url)
    assert str(caught.value).startswith(url)
    assert said in str(caught.value)


def test_a_bucket_without_permission_is_named_at_once(s3, monkeypatch):
    s3.pipe_file("pool/a.txt", b"text")
    monkeypatch.setattr(storage, "WAITS", (100.0,))  # another attempt would take that long
    assert len(expand("s3://pool/a.txt")) == 1
    monkeypatch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)  # the server knows no key from now on
    with pytest.raises(DataError, match=r"^s3://pool/a\.txt: cannot be read: no permission: "):
        expand("s3://pool/a.txt")


@pytest.fixture
def web():
    """A server of HTTP that gives each path's number as its status, or its first two requests a 503; and its URL."""
    asked = Counter()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.strip("/").removesuffix(".txt")
            asked[name] += 1
            status = int(name) if name.isdigit() else 503 if asked[name] <= 2 else 200
            self.send_response(status)
            self.send_header("Content-Length", "5")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"text\n")

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "400, "),
        (403, "no permission: 403, "),
        (401, "no permission: 401, "),
        (404, "no such file, folder or bucket"),
        (410, "no such file, folder or bucket"),
    ],
)
def test_what_a_server_of_http_refuses_is_told_at_once(status, said, web, monkeypatch):
    monkeypatch.setattr(storage, "WAITS", (0.0,))
    with pytest.raises(DataError, match=rf"{status}\.txt: cannot be read: {said}") as error:
        expand(f"{web}/{status}.txt")
    assert "attempts" not in str(error.value)


def test_a_server_of_http_that_is_busy_is_asked_again(web, monkeypatch):
    monkeypatch.setattr(storage, "WAITS", (0.01, 0.01, 0.01))
    assert [file.size for file in expand(f"{web}/busy.txt")] == [5]
    for status in (408, 429, 503):
        with pytest.raises(DataError, match=rf"cannot be read: {status}, .*\(4 attempts\)"):
            expand(f"{web}/{status}.txt")
    with pytest.raises(DataError, match=r"cannot be read: Cannot connect to host .*\(4 attempts\)"):
        expand("http://127.0.0.1:1/a.txt")


def test_a_server_that_gives_no_parts_of_files_is_told_at_once(memory, monkeypatch):
    memory.pipe_file("/whole.jsonl", b'{"text": "one"}\n' * 1000)
    (file,) = expand("memory://whole.jsonl")
    monkeypatch.setattr(type(memory), "cat_file", lambda self, path, start=None, end=None: b" " * 20000)
    monkeypatch.setattr(storage, "WAITS", (0.0,))
    said = "cannot be read: "
    with file.open() as stream, pytest.raises(DataError, match=said) as error:
        stream.read(100)
    assert "attempts" not in str(error.value)


def test_a_missing_package_names_the_extra(monkeypatch):
    def missing(_):
        raise ImportError("Please install gcsfs to access Google Storage")

    monkeypatch.setattr(fsspec, "url_to_fs", missing)
    with pytest.raises(ConfigError, match=r"gs:// needs a package that is not installed: pip install 'dana\[gcs\]'"):
        expand("gs://bucket/a.txt")
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"nosuch://a\.txt: Protocol not known: nosuch"):
        expand("nosuch://a.txt")


@pytest.mark.parametrize(
    "url",
    [
        "s3://name:hush@pool/a.txt",
        "s3://name:hu/hush@pool/a.txt",
        "https://host/a.txt?X-Amz-Signature=hush",
        "https://host/a.txt?b=1&access_token=hush",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_shown(url, tmp_path, capsys, caplog):
    for flags in (["--task", url, "--general", "memory://a"], ["--task", "memory://a.txt", "--general", url]):
        with caplog.at_level(logging.DEBUG):
            assert main(["--verbose", "score", *flags, "--out", str(tmp_path / "run")]) == 2
        said = capsys.readouterr()
        assert "holds credentials" in said.err
        assert "hush" not in said.err + said.out + caplog.text
    assert not (tmp_path / "run").exists()
    assert "hush" not in without_secrets(f"failed: {url} was refused")


@pytest.mark.parametrize(
    "words",
    [
        ["score", "--out", "URL"],
        ["score", "--store", "URL"],
        ["score", "--set", "general=URL"],
        ["score", "URL"],
        ["adapt", "run", "--model", "URL"],
        ["predict", "URL", "a.jsonl"],
        ["predict", "run", "a.jsonl", "--out", "URL"],
        ["tasks", "URL"],
        ["run", "URL"],
    ],
)
def test_no_error_shows_the_credentials_of_a_url(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with suppress(SystemExit):
        assert main([word.replace("URL", "s3://name:hush@pool/a") for word in words]) == 2
    said = capsys.readouterr().err
    assert "hush" not in said
    assert said.startswith("dana: error: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["http://host:80/a@b", "s3://arn:aws:s3:eu:1:accesspoint/name/a@b", "s3://pool/a@b"])
def test_a_port_and_an_access_point_are_no_credentials(url):
    assert without_secrets(url) == url


def test_what_is_an_url_and_what_a_hub_data_set():
    assert is_url("s3://a/b")
    assert is_url("hf://datasets/a/b/c.parquet")
    assert not is_url("hf:a/b")
    assert not is_url("pool/a://b"[:6])
    assert is_hub("hf:a/b")
    assert not is_hub("hf://datasets/a/b/c.parquet")


def test_a_file_that_is_written_to_while_it_is_read_is_refused(memory):
    memory.pipe_file("/pool/a.jsonl", LINES)
    found = find_files(["memory://pool/a.jsonl"], Path())
    reading = read_documents(found, "fail", Tally())
    next(reading)
    memory.pipe_file("/pool/a.jsonl", LINES)
    with pytest.raises(DataError, match="changed"):
        list(reading)


def test_a_file_system_without_checksums_is_read_once_for_a_digest(memory, monkeypatch):
    memory.pipe_file("/a.txt", b"some text")
    marked = list_url("memory://a.txt").files[0]
    assert marked.mark.startswith("created ")
    first = source_digests([RemoteFile("memory://a.txt", 9, "")])
    memory.pipe_file("/a.txt", b"some test")
    second = source_digests([RemoteFile("memory://a.txt", 9, "")])
    assert list(first) == list(second) == ["a.txt"]
    assert first != second


def test_a_file_that_is_cut_short_is_no_whole_file(memory, monkeypatch):
    memory.pipe_file("/a.txt", b"0123456789")
    monkeypatch.setattr(storage, "WAITS", (0.0,))
    with pytest.raises(DataError, match=r"10 of 12 bytes from byte 0 on \(2 attempts\)"):
        RemoteFile("memory://a.txt", 12, "").open().read()


def test_a_task_and_a_pool_at_urls_are_scored_and_weighed(memory, tmp_path, capsys):
    memory.pipe_file("/task.txt", "\n".join(f"The cell divides in phase {number}." for number in range(40)).encode())
    memory.pipe_file("/pool/general.jsonl.gz", FILES[".jsonl.gz"])
    out = str(tmp_path / "run")
    flags = ["--task", "memory://task.txt", "--general", "memory://pool", "--selector", "random", "--out", out]
    assert main(["score", *flags]) == 0
    assert main(["score", *flags]) == 0  # nothing has changed
    assert main(["weigh", out]) == 0
    assert "memory://pool" in (tmp_path / "run" / "settings.yaml").read_text()
    assert documents.source_digests(["memory://pool"])["general.jsonl.gz"].startswith("created ")
    capsys.readouterr()
    assert main(["score", *flags, "--dry-run"]) == 0
    assert "documents" in capsys.readouterr().out
    assert main(["score", *flags[:-1], "s3://bucket/run"]) == 2
    assert "must be a local folder; copy it to a URL when it is whole" in capsys.readouterr().err
