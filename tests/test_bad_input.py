"""What a user can get wrong, over all commands: exit code 2, one line that says what to mend, nothing half-written.

A case is a command line and a part of what is said; ``{name}`` stands for a path of :class:`Place`, and a third entry
breaks something first. Nothing on disk may differ afterwards.
"""

# ruff: noqa: F811  fixtures are imported by name

import gzip
import sys
from importlib.metadata import EntryPoint

import pytest

from dana.cli.main import main
from dana.core import registry
from tests.bad_input import (  # noqa: F401
    AUTO,
    EVALUATE,
    PREDICT,
    RANK,
    SCORE,
    SELECT,
    TRAIN,
    TUNE,
    TUNE_ONLY,
    WEIGH,
    card,
    config,
    cut,
    made,
    own_task_path,
    place,
    refuse,
    remove,
    text,
    unreadable,
)

FLAGS = [
    # What is named is not there, or is nothing.
    ("rank --general {pool} --out {out}", "task"),
    ("rank --task {task} --out {out}", "general"),
    ("rank --task '' --general {pool} --out {out}", "task"),
    ("rank --task {task} --general '' --out {out}", "general"),
    ("rank --task {task} --general {pool} --out ''", "out"),
    ("rank --task {folder}/nope.txt --general {pool} --out {out}", "nope.txt"),
    ("rank --task {task} --general {folder}/nope.jsonl --out {out}", "nope.jsonl"),
    ("rank --task {task} --general '{folder}/*.nope' --out {out}", "*.nope"),
    ("rank --task chemport --general {pool} --out {out}", "did you mean 'chemprot'?"),
    ("rank --task {folder}/nope.yaml --general {pool} --out {out}", "nope.yaml"),
    (RANK + "--data {folder}/nope --task chemprot", "nope"),
    (RANK + "--config {folder}/nope.yaml", "nope.yaml"),
    (RANK + "--config {folder}", "place"),
    # Specs and numbers.
    (RANK + "--detectors ifrest", "did you mean 'iforest'?"),
    (RANK + "--detectors knn:k=0", "k"),
    (RANK + "--detectors knn:k=2.5", "k"),
    (RANK + "--detectors knn:k=many", "k"),
    (RANK + "--detectors knn:kay=3", "kay"),
    (RANK + "--detectors knn:k=.nan", "k"),
    (RANK + "--detectors 'knn:k=[1'", "knn"),
    (RANK + "--detectors knn,knn", "twice"),
    (RANK + "--detectors ''", "detectors"),
    (RANK + "--detectors iforest:trees=0", "trees"),
    (RANK + "--detectors iforest:samples=-1", "samples"),
    (RANK + "--detectors ocsvm:nu=2", "nu"),
    (RANK + "--detectors ocsvm:nu=.nan", "nu"),
    (RANK + "--detectors lof:k=-3", "k"),
    (RANK + "--detectors pca:share=7", "pca"),
    (RANK + "--detectors pyod:Nope", "Nope"),
    (RANK + "--detectors pyod", "pyod"),
    (RANK + "--encoder hashng", "did you mean 'hashing'?"),
    (RANK + "--encoder hashing:dims=0", "dims"),
    (RANK + "--encoder hashing:dims=-4", "dims"),
    (RANK + "--encoder hashing:dims=2.5", "dims"),
    (RANK + "--encoder transformer", "transformer"),
    (RANK + "--encoder transformer:{folder}/nope", "nope"),
    (RANK + "--encoder transformer:{task}", "task.jsonl"),
    (RANK + "--encoder ''", "encoder"),
    (RANK + "--geometry center+l3", "geometry"),
    (RANK + "--geometry whiten:0", "whiten"),
    (RANK + "--geometry whiten:many", "whiten"),
    (RANK + "--geometry ''", "geometry"),
    (RANK + "--units chapter", "units"),
    (RANK + "--units window:0", "window"),
    (RANK + "--units window:-5", "window"),
    (RANK + "--units window:x", "window"),
    (RANK + "--units window:64", "tokenizer"),
    (RANK + "--seeds 0", "seeds"),
    (RANK + "--seeds -1", "seeds"),
    (RANK + "--seeds many", "seeds"),
    (RANK + "--seeds 2.5", "seeds"),
    (RANK + "--seed x", "seed"),
    (RANK + "--seed 1.5", "seed"),
    (RANK + "--seed ''", "--seed"),
    (RANK + "--out=", "--out"),
    (RANK + "--set out=''", "out"),
    (RANK + "--beta 7", "beta"),
    (RANK + "--store ''", "--store"),
    (RANK + "--language ''", "--language"),
    (RANK + "--language english", "english"),
    (RANK + "--language 7", "language"),
    (RANK + "--text-field nope", "nope"),
    (RANK + "--text-field ''", "--text-field"),
    (RANK + "--id-field nope", "nope"),
    (RANK + "--id-field ''", "--id-field"),
    (RANK + "--text-documents page", "text_documents"),
    (RANK + "--set selection.general_share=2", "general_share"),
    (RANK + "--set selection.general_share=.nan", "general_share"),
    (RANK + "--set selection.store_dtype=float8", "store_dtype"),
    (RANK + "--set ranking.protocol=mine", "protocol"),
    (RANK + "--set ranking.folds=1", "folds"),
    (RANK + "--set ranking.prevalence=1", "prevalence"),
    (RANK + "--set hygiene.ngram=0", "ngram"),
    (RANK + "--on-bad-record ignore", "on_bad_record"),
    (RANK + "--near-duplicates 1.5", "near_duplicates"),
    (RANK + "--near-duplicates .nan", "near_duplicates"),
    (RANK + "--sample 0", "sample"),
    (RANK + "--sample 1.01", "sample"),
    (RANK + "--sample .nan", "sample"),
    (RANK + "--decontaminate nope", "nope"),
    (RANK + "--set selection.max_task_units=0", "max_task_units"),
    (RANK + "--set selection.nope=1", "nope"),
    (RANK + "--set nope", "key=value"),
    (RANK + "--set selection=3", "selection"),
    (RANK + "--set =3", "''"),
    (RANK + "--set 'selection.units=[1'", "YAML"),
    (SCORE + "--detector ''", "detector"),
    (SCORE + "--detector knm", "did you mean 'knn'?"),
    (SCORE + "--selector nope", "nope"),
    (SCORE + "--selector ''", "selector"),
    (SELECT + "cascade:keep=2", "keep"),
    (SELECT + "cascade:keep=.nan", "keep"),
    (SELECT + "cascade:keep=yes", "keep"),
    (SELECT + "cascade:detector=knm", "did you mean 'knn'?"),
    (SELECT + "random --detector knn", "--detector"),
    (SCORE + "--detector knn:k=2.5", "k"),
    (SCORE + "--detector dana:knm", "did you mean 'knn'?"),
    (SCORE + "--detector ocsvm:gamma=.inf", "gamma"),
    (SCORE + "--detector iforest:trees=ten", "trees"),
    (SCORE + "--detector pyod:LODA,bins=3", "bins"),
    (SCORE + "--detector lof:20,30", "lof"),
    (SCORE + "--shard 1/0", "1/0"),
    (SCORE + "--shard 1.5/2", "1.5/2"),
    (SCORE + "--shard 0/4", "0/4"),
    (SCORE + "--shard 5/4", "5/4"),
    (SCORE + "--shard x", "x"),
    (SCORE + "--shard 1/2", "no task here"),
    (SCORE + "--merge", "no task here"),
    ("weigh {folder}/nope", "nope"),
    ("weigh {task}", "task.jsonl"),
    (WEIGH + "--policy best", "policy"),
    (WEIGH + "--policy ''", "policy"),
    (WEIGH + "--beta 0", "beta"),
    (WEIGH + "--beta 1.4", "beta"),
    (WEIGH + "--beta -0.1", "beta"),
    (WEIGH + "--beta .nan", "beta"),
    (WEIGH + "--beta many", "beta"),
    (WEIGH + "--beta ''", "beta"),
    (WEIGH + "--balance nowhere:0=", "balance='nowhere:0=': must be a table of groups, or TABLE:GROUP=SHARE"),
    (WEIGH + "--balance genres:0=0.5,1=0.6", "shares above 0 that sum to 1"),
    (WEIGH + "--balance genres --policy sigmoid", "needs policy=segments or sampled"),
    (WEIGH + "--balance genres --below 0", "spreads a budget"),
    (WEIGH + "--balance genres --beta auto", "chosen by the scores alone"),
    (WEIGH + "--balance genres", "genres: no table of groups"),
    (WEIGH + "--gamma 0", "gamma"),
    (WEIGH + "--gamma -3", "gamma"),
    (WEIGH + "--gamma 1.5", "gamma"),
    (WEIGH + "--gamma 1e12", "gamma"),
    (WEIGH + "--gamma 9223372036854775808", "gamma"),
    (WEIGH + "--policy sigmoid --sharpness .nan", "sharpness"),
    (WEIGH + "--policy sigmoid --sharpness .inf", "sharpness"),
    (WEIGH + "--policy sigmoid --midpoint .nan", "midpoint"),
    (WEIGH + "--policy sigmoid --midpoint .inf", "midpoint"),
    (WEIGH + "--budget 50", "budget"),
    (WEIGH + "--budget '50 pages'", "budget"),
    (WEIGH + "--budget '0 units'", "budget"),
    (WEIGH + "--budget '.nan tokens'", "budget"),
    (WEIGH + "--budget ''", "budget"),
    ("weigh {run} --to {run}/corpus", "corpus"),
    ("weigh {run} --to {task}", "task.jsonl"),
    ("weigh {run} --beta 0.5", "beta"),
    (WEIGH + "--set weigh.min_tail=99", "min_tail"),
    (WEIGH + "--set weigh.shrink=perhaps", "shrink"),
    (WEIGH + "--budget '5 units' --beta 0.2", "--beta is not looked at with budget"),
    (EVALUATE + "{folder}/nope", "nope"),
    (EVALUATE + "a={model} a={labeller}", "different names"),
    (EVALUATE + "a/b={model}", "a/b"),
    (EVALUATE + "{model} --tasks {card} {card}", "called alike"),
    (EVALUATE + "a=", "NAME=MODEL"),
    (EVALUATE + "{task}", "task.jsonl"),
    (EVALUATE + "{model} --tasks nope", "nope"),
    ("evaluate {model} --out {out}", "tasks"),
    ("weigh {run} {run} --proportions 0.5,0.5 --to {out}", "each once"),
    ("weigh {run} {folder}/nope --proportions 0.5,0.5 --to {out}", "nope"),
    ("weigh {run} --proportions 0.5,0.5 --to {out}", "proportions"),
    ("weigh {run} {folder}/other --to {out}", "proportions"),
    ("score --general {pool} --out {out}", "task"),
    ("score --task {task} --out {out}", "general"),
    ("score --task {task} --general {folder}/nope.jsonl --out {out}", "nope.jsonl"),
    (WEIGH + "--below 0 --beta 0.2", "--beta is not looked at with below"),
    (WEIGH + "--below 0 --budget '5 units'", "below"),
    (WEIGH + "--below 0 --policy sampled", "below"),
    (WEIGH + "--below .nan", "below"),
    (WEIGH + "--below -1000", "below=-1000"),
    (WEIGH + "--budget '5 tokens'", "tokenizer"),
    (WEIGH + "--budget '5 tokens' --set weigh.tokenizer={folder}/nope", "nope"),
    (WEIGH + "--sharpness 3", "--sharpness"),
    ("weigh {run}/corpus --to {out}", "scores"),
    ("adapt {run} --steps 2", "--model"),
    (TRAIN + "--model ''", "model"),
    (TRAIN + "--model {folder}/nope", "nope"),
    (TRAIN + "--model {task}", "task.jsonl"),
    (TRAIN + "--model {folder}/cards", "cards"),
    (TRAIN + "--weights {folder}/nope", "nope"),
    (TRAIN + "--weights {run}/corpus", "corpus"),
    ("adapt {folder}/nope --model {model}", "nope"),
    (TRAIN + "--steps 0", "steps"),
    (TRAIN + "--steps -4", "steps"),
    (TRAIN + "--steps many", "steps"),
    (TRAIN + "--tokens 0", "tokens"),
    (TRAIN + "--batch-size 0", "batch_size"),
    (TRAIN + "--max-tokens 2", "max_tokens"),
    (TRAIN + "--max-tokens 4096", "max_tokens"),
    (TRAIN + "--learning-rate 0", "learning_rate"),
    (TRAIN + "--learning-rate -1", "learning_rate"),
    (TRAIN + "--learning-rate .nan", "learning_rate"),
    (TRAIN + "--learning-rate .inf", "learning_rate"),
    (TRAIN + "--tokens 100 --steps 2", "tokens"),
    ("adapt {run} --model {model} --to {out} --epochs 0", "epochs"),
    ("adapt {run} --model {model} --to {out} --epochs .inf", "epochs"),
    (TRAIN + "--epochs 1", "epochs"),
    (TRAIN + "--schedule cubic", "schedule"),
    (TRAIN + "--replay 1", "replay"),
    (TRAIN + "--replay .nan", "replay"),
    (TRAIN + "--objective masked:whole_word=perhaps", "whole_word"),
    (TRAIN + "--objective caussal", "caussal"),
    (TRAIN + "--objective masked:rate=0.3", "mask_rate"),
    (TRAIN + "--set adapt.mask_rate=0.3", "unknown key 'adapt.mask_rate'"),
    (TRAIN + "--set adapt.whole_word=true", "unknown key 'adapt.whole_word'"),
    (TRAIN + "--extend {folder}/nope", "schedule"),
    (TRAIN + "--schedule constant --set adapt.warmup=0 --extend {folder}/nope", "nope"),
    (TRAIN + "--schedule constant --set adapt.warmup=0 --extend {run}/corpus", "corpus"),
    (TRAIN + "--unweighted --weights {run}/weights", "--unweighted"),
    (TRAIN + "--set adapt.floor=2", "floor"),
    (TRAIN + "--set adapt.cooldown=0", "cooldown"),
    (TRAIN + "--set adapt.betas=[1]", "betas"),
    (TRAIN + "--set adapt.betas=[.nan,0.9]", "betas"),
    (TRAIN + "--set adapt.eps=0", "eps"),
    (TRAIN + "--set adapt.dropout=1", "dropout"),
    (TRAIN + "--set adapt.eval_every=0", "eval_every"),
    (TRAIN + "--set adapt.batch_tokens=3", "batch_tokens"),
    (TRAIN + "--denominator sum", "denominator"),
    (TRAIN + "--layout dense", "layout"),
    (TRAIN + "--resume maybe", "resume"),
    (TRAIN + "--set adapt.warmup=2", "warmup"),
    (TRAIN + "--set adapt.warmup=.nan", "warmup"),
    (TRAIN + "--objective masked:mask_rate=0", "mask_rate"),
    (TRAIN + "--objective masked:mask_rate=1.5", "mask_rate"),
    (TRAIN + "--objective masked:mask_rate=.nan", "mask_rate"),
    (TRAIN + "--set adapt.clip=0", "clip"),
    (TRAIN + "--set adapt.clip=.nan", "clip"),
    (TRAIN + "--set adapt.weight_decay=-1", "weight_decay"),
    (TRAIN + "--set adapt.evaluations=-1", "evaluations"),
    (TRAIN + "--set adapt.final=middle", "final"),
    (TRAIN + "--set adapt.execution.micro_batch_tokens=0", "micro_batch_tokens"),
    (TRAIN + "--set adapt.execution.save_every=-1", "save_every"),
    (TRAIN + "--set adapt.execution.trackers=[nope]", "nope"),
    (TRAIN + "--objective next_sentence --layout unpadded", "next_sentence"),
    (TRAIN + "--set adapt.next_sentence=true", "unknown key 'adapt.next_sentence'"),
    (TRAIN + "--set adapt.head_warmup.steps=-1", "steps"),
    ("adapt {run} --model {model} --to {run}/corpus", "corpus"),
    ("pack {run}", "--model"),
    ("pack {run} --model {folder}/nope", "nope"),
    ("pack {folder}/nope --model {model}", "nope"),
    ("pretrain {run} --to {out} --size huge", "size"),
    ("pretrain {run} --to {out} --size ''", "size"),
    ("pretrain {folder}/nope --to {out}", "nope"),
    ("pretrain {run} --to {out} --set pretrain.vocabulary=3", "vocabulary"),
    ("pretrain {run} --to {out} --set pretrain.max_tokens=4000", "max_tokens"),
    ("pretrain {run} --to {out} --set pretrain.dropout=2", "dropout"),
    ("pretrain {task} --to {out}", "task.jsonl"),
    ("pack {run} --model {folder}/cards", "cards"),
    ("finetune --task-card {card} --out {out}", "--model"),
    ("finetune --model {model} --out {out}", "--task-card"),
    (TUNE + "--task-card nope", "nope"),
    (TUNE + "--task-card {folder}/nope.yaml", "nope.yaml"),
    (TUNE + "--task-card {task}", "task.jsonl"),
    (TUNE + "--task-card ''", "task"),
    (TUNE + "--model {folder}/nope", "nope"),
    (TUNE + "--model {folder}/cards", "cards"),
    (TUNE + "--data {folder}/nope", "nope"),
    (TUNE_ONLY + "--preset nope", "nope"),
    (TUNE_ONLY + "--seeds 0", "seeds"),
    (TUNE_ONLY + "--seeds -2", "seeds"),
    (TUNE_ONLY + "--seeds many", "seeds"),
    (TUNE + "--set finetune.epochs=0", "epochs"),
    (TUNE + "--set finetune.batch_size=0", "batch_size"),
    (TUNE + "--set finetune.learning_rate=.nan", "learning_rate"),
    (TUNE + "--set finetune.max_tokens=1", "max_tokens"),
    (TUNE + "--set finetune.max_tokens=4096", "max_tokens"),
    (TUNE + "--set finetune.max_train=0", "max_train"),
    (TUNE + "--set finetune.evaluate=middle", "evaluate"),
    (TUNE_ONLY + "--seeds [0,0]", "seeds"),
    (TUNE + "--text-field nope", "nope"),
    (TUNE + "--label-field nope", "nope"),
    (TUNE + "--id-field nope", "nope"),
    (TUNE + "--label-field ''", "--label-field"),
    (TUNE + "--set finetune.warmup=1", "warmup"),
    (TUNE + "--set finetune.save=perhaps", "save"),
    (TUNE + "--set finetune.learning_rate=.inf", "learning_rate"),
    ("finetune --model {model} --task-card {card} --out ''", "out"),
    ("predict {folder}/nope {pool}", "nope"),
    ("predict {model} {pool}", "not a sequence classifier"),
    ("predict {task} {pool}", "task.jsonl"),
    ("predict {folder}/cards {pool}", "cards"),
    ("predict '' {pool}", "predict"),
    ("predict {labeller} {folder}/nope.txt", "nope.txt"),
    (PREDICT + "--text-pair-field nope", "nope"),
    ("predict {labeller} '{folder}/*.nope'", "*.nope"),
    ("predict {labeller} ''", "labeller"),
    (PREDICT + "--text-field nope", "nope"),
    (PREDICT + "--text-field ''", "--text-field"),
    (PREDICT + "--id-field nope", "nope"),
    ("predict {labeller} {folder}/notes.txt --text-documents page", "text_documents"),
    (PREDICT + "--on-bad-record ignore", "--on-bad-record"),
    (PREDICT + "--out {out}.csv", "--out"),
    (PREDICT + "--out {pool}", "pool.jsonl"),
    (PREDICT + "--out {folder}/cards", "cards"),
    (PREDICT + "--out {task}/deeper.jsonl", "deeper.jsonl"),
    ("report {folder}/nope", "nope"),
    ("report {task}", "task.jsonl"),
    ("report {folder}/cards", "cards"),
    ("report", "DIR"),
    ("report {run} --out {out}", "--compare"),
    ("report {run} --compare {run} {folder}", "--compare"),
    ("report --compare {run} --out {out}", "two runs"),
    ("report --compare {run} {folder}/cards --out {out}", "cards"),
    ("report --compare {run} {folder}/nope --out {out}", "nope"),
    ("report --compare {run} {folder}/cards/../run --out {out}", "once"),
    ("report --compare {run} {run}/weights/.. --out {out}", "once"),
    ("run {folder}/nope.yaml", "nope.yaml"),
    ("run {card}", "unknown key"),
    ("run {folder}", "place"),
    ("run quickstart.yaml arms=[nope]", "nope"),
    ("run quickstart.yaml nope=1", "nope"),
    ("run quickstart.yaml out=", "out"),
    ("run quickstart.yaml model=null size=huge harvest=null", "task"),
    ("quickstart --set nope=1", "nope"),
    ("quickstart --out ''", "out"),
    ("detectors check nope", "unknown detector 'nope'"),
    ("selectors check randm", "did you mean 'random'?"),
    ("selectors check cascade:keep=2", "keep"),
    ("encoders check hashng", "did you mean 'hashing'?"),
    ("encoders check hashing:dims=0", "dims"),
    ("detectors check ''", "check"),
    ("verify {folder}/nope", "nope"),
    ("verify {task}", "task.jsonl"),
    ("verify {folder}/cards", "cards"),
    ("verify ''", "verify"),
    ("weigh ''", "weigh"),
    ("report ''", "report"),
    ("quickstart --config {folder}/nope.yaml", "nope.yaml"),
    ("run quickstart.yaml weigh.beta=7", "beta"),
    ("run quickstart.yaml adapt.steps=0 adapt.tokens=null", "steps"),
    ("run quickstart.yaml finetune.seeds=0", "seeds"),
    ("run quickstart.yaml arms=[dana,dana]", "distinct"),
    ("run quickstart.yaml selection.encoder=hashng", "hashing"),
    ("run quickstart.yaml ranking.detectors=[knm]", "knn"),
    ("detectors check knn:k=2.5", "k"),
    ("tasks list --tag chemistri", "--tag 'chemistri'"),
    ("tasks show chemport", "did you mean 'chemprot'?"),
    ("tasks show {folder}/nope.yaml", "nope.yaml"),
    ("tasks list --task-path {folder}/crads", "did you mean"),
    (RANK + "--task toys --task-path {folder}/cards", "did you mean 'toy'?"),
    (TUNE + "--task-card toys --task-path {folder}/cards", "did you mean 'toy'?"),
    ("tasks check {card} --data {folder}/nope", "nope"),
    ("tasks check {card} --corpus {folder}/nope.jsonl", "nope.jsonl"),
]

BROKEN = [
    # Text that is no text.
    (RANK, "task.jsonl", text("task.jsonl", "")),
    (RANK, "task.jsonl:1", text("task.jsonl", "{not json\n")),
    (RANK, "task.jsonl:1", text("task.jsonl", "[1, 2]\n")),
    (RANK, "text", text("task.jsonl", '{"body": "x"}\n')),
    (RANK, "task.jsonl:1", text("task.jsonl", '{"text": 7}\n')),
    (RANK, "task.jsonl", text("task.jsonl", b'{"text": "\xff\xfe"}\n')),
    (RANK, "too few", text("task.jsonl", '{"text": "Only one sentence."}\n')),
    (RANK, "pool.jsonl", text("pool.jsonl", "")),
    (RANK, "pool.jsonl", text("pool.jsonl", '{"text": "   "}\n')),
    (RANK, "pool.jsonl", text("pool.jsonl", b"\x00\x01\x02\x03" * 50)),
    (RANK + "--general {bad}.jsonl.gz", "bad.jsonl.gz", text("bad.jsonl.gz", b"no gzip")),
    (
        RANK + "--general {bad}.jsonl.gz",
        "bad.jsonl.gz",
        text("bad.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99)[:-9]),
    ),
    (RANK + "--general {bad}.jsonl.zst", "bad.jsonl.zst", text("bad.jsonl.zst", b"no zstandard")),
    (RANK + "--general {bad}.parquet", "bad.parquet", text("bad.parquet", b"PAR1 and no more")),
    (RANK + "--general {bad}.parquet", "bad.parquet", text("bad.parquet", b"")),
    (RANK + "--general {bad}.csv", "bad.csv", text("bad.csv", "a,b\n1,2\n")),
    (RANK + "--general {bad}.csv", "bad.csv", text("bad.csv", 'text\n"never closed\n' + "line\n" * 50)),
    (RANK + "--general {bad}.docx", "bad.docx", text("bad.docx", "what is this")),
    (RANK + "--general {bad}.jsonl", "bad.jsonl", lambda place: (place.folder / "bad.jsonl").mkdir()),
    (RANK + "--task {bad}.txt", "bad.txt", lambda place: (place.folder / "bad.txt").mkdir()),
    (RANK + "--general {bad}", "bad", unreadable("bad/x.jsonl")),
    (RANK + "--general {bad}.txt", "bad.txt", unreadable("bad.txt")),
    (RANK + "--task {bad}.jsonl", "bad.jsonl", unreadable("bad.jsonl")),
    (RANK + "--config {bad}.yaml", "bad.yaml", unreadable("bad.yaml")),
    (RANK + "--general {bad}.jsonl", "bad.jsonl", lambda place: (place.folder / "bad.jsonl").symlink_to("gone")),
    (RANK + "--general {bad}", "bad", lambda place: place.bad.mkdir()),
    (RANK + "--general {bad}", "bad", lambda place: place.bad.symlink_to(place.folder / "gone")),
    (RANK + "--config {bad}.yaml", "bad.yaml", text("bad.yaml", "a: [1\n")),
    (RANK + "--config {bad}.yaml", "bad.yaml", text("bad.yaml", "- a\n")),
    (RANK + "--config {bad}.yaml", "bad.yaml", text("bad.yaml", "")),
    (RANK + "--config {bad}.yaml", "bad.yaml", text("bad.yaml", b"\xff\xfe\x00")),
    ("rank --task {task} --out {out} --config {bad}.yaml", "general", text("bad.yaml", "general: 7\n")),
    (RANK + "--config {bad}.yaml", "beata", text("bad.yaml", "weigh: {beata: 1}\n")),
    # Places where nothing can be written.
    (RANK + "--out {task}", "task.jsonl", lambda place: None),
    (RANK + "--out {task}/deeper", "task.jsonl", lambda place: None),
    (RANK + "--out /proc/nope", "/proc/nope", lambda place: None),
    (RANK + "--out /dev/null/x", "/dev/null", lambda place: None),
    (RANK + "--out {folder}/" + "x" * 300, "too long", lambda place: None),
    (RANK + "--store {task}", "task.jsonl", lambda place: None),
    (RANK, "not made by dana", text("out/corpus/mine.txt", "somebody's own file")),
    (RANK, "not made by dana", text("out/task/mine.txt", "somebody's own file")),
    (WEIGH + "--to /proc/nope", "/proc/nope", lambda place: None),
    (TRAIN + "--to /proc/nope", "/proc/nope", lambda place: None),
    (TUNE + "--out /proc/nope", "/proc/nope", lambda place: None),
    (PREDICT + "--out /proc/nope.jsonl", "/proc/nope.jsonl", lambda place: None),
    ("pack {run} --model {model}", "tokens", text("run/tokens", "in the way")),
    # What dana wrote, damaged.
    ("weigh {run}", "settings.yaml", text("run/settings.yaml", "a: [1")),
    ("weigh {run}", "settings.yaml", text("run/settings.yaml", "- 1")),
    ("weigh {run}", "settings.yaml", text("run/settings.yaml", "weigh: {beata: 1}")),
    ("weigh {run}", "settings.yaml", text("run/settings.yaml", b"\xff\xfe")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", "")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", "{")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", "[]")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", "{}")),
    ("weigh {run} --to {out}", "scores", text("run/scores/__dana__/manifest.json", b"\xff\xfe")),
    ("weigh {run} --to {out}", "part-00000.parquet", cut("run/scores/part-00000.parquet")),
    ("weigh {run} --to {out}", "part-00000.parquet", remove("run/scores/part-00000.parquet")),
    ("weigh {run} --to {out}", "corpus", remove("run/corpus")),
    ("weigh {run} --to {out}", "part-00000.parquet", cut("run/corpus/part-00000.parquet")),
    (AUTO, "ranking", text("run/ranking/__dana__/manifest.json", "")),
    (AUTO, "ranking", text("run/ranking/__dana__/manifest.json", "[]")),
    (RANK + "--out {run}", "ranking", text("run/ranking/__dana__/manifest.json", "{")),
    (TRAIN, "part-00000.parquet", cut("run/weights/part-00000.parquet")),
    (TRAIN, "weights", remove("run/weights")),
    (TRAIN, "task", remove("run/task")),
    (TRAIN, "manifest.json", text("run/weights/__dana__/manifest.json", "null")),
    (TRAIN, "manifest.json", text("run/corpus/__dana__/manifest.json", "null")),
    # Checkpoints.
    (TRAIN, "model", cut("model/model.safetensors")),
    (TRAIN, "model", cut("model/config.json")),
    (TRAIN, "model", text("model/config.json", "[]")),
    (TRAIN, "model", config(model_type="nope")),
    (TRAIN, "model", remove("model/config.json")),
    (TRAIN, "model", remove("model/model.safetensors")),
    (TRAIN, "tokenizer", remove("model/tokenizer.json")),
    (TRAIN, "tokenizer", cut("model/tokenizer.json")),
    (TRAIN, "model", config(vocab_size=8)),
    (TRAIN, "model", config(hidden_size=64)),
    (TUNE, "model", cut("model/model.safetensors")),
    (TUNE, "model", text("model/config.json", "")),
    (TUNE, "tokenizer", remove("model/tokenizer.json")),
    # Cards and their data.
    (TUNE, "toy.yaml", text("cards/toy.yaml", "")),
    (TUNE, "labels", card(labels=["fruit"])),
    (TUNE, "labels", card(labels="fruit")),
    (TUNE, "labels", card(labels=["fruit", "fruit", "metal"])),
    (TUNE, "metric", card(metric="bleu")),
    (TUNE, "metric", card(metric=None)),
    (TUNE, "nope", card(nope=1)),
    (TUNE, "splits", card(splits={"dress": 4})),
    (TUNE, "presets", card(presets=[1])),
    (TUNE, "epochs", card(presets={"quick": {"epochs": 0}})),
    (TUNE, "bird", card(labels=["fruit", "metal"])),
    (TUNE, "train.jsonl:1: no 'hypothesis'", card(text_pair="hypothesis")),
    (TUNE, "text_pair", card(text_pair="")),
    (TUNE, "template", card(template="{text")),
    (TUNE, "kind", card(kind="pairs")),
    (TUNE, "metric", card(kind="multi_label", metric="accuracy")),
    (TUNE, "labels", card(kind="regression", metric="mae")),
    (TUNE, "train.jsonl:1: label 'fruit'", card(kind="multi_label", metric="micro_f1")),
    (TUNE, "train.jsonl:1: label 'fruit'", card(kind="regression", metric="mae", labels=None)),
    (TUNE, "train.jsonl:1: label 'fruit'", card(kind="token_labels", metric="accuracy")),
    (TUNE, "direction", card(direction="lower")),
    (TUNE, "train.jsonl:1: no 'title'", card(template="{title} {text}")),
    (TUNE, "dev", remove("cards/toy/dev.jsonl")),
    (TUNE, "train", text("cards/toy/train.jsonl", "")),
    (TUNE, "train.jsonl:1", text("cards/toy/train.jsonl", "{\n")),
    (TUNE, "label", text("cards/toy/train.jsonl", '{"text": "iron"}\n')),
    (TUNE, "test", text("cards/toy/test.jsonl", "")),
    (TUNE, "text", text("cards/toy/train.jsonl", '{"label": "fruit"}\n')),
    (TUNE, "train.jsonl", text("cards/toy/train.jsonl", b"\xff\xfe\n")),
    (PREDICT, "labeller", cut("labeller/model.safetensors")),
    (PREDICT, "labeller", text("labeller/config.json", "[]")),
    (PREDICT, "tokenizer", cut("labeller/tokenizer.json")),
    (PREDICT, "pool.jsonl:1", text("pool.jsonl", "{\n")),
    (PREDICT, "pool.jsonl", text("pool.jsonl", "")),
    ("report {run}", "ranking", text("run/ranking/__dana__/manifest.json", "")),
    ("report {run}", "ranking", text("run/ranking/__dana__/manifest.json", "[]")),
    ("report {run}", "metrics.json", text("run/finetune/toy/base/metrics.json", "{")),
    ("report {run}", "part-00000.parquet", cut("run/scores/part-00000.parquet")),
    ("tasks check {card}", "label 'bird'", card(labels=["fruit", "metal"])),
    ("tasks check {card}", "test.jsonl", remove("cards/toy/test.jsonl")),
    ("tasks check {card}", "holds no examples", text("cards/toy/dev.jsonl", "\n")),
    ("tasks show {card}", "tags=['Not Lower']", card(tags=["Not Lower"])),
    ("tasks show {card}", "in a circle", card(include="toy.yaml")),
    ("tasks list --task-path {folder}/cards", "also defined by", text("cards/sst2.yaml", "name: toy")),
    (TUNE, "include='toyy.yaml'", card(include="toyy.yaml")),
]

ENVIRONMENT = [
    ("WORLD_SIZE", "abc", RANK, "WORLD_SIZE"),
    ("WORLD_SIZE", "0", RANK, "WORLD_SIZE"),
    ("RANK", "x", RANK, "RANK"),
    ("RANK", "-1", "detectors list", "RANK"),
    ("WORLD_SIZE", "1.5", TRAIN, "WORLD_SIZE"),
    ("DANA_DATA", "/nope", RANK + "--task chemprot", "/nope"),
    ("DANA_TASK_PATH", "/nope", RANK + "--task words", "/nope: no such folder of task cards"),
]


@pytest.mark.parametrize("line", [TRAIN, TUNE, PREDICT, SELECT + "random"])
def test_what_the_cases_change_is_accepted(line, place, capfd):
    """Else they would be refused for another reason; the lines of rank, score and weigh made the place."""
    assert main(place.line(line)) == 0


@pytest.mark.parametrize(("line", "says"), FLAGS, ids=[line.replace("{", "").replace("}", "") for line, _ in FLAGS])
def test_flags_that_are_refused(line, says, made, capfd, monkeypatch):
    monkeypatch.chdir(made.folder)
    refuse(line, says, made, capfd)


@pytest.mark.parametrize(("line", "says", "damage"), BROKEN, ids=[f"{at}-{case[1]}" for at, case in enumerate(BROKEN)])
def test_files_that_are_refused(line, says, damage, place, capfd, monkeypatch):
    monkeypatch.chdir(place.folder)
    damage(place)
    refuse(line, says, place, capfd)


@pytest.mark.parametrize(("name", "value", "line", "says"), ENVIRONMENT)
def test_environments_that_are_refused(name, value, line, says, made, capfd, monkeypatch):
    monkeypatch.setenv(name, value)
    refuse(line, says, made, capfd)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the size of files as Linux does")
@pytest.mark.parametrize("line", [RANK, SCORE, WEIGH])
def test_a_full_disk_is_one_line(line, made, capfd):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        refuse(line, "too large", made, capfd)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


LATE = [
    (RANK + "--store /proc/nope", "/proc/nope"),
    (SELECT + "moore_lewis:min_count=9999", "min_count=9999"),
]


@pytest.mark.parametrize(("line", "says"), LATE)
def test_what_is_refused_once_the_texts_are_read(line, says, made, capfd):
    refuse(line, says, made, capfd, stays=("task", "corpus", "pool", "topic-model", "shares"))


PLUG_IN = """
import torch
from dana.selectors.base import Selector

class Encodes:
    def identity(self):
        return {"encoder": "mine"}

    def encode(self, texts):
        return torch.ones(len(texts), 3)

class FailsToEncode(Encodes):
    def encode(self, texts):
        return 1 / 0

class GivesNaN(Encodes):
    def encode(self, texts):
        return torch.full((len(texts), 3), torch.nan)

class GivesOneRow(Encodes):
    def encode(self, texts):
        return torch.ones(1, 3)

class FailsToSayWhatItIs(Encodes):
    def identity(self):
        return 1 / 0

class FailsToBeMade(Encodes):
    def __init__(self):
        1 / 0

class FailsToFit:
    def fit(self, embeddings, seed):
        return 1 / 0

class FailsToScore:
    def fit(self, embeddings, seed):
        return self

    def to(self, device):
        return self

    def score(self, embeddings):
        return 1 / 0

class FailsToSelect(Selector):
    def learn(self, task, general, seed):
        return 1 / 0

class IsNoSelector:
    def fit(self, task, general, seed):
        return self
"""
PLUG_INS = [
    *((f"{RANK} --encoder {name}", "somebody") for name in ("FailsToEncode", "GivesOneRow", "FailsToSayWhatItIs")),
    (f"{RANK} --encoder FailsToBeMade", "somebody"),
    *((f"{RANK} --detectors {name}", "somebody") for name in ("FailsToFit", "FailsToScore")),
    (SELECT + "FailsToSelect", "somebody"),
    (SELECT + "IsNoSelector", "somebodys: IsNoSelector is no subclass of dana.selectors.base.Selector"),
    (f"{RANK} --encoder NotThere", "somebody"),
]


@pytest.mark.parametrize(("line", "says"), PLUG_INS, ids=[line.split()[-1] for line, _ in PLUG_INS])
def test_plug_ins_that_fail_are_named_with_their_package(line, says, place, tmp_path, capfd, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "somebodys.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(tmp_path / "site")
    installed = registry.entry_points
    name = line.split()[-1]
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group: [*installed(group=group), EntryPoint(name, f"somebodys:{name}", group)],
    )
    refuse(line, says, place, capfd, stays=("task", "corpus", "embeddings"))
