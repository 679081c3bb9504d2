#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""Step pipeline: bench/pipeline, a process for each case, so that one that hangs or dies leaves the others.

A case that is given too little time runs fewer rounds, and fewer than three are no result.
"""
import json
import pathlib
import subprocess
import time

import machine as machines

# Case: (flags of the program, seconds it may take with loading its models). Rounds and phases are sized so that the
# whole step stays below 200 s on an H200.
CASES = {
    "stages": (["--rounds", "5", "--limit-seconds", "15"], 45),
    "copies": (["--rounds", "3", "--seconds", "0.8", "--limit-seconds", "30"], 45),
    "chain": (["--rounds", "5", "--seconds", "1", "--limit-seconds", "60"], 80),
    "cut": (["--rounds", "3", "--seconds", "0.7", "--limit-seconds", "45"], 75),
}
LEAST_SECONDS = 10


def parse_flags():
    parser = machines.step_parser(__doc__)
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated (default: all)")
    parser.add_argument("--limit-seconds", type=float, default=190, help="of the whole step (default: %(default)s)")
    parser.add_argument("--trace", type=pathlib.Path, help="keep the Chrome trace of one request of the case stages here")
    parser.add_argument("--quick", action="store_true", help="for trying the step on a small machine: nothing is judged")
    parser.add_argument("--bench-flags", default="", help="more flags for the program, separated by spaces")
    arguments = parser.parse_args()
    arguments.cases = arguments.cases.split(",")
    unknown = [case for case in arguments.cases if case not in CASES]
    if unknown:
        parser.error(f"unknown cases: {', '.join(unknown)}; known are {', '.join(CASES)}")
    return arguments


def command_of(machine, arguments, case, result):
    device = machine.devices.split(",")[0]
    command = [str(machine.program("pipeline")), "--models", str(machine.repository / "pipeline"), "--device", device,
               "--cases", case, "--json", str(result), *machine.module_flags(), *CASES[case][0]]
    if case == "stages":
        command += ["--trace", str(arguments.trace or machine.work / "pipeline-trace.json")]
    return command + (["--quick"] if arguments.quick else []) + arguments.bench_flags.split()


def run_case(machine, arguments, case, limit):
    """(what the program said in JSON or why not, its exit code or None)."""
    result = machine.work / f"pipeline-{case}.json"
    result.unlink(missing_ok=True)
    log = machine.work / f"pipeline-{case}.log"
    try:
        with open(log, "w") as errors:
            done = subprocess.run(command_of(machine, arguments, case, result), env=machine.environment, text=True,
                                  stdout=subprocess.PIPE, stderr=errors, timeout=limit)
    except subprocess.TimeoutExpired as stopped:
        print(stopped.stdout or "", f"{case}: stopped after {limit:.0f} s", flush=True)
        print("\n".join(log.read_text(errors="replace").splitlines()[-15:]), flush=True)
        return {"case": case, "within": False, "error": f"stopped after {limit:.0f} s"}, None
    print(done.stdout, flush=True)
    if not result.exists():
        print("\n".join(log.read_text(errors="replace").splitlines()[-15:]), flush=True)
        return {"case": case, "within": False, "error": f"exit {done.returncode}"}, done.returncode
    document = json.loads(result.read_text())["cases"][0]
    if "error" in document:
        print(document["error"], flush=True)
    return document, done.returncode


def describe(document):
    """What of a case is over its target."""
    if "error" in document:
        return document["error"].splitlines()[0][:100]
    over = [f"{target['what']} {target['value']:.3f}" for target in document["targets"] if not target["within"]]
    if document["submitted"] != document["answered"]:
        over.append(f"{document['submitted'] - document['answered']} requests unanswered")
    return ", ".join(over) or "within"


def main():
    arguments = parse_flags()
    machine = machines.from_flags(arguments)
    if machine.program("pipeline") is None:
        machines.finish(machine, "pipeline", False, "the program pipeline is not there")
    begin = time.monotonic()
    documents, passed = [], True
    for case in arguments.cases:
        left = arguments.limit_seconds - (time.monotonic() - begin)
        if left < LEAST_SECONDS:
            documents.append({"case": case, "within": False, "error": "no time was left"})
            passed = False
            continue
        document, code = run_case(machine, arguments, case, min(left, CASES[case][1]))
        documents.append(document)
        passed = passed and code == 0
    rows = [(document["case"], target["what"], f"{target['value']:.3f}",
             f"<= {target['at_most']:g}" if "at_most" in target else f">= {target['at_least']:g}",
             ("within" if target["within"] else "OVER") if target["judged"] else "not judged")
            for document in documents for target in document.get("targets", [])]
    print(machines.table(("case", "what", "value", "target", ""), rows))
    machines.finish(machine, "pipeline", passed,
                    "; ".join(f"{document['case']}: {describe(document)}" for document in documents),
                    {"cases": documents})


if __name__ == "__main__":
    main()
