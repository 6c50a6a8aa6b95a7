import java.util.Arrays;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * An instance that counts the words of `lines`, exactly once, in a state store, and writes each count to `counts`.
 * Arguments: the brokers, the directory of the store, the name of the instance, the number of replicas.
 */
public class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("group.instance.id", arguments[2]);
        settings.put("replication.factor", arguments[3]);
        settings.put("application.id", "words");
        settings.put("processing.guarantee", StreamsConfig.EXACTLY_ONCE_V2);
        settings.put("commit.interval.ms", "100");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "10000");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .count(Materialized.as("totals"))
            .toStream()
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            System.out.flush();
        });
        streams.start();
        // Until it is killed.
        Thread.currentThread().join();
    }
}
