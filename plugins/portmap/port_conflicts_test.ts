import { expect } from "bun:test";
import { ENGINE_ENV, pluginLink } from "../../testing/binary.ts";
import { requestTcp, serveTcpAndUdp } from "../../testing/traffic.ts";
import { ensureElements } from "../lib/ruleset/elements.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { type BridgeContainer, bridgeNetworkTest } from "../../testing/bridge_network.ts";
import portmap from "./plugin.ts";
import { parsePortmapConfig } from "./config.ts";
import { publishedElements } from "./elements.ts";
import { refusePortConflicts } from "./port_conflicts.ts";
import { portMappingConfig } from "../../testing/portmap.ts";
import { nftElements, nftListRuleset } from "../../testing/ruleset.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const on = (hostIP?: string, hostPort = 8080) =>
  portMappingConfig([{ hostPort, containerPort: 80, ...hostIP === undefined ? {} : { hostIP } }]);

bridgeNetworkTest(
  "a port on one address cannot be taken from the container that has it on all, nor the reverse",
  async (network) => {
    const { host, call } = network;
    const a = network.container(2);
    const b = network.container(3);
    using _a = await serveTcpAndUdp(a.netns, "a");
    const all = [undefined, "0.0.0.0"];
    for (
      const [first, second, held] of [
        ...all.map((each) => [each, "127.0.0.1", "that port on all addresses"]),
        ...all.map((each) => ["127.0.0.1", each, "host port 127.0.0.1:8080/tcp"]),
        [undefined, "fd88::1", "that port on all addresses"],
        ["fd88::1", "::", "host port [fd88::1]:8080/tcp"],
      ]
    ) {
      call(portmap, "ADD", on(first), { container: a, containerId: "a" });
      const before = nftListRuleset(host);
      const { code, message } = errorOfCall(() => call(portmap, "ADD", on(second), { container: b, containerId: "b" }));
      expect(code).toBe(100);
      expect(message).toEndWith(`: container "a" (network "web", interface "eth0") has ${held}`);
      expect(nftListRuleset(host)).toBe(before);
      if (first === undefined) expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("a 10.88.0.1");
      call(portmap, "DEL", on(first), { container: a, containerId: "a" });
    }
  },
);

bridgeNetworkTest("ports that share no packet, or have one owner, are no overlap", (network) => {
  const { host, call } = network;
  const a = network.container(2);
  const b = network.container(3);
  call(portmap, "ADD", on("127.0.0.1"), { container: a, containerId: "a" });
  const same = { container: a, containerId: "a" };
  call(portmap, "ADD", portMappingConfig([{ hostPort: 8080, containerPort: 81 }]), same);
  call(portmap, "ADD", on("192.0.2.1"), same);
  const others = { container: b, containerId: "b" };
  call(portmap, "ADD", on("127.0.0.1", 8081), others);
  call(portmap, "ADD", on(undefined, 8082), others);
  call(portmap, "ADD", portMappingConfig([{ hostPort: 8080, containerPort: 80, protocol: "udp" }]), others);
  call(portmap, "DEL", {}, same);
  call(portmap, "ADD", on("0.0.0.0"), same);
  call(portmap, "ADD", on("fd88::1"), others);
  expect(nftElements(host).filter((each) => /hostports.*8080/.test(each))).toEqual([
    'hostip_hostports6: fd88::1 . tcp . 8080 comment "web b eth0" : fd88::3 . 80',
    'hostports4: tcp . 8080 comment "web a eth0" : 10.88.0.2 . 80',
    'hostports4: udp . 8080 comment "web b eth0" : 10.88.0.3 . 80',
    'hostports6: udp . 8080 comment "web b eth0" : fd88::3 . 80',
  ]);
  return Promise.resolve();
});

bridgeNetworkTest(
  "a container of another network is named as well, for every protocol, and only where packets are shared",
  (network) => {
    const { call } = network;
    const a = network.container(2);
    const b = network.container(3);
    const config = (name: string, protocol: string, hostIP?: string) =>
      portMappingConfig([{ hostPort: 8080, containerPort: 80, protocol, ...hostIP === undefined ? {} : { hostIP } }], {
        name,
      });
    const only = ({ result }: BridgeContainer, family: 4 | 6) => ({
      prevResult: { ...result, ips: [result.ips![family === 4 ? 0 : 1]!] },
    });
    const one = { 4: "192.0.2.1", 6: "2001:db8::1" } as const;
    for (const protocol of ["tcp", "udp", "sctp"]) {
      for (const family of [4, 6] as const) {
        const other = family === 4 ? 6 : 4;
        for (const [first, second] of [[undefined, undefined], [undefined, one[family]], [one[family], undefined]]) {
          const has = { container: a, containerId: "a", ...only(a, family) };
          const wants = { container: b, containerId: "b", ...only(b, family) };
          call(portmap, "ADD", config("first", protocol, first), has);
          const error = errorOfCall(() => call(portmap, "ADD", config("second", protocol, second), wants));
          expect(error.code).toBe(100);
          expect(error.message).toContain(`8080/${protocol}: container "a" (network "first", interface "eth0") has `);
          // Neither the other family's packets are shared, nor another protocol's.
          const allowed = [
            [config("second", protocol, second === undefined ? undefined : one[other]), only(b, other)],
            [config("second", protocol === "tcp" ? "udp" : "tcp", second), only(b, family)],
          ] as const;
          for (const [config, result] of allowed) {
            call(portmap, "ADD", config, { ...wants, ...result });
            call(portmap, "DEL", config, { ...wants, ...result });
          }
          call(portmap, "DEL", config("first", protocol, first), has);
        }
      }
    }
    return Promise.resolve();
  },
);

bridgeNetworkTest(
  "of a hundred that want one port at once, one gets it and the others are told who has it",
  async (network) => {
    const { host } = network;
    const { result, netns } = network.container(2);
    const add = async (n: number): Promise<string> => {
      const stdin = JSON.stringify({
        ...{ cniVersion: "1.1.0", name: "web", type: "portmap", prevResult: result },
        // Half of them ask for one address.
        ...on(n % 2 === 0 ? undefined : "192.0.2.1"),
      });
      const env = { ...ENGINE_ENV, CNI_COMMAND: "ADD", CNI_CONTAINERID: `c${n}`, CNI_NETNS: netns.path };
      const child = host.run<Bun.Subprocess<Blob, "pipe", "ignore">>(() =>
        Bun.spawn([pluginLink("portmap")], { env, stdin: new Blob([stdin]), stdout: "pipe", stderr: "ignore" })
      );
      const stdout = await new Response(child.stdout).text();
      return await child.exited === 0 ? `c${n}` : JSON.parse(stdout).msg;
    };
    const answers = await Promise.all(Array.from({ length: 100 }, (_, n) => add(n)));
    const [winner, ...more] = answers.filter((each) => /^c\d+$/.test(each));
    expect(more).toEqual([]);
    const others = answers.filter((each) => each !== winner);
    expect(others).toHaveLength(99);
    for (const each of others) {
      expect(each).toContain(
        `8080/tcp: container "${winner}" (network "web", interface "eth0") has `,
      );
    }
    expect(new Set(nftElements(host).map((each) => /comment "(\S+ \S+)/.exec(each)?.[1]))).toEqual(
      new Set([`web ${winner}`]),
    );
  },
  60_000,
);

bridgeNetworkTest("of two that come at the same time one is refused", (network) => {
  const { host, call } = network;
  const a = network.container(2);
  const b = network.container(3);
  const owner = { network: "web", containerId: "a", ifname: "eth0" };
  const config = parsePortmapConfig(on());
  call(portmap, "ADD", on(undefined, 1), { container: b, containerId: "other" });
  let looks = 0;
  const look = () => {
    refusePortConflicts(host.nft, owner, config.mappings, a.addresses);
    // Right after the look, and before what was found free is taken.
    if (looks++ === 0) call(portmap, "ADD", on("127.0.0.1"), { container: b, containerId: "b" });
  };
  const error = errorOfCall(() =>
    ensureElements(host.nft, inetTable, owner, publishedElements(config, a.addresses), { checkConflicts: look })
  );
  expect(error.message).toEndWith("has host port 127.0.0.1:8080/tcp");
  expect(nftElements(host).filter((each) => each.includes("web a "))).toEqual([]);
  return Promise.resolve();
});
