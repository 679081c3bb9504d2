# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""The rounds of step torch: Sluice's plans and PyTorch's graphs of one network in turns, and what their times say."""
import json
import statistics

from talker import Talker

ANSWER_SECONDS = 60  # At most for one measurement of one batch size.
END_SECONDS = 10  # For the results, after the last round.
OTHERS_EVERY = 5  # What is in no ratio is measured in every fifth round.


def one_line(error):
    return " ".join(str(error).split())[:300]


def note(rows, reason):
    for row in rows:
        if reason not in row["reasons"]:
            row["reasons"].append(reason)


class Plans(Talker):
    """bench/plans with --paced; its results are in a file at its end."""

    def __init__(self, command, environment, log, result):
        super().__init__("plans", command, environment, log)
        self.result = result
        self.errors = []

    def results(self, rows):
        """{rows: what it wrote of them}; what it could not measure becomes a reason of those rows."""
        document = json.loads(self.result.read_text()) if self.result.exists() else {"rows": [], "errors": []}
        self.errors = document["errors"]
        for error in self.errors:
            note([row for row in rows if error.get("rows", row["rows"]) == row["rows"]], f"plans: {one_line(error['error'])}")
        return {row["rows"]: row for row in document["rows"]}

    def why(self, ending):
        """Of a process that ended like that: its errors, otherwise the last that it said."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        said = [error["error"] for error in self.errors] or [f"{ending}: {lines[-1]}" if lines else ending]
        return f"plans: {one_line(said[0])}"


class Pairs:
    """Both sides of one network. `peer` names PyTorch's side that is compared; `patience` gives the seconds that are left
    and raises RuntimeError when there are none. Why something could not be measured becomes a reason of the rows."""

    def __init__(self, plans, torch, peer, rows, patience):
        self.plans, self.torch, self.peer, self.rows, self.patience = plans, torch, peer, rows, patience
        self.sides = {}  # {rows: {side of PyTorch: error in norm, or why it is not there}}

    def measure(self, rounds):
        """A side that is None or cannot be loaded leaves the other to be measured alone."""
        # One after the other, since loading measures as well.
        if self.plans is not None and not self.attempt(self.load_plans):
            self.plans = None
        if self.torch is not None and not self.attempt(self.load_torch):
            self.torch, self.sides = None, {}
        self.attempt(lambda: self.run(rounds))
        if self.plans is not None:
            self.attempt(self.finish_plans)
        if self.torch is not None and self.torch.reason() is None:
            self.attempt(lambda: self.torch.ask("end", "measured", END_SECONDS))

    def attempt(self, step):
        try:
            step()
            return True
        except (RuntimeError, OSError, ValueError) as error:
            note(self.rows, one_line(error))
            return False

    def load_plans(self):
        self.plans.start()
        seconds = self.patience()
        if self.plans.wait("loaded", seconds):
            return
        reason = self.plans.reason() or f"not loaded in {seconds:.0f} s"
        self.plans.stop()
        self.plans.results(self.rows)
        raise RuntimeError(self.plans.why(reason))

    def load_torch(self):
        self.sides = self.torch.ask("measure", "ready", self.patience())["rows"]
        for row in self.rows:
            for side, told in self.sides.get(str(row["rows"]), {}).items():
                row[f"{side}_error"] = told.get("error_in_norm")
                if "reason" in told:
                    note([row], f"{side}: {told['reason']}")

    def run(self, rounds):
        """Appends to the rows' times; only the last round may lack something. Raises RuntimeError."""
        for number in range(rounds if self.plans or self.torch else 0):
            try:
                for row in self.rows:
                    self.round(row)
                for row in self.rows if number % OTHERS_EVERY == 0 else []:
                    for side in self.sides.get(str(row["rows"]), {}):
                        if side != self.peer:
                            self.replay_torch(row, side)
            except RuntimeError as error:
                raise RuntimeError(f"{number} of {rounds} rounds: {error}") from error

    def round(self, row):
        self.replay_plan(row, "sluice_ms")
        self.replay_torch(row, self.peer)
        self.replay_plan(row, "again_ms")

    def replay_plan(self, row, times):
        if self.plans is None:
            return
        told = self.ask(self.plans, str(row["rows"]))
        # Of a plan that failed there are none, from then on.
        row[times] += [plan["ms"] for plan in told["plans"] if plan["rows"] == row["rows"]]

    def replay_torch(self, row, side):
        if "error_in_norm" not in self.sides.get(str(row["rows"]), {}).get(side, {}):
            return
        told = self.ask(self.torch, f"round {row['rows']} {side}")
        row[f"{side}_ms"].append(told["ms"])

    def ask(self, talker, line):
        try:
            return talker.ask(line, "round", min(self.patience(), ANSWER_SECONDS))
        except RuntimeError:
            if talker.reason() is None:
                self.patience()  # It was not slow when there was no time.
            raise

    def finish_plans(self):
        code = self.plans.end_input(END_SECONDS)
        results = self.plans.results(self.rows)
        for row in self.rows:
            row["kernels"] = results.get(row["rows"], {}).get("kernels", row.get("kernels"))
        if code is None or (code != 0 and not self.plans.errors):
            raise RuntimeError(self.plans.why("no results in time" if code is None else f"exit {code}"))


def quartiles(numbers):
    """First, second (the median) and third."""
    return statistics.quantiles(numbers, n=4, method="inclusive") if len(numbers) > 1 else 3 * list(numbers)


def judge(row, peer):
    """Ratios of the rounds in which everything was measured, and their quartiles."""
    rounds = list(zip(row["sluice_ms"], row[f"{peer}_ms"], row["again_ms"]))
    row["ratios"] = [(first + second) / 2 / other for first, other, second in rounds]
    row["again_ratios"] = [second / first for first, second in zip(row["sluice_ms"], row["again_ms"])]
    for name in ("ratio", "again_ratio"):
        if row[f"{name}s"]:
            row[f"{name}_quartiles"] = quartiles(row[f"{name}s"])
            row[name] = row[f"{name}_quartiles"][1]
