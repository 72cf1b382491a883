"""Write an encoder of texts as a folder that sentence-transformers opens by itself."""

from pathlib import Path

from dana.core.artifacts import write_json
from dana.models.convertible import MODULES
from dana.models.folder import load_own_tokenizer, load_with_head, quiet_transformers
from dana.models.heads import positions_of
from dana.models.pooling import OLD_KEYS, POOLING_CONFIG, Pooling, read_pooling

# Names that every version of sentence-transformers reads.
TYPE = "sentence_transformers.models.{}"
PLACE_OF_POOLING = "1_Pooling"
PLACE_OF_NORMALIZE = "2_Normalize"
SETTINGS = "sentence_bert_config.json"


def save_encoder(model: str, folder: Path, max_tokens: int) -> None:
    """Write an encoder as a folder that sentence-transformers opens, in float32.

    It pools as its checkpoint says (:func:`dana.models.pooling.read_pooling`). Of a pooler that the
    checkpoint lacks, and on which no vector depends, zeros are written: where it is missing,
    transformers warns and draws it anew.

    Args:
        model: A checkpoint, folder or name; of adapters, the base with the adapters added.
        folder: Target folder; must exist.
        max_tokens: Length to which texts are cut, special tokens included.

    Raises:
        ArtifactError: If the checkpoint cannot be used.
    """
    import torch
    from transformers import AutoModel

    pooling = read_pooling(model)
    network, new = load_with_head(AutoModel, model)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name in new:
                parameter.zero_()
    tokenizer = load_own_tokenizer(model)
    if tokenizer.is_fast:  # it remembers its last call
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    with quiet_transformers():
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    longest = min(max_tokens, positions_of(network.config))
    _write_modules(folder, pooling, network.config.hidden_size, longest)


def _write_modules(folder: Path, pooling: Pooling, width: int, max_tokens: int) -> None:
    """Write the files by which sentence-transformers knows how to pool."""
    places = {"Transformer": "", "Pooling": PLACE_OF_POOLING}
    if pooling.normalize:
        places["Normalize"] = PLACE_OF_NORMALIZE
    modules = []
    for number, (kind, place) in enumerate(places.items()):
        module_type = TYPE.format(kind)
        modules.append({"idx": number, "name": str(number), "path": place, "type": module_type})
    write_json(folder / MODULES, modules)
    write_json(folder / SETTINGS, {"max_seq_length": max_tokens, "do_lower_case": False})
    modes = {key: mode == pooling.mode for key, mode in OLD_KEYS.items()}
    for place in places.values():
        (folder / place).mkdir(exist_ok=True)
    config = {"word_embedding_dimension": width, **modes}
    write_json(folder / PLACE_OF_POOLING / POOLING_CONFIG, config)
