"""Host cost of a launch through cuda.core."""

import rival_rounds as rounds


def library():
    import cuda.core
    import numpy
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    device = Device()
    device.set_current()
    stream = device.create_stream()
    buffer = device.allocate(64, stream=stream)
    kernels = {}

    def kernel_of(count):
        if count not in kernels:
            options = ProgramOptions(std="c++17", arch="sm_" + device.arch)
            program = Program(rounds.kernel_source(count), "c++", options)
            kernels[count] = program.compile("cubin").get_kernel("entry")
        return kernels[count]

    def config_of(attributes):
        # With clusters the grid counts clusters.
        keywords = {"grid": 2, "block": 32}
        if "cluster" in attributes:
            keywords.update(grid=1, cluster=2)
        if "PDL" in attributes:
            keywords.update(programmatic_stream_serialization=True)
        return LaunchConfig(**keywords)

    def make(attributes, count):
        kernel = kernel_of(count)
        config = config_of(attributes)
        arguments = tuple(buffer if i % 2 == 0 else numpy.int32(i) for i in range(count))
        return lambda: launch(stream, config, kernel, *arguments)

    cases = [
        rounds.Case("launch", attributes, count, lambda a=attributes, n=count: make(a, n))
        for attributes in rounds.ATTRIBUTES
        for count in rounds.ARGUMENT_COUNTS
    ]
    return "cuda.core " + cuda.core.__version__, cases, stream.sync


if __name__ == "__main__":
    rounds.main("launch_cuda_core", library)
