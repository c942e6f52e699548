import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.sql.Statement;
import java.util.Arrays;
import java.util.Comparator;
import java.util.StringJoiner;

/**
 * A client of a server, as JDBC tools are: what they ask before they show a table, queries with and without parameters, and
 * changes. It prints a line for each answer, with its name, which the test in Python reads.
 */
public final class Jdbc {
  private Jdbc() {}

  public static void main(String[] arguments) throws SQLException {
    try (Connection connection = DriverManager.getConnection(arguments[0])) {
      describe(connection.getMetaData());
      if (Arrays.asList(arguments).contains("describe")) {
        return;
      }
      query(connection);
      change(connection);
      fail(connection);
    }
  }

  private static void print(String name, Object answer) {
    System.out.println(name + "\t" + answer);
  }

  private static void print(String name, ResultSet rows, String... columns) throws SQLException {
    int count = 0;
    try (rows) {
      while (rows.next()) {
        StringJoiner line = new StringJoiner("|");
        for (String column : columns) {
          line.add(rows.getString(column));
        }
        print(name, line);
        count++;
      }
    }
    print(name + ".rows", count);
  }

  private static void describe(DatabaseMetaData server) throws SQLException {
    print("product", server.getDatabaseProductName());
    print("catalogs", server.getCatalogs(), "TABLE_CAT");
    print("schemas", server.getSchemas(), "TABLE_CATALOG", "TABLE_SCHEM");
    print("types_of_tables", server.getTableTypes(), "TABLE_TYPE");
    print("tables", server.getTables(null, null, "%", null), "TABLE_CAT", "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE");
    print("tables_of_type", server.getTables("lakemark", "public", "fl%", new String[] {"TABLE"}), "TABLE_NAME");
    print("no_views", server.getTables(null, null, "%", new String[] {"VIEW"}), "TABLE_NAME");
    print("columns", server.getColumns(null, null, "flights", "%"), "COLUMN_NAME", "DATA_TYPE", "ORDINAL_POSITION");
    print("keys", server.getPrimaryKeys(null, null, "flights"), "COLUMN_NAME", "KEY_SEQ");
    print("imported", server.getImportedKeys(null, null, "flights"), "FKCOLUMN_NAME");
    print("exported", server.getExportedKeys(null, null, "flights"), "PKCOLUMN_NAME");
    // The pattern of a tool that knows how letters are escaped, and the names that it knows already.
    String escaped = "f" + server.getSearchStringEscape() + "_ights";
    print("tables_by_letter", server.getTables("lakemark", "p_blic", "f_ights", null), "TABLE_NAME");
    print("tables_escaped", server.getTables(null, null, escaped, null), "TABLE_NAME");
    print("tables_elsewhere", server.getTables("", null, "%", null), "TABLE_NAME");
    print("schemas_by_letter", server.getSchemas("lakemark", "p_blic"), "TABLE_CATALOG", "TABLE_SCHEM");
    print("columns_by_letter", server.getColumns("lakemark", "public", "flights", "d%"), "COLUMN_NAME", "ORDINAL_POSITION");
    print("columns_escaped", server.getColumns(null, null, escaped, "%"), "COLUMN_NAME");
    print("keys_of_schema", server.getPrimaryKeys("lakemark", "public", "flights"), "COLUMN_NAME", "PK_NAME");
    print("keys_elsewhere", server.getPrimaryKeys("other", "public", "flights"), "COLUMN_NAME");
    print("connections", server.getMaxConnections());
    print("crossed", server.getCrossReference(null, null, "flights", null, null, "flights"), "PKCOLUMN_NAME");
    Method[] all = DatabaseMetaData.class.getMethods();
    Arrays.sort(all, Comparator.comparing(Method::getName));
    int answered = 0;
    for (Method method : all) {
      if (method.getParameterCount() > 0) {
        continue;
      }
      try {
        // The driver of 18.3.0 does not close these with their connection, and fails to close that then.
        if (method.invoke(server) instanceof ResultSet rows) {
          rows.close();
        }
        answered++;
      } catch (InvocationTargetException e) {
        if (!(e.getCause() instanceof SQLFeatureNotSupportedException)) {
          print("unanswered", method.getName() + ": " + e.getCause());
        }
      } catch (IllegalAccessException | SQLException e) {
        print("unanswered", method.getName() + ": " + e);
      }
    }
    print("answered", answered > 100);
    print("transactions", server.supportsTransactions());
    print("read_only", server.isReadOnly());
  }

  private static void query(Connection connection) throws SQLException {
    try (Statement statement = connection.createStatement();
        ResultSet rows =
            statement.executeQuery("SELECT number, carrier, delay, day FROM flights WHERE number IN (1, 11) ORDER BY 1")) {
      ResultSetMetaData columns = rows.getMetaData();
      for (int place = 1; place <= columns.getColumnCount(); place++) {
        print("selected", columns.getColumnName(place) + "|" + columns.getColumnTypeName(place));
      }
      while (rows.next()) {
        print(
            "row",
            rows.getLong(1) + "|" + rows.getString(2) + "|" + rows.wasNull() + "|" + rows.getDouble(3) + "|" + rows.getDate(4));
      }
    }
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("SELECT value, repeat('x', 100) FROM generate_series(1, 300000)")) {
      long sum = 0;
      while (rows.next()) {
        sum += rows.getLong(1);
      }
      print("sum", sum);
    }
    // A client that reads a row and goes.
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("SELECT value, repeat('x', 1000) FROM generate_series(1, 10000000)")) {
      print("first", rows.next());
    }
    String counted = "SELECT count(*) FROM flights WHERE carrier = ? AND number < ? AND day >= ?";
    try (PreparedStatement statement = connection.prepareStatement(counted)) {
      print("parameters", statement.getParameterMetaData().getParameterCount());
      for (String carrier : new String[] {"UA", "it's none"}) {
        statement.setString(1, carrier);
        statement.setLong(2, 500);
        statement.setDate(3, Date.valueOf("1970-01-01"));
        try (ResultSet rows = statement.executeQuery()) {
          rows.next();
          print("counted", rows.getLong(1));
        }
      }
    }
  }

  private static void change(Connection connection) throws SQLException {
    try (Statement statement = connection.createStatement()) {
      print("inserted", statement.executeUpdate("INSERT INTO flights (number, carrier) VALUES (7000, 'XX'), (7001, 'XX')"));
      print("is_query", statement.execute("UPDATE flights SET carrier = 'YY' WHERE number = 7001"));
      print("updated", statement.getUpdateCount());
      print("index", statement.execute("CREATE INDEX j ON flights USING bitmap (carrier)"));
    }
    try (PreparedStatement statement = connection.prepareStatement("INSERT INTO flights (number, carrier) VALUES (?, ?)")) {
      for (long number = 8000; number < 8003; number++) {
        statement.setLong(1, number);
        statement.setString(2, "'; DROP TABLE flights; --");
        print("prepared_insert", statement.executeUpdate());
      }
    }
    try (PreparedStatement statement = connection.prepareStatement("DELETE FROM flights WHERE number = ?")) {
      statement.setLong(1, 8002);
      print("deleted", statement.executeUpdate());
    }
    try (Statement statement = connection.createStatement();
        ResultSet rows = statement.executeQuery("SELECT count(*), count(DISTINCT carrier) FROM flights WHERE number >= 7000")) {
      rows.next();
      print("left", rows.getLong(1) + "|" + rows.getLong(2));
    }
  }

  private static void fail(Connection connection) {
    for (String wrong : new String[] {"SELECT nosuch FROM flights", "SET lakemark.use_index = false", "BEGIN"}) {
      try (Statement statement = connection.createStatement()) {
        statement.execute(wrong);
        print("accepted", wrong);
      } catch (SQLException e) {
        print("refused", e.getMessage().replace('\n', ' '));
      }
    }
  }
}
