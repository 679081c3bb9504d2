#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads /metrics as Prometheus would and prints the p99 by class, and the contended ratio of the latency class:
p99(contended) / p99(uncontended), 1.0 when batch work is not felt. Quantiles are interpolated in their bucket, as
Prometheus' histogram_quantile does, so they are as exact as the bucket edges.

usage: read_metrics.py [--help] [--json] [--quantile Q] URL
exit codes: 0 read, 1 could not be read or has no requests, 2 usage
"""
import argparse
import collections
import json
import re
import sys
import urllib.request

LINE = re.compile(r'^(\w+)\{([^}]*)\} (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def buckets(text, family, keys):
    """Cumulative counts by upper edge, summed over all labels but `keys`."""
    sums = collections.defaultdict(lambda: collections.defaultdict(float))
    for line in text.splitlines():
        match = LINE.match(line)
        if match and match.group(1) == family + "_bucket":
            labels = dict(LABEL.findall(match.group(2)))
            sums[tuple(labels.get(key, "") for key in keys)][float(labels["le"])] += float(match.group(3))
    return {key: sorted(edges.items()) for key, edges in sums.items()}


def quantile(edges, q):
    """The q-quantile of a cumulative histogram; None when it is empty."""
    total = edges[-1][1]
    if total == 0:
        return None
    rank, lower, below = q * total, 0.0, 0.0
    for upper, count in edges:
        if count >= rank:
            return lower if upper == float("inf") else lower + (upper - lower) * (rank - below) / (count - below)
        lower, below = upper, count
    return lower


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--quantile", type=float, default=0.99)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        text = urllib.request.urlopen(arguments.url, timeout=10).read().decode()
    except OSError as error:
        print(f"{arguments.url}: {error}", file=sys.stderr)
        return 1
    rows = []
    for (name, contended), edges in sorted(buckets(text, "sluice_request_duration_seconds", ("class", "contended")).items()):
        value = quantile(edges, arguments.quantile)
        if value is not None:
            rows.append({"class": name, "contended": contended, "n": int(edges[-1][1]), "seconds": value})
    by_key = {(row["class"], row["contended"]): row["seconds"] for row in rows}
    ratio = None
    if by_key.get(("latency", "false")) and ("latency", "true") in by_key:
        ratio = by_key["latency", "true"] / by_key["latency", "false"]
    if arguments.json:
        print(json.dumps({"quantile": arguments.quantile, "rows": rows, "contended_ratio": ratio}))
    else:
        print(f"{'class':10} {'contended':10} {'n':>8} {'p' + format(100 * arguments.quantile, 'g') + ' ms':>12}")
        for row in rows:
            print(f"{row['class']:10} {row['contended']:10} {row['n']:8} {row['seconds'] * 1e3:12.2f}")
        print(f"contended ratio of the latency class: {'not enough requests' if ratio is None else format(ratio, '.2f')}")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
