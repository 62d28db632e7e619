package steelyard;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/**
 * The batch of batch.py on Storm: the spout sends each row to the task of the block that Prompt gave it (direct
 * grouping), first-tier bolts add up a block, and partial totals meet by word. A row without a word ends the batch of
 * its block. Every row is acknowledged; the program ends when all are.
 */
public final class Words {
    static final int BLOCKS = 4;
    static final int BUCKETS = 2;
    static final Map<String, Long> TOTALS = new ConcurrentHashMap<>();
    static final AtomicInteger ACKNOWLEDGED = new AtomicInteger();
    static final CountDownLatch DONE = new CountDownLatch(1);

    /** Reads the rows; the whole batch is there when it begins. */
    public static final class Rows extends BaseRichSpout {
        private final String file;
        private transient SpoutOutputCollector collector;
        private transient List<Integer> tasks;
        private transient List<String> lines;
        private int next;

        Rows(String file) {
            this.file = file;
        }

        @Override
        public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector given) {
            collector = given;
            tasks = context.getComponentTasks("block");
            try {
                lines = Files.readAllLines(Path.of(file));
            } catch (IOException problem) {
                throw new IllegalStateException(file + " cannot be read: run batch.py first", problem);
            }
        }

        @Override
        public void nextTuple() {
            if (next < lines.size()) {
                String[] parts = lines.get(next).split(",", -1);
                int block = Integer.parseInt(parts[2].trim());
                collector.emitDirect(tasks.get(block), new Values(parts[0], Long.parseLong(parts[1])), next);
                next++;
            }
        }

        @Override
        public void ack(Object row) {
            if (ACKNOWLEDGED.incrementAndGet() == lines.size()) {
                DONE.countDown();
            }
        }

        @Override
        public void fail(Object row) {
            throw new IllegalStateException("row " + row + " was not done in time");
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(true, new Fields("word", "value"));
        }
    }

    /** Adds up a block, and sends a total for each word when its batch ends; the end is acknowledged behind them. */
    public static final class Block extends BaseRichBolt {
        private transient OutputCollector collector;
        private transient Map<String, Long> totals;
        private int rows;
        private int task;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector given) {
            collector = given;
            totals = new HashMap<>();
            task = context.getThisTaskIndex();
        }

        @Override
        public void execute(Tuple row) {
            String word = row.getString(0);
            if (word.isEmpty()) {
                System.out.println("block " + task + ": " + rows + " rows, " + totals.size() + " words");
                totals.forEach((key, total) -> collector.emit(row, new Values(key, total)));
            } else {
                rows++;
                totals.merge(word, row.getLong(1), Long::sum);
            }
            collector.ack(row);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("word", "total"));
        }
    }

    /** Merges what blocks have of a word. */
    public static final class Bucket extends BaseRichBolt {
        private transient OutputCollector collector;

        @Override
        public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector given) {
            collector = given;
        }

        @Override
        public void execute(Tuple partial) {
            TOTALS.merge(partial.getString(0), partial.getLong(1), Long::sum);
            collector.ack(partial);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
        }
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("rows", new Rows(folder.resolve("rows.csv").toString()), 1);
        builder.setBolt("block", new Block(), BLOCKS).directGrouping("rows");
        builder.setBolt("bucket", new Bucket(), BUCKETS).fieldsGrouping("block", new Fields("word"));
        Config config = new Config();
        config.setMessageTimeoutSecs(120);
        boolean done;
        try (LocalCluster cluster = new LocalCluster();
                LocalCluster.LocalTopology topology =
                        cluster.submitTopology("words", config, builder.createTopology())) {
            done = DONE.await(180, TimeUnit.SECONDS);
        }
        Map<String, Long> expected = new TreeMap<>();
        for (String line : Files.readAllLines(folder.resolve("expected.csv"))) {
            String[] parts = line.split(",");
            expected.put(parts[0], Long.parseLong(parts[1].trim()));
        }
        if (!done || !expected.equals(new TreeMap<>(TOTALS))) {
            System.err.println("wrong: " + ACKNOWLEDGED.get() + " rows acknowledged, " + TOTALS.size() + " words of "
                    + expected.size());
            System.exit(1);
        }
        System.out.println("Storm gave the " + expected.size() + " totals that plain Python adds up, "
                + ACKNOWLEDGED.get() + " rows acknowledged.");
        System.exit(0);
    }
}
