"""Write our models as KenLM and SRILM do, so that they can be compared with those."""

from pathlib import Path

from dana.models.ngram.model import NgramModel


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
        sections = zip(model.levels, model.phrases(), strict=True)
        for order, (level, phrases) in enumerate(sections, 1):
            stream.write(f"\n\\{order}-grams:\n")
            rows = zip(level.log_probs.tolist(), phrases, level.backoffs.tolist(), strict=True)
            for log_prob, phrase, backoff in rows:
                line = f"{log_prob:.9g}\t{phrase}"
                if order < model.order:
                    line += f"\t{backoff:.9g}"
                stream.write(f"{line}\n")
        stream.write("\n\\end\\\n")
