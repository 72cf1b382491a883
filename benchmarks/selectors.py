"""Ways of selecting text against published packages, on one planted pool: precision at R, CPU seconds a million.

Makes the pool and the fit texts of ``dana compare`` (docs/comparing-selectors.md), then runs every contestant on each,
in turn, so that a loaded machine slows all alike. Every contestant gets the same fit texts, the same background (as
many pieces of general text as the pool has, of other documents) and the same pool; documents are scored whole,
and embedded before the clock runs.
Published packages are optional; those that are not installed are named:

    data-selection  DSIR, its importance weights as shipped and divided by the number of n-grams
    fasttext        (fasttext-numpy2-wheel) a linear classifier of word pairs, task against as much general text
    kenlm           Moore-Lewis on 5-gram models; without KenLM's lmplz on the path, of dana's ARPA files

    DANA_DATA=... python benchmarks/selectors.py --tasks rct_sample --fit 100 500 --selectors moore_lewis lda
"""

import argparse
import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np

if __name__ == "selectors" and (
    _spec := spec_from_file_location(__name__, f"{sysconfig.get_path('stdlib')}/selectors.py")
):
    # A script's folder is the first place that is searched: here the standard library finds this file for its own
    # module of that name, which subprocess needs. It gets its own.
    sys.modules[__name__] = module_from_spec(_spec)
    if _spec.loader:
        _spec.loader.exec_module(sys.modules[__name__])

Score = Callable[[list[str], list[str], list[str]], np.ndarray]  # fit texts, background, pool; higher = more foreign


def data_selection(normalise: bool) -> Score:
    """DSIR as the package ``data-selection`` computes it, with sentences of any length let through."""

    def score(fit: list[str], background: list[str], pool: list[str]) -> np.ndarray:
        from data_selection import HashedNgramDSIR

        with tempfile.TemporaryDirectory() as temporary:
            for name, texts in (("raw", background), ("target", fit)):
                lines = (json.dumps({"text": text}) + "\n" for text in texts)
                (Path(temporary) / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
            raw, target = ([str(Path(temporary) / f"{name}.jsonl")] for name in ("raw", "target"))
            dsir = HashedNgramDSIR(raw, target, f"{temporary}/cache", num_proc=1, min_example_length=1)
            dsir.fit_importance_estimator(num_tokens_to_fit="all")
        counts = [dsir.featurizer(text) for text in pool]
        weights = np.array([float(dsir.importance_estimator(one)) for one in counts])
        return -weights / np.array([max(1, one.sum()) for one in counts]) if normalise else -weights

    return score


def fast_text(fit: list[str], background: list[str], pool: list[str]) -> np.ndarray:
    """The supervised classifier of fastText on words and pairs of words, 25 epochs."""
    import fasttext

    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "train.txt"
        lines = [f"__label__{label} {text}\n" for label, texts in (("in", fit), ("out", background)) for text in texts]
        path.write_text("".join(np.random.default_rng(0).permutation(lines)), encoding="utf-8")
        options = {"wordNgrams": 2, "epoch": 25, "thread": 1, "seed": 0, "bucket": 200_000, "verbose": 0}
        model = fasttext.train_supervised(str(path), **options)
    return np.array([_share_out(model.predict(text, k=2)) for text in pool])


def _share_out(predicted: tuple[Sequence[str], Sequence[float]]) -> float:
    """Probability of general text, as log-odds, so that it does not end at 1."""
    shares = dict(zip(*predicted, strict=True))
    one, other = (max(float(shares.get(f"__label__{name}", 0.0)), 1e-12) for name in ("out", "in"))
    return float(np.log(one) - np.log(other))


def kenlm(fit: list[str], background: list[str], pool: list[str]) -> np.ndarray:
    """Cross-entropy difference a word of 5-gram models: of ``lmplz --discount_fallback``, or of dana's ARPA files."""
    import subprocess

    from kenlm import Model

    from dana.models.ngram.arpa import write_arpa
    from dana.models.ngram.kneser_ney import train_ngrams
    from dana.models.ngram.vocabulary import split_words

    models = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, texts in (("fit", fit), ("background", background)):
            arpa = Path(temporary) / f"{name}.arpa"
            if shutil.which("lmplz"):
                lines = "".join(" ".join(split_words(text)) + "\n" for text in texts)
                command = ["lmplz", "-o", "5", "--discount_fallback", "-S", "20%", "--arpa", str(arpa)]
                subprocess.run(command, input=lines.encode(), check=True, capture_output=True)
            else:
                write_arpa(train_ngrams(texts, 5), arpa)
            models.append(Model(str(arpa)))
    split = [split_words(text) for text in pool]
    task, general = (np.array([model.score(" ".join(words)) for words in split]) for model in models)
    return (general - task) / np.array([len(words) + 1 for words in split])


PACKAGES: dict[str, tuple[str, Score]] = {
    "package:dsir": ("data_selection", data_selection(False)),
    "package:dsir, a n-gram": ("data_selection", data_selection(True)),
    "package:fasttext": ("fasttext", fast_text),
    "package:kenlm": ("kenlm", kenlm),
}


def cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def available() -> dict[str, Score]:
    """The packages that are here; says of the others what is missing."""
    found = {}
    for name, (module, score) in PACKAGES.items():
        if find_spec(module) is None:
            print(f"{name}: not installed")
        else:
            found[name] = score
    return found


def of_dana(spec: str, encoder: str, store: str) -> Score:
    """A selector of dana, as `dana score` builds it."""

    def score(fit: list[str], background: list[str], pool: list[str]) -> np.ndarray:
        from dana.scoring.scoring import build_selector
        from dana.scoring.settings import Selection

        selector = build_selector(spec, "knn", Selection(encoder=encoder, store=store))
        return selector.fit(fit, background, 0).score(pool)

    return score


def main() -> None:
    """Print a row a task and fit size, a column a contestant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["rct_sample"])
    parser.add_argument("--general", nargs="+", help="default: DANA_DATA/general")
    parser.add_argument("--selectors", nargs="+", default=["dsir", "lexical", "moore_lewis", "lda", "contrastive_knn"])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--fit", nargs="+", type=int, default=[100, 500, 2000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--plants", type=int, default=300)
    parser.add_argument("--others", type=int, default=6000)
    parser.add_argument("--work", type=Path, help="folder for texts and embeddings; default: a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        contestants = {
            **{spec: of_dana(spec, options.encoder, str(work / "embeddings")) for spec in options.selectors},
            **available(),
        }
        rows = [row for task in options.tasks for row in compare(task, contestants, options, work)]
    show(rows, list(contestants))


Row = tuple[str, int, str, float, float, int]  # task, fit size, contestant, P@R, CPU seconds, pool documents


def compare(task: str, contestants: dict[str, Score], options: argparse.Namespace, work: Path) -> list[Row]:
    """Every contestant on one task, fit size by fit size, seed by seed."""
    from dana.core.schemas import read_table
    from dana.selectors.base import SelectorContext
    from dana.stages.corpus import corpus_stage
    from dana.studies.comparison.planting_stage import fit_stage, plant_stage, pool_stage
    from dana.studies.comparison.recall import planted_precision
    from dana.studies.comparison.settings import slug

    general = options.general or [f"{os.environ['DANA_DATA']}/general"]
    corpus = corpus_stage(general, work / "corpus").path
    place = work / slug(task)
    texts = plant_stage(task, corpus, place / "texts", options.plants)
    hidden = read_table(pool_stage(texts.path, corpus, place / "pool", 2 * options.others, []).path)
    is_plant = np.array([source.endswith("(planted)") for source in hidden["source"].to_pylist()])
    is_other = np.cumsum(~is_plant) % 2 == 1  # of the pieces every second one is background
    background = hidden["text"].filter(~is_plant & ~is_other).to_pylist()
    documents, planted = hidden["text"].filter(is_plant | is_other).to_pylist(), is_plant[is_plant | is_other]
    rows = []
    embed = SelectorContext(encoder=options.encoder, store=str(work / "embeddings")).embed
    for size in options.fit:
        if size > texts.manifest["counts"]["fit"]:
            continue
        for seed in range(options.seeds):
            fit = read_table(fit_stage(texts.path, place / f"{size}-{seed}", size, seed).path / "fit")["text"]
            embed([*fit.to_pylist(), *background, *documents])  # into the store: the encoder's cost is not theirs
            for name, score in contestants.items():
                begun = cpu_seconds()
                scores = score(fit.to_pylist(), background, documents)
                seconds = cpu_seconds() - begun
                found = planted_precision(scores, planted, int(planted.sum()))
                rows.append((task, size, name, found, seconds, len(documents)))
                print(f"{task} {size} {seed} {name}: P@R {found:.3f}, {seconds:.1f} s", flush=True)
    return rows


def show(rows: list[Row], names: list[str]) -> None:
    """Means over seeds: precision at R by task and fit size; CPU seconds of fit and score per million documents."""
    cells = list(dict.fromkeys((task, size) for task, size, *_ in rows))
    print("\n| contestant | " + " | ".join(f"{task} {size}" for task, size in cells) + " | s a million |")
    print("|---|" + "---|" * (len(cells) + 1))
    for name in names:
        mine = [row for row in rows if row[2] == name]
        means = [np.mean([row[3] for row in mine if row[:2] == cell]) for cell in cells]
        cost = min(1e6 * row[4] / row[5] for row in mine)
        print(f"| {name} | " + " | ".join(f"{mean:.3f}" for mean in means) + f" | {cost:,.0f} |")


if __name__ == "__main__":
    main()
