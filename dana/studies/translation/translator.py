"""Learn a shared vocabulary, train a translator from scratch, and translate by beam search.

Training is that of the core.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from dana.core.artifacts import Artifact, Draft, make, open_artifact, read_manifest, write_text
from dana.core.device import find_device
from dana.core.errors import ConfigError, DataError
from dana.core.extras import install_command
from dana.core.logging import get_logger, monitor
from dana.core.rng import derive_seed, generator, torch_seed
from dana.core.schemas import DOCUMENTS, Document, write_parts
from dana.corpus.documents import document_tables
from dana.models.folder import load_complete, load_own_tokenizer, tokenizer_identity, uncut
from dana.models.language_model import LanguageModel
from dana.stages.training import RECORDS, TrainingData, TrainingJob, run_job
from dana.studies.comparison.measures import budget_measures, document_scores
from dana.studies.translation.pairs import PAIRS, open_pairs
from dana.studies.translation.settings import ALL, ORACLE, TranslationSettings
from dana.train.evaluation import example_losses
from dana.train.examples import build_examples
from dana.train.execution import make_accelerator
from dana.train.layout import BatchLayout
from dana.train.objectives.translation import TAB, Translation
from dana.train.records import EvaluationRecord, Record, from_line
from dana.train.settings import Execution, TrainSettings
from dana.train.state import save_model
from dana.train.tokens import Tokens
from dana.train.training_state import TrainingState

log = get_logger(__name__)

VOCABULARY = "translation-vocabulary"
TRANSLATOR = "translator"
TRANSLATIONS = "translations"
PAD = "<pad>"
END = "</s>"
HISTORY = "history.csv"
OUTPUT = "translations.parquet"
AT_ONCE = 64  # sentences of a pass of the search


def vocabulary_stage(pairs: Path, domains: list[str], size: int, folder: Path) -> Artifact:
    """Learn byte-level BPE on both sides of all training text; the same text gives the same pieces.

    Args:
        pairs: Artifact of :func:`dana.studies.translation.pairs.pairs_stage`.
        domains: Domains with training text.
        size: Pieces, the tab between the sides included.
        folder: Folder of the tokenizer.
    """
    artifact = open_artifact(pairs, PAIRS)
    depends_on = {"pairs": artifact.fingerprint, "domains": domains, "size": size}

    def write(draft: Draft) -> None:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
        from transformers import PreTrainedTokenizerFast

        table = open_domains(pairs, domains, "train")
        byte_level: Any = Tokenizer(models.BPE())
        byte_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        byte_level.decoder = decoders.ByteLevel()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=size - 1,  # the tab is added below
            special_tokens=[PAD, END],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        byte_level.train_from_iterator(chain(table["source"], table["target"]), trainer)
        byte_level.add_tokens([AddedToken(TAB, normalized=False, special=False)])
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=byte_level, pad_token=PAD, eos_token=END
        )
        tokenizer.save_pretrained(draft.path)
        draft.counts["pieces"] = len(tokenizer)

    return make(folder, VOCABULARY, depends_on, write)


def text_stage(
    pairs: Path, vocabulary: Path, domains: list[str], split: str, max_tokens: int, folder: Path
) -> Artifact:
    """Write the pairs of some domains as documents to train on or to measure: source, tab, target.

    Pairs of more than `max_tokens` are left out. The manifest counts pairs and tokens.
    """
    depends_on: dict[str, Any] = {
        "pairs": open_artifact(pairs, PAIRS).fingerprint,
        "vocabulary": open_artifact(vocabulary, VOCABULARY).fingerprint,
        "split": split,
        "domains": domains,
        "max_tokens": max_tokens,
    }

    def write(draft: Draft) -> None:
        table = open_domains(pairs, domains, split)
        table = with_lengths(table, load_own_tokenizer(str(vocabulary)))
        _write_text(draft, table, max_tokens)

    return make(folder, "pool", depends_on, write)


def open_domains(
    pairs: Path, domains: Sequence[str], split: str, limit: int | None = None
) -> pd.DataFrame:
    """Read the first pairs of each domain, by default all, with a column ``domain``."""
    frames = [open_pairs(pairs, domain, split)[:limit].assign(domain=domain) for domain in domains]
    return pd.concat(frames, ignore_index=True)


def with_lengths(table: pd.DataFrame, tokenizer: Any) -> pd.DataFrame:
    """Add to pairs their text and its tokens, the end included."""
    texts = table["source"] + TAB + table["target"]
    encodings = uncut(tokenizer).encode_batch(texts.tolist(), add_special_tokens=False)
    return table.assign(text=texts, tokens=[len(encoding.ids) + 1 for encoding in encodings])


def _write_text(draft: Draft, table: pd.DataFrame, max_tokens: int) -> None:
    """Write the pairs of at most so many tokens as documents, and count them.

    Args:
        draft: Draft of the artifact.
        table: Pairs, from :func:`with_lengths`.
        max_tokens: Most tokens of a pair.

    Raises:
        DataError: If no pair is left.
    """
    kept = table[table["tokens"] <= max_tokens]
    if kept.empty:
        raise DataError(f"no pair has at most max_tokens={max_tokens} tokens")
    rows = zip(kept["doc_id"], kept["domain"], kept["text"], strict=True)
    write_parts(document_tables(Document(*row) for row in rows), draft.path, DOCUMENTS)
    draft.counts |= {
        "pairs": len(kept),
        "tokens": int(kept["tokens"].sum()),
        "too_long": len(table) - len(kept),
    }


def choice_stage(
    pairs: Path,
    vocabulary: Path,
    scores: Path | None,
    target: str,
    settings: TranslationSettings,
    folder: Path,
) -> Artifact:
    """Choose the training pairs with the lowest scores, of all domains, up to a number of tokens.

    Args:
        pairs: Artifact of :func:`dana.studies.translation.pairs.pairs_stage`.
        vocabulary: Artifact of :func:`vocabulary_stage`.
        scores: Scores of the target sides of the pool; None for the oracle, which takes pairs of
            the domain alone.
        target: Domain to choose text for.
        settings: The share of the tokens, and the most tokens of a pair.
        folder: Folder of the documents; the manifest has precision and recall of the domain's
            pairs, with the largest that such a number of pairs can have.
    """
    depends_on: dict[str, Any] = {
        "pairs": open_artifact(pairs, PAIRS).fingerprint,
        "vocabulary": open_artifact(vocabulary, VOCABULARY).fingerprint,
        "target": target,
        "scores": open_artifact(scores, "scores").fingerprint if scores else ORACLE,
        "domains": settings.domains,
        "share": settings.share,
        "max_tokens": settings.max_tokens,
        "seed": settings.seed,
    }

    def write(draft: Draft) -> None:
        table = open_domains(pairs, settings.domains, "train")
        table = with_lengths(table, load_own_tokenizer(str(vocabulary)))
        table = table[table["tokens"] <= settings.max_tokens].reset_index(drop=True)
        is_target = (table["domain"] == target).to_numpy()
        tokens = table["tokens"].to_numpy()
        if scores:
            score = document_scores(scores, table["doc_id"].tolist())
            rows = _lowest_within(score, tokens, settings)
        else:  # the oracle
            score = np.where(is_target, 0.0, np.inf)
            rows = _lowest_within(score, tokens, settings)
            rows = rows[is_target[rows]]
        if not rows.size:
            raise DataError(
                f"share={settings.share}: no pair has so few tokens; choose a larger share"
            )
        _write_text(draft, table.iloc[np.sort(rows)], settings.max_tokens)
        is_left_out = ~np.isin(np.arange(len(table)), rows)
        draft.notes["choice"] = budget_measures(is_left_out, is_target, rows.size)

    return make(folder, "pool", depends_on, write)


def _lowest_within(
    score: np.ndarray, tokens: np.ndarray, settings: TranslationSettings
) -> np.ndarray:
    """Return the rows with the lowest scores that together have a share of all tokens.

    Ties are in random order.
    """
    order = generator(settings.seed, "translation", "ties").permutation(score.size)
    order = order[np.argsort(score[order], kind="stable")]
    lowest: np.ndarray = order[np.cumsum(tokens[order]) <= settings.share * tokens.sum()]
    return lowest


def new_translator(tokenizer: Any, settings: TranslationSettings) -> LanguageModel:
    """Create an untrained Marian with heads of width 64.

    Both sides and the output share one table of embeddings.
    """
    from transformers import MarianConfig, MarianMTModel

    heads = settings.width // 64
    config = MarianConfig(
        vocab_size=len(tokenizer),
        scale_embedding=True,
        d_model=settings.width,
        max_position_embeddings=1024,
        encoder_layers=settings.layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=4 * settings.width,
        decoder_layers=settings.layers,
        decoder_attention_heads=heads,
        decoder_ffn_dim=4 * settings.width,
        pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
        dropout=settings.dropout,
        attention_dropout=settings.dropout,
        activation_dropout=settings.dropout,
    )
    with torch_seed(derive_seed(settings.seed, "scratch")):
        return LanguageModel(MarianMTModel(config), tokenizer)


def training_settings(settings: TranslationSettings, passes: int, steps: int) -> TrainSettings:
    """Return the settings of a training of so many passes with so many steps each."""
    return TrainSettings(
        objective=f"translation:smoothing={settings.smoothing}",
        denominator="token_count",
        steps=passes * steps,
        eval_every=steps,
        schedule="inverse-sqrt",  # its rates do not depend on the number of steps
        betas=[0.9, 0.98],
        weight_decay=0.0,
        execution=Execution(settings.micro_batch_tokens),
        batch_tokens=settings.batch_tokens,
        max_tokens=settings.max_tokens,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        seed=settings.seed,
    )


def train_stage(
    text: Path,
    dev: Path,
    pairs: Path,
    vocabulary: Path,
    target: str,
    settings: TranslationSettings,
    folder: Path,
) -> Artifact:
    """Train a translator until BLEU on development text has not risen for ``patience`` passes.

    After each pass the model is saved and translates the development text. The pass with the
    highest BLEU is chosen, of equals the one with the lowest held-out loss.

    Args:
        text: Documents to train on.
        dev: Development text of the target, for the held-out loss.
        pairs: Artifact with the development pairs to translate.
        vocabulary: Artifact of :func:`vocabulary_stage`.
        target: Domain whose development text decides; ``all`` for that of all.
        settings: Model and training.
        folder: Holds ``epoch-N``, a model each, ``trained``, the last of them, and ``chosen`` with
            ``history.csv`` (epoch, bleu, loss).
    """
    tokens = open_artifact(text, "pool").manifest["counts"]["tokens"]
    steps = max(2, math.ceil(tokens / settings.batch_tokens))
    tokenizer = load_own_tokenizer(str(vocabulary))
    training = training_settings(settings, settings.epochs, steps)
    data = TrainingData(text, None, dev, dev)
    domains = settings.domains if target == ALL else [target]
    origin = {
        "layers": settings.layers,
        "width": settings.width,
        "dropout": settings.dropout,
        "smoothing": settings.smoothing,
        "tokenizer": tokenizer_identity(tokenizer, "are text"),
        "version": Translation.version,
        "patience": settings.patience,
        "pairs": open_artifact(pairs, PAIRS).fingerprint,
        "domains": domains,
    }

    def save(state: TrainingState, epoch: int) -> None:
        depends_on = {**origin, **data.identity(), "training": training.decisive(), "epoch": epoch}

        def write(draft: Draft) -> None:
            save_model(state, tokenizer, draft.path)

        make(folder / f"epoch-{epoch}", "model", depends_on, write)

    def measure(epoch: int, loss: float | None) -> dict[str, Any]:
        translations = translate_stage(
            folder / f"epoch-{epoch}", pairs, domains, "dev", settings, folder / f"dev-{epoch}"
        )
        bleu = translations.manifest["measures"]["bleu"]
        return {"epoch": epoch, "bleu": bleu, "loss": loss}

    def history(records: Iterable[Record]) -> list[dict[str, Any]]:
        passes = []
        for record in records:
            if isinstance(record, EvaluationRecord) and record.step > 0:
                passes.append(measure(record.step // steps, record.target_loss))
        return passes

    def has_stopped_rising(state: TrainingState, records: Sequence[Record]) -> bool:
        step = records[-1].step
        if step == 0:
            return False
        save(state, step // steps)
        passes = history(records)
        log.info("translator %s: epoch %d, BLEU %.2f, loss %.4f", folder.name, *passes[-1].values())
        epochs_since_best: int = passes[-1]["epoch"] - best_pass(passes)["epoch"]
        return epochs_since_best >= settings.patience

    job = TrainingJob(
        "a new Marian",
        partial(new_translator, tokenizer, settings),
        data,
        training,
        after_evaluation=has_stopped_rising,
    )
    model = run_job(job, origin, folder / "trained")
    lines = (model.path / RECORDS).read_text(encoding="utf-8").splitlines()
    passes = history(map(from_line, lines))
    best = best_pass(passes)

    def write(draft: Draft) -> None:
        write_text(draft.path / HISTORY, pd.DataFrame(passes).to_csv(index=False))
        draft.notes |= {"epoch": best["epoch"], "model": f"epoch-{best['epoch']}"}
        draft.counts = {"tokens": tokens, "epochs": len(passes)}

    depends_on = {"model": model.fingerprint, "history": passes}
    return make(folder / "chosen", TRANSLATOR, depends_on, write)


def best_pass(passes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the pass with the highest BLEU; of equals, the one with the lowest held-out loss."""
    return max(passes, key=lambda result: (result["bleu"], -result["loss"]))


def chosen_model(translator: Path) -> Path:
    """Return the folder of the model that a translator's artifact names; of a model, its own."""
    name: str = read_manifest(translator).get("model", translator.name)
    return translator.parent / name


def translate_stage(
    model: Path,
    pairs: Path,
    domains: list[str],
    split: str,
    settings: TranslationSettings,
    folder: Path,
) -> Artifact:
    """Translate text and measure BLEU, chrF and the mean loss of a target token, in nats.

    Args:
        model: Folder of a model, or of a translator.
        pairs: Artifact of pairs.
        domains: Domains to translate text of.
        split: ``dev``, by greedy search, or ``test``.
        settings: Beams, most pairs, and most tokens of a pair.
        folder: Folder of ``translations.parquet``: doc_id, reference, translation.
    """
    model = chosen_model(model)
    is_dev = split == "dev"
    beams = 1 if is_dev else settings.beams
    limit = settings.dev_pairs if is_dev else settings.test_pairs
    depends_on: dict[str, Any] = {
        "model": open_artifact(model, "model").fingerprint,
        "beams": beams,
        "most": limit,
        "pairs": open_artifact(pairs, PAIRS).fingerprint,
        "domains": domains,
        "split": split,
        "max_tokens": settings.max_tokens,
        "signatures": signatures(),
        "method": 2,
    }

    def write(draft: Draft) -> None:
        from transformers import AutoModelForSeq2SeqLM

        network = load_complete(AutoModelForSeq2SeqLM, str(model))
        tokenizer = load_own_tokenizer(str(model))
        network.to(find_device())
        table = open_domains(pairs, domains, split, limit)
        sources = table["source"].tolist()
        translations = translate(network, tokenizer, sources, beams, settings.max_tokens)
        output = table[["doc_id"]].assign(reference=table["target"], translation=translations)
        output.to_parquet(draft.path / OUTPUT, compression="zstd", index=False)
        measures = corpus_measures(translations, table["target"].tolist())
        measures["loss"] = target_loss(network, tokenizer, table, settings)
        draft.notes["measures"] = measures
        draft.counts["pairs"] = len(table)

    return make(folder, TRANSLATIONS, depends_on, write)


def translate(
    model: Any, tokenizer: Any, texts: Sequence[str], beams: int, max_tokens: int
) -> list[str]:
    """Translate texts by beam search, longest first, each as if alone.

    A translation has at most 2 n + 10 tokens, n being those of its source rounded up to a power of
    two: sources with one limit are translated together.

    Args:
        model: An encoder-decoder.
        tokenizer: Its tokenizer.
        texts: Sources; what is longer than `max_tokens` is cut.
        beams: Number of beams; 1 is greedy.
        max_tokens: Most tokens of a source, and of a translation.
    """
    lines = [" ".join(text.split()) for text in texts]
    encodings = uncut(tokenizer).encode_batch(lines, add_special_tokens=False)
    end = tokenizer.eos_token_id
    pad = tokenizer.pad_token_id
    sources = [[*encoding.ids[: max_tokens - 1], end] for encoding in encodings]
    limits = [min((2 << (len(ids) - 1).bit_length()) + 10, max_tokens) for ids in sources]
    translations = [""] * len(sources)
    model.eval()
    blocks = _blocks_of_one_limit(sources, limits)
    for rows in monitor(blocks, what="translating", unit="blocks"):
        longest = len(sources[rows[0]])
        padded = [sources[row] + [pad] * (longest - len(sources[row])) for row in rows]
        ids = torch.tensor(padded, device=model.device)
        with torch.no_grad():
            tokens = model.generate(
                input_ids=ids,
                attention_mask=(ids != pad).long(),
                num_beams=beams,
                do_sample=False,
                early_stopping=beams > 1,
                max_new_tokens=limits[rows[0]],
                suppress_tokens=[pad, tokenizer.vocab[TAB]],
            )
        decoded = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        for row, translation in zip(rows, decoded, strict=True):
            translations[row] = " ".join(translation.split())
    return translations


def _blocks_of_one_limit(sources: Sequence[list[int]], limits: Sequence[int]) -> list[list[int]]:
    """Divide sources into blocks that are translated together.

    Args:
        sources: Tokens of each source.
        limits: Most tokens of each translation, a function of the source's number of tokens.

    Returns:
        Rows of each block, the longest source first; all of a block have one limit.
    """
    order = sorted(range(len(sources)), key=lambda row: -len(sources[row]))
    blocks = []
    for _, group in groupby(order, key=lambda row: limits[row]):
        rows = list(group)
        for start in range(0, len(rows), AT_ONCE):
            blocks.append(rows[start : start + AT_ONCE])
    return blocks


def target_loss(
    model: Any, tokenizer: Any, table: pd.DataFrame, settings: TranslationSettings
) -> float:
    """Compute the mean negative log-likelihood of a target token, in nats.

    Pairs of more than ``max_tokens`` tokens do not count.
    """
    objective = Translation()
    accelerator = make_accelerator([], Path())
    collator = objective.heldout_collator(tokenizer)
    table = with_lengths(table, tokenizer)
    table = table[table["tokens"] <= settings.max_tokens]
    documents = map(Document, table["doc_id"], table["doc_id"], table["text"])
    examples, _ = build_examples(
        Tokens.from_documents(documents, tokenizer),
        None,
        collator.special_tokens,
        settings.max_tokens,
    )
    shape = BatchLayout.from_config(model.config, settings.micro_batch_tokens)
    sums, counts = example_losses(objective.module(model), examples, collator, shape, accelerator)
    return float(sums.sum() / counts.sum())


def _metrics() -> dict[str, Any]:
    """Return the metrics of sacrebleu with their defaults.

    Raises:
        ConfigError: If sacrebleu is not installed.
    """
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError as error:
        raise ConfigError(
            f"translation: needs sacrebleu: {install_command('translation')}"
        ) from error
    return {"bleu": BLEU(), "chrf": CHRF()}


def corpus_measures(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Compute corpus BLEU and chrF, both from 0 to 100."""
    measures = {}
    for name, metric in _metrics().items():
        score = metric.corpus_score(list(translations), [list(references)])
        measures[name] = float(score.score)
    return measures


def signatures() -> dict[str, str]:
    """Return the signature of each metric, for one reference."""
    metrics = _metrics()
    for metric in metrics.values():
        metric.corpus_score(["a"], [["a"]])  # which sets the number of references
    return {name: str(metric.get_signature()) for name, metric in metrics.items()}
