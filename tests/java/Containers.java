import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.containers.Container.ExecResult;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Each of Testcontainers' Kafka classes starts the image; clients inside its network and outside find the broker. */
public class Containers {
    private static final String INSIDE = "kafka:19092";

    public static void main(String[] arguments) throws Exception {
        DockerImageName image = DockerImageName.parse(arguments[0]);
        DockerImageName apache = image.asCompatibleSubstituteFor("apache/kafka");
        DockerImageName confluent = image.asCompatibleSubstituteFor("confluentinc/cp-kafka");
        try (Network network = Network.newNetwork();
                KafkaContainer kafka = new KafkaContainer(apache).withNetwork(network).withListener(INSIDE)) {
            check("KafkaContainer", kafka, kafka::getBootstrapServers, network);
        }
        try (Network network = Network.newNetwork();
                ConfluentKafkaContainer kafka =
                        new ConfluentKafkaContainer(confluent).withNetwork(network).withListener(INSIDE)) {
            check("ConfluentKafkaContainer", kafka, kafka::getBootstrapServers, network);
        }
        try (Network network = Network.newNetwork();
                OldKafka kafka = new OldKafka(confluent)) {
            kafka.withKraft().withNetwork(network).withListener(() -> INSIDE);
            check("old KafkaContainer, KRaft", kafka, kafka::getBootstrapServers, network);
        }
        try (Network network = Network.newNetwork();
                OldKafka kafka = new OldKafka(confluent)) {
            kafka.withNetwork(network).withListener(() -> INSIDE);
            check("old KafkaContainer, ZooKeeper", kafka, kafka::getBootstrapServers, network);
        }
    }

    private static class OldKafka extends org.testcontainers.containers.KafkaContainer {
        OldKafka(DockerImageName image) {
            super(image);
        }
    }

    private static void check(String what, GenericContainer<?> kafka, Supplier<String> outside, Network network)
            throws Exception {
        kafka.start();
        Map<String, Object> common = Map.of("bootstrap.servers", outside.get());
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(common, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("words", "from outside")).get();
        }
        try (GenericContainer<?> client = new GenericContainer<>(DockerImageName.parse(kafka.getDockerImageName()))
                .withNetwork(network)
                .withCommand("sleep", "600")) {
            client.start();
            run(client, "echo from inside | kafka-console-producer --bootstrap-server " + INSIDE + " --topic words");
            System.out.print(what + ", inside: " + run(client, "kafka-console-consumer --bootstrap-server " + INSIDE
                + " --topic words --from-beginning --max-messages 2 | sort | paste -sd, -"));
        }
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", outside.get(), "group.id", "g", "auto.offset.reset", "earliest"),
                new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("words"));
            java.util.TreeSet<String> read = new java.util.TreeSet<>();
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            while (read.size() < 2 && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    read.add(record.value());
                }
            }
            System.out.println(what + ", outside: " + String.join(",", read));
        }
    }

    private static String run(GenericContainer<?> client, String line) throws Exception {
        ExecResult done = client.execInContainer("sh", "-c", line);
        if (done.getExitCode() != 0) {
            throw new IllegalStateException(done.toString());
        }
        return done.getStdout();
    }
}
