"""Text of many languages: sentences end where the language says, and all of it goes through the whole selection."""

from dataclasses import replace

import numpy as np
import pytest

from dana.core.errors import ConfigError
from dana.core.schemas import iterate_documents, read_table
from dana.corpus.units import OTHERS, RULED, parse_units, sentences
from dana.scoring.inputs import GeneralCorpus, TaskText
from dana.scoring.scoring import Scoring, build_selector
from dana.scoring.settings import Selection
from dana.stages.texts import corpus_stage, task_stage
from dana.stages.weigh import weigh_stage
from dana.weighting.settings import WeighSettings
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


# What a language's two topics are put together from: beginnings, and ends of each.
PARTS = {
    "zh": (
        ["今天", "昨天", "明天", "后来", "早上", "晚上", "现在", "最后"],
        ["细胞吸收了蛋白质。", "基因改变了。", "酶结合了受体。", "抗体找到了肿瘤。"],
        ["法官做出了判决。", "律师提出了上诉。", "证人来到了法庭。", "法院公布了裁定。"],
    ),
    "ru": (
        ["Сегодня ", "Вчера ", "Завтра ", "Потом ", "Утром ", "Ночью ", "Теперь ", "Весной "],
        ["клетка выросла.", "ген изменился.", "белок распался.", "опухоль исчезла."],
        ["судья решил.", "адвокат ушёл.", "свидетель пришёл.", "суд начался."],
    ),
    "ar": (
        ["اليوم ", "أمس ", "غدا ", "ثم ", "صباحا ", "ليلا ", "الآن ", "أخيرا "],
        ["نمت الخلية.", "تغير الجين.", "عمل الإنزيم.", "ظهر الورم."],
        ["حكم القاضي.", "تكلم المحامي.", "حضر الشاهد.", "بدأت المحكمة."],
    ),
}


@pytest.mark.parametrize("language", PARTS)
def test_any_script_goes_from_files_to_weights(tmp_path, language):
    """Planted documents score lowest, by both kinds of weights they are kept, and every character is in a unit."""
    begins, *ends = PARTS[language]
    join = "" if language in SPACELESS else " "
    task, foreign = ([begin + end for begin in begins for end in topic] for topic in ends)
    (tmp_path / "task.txt").write_text("\n".join(task), encoding="utf-8")
    random = np.random.default_rng(0)
    topics = {"task": task, "foreign": foreign}
    rows = [
        {"id": f"{topic}-{number}", "text": join.join(random.choice(units, 4))}
        for number in range(30)
        for topic, units in topics.items()
    ]
    selection = Selection(encoder="hashing:dims=256,words=1", language=language, geometry="l2")
    run = tmp_path / "run"
    general = GeneralCorpus(corpus_stage([write_rows(tmp_path / "pool.jsonl", rows)], run / "corpus"))
    task_text = TaskText(task_stage(str(tmp_path / "task.txt"), run / "task"))
    selector = build_selector("detector", "knn:k=1", selection)
    Scoring(task_text, general, selection, selector, run / "scores").run()
    scores = read_table(run / "scores").to_pandas()
    texts = {document.doc_id: document.text for document in iterate_documents(run / "corpus")}
    for doc_id, units in scores.groupby("doc_id"):
        spans = zip(units["start"], units["end"], strict=True)
        assert join.join(texts[doc_id][start:end] for start, end in spans) == texts[doc_id]
        assert len(units) == 4
    means = scores["score"].groupby(scores["doc_id"].str.startswith("task-")).mean()
    assert means[True] < means[False]
    for policy in ("sigmoid", "segments"):
        settings = WeighSettings(policy=policy, beta=0.5, gamma=4)
        weights = read_table(weigh_stage(run / "scores", run / "corpus", settings, tmp_path / policy).path).to_pandas()
        means = weights["weight"].groupby(weights["doc_id"].str.startswith("task-")).mean()
        assert means[True] > 0.3 + means[False]
