import java.time.Duration;

import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A job that writes the numbers below COUNT to the topic `numbers`, each checkpoint a transaction.
 * Arguments: the broker, the directory of the checkpoints, and where there is one, the checkpoint to go on from.
 */
public class ExactlyOnce {
    private static final long COUNT = 2_000;

    /** Some checkpoints are made before the last number. */
    public static class Slowly implements MapFunction<Long, String> {
        @Override
        public String map(Long number) throws Exception {
            Thread.sleep(1);
            return number.toString();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "500 ms");
        configuration.setString("execution.checkpointing.dir", "file://" + arguments[1]);
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("restart-strategy.type", "none");
        if (arguments.length > 2) {
            configuration.setString("execution.state-recovery.path", "file://" + arguments[2]);
        }
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink")
            .setProperty("transaction.timeout.ms", String.valueOf(Duration.ofMinutes(10).toMillis()))
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic("numbers").setValueSerializationSchema(new SimpleStringSchema()).build())
            .build();
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, configuration);
        environment.fromSequence(0, COUNT - 1).map(new Slowly()).sinkTo(sink);
        environment.execute("numbers");
        System.out.println("FINISHED");
        System.exit(0);
    }
}
