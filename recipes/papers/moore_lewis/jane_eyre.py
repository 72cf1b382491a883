"""Ten cut-offs of novels ranked by perplexity difference to Jane Eyre, against ten random sets: held-out perplexity.

    python recipes/papers/moore_lewis/jane_eyre.py NOVELS --out FOLDER [--score S] [--disjoint] [--plus-in-domain]

NOVELS is a folder of plain texts, ``*.txt.gz``, one of which has Jane_Eyre in its name. Of that one, the last tenth of
the sentences is held out, the rest is the task; all other novels are the pool. As in the blog post, two 3-gram models,
of the task and of as many random sentences of the pool, share the words that the task has at least twice, and 3-grams
seen once are left out. The pool is ranked by the difference of the two. A model of the same kind is trained on each cut
and on as many random sentences, and its perplexity on the held-out text is written to ``perplexities.csv``;
``perplexities.png`` has the curves, ``differences.png`` the sorted scores. ``--score`` may be cross_entropy, perplexity
or, by default, both.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from dana.core.errors import DataError
from dana.core.lines import read_lines
from dana.core.registry import SELECTORS
from dana.core.rng import generator
from dana.corpus.text import words
from dana.corpus.units import sentences
from dana.models.ngram.kneser_ney import train_ngrams
from dana.models.ngram.model import text_entropies
from dana.models.ngram.vocabulary import Vocabulary, WordIds

SCORES = ("cross_entropy", "perplexity")
ORDER, LEAST_COUNT, CUTOFF, HELD_OUT, CUTS = 3, 2, 1, 0.1, 10
BOOK = "Jane_Eyre"
LONG = 8  # words from which on a sentence in two books is no coincidence


@dataclass(frozen=True)
class Cut:
    """One model: on which sentences of the pool it was trained, and its perplexity on held-out text.

    Attributes:
        ranking: ``cross_entropy`` or ``perplexity`` (of the two models' difference), or ``random``.
        share: Of the pool's sentences.
        sentences: Trained on.
        words: Trained on, unknown ones among them.
        perplexity: A word or end of a sentence of the held-out text, unknown words counted as one word.
        perplexity_known: Without unknown words.
    """

    ranking: str
    share: float
    sentences: int
    words: int
    perplexity: float
    perplexity_known: float


@dataclass(frozen=True)
class Study:
    """Task, held-out text and pool, as word numbers of the task's vocabulary."""

    vocabulary: Vocabulary
    task: WordIds
    held_out: WordIds
    pool: WordIds

    @classmethod
    def of_texts(cls, task: Sequence[str], held_out: Sequence[str], pool: Sequence[str]) -> "Study":
        """Sentences, numbered by the words that the task has at least twice."""
        vocabulary = Vocabulary.of_texts(task, LEAST_COUNT)
        return cls(vocabulary, *(vocabulary.encode(texts) for texts in (task, held_out, pool)))

    def curve(self, ranking: str, order: np.ndarray, disjoint: bool = False, plus_task: bool = False) -> list[Cut]:
        """A model for each of ten cuts of a ranking.

        Args:
            ranking: Its name.
            order: Rows of the pool, the best first.
            disjoint: Tenths, instead of the best tenth, the best two tenths and so on.
            plus_task: Train on the task's sentences, too.
        """
        ends = [round(order.size * cut / CUTS) for cut in range(CUTS + 1)]
        cuts = []
        for number, end in enumerate(ends[1:], 1):
            # In the pool's order: the whole pool is then the same texts, whichever ranking it is cut by.
            chosen = self.pool.rows(np.sort(order[ends[number - 1] if disjoint else 0 : end]))
            size, tokens = len(chosen), int(chosen.sizes.sum()) - 2 * len(chosen)
            if plus_task:
                chosen = WordIds(
                    np.concatenate([chosen.ids, self.task.ids]), np.concatenate([chosen.sizes, self.task.sizes])
                )
            model = train_ngrams(chosen, ORDER, self.vocabulary, CUTOFF)
            every, known = (text_entropies(model, self.held_out, unknown) for unknown in (True, False))
            cuts.append(Cut(ranking, number / CUTS, size, tokens, every.perplexity, known.perplexity))
            print(f"{ranking:>13}  {number / CUTS:4.0%}  {every.perplexity:8.2f}  {known.perplexity:8.2f}", flush=True)
        return cuts


def rank(task: Sequence[str], pool: Sequence[str], score: str, seed: int) -> np.ndarray:
    """Difference of perplexities or cross-entropies of each sentence of the pool, float64; lower = nearer the task."""
    selector = SELECTORS.load("moore_lewis")(
        order=ORDER, vocabulary="task", min_count=LEAST_COUNT, cutoff=CUTOFF, background="task", score=score
    )
    return selector.fit(task, pool, seed).score(pool)


def lies_under(selected: Sequence[Cut], random: Sequence[Cut]) -> bool:
    """Whether the selected curve is below the random one at every cut but the last, where they meet."""
    below = all(one.perplexity < other.perplexity for one, other in zip(selected[:-1], random[:-1], strict=True))
    return below and selected[-1].perplexity == random[-1].perplexity


def read_novel(path: Path) -> list[str]:
    """Sentences of a novel whose paragraphs stand between empty lines."""
    text = "".join(line for _, line in read_lines(path))
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return [part[start:end] for part in paragraphs for start, end in sentences(part)]


def read_novels(folder: Path) -> tuple[list[str], list[str]]:
    """Sentences of Jane Eyre, and of all others.

    Raises:
        DataError: If there is not exactly one book of that name, or no other, or another holds its text.
    """
    paths = sorted(folder.glob("*.txt.gz"))
    own = [path for path in paths if BOOK in path.name]
    if len(own) != 1 or len(paths) < 2:
        raise DataError(f"{folder}: {len(own)} of {len(paths)} *.txt.gz are {BOOK}; needed are one, and others")
    book = read_novel(own[0])
    pool = [sentence for path in paths if path != own[0] for sentence in read_novel(path)]
    told = {text for text in map(words, book) if text.count(" ") >= LONG - 1}
    again = sum(words(sentence) in told for sentence in pool)
    if again > len(told) / 100:
        raise DataError(f"{folder}: {again} sentences of {BOOK} are also in other books: it is there twice")
    return book, pool


def _plot(cuts: pd.DataFrame, scores: dict[str, np.ndarray], disjoint: bool, out: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for ranking, rows in cuts.groupby("ranking", sort=False):
        axes.plot(100 * rows["share"], rows["perplexity"], marker="o", label=ranking)
    axes.set_xlabel("tenth of the ranked pool that ends at, %" if disjoint else "share of the pool, best first, %")
    axes.set_ylabel("perplexity of held-out text")
    axes.legend(title="sentences by")
    figure.savefig(out / "perplexities.png", dpi=120)
    figure = Figure(figsize=(3.2 * len(scores) + 1, 3.2), layout="constrained")
    for panel, (score, values) in zip(np.ravel(figure.subplots(1, len(scores))), scores.items(), strict=True):
        ranked = np.sort(values)
        shown = np.linspace(0, ranked.size - 1, 2000).astype(int)
        panel.plot(100 * (shown + 1) / ranked.size, ranked[shown])
        panel.axhline(0, color="gray", linewidth=0.5)
        panel.set_yscale("symlog" if score == "perplexity" else "linear")
        panel.set_xlabel("share of the pool, %")
        panel.set_title(f"{score} difference", fontsize=10)
    figure.savefig(out / "differences.png", dpi=120)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("novels", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--score", choices=(*SCORES, "both"), default="both", help="difference to rank by")
    parser.add_argument("--disjoint", action="store_true", help="ten disjoint tenths instead of growing cuts")
    parser.add_argument("--plus-in-domain", action="store_true", help="train each model on the task's sentences, too")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    book, pool = read_novels(given.novels)
    kept = round(len(book) * (1 - HELD_OUT))
    study = Study.of_texts(book[:kept], book[kept:], pool)
    for name, part in (("task", study.task), ("held out", study.held_out), ("pool", study.pool)):
        count = part.ids.size - 2 * len(part)
        unknown = float((part.ids == 0).sum()) / count
        print(f"{name:>9}  {len(part):>9,} sentences  {count:>10,} words  {unknown:.1%} unknown")
    chosen = SCORES if given.score == "both" else (given.score,)
    scores = {score: rank(book[:kept], pool, score, given.seed) for score in chosen}
    orders = {score: np.argsort(values, kind="stable") for score, values in scores.items()}
    orders["random"] = generator(given.seed, "random sets").permutation(len(pool))
    print("      ranking  share  perplexity  of known words")
    curves = {name: study.curve(name, order, given.disjoint, given.plus_in_domain) for name, order in orders.items()}
    given.out.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame([cut for curve in curves.values() for cut in curve])
    table.to_csv(given.out / "perplexities.csv", index=False)
    _plot(table, scores, given.disjoint, given.out)
    for score in () if given.disjoint else scores:
        said = "lies under" if lies_under(curves[score], curves["random"]) else "does not everywhere lie under"
        print(f"the curve of {score} {said} that of random sentences")


if __name__ == "__main__":
    main()
