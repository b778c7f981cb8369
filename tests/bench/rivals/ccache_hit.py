"""ccache: a whole process that finds the object of a C++ file with 40 KB of data."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import common

if shutil.which("ccache") is None or shutil.which("g++") is None:
    common.skip("ccache or g++ is not installed")

version = subprocess.run(["ccache", "--version"], capture_output=True, text=True).stdout.split()[2]
with tempfile.TemporaryDirectory() as directory:
    source = pathlib.Path(directory, "table.cpp")
    source.write_text("int table[9000] = {1};\nint entry(int x) { return table[x]; }\n")
    result = pathlib.Path(directory, "table.o")
    environment = dict(os.environ, CCACHE_DIR=directory + "/cache")
    command = [shutil.which("ccache"), shutil.which("g++"), "-c", str(source), "-o", str(result)]
    times = []
    for _ in range(10 * common.ROUNDS + 2):
        start = time.perf_counter()
        subprocess.run(command, env=environment, check=True)
        times.append((time.perf_counter() - start) * 1e6)
    stats = subprocess.run(["ccache", "--print-stats"], env=environment, capture_output=True,
                           text=True).stdout
    if f"direct_cache_hit\t{10 * common.ROUNDS + 1}" not in stats:
        common.skip("ccache did not find its own object: " + stats.replace("\n", " "))
common.print_rows([common.row("whole process that finds one 40 KB object",
                              f"ccache {version} of g++ -c", times[2:])])
