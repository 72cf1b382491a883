"""Mutation testing: a random sample of cosmic-ray's mutants, each against the tests that run the mutated line.

    pip install cosmic-ray coverage
    OMP_NUM_THREADS=1 python benchmarks/mutation.py --sample 25

A mutant is one small change to one line (an operator, a number, a condition). Tests that notice kill it; one that
lives shows a line that no assertion depends on. Works on a copy of the checkout. Heavy imports are made once and every
mutant runs in a fork, so that a mutant costs the seconds of its tests alone. First each test file runs once under
coverage, which says which lines it runs; then each mutant meets the files that run its line, the one named after the
module first. --tests names the test files to use, which saves most of the coverage pass:

    python benchmarks/mutation.py --targets dana/train/objectives --tests 'tests/train/objectives/*.py'

What a test starts as a process of its own does not count. Mutants of `|` are left out: they break annotations on
import, which every test notices.
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
TARGETS += ["dana/scoring/ranking/separation.py", "dana/core/artifacts.py", "dana/selectors"]
COPIED = ["dana", "tests", "recipes", "tasks", "accelerate_configs", "docs", "benchmarks"]
COPIED += ["pyproject.toml", "README.md", "CONTRIBUTING.md"]
LEFT_OUT = ["BitOr", "NoOp", "Variable"]  # see above; changes nothing; needs a variable's name
PRELOADED = [
    "accelerate",
    "coverage",
    "hypothesis",
    "matplotlib",
    "pandas",
    "pyod.models.base",
    "pytest",
    "scipy.stats",
]
PRELOADED += ["sklearn.ensemble", "sklearn.neighbors", "sklearn.svm", "torch", "transformers.models.bert.modeling_bert"]
READS_SOURCE = "tests/test_architecture.py"  # runs no line of what it checks
PATIENCE = 4  # times the seconds that the tests took unmutated, and a minute: then it hangs, which counts as killed


def main() -> None:
    """Print a row a target and each mutant that lived; write all of them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=25, help="mutants a target")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    parser.add_argument("--tests", nargs="+", default=["tests/**/test_*.py"], help="patterns of the test files to use")
    parser.add_argument("--out", type=Path, default=Path("mutation.json"))
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if Path(name).is_dir() else shutil.copyfile
            copy(name, Path(folder, name))
        os.chdir(folder)
        preload()
        covering = coverage_by_file(sorted({str(file) for pattern in arguments.tests for file in Path().glob(pattern)}))
        rows = []
        for target in arguments.targets:
            mutants = mutants_of(target)
            chosen = draw(mutants, arguments.sample, random.Random(arguments.seed))
            for number, mutant in enumerate(chosen, 1):
                if (found := judge(mutant, covering)) is not None:
                    rows.append({"target": target, "of": len(mutants), **found})
                    if found["outcome"] == "lived":
                        print(f"lived   {found['change']}", flush=True)
                print(f"{target} {number}/{len(chosen)}", file=sys.stderr)
            out.write_text(json.dumps(rows, indent=1))
    for target in arguments.targets:
        of = [row for row in rows if row["target"] == target]
        killed = sum(row["outcome"] != "lived" for row in of)
        print(f"{target:<20} {killed:>4} of {len(of):>4} killed ({killed / len(of):.0%}); {of[0]['of']} mutants in all")
    print(f"together {sum(row['outcome'] != 'lived' for row in rows) / len(rows):.0%} of {len(rows)}")


def preload() -> None:
    """Import what the tests import, but nothing of dana: forks then start at once."""
    for name in PRELOADED:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(Path.cwd()))
    os.environ["PYTHONPATH"] = str(Path.cwd())
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


def forked(work: Callable[[], int], longest: float) -> tuple[int | None, float]:
    """Run in a fork without output; its exit code (None: took too long) and its seconds."""
    started, child = time.monotonic(), os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os._exit(work())
    while time.monotonic() - started < longest:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), time.monotonic() - started
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, longest


def run_tests(files: list[str]) -> int:
    """Pytest's exit code over some files, stopping at the first failure."""
    import pytest

    return int(pytest.main(["-x", "-q", "-m", "not slow and not gpu", "-p", "no:cacheprovider", *files]))


def coverage_by_file(files: list[str]) -> dict[str, tuple[float, dict[str, set[int]]]]:
    """Test file to its seconds and the lines of dana that it runs; files that fail unmutated are left out."""
    found = {}
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

        code, seconds = forked(work, 600)
        print(f"{file}: {code} in {seconds:.1f} s", file=sys.stderr)
        if code == 0 and lines.is_file():
            ran = json.loads(lines.read_text())
            found[file] = (seconds, {path: set(numbers) for path, numbers in ran.items()})
        elif code != 5:  # 5: no test in it
            print(f"left out, fails without a mutant: {file}", flush=True)
    return found


def mutants_of(target: str) -> list[tuple[Path, str, int, int]]:
    """Every mutant of a file or folder: file, operator, occurrence, line."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    files = sorted(Path(target).rglob("*.py")) if Path(target).is_dir() else [Path(target)]
    found = []
    for file in files:
        nodes = list(ast_nodes(get_ast(file.read_text())))
        for name in operator_names():
            if any(word in name for word in LEFT_OUT):
                continue
            operator, occurrence = get_operator(name)(), 0
            for node in nodes:
                for (line, _), _ in operator.mutation_positions(node):
                    found.append((file, name, occurrence, line))
                    occurrence += 1
    return found


def draw(mutants: list[tuple[Path, str, int, int]], count: int, rng: random.Random) -> list[tuple[Path, str, int, int]]:
    """Some mutants, at most one a line and kind: ten other operators for one plus would drown the rest."""
    kinds: dict[tuple[Path, int, str], list[tuple[Path, str, int, int]]] = {}
    for mutant in mutants:
        file, name, _, line = mutant
        kinds.setdefault((file, line, "_".join(name.split("_")[:2])), []).append(mutant)
    one_each = [rng.choice(alike) for alike in kinds.values()]
    return rng.sample(one_each, min(count, len(one_each)))


def judge(mutant: tuple[Path, str, int, int], covering: dict[str, tuple[float, dict[str, set[int]]]]) -> dict | None:
    """Run the tests that cover a mutant: killed, lived, or lived because no test runs its line; None if it is none."""
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
    tests = [test for test, (_, ran) in covering.items() if near & ran.get(str(file), set()) or test == READS_SOURCE]
    tests.sort(key=lambda test: (file.stem not in Path(test).stem, covering[test][0]))
    change = f"{file}:{line} {name.removeprefix('core/')}: {old}  ->  {new}"
    if not tests:
        return {"outcome": "lived", "change": change, "tests": 0}
    file.write_text(after)
    try:
        longest = 60 + PATIENCE * sum(covering[test][0] for test in tests)
        code, seconds = forked(lambda: run_tests(tests), longest)
    finally:
        file.write_text(before)
    outcome = {0: "lived", None: "timeout"}.get(code, "killed")
    return {"outcome": outcome, "change": change, "tests": len(tests), "seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
