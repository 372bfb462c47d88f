// Prints the bytes that ZooKeeper's own classes make of each record, for upstream.txt.
//
// Compile and run it with zookeeper-jute-3.9.5.jar on the class path; the names of the records
// are the arguments. Each field gets a value made from its name, so that fields that trade
// places show.

import java.io.ByteArrayOutputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.jute.BinaryOutputArchive;
import org.apache.jute.Record;

public class Upstream {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            Record record = (Record) filled(named(name));
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            record.serialize(BinaryOutputArchive.getArchive(out), "record");
            StringBuilder line = new StringBuilder(name).append(' ');
            for (byte octet : out.toByteArray()) {
                line.append(String.format("%02x", octet));
            }
            System.out.println(line);
        }
    }

    private static Class<?> named(String name) throws ClassNotFoundException {
        try {
            return Class.forName("org.apache.zookeeper.data." + name);
        } catch (ClassNotFoundException e) {
            return Class.forName("org.apache.zookeeper.proto." + name);
        }
    }

    private static Object filled(Class<?> type) throws Exception {
        Object record = type.getDeclaredConstructor().newInstance();
        for (Field field : type.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                field.set(record, value(field.getGenericType(), field.getName()));
            }
        }
        return record;
    }

    private static Object value(Type type, String name) throws Exception {
        if (type == boolean.class) {
            return true;
        } else if (type == int.class) {
            return name.hashCode();
        } else if (type == long.class) {
            return name.hashCode() * 0x100000001L;
        } else if (type == String.class) {
            return name;
        } else if (type == byte[].class) {
            return name.getBytes(StandardCharsets.UTF_8);
        } else if (type instanceof ParameterizedType) {
            return List.of(value(((ParameterizedType) type).getActualTypeArguments()[0], name));
        }
        return filled((Class<?>) type);
    }
}
