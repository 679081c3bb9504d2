#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Parity: every model of a repository through a real server against ONNX Runtime on the CPU.

Each model is asked for one row and for several, in the classes named, with seeded inputs. An output is right when
|a - b| <= 1e-3 |b| + 1e-4 max|b| for every element, integers when they are equal; the table shows the worst of it as a share of what is allowed, and the
error in norm, |a - b| / |b|. In less than FP32 (scripts/gpu/parity.py) an output is right when its error in norm is at most
1e-2 for FP16 and BF16, 2e-3 for TF32. The comparison itself is checked: answers for the rows in another order must not pass.
exit codes: 0 all right, 1 a model is wrong or was not served, 2 usage
"""
import argparse
import json
import pathlib
import sys

import numpy as np
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import server_process  # noqa: E402: the path is set above
from errors import norm_error, share_of_allowed  # noqa: E402: in this folder

HEADER = ("model", "class", "rows", "output", "of allowed", "in norm", "planted", "")
NORM_LIMITS = {"tf32": 2e-3, "fp16": 1e-2, "bf16": 1e-2}
# Of the smallest vocabulary and table that scripts/export_models.py writes.
INDEX_BOUNDS = {"input_ids": 100, "token_type_ids": 2, "indices": 50}


def inputs_of(session, rows, random):
    """Seeded values for every input: masks that leave out a tail of each row, indices within bounds, else normal ones."""
    values = {}
    for tensor in session.get_inputs():
        dims = [rows] + [int(dim) for dim in tensor.shape[1:]]
        if tensor.name == "attention_mask":
            lengths = random.randint(dims[1] // 4, dims[1] + 1, (rows, 1))
            values[tensor.name] = (np.arange(dims[1]) < lengths).astype(np.int64)
        elif tensor.type == "tensor(int64)":
            values[tensor.name] = random.randint(0, INDEX_BOUNDS[tensor.name], dims).astype(np.int64)
        else:
            values[tensor.name] = random.standard_normal(dims).astype(np.float32)
    return values


class Client:
    """Asks a server by tritonclient; scripts/gpu/parity.py has another, for machines without it."""

    def __init__(self, url):
        import tritonclient.grpc as tritonclient
        self.tritonclient = tritonclient
        self.client = tritonclient.InferenceServerClient(url)

    def ask(self, model, values, request_class):
        """{output: array}."""
        tensors = []
        for name, value in values.items():
            tensor = self.tritonclient.InferInput(name, list(value.shape), "INT64" if value.dtype == np.int64 else "FP32")
            tensor.set_data_from_numpy(value)
            tensors.append(tensor)
        reply = self.client.infer(model, tensors, headers={"sluice-class": request_class}, client_timeout=120)
        return {output.name: reply.as_numpy(output.name) for output in reply.get_response().outputs}


def compare(client, session, model, rows, request_class, seed, precision="fp32"):
    """Rows of the table."""
    def share_of_limit(actual, right):
        limit = NORM_LIMITS.get(precision)
        return share_of_allowed(actual, right) if limit is None else norm_error(actual, right) / limit
    values = inputs_of(session, rows, np.random.RandomState(seed))
    expected = session.run(None, values)
    reply = client.ask(model, values, request_class)
    result = []
    for output, right in zip(session.get_outputs(), expected):
        actual = reply[output.name]
        share = share_of_limit(actual, right) if actual.shape == right.shape else float("inf")
        # Labels may be the same from the back.
        turns = actual.shape == right.shape and not np.array_equal(right, right[::-1])
        planted = share_of_limit(actual[::-1], right) if turns else None
        right_enough = share <= 1 and (planted is None or planted > 1)
        result.append({"model": model, "class": request_class, "rows": rows, "output": output.name, "of_allowed": share,
                       "in_norm": norm_error(actual, right) if actual.shape == right.shape else float("inf"),
                       "planted": planted, "right": right_enough})
    return result


def cells(row):
    if "error" in row:
        return (row["model"], row["class"], row["rows"], row["error"], "-", "-", "-", "WRONG")
    return (row["model"], row["class"], row["rows"], row["output"], f"{row['of_allowed']:.4f}", f"{row['in_norm']:.1e}",
            "-" if row["planted"] is None else f"{row['planted']:.0f}", "" if row["right"] else "WRONG")


def print_table(rows):
    table = [HEADER] + [tuple(map(str, cells(row))) for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEADER))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="path of sluice-server")
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "small",
                        help="model repository (default: the small models beside this script)")
    parser.add_argument("--only", default="", help="comma-separated beginnings of names (default: all)")
    parser.add_argument("--classes", default="latency,batch", help="comma-separated (default: %(default)s)")
    parser.add_argument("--rows", default="1,3", help="of the requests, comma-separated (default: %(default)s)")
    parser.add_argument("--server-flags", default="--devices host", help="separated by spaces (default: %(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows to this file")
    return parser.parse_args()


def models_in(repository, only=""):
    """Names of its models that begin with one of `only`, comma-separated."""
    wanted = tuple(filter(None, only.split(",")))
    names = sorted({path.parent.parent.name for path in repository.glob("*/*/model.onnx")})
    return [name for name in names if not wanted or name.startswith(wanted)]


def compare_all(client, repository, models, classes, counts, precision="fp32"):
    """All rows of the table; progress goes to standard error."""
    rows = []
    for seed, model in enumerate(models):
        session = onnxruntime.InferenceSession(str(repository / model / "1" / "model.onnx"),
                                               providers=["CPUExecutionProvider"])
        for request_class in classes:
            for count in counts:
                try:
                    rows += compare(client, session, model, count, request_class, seed, precision)
                except Exception as error:  # One model's failure leaves the others to be looked at.
                    rows.append({"model": model, "class": request_class, "rows": count, "right": False,
                                 "error": str(error).splitlines()[0][:120]})
        print(f"{model}: {'right' if all(row['right'] for row in rows if row['model'] == model) else 'WRONG'}",
              file=sys.stderr, flush=True)
    return rows


def main():
    arguments = parse_flags()
    models = models_in(arguments.models, arguments.only)
    if not models:
        print(f"no models in {arguments.models}", file=sys.stderr)
        return 1
    server = server_process.ServerProcess(arguments.server, "--strict-readiness=false", *arguments.server_flags.split(),
                                          repository=arguments.models)
    try:
        rows = compare_all(Client(server.grpc), arguments.models, models, arguments.classes.split(","),
                           [int(count) for count in arguments.rows.split(",")])
    finally:
        code = server.stop()
    print_table(rows)
    wrong = sum(not row["right"] for row in rows)
    print(f"{len(models)} models, {len(rows)} outputs, {wrong} wrong; the server ended with {code}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    return 1 if wrong or code != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
