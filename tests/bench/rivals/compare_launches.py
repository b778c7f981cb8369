"""One table out of the documents that launch_rivals.sh collects: nanoseconds of a launch, and what
each way adds to the raw driver call with the same attributes and as many arguments."""

import json
import re
import sys

import rival_rounds as rounds

# Of tests/bench/launch_bench.cpp.
OUR_ROW = re.compile(r"host cost of a launch, (\d+) arguments, ([^:]+): Kiln descriptor$")


def ours(document):
    """Raw call and descriptor, by attributes and arguments."""
    raw, descriptor = {}, {}
    for row in document["rows"]:
        found = OUR_ROW.match(row["name"])
        if found:
            key = found.group(2), int(found.group(1))
            raw[key], descriptor[key] = row["rival"], row["ours"]
    return raw, descriptor


def lines(documents):
    raw, descriptor = ours(documents[0])
    ways = [("raw cuLaunchKernelEx", raw, {}), ("Kiln descriptor", descriptor, {})]
    for document in documents[1:]:
        name = document["library"] or document["bench"]
        if document["error"]:
            yield "%s: not measured: %s" % (name, document["error"])
        by_way = {}
        for row in document["rows"]:
            times, errors = by_way.setdefault(row["way"], ({}, {}))
            key = row["attributes"], row["arguments"]
            if row["error"]:
                errors[key] = row["error"]
            elif row["ours"] is not None:
                times[key] = row["ours"]
        ways += [(name + " " + way, *found) for way, found in by_way.items()]
    for attributes in rounds.ATTRIBUTES:
        yield ""
        head = "".join("%17s" % ("%d args" % count) for count in rounds.ARGUMENT_COUNTS)
        yield "%-52s%s" % ("ns of a launch (added to raw), " + attributes, head)
        for name, times, errors in ways:
            cells = ""
            for count in rounds.ARGUMENT_COUNTS:
                key = attributes, count
                if key not in times:
                    cells += "%17s" % "-"
                elif key in raw:
                    cells += "%9.0f %7s" % (times[key], "(%+.0f)" % (times[key] - raw[key]))
                else:
                    cells += "%9.0f %7s" % (times[key], "")
            reasons = {errors[key] for key in errors if key[0] == attributes}
            yield "%-52s%s%s" % (name[:51], cells, "  " + "; ".join(sorted(reasons)) if reasons else "")


def main():
    documents = []
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            documents.append(json.load(file))
    for line in lines(documents):
        print(line)


if __name__ == "__main__":
    main()
