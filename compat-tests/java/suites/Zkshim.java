package zkshim.suites;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.client.FourLetterWordMain;

/**
 * One zkshim as a process, in the place of a ZooKeeper that a test would start inside itself.
 *
 * <p>The system property {@code zkshim.binary} says which program, {@code zkshim.etcd} an etcd to
 * keep the trees in; without the latter each has the embedded store in its data directory.
 */
public final class Zkshim {
    /**
     * The server ends with this JVM, however that ends: a shell that waits for its standard input
     * stands between them.
     */
    private static final String KEEPER =
            "\"$0\" \"$@\" </dev/null & server=$!; read -r word\n"
                    + "case $word in stop) kill -TERM $server;; *) kill -KILL $server;; esac\n"
                    + "wait $server";

    private static final long START_MAX_MS = 60_000;
    private static final long STOP_MAX_S = 20;

    private final List<String> flags = new ArrayList<>();
    private final String host;
    private final int port;
    private Process process;

    /** A server that will listen there; port 0 takes a free one. */
    public Zkshim(String host, int port) throws IOException {
        this.host = host;
        this.port = port == 0 ? freePort() : port;
        flag("--listen", host + ":" + this.port);
        flag("--four-letter-words", "*");
    }

    /** A port that nobody uses now. */
    public static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    /** Adds a flag of {@code zkshim serve}. */
    public Zkshim flag(String name, Object value) {
        flags.add(name + "=" + value);
        return this;
    }

    /** Adds a flag whose value a system property has, if it is set. */
    public Zkshim flagOf(String name, String property) {
        String value = System.getProperty(property);
        return value == null ? this : flag(name, value);
    }

    /** Adds a flag without a value, if a system property has that value. */
    public Zkshim switchOf(String name, String property, String value) {
        if (value.equals(System.getProperty(property))) {
            flags.add(name);
        }
        return this;
    }

    /** Where the tree is kept: those of the same name share one, if it is in etcd. */
    public Zkshim keptIn(File directory, String name) {
        String etcd = System.getProperty("zkshim.etcd");
        if (etcd == null) {
            return flag("--data-dir", new File(directory, "zkshim"));
        }
        String prefix = "/suites/" + Integer.toHexString(name.hashCode()) + "/";
        return flag("--etcd-endpoints", etcd).flag("--prefix", prefix);
    }

    /** The port that clients connect to. */
    public int port() {
        return port;
    }

    /** Whether it was started and not stopped. */
    public synchronized boolean isRunning() {
        return process != null;
    }

    /** Starts it and waits until it serves. */
    public synchronized void start() throws IOException {
        List<String> command = new ArrayList<>(List.of("/bin/sh", "-c", KEEPER));
        command.add(System.getProperty("zkshim.binary"));
        command.add("serve");
        command.addAll(flags);
        Path log = Files.createTempFile("zkshim", ".log");
        process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(log.toFile())
                .start();
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(START_MAX_MS);
        while (!serves()) {
            if (saysError(log) || System.nanoTime() > deadline) {
                String said = Files.readString(log);
                kill();
                throw new IOException("zkshim does not serve: " + command + "\n" + said);
            }
            pause();
        }
        Files.delete(log);
    }

    /** Ends it as an operator would, with SIGTERM. */
    public void stop() {
        end("stop\n");
    }

    /** Ends it as a crash would. */
    public void kill() {
        end("");
    }

    private synchronized void end(String word) {
        if (process == null) {
            return;
        }
        try (OutputStream input = process.getOutputStream()) {
            input.write(word.getBytes(StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new IllegalStateException("end zkshim", e);
        }
        boolean ended = false;
        boolean interrupted = false;
        while (!ended) {
            try {
                ended = process.waitFor(STOP_MAX_S, TimeUnit.SECONDS);
                if (!ended) {
                    process.descendants().forEach(ProcessHandle::destroyForcibly);
                }
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        process = null;
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean serves() {
        try {
            return FourLetterWordMain.send4LetterWord(host, port, "srvr").contains("Mode:");
        } catch (Exception e) {
            return false;
        }
    }

    /** Whether its last words are there: {@code error: WHY}. */
    private static boolean saysError(Path log) throws IOException {
        return ("\n" + Files.readString(log)).contains("\nerror: ");
    }

    private static void pause() {
        try {
            Thread.sleep(10);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
