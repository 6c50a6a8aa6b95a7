// Run it by: ottla run -- node --test orders.test.mjs

import assert from "node:assert";
import { beforeEach, test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import kafkajs from "kafkajs";
import { Refused, addFault, ask, disk, records, reset, waitFor } from "./control.mjs";

const { Kafka, logLevel } = kafkajs;

async function withProducer(work) {
  const brokers = process.env.KAFKA_BOOTSTRAP_SERVERS.split(",");
  const kafka = new Kafka({ clientId: "billing", brokers, logLevel: logLevel.NOTHING, retry: { initialRetryTime: 20 } });
  const producer = kafka.producer();
  await producer.connect();
  try {
    await work(producer);
  } finally {
    await producer.disconnect();
  }
}

beforeEach(reset);

test("an order gets there though the leader has moved twice", async () => {
  await ask("POST", "/v1/topics", { name: "orders", partitions: 1 });
  const fault = await addFault({
    match: { api: "Produce", topic: "orders" },
    do: { error: "NOT_LEADER_OR_FOLLOWER" },
    times: 2,
  });

  await withProducer((producer) => producer.send({ topic: "orders", messages: [{ value: "book" }] }));

  await waitFor("fault-hits", { fault: fault.id, hits: 2 });
  assert.deepStrictEqual((await records("orders")).map((each) => each.value.text), ["book"]);
});

test("an order gets there once the broker's disk has room again", async () => {
  await ask("POST", "/v1/topics", { name: "orders", partitions: 1 });
  await disk(0, { do: "full" });

  await withProducer(async (producer) => {
    const hasFailed = async () => (await ask("GET", "/v1/coverage")).errors["Produce KAFKA_STORAGE_ERROR"];
    const heal = async () => {
      while (!(await hasFailed())) await pause(10);
      await disk(0, { do: "heal" });
    };
    await Promise.all([producer.send({ topic: "orders", messages: [{ value: "book" }] }), heal()]);
  });

  assert.deepStrictEqual((await records("orders")).map((each) => each.value.text), ["book"]);
});

test("a wait that is over says why", async () => {
  await ask("POST", "/v1/topics", { name: "orders", partitions: 1 });
  // Without `optional`, ottla run would end with status 3: a rule that never acts tests nothing.
  const match = { api: "Produce", topic: "order" };
  await addFault({ id: "misspelt", match, do: { error: "INVALID_RECORD" }, optional: true });

  await withProducer((producer) => producer.send({ topic: "orders", messages: [{ value: "pen" }] }));

  await assert.rejects(waitFor("fault-hits", { fault: "misspelt", within_ms: 100 }), (error) => {
    assert.ok(error instanceof Refused);
    assert.strictEqual(error.problem.status, 408);
    assert.match(error.problem.state, /matched all but topic: 'orders' ≠ 'order'/);
    assert.deepStrictEqual(error.problem.missing, ["1 of 1 hits"]);
    return true;
  });
});
