"""Host cost of a launch through Triton: the decorated function, and the compiled handle of it."""

import importlib.util
import os
import tempfile

import rival_rounds as rounds


# Triton lays out a cluster by what a kernel stores and fails where it stores nothing. The grid's
# third index is 0, so that no lane does.
STORES_NOTHING = """\
    nowhere = tl.zeros([64], tl.int64).to(tl.pointer_type(tl.uint8))
    tl.store(nowhere, tl.zeros([64], tl.uint8), mask=tl.arange(0, 64) < tl.program_id(2))
"""


def make_functions(directory):
    """Triton reads a kernel's text from its file, so the functions are written into one."""
    path = os.path.join(directory, "empty_kernels.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("import triton\nimport triton.language as tl\n")
        for count in rounds.ARGUMENT_COUNTS:
            names = ", ".join("p%d" % i for i in range(count))
            file.write("\n\n@triton.jit\ndef empty%d(%s):\n    pass\n" % (count, names))
            file.write("\n\n@triton.jit\ndef cluster%d(%s):\n%s" % (count, names, STORES_NOTHING))
    spec = importlib.util.spec_from_file_location("empty_kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def library():
    import torch
    import triton

    # Kept until the process ends: Triton may read the text at any compile.
    directory = tempfile.TemporaryDirectory(prefix="kiln-rival-")
    library.directory = directory
    module = make_functions(directory.name)
    torch.cuda.set_stream(torch.cuda.Stream())
    buffer = torch.zeros(64, dtype=torch.uint8, device="cuda")

    def options_of(attributes):
        options = {"num_warps": 1}
        if "cluster" in attributes:
            options["num_ctas"] = 2
        if "PDL" in attributes:
            options["launch_pdl"] = True
        return options

    def grid_of(attributes):
        # With clusters the grid counts clusters.
        return (1, 1, 1) if "cluster" in attributes else (2, 1, 1)

    def arguments_of(count):
        # Neither 1 nor a multiple of 16, for which Triton would compile another variant.
        return tuple(buffer if i % 2 == 0 else 2 * i + 5 for i in range(count))

    def function_of(attributes, count):
        return getattr(module, ("cluster%d" if "cluster" in attributes else "empty%d") % count)

    def call(attributes, count):
        function, grid = function_of(attributes, count), grid_of(attributes)
        arguments, options = arguments_of(count), options_of(attributes)
        return lambda: function[grid](*arguments, **options)

    def handle(attributes, count):
        arguments = arguments_of(count)
        grid = grid_of(attributes)
        function = function_of(attributes, count)
        compiled = function[grid](*arguments, **options_of(attributes))
        runner = compiled[grid]
        return lambda: runner(*arguments)

    cases = [
        rounds.Case(way, attributes, count, lambda m=make, a=attributes, n=count: m(a, n))
        for attributes in rounds.ATTRIBUTES
        for count in rounds.ARGUMENT_COUNTS
        for way, make in (("kernel[grid](...)", call), ("compiled handle", handle))
    ]
    return "Triton " + triton.__version__, cases, torch.cuda.synchronize


if __name__ == "__main__":
    rounds.main("launch_triton", library)
