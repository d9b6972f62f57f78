"""The mix-and-match adapter against what it is made of, and the rest of the field.

As published, every method has the size that the paper gave it; under the tuned protocol all have MAM's share of the
parameters, so that they are compared at one size, and on a decoder each mix is there twice: its prefix begun as noise,
and as tokens. An encoder's MAM is that of the paper's GLUE, and so is the share of its rivals.
"""

from dataclasses import replace
from typing import NamedTuple

from tunescope.reproduce import corpus_line, corpus_table, published
from tunescope.reproduce.ask import Ask
from tunescope.reproduce.corpus_table import Line
from tunescope.reproduce.recipe import Settings

TITLE = "MAM adapter, prefix with LoRA, and their rivals"
SOURCE = "He et al. 2022 (arXiv:2110.04366), table 6 (XSum, BART-large; WMT16, mBART; GLUE, RoBERTa-base)"
TAKES = corpus_table.TAKES
KEEPS = True


class Form(NamedTuple):
    """Of MAM: the length of its prefix, its adapter's bottleneck and scale, and the share that is all of it."""

    length: int
    bottleneck: int
    scale: float
    share: float


FORMS = {"encoder": Form(16, 16, 2.0, 0.005)}
OTHERWISE = Form(30, 512, 4.0, 0.067)
LORA, RANK = "lora:sites=ffn.in,ffn.out", 102


def settings(ask: Ask) -> Settings:
    course, rows = published.course(ask, published.SUMMARIES), published.rows(ask)
    made = corpus_table.settings(ask, (), course, rows, corpus_table.ALL, choose=corpus_table.has_labels(ask))
    form = FORMS.get(made["kind"], OTHERWISE)
    writes = made["kind"] != "encoder"
    lines = _fixed(ask, writes) + _sized(form, made, is_typed=ask.protocol == "paper" and writes)
    lines.append(_mam(form, is_typed=ask.protocol == "paper"))
    if ask.protocol == "tuned" and not ask.quick and made["kind"] == "decoder":
        lines += [_of_tokens(line, form) for line in lines if line.label.startswith(("MAM", "prefix of"))]
    return made | {"lines": corpus_table.kept(ask, lines, made["course"]["network"])}


def _fixed(ask: Ask, writes: bool) -> list[Line]:
    """Those whose size is no matter of choice; prompt tuning is not of encoders."""
    prompt = "soft:length=200,init_from=normal" if ask.protocol == "paper" else "soft:length=100"
    return [
        Line("full tuning", "full", paper=published.unified("44.81/21.94/36.83", "37.3")),
        Line("BitFit", "bias", paper=published.unified("40.64/17.32/32.19")),
        *([Line("prompt tuning", prompt, paper=published.unified("38.91/15.98/30.83"))] if writes else []),
    ]


def _sized(form: Form, made: Settings, *, is_typed: bool) -> list[Line]:
    """MAM's rivals: at the sizes that were published, or at MAM's share."""
    scale, both = f"s = {form.scale:g}", f"prefix:length={form.length}+{LORA}"
    typed = f",rank={RANK},alpha={form.scale * RANK}"
    lora, mixed = (
        (f"{arm}{typed}", None) if is_typed else corpus_table.scaled_lora(made, arm, form.share, form.scale)
        for arm in (LORA, both)
    )
    share, plain = None if is_typed else form.share, "adapter:placement=parallel,sites=ffn"
    scaled = f"{plain},scale={form.scale}"
    attention = f"adapter:placement=parallel,sites=attn.heads,norm=in,start=bert,bottleneck={form.length}"

    def at(arm: str, size: str) -> str:
        return f"{arm}{size}" if is_typed else arm

    own, twice = f",bottleneck={form.bottleneck}", f",bottleneck={2 * form.bottleneck}"
    prefix, sequential = at("prefix", ":length=200"), at("adapter:sites=ffn", ",bottleneck=600")
    return [
        Line("prefix", prefix, share, paper=published.unified("43.40/20.46/35.51", "35.6")),
        Line("sequential adapter, feed-forward", sequential, share),
        Line(f"LoRA, feed-forward, {scale}", *lora, paper=published.unified("44.53/21.29/36.28", "36.8")),
        Line("parallel adapter, feed-forward", at(plain, twice), share),
        Line(
            f"parallel adapter, feed-forward, {scale}",
            at(scaled, own),
            share,
            paper=published.unified("44.85/21.54/36.58"),
        ),
        Line(f"parallel adapters, attention of {form.length} and feed-forward", f"{attention}+{at(plain, own)}", share),
        Line(f"prefix of {form.length} and LoRA, {scale}", *mixed, paper=published.unified("44.84/21.71/36.77")),
    ]


def _mam(form: Form, *, is_typed: bool) -> Line:
    arm = f"prefix:length={form.length}+adapter:placement=parallel,sites=ffn,scale={form.scale}"
    return Line(
        f"MAM: prefix of {form.length} and parallel adapter",
        f"{arm},bottleneck={form.bottleneck}" if is_typed else arm,
        None if is_typed else form.share,
        paper=published.unified("45.06/21.90/36.87", "37.5"),
    )


def _of_tokens(line: Line, form: Form) -> Line:
    """A mix whose prefix begins as tokens; the paper's is made by a network, which the tuned protocol leaves out."""
    front = f"prefix:length={form.length}"
    return replace(
        line, label=f"{line.label}, begun as tokens", arm=line.arm.replace(front, f"{front},init_from=tokens"), paper={}
    )


worlds, units, work, table = corpus_line.worlds, corpus_table.units, corpus_line.work, corpus_line.table
