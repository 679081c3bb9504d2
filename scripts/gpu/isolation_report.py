# SPDX-FileCopyrightText: The Sluice Authors
# SPDX-License-Identifier: Apache-2.0
"""What rounds of an experiment with a latency class beside batch work say: ratios of quantiles and their intervals, as
bench/common/statistics.cc makes them, and the schedule of arrivals as client/load/schedule.cc makes it.

A round is a dictionary: alone_us, again_us (the same once more) and mixed_us are latencies, batch_alone_rows_s and
batch_rows_s the batch work's throughput, u the share of the device that the latency model takes alone.
"""
import math

import numpy as np

DRAWS = 1000
LEAST_FOR_R999 = 10_000  # Samples on each side: ten beyond the quantile.
MASK = 2**64 - 1


def arrivals(rate, seconds, seed):
    """When requests come, in seconds from the start: Poisson; one seed gives the same gaps at every rate."""
    times, state, at = [], seed & MASK, 0.0
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        bits = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
        bits ^= bits >> 31
        at -= math.log(1.0 - (bits >> 11) * 2.0**-53) / rate
        if at >= seconds:
            return times
        times.append(at)


def quantile(numbers, share):
    """The smallest number that at least `share` of all do not exceed; None when there is none."""
    if len(numbers) == 0:
        return None
    rank = max(1, math.ceil(share * len(numbers) - 1e-9))
    return float(np.partition(np.asarray(numbers, float), rank - 1)[rank - 1])


def ratio(above, below):
    return None if above is None or not below else above / below


def pooled_ratio(rounds, share):
    """All rounds pooled; a round is a pair (above, below)."""
    if not rounds:
        return None
    return ratio(*(quantile(np.concatenate([pair[side] for pair in rounds]), share) for side in (0, 1)))


def interval(rounds, statistic, seed):
    """The middle 95 % of `statistic` when whole rounds are drawn anew, with replacement; (None, None) without rounds."""
    random = np.random.RandomState(seed)
    drawn = [statistic([rounds[i] for i in random.randint(0, len(rounds), len(rounds))])
             for _ in range(DRAWS if rounds else 0)]
    drawn = [value for value in drawn if value is not None]
    return (quantile(drawn, 0.025), quantile(drawn, 0.975))


def beside_over_alone(rounds):
    return [(np.asarray(one["mixed_us"], float), np.asarray(one["alone_us"] + one["again_us"], float)) for one in rounds]


def again_over_alone(rounds):
    return [(np.asarray(one["again_us"], float), np.asarray(one["alone_us"], float)) for one in rounds]


def mean(rounds, key):
    return sum(one[key] for one in rounds) / len(rounds)


def kept(rounds):
    """T: the batch work's throughput beside the latency class over that alone."""
    return ratio(mean(rounds, "batch_rows_s"), mean(rounds, "batch_alone_rows_s"))


def work(rounds):
    """W = T / (1 - U)."""
    share = mean(rounds, "u")
    return ratio(kept(rounds), 1 - share) if share < 1 else None


def describe(name, rounds, seed):
    """A rung, as bench/isolation writes one, with A/A beside it."""
    beside, again = beside_over_alone(rounds), again_over_alone(rounds)

    def r99(pairs):
        return pooled_ratio(pairs, 0.99)
    mixed = np.concatenate([above for above, _ in beside])
    alone = np.concatenate([below for _, below in beside])
    enough = min(len(mixed), len(alone)) >= LEAST_FOR_R999
    r99_from, r99_to = interval(beside, r99, seed)
    again_from, again_to = interval(again, r99, seed)
    w_from, w_to = interval(rounds, work, seed)
    return {"rung": name, "r50": pooled_ratio(beside, 0.5), "r99": r99(beside), "r99_from": r99_from, "r99_to": r99_to,
            "r999": pooled_ratio(beside, 0.999) if enough else None, "aa_r99": r99(again), "aa_r99_from": again_from,
            "aa_r99_to": again_to, "max_us": quantile(mixed, 1), "max_alone_us": quantile(alone, 1), "t": kept(rounds),
            "u": mean(rounds, "u"), "w": work(rounds), "w_from": w_from, "w_to": w_to, "rounds": rounds}
