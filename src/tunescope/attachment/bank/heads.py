"""Classification heads by row: all rows of a batch have one, of as many labels, or none has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tunescope.attachment.bank.rowwise import Rowwise, rowwise
from tunescope.attachment.initial_artifacts import at_site
from tunescope.attachment.site_hooks import SiteUse
from tunescope.errors import UserError
from tunescope.methods.artifact import Artifact, SiteDelta
from tunescope.models.anatomy import anatomy
from tunescope.models.sites import Site, Tap

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def heads_by_row(
    model: PreTrainedModel, members: Sequence[tuple[Sequence[int], Sequence[Artifact]]], batch: int
) -> SiteUse[Rowwise] | None:
    """The heads of all rows as one; None where no row has any. Raises UserError for a batch that mixes.

    members: for each, the rows that take it, and its artifacts.
    """
    place = Tap.on(model, "out")
    site = Site("pooled", place, place, None, 1)
    found = []
    for rows, artifacts in members:
        for one in artifacts:
            if isinstance(one.spec, SiteDelta) and one.spec.sites == ("pooled",):
                found.append((rows, [SiteUse(one.spec, site, at_site(one, "pooled"))]))
    if not found:
        return None
    made = rowwise(found, batch, anatomy(model).device)
    if len(made) > 1 or sum(len(rows) for rows, _ in found) != batch:
        kinds = ", ".join(sorted({str(uses[0].spec) for _, uses in found}))
        raise UserError(
            f"Bank: {sum(len(rows) for rows, _ in found)} of {batch} rows have a head ({kinds}), and their logits are "
            "one tensor: give every row of a batch a head of as many labels."
        )
    return made[0]
