import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.MapLoader;
import com.hazelcast.map.MapLoaderLifecycleSupport;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** Loads 2,000 entries once file `NAME.open` is in the folder that `gate` names; if it holds
 * text, it fails with that. It writes `NAME.asked` when a member asks. */
public class GatedLoader implements MapLoader<String, String>, MapLoaderLifecycleSupport {
    private Path asked;
    private Path open;

    public void init(HazelcastInstance member, Properties given, String map) {
        asked = Path.of(given.getProperty("gate"), map + ".asked");
        open = Path.of(given.getProperty("gate"), map + ".open");
    }

    public void destroy() {}

    public Iterable<String> loadAllKeys() {
        try {
            Files.writeString(asked, "");
            while (!Files.exists(open)) Thread.sleep(10);
            String fault = Files.readString(open);
            if (!fault.isEmpty()) throw new IllegalStateException(fault);
        } catch (java.io.IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
        List<String> keys = new ArrayList<>();
        for (int number = 0; number < 2000; number++) keys.add("k" + number);
        return keys;
    }

    public Map<String, String> loadAll(Collection<String> keys) {
        Map<String, String> found = new HashMap<>();
        for (String key : keys) found.put(key, load(key));
        return found;
    }

    public String load(String key) {
        return "v" + key.substring(1);
    }
}
