import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.IMap;
import com.hazelcast.nio.serialization.ClassDefinition;
import com.hazelcast.nio.serialization.ClassDefinitionBuilder;
import com.hazelcast.nio.serialization.genericrecord.GenericRecord;
import com.hazelcast.nio.serialization.genericrecord.GenericRecordBuilder;
import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;

/** Puts a Compact and a Portable value of each kind of field into two maps, as Java writes them.
 *  Arguments: the cluster's name, the two maps, a member. */
public final class JavaWriter {
    private static final LocalDateTime WHEN = LocalDateTime.of(2024, 2, 29, 12, 30, 0, 5000);

    public static void main(String[] given) {
        ClientConfig config = new ClientConfig();
        config.setClusterName(given[0]);
        config.getNetworkConfig().addAddress(given[3]);
        HazelcastInstance client = HazelcastClient.newHazelcastClient(config);
        IMap<String, GenericRecord> compact = client.getMap(given[1]);
        // so that positions are of one, two and four bytes
        for (int size : new int[] {1, 300, 70_000}) {
            compact.set("size-" + size, compact("x".repeat(size)));
        }
        client.<String, GenericRecord>getMap(given[2]).set("one", portable());
        client.shutdown();
    }

    private static GenericRecord inner(int number) {
        return GenericRecordBuilder.compact("inner").setInt32("number", number).build();
    }

    private static GenericRecord compact(String pad) {
        return GenericRecordBuilder.compact("every")
            .setBoolean("yes", true).setBoolean("no", false)
            .setInt8("int8", (byte) -8).setInt16("int16", (short) -16)
            .setInt32("int32", -32).setInt64("int64", Long.MIN_VALUE)
            .setFloat32("float32", 1.5f).setFloat64("float64", -0.1)
            .setString("string", "é\uD83D\uDE00").setString("pad", pad).setString("nothing", null)
            .setDecimal("decimal", new BigDecimal("-123.45"))
            .setTime("time", LocalTime.of(1, 2, 3, 4000)).setDate("date", WHEN.toLocalDate())
            .setTimestamp("timestamp", WHEN)
            .setTimestampWithTimezone("zoned", OffsetDateTime.of(WHEN, ZoneOffset.ofHours(2)))
            .setNullableInt32("null32", null).setNullableBoolean("maybe", true)
            .setArrayOfInt32("numbers", new int[] {1, -2})
            .setArrayOfInt8("bytes", new byte[] {1, -1})
            .setArrayOfBoolean("bits", new boolean[] {true, false, true, true, false, false, true,
                                                      false, true})
            .setArrayOfNullableInt64("holes", new Long[] {1L, null, 3L})
            .setArrayOfString("texts", new String[] {"a", null, ""})
            .setGenericRecord("inner", inner(7))
            .setArrayOfGenericRecord("inners", new GenericRecord[] {inner(8), null})
            // Java orders names by UTF-16: the second one comes first
            .setInt32("\uFF5E", 1).setInt32("\uD83D\uDE00", 2)
            .build();
    }

    private static GenericRecord portable() {
        ClassDefinition inner = new ClassDefinitionBuilder(2, 2, 0).addIntField("number").build();
        ClassDefinition every = new ClassDefinitionBuilder(2, 1, 3)
            .addBooleanField("yes").addByteField("int8").addShortField("int16").addIntField("int32")
            .addLongField("int64").addFloatField("float32").addDoubleField("float64")
            .addCharField("char").addStringField("string").addStringField("nothing")
            .addDecimalField("decimal").addTimeField("time").addDateField("date")
            .addTimestampField("timestamp").addTimestampWithTimezoneField("zoned")
            .addIntArrayField("numbers").addStringArrayField("texts")
            .addPortableField("inner", inner).addPortableArrayField("inners", inner)
            .build();
        GenericRecord seven = GenericRecordBuilder.portable(inner).setInt32("number", 7).build();
        return GenericRecordBuilder.portable(every)
            .setBoolean("yes", true).setInt8("int8", (byte) -8).setInt16("int16", (short) -16)
            .setInt32("int32", -32).setInt64("int64", Long.MIN_VALUE).setFloat32("float32", 1.5f)
            .setFloat64("float64", -0.1).setChar("char", 'é')
            .setString("string", "é\uD83D\uDE00").setString("nothing", null)
            .setDecimal("decimal", new BigDecimal("-123.45"))
            .setTime("time", LocalTime.of(1, 2, 3, 4000)).setDate("date", WHEN.toLocalDate())
            .setTimestamp("timestamp", WHEN)
            .setTimestampWithTimezone("zoned", OffsetDateTime.of(WHEN, ZoneOffset.ofHours(2)))
            .setArrayOfInt32("numbers", new int[] {1, -2})
            .setArrayOfString("texts", new String[] {"a", ""})
            .setGenericRecord("inner", seven)
            .setArrayOfGenericRecord("inners", new GenericRecord[] {seven})
            .build();
    }
}
