"""``dana task words``: words of a task that a model breaks into pieces, and what new tokens would save."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dana.core.errors import DataError
from dana.core.logging import get_logger
from dana.core.text_table import tabulate
from dana.corpus.documents import Tally, read_documents
from dana.models.folder import check_checkpoint, load_own_tokenizer
from dana.models.vocabulary import (
    WordCounts,
    check_vocabulary,
    choose_words,
    count_words,
    spelled_out,
    spells_bytes,
)
from dana.tasks.card import TaskCard, load_card
from dana.tasks.examples import split_by_fold, stream_examples

log = get_logger(__name__)

NUMBERS = (100, 1_000, 5_000)  # of new tokens
SHOWN = 20  # words of each list

Row = dict[str, str | int | float | None]


@dataclass(frozen=True)
class TaskWords:
    """Words of a task that a model breaks into pieces.

    Attributes:
        broken: Rows of the words in the most pieces.
        saving: Rows of the words that save the most tokens.
        savings: Rows of what the first 100, 1,000 and 5,000 words save, by text.
    """

    broken: list[Row]
    saving: list[Row]
    savings: list[Row]

    def __str__(self) -> str:
        parts = [
            f"words in the most pieces\n{tabulate(self.broken)}",
            f"words that save the most tokens\n{tabulate(self.saving)}",
            f"what new tokens would save (adapt.vocabulary)\n{tabulate(self.savings)}",
        ]
        return "\n\n".join(parts)


def task_words(
    name: str, model: str, data: str | None = None, pool: Sequence[str] = ()
) -> TaskWords:
    """Count the words of a task's training texts, and of a pool, that a model breaks into pieces.

    Test and development texts are not read: they must not decide what a model looks like.

    Args:
        name: A task card's name or YAML file.
        model: Folder or Hub name of the model.
        data: Folder that holds the card's data.
        pool: Files, folders, globs or ``hf:`` names of text that would be trained on.

    Raises:
        ConfigError: If the card is unknown, or words cannot be added to the model's tokenizer.
        DataError: If the data is missing, or a record is bad.
        ArtifactError: If there is no such model.
    """
    card = load_card(name)
    check_checkpoint(model)
    tokenizer = load_own_tokenizer(model)
    check_vocabulary(tokenizer)
    is_bytes = spells_bytes(tokenizer)
    texts = {"target": count_words(_training_texts(card, data), tokenizer)}
    if pool:
        tally = Tally()
        documents = read_documents(pool, "skip", tally)
        texts["pool"] = count_words((document.text for document in documents), tokenizer)
        log.info("pool      %s", tally)
    words = choose_words(list(texts.values()), max(NUMBERS), tokenizer)
    if not words:
        raise DataError(
            f"{name}: the tokenizer of {model} breaks no word that occurs twice: nothing would be "
            "saved by adapt.vocabulary; leave it at 0"
        )
    pieces: dict[str, tuple[int, ...]] = {}
    for text in texts.values():
        pieces |= text.pieces

    def row(word: str) -> Row:
        cut = " ".join(tokenizer.convert_ids_to_tokens(list(pieces[word])))
        counts = {text: words_of.counts[word] for text, words_of in texts.items()}
        return {
            "word": spelled_out(word, is_bytes),
            "pieces": len(pieces[word]),
            **counts,
            "cut": cut,
        }

    most = sorted(words, key=lambda word: -len(pieces[word]))  # ties stay as they save
    savings = [_saving(number, words, texts) for number in NUMBERS]
    return TaskWords(
        [row(word) for word in most[:SHOWN]], [row(word) for word in words[:SHOWN]], savings
    )


def _training_texts(card: TaskCard, data: str | None) -> Iterator[str]:
    """Yield the training texts of a task, of a card with folds those of the first fold."""
    examples = [example for _, example in stream_examples(card, "train", data)]
    if card.folds:
        examples = split_by_fold(examples, 0)["train"]
    for example in examples:
        yield from example.texts


def _saving(number: int, words: Sequence[str], texts: dict[str, WordCounts]) -> Row:
    """Return the share of the tokens of each text that the first words save."""
    chosen = words[:number]
    row: Row = {"new tokens": number, "found": len(chosen)}
    for name, text in texts.items():
        row[f"fewer tokens of {name} text"] = f"{text.saved(chosen) / max(1, text.tokens):.1%}"
    return row
