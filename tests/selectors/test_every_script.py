"""Text of a topic is told from other text in ten scripts, six of them without spaces."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from dana.corpus.overlap import NearDuplicates, OverlapIndex
from dana.encoders.hashing import HashingEncoder
from dana.selectors.base import SelectorContext
from dana.selectors.build import create_selector

# Words of medicine, of sport, and of both; written without spaces where `space` is empty.
SCRIPTS = {
    "Han": (
        "医生 护士 患者 血压 心脏 肺炎 药物 手术 伤口 症状",
        "球员 教练 球队 观众 裁判 比赛 冠军 联赛 决赛 门票",
        "今天 北京 认为 重要 我们",
        "",
    ),
    "Kana": (
        "いしゃ かんじゃ くすり しゅじゅつ けつあつ ウイルス ワクチン カルテ",
        "せんしゅ かんとく しあい ゆうしょう ボール チーム ゴール サッカー",
        "きょう わたし とても ここで そして",
        "",
    ),
    "Thai": (
        "แพทย์ ผู้ป่วย ยา โรค ผ่าตัด ความดัน หัวใจ อาการ",
        "นักกีฬา โค้ช ทีม ฟุตบอล แชมป์ ประตู สนาม ตั๋ว",
        "วันนี้ เรา คิด สำคัญ ที่นี่",
        "",
    ),
    "Lao": (
        "ແພດ ຄົນເຈັບ ຢາ ພະຍາດ ຜ່າຕັດ ຫົວໃຈ ອາການ",
        "ນັກກິລາ ຄູຝຶກ ທີມ ບານເຕະ ແຊ້ມ ປະຕູ ສະໜາມ",
        "ມື້ນີ້ ພວກເຮົາ ຄິດ ສຳຄັນ",
        "",
    ),
    "Khmer": (
        "វេជ្ជបណ្ឌិត អ្នកជំងឺ ថ្នាំ ជំងឺ វះកាត់ បេះដូង រោគសញ្ញា",
        "កីឡាករ គ្រូបង្វឹក ក្រុម បាល់ទាត់ ជើងឯក ទីលាន សំបុត្រ",
        "ថ្ងៃនេះ យើង គិត សំខាន់",
        "",
    ),
    "Burmese": (
        "ဆရာဝန် လူနာ ဆေး ရောဂါ ခွဲစိတ် နှလုံး သွေးပေါင်",
        "ကစားသမား နည်းပြ အသင်း ဘောလုံး ချန်ပီယံ ကွင်း လက်မှတ်",
        "ဒီနေ့ ကျွန်တော် ထင် အရေးကြီး",
        "",
    ),
    "Hangul": (
        "의사 환자 약물 수술 혈압 심장 폐렴 증상",
        "선수 감독 축구 우승 경기 결승 관중 심판",
        "오늘 우리 생각 중요",
        " ",
    ),
    "Devanagari": (
        "डॉक्टर मरीज दवा बीमारी शल्य रक्तचाप हृदय लक्षण",
        "खिलाड़ी कोच टीम फुटबॉल विजेता मैदान टिकट गोल",
        "आज हम सोच महत्वपूर्ण",
        " ",
    ),
    "Cyrillic": (
        "врач пациент лекарство болезнь операция давление сердце",
        "игрок тренер команда футбол чемпион стадион билет",
        "сегодня мы думаем важно",
        " ",
    ),
    "Arabic": (
        "طبيب مريض دواء مرض جراحة ضغط قلب أعراض",
        "لاعب مدرب فريق كرة بطل ملعب تذكرة هدف",
        "اليوم نحن نعتقد مهم",
        " ",
    ),
}
UNSPACED = [name for name, (*_, space) in SCRIPTS.items() if not space]


def say(script, topic, count, seed):
    """Texts of twelve words each, half of them of a topic."""
    medicine, sport, common, space = SCRIPTS[script]
    random = np.random.default_rng(seed)
    own = {"medicine": medicine, "sport": sport}[topic].split()
    texts = []
    for _ in range(count):
        words = [random.choice(own if place % 2 else common.split()) for place in range(12)]
        texts.append(space.join(words))
    return texts


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("selector", ["lexical", "moore_lewis", "dsir"])
def test_a_selector_tells_topics_apart_in_every_script(script, selector):
    pool = [*say(script, "sport", 160, 1), *say(script, "medicine", 40, 2)]
    fitted = create_selector(selector, SelectorContext()).fit(
        say(script, "medicine", 80, 3), pool, seed=0
    )
    sport = fitted.score(say(script, "sport", 60, 4))
    medicine = fitted.score(say(script, "medicine", 60, 5))
    foreign = np.repeat([1, 0], 60)
    assert roc_auc_score(foreign, [*sport, *medicine]) > 0.95


@pytest.mark.parametrize("script", SCRIPTS)
def test_hashed_vectors_of_a_topic_are_near_in_every_script(script):
    texts = [*say(script, "medicine", 20, 1), *say(script, "sport", 20, 2)]
    vectors = HashingEncoder(dims=1024).encode(texts)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(40)), "every text has a word"
    cosines = vectors @ vectors.T
    own = (cosines[:20, :20].sum() - 20) / 380
    assert own > cosines[:20, 20:].mean() + 0.05


def test_hashed_vectors_do_not_depend_on_other_scripts_in_the_batch():
    latin = ["the court heard the appeal", "Größe und Maß 12"]
    alone = HashingEncoder().encode(latin)
    assert torch.equal(HashingEncoder().encode([*latin, "今天天气很好"])[:2], alone)


@pytest.mark.parametrize("script", SCRIPTS)
def test_text_of_a_test_split_is_found_within_a_document_of_every_script(script):
    tests = say(script, "medicine", 5, 1)
    space = SCRIPTS[script][3]
    planted = space.join([say(script, "sport", 1, 2)[0], tests[3], say(script, "sport", 1, 3)[0]])
    clean = say(script, "sport", 20, 4)
    found = OverlapIndex.build({"task": tests}).find([*clean, planted])
    assert [one.row for one in found] == [20]


@pytest.mark.parametrize("script", UNSPACED)
def test_near_duplicates_are_found_where_there_are_no_spaces(script):
    pytest.importorskip("datasketch")
    [first] = say(script, "medicine", 1, 1)
    text = first * 3
    near = NearDuplicates(0.8)
    assert near.add("first", text) is None
    assert near.add("second", text[:-1] + "。") == "first"
    assert near.add("third", say(script, "sport", 1, 2)[0] * 3) is None
