"""A Gaussian process over a deferral and its context: Matern 5/2 with a scale for each of the five inputs.

Law: at most `window` samples, the oldest go first; losses are standardised. Their noise is learned as the
scales are: a hundredth of the variance (spec 3.4) takes chance for a pattern on recorded jobs. In the one
dimension that is searched, 101 points stand for L-BFGS-B from five starts: they miss no second minimum. The
one module of this package that needs numpy and scipy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import log, sqrt
from typing import TYPE_CHECKING, Any

from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.pool.arrivals import DEFERRAL_MAX_S

if TYPE_CHECKING:
    from numpy import ndarray


POINTS = 101
NOISE = (-9.0, 1.0)
"""The bounds of the logarithm of the noise's variance, of standardised losses; it begins with a hundredth."""
FIT_EVERY = 40
FIT_FROM = 20
SCALES = (-3.0, 3.0)
"""The bounds of the logarithms of the length scales; inputs are from 0 to 1."""


class GaussianProcess:
    """Samples, and what follows from them; nothing is computed before somebody asks."""

    def __init__(self, window: int) -> None:
        """Start without samples; raise SchedulerError where numpy and scipy are not installed."""
        try:
            import numpy
            import scipy
        except ImportError as error:
            raise SchedulerError(
                "Predicting deferrals needs numpy and scipy: pip install 'replkernel[sim]'."
            ) from error
        self._numpy = numpy
        self._scipy = scipy
        self._samples: deque[tuple[float, ...]] = deque(maxlen=window)
        self._scales = numpy.array([0.0] * 5 + [log(1e-2)])
        """The logarithms of the length scales, and of the noise."""
        self._grid = numpy.linspace(0.0, DEFERRAL_MAX_S, POINTS)
        self._solved: tuple[Any, ...] | None = None
        self._since_fit = 0

    def add(self, chosen_s: float, context: Sequence[float], loss: float) -> None:
        """Take a sample."""
        self._samples.append((chosen_s, *context, loss))
        self._solved = None
        self._since_fit += 1

    def lowest(self, context: Sequence[float]) -> float:
        """Return the deferral whose expected loss is the least; 0, unless another one is surely better."""
        mean, near = self._mean(context)
        at = int(mean.argmin())
        sure = mean[0] - mean[at] > self._deviation(near[at : at + 1])[0]
        return float(self._grid[at]) if sure else 0.0

    def most_improving(self, context: Sequence[float]) -> tuple[float, float, float]:
        """Return the deferral with the most expected improvement, that, and the least loss expected now."""
        from math import pi

        numpy = self._numpy
        mean, near = self._mean(context)
        deviation = self._deviation(near)
        best = mean.min()
        z = (best - mean) / deviation
        density = numpy.exp(-0.5 * z**2) / sqrt(2 * pi)
        improvement = deviation * (z * self._scipy.special.ndtr(z) + density)
        at = int(improvement.argmax())
        return float(self._grid[at]), float(improvement[at]), float(best)

    def _mean(self, context: Sequence[float]) -> tuple[Any, Any]:
        """Return the expected loss on the grid, and how near each point of it is to the samples."""
        numpy = self._numpy
        if self._solved is None:
            self._solve()
        assert self._solved is not None
        scaled, low, span, _, weights, centre, spread = self._solved
        asked = numpy.empty((POINTS, 5))
        asked[:, 0] = self._grid
        asked[:, 1:] = context
        asked[:, 1:3] = numpy.log1p(asked[:, 1:3])
        near = self._kernel((asked - low) / span / numpy.exp(self._scales[:5]), scaled)
        return near @ weights * spread + centre, near

    def _deviation(self, near: ndarray[Any, Any]) -> Any:
        """Return the standard deviation of the expected loss at points so near to the samples."""
        assert self._solved is not None
        factor, spread = self._solved[3], self._solved[6]
        reduced = self._scipy.linalg.solve_triangular(factor, near.T, lower=True, check_finite=False)
        return self._numpy.sqrt((1.0 - (reduced**2).sum(axis=0)).clip(min=1e-9)) * spread

    def _solve(self) -> None:
        numpy = self._numpy
        table = numpy.array(self._samples)
        logs, losses = self._logs(table[:, :5]), table[:, 5]
        low = logs.min(axis=0)
        span = numpy.maximum(logs.max(axis=0) - low, 1e-9)
        low[0], span[0] = 0.0, DEFERRAL_MAX_S
        inputs = (logs - low) / span
        centre, spread = float(losses.mean()), max(float(losses.std()), 1e-6)
        targets = (losses - centre) / spread
        if len(table) >= FIT_FROM and self._since_fit >= FIT_EVERY:
            self._since_fit = 0
            self._scales = self._fitted(inputs, targets)
        diagonal = numpy.eye(len(inputs))
        factor, weights = self._factor(inputs, targets, self._scales, diagonal)
        scaled = inputs / numpy.exp(self._scales[:5])
        self._solved = (scaled, low, span, factor, weights, centre, spread)

    def _fitted(self, inputs: ndarray[Any, Any], targets: ndarray[Any, Any]) -> Any:
        """Return the length scales and the noise with the most likelihood, from the present ones."""
        numpy, diagonal = self._numpy, self._numpy.eye(len(inputs))

        def unlikely(scales: ndarray[Any, Any]) -> float:
            factor, weights = self._factor(inputs, targets, scales, diagonal)
            return float(0.5 * targets @ weights + numpy.log(factor.diagonal()).sum())

        found = self._scipy.optimize.minimize(
            unlikely, self._scales, method="L-BFGS-B", bounds=[SCALES] * 5 + [NOISE], options={"maxiter": 15}
        )
        return found.x

    def _factor(
        self,
        inputs: ndarray[Any, Any],
        targets: ndarray[Any, Any],
        scales: ndarray[Any, Any],
        diagonal: ndarray[Any, Any],
    ) -> tuple[Any, Any]:
        numpy, linalg = self._numpy, self._scipy.linalg
        scaled = inputs / numpy.exp(scales[:5])
        kernel = self._kernel(scaled, scaled) + numpy.exp(scales[5]) * diagonal
        factor = linalg.cholesky(kernel, lower=True, overwrite_a=True, check_finite=False)
        return factor, linalg.cho_solve((factor, True), targets, check_finite=False)

    def _kernel(self, left: ndarray[Any, Any], right: ndarray[Any, Any]) -> object:
        """Return how near to each other samples are, both over their length scales."""
        numpy = self._numpy
        far = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :]
        far -= 2 * left @ right.T
        numpy.maximum(far, 0.0, out=far)
        far *= 5.0
        numpy.sqrt(far, out=far)
        near = far**2
        near /= 3.0
        near += 1.0 + far
        numpy.negative(far, out=far)
        near *= numpy.exp(far, out=far)
        return near

    def _logs(self, table: ndarray[Any, Any]) -> Any:
        """Return inputs with the logarithms of time between arrivals and time that remains."""
        table = table.copy()
        table[:, 1:3] = self._numpy.log1p(table[:, 1:3])
        return table
