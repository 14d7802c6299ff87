"""A gate on cost: what a batch asks of the brokers is what golden/requests.json says, and why."""

from __future__ import annotations

from request_counts import count, expected, is_bounded

RENEW = (
    "'python integration_tests/support/request_counts.py' writes it anew; then say there what it "
    "is for"
)
# Of requests that clients send of themselves: on a busy machine they ask again before the answer.
ASKED_AGAIN = 3


def test_a_batch_costs_the_requests_that_are_written_down():
    wanted, why = expected()
    assert not [line for line in wanted if not why[line]], f"lines without a comment. {RENEW}"
    found = count()
    exact = {line: counts for line, counts in found.items() if not is_bounded(line)}
    assert exact == {line: counts for line, counts in wanted.items() if not is_bounded(line)}, RENEW
    for line in filter(is_bounded, found):
        more = {
            job: n
            for job, n in found[line].items()
            if n > wanted.get(line, {}).get(job, 0) + ASKED_AGAIN
        }
        assert not more, f"{line}: {more}, of at most {wanted.get(line)}. {RENEW}"
