"""Options that several kinds of task have; what only one has stands with its field."""

from tunescope.system.option import Option

TEMPLATE = Option('with {FIELD}s, such as "{text} It was"; {mask} is the place of the answer where it is not the end.')
WORDS = Option(
    "label words, as neg=bad,pos=great, with a backslash before a comma of either and a = of a label "
    "(default: the labels themselves)."
)
CHAT = Option("ask each row as the user's turn of a chat, as the tokenizer's chat template writes it.")
SYSTEM = Option("with --chat, what the system says (default: as the chat template has it).")
INPUT = Option("for {kinds}, the field with the input (default: input).", ("--input-field", "--input"))
TARGET = Option("for {kinds}, the field with the text to write (default: target).", ("--target-field", "--target"))
LOWERCASE = Option("for {kinds}, ignore case in the metric.")
MAX_NEW_TOKENS = Option("for {kinds}, the longest answer (default: from the training targets).")
