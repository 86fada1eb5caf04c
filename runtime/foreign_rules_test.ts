/**
 * A host with many rules of others: ours come and go, and theirs stay as they are, down to the handles; what ADD, CHECK, DEL, GC and
 * restore ask of the kernel does not depend on how many there are, but for the chains of families in which others have native tables.
 *
 * @module
 */
import { expect, test } from "bun:test";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import type { NetlinkCounts } from "../testing/netlink_counts.ts";
import { cstr } from "../ffi/netlink/codec.ts";
import { message, NLM_F_DUMP, readMessage } from "../ffi/netlink/message.ts";
import { exchange, request } from "../ffi/netlink/socket.ts";
import { listBaseChains, nfgenmsg, nftOperation } from "../ffi/nft/objects.ts";
import {
  NFPROTO_INET,
  NFPROTO_IPV4,
  NFT_MSG_GETCHAIN,
  NFT_MSG_GETRULE,
  NFT_MSG_GETSET,
  NFT_MSG_GETSETELEM,
  NFT_MSG_GETTABLE,
} from "../ffi/nft/uapi.ts";
import { addDefaultRoute, runInNetns } from "../testing/netns.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { gcNetworkList } from "./gc.ts";
import { restoreAttachments } from "./restore.ts";
import { addNetworkList } from "./add.ts";
import { checkNetworkList } from "./check.ts";
import { delNetworkList } from "./del.ts";
import { type CountingHost, newCountingHost } from "../testing/counting_host.ts";

await loadPlugins();

const numbers = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const CHAINS = numbers(40);
const idleChains = (rules: number) => numbers(rules / 20);

/**
 * In the words of nft(8): rules in chains that a base chain leads to, which drops; sets and maps with four times as many elements; chains
 * that nothing leads to; two more tables of the family of iptables' tables.
 */
function ofNft(rules: number): string {
  const each = rules / CHAINS.length;
  const addresses = numbers(4 * each).map((i) => `10.200.${i >> 8}.${i & 255}`);
  return `table inet site {
    comment "somebody's"
    set blocked { type ipv4_addr; elements = { ${addresses.join(", ")} } }
    set networks { type ipv6_addr; flags interval; elements = { ${numbers(each).map((i) => `fd00:${i}::/48`)} } }
    map verdicts { type ipv4_addr . inet_service : verdict; elements = {
      ${addresses.map((address, i) => `${address} . ${i + 1} comment "no ${i}" : jump c${i % CHAINS.length}`)} } }
    ${
    CHAINS.map((chain) =>
      `chain c${chain} { ${
        numbers(each).map((i) =>
          `ip saddr 10.${chain}.${i >> 8}.${i & 255} tcp dport ${i + 1} counter accept comment "no ${i}"`
        )
          .join("; ")
      }; }`
    ).join("\n")
  }
    ${idleChains(rules).map((chain) => `chain idle${chain} { accept; }`).join("\n")}
    chain forward {
      type filter hook forward priority filter + 5; policy drop;
      ip6 saddr @networks drop
      ip saddr @blocked ip daddr . tcp dport vmap @verdicts
      ct state established accept
    }
    chain prerouting { type nat hook prerouting priority dstnat + 5; tcp dport 8080 ip daddr 198.51.100.1 dnat ip to 10.9.9.9; }
  }
  table ip docker-bridges {
    chain filter-FORWARD { type filter hook forward priority 0; accept; }
    ${idleChains(rules).map((chain) => `chain filter-forward-in__br-${chain} { drop; }`).join("\n")}
  }
  table ip libvirt_network { chain forward { type filter hook forward priority 0; accept; }; }
  table bridge site { chain c { type filter hook forward priority 0; ether saddr 02:00:00:00:00:01 drop; }; }
  table arp site { chain c { type filter hook input priority 0; arp operation request accept; }; }
  `;
}

/** In the words of iptables-restore: a FORWARD chain that refuses everything, and services as of a cluster. */
function ofIptables(rules: number): string {
  const each = rules / CHAINS.length / 2;
  const lines = (chain: number, words: (i: number) => string) =>
    numbers(each).map((i) => `-A KUBE-${chain} -d 10.77.${i >> 8}.${i & 255}/32 -p tcp -m tcp --dport ${words(i)}`);
  return [
    "*filter\n:FORWARD DROP [0:0]",
    ...CHAINS.map((chain) => `:KUBE-${chain} - [0:0]`),
    ...idleChains(rules).map((chain) => `:KUBE-SEP-${chain} - [0:0]`),
    ...CHAINS.map((chain) =>
      `-A FORWARD -s 10.99.${chain}.0/24 -m comment --comment "chain ${chain}" -j KUBE-${chain}`
    ),
    ...CHAINS.flatMap((chain) => lines(chain, (i) => `${i + 1} -m comment --comment "service ${i}" -j ACCEPT`)),
    "-A FORWARD -j REJECT --reject-with icmp-port-unreachable\nCOMMIT\n*nat",
    ...CHAINS.map((chain) => `:KUBE-${chain} - [0:0]`),
    ...idleChains(rules).map((chain) => `:KUBE-SEP-${chain} - [0:0]`),
    ...CHAINS.map((chain) => `-A PREROUTING -s 10.99.${chain}.0/24 -j KUBE-${chain}`),
    ...CHAINS.map((chain) => `-A POSTROUTING -s 10.98.${chain}.0/24 -j KUBE-${chain}`),
    ...CHAINS.flatMap((chain) => lines(chain, (i) => `${i + 1} -j RETURN`)),
    "COMMIT\n",
  ].join("\n");
}

function load(host: Netns, rules: number): void {
  const feed = (text: string, ...command: string[]) => {
    const { exitCode, stderr } = host.run(() => Bun.spawnSync(command, { stdin: Buffer.from(text) }));
    if (exitCode !== 0) throw new Error(`${command.join(" ")}: ${stderr}`);
  };
  feed(ofNft(rules * 3 / 5), "nft", "-f", "-");
  feed(ofIptables(rules * 2 / 5), "iptables-restore");
}

const anything = message("anything", nfgenmsg, () => ({ table: [1, cstr], set: [2, cstr] }));
type Which = { readonly family?: number; readonly table?: string; readonly set?: string };

/** All that the kernel tells of the ruleset, byte by byte, but for our own tables, which stay. nft(8) prints nothing else. */
function foreign({ nft }: Netns): { readonly rules: number; readonly bytes: string } {
  const hash = new Bun.CryptoHasher("sha256");
  const counts: Record<number, number> = {};
  const sets: Which[] = [];
  const list = (type: number, which: Which = {}) => {
    exchange(nft, [request(nftOperation("GET", type, anything), which, NLM_F_DUMP)], (payload) => {
      const bytes = payload.bytes.slice(payload.offset, payload.end);
      const { family, table, set } = readMessage(anything, payload);
      if (table === "cni") return;
      if (type === NFT_MSG_GETSET) sets.push({ family, table: table!, set: set! });
      counts[type] = (counts[type] ?? 0) + 1;
      // struct nfgenmsg { u8 family, version; be16 res_id }, of which the last is the ruleset's generation.
      hash.update(bytes.fill(0, 2, 4));
    });
  };
  for (const type of [NFT_MSG_GETTABLE, NFT_MSG_GETCHAIN, NFT_MSG_GETRULE, NFT_MSG_GETSET]) list(type);
  for (const each of sets) list(NFT_MSG_GETSETELEM, each);
  return { rules: counts[NFT_MSG_GETRULE] ?? 0, bytes: hash.digest("hex") };
}

/** The same as nft(8) prints it, handles included. */
function printed(host: Netns): string {
  return runInNetns(host, "nft", "-a", "list", "ruleset").replace(/^table (inet|bridge) cni \{[^]*?^\}\n/gm, "");
}

const PORTS = [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }, {
  hostPort: 5353,
  containerPort: 53,
  protocol: "udp",
}];
const who = (containerId: string) => ({ containerId, ifname: "eth0" });

/** Attaches and detaches in all ways. @returns what each asked of the kernel */
function exercise({ host, directory, runtime, measure, log }: CountingHost): Record<string, NetlinkCounts> {
  const ranges = [[{ subnet: "10.66.0.0/16" }], [{ subnet: "fd66::/64" }]];
  const ipam = { type: "host-local", dataDir: directory, ranges, routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }] };
  const list = parseNetworkConfigList(JSON.stringify({
    cniVersion: "1.1.0",
    name: "chain",
    plugins: [
      { type: "bridge", bridge: "br0", isGateway: true, ipMasq: true, macspoofchk: true, ipam },
      { type: "portmap", capabilities: { portMappings: true } },
      { type: "firewall", ingressPolicy: "same-bridge" },
      { type: "tuning" },
    ],
  }));
  using container = createNetns();
  // Without one, CHECK says that masquerading leads nowhere.
  addDefaultRoute(host);
  const attach = () =>
    void addNetworkList(runtime, list, {
      ...who("c1"),
      netns: container.path,
      capabilityArgs: { portMappings: PORTS },
    });
  const detach = () => delNetworkList(runtime, list, who("c1"));
  // The first makes the bridge and our tables.
  measure(attach);
  measure(detach);
  const costs: Record<string, NetlinkCounts> = { ADD: measure(attach) };
  // Our rules are where those of others drop.
  expect(runInNetns(host, "nft", "list", "chain", "inet", "site", "forward")).toContain("jump CNI-FORWARD");
  expect(runInNetns(host, "iptables", "-S", "FORWARD")).toContain("CNI-FORWARD");
  costs["CHECK"] = measure(() => checkNetworkList(runtime, list, who("c1")));
  costs["DEL"] = measure(detach);
  measure(attach);
  costs["restore of nothing"] = measure(() => void restoreAttachments(runtime));
  runInNetns(host, "nft", "delete table inet cni; delete table bridge cni");
  costs["restore"] = measure(() => void expect(restoreAttachments(runtime).attachments[0]?.state).toBe("restored"));
  expect(log.filter((line) => !line.startsWith("Restored for"))).toEqual([]);
  costs["GC"] = measure(() => gcNetworkList(runtime, list, []));
  costs["GC of nothing"] = measure(() => gcNetworkList(runtime, list, []));
  return costs;
}

const MANY = 50_000;
/** Families of which each lists all chains, once. DEL and GC do so where our chain is in a native table. */
const LISTED_FAMILIES: Readonly<Record<string, readonly number[]>> = {
  "ADD": [NFPROTO_INET, NFPROTO_IPV4],
  "CHECK": [NFPROTO_INET, NFPROTO_IPV4],
  "DEL": [NFPROTO_INET],
  "restore of nothing": [NFPROTO_INET, NFPROTO_IPV4],
  "restore": [NFPROTO_INET, NFPROTO_IPV4],
  "GC": [NFPROTO_INET],
  "GC of nothing": [],
};

test(
  "beside 50,000 rules of others ours cost what they cost beside 400, and theirs are byte by byte what they were",
  () => {
    const [few, many] = [400, MANY].map((rules) => {
      using resources = new DisposableStack();
      const counted = newCountingHost(resources);
      const { host } = counted;
      load(host, rules);
      const look = () => ({ ...foreign(host), printed: rules === MANY || printed(host) });
      const before = look();
      expect(before.rules).toBeGreaterThan(rules);
      const bytesOfChains = new Map([NFPROTO_INET, NFPROTO_IPV4].map((family) => [
        family,
        counted.measure(() => void listBaseChains(counted.context.host.nft, family)).received,
      ]));
      const costs = exercise(counted);
      expect(look()).toEqual(before);
      // That it would be noticed.
      runInNetns(host, "nft", "add rule arp site c accept");
      expect(foreign(host).bytes).not.toBe(before.bytes);
      for (const [name, families] of Object.entries(LISTED_FAMILIES)) {
        for (const family of families) costs[name]!.received -= bytesOfChains.get(family)!;
      }
      return costs;
    });
    expect(many).toEqual(few!);
  },
  60_000,
);
