"""A pool and a task of two topics, and the bytes of an artifact, for tests of studies."""

import json

import numpy as np
import yaml

from tests.stages.two_topics import CELLS, COURTS, one_document
from tests.toy_task import write_split


def write_pool(folder, *more):
    """``pool.jsonl``: forty documents of each of two topics, then other records."""
    random = np.random.default_rng(0)
    records = [
        {"id": f"{topic}-{number}", "source": topic, "text": one_document(vocabulary, random, 4)}
        for number in range(40)
        for topic, vocabulary in (("cells", CELLS), ("courts", COURTS))
    ]
    path = folder / "pool.jsonl"
    path.write_text(
        "".join(json.dumps(record) + "\n" for record in [*records, *more]), encoding="utf-8"
    )
    return path


def content(folder):
    """Bytes of the files of an artifact, without its manifest, which has the time."""
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def word_tokenizer(words, post_processor=None, **special):
    """A tokenizer of words, which are separated by spaces; `special` names the special ones."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = WhitespaceSplit()
    if post_processor:
        inner.post_processor = post_processor
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", **special
    )


def write_moods(folder, topics, labels, document):
    """``moods.yaml``: a task of 26 documents of each topic and label, with ids ``TOPIC-LABEL-NUMBER``."""
    rows = [
        {"id": f"{topic}-{label}-{number}", "text": document(topic, label), "label": label}
        for number in range(26)
        for topic in topics
        for label in labels
    ]
    cuts = {"train": rows[:60], "dev": rows[60:80], "test": rows[80:]}
    for split, part in cuts.items():
        write_split(folder / "moods", split, part)
    card = {"name": "moods", "title": "Which mood?", "version": 1, "data": {"local": "moods"}}
    card |= {"labels": list(labels), "metric": "accuracy", "splits": {}}
    (folder / "moods.yaml").write_text(yaml.safe_dump(card))
    return folder
