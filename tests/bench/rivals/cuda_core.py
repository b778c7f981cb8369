"""cuda.core: Program.compile with a FileStreamProgramCache; with a GPU also get_kernel."""

import os
import sys

import common

try:
    import cuda.core
    from cuda.bindings import nvrtc
    from cuda.core import Device, Program, ProgramOptions
    from cuda.core.utils import FileStreamProgramCache
except ImportError as error:
    common.skip(f"cuda.core with its program cache does not import: {error}")


def run_child(load):
    if load:
        Device(0).set_current()
    cache = FileStreamProgramCache(os.environ["RIVAL_CACHE"])
    options = ProgramOptions(arch="sm_90a")

    def make(k):
        code = Program(common.SOURCE % k, "c++", options).compile("cubin", cache=cache)
        if load:
            # A question about the device: without one, the code is loaded at its first launch.
            code.get_kernel("entry").occupancy.max_active_blocks_per_multiprocessor(32, 0)

    common.child(make)


def has_gpu():
    try:
        Device(0).set_current()
        return True
    except Exception:
        return False


if len(sys.argv) > 1:
    run_child(sys.argv[2] == "load")
else:
    _, major, minor = nvrtc.nvrtcVersion()
    name = f"cuda.core {cuda.core.__version__}, NVRTC {major}.{minor}"
    rows = common.measure(__file__, name, "", "RIVAL_CACHE", "find")
    if has_gpu():
        rows += common.measure(__file__, name, ", loaded", "RIVAL_CACHE", "load")
    common.print_rows(rows)
