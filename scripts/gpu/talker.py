# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""A process that is paced from here: lines on its standard input, lines of JSON with an "event" on its standard output."""
import json
import subprocess
import threading

BROKEN_PIPE_SECONDS = 1  # The word that a process ended comes after its pipe broke.


class Talker:
    """One process and what it said. One thread asks, any may wait. Every wait has a bound, and ends when the process does."""

    def __init__(self, name, command, environment, log):
        self.name, self.command, self.environment, self.log = name, command, environment, log
        self.process = None
        self.events = {}
        self.changed = threading.Condition()

    def start(self):
        """That it could not be started is an event as well."""
        try:
            with open(self.log, "w") as log:
                self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                                text=True, env=self.environment)
        except OSError as error:
            self.tell({"event": "failed", "reason": str(error)})
            return
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "failed", "reason": f"said {line[:100]!r}"}
            self.tell(event)
        self.tell({"event": "ended", "code": self.process.wait()})

    def tell(self, event):
        with self.changed:
            self.events.setdefault(event["event"], []).append(event)
            self.changed.notify_all()

    def wait(self, event, seconds, number=1):
        """The `number`-th such event; None when the process failed or ended before, or it did not come in time."""
        def here():
            return len(self.events.get(event, ())) >= number
        with self.changed:
            self.changed.wait_for(lambda: here() or "failed" in self.events or "ended" in self.events, max(seconds, 0))
            return self.events[event][number - 1] if here() else None

    def ask(self, line, event, seconds):
        """Writes a line; returns the next such event, or raises RuntimeError."""
        with self.changed:
            number = len(self.events.get(event, ())) + 1
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except (AttributeError, OSError) as error:  # AttributeError: it was never started.
            self.wait("ended", BROKEN_PIPE_SECONDS)
            raise RuntimeError(f"{self.name}: {self.reason() or error}") from error
        found = self.wait(event, seconds, number)
        if found is None:
            raise RuntimeError(f"{self.name}: {self.reason() or f'no answer to {line!r} in {seconds:.0f} s'}")
        return found

    def reason(self):
        """Why nothing more is to come from it, None while more may."""
        with self.changed:
            if "failed" in self.events:
                return self.events["failed"][0]["reason"]
            return f"exit {self.events['ended'][0]['code']}" if "ended" in self.events else None

    def end_input(self, seconds):
        """Lets it finish: its exit code, None when it did not in time."""
        try:
            self.process.stdin.close()
        except (AttributeError, OSError):
            pass
        ended = self.wait("ended", seconds)
        return ended["code"] if ended else None

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
