// Testcontainers' KafkaContainer for Node starts the image; a client outside of it produces and consumes.
const { KafkaContainer } = require("@testcontainers/kafka");
const { Kafka, logLevel } = require("kafkajs");

async function seen(container) {
  const started = await container.start();
  try {
    const broker = `${started.getHost()}:${started.getMappedPort(9093)}`;
    const kafka = new Kafka({ brokers: [broker], logLevel: logLevel.NOTHING });
    const producer = kafka.producer();
    await producer.connect();
    await producer.send({ topic: "words", messages: [{ value: "from outside" }] });
    await producer.disconnect();
    const consumer = kafka.consumer({ groupId: "g" });
    await consumer.connect();
    await consumer.subscribe({ topic: "words", fromBeginning: true });
    const value = await new Promise((resolve) => {
      consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) });
    });
    await consumer.disconnect();
    return value;
  } finally {
    await started.stop();
  }
}

(async () => {
  const image = process.argv[2];
  console.log(JSON.stringify([
    await seen(new KafkaContainer(image)),
    await seen(new KafkaContainer(image).withKraft()),
  ]));
  process.exit(0);
})();
