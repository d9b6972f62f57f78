"""The comparison and its verdict on a file of your own, and new rows answered by what did best, from Python."""

import json
import sys
from pathlib import Path

import tunescope as ts

NAME = sys.argv[1] if len(sys.argv) > 1 else "openai-community/gpt2"
DATA = Path("reviews.jsonl")

if not DATA.exists():  # in place of yours: 120 made-up rows
    good, bad = ["gorgeous", "witty", "warm", "wise"], ["dull", "slow", "cold", "trite"]
    rows = [
        {"text": f"a {word} film, number {number}", "label": label}
        for number in range(15)
        for label, words in (("positive", good), ("negative", bad))
        for word in words
    ]
    DATA.write_text("".join(json.dumps(row) + "\n" for row in rows))

run = ts.compare(
    NAME,
    DATA,
    arms=["zero-shot", "prefix", "lora"],
    budget=60_000,
    steps=20,  # too few, so that this ends soon; leave it out for your own
    seeds=3,
    template="{text} It was",
    words={"negative": "terrible", "positive": "great"},
    out="reviews-run",
    quiet=True,
)
print(run)  # the table and the verdict
print("the page:", run.folder / "report.html")
for row in run.predict([{"text": "a witty film, all in all"}, {"text": "cold, and never wise"}]):
    print(f"{row['text']}: {row['prediction']}, with a probability of {row['prediction_probability']}")
