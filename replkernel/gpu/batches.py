"""Iterators of a `DataLoader` that loads in this process, part-way: what they still have to give.

torch goes through its samplers with generators. What these still have to draw on is read, and given by plain
iterators from then on, with the same draws from the same generators of numbers.
Law: nothing is drawn here; a sampler of another kind leaves its generator, which is refused by name.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from replkernel.gpu.torch_library import torch
from replkernel.state.python import instances

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_data = torch.utils.data
_loader = torch.utils.data.dataloader
_BATCHES = _data.BatchSampler.__iter__.__code__
_SHUFFLED = _data.RandomSampler.__iter__.__code__
_WEIGHTED = _data.WeightedRandomSampler.__iter__.__code__


class Batches:
    """What is left of a `BatchSampler`."""

    def __init__(self, numbers: Iterator[Any], size: int, drop_last: bool) -> None:
        self.numbers = numbers
        self.size = size
        self.drop_last = drop_last

    def __iter__(self) -> Batches:
        """Return itself."""
        return self

    def __next__(self) -> list[Any]:
        """Return the next batch."""
        batch = list(itertools.islice(self.numbers, self.size))
        if not batch or (self.drop_last and len(batch) < self.size):
            raise StopIteration
        return batch


class Shuffled:
    """What is left of a `RandomSampler`, which draws once more when it has come to its end."""

    def __init__(self, numbers: Iterator[int], count: int, generator: torch.Generator) -> None:
        self.numbers = numbers
        self.count = count
        self.generator = generator
        self.ended = False

    def __iter__(self) -> Shuffled:
        """Return itself."""
        return self

    def __next__(self) -> int:
        """Return the next number."""
        try:
            return next(self.numbers)
        except StopIteration:
            if not self.ended:
                self.ended = True
                torch.randperm(self.count, generator=self.generator)
            raise


def reduce_iterator(context: ReducerContext, iterator: object) -> object:
    """Reduce such an iterator to its attributes."""
    context.module_needed("torch")
    state = dict(vars(iterator))
    state["_sampler_iter"] = _plainly(state["_sampler_iter"])
    return instances.make_plain, (type(iterator),), state, None, None, instances.fill_plain


def _plainly(source: Any) -> Any:
    """Return a plain iterator for a generator of a sampler that is on its way; anything else itself."""
    frame = source.gi_frame if type(source) is types.GeneratorType else None
    if frame is None or frame.f_lasti < 0:
        return iter(()) if type(source) is types.GeneratorType and frame is None else source
    if source.gi_code is _BATCHES:
        sampler = frame.f_locals["self"]
        numbers = frame.f_locals.get("sampler_iter")
        if numbers is not None:
            return Batches(_plainly(numbers), sampler.batch_size, bool(sampler.drop_last))
    if source.gi_code is _SHUFFLED:
        sampler = frame.f_locals["self"]
        count, generator = frame.f_locals.get("n"), frame.f_locals.get("generator")
        numbers = source.gi_yieldfrom
        if generator is not None and not sampler.replacement and sampler.num_samples == count and numbers:
            return Shuffled(numbers, count, generator)
    if source.gi_code is _WEIGHTED and source.gi_yieldfrom is not None:
        return source.gi_yieldfrom
    return source


FAMILIES = [(_loader._SingleProcessDataLoaderIter, reduce_iterator)]
