"""Memory that is free goes back to the system."""

import subprocess
import sys

import pytest

# Blocks below the size that malloc maps on its own, with one in a hundred kept between them.
FRAGMENTED = """
import os, psutil
from dana.core.memory import return_memory

process = psutil.Process()
blocks = [os.urandom(50_000) for _ in range(4_000)]
kept = blocks[::100]
full = process.memory_info().rss
del blocks
return_memory()
print((full - process.memory_info().rss) / 4_000 / 50_000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_what_was_freed_between_objects_that_live_on_is_given_back():
    done = subprocess.run(
        [sys.executable, "-c", FRAGMENTED], check=True, capture_output=True, text=True
    )
    assert float(done.stdout) > 0.8
