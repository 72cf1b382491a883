"""What the files of a folder must be."""

from dana.core.files import file_digest


def test_a_digest_is_that_of_b2sum_over_the_whole_file(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert file_digest(tmp_path / "abc") == "cf4ab791c62b8d2b2109c90275287816"  # printf abc | b2sum -l 128
    long = b"x" * ((1 << 20) + 1)
    for name, content in {"one": long, "other": long[:-1] + b"y"}.items():
        (tmp_path / name).write_bytes(content)
    assert file_digest(tmp_path / "one") != file_digest(tmp_path / "other")
