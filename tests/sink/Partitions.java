import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Prints the partition that Kafka's own client gives each key: lines of "hex-key partitions". */
public class Partitions {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            var words = line.split(" ", -1);
            var key = HexFormat.of().parseHex(words[0]);
            System.out.println(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(words[1])));
        }
    }
}
