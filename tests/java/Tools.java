import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FilterInputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one virtual machine, whose start costs more than they do.
 * Read for each: how many words, then the words: what the tool finds at its standard input, its main class, its
 * arguments. Written for each: the exit status, how many of its threads go on although they were told to stop, then what
 * it printed to standard output and to standard error. All numbers have four bytes; words and outputs begin with their
 * length in bytes.
 */
public class Tools {
    private static final long HOOKS_WITHIN_MS = 10_000;
    private static final long THREADS_WITHIN_MS = 1_000;

    /** Without a trace of the stack: some tools catch it, and print what they caught. */
    private static class Exited extends RuntimeException {
        Exited() {
            super(null, null, false, false);
        }
    }

    /** Tools may keep the stream that they found first: there is only one, and what it leads to changes. */
    private static class Output extends FilterOutputStream {
        Output() {
            super(new ByteArrayOutputStream());
        }

        void begin() {
            out = new ByteArrayOutputStream();
        }

        byte[] printed() {
            return ((ByteArrayOutputStream) out).toByteArray();
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            out.write(bytes, offset, length);
        }
    }

    private static class Input extends FilterInputStream {
        Input() {
            super(InputStream.nullInputStream());
        }

        void begin(byte[] typed) {
            in = new ByteArrayInputStream(typed);
        }
    }

    private static Integer firstStatus;
    private static List<Runnable> hooks = new ArrayList<>();

    public static void main(String[] ignored) throws Exception {
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        DataInputStream commands = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Input input = new Input();
        Output output = new Output();
        Output errors = new Output();
        System.setIn(input);
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(errors, true));
        try {
            while (true) {
                int count = commands.readInt();
                input.begin(read(commands));
                String main = new String(read(commands));
                String[] arguments = new String[count - 2];
                for (int index = 0; index < arguments.length; index++) {
                    arguments[index] = new String(read(commands));
                }
                output.begin();
                errors.begin();
                Set<Thread> before = threads();
                answers.writeInt(run(main, arguments));
                runHooks();
                answers.writeInt(stopAllBut(before));
                System.out.flush();
                System.err.flush();
                write(answers, output.printed());
                write(answers, errors.printed());
                answers.flush();
            }
        } catch (EOFException end) {
            Runtime.getRuntime().halt(0);
        }
    }

    private static byte[] read(DataInputStream commands) throws IOException {
        return commands.readNBytes(commands.readInt());
    }

    private static void write(DataOutputStream answers, byte[] printed) throws IOException {
        answers.writeInt(printed.length);
        answers.write(printed);
    }

    private static void exit(int status) {
        firstStatus = firstStatus == null ? status : firstStatus;
        throw new Exited();
    }

    private static int run(String main, String[] arguments) throws Exception {
        firstStatus = null;
        hooks = new ArrayList<>();
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return firstStatus == null ? 0 : firstStatus;
        } catch (InvocationTargetException failed) {
            Throwable cause = failed.getCause();
            if (cause instanceof Exited) {
                return firstStatus;
            }
            cause.printStackTrace();
            return 1;
        }
    }

    /** What tools leave to the end of the virtual machine. */
    private static void runHooks() throws InterruptedException {
        for (Runnable hook : hooks) {
            Thread thread = new Thread(hook);
            thread.setDaemon(true);
            thread.start();
            thread.join(HOOKS_WITHIN_MS);
        }
    }

    private static Set<Thread> threads() {
        Thread[] found = new Thread[Thread.activeCount() + 100];
        return new HashSet<>(Arrays.asList(found).subList(0, Thread.enumerate(found)));
    }

    /** Fetchers and clients that a tool has not closed: they would look for their broker as long as Java runs. */
    @SuppressWarnings("removal")
    private static int stopAllBut(Set<Thread> before) throws InterruptedException {
        int goOn = 0;
        for (Thread thread : threads()) {
            if (before.contains(thread)) {
                continue;
            }
            try {
                thread.stop();
                thread.join(THREADS_WITHIN_MS);
            } catch (UnsupportedOperationException sinceJava20) {
                thread.interrupt();
            }
            goOn += thread.isAlive() ? 1 : 0;
        }
        return goOn;
    }
}
