// kafkajs as administrator, producer and a group of three. Prints one JSON object of what it saw.
// node scenario.js HOST:PORT

import kafkajs from 'kafkajs'
import { until } from './until.js'

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs
const TOPIC = 'orders'
const GROUP = 'workers'
const PARTITIONS = 6
const RECORDS = 300

const kafka = new Kafka({ clientId: 'scenario', brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
const seen = {}

async function failure(action) {
  try {
    await action
    return null
  } catch (error) {
    return error.type ?? error.errors?.[0]?.type ?? error.groups?.[0]?.error?.type ?? error.name
  }
}

function records(prefix) {
  return Array.from({ length: RECORDS / 3 }, (_, i) => ({ key: `${prefix}${i}`, value: `v${i}`, headers: { h: 'x' } }))
}

async function member(assignments, consumed) {
  // kafkajs notices a rebalance only between two fetches, so these are short.
  const pace = { sessionTimeout: 6000, heartbeatInterval: 200, maxWaitTimeInMs: 100 }
  const consumer = kafka.consumer({ groupId: GROUP, ...pace })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    assignments.set(consumer, payload.memberAssignment[TOPIC]?.length ?? 0)
  })
  await consumer.connect()
  await consumer.subscribe({ topic: TOPIC, fromBeginning: true })
  await consumer.run({
    autoCommitInterval: 100,
    eachMessage: async ({ partition, message }) => consumed.add(`${partition}:${message.offset}`),
  })
  return consumer
}

const sum = numbers => [...numbers].reduce((total, number) => total + number, 0)

const admin = kafka.admin()
await admin.connect()
const configEntries = [{ name: 'retention.ms', value: '100000' }]
seen.created = await admin.createTopics({ topics: [{ topic: TOPIC, numPartitions: PARTITIONS, configEntries }] })
seen.createdAgain = await admin.createTopics({ topics: [{ topic: TOPIC }] })
seen.badName = await failure(admin.createTopics({ topics: [{ topic: 'a b' }] }))
const described = await admin.describeConfigs({
  resources: [{ type: ConfigResourceTypes.TOPIC, name: TOPIC, configNames: ['retention.ms'] }],
})
seen.retention = described.resources[0].configEntries[0].configValue

const plain = kafka.producer()
await plain.connect()
await plain.send({ topic: TOPIC, acks: -1, messages: records('p') })
await plain.send({ topic: TOPIC, compression: CompressionTypes.GZIP, messages: records('z') })
const idempotent = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
await idempotent.connect()
await idempotent.send({ topic: TOPIC, messages: records('i') })

const assignments = new Map()
const consumed = new Set()
const members = await Promise.all([1, 2, 3].map(() => member(assignments, consumed)))
const shares = () => [...assignments.values()].sort()
await until(() => shares().length === 3 && shares().every(share => share === 2), 'an even share for each of three')
await until(() => consumed.size === RECORDS, 'every record consumed')
const group = (await admin.describeGroups([GROUP])).groups[0]
seen.group = [group.state, group.protocol, group.members.length]
seen.deletedAlive = await failure(admin.deleteGroups([GROUP]))

assignments.delete(members[0])
await members[0].disconnect()
await until(() => shares().every(share => share === 3), 'the partitions of the one that left')
await Promise.all(members.slice(1).map(each => each.disconnect()))
const committed = await admin.fetchOffsets({ groupId: GROUP, topics: [TOPIC] })
seen.committed = sum(committed[0].partitions.map(({ offset }) => Number(offset)))
await admin.resetOffsets({ groupId: GROUP, topic: TOPIC, earliest: true })
seen.deleted = (await admin.deleteGroups([GROUP]))[0].errorCode
await admin.deleteTopics({ topics: [TOPIC] })
seen.topicsLeft = (await admin.listTopics()).filter(name => !name.startsWith('__'))

// A record without a key in a compacted topic: the error must arrive, the connection stay.
const compacted = [{ name: 'cleanup.policy', value: 'compact' }]
await admin.createTopics({ topics: [{ topic: 'keyed', configEntries: compacted }] })
seen.keyless = await failure(plain.send({ topic: 'keyed', messages: [{ value: 'x' }] }))

await Promise.all([plain.disconnect(), idempotent.disconnect(), admin.disconnect()])
console.log(JSON.stringify(seen))
