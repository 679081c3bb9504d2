# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks a server by `sluice infer`, which is in the bundle: machines with a GPU may lack a Python client."""
import json
import pathlib
import tempfile

import numpy as np


class CommandLine:
    def __init__(self, machine, url):
        self.machine, self.url = machine, url

    def ask(self, model, values, request_class):
        """{output: array}; raises RuntimeError with what the command said."""
        with tempfile.TemporaryDirectory(dir=self.machine.work) as folder:
            flags = []
            for name, value in values.items():
                np.save(pathlib.Path(folder) / f"{name}.npy", value)
                flags += ["--input", f"{name}={folder}/{name}.npy"]
            done = self.machine.sluice("infer", "--url", self.url, "--model", model, *flags, "--class", request_class, "--json",
                                       check=False)
        if done.returncode != 0:
            raise RuntimeError((done.stderr or done.stdout).strip() or f"exit {done.returncode}")
        return {output["name"]: np.array(output["data"], np.float32).reshape(output["shape"])
                for output in json.loads(done.stdout)["outputs"]}
