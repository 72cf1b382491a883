"""Choose words of a domain, and extend a tokenizer by them; :mod:`dana.models.embeddings` adds their rows.

A word is what the tokenizer splits text into before it looks for pieces. A word of several pieces
becomes a token of its own. No text gets longer: every other word keeps its pieces, but for words that
are in the vocabulary of a BPE and that its merges did not reach, which become one token, too.

* WordPiece takes the longest piece first, so that a new entry would change other words that begin
  with it. The words become added tokens instead, which the tokenizers library finds before it looks
  for pieces. Marks at both ends of every word, which it also removes before, see to it that only a
  whole word is found.
* BPE looks whole words up before it merges pieces (``ignore_merges``).
* Unigram takes the most probable pieces. The score of a word is the sum of the scores of its pieces
  plus a trifle: no other way through a text becomes better than it was.
"""

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from dana.core.errors import ConfigError
from dana.core.logging import get_logger
from dana.models.folder import load_own_tokenizer, uncut

log = get_logger(__name__)

VERSION = 1  # of the choice of words
LEAST_COUNT = 2  # a word seen once may never be seen again
MOST_CHUNKS = 5_000_000  # in memory; where there are more, the rarest are dropped
CHUNKS_AT_ONCE = 10_000
TRIFLE = 1e-7  # above the rounding of a sum of scores, below the difference of two such sums
MARK = "\ue000"  # a private character; BertNormalizer with clean_text removes it from text
LETTER = r"[\p{L}0-9]"
# What every version of Unicode calls a space or a punctuation mark, so that each tokenizer splits
# text there. WordPiece's kinds of words, by the name of the pre-tokenizer.
SPACE = r"\s"
ASCII_PUNCTUATION = r"!-/:-@\[-^`{-~"
PUNCTUATION = r"_‐-‧‰-⁃⁅-⁑⁓-⁞"
BORDERS = {
    "BertPreTokenizer": SPACE + ASCII_PUNCTUATION + PUNCTUATION,
    "Whitespace": SPACE + ASCII_PUNCTUATION,
    "WhitespaceSplit": SPACE,
}
KINDS = ("WordPiece", "BPE", "Unigram")
# This class reads tokenizer.json as it is; others make their own of its entries.
CLASS = "PreTrainedTokenizerFast"


@dataclass
class WordCounts:
    """Words of a text, and how often each occurs.

    Attributes:
        counts: Number of each word of several pieces, by its spelling in the vocabulary.
        pieces: Ids of the tokens of these words.
        tokens: Tokens of the whole text.
    """

    counts: Counter[str] = field(default_factory=Counter)
    pieces: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tokens: int = 0

    def saved(self, words: Iterable[str]) -> int:
        """Count the tokens that a text would have less if each word were one."""
        saved = 0
        for word in words:
            if word in self.pieces:
                saved += self.counts[word] * (len(self.pieces[word]) - 1)
        return saved


def check_vocabulary(tokenizer: Any) -> str:
    """Return the kind of a tokenizer, if words can be added to it.

    Raises:
        ConfigError: If they cannot; names what the tokenizer is.
    """
    uncut(tokenizer)  # refuses slow ones
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    problem = _problem(tokenizer, state)
    if problem:
        name = type(tokenizer).__name__
        raise ConfigError(
            f"adapt.vocabulary: the tokenizer ({name}) {problem}. Leave vocabulary at 0, or take a "
            "base with another tokenizer"
        )
    kind: str = state["model"]["type"]
    return kind


def _problem(tokenizer: Any, state: Mapping[str, Any]) -> str:
    """Say why no words can be added to a tokenizer; empty if they can."""
    kind = state["model"]["type"]
    if kind not in KINDS:
        return f"is of the kind {kind}; words can be added to {', '.join(KINDS)}"
    if len(tokenizer) != 1 + max(tokenizer.get_vocab().values()):
        return "has gaps or repetitions in the numbers of its tokens"
    if kind == "WordPiece":
        return _problem_of_word_piece(state)
    if kind == "BPE":
        return _problem_of_bpe(tokenizer, state)
    character = _hidden_character(state)
    if character:
        return f"has the character {character!r} in longer pieces alone"
    return ""


def _problem_of_word_piece(state: Mapping[str, Any]) -> str:
    """Do as :func:`_problem` for a tokenizer of the kind WordPiece."""
    added = _added(state)
    if added:
        return f"has added tokens, such as {added[0]!r}; its words are in it already"
    splitter = _splitter(state)
    if splitter not in BORDERS:
        return f"splits words by {splitter}; words can be added where {', '.join(BORDERS)} does"
    return ""


def _problem_of_bpe(tokenizer: Any, state: Mapping[str, Any]) -> str:
    """Do as :func:`_problem` for a tokenizer of the kind BPE."""
    affix = _affix(state)
    if affix:
        return f"marks words by {affix}"
    if len(_pre_tokenise(tokenizer, "a b a")) < 2:
        return "does not split text into words before it merges pieces"
    return ""


def _splitter(state: Mapping[str, Any]) -> str:
    """Name the pre-tokenizer of a tokenizer's state."""
    kind: str = (state.get("pre_tokenizer") or {}).get("type", "nothing")
    return kind


def _added(state: Mapping[str, Any]) -> list[str]:
    """List the added tokens that are no special ones."""
    return [token["content"] for token in state["added_tokens"] if not token["special"]]


def _affix(state: Mapping[str, Any]) -> str:
    """Return what BPE writes at the end of a word or before its further pieces, or nothing."""
    model = state["model"]
    return model.get("continuing_subword_prefix") or model.get("end_of_word_suffix") or ""


def _pre_tokenise(tokenizer: Any, text: str) -> list[Any]:
    """Split a text as a tokenizer does before it looks for pieces."""
    core = tokenizer.backend_tokenizer
    if core.normalizer:
        text = core.normalizer.normalize_str(text)
    if not core.pre_tokenizer:
        return [text]
    pieces: list[Any] = core.pre_tokenizer.pre_tokenize_str(text)
    return pieces


def _hidden_character(state: Mapping[str, Any]) -> str:
    """Find a character that is in a longer piece of Unigram and is none itself.

    It is empty if there is none. Where there is one, text with it can be cut in several ways with
    unknown characters, whose score depends on the lowest one of the vocabulary.
    """
    special = {token["content"] for token in state["added_tokens"] if token["special"]}
    pieces: set[str] = {piece for piece, _ in state["model"]["vocab"]}
    is_byte = re.compile(r"<0x[0-9A-F]{2}>").fullmatch
    for piece in sorted(pieces - special):
        if is_byte(piece):
            continue
        for character in piece:
            if character not in pieces:
                return character
    return ""


def count_words(texts: Iterable[str], tokenizer: Any) -> WordCounts:
    """Count the words of a text that a tokenizer breaks into several pieces.

    Args:
        texts: The text.
        tokenizer: From a checkpoint, of a kind that :func:`check_vocabulary` takes.
    """
    kind = check_vocabulary(tokenizer)
    encoder = uncut(tokenizer)
    is_bytes = spells_bytes(tokenizer)
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(text.split())
        if len(chunks) > MOST_CHUNKS:
            chunks = _frequent(chunks)
    words = WordCounts()
    for block, encodings in _encode(chunks, encoder):
        for chunk, encoding in zip(block, encodings, strict=True):
            count = chunks[chunk]
            words.tokens += count * len(encoding.ids)
            for spelling, pieces in _words(encoding, kind, tokenizer, is_bytes):
                words.counts[spelling] += count
                words.pieces[spelling] = pieces
    return words


def _frequent(chunks: Counter[str]) -> Counter[str]:
    """Return the most frequent chunks, at most half of :data:`MOST_CHUNKS`.

    Were it only a few fewer than that, nearly every text would drop some again, and copy all others.
    """
    least = LEAST_COUNT
    kept = chunks
    while len(kept) > MOST_CHUNKS // 2:
        kept = Counter({chunk: count for chunk, count in kept.items() if count >= least})
        least += 1
    return kept


def _encode(chunks: Iterable[str], encoder: Any) -> Iterator[tuple[list[str], list[Any]]]:
    """Encode chunks of text, each after a space, in blocks."""
    stream = iter(chunks)
    while block := list(islice(stream, CHUNKS_AT_ONCE)):
        # Most words of a text stand behind a space, which byte-level tokens begin with.
        spaced = [f" {chunk}" for chunk in block]
        yield block, encoder.encode_batch(spaced, add_special_tokens=False)


def _words(
    encoding: Any, kind: str, tokenizer: Any, is_bytes: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield spelling and ids of the words of a text that have several pieces and a letter."""
    numbers = encoding.word_ids
    tokens = encoding.tokens
    ids = encoding.ids
    for _, positions in groupby(range(len(ids)), key=numbers.__getitem__):
        places = list(positions)
        if len(places) < 2:
            continue
        runs = [places]
        if kind == "Unigram":
            runs = _runs_of_letters(places, tokens)
        for run in runs:
            pieces = tuple(ids[place] for place in run)
            if len(pieces) < 2 or tokenizer.unk_token_id in pieces:
                continue
            spelling = _spelling([tokens[place] for place in run], kind, tokenizer)
            if any(character.isalpha() for character in spelled_out(spelling, is_bytes)):
                yield spelling, pieces


def _runs_of_letters(places: Sequence[int], tokens: Sequence[str]) -> list[list[int]]:
    """Cut the pieces between two spaces into words: Unigram leaves punctuation marks at them."""
    runs: list[list[int]] = []
    goes_on = False
    for place in places:
        is_word = tokens[place].lstrip("\u2581").isalnum()
        if is_word and goes_on and not tokens[place].startswith("\u2581"):
            runs[-1].append(place)
        elif is_word:
            runs.append([place])
        goes_on = is_word
    return runs


def _spelling(pieces: Sequence[str], kind: str, tokenizer: Any) -> str:
    """Join the pieces of a word as its entry in the vocabulary is spelled."""
    if kind != "WordPiece":
        return "".join(pieces)
    prefix = tokenizer.backend_tokenizer.model.continuing_subword_prefix
    first, *others = pieces
    return "".join([first, *(piece.removeprefix(prefix) for piece in others)])


def spelled_out(spelling: str, is_bytes: bool) -> str:
    """Return a word as a person reads it: without the marks of the vocabulary.

    Args:
        spelling: The word in the vocabulary.
        is_bytes: From :func:`spells_bytes`; of bytes that are no text the result is empty.
    """
    if not is_bytes:
        return spelling.replace("\u2581", "")
    from tokenizers.decoders import ByteLevel

    text = ByteLevel().decode([spelling])
    return "" if "\ufffd" in text else text.strip()


def spells_bytes(tokenizer: Any) -> bool:
    """Return whether the vocabulary of a tokenizer spells bytes, as GPT-2's does, and not characters."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = json.dumps([state["normalizer"], state["pre_tokenizer"]])
    return '"ByteLevel"' in parts


def choose_words(texts: Sequence[WordCounts], number: int, tokenizer: Any) -> list[str]:
    """Choose the words that would save the largest share of the tokens.

    Each text counts alike, however long it is: the small text of the task is not drowned by the
    pool.

    Args:
        texts: The words of each text.
        number: Most words to choose.
        tokenizer: The tokenizer that they were counted by.

    Returns:
        Spellings in the vocabulary, the most saving first; fewer where no other word of several
        pieces occurs twice.
    """
    kind = check_vocabulary(tokenizer)
    saved: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for text in texts:
        for word, count in text.counts.items():
            counts[word] += count
            saved[word] += count * (len(text.pieces[word]) - 1) / max(1, text.tokens)
    candidates = [word for word in saved if counts[word] >= LEAST_COUNT]
    if kind == "WordPiece":
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        find = _marking(state)
        candidates = [word for word in candidates if find.normalize_str(word) == MARK + word + MARK]
    vocabulary = tokenizer.get_vocab()
    candidates = [word for word in candidates if word not in vocabulary]
    return sorted(candidates, key=lambda word: (-saved[word], word))[:number]


def _marked(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the normaliser that writes a mark at both ends of every word."""
    border = BORDERS[_splitter(state)]
    begins = rf"(?<![^{border}])(?={LETTER})"
    ends = rf"(?<={LETTER})(?![^{border}])"
    normalizers = []
    if state.get("normalizer"):
        normalizers.append(state["normalizer"])
    regex = f"{begins}|{ends}"
    normalizers.append({"type": "Replace", "pattern": {"Regex": regex}, "content": MARK})
    return {"type": "Sequence", "normalizers": normalizers}


def _marking(state: Mapping[str, Any]) -> Any:
    """Return the normaliser of :func:`_marked` as an object of the tokenizers library."""
    from tokenizers import Tokenizer

    marking = {**state, "normalizer": _marked(state)}
    return Tokenizer.from_str(json.dumps(marking)).normalizer


def extend_tokenizer(tokenizer: Any, words: Sequence[str], config: Any = None) -> Any:
    """Return a copy of a tokenizer with more tokens, whose ids follow those it has.

    No text has more tokens than before. The copy is of a class of transformers that reads
    ``tokenizer.json`` as it is.

    Args:
        tokenizer: A fast tokenizer.
        words: From :func:`choose_words`.
        config: Configuration of its model, by whose type transformers may choose a class.

    Raises:
        ConfigError: If words cannot be added to it, or transformers would not find them.
    """
    kind = check_vocabulary(tokenizer)
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    extend = {"WordPiece": _extend_word_piece, "BPE": _extend_bpe, "Unigram": _extend_unigram}
    extend[kind](state, words, tokenizer)
    extended = _reopen(tokenizer, state, config)
    opened = json.loads(extended.backend_tokenizer.to_str())
    parts = ("normalizer", "pre_tokenizer", "model")
    if any(_plain(opened[part]) != _plain(state[part]) for part in parts):
        raise ConfigError(
            f"adapt.vocabulary: transformers opens the tokenizer of this model as "
            f"{type(extended).__name__}, which would not find new words. Leave vocabulary at 0, or "
            "take a base of another type"
        )
    extended.name_or_path = tokenizer.name_or_path
    return extended


def _reopen(tokenizer: Any, state: Mapping[str, Any], config: Any) -> Any:
    """Open a tokenizer as transformers does, by way of a folder, with another state of its core."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        if config is not None:
            config.save_pretrained(folder)
        file = Path(folder) / "tokenizer.json"
        file.write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
        settings_file = Path(folder) / "tokenizer_config.json"
        settings = json.loads(settings_file.read_text(encoding="utf-8"))
        settings["tokenizer_class"] = CLASS
        settings["model_input_names"] = tokenizer.model_input_names
        # transformers would add these again, by their own rules.
        settings.pop("added_tokens_decoder", None)
        settings_file.write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")
        return load_own_tokenizer(folder)


def _plain(part: Any) -> Any:
    """Return a part of a tokenizer's state as the library writes it, whoever wrote it."""
    if isinstance(part, dict) and part.get("type") == "BPE":
        merges = []
        for merge in part["merges"]:
            merges.append(merge if isinstance(merge, str) else " ".join(merge))
        return {"vocab": part["vocab"], "merges": merges, "whole": part.get("ignore_merges")}
    if isinstance(part, dict) and part.get("type") == "Unigram":
        return [piece for piece, _ in part["vocab"]]  # reading rounds scores
    return part


def _extend_word_piece(state: dict[str, Any], words: Sequence[str], tokenizer: Any) -> None:
    first = len(tokenizer)
    state["normalizer"] = _marked(state)
    remove = {
        "type": "Split",
        "pattern": {"String": MARK},
        "behavior": "Removed",
        "invert": False,
    }
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [remove, state["pre_tokenizer"]]}
    decoders = [{"type": "Replace", "pattern": {"String": MARK}, "content": ""}]
    if state.get("decoder"):
        decoders.append(state["decoder"])
    state["decoder"] = {"type": "Sequence", "decoders": decoders}
    for number, word in enumerate(words, start=first):
        token = {
            "id": number,
            "content": word,
            "special": False,
            "normalized": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
        state["added_tokens"].append(token)


def _settle(state: Mapping[str, Any], size: int) -> Iterator[str]:
    """Yield the added tokens that are not in the vocabulary of the model itself, by their ids."""
    added = {token["id"]: token["content"] for token in state["added_tokens"]}
    for number in range(size, 1 + max([size - 1, *added])):
        yield added[number]


def _extend_bpe(state: dict[str, Any], words: Sequence[str], tokenizer: Any) -> None:
    vocabulary = state["model"]["vocab"]
    # Added tokens keep their ids only if the vocabulary has them, too.
    for token in [*_settle(state, len(vocabulary)), *words]:
        vocabulary[token] = len(vocabulary)
    state["model"]["ignore_merges"] = True


def _extend_unigram(state: dict[str, Any], words: Sequence[str], tokenizer: Any) -> None:
    vocabulary = state["model"]["vocab"]
    scores = dict(vocabulary)
    encoder = uncut(tokenizer)
    lowest = min(scores.values())
    for token in _settle(state, len(vocabulary)):
        vocabulary.append([token, lowest])
    for word in words:
        pieces = encoder.model.tokenize(word)
        score = sum(scores[piece.value] for piece in pieces)
        vocabulary.append([word, score + TRIFLE])
