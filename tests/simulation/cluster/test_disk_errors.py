"""What is drawn for failing disks: errors of reads change no other draw of a seed."""

import random

from tests.simulation.cluster.disk_errors import DISK_ERRORS, READ_ERRORS, DiskErrors

TIMES = 200


def test_refused_reads_are_drawn_beside_the_others() -> None:
    rng, alone = random.Random(1), random.Random(1)
    errors = DiskErrors(rng, random.Random)
    without_reads = DiskErrors(alone, lambda _: _Never())

    drawn = [errors.draw() for _ in range(TIMES)]
    others = [without_reads.draw() for _ in range(TIMES)]

    assert rng.getstate() == alone.getstate()
    same = sum(one == other for one, other in zip(drawn, others, strict=True))
    assert TIMES * 0.5 < same < TIMES * 0.7
    kinds = {(code, tuple(dict.fromkeys(operation for operation, _ in failures))) for code, failures in drawn}
    assert kinds == {(code, tuple(operations)) for code, operations in DISK_ERRORS + READ_ERRORS}


def test_brokers_go_on_after_half_of_the_repairs() -> None:
    errors = DiskErrors(random.Random(1), random.Random)

    go_on = sum(errors.draw_goes_on() for _ in range(TIMES))

    assert TIMES * 0.4 < go_on < TIMES * 0.6


class _Never(random.Random):
    def random(self) -> float:
        return 1.0
