"""Write our models as KenLM and SRILM do, so that they can be compared with those."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dana.models.ngram.model import NgramModel


def phrases_of(model: NgramModel) -> Iterator[list[str]]:
    """Spell out all n-grams, words joined by spaces: a list per order, sorted as its level."""
    words = model.vocabulary.words
    phrases = list(words)
    yield phrases
    for level in model.levels[1:]:
        before, last = np.divmod(level.keys, len(words))
        pairs = zip(before.tolist(), last.tolist(), strict=True)
        phrases = [f"{phrases[row]} {words[word]}" for row, word in pairs]
        yield phrases


def write_arpa(model: NgramModel, path: Path) -> None:
    """Write an ARPA file, as SRILM and KenLM read it.

    A header gives the number of n-grams per order. A section per order has a line per n-gram: log10
    probability, words and, except at the highest order, log10 back-off. Numbers have all their
    digits.
    """
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write("\\data\\\n")
        for order, level in enumerate(model.levels, 1):
            stream.write(f"ngram {order}={level.keys.size}\n")
        sections = zip(model.levels, phrases_of(model), strict=True)
        for order, (level, phrases) in enumerate(sections, 1):
            stream.write(f"\n\\{order}-grams:\n")
            rows = zip(level.log_probs.tolist(), phrases, level.backoffs.tolist(), strict=True)
            for log_prob, phrase, backoff in rows:
                line = f"{log_prob:.9g}\t{phrase}"
                if order < model.order:
                    line += f"\t{backoff:.9g}"
                stream.write(f"{line}\n")
        stream.write("\n\\end\\\n")
