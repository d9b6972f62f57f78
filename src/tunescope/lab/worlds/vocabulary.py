"""A tokenizer for the digit world: one token a number and one a line end; a number's token id is the number."""

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Sequence, Split
from transformers import PreTrainedTokenizerFast

from tunescope.lab.worlds.world import World

LINE, PAD, EOS, UNKNOWN = "\n", "<pad>", "<eos>", "<unk>"


def tokenizer_for(world: World) -> PreTrainedTokenizerFast:
    """The world's tokenizer, without a beginning token: a prompt is its numbers and line ends, and nothing else."""
    words = [*(str(number) for number in range(world.largest + 1)), LINE, PAD, EOS, UNKNOWN]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN))
    lines, spaces = Split(LINE, "isolated"), Split(Regex("[^\\S\n]+"), "removed")
    tokenizer.pre_tokenizer = Sequence([lines, spaces])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
