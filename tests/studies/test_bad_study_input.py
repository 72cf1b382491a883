"""What a user can get wrong with the studies' commands; see tests/test_bad_input.py."""

# ruff: noqa: F811  fixtures are imported by name

import pytest

from dana.cli.main import main
from tests.bad_input import (  # noqa: F401
    HASHING,
    SELECT,
    card,
    cut,
    made,
    own_task_path,
    place,
    refuse,
    remove,
    text,
)

CLUSTERS = f"clusters --general {{pool}} --out {{out}} {HASHING} "
TOPICS_OF = "topics fit --general {pool} --out {out} "
ASK = "few-shot {card} --out {out} --chat "
DRAW = "few-shot {card} --chat scripted:{folder}/replies.jsonl --out {out} "
HTTP = ASK + "http:http://127.0.0.1:9/v1,model=m,"
AUGMENT = "augment {card} --topics-of {run} --out {out} "
GAP = "topic-gap {card} --model {model} --out {out} --window 20 --n 5 --test 5 --validation 5 --topics-k 2 "
GAP += "--set topics.model=lda topics.min_documents=1 topics.max_share=1 finetune.max_tokens=24 "
COMPARE = "compare --task {task} --general {pool} --out {out} "
PAIRS = "{folder}/pairs.de {folder}/pairs.en"
SPLIT = f"splits make --domain toy {PAIRS} --dev 4 --test 4 --out {{out}} "
AUDIT = "splits audit {folder}/audited "

FLAGS = [
    (SELECT + "clusters:k=1", "k=[1]: must be auto, or whole numbers of at least 2"),
    (SELECT + "clusters:smoothing=0", "smoothing=0"),
    (SELECT + "clusters:pca=1", "pca=1"),
    (SELECT + "clusters --detector knn", "--detector"),
    ("compare --task {task} --out {out}", "general"),
    (CLUSTERS + "--k 1", "k=[1]: must be auto, or whole numbers of at least 2"),
    (CLUSTERS + "--k few", "k=['few']"),
    (CLUSTERS + "--k 2.5", "k=['2.5']"),
    (CLUSTERS + "--k 5 5", "distinct"),
    (CLUSTERS + "--pca -3", "pca"),
    (CLUSTERS + "--pca 0 --skip-first 1", "skip_first"),
    (CLUSTERS + "--covariance round", "covariance"),
    (CLUSTERS + "--seeds 1", "seeds"),
    (CLUSTERS + "--fit 0", "fit"),
    (CLUSTERS + "--geometry flat", "geometry"),
    (CLUSTERS + "--encoder hashin", "did you mean 'hashing'?"),
    (CLUSTERS + "--encoder transformer:{model},pooling=max", "pooling='max': must be one of mean, cls"),
    (CLUSTERS + "--encoder words", "missing a required argument: 'vectors'"),
    (CLUSTERS + "--encoder words:{folder}/othr.vec", "did you mean"),
    (CLUSTERS + "--encoder words:{folder}", "no file of word vectors that can be read: Is a directory"),
    ("clusters --general {folder}/nope.jsonl --out {out}", "nope.jsonl"),
    ("clusters --out {out}", "general"),
    (TOPICS_OF + "--k 1", "k=[1]: must be whole numbers of at least 2"),
    (TOPICS_OF + "--k 5 5", "distinct"),
    (TOPICS_OF + "--seeds 0", "seeds"),
    (TOPICS_OF + "--fit 1", "fit"),
    (TOPICS_OF + "--vocabulary 1", "vocabulary"),
    (TOPICS_OF + "--min-documents 0", "min_documents"),
    (TOPICS_OF + "--max-share 50", "max_share=50.0: must be in (0, 1]"),
    (TOPICS_OF + "--max-share .nan", "max_share"),
    (TOPICS_OF + "--stop-words {folder}/nope.txt", "must be english, none, or a file with a word a line"),
    (TOPICS_OF + "--model etmm", "did you mean 'etm'?"),
    (TOPICS_OF + "--model etm:epochs=0", "epochs=0: must be at least 1"),
    (TOPICS_OF + "--model etm:layers=3", "EmbeddedTopics takes: epochs"),
    (TOPICS_OF + "--model etm:vectors={folder}/othr.vec", "did you mean"),
    (TOPICS_OF + "--set topics.kk=3", "did you mean"),
    (AUGMENT + "--topic 0 --general {pool}", "no topic-model here"),
    (AUGMENT + "--ratio 0", "ratio=0.0: must be above 0"),
    (AUGMENT + "--keywords 0", "keywords=0: must be at least 1"),
    (AUGMENT + "--reading code", "reading='code': must be paper or release"),
    (AUGMENT + "--control topics", "control='topics': must be topic, random or none"),
    ("augment nope --topics-of {run} --out {out}", "unknown task 'nope'"),
    (AUGMENT + "--data {folder}/nope", "nope"),
    ("topics fit --out {out}", "general"),
    ("topics show --out {run}", "no topic-model here"),
    ("topics assign --out {run} --set topics.k=[5]", "topics.k is not looked at by dana topics assign"),
    ("topics assign --out {run}", "no topic-model here"),
    ("topics assign --out {out} --general {pool} --topics-of {folder}/nope", "no topic-model here"),
    ("topics fit --out {out} --general {folder}/nope.jsonl", "nope.jsonl"),
    ("few-shot {card} --out {out}", "chat=''"),
    (DRAW + "--items 0", "items=0: must be at least 1"),
    (DRAW + "--shots 0", "shots=0: must be at least 1"),
    (DRAW + "--shots 9 --n 8", "n=8: must be at least shots, 9"),
    (DRAW + "--labels fruit metl", "did you mean 'metal'?"),
    (DRAW + "--topics-of {run}", "no topic-model here"),
    (DRAW + "--window 5000", "window=5000: longer than every text"),
    ("few-shot nope --chat scripted:{folder}/replies.jsonl --out {out}", "nope"),
    (ASK + "scriptd:x", "did you mean 'scripted'?"),
    (ASK + "scripted:{folder}/nope.jsonl", "nope.jsonl"),
    (ASK + "scripted:{pool}", "allowed are reply (a text, needed)"),
    (ASK + "local:{folder}/nope", "nope: no such folder"),
    (ASK + "local:{model}", "its tokenizer has no chat template"),
    (HTTP + "retries=-1", "retries=-1"),
    (HTTP + "timeout=.nan", "timeout"),
    (HTTP + "key_env=DANA_NOT_SET", "DANA_NOT_SET"),
    (HTTP + "key=secret", "takes no key"),
    (ASK + "http:http://127.0.0.1:9/v1", "missing a required argument: 'model'"),
    (ASK + "http:127.0.0.1:9,model=m", "base_url: must be http(s)://HOST"),
    (COMPARE + "--selectors lexcal", "did you mean 'lexical'?"),
    (COMPARE + "--selectors random random", "distinct"),
    (COMPARE + "--fit 0", "fit"),
    (COMPARE + "--seeds 0", "seeds"),
    (COMPARE + "--plants 0", "plants"),
    (COMPARE + "--others -5", "others"),
    (COMPARE + "--budgets '5 pages'", "budgets"),
    (COMPARE + "--jobs 0", "jobs"),
    ("topic-gap {card} --out {out}", "--model=None: must be the checkpoint"),
    ("topic-gap {card} --model {folder}/nope --out {out}", "nope"),
    (GAP + "adapt.steps=5", "adapt.steps is not looked at by dana topic-gap"),
    (GAP + "--n 0", "n=[0]: must be whole numbers of at least 1"),
    (GAP + "--n 5 5", "n=[5, 5]: must be distinct"),
    (GAP + "--test 0", "test=0: must be at least 1"),
    (GAP + "--validation 0", "validation=0: must be at least 1"),
    (GAP + "--topics some", "topics=['some']: must be all, or numbers"),
    (GAP + "--topics -1", "topics=[-1]: must be all, or numbers"),
    (GAP + "--topics 1 all", "topics=[1, 'all']: must be all, or numbers"),
    (GAP + "--arms on", "arms=['on']: must be off and others"),
    (GAP + "--arms off onn", "did you mean 'on'?"),
    (GAP + "--labels fruit mettal", "'mettal' is no label of toy; did you mean 'metal'?"),
    (GAP + "--labels fruit", "labels=['fruit']: must be at least two"),
    (GAP + "--short cut", "short='cut': must be drop or keep"),
    (GAP + "--draw best", "draw='best': must be ranks or random"),
    (GAP + "--window 0", "window=0: must be at least 1"),
    (GAP + "--window 5000", "window=5000: longer than every text; the longest has"),
    (GAP + "--window 5000 --short keep", "window=5000: longer than every text; the longest has"),
    (GAP + "--preset quik", "did you mean 'quick'?"),
    (GAP + "--data {folder}/nope", "nope"),
    (GAP + "--text-field body", "no 'body'"),
    ("topic-gap {card} --model {model} --topics-of {run} --out {out}", "no topic-model here"),
    ("splits make --out {out}", "--domain NAME SOURCE TARGET and --out DIR are needed"),
    (f"splits make --domain toy {PAIRS}", "--domain NAME SOURCE TARGET and --out DIR are needed"),
    ("splits make --domain toy --out {out}", "--domain toy: must be given once, and followed by one or two files"),
    (
        f"splits make --domain toy {PAIRS} {{pool}} --out {{out}}",
        "--domain toy: must be given once, and followed by one or two files",
    ),
    (
        "splits make --domain toy {folder}/pairs.de {folder}/pairs.fr --out {out}",
        "pairs.fr: no such file; did you mean",
    ),
    ("splits make --domain toy {folder}/pairs.de {folder} --out {out}", "is a folder"),
    ("splits make --domain toy {folder}/pairs.de {folder}/pairs.de --out {out}", "the same file"),
    (SPLIT + f"--domain more {PAIRS}", "pairs.de: the same file is given twice"),
    (SPLIT + f"--domain toy {PAIRS}", "--domain toy: must be given once"),
    (SPLIT + "--domain notes {folder}/notes.txt", "notes.txt: holds plain text, so one side"),
    (f"splits make --domain a/b {PAIRS} --out {{out}}", "domain='a/b'"),
    ("splits make --domain toy {pool} --sides de en --out {out}", "pool.jsonl:1: no 'de'; there is: id, source"),
    ("splits make --domain toy {pool} {folder}/pairs.de --out {out}", "holds records"),
    (SPLIT + "--sides de", "sides=['de']"),
    (SPLIT + "--sides de de", "sides=['de', 'de']"),
    (SPLIT + "--dev 26", "dev (26) and test (4) would leave none for train"),
    (SPLIT + "--dev 0", "dev=0"),
    (SPLIT + "--test -1", "test=-1"),
    (SPLIT + "--cap 0", "cap=0"),
    (SPLIT + "--out {task}", "task.jsonl"),
    (SPLIT + "--out {run}/corpus", "not 'splits'"),
    (SPLIT + "--out {folder}/cards", "not made by dana"),
    ("splits audit", "name folders"),
    ("splits audit {folder}/nope", "nope"),
    ("splits audit {model}", "holds neither train, dev"),
]

BROKEN = [
    (GAP, "label 'fish': none of its 0 documents is left", card(labels=["fruit", "metal", "bird", "fish"])),
    (GAP, "text_pair='label': must be left out", card(text_pair="label")),
    (GAP, "kind='multi_label': must be single_label", card(kind="multi_label")),
    (GAP, "test.jsonl", remove("cards/toy/test.jsonl")),
    # Parallel text.
    (SPLIT, "pairs.de: 30 lines, {folder}/pairs.en: 2 lines: not aligned", text("pairs.en", "one\ntwo\n")),
    (SPLIT, "pairs.de: 0 lines, {folder}/pairs.en: 30 lines: not aligned", text("pairs.de", "")),
    ("splits make --domain toy {bad}.jsonl --out {out}", "bad.jsonl:1: the file is empty", text("bad.jsonl", "")),
    (SPLIT, "pairs.de:2: byte 0xff is not UTF-8", text("pairs.de", b"a\n\xff\n" + b"a\n" * 28)),
    (SPLIT, "pairs.de:1: not UTF-8 but UTF-16, UTF-32 or no text", text("pairs.de", b"\x00" * 99)),
    (SPLIT, "toy: 1 of 30 rows are kept", text("pairs.de", "same\n" * 30)),
    (SPLIT, "toy: 0 of 30 rows are kept", text("pairs.de", " \n" * 30)),
    (SPLIT, "not made by dana", text("out/mine.txt", "somebody's own file")),
    (AUDIT, "holds train files only", text("audited/train.de", "a\n")),
    (AUDIT + "--out {task}", "task.jsonl", text("audited/train.de", "a\n")),
]

LATE = [
    (SELECT + f"clusters:k=999 {HASHING} --store none", "k=999: there are"),
    (SELECT + "clusters:k=5,pca=2 --encoder hashing:dims=16 --geometry whiten:900 --store none", "whiten"),
    (GAP + "--n 500", "documents and 1,010 are needed (5 to test, 5 to validate, 500 on and 500 off topic); n="),
    (GAP + "--test 500", "no n does, with so many to test and validate"),
    (GAP + "--topics-k 1000", "k=1000:"),
    (GAP + "topics.min_documents=900", "vocabulary: 0 of the"),
    (GAP + "--topics 0 7", "topics=[0, 7]: must be numbers of topics, which are 0 to 1"),
    (TOPICS_OF + "--k 101", "k=101: must be at most 20: so many documents have a word of the vocabulary"),
    (TOPICS_OF + "--min-documents 101", "vocabulary: 0 of the"),
    (TOPICS_OF + "--model etm:vectors={folder}/other.vec", "has a vector"),
    (TOPICS_OF + "--model etm:vectors={folder}/notes.txt", "notes.txt:1: could not convert string to float"),
    (TOPICS_OF + "--model etm:vectors={folder}/nan.vec", "nan.vec:2: a number is not finite"),
    (CLUSTERS + "--store none --k 999", "k=999: there are"),
    (CLUSTERS + "--store none --k 5 --pca 40", "pca=40:"),
    (CLUSTERS + "--store none --units window:8", "window"),
    (CLUSTERS + "--store none --true-domains fruit metl", "did you mean 'metal'?"),
    (CLUSTERS + "--store none --true-domains fruit", "one domain"),
    (CLUSTERS + "--store none --encoder words:{folder}/other.vec --k 2", "of 1 distinct vectors"),
    (CLUSTERS + "--store none --encoder words:{folder}/notes.txt", "notes.txt:1: could not convert string to float"),
    (CLUSTERS + "--store none --encoder words:{pool}", "pool.jsonl:1: could not convert string to float"),
    (
        f"clusters --general {{folder}}/same.jsonl --out {{out}} {HASHING} --store none",
        "k=2: there are 1 distinct units to fit on, of 1 distinct vectors; ask for at most so many clusters",
    ),
    (CLUSTERS + "--store none --encoder transformer:{model},layer=9", "layer=9: must be from -"),
]


def test_what_the_cases_change_is_accepted(place):
    assert main(place.line(CLUSTERS + "--k 2 3 --pca 4")) == 0


@pytest.mark.parametrize(("line", "says"), FLAGS, ids=[line.replace("{", "").replace("}", "") for line, _ in FLAGS])
def test_flags_of_studies_that_are_refused(line, says, made, capfd, monkeypatch):
    monkeypatch.chdir(made.folder)
    refuse(line, says, made, capfd)


@pytest.mark.parametrize(("line", "says", "damage"), BROKEN, ids=[f"{at}-{case[1]}" for at, case in enumerate(BROKEN)])
def test_files_of_studies_that_are_refused(line, says, damage, place, capfd, monkeypatch):
    monkeypatch.chdir(place.folder)
    damage(place)
    refuse(line, says, place, capfd)


@pytest.mark.parametrize(("line", "says"), LATE)
def test_what_studies_refuse_once_the_texts_are_read(line, says, made, capfd):
    refuse(line, says, made, capfd, stays=("task", "corpus", "pool", "topic-model", "shares"))
