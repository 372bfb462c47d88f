// Connects with the JDBC driver of its class path, runs the queries and prints the first column
// of their rows, one `row: ` line each. Knows nothing of ZooKeeper: the URL names it.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;

public final class Query {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = DriverManager.getConnection(arguments[0], "compat", "");
                Statement statement = connection.createStatement()) {
            for (int i = 1; i < arguments.length; i++) {
                try (ResultSet rows = statement.executeQuery(arguments[i])) {
                    while (rows.next()) {
                        System.out.println("row: " + rows.getString(1));
                    }
                }
            }
        }
    }
}
