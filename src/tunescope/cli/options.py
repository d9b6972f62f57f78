"""The options that verbs share, and the plan that they come to. Nothing heavy is imported until then."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tunescope.errors import UserError

if TYPE_CHECKING:
    from tunescope.trial.plan import Plan

Many = Parameter(consume_multiple=True, negative="", show_default=False)


def _names(*names: str) -> Parameter:
    return Parameter(name=list(names))


@Parameter(name="*")
@dataclass(frozen=True)
class TaskOptions:
    """What the rows mean.

    Attributes:
        task: classification, generation, or reasoning (an answer that is read out of what the model writes).
        text_field: the field with the text (default: text).
        label_field: the field with the label (default: label).
        input_field: for generation and reasoning, the field with the input (default: input).
        target_field: for generation and reasoning, the field with the text to write (default: target).
        steps_field: for reasoning, the field that says how one comes to the answer (default: steps).
        lead: for reasoning, the words in front of an answer (default: The answer is).
        read: for reasoning, what is read behind them: line, number, or one of choices, as yes,no (default: line).
        template: with {FIELD}s, such as "{text} It was"; {mask} is the place of the answer where it is not the end.
        words: label words, as neg=bad,pos=great (default: the labels themselves).
        by: how an encoder answers: head (a new one, the default), or words at the template's {mask}.
        metric: for generation, one or more; the first decides, the others are told (default: exact_match).
        lowercase: for generation and reasoning, ignore case in the metric.
        max_new_tokens: for generation and reasoning, the longest answer (default: from the training targets).
        beams: for generation, of a beam search (default: 1, greedy).
        length_penalty: for generation, of beams: above 0 longer answers gain (default: 1).
        min_new_tokens: for generation, the shortest answer.
        no_repeat_ngram: for generation, no run of so many tokens twice in an answer.
        label_smoothing: for generation, the share of a target token's probability that is spread over all tokens.
        z_loss: for generation, this times the squared log of the softmax's sum is added to the loss.
        source_language: for generation by a model whose tokenizer marks languages (mBART), of the inputs: en_XX, or en.
        target_language: the same, of the answers.
    """

    task: str = "classification"
    text_field: Annotated[str | None, _names("--text-field", "--text")] = None
    label_field: Annotated[str | None, _names("--label-field", "--label")] = None
    input_field: Annotated[str | None, _names("--input-field", "--input")] = None
    target_field: Annotated[str | None, _names("--target-field", "--target")] = None
    steps_field: Annotated[str | None, _names("--steps-field")] = None
    lead: str | None = None
    read: str | None = None
    template: str | None = None
    words: Annotated[tuple[str, ...], Many] = ()
    by: str | None = None
    metric: Annotated[tuple[str, ...], Many] = ()
    lowercase: Annotated[bool | None, Parameter(negative="")] = None
    max_new_tokens: int | None = None
    beams: int | None = None
    length_penalty: float | None = None
    min_new_tokens: int | None = None
    no_repeat_ngram: int | None = None
    label_smoothing: float | None = None
    z_loss: float | None = None
    source_language: str | None = None
    target_language: str | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class TrainingOptions:
    """How every arm is trained.

    Attributes:
        steps: updates of one run, at most.
        batch_size: rows of one update.
        accumulate: parts that a batch is cut into, to save memory.
        eval_every: steps between development scores (default: a tenth of the steps).
        patience: development scores in a row without a new best before stopping.
        optimizer: adamw or adafactor.
        schedule: constant, linear or cosine.
        warmup: share of the steps in which the rate rises.
        weight_decay: of the trained tensors.
        clip: the largest norm of the gradient.
        precision: auto (bfloat16 on a GPU that has it), float32 or bfloat16.
    """

    steps: int = 500
    batch_size: int = 16
    accumulate: int | None = None
    eval_every: int | None = None
    patience: int | None = None
    optimizer: str | None = None
    schedule: str | None = None
    warmup: float | None = None
    weight_decay: float | None = None
    clip: float | None = None
    precision: str | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class ProtocolOptions:
    """What is compared, and how often.

    Attributes:
        dev: development rows (default: a tenth of the training rows).
        test: test rows (default: a tenth of the training rows).
        arms: such as zero-shot demos:k=4 prefix lora:rank=4; `tunescope arms` lists the methods.
        budget: stored parameters of each arm; several repeat the arms.
        seeds: how many, or which.
        trials: learning rates tried for each arm, from its method's own grid (default: 3).
        lr: these learning rates for every arm instead.
        halving: stop learning rates that have clearly lost: at a third of the steps the best third goes on.
        beyond: learning rates past an end of its grid that an arm may try, one at a time, while the last one wins.
        together: runs that share each pass of the model, where they can; 0 measures what is quickest, and tells.
        k_shot: train on so many rows of each label, drawn by each seed, and choose by as many others; needs --test.
    """

    dev: str | None = None
    test: str | None = None
    arms: Annotated[tuple[str, ...], Many] = ()
    budget: Annotated[tuple[int, ...], Many] = ()
    seeds: Annotated[tuple[int, ...], Many] = (3,)
    trials: int | None = None
    lr: Annotated[tuple[float, ...], Many] = ()
    k_shot: int | None = None
    together: int = 1
    halving: bool = False
    beyond: int = 0


def question(
    model: str,
    data: str,
    protocol: ProtocolOptions | None,
    task: TaskOptions | None,
    training: TrainingOptions | None,
) -> "Plan":
    """What was asked, checked; nothing is loaded yet."""
    from tunescope.system import machine
    from tunescope.trial import plan
    from tunescope.trial.plan import default_settings, with_settings

    protocol, training = protocol or ProtocolOptions(), training or TrainingOptions()
    if protocol.lr and protocol.trials is not None:
        raise UserError("--lr says which learning rates are tried, and --trials how many of a method's own; give one.")
    parts = {"train": data, "dev": protocol.dev, "test": protocol.test}
    asked = plan.Plan(
        model=model,
        data=plan.data_paths({part: path for part, path in parts.items() if path is not None}),
        task=_task(task or TaskOptions()),
        arms=protocol.arms,
        budgets=protocol.budget,
        seeds=tuple(range(protocol.seeds[0])) if len(protocol.seeds) == 1 else protocol.seeds,
        trials=3 if protocol.trials is None else protocol.trials,
        rates=protocol.lr,
        k_shot=protocol.k_shot,
        together=protocol.together,
        halving=protocol.halving,
        beyond=protocol.beyond,
        device=machine.default_device().type,
        settings=with_settings(default_settings(training.steps, training.batch_size), **vars(training)),
    )
    return plan.check(asked)


def _task(options: TaskOptions) -> dict[str, Any]:
    """Only what was given: the rest is the task's own default."""
    from tunescope.system.plugins import one_of
    from tunescope.trial.command import TASK_OPTIONS

    one_of("task", options.task, ("classification", "generation", "reasoning"))
    written = {
        "input": options.input_field,
        "target": options.target_field,
        "lowercase": options.lowercase,
        "max_new_tokens": options.max_new_tokens,
    }
    fields: dict[str, dict[str, Any]] = {
        "classification": {
            "text": options.text_field,
            "label": options.label_field,
            "words": _words(options.words),
            "by": options.by,
        },
        "generation": {
            **written,
            "metric": next(iter(options.metric), None),
            "also": options.metric[1:] or None,
            "beams": options.beams,
            "length_penalty": options.length_penalty,
            "min_new_tokens": options.min_new_tokens,
            "no_repeat_ngram": options.no_repeat_ngram,
            "label_smoothing": options.label_smoothing,
            "z_loss": options.z_loss,
            "source_language": options.source_language,
            "target_language": options.target_language,
        },
        "reasoning": {**written, "steps": options.steps_field, "lead": options.lead, "read": options.read},
    }
    for kind, mine in fields.items():
        allowed = fields[options.task]
        wrong = next((name for name, value in mine.items() if value is not None and name not in allowed), None)
        if wrong is not None:
            raise UserError(f"{TASK_OPTIONS[wrong]} is for --task {kind}, and this is --task {options.task}.")
    given = fields[options.task] | {"template": options.template}
    return {"kind": options.task} | {name: value for name, value in given.items() if value is not None}


def _words(items: tuple[str, ...]) -> dict[str, str] | None:
    pairs = [item.partition("=") for text in items for item in text.split(",")]
    wrong = next(("".join(pair) for pair in pairs if not (pair[0].strip() and pair[2].strip())), None)
    if wrong is not None:
        raise UserError(f"--words has {wrong!r}; give LABEL=WORD for each label, as in --words neg=bad,pos=great")
    return {label.strip(): word.strip() for label, _, word in pairs} or None
