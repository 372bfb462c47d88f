// One process with a master and a region server of HBase, both unmodified, told of everything by
// the hbase-site.xml of its class path. They start and end each with the process.

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.master.HMaster;
import org.apache.hadoop.hbase.regionserver.HRegionServer;

public final class Node {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = HBaseConfiguration.create();
        HMaster master = new HMaster(new Configuration(configuration));
        HRegionServer regionServer = new HRegionServer(new Configuration(configuration));
        master.start();
        regionServer.start();
        regionServer.join();
        master.join();
    }
}
