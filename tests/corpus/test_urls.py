"""Text at a URL is read like a local file: the same bytes, whatever connections drop; what cannot be read is named."""

import logging
import threading
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fsspec
import moto.settings
import pytest

from dana.cli.main import main
from dana.core import storage
from dana.core.errors import ArtifactError, ConfigError, DataError, without_secrets
from dana.core.storage import RemoteFile, is_url, list_url
from dana.corpus import documents
from dana.corpus.documents import Tally, read_documents, source_digests
from dana.corpus.hub import is_hub
from dana.corpus.sources import expand, find_files, format_of, stem
from dana.stages.texts import pool_stage
from tests.corpus.files import PACK, json_lines, parquet
from tests.scoring.on_disk import contents_made

TEXTS = [f"Row {number} of the pool, ähnlich 😀" for number in range(3000)]
LINES = json_lines({"text": text} for text in TEXTS)
FILES = {f".jsonl{suffix}": pack(LINES) for suffix, pack in PACK.items()}
FILES |= {
    ".txt": "\n\n".join(TEXTS).encode(),
    ".parquet": parquet({"text": TEXTS}, row_group_size=256),
}


def test_a_folder_is_read_in_order_without_what_is_hidden_unknown_or_made_by_dana(memory):
    inputs = "b.txt a/c.txt .hidden.txt .git/d.txt e.pdf"
    outputs = (
        "run/pool/part-00000.parquet run/pool/__dana__/manifest.json run/scores/part-00000.parquet"
    )
    outputs += " old/weights/__dana__/x.csv old/weights/part-00000.parquet"
    for name in f"{inputs} {outputs}".split():
        memory.pipe_file(f"/pool/{name}", b"x")
    skips = Counter()
    files = expand("memory://pool", skips=skips)
    assert [file.url for file in files] == ["memory:///pool/a/c.txt", "memory:///pool/b.txt"]
    assert skips == {"folder that dana wrote": 2, ".pdf": 1}
    (part,) = expand("memory://pool/run/pool")  # named itself, it is read
    assert part.url == "memory:///pool/run/pool/part-00000.parquet"
    assert [file.name for file in expand("memory://pool/**/*.txt")] == ["c.txt", "b.txt"]


def test_a_pool_has_the_same_bytes_from_s3_with_dropped_connections_as_from_a_folder(
    s3, store, tmp_path
):
    (tmp_path / "pool").mkdir()
    for ending, content in FILES.items():
        (tmp_path / "pool" / f"some{ending}").write_bytes(content)
        s3.pipe_file(f"pool/some{ending}", content)
    local = pool_stage([str(tmp_path / "pool")], tmp_path / "local" / "pool")
    store.cut(8, 20_000)
    remote = pool_stage(["s3://pool"], tmp_path / "remote" / "pool")
    assert store.cuts >= 3
    assert contents_made(remote.path) == contents_made(local.path)
    assert remote.manifest["counts"] == local.manifest["counts"]
    etag = remote.manifest["depends_on"]["files"]["some.jsonl"]
    assert etag == f"ETag {s3.info('pool/some.jsonl')['ETag'].strip(chr(34))}, {len(LINES)} bytes"
    assert pool_stage(["s3://pool"], tmp_path / "remote" / "pool").fingerprint == remote.fingerprint
    s3.pipe_file("pool/some.txt", b"another text")
    with pytest.raises(ArtifactError, match=r"files\.some\.txt: \"ETag .* there, \"ETag .* now"):
        pool_stage(["s3://pool"], tmp_path / "remote" / "pool")


def test_a_connection_that_goes_on_dropping_ends_in_one_line_and_leaves_nothing(
    s3, store, tmp_path, monkeypatch
):
    monkeypatch.setattr(storage, "WAITS", (0.01,))
    monkeypatch.setattr(type(s3), "retries", 1)  # its own, which wait for seconds
    s3.pipe_file("pool/a.jsonl", LINES)
    store.cut(1000, 20_000)
    with pytest.raises(DataError, match=r"s3://pool/a\.jsonl: cannot be read: .*2 attempts\)"):
        pool_stage(["s3://pool/a.jsonl"], tmp_path / "run" / "pool")
    assert not (tmp_path / "run").exists()


def test_what_a_bucket_lacks_or_does_not_permit_is_named_at_once(s3, monkeypatch):
    s3.pipe_file("pool/a.txt", b"text")
    monkeypatch.setattr(storage, "WAITS", (100.0,))  # another attempt would take that long
    assert len(expand("s3://pool/a.txt")) == 1
    for url in ("s3://pool/none.txt", "s3://nobucket/a.txt"):
        with pytest.raises(
            DataError, match=f"^{url}: cannot be read: no such file, folder or bucket"
        ):
            expand(url)
    with pytest.raises(DataError, match=r"^s3://pool/\*\.md: no file there"):
        expand("s3://pool/*.md")
    monkeypatch.setattr(
        moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0
    )  # the server knows no key from now on
    with pytest.raises(DataError, match=r"^s3://pool/a\.txt: cannot be read: no permission: "):
        expand("s3://pool/a.txt")


@pytest.fixture(scope="module")
def web():
    """The URL of a server that answers with a path's number as status; /busy.txt with two 503, then a text."""
    requests = Counter()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.strip("/").removesuffix(".txt")
            requests[name] += 1
            self.send_response(int(name) if name.isdigit() else 503 if requests[name] <= 2 else 200)
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


REFUSALS = [
    ("400.txt", "400, ", 1),
    ("401.txt", "no permission: 401, ", 1),
    ("403.txt", "no permission: 403, ", 1),
]
REFUSALS += [
    ("404.txt", "no such file, folder or bucket$", 1),
    ("410.txt", "no such file, folder or bucket$", 1),
]
REFUSALS += [("408.txt", "408, ", 3), ("429.txt", "429, ", 3), ("503.txt", "503, ", 3)]
REFUSALS += [("http://127.0.0.1:1/a.txt", "Cannot connect to host ", 3)]


@pytest.mark.parametrize(("path", "reason", "attempts"), REFUSALS)
def test_a_server_that_refuses_is_asked_once_and_one_that_may_recover_again(
    path, reason, attempts, web, monkeypatch
):
    monkeypatch.setattr(storage, "WAITS", (0.0, 0.0))
    url = path if is_url(path) else f"{web}/{path}"
    with pytest.raises(DataError, match=f"^{url}: cannot be read: {reason}") as error:
        expand(url)
    assert ("(3 attempts)" in str(error.value)) == (attempts == 3)


def test_a_server_that_recovers_is_read(web, monkeypatch):
    monkeypatch.setattr(storage, "WAITS", (0.0, 0.0))
    assert [file.size for file in expand(f"{web}/busy.txt")] == [5]


def test_more_bytes_than_were_asked_for_end_at_once_and_fewer_after_all_attempts(
    memory, monkeypatch
):
    memory.pipe_file("/a.txt", b"0123456789")
    monkeypatch.setattr(storage, "WAITS", (0.0,))
    with pytest.raises(DataError, match=r"10 of 12 bytes from byte 0 on \(2 attempts\)"):
        RemoteFile("memory://a.txt", 12, "").open().read()
    monkeypatch.setattr(memory, "cat_file", lambda path, start, end: b" " * 20)
    with pytest.raises(
        DataError, match=r"does not support HTTP byte ranges; download the file first$"
    ):
        RemoteFile("memory://a.txt", 12, "").open().read()


def test_a_missing_package_names_the_extra(monkeypatch):
    def missing(_):
        raise ImportError("Please install gcsfs to access Google Storage")

    with pytest.raises(ConfigError, match=r"nosuch://a\.txt: .*Protocol not known: nosuch"):
        expand("nosuch://a.txt")
    monkeypatch.setattr(fsspec, "url_to_fs", missing)
    with pytest.raises(
        ConfigError,
        match=r"gs:// needs a package that is not installed: pip install 'gcsfs>=",
    ):
        expand("gs://bucket/a.txt")


WITH_CREDENTIALS = ["s3://name:hush@pool/a.txt", "s3://name:hu/hush@pool/a.txt"]
WITH_CREDENTIALS += [
    "https://host/a.txt?X-Amz-Signature=hush",
    "https://host/a.txt?b=1&access_token=hush",
]


@pytest.mark.parametrize("url", WITH_CREDENTIALS)
def test_credentials_in_a_url_are_refused_and_not_shown(url, tmp_path, capsys, caplog):
    for flags in (
        ["--task", url, "--pool", "memory://a"],
        ["--task", "memory://a.txt", "--pool", url],
    ):
        with caplog.at_level(logging.DEBUG):
            assert main(["--verbose", "score", *flags, "--out", str(tmp_path / "run")]) == 2
        output = capsys.readouterr()
        assert "holds credentials" in output.err
        assert "hush" not in output.err + output.out + caplog.text
    assert not (tmp_path / "run").exists()
    assert "hush" not in without_secrets(f"failed: {url} was refused")


COMMANDS = [
    "score --out URL",
    "score --store URL",
    "score --set pool=URL",
    "score URL",
    "adapt run --model URL",
]
COMMANDS += ["predict URL a.jsonl", "predict run a.jsonl --out URL", "tasks URL", "run URL"]


@pytest.mark.parametrize("line", COMMANDS)
def test_no_error_shows_the_credentials_of_a_url(line, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with suppress(SystemExit):
        assert main(line.replace("URL", "s3://name:hush@pool/a").split()) == 2
    error = capsys.readouterr().err
    assert "hush" not in error
    assert error.startswith("dana: error: ")
    assert not list(tmp_path.iterdir())


def test_names_of_urls_and_of_hub_data_sets():
    for url in ("http://host:80/a@b", "s3://arn:aws:s3:eu:1:accesspoint/name/a@b", "s3://pool/a@b"):
        assert without_secrets(url) == url, "a port and an access point are no credentials"
    assert is_url("hf://datasets/a/b/c.parquet")
    assert not is_url("hf:a/b")
    assert not is_url("pool/a://b")
    assert is_hub("hf:a/b")
    assert not is_hub("hf://datasets/a/b/c.parquet")


def test_a_file_that_is_written_to_while_it_is_read_is_refused(memory):
    memory.pipe_file("/pool/a.jsonl", LINES)
    reading = read_documents(find_files(["memory://pool/a.jsonl"], Path()), "fail", Tally())
    next(reading)
    memory.pipe_file("/pool/a.jsonl", LINES)
    with pytest.raises(DataError, match="changed"):
        list(reading)


def test_a_file_in_whose_name_is_a_character_of_globs_is_read_from_its_folder(memory):
    for name in ("a[1].jsonl", "b*.jsonl", "c?.jsonl"):
        memory.pipe_file(f"/pool/{name}", LINES.replace(b"Row", name[:1].encode()))
    files = find_files(["memory://pool"], Path())
    read = list(read_documents(files, "fail", Tally()))
    assert len(read) == 3 * len(TEXTS)


def test_the_query_of_a_web_address_is_no_part_of_a_file_s_name():
    file = RemoteFile("https://host/pool/a.jsonl.gz?download=true&as=b.txt", 1, "")
    assert file.name == "a.jsonl.gz"
    assert format_of(file) == ".jsonl"
    assert stem(file) == "a"
    assert format_of(RemoteFile("s3://pool/a#1?.jsonl", 1, "")) == ".jsonl"


def test_a_web_address_may_name_its_file_at_the_end_of_the_query():
    assert format_of(RemoteFile("https://host/get?id=4&file=a.csv.gz", 1, "")) == ".csv"
    assert format_of(RemoteFile("https://host/get?file=a.parquet", 1, "")) == ".parquet"


def test_a_file_system_without_checksums_is_read_once_for_a_digest(memory):
    memory.pipe_file("/a.txt", b"some text")
    assert list_url("memory://a.txt").files[0].mark.startswith("created ")
    first = source_digests([RemoteFile("memory://a.txt", 9, "")])
    memory.pipe_file("/a.txt", b"some test")
    second = source_digests([RemoteFile("memory://a.txt", 9, "")])
    assert list(first) == list(second) == ["a.txt"]
    assert first != second


def test_a_task_and_a_pool_at_urls_are_scored_and_weighed(memory, tmp_path, capsys):
    memory.pipe_file(
        "/task.txt",
        "\n".join(f"The cell divides in phase {number}." for number in range(40)).encode(),
    )
    memory.pipe_file("/pool/pool.jsonl.gz", FILES[".jsonl.gz"])
    out = str(tmp_path / "run")
    flags = [
        "--task",
        "memory://task.txt",
        "--pool",
        "memory://pool",
        "--selector",
        "random",
        "--out",
        out,
    ]
    assert main(["score", *flags]) == 0
    assert main(["score", *flags]) == 0  # nothing has changed
    assert main(["weigh", out]) == 0
    assert "memory://pool" in (tmp_path / "run" / "recipe.yaml").read_text()
    assert documents.source_digests(["memory://pool"])["pool.jsonl.gz"].startswith("created ")
    assert main(["score", *flags[:-1], "s3://bucket/run"]) == 2
    assert "must be a local folder; copy it to a URL when it is whole" in capsys.readouterr().err
