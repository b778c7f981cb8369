"""What the scripts here share. Each prints rows of the benchmarks' form, with the rival's figures.

A script gives a function that makes kernel number k ready. It runs in a fresh process on an empty
cache directory, kernel after kernel, and again in another process on the filled one. The first
kernel of each process stands apart, since it pays for what is opened lazily (imports are not
counted).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

KERNELS = 41
ROUNDS = 3
# As in table_kernel.hpp, with the key as text.
SOURCE = """__device__ int table[9000] = {1};
extern "C" __global__ void entry(int* x) { *x = table[*x] + %d; }
"""


def skip(why):
    """Ends the script; rivals.sh prints the reason."""
    print(why, file=sys.stderr)
    sys.exit(77)


def row(name, rival_name, values):
    values = sorted(values)
    at = lambda q: values[int(q * (len(values) - 1))]
    return {"name": name, "unit": "us", "ours": None, "rival_name": rival_name,
            "rival": statistics.median(values), "ratio": None, "n": len(values),
            "p10": at(0.1), "p90": at(0.9)}


def print_rows(rows):
    print(json.dumps({"rows": rows}, indent=1))


def run_child(script, variant, variable, directory):
    # NVRTC itself keeps what it compiled, in the driver's cache, beyond the end of a process.
    environment = dict(os.environ, **{variable: directory,
                                      "CUDA_CACHE_PATH": os.path.join(directory, "driver")})
    command = [sys.executable, script, "child", variant]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        skip(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the child failed")
    return json.loads(done.stdout.splitlines()[-1])


def measure(script, rival_name, suffix, variable, variant=""):
    """Rows of `script` run as a child; `variable` names the cache directory for it."""
    cold, first_cold, hit, first_hit = [], [], [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as directory:
            for rest, first in ((cold, first_cold), (hit, first_hit)):
                times = run_child(script, variant, variable, directory)
                first.append(times[0])
                rest.extend(times[1:])
    return [row("cold compile and store" + suffix, rival_name, cold),
            row("first cold compile of a process" + suffix, rival_name, first_cold),
            row("disk hit" + suffix, rival_name, hit),
            row("first disk hit of a process" + suffix, rival_name, first_hit)]


def child(make):
    """Prints the microseconds that make(k) took for each kernel."""
    times = []
    for k in range(KERNELS):
        start = time.perf_counter()
        make(k)
        times.append((time.perf_counter() - start) * 1e6)
    print(json.dumps(times))
