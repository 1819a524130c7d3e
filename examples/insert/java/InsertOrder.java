import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.URISyntaxException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Properties;

/**
 * Writes an order and the event that tells of it, in one transaction, with JDBC.
 *
 * <p>Run it with DATABASE_URL set and an order id; with the word "fail" after it, it fails before the
 * commit, and neither has ever been there.
 */
public class InsertOrder {
    record Order(
            String id,
            @JsonProperty("customer_id") String customerId,
            @JsonProperty("total_cents") long totalCents) {}

    /** Commits both rows or, when it throws, neither: closing the connection rolls them back. */
    static void placeOrder(Connection connection, Order order, boolean fail)
            throws SQLException, JsonProcessingException {
        String payload = new ObjectMapper().writeValueAsString(order);
        // snippet:start
        connection.setAutoCommit(false);
        // The order's own row comes first. Its lock makes the transactions of one order take turns,
        // so that the ids of their events are in commit order.
        try (var insert = connection.prepareStatement(
                "INSERT INTO orders (id, customer_id, total_cents) VALUES (?, ?, ?)")) {
            insert.setString(1, order.id());
            insert.setString(2, order.customerId());
            insert.setLong(3, order.totalCents());
            insert.executeUpdate();
        }
        try (var insert = connection.prepareStatement(
                "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)"
                        + " VALUES ('order', ?, 'order.created', ?::json)")) {
            insert.setString(1, order.id());
            insert.setString(2, payload);
            insert.executeUpdate();
        }
        // snippet:end
        if (fail) {
            throw new IllegalStateException("failed on purpose");
        }
        // snippet:start
        connection.commit();
        // snippet:end
    }

    /** JDBC takes the login beside the URL, not in it. */
    static Connection connect(String text) throws SQLException {
        URI url;
        try {
            url = new URI(text);
        } catch (URISyntaxException e) {
            // The cause would print the password.
            throw new IllegalArgumentException("DATABASE_URL is not a URL");
        }
        String[] login = url.getUserInfo() == null ? new String[0] : url.getUserInfo().split(":", 2);
        Properties properties = new Properties();
        if (login.length > 0) {
            properties.setProperty("user", login[0]);
        }
        if (login.length > 1) {
            properties.setProperty("password", login[1]);
        }
        String port = url.getPort() < 0 ? "" : ":" + url.getPort();
        String query = url.getRawQuery() == null ? "" : "?" + url.getRawQuery();
        return DriverManager.getConnection(
                "jdbc:postgresql://" + url.getHost() + port + url.getRawPath() + query, properties);
    }

    public static void main(String[] args) throws Exception {
        String url = System.getenv("DATABASE_URL");
        if (args.length < 1 || url == null) {
            System.err.println("usage: DATABASE_URL=postgres://... java -cp 'lib/*' InsertOrder.java"
                    + " ORDER_ID [fail]");
            System.exit(64);
        }
        boolean fail = args.length > 1 && args[1].equals("fail");
        try (Connection connection = connect(url)) {
            placeOrder(connection, new Order(args[0], "c-17", 1250), fail);
        }
    }
}
