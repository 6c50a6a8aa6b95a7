import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's clients as another process's test wants them: each line of standard input is a command, with tabs between its
 * words, and each line of standard output begins with the name of the client that it is about.
 *
 *   producer NAME CONFIG=VALUE...            NAME made
 *   send NAME TOPIC VALUE                    NAME sent PARTITION OFFSET, or NAME failed EXCEPTION
 *   consumer NAME TOPIC CONFIG=VALUE...      NAME made, then NAME read VALUE, NAME error EXCEPTION
 *   topics NAME TOPIC:PARTITIONS,... CONFIG=VALUE...   NAME created, or NAME failed EXCEPTION: all in one request
 *   close NAME                               NAME closed
 */
public class Clients {
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    /** Polls in a thread of its own. */
    private static class Member extends Thread {
        private final KafkaConsumer<String, String> consumer;

        Member(String name, String topic, Map<String, Object> configs) {
            super(name);
            consumer = new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic));
        }

        @Override
        public void run() {
            try (consumer) {
                while (true) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        say(getName(), "read " + record.value());
                    }
                }
            } catch (WakeupException over) {
                // As `close` wants it.
            } catch (Exception error) {
                say(getName(), "error " + error.getClass().getSimpleName());
            }
        }
    }

    public static void main(String[] ignored) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            String name = words[1];
            switch (words[0]) {
                case "producer" -> {
                    PRODUCERS.put(name, new KafkaProducer<>(
                        configs(words, 2), new StringSerializer(), new StringSerializer()));
                    say(name, "made");
                }
                case "send" -> say(name, sent(PRODUCERS.get(name), new ProducerRecord<>(words[2], words[3])));
                case "consumer" -> {
                    Member member = new Member(name, words[2], configs(words, 3));
                    MEMBERS.put(name, member);
                    member.start();
                    say(name, "made");
                }
                case "topics" -> say(name, created(words[2], configs(words, 3)));
                case "close" -> {
                    close(name);
                    say(name, "closed");
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> configs(String[] words, int from) {
        Map<String, Object> configs = new HashMap<>();
        for (String word : Arrays.copyOfRange(words, from, words.length)) {
            int end = word.indexOf('=');
            configs.put(word.substring(0, end), word.substring(end + 1));
        }
        return configs;
    }

    private static String sent(KafkaProducer<String, String> producer, ProducerRecord<String, String> record) {
        try {
            RecordMetadata placed = producer.send(record).get();
            return "sent " + placed.partition() + " " + placed.offset();
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return "failed " + cause.getClass().getSimpleName();
        }
    }

    private static String created(String wanted, Map<String, Object> configs) {
        try (Admin admin = Admin.create(configs)) {
            List<NewTopic> topics = Arrays.stream(wanted.split(","))
                .map(each -> each.split(":"))
                .map(parts -> new NewTopic(parts[0], Integer.parseInt(parts[1]), (short) 1))
                .toList();
            admin.createTopics(topics).all().get();
            return "created";
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return "failed " + cause.getClass().getSimpleName();
        }
    }

    private static void close(String name) throws InterruptedException {
        Member member = MEMBERS.remove(name);
        if (member != null) {
            member.consumer.wakeup();
            member.join();
        }
        KafkaProducer<String, String> producer = PRODUCERS.remove(name);
        if (producer != null) {
            producer.close(Duration.ZERO);
        }
    }

    private static synchronized void say(String name, String what) {
        System.out.println(name + " " + what);
        System.out.flush();
    }
}
