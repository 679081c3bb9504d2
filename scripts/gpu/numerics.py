#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step numerics: every model's answers, in every class, against ONNX Runtime on the CPU (tests/interop/parity_checks.py)."""
import json
import pathlib
import tempfile
import unittest

import numpy as np

import machine as machines
import parity_checks

MACHINE = None
CLASSES = ("latency", "standard", "batch")


class Parity(parity_checks.ParityChecks):
    """Each check once per class: latency runs the plan as one graph, the others in units."""

    request_class = "latency"

    @classmethod
    def setUpClass(cls):
        cls.models = MACHINE.repository / "models"
        cls.server_binary = str(MACHINE.program("sluice-server"))
        cls.server = MACHINE.start_server()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        if code != 0:
            print(f"the server ended with {code}:\n{cls.server.log()[-3000:]}")

    def served(self, model, name, data):
        with tempfile.NamedTemporaryFile(suffix=".npy", dir=MACHINE.work) as file:
            np.save(file.name, data)
            done = MACHINE.sluice("infer", "--url", self.server.grpc, "--model", model, "--input", f"{name}={file.name}",
                                  "--class", self.request_class, "--json")
        reply = json.loads(done.stdout)
        self.assertEqual(reply["class"], self.request_class)
        output = reply["outputs"][0]
        return np.array(output["data"], np.float32).reshape(output["shape"])

    def compare_rows(self, model, name, data):
        expected = self.reference(model, data)
        actual = self.served(model, name, data)
        allowed = 1e-3 * np.abs(expected).max()
        error = parity_checks.worst(actual, expected, 1e-3, allowed)
        print(f"{model}, {len(data)} rows, {self.request_class}: {error:.4f} of the allowed error")
        self.assertLessEqual(error, 1)
        # Planted: the rows in another order, or the columns, must not pass.
        wrong = self.served(model, name, np.ascontiguousarray(data[:, ::-1]))
        self.assertGreater(parity_checks.worst(wrong, expected, 1e-3, allowed), 1)

    def test_mlp24(self):
        width = self.width("mlp24")
        self.compare_rows("mlp24", "x", np.random.RandomState(7).standard_normal((1, width)).astype(np.float32))

    def test_gemm(self):
        width = self.width("gemm")
        self.compare_rows("gemm", "x", np.random.RandomState(8).standard_normal((100, width)).astype(np.float32))

    def width(self, model):
        config = (pathlib.Path(self.models) / model / "config.pbtxt").read_text()
        return int(config.split("dims: [")[1].split("]")[0].split(",")[-1])


def suite():
    tests = unittest.TestSuite()
    for request_class in CLASSES:
        case = type(f"Parity_{request_class}", (Parity, unittest.TestCase), {"request_class": request_class})
        tests.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    return tests


def main():
    global MACHINE
    MACHINE = machines.from_flags(machines.step_parser(__doc__).parse_args())
    result = unittest.TextTestRunner(verbosity=2).run(suite())
    bad = len(result.failures) + len(result.errors)
    machines.finish(MACHINE, "numerics", result.wasSuccessful(), f"{result.testsRun - bad} of {result.testsRun} comparisons")


if __name__ == "__main__":
    main()
