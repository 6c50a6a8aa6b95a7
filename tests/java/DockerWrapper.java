import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import kafka.docker.KafkaDockerWrapper$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The server.properties that apache/kafka's image makes, for each line of standard input: NAME=VALUE pairs, each in
 * base64, parted by blanks; behind a bar, the mounted file. Every answer is a line: the written file in base64.
 */
public class DockerWrapper {
    public static void main(String[] arguments) throws Exception {
        Path directory = Files.createTempDirectory("wrapper");
        Path defaults = Files.createDirectory(directory.resolve("default"));
        Path mounted = Files.createDirectory(directory.resolve("mounted"));
        Path made = Files.createDirectory(directory.resolve("final"));
        Path written = made.resolve("server.properties");
        Files.writeString(defaults.resolve("server.properties"), "the.defaults=yes\n");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split("\\|", -1);
            Map<String, String> variables = new HashMap<>();
            for (String pair : parts[0].trim().split(" ")) {
                String[] nameAndValue = decoded(pair).split("=", 2);
                if (nameAndValue.length == 2) {
                    variables.put(nameAndValue[0], nameAndValue[1]);
                }
            }
            Files.deleteIfExists(mounted.resolve("server.properties"));
            if (!parts[1].isBlank()) {
                Files.writeString(mounted.resolve("server.properties"), decoded(parts[1].trim()));
            }
            Files.writeString(written, "");
            KafkaDockerWrapper$.MODULE$.prepareServerConfigs(
                defaults, mounted, made, scala.collection.immutable.Map.from(CollectionConverters.asScala(variables)));
            System.out.println(Base64.getEncoder().encodeToString(Files.readAllBytes(written)));
        }
    }

    private static String decoded(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }
}
