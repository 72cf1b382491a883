"""Rank novels by perplexity difference to Jane Eyre; compare held-out perplexity at ten cuts with random sentences.

    python recipes/papers/moore_lewis/jane_eyre.py NOVELS --out FOLDER [--score S] [--disjoint]
    [--plus-in-domain]

NOVELS is a folder of plain texts, ``*.txt.gz``, one of which has Jane_Eyre in its name. The last
tenth of that book's sentences is held out and the rest is the task; all other novels are the pool.
As in the blog post, two 3-gram models are trained, one on the task and one on as many random
sentences of the pool. Their vocabulary is the words that the task has at least twice; 3-grams that
occur once are pruned. The pool is ranked by the difference of the two models. A model of the same
kind is trained on each cut of the ranking and on as many random sentences. Its perplexity on the
held-out text is written to ``perplexities.csv``; ``perplexities.png`` has the curves and
``differences.png`` the sorted scores. ``--score`` is cross_entropy, perplexity or both (default).
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from dana.cli.main import run_script
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
ORDER, MIN_COUNT, CUTOFF, HELD_OUT, CUTS = 3, 2, 1, 0.1, 10
BOOK = "Jane_Eyre"
MIN_WORDS = 8  # a sentence of so many words occurs in two books only if one is a copy


@dataclass(frozen=True)
class Cut:
    """Training sentences and held-out perplexity of one model.

    Attributes:
        ranking: Score that the pool is ranked by, ``cross_entropy`` or ``perplexity``, or
            ``random``.
        share: Share of the pool's sentences at which the cut ends.
        sentences: Number of training sentences from the pool.
        words: Number of their words, unknown ones included.
        perplexity: Held-out perplexity per word and end of sentence; unknown words count as one
            word.
        perplexity_known: The same without unknown words.
    """

    ranking: str
    share: float
    sentences: int
    words: int
    perplexity: float
    perplexity_known: float


@dataclass(frozen=True)
class Study:
    """Task, held-out text and pool, encoded with the task's vocabulary."""

    vocabulary: Vocabulary
    task: WordIds
    held_out: WordIds
    pool: WordIds

    @classmethod
    def of_texts(cls, task: Sequence[str], held_out: Sequence[str], pool: Sequence[str]) -> "Study":
        """Encode the sentences with the words that the task has at least twice."""
        vocabulary = Vocabulary.of_texts(task, MIN_COUNT)
        return cls(vocabulary, *(vocabulary.encode(texts) for texts in (task, held_out, pool)))

    def curve(
        self, ranking: str, order: np.ndarray, disjoint: bool = False, plus_task: bool = False
    ) -> list[Cut]:
        """Train a model on each of ten cuts of a ranking and measure its held-out perplexity.

        Args:
            ranking: Name of the ranking.
            order: Rows of the pool, best first.
            disjoint: Train on each tenth, not on the best tenth, the best two tenths and so on.
            plus_task: Train on the task's sentences as well.
        """
        ends = [round(order.size * cut / CUTS) for cut in range(CUTS + 1)]
        cuts = []
        for number, end in enumerate(ends[1:], 1):
            # Sentences keep the pool's order, so that the last cut, the whole pool, is the same for
            # every ranking.
            text = self.pool.rows(np.sort(order[ends[number - 1] if disjoint else 0 : end]))
            size, tokens = len(text), int(text.sizes.sum()) - 2 * len(text)
            if plus_task:
                text = WordIds(
                    np.concatenate([text.ids, self.task.ids]),
                    np.concatenate([text.sizes, self.task.sizes]),
                )
            model = train_ngrams(text, ORDER, self.vocabulary, CUTOFF)
            perplexities = [
                text_entropies(model, self.held_out, unknown).perplexity
                for unknown in (True, False)
            ]
            cuts.append(Cut(ranking, number / CUTS, size, tokens, *perplexities))
            print(
                f"{ranking:>13}  {number / CUTS:4.0%}  {perplexities[0]:8.2f}  {perplexities[1]:8.2f}",
                flush=True,
            )
        return cuts


def rank(task: Sequence[str], pool: Sequence[str], score: str, seed: int) -> np.ndarray:
    """Score the pool's sentences by cross-entropy or perplexity difference, float64; lower is closer to the task."""
    selector = SELECTORS.load("moore_lewis")(
        order=ORDER,
        vocabulary="target",
        min_count=MIN_COUNT,
        cutoff=CUTOFF,
        background="target",
        score=score,
    )
    return selector.fit(task, pool, seed).score(pool)


def read_novel(path: Path) -> list[str]:
    """Split a novel, whose paragraphs are separated by blank lines, into sentences."""
    text = "".join(line for _, line in read_lines(path))
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return [part[start:end] for part in paragraphs for start, end in sentences(part)]


def read_novels(folder: Path) -> tuple[list[str], list[str]]:
    """Read the sentences of Jane Eyre and those of all other novels.

    Raises:
        DataError: If not exactly one file is named Jane_Eyre, it is the only file, or another
            contains its text.
    """
    paths = sorted(folder.glob("*.txt.gz"))
    books = [path for path in paths if BOOK in path.name]
    if len(books) != 1 or len(paths) < 2:
        raise DataError(
            f"{folder}: expected one *{BOOK}*.txt.gz and other *.txt.gz, got {len(books)} of {len(paths)}"
        )
    book = read_novel(books[0])
    pool = [sentence for path in paths if path != books[0] for sentence in read_novel(path)]
    long_sentences = {text for text in map(words, book) if text.count(" ") >= MIN_WORDS - 1}
    copies = sum(words(sentence) in long_sentences for sentence in pool)
    if copies > len(long_sentences) / 100:
        raise DataError(
            f"{folder}: {copies} sentences of {BOOK} are also in other files; remove the second copy of it"
        )
    return book, pool


def _plot(cuts: pd.DataFrame, scores: dict[str, np.ndarray], disjoint: bool, out: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for ranking, rows in cuts.groupby("ranking", sort=False):
        axes.plot(100 * rows["share"], rows["perplexity"], marker="o", label=ranking)
    axes.set_xlabel(
        "tenth of the ranked pool that ends at, %"
        if disjoint
        else "share of the pool, best first, %"
    )
    axes.set_ylabel("perplexity of held-out text")
    axes.legend(title="sentences by")
    figure.savefig(out / "perplexities.png", dpi=120)
    figure = Figure(figsize=(3.2 * len(scores) + 1, 3.2), layout="constrained")
    for panel, (score, values) in zip(
        np.ravel(figure.subplots(1, len(scores))), scores.items(), strict=True
    ):
        rows = np.linspace(0, values.size - 1, 2000).astype(int)
        panel.plot(100 * (rows + 1) / values.size, np.sort(values)[rows])
        panel.axhline(0, color="gray", linewidth=0.5)
        panel.set_yscale("symlog" if score == "perplexity" else "linear")
        panel.set_xlabel("share of the pool, %")
        panel.set_title(f"{score} difference", fontsize=10)
    figure.savefig(out / "differences.png", dpi=120)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("novels", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--score",
        choices=(*SCORES, "both"),
        default="both",
        help="score to rank by (default: %(default)s)",
    )
    parser.add_argument(
        "--disjoint", action="store_true", help="ten disjoint tenths instead of growing cuts"
    )
    parser.add_argument(
        "--plus-in-domain",
        action="store_true",
        help="also train each model on the task's sentences",
    )
    parser.add_argument("--seed", type=int, default=0)
    return run_script(parser, jane_eyre, arguments)


def jane_eyre(args: argparse.Namespace) -> None:
    """Rank, train, measure; write the table and the figures."""
    if args.dry_run:
        megabytes = sum(path.stat().st_size for path in args.novels.glob("*.txt.gz")) / 1e6
        print(f"would rank {megabytes:,.0f} MB of novels and train the models, into {args.out}")
        return
    book, pool = read_novels(args.novels)
    end = round(len(book) * (1 - HELD_OUT))
    task, held_out = book[:end], book[end:]
    study = Study.of_texts(task, held_out, pool)
    for name, part in (("task", study.task), ("held out", study.held_out), ("pool", study.pool)):
        count = part.ids.size - 2 * len(part)
        unknown = float((part.ids == 0).sum()) / count
        print(f"{name:>9}  {len(part):>9,} sentences  {count:>10,} words  {unknown:.1%} unknown")
    names = SCORES if args.score == "both" else (args.score,)
    scores = {name: rank(task, pool, name, args.seed) for name in names}
    orders = {score: np.argsort(values, kind="stable") for score, values in scores.items()}
    orders["random"] = generator(args.seed, "random sets").permutation(len(pool))
    print("      ranking  share  perplexity  of known words")
    curves = {
        name: study.curve(name, order, args.disjoint, args.plus_in_domain)
        for name, order in orders.items()
    }
    args.out.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame([cut for curve in curves.values() for cut in curve])
    table.to_csv(args.out / "perplexities.csv", index=False)
    _plot(table, scores, args.disjoint, args.out)


if __name__ == "__main__":
    sys.exit(main())
