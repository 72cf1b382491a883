"""Text of many languages: sentences end where the language says, and all of it goes through the whole selection."""

import re
from dataclasses import replace

import numpy as np
import pytest

from dana.cli.main import main
from dana.core.errors import ConfigError
from dana.core.schemas import read_table
from dana.corpus.units import OTHERS, RULED, parse_units, sentences
from dana.scoring.settings import Selection
from tests.corpus.files import write_rows

# Sentences as the language has them; "!" where the rules of English find others.
TEXTS = {
    "de": ["!", "Der Versuch dauerte ca. Zwölf Stunden, vgl. Abb. 3.", "Am 3. Oktober war es aus.", "Gut so!"],
    "fr": ["!", "Elle habite av. Foch à Paris.", "Est-ce vrai ?", "Oui !"],
    "es": ["!", "El Sr. García vive en la Avda. Goya.", "La Dra. Ruiz llegó tarde.", "¿Qué hora es?", "¡Es tarde!"],
    "ru": ["!", "Он живёт на ул. Ленина в г. Москве.", "Это было в 1999 г. и позже.", "Как дела?", "Хорошо!"],
    "el": ["!", "Ο κ. Παπαδόπουλος ήρθε χθες.", "Πού πήγες;", "Δεν ξέρω."],
    "it": ["!", "Il sig. Rossi abita in via Roma.", "Perché?", "Non lo so!"],
    "nl": ["!", "Dhr. De Vries woont in Utrecht.", "Hij kwam om 3 uur.", "Echt waar?"],
    "uk": ["!", "Він живе на вул. Франка.", "Це було в 1999 р. і пізніше.", "Справді?"],
    "hi": ["", "यह पहला वाक्य है।", "क्या यह दूसरा है?", "हाँ!"],
    "ar": ["", "هذه جملة أولى.", "هل هذه جملة ثانية؟", "نعم!"],
    "zh": ["", "这是第一句。", "这是第二句！", "真的吗？", "是的。"],
    "ja": ["", "これは一つ目です。", "本当ですか？", "はい！"],
    "tr": ["", "Bu ilk cümle.", "İkinci cümle mi?", "Evet!", "Prof. Yılmaz geldi."],
    "ko": ["", "이것은 첫 문장이다.", "두 번째인가?", "그렇다!"],
}
SPACELESS = ("zh", "ja")


@pytest.mark.parametrize("language", TEXTS)
def test_sentences_end_where_the_language_says_and_windows_have_none(language, byte_level):
    differs, *units = TEXTS[language]
    text = ("" if language in SPACELESS else " ").join(units)
    for spans in (sentences(text, language), Selection(encoder="hashing", language=language).splitter()(text)):
        assert [text[start:end] for start, end in spans] == units
    assert ([text[start:end] for start, end in sentences(text, "en")] != units) == bool(differs)
    windows = parse_units("window:16").splitter(byte_level, language)(text)
    assert "".join("".join(text[start:end] for start, end in windows).split()) == "".join(text.split())
    assert len(windows) == -(-len(text.encode()) // 16)


@pytest.mark.parametrize("code", ["xx", "", "EN", "german", "en-GB", "no"])
def test_what_is_no_language_is_refused(code):
    with pytest.raises(ConfigError, match=rf"language={code!r}: must be a code of ISO 639-1 .* am ar bg .* uk\)"):
        Selection(language=code)


def test_codes_are_distinct():
    codes = f"{RULED} {OTHERS}".split()
    assert len(codes) == len(set(codes)) == 182


def test_the_language_belongs_to_the_fingerprint_unless_units_are_windows():
    one, two = (Selection(encoder="hashing", language=code) for code in ("en", "de"))
    assert one.identity() != two.identity()
    assert replace(one, units="window:8").identity() == replace(two, units="window:8").identity()


BEGINS = ["今天", "昨天", "明天", "后来", "早上", "晚上", "现在", "最后"]
TASK = [
    begin + end
    for begin in BEGINS
    for end in ("细胞吸收了蛋白质。", "基因改变了。", "酶结合了受体。", "抗体找到了肿瘤。")
]
FOREIGN = [begin + end for begin in BEGINS for end in ("法官做出了判决。", "律师提出了上诉。", "证人来到了法庭。")]


def test_a_script_without_spaces_goes_from_files_to_weights(tmp_path):
    """Planted documents score lowest and weigh most by both kinds of weights; every character is in a unit."""
    random = np.random.default_rng(0)
    topics = {"task": TASK, "foreign": FOREIGN}
    texts = {f"{topic}-{n}": "".join(random.choice(topics[topic], 4)) for topic in topics for n in range(30)}
    pool = write_rows(tmp_path / "pool.jsonl", [{"id": doc_id, "text": text} for doc_id, text in texts.items()])
    (tmp_path / "task.txt").write_text("\n".join(TASK), encoding="utf-8")
    run = str(tmp_path / "run")
    flags = "--encoder hashing:dims=256,words=1 --geometry l2 --detector knn:k=1 --language zh"
    assert main(["score", "--task", f"{tmp_path}/task.txt", "--general", pool, "--out", run, *flags.split()]) == 0
    scores = read_table(tmp_path / "run" / "scores").to_pandas()
    for doc_id, units in scores.groupby("doc_id"):
        spans = zip(units["start"], units["end"], strict=True)
        assert [texts[doc_id][start:end] for start, end in spans] == re.findall("[^。]+。", texts[doc_id])
    means = scores["score"].groupby(scores["doc_id"].str.startswith("task-")).mean()
    assert means[True] < means[False]
    for policy, flags in (("sigmoid", "--beta 0.5"), ("segments", "--beta 0.5 --gamma 4")):
        assert main(["weigh", run, "--policy", policy, *flags.split(), "--to", f"{tmp_path}/{policy}"]) == 0
        weights = read_table(tmp_path / policy).to_pandas()
        means = weights["weight"].groupby(weights["doc_id"].str.startswith("task-")).mean()
        assert means[True] > 0.3 + means[False]
