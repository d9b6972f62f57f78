"""What a method adds to the model, from what, where and how: a row of a table of forms, said by the method itself."""

from typing import Literal, NamedTuple


class Form(NamedTuple):
    """The four dimensions of He et al. (2022, arXiv:2110.04366, section 3.2 and Table 1).

    `change` and `composition` are formulas over the method's own tensors by name, in the notation of
    `tunescope.reproduce.recipes._formula`. They are no decoration: `tunescope reproduce unified-forms` computes them as
    they stand, and shows how far the method is from what it says of itself.

    change: what is added, from h (what leaves the site), x (what enters it) or q (the layer's query).
    insertion: "sequential" where the change is made of h, "parallel" where it is not, "in front" of the text.
    site: where, the paper's modified representation.
    composition: how h and the change become the new h.
    """

    change: str
    insertion: Literal["sequential", "parallel", "in front"]
    site: str
    composition: str
