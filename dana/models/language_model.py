"""Load language models with the heads of an objective, or create new ones from a size and text."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dana.core.config import require
from dana.core.rng import derive_seed, torch_seed
from dana.models.folder import load_tokenizer, load_with_head


@dataclass(frozen=True)
class LanguageModel:
    """A model with its tokenizer.

    Attributes:
        model: A transformers model with a language-model head.
        tokenizer: Its fast tokenizer.
        new: Names of parameters of heads that the checkpoint lacks, to be warmed up.
        notes: What was made different from the checkpoint, for the manifest.
    """

    model: Any
    tokenizer: Any
    new: frozenset[str] = frozenset()
    notes: Mapping[str, Any] = field(default_factory=dict)


def load_language_model(
    model: str, auto_class: Callable[[Any], Any], seed: int, dropout: float | None = None
) -> LanguageModel:
    """Load a language model from a folder or Hub name, in float32.

    Heads that its checkpoint lacks are new.

    Args:
        model: Folder with safetensors, or Hub name.
        auto_class: Returns the class of transformers for a configuration, with the heads of the
            objective.
        seed: Seed of the weights of new heads.
        dropout: Dropout of every layer in training; None for the model's own, which is saved in any
            case.

    Raises:
        ArtifactError: If there is no such model, its weights are pickled, or part of its backbone
            is missing.
        ConfigError: If `dropout` is set for a model without dropout.
    """
    config, tokenizer = load_tokenizer(model)
    originals: dict[str, float] = {}
    if dropout is not None:
        originals = dropouts(config)
    allowed = f"null for a model of type {config.model_type}: it has none"
    require(not dropout or bool(originals), "dropout", dropout, allowed)
    for name in originals:
        setattr(config, name, dropout)
    with torch_seed(derive_seed(seed, "head")):
        network, new = load_with_head(auto_class(config), model, config=config)
    # The layers have read their dropout; the configuration that will be saved has the originals.
    for name, value in originals.items():
        setattr(network.config, name, value)
    return LanguageModel(network, tokenizer, new)


def dropouts(config: Any) -> dict[str, float]:
    """Return the dropout probabilities of a model by their names in its configuration.

    Those of heads for other tasks are left out.
    """
    heads = ("classif", "summary", "pooler")
    found = {}
    for name, value in config.to_dict().items():
        is_dropout = "dropout" in name or name.endswith("_pdrop")  # the name in GPT-2
        is_of_head = any(head in name for head in heads)
        if is_dropout and not is_of_head and isinstance(value, int | float):
            found[name] = value
    return found


def ordinary_tokens(model: Any, count: int) -> np.ndarray:
    """Return ids of tokens to try a model on.

    They are from the middle of its vocabulary: special tokens stand at its ends.
    """
    vocabulary: int = model.get_input_embeddings().weight.shape[0]
    return np.arange(count) + vocabulary // 2


def check_length(config: Any, max_tokens: int) -> None:
    """Check that examples are no longer than the model has positions.

    Raises:
        ConfigError: If they are longer; names both numbers.
    """
    from dana.models.heads import positions_of

    positions = positions_of(config)
    allowed = f"at most {positions} for this model"
    require(max_tokens <= positions, "max_tokens", max_tokens, allowed)


SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ARCHITECTURES = ("bert", "modernbert")
# Layers and width of a hidden state: Turc et al. 2019, Well-read students learn better, table 1.
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
}


def train_tokenizer(
    texts: Callable[[], Iterable[str]], vocabulary: int, max_tokens: int, lowercase: bool = True
) -> Any:
    """Train a BERT WordPiece tokenizer; the same text gives the same tokenizer.

    Args:
        texts: Returns an iterable of all texts; called twice.
        vocabulary: Most entries, special tokens included.
        max_tokens: Longest text of its models.
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
    # The trainer numbers characters in the order of a randomly seeded hash table and breaks ties
    # between merges by number, so no two runs agree. As "special" tokens, all characters have fixed
    # numbers before it starts.
    common = sorted(frequency, key=lambda character: (-frequency[character], character))
    frequent = common[: vocabulary // 10]
    alphabet = sorted(character for character in frequent if not character.isspace())
    continuations = [f"##{character}" for character in alphabet]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        special_tokens=[*SPECIAL_TOKENS, *alphabet, *continuations],
        min_frequency=2,
        limit_alphabet=0,
        show_progress=False,
    )
    learner.train_from_iterator(texts(), trainer)
    return BertTokenizer(
        vocab=learner.get_vocab(), do_lower_case=lowercase, model_max_length=max_tokens
    )


def new_encoder(
    architecture: str,
    size: str,
    tokenizer: Any,
    dropout: float,
    seed: int,
    auto_class: Callable[[Any], Any] | None = None,
) -> LanguageModel:
    """Create an untrained encoder for a tokenizer.

    ``bert`` has learnt positions and a norm after each block (Devlin et al. 2019). ``modernbert``
    has rotary positions, a norm before each block and gated units (Warner et al. 2024), here with
    global attention in every layer and about as many weights; it learns more from the same text,
    above all from little (docs/results/training.md). Heads are 64 wide, BERT's inner layers four
    times the width.

    Args:
        architecture: One of :data:`ARCHITECTURES`.
        size: One of :data:`SIZES`.
        tokenizer: Tokenizer from :func:`train_tokenizer`; its longest text sets the number of
            positions.
        dropout: Dropout on hidden states and attention; 0 suits short runs.
        seed: Seed of the weights.
        auto_class: Returns the class of transformers for a configuration, with the heads of the
            objective; None for masked language models.

    Raises:
        ConfigError: If the architecture or the size is unknown.
    """
    from transformers import AutoConfig, AutoModelForMaskedLM

    require(size in SIZES, "size", size, f"one of {', '.join(SIZES)}")
    architectures = f"one of {', '.join(ARCHITECTURES)}"
    require(architecture in ARCHITECTURES, "architecture", architecture, architectures)
    layers, width = SIZES[size]
    if architecture == "bert":
        options = _bert_options(width, dropout)
    else:
        options = _modernbert_options(width, dropout, tokenizer)
    config = AutoConfig.for_model(
        architecture,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        max_position_embeddings=tokenizer.model_max_length,
        **options,
    )
    with torch_seed(derive_seed(seed, "scratch")):
        kind = auto_class(config) if auto_class else AutoModelForMaskedLM
        return LanguageModel(kind.from_config(config), tokenizer)


def _bert_options(width: int, dropout: float) -> dict[str, Any]:
    """Return what a configuration of BERT has and one of ModernBERT has not."""
    return {
        "intermediate_size": 4 * width,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }


def _modernbert_options(width: int, dropout: float, tokenizer: Any) -> dict[str, Any]:
    """Return what a configuration of ModernBERT has and one of BERT has not."""
    return {
        "intermediate_size": 5 * width // 2,  # of three matrices, where BERT has two
        "global_attn_every_n_layers": 1,
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": tokenizer.cls_token_id,
        "sep_token_id": tokenizer.sep_token_id,
        "embedding_dropout": dropout,
        "mlp_dropout": dropout,
        "attention_dropout": dropout,
    }
