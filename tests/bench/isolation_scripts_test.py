# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Goal: what scripts/gpu/isolation_torch.py reports and scripts/plot_isolation.py draws. Method: numbers whose ratios are
known, and a made-up result; pictures only where matplotlib is."""
import contextlib
import copy
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts" / "gpu"), str(ROOT / "scripts")]
import isolation_report as report  # noqa: E402: the path is set above
import plot_isolation  # noqa: E402: likewise

try:
    import matplotlib  # noqa: F401: whether it is there
    HAS_MATPLOTLIB = True
except ImportError:
    HAS_MATPLOTLIB = False


def up_to(last, factor=1.0):
    return [factor * number for number in range(1, last + 1)]


def made_round(factor, kept=800.0):
    return {"alone_us": up_to(50), "again_us": up_to(50), "mixed_us": up_to(100, factor), "batch_alone_rows_s": 1000.0,
            "batch_rows_s": kept, "u": 0.2}


def as_the_program_writes(one):
    phases = {phase: {"server": one[f"{phase}_us"], "wait": []} for phase in ("alone", "again", "mixed")}
    return {key: value for key, value in one.items() if not key.endswith("_us")} | phases


def made_result():
    rungs = [report.describe(name, [made_round(factor), made_round(factor * 1.1)], 1)
             for name, factor in (("one class", 9.0), ("priority streams only", 2.0), ("product", 1.01))]
    rungs = [rung | {"rounds": [as_the_program_writes(one) for one in rung["rounds"]]} for rung in rungs]
    empty = {"rung": "left out", "rounds": []} | dict.fromkeys(("r50", "r99", "r99_from", "r99_to", "r999", "t", "u", "w"))
    cell = {"latency": "mlp24", "neighbour": "gemm", "class": "batch", "load": "20 %", "arrivals": "poisson",
            "rungs": [*rungs, empty]}
    return {"device": "made up", "cells": [cell]}


class ReportTest(unittest.TestCase):
    def test_the_schedule_is_that_of_the_load_generator(self):
        # Of client::Random(7) and client::MakeSchedule's formula at 10 a second.
        self.assertEqual(report.arrivals(10, 10, 7)[:3], [0.049401725975830243, 0.051094807507550945, 0.28211690534486505])
        self.assertTrue(all(at < 2 for at in report.arrivals(100, 2, 1)))
        self.assertAlmostEqual(len(report.arrivals(1000, 10, 1)) / 10_000, 1, delta=0.05)

    def test_quantile_is_the_smallest_that_covers_the_share(self):
        self.assertEqual(report.quantile(up_to(100), 0.99), 99)
        self.assertEqual(report.quantile(up_to(100), 0.991), 100)
        self.assertEqual(report.quantile([7], 0.01), 7)
        self.assertIsNone(report.quantile([], 0.5))

    def test_a_rung(self):
        rung = report.describe("product", [made_round(1.5), made_round(1.5)], 1)
        self.assertEqual((rung["r99"], rung["r99_from"], rung["r99_to"]), (1.5 * 99 / 50, 1.5 * 99 / 50, 1.5 * 99 / 50))
        self.assertEqual(rung["aa_r99"], 1)
        self.assertEqual((rung["t"], rung["w"], rung["max_us"]), (0.8, 1.0, 150))
        self.assertIsNone(rung["r999"])
        many = report.describe("product", [{**made_round(1), "alone_us": up_to(5000), "again_us": up_to(5000),
                                            "mixed_us": up_to(10_000)}], 1)
        self.assertEqual(many["r999"], 9990 / 4995)

    def test_an_interval_covers_its_value_and_repeats(self):
        rounds = [made_round(1.0, 700), made_round(1.2, 800), made_round(1.4, 900)]
        rung = report.describe("product", rounds, 7)
        self.assertEqual(rung, report.describe("product", rounds, 7))
        self.assertTrue(rung["r99_from"] < rung["r99"] <= rung["r99_to"])
        self.assertTrue(rung["w_from"] < rung["w"] < rung["w_to"])

    def test_a_device_that_the_latency_model_fills_leaves_no_w(self):
        self.assertIsNone(report.describe("product", [made_round(1) | {"u": 1.2}], 1)["w"])


class PlotTest(unittest.TestCase):
    def run_plot(self, document, *more):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "result.json"
            path.write_text(document if isinstance(document, str) else json.dumps(document))
            errors = io.StringIO()
            with mock.patch.object(sys, "argv", ["plot_isolation", str(path), "--out", f"{folder}/p", *more]), \
                    contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                code = plot_isolation.main()
            return code, errors.getvalue(), {file.name: file.read_text() for file in pathlib.Path(folder).glob("*.svg")}

    def test_a_curve_keeps_the_tail(self):
        curve = plot_isolation.survival(up_to(100_000))
        self.assertEqual(curve[0], (1, 1.0))
        self.assertEqual(curve[-3:], [(99_997, 3e-5), (99_998, 2e-5), (99_999, 1e-5)])
        self.assertLess(len(curve), plot_isolation.MOST_POINTS)
        self.assertEqual(curve, sorted(curve, key=lambda point: point[0]))
        self.assertEqual(plot_isolation.survival([]), [])

    def test_both_forms_of_rounds_are_read(self):
        curves = plot_isolation.curves(made_result()["cells"][0], [report.describe("PyTorch", [made_round(3.0)], 1)])
        self.assertEqual([(name, dashed) for name, _, dashed in curves],
                         [("alone", False), ("one class", False), ("priority streams only", False), ("product", False),
                          ("PyTorch", True)])
        self.assertEqual([curve[0] for _, curve, _ in curves], [(1, 1.0), (9, 1.0), (2, 1.0), (1.01, 1.0), (3, 1.0)])

    def test_points_need_both_numbers(self):
        cell = made_result()["cells"][0]
        found = plot_isolation.points(cell, [])
        self.assertEqual([point[0] for point in found], ["one class", "priority streams only", "product"])
        self.assertEqual(plot_isolation.between(2, None, 3), [[0], [1]])

    def test_labels_keep_apart(self):
        places = plot_isolation.spread([0.0, 0.01, 0.99, 1.0], 0.1)
        self.assertTrue(all(b - a > 0.0999 for a, b in zip(places, places[1:])))
        self.assertLessEqual(places[-1], 1)

    @unittest.skipUnless(HAS_MATPLOTLIB, "no matplotlib (scripts/plot-requirements.txt)")
    def test_pictures_have_every_rung_and_repeat(self):
        document = made_result()
        with tempfile.NamedTemporaryFile("w", suffix=".json") as outside:
            other = copy.deepcopy(document)
            other["cells"][0]["rungs"] = [report.describe("PyTorch", [made_round(3.0)], 1)]
            outside.write(json.dumps(other))
            outside.flush()
            code, errors, pictures = self.run_plot(document, "--torch", outside.name)
            again = self.run_plot(document, "--torch", outside.name)
        self.assertEqual((code, errors, sorted(pictures)), (0, "", ["p-cdf.svg", "p-plane.svg"]))
        for picture in pictures.values():
            for name in ("one class", "priority streams only", "product", "PyTorch"):
                self.assertIn(name, picture)
        self.assertEqual(pictures, again[2])

    @unittest.skipUnless(HAS_MATPLOTLIB, "no matplotlib (scripts/plot-requirements.txt)")
    def test_what_is_no_result_says_so(self):
        for document in ("{", "{}", {"device": "x", "cells": []}, made_result() | {"cells": [{"rungs": []}]}):
            code, errors, pictures = self.run_plot(document)
            self.assertEqual((code, pictures), (1, {}))
            self.assertIn("no result", errors)
        self.assertEqual(self.run_plot(made_result(), "--cell", "2")[0], 1)


if __name__ == "__main__":
    unittest.main()
