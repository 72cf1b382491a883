"""Mutation testing: run the tests that cover a line against a random sample of cosmic-ray's mutants of it.

    pip install cosmic-ray coverage
    OMP_NUM_THREADS=1 python benchmarks/mutation.py --sample 25

A mutant is one small change to one line (an operator, a number, a condition). A test that fails
kills it; a mutant that lives shows a line that no assertion depends on. The script works on a copy
of the checkout. Heavy imports are loaded once and every mutant runs in a fork, so that it only
costs the seconds of its tests. First, each test file runs once under coverage to record the lines
that it executes; then each mutant runs against the files that execute its line, beginning with the
one named after the module. --tests limits the test files, which saves most of the coverage pass:

    python benchmarks/mutation.py --targets dana/train/objectives --tests 'tests/train/objectives/*.py'

Lines that a test only executes in another process are not covered. Mutants of `|` are excluded:
they break annotations on import, which every test notices.
"""

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TARGETS = ["dana/train", "dana/weighting"]
TARGETS += ["dana/scoring/ranking", "dana/core/artifacts.py", "dana/selectors"]
COPIES = ["dana", "tests", "recipes", "tasks", "accelerate_configs", "docs", "benchmarks"]
COPIES += ["pyproject.toml", "README.md", "CONTRIBUTING.md"]
EXCLUDED = ["BitOr", "NoOp", "Variable"]  # see above; changes nothing; needs a variable's name
PRELOADS = [
    "accelerate",
    "coverage",
    "hypothesis",
    "matplotlib",
    "pandas",
    "pyod.models.base",
    "pytest",
    "scipy.stats",
]
PRELOADS += [
    "sklearn.ensemble",
    "sklearn.neighbors",
    "sklearn.svm",
    "torch",
    "transformers.models.bert.modeling_bert",
]
READS_SOURCE = "tests/test_architecture.py"  # reads the code without executing it
PATIENCE = 4  # times the unmutated tests' seconds, plus a minute, until a mutant counts as hanging, that is killed


def main() -> None:
    """Test the mutants of every target; print those that lived and one row per target; write all as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=25, help="mutants per target")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    parser.add_argument(
        "--tests", nargs="+", default=["tests/**/test_*.py"], help="patterns of test files"
    )
    parser.add_argument("--out", type=Path, default=Path("mutation.json"))
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIES:
            copy = shutil.copytree if Path(name).is_dir() else shutil.copyfile
            copy(name, Path(folder, name))
        os.chdir(folder)
        preload()
        covering = coverage_by_file(
            sorted({str(file) for pattern in arguments.tests for file in Path().glob(pattern)})
        )
        rows = []
        for target in arguments.targets:
            mutants = mutants_of(target)
            sample = draw(mutants, arguments.sample, random.Random(arguments.seed))
            for number, mutant in enumerate(sample, 1):
                if (row := run_mutant(mutant, covering)) is not None:
                    rows.append({"target": target, "of": len(mutants), **row})
                    if row["outcome"] == "lived":
                        print(f"lived   {row['change']}", flush=True)
                print(f"{target} {number}/{len(sample)}", file=sys.stderr)
            out.write_text(json.dumps(rows, indent=1))
    for target in arguments.targets:
        of = [row for row in rows if row["target"] == target]
        count = sum(row["outcome"] != "lived" for row in of)
        print(
            f"{target:<20} {count:>4} of {len(of):>4} killed ({count / len(of):.0%}); {of[0]['of']} mutants in all"
        )
    print(
        f"together {sum(row['outcome'] != 'lived' for row in rows) / len(rows):.0%} of {len(rows)}"
    )


def preload() -> None:
    """Import the libraries that the tests use, but nothing of dana, so that forks start at once."""
    for name in PRELOADS:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path.cwd()))
    os.environ["PYTHONPATH"] = str(Path.cwd())
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def run_in_fork(work: Callable[[], int], limit: float) -> tuple[int | None, float]:
    """Run work in a fork without output; return its exit code (None after `limit` seconds) and its seconds."""
    start, child = time.monotonic(), os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os._exit(work())
    while time.monotonic() - start < limit:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status), time.monotonic() - start
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, limit


def run_tests(files: list[str]) -> int:
    """Run pytest on files up to the first failure and return its exit code."""
    import pytest

    return int(
        pytest.main(["-x", "-q", "-m", "not slow and not gpu", "-p", "no:cacheprovider", *files])
    )


def coverage_by_file(files: list[str]) -> dict[str, tuple[float, dict[str, set[int]]]]:
    """Map each test file to its seconds and the lines of dana that it executes, without files that fail unmutated."""
    covering = {}
    for file in files:
        lines = Path("lines.json")
        lines.unlink(missing_ok=True)

        def work(file: str = file, lines: Path = lines) -> int:
            import coverage

            watch = coverage.Coverage(source=["dana"], data_file=None)
            watch.start()
            code = run_tests([file])
            watch.stop()
            data = watch.get_data()
            ran = {os.path.relpath(path): data.lines(path) for path in data.measured_files()}
            lines.write_text(json.dumps(ran))
            return code

        code, seconds = run_in_fork(work, 600)
        print(f"{file}: {code} in {seconds:.1f} s", file=sys.stderr)
        if code == 0 and lines.is_file():
            ran = json.loads(lines.read_text())
            covering[file] = (seconds, {path: set(numbers) for path, numbers in ran.items()})
        elif code != 5:  # 5: no test in it
            print(f"skipped, fails without a mutant: {file}", flush=True)
    return covering


def mutants_of(target: str) -> list[tuple[Path, str, int, int]]:
    """List every mutant of a file or folder: file, operator, occurrence, line."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    files = sorted(Path(target).rglob("*.py")) if Path(target).is_dir() else [Path(target)]
    mutants = []
    for file in files:
        nodes = list(ast_nodes(get_ast(file.read_text())))
        for name in operator_names():
            if any(word in name for word in EXCLUDED):
                continue
            operator, occurrence = get_operator(name)(), 0
            for node in nodes:
                for (line, _), _ in operator.mutation_positions(node):
                    mutants.append((file, name, occurrence, line))
                    occurrence += 1
    return mutants


def draw(
    mutants: list[tuple[Path, str, int, int]], count: int, rng: random.Random
) -> list[tuple[Path, str, int, int]]:
    """Sample mutants, at most one per line and kind, as one plus sign alone has ten mutants."""
    kinds: dict[tuple[Path, int, str], list[tuple[Path, str, int, int]]] = {}
    for mutant in mutants:
        file, name, _, line = mutant
        kinds.setdefault((file, line, "_".join(name.split("_")[:2])), []).append(mutant)
    one_each = [rng.choice(alike) for alike in kinds.values()]
    return rng.sample(one_each, min(count, len(one_each)))


def run_mutant(
    mutant: tuple[Path, str, int, int], covering: dict[str, tuple[float, dict[str, set[int]]]]
) -> dict | None:
    """Run the tests that cover a mutant and return its outcome; None if cosmic-ray cannot make it."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    file, name, occurrence, line = mutant
    before = file.read_text()
    try:
        after = mutate_code(before, get_operator(name)(), occurrence)
    except AttributeError:  # cosmic-ray cannot replace an exception with a dotted name
        return None
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    old, new = next(((old.strip(), new.strip()) for old, new in pairs if old != new), ("", ""))
    # A statement may begin above the mutated line: coverage counts its first line.
    near = {number for number in range(max(1, line - 6), line + 1)}
    tests = [
        test
        for test, (_, ran) in covering.items()
        if near & ran.get(str(file), set()) or test == READS_SOURCE
    ]
    tests.sort(key=lambda test: (file.stem not in Path(test).stem, covering[test][0]))
    change = f"{file}:{line} {name.removeprefix('core/')}: {old}  ->  {new}"
    if not tests:
        return {"outcome": "lived", "change": change, "tests": 0}
    file.write_text(after)
    try:
        limit = 60 + PATIENCE * sum(covering[test][0] for test in tests)
        code, seconds = run_in_fork(lambda: run_tests(tests), limit)
    finally:
        file.write_text(before)
    outcome = {0: "lived", None: "timeout"}.get(code, "killed")
    return {"outcome": outcome, "change": change, "tests": len(tests), "seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
