"""scipy's trees of points: their nodes without the addresses that scipy writes into them.

Law: imported only when scipy's trees are.
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import cKDTree

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

NODE_BYTES, ADDRESSES = 72, slice(40, 56)
"""The size of a node, and where its children's addresses are, which loading finds by their numbers."""


def reduce_tree(pickler: UnitContext, tree: cKDTree) -> object:
    """Reduce a tree to what scipy copies of it, with no addresses among its nodes, and its points themselves.

    scipy copies these; a tree may look at the array that it was made from.
    """
    pickler.module_needed("scipy.spatial")
    nodes, *others = cKDTree.__getstate__(tree)
    if not isinstance(nodes, np.ndarray) or nodes.nbytes % NODE_BYTES:
        return NotImplemented
    plain = np.frombuffer(nodes.tobytes(), np.uint8).reshape(-1, NODE_BYTES).copy()
    plain[:, ADDRESSES] = 0
    copied = plain.reshape(-1).view(nodes.dtype)
    others[0] = tree.data
    pickler.notes.kept.append(copied)
    return copyreg.__newobj__, (type(tree),), (copied, *others)  # type: ignore[attr-defined]


FAMILIES = [(cKDTree, reduce_tree)]
