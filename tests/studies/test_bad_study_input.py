"""What a user can get wrong with the studies' commands; see tests/test_bad_input.py."""

# ruff: noqa: F811  fixtures are imported by name

import pytest

from tests.bad_input import (  # noqa: F401
    HASHING,
    SELECT,
    card,
    empty_task_path,
    refuse,
    remove,
    text,
    truncate,
    workspace,
    workspace_copy,
)

CLUSTERS = f"studies clusters --pool {{pool}} --out {{out}} {HASHING} "
TOPICS_OF = "studies topics fit --pool {pool} --out {out} "
ASK = "studies few-shot {card} --out {out} --chat "
DRAW = "studies few-shot {card} --chat scripted:{folder}/replies.jsonl --out {out} "
HTTP = ASK + "http:http://127.0.0.1:9/v1,model=m,"
AUGMENT = "studies augment {card} --topics-of {run} --out {out} "
GAP = "studies topic-gap {card} --model {model} --out {out} --window 20 --n 5 --test 5 --validation 5 --topics-k 2 "
GAP += "--set topics.model=lda topics.min_documents=1 topics.max_share=1 finetune.max_tokens=24 "
COMPARE = "studies compare --task {task} --pool {pool} --out {out} "
PAIRS = "{folder}/pairs.de {folder}/pairs.en"
SPLIT = f"studies splits make --domain toy {PAIRS} --dev 4 --test 4 --out {{out}} "
TRANSLATE = "studies translation --out {out} " + " ".join(
    f"--{split} {name} {{folder}}/pairs.de {{folder}}/pairs.en"
    for split in ("train", "test")
    for name in ("a", "b")
)
AUDIT = "studies splits audit {folder}/audited "


FLAGS = [
    ("studies compare --task {task} --out {out}", "pool"),
    (COMPARE + "--budgets '5 pages'", "budgets"),
    (CLUSTERS + "--encoder words:{folder}/othr.vec", "did you mean"),
    (TOPICS_OF + "--max-share .nan", "max_share"),
    (AUGMENT + "--topic 0 --pool {pool}", "topic-model"),
    (AUGMENT + "--reading code", "reading='code'"),
    ("studies few-shot {card} --out {out}", "chat=''"),
    (DRAW + "--shots 9 --n 8", "n=8"),
    (ASK + "local:{model}", "chat template"),
    (HTTP + "key=secret", "key_env"),
    ("studies topic-gap {card} --out {out}", "--model=None"),
    (GAP + "--arms on", "arms=['on']"),
    (GAP + "--labels fruit mettal", "did you mean 'metal'?"),
    (f"studies splits make --domain toy {PAIRS}", "--out"),
    (SPLIT + f"--domain more {PAIRS}", "pairs.de"),
    (f"studies splits make --domain a/b {PAIRS} --out {{out}}", "domain='a/b'"),
    (SPLIT + "--sides de de", "sides=['de', 'de']"),
    (SPLIT + "--out {run}/pool", "not 'splits'"),
    ("studies splits audit {model}", "model"),
    ("studies translation --out {out}", "two domains or more"),
    (TRANSLATE + " --train c {folder}/x.de {folder}/x.en {folder}/y.en", "train.c=["),
    (TRANSLATE + f" --train b {PAIRS}", "--train=['a', 'b', 'b']: must be each domain once"),
    (TRANSLATE + f" --train ../c {PAIRS}", "train='../c'"),
    (TRANSLATE + " --dev c {folder}/pairs.de {folder}/pairs.en", "dev=['c']"),
    (TRANSLATE + " --test c {folder}/other.de {folder}/pairs.en", "other.de"),
    (TRANSLATE + " --selectors knnn", "knnn"),
    (TRANSLATE + " --share 0", "share=0"),
    (TRANSLATE, "held_out=500 pairs"),
]

BROKEN = [
    (GAP, "label 'fish'", card(labels=["fruit", "metal", "bird", "fish"])),
    (SPLIT, "pairs.de:2: ", text("pairs.de", b"a\n\xff\n" + b"a\n" * 28)),
    (SPLIT, "pairs.en: 2 lines", text("pairs.en", "one\ntwo\n")),
    (TRANSLATE, "pairs.en: 2 lines", text("pairs.en", "one\ntwo\n")),
    (TRANSLATE, "side en is empty", text("pairs.en", "\n" * 30)),
    (AUDIT, "audited", text("audited/train.de", "a\n")),
]

LATE = [
    (SELECT + f"clusters:k=999 {HASHING} --store none", "k=999"),
    (GAP + "--topics 0 7", "topics=[0, 7]"),
    (TOPICS_OF + "--min-documents 101", "min_documents=101"),
    (CLUSTERS + "--store none --k 5 --pca 40", "pca=40"),
    (CLUSTERS + "--store none --true-domains fruit metl", "did you mean 'metal'?"),
]


@pytest.mark.parametrize(
    ("line", "says"), FLAGS, ids=[line.replace("{", "").replace("}", "") for line, _ in FLAGS]
)
def test_bad_flags_of_studies(line, says, workspace, capfd, monkeypatch):
    monkeypatch.chdir(workspace.folder)
    refuse(line, says, workspace, capfd)


@pytest.mark.parametrize(
    ("line", "says", "damage"), BROKEN, ids=[f"{at}-{case[1]}" for at, case in enumerate(BROKEN)]
)
def test_bad_files_of_studies(line, says, damage, workspace_copy, capfd, monkeypatch):
    monkeypatch.chdir(workspace_copy.folder)
    damage(workspace_copy)
    refuse(line, says, workspace_copy, capfd)


@pytest.mark.parametrize(("line", "says"), LATE)
def test_bad_settings_found_after_reading(line, says, workspace, capfd):
    refuse(line, says, workspace, capfd, stays=("target", "pool", "pool", "topic-model", "shares"))
