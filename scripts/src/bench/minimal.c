/*
 * Does what a chain of bridge, host-local, portmap and firewall needs for a container, with as few requests as possible: it looks at
 * nothing, repairs nothing and trusts that nothing else changes the host. What any program costs that leaves a container as reachable.
 *
 *   minimal add|del NETNS BRIDGE DIRECTORY NUMBER
 *
 * minimal.ts makes the table `floor` with its map and sets. The container has the address 10.66.200.NUMBER and publishes two ports.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

static _Alignas(8) char buffer[65536];
static size_t used;

static void *put(const void *bytes, size_t size) {
  void *at = buffer + used;
  if (bytes) memcpy(at, bytes, size);
  used += (size + 3) & ~3u;
  return at;
}

static size_t start(int type, int flags, const void *payload, size_t size) {
  size_t at = used;
  struct nlmsghdr header = {0, type, NLM_F_REQUEST | flags, 0, 0};
  put(&header, sizeof header);
  put(payload, size);
  return at;
}

static void end(size_t at) { ((struct nlmsghdr *)(buffer + at))->nlmsg_len = used - at; }

static size_t nest(int type) {
  size_t at = used;
  struct rtattr header = {0, type};
  put(&header, sizeof header);
  return at;
}

static void close_nest(size_t at) { ((struct rtattr *)(buffer + at))->rta_len = used - at; }

static void attribute(int type, const void *bytes, size_t size) {
  size_t at = nest(type);
  put(bytes, size);
  ((struct rtattr *)(buffer + at))->rta_len = sizeof(struct rtattr) + size;
}

/* Sends what was put and waits for so many acknowledgements. */
static void commit(int fd, int acknowledgements, const char *what) {
  if (send(fd, buffer, used, 0) < 0) err(1, "%s", what);
  used = 0;
  while (acknowledgements > 0) {
    ssize_t size = recv(fd, buffer, sizeof buffer, 0);
    struct nlmsghdr *message = (struct nlmsghdr *)buffer;
    for (; NLMSG_OK(message, size); message = NLMSG_NEXT(message, size)) {
      int error = message->nlmsg_type == NLMSG_ERROR ? ((struct nlmsgerr *)NLMSG_DATA(message))->error : 0;
      if (error) errx(1, "%s: %s", what, strerror(-error));
      acknowledgements--;
    }
    if (size < 0) err(1, "%s", what);
  }
}

static int netlink(int protocol) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  if (fd < 0) err(1, "socket");
  return fd;
}

static void value(int type, const void *bytes, size_t size) {
  size_t at = nest(type | NLA_F_NESTED);
  attribute(NFTA_DATA_VALUE, bytes, size);
  close_nest(at);
}

/* An element of a set, or of a map if there is data, each of so many words. */
static void element(int adds, const char *set, const void *key, const void *data, size_t size) {
  struct nfgenmsg family = {AF_INET, NFNETLINK_V0, 0};
  int type = NFNL_SUBSYS_NFTABLES << 8 | (adds ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM);
  size_t message = start(type, adds ? NLM_F_CREATE | NLM_F_EXCL : 0, &family, sizeof family);
  attribute(NFTA_SET_ELEM_LIST_TABLE, "floor", sizeof "floor");
  attribute(NFTA_SET_ELEM_LIST_SET, set, strlen(set) + 1);
  size_t elements = nest(NFTA_SET_ELEM_LIST_ELEMENTS | NLA_F_NESTED), one = nest(NFTA_LIST_ELEM | NLA_F_NESTED);
  value(NFTA_SET_ELEM_KEY, key, size);
  if (data && adds) value(NFTA_SET_ELEM_DATA, data, size);
  close_nest(one);
  close_nest(elements);
  end(message);
}

static void rules(int adds, in_addr_t address, int number) {
  struct nfgenmsg subsystem = {AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES)};
  int fd = netlink(NETLINK_NETFILTER);
  end(start(NFNL_MSG_BATCH_BEGIN, 0, &subsystem, sizeof subsystem));
  for (int udp = 0; udp < 2; udp++) {
    uint16_t key[4] = {0, 0, htons(20000 + 2 * number + udp)}, data[4] = {0, 0, htons(udp ? 53 : 80)};
    *(uint8_t *)key = udp ? IPPROTO_UDP : IPPROTO_TCP;
    memcpy(data, &address, sizeof address);
    element(adds, "ports", key, data, sizeof key);
  }
  element(adds, "sources", &address, 0, sizeof address);
  element(adds, "accepted", &address, 0, sizeof address);
  end(start(NFNL_MSG_BATCH_END, NLM_F_ACK, &subsystem, sizeof subsystem));
  commit(fd, 1, "rules");
}

static void create_pair(int netns, const char *bridge, const char *name) {
  /* An end cannot be up before the other is there. */
  struct ifinfomsg up = {.ifi_flags = IFF_UP, .ifi_change = IFF_UP}, down = {0};
  uint32_t master = if_nametoindex(bridge);
  size_t message = start(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, &up, sizeof up);
  attribute(IFLA_IFNAME, name, strlen(name) + 1);
  attribute(IFLA_MASTER, &master, sizeof master);
  size_t info = nest(IFLA_LINKINFO);
  attribute(IFLA_INFO_KIND, "veth", sizeof "veth");
  size_t data = nest(IFLA_INFO_DATA), peer = nest(VETH_INFO_PEER);
  put(&down, sizeof down);
  attribute(IFLA_IFNAME, "eth0", sizeof "eth0");
  attribute(IFLA_NET_NS_FD, &netns, sizeof netns);
  close_nest(peer);
  close_nest(data);
  close_nest(info);
  end(message);
  commit(netlink(NETLINK_ROUTE), 1, "veth pair");
}

static void configure(int fd, in_addr_t address) {
  in_addr_t gateway = inet_addr("10.66.0.1");
  int index = if_nametoindex("eth0");
  struct ifinfomsg up = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
  end(start(RTM_NEWLINK, NLM_F_ACK, &up, sizeof up));
  struct ifaddrmsg on_link = {AF_INET, 16, 0, RT_SCOPE_UNIVERSE, index};
  size_t message = start(RTM_NEWADDR, NLM_F_CREATE | NLM_F_ACK, &on_link, sizeof on_link);
  attribute(IFA_LOCAL, &address, sizeof address);
  end(message);
  struct rtmsg route = {.rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_BOOT, .rtm_type = RTN_UNICAST};
  message = start(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_ACK, &route, sizeof route);
  attribute(RTA_GATEWAY, &gateway, sizeof gateway);
  end(message);
  commit(fd, 3, "address and route");
}

static void delete_link(int fd) {
  struct ifinfomsg any = {0};
  size_t message = start(RTM_DELLINK, NLM_F_ACK, &any, sizeof any);
  attribute(IFLA_IFNAME, "eth0", sizeof "eth0");
  end(message);
  commit(fd, 1, "deleted link");
}

static void write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, text, strlen(text)) < 0 || close(fd)) err(1, "%s", path);
}

int main(int count, char **words) {
  if (count != 6) errx(2, "minimal add|del NETNS BRIDGE DIRECTORY NUMBER");
  int adds = !strcmp(words[1], "add"), number = atoi(words[5]);
  in_addr_t address = htonl(0x0a42c800 + number);
  char name[IFNAMSIZ], result[256];
  snprintf(name, sizeof name, "floor%d", number);
  snprintf(result, sizeof result, "{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":\"10.66.200.%d/16\"}]}\n", number);
  int netns = open(words[2], O_RDONLY | O_CLOEXEC);
  if (netns < 0 || chdir(words[4])) err(1, "open");
  int lock = open("lock", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
  flock(lock, LOCK_EX);
  if (adds) {
    write_file(name, result);
    create_pair(netns, words[3], name);
    rules(adds, address, number);
  } else {
    /* Flows that are to end are looked for here. */
    int flows = open("/proc/thread-self/net/nf_conntrack", O_RDONLY | O_CLOEXEC);
    while (read(flows, buffer, sizeof buffer) > 0) continue;
    rules(adds, address, number);
    if (unlink(name)) err(1, "%s", name);
  }
  close(lock);
  if (setns(netns, CLONE_NEWNET)) err(1, "setns");
  int inside = netlink(NETLINK_ROUTE);
  if (!adds) delete_link(inside);
  else {
    configure(inside, address);
    if (write(1, result, strlen(result)) < 0) err(1, "write");
  }
  return 0;
}
