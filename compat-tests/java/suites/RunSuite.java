package zkshim.suites;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClasspathRoots;

import java.io.PrintStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.TestSource;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs the test classes that its arguments name, without some methods ({@code -CLASS#METHOD}), and
 * says {@code ok NAME} or {@code failed NAME: reason} of each method, {@code disabled NAME} of
 * what upstream itself does not run.
 *
 * <p>After {@code list} the arguments are jars, and it says {@code class NAME} of each test class
 * in them.
 */
public final class RunSuite implements TestExecutionListener {
    private final PrintStream results;
    private Properties properties;

    private RunSuite(PrintStream results) {
        this.results = results;
    }

    public static void main(String[] arguments) {
        PrintStream results = System.out;
        // Tests print, too.
        System.setOut(System.err);
        if (arguments[0].equals("list")) {
            list(arguments, results);
        } else {
            run(arguments, results);
        }
        results.flush();
        // Some tests leave threads behind.
        System.exit(0);
    }

    private static void list(String[] arguments, PrintStream results) {
        Set<Path> jars = new HashSet<>();
        for (int i = 1; i < arguments.length; i++) {
            jars.add(Path.of(arguments[i]));
        }
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
                .selectors(selectClasspathRoots(jars))
                .build();
        TestPlan plan = LauncherFactory.create().discover(request);
        Set<String> names = new TreeSet<>();
        for (TestIdentifier engine : plan.getRoots()) {
            for (TestIdentifier test : plan.getChildren(engine)) {
                names.add(name(test.getSource().orElse(null)));
            }
        }
        names.forEach(name -> results.println("class " + name));
    }

    private static void run(String[] arguments, PrintStream results) {
        List<DiscoverySelector> classes = new ArrayList<>();
        Set<String> without = new HashSet<>();
        for (String argument : arguments) {
            if (argument.startsWith("-")) {
                without.add(argument.substring(1));
            } else {
                classes.add(selectClass(argument));
            }
        }
        PostDiscoveryFilter filter = test ->
                FilterResult.includedIf(!without.contains(name(test.getSource().orElse(null))));
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
                .selectors(classes)
                .filters(filter)
                .configurationParameter("junit.jupiter.execution.timeout.default", "240 s")
                .build();
        LauncherFactory.create().execute(request, new RunSuite(results));
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        if (isClass(test)) {
            properties = (Properties) System.getProperties().clone();
        } else if (test.isTest()) {
            System.err.println("=== " + name(test));
        }
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        results.println("disabled " + name(test));
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        switch (result.getStatus()) {
            case SUCCESSFUL:
                if (test.isTest()) {
                    results.println("ok " + name(test));
                }
                break;
            case ABORTED:
                results.println("disabled " + name(test));
                break;
            case FAILED:
                Throwable reason = result.getThrowable().orElseGet(AssertionError::new);
                reason.printStackTrace();
                String line = reason.toString().replaceAll("\\s+", " ");
                results.println("failed " + name(test) + ": " + line);
                break;
        }
        results.flush();
        if (isClass(test)) {
            // Upstream gives each class a JVM of its own.
            System.setProperties(properties);
        }
    }

    private static boolean isClass(TestIdentifier test) {
        return test.getSource().orElse(null) instanceof ClassSource;
    }

    private static String name(TestIdentifier test) {
        return name(test.getSource().orElse(null));
    }

    private static String name(TestSource source) {
        if (source instanceof MethodSource) {
            MethodSource method = (MethodSource) source;
            return method.getClassName() + "#" + method.getMethodName();
        }
        return source instanceof ClassSource ? ((ClassSource) source).getClassName() : "-";
    }
}
