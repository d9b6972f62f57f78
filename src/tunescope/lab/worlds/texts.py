"""Plain texts as rows of token ids: a byte-level BPE tokenizer trained on them, and the objectives of pretraining.

Every row has the same length, so that nothing is padded. The last rows of the shuffled whole are held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tunescope.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Ids = NDArray[np.int64]
SENTINELS = 100
END, PAD, UNKNOWN, MASK = "</s>", "<pad>", "<unk>", "<mask>"
NOISE, SPAN = 0.15, 3.0  # Raffel et al. 2020, section 3.3.4


@dataclass(frozen=True)
class Corpus:
    """(rows, length) ids to learn from, and as many columns of rows held out; characters are those of a held-out token.

    characters_a_token: of the held-out rows as text, so that losses of different tokenizers can be compared.
    """

    train: Tensor
    held_out: Tensor
    characters_a_token: float


def tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of `vocabulary` tokens, T5's hundred sentinels among them.

    It has an end, a padding and an unknown token, and adds the end to nothing.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    sentinels = [f"<extra_id_{number}>" for number in range(SENTINELS)]
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - SENTINELS,
        special_tokens=[PAD, END, UNKNOWN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(texts, trainer)
    made.add_special_tokens(sentinels)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=sentinels,
        clean_up_tokenization_spaces=False,
    )


def corpus(
    texts: Sequence[str], words: PreTrainedTokenizerFast, length: int, seed: int, held_out: float = 0.02
) -> Corpus:
    """The texts one after another, an end token behind each, cut into rows that are shuffled by `seed`.

    What a text spells like a special token, such as </s>, is text.

    Raises:
        UserError: too little text for twenty rows.
    """
    ids = [
        token
        for one in words(list(texts), split_special_tokens=True)["input_ids"]
        for token in (*one, words.eos_token_id)
    ]
    count = len(ids) // length
    if count < 20:
        raise UserError(
            f"The texts come to {len(ids)} tokens, {count} rows of {length}; at least 20 are needed. Give more text."
        )
    rows = torch.tensor(ids[: count * length]).view(count, length)
    rows = rows[torch.randperm(count, generator=torch.Generator().manual_seed(seed))]
    kept = max(1, round(count * held_out))
    watched = rows[-kept:]
    characters = sum(len(text) for text in words.batch_decode(watched, skip_special_tokens=True))
    return Corpus(rows[:-kept], watched, characters / watched.numel())


def corrupted(rows: Tensor, words: PreTrainedTokenizerFast, seed: int) -> tuple[Tensor, Tensor]:
    """Span corruption (Raffel et al. 2020, section 3.1.4): inputs and targets, each of one width.

    `NOISE` of the tokens stand in spans of `SPAN` on average. In the inputs a sentinel stands for each span; the
    targets are the sentinels, each with its span behind it, one more sentinel, and the end.
    """
    draw = np.random.default_rng(seed)
    length = rows.shape[1]
    noise = max(1, round(length * NOISE))
    spans = max(1, round(noise / SPAN))
    first = words.convert_tokens_to_ids("<extra_id_0>")
    made = [_corrupt(row, noise, spans, first, draw) for row in rows.numpy()]
    inputs, targets = (torch.from_numpy(np.stack(part)) for part in zip(*made, strict=True))
    return _ended(inputs, words), _ended(targets, words)


def with_mask(words: PreTrainedTokenizerFast, length: int) -> PreTrainedTokenizerFast:
    """The tokenizer with a mask token, which takes the space before it, and as many positions as a row has."""
    from tokenizers import AddedToken

    words.add_special_tokens({"mask_token": AddedToken(MASK, lstrip=True, special=True)})
    words.model_max_length = length
    return words


def masked(rows: Tensor, words: PreTrainedTokenizerFast, seed: int, noise: float = NOISE) -> tuple[Tensor, Tensor]:
    """Masked language modelling (Devlin et al. 2019, section 3.1): inputs, and targets that are -100 elsewhere.

    `noise` of each row's tokens are to be told: eight of ten stand as the mask, one as any token, one as it is.
    """
    draw = torch.Generator().manual_seed(seed)
    count = max(1, round(rows.shape[1] * noise))
    places = torch.rand(rows.shape, generator=draw).argsort(1)[:, :count]
    own, how = rows.gather(1, places), torch.rand(places.shape, generator=draw)
    other = torch.randint(len(words), places.shape, generator=draw)
    mask = torch.full_like(own, words.mask_token_id)
    shown = torch.where(how < 0.8, mask, torch.where(how < 0.9, other, own))
    return rows.scatter(1, places, shown), torch.full_like(rows, -100).scatter(1, places, own)


def halves(rows: Tensor, words: PreTrainedTokenizerFast) -> tuple[Tensor, Tensor]:
    """LM adaptation's pairs (Lester et al. 2021, section 3.2): a row's first half as input, its second as target."""
    middle = rows.shape[1] // 2
    return _ended(rows[:, :middle], words), _ended(rows[:, middle:], words)


def _corrupt(row: Ids, noise: int, spans: int, first: int, draw: np.random.Generator) -> tuple[Ids, Ids]:
    kept = _parts(len(row) - noise, spans, draw)
    dropped = _parts(noise, spans, draw)
    inputs: list[Ids] = []
    targets: list[Ids] = []
    at = 0
    for number, (some, out) in enumerate(zip(kept, dropped, strict=True)):
        sentinel = np.array([first + number])
        inputs += [row[at : at + some], sentinel]
        targets += [sentinel, row[at + some : at + some + out]]
        at += some + out
    return np.concatenate(inputs), np.concatenate([*targets, np.array([first + spans])])


def _parts(total: int, count: int, draw: np.random.Generator) -> list[int]:
    """`count` whole numbers above 0 with this sum, all such lists equally likely."""
    cuts = np.sort(draw.permutation(total - 1)[: count - 1]) + 1
    found: list[int] = np.diff([0, *cuts, total]).tolist()
    return found


def _ended(ids: Tensor, words: PreTrainedTokenizerFast) -> Tensor:
    return torch.cat([ids, torch.full((len(ids), 1), words.eos_token_id)], 1)
