"""numpy."""

from __future__ import annotations

from replkernel.state.libraries.numpy.global_generator import NumpyRandomPart
from replkernel.state.libraries.numpy.options import NumpyOptionsPart
from replkernel.state.library import Library

LIBRARY = Library(
    name="numpy",
    reducers={
        "numpy": "replkernel.state.libraries.numpy.arrays",
        "numpy.random": "replkernel.state.libraries.numpy.bit_generators",
    },
    loaders={
        "numpy": (
            "replkernel.state.libraries.numpy.arrays",
            "replkernel.state.libraries.numpy.bare_arrays",
            "replkernel.state.libraries.numpy.memmaps",
            "replkernel.state.libraries.numpy.objects",
            "replkernel.state.libraries.numpy.object_arrays",
        ),
        "numpy-random": ("replkernel.state.libraries.numpy.bit_generators",),
    },
    parts=(NumpyOptionsPart,),
    random_parts=(NumpyRandomPart,),
)
