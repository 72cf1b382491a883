"""Tiny checkpoints of many families of transformers: random weights, and tokenizers of the family's kind."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

CLASSES = {
    "printer": "the printer shows an error and will not feed paper from the tray after an update",
    "billing": "my invoice for last month lists a charge twice and no refund has arrived so far",
    "login": "the app logs me out each time i open the calendar page and the password fails",
}
OTHER = "river stone market garden window letter music winter bridge school engine forest harbour"
BERT = {
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ROBERTA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
GPT = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
ORDER = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
LONGEST = 64


def labelled_texts(count: int) -> list[tuple[str, str]]:
    """Return texts with their labels, `count` of each label, the same on every call."""
    draw = random.Random(0)
    rows = []
    for number in range(count):
        for label, text in CLASSES.items():
            words = text.split()
            draw.shuffle(words)
            rows.append((f"Case {number}: {' '.join(words[:12])}.", label))
    return rows


def other_texts(count: int) -> list[str]:
    """Return texts without labels."""
    draw = random.Random(1)
    words = OTHER.split()
    return [
        " ".join(draw.choices(words, k=20)).capitalize() + f" {number}." for number in range(count)
    ]


def _texts() -> list[str]:
    return [text for text, _ in labelled_texts(30)] + other_texts(60)


@cache
def word_pieces() -> Any:
    """Make a tokenizer of BERT's kind."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return _fast(tokenizer, BERT)


@cache
def bytes_of_bert() -> Any:
    """Make a tokenizer of DeBERTa's kind: bytes, with BERT's special tokens."""
    return _byte_level(["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"], BERT, ("[CLS]", "[SEP]"))


@cache
def bytes_of_roberta() -> Any:
    """Make a tokenizer of RoBERTa's kind."""
    return _byte_level(ORDER, ROBERTA, ("<s>", "</s>"))


@cache
def bytes_of_decoder() -> Any:
    """Make a tokenizer of GPT-2's kind, which puts nothing around a text."""
    return _byte_level(["<s>", "<pad>", "</s>", "<unk>"], GPT, None)


def _byte_level(order: list[str], special: dict[str, str], ends: tuple[str, str] | None) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=order,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    if ends:
        first, last = ends
        tokenizer.post_processor = processors.RobertaProcessing(
            (last, tokenizer.token_to_id(last)), (first, tokenizer.token_to_id(first))
        )
    return _fast(tokenizer, special)


@cache
def pieces() -> Any:
    """Make a tokenizer of XLM-R's kind."""
    return _unigram(ORDER, ROBERTA, "<s> $A </s>", [("<s>", 0), ("</s>", 2)])


@cache
def pieces_of_t5() -> Any:
    """Make a tokenizer of T5's kind."""
    order = ["<pad>", "</s>", "<unk>", *(f"<extra_id_{number}>" for number in range(10))]
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return _unigram(order, special, "$A </s>", [("</s>", 1)])


@cache
def pieces_of_xlnet() -> Any:
    """Make a tokenizer of XLNet's kind, whose class token is the last."""
    order = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"]
    special = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "cls_token": "<cls>",
        "sep_token": "<sep>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    }
    return _unigram(order, special, "$A <sep> <cls>", [("<sep>", 4), ("<cls>", 3)])


def _unigram(
    order: list[str], special: dict[str, str], template: str, ids: list[tuple[str, int]]
) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from tokenizers.trainers import UnigramTrainer

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = UnigramTrainer(
        vocab_size=300, special_tokens=order, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    return _fast(tokenizer, special)


def _fast(tokenizer: Any, special: dict[str, str]) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LONGEST, **special)


SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": LONGEST,
}
RESERVED = SIZES | {"max_position_embeddings": LONGEST + 2}
ROTARY = SIZES | {"num_key_value_heads": 2, "head_dim": 16}
BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "max_position_embeddings": LONGEST,
}


@dataclass(frozen=True)
class Family:
    """A tiny checkpoint of an architecture.

    Attributes:
        model_type: Name of transformers.
        tokenizer: Makes its tokenizer.
        sizes: For its configuration.
        objective: What it learns; empty for what neither masked nor causal trains.
        auto_class: The class of transformers that makes it.
        finetunes: Whether transformers has a classifier for it.
    """

    model_type: str
    tokenizer: Callable[[], Any]
    sizes: dict[str, Any] = field(default_factory=lambda: SIZES)
    objective: str = "masked"
    auto_class: str = "AutoModelForMaskedLM"
    finetunes: bool = True

    def save(self, folder: Path) -> None:
        """Write the checkpoint, the same on every call."""
        import torch
        import transformers
        from transformers import AutoConfig

        tokenizer = self.tokenizer()
        names = ("pad", "bos", "eos", "cls", "sep", "mask")
        ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id", None) for name in names}
        values = {name: number for name, number in ids.items() if number is not None}
        values |= {"vocab_size": len(tokenizer)} | self.sizes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            config = AutoConfig.for_model(self.model_type, **values)
            model = getattr(transformers, self.auto_class).from_config(config)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def _encoders() -> Iterator[Family]:
    yield Family("bert", word_pieces)
    yield Family(
        "distilbert", word_pieces, {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
    )
    yield Family("albert", word_pieces, SIZES | {"embedding_size": 16})
    yield Family("electra", word_pieces, SIZES | {"embedding_size": 16})
    relative = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}
    yield Family("deberta", bytes_of_bert, SIZES | relative | {"position_biased_input": False})
    yield Family("deberta-v2", bytes_of_bert, SIZES | relative | {"position_biased_input": False})
    yield Family("megatron-bert", word_pieces)
    yield Family("ernie", word_pieces)
    yield Family("roformer", word_pieces, SIZES | {"embedding_size": 32})
    yield Family("convbert", word_pieces, SIZES | {"embedding_size": 32, "conv_kernel_size": 3})
    yield Family("squeezebert", word_pieces, SIZES | {"embedding_size": 32})
    bottleneck = {"embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 1}
    yield Family("mobilebert", word_pieces, SIZES | bottleneck)
    yield Family("fnet", word_pieces)
    yield Family("mra", word_pieces)
    yield Family("yoso", word_pieces, RESERVED)
    yield Family(
        "rembert", pieces, SIZES | {"input_embedding_size": 16, "output_embedding_size": 16}
    )
    funnel = {"block_sizes": [1, 1], "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64}
    yield Family("funnel", word_pieces, funnel)
    yield Family("roberta", bytes_of_roberta, RESERVED)
    yield Family("xlm-roberta", pieces, RESERVED)
    yield Family("camembert", pieces, RESERVED)
    yield Family("mpnet", bytes_of_roberta, RESERVED)
    yield Family("ibert", bytes_of_roberta, RESERVED)
    yield Family("data2vec-text", bytes_of_roberta, RESERVED)
    yield Family("longformer", bytes_of_roberta, RESERVED | {"attention_window": 16})
    yield Family("big_bird", pieces, SIZES | {"block_size": 8, "attention_type": "original_full"})
    languages = {"languages": ["en_XX"], "default_language": "en_XX"}
    yield Family("xmod", bytes_of_roberta, RESERVED | languages)
    yield Family("luke", bytes_of_roberta, RESERVED | {"entity_vocab_size": 10})
    yield Family("esm", bytes_of_roberta, RESERVED)
    yield Family("modernbert", bytes_of_bert, SIZES | {"global_attn_every_n_layers": 1})
    yield Family("eurobert", bytes_of_bert, SIZES | {"num_key_value_heads": 2})
    yield Family("xlm", word_pieces, {"emb_dim": 32, "n_layers": 2, "n_heads": 2})
    yield Family("flaubert", word_pieces, {"emb_dim": 32, "n_layers": 2, "n_heads": 2})
    yield Family("bart", bytes_of_roberta, BART)


def _decoders() -> Iterator[Family]:
    gpt = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": LONGEST}
    opt = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 64}
    opt |= {"max_position_embeddings": LONGEST, "word_embed_proj_dim": 32}
    bloom = {"hidden_size": 32, "n_layer": 2, "n_head": 2}
    mamba = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
    sizes = {
        "gpt2": gpt,
        "gpt_neox": SIZES,
        "opt": opt,
        "bloom": bloom,
        "llama": ROTARY,
        "mistral": ROTARY,
        "qwen2": ROTARY,
        "qwen3": ROTARY,
        "gemma": ROTARY,
        "gemma2": ROTARY,
        "phi3": ROTARY,
        "mamba": mamba,
    }
    for name, values in sizes.items():
        yield Family(
            name,
            bytes_of_decoder,
            values,
            "causal",
            "AutoModelForCausalLM",
            finetunes=name != "mamba",
        )


def _others() -> Iterator[Family]:
    t5 = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    t5 |= {"decoder_start_token_id": 0}
    yield Family("t5", pieces_of_t5, t5, "", "AutoModelForSeq2SeqLM")
    xlnet = {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64}
    yield Family("xlnet", pieces_of_xlnet, xlnet, "", "AutoModelForCausalLM")


FAMILIES = {family.model_type: family for family in [*_encoders(), *_decoders(), *_others()]}
