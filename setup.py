"""Put what ships beside the package, such as recipes and task cards, into the package when it is built.

With SOURCE_DATE_EPOCH set, the same commit gives the same sdist, byte for byte, as it gives the same wheel.
"""

import gzip
import os
import shutil
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent
# `dana/core/shipped.py` finds them: in an editable installation here, else in `dana/shipped`.
SHIPPED = ("recipes", "tasks", "accelerate_configs")


class BuildWithShippedFiles(build_py):
    """Build the package, with the folders that stand beside it in git as its data."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "dana" / "shipped"
        shutil.rmtree(target, ignore_errors=True)  # of an earlier build
        for name in SHIPPED:
            shutil.copytree(
                ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__")
            )


class SdistOfOneTime(sdist):
    """Build the archive with the time SOURCE_DATE_EPOCH in it, if that is set, and with no user."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, **owners):
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is None or format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, **owners)

        def same(entry):
            entry.mtime = int(epoch)
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            return entry

        path = Path(f"{base_name}.tar.gz")
        with (
            path.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=int(epoch)) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=same)
        return str(path)


setup(cmdclass={"build_py": BuildWithShippedFiles, "sdist": SdistOfOneTime})
