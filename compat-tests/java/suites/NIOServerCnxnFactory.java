package org.apache.zookeeper.server;

import zkshim.suites.StandInFactory;

/** In the place of ZooKeeper's class of this name, for tests that choose it. */
public class NIOServerCnxnFactory extends StandInFactory {}
