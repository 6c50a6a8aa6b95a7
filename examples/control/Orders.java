// Run it by: ottla run -- java -cp "kafka-clients.jar:slf4j-api.jar" Orders.java

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Orders {
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    public static void main(String[] arguments) throws Exception {
        ask(200, "POST", "/v1/reset", "{}");
        ask(201, "POST", "/v1/topics", "{\"name\": \"orders\", \"partitions\": 1}");
        ask(201, "POST", "/v1/faults", """
            {"id": "moved", "match": {"api": "Produce", "topic": "orders"},
             "do": {"error": "NOT_LEADER_OR_FOLLOWER"}, "times": 2}""");

        produce("book");

        ask(200, "POST", "/v1/wait", "{\"for\": \"fault-hits\", \"fault\": \"moved\", \"hits\": 2}");
        String records = ask(200, "GET", "/v1/topics/orders/records", null);
        check(records.contains("\"value\": {\"text\": \"book\"}"), records);

        // A wait that is over says why.
        String late = ask(408, "POST", "/v1/wait",
            "{\"for\": \"fault-hits\", \"fault\": \"moved\", \"hits\": 3, \"within_ms\": 100}");
        check(late.contains("\"missing\": [\"1 of 3 hits\"]"), late);
        System.out.println("the order got there after 2 faults");
    }

    private static void produce(String value) throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"),
            "retry.backoff.ms", 20);
        var serializer = new StringSerializer();
        try (var producer = new KafkaProducer<>(config, serializer, serializer)) {
            producer.send(new ProducerRecord<>("orders", value)).get();
        }
    }

    /** The answer, which has this status. */
    private static String ask(int status, String method, String path, String body) throws Exception {
        var publisher = body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body);
        var request = HttpRequest.newBuilder(URI.create(System.getenv("OTTLA_CONTROL_URL") + path))
            .header("Authorization", "Bearer " + System.getenv("OTTLA_CONTROL_TOKEN"))
            .header("Content-Type", "application/json")
            .method(method, publisher)
            .build();
        var answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        check(answer.statusCode() == status, answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    private static void check(boolean holds, String said) {
        if (!holds) {
            throw new AssertionError(said);
        }
    }
}
