"""A tokenizer for the digit world: one token a number and one a line end; a number's token id is the number."""

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Sequence, Split
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from tunescope.lab.worlds.world import World

LINE, PAD, EOS, UNKNOWN = "\n", "<pad>", "<eos>", "<unk>"
FIRST, MASK = "<first>", "<mask>"


def tokenizer_for(world: World, words: tuple[str, ...] = (), *, encoder: bool = False) -> PreTrainedTokenizerFast:
    """The world's tokenizer, without a beginning token: a prompt is its numbers and line ends, and nothing else.

    words: further ones. encoder: it has a mask, and puts a first token in front, whose state a head may read.
    """
    known = [*(str(number) for number in range(world.largest + 1)), LINE, PAD, EOS, UNKNOWN, *words]
    known += [FIRST, MASK] if encoder else []
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(known)}, unk_token=UNKNOWN))
    lines, spaces = Split(LINE, "isolated"), Split(Regex("[^\\S\n]+"), "removed")
    tokenizer.pre_tokenizer = Sequence([lines, spaces])
    more = {}
    if encoder:
        tokenizer.post_processor = TemplateProcessing(
            single=f"{FIRST} $A", special_tokens=[(FIRST, known.index(FIRST))]
        )
        more = {"cls_token": FIRST, "mask_token": MASK}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="right" if encoder else "left",
        clean_up_tokenization_spaces=False,
        **more,
    )
