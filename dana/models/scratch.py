"""A WordPiece tokenizer learnt from text, and an untrained encoder for it from a size and an architecture."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dana.core.config import require
from dana.core.rng import derive_seed
from dana.core.torch_seed import seeded
from dana.models.language_model import LanguageModel

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Size:
    """Layers, and the width of a hidden state; heads are 64 wide, the inner layer four times the width."""

    layers: int
    width: int


ARCHITECTURES = ("bert", "modernbert")
# Turc et al. 2019, Well-read students learn better, table 1.
SIZES = {
    "tiny": Size(2, 128),
    "mini": Size(4, 256),
    "small": Size(4, 512),
    "medium": Size(8, 512),
    "base": Size(12, 768),
}


def train_tokenizer(
    texts: Callable[[], Iterable[str]], vocabulary: int, max_tokens: int, lowercase: bool = True
) -> Any:
    """A BERT WordPiece tokenizer learnt from text; the same text gives the same tokenizer.

    Args:
        texts: Called twice, each time for all of the text.
        vocabulary: Most entries, special tokens included.
        max_tokens: The longest text its models will read.
        lowercase: Fold case and accents.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import BertTokenizer

    learner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    frequency: Counter[str] = Counter()
    for text in texts():
        frequency.update(learner.normalizer.normalize_str(text))
    # The trainer numbers characters in the order of a randomly seeded hash table and settles ties between
    # merges by number: no two runs agree. Given as "special", all have their numbers before it starts.
    common = sorted(frequency, key=lambda character: (-frequency[character], character))
    alphabet = sorted(character for character in common[: vocabulary // 10] if not character.isspace())
    fixed = [*SPECIAL_TOKENS, *alphabet, *(f"##{character}" for character in alphabet)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=fixed, min_frequency=2, limit_alphabet=0, show_progress=False
    )
    learner.train_from_iterator(texts(), trainer)
    return BertTokenizer(vocab=learner.get_vocab(), do_lower_case=lowercase, model_max_length=max_tokens)


def architecture_config(architecture: str, shape: Size, tokenizer: Any, dropout: float) -> Any:
    """The configuration of an untrained encoder.

    ``bert`` has learnt positions and a norm after each block (Devlin et al. 2019). ``modernbert`` has rotary positions,
    a norm before each block and gated units (Warner et al. 2024), here with global attention in every layer and about
    as many weights: it learns more from the same text, far more from little of it (docs/results/training.md).

    Raises:
        ConfigError: If the architecture is unknown.
    """
    from transformers import BertConfig, ModernBertConfig

    common: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.width // 64,
        "max_position_embeddings": tokenizer.model_max_length,
        "pad_token_id": tokenizer.pad_token_id,
    }
    require(architecture in ARCHITECTURES, "architecture", architecture, f"one of {', '.join(ARCHITECTURES)}")
    if architecture == "bert":
        return BertConfig(
            **common,
            intermediate_size=4 * shape.width,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
    modern: dict[str, Any] = {
        "intermediate_size": 5 * shape.width // 2,  # of three matrices, where BERT has two
        "global_attn_every_n_layers": 1,
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
    }
    modern |= {name: dropout for name in ("embedding_dropout", "mlp_dropout", "attention_dropout")}
    return ModernBertConfig(**common, **modern)


def new_encoder(
    architecture: str,
    size: str,
    tokenizer: Any,
    dropout: float,
    seed: int,
    auto_class: Callable[[Any], Any] | None = None,
) -> LanguageModel:
    """An untrained encoder for a tokenizer.

    Args:
        architecture: One of :data:`ARCHITECTURES`.
        size: One of :data:`SIZES`.
        tokenizer: From :func:`train_tokenizer`; decides the positions that the model can tell apart.
        dropout: On hidden states and attention; 0 suits short runs.
        seed: Decides its weights.
        auto_class: The transformers class of a configuration, with the heads that are needed; that for masked language
            models if None.

    Raises:
        ConfigError: If the architecture or the size is unknown.
    """
    from transformers import AutoModelForMaskedLM

    require(size in SIZES, "size", size, f"one of {', '.join(SIZES)}")
    config = architecture_config(architecture, SIZES[size], tokenizer, dropout)
    with seeded(derive_seed(seed, "scratch")):
        kind = auto_class(config) if auto_class else AutoModelForMaskedLM
        return LanguageModel(kind.from_config(config), tokenizer)
