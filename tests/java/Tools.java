import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one virtual machine, whose start costs more than they do.
 * Each line of standard input is a main class and its arguments, with tabs between. Printed is, for each: "###", the
 * exit status, and what the tool printed to standard output and standard error.
 */
public class Tools {
    /** Without a trace of the stack: some tools catch it, and print what they caught. */
    private static class Exited extends RuntimeException {
        Exited() {
            super(null, null, false, false);
        }
    }

    private static Integer firstStatus;

    public static void main(String[] ignored) throws Exception {
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        PrintStream out = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream both = new PrintStream(printed, true);
            System.setOut(both);
            System.setErr(both);
            System.setIn(new ByteArrayInputStream("a\nb\n".getBytes()));
            int status = run(words[0], java.util.Arrays.copyOfRange(words, 1, words.length), both);
            both.flush();
            out.println("### " + status);
            out.println(printed);
            out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void exit(int status) {
        firstStatus = firstStatus == null ? status : firstStatus;
        throw new Exited();
    }

    private static int run(String main, String[] arguments, PrintStream printed) throws Exception {
        firstStatus = null;
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return firstStatus == null ? 0 : firstStatus;
        } catch (InvocationTargetException failed) {
            Throwable cause = failed.getCause();
            if (cause instanceof Exited) {
                return firstStatus;
            }
            cause.printStackTrace(printed);
            return 1;
        }
    }
}
