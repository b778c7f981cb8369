"""Puts the rivals' rows beside ours: merge.py OURS.json RIVAL.json... ; prints a table to the
standard error and the document to the standard output."""

import json
import sys

ours, *rivals = [json.load(open(path)) for path in sys.argv[1:]]
own = {row["name"]: row for row in ours["rows"]}
rows = []
for rival in rivals:
    for theirs in rival["rows"]:
        mine = own[theirs["name"]]
        rows.append({**mine, "rival_name": theirs["rival_name"], "rival": theirs["rival"],
                     "ratio": mine["ours"] / theirs["rival"]})
rows.sort(key=lambda row: list(own).index(row["name"]))
print(f"{'':42} {'ours':>12} {'rival':>12} {'ratio':>8}", file=sys.stderr)
for row in rows:
    print(f"{row['name']:42} {row['ours']:9.1f} us {row['rival']:9.1f} us {row['ratio']:8.4f}"
          f"  {row['rival_name']}", file=sys.stderr)
print(json.dumps({**ours, "rows": rows}, indent=1))
