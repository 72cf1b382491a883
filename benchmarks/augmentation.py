"""Whether synthetic texts on a topic help a classifier of words: macro-F1 on topic of training sets off topic.

    OMP_NUM_THREADS=1 python benchmarks/augmentation.py "$DANA_DATA/genres" "$DANA_DATA/general" --n 30 100

Topics are those of latent Dirichlet allocation of general text. Of every genre of genre_mix the 50 texts with the
largest share of a topic are the test texts, the next N the on-topic ones, those with the smallest share the off-topic
ones. Arms are trained on: off, on; off and as many synthetic texts again, by control topic (keywords of the on-topic
texts), random, none, and topic with shuffled labels. The classifier is a logistic regression of tf-idf words. With
--neural the generator is, instead of a spec's, a small T5 trained here on all off-topic texts, then tuned a genre.
"""

import argparse
import gzip
import json
import re
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dana.studies.augmentation.pool import PoolDocument, on_topic_prompts
from dana.studies.augmentation.synthetic import (
    AugmentSettings,
    LabelledText,
    choose_prompts,
    pairs_by_label,
    synthesize,
)
from dana.studies.topics.base import Topics, fit_topics
from dana.studies.topics.settings import WordLimits
from dana.studies.topics.vocabulary import count_words_of_topics

TEST, CHARACTERS = 50, 1000


@dataclass(frozen=True)
class Split:
    """Texts of a topic."""

    test: list[LabelledText]
    on: list[LabelledText]
    off: list[LabelledText]


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The records of a compressed file."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def split_by_topic(rows: list[LabelledText], shares: np.ndarray, n: int) -> Split:
    """Test, on-topic and off-topic texts of every genre."""
    found = Split([], [], [])
    for label in sorted({row.label for row in rows}):
        own = [at for at, row in enumerate(rows) if row.label == label]
        ranked = [rows[at] for at in sorted(own, key=lambda at: (-shares[at], rows[at].id))]
        found.test.extend(ranked[:TEST])
        found.on.extend(ranked[TEST : TEST + n])
        found.off.extend(ranked[-n:])
    return found


def macro_f1(train: list[LabelledText], test: list[LabelledText]) -> float:
    """Of a logistic regression of tf-idf words, without digits and punctuation."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score

    vectorizer = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\S+", min_df=2)
    words = vectorizer.fit_transform([re.sub(r"[\W\d_]+", " ", row.text.lower()) for row in train])
    model = LogisticRegression(C=10, max_iter=100, tol=1e-3).fit(words, [row.label for row in train])
    tested = vectorizer.transform([re.sub(r"[\W\d_]+", " ", row.text.lower()) for row in test])
    return float(f1_score([row.label for row in test], model.predict(tested), average="macro"))


def train_small_t5(topics: Topics, off: list[LabelledText], settings: AugmentSettings, folder: Path) -> str:
    """A T5 of two layers of 64 and a tokenizer of 2,000 pieces, trained on all off-topic texts; its spec."""
    from transformers import T5Config, T5ForConditionalGeneration

    from dana.core.torch_seed import seeded
    from dana.models.scratch import train_tokenizer
    from dana.studies.augmentation.seq2seq import Sequence2Sequence

    tokenizer = train_tokenizer(lambda: [row.text for row in off], 2000, 64)
    tokenizer.eos_token = tokenizer.sep_token
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.sep_token_id}
    shape = {"d_model": 64, "d_kv": 16, "d_ff": 192, "num_layers": 2, "num_heads": 4}
    with seeded(0):
        config = T5Config(vocab_size=len(tokenizer), decoder_start_token_id=tokenizer.pad_token_id, **ids, **shape)
        T5ForConditionalGeneration(config).save_pretrained(folder / "new")
    tokenizer.save_pretrained(folder / "new")
    pairs = [pair for own in pairs_by_label(topics, off, settings).values() for pair in own]
    first = Sequence2Sequence(str(folder / "new"), epochs=15, batch=16, tokens=64, learning_rate=2e-3)
    first.fit(pairs, 0).model.save_pretrained(folder / "trained")
    tokenizer.save_pretrained(folder / "trained")
    return f"t5:{folder / 'trained'},epochs=8,batch=8,tokens=64"


def scores_of(topics: Topics, topic: int, split: Split, settings: AugmentSettings, arms: list[str]) -> dict[str, float]:
    """Macro-F1 by arm."""
    scores = {"off": macro_f1(split.off, split.test), "on": macro_f1(split.on, split.test)}
    pool = [PoolDocument(0.0, row.id, row.text) for row in sorted(split.on, key=lambda row: row.id)]
    for arm in arms:
        shuffled = arm == "shuffled"
        own = replace(settings, control="topic" if shuffled else arm, shuffle_labels=shuffled)
        if own.control == "topic":
            prompts = on_topic_prompts(topics, {topic: pool}, own, len(split.off))
        else:
            prompts = choose_prompts(topics, split.off, own)
        made = [LabelledText(row.id, row.text, row.label) for row in synthesize(topics, split.off, prompts, own)]
        scores[arm] = macro_f1([*split.off, *made], split.test)
    return scores


def main() -> None:
    """Print a line a topic and N, then means and differences to off with their standard deviation over topics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("genres", type=Path)
    parser.add_argument("general", type=Path)
    parser.add_argument("--documents", type=int, default=400, help="of each file of general text")
    parser.add_argument("--k", type=int, default=25)
    parser.add_argument("--topics", type=int, nargs="+", default=[0, 4, 8, 12, 16, 20])
    parser.add_argument("--n", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--keywords", type=int, default=10)
    parser.add_argument("--generator", default="embedded")
    parser.add_argument("--neural", action="store_true")
    parser.add_argument("--arms", nargs="+", default=["topic", "random", "none", "shuffled"])
    given = parser.parse_args()
    general = [
        row["text"] for path in sorted(given.general.glob("*.gz")) for row in read_jsonl(path)[: given.documents]
    ]
    topics = fit_topics("lda", count_words_of_topics(general, WordLimits()), given.k, 0)
    records = [
        row for part in ("train", "dev", "test") for row in read_jsonl(given.genres / f"genre_mix_{part}.jsonl.gz")
    ]
    rows = [LabelledText(row["id"], row["text"][:CHARACTERS], row["label"]) for row in records]
    theta = topics.theta([row.text for row in rows])
    settings, table = AugmentSettings(keywords=given.keywords, generator=given.generator), []
    for n in given.n:
        for topic in given.topics:
            split, began = split_by_topic(rows, theta[:, topic], n), time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                if given.neural:
                    settings = replace(settings, generator=train_small_t5(topics, split.off, settings, Path(folder)))
                scores = scores_of(topics, topic, split, settings, given.arms)
            table.append({"n": n, **scores})
            said = "  ".join(f"{arm} {score:.3f}" for arm, score in scores.items())
            print(f"N {n}  topic {topic}  {said}  ({time.process_time() - began:.0f} s of CPU)", flush=True)
    for n, own in pd.DataFrame(table).set_index("n").groupby("n"):
        change = own.sub(own["off"], axis=0)
        print(
            f"N {n}",
            pd.DataFrame({"mean": own.mean(), "minus off": change.mean(), "sd": change.std()}).round(4),
            sep="\n",
        )


if __name__ == "__main__":
    main()
