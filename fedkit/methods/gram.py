"""The Gram theorem: inner products tell how averages of updates lie to each other.

With A the inner products of updates u_i, b theirs with a reference g, and weights w, the average
``sum_i w_i u_i`` has the squared length ``w A w`` and the squared distance ``w A w - 2 w b + g g``
from the reference; angles follow.  So games of such averages (``trajectory_game`` of FedTSV,
``cosine_game`` of CGSV) need one product of long vectors per pair of clients, and no more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedkit.checks import Floats, numbers

#: columns that are converted to double precision at a time
_CHUNK = 1 << 20


def gram_matrix(vectors: Tensor) -> Floats:
    """Inner products of some long vectors, summed in double precision.

    Parameters
    ----------
    vectors : Tensor
        ``[m, P]``.

    Returns
    -------
    float64[m, m]
    """
    if not isinstance(vectors, Tensor) or vectors.dim() != 2:
        raise ValueError(f"vectors have shape {np.shape(vectors)}; expected a tensor [m, P]")
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64, device=vectors.device)
    for part in vectors.split(_CHUNK, dim=1):
        wide = part.double()
        total += wide @ wide.T
    return np.asarray(total.cpu().numpy(), dtype=np.float64)


def check_inner_products(gram: npt.ArrayLike, fewest: int) -> Floats:
    """Return the matrix, or refuse what cannot hold inner products of `fewest` vectors or more."""
    gram = numbers("gram", gram)
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or len(gram) < fewest:
        raise ValueError(f"gram has shape {gram.shape}; expected (m, m) with m >= {fewest}")
    if not np.isfinite(gram).all():
        raise ValueError("gram is not finite: an update or the reference is not; leave such out")
    rounding = 1e-6 * float(np.abs(gram).max())
    if np.abs(gram - gram.T).max() > rounding or np.linalg.eigvalsh(gram)[0] < -rounding:
        raise ValueError("gram is no matrix of inner products; gram_matrix makes one")
    return gram
