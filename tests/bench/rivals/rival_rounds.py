"""Host cost of a launch in a Python library: paired rounds, and one JSON document.

Each case is a way to launch, a set of launch attributes and a number of arguments. All cases of a
library are taken in turn within a round, forwards in even rounds and backwards in odd ones; a
sample is the time of 200 launches between two synchronisations, which are not in it. A case that
cannot be made or run is a row with its reason, and does not stop the others.
"""

import argparse
import gc
import json
import os
import platform
import sys
import time

LAUNCHES = 200
WARMUP_ROUNDS = 5
ARGUMENT_COUNTS = (0, 6, 19, 32)
ATTRIBUTES = ("plain", "PDL", "cluster", "PDL and cluster")


class Unsupported(Exception):
    """The library has no way to do this."""


def parameters(count):
    """C declarations, pointers and integers in turn, as tests/bench/launch_bench.cpp has them."""
    return ", ".join(("void* p%d" if i % 2 == 0 else "int p%d") % i for i in range(count))


def kernel_source(count):
    """An empty kernel that waits for the grid before it, so that PDL may be asked for."""
    return (
        'extern "C" __global__ void entry(%s) { asm volatile("griddepcontrol.wait;"); }'
        % parameters(count)
    )


class Case:
    """`make()` gives a function that launches once; it runs before anything is timed."""

    def __init__(self, way, attributes, arguments, make):
        self.way = way
        self.attributes = attributes
        self.arguments = arguments
        self.make = make
        self.launch = None
        self.error = None
        self.nanoseconds = []

    def prepare(self, synchronize):
        try:
            self.launch = self.make()
            self.launch()
            synchronize()
        except Exception as error:  # whatever a library raises is this row's reason
            self.launch = None
            self.error = "%s: %s" % (type(error).__name__, str(error).strip()[:500])

    def sample(self, synchronize):
        launch = self.launch
        synchronize()
        start = time.perf_counter_ns()
        for _ in range(LAUNCHES):
            launch()
        end = time.perf_counter_ns()
        synchronize()
        return (end - start) / LAUNCHES

    def row(self):
        row = {
            "name": "%s, %d arguments, %s" % (self.way, self.arguments, self.attributes),
            "way": self.way,
            "attributes": self.attributes,
            "arguments": self.arguments,
            "unit": "ns",
            "ours": None,
            "p10": None,
            "p90": None,
            "n": len(self.nanoseconds),
            "error": self.error,
        }
        if self.nanoseconds:
            row["ours"] = quantile(self.nanoseconds, 0.5)
            row["p10"] = quantile(self.nanoseconds, 0.1)
            row["p90"] = quantile(self.nanoseconds, 0.9)
        return row


def quantile(values, q):
    """Linear between the two nearest values."""
    values = sorted(values)
    place = q * (len(values) - 1)
    below = int(place)
    if below + 1 >= len(values):
        return values[-1]
    return values[below] + (place - below) * (values[below + 1] - values[below])


def measure(cases, synchronize, rounds):
    for case in cases:
        case.prepare(synchronize)
    working = [case for case in cases if case.launch is not None]
    gc.collect()
    gc.disable()
    try:
        for number in range(-WARMUP_ROUNDS, rounds):
            for case in working if number % 2 == 0 else reversed(working):
                if case.error is not None:
                    continue
                try:
                    nanoseconds = case.sample(synchronize)
                except Exception as error:
                    case.error = "%s: %s" % (type(error).__name__, str(error).strip()[:500])
                    case.nanoseconds = []
                    continue
                if number >= 0:
                    case.nanoseconds.append(nanoseconds)
    finally:
        gc.enable()


def run(bench, library):
    """`library()` gives its name with the version, the cases, and what waits for the device."""
    parser = argparse.ArgumentParser(prog=bench)
    parser.add_argument("--rounds", type=int, default=41, help="at least 1")
    parser.add_argument("--json", default="-", metavar="FILE", help="- is the standard output")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    document = {"bench": bench, "library": None, "python": platform.python_version()}
    document["processors"] = sorted(os.sched_getaffinity(0))
    document["launches"] = LAUNCHES
    document["rounds"] = options.rounds
    document["error"] = None
    document["rows"] = []
    try:
        document["library"], cases, synchronize = library()
        measure(cases, synchronize, options.rounds)
        document["rows"] = [case.row() for case in cases]
    except Exception as error:
        document["error"] = "%s: %s" % (type(error).__name__, str(error).strip()[:2000])
    text = json.dumps(document, indent=1)
    if options.json == "-":
        print(text)
    else:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    return 0 if document["error"] is None else 1


def main(bench, library):
    sys.exit(run(bench, library))
