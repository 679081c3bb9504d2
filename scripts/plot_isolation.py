#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Draws a result of bench/isolation (--json) as two SVG pictures: the same bytes for the same numbers.

  PREFIX-cdf.svg    how many requests of the latency class take longer than a time, both axes logarithmic, so that the tail
                    is as wide as the rest: alone, and beside batch work in each rung
  PREFIX-plane.svg  R99 against T, one point a rung with its 95 % intervals; the line is T = 1 - U, what a perfect
                    time-sharer keeps for batch work
With --torch FILE (scripts/gpu/isolation_torch.py --json, repeatable) its rungs are drawn too, dashed, where they are of the
same latency model, neighbour, load and arrivals. T's interval is W's times 1 - U.
Needs matplotlib: python3 -m venv PLOT && PLOT/bin/pip install -r scripts/plot-requirements.txt, then PLOT/bin/python this.

exit codes: 0 drawn, 1 no result or nothing in it to draw, 2 usage
"""
import argparse
import json
import pathlib
import sys

SIZE = (9, 5.6)  # Inches.
LABELS = 0.67  # Share of the width that is left to the axes; labels are beside them.
MOST_POINTS = 400  # Of a curve.
COLOURS = ("#c0392b", "#d18a2c", "#a1478b", "#3b78b5", "#4f9d4a", "#7a5230", "#1c9099", "#555555", "#b8860b", "#2c3e70")
STYLE = {"svg.hashsalt": "sluice", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10,
         "axes.spines.top": False, "axes.spines.right": False}
ALONE = "alone"
SAME = ("latency", "neighbour", "load", "arrivals")


def samples(rung, *phases):
    """Microseconds of a rung's latency requests, ascending. bench/isolation has several times of each, from submission to
    answer under "server"; isolation_torch.py has one."""
    return sorted(value for one in rung.get("rounds") or [] for phase in phases
                  for value in one.get(f"{phase}_us") or one.get(phase, {}).get("server") or [])


def survival(values):
    """[(time, share of all that take longer)]: every one of the longest, ever fewer towards the shortest. The last, of
    which nothing is longer, is left out, since a logarithm has no zero."""
    count, longer, points = len(values), 1, []
    while longer < count:
        points.append((values[count - 1 - longer], longer / count))
        longer = max(longer + 1, int(longer * (1 + 10 / MOST_POINTS)))
    return points[::-1] if not points else [(values[0], 1.0), *points[::-1]]


def curves(cell, outside):
    """[(name, [(time, share)], dashed)], without those that have nothing."""
    alone = sorted(value for rung in cell["rungs"] for value in samples(rung, "alone", "again"))
    found = [(ALONE, survival(alone), False)]
    found += [(rung["rung"], survival(samples(rung, "mixed")), dashed)
              for rung, dashed in [(rung, False) for rung in cell["rungs"]] + [(rung, True) for rung in outside]]
    return [curve for curve in found if curve[1]]


def between(value, low, high):
    """How far an interval reaches below and above a value; 0 where it is not known."""
    return [[0 if low is None else max(0, value - low)], [0 if high is None else max(0, high - value)]]


def points(cell, outside):
    """[(name, T, R99, T's interval, R99's interval, dashed)] of the rungs that have both numbers."""
    found = []
    for rung, dashed in [(rung, False) for rung in cell["rungs"]] + [(rung, True) for rung in outside]:
        t, r99 = rung.get("t"), rung.get("r99")
        if t is None or r99 is None:
            continue
        share = rung.get("u")
        ends = [None if share is None or rung.get(key) is None else rung[key] * (1 - share) for key in ("w_from", "w_to")]
        found.append((rung["rung"], t, r99, between(t, *ends), between(r99, rung.get("r99_from"), rung.get("r99_to")), dashed))
    return found


def spread(places, least_gap):
    """The same places, ascending, moved up as little as keeps them apart."""
    moved = []
    for place in places:
        moved.append(max(place, moved[-1] + least_gap) if moved else place)
    excess = moved[-1] - 1 if moved else 0
    return [place - max(0, excess) for place in moved]


def title(document, cell):
    return (f"{cell['latency']} at {cell['load']} ({cell['arrivals']}) beside {cell['neighbour']} in class {cell['class']}, "
            f"{document['device']}")


def figure(pyplot, heading):
    drawn, axes = pyplot.subplots(figsize=SIZE)
    drawn.subplots_adjust(left=0.09, right=LABELS, top=0.91, bottom=0.11)
    drawn.suptitle(heading, x=0.02, ha="left", fontsize=11, fontweight="bold")
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    return drawn, axes


def save(pyplot, drawn, path):
    drawn.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(drawn)


def draw_cdf(pyplot, heading, found, colours, path):
    drawn, axes = figure(pyplot, heading)
    for name, curve, dashed in found:
        axes.step([at for at, _ in curve], [share for _, share in curve], where="post", label=name, color=colours[name],
                  linestyle="--" if dashed else "-", linewidth=2.2 if name == ALONE else 1.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(top=1.2)
    shares = {0.5: "p50", 0.1: "p90", 0.01: "p99", 0.001: "p99.9", 0.0001: "p99.99"}
    shares = {share: name for share, name in shares.items() if share >= axes.get_ylim()[0]}
    axes.set_yticks(list(shares), list(shares.values()))
    axes.minorticks_off()
    axes.xaxis.set_major_locator(pyplot.matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(pyplot.matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("latency, us")
    axes.set_ylabel("requests that take longer")
    axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), frameon=False)
    save(pyplot, drawn, path)


def draw_plane(pyplot, heading, found, shares, colours, path):
    drawn, axes = figure(pyplot, heading)
    axes.set_yscale("log")
    for name, t, r99, t_interval, r99_interval, dashed in found:
        axes.errorbar([t], [r99], xerr=t_interval, yerr=r99_interval, fmt="s" if dashed else "o", color=colours[name],
                      markersize=6, linewidth=1.2, capsize=2)
    if shares:
        kept = 1 - sum(shares) / len(shares)
        axes.axvline(kept, color="#555555", linestyle=":", linewidth=1.2)
        axes.annotate(f"T = 1 - U = {kept:.3f}", (kept, 1), xycoords=("data", "axes fraction"), xytext=(4, -12),
                      textcoords="offset points", fontsize=9, color="#555555")
    axes.axhline(1, color="#555555", linestyle=":", linewidth=1.2)
    axes.margins(x=0.15)
    formatter = pyplot.matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}")
    few = axes.get_ylim()[1] < 8 * axes.get_ylim()[0]
    axes.yaxis.set_major_locator(pyplot.matplotlib.ticker.MaxNLocator(8) if few
                                 else pyplot.matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(formatter)
    axes.yaxis.set_minor_formatter(pyplot.matplotlib.ticker.NullFormatter())
    axes.set_xlabel("T: throughput of batch work, of that alone")
    axes.set_ylabel("R99: p99 beside batch work over p99 alone")
    # Labels beside the axes, in the order of the points, with a line to each: rungs that work lie close together.
    to_axes = axes.transAxes.inverted()
    places = [(to_axes.transform(axes.transData.transform((t, r99)))[1], name, t, r99) for name, t, r99, *_ in found]
    places.sort()
    for place, (_, name, t, r99) in zip(spread([place[0] for place in places], 0.055), places):
        axes.annotate(f"{name}  {r99:.2f}", (t, r99), xytext=(1.03, place), textcoords="axes fraction", va="center",
                      fontsize=9, color=colours[name], annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colours[name], "linewidth": 0.6, "alpha": 0.6})
    save(pyplot, drawn, path)


def draw(pyplot, document, cell, outside, prefix):
    """The files that were written."""
    heading, found, on_plane = title(document, cell), curves(cell, outside), points(cell, outside)
    names = list(dict.fromkeys(rung["rung"] for rung in cell["rungs"] + outside))
    colours = {ALONE: "#000000"} | {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    shares = [rung["u"] for rung in cell["rungs"] if rung.get("u") is not None]
    written = []
    if found:
        written.append(f"{prefix}-cdf.svg")
        draw_cdf(pyplot, heading, found, colours, written[-1])
    if on_plane:
        written.append(f"{prefix}-plane.svg")
        draw_plane(pyplot, heading, on_plane, shares, colours, written[-1])
    return written


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, help="JSON of bench/isolation")
    parser.add_argument("--out", required=True, metavar="PREFIX", help="path of the pictures without -cdf.svg and -plane.svg")
    parser.add_argument("--torch", type=pathlib.Path, action="append", default=[], metavar="JSON",
                        help="of scripts/gpu/isolation_torch.py; repeatable")
    parser.add_argument("--cell", type=int, default=1, metavar="N", help="which of the cells, from 1 (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.cell < 1:
        parser.error("--cell: expected at least 1")
    return arguments


def read(arguments):
    """(document, its cell, rungs of other programs in the same cell)."""
    document = json.loads(arguments.results.read_text())
    if arguments.cell > len(document["cells"]):
        raise ValueError(f"it has {len(document['cells'])} cells")
    cell, outside = document["cells"][arguments.cell - 1], []
    for path in arguments.torch:
        matching = [other for other in json.loads(path.read_text())["cells"] if all(other[key] == cell[key] for key in SAME)]
        if not matching:
            print(f"plot_isolation: {path} has nothing of this cell", file=sys.stderr)
        outside += [rung for other in matching for rung in other["rungs"]]
    return document, cell, outside


def main():
    arguments = parse_flags()
    try:
        import matplotlib
        matplotlib.use("svg")
        import matplotlib.pyplot as pyplot
        import matplotlib.ticker  # noqa: F401: used as pyplot.matplotlib.ticker
    except ImportError as error:
        print(f"plot_isolation: {error}; --help says how to install it", file=sys.stderr)
        return 1
    try:
        document, cell, outside = read(arguments)
        with matplotlib.rc_context(STYLE):
            written = draw(pyplot, document, cell, outside, arguments.out)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"plot_isolation: {arguments.results} is no result of bench/isolation: {error!r}", file=sys.stderr)
        return 1
    if not written:
        print(f"plot_isolation: nothing of {arguments.results} can be drawn", file=sys.stderr)
        return 1
    print("\n".join(written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
