from conftest import SlowPayment


def test_all_orders_are_paid_while_a_new_worker_takes_over(kafka, shop):
    for order_id in ("book", "pen", "lamp"):
        shop.orders.place(order_id, cents=500)
    shop.relay.run_once()
    group = kafka.group("payments")
    shop.bank.slow = payment = SlowPayment()
    old = shop.start_worker("old")
    payment.wait_until_begun()  # The old worker pays for the first order,

    shop.start_worker("new")
    kafka.wait(lambda _: len(group.members) == 2, describe="the new worker joins")
    old.stop()  # gets SIGTERM,
    payment.may_end.set()  # and ends when it has paid.
    group.wait_until_stable(members=1, assigned={"orders": 1})
    group.wait_until_lag(0, topic="orders")
    shop.stop_workers()

    assert sorted(shop.bank.bookings) == [("book", 500), ("lamp", 500), ("pen", 500)]


def test_an_order_is_paid_once_if_an_acknowledgement_is_lost(kafka, shop):
    shop.orders.place("book", cents=500)
    with kafka.fault(id="lost-answer", api="Produce", topic="orders", do={"disconnect": "after"}):
        shop.relay.run_once()

    shop.work_off()

    assert shop.bank.bookings == [("book", 500)]
    assert len(kafka.records("orders")) == 1


def test_an_order_is_paid_once_if_its_commit_is_refused(kafka, shop):
    shop.orders.place("book", cents=500)
    shop.relay.run_once()
    shop.bank.slow = payment = SlowPayment()
    with kafka.fault(id="refused", api="OffsetCommit", do={"error": "REBALANCE_IN_PROGRESS"}, times="unlimited"):
        first = shop.start_worker("first")
        payment.wait_until_begun()
        first.stop()
        payment.may_end.set()
        shop.stop_workers()

    shop.work_off()

    assert shop.bank.bookings == [("book", 500)]


def test_a_cancelled_order_costs_nothing_if_the_bank_was_away(shop):
    shop.orders.place("book", cents=500)
    shop.orders.cancel("book")
    shop.relay.run_once()
    shop.bank.failures = 1

    shop.work_off()

    charged = shop.bank.charged("book")
    assert charged == 0
