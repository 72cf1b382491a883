"""How often the interval of a chosen model's score holds its true score, on simulated tables of predictions.

``python benchmarks choice --tables 1000``; about 2 minutes a design on one core. A table has the
labels of some texts and what several candidates predict of them. Candidates share hard texts. The
true score of a candidate is its score on very many texts. For each design the script prints how often
the interval of the chosen candidate covers its true score, by how much the estimate and the
plain score of the choice are off in the mean, and the mean length of the interval.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from dana.finetuning.choice import Candidate, choose
from dana.tasks.kinds.base import Kind
from dana.tasks.kinds.multi_label import MultiLabel
from dana.tasks.kinds.regression import Regression
from dana.tasks.kinds.single_label import SingleLabel

SHARED = 0.5  # of a text's difficulty, the part that all candidates share
OF_GROUP = 0.2  # of it, the part that all texts of a group share
MANY = 200_000  # texts, for true scores
DRAWS = 400  # of each estimate
SIX = (0.3, 0.25, 0.2, 0.15, 0.08, 0.02)


@dataclass(frozen=True)
class Design:
    """What the tables of a design have in common.

    Attributes:
        name: Name.
        kind: Kind of the labels.
        metric: Metric.
        texts: Number of texts.
        skills: Chance of each candidate to be right; of numbers its correlation.
        fits: Number of fits of each candidate.
        shares: Shares of the labels.
        groups: Number of groups; 0 if each text is alone.
    """

    name: str
    kind: Kind
    metric: str
    texts: int
    skills: Sequence[float]
    fits: Sequence[int] = (1, 1, 1, 2, 2)
    shares: Sequence[float] = (0.4, 0.3, 0.3)
    groups: int = 0

    def labels(self, random: np.random.Generator, texts: int) -> np.ndarray:
        """Draw labels."""
        if not self.kind.has_labels:
            return random.standard_normal(texts)
        if self.kind.dtype is object:
            rows = random.random((texts, len(self.shares))) < self.shares
            return self.kind.gather([tuple(np.flatnonzero(row).tolist()) for row in rows])
        return random.choice(len(self.shares), size=texts, p=self.shares)

    def predict(
        self, random: np.random.Generator, labels: np.ndarray, ease: np.ndarray, skill: float
    ) -> np.ndarray:
        """Predict labels with a skill; ease, standard normal, makes texts hard for all candidates.

        Args:
            random: Generator.
            labels: The labels.
            ease: Of each text, low for an easy one.
            skill: Of the candidate.
        """
        if not self.kind.has_labels:
            return skill * labels + np.sqrt(1 - skill**2) * ease
        is_right = ease < norm.ppf(skill)
        if self.kind.dtype is object:
            other = self.labels(random, labels.size)
            pairs = zip(labels, other, is_right, strict=True)
            return self.kind.gather([own if right else wrong for own, wrong, right in pairs])
        count = len(self.shares)
        wrong = (labels + random.integers(1, count, size=labels.size)) % count
        return np.where(is_right, labels, wrong)

    def table(
        self, random: np.random.Generator
    ) -> tuple[np.ndarray, list[Candidate], np.ndarray | None]:
        """Draw labels, the candidates' predictions of them, and groups."""
        labels = self.labels(random, self.texts)
        groups = np.arange(self.texts) % self.groups if self.groups else None
        shared = random.standard_normal(self.texts)
        of_groups = np.zeros(self.texts)
        if groups is not None:
            of_groups = random.standard_normal(self.groups)[groups]
        candidates = []
        for name, (skill, fits) in enumerate(zip(self.skills, self.fits, strict=False)):
            own = random.standard_normal(self.texts)
            rows = []
            for _ in range(fits):
                noise = random.standard_normal(self.texts)
                ease = np.sqrt(SHARED) * shared + np.sqrt((1 - SHARED) / 2) * (own + noise)
                if groups is not None:
                    ease = np.sqrt(1 - OF_GROUP) * ease + np.sqrt(OF_GROUP) * of_groups
                rows.append(self.predict(random, labels, ease, skill))
            predictions = np.empty((fits, self.texts), dtype=labels.dtype)
            for number, row in enumerate(rows):
                predictions[number] = row
            candidates.append(Candidate(str(name), predictions))
        return labels, candidates, groups

    def true_scores(self, random: np.random.Generator) -> list[float]:
        """Score each candidate on very many texts."""
        scores = []
        for skill in self.skills:
            labels = self.labels(random, MANY)
            predictions = self.predict(random, labels, random.standard_normal(MANY), skill)
            scores.append(self.kind.score(predictions, labels, self.metric))
        return scores


def designs() -> list[Design]:
    """Return the designs: equal and unequal candidates, few and many texts, groups, all kinds of label."""
    classes = SingleLabel.from_count
    unequal = (0.55, 0.58, 0.6, 0.62, 0.63)
    good = (0.9, 0.93, 0.94, 0.95, 0.96)
    several = MultiLabel(("a", "b", "c", "d"))
    numbers = Regression(())
    return [
        Design("one candidate", classes(3), "accuracy", 400, (0.6,)),
        Design("five equal ones", classes(3), "accuracy", 400, (0.6,) * 5),
        Design("five unequal ones", classes(3), "accuracy", 400, unequal),
        Design("macro-F1, a rare label", classes(6), "macro_f1", 400, unequal, shares=SIX),
        Design("100 texts", classes(2), "macro_f1", 100, (0.75, 0.8, 0.83), shares=(0.6, 0.4)),
        Design("60 texts, nearly all right", classes(3), "accuracy", 60, good),
        Design("42 groups", classes(3), "macro_f1", 400, unequal, groups=42),
        Design("several labels", several, "micro_f1", 300, unequal, shares=(0.4, 0.3, 0.2, 0.1)),
        Design("numbers, squared error", numbers, "mse", 300, (0.5, 0.55, 0.6, 0.62)),
        Design("numbers, Spearman", numbers, "spearman", 300, (0.5, 0.55, 0.6, 0.62)),
    ]


def coverage(design: Design, tables: int) -> dict[str, float]:
    """Simulate the tables of a design.

    Returns:
        ``covered``, the share of the intervals that hold the true score of the chosen candidate;
        the mean errors ``estimate`` and ``plain``; and the mean ``length``.
    """
    random = np.random.default_rng(0)
    true = design.true_scores(random)
    rows = []
    for seed in range(tables):
        labels, candidates, groups = design.table(random)
        choice = choose(candidates, labels, design.kind, design.metric, groups, seed, DRAWS)
        assert choice.low is not None
        assert choice.high is not None
        actual = true[int(choice.name)]
        is_covered = choice.low <= actual <= choice.high
        plain = choice.scores[choice.name] - actual
        rows.append((is_covered, choice.expected - actual, plain, choice.high - choice.low))
    names = ("covered", "estimate", "plain", "length")
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))


def main() -> None:
    """Print a line for each design, and the coverage over all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000, help="tables of each design")
    tables = parser.parse_args().tables
    print(f"{'design':<28} {'covered':>8} {'estimate':>9} {'plain':>8} {'length':>7}")
    shares = []
    for design in designs():
        row = coverage(design, tables)
        shares.append(row["covered"])
        numbers = f"{row['covered']:8.3f} {row['estimate']:+9.4f} {row['plain']:+8.4f}"
        print(f"{design.name:<28} {numbers} {row['length']:7.3f}", flush=True)
    print(f"{'all':<28} {np.mean(shares):8.3f}")


if __name__ == "__main__":
    main()
