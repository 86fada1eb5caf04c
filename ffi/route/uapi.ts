// linux/rtnetlink.h: message types
export const RTM_NEWLINK = 16;
export const RTM_DELLINK = 17;
export const RTM_NEWADDR = 20;
export const RTM_DELADDR = 21;
export const RTM_NEWROUTE = 24;
export const RTM_DELROUTE = 25;
export const RTM_NEWNEIGH = 28;
export const RTM_DELNEIGH = 29;
export const RTM_NEWRULE = 32;
export const RTM_DELRULE = 33;
export const RTM_GETRULE = 34;
export const RTM_NEWQDISC = 36;
export const RTM_NEWTFILTER = 44;
export const RTM_NEWNEIGHTBL = 64;
export const RTM_NEWLINKPROP = 108;
export const RTM_NEWNSID = 88;
export const RTM_DELNSID = 89;
export const RTNLGRP_LINK = 1;
export const RTNLGRP_NEIGH = 3;
export const RTNLGRP_IPV4_IFADDR = 5;
export const RTNLGRP_IPV4_ROUTE = 7;
export const RTNLGRP_IPV6_IFADDR = 9;
export const RTNLGRP_IPV6_ROUTE = 11;
export const RTNLGRP_NSID = 28;

// linux/if.h
export const ALTIFNAMSIZ = 128;
export const IFF_UP = 0x1;
export const IFF_LOOPBACK = 0x8;
export const IFF_POINTOPOINT = 0x10;
export const IFF_RUNNING = 0x40;
export const IFF_NOARP = 0x80;
export const IFF_PROMISC = 0x100;
export const IFF_ALLMULTI = 0x200;
export const IFF_LOWER_UP = 0x10000;
export const IF_OPER_UNKNOWN = 0;
export const IF_OPER_UP = 6;

// linux/if_link.h
export const IFLA_ADDRESS = 1;
export const IFLA_IFNAME = 3;
export const IFLA_MTU = 4;
export const IFLA_LINK = 5;
export const IFLA_MASTER = 10;
export const IFLA_TXQLEN = 13;
export const IFLA_OPERSTATE = 16;
export const IFLA_LINKINFO = 18;
export const IFLA_IFALIAS = 20;
export const IFLA_AF_SPEC = 26;
export const IFLA_GROUP = 27;
export const IFLA_NET_NS_FD = 28;
export const IFLA_EXT_MASK = 29;
export const IFLA_PROMISCUITY = 30;
export const IFLA_NUM_TX_QUEUES = 31;
export const IFLA_NUM_RX_QUEUES = 32;
export const IFLA_LINK_NETNSID = 37;
export const IFLA_TARGET_NETNSID = 46;
export const IFLA_PROP_LIST = 52;
export const IFLA_ALT_IFNAME = 53;
export const IFLA_PERM_ADDRESS = 54;
export const IFLA_PARENT_DEV_NAME = 56;
export const IFLA_INFO_KIND = 1;
export const IFLA_INFO_DATA = 2;
export const IFLA_INFO_SLAVE_KIND = 4;
export const IFLA_INFO_SLAVE_DATA = 5;
export const IFLA_INET_CONF = 1;
export const RTEXT_FILTER_BRVLAN = 1 << 1;
export const RTEXT_FILTER_SKIP_STATS = 1 << 3;

// linux/ip.h
export const IPV4_DEVCONF_ARP_NOTIFY = 22;

// linux/net_namespace.h
export const NETNSA_NSID = 1;
export const NETNSA_FD = 3;
export const NETNSA_TARGET_NSID = 4;

// linux/if_link.h: tun and tap
export const TUNSETIFF = 0x400454ca;
export const IFF_TAP = 2;
export const IFF_MULTI_QUEUE = 0x100;
export const IFF_NO_PI = 0x1000;
export const IFLA_TUN_OWNER = 1;
export const IFLA_TUN_GROUP = 2;
export const IFLA_TUN_TYPE = 3;
export const IFLA_TUN_MULTI_QUEUE = 7;

// linux/veth.h
export const VETH_INFO_PEER = 1;

// linux/if_link.h
export const IFLA_VRF_TABLE = 1;

// linux/if_link.h: links on a master
export const IFLA_MACVLAN_MODE = 1;
export const IFLA_MACVLAN_BC_QUEUE_LEN = 7;
export const MACVLAN_MODE_PRIVATE = 1;
export const MACVLAN_MODE_VEPA = 2;
export const MACVLAN_MODE_BRIDGE = 4;
export const MACVLAN_MODE_PASSTHRU = 8;
export const IFLA_IPVLAN_MODE = 1;
export const IPVLAN_MODE_L2 = 0;
export const IPVLAN_MODE_L3 = 1;
export const IPVLAN_MODE_L3S = 2;
export const IFLA_VLAN_ID = 1;
export const IFLA_VXLAN_LEARNING = 7;
export const IFLA_VXLAN_PORT = 15;
export const IFLA_VXLAN_COLLECT_METADATA = 25;

// linux/if_link.h and linux/if_bridge.h: bridges and their ports
export const IFLA_BR_VLAN_FILTERING = 7;
export const IFLA_BR_VLAN_DEFAULT_PVID = 39;
export const IFLA_BRPORT_MODE = 4;
export const IFLA_BRPORT_ISOLATED = 33;
export const IFLA_BRIDGE_VLAN_INFO = 2;
export const BRIDGE_VLAN_INFO_PVID = 1 << 1;
export const BRIDGE_VLAN_INFO_UNTAGGED = 1 << 2;
export const BRIDGE_VLAN_INFO_RANGE_BEGIN = 1 << 3;
export const BRIDGE_VLAN_INFO_RANGE_END = 1 << 4;

// linux/if_addr.h
export const IFA_ADDRESS = 1;
export const IFA_LOCAL = 2;
export const IFA_BROADCAST = 4;
export const IFA_FLAGS = 8;
export const IFA_TARGET_NETNSID = 10;
export const IFA_PROTO = 11;
export const IFA_F_NODAD = 0x02;
export const IFA_F_DADFAILED = 0x08;
export const IFA_F_TENTATIVE = 0x40;
export const IFA_F_PERMANENT = 0x80;
export const IFA_F_NOPREFIXROUTE = 0x200;

// linux/rtnetlink.h: routes
export const RTA_DST = 1;
export const RTA_SRC = 2;
export const RTA_IIF = 3;
export const RTA_OIF = 4;
export const RTA_GATEWAY = 5;
export const RTA_PRIORITY = 6;
export const RTA_PREFSRC = 7;
export const RTA_METRICS = 8;
export const RTA_MULTIPATH = 9;
export const RTA_FLOW = 11;
export const RTA_TABLE = 15;
export const RTA_MARK = 16;
export const RTA_VIA = 18;
export const RTA_PREF = 20;
export const RTA_ENCAP_TYPE = 21;
export const RTA_ENCAP = 22;
export const RTA_NH_ID = 30;
// linux/lwtunnel.h: LWTUNNEL_IP6_… have the same numbers
export const LWTUNNEL_ENCAP_IP = 2;
export const LWTUNNEL_ENCAP_IP6 = 4;
export const LWTUNNEL_IP_ID = 1;
export const LWTUNNEL_IP_DST = 2;
export const LWTUNNEL_IP_SRC = 3;
export const LWTUNNEL_IP_FLAGS = 6;
export const RTAX_MTU = 2;
export const RTAX_ADVMSS = 8;
export const RT_TABLE_UNSPEC = 0;
export const RT_TABLE_DEFAULT = 253;
export const RT_TABLE_MAIN = 254;
export const RT_TABLE_LOCAL = 255;
export const RTPROT_REDIRECT = 1;
export const RTPROT_KERNEL = 2;
export const RTPROT_BOOT = 3;
export const RTPROT_RA = 9;
export const RTN_UNICAST = 1;
export const RTN_BLACKHOLE = 6;
export const RTN_UNREACHABLE = 7;
export const RTN_PROHIBIT = 8;
export const RTN_THROW = 9;
export const RTNH_F_DEAD = 1;
export const RTNH_F_ONLINK = 4;
export const RTM_F_CLONED = 0x200;
export const RTM_F_FIB_MATCH = 0x2000;
export const RT_SCOPE_UNIVERSE = 0;
export const RT_SCOPE_LINK = 253;
export const RT_SCOPE_HOST = 254;

// linux/fib_rules.h
export const FRA_DST = 1;
export const FRA_SRC = 2;
export const FRA_IIFNAME = 3;
export const FRA_GOTO = 4;
export const FRA_PRIORITY = 6;
export const FRA_FWMARK = 10;
export const FRA_TUN_ID = 12;
export const FRA_SUPPRESS_IFGROUP = 13;
export const FRA_SUPPRESS_PREFIXLEN = 14;
export const FRA_TABLE = 15;
export const FRA_FWMASK = 16;
export const FRA_OIFNAME = 17;
export const FRA_L3MDEV = 19;
export const FRA_UID_RANGE = 20;
export const FRA_IP_PROTO = 22;
export const FRA_SPORT_RANGE = 23;
export const FRA_DPORT_RANGE = 24;
export const FRA_DSCP = 25;
export const FRA_FLOWLABEL = 26;
export const FR_ACT_TO_TBL = 1;
export const FR_ACT_GOTO = 2;
export const FR_ACT_NOP = 3;
export const FR_ACT_BLACKHOLE = 6;
export const FR_ACT_UNREACHABLE = 7;
export const FR_ACT_PROHIBIT = 8;
export const FIB_RULE_INVERT = 2;

// linux/rtnetlink.h: traffic control
export const TCA_KIND = 1;
export const TCA_OPTIONS = 2;

// linux/pkt_sched.h
export const TC_H_INGRESS = 0xffff_fff1;
export const TC_H_ROOT = 0xffff_ffff;
export const TC_LINKLAYER_ETHERNET = 1;
export const TCA_TBF_PARMS = 1;
export const TCA_TBF_RATE64 = 4;
export const TCA_TBF_BURST = 6;

// linux/pkt_cls.h and linux/tc_act/tc_mirred.h
export const TCA_U32_CLASSID = 1;
export const TCA_U32_SEL = 5;
export const TCA_U32_ACT = 7;
export const TC_U32_TERMINAL = 1;
export const TC_ACT_STOLEN = 4;
export const TCA_ACT_KIND = 1;
export const TCA_ACT_OPTIONS = 2;
export const TCA_MIRRED_PARMS = 2;
export const TCA_EGRESS_REDIR = 1;
export const ETH_P_ALL = 0x0003;

// linux/neighbour.h
export const NDA_DST = 1;
export const NDA_LLADDR = 2;
export const NDA_IFINDEX = 8;
export const NUD_INCOMPLETE = 0x01;
export const NUD_REACHABLE = 0x02;
export const NUD_STALE = 0x04;
export const NUD_FAILED = 0x20;
export const NUD_PERMANENT = 0x80;
export const NDTA_NAME = 1;
export const NDTA_THRESH3 = 4;
export const NDTA_CONFIG = 5;
export const NDTA_STATS = 7;
