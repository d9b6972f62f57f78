"""Tasks of lm-evaluation-harness in a folder, as YAML and JSONL of its own forms; and the models that they are put to.

With TUNESCOPE_PRETRAINED=FOLDER the model is that one, a really pretrained decoder.
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import tiny
from tokenizers.processors import TemplateProcessing

from tunescope.models.load import load_model

PRETRAINED = os.environ.get("TUNESCOPE_PRETRAINED")
ENGLISH = ["river", "stone", "apple", "table", "window", "garden", "music", "paper", "silver", "winter", "doctor"]
FRONT = "river stone apple" if PRETRAINED else "w5 w9 w4"
FORMS = {
    "choosing": """
        output_type: multiple_choice
        doc_to_text: "{{question}}\\nw8:"
        doc_to_choice: options
        doc_to_target: gold
        metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]""",
    "writing": """
        output_type: generate_until
        doc_to_text: "{{question}}\\nw8:"
        doc_to_target: answer
        generation_kwargs: {until: ["w6", "stone"], max_gen_toks: 9, do_sample: false}
        metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]""",
    "reading": """
        output_type: loglikelihood_rolling
        doc_to_text: ""
        doc_to_target: question
        metric_list: [{metric: word_perplexity, aggregation: weighted_perplexity, higher_is_better: false}]""",
}


def docs(count: int, seed: int) -> list[dict[str, Any]]:
    """Questions of many lengths, each with its own choices, of one to three words."""
    draw = random.Random(seed)
    words = ENGLISH if PRETRAINED else [f"w{index}" for index in range(10, tiny.VOCAB)]
    made = []
    for _ in range(count):
        first = draw.sample(words, draw.randint(2, 4))  # so that no two are the same
        options = [" ".join([one, *draw.sample(words, draw.randint(0, 2))]) for one in first]
        gold = draw.randrange(len(options))
        question = " ".join(draw.choices(words, k=draw.randint(3, 14)))
        made.append({"question": question, "options": options, "gold": gold, "answer": options[gold]})
    return made


def write(folder: Path, *, more: str = "", parts: tuple[str, ...] = ("test",), count: int = 20) -> Path:
    """A folder with the three tasks. more: further lines of each YAML."""
    folder.mkdir()
    for seed, part in enumerate(parts):
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in docs(count, seed)))
    names = {"train": "training_split", "validation": "validation_split", "test": "test_split"}
    splits = "\n".join(f"{names[part]}: {part}" for part in parts)
    files = ", ".join(f"{part}: {folder / part}.jsonl" for part in parts)
    for name, form in FORMS.items():
        own = "\n".join(line.strip() for line in form.splitlines())
        text = f"task: {name}\ndataset_path: json\ndataset_kwargs: {{data_files: {{{files}}}}}\n{splits}\n{own}\n{more}"
        (folder / f"{name}.yaml").write_text(text)
    return folder


def model(folder: Path, family: str = "llama") -> str:
    """The folder of a model: a tiny random one whose tokenizer begins each text, or ends it, or the pretrained one."""
    if PRETRAINED and family == "llama":
        return PRETRAINED
    import torch

    tokenizer = tiny.tokenizer()
    edge = TemplateProcessing(
        single="$A </s>" if family == "t5" else "<s> $A", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    tokenizer.backend_tokenizer.post_processor = edge
    tiny.make(family, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def loaded(name: str) -> tuple[Any, Any]:
    """(model, tokenizer), in eval mode and float32."""
    made, tokenizer = load_model(name)
    return made.float().eval(), tokenizer
