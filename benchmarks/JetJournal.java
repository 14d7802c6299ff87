import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.config.Config;
import com.hazelcast.core.Hazelcast;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.jet.Job;
import com.hazelcast.jet.core.JobStatus;
import com.hazelcast.jet.pipeline.JournalInitialPosition;
import com.hazelcast.jet.pipeline.Pipeline;
import com.hazelcast.jet.pipeline.SinkBuilder;
import com.hazelcast.jet.pipeline.Sources;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Hazelcast Jet reads the journal of a map of another cluster, from its oldest event, into a sink that
 * counts. Arguments: cluster, map, events, members. For each line of its input one run, and a line
 * of output: how many events came, the seconds from the job's start, and from its first event on.
 */
public final class JetJournal {
    private static final AtomicLong COUNT = new AtomicLong();
    private static final AtomicLong FIRST = new AtomicLong();
    private static final AtomicLong CHARACTERS = new AtomicLong();
    private static final long PATIENCE_NS = 120_000_000_000L;

    private JetJournal() {
    }

    public static void main(String[] arguments) throws Exception {
        ClientConfig remote = new ClientConfig();
        remote.setClusterName(arguments[0]);
        for (int at = 3; at < arguments.length; at++) {
            remote.getNetworkConfig().addAddress(arguments[at]);
        }
        HazelcastInstance jet = Hazelcast.newHazelcastInstance(alone());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        while (input.readLine() != null) {
            run(jet, remote, arguments[1], Long.parseLong(arguments[2]));
        }
        jet.shutdown();
    }

    private static Config alone() {
        Config config = new Config().setClusterName("benchmark-of-jet");
        config.getJetConfig().setEnabled(true);
        config.getNetworkConfig().getJoin().getAutoDetectionConfig().setEnabled(false);
        config.getNetworkConfig().getJoin().getMulticastConfig().setEnabled(false);
        config.getNetworkConfig().getInterfaces().setEnabled(true).addInterface("127.0.0.1");
        config.setProperty("hazelcast.phone.home.enabled", "false");
        config.setProperty("hazelcast.socket.bind.any", "false");
        config.setProperty("hazelcast.logging.type", "none");
        return config;
    }

    private static void run(HazelcastInstance jet, ClientConfig remote, String map, long events)
            throws Exception {
        COUNT.set(0);
        FIRST.set(0);
        Pipeline pipeline = Pipeline.create();
        pipeline.readFrom(Sources.remoteMapJournal(
                        map, remote, JournalInitialPosition.START_FROM_OLDEST))
                .withoutTimestamps()
                .writeTo(SinkBuilder.sinkBuilder("count", context -> COUNT)
                        .receiveFn((AtomicLong count, java.util.Map.Entry<Object, Object> event) -> {
                            FIRST.compareAndSet(0, System.nanoTime());
                            CHARACTERS.addAndGet(event.getValue().toString().length());
                            count.incrementAndGet();
                        })
                        .build());
        long begin = System.nanoTime();
        Job job = jet.getJet().newJob(pipeline);
        while (COUNT.get() < events && System.nanoTime() - begin < PATIENCE_NS
                && job.getStatus() != JobStatus.FAILED) {
            Thread.sleep(1);
        }
        long end = System.nanoTime();
        Thread.sleep(200); // more than all would show
        System.out.println(COUNT.get() + " " + (end - begin) / 1e9 + " " + (end - FIRST.get()) / 1e9);
        job.cancel();
        try {
            job.join();
        } catch (Exception cancelled) {
            // it was
        }
    }
}
