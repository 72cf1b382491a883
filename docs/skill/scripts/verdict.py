"""Print what a run of dana found, in a few lines: python verdict.py FOLDER."""

import json
import subprocess
import sys
from typing import Any


def read(folder: str) -> dict[str, Any]:
    """Return the answer of ``dana report FOLDER --json``."""
    command = [sys.executable, "-m", "dana", "report", folder, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def interval(ends: list[float] | None) -> str:
    """Write an interval; empty without one."""
    return f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else ""


def lines(answer: dict[str, Any]) -> list[str]:
    """Say headline, scores, verdicts, what adapting is worth, and the model."""
    text = [answer["headline"]]
    for row in answer.get("probe", []):
        score = f"{row['mean']:.3f}{interval(row['interval'])}"
        text.append(f"vectors of {row['arm']}, {row['labels']} labels: {row['metric']} {score}")
    for name, row in answer.get("arms", {}).items():
        text.append(f"{name}, fine-tuned: {row['mean']:.3f}{interval(row['interval'])}")
    for row in [*answer.get("verdicts", []), *answer.get("probe_verdicts", [])]:
        difference = f"{row['difference']:+.3f}{interval(row['interval'])}"
        text.append(f"{row['a']} against {row['b']}: {difference}: {row['decision']}")
    text += answer.get("label_worth", [])
    if "model" in answer:
        model = answer["model"]
        ends = None if model["low"] is None else [model["low"], model["high"]]
        expected = f"{model['expected']:.3f}{interval(ends)}"
        text.append(f"model: {model['choice']}; expect {model['metric']} {expected} on new texts")
    return text


if __name__ == "__main__":
    print("\n".join(lines(read(sys.argv[1]))))
