"""Files of a folder, and damage to one."""

from dana.core.artifacts import MANIFEST


def contents(folder):
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def contents_made(folder):
    """What a step wrote into its folder, without the manifest, which has its seconds."""
    return {name: content for name, content in contents(folder).items() if name != MANIFEST}


def flip(path, at):
    """Change one bit, and give the bytes as they were."""
    before = path.read_bytes()
    content = bytearray(before)
    content[at] ^= 1
    path.write_bytes(content)
    return before
