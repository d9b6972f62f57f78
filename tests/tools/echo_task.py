"""A made-up kind of task, with an option of its own."""

ECHO = '''
"""Echo: a text, to be written again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from tunescope.system.option import Option
from tunescope.tasks.kinds.generation import Generation
from tunescope.tasks.options import INPUT, TEMPLATE
from tunescope.tasks.task import Encoded, Prediction, Task


@dataclass(frozen=True, kw_only=True)
class Echo(Task):
    about: ClassVar[str] = "a text, written again"
    writes: ClassVar[bool] = True
    metric = "exact_match"

    input: Annotated[str, INPUT] = "input"
    template: Annotated[str, TEMPLATE] = "{input} again:"
    times: Annotated[int, Option("for {kinds}, how often it is written.", ("--echo-times",))] = 1
    max_new_tokens: int = 4

    needs_head = None

    @classmethod
    def usual(cls, given, model_kind):
        return {"template": f"{{{given.get('input', 'input')}}} again:"}

    def _written(self):
        return Generation(input=self.input, target="echo", template=self.template, max_new_tokens=self.max_new_tokens)

    def _rows(self, rows):
        return [{**row, "echo": " ".join([row[self.input]] * self.times)} for row in rows]

    def fields(self):
        return (self.input,)

    def prepare(self, splits, tokenizer, *, model_kind):
        return self

    def encode(self, rows, tokenizer, **how):
        return self._written().encode(self._rows(rows), tokenizer, **how)

    def loss(self, model, batch, tokenizer):
        return self._written().loss(model, batch, tokenizer)

    def row_losses(self, model, batch, tokenizer):
        return self._written().row_losses(model, batch, tokenizer)

    def predict(self, model, rows, tokenizer, *, batch_size=32):
        return self._written().predict(model, rows, tokenizer, batch_size=batch_size)

    def demonstrations(self, rows, k, seed):
        return self._written().demonstrations(self._rows(rows), k, seed)

    def describe(self):
        return {**self._written().describe(), "kind": "echo", "times": self.times}
'''
