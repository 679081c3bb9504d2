# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""How far two arrays are apart. Integers, which are labels or indices, are right or wrong: 0 or infinitely far."""
import numpy as np


def share_of_allowed(actual, expected):
    """The worst element's error as a share of 1e-3 of itself and 1e-4 of the largest."""
    if expected.dtype.kind in "iu":
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    allowed = 1e-3 * np.abs(expected) + 1e-4 * np.abs(expected).max()
    return float(np.max(np.abs(actual - expected) / allowed))


def norm_error(actual, expected):
    if expected.dtype.kind in "iu":
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    return float(np.linalg.norm((actual - expected).ravel().astype(np.float64)) / np.linalg.norm(expected.ravel()))
