// kafkajs in transactions: what its own suite asks of a broker, in our own words. Prints one JSON object of what it saw.
// node transactions.js HOST:PORT

import kafkajs from 'kafkajs'
import { until } from './until.js'

const { Kafka, logLevel } = kafkajs

const kafka = new Kafka({ clientId: 'transactions', brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
const seen = {}

async function failure(action) {
  try {
    await action()
    return null
  } catch (error) {
    return error.type ?? error.name
  }
}

async function producer(transactionalId, settings = {}) {
  const made = kafka.producer({ transactionalId, maxInFlightRequests: 1, idempotent: true, ...settings })
  await made.connect()
  return made
}

const messages = values => [...values].map(value => ({ key: value, value, partition: 0 }))

// Every value that a group reads from the topic, joined, as soon as there are so many.
async function read(topic, count, settings = {}) {
  const consumer = kafka.consumer({ groupId: `${topic}-${count}`, maxWaitTimeInMs: 100, ...settings })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let values = ''
  await consumer.run({ eachMessage: async ({ message }) => void (values += message.value) })
  await until(() => values.length >= count, `${count} records of ${topic} (${values})`)
  await consumer.disconnect()
  return values
}

async function inTransaction(sender, topic, values, end) {
  const transaction = await sender.transaction()
  await transaction.send({ topic, messages: messages(values) })
  await transaction[end]()
  return transaction
}

const admin = kafka.admin()
await admin.connect()
const topics = ['flow', 'mixed', 'small', 'offsets', 'ongoing', 'fenced']
await admin.createTopics({ topics: topics.map(topic => ({ topic, numPartitions: 2 })) })

// One transaction at a time, none goes on after its end, and both ends are followed by another.
const flow = await producer('flow')
const open = await flow.transaction()
seen.second = await failure(() => flow.transaction())
await open.send({ topic: 'flow', messages: messages('ab') })
await open.sendBatch({ topicMessages: [{ topic: 'flow', messages: messages('cd') }] })
await open.commit()
seen.afterEnd = await failure(() => open.send({ topic: 'flow', messages: messages('e') }))
const dropped = await inTransaction(flow, 'flow', 'fgh', 'abort')
seen.afterAbort = await failure(() => dropped.commit())
await inTransaction(flow, 'flow', 'ij', 'commit')
seen.flow = await read('flow', 6)
seen.flowUncommitted = await read('flow', 9, { readUncommitted: true })

// Records outside of transactions go by a producer id of their own.
const mixed = await producer('mixed')
await mixed.send({ topic: 'mixed', messages: messages('p') })
await inTransaction(mixed, 'mixed', 'aa', 'commit')
await inTransaction(mixed, 'mixed', 'bb', 'abort')
await mixed.send({ topic: 'mixed', messages: messages('q') })
await inTransaction(mixed, 'mixed', 'cc', 'commit')
const begun = await mixed.transaction()
await mixed.send({ topic: 'mixed', messages: messages('r') })
await begun.abort()
seen.mixed = await read('mixed', 7)

// Answers so small that one has nothing but a marker.
const small = await producer('small')
const many = await small.transaction()
for (const message of messages('abcdefghijklmnopqrst')) await many.send({ topic: 'small', messages: [message] })
await many.commit()
await small.send({ topic: 'small', messages: messages('yz') })
seen.small = await read('small', 22, { maxBytes: 170, maxBytesPerPartition: 170 })

// Offsets of a group count when they are committed.
const offsets = await producer('offsets')
const partitions = (first, second) => [{ partition: 0, offset: first }, { partition: 1, offset: second }]
for (const [places, end] of [[partitions('5', '10'), 'commit'], [partitions('6', '11'), 'abort']]) {
  const transaction = await offsets.transaction()
  const place = { consumerGroupId: 'group', topics: [{ topic: 'offsets', partitions: places }] }
  // That the transaction before still ends is an error that kafkajs leaves to its caller here.
  while (await failure(() => transaction.sendOffsets(place)) === 'CONCURRENT_TRANSACTIONS') continue
  await transaction[end]()
}
const [fetched] = await admin.fetchOffsets({ groupId: 'group', topics: ['offsets'] })
seen.offsets = fetched.partitions.map(({ offset }) => offset).sort()

// A producer that is gone in a transaction does not keep the next one of its id from working.
const gone = await producer('ongoing', { transactionTimeout: 100 })
await (await gone.transaction()).send({ topic: 'ongoing', messages: messages('x') })
const next = await producer('ongoing', { transactionTimeout: 30000 })
await inTransaction(next, 'ongoing', 'ab', 'commit')
seen.ongoing = await read('ongoing', 2)

const old = await producer('fenced')
const left = await old.transaction()
await left.send({ topic: 'fenced', messages: messages('x') })
const newer = await producer('fenced')
const replacing = await newer.transaction()
seen.fenced = await failure(() => left.commit())
await replacing.send({ topic: 'fenced', messages: messages('ab') })
await replacing.commit()
seen.newer = await read('fenced', 2)

for (const client of [flow, mixed, small, offsets, gone, next, old, newer, admin]) await client.disconnect()
console.log(JSON.stringify(seen))
