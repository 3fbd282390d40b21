"""When the next sample is due. Pure, so that a slow sample can be tried without waiting for one."""


def next_due_s(due_s: float, now_s: float, period_s: float) -> float:
    """The first moment after ``now_s`` on the grid that ``due_s`` is on, in seconds of the same monotonic clock.

    A sample that outlasts its period costs the ticks it ran over; they are not caught up on, and the grid stays.
    """
    following_s = due_s + period_s
    if following_s >= now_s:
        return following_s
    missed = int((now_s - due_s) / period_s)
    return due_s + (missed + 1) * period_s
