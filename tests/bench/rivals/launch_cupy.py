"""Host cost of a launch through CuPy's RawKernel."""

import rival_rounds as rounds


def library():
    import cupy
    import numpy

    stream = cupy.cuda.Stream(non_blocking=True)
    stream.use()
    buffer = cupy.zeros(64, dtype=cupy.uint8)

    def values(count):
        return tuple(buffer if i % 2 == 0 else numpy.int32(i) for i in range(count))

    def ready(count):
        kernel = cupy.RawKernel(rounds.kernel_source(count), "entry")
        arguments = values(count)
        grid, block = (2,), (32,)
        return lambda: kernel(grid, block, arguments)

    def made_per_call(count):
        kernel = cupy.RawKernel(rounds.kernel_source(count), "entry")
        grid, block = (2,), (32,)
        return lambda: kernel(grid, block, values(count))

    def unsupported():
        raise rounds.Unsupported("RawKernel takes no launch attributes")

    cases = []
    for attributes in rounds.ATTRIBUTES:
        for count in rounds.ARGUMENT_COUNTS:
            for way, make in (
                ("RawKernel, tuple ready", ready),
                ("RawKernel, scalars made per call", made_per_call),
            ):
                if attributes == "plain":
                    cases.append(
                        rounds.Case(way, attributes, count, lambda make=make, n=count: make(n))
                    )
                elif make is ready:
                    cases.append(rounds.Case(way, attributes, count, unsupported))
    return "CuPy " + cupy.__version__, cases, stream.synchronize


if __name__ == "__main__":
    rounds.main("launch_cupy", library)
