"""Files of a folder, and damage to one."""


def contents(folder):
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def flip(path, at):
    """Change one bit, and give the bytes as they were."""
    before = path.read_bytes()
    content = bytearray(before)
    content[at] ^= 1
    path.write_bytes(content)
    return before
