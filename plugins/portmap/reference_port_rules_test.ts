/**
 * Published ports as the reference sets them up: with iptables by the distribution's plugin; with nft by nft(8) in the words of its
 * releases from 1.6 on, as the distribution's is older.
 */
import { expect } from "bun:test";
import { type Ip, parseIp } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { runInNetns } from "../../testing/netns.ts";
import type { Owner } from "../lib/model/owner.ts";
import { newSandbox, type Sandbox } from "../../testing/sandbox.ts";
import { callReference, referenceNetnsTest, referenceTest } from "../../testing/reference.ts";
import { sendCountingSocket } from "../../testing/netlink.ts";
import portmap from "./plugin.ts";
import { gcReferencePorts, removeReferencePorts } from "./reference_port_rules.ts";

const sh = (host: Netns, ...lines: string[]): string => runInNetns(host, "sh", "-e", "-c", lines.join("\n"));
const counted = (text: string) => text.replace(/packets \d+ bytes \d+|\[\d+:\d+\]|^#.*\n/gm, "");
const saved = (host: Netns): string => counted(sh(host, "iptables-save -t nat; ip6tables-save -t nat"));
const listing = (host: Netns): string => counted(sh(host, "nft list ruleset"));
const ownerOf = (containerId: string, network = "test"): Owner => ({ network, containerId, ifname: "eth0" });

function withOthers(host: Netns): void {
  for (const program of ["iptables", "ip6tables"]) {
    for (const chain of ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]) {
      sh(host, `${program} -t nat -A ${chain} -p 99 -j ACCEPT`);
    }
  }
}

/** What the reference is told, and this program after it. */
function request(n: number, ports: readonly number[]) {
  const ips = [{ address: `10.1.0.${n}/24`, interface: 0 }, { address: `fd00:1::${n}/64`, interface: 0 }];
  const prevResult = { cniVersion: "1.0.0", interfaces: [{ name: "eth0", sandbox: "/x" }], ips };
  const portMappings = ports.map((hostPort) => ({
    hostPort,
    containerPort: 80,
    protocol: hostPort % 2 ? "tcp" : "udp",
  }));
  return { cniVersion: "1.0.0", prevResult, runtimeConfig: { portMappings } };
}

function publish(sandbox: Sandbox, containerId: string, n: number, ports: readonly number[]): void {
  expect(callReference(sandbox, "portmap", "ADD", request(n, ports), { containerId })).not.toBe("refused");
}

const many = Array.from({ length: 40 }, (_, i) => 9000 + i);

referenceTest("portmap")("with iptables: DEL removes one container's, and with the last what leads to all", () => {
  using sandbox = newSandbox([]);
  const { host, call } = sandbox;
  withOthers(host);
  const before = saved(host);
  publish(sandbox, "a", 2, many);
  const one = saved(host);
  publish(sandbox, "b", 3, [8081]);
  publish(sandbox, "c", 4, [8082]);
  const del = (containerId: string, config: object) => call(portmap, "DEL", config, { containerId });
  del("c", request(4, [8082]));
  // Without a word of what it had.
  del("b", { runtimeConfig: {} });
  expect(saved(host)).toBe(one);
  call(portmap, "DEL", { name: "other" }, { containerId: "a" });
  expect(saved(host)).toBe(one);
  del("a", {});
  del("a", {});
  expect(saved(host)).toBe(before);
  publish(sandbox, "a", 2, many);
  expect(saved(host)).toBe(one);
});

referenceTest("portmap")("with iptables: GC removes the dead of the network", () => {
  using sandbox = newSandbox([]);
  const { host, call } = sandbox;
  withOthers(host);
  const before = saved(host);
  publish(sandbox, "a", 2, [8080]);
  const one = saved(host);
  publish(sandbox, "b", 3, many);
  const gc = (...ids: string[]) => {
    const valid = ids.map((containerID) => ({ containerID, ifname: "eth0" }));
    call(portmap, "GC", { "cni.dev/valid-attachments": valid });
  };
  gc("a", "z");
  expect(saved(host)).toBe(one);
  gcReferencePorts(host.nft, "other", []);
  expect(saved(host)).toBe(one);
  gc();
  expect(saved(host)).toBe(before);
});

referenceTest("portmap")(
  "what others do with the reference's chains stays: rules in them, and those that lead there",
  () => {
    using sandbox = newSandbox([]);
    const { host, call } = sandbox;
    publish(sandbox, "a", 2, [8080]);
    sh(host, "iptables -t nat -A CNI-HOSTPORT-DNAT -p tcp --dport 99 -j ACCEPT");
    sh(host, "ip6tables -t nat -N MINE; ip6tables -t nat -A MINE -j CNI-HOSTPORT-SETMARK");
    call(portmap, "DEL", {}, { containerId: "a" });
    const rules = saved(host).split("\n").filter((line) => /^-A.* CNI-/.test(line));
    expect(rules.sort()).toEqual([
      "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
      "-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
      '-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ',
      "-A CNI-HOSTPORT-DNAT -p tcp -m tcp --dport 99 -j ACCEPT",
      "-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE",
      '-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000',
      "-A MINE -j CNI-HOSTPORT-SETMARK",
      '-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000',
    ].sort());
  },
);

/** As the reference does with nft(8), for one family. */
function publishByNft(host: Netns, containerId: string, address: string, port: number, masqAll = false): void {
  const ip = address.includes(":") ? "ip6" : "ip";
  const to = ip === "ip6" ? `[${address}]:80` : `${address}:80`;
  const table = `${ip} cni_hostport`;
  const loopback = ip === "ip" && !masqAll
    ? `add rule ${table} masquerading ip saddr 127.0.0.1 ip daddr ${address} masquerade comment "${containerId}"`
    : "";
  const from = masqAll ? (ip === "ip" ? "0.0.0.0/0" : "::/0") : address;
  const script = `
    add table ${table} { comment "CNI portmap plugin"; }
    add chain ${table} hostports
    add chain ${table} hostip_hostports
    add chain ${table} hostports_all
    flush chain ${table} hostports_all
    add rule ${table} hostports_all jump hostip_hostports
    add rule ${table} hostports_all jump hostports
    add chain ${table} prerouting { type nat hook prerouting priority -100; }
    flush chain ${table} prerouting
    add rule ${table} prerouting fib daddr type local jump hostports_all
    add chain ${table} output { type nat hook output priority -100; }
    flush chain ${table} output
    add rule ${table} output fib daddr type local jump hostports_all
    add chain ${table} masquerading { type nat hook postrouting priority 100; }
    add rule ${table} hostports tcp dport ${port} dnat to ${to} comment "${containerId}"
    add rule ${table} masquerading ${ip} saddr ${from} ${ip} daddr ${address} masquerade comment "${containerId}"
    ${loopback}`;
  sh(host, `nft -f - <<'END'\n${script}\nEND`);
}

const addresses = (...all: string[]): Ip[] => all.map(parseIp);

referenceNetnsTest("with nft: DEL removes the container's rules, and with the last the tables", ({ host }) => {
  sh(host, "nft add table ip mine");
  const before = listing(host);
  publishByNft(host, "a", "10.1.0.2", 8080);
  const one = listing(host);
  publishByNft(host, "b", "10.1.0.3", 8081, true);
  publishByNft(host, "b", "fd00:1::3", 8081);
  removeReferencePorts(host.nft, ownerOf("b"), addresses("10.1.0.3", "fd00:1::3"));
  expect(listing(host)).toBe(one);
  removeReferencePorts(host.nft, ownerOf("a"), []);
  expect(listing(host)).toBe(before);
});

referenceNetnsTest("with nft: a container on two networks keeps the ports of the other", ({ host }) => {
  publishByNft(host, "a", "10.1.0.2", 8080);
  const one = listing(host);
  publishByNft(host, "a", "10.2.0.2", 8081);
  removeReferencePorts(host.nft, ownerOf("a", "second"), addresses("10.2.0.2"));
  expect(listing(host)).toBe(one);
  // Whether it still lives on another network nobody knows.
  gcReferencePorts(host.nft, "second", []);
  expect(listing(host)).toBe(one);
});

referenceNetnsTest(
  "a node that never saw the reference pays one message, and two more where iptables has its tables",
  ({ host }) => {
    const nl = sendCountingSocket(host.nft);
    removeReferencePorts(nl, ownerOf("a"), []);
    expect(nl.sent).toBe(1);
    withOthers(host);
    nl.sent = 0;
    removeReferencePorts(nl, ownerOf("a"), []);
    expect(nl.sent).toBe(3);
  },
);
