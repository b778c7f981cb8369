"""CuPy: RawModule and get_function. Needs a GPU."""

import sys

import common

try:
    import cupy
    from cupy.cuda import nvrtc
except ImportError as error:
    common.skip(f"cupy does not import: {error}")
try:
    cupy.cuda.Device(0).use()
    cupy.cuda.runtime.free(0)
except Exception as error:
    common.skip(f"cupy finds no GPU: {error}")

if len(sys.argv) > 1:
    common.child(lambda k: cupy.RawModule(code=common.SOURCE % k).get_function("entry"))
else:
    major, minor = nvrtc.getVersion()
    name = f"cupy {cupy.__version__} RawModule, NVRTC {major}.{minor}"
    common.print_rows(common.measure(__file__, name, ", loaded", "CUPY_CACHE_DIR"))
