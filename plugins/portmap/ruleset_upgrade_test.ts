/** A table of an earlier release, whose containers live and are called while this release takes it over. */
import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import type { Netns } from "../../ffi/netns/netns.ts";

import { type BridgeContainer, type BridgeNetwork, bridgeNetworkTest } from "../../testing/bridge_network.ts";
import { runInNetns } from "../../testing/netns.ts";
import { portMappingConfig } from "../../testing/portmap.ts";
import { nftElements, nftListRuleset } from "../../testing/ruleset.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp, serveTcpAndUdp } from "../../testing/traffic.ts";
import { ensureElements } from "../lib/ruleset/elements.ts";
import { repairTable } from "../lib/ruleset/repair.ts";
import { listFormerRules, requireTable } from "../lib/ruleset/table.ts";
import { parsePortmapConfig } from "./config.ts";
import { publishedElements } from "./elements.ts";
import { findLoopbackSource } from "./loopback.ts";
import portmap from "./plugin.ts";
import { portTable } from "./port_table.ts";

const RECORDED = new URL("../../testdata/rulesets/cni-loopback-output.nft", import.meta.url).pathname;

/** What the earlier release has published of c1. */
const PUBLISHED = portMappingConfig([
  { hostPort: 8080, containerPort: 80 },
  { hostPort: 5353, containerPort: 53, protocol: "udp" },
  { hostPort: 8081, containerPort: 80, hostIP: "127.0.0.1" },
  { hostPort: 8082, containerPort: 80, hostIP: "192.0.2.1" },
]);

function startWithEarlierTable({ host, container }: BridgeNetwork): { c1: BridgeContainer; c2: BridgeContainer } {
  runInNetns(host, "nft", "-f", RECORDED);
  return { c1: container(2), c2: container(3) };
}

const withoutComments = (host: Netns): string[] =>
  nftListRuleset(host).replaceAll(/^\t\tcomment .*\n/gm, "").split("\n").sort();

/** Sends one line after another over one connection. */
function openConversation(from: Netns, hostname: string, port: number) {
  const { promise, resolve } = Promise.withResolvers<(text: string) => Promise<string>>();
  let answer: (text: string) => void = () => {};
  from.run(() =>
    void Bun.connect({
      hostname,
      port,
      socket: {
        open: (socket) =>
          resolve((text) => {
            const answered = Promise.withResolvers<string>();
            answer = answered.resolve;
            socket.write(text);
            return answered.promise;
          }),
        data: (_, chunk) => answer(chunk.toString()),
        close: () => answer("closed"),
        error: () => answer("closed"),
      },
    })
  );
  return promise;
}

/** Asks one question after another until told to end. @returns how many answers there were, and how many calls had none */
function keepAsking(from: Netns, hostname: string): { end(): Promise<{ answered: number; lost: number }> } {
  let goesOn = true;
  const counts = { answered: 0, lost: 0 };
  const done = (async () => {
    while (goesOn) {
      const answer = await requestTcp(from, hostname, 8080);
      counts[answer?.startsWith("c1 ") ? "answered" : "lost"]++;
    }
  })();
  return {
    async end() {
      goesOn = false;
      await done;
      return counts;
    },
  };
}

bridgeNetworkTest(
  "an ADD upgrades the table of an earlier release: each call is answered before, during and after",
  async (network) => {
    const { host, outside, call } = network;
    const { c1, c2 } = startWithEarlierTable(network);
    using _c1 = await serveTcpAndUdp(c1.netns, "c1");
    using _echo = c1.netns.run(() => {
      const listener = Bun.listen({
        hostname: "::",
        port: 81,
        socket: { data: (socket, chunk) => void socket.write(chunk) },
      });
      return { [Symbol.dispose]: () => listener.stop(true) };
    });
    runInNetns(host, "nft", 'add element inet cni hostports4 { tcp . 8181 comment "web c1 eth0" : 10.88.0.2 . 81 }');
    requireTable(host.nft, portTable);
    const elements = nftElements(host);
    expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("c1 10.88.0.1");
    const converse = await openConversation(outside, "192.0.2.1", 8181);
    expect(await converse("before")).toBe("before");
    expect(await requestTcp(host, "::1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();

    // A call from 127.0.0.1 that is open during the upgrade ends: conntrack knows it by another source.
    const callers = [
      keepAsking(outside, "192.0.2.1"),
      keepAsking(outside, "2001:db8::1"),
      keepAsking(host, "192.0.2.1"),
    ];
    for (let round = 0; round < 10; round++) {
      await Bun.sleep(20);
      call(portmap, "ADD", portMappingConfig([{ hostPort: 9091, containerPort: 80 }]), {
        container: c2,
        containerId: "c2",
      });
      expect(listFormerRules(host.nft, portTable)).toEqual([]);
      call(portmap, "DEL", {}, { container: c2, containerId: "c2" });
      expect(nftElements(host)).toEqual(elements);
      expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("c1 10.88.0.1");
      await Bun.sleep(20);
      const earlier = `delete table inet cni\n${readFileSync(RECORDED, "utf8")}`;
      host.run(() => Bun.spawnSync(["nft", "-f", "-"], { stdin: Buffer.from(earlier) }));
      runInNetns(host, "nft", 'add element inet cni hostports4 { tcp . 8181 comment "web c1 eth0" : 10.88.0.2 . 81 }');
    }
    expect(listFormerRules(host.nft, portTable)).not.toEqual([]);
    expect(repairTable(host.nft, portTable)).toEqual([]);
    expect(listFormerRules(host.nft, portTable)).toEqual([]);
    for (const { end } of callers) {
      const { answered, lost } = await end();
      expect(answered).toBeGreaterThan(10);
      expect(lost).toBe(0);
    }
    expect(await converse("after")).toBe("after");
    expect(nftElements(host)).toEqual(elements);
    expect(await requestTcp(host, "::1", 8080)).toBe("c1 fd88::1");
    expect(await requestUdp(host, "::1", 5353)).toBe("c1 fd88::1");
    expect(await requestTcp(host, "127.0.0.1", 8081)).toBe("c1 10.88.0.1");
  },
);

bridgeNetworkTest("an upgraded table is as a new one, and what others added to it stays", (network) => {
  const { host, call } = network;
  const { c1 } = startWithEarlierTable(network);
  runInNetns(host, "nft", 'add rule inet cni loopback_output counter comment "mine"');
  runInNetns(host, "nft", 'add rule inet cni loopback_input counter comment "mine"');
  // Nothing was lost, so nothing is called restored.
  expect(repairTable(host.nft, portTable)).toEqual([]);
  const listed = nftListRuleset(host);
  expect(listed.match(/comment "mine"/g)).toHaveLength(2);
  expect(listed).toContain("chain loopback_output {");
  for (const chain of ["loopback_output", "loopback_input"]) {
    const handle = /comment "mine" # handle (\d+)/.exec(
      runInNetns(host, "nft", "-a", "list chain inet cni " + chain),
    )![1]!;
    runInNetns(host, "nft", `delete rule inet cni ${chain} handle ${handle}`);
  }
  runInNetns(host, "nft", "delete chain inet cni loopback_output");
  call(portmap, "ADD", PUBLISHED, { container: c1, containerId: "c1" });
  const elements = nftElements(host);
  const whole = withoutComments(host);
  runInNetns(host, "nft", "delete table inet cni");
  runInNetns(host, "nft", "-f", RECORDED);
  repairTable(host.nft, portTable);
  call(portmap, "ADD", PUBLISHED, { container: c1, containerId: "c1" });
  expect(nftElements(host)).toEqual(elements);
  expect(withoutComments(host)).toEqual(whole);
});

bridgeNetworkTest("CHECK demands of an earlier attachment what the earlier ADD made", (network) => {
  const { host, call } = network;
  const { c1 } = startWithEarlierTable(network);
  const check = () => call(portmap, "CHECK", PUBLISHED, { container: c1, containerId: "c1" });
  check();
  repairTable(host.nft, portTable);
  check();
  // nft(8) has not saved the keys in records.
  runInNetns(host, "nft", "flush set inet cni owners");
  const config = parsePortmapConfig(PUBLISHED);
  const later = "hostip_loopback4 host port 192.0.2.1:8082/tcp";
  const earlier = publishedElements(config, c1.addresses, findLoopbackSource(host, config, c1.addresses))
    .filter(({ set, title }) => `${set} ${title}` !== later);
  expect(ensureElements(host.nft, portTable, { network: "web", containerId: "c1", ifname: "eth0" }, earlier))
    .toEqual([]);
  check();
  // Restored, it has what attachments of this release have.
  network.restore(portmap, PUBLISHED, { container: c1, containerId: "c1" });
  check();
  runInNetns(host, "nft", "delete element inet cni hostip_loopback4 { 192.0.2.1 . tcp . 8082 }");
  expect(check).toThrow("the ruleset's element for host port 192.0.2.1:8082/tcp is missing");
});
