"""Put what ships beside the package, such as recipes and task cards, into the package when it is built."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

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


setup(cmdclass={"build_py": BuildWithShippedFiles})
