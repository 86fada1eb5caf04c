/** @see linux/netfilter/nf_tables.h, linux/netfilter/nfnetlink.h, linux/netfilter.h @module */

// The upper byte of a message's type.
export const NFNL_SUBSYS_NFTABLES = 10;
export const NFNL_MSG_BATCH_BEGIN = 0x10;
export const NFNL_MSG_BATCH_END = 0x11;
export const NFNL_BATCH_GENID = 1;

export const NFPROTO_UNSPEC = 0;
export const NFPROTO_INET = 1;
export const NFPROTO_IPV4 = 2;
export const NFPROTO_NETDEV = 5;
export const NFPROTO_BRIDGE = 7;
export const NFPROTO_IPV6 = 10;

export const NF_INET_PRE_ROUTING = 0;
export const NF_INET_FORWARD = 2;
export const NF_INET_LOCAL_IN = 1;
export const NF_INET_LOCAL_OUT = 3;
export const NF_INET_POST_ROUTING = 4;
export const NF_INET_INGRESS = 5;
export const NF_NETDEV_INGRESS = 0;
export const NF_NETDEV_EGRESS = 1;

// Lower priorities run first (linux/netfilter_ipv4.h).
export const NF_IP_PRI_FIRST = -2147483648;
export const NF_IP_PRI_RAW = -300;
export const NF_IP_PRI_CONNTRACK = -200;
export const NF_IP_PRI_MANGLE = -150;
export const NF_IP_PRI_NAT_DST = -100;
export const NF_IP_PRI_FILTER = 0;
export const NF_IP_PRI_NAT_SRC = 100;
export const NF_IP_PRI_LAST = 2147483647;
// linux/netfilter_bridge.h
export const NF_BR_PRI_FILTER_BRIDGED = -200;

export const NFT_MSG_NEWTABLE = 0;
export const NFT_MSG_GETTABLE = 1;
export const NFT_MSG_DELTABLE = 2;
export const NFT_MSG_NEWCHAIN = 3;
export const NFT_MSG_GETCHAIN = 4;
export const NFT_MSG_DELCHAIN = 5;
export const NFT_MSG_NEWRULE = 6;
export const NFT_MSG_GETRULE = 7;
export const NFT_MSG_DELRULE = 8;
export const NFT_MSG_NEWSET = 9;
export const NFT_MSG_GETSET = 10;
export const NFT_MSG_DELSET = 11;
export const NFT_MSG_NEWSETELEM = 12;
export const NFT_MSG_GETSETELEM = 13;
export const NFT_MSG_DELSETELEM = 14;
export const NFT_MSG_GETGEN = 16;

export const NFTA_GEN_ID = 1;

export const NFTA_TABLE_NAME = 1;
export const NFTA_TABLE_FLAGS = 2;
export const NFTA_TABLE_USE = 3;
export const NFTA_TABLE_HANDLE = 4;
export const NFTA_TABLE_USERDATA = 6;

export const NFTA_CHAIN_TABLE = 1;
export const NFTA_CHAIN_HANDLE = 2;
export const NFTA_CHAIN_NAME = 3;
export const NFTA_CHAIN_HOOK = 4;
export const NFTA_CHAIN_POLICY = 5;
export const NFTA_CHAIN_USE = 6;
export const NFTA_CHAIN_TYPE = 7;
export const NFTA_CHAIN_USERDATA = 12;
export const NFTA_HOOK_HOOKNUM = 1;
export const NFTA_HOOK_PRIORITY = 2;
export const NFTA_HOOK_DEV = 3;
export const NFTA_HOOK_DEVS = 4;
export const NFTA_DEVICE_NAME = 1;
export const NFTA_DEVICE_PREFIX = 2;

export const NFTA_RULE_TABLE = 1;
export const NFTA_RULE_CHAIN = 2;
export const NFTA_RULE_HANDLE = 3;
export const NFTA_RULE_EXPRESSIONS = 4;
export const NFTA_RULE_POSITION = 6;
export const NFTA_RULE_USERDATA = 7;

export const NFTA_SET_TABLE = 1;
export const NFTA_SET_NAME = 2;
export const NFTA_SET_FLAGS = 3;
export const NFTA_SET_KEY_TYPE = 4;
export const NFTA_SET_KEY_LEN = 5;
export const NFTA_SET_DATA_TYPE = 6;
export const NFTA_SET_DATA_LEN = 7;
export const NFTA_SET_DESC = 9;
export const NFTA_SET_ID = 10;
export const NFTA_SET_USERDATA = 13;
export const NFTA_SET_DESC_SIZE = 1;
export const NFTA_SET_DESC_CONCAT = 2;
export const NFTA_SET_FIELD_LEN = 1;
export const NFT_SET_ANONYMOUS = 0x1;
export const NFT_SET_INTERVAL = 0x4;
export const NFT_SET_MAP = 0x8;

export const NFTA_SET_ELEM_LIST_TABLE = 1;
export const NFTA_SET_ELEM_LIST_SET = 2;
export const NFTA_SET_ELEM_LIST_ELEMENTS = 3;
export const NFTA_SET_ELEM_LIST_SET_ID = 4;
export const NFTA_SET_ELEM_KEY = 1;
export const NFTA_SET_ELEM_DATA = 2;
export const NFTA_SET_ELEM_FLAGS = 3;
export const NFTA_SET_ELEM_USERDATA = 6;
export const NFTA_SET_ELEM_KEY_END = 10;
export const NFT_SET_ELEM_INTERVAL_END = 0x1;

export const NFTA_DATA_VALUE = 1;
export const NFTA_DATA_VERDICT = 2;
export const NFTA_VERDICT_CODE = 1;
export const NFTA_VERDICT_CHAIN = 2;
// The data type of verdict maps.
export const NFT_DATA_VERDICT = 0xffffff00;
export const NF_DROP = 0;
export const NF_ACCEPT = 1;
export const NFT_JUMP = -3;
export const NFT_GOTO = -4;
export const NFT_RETURN = -5;

export const NFTA_EXPR_NAME = 1;
export const NFTA_EXPR_DATA = 2;

export const NFT_REG_VERDICT = 0;
export const NFT_REG_1 = 1;
export const NFT_REG32_00 = 8;

export const NFTA_META_DREG = 1;
export const NFTA_META_KEY = 2;
export const NFTA_META_SREG = 3;
export const NFT_META_PROTOCOL = 1;
export const NFT_META_MARK = 3;
export const NFT_META_IIF = 4;
export const NFT_META_OIF = 5;
export const NFT_META_IIFNAME = 6;
export const NFT_META_OIFNAME = 7;
export const NFT_META_NFPROTO = 15;
export const NFT_META_L4PROTO = 16;
export const NFT_META_BRI_IIFNAME = 17;
export const NFT_META_BRI_OIFNAME = 18;
export const NFT_META_PKTTYPE = 19;
export const NFT_META_IIFGROUP = 21;
// linux/if_packet.h: for this host
export const PACKET_HOST = 0;

export const NFTA_CMP_SREG = 1;
export const NFTA_CMP_OP = 2;
export const NFTA_CMP_DATA = 3;
export const NFT_CMP_EQ = 0;
export const NFT_CMP_NEQ = 1;

export const NFTA_PAYLOAD_DREG = 1;
export const NFTA_PAYLOAD_BASE = 2;
export const NFTA_PAYLOAD_OFFSET = 3;
export const NFTA_PAYLOAD_LEN = 4;
export const NFTA_PAYLOAD_SREG = 5;
export const NFTA_PAYLOAD_CSUM_TYPE = 6;
export const NFTA_PAYLOAD_CSUM_OFFSET = 7;
export const NFTA_PAYLOAD_CSUM_FLAGS = 8;
export const NFT_PAYLOAD_CSUM_NONE = 0;
export const NFT_PAYLOAD_CSUM_INET = 1;
export const NFT_PAYLOAD_L4CSUM_PSEUDOHDR = 1;
export const NFT_PAYLOAD_LL_HEADER = 0;
export const NFT_PAYLOAD_NETWORK_HEADER = 1;
export const NFT_PAYLOAD_TRANSPORT_HEADER = 2;

export const NFTA_BITWISE_SREG = 1;
export const NFTA_BITWISE_DREG = 2;
export const NFTA_BITWISE_LEN = 3;
export const NFTA_BITWISE_MASK = 4;
export const NFTA_BITWISE_XOR = 5;
export const NFTA_BITWISE_OP = 6;

export const NFT_RANGE_EQ = 0;
export const NFTA_RANGE_SREG = 1;
export const NFTA_RANGE_OP = 2;
export const NFTA_RANGE_FROM_DATA = 3;
export const NFTA_RANGE_TO_DATA = 4;

export const NFTA_IMMEDIATE_DREG = 1;
export const NFTA_IMMEDIATE_DATA = 2;

export const NFTA_LOOKUP_SET = 1;
export const NFTA_LOOKUP_SREG = 2;
export const NFTA_LOOKUP_DREG = 3;
export const NFTA_LOOKUP_SET_ID = 4;
export const NFTA_LOOKUP_FLAGS = 5;
export const NFT_LOOKUP_F_INV = 1;

export const NFTA_FIB_DREG = 1;
export const NFTA_FIB_RESULT = 2;
export const NFTA_FIB_FLAGS = 3;
export const NFT_FIB_RESULT_OIF = 1;
export const NFT_FIB_RESULT_ADDRTYPE = 3;
export const NFTA_FIB_F_SADDR = 0x1;
export const NFTA_FIB_F_DADDR = 0x2;
export const NFTA_FIB_F_IIF = 0x8;
export const NFTA_FIB_F_PRESENT = 0x20;
// linux/rtnetlink.h: this host's address
export const RTN_LOCAL = 2;

export const NFTA_OBJREF_IMM_TYPE = 1;
export const NFT_OBJECT_QUOTA = 2;
export const NFT_OBJECT_LIMIT = 4;
export const NFT_OBJECT_CONNLIMIT = 5;
export const NFT_OBJECT_SYNPROXY = 10;

export const NFTA_CT_DREG = 1;
export const NFTA_CT_KEY = 2;
export const NFTA_CT_DIRECTION = 3;
export const NFT_CT_STATE = 0;
export const NFT_CT_DIRECTION = 1;
export const NFT_CT_STATUS = 2;
export const NFT_CT_MARK = 3;
export const NFT_CT_SRC_IP = 19;
export const NFT_CT_DST_IP = 20;
export const NFT_CT_SRC_IP6 = 21;
export const NFT_CT_DST_IP6 = 22;
// linux/netfilter/nf_conntrack_tuple_common.h
export const IP_CT_DIR_ORIGINAL = 0;
export const IP_CT_DIR_REPLY = 1;
// linux/netfilter/nf_conntrack_common.h NF_CT_STATE_BIT
export const NF_CT_STATE_INVALID_BIT = 0x1;
export const NF_CT_STATE_ESTABLISHED = 0x2;
export const NF_CT_STATE_RELATED = 0x4;
export const NF_CT_STATE_NEW = 0x8;
// linux/netfilter/nf_conntrack_common.h
export const IPS_DST_NAT = 0x20;

export const NFTA_NAT_TYPE = 1;
export const NFTA_NAT_FAMILY = 2;
export const NFTA_NAT_REG_ADDR_MIN = 3;
export const NFTA_NAT_REG_ADDR_MAX = 4;
export const NFTA_NAT_REG_PROTO_MIN = 5;
export const NFTA_NAT_REG_PROTO_MAX = 6;
export const NFTA_NAT_FLAGS = 7;
export const NFT_NAT_DNAT = 1;

export const NFTA_MASQ_FLAGS = 1;
export const NFTA_MASQ_REG_PROTO_MIN = 2;
export const NFTA_MASQ_REG_PROTO_MAX = 3;

export const NFTA_COUNTER_BYTES = 1;
export const NFTA_COUNTER_PACKETS = 2;

export const NFTA_LIMIT_RATE = 1;
export const NFTA_LIMIT_UNIT = 2;
export const NFTA_LIMIT_BURST = 3;
export const NFTA_LIMIT_TYPE = 4;
export const NFTA_LIMIT_FLAGS = 5;
export const NFT_LIMIT_PKT_BYTES = 1;
export const NFT_LIMIT_F_INV = 1;

export const NFTA_LOG_GROUP = 1;
export const NFTA_LOG_PREFIX = 2;
export const NFTA_LOG_SNAPLEN = 3;
export const NFTA_LOG_QTHRESHOLD = 4;
export const NFTA_LOG_LEVEL = 5;

// linux/netfilter/nf_tables_compat.h. A target has the same attributes.
export const NFTA_MATCH_NAME = 1;
export const NFTA_MATCH_REV = 2;
export const NFTA_MATCH_INFO = 3;
