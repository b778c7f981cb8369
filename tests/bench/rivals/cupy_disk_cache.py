"""CuPy's disk cache alone: a verified read and a write of 40 KB, in a process that runs already.
Needs no GPU."""

import os
import tempfile
import time

import common

try:
    import cupy
    from cupy.cuda._compiler_cache import DiskKernelCacheBackend
except Exception as error:
    common.skip(f"this CuPy has no disk cache of its own to try: {error}")

PAYLOAD = os.urandom(40_000)


def microseconds(work):
    start = time.perf_counter()
    result = work()
    return (time.perf_counter() - start) * 1e6, result


hits, puts = [], []
with tempfile.TemporaryDirectory() as directory:
    cache = DiskKernelCacheBackend(directory)
    for k in range(common.ROUNDS * common.KERNELS):
        name = f"{k:040x}.cubin"
        put, _ = microseconds(lambda: cache.save(name, PAYLOAD, ""))
        hit, found = microseconds(lambda: cache.load(name))
        if found != PAYLOAD:
            common.skip("CuPy did not find what it had stored")
        puts.append(put)
        hits.append(hit)
name = f"cupy {cupy.__version__} DiskKernelCacheBackend"
common.print_rows([common.row("the store alone: verified hit of 40 KB", name, hits[1:]),
                   common.row("the store alone: publish of 40 KB", name, puts[1:])])
