#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Draws a trace of the server (sluice trace, GET /trace, bench/pipeline --trace) as an SVG picture.

One row for each thread of the trace that is a stream's copies in, units, graphs or copies out, one for the gate, and one
for each class's host copies into pinned memory (the stage "copy in" of its requests). Spans closer than half a pixel are
drawn as one. Time is in milliseconds since the first span that is drawn.

exit codes: 0 drawn, 1 no trace or nothing in it to draw, 2 usage
"""
import argparse
import json
import pathlib
import re
import sys
from xml.sax.saxutils import escape

COLOURS = {"copies in": "#3b78b5", "units": "#4f9d4a", "graphs": "#a1478b", "copies out": "#d18a2c", "host copies": "#7a7a7a",
           "gate": "#c0392b"}
ROW, GAP, TOP, AXIS, RIGHT = 22, 6, 44, 34, 24
CHARACTER = 6.7  # Width of one at 12 px, about.


class Row:
    """Spans of one kind: (start, end) in microseconds of the trace."""

    def __init__(self, name, kind):
        self.name, self.kind, self.spans = name, kind, []

    def merged(self, least_gap):
        """[start, end, number of spans], ascending, with what lies closer than `least_gap` put together."""
        result = []
        for start, end in sorted(self.spans):
            if result and start - result[-1][1] < least_gap:
                result[-1][1] = max(result[-1][1], end)
                result[-1][2] += 1
            else:
                result.append([start, end, 1])
        return result


def kind_of(thread):
    """What a thread of the trace holds; None for requests, whose stages are looked at one by one."""
    if thread == "gate":
        return "gate"
    match = re.search(r": (copies in|units|graphs|copies out)$", thread)
    return match.group(1) if match else None


def read_rows(document):
    """Rows in the order they are drawn: gate, host copies, then streams."""
    events = document["traceEvents"]
    devices = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    rows = {}
    for event in events:
        if event.get("ph") != "X":
            continue
        thread = threads.get((event["pid"], event["tid"]), "")
        kind, name = kind_of(thread), thread
        if kind is None:
            if event.get("cat") != "stage" or event["name"] != "copy in":
                continue
            kind, name = "host copies", f"{thread.split(' requests')[0]}: host copies"
        if len(devices) > 1:
            name = f"{devices.get(event['pid'], event['pid'])} {name}"
        order = (event["pid"], {"gate": 0, "host copies": 1}.get(kind, 2), 0 if kind == "host copies" else event["tid"], name)
        row = rows.setdefault(order, Row(name, kind))
        row.spans.append((event["ts"], event["ts"] + event["dur"]))
    return [rows[order] for order in sorted(rows)]


def cut(rows, first, last):
    """What lies between two times, in microseconds of the trace; rows without anything are left out."""
    for row in rows:
        row.spans = [(max(start, first), min(end, last)) for start, end in row.spans if end >= first and start <= last]
    return [row for row in rows if row.spans]


def tick_step(span_ms, most_ticks):
    """1, 2 or 5 times a power of ten."""
    step = 10.0 ** -6
    while True:
        for factor in (1, 2, 5):
            if span_ms / (step * factor) <= most_ticks:
                return step * factor
        step *= 10


def text(x, y, content, anchor="start", size=12, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">'
            f"{escape(content)}</text>")


def axis(left, width, height, first_ms, last_ms):
    out = []
    step = tick_step(last_ms - first_ms, max(2, width // 90))
    number = -(-first_ms // step)
    while number * step <= last_ms + step / 1000:
        at = number * step
        x = left + (at - first_ms) / (last_ms - first_ms) * width
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{height - AXIS + 4}" stroke="#dddddd"/>')
        out.append(text(x, height - AXIS + 18, f"{at:.6f}".rstrip("0").rstrip("."), "middle", 11))
        number += 1
    out.append(text(left + width, height - 4, "ms", "end", 11))
    return out


def draw(rows, origin, first, last, title, width):
    """The whole SVG; times in microseconds of the trace, `origin` being zero of the axis."""
    left = 16 + CHARACTER * max(len(row.name) for row in rows)
    drawn = width - left - RIGHT
    height = TOP + len(rows) * (ROW + GAP) + AXIS
    per_us = drawn / (last - first)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           f'font-family="sans-serif">', f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           text(16, 24, title, size=14, weight="bold")]
    out += axis(left, drawn, height, (first - origin) / 1e3, (last - origin) / 1e3)
    for number, row in enumerate(rows):
        y = TOP + number * (ROW + GAP)
        busy = sum(end - start for start, end, _ in row.merged(0))
        out.append(text(left - 8, y + ROW - 7, row.name, "end"))
        out.append(f'<g fill="{COLOURS[row.kind]}">')
        for start, end, count in row.merged(0.5 / per_us):
            what = f"{(start - origin) / 1e3:.3f} to {(end - origin) / 1e3:.3f} ms" + (f", {count} spans" if count > 1 else "")
            out.append(f'<rect x="{left + (start - first) * per_us:.2f}" y="{y}" width="{max((end - start) * per_us, 0.5):.2f}" '
                       f'height="{ROW}"><title>{escape(row.name)}: {what}</title></rect>')
        out.append("</g>")
        out.append(f"<!-- {len(row.spans)} spans, busy for {busy / 1e3:.3f} ms -->")
    out.append("</svg>")
    return "\n".join(out) + "\n"


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path, help="JSON in Chrome's trace event format, as the server writes it")
    parser.add_argument("--output", type=pathlib.Path, help="the picture (default: standard output)")
    parser.add_argument("--from", dest="first", type=float, metavar="MS", help="begin here (default: at the first span)")
    parser.add_argument("--to", dest="last", type=float, metavar="MS", help="end here (default: at the last span)")
    parser.add_argument("--rows", default="", metavar="REGEX", help="only rows whose name matches")
    parser.add_argument("--title", help="above the picture (default: device and file name)")
    parser.add_argument("--width", type=int, default=1200, help="in pixels (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.width < 400:
        parser.error("--width: expected at least 400")
    if arguments.first is not None and arguments.last is not None and arguments.last <= arguments.first:
        parser.error("--to: expected more than --from")
    try:
        re.compile(arguments.rows)
    except re.error as error:
        parser.error(f"--rows: {error}")
    return arguments


def main():
    arguments = parse_flags()
    try:
        document = json.loads(arguments.trace.read_text())
        rows = [row for row in read_rows(document) if re.search(arguments.rows, row.name)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"plot_trace: {arguments.trace} is no trace of the server: {error!r}", file=sys.stderr)
        return 1
    spans = [span for row in rows for span in row.spans]
    origin = min((start for start, _ in spans), default=0)
    first = origin if arguments.first is None else origin + 1e3 * arguments.first
    last = max((end for _, end in spans), default=0) if arguments.last is None else origin + 1e3 * arguments.last
    rows = cut(rows, first, last)
    if not rows or last <= first:
        print(f"plot_trace: nothing of {arguments.trace} is left to draw", file=sys.stderr)
        return 1
    names = [event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"]
    title = arguments.title or f"{', '.join(names)}: {arguments.trace.name}"
    picture = draw(rows, origin, first, last, title, arguments.width)
    if arguments.output:
        arguments.output.write_text(picture)
    else:
        print(picture, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
