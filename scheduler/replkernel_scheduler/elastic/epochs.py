"""How many iterations a job needs for an accuracy, from what it has shown so far (spec 2.7, after Optimus).

The error e = 1 - accuracy is fitted by e(k) = 1 / (b0 k + b1) + b2 with b >= 0: for each b2 on a grid the
rest is non-negative least squares, weighted so that errors count in e (by the median of each sample and its
neighbours: one that is far off would weigh most). Law: a target beyond the asymptote is told as not
reachable, never as a number. The one module of this package that needs numpy and scipy.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replkernel_scheduler.errors import SchedulerError

GRID = 200
OUTLIER_MADS = 3.0
POINTS_MIN = 3


class AccuracyFit(msgspec.Struct, frozen=True):
    """The curve: `used` of the samples were no outliers."""

    b0: float
    b1: float
    b2: float
    used: int

    def accuracy(self, iteration: float) -> float:
        """Return the accuracy after so many iterations."""
        return 1.0 - (1.0 / (self.b0 * iteration + self.b1) + self.b2)

    def iterations(self, accuracy: float) -> float | None:
        """Return how many iterations reach `accuracy`; None if none do."""
        gap = (1.0 - accuracy) - self.b2
        if gap <= 0 or self.b0 <= 0:
            return None
        return max(0.0, (1.0 / gap - self.b1) / self.b0)


def fit_accuracy(iterations: Sequence[float], accuracies: Sequence[float]) -> AccuracyFit | None:
    """Fit the curve to samples, twice if there are outliers; None with too few samples.

    Raises SchedulerError where numpy and scipy are not installed.
    """
    try:
        import numpy
        from scipy.optimize import nnls
    except ImportError as error:
        raise SchedulerError(
            "Predicting epochs needs numpy and scipy: pip install 'replkernel[sim]'."
        ) from error
    k, e = numpy.asarray(iterations, float), 1.0 - numpy.asarray(accuracies, float)

    def fitted(k: numpy.ndarray, e: numpy.ndarray) -> tuple[float, float, float]:
        """Return the coefficients with the least squared error in e."""
        scale = max(float(k.max()), 1.0)
        smooth = numpy.array([numpy.median(e[max(0, at - 2) : at + 3]) for at in range(len(e))])
        best, found = float("inf"), (0.0, 0.0, 0.0)
        for b2 in numpy.linspace(0.0, float(e.min()), GRID, endpoint=False):
            gap = e - b2
            weight = (smooth - b2).clip(min=0.0) ** 2
            columns = numpy.column_stack([k / scale, numpy.ones_like(k)]) * weight[:, None]
            (slope, b1), _ = nnls(columns, weight / gap)
            below = slope * k / scale + b1
            if not (below > 0).all():
                continue
            wrong = float(((1.0 / below + b2 - e) ** 2).sum())
            if wrong < best:
                best, found = wrong, (float(slope) / scale, float(b1), float(b2))
        return found

    if len(k) < POINTS_MIN or not (e > 0).all():
        return None
    fit = AccuracyFit(*fitted(k, e), len(k))
    if fit.b0 <= 0 and fit.b1 <= 0:
        return None
    wrong = numpy.abs(1.0 / (fit.b0 * k + fit.b1) + fit.b2 - e)
    keep = wrong <= OUTLIER_MADS * max(float(numpy.median(wrong)), 1e-12)
    if keep.all() or int(keep.sum()) < POINTS_MIN:
        return fit
    return AccuracyFit(*fitted(k[keep], e[keep]), int(keep.sum()))
