import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The Java client, led from outside: a step for each line of the standard input, an answer for each. Arguments: the
 * broker, a topic of one partition, the transactional id, and transaction.timeout.ms. Steps: "write VALUE", which begins
 * a transaction where none is open, "commit", "abort", and "read COUNT" committed values from the topic's beginning.
 */
public class Stepped {
    private static String server;
    private static String topic;

    public static void main(String[] arguments) throws Exception {
        server = arguments[0];
        topic = arguments[1];
        Map<String, Object> settings = Map.of("bootstrap.servers", server, "transactional.id", arguments[2],
            "transaction.timeout.ms", Integer.parseInt(arguments[3]));
        BufferedReader steps = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            boolean isOpen = false;
            for (String step = steps.readLine(); step != null; step = steps.readLine()) {
                String[] words = step.split(" ", 2);
                switch (words[0]) {
                    case "write" -> {
                        if (!isOpen) {
                            producer.beginTransaction();
                        }
                        isOpen = true;
                        System.out.println(written(producer, words[1]));
                    }
                    case "read" -> System.out.println(String.join(" ", values(Integer.parseInt(words[1]))));
                    default -> {
                        isOpen = false;
                        if (words[0].equals("commit")) {
                            producer.commitTransaction();
                        } else {
                            producer.abortTransaction();
                        }
                        System.out.println("ended");
                    }
                }
            }
        }
    }

    private static String written(KafkaProducer<String, String> producer, String value) throws InterruptedException {
        try {
            producer.send(new ProducerRecord<>(topic, value)).get();
            return "written";
        } catch (ExecutionException error) {
            return "refused " + error.getCause().getClass().getSimpleName();
        }
    }

    private static List<String> values(int count) {
        List<String> found = new ArrayList<>();
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", server, "isolation.level", "read_committed", "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            while (found.size() < count) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> found.add(record.value()));
            }
        }
        return found;
    }
}
