import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What the Java client does with transactions, one line for each thing that can be seen. Arguments: the broker. */
public class Transactions {
    private static final TopicPartition IN = new TopicPartition("in", 0);
    private static String server;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        server = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", server));
        try (KafkaProducer<String, String> producer = producer("java")) {
            producer.initTransactions();
            transaction(producer, "committed", true);
            transaction(producer, "aborted", false);
            transaction(producer, "second", true);
            System.out.println("epoch " + described("java").producerEpoch());
            System.out.println("read_committed " + values("read_committed", 2));
            System.out.println("read_uncommitted " + values("read_uncommitted", 3));
            copy(producer, false);
            copy(producer, true);
            commitAsFormerMember(producer);
            fence(producer);
        }
        timeOut();
        changeLevels();
        try (KafkaProducer<String, String> open = producer("open")) {
            open.initTransactions();
            open.beginTransaction();
            open.send(new ProducerRecord<>("in", "open")).get();
            System.out.println("left open");
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
    }

    private static KafkaProducer<String, String> producer(String id) {
        return producer(id, 60_000);
    }

    private static KafkaProducer<String, String> producer(String id, int timeoutMs) {
        return new KafkaProducer<>(
            Map.of("bootstrap.servers", server, "transactional.id", id, "transaction.timeout.ms", timeoutMs),
            new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(String isolation) {
        return consumer(isolation, "group");
    }

    private static KafkaConsumer<String, String> consumer(String isolation, String group) {
        return new KafkaConsumer<>(
            Map.of("bootstrap.servers", server, "group.id", group, "isolation.level", isolation,
                "auto.offset.reset", "earliest", "enable.auto.commit", "false"),
            new StringDeserializer(), new StringDeserializer());
    }

    private static void transaction(KafkaProducer<String, String> producer, String value, boolean commits) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("in", value));
        producer.flush();
        end(producer, commits);
    }

    private static void end(KafkaProducer<String, String> producer, boolean commits) {
        if (commits) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    private static List<String> values(String isolation, int count) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(isolation)) {
            consumer.assign(List.of(IN));
            consumer.seekToBeginning(List.of(IN));
            while (found.size() < count) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    found.add(record.value());
                }
            }
        }
        return found;
    }

    /** A member of the group copies what it has read; its offsets belong to the transaction. */
    private static void copy(KafkaProducer<String, String> producer, boolean commits) {
        try (KafkaConsumer<String, String> consumer = consumer("read_committed")) {
            consumer.subscribe(List.of("in"));
            List<String> read = new ArrayList<>();
            while (read.size() < 2) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> read.add(record.value()));
            }
            producer.beginTransaction();
            read.forEach(value -> producer.send(new ProducerRecord<>("out", value)));
            Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(IN, new OffsetAndMetadata(consumer.position(IN)));
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            end(producer, commits);
            OffsetAndMetadata committed = consumer.committed(Set.of(IN)).get(IN);
            System.out.println("offset " + (committed == null ? "none" : committed.offset()));
        }
    }

    /** TX09: it has copied what it read before others came, or before it left; its offsets are refused, and all is aborted. */
    private static void commitAsFormerMember(KafkaProducer<String, String> producer) {
        try (KafkaConsumer<String, String> member = consumer("read_committed", "former");
                KafkaConsumer<String, String> other = consumer("read_committed", "former")) {
            member.subscribe(List.of("in"));
            other.subscribe(List.of("in"));
            ConsumerGroupMetadata former = joined(member);
            while (member.groupMetadata().generationId() == former.generationId()) {
                other.poll(Duration.ofMillis(50));
                member.poll(Duration.ofMillis(50));
            }
            copyAs(producer, former);
            other.unsubscribe();
            former = joined(member);
            member.unsubscribe();
            copyAs(producer, former);
            System.out.println("offsets " + member.committed(Set.of(IN)));
        }
    }

    private static ConsumerGroupMetadata joined(KafkaConsumer<String, String> member) {
        while (member.assignment().isEmpty()) {
            member.poll(Duration.ofMillis(50));
        }
        return member.groupMetadata();
    }

    private static void copyAs(KafkaProducer<String, String> producer, ConsumerGroupMetadata former) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("out", "of a former member"));
        producer.flush();
        try {
            producer.sendOffsetsToTransaction(Map.of(IN, new OffsetAndMetadata(1)), former);
            System.out.println("not refused");
        } catch (KafkaException error) {
            System.out.println("refused " + error.getClass().getSimpleName() + error.getMessage().replaceFirst("[^:]*", ""));
        }
        producer.abortTransaction();
    }

    private static TransactionDescription described(String id) throws Exception {
        return admin.describeTransactions(List.of(id)).description(id).get();
    }

    /** The coordinator aborts what is open for too long, and the producer goes on with the next epoch. */
    private static void timeOut() throws Exception {
        try (KafkaProducer<String, String> producer = producer("slow", 1_000)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("out", "too late")).get();
            while (described("slow").state() != TransactionState.COMPLETE_ABORT) {
                Thread.sleep(50);
            }
            try {
                producer.send(new ProducerRecord<>("out", "later still")).get();
                System.out.println("not timed out");
            } catch (Exception error) {
                System.out.println("timed out " + error.getCause().getClass().getSimpleName());
            }
            producer.abortTransaction();
            transaction(producer, "in time", true);
            System.out.println("epoch " + described("slow").producerEpoch());
        }
    }

    /** One producer goes on through all levels of the feature; each of the others sees one. */
    private static void changeLevels() throws Exception {
        try (KafkaProducer<String, String> producer = producer("levels")) {
            producer.initTransactions();
            transaction(producer, "before", true);
            for (short level : List.of((short) 1, (short) 2, (short) 0, (short) 2)) {
                UpgradeType type = level < 2 ? UpgradeType.SAFE_DOWNGRADE : UpgradeType.UPGRADE;
                Map<String, FeatureUpdate> update = Map.of("transaction.version", new FeatureUpdate(level, type));
                admin.updateFeatures(update, new UpdateFeaturesOptions()).all().get();
                while (level() != level) {
                    Thread.sleep(20);
                }
                transaction(producer, "at level " + level, true);
                try (KafkaProducer<String, String> other = producer("level")) {
                    other.initTransactions();
                    transaction(other, "another at level " + level, true);
                    System.out.println("level " + level + " epoch " + described("level").producerEpoch());
                }
            }
        }
        System.out.println("read_committed " + values("read_committed", 13).size());
    }

    /** By its features; another broker may know of the last change a moment later. */
    private static int level() throws Exception {
        var finalized = admin.describeFeatures().featureMetadata().get().finalizedFeatures().get("transaction.version");
        return finalized == null ? 0 : finalized.maxVersionLevel();
    }

    private static void fence(KafkaProducer<String, String> older) {
        try (KafkaProducer<String, String> newer = producer("java")) {
            newer.initTransactions();
            try {
                transaction(older, "fenced", true);
                System.out.println("not fenced");
            } catch (KafkaException error) {
                Throwable cause = error.getCause() == null ? error : error.getCause();
                System.out.println("fenced " + cause.getClass().getSimpleName());
            }
            transaction(newer, "newer", true);
            System.out.println("read_committed " + values("read_committed", 3));
        }
    }
}
