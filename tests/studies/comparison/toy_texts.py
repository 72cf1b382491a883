"""Made-up texts of two topics for the tests of comparisons: a task's file, and pool text of three sources."""

import json

import numpy as np

BAKING = [
    "dough",
    "oven",
    "flour",
    "yeast",
    "crust",
    "knead",
    "butter",
    "bake",
    "loaf",
    "proof",
    "crumb",
    "rye",
]
OTHERS = {
    "law": [
        "court",
        "judge",
        "appeal",
        "statute",
        "plaintiff",
        "verdict",
        "motion",
        "counsel",
        "trial",
        "tort",
    ],
    "sea": [
        "sail",
        "harbour",
        "anchor",
        "tide",
        "mast",
        "captain",
        "gale",
        "deck",
        "rudder",
        "voyage",
        "rope",
    ],
    "space": [
        "orbit",
        "comet",
        "lens",
        "planet",
        "rocket",
        "probe",
        "crater",
        "lunar",
        "star",
        "flare",
        "dust",
    ],
}
FILLER = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "is",
    "was",
    "for",
    "with",
    "on",
    "that",
    "it",
    "as",
    "by",
    "at",
    "from",
]


def sentence(vocabulary, random, words):
    """So many words, every third from the vocabulary."""
    tokens = [
        random.choice(vocabulary if position % 3 == 0 else FILLER) for position in range(words)
    ]
    return " ".join(tokens).capitalize() + "."


def write_texts(folder, tasks=200, documents=60):
    """``bread.txt``, a document a paragraph, and ``pool.jsonl``; returns both paths."""
    random = np.random.default_rng(0)
    lines = [sentence(BAKING, random, int(random.integers(8, 20))) for _ in range(tasks)]
    (folder / "bread.txt").write_text("\n\n".join(lines), encoding="utf-8")
    rows = []
    for source, vocabulary in OTHERS.items():
        for number in range(documents):
            text = " ".join(
                sentence(vocabulary, random, int(random.integers(4, 30))) for _ in range(6)
            )
            rows.append({"id": f"{source}-{number}", "source": source, "text": text})
    pool = folder / "pool.jsonl"
    pool.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / "bread.txt", pool
